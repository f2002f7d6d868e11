"""What a call of a distribution asks for: where, what, how many, of which source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.autodiff.tape import is_grad_enabled
from ember_ml.backend import aligned
from ember_ml.backend.contract import Backend, Spec
from ember_ml.dtypes import DType
from ember_ml.errors import (
    DomainError,
    DTypeError,
    GradientError,
    ShapeError,
    UnsupportedOpError,
)
from ember_ml.ops import creation, dispatch
from ember_ml.ops.axes import broadcast, shape_of
from ember_ml.ops.random import host, keys, seeding
from ember_ml.ops.random.arrays import ArraySource, EngineSource, KeySource
from ember_ml.ops.random.generator import Generator
from ember_ml.ops.registry import REGISTRY
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill

__all__ = ["Parameter", "Request", "request", "source_of"]

Array = np.ndarray[Any, Any]
# A Python number, or a tensor of the dtype in which the draw runs.
Parameter = Any

_NUMBERS: Final = (int, float, np.integer, np.floating, np.bool_)
_HALVES: Final = frozenset((dtypes.float16, dtypes.bfloat16))


def source_of(op: str, generator: Any, native: bool) -> Generator | KeySource:
    """The generator or the key that a call draws from."""
    found = seeding.current() if generator is None else generator
    if isinstance(found, Generator):
        scope = seeding.compiled()
        if scope is None:
            return found
        found = scope.of(op, found)
    if native:
        raise UnsupportedOpError(f"ops.{op} draws native=True from a Generator, not from a key")
    if isinstance(found, seeding.KeyStream):
        # First the number, which a loop may want to know of before a key is made within it.
        number = found.next_call()
        return KeySource(keys.fold_in(found.key, number))
    return KeySource(keys.key_of(op, found))


class Request:
    """A call of a distribution, with everything about it read and checked."""

    __slots__ = ("native", "op", "parameters", "run", "shape", "source", "spec")

    def __init__(
        self,
        op: str,
        spec: Spec,
        shape: tuple[int, ...],
        parameters: tuple[Parameter, ...],
        source: Generator | KeySource,
        native: bool,
    ) -> None:
        self.op = op
        # Of the result.
        self.spec = spec
        # Of the draw: 16-bit floats are drawn in float32 and rounded.
        self.run = spec.with_dtype(dtypes.float32) if spec.dtype in _HALVES else spec
        self.shape = shape
        self.parameters = parameters
        self.source = source
        self.native = native

    @property
    def numeric(self) -> bool:
        """True where every parameter is a number."""
        return not any(isinstance(p, Tensor) for p in self.parameters)

    def arrays(self) -> ArraySource | None:
        """The source of draws on the engine; None where they are made in host memory."""
        if isinstance(self.source, KeySource):
            return self.source
        return EngineSource(*self.source.next_call()) if self.native else None

    def host(self) -> Any:
        """NumPy's generator at the stream of this call; the draws must follow at once."""
        if isinstance(self.source, KeySource) or self.native:
            way = "native=True" if self.native else "a key"
            raise UnsupportedOpError(
                f"ops.{self.op} draws in host memory and has no form for {way}; give it a "
                f"Generator, outside of compiled functions"
            )
        return host.at(*self.source.next_call())

    def nothing(self) -> Tensor:
        """A result without elements, which counts as a draw like any other."""
        if isinstance(self.source, Generator):
            self.source.next_call()
        return self.tensor(np.empty(self.shape, self.spec.dtype.numpy))

    def require(self, name: str, value: Parameter, test: Callable[[Any], Any], text: str) -> None:
        """Raise DomainError where a parameter fails a test, if its values can be looked at."""
        if isinstance(value, Tensor):
            if not value.size or not value._spec.backend.checks_values(value.native):
                return
            array = values_of(self.op, value)
            if not np.all(test(array)):
                raise DomainError(f"ops.{self.op} got values of {name} that are not {text}")
        elif not test(value):
            raise DomainError(f"ops.{self.op} got {name}={value!r}; it must be {text}")

    def tensor(self, array: Array) -> Tensor:
        """The result of values in host memory, rounded where they are of another dtype."""
        spec = self.spec
        if array.dtype != spec.dtype.numpy:
            with np.errstate(all="ignore"):
                array = aligned.cast(array, spec.dtype.numpy)
        else:
            array = aligned.settled(array)
        return fill(spec.backend.from_numpy(array, spec), spec)

    def standard(self, array: Array) -> Tensor:
        """Values in host memory as a tensor that ops go on with."""
        run = self.run
        if array.dtype != run.dtype.numpy:
            array = aligned.cast(array, run.dtype.numpy)
        return fill(run.backend.from_numpy(aligned.settled(array), run), run)

    def finish(self, drawn: Tensor) -> Tensor:
        """The result of what was drawn."""
        return convert.cast(drawn, self.spec.dtype)

    def require_constant(self) -> None:
        """Raise GradientError where a parameter needs a gradient, which a draw would lose.

        Results that are integers have none in any case.
        """
        if not self.spec.dtype.is_floating:
            return
        for p in self.parameters:
            if isinstance(p, Tensor) and _needs_gradient(p):
                raise GradientError(_refusal(self.op))

    def constant(self, drawn: Tensor) -> Tensor:
        """A result through which no gradient passes, on engines that would take it for zero."""
        if self.numeric or not self.spec.dtype.is_floating:
            return drawn
        kernel = self.spec.backend.overrides.get("random_constant")
        if kernel is None:
            return drawn
        natives = [p.native for p in self.parameters if isinstance(p, Tensor)]
        return fill(kernel(lambda: _refusal(self.op), drawn.native, *natives), drawn._spec)

    def hosted(self) -> list[Any]:
        """The parameters as numbers and float64 arrays that broadcast to the shape."""
        self.require_constant()
        return [
            values_of(self.op, p).astype(np.float64) if isinstance(p, Tensor) else p
            for p in self.parameters
        ]


def _needs_gradient(x: Tensor) -> bool:
    if type(x) is GradTensor:
        return is_grad_enabled()
    # A derivative of JAX traces what it follows; cut off from it, the value is there.
    backend = x._spec.backend
    return backend.is_traced(x.native) and not backend.is_traced(backend.detach(x.native))


def _refusal(op: str) -> str:
    from ember_ml.autodiff import rules
    from ember_ml.autodiff.rules.table import NO_GRADIENT

    rules.load_all()
    return f"ops.{op} has no gradient: {NO_GRADIENT[op]}; give its parameters as p.detach()"


def values_of(op: str, x: Tensor) -> Array:
    """The values of a parameter."""
    backend = x._spec.backend
    native = backend.detach(x.native)
    if backend.is_traced(native):
        raise UnsupportedOpError(
            f"ops.{op} needs the values of its parameters, which a compiler is tracing; "
            f"draw it outside of the compiled function"
        )
    return backend.to_numpy(native)


def request(
    op: str,
    shape: Any,
    parameters: tuple[Any, ...],
    dtype: Any,
    device: str | None,
    generator: Any,
    native: bool,
    default: DType | None = None,
) -> Request:
    """Read a call; the dtype is one of the op's, by default that of its parameters."""
    source = source_of(op, generator, native)
    if default is None:
        numbers = all(type(p) is float for p in parameters)
    else:
        numbers = all(isinstance(p, _NUMBERS) for p in parameters)
    if numbers and isinstance(source, Generator):
        spec = creation._spec(_dtype(op, dtype, default or dtypes.default_float), device)
        sides = () if shape is None else shape_of(op, shape)
        return Request(op, spec, sides, parameters, source, native)
    read = [_number(op, p) if isinstance(p, _NUMBERS) else p for p in parameters]
    owners = [p for p in read if not isinstance(p, float)]
    if isinstance(source, KeySource):
        owners.append(source.key)
    home = dispatch.home_of(op, tuple(owners))
    read = [p if isinstance(p, float) else convert.to_tensor(p, home) for p in read]
    tensors = [p for p in read if isinstance(p, Tensor)]
    if default is None:
        default = _common(op, tensors)
    spec = _placed(op, home, _dtype(op, dtype, default), device, [*tensors, *owners])
    sides = _sides(op, shape, tensors)
    made = Request(op, spec, sides, (), source, native)
    run = made.run.dtype if made.run.dtype.is_floating else None
    made.parameters = tuple(
        convert.cast(p, run) if isinstance(p, Tensor) and run is not None else p for p in read
    )
    return made


def _number(op: str, value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise DomainError(f"ops.{op} got {value!r:.60}, which no float holds") from None


def _dtype(op: str, dtype: Any, default: DType) -> DType:
    wanted = default if dtype is None else dtypes.to_dtype(dtype)
    accepts = REGISTRY[op].accepts
    if wanted not in accepts:
        names = ", ".join(d.name for d in dtypes.ALL if d in accepts)
        raise DTypeError(f"ops.{op} does not give {wanted}; it gives {names}")
    return wanted


def _common(op: str, tensors: list[Tensor]) -> DType:
    """The floating dtype of some parameters."""
    found = dtypes.common([t.dtype for t in tensors] or [dtypes.default_float], op)
    if found.is_complex:
        raise DTypeError(f"ops.{op} takes real parameters, not {found}")
    return found if found.is_floating else dtypes.default_float


def _placed(op: str, home: Backend, dtype: DType, device: str | None, beside: list[Any]) -> Spec:
    """The spec on the device asked for, which is that of the tensors where there are any."""
    asked = None if device is None else home.canonical_device(device)
    for tensor in beside:
        if isinstance(tensor, Tensor):
            if asked is not None:
                dispatch.same_device(op, asked, tensor.device)
            asked = tensor.device
    return home.spec(dtype, asked or convert.device_for(home))


def _sides(op: str, shape: Any, tensors: list[Tensor]) -> tuple[int, ...]:
    """The shape asked for, or that to which the parameters broadcast."""
    given = [t.shape for t in tensors]
    if shape is None:
        return broadcast(op, given)
    sides = shape_of(op, shape)
    if broadcast(op, [sides, *given]) != sides:
        listed = ", ".join(map(str, given))
        raise ShapeError(f"ops.{op} got shape {sides} and parameters of {listed}, which are larger")
    return sides
