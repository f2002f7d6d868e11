"""The methods of a tensor about its memory: views, aliases, clones, storage, iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ember_ml.errors import DomainError, OutOfBoundsError, ShapeError
from ember_ml.markers import D, R, V
from ember_ml.tensor import typed
from ember_ml.tensor.methods import Methods

if TYPE_CHECKING:
    from types import ModuleType

    from ember_ml import ops
    from ember_ml.ops import axes
    from ember_ml.tensor import aliases, homes, indexing, iteration, views, writing
    from ember_ml.tensor.core import Tensor
    from ember_ml.tensor.iteration import Element, ParallelIterator
    from ember_ml.tensor.storage import Storage
    from ember_ml.tensor.windows import TensorView, TensorViewMut

__all__ = ["Sharing"]

_ALL = (slice(None),)


class Sharing(Methods[D, V, R]):
    """Who shares the memory of a tensor, and in which order its elements lie there."""

    __slots__ = ()

    # --- Memory -----------------------------------------------------------------------------

    @property
    def storage(self) -> Storage:
        """The memory behind the tensor: its lock, how often it was written, its bytes."""
        return homes.storage_of(self)  # type: ignore[arg-type]  # a Tensor, which the mixin cannot name

    @property
    def strides(self) -> tuple[int, ...]:
        """How many elements lie between neighbours along each axis, in the storage.

        >>> from ember_ml.nn import tensor
        >>> tensor.zeros((2, 3)).T.strides
        (1, 3)
        """
        return aliases.strides_and_offset(self)[0]  # type: ignore[arg-type]  # as above

    @property
    def offset(self) -> int:
        """How many elements lie before the first one, in the storage."""
        return aliases.strides_and_offset(self)[1]  # type: ignore[arg-type]  # as above

    @property
    def is_contiguous(self) -> bool:
        """True where the elements follow one another in C order."""
        expected = 1
        if 0 in self.shape:
            return True
        for side, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if side != 1 and stride != expected:
                return False
            expected *= side
        return True

    def shares_memory(self, other: Tensor) -> bool:
        """True where a write to one of the two can change the other.

        >>> from ember_ml.nn import tensor
        >>> x = tensor.zeros(4)
        >>> x.shares_memory(x[2:]), x.shares_memory(x.clone())
        (True, False)
        """
        return aliases.shares_memory(self, other)  # type: ignore[arg-type]  # as above

    def alias(self) -> Tensor[D, V, R]:
        """Another tensor on the same memory: a write to one is seen in the other."""
        return aliases.alias(self)  # type: ignore[arg-type]  # as above

    def clone(self) -> Tensor[D, V, R]:
        """The same values at once; memory is copied when one of the two is first written to.

        >>> from ember_ml.nn import tensor
        >>> x = tensor.zeros(2)
        >>> y = x.clone()
        >>> y += 1.0
        >>> x.tolist(), y.tolist()
        ([0.0, 0.0], [1.0, 1.0])
        """
        return aliases.clone(self)  # type: ignore[arg-type]  # as above

    # --- Views ------------------------------------------------------------------------------

    def view(self, *shape: Any) -> Tensor[D, V]:
        """The same memory in another shape; ShapeError where no strides describe that.

        >>> from ember_ml.nn import tensor
        >>> tensor.zeros((2, 6)).view(3, -1).shape
        (3, 4)
        """
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        out = ops.reshape(self, wanted)
        me: Tensor = self  # type: ignore[assignment]  # as above
        if me.size and not me.requires_grad and homes.home_of(out) is None:  # a plain result
            raise ShapeError(
                f"Tensor.view cannot show strides {self.strides} of shape {me.shape} as "
                f"{out.shape} without a copy; use .reshape"
            )
        return out

    def slice(self, *items: Any) -> TensorView[D, V]:
        """A window for reading: for each axis an int, a slice, a range or (start, stop[, step]).

        >>> from ember_ml.nn import tensor
        >>> tensor.arange(6).reshape(2, 3).slice(0, (1, 3)).tolist()
        [1, 2]
        """
        quick = views.quick_window(self, items, False)  # type: ignore[arg-type]  # as above
        if quick is not None:
            return quick  # type: ignore[return-value]  # by the flag
        return self._window(items, writable=False)  # type: ignore[return-value]  # by the flag

    def slice_mut(self, *items: Any) -> TensorViewMut[D, V]:
        """A window for reading and writing; takes what `slice` takes.

        >>> from ember_ml.nn import tensor
        >>> x = tensor.zeros(3)
        >>> x.slice_mut((1, 3))[:] = 5.0
        >>> x.tolist()
        [0.0, 5.0, 5.0]
        """
        quick = views.quick_window(self, items, True)  # type: ignore[arg-type]  # as above
        if quick is not None:
            return quick  # type: ignore[return-value]  # by the flag
        return self._window(items, writable=True)  # type: ignore[return-value]  # by the flag

    def _window(self, items: tuple[Any, ...], *, writable: bool) -> Tensor:
        me: Tensor = self  # type: ignore[assignment]  # as above
        if me.requires_grad:
            raise DomainError(
                "slice and slice_mut show memory, which gradients do not pass; use x[...]"
            )
        key, advanced = indexing.read_key(me, tuple(_as_slice(item) for item in items))
        if advanced:
            raise DomainError("slice and slice_mut take no index arrays; use x[...]")
        if writable:
            writing.writable_storage(me)
        return homes.view_on(me, homes.layout_of(me).at(key), writable)

    def narrow(self, axis: int, start: int, length: int) -> Tensor[D, V, R]:
        """A view of `length` elements along an axis.

        >>> from ember_ml.nn import tensor
        >>> tensor.arange(5).narrow(0, 1, 3).tolist()
        [1, 2, 3]
        """
        place, side = self._axis("narrow", axis)
        first = start + side if start < 0 else start
        if length < 0 or not 0 <= first <= side - length:
            raise OutOfBoundsError(
                f"Tensor.narrow got start {start} and length {length} "
                f"for axis {axis} of length {side}"
            )
        key = (*_ALL * place, slice(first, first + length))
        quick = views.quick_slice(self, key)  # type: ignore[arg-type]  # as above
        return self[key] if quick is None else quick  # type: ignore[index]  # of Tensor

    @typed.lowering
    def select(self, axis: int, index: int) -> Tensor:
        """A view of one element along an axis, which falls away.

        >>> from ember_ml.nn import tensor
        >>> tensor.arange(6).reshape(2, 3).select(1, 2).tolist()
        [2, 5]
        """
        if type(index) is int and type(axis) is int and 0 <= axis < self.ndim:
            quick = views.quick_slice(self, (*_ALL * axis, index))  # type: ignore[arg-type]  # as above
            if quick is not None:
                return quick
        place, side = self._axis("select", axis)
        if not -side <= index < side:
            raise OutOfBoundsError(
                f"Tensor.select got index {index} for axis {axis} of length {side}"
            )
        return self[(*_ALL * place, index)]  # type: ignore[index,no-any-return]  # of Tensor

    def _axis(self, name: str, axis: int) -> tuple[int, int]:
        shape = self.shape
        if type(axis) is int and 0 <= axis < len(shape):
            return axis, shape[axis]
        place = axes.axis_of(name, axis, len(shape))
        return place, shape[place]

    def permute(self, *order: Any) -> Tensor[D, V, R]:
        """A view with the axes in another order: `x.permute(2, 0, 1)`."""
        if len(order) == 1 and not isinstance(order[0], int):
            order = tuple(order[0])
        if sorted(order) == list(range(self.ndim)):
            return views.rearranged("permute_dims", self, order)  # type: ignore[arg-type]  # as above
        return ops.permute_dims(self, order)

    def flip(self, axis: int | tuple[int, ...] | None = None) -> Tensor[D, V, R]:
        """A view in reverse order along the given axes, or all."""
        if axis is None:
            return views.rearranged("flip", self, tuple(range(self.ndim)))  # type: ignore[arg-type]  # as above
        return ops.flip(self, axis=axis)

    # --- Iteration --------------------------------------------------------------------------

    def iter(self) -> Iterator[Any]:
        """The elements in C order as Python numbers, as they are now.

        >>> from ember_ml.nn import tensor
        >>> sum(tensor.arange(4).iter())
        6
        """
        return iteration.elements(self)  # type: ignore[arg-type]  # as above

    def iter_mut(self) -> Iterator[Element]:
        """The elements in C order, to be assigned: written when the loop ends, all at once.

        >>> from ember_ml.nn import tensor
        >>> x = tensor.arange(3)
        >>> for element in x.iter_mut():
        ...     element.value *= 10
        >>> x.tolist()
        [0, 10, 20]
        """
        return iteration.mutable_elements(self)  # type: ignore[arg-type]  # as above

    def par_iter(
        self, chunks: int | None = None, *, axis: int = 0, workers: int | None = None
    ) -> ParallelIterator[Tensor]:
        """Views along an axis, as even as can be, for several threads to work on.

        >>> from ember_ml import ops
        >>> from ember_ml.nn import tensor
        >>> tensor.arange(10).par_iter(chunks=5).map(ops.sum).reduce(ops.add).item()
        45
        """
        return iteration.parallel(self, chunks, axis, workers)  # type: ignore[arg-type]  # as above


def _as_slice(item: Any) -> Any:
    if isinstance(item, tuple) and 2 <= len(item) <= 3:
        return slice(*item)
    if isinstance(item, range):
        stop = item.stop if item.step > 0 or item.stop >= 0 else None
        return slice(item.start, stop, item.step)
    return item


def bind(**modules: ModuleType) -> None:
    """Hand over the modules that are written over Tensor: they cannot be imported before it."""
    globals().update(modules)
