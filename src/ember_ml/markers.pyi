"""What type checkers conclude from each marker, as methods that nobody calls.

The protocols at the end read them, and the rules of tensor/typed.pyi and ops/typed.pyi are
written with those.
"""

from typing import Any, Generic, Never, Protocol, Self

from typing_extensions import TypeVar

__all__ = [
    "AnyDType",
    "AnyDevice",
    "AnyRank",
    "BFloat16",
    "Bool",
    "Complex64",
    "Complex128",
    "Cpu",
    "Cuda",
    "DTypeMarker",
    "DeviceMarker",
    "Float16",
    "Float32",
    "Float64",
    "Gpu",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Mps",
    "Rank0",
    "Rank1",
    "Rank2",
    "Rank3",
    "Rank4",
    "Rank5",
    "Rank6",
    "Rank7",
    "Rank8",
    "RankMarker",
    "Tpu",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Xpu",
]

# Places that are left open, and what a plain `Tensor` has in all three: they fit everything.
AnyDType = Any
AnyDevice = Any
AnyRank = Any

# --- Dtypes ---------------------------------------------------------------------------------

class DTypeMarker:
    def into(self, dtype: Any, /) -> None: ...  # what it promotes to
    def beside_int(self) -> Any: ...  # the dtype of `x + 1`
    def beside_float(self) -> Any: ...  # the dtype of `x + 1.0`, `x / x` and `exp(x)`
    def beside_complex(self) -> Any: ...  # the dtype of `x + 1j`
    def parts(self) -> Any: ...  # the dtype of `abs(x)` and `x.real`
    def total(self) -> Any: ...  # the dtype of `x.sum()`

class _Integer(DTypeMarker):
    def beside_int(self) -> Self: ...
    def beside_float(self) -> Float32: ...
    def beside_complex(self) -> Complex64: ...
    def parts(self) -> Self: ...

class _Signed(_Integer):
    def total(self) -> Int64: ...

class _Unsigned(_Integer):
    def total(self) -> UInt64: ...

class _Inexact(DTypeMarker):
    def beside_int(self) -> Self: ...
    def beside_float(self) -> Self: ...
    def total(self) -> Self: ...

class _Real(_Inexact):
    def parts(self) -> Self: ...

class _Complex(_Inexact):
    def beside_complex(self) -> Self: ...

class Bool(_Signed):
    def into(self, dtype: _FromBool, /) -> None: ...
    def beside_int(self) -> Int64: ...  # type: ignore[override]  # the one dtype that an int widens

class Int8(_Signed):
    def into(self, dtype: Int8 | _FromInt16, /) -> None: ...

class Int16(_Signed):
    def into(self, dtype: _FromInt16, /) -> None: ...

class Int32(_Signed):
    def into(self, dtype: _FromInt32, /) -> None: ...

class Int64(_Signed):
    def into(self, dtype: _FromInt64, /) -> None: ...

class UInt8(_Unsigned):
    def into(self, dtype: UInt8 | UInt16 | UInt32 | UInt64 | _FromInt16, /) -> None: ...

class UInt16(_Unsigned):
    def into(self, dtype: UInt16 | UInt32 | UInt64 | _FromInt32, /) -> None: ...

class UInt32(_Unsigned):
    def into(self, dtype: UInt32 | UInt64 | _FromInt64, /) -> None: ...

class UInt64(_Unsigned):
    def into(self, dtype: UInt64 | _AnyFloat, /) -> None: ...

class Float16(_Real):
    def into(self, dtype: Float16, /) -> None: ...
    def beside_complex(self) -> Never: ...

class BFloat16(_Real):
    def into(self, dtype: BFloat16, /) -> None: ...
    def beside_complex(self) -> Never: ...

class Float32(_Real):
    def into(self, dtype: Float32 | Float64 | Complex64 | Complex128, /) -> None: ...
    def beside_complex(self) -> Complex64: ...

class Float64(_Real):
    def into(self, dtype: Float64 | Complex128, /) -> None: ...
    def beside_complex(self) -> Complex128: ...

class Complex64(_Complex):
    def into(self, dtype: Complex64 | Complex128, /) -> None: ...
    def parts(self) -> Float32: ...

class Complex128(_Complex):
    def into(self, dtype: Complex128, /) -> None: ...
    def parts(self) -> Float64: ...

_AnyFloat = Float16 | BFloat16 | Float32 | Float64 | Complex64 | Complex128
_FromInt64 = Int64 | _AnyFloat
_FromInt32 = Int32 | _FromInt64
_FromInt16 = Int16 | _FromInt32
_FromBool = Bool | Int8 | UInt8 | UInt16 | UInt32 | UInt64 | _FromInt16

# --- Devices --------------------------------------------------------------------------------

class DeviceMarker: ...
class Cpu(DeviceMarker): ...
class Gpu(DeviceMarker): ...
class Cuda(Gpu): ...
class Mps(Gpu): ...
class Xpu(Gpu): ...
class Tpu(DeviceMarker): ...

# --- Ranks ----------------------------------------------------------------------------------

class RankMarker:
    def fits(self, rank: Any, /) -> None: ...  # what it broadcasts to
    def up(self) -> Any: ...  # the rank with one axis more

class Rank0(RankMarker):
    def fits(self, rank: Rank0 | _From1, /) -> None: ...
    def up(self) -> Rank1: ...

class Rank1(RankMarker):
    def fits(self, rank: _From1, /) -> None: ...
    def up(self) -> Rank2: ...
    def down(self) -> Rank0: ...  # the rank with one axis less

class Matrices(RankMarker):
    def stacks(self, rank: Any, /) -> None: ...  # what it broadcasts to as a stack of matrices
    def down(self) -> Any: ...

class Rank2(Matrices):
    def fits(self, rank: _From2, /) -> None: ...
    def stacks(self, rank: _From2, /) -> None: ...
    def up(self) -> Rank3: ...
    def down(self) -> Rank1: ...

class Rank3(Matrices):
    def fits(self, rank: _From3, /) -> None: ...
    def stacks(self, rank: _From3, /) -> None: ...
    def up(self) -> Rank4: ...
    def down(self) -> Rank2: ...

class Rank4(Matrices):
    def fits(self, rank: _From4, /) -> None: ...
    def stacks(self, rank: _From4, /) -> None: ...
    def up(self) -> Rank5: ...
    def down(self) -> Rank3: ...

class Rank5(Matrices):
    def fits(self, rank: _From5, /) -> None: ...
    def stacks(self, rank: _From5, /) -> None: ...
    def up(self) -> Rank6: ...
    def down(self) -> Rank4: ...

class Rank6(Matrices):
    def fits(self, rank: _From6, /) -> None: ...
    def stacks(self, rank: _From6, /) -> None: ...
    def up(self) -> Rank7: ...
    def down(self) -> Rank5: ...

class Rank7(Matrices):
    def fits(self, rank: Rank7 | Rank8, /) -> None: ...
    def stacks(self, rank: Rank7 | Rank8, /) -> None: ...
    def up(self) -> Rank8: ...
    def down(self) -> Rank6: ...

class Rank8(Matrices):
    def fits(self, rank: Rank8, /) -> None: ...
    def stacks(self, rank: Rank8, /) -> None: ...
    def up(self) -> AnyRank: ...
    def down(self) -> Rank7: ...

_From6 = Rank6 | Rank7 | Rank8
_From5 = Rank5 | _From6
_From4 = Rank4 | _From5
_From3 = Rank3 | _From4
_From2 = Rank2 | _From3
_From1 = Rank1 | _From2

# --- What carries them ----------------------------------------------------------------------

# Left out, a parameter is Any: plain tensors mix with all others.
D = TypeVar("D", bound=DTypeMarker, default=Any)
V = TypeVar("V", bound=DeviceMarker, default=Any)
R = TypeVar("R", bound=RankMarker, default=Any)
D_co = TypeVar("D_co", covariant=True, default=Any)
V_co = TypeVar("V_co", covariant=True, default=Any)
R_co = TypeVar("R_co", covariant=True, default=Any)
D_contra = TypeVar("D_contra", contravariant=True)
R_contra = TypeVar("R_contra", contravariant=True)

class Marked(Generic[D_co, V_co, R_co]):
    # What tells a tensor from everything else: see `Unmarked`.
    __sizeof__: None  # type: ignore[assignment]

class MarkedDType(Generic[D_co]):
    __sizeof__: None  # type: ignore[assignment]  # as above

# --- What is asked of them -------------------------------------------------------------------

class Into(Protocol[D_contra]):
    """A dtype that promotes to D."""

    def into(self, dtype: D_contra, /) -> None: ...

class BesideInt(Protocol[D_co]):
    """A dtype that is D beside a Python integer."""

    def beside_int(self) -> D_co: ...

class BesideFloat(Protocol[D_co]):
    """A dtype that is D beside a Python float, and where an op gives floats."""

    def beside_float(self) -> D_co: ...

class BesideComplex(Protocol[D_co]):
    """A dtype that is D beside a Python complex."""

    def beside_complex(self) -> D_co: ...

class Parts(Protocol[D_co]):
    """A dtype whose real and imaginary parts are D."""

    def parts(self) -> D_co: ...

class Total(Protocol[D_co]):
    """A dtype whose sums are D."""

    def total(self) -> D_co: ...

class Fits(Protocol[R_contra]):
    """A rank that broadcasts to R."""

    def fits(self, rank: R_contra, /) -> None: ...

class Stacks(Protocol[R_contra]):
    """A rank of matrices that broadcasts to R."""

    def stacks(self, rank: R_contra, /) -> None: ...

class Lowers(Protocol[R_co]):
    """The rank above R."""

    def down(self) -> R_co: ...

class Raises(Protocol[R_co]):
    """The rank below R."""

    def up(self) -> R_co: ...

class Unmarked(Protocol):
    """Anything but a tensor: numbers, lists, arrays of NumPy and of the engines.

    Every object has `__sizeof__`; for type checkers alone, Marked takes it away.
    """

    def __sizeof__(self) -> int: ...
