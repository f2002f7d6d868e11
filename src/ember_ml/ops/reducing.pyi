"""How markers go through reductions.

Each has the same overloads: over all axes, over one, with the axes kept, over some. They differ in
the dtype of the result.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol, overload

from ember_ml.markers import (
    BesideFloat,
    Bool,
    D,
    Int64,
    Lowers,
    Marked,
    R,
    Rank0,
    Total,
    Unmarked,
    V,
)
from ember_ml.tensor.core import Tensor
from ember_ml.tensor.typed import DTypeOf, E, Like, LikeFloat, LikeTotal, Q
from ember_ml.typing import Axis

class _Extreme(Protocol):
    @overload
    def __call__(
        self, x: Like[D, V], /, *, axis: None = None, keepdims: Literal[False] = False
    ) -> Tensor[D, V, Rank0]: ...
    @overload
    def __call__(
        self, x: Marked[D, V, Lowers[Q]], /, *, axis: int, keepdims: Literal[False] = False
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self, x: Like[D, V, R], /, *, axis: Axis = None, keepdims: Literal[True]
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(
        self, x: Like[D, V], /, *, axis: tuple[int, ...], keepdims: bool = False
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(self, x: Like[D, V], /, *, axis: Axis = None, keepdims: bool) -> Tensor[D, V]: ...
    @overload
    def __call__(self, x: Unmarked, /, *, axis: int, keepdims: bool = False) -> Tensor: ...

class _Total(Protocol):
    @overload
    def __call__(
        self,
        x: LikeTotal[D, V],
        /,
        *,
        axis: None = None,
        dtype: None = None,
        keepdims: Literal[False] = False,
    ) -> Tensor[D, V, Rank0]: ...
    @overload
    def __call__(
        self,
        x: Marked[Total[D], V, Lowers[Q]],
        /,
        *,
        axis: int,
        dtype: None = None,
        keepdims: Literal[False] = False,
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self,
        x: LikeTotal[D, V, R],
        /,
        *,
        axis: Axis = None,
        dtype: None = None,
        keepdims: Literal[True],
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(
        self,
        x: LikeTotal[D, V],
        /,
        *,
        axis: tuple[int, ...],
        dtype: None = None,
        keepdims: bool = False,
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(
        self, x: LikeTotal[D, V], /, *, axis: Axis = None, dtype: None = None, keepdims: bool
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(
        self, x: Unmarked, /, *, axis: int, dtype: None = None, keepdims: bool = False
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: Like[Any, V], /, *, axis: Axis = None, dtype: DTypeOf[E], keepdims: bool = False
    ) -> Tensor[E, V]: ...

class _Average(Protocol):
    @overload
    def __call__(
        self, x: LikeFloat[D, V], /, *, axis: None = None, keepdims: Literal[False] = False
    ) -> Tensor[D, V, Rank0]: ...
    @overload
    def __call__(
        self,
        x: Marked[BesideFloat[D], V, Lowers[Q]],
        /,
        *,
        axis: int,
        keepdims: Literal[False] = False,
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self, x: LikeFloat[D, V, R], /, *, axis: Axis = None, keepdims: Literal[True]
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(
        self, x: LikeFloat[D, V], /, *, axis: tuple[int, ...], keepdims: bool = False
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(
        self, x: LikeFloat[D, V], /, *, axis: Axis = None, keepdims: bool
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(self, x: Unmarked, /, *, axis: int, keepdims: bool = False) -> Tensor: ...

class _Variance(Protocol):
    @overload
    def __call__(
        self,
        x: LikeFloat[D, V],
        /,
        *,
        axis: None = None,
        correction: float = 0.0,
        keepdims: Literal[False] = False,
        ddof: float | None = None,
    ) -> Tensor[D, V, Rank0]: ...
    @overload
    def __call__(
        self,
        x: Marked[BesideFloat[D], V, Lowers[Q]],
        /,
        *,
        axis: int,
        correction: float = 0.0,
        keepdims: Literal[False] = False,
        ddof: float | None = None,
    ) -> Tensor[D, V, Q]: ...
    @overload
    def __call__(
        self,
        x: LikeFloat[D, V, R],
        /,
        *,
        axis: Axis = None,
        correction: float = 0.0,
        keepdims: Literal[True],
        ddof: float | None = None,
    ) -> Tensor[D, V, R]: ...
    @overload
    def __call__(
        self,
        x: LikeFloat[D, V],
        /,
        *,
        axis: tuple[int, ...],
        correction: float = 0.0,
        keepdims: bool = False,
        ddof: float | None = None,
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(
        self,
        x: LikeFloat[D, V],
        /,
        *,
        axis: Axis = None,
        correction: float = 0.0,
        keepdims: bool,
        ddof: float | None = None,
    ) -> Tensor[D, V]: ...
    @overload
    def __call__(
        self,
        x: Unmarked,
        /,
        *,
        axis: int,
        correction: float = 0.0,
        keepdims: bool = False,
        ddof: float | None = None,
    ) -> Tensor: ...

class _Truth(Protocol):
    @overload
    def __call__(
        self, x: Like[Any, V], /, *, axis: None = None, keepdims: Literal[False] = False
    ) -> Tensor[Bool, V, Rank0]: ...
    @overload
    def __call__(
        self, x: Marked[Any, V, Lowers[Q]], /, *, axis: int, keepdims: Literal[False] = False
    ) -> Tensor[Bool, V, Q]: ...
    @overload
    def __call__(
        self, x: Like[Any, V, R], /, *, axis: Axis = None, keepdims: Literal[True]
    ) -> Tensor[Bool, V, R]: ...
    @overload
    def __call__(
        self, x: Like[Any, V], /, *, axis: tuple[int, ...], keepdims: bool = False
    ) -> Tensor[Bool, V]: ...
    @overload
    def __call__(
        self, x: Like[Any, V], /, *, axis: Axis = None, keepdims: bool
    ) -> Tensor[Bool, V]: ...
    @overload
    def __call__(self, x: Unmarked, /, *, axis: int, keepdims: bool = False) -> Tensor[Bool]: ...

class _Index(Protocol):
    @overload
    def __call__(
        self, x: Like[Any, V], /, *, axis: None = None, keepdims: Literal[False] = False
    ) -> Tensor[Int64, V, Rank0]: ...
    @overload
    def __call__(
        self, x: Marked[Any, V, Lowers[Q]], /, *, axis: int, keepdims: Literal[False] = False
    ) -> Tensor[Int64, V, Q]: ...
    @overload
    def __call__(
        self, x: Like[Any, V, R], /, *, axis: Axis = None, keepdims: Literal[True]
    ) -> Tensor[Int64, V, R]: ...
    @overload
    def __call__(
        self, x: Like[Any, V], /, *, axis: tuple[int, ...], keepdims: bool = False
    ) -> Tensor[Int64, V]: ...
    @overload
    def __call__(
        self, x: Like[Any, V], /, *, axis: Axis = None, keepdims: bool
    ) -> Tensor[Int64, V]: ...
    @overload
    def __call__(self, x: Unmarked, /, *, axis: int, keepdims: bool = False) -> Tensor[Int64]: ...

def extreme(op: Callable[..., Tensor]) -> _Extreme:
    """`max(x)`: its own dtype."""

def total(op: Callable[..., Tensor]) -> _Total:
    """`sum(x)`: integers in 64 bits."""

def average(op: Callable[..., Tensor]) -> _Average:
    """`mean(x)`: in floats."""

def variance(op: Callable[..., Tensor]) -> _Variance:
    """`var(x)`: in floats, with a correction."""

def truth(op: Callable[..., Tensor]) -> _Truth:
    """`any(x)`: truth values."""

def index(op: Callable[..., Tensor]) -> _Index:
    """`argmax(x)`, `count_nonzero(x)`: integers."""
