"""Tensors cut into parts, and put beside, below and behind each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch, manipulation
from ember_ml.ops.axes import axis_of, integer_of
from ember_ml.ops.registry import op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__: list[str] = [
    "array_split",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "chunk",
    "column_stack",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "split",
    "vsplit",
    "vstack",
]


# --- Splitting ------------------------------------------------------------------------------


@op(standard=False)
def split(
    x: TensorLike, /, indices_or_sections: int | Sequence[int], axis: int = 0
) -> tuple[Tensor, ...]:
    """So many equal parts along an axis, or the parts between some indices, as in NumPy.

    Parts that cannot be equal are an error here; array_split and chunk allow them.

    >>> [part.tolist() for part in split([1, 2, 3, 4], 2)]
    [[1, 2], [3, 4]]
    >>> [part.tolist() for part in split([1, 2, 3, 4], [1, 3])]
    [[1], [2, 3], [4]]
    """
    return _split("split", x, indices_or_sections, axis)


@op(standard=False)
def array_split(
    x: TensorLike, /, indices_or_sections: int | Sequence[int], axis: int = 0
) -> tuple[Tensor, ...]:
    """Like split, but parts may differ by one in length; the longer ones come first.

    >>> [part.tolist() for part in array_split([1, 2, 3, 4, 5], 2)]
    [[1, 2, 3], [4, 5]]
    """
    return _split("array_split", x, indices_or_sections, axis, equal=False)


@op(standard=False)
def chunk(x: TensorLike, /, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """At most so many parts of one length, the last of which may be shorter, as in PyTorch.

    >>> [part.tolist() for part in chunk([1, 2, 3, 4, 5], 2)]
    [[1, 2, 3], [4, 5]]
    """
    tensor = convert.to_tensor(x)
    place = axis_of("chunk", axis, tensor.ndim)
    count = integer_of("chunk", chunks, "chunks")
    if count < 1:
        raise DomainError(f"ops.chunk got chunks={count}; take at least one")
    side = tensor.shape[place]
    if not side:
        return (tensor,) * count
    length = -(-side // count)
    return _between(tensor, list(range(length, side, length)), place)


@op(standard=False)
def hsplit(x: TensorLike, /, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Parts along the second axis, or the only one. See split.

    >>> [part.tolist() for part in hsplit([[1, 2], [3, 4]], 2)]
    [[[1], [3]], [[2], [4]]]
    """
    tensor = at_least("hsplit", x, 1)
    return _split("hsplit", tensor, indices_or_sections, 1 if tensor.ndim > 1 else 0)


@op(standard=False)
def vsplit(x: TensorLike, /, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Parts along the first of at least two axes. See split.

    >>> [part.tolist() for part in vsplit([[1, 2], [3, 4]], 2)]
    [[[1, 2]], [[3, 4]]]
    """
    return _split("vsplit", at_least("vsplit", x, 2), indices_or_sections, 0)


@op(standard=False)
def dsplit(x: TensorLike, /, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Parts along the third of at least three axes. See split.

    >>> [part.shape for part in dsplit(ops.ones((2, 3, 4)), 2)]
    [(2, 3, 2), (2, 3, 2)]
    """
    return _split("dsplit", at_least("dsplit", x, 3), indices_or_sections, 2)


def _split(
    name: str, x: TensorLike, given: Any, axis: int, *, equal: bool = True
) -> tuple[Tensor, ...]:
    tensor = convert.to_tensor(x)
    place = axis_of(name, axis, tensor.ndim)
    side = tensor.shape[place]
    if isinstance(given, Sequence) or getattr(given, "ndim", 0) != 0:
        bounds = [integer_of(name, bound, "index") for bound in given]
        return _between(tensor, bounds, place)
    count = integer_of(name, given, "number of parts")
    if count < 1:
        raise DomainError(f"ops.{name} got {count} parts; take at least one")
    length, longer = divmod(side, count)
    if equal and longer:
        raise ShapeError(
            f"ops.{name} cannot make {count} equal parts of axis {place} of shape {tensor.shape}; "
            f"ops.array_split and ops.chunk make unequal ones"
        )
    bounds = [i * length + min(i, longer) for i in range(1, count)]
    return _between(tensor, bounds, place)


def _between(x: Tensor, bounds: list[int], axis: int) -> tuple[Tensor, ...]:
    """The parts that some bounds, which count from the end where negative, cut out."""
    before = (slice(None),) * axis
    starts, stops = [0, *bounds], [*bounds, x.shape[axis]]
    return tuple(
        x[(*before, slice(start, stop))] for start, stop in zip(starts, stops, strict=True)
    )


def at_least(name: str, x: TensorLike, ndim: int) -> Tensor:
    tensor = convert.to_tensor(x)
    if tensor.ndim < ndim:
        raise ShapeError(f"ops.{name} takes at least {ndim} axes, not shape {tensor.shape}")
    return tensor


# --- Stacking -------------------------------------------------------------------------------


@op(standard=False)
def vstack(arrays: Sequence[TensorLike], /) -> Tensor:
    """Tensors below each other; a vector counts as a row.

    >>> vstack([[1, 2], [3, 4]]).tolist()
    [[1, 2], [3, 4]]
    """
    tensors = _several("vstack", arrays)
    return manipulation.concat([_with_axes(t, 2) for t in tensors], axis=0)


@op(standard=False)
def hstack(arrays: Sequence[TensorLike], /) -> Tensor:
    """Tensors beside each other: along the second axis, or the only one.

    >>> hstack([[1, 2], [3]]).tolist()
    [1, 2, 3]
    """
    tensors = [_with_axes(t, 1) for t in _several("hstack", arrays)]
    return manipulation.concat(tensors, axis=1 if tensors[0].ndim > 1 else 0)


@op(standard=False)
def dstack(arrays: Sequence[TensorLike], /) -> Tensor:
    """Tensors behind each other, along the third axis.

    >>> dstack([[1, 2], [3, 4]]).tolist()
    [[[1, 3], [2, 4]]]
    """
    tensors = _several("dstack", arrays)
    return manipulation.concat([_with_axes(t, 3) for t in tensors], axis=2)


@op(standard=False)
def column_stack(arrays: Sequence[TensorLike], /) -> Tensor:
    """Tensors beside each other; a vector counts as a column.

    >>> column_stack([[1, 2], [3, 4]]).tolist()
    [[1, 3], [2, 4]]
    """
    tensors = [
        manipulation.reshape(t, (-1, 1)) if t.ndim < 2 else t
        for t in _several("column_stack", arrays)
    ]
    return manipulation.concat(tensors, axis=1)


@op(standard=False)
def atleast_1d(*arrays: TensorLike) -> Any:
    """Tensors with at least one axis; one tensor for one, else a tuple.

    >>> atleast_1d(5).shape
    (1,)
    """
    return _at_least_each("atleast_1d", arrays, 1)


@op(standard=False)
def atleast_2d(*arrays: TensorLike) -> Any:
    """Tensors with at least two axes, new ones in front; one tensor for one, else a tuple.

    >>> atleast_2d([1, 2]).shape
    (1, 2)
    """
    return _at_least_each("atleast_2d", arrays, 2)


@op(standard=False)
def atleast_3d(*arrays: TensorLike) -> Any:
    """Tensors with at least three axes, as in NumPy: a vector lies in the middle one.

    >>> atleast_3d([1, 2]).shape, atleast_3d([[1, 2]]).shape
    ((1, 2, 1), (1, 2, 1))
    """
    return _at_least_each("atleast_3d", arrays, 3)


def _at_least_each(name: str, arrays: tuple[TensorLike, ...], ndim: int) -> Any:
    home = dispatch.home_of(name, arrays)
    made = tuple(_with_axes(convert.to_tensor(x, home), ndim) for x in arrays)
    return made[0] if len(made) == 1 else made


def _with_axes(x: Tensor, ndim: int) -> Tensor:
    if x.ndim >= ndim:
        return x
    if ndim < 3 or not x.ndim:
        return manipulation.reshape(x, (1,) * (ndim - x.ndim) + x.shape)
    return manipulation.reshape(x, ((1, *x.shape, 1) if x.ndim == 1 else (*x.shape, 1)))


def _several(name: str, arrays: Sequence[TensorLike]) -> list[Tensor]:
    values = tuple(arrays)
    if not values:
        raise ShapeError(f"ops.{name} takes at least one tensor, got none")
    home = dispatch.home_of(name, values)
    return [convert.to_tensor(x, home) for x in values]
