"""`x[key]` and `x[key] = value` with NumPy's meaning on every backend.

A key is read once here: bounds of integers and slices are checked against the shape, lists and
arrays become integer or boolean arrays beside `x`, and what an engine lacks is rewritten.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.autodiff import tape
from ember_ml.backend.contract import Backend
from ember_ml.errors import (
    BackendMismatchError,
    DTypeError,
    EmberError,
    OutOfBoundsError,
    ShapeError,
)
from ember_ml.ops.explain import explain
from ember_ml.tensor import convert, families, views, writing
from ember_ml.tensor.core import GradTensor, Tensor, fill

__all__ = ["get", "put"]

_PLAIN = (Tensor, bool, int, float, complex, np.generic)
_PARTS = frozenset((int, type(None)))


def get(x: Tensor, key: Any) -> Tensor:
    """The elements of `x` at `key`."""
    quick = views.quick_slice(x, key)
    if quick is not None:
        return quick
    backend = x._spec.backend
    checked, advanced = read_key(x, key)
    if not advanced:
        return views.sliced(x, checked)
    try:
        native = backend.getitem(x.native, checked)
    except Exception as error:
        raise explain("__getitem__", error, (x,), options=(key,)) from error
    if type(native) is not x._spec.native_type:
        native = backend.settle_native(native, x._spec)
    if type(x) is GradTensor:
        return tape.recorded("getitem", native, x._spec, (x,), (checked,))
    return fill(native, x._spec)


def put(x: Tensor, key: Any, value: Any) -> None:
    """Write `value` to the elements of `x` at `key`."""
    spec = x._spec
    backend = spec.backend
    writing.require_writable(x)
    checked, advanced = read_key(x, key)
    if not isinstance(value, _PLAIN):
        value = convert.to_tensor(value, backend)
    native = _value(x, value)
    needs = type(x) is GradTensor or type(value) is GradTensor
    try:
        if needs and families.is_recording(x):
            _put_recorded(x, checked, value, native)
        elif needs and backend.records:
            with backend.recording(False):
                writing.put(x, checked, advanced, native)
        else:
            writing.put(x, checked, advanced, native)
    except EmberError:
        raise
    except Exception as error:
        raise _explain_put(x, key, value, error) from error


def _put_recorded(x: Tensor, key: tuple[Any, ...], value: Any, native: Any) -> None:
    """A write that gradients pass: the tensor is from then on the result of an update."""
    from ember_ml.ops import updates

    if x._spec.backend.records:
        writing.record(x, lambda target: x._spec.backend.setitem(target, key, native))
    else:
        writing.replace(x, updates.written(x, key, value))


def _value(x: Tensor, value: Any) -> Any:
    spec = x._spec
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float | complex):
        if dtypes.scalar_dtype(value, spec.dtype, "__setitem__") is not spec.dtype:
            raise DTypeError(
                f"x[key] = {value!r} does not fit a {spec.dtype} tensor; cast one of them"
            )
        return spec.scalar(value)
    tensor = convert.to_tensor(value, spec.backend)
    if tensor._spec is spec:
        return tensor.native
    if tensor._spec.backend is not spec.backend or tensor.device != x.device:
        from ember_ml.ops.dispatch import operands

        operands("__setitem__", x, tensor)  # raises the error of mixed backends or devices
    if dtypes.promote(spec.dtype, tensor.dtype, "__setitem__") is not spec.dtype:
        raise DTypeError(
            f"x[key] = value would cast {tensor.dtype} to the {spec.dtype} of x and lose "
            f"precision; cast the value with .astype('{spec.dtype}')"
        )
    return spec.backend.cast(tensor.native, spec.dtype)


def _explain_put(x: Tensor, key: Any, value: Any, error: Exception) -> Exception:
    target = get(x, key).shape
    given = getattr(value, "shape", np.shape(value))
    try:
        fits = np.broadcast_shapes(target, tuple(given)) == target
    except ValueError:
        fits = False
    if not fits:
        return ShapeError(
            f"x[key] = value got a value of shape {tuple(given)} for elements of shape {target}"
        )
    return explain("__setitem__", error, (x,), options=(key,))


# --- Keys -----------------------------------------------------------------------------------


def read_key(x: Tensor, key: Any) -> tuple[tuple[Any, ...], bool]:
    """A key as a tuple of ints, slices, None, Ellipsis and native arrays; and if it has arrays."""
    shape = x.shape
    if type(key) is int and shape:
        return (_bounded(key, 0, shape),), False
    if type(key) is slice and shape and _is_plain(key):
        return (key,), False
    items = key if isinstance(key, tuple) else (key,)
    spans = [_span(x, item) for item in items]
    used = sum(span for _, span in spans if span > 0)
    ellipses = sum(1 for item, _ in spans if item is Ellipsis)
    if ellipses > 1:
        raise OutOfBoundsError(f"a key has at most one ellipsis (...), got {ellipses}")
    if used > len(shape):
        raise OutOfBoundsError(
            f"too many indices: the key takes {used} axes, the tensor has shape {shape}"
        )
    axis = 0
    checked: list[Any] = []
    advanced = False
    for item, span in spans:
        if item is Ellipsis:
            axis += len(shape) - used
            checked.append(item)
        elif isinstance(item, int):
            checked.append(_bounded(item, axis, shape))
            axis += 1
        elif isinstance(item, Tensor):
            advanced = True
            checked.append(_array_item(item, axis, shape, x._spec.backend))
            axis += span
        else:
            checked.append(item)
            axis += span
    return tuple(checked), advanced


def _is_plain(key: slice) -> bool:
    """True for a slice of numbers, of which nothing is to be found out."""
    return (
        type(key.start) in _PARTS
        and type(key.stop) in _PARTS
        and type(key.step) in _PARTS
        and key.step != 0
    )


def _span(x: Tensor, item: Any) -> tuple[Any, int]:
    """A readable item, and how many axes of the tensor it takes."""
    if item is None or item is Ellipsis:
        return item, 0
    if isinstance(item, bool | np.bool_):
        return convert.asarray(bool(item), backend=x._spec.backend), 0
    if isinstance(item, int):
        return item, 1
    if isinstance(item, slice):
        return slice(_bound(item.start), _bound(item.stop), _step(item.step)), 1
    if isinstance(item, Tensor | np.ndarray | list) or convert.backend_of(item) is not None:
        tensor = convert.to_tensor(item, x._spec.backend)
        if not tensor.size and isinstance(item, list):
            tensor = convert.cast(tensor, dtypes.int64)
        return _array_span(x, tensor)
    try:
        return operator.index(item), 1
    except TypeError:
        raise DTypeError(
            f"an index is an integer, a slice, None, ..., or a tensor of integers or truth "
            f"values, not {item!r} of type {type(item).__name__}"
        ) from None


def _array_span(x: Tensor, tensor: Tensor) -> tuple[Any, int]:
    dtype = tensor.dtype
    if tensor._spec.backend is not x._spec.backend or tensor.device != x.device:
        from ember_ml.ops.dispatch import operands

        operands("__getitem__", x, tensor)  # raises the error of mixed backends or devices
        raise BackendMismatchError(
            f"x[key] got a tensor of backend '{x.backend}' from outside of an exported function "
            f"and a traced key; give x to the function as an argument, or use ops.take"
        )
    if dtype is dtypes.bool:
        return tensor, tensor.ndim
    if not dtype.is_integer:
        raise DTypeError(f"a tensor of indices holds integers or truth values, not {dtype}")
    if tensor.ndim == 0 and not tensor._spec.backend.is_traced(tensor.native):
        return int(tensor), 1
    # Engines take int64 indices alike; torch reads uint8 as a mask.
    return convert.cast(tensor, dtypes.int64), 1


def _bound(value: Any) -> int | None:
    return None if value is None else _integer(value)


def _step(value: Any) -> int | None:
    step = _bound(value)
    if step == 0:
        raise OutOfBoundsError("a slice step cannot be zero")
    return step


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return value  # one that varies stays one: operator.index gives a plain number
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(f"slice bounds are integers, not {value!r}") from None


def _bounded(index: int, axis: int, shape: tuple[int, ...]) -> int:
    side = shape[axis]
    if not -side <= index < side:
        raise OutOfBoundsError(
            f"index {index} is out of bounds for axis {axis} of a tensor of shape {shape}"
        )
    return index


def _array_item(item: Tensor, axis: int, shape: tuple[int, ...], backend: Backend) -> Any:
    if item.dtype is dtypes.bool:
        covered = shape[axis : axis + item.ndim]
        if item.shape == covered:
            return item.native
        if any(side not in (0, whole) for side, whole in zip(item.shape, covered, strict=True)):
            raise OutOfBoundsError(
                f"a mask of shape {item.shape} does not fit axes {axis} to "
                f"{axis + item.ndim - 1} of a tensor of shape {shape}"
            )
        # A mask without elements chooses nothing, whatever the length of the axes it lacks.
        return backend.full(covered, 0, item._spec)
    noticed = backend.checks_indices and 0 not in shape  # NumPy takes any index into nothing
    if not noticed and item.size and backend.checks_values(item.native):
        check_bounds(item.numpy(), shape[axis], axis, shape)
    return item.native


def check_bounds(
    indices: np.ndarray[Any, Any], side: int, axis: int, shape: tuple[int, ...], op: str = ""
) -> None:
    """Raise OutOfBoundsError where an index lies beyond an axis of length `side`."""
    low, high = int(indices.min()), int(indices.max())
    if low < -side or high >= side:
        wrong = low if low < -side else high
        raise OutOfBoundsError(
            f"{op and f'ops.{op}: '}index {wrong} is out of bounds for axis {axis} "
            f"of a tensor of shape {shape}"
        )
