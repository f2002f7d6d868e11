"""Functions that make tensors: of data, of a shape, of a range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ember_ml import devices, dtypes
from ember_ml.backend import aligned, selection
from ember_ml.backend.contract import Spec
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, DTypeError
from ember_ml.ops import dispatch, linearalg, manipulation, typed
from ember_ml.ops.axes import integer_of, shape_of
from ember_ml.ops.registry import op
from ember_ml.tensor import convert, interchange
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import DTypeLike, ShapeLike, TensorLike

if TYPE_CHECKING:
    from ember_ml.markers import D, R, Rank1, Rank2, V
    from ember_ml.tensor.typed import DTypeOf, Like

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]


def _spec(dtype: DType, device: str | None) -> Spec:
    backend = selection.current()
    if device is None:
        return backend.spec(dtype, devices.current_device(backend))
    return backend.spec(dtype, backend.canonical_device(device))


def _spec_like(x: TensorLike, dtype: DTypeLike, device: str | None) -> tuple[Tensor, Spec]:
    tensor = convert.to_tensor(x)
    spec = tensor._spec
    return tensor, spec.backend.spec(
        spec.dtype if dtype is None else dtypes.to_dtype(dtype),
        spec.device if device is None else spec.backend.canonical_device(device),
    )


def _float(dtype: DTypeLike) -> DType:
    return dtypes.default_float if dtype is None else dtypes.to_dtype(dtype)


def _host(array: np.ndarray[Any, Any], dtype: DType, device: str | None) -> Tensor:
    """A tensor of values that NumPy has made, so that they are the same on every backend."""
    spec = _spec(dtype, device)
    if array.dtype == dtype.numpy:
        values = aligned.settled(array)
    else:
        with np.errstate(all="ignore"):
            values = aligned.cast(array, dtype.numpy)
    return fill(spec.backend.from_numpy(values, spec), spec)


@op(creates=True)
def asarray(
    obj: TensorLike,
    /,
    *,
    dtype: DTypeOf[D] = None,
    device: str | None = None,
    copy: bool | None = None,
) -> Tensor[D]:
    """A tensor of a number, a nested list, an array of any engine, or a tensor.

    Memory is shared where it can be; `copy=True` never shares, `copy=False` raises instead.

    >>> asarray([[1, 2], [3, 4]]).dtype, asarray([0.5]).dtype
    (ember_ml.int64, ember_ml.float32)
    """
    return convert.asarray(obj, dtype, device, copy)


@op(creates=True)
def from_dlpack(x: object, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor of the current backend that shares memory with any object with `__dlpack__`.

    >>> from_dlpack(np.arange(3)).tolist()
    [0, 1, 2]
    """
    if not hasattr(x, "__dlpack__"):
        raise DTypeError(f"ops.from_dlpack takes an object with __dlpack__, not {type(x).__name__}")
    return interchange.from_dlpack(x, device, copy)


@op(creates=True)
@typed.creating
def empty(shape: ShapeLike, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """A tensor whose values do not matter.

    >>> empty((2, 3)).shape
    (2, 3)
    """
    spec = _spec(_float(dtype), device)
    return fill(spec.backend.empty(shape_of("empty", shape), spec), spec)


@op(creates=True)
@typed.creating
def zeros(shape: ShapeLike, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """A tensor of zeros.

    >>> zeros(2).tolist()
    [0.0, 0.0]
    """
    spec = _spec(_float(dtype), device)
    return fill(spec.backend.full(shape_of("zeros", shape), 0, spec), spec)


@op(creates=True)
@typed.creating
def ones(shape: ShapeLike, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """A tensor of ones.

    >>> ones((1, 2)).tolist()
    [[1.0, 1.0]]
    """
    spec = _spec(_float(dtype), device)
    return fill(spec.backend.full(shape_of("ones", shape), 1, spec), spec)


@op(creates=True)
def full(
    shape: ShapeLike,
    fill_value: TensorLike,
    *,
    dtype: DTypeOf[D] = None,
    device: str | None = None,
) -> Tensor[D]:
    """A tensor of one value.

    >>> full((2,), 7).tolist()
    [7, 7]
    """
    value, found = _fill_value(fill_value)
    spec = _spec(found if dtype is None else dtypes.to_dtype(dtype), device)
    return _filled("full", shape_of("full", shape), value, spec)


def _fill_value(value: TensorLike) -> tuple[Any, DType]:
    """A Python number of a fill value, and the dtype it asks for."""
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        return value, dtypes.dtype_of_scalar(value)
    tensor = convert.to_tensor(value)
    return tensor.item(), tensor.dtype


def _filled(name: str, shape: tuple[int, ...], value: Any, spec: Spec) -> Tensor:
    dtype = spec.dtype
    if isinstance(value, complex) and not dtype.is_complex:
        raise DTypeError(f"ops.{name} cannot fill a {dtype} tensor with {value!r}")
    if dtype.is_integer:
        value = int(value.real)
        if not dtypes.fits(value, dtype):
            raise DomainError(f"ops.{name} got {value}, which is out of the range of {dtype}")
    return fill(spec.backend.full(shape, value, spec), spec)


@op()
@typed.resembling
def empty_like(x: TensorLike, /, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """A tensor of the shape of `x` whose values do not matter.

    >>> empty_like([1, 2]).shape
    (2,)
    """
    tensor, spec = _spec_like(x, dtype, device)
    return fill(spec.backend.empty(tensor.shape, spec), spec)


@op()
@typed.resembling
def zeros_like(x: TensorLike, /, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """A tensor of zeros of the shape of `x`.

    >>> zeros_like([1, 2]).tolist()
    [0, 0]
    """
    tensor, spec = _spec_like(x, dtype, device)
    return fill(spec.backend.full(tensor.shape, 0, spec), spec)


@op()
@typed.resembling
def ones_like(x: TensorLike, /, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """A tensor of ones of the shape of `x`.

    >>> ones_like([5, 6]).tolist()
    [1, 1]
    """
    tensor, spec = _spec_like(x, dtype, device)
    return fill(spec.backend.full(tensor.shape, 1, spec), spec)


@op()
def full_like(
    x: Like[Any, Any, R],
    /,
    fill_value: TensorLike,
    *,
    dtype: DTypeOf[D] = None,
    device: str | None = None,
) -> Tensor[D, Any, R]:
    """A tensor of one value in the shape of `x`.

    >>> full_like([1.0, 2.0], 3).tolist()
    [3.0, 3.0]
    """
    tensor, spec = _spec_like(x, dtype, device)
    return _filled("full_like", tensor.shape, _fill_value(fill_value)[0], spec)


@op(creates=True)
def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeOf[D] = None,
    device: str | None = None,
) -> Tensor[D, Any, Rank1]:
    """Numbers from `start` up to but without `stop`; one argument counts from zero.

    >>> arange(3).tolist(), arange(1, 2, 0.5).tolist()
    ([0, 1, 2], [1.0, 1.5])
    """
    first, last = (0, start) if stop is None else (start, stop)
    first, last, by = (_number("arange", value) for value in (first, last, step))
    if by == 0:
        raise DomainError("ops.arange got step 0; it never reaches stop")
    if any(isinstance(value, float) and not math.isfinite(value) for value in (first, last, by)):
        raise DomainError(f"ops.arange takes finite numbers, not {first}, {last} and {by}")
    whole = all(isinstance(value, int) for value in (first, last, by))
    wanted = (
        (dtypes.default_int if whole else dtypes.default_float)
        if dtype is None
        else dtypes.to_dtype(dtype)
    )
    if wanted is dtypes.bool or wanted.is_complex:
        raise DTypeError(f"ops.arange takes a real numeric dtype, not {wanted}")
    if whole and any(type(value) is not int for value in (first, last, by)):
        # A size that varies, in a function that is exported.
        spec = _spec(dtypes.int64, device)
        count = -((first - last) // by)
        places = fill(spec.backend.counted(count, spec), spec)
        return convert.cast(places * by + first, wanted)
    if whole and wanted.is_integer:
        return _host(np.arange(first, last, by, dtype=wanted.numpy), wanted, device)
    return _host(np.arange(first, last, by), wanted, device)


def _varies(value: Any) -> bool:
    """True for a number that was computed of sizes which differ from run to run."""
    if isinstance(value, np.generic):
        return False
    return isinstance(value, int | float) and type(value) not in (bool, int, float)


def _number(name: str, value: Any) -> Any:
    """A real Python number of a number or of a tensor with one element."""
    if isinstance(value, Tensor | np.generic | np.ndarray):
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, int | float):
        raise DTypeError(f"ops.{name} takes real numbers, not {value!r}")
    return value


@op(creates=True)
def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: DTypeOf[D] = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor[D, Any, Rank1]:
    """`num` numbers at equal distance from `start` to `stop`.

    >>> linspace(0, 1, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    count = integer_of("linspace", num, "num")
    if count < 0:
        raise DomainError(f"ops.linspace got num={count}; a count is not negative")
    is_complex = any(isinstance(bound, complex) for bound in (start, stop))
    default = dtypes.default_complex if is_complex else dtypes.default_float
    wanted = default if dtype is None else dtypes.to_dtype(dtype)
    if is_complex and not wanted.is_complex:
        raise DTypeError(f"ops.linspace from {start} to {stop} needs a complex dtype, not {wanted}")
    if not is_complex and (type(count) is not int or _varies(start) or _varies(stop)):
        # Sizes that vary, in a function that is exported.
        run = dtypes.float64 if wanted.is_integer else wanted
        places = arange(count, dtype=run, device=device)
        last = places[-1:] if endpoint else places[-1:] + 1
        # A single point is the start.
        return convert.cast(places / (last + (last == 0)) * (stop - start) + start, wanted)
    with np.errstate(all="ignore"):
        values = np.linspace(start, stop, count, endpoint=endpoint)
    return _host(values, wanted, device)


@op(creates=True)
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeOf[D] = None,
    device: str | None = None,
) -> Tensor[D, Any, Rank2]:
    """A matrix with ones on the k-th diagonal and zeros elsewhere.

    >>> eye(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    rows = shape_of("eye", n_rows)[0]
    columns = rows if n_cols is None else shape_of("eye", n_cols)[0]
    k = integer_of("eye", k, "k")
    if type(rows) is not int or type(columns) is not int:
        # Sizes that vary, in a function that is exported.
        down, along = arange(rows, device=device), arange(columns, device=device)
        return convert.cast(down[:, None] + k == along, _float(dtype))
    return _host(np.eye(rows, columns, k=k), _float(dtype), device)


@op()
def meshgrid(*arrays: TensorLike, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinate matrices of coordinate vectors.

    >>> [g.tolist() for g in meshgrid([1, 2], [3, 4, 5])]
    [[[1, 2], [1, 2], [1, 2]], [[3, 3], [4, 4], [5, 5]]]
    """
    if indexing not in ("xy", "ij"):
        raise DomainError(f"ops.meshgrid takes indexing 'xy' or 'ij', not {indexing!r}")
    home = dispatch.home_of("meshgrid", arrays)
    tensors = [convert.to_tensor(x, home) for x in arrays]
    dtypes.common([t.dtype for t in tensors] or [dtypes.bool], "meshgrid")
    count = len(tensors)
    order = list(range(count))
    if indexing == "xy" and count > 1:
        order[0], order[1] = 1, 0
    shapes = [
        tuple(t.size if place == axis else 1 for place in range(count))
        for axis, t in zip(order, tensors, strict=True)
    ]
    sides = [0] * count
    for axis, t in zip(order, tensors, strict=True):
        sides[axis] = t.size
    return tuple(
        manipulation.broadcast_to(manipulation.reshape(t, shape), tuple(sides)).clone()
        for t, shape in zip(tensors, shapes, strict=True)
    )


@op()
def tril(x: Like[D, V, R], /, *, k: int = 0) -> Tensor[D, V, R]:
    """The elements on and below the k-th diagonal; zeros above.

    >>> tril([[1, 2], [3, 4]]).tolist()
    [[1, 0], [3, 4]]
    """
    return dispatch.call("tril", linearalg.matrix_of("tril", x), integer_of("tril", k, "k"))


@op()
def triu(x: Like[D, V, R], /, *, k: int = 0) -> Tensor[D, V, R]:
    """The elements on and above the k-th diagonal; zeros below.

    >>> triu([[1, 2], [3, 4]]).tolist()
    [[1, 2], [0, 4]]
    """
    return dispatch.call("triu", linearalg.matrix_of("triu", x), integer_of("triu", k, "k"))
