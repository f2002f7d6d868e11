"""How markers go through the methods of tensors; ops/typed.pyi has the rules of functions.

Three things carry the rules:

- The protocols of markers.pyi read what a marker tells of itself: `Lowers[Q]` is the rank above Q,
  `Into[D]` a dtype that promotes to D. A marker that is Any gives Any, so that plain tensors pass
  everywhere.
- `Tensor` is invariant: a matrix is no vector. `Marked`, its base, is covariant, so that
  `Marked[Into[Float32], Cpu, Fits[Rank2]]` is every tensor that may stand beside a
  `Tensor[Float32, Cpu, Rank2]`.
- A decorator gives a method overloads that are written once, here. Operators are written for the
  operand whose markers the result has; for the other order `y.__radd__(x)` comes after
  `x.__add__(y)`, in type checkers as in Python.
"""

from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeAlias, overload

import numpy as np
from typing_extensions import TypeVar

from ember_ml.dtypes import DType
from ember_ml.markers import (
    BesideComplex,
    BesideFloat,
    BesideInt,
    Bool,
    Cpu,
    Cuda,
    D,
    DTypeMarker,
    Fits,
    Gpu,
    Int64,
    Into,
    Lowers,
    Marked,
    Mps,
    Parts,
    R,
    Raises,
    Rank0,
    Rank1,
    Rank2,
    Rank3,
    Rank4,
    RankMarker,
    Stacks,
    Total,
    Tpu,
    Unmarked,
    V,
    Xpu,
)
from ember_ml.tensor.core import Tensor
from ember_ml.typing import Axis

E = TypeVar("E", bound=DTypeMarker, default=Any)
Q = TypeVar("Q", bound=RankMarker, default=Any)
_P = ParamSpec("_P")
_F = TypeVar("_F", bound=Callable[..., Any])

def untouched(method: _F) -> _F: ...

# --- Annotations of ops ----------------------------------------------------------------------

Vector: TypeAlias = Lowers[Rank0]
# What an op takes: a tensor, whose markers it passes on, or anything that can become one.
Like: TypeAlias = Marked[D, V, R] | Unmarked
LikeFloat: TypeAlias = Marked[BesideFloat[D], V, R] | Unmarked
LikeParts: TypeAlias = Marked[Parts[D], V, R] | Unmarked
LikeTotal: TypeAlias = Marked[Total[D], V, R] | Unmarked
# A tensor that may stand beside a Tensor[D, V, R] and leaves it its markers. `D |` is there for
# a D that is several dtypes, as in a loop over dtypes.
Beside: TypeAlias = Marked[D | Into[D], V, R | Fits[R]]
Limit: TypeAlias = Beside[D, V, R] | Unmarked | None
# `dtype=`: a DType, which says D, or a name or an engine's dtype, which leaves D open.
DTypeOf: TypeAlias = DType[D] | Unmarked | None
# What indexes besides integers, slices and None.
Key: TypeAlias = tuple[Any, ...] | list[Any] | np.ndarray[Any, Any] | np.integer | _Array

class _Array(Protocol):
    def __dlpack__(self) -> Any: ...

# --- Operators -------------------------------------------------------------------------------

class _Arithmetic(Marked[D, V, R]):
    @overload
    def __call__(self, other: Beside[D, V, R] | bool, /) -> Tensor[D, V, R]: ...
    @overload
    def __call__(self: Marked[BesideInt[E]], other: int, /) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self: Marked[BesideFloat[E]], other: float, /) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self: Marked[BesideComplex[E]], other: complex, /) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self, other: Unmarked, /) -> Tensor[Any, V]: ...

class _Division(Marked[D, V, R]):
    @overload
    def __call__(
        self: Marked[BesideFloat[E]], other: Beside[D, V, R] | float, /
    ) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self: Marked[BesideComplex[E]], other: complex, /) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self, other: Unmarked, /) -> Tensor[Any, V]: ...

class _Comparison(Marked[D, V, R]):
    @overload
    def __call__(self, other: Beside[D, V, R] | complex, /) -> Tensor[Bool, V, R]: ...
    @overload
    def __call__(self, other: Unmarked, /) -> Tensor[Bool, V]: ...

class _Unknown:
    """A rank that only Any matches: it picks the overload for plain tensors."""

class _MatMul(Marked[D, V, R]):
    @overload
    def __call__(self: Marked[Any, Any, _Unknown], other: Any, /) -> Tensor: ...
    @overload
    def __call__(
        self: Marked[Any, Any, Lowers[Q]], other: Marked[D | Into[D], V, Vector], /
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self: Marked[Any, Any, Vector], other: Marked[D | Into[D], V, Lowers[Q]], /
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self: Marked[Any, Any, Stacks[R]], other: Marked[D | Into[D], V, Stacks[R]], /
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(self, other: Unmarked, /) -> Tensor[Any, V]: ...

# A rule for methods is a descriptor: what stands in the class, and what `x.name` gives.
class _Rule:
    def __init__(self, method: Callable[..., Any], /) -> None: ...
    # Protocols such as those of sum() and sorted(): pyright asks the descriptor itself.
    def __call__(self, *args: Any, **options: Any) -> Tensor: ...

class arithmetic(_Rule):
    """`x + y`: the wider dtype, the higher rank."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[D, V, R], owner: Any = None, /) -> _Arithmetic[D, V, R]: ...

class division(_Rule):
    """`x / y`: the same, in floats."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[D, V, R], owner: Any = None, /) -> _Division[D, V, R]: ...

class comparison(_Rule):
    """`x < y`: truth values of the higher rank."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[D, V, R], owner: Any = None, /) -> _Comparison[D, V, R]: ...

class matmul(_Rule):
    """`x @ y`: a vector takes one axis from the other, stacks broadcast."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[D, V, R], owner: Any = None, /) -> _MatMul[D, V, R]: ...

# --- Reductions ------------------------------------------------------------------------------

# Over all axes, over one, with the axes kept, over some.
class _Reduction(Marked[D, V, R]):
    @overload
    def __call__(
        self, axis: None = None, *, keepdims: Literal[False] = False
    ) -> Tensor[D, V, Rank0]: ...
    @overload
    def __call__(
        self: Marked[Any, Any, Lowers[Q]], axis: int, *, keepdims: Literal[False] = False
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(self, axis: Axis = None, *, keepdims: Literal[True]) -> Tensor[D, V, R]: ...
    @overload
    def __call__(self, axis: tuple[int, ...], *, keepdims: bool = False) -> Tensor[D, V]: ...
    @overload
    def __call__(self, axis: Axis = None, *, keepdims: bool) -> Tensor[D, V]: ...

class _Total(Marked[D, V, R]):
    @overload
    def __call__(
        self, axis: None = None, *, dtype: None = None, keepdims: Literal[False] = False
    ) -> Tensor[D, V, Rank0]: ...
    @overload
    def __call__(
        self: Marked[Any, Any, Lowers[Q]],
        axis: int,
        *,
        dtype: None = None,
        keepdims: Literal[False] = False,
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self, axis: Axis = None, *, dtype: None = None, keepdims: Literal[True]
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(
        self, axis: tuple[int, ...], *, dtype: None = None, keepdims: bool = False
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(
        self, axis: Axis = None, *, dtype: None = None, keepdims: bool
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(
        self, axis: Axis = None, *, dtype: DTypeOf[E], keepdims: bool = False
    ) -> Tensor[E, V]: ...

class _Variance(Marked[D, V, R]):
    @overload
    def __call__(
        self, axis: None = None, *, correction: float = 0.0, keepdims: Literal[False] = False
    ) -> Tensor[D, V, Rank0]: ...
    @overload
    def __call__(
        self: Marked[Any, Any, Lowers[Q]],
        axis: int,
        *,
        correction: float = 0.0,
        keepdims: Literal[False] = False,
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self, axis: Axis = None, *, correction: float = 0.0, keepdims: Literal[True]
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(
        self, axis: tuple[int, ...], *, correction: float = 0.0, keepdims: bool = False
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(
        self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool
    ) -> Tensor[D, V]: ...

class extreme(_Rule):
    """`x.max()`: its own dtype."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[D, V, R], owner: Any = None, /) -> _Reduction[D, V, R]: ...

class total(_Rule):
    """`x.sum()`: integers in 64 bits."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[Total[D], V, R], owner: Any = None, /) -> _Total[D, V, R]: ...

class average(_Rule):
    """`x.mean()`: in floats."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(
        self, x: Marked[BesideFloat[D], V, R], owner: Any = None, /
    ) -> _Reduction[D, V, R]: ...

class variance(_Rule):
    """`x.var()`: in floats, with a correction."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(
        self, x: Marked[BesideFloat[D], V, R], owner: Any = None, /
    ) -> _Variance[D, V, R]: ...

class truth(_Rule):
    """`x.any()`: truth values."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[Any, V, R], owner: Any = None, /) -> _Reduction[Bool, V, R]: ...

class position(_Rule):
    """`x.argmax()`: indices."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[Any, V, R], owner: Any = None, /) -> _Reduction[Int64, V, R]: ...

# --- Axes ------------------------------------------------------------------------------------

_Span: TypeAlias = slice | EllipsisType

class _Indexing(Marked[D, V, R]):
    @overload
    def __call__(self: Marked[Any, Any, Lowers[Q]], key: int, /) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(self, key: _Span | tuple[_Span, ...], /) -> Tensor[D, V, R]: ...
    @overload
    def __call__(
        self: Marked[Any, Any, Raises[Q]], key: tuple[_Span, None] | tuple[None, _Span] | None, /
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self: Marked[Any, Any, Lowers[Q]], key: tuple[_Span, int] | tuple[int, _Span], /
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self: Marked[Any, Any, Lowers[Lowers[Q]]], key: tuple[int, int], /
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(self, key: Key, /) -> Tensor[D, V]: ...

class _Expanding(Marked[D, V, R]):
    @overload
    def __call__(self: Marked[Any, Any, Raises[Q]], axis: int) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(self, axis: tuple[int, ...]) -> Tensor[D, V]: ...

class _Squeezing(Marked[D, V, R]):
    @overload
    def __call__(self: Marked[Any, Any, Lowers[Q]], axis: int) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(self, axis: tuple[int, ...] | None = None) -> Tensor[D, V]: ...

class _Reshaping(Marked[D, V, R]):
    @overload
    def __call__(self, shape: int | tuple[int], /) -> Tensor[D, V, Rank1]: ...
    @overload
    def __call__(self, a: int, b: int, /) -> Tensor[D, V, Rank2]: ...
    @overload
    def __call__(self, a: int, b: int, c: int, /) -> Tensor[D, V, Rank3]: ...
    @overload
    def __call__(self, a: int, b: int, c: int, d: int, /) -> Tensor[D, V, Rank4]: ...
    @overload
    def __call__(self, shape: tuple[()], /) -> Tensor[D, V, Rank0]: ...
    @overload
    def __call__(self, shape: tuple[int, int], /) -> Tensor[D, V, Rank2]: ...
    @overload
    def __call__(self, shape: tuple[int, int, int], /) -> Tensor[D, V, Rank3]: ...
    @overload
    def __call__(self, shape: tuple[int, int, int, int], /) -> Tensor[D, V, Rank4]: ...
    @overload
    def __call__(self, *shape: Any) -> Tensor[D, V]: ...

class indexing(_Rule):
    """`x[0]` lowers, `x[None]` raises, `x[1:3]` keeps the rank."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[D, V, R], owner: Any = None, /) -> _Indexing[D, V, R]: ...

class expanding(_Rule):
    """`x.expand_dims(0)`: one axis more."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[D, V, R], owner: Any = None, /) -> _Expanding[D, V, R]: ...

class squeezing(_Rule):
    """`x.squeeze(0)`: one axis less."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[D, V, R], owner: Any = None, /) -> _Squeezing[D, V, R]: ...

class reshaping(_Rule):
    """`x.reshape(2, -1)`: as many axes as lengths."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[D, V, R], owner: Any = None, /) -> _Reshaping[D, V, R]: ...

class rows(_Rule):
    """`for row in x`: one axis less."""

    def __call__(self) -> Iterator[Tensor]: ...  # type: ignore[override]  # an iterator
    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[[Tensor], Iterator[Tensor]]: ...
    @overload
    def __get__(
        self, x: Marked[D, V, Lowers[Q]], owner: Any = None, /
    ) -> Callable[[], Iterator[Tensor[D, V, Q]]]: ...

class lowering(Generic[_P]):
    """`x.select(0, 1)`, and every method that takes one axis away; its parameters stay."""

    def __init__(self, method: Callable[Concatenate[Any, _P], Tensor], /) -> None: ...
    def __call__(self, *args: _P.args, **options: _P.kwargs) -> Tensor: ...
    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[Concatenate[Tensor, _P], Tensor]: ...
    @overload
    def __get__(
        self, x: Marked[D, V, Lowers[Q]], owner: Any = None, /
    ) -> Callable[_P, Tensor[D, V, Q]]: ...

# --- Devices ---------------------------------------------------------------------------------

_CpuName: TypeAlias = Literal["cpu"]
_CudaName: TypeAlias = Literal[
    "cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7"
]
_GpuName: TypeAlias = Literal[
    "gpu", "gpu:0", "gpu:1", "gpu:2", "gpu:3", "gpu:4", "gpu:5", "gpu:6", "gpu:7"
]
_MpsName: TypeAlias = Literal["mps"]
_XpuName: TypeAlias = Literal["xpu", "xpu:0", "xpu:1", "xpu:2", "xpu:3"]
_TpuName: TypeAlias = Literal["tpu", "tpu:0", "tpu:1", "tpu:2", "tpu:3"]

class _Moving(Marked[D, V, R]):
    @overload
    def __call__(self, device: _CpuName, /, *, stream: Any = None) -> Tensor[D, Cpu, R]: ...
    @overload
    def __call__(self, device: _CudaName, /, *, stream: Any = None) -> Tensor[D, Cuda, R]: ...
    @overload
    def __call__(self, device: _GpuName, /, *, stream: Any = None) -> Tensor[D, Gpu, R]: ...
    @overload
    def __call__(self, device: _MpsName, /, *, stream: Any = None) -> Tensor[D, Mps, R]: ...
    @overload
    def __call__(self, device: _XpuName, /, *, stream: Any = None) -> Tensor[D, Xpu, R]: ...
    @overload
    def __call__(self, device: _TpuName, /, *, stream: Any = None) -> Tensor[D, Tpu, R]: ...
    @overload
    def __call__(self, device: str, /, *, stream: Any = None) -> Tensor[D, Any, R]: ...

class _To(Marked[D, V, R]):
    @overload
    def __call__(self, target: DType[E]) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self, target: _CpuName) -> Tensor[D, Cpu, R]: ...
    @overload
    def __call__(self, target: _CudaName) -> Tensor[D, Cuda, R]: ...
    @overload
    def __call__(self, target: _GpuName) -> Tensor[D, Gpu, R]: ...
    @overload
    def __call__(self, target: _MpsName) -> Tensor[D, Mps, R]: ...
    @overload
    def __call__(self, target: _XpuName) -> Tensor[D, Xpu, R]: ...
    @overload
    def __call__(self, target: _TpuName) -> Tensor[D, Tpu, R]: ...
    @overload
    def __call__(
        self,
        target: DTypeOf[Any] = None,
        *,
        backend: str | None = None,
        device: str | None = None,
        dtype: DTypeOf[Any] = None,
    ) -> Tensor[Any, Any, R]: ...

class moving(_Rule):
    """`x.to_device("cuda:0")`: the device of a name that is written out."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[D, V, R], owner: Any = None, /) -> _Moving[D, V, R]: ...

class to(_Rule):
    """`x.to("cuda:0")`, `x.to(em.float16)`."""

    @overload
    def __get__(self, x: None, owner: Any, /) -> Callable[..., Tensor]: ...
    @overload
    def __get__(self, x: Marked[D, V, R], owner: Any = None, /) -> _To[D, V, R]: ...
