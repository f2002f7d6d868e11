"""The operators of a tensor, and the common ops as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ember_ml.markers import D, Marked, R, V
from ember_ml.tensor import typed

if TYPE_CHECKING:
    from types import ModuleType

    from ember_ml import ops
    from ember_ml.backend.spec import NativeArray, Spec
    from ember_ml.dtypes import DTypeLike
    from ember_ml.markers import BesideFloat, Int64, Parts, Rank1, Total
    from ember_ml.tensor import views
    from ember_ml.tensor.core import Tensor
    from ember_ml.tensor.typed import E, Limit

__all__ = ["Methods", "Operators"]

Axis = int | tuple[int, ...] | None


class Operators(Marked[D, V, R]):
    """What type checkers know of a tensor's fields and operators; they are those of Cell."""

    __slots__ = ()

    if TYPE_CHECKING:
        native: NativeArray
        _spec: Spec
        _home: Any
        _node: Any
        _role: str

        @property
        def shape(self) -> tuple[int, ...]: ...

        @property
        def ndim(self) -> int: ...

        @typed.arithmetic
        def __add__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __radd__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __iadd__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __sub__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __rsub__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __isub__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __mul__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __rmul__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __imul__(self, other: Any, /) -> Tensor: ...

        @typed.division
        def __truediv__(self, other: Any, /) -> Tensor: ...

        @typed.division
        def __rtruediv__(self, other: Any, /) -> Tensor: ...

        @typed.division
        def __itruediv__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __floordiv__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __rfloordiv__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __ifloordiv__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __mod__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __rmod__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __imod__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __pow__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __rpow__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __ipow__(self, other: Any, /) -> Tensor: ...

        @typed.matmul
        def __matmul__(self, other: Any, /) -> Tensor: ...

        @typed.matmul
        def __rmatmul__(self, other: Any, /) -> Tensor: ...

        @typed.matmul
        def __imatmul__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __and__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __rand__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __iand__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __or__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __ror__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __ior__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __xor__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __rxor__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __ixor__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __lshift__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __rlshift__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __ilshift__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __rshift__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __rrshift__(self, other: Any, /) -> Tensor: ...

        @typed.arithmetic
        def __irshift__(self, other: Any, /) -> Tensor: ...

        @typed.comparison
        def __eq__(self, other: Any, /) -> Tensor: ...  # type: ignore[override]  # element-wise

        @typed.comparison
        def __ne__(self, other: Any, /) -> Tensor: ...  # type: ignore[override]  # element-wise

        @typed.comparison
        def __lt__(self, other: Any, /) -> Tensor: ...

        @typed.comparison
        def __le__(self, other: Any, /) -> Tensor: ...

        @typed.comparison
        def __gt__(self, other: Any, /) -> Tensor: ...

        @typed.comparison
        def __ge__(self, other: Any, /) -> Tensor: ...

        def __divmod__(self, other: Any, /) -> tuple[Tensor, Tensor]: ...
        def __rdivmod__(self, other: Any, /) -> tuple[Tensor, Tensor]: ...
        def __neg__(self, /) -> Tensor[D, V, R]: ...
        def __pos__(self, /) -> Tensor[D, V, R]: ...
        def __abs__(self: Marked[Parts[E]], /) -> Tensor[E, V, R]: ...
        def __invert__(self, /) -> Tensor[D, V, R]: ...
        def __round__(self, digits: int | None = None, /) -> Tensor[D, V, R]: ...


class Methods(Operators[D, V, R]):
    """The common ops as methods: `x.sum(axis=0)` is `ops.sum(x, axis=0)`."""

    __slots__ = ()

    # --- Reductions -------------------------------------------------------------------------

    @typed.total
    def sum(self, axis: Axis = None, *, dtype: DTypeLike = None, keepdims: bool = False) -> Tensor:
        """Sum over `axis`."""
        return ops.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    @typed.total
    def prod(self, axis: Axis = None, *, dtype: DTypeLike = None, keepdims: bool = False) -> Tensor:
        """Product over `axis`."""
        return ops.prod(self, axis=axis, dtype=dtype, keepdims=keepdims)

    @typed.average
    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """Average over `axis`."""
        return ops.mean(self, axis=axis, keepdims=keepdims)

    @typed.variance
    def var(self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
        """Variance over `axis`."""
        return ops.var(self, axis=axis, correction=correction, keepdims=keepdims)

    @typed.variance
    def std(self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
        """Standard deviation over `axis`."""
        return ops.std(self, axis=axis, correction=correction, keepdims=keepdims)

    @typed.extreme
    def max(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """Largest value over `axis`."""
        return ops.max(self, axis=axis, keepdims=keepdims)

    @typed.extreme
    def min(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """Smallest value over `axis`."""
        return ops.min(self, axis=axis, keepdims=keepdims)

    @typed.truth
    def all(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """True where all values over `axis` are true."""
        return ops.all(self, axis=axis, keepdims=keepdims)

    @typed.truth
    def any(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """True where any value over `axis` is true."""
        return ops.any(self, axis=axis, keepdims=keepdims)

    @typed.position
    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """Index of the largest value along `axis`."""
        return ops.argmax(self, axis=axis, keepdims=keepdims)

    @typed.position
    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """Index of the smallest value along `axis`."""
        return ops.argmin(self, axis=axis, keepdims=keepdims)

    def cumulative_sum(self: Marked[Total[E]], axis: int | None = None) -> Tensor[E, V, R]:
        """Running sum along `axis`."""
        return ops.cumulative_sum(self, axis=axis)

    def cumulative_prod(self: Marked[Total[E]], axis: int | None = None) -> Tensor[E, V, R]:
        """Running product along `axis`."""
        return ops.cumulative_prod(self, axis=axis)

    cumsum = cumulative_sum
    cumprod = cumulative_prod

    # --- Shape ------------------------------------------------------------------------------

    @typed.reshaping
    def reshape(self, *shape: Any) -> Tensor:
        """Another shape with the same elements: `x.reshape(2, -1)` or `x.reshape((2, -1))`."""
        return ops.reshape(self, _spread(shape))

    def flatten(self) -> Tensor[D, V, Rank1]:
        """All elements along one axis."""
        return ops.reshape(self, (-1,))

    ravel = flatten

    def transpose(self, *axes: Any) -> Tensor[D, V, R]:
        """The axes in another order; without arguments, reversed."""
        if not axes:
            return views.rearranged("permute_dims", self, tuple(range(self.ndim))[::-1])  # type: ignore[arg-type]  # a Tensor, which the mixin cannot name
        return ops.permute_dims(self, _spread(axes))

    def swapaxes(self, first: int, second: int) -> Tensor[D, V, R]:
        """Two axes in each other's place."""
        order = list(range(self.ndim))
        order[first], order[second] = order[second], order[first]
        return ops.permute_dims(self, tuple(order))

    @typed.squeezing
    def squeeze(self, axis: Axis = None) -> Tensor:
        """Without the axes of length one: those given, or all."""
        if axis is None:
            axis = tuple(i for i, side in enumerate(self.shape) if side == 1)
        return ops.squeeze(self, axis)

    @typed.expanding
    def expand_dims(self, axis: int | tuple[int, ...]) -> Tensor:
        """With axes of length one at the given places."""
        return ops.expand_dims(self, axis)

    def broadcast_to(self, shape: tuple[int, ...]) -> Tensor[D, V]:
        """Repeated to a larger shape."""
        return ops.broadcast_to(self, shape)

    def repeat(self, repeats: Any, *, axis: int | None = None) -> Tensor[D, V]:
        """Each element repeated."""
        return ops.repeat(self, repeats, axis=axis)

    # --- Values -----------------------------------------------------------------------------

    def clip(self, min: Limit[D, V, R] = None, max: Limit[D, V, R] = None) -> Tensor[D, V, R]:
        """Values limited to [min, max]."""
        return ops.clip(self, min, max)

    def take(self, indices: Any, *, axis: int | None = None) -> Tensor[D, V]:
        """Elements at `indices` along `axis`."""
        return ops.take(self, indices, axis=axis)

    def nonzero(self) -> tuple[Tensor[Int64, V, Rank1], ...]:
        """The indices of the elements that are not zero."""
        return ops.nonzero(self)

    def sort(self, axis: int = -1, *, descending: bool = False) -> Tensor[D, V, R]:
        """Sorted along `axis`, as a new tensor."""
        return ops.sort(self, axis=axis, descending=descending)

    def argsort(self, axis: int = -1, *, descending: bool = False) -> Tensor[Int64, V, R]:
        """The indices that sort along `axis`."""
        return ops.argsort(self, axis=axis, descending=descending)

    @typed.matmul
    def matmul(self, other: Any) -> Tensor:
        """Matrix product."""
        return ops.matmul(self, other)

    def abs(self: Marked[Parts[E]]) -> Tensor[E, V, R]:
        """Absolute values."""
        return ops.abs(self)

    def conj(self) -> Tensor[D, V, R]:
        """Complex conjugates."""
        return ops.conj(self)

    def exp(self: Marked[BesideFloat[E]]) -> Tensor[E, V, R]:
        """e to the power of each element."""
        return ops.exp(self)

    def log(self: Marked[BesideFloat[E]]) -> Tensor[E, V, R]:
        """Natural logarithms."""
        return ops.log(self)

    def sqrt(self: Marked[BesideFloat[E]]) -> Tensor[E, V, R]:
        """Square roots."""
        return ops.sqrt(self)

    def square(self) -> Tensor[D, V, R]:
        """Squares."""
        return ops.square(self)

    def sin(self: Marked[BesideFloat[E]]) -> Tensor[E, V, R]:
        """Sines."""
        return ops.sin(self)

    def cos(self: Marked[BesideFloat[E]]) -> Tensor[E, V, R]:
        """Cosines."""
        return ops.cos(self)

    def tanh(self: Marked[BesideFloat[E]]) -> Tensor[E, V, R]:
        """Hyperbolic tangents."""
        return ops.tanh(self)

    def round(self) -> Tensor[D, V, R]:
        """Rounded to whole numbers, halves to even."""
        return ops.round(self)

    def floor(self) -> Tensor[D, V, R]:
        """Rounded down."""
        return ops.floor(self)

    def ceil(self) -> Tensor[D, V, R]:
        """Rounded up."""
        return ops.ceil(self)

    def sign(self) -> Tensor[D, V, R]:
        """-1, 0 or 1."""
        return ops.sign(self)


def _spread(values: tuple[Any, ...]) -> tuple[int, ...]:
    """`(2, 3)` from `f(2, 3)`, `f((2, 3))` or `f([2, 3])`."""
    if len(values) == 1 and isinstance(values[0], tuple | list):
        return tuple(values[0])
    return values


def bind(**modules: ModuleType) -> None:
    """Take the modules of ops: they are written over Tensor, so they can only come after it."""
    globals().update(modules)
