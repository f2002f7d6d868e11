"""From tensors to kernels and back: the way of every call.

The fast path is short: the same class and the same spec, call the kernel, fill a slotted object.
Whatever differs (Python scalars, lists, native arrays, mixed dtypes, gradients) takes the long
way below it. Errors are explained after a failure, not looked for before success.

This is a file of the compiled core (ember_ml/compiled.py). What comes from outside is `Any`, and a
tensor whose class is known is a `Cell`: then its fields are read without asking.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.autodiff.tape import recorded, recorded_many, recorded_one, recorded_pair
from ember_ml.backend import pairs
from ember_ml.backend.contract import Backend, NativeArray, Spec
from ember_ml.dtypes import DType
from ember_ml.errors import BackendMismatchError, DeviceError, DomainError
from ember_ml.ops.explain import explain
from ember_ml.ops.registry import REGISTRY
from ember_ml.tensor import convert, families, homes, writing
from ember_ml.tensor.cell import Cell
from ember_ml.tensor.core import GradTensor, Tensor, like
from ember_ml.tensor.windows import TensorView, TensorViewMut

# isort: split
from ember_ml.tensor.cell import blank, fill  # after core, which sets `blank`

__all__ = [
    "affine",
    "aligned",
    "binary",
    "call",
    "call_many",
    "chosen",
    "gathered",
    "home_of",
    "in_place",
    "joined",
    "lifted",
    "operands",
    "reduce",
    "same_device",
    "settled",
    "together",
    "unary",
]

# Constants, which compiled code holds at hand; names of another module it would look up.
_PLAIN: Final[Any] = Tensor
_GRAD: Final[Any] = GradTensor
_SCALARS: Final = (bool, int, float, complex)
# NumPy's scalars count as numbers here: clients mix them freely with tensors.
_WEAK: Final = (*_SCALARS, np.generic)
_READ: Final = (Tensor, *_WEAK)
_TENSORS: Final = frozenset((Tensor, GradTensor))
_WINDOWS: Final = frozenset((TensorView, TensorViewMut))
# Ops whose gradients need no values of their operands.
_LINEAR: Final = (pairs.ADD, pairs.SUBTRACT)


def unary(name: str, x: Any) -> Tensor:
    """Run a one-operand op."""
    if type(x) is not _PLAIN:
        if type(x) is _GRAD:
            return _unary_recorded(name, x)
        x = convert.to_tensor(x)
        if type(x) is not _PLAIN:
            return call(name, x)
    operand: Cell = x
    spec = operand._spec
    try:
        kernel, result = spec.kernels[name]
    except KeyError:
        kernel, result = spec.backend.entry(spec, name)
    try:
        native = kernel(operand.native)
    except Exception as error:
        raise explain(name, error, (x,))
    if result.settles and type(native) is not result.native_type:
        native = result.backend.settle_native(native, result)
    out = blank()
    out.native = native
    out._spec = result
    return out  # type: ignore[return-value]  # a Tensor, which Cell cannot name


def _unary_recorded(name: str, x: Any) -> Tensor:
    operand: Cell = x
    spec = operand._spec
    try:
        kernel, result = spec.kernels[name]
    except KeyError:
        kernel, result = spec.backend.entry(spec, name)
    try:
        native = kernel(operand.native)
    except Exception as error:
        raise explain(name, error, (x,))
    if result.settles and type(native) is not result.native_type:
        native = result.backend.settle_native(native, result)
    return recorded_one(name, native, result, x, ())


def binary(number: int, x1: Any, x2: Any) -> Tensor:
    """Run a two-operand op, by its number in backend/pairs.py, with broadcasting and promotion."""
    if type(x1) is _PLAIN and type(x2) is _PLAIN:
        first: Cell = x1
        second: Cell = x2
        spec = first._spec
        if spec is second._spec:
            found = spec.pairs[number]
            if found is None:
                found = spec.pair(number)
            # Read, and then called: Python looks for a method where a field is called at once.
            kernel = found.kernel
            try:
                native = kernel(first.native, second.native)
            except Exception as error:
                raise explain(pairs.NAMES[number], error, (x1, x2))
            result = found.result
            if found.ordinary is not None and type(native) is not found.ordinary:
                native = result.backend.settle_native(native, result)
            out = blank()
            out.native = native
            out._spec = result
            return out  # type: ignore[return-value]  # a Tensor, which Cell cannot name
    elif type(x1) is _PLAIN:
        spec = x1._spec
        if type(x2) in spec.weak:
            try:
                weak = spec.scalar(x2)
            except DomainError as error:
                raise _misfit(pairs.NAMES[number], error)
            return _binary_same(number, spec, x1.native, weak, (x1, x2))
        if type(x2) is _GRAD and x2._spec is spec:
            return _binary_recorded(number, x1, x2, spec)
    elif type(x2) is _PLAIN:
        spec = x2._spec
        if type(x1) in spec.weak:
            try:
                weak = spec.scalar(x1)
            except DomainError as error:
                raise _misfit(pairs.NAMES[number], error)
            return _binary_same(number, spec, weak, x2.native, (x1, x2))
        if type(x1) is _GRAD and x1._spec is spec:
            return _binary_recorded(number, x1, x2, spec)
    elif type(x1) is _GRAD and type(x2) is _GRAD and x1._spec is x2._spec:
        return _binary_recorded(number, x1, x2, x1._spec)
    return _binary_mixed(number, x1, x2)


def _binary_recorded(number: int, x1: Any, x2: Any, spec: Spec) -> Tensor:
    """Run a two-operand op on tensors of one spec, of which one needs gradients."""
    first: Cell = x1
    second: Cell = x2
    found = spec.pairs[number]
    if found is None:
        found = spec.pair(number)
    kernel = found.kernel
    try:
        native = kernel(first.native, second.native)
    except Exception as error:
        raise explain(pairs.NAMES[number], error, (x1, x2))
    result = found.result
    if found.ordinary is not None and type(native) is not found.ordinary:
        native = result.backend.settle_native(native, result)
    return recorded_pair(pairs.NAMES[number], native, result, x1, x2)


def _binary_same(
    number: int, spec: Spec, a: NativeArray, b: NativeArray, inputs: tuple[object, object]
) -> Tensor:
    """Run a two-operand op on native arrays of one spec."""
    found = spec.pairs[number]
    if found is None:
        found = spec.pair(number)
    kernel = found.kernel
    try:
        native = kernel(a, b)
    except Exception as error:
        raise explain(pairs.NAMES[number], error, inputs)
    result = found.result
    if found.ordinary is not None and type(native) is not found.ordinary:
        native = result.backend.settle_native(native, result)
    return fill(native, result)


def _binary_mixed(number: int, x1: Any, x2: Any) -> Tensor:
    name = pairs.NAMES[number]
    # Views of JAX and MLX are windows on memory: once they are read, the rest is as short.
    if type(x1) in _WINDOWS:
        spec = x1._spec
        if type(x2) in _WINDOWS or type(x2) is _PLAIN:
            if x2._spec is spec:
                return _binary_same(number, spec, x1.native, x2.native, (x1, x2))
        elif type(x2) in spec.weak:
            return _binary_same(number, spec, x1.native, _scalar(name, spec, x2), (x1, x2))
    elif type(x2) in _WINDOWS:
        spec = x2._spec
        if type(x1) is _PLAIN:
            if x1._spec is spec:
                return _binary_same(number, spec, x1.native, x2.native, (x1, x2))
        elif type(x1) in spec.weak:
            return _binary_same(number, spec, _scalar(name, spec, x1), x2.native, (x1, x2))
    spec, (a, b), taped = operands(name, x1, x2)
    kernel, result = spec.backend.entry(spec, name)
    try:
        native = kernel(a, b)
    except Exception as error:
        raise explain(name, error, (x1, x2))
    if result.settles and type(native) is not result.native_type:
        native = result.backend.settle_native(native, result)
    return recorded(name, native, result, taped) if taped else fill(native, result)


def reduce(name: str, x: Any, axis: Any, keepdims: Any) -> Tensor:
    """Run a reduction over one, several or all axes."""
    if type(x) is not _PLAIN:
        x = convert.to_tensor(x)
        if type(x) is not _PLAIN:
            plain = reduce(name, fill(x.native, x._spec), axis, keepdims)
            if type(x) is _GRAD:
                return recorded_one(name, plain.native, plain._spec, x, (axis, keepdims))
            return plain
    operand: Cell = x
    spec = operand._spec
    if axis is None and keepdims is False:
        try:
            found = spec.whole[name]
        except KeyError:
            found = spec.whole_of(name)
        kernel = found.kernel
        try:
            native = kernel(operand.native)
        except Exception as error:
            raise explain(name, error, (x,))
        result = found.result
    else:
        try:
            kernel, result = spec.kernels[name]
        except KeyError:
            kernel, result = spec.backend.entry(spec, name)
        try:
            native = kernel(operand.native, axis=axis, keepdims=keepdims)
        except Exception as error:
            raise explain(name, error, (x,), axis=axis)
    if result.settles and type(native) is not result.native_type:
        native = result.backend.settle_native(native, result)
    out = blank()
    out.native = native
    out._spec = result
    return out  # type: ignore[return-value]  # a Tensor, which Cell cannot name


def call(name: str, x: Any, *options: Any) -> Tensor:
    """Run an op on one tensor with options in the standard's order."""
    tensor: Any = x if type(x) in _TENSORS else convert.to_tensor(x)
    spec: Spec = tensor._spec
    try:
        kernel, result = spec.kernels[name]
    except KeyError:
        kernel, result = spec.backend.entry(spec, name)
    try:
        native = kernel(tensor.native, *options)
    except Exception as error:
        raise explain(name, error, (tensor,), options=options)
    if result.settles and type(native) is not result.native_type:
        native = result.backend.settle_native(native, result)
    if type(tensor) is _GRAD:
        return recorded_one(name, native, result, tensor, options)
    return fill(native, result)


def affine(x: Any, weight: Any, bias: Any) -> Tensor | None:
    """Run ops.linear on tensors of one spec; None where they are others, or it fails."""
    kind = type(x)
    other = type(weight)
    if (kind is not _PLAIN and kind is not _GRAD) or (other is not _PLAIN and other is not _GRAD):
        return None
    operand: Cell = x
    matrix: Cell = weight
    spec = matrix._spec
    if operand._spec is not spec:
        return None
    try:
        kernel, result = spec.kernels["linear"]
    except KeyError:
        kernel, result = spec.backend.entry(spec, "linear")
    try:
        native = kernel(operand.native, matrix.native, None if bias is None else bias.native)
    except Exception:
        return None  # ops.linear explains it
    if result.settles and type(native) is not result.native_type:
        native = result.backend.settle_native(native, result)
    if (kind is _PLAIN and other is _PLAIN and type(bias) is not _GRAD) or (
        # An engine's own record tells by the result whether gradients are needed, as they are not
        # where nothing is recorded.
        result.records and not native.requires_grad
    ):
        out = blank()
        out.native = native
        out._spec = result
        return out  # type: ignore[return-value]  # a Tensor, which Cell cannot name
    return recorded("linear", native, result, (x, weight, bias))


def chosen(condition: Any, x1: Any, x2: Any) -> Tensor | None:
    """Run ops.where on plain tensors of one spec, or one and a number; None for all else."""
    if type(condition) is not _PLAIN:
        return None
    mask: Cell = condition
    where = mask._spec
    if type(x1) is _PLAIN:
        first: Cell = x1
        spec = first._spec
    elif type(x2) is _PLAIN:
        first = x2
        spec = first._spec
    else:
        return None
    if (
        where.dtype is not dtypes.bool
        or where.backend is not spec.backend
        or where.device != spec.device
    ):
        return None
    a = _native_beside(spec, x1)
    b = _native_beside(spec, x2)
    if a is None or b is None:
        return None
    try:
        kernel, result = spec.kernels["where"]
    except KeyError:
        kernel, result = spec.backend.entry(spec, "where")
    try:
        native = kernel(mask.native, a, b)
    except Exception:
        return None  # ops.where explains it
    if result.settles and type(native) is not result.native_type:
        native = result.backend.settle_native(native, result)
    return fill(native, result)


def _native_beside(spec: Spec, x: Any) -> NativeArray | None:
    """The array of a tensor of that spec or of a number that it takes; None for all else."""
    if type(x) is _PLAIN:
        operand: Cell = x
        return operand.native if operand._spec is spec else None
    if type(x) in spec.weak:
        try:
            return spec.scalar(x)
        except DomainError:
            pass
    return None


def joined(name: str, arrays: Any, axis: Any, more: int) -> Tensor | None:
    """Run concat or stack on plain tensors of one spec and rank; None for all else.

    `more` is how many axes the result has more.
    """
    if type(axis) is not int or (type(arrays) is not list and type(arrays) is not tuple):
        return None
    same = _same(tuple(arrays))
    if same is None:
        return None
    spec = same.spec
    natives = same.natives
    ndim: int = natives[0].ndim
    for native in natives:
        if native.ndim != ndim:  # torch joins what has no elements to anything
            return None
    place: int = axis + ndim + more if axis < 0 else axis
    if place < 0 or place >= ndim + more:
        return None
    try:
        kernel, result = spec.kernels[name]
    except KeyError:
        kernel, result = spec.backend.entry(spec, name)
    try:
        return fill(kernel(natives, place), result)
    except Exception:
        return None  # the op explains it


def call_many(name: str, x: Any, *options: Any) -> tuple[Tensor, ...]:
    """Run an op that gives several arrays; each tells its own dtype."""
    tensor = convert.to_tensor(x)
    spec = tensor._spec
    kernel, _ = spec.backend.entry(spec, name)
    try:
        natives = kernel(tensor.native, *options)
    except Exception as error:
        raise explain(name, error, (tensor,), options=options)
    results = [settled(native, spec) for native in natives]
    if type(tensor) is _GRAD:
        return recorded_many(name, results, (tensor,), options)
    return tuple([fill(native, own) for native, own in results])


def together(name: str, inputs: tuple[Any, ...], *options: Any, kernel: str = "") -> Tensor:
    """Run an op on several tensors of one dtype; None stands for one that is left out.

    `kernel` names the kernel where several ops share one.
    """
    spec, natives, taped = gathered(name, inputs)
    run, result = spec.backend.entry(spec, kernel or name)
    try:
        native = run(*natives, *options)
    except Exception as error:
        given = tuple(value for value in inputs if value is not None)
        raise explain(name, error, given, options=options)
    if result.settles and type(native) is not result.native_type:
        native = result.backend.settle_native(native, result)
    if taped:
        return recorded(kernel or name, native, result, taped, options)
    return fill(native, result)


def gathered(
    name: str, inputs: tuple[Any, ...]
) -> tuple[Spec, tuple[NativeArray | None, ...], tuple[Tensor | None, ...]]:
    """The spec in which an op runs on several inputs, and their native arrays in it.

    The third is what a record needs: the inputs as tensors, or nothing where none has gradients.
    """
    first = inputs[0]
    if type(first) in _TENSORS and (spec := first._spec).dtype in REGISTRY[name].accepts:
        natives: list[NativeArray | None] = []
        recorded_too = numbers = False
        for x in inputs:
            if type(x) is _PLAIN and x._spec is spec:
                natives.append(x.native)
            elif type(x) is _GRAD and x._spec is spec:
                natives.append(x.native)
                recorded_too = True
            elif x is None:
                natives.append(None)
            elif type(x) in spec.weak:
                natives.append(_scalar(name, spec, x))
                numbers = True
            else:
                break
        else:
            if not recorded_too:
                return spec, tuple(natives), ()
            if not numbers:  # a record wants them as tensors
                return spec, tuple(natives), inputs
    spec, found, taped = operands(name, *(x for x in inputs if x is not None))
    run = REGISTRY[name].run_dtype(spec.dtype)
    if run is not spec.dtype:  # no floating dtype is cast, and others have no gradients
        spec = spec.with_dtype(run)
        found = tuple(spec.backend.cast(native, run) for native in found)
    given = iter(found)
    everywhere = tuple(None if x is None else next(given) for x in inputs)
    if not taped:
        return spec, everywhere, ()
    tensors = iter(taped)
    return spec, everywhere, tuple(None if x is None else next(tensors) for x in inputs)


def aligned(name: str, *inputs: Any) -> tuple[Tensor, ...]:
    """Some inputs as tensors of their common spec."""
    spec, natives, taped = operands(name, *inputs)
    return taped or tuple(fill(native, spec) for native in natives)


def lifted(name: str, x: Any) -> Tensor:
    """An op's input in the dtype in which the op runs; DTypeError where it takes no such dtype."""
    tensor = convert.to_tensor(x)
    return convert.cast(tensor, REGISTRY[name].run_dtype(tensor.dtype))


def settled(native: NativeArray, spec: Spec) -> tuple[NativeArray, Spec]:
    """A native result as an ordinary array, with the spec that it tells of itself."""
    backend = spec.backend
    if type(native) is not spec.native_type:
        native = backend.settle_native(native, spec)
    return native, backend.spec(backend.dtype_of(native), spec.device)


def operands(
    name: str, *inputs: Any, dtype: DType | None = None
) -> tuple[Spec, tuple[NativeArray, ...], tuple[Tensor, ...]]:
    """The common spec of some inputs, their native arrays in it, and what a record needs of them:
    the inputs as tensors of that spec, or nothing where none needs gradients.

    Tensors and native arrays decide the backend; Python scalars are weak; lists and NumPy arrays
    go where the tensors are, or to the current backend.
    """
    if dtype is None:
        same = _same(inputs)
        if same is not None:
            return same.spec, tuple(same.natives), ()
    home = home_of(name, inputs)
    scalars: list[bool] = []
    tensors: list[Any] = []
    for value in inputs:
        weak = isinstance(value, _WEAK)
        scalars.append(weak)
        if weak:
            tensors.append(value.item() if isinstance(value, np.generic) else value)
        else:
            tensors.append(convert.to_tensor(value, home))
    strong = [t for t, weak in zip(tensors, scalars, strict=True) if not weak]
    if dtype is None:
        dtype = _common_dtype(name, strong, [t for t, w in zip(tensors, scalars, strict=True) if w])
    device = strong[0].device if strong else None
    for other in strong[1:]:
        same_device(name, device, other.device)
    spec = home.spec(dtype, device or convert.device_for(home))
    cast = home.cast
    if any(type(t) is _GRAD for t in strong):
        taped = tuple(
            fill(_scalar(name, spec, t), spec) if weak else convert.cast(t, dtype)
            for t, weak in zip(tensors, scalars, strict=True)
        )
        return spec, tuple(t.native for t in taped), taped
    natives = tuple(
        _scalar(name, spec, t) if weak else t.native if t._spec is spec else cast(t.native, dtype)
        for t, weak in zip(tensors, scalars, strict=True)
    )
    return spec, natives, ()


class _Same:
    """Native arrays of one spec."""

    __slots__ = ("natives", "spec")

    def __init__(self, spec: Spec, natives: list[NativeArray]) -> None:
        self.spec: Final = spec
        self.natives: Final = natives


def _same(inputs: tuple[Any, ...]) -> _Same | None:
    """What plain tensors of one spec hold; None where an input is something else."""
    natives: list[NativeArray] = []
    spec: Spec | None = None
    for x in inputs:
        if type(x) is not _PLAIN:
            return None
        operand: Cell = x
        if spec is None:
            spec = operand._spec
        elif operand._spec is not spec:
            return None
        natives.append(operand.native)
    return None if spec is None else _Same(spec, natives)


def _scalar(name: str, spec: Spec, value: object) -> NativeArray:
    """A Python number as an operand of an op."""
    try:
        return spec.scalar(value)
    except DomainError as error:
        raise _misfit(name, error)


def _misfit(name: str, error: Exception) -> DomainError:
    """What is wrong with a number that a dtype cannot hold, with the op that got it."""
    found = DomainError(f"ops.{name}: {error}")
    found.__cause__ = error  # compiled code raises, but keeps no cause by itself
    return found


def same_device(name: str, first: str | None, second: str) -> None:
    """Raise DeviceError where two tensors of one call lie on two devices."""
    if first != second:
        raise DeviceError(
            f"ops.{name} got tensors on devices '{first}' and '{second}'; "
            f"move one with .to_device('{first}')"
        )


def home_of(name: str, inputs: tuple[Any, ...]) -> Backend:
    """The one backend of the tensors among the inputs, or the current one."""
    home: Backend | None = None
    for value in inputs:
        backend = value._spec.backend if isinstance(value, Tensor) else convert.backend_of(value)
        if backend is None:
            continue
        if home is None:
            home = backend
        elif backend is not home:
            if home.adopts:
                continue
            if backend.adopts:
                home = backend
                continue
            raise BackendMismatchError(
                f"ops.{name} got tensors of backends '{home.name}' and '{backend.name}'; "
                f"move one of them, for example with .to_backend('{home.name}')"
            )
    return home or convert.current_backend()


def _common_dtype(name: str, strong: list[Tensor], weak: list[object]) -> DType:
    if strong:
        found = dtypes.common([t._spec.dtype for t in strong], name)
    else:
        found = dtypes.common([dtypes.dtype_of_scalar(value) for value in weak], name)
    for value in weak:
        found = dtypes.scalar_dtype(value, found, name)
    return found


def in_place(number: int, target: Any, other: Any) -> Tensor:
    """Run a two-operand op and write its result over the first: dtype and shape must not change."""
    if not isinstance(other, _READ):
        other = convert.to_tensor(other, target._spec.backend)
    if type(target) is _GRAD or type(other) is _GRAD:
        return _in_place_recorded(number, target, other)
    return _in_place(number, target, other)


def _in_place_recorded(number: int, target: Any, other: Any) -> Tensor:
    """The same where one of both needs gradients."""
    backend = target._spec.backend
    if not families.is_recording(target):
        with backend.recording(False):
            return _in_place(number, target, other)
    writing.require_writable(target)
    before = target
    in_memory = backend.records or (backend.mutable and homes.home_of(target) is not None)
    if in_memory and type(target) is _GRAD and number not in _LINEAR:
        # The operand may be kept for the gradient, and is to stay as it is.
        before = like(target, backend.copy(target.native))
    result = binary(number, before, other)
    writing.require_same(target, result)
    writing.replace(target, result)
    return target  # type: ignore[no-any-return]  # as in in_place


def _in_place(number: int, target: Any, other: Any) -> Tensor:
    storage = writing.writable_storage(target)
    with storage.lock:  # no other write comes between the reading and the writing
        result = binary(number, target, other)
        writing.require_same(target, result)
        try:
            writing.assign(target, result)
        except Exception as error:
            raise explain("in-place write", error, (target,))
    return target  # type: ignore[no-any-return]  # a Tensor, whose class the mixin cannot name
