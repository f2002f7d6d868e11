"""How markers go through functions of several tensors, and through those that create them.

Functions of one tensor need no rule: `def exp(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]`
says it all. Reductions have theirs in reducing.pyi; tensor/typed.pyi explains the words.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, overload

from typing_extensions import TypeVar

from ember_ml.dtypes import DType
from ember_ml.markers import (
    BesideFloat,
    BesideInt,
    Bool,
    D,
    Fits,
    Float32,
    Into,
    Lowers,
    Marked,
    R,
    Raises,
    Rank0,
    Rank1,
    Rank2,
    Rank3,
    Rank4,
    Stacks,
    Unmarked,
    V,
    _Integer,
)
from ember_ml.tensor.core import Tensor
from ember_ml.tensor.typed import Beside, DTypeOf, E, Like, Q
from ember_ml.typing import ShapeLike

_I = TypeVar("_I", bound=_Integer)

# The tensor whose markers the result has is a Tensor; the other is what may stand beside it. Where
# that one comes first, it must not decide on D: it has no `D |`.
class _Pairing(Protocol):
    @overload
    def __call__(self, x1: Tensor[D, V, R], x2: Beside[D, V, R], /) -> Tensor[D, V, R]: ...
    @overload
    def __call__(
        self, x1: Marked[Into[D], V, Fits[R]], x2: Tensor[D, V, R], /
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(self, x1: Marked[BesideInt[E], V, R], x2: int, /) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self, x1: int, x2: Marked[BesideInt[E], V, R], /) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self, x1: Marked[BesideFloat[E], V, R], x2: float, /) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self, x1: float, x2: Marked[BesideFloat[E], V, R], /) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self, x1: Like[Any, V, Any], x2: Unmarked, /) -> Tensor[Any, V]: ...
    @overload
    def __call__(self, x1: Unmarked, x2: Like[Any, V, Any], /) -> Tensor[Any, V]: ...

class _Dividing(Protocol):
    @overload
    def __call__(self, x1: Tensor[_I, V, R], x2: Beside[_I, V, R], /) -> Tensor[Float32, V, R]: ...
    @overload
    def __call__(
        self, x1: Marked[Into[_I], V, Fits[R]], x2: Tensor[_I, V, R], /
    ) -> Tensor[Float32, V, R]: ...
    @overload
    def __call__(self, x1: Tensor[D, V, R], x2: Beside[D, V, R], /) -> Tensor[D, V, R]: ...
    @overload
    def __call__(
        self, x1: Marked[Into[D], V, Fits[R]], x2: Tensor[D, V, R], /
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(self, x1: Marked[BesideFloat[E], V, R], x2: float, /) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self, x1: float, x2: Marked[BesideFloat[E], V, R], /) -> Tensor[E, V, R]: ...
    @overload
    def __call__(self, x1: Like[Any, V, Any], x2: Unmarked, /) -> Tensor[Any, V]: ...
    @overload
    def __call__(self, x1: Unmarked, x2: Like[Any, V, Any], /) -> Tensor[Any, V]: ...

class _Comparing(Protocol):
    @overload
    def __call__(self, x1: Tensor[D, V, R], x2: Beside[D, V, R], /) -> Tensor[Bool, V, R]: ...
    @overload
    def __call__(
        self, x1: Marked[Into[D], V, Fits[R]], x2: Tensor[D, V, R], /
    ) -> Tensor[Bool, V, R]: ...
    @overload
    def __call__(self, x1: Marked[Any, V, R], x2: complex, /) -> Tensor[Bool, V, R]: ...
    @overload
    def __call__(self, x1: complex, x2: Marked[Any, V, R], /) -> Tensor[Bool, V, R]: ...
    @overload
    def __call__(self, x1: Like[Any, V, Any], x2: Unmarked, /) -> Tensor[Bool, V]: ...
    @overload
    def __call__(self, x1: Unmarked, x2: Like[Any, V, Any], /) -> Tensor[Bool, V]: ...

class _Product(Protocol):
    @overload
    def __call__(
        self, x1: Tensor[D, V, Rank1], x2: Marked[D | Into[D], V, Lowers[Q]], /
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self, x1: Marked[Into[D], V, Lowers[Q]], x2: Tensor[D, V, Rank1], /
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self, x1: Tensor[D, V, R], x2: Marked[D | Into[D], V, Stacks[R]], /
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(
        self, x1: Marked[Into[D], V, Stacks[R]], x2: Tensor[D, V, R], /
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(self, x1: Like[Any, V, Any], x2: Unmarked, /) -> Tensor[Any, V]: ...
    @overload
    def __call__(self, x1: Unmarked, x2: Like[Any, V, Any], /) -> Tensor[Any, V]: ...

# The condition may have the highest rank.
class _Choosing(Protocol):
    @overload
    def __call__(
        self, condition: Like[Any, V], x1: Tensor[D, V], x2: Marked[D | Into[D], V], /
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(
        self, condition: Like[Any, V], x1: Marked[Into[D], V], x2: Tensor[D, V], /
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(
        self, condition: Like[Any, V], x1: Like[Any, V], x2: Unmarked, /
    ) -> Tensor[Any, V]: ...
    @overload
    def __call__(
        self, condition: Like[Any, V], x1: Unmarked, x2: Like[Any, V], /
    ) -> Tensor[Any, V]: ...

# Lists that mix markers are not looked into: their tensor has none.
class _Joining(Protocol):
    @overload
    def __call__(
        self, arrays: Sequence[Tensor[D, V, R]], /, *, axis: int = 0
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(self, arrays: Sequence[Any], /, *, axis: int | None = 0) -> Tensor: ...

class _Stacking(Protocol):
    @overload
    def __call__(
        self, arrays: Sequence[Marked[D, V, Raises[Q]]], /, *, axis: int = 0
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(self, arrays: Sequence[Any], /, *, axis: int = 0) -> Tensor: ...

class _Creating(Protocol):
    @overload
    def __call__(
        self, shape: tuple[()], *, dtype: None = None, device: str | None = None
    ) -> Tensor[Float32, Any, Rank0]: ...
    @overload
    def __call__(
        self, shape: tuple[()], *, dtype: DType[E], device: str | None = None
    ) -> Tensor[E, Any, Rank0]: ...
    @overload
    def __call__(
        self, shape: int | tuple[int], *, dtype: None = None, device: str | None = None
    ) -> Tensor[Float32, Any, Rank1]: ...
    @overload
    def __call__(
        self, shape: int | tuple[int], *, dtype: DType[E], device: str | None = None
    ) -> Tensor[E, Any, Rank1]: ...
    @overload
    def __call__(
        self, shape: tuple[int, int], *, dtype: None = None, device: str | None = None
    ) -> Tensor[Float32, Any, Rank2]: ...
    @overload
    def __call__(
        self, shape: tuple[int, int], *, dtype: DType[E], device: str | None = None
    ) -> Tensor[E, Any, Rank2]: ...
    @overload
    def __call__(
        self, shape: tuple[int, int, int], *, dtype: None = None, device: str | None = None
    ) -> Tensor[Float32, Any, Rank3]: ...
    @overload
    def __call__(
        self, shape: tuple[int, int, int], *, dtype: DType[E], device: str | None = None
    ) -> Tensor[E, Any, Rank3]: ...
    @overload
    def __call__(
        self, shape: tuple[int, int, int, int], *, dtype: None = None, device: str | None = None
    ) -> Tensor[Float32, Any, Rank4]: ...
    @overload
    def __call__(
        self, shape: tuple[int, int, int, int], *, dtype: DType[E], device: str | None = None
    ) -> Tensor[E, Any, Rank4]: ...
    @overload
    def __call__(
        self, shape: ShapeLike, *, dtype: None = None, device: str | None = None
    ) -> Tensor[Float32]: ...
    @overload
    def __call__(
        self, shape: ShapeLike, *, dtype: DType[E], device: str | None = None
    ) -> Tensor[E]: ...
    @overload
    def __call__(
        self, shape: ShapeLike, *, dtype: Unmarked, device: str | None = None
    ) -> Tensor: ...

class _Resembling(Protocol):
    @overload
    def __call__(
        self, x: Like[D, V, R], /, *, dtype: None = None, device: None = None
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(
        self, x: Like[Any, V, R], /, *, dtype: DTypeOf[E], device: None = None
    ) -> Tensor[E, V, R]: ...
    @overload
    def __call__(
        self, x: Like[Any, Any, R], /, *, dtype: DTypeOf[Any] = None, device: str | None = None
    ) -> Tensor[Any, Any, R]: ...

class _Casting(Protocol):
    @overload
    def __call__(
        self, x: Like[Any, V, R], dtype: DTypeOf[E], /, *, copy: bool = True, device: None = None
    ) -> Tensor[E, V, R]: ...
    @overload
    def __call__(
        self, x: Like[Any, Any, R], dtype: DTypeOf[E], /, *, copy: bool = True, device: str | None
    ) -> Tensor[E, Any, R]: ...

def pairing(op: Callable[[Any, Any], Tensor]) -> _Pairing:
    """`add(x, y)`: the wider dtype, the higher rank."""

def dividing(op: Callable[[Any, Any], Tensor]) -> _Dividing:
    """`divide(x, y)`: the same, in floats."""

def comparing(op: Callable[[Any, Any], Tensor]) -> _Comparing:
    """`less(x, y)`: truth values of the higher rank."""

def product(op: Callable[[Any, Any], Tensor]) -> _Product:
    """`matmul(x, y)`: a vector takes one axis from the other, stacks broadcast."""

def choosing(op: Callable[[Any, Any, Any], Tensor]) -> _Choosing:
    """`where(condition, x, y)`: the wider dtype."""

def joining(op: Callable[..., Tensor]) -> _Joining:
    """`concat([x, y])`: the markers of all, where they agree."""

def stacking(op: Callable[..., Tensor]) -> _Stacking:
    """`stack([x, y])`: the same with one axis more."""

def creating(op: Callable[..., Tensor]) -> _Creating:
    """`zeros((2, 3))`: float32 unless another dtype is named, as many axes as lengths."""

def resembling(op: Callable[..., Tensor]) -> _Resembling:
    """`zeros_like(x)`: the markers of `x` unless others are named."""

def casting(op: Callable[..., Tensor]) -> _Casting:
    """`astype(x, em.float16)`: the dtype that is named."""
