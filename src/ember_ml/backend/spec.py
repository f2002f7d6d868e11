"""Where and what a tensor is, as one object that all tensors of a kind share.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign
from typing import TYPE_CHECKING, Any, Final

from ember_ml import dtypes
from ember_ml.backend.namespaces import Bound
from ember_ml.backend.pairs import NAMES
from ember_ml.compiled import mypyc_attr
from ember_ml.errors import DomainError

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend
    from ember_ml.dtypes import DType

__all__ = ["CLOSED", "Entry", "Kernel", "NativeArray", "Settled", "Spec"]

# The array of an engine. Engines share no base class, so this is the boundary of static typing.
NativeArray = Any
Kernel = Callable[..., NativeArray]
# A settled kernel with the spec of what it returns.
Entry = tuple[Kernel, "Spec"]
# A list of `Spec.pairs` in which nothing is kept: see mlx/checkpointing.py.
CLOSED: Final[list[Settled | None]] = [None] * len(NAMES)

_SCALARS_KEPT: Final = 512
_WEAK: Final[dict[str, frozenset[type]]] = {
    "bool": frozenset((bool,)),
    "signed integer": frozenset((bool, int)),
    "unsigned integer": frozenset((bool, int)),
    "real floating": frozenset((bool, int, float)),
    "complex floating": frozenset((bool, int, float, complex)),
}


class Settled:
    """An Entry whose fields compiled code reads without asking what they are.

    `ordinary` is the class of results that are arrays of the engine; where a kernel gives another,
    as NumPy's scalars, it is settled. None where an engine gives no others.
    """

    __slots__ = ("kernel", "ordinary", "result")

    def __init__(self, kernel: Kernel, result: Spec) -> None:
        self.kernel: Final = kernel
        self.result: Final = result
        self.ordinary: Final[type | None] = result.native_type if result.settles else None


@mypyc_attr(allow_interpreted_subclasses=True)  # specs of traces are such
class Spec:
    """Where and what a tensor is: its backend, device and dtype, as one shared object.

    Two tensors that agree in all three hold the same Spec, so that the fast path of every op
    asks one question. `kernels` maps op names to what runs for tensors of this spec, `whole` those
    of reductions to what runs where all axes are reduced, and `pairs` has those of two operands by
    number (backend/pairs.py), None where nobody has asked yet.
    """

    __slots__ = (
        "_scalars",
        "backend",
        "bound",
        "device",
        "dtype",
        "floating",
        "inexact",
        "kernels",
        "mutable",
        "native_type",
        "pairs",
        "records",
        "settles",
        "weak",
        "whole",
        "windows",
    )

    def __init__(self, backend: Backend, dtype: DType, device: str) -> None:
        self.backend: Final = backend
        self.dtype: Final = dtype
        self.device: Final = device
        self.native_type: Final[type] = backend.native_type
        self.settles: Final[bool] = backend.settles
        self.records: Final[bool] = backend.records
        self.mutable: Final[bool] = backend.mutable
        self.windows: Final[bool] = backend.windows
        # No constants: a trace may put its own in their place (mlx/checkpointing.py).
        self.kernels: dict[str, Entry] = {}
        self.whole: dict[str, Settled] = {}
        self.pairs: list[Settled | None] = [None] * len(NAMES)
        self.bound: Final = Bound(self)
        self.floating: Final[bool] = dtype.is_floating
        self.inexact: Final[bool] = dtype.is_inexact
        # The Python scalars that take this dtype beside a tensor of it, instead of changing it.
        self.weak: Final[frozenset[type]] = _WEAK[dtype.kind]
        self._scalars: Final[dict[object, NativeArray]] = {}

    def __repr__(self) -> str:
        return f"Spec({self.backend.name}, {self.dtype}, {self.device})"

    def with_dtype(self, dtype: DType) -> Spec:
        """The spec of the same backend and device with another dtype."""
        return self if dtype is self.dtype else self.backend.spec(dtype, self.device)

    def kernel(self, name: str) -> Kernel:
        """The settled kernel of an op, or of a step of one."""
        try:
            return self.kernels[name][0]
        except KeyError:
            found: Kernel = self.backend.entry(self, name)[0]
            return found

    def pair(self, number: int) -> Settled:
        """The kernel of a two-operand op by its number, where `pairs` has none."""
        pairs = self.pairs  # first: a trace may begin now, and is to find none that is not its own
        kernel, result = self.backend.entry(self, NAMES[number])
        found = Settled(kernel, result)
        if pairs is not CLOSED:
            pairs[number] = found
        return found

    def whole_of(self, name: str) -> Settled:
        """The kernel of a reduction of all axes, which takes the array alone."""
        whole = self.whole  # first, as above
        kernel, result = self.backend.entry(self, name)
        found = whole[name] = Settled(self.backend.whole.get(kernel, kernel), result)
        return found

    def scalar(self, value: object) -> NativeArray:
        """A 0-d native array of this spec for a Python number; recent ones are kept.

        Callers must only read it.
        """
        # 0.0 and -0.0 are equal but not the same: zeros are told apart by their sign.
        key = value or (_zero_key(value) if type(value) is float else repr(value))
        found = self._scalars.get(key)
        if found is None:
            found = self.backend.scalar(self._checked(value), self)
            if len(self._scalars) >= _SCALARS_KEPT:
                self._scalars.clear()
            self._scalars[key] = found
        return found

    def keeps(self, native: NativeArray) -> bool:
        """True for an array that stands for a Python number here."""
        return any(native is one for one in self._scalars.values())

    def _checked(self, value: object) -> object:
        if self.dtype.is_integer and isinstance(value, int) and not dtypes.fits(value, self.dtype):
            raise DomainError(f"{value} is out of the range of {self.dtype}")
        return value


def _zero_key(zero: float) -> str:
    return "-0.0" if copysign(1.0, zero) < 0 else "0.0"
