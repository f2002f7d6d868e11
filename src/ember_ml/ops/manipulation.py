"""Functions that arrange elements anew: shapes, axes, joining, repeating."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ember_ml.autodiff.tape import recorded
from ember_ml.errors import AxisError, DomainError, ShapeError
from ember_ml.ops import dispatch, typed
from ember_ml.ops.axes import axes_of, axis_of, broadcast, integer_of, shape_of
from ember_ml.ops.explain import explain
from ember_ml.ops.registry import op
from ember_ml.tensor import aliases, convert, views
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.typing import Axis, ShapeLike, TensorLike

if TYPE_CHECKING:
    from ember_ml.markers import D, R, V
    from ember_ml.tensor.typed import Like

__all__ = [
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "concat",
    "concatenate",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "tile",
    "transpose",
    "unstack",
]


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which all the given ones broadcast.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    return broadcast("broadcast_shapes", [shape_of("broadcast_shapes", s) for s in shapes])


@op()
def broadcast_to(x: Like[D, V], /, shape: ShapeLike) -> Tensor[D, V]:
    """`x` repeated to a larger shape.

    >>> broadcast_to([1, 2], (2, 2)).tolist()
    [[1, 2], [1, 2]]
    """
    tensor = convert.to_tensor(x)
    target = shape_of("broadcast_to", shape)
    if broadcast("broadcast_to", [tensor.shape, target]) != target:
        raise ShapeError(f"ops.broadcast_to cannot make shape {target} of {tensor.shape}")
    return views.rearranged("broadcast_to", tensor, target)


@op()
def broadcast_arrays(*arrays: TensorLike) -> tuple[Tensor, ...]:
    """All tensors in the shape to which they broadcast.

    >>> [x.shape for x in broadcast_arrays([1, 2], [[3]])]
    [(1, 2), (1, 2)]
    """
    home = dispatch.home_of("broadcast_arrays", arrays)
    tensors = [convert.to_tensor(x, home) for x in arrays]
    shape = broadcast("broadcast_arrays", [t.shape for t in tensors])
    return tuple(views.rearranged("broadcast_to", t, shape) for t in tensors)


@op()
@typed.joining
def concat(arrays: Sequence[TensorLike], /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along an axis; `axis=None` flattens them first.

    >>> concat([[1, 2], [3]]).tolist()
    [1, 2, 3]
    """
    quick = dispatch.joined("concat", arrays, axis, 0)
    if quick is not None:
        return quick
    tensors = _several("concat", arrays)
    if axis is None:
        tensors = [reshape(t, (-1,)) for t in tensors]
        axis = 0
    place = axis_of("concat", axis, tensors[0].ndim)
    first = tensors[0].shape
    for t in tensors[1:]:
        if t.ndim != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(first, t.shape, strict=True)) if i != place
        ):
            raise ShapeError(
                f"ops.concat got shapes {first} and {t.shape}; "
                f"they may differ only along axis {place}"
            )
    return _join("concat", tensors, place)


concatenate = concat


@op()
@typed.stacking
def stack(arrays: Sequence[TensorLike], /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis.

    >>> stack([[1, 2], [3, 4]], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    quick = dispatch.joined("stack", arrays, axis, 1)
    if quick is not None:
        return quick
    tensors = _several("stack", arrays)
    first = tensors[0].shape
    for t in tensors[1:]:
        if t.shape != first:
            raise ShapeError(f"ops.stack got shapes {first} and {t.shape}; they must be equal")
    return _join("stack", tensors, axis_of("stack", axis, len(first) + 1))


def _several(name: str, arrays: Sequence[TensorLike]) -> list[Tensor]:
    values = tuple(arrays)
    if not values:
        raise ShapeError(f"ops.{name} takes at least one tensor, got none")
    home = dispatch.home_of(name, values)
    return [convert.to_tensor(x, home) for x in values]


def _join(name: str, tensors: list[Tensor], axis: int) -> Tensor:
    spec, natives, taped = dispatch.operands(name, *tensors)
    try:
        native = spec.backend.entry(spec, name)[0](list(natives), axis)
    except Exception as error:
        raise explain(name, error, tuple(tensors)) from error
    return recorded(name, native, spec, taped, (axis,)) if taped else fill(native, spec)


@op()
def expand_dims(x: Like[D, V], /, axis: int | tuple[int, ...] = 0) -> Tensor[D, V]:
    """`x` with axes of length one at the given places of the result.

    >>> expand_dims([1, 2], axis=1).shape
    (2, 1)
    """
    tensor = convert.to_tensor(x)
    if type(axis) is int:
        shape = tensor.shape
        place = axis_of("expand_dims", axis, len(shape) + 1)
        return _reshaped(tensor, (*shape[:place], 1, *shape[place:]))
    count = len(axis) if isinstance(axis, tuple | list) else 1
    axes = set(axes_of("expand_dims", axis, tensor.ndim + count))
    sides = iter(tensor.shape)
    return _reshaped(
        tensor, tuple(1 if i in axes else next(sides) for i in range(tensor.ndim + count))
    )


def _reshaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    quick = views.quick_reshape(x, shape)
    return views.rearranged("reshape", x, shape) if quick is None else quick


@op()
def squeeze(x: Like[D, V], /, axis: int | tuple[int, ...]) -> Tensor[D, V]:
    """`x` without the given axes, each of length one.

    >>> squeeze([[1, 2]], axis=0).shape
    (2,)
    """
    tensor = convert.to_tensor(x)
    shape = tensor.shape
    axes = axes_of("squeeze", axis, len(shape))
    for one in axes:
        if shape[one] != 1:
            raise ShapeError(
                f"ops.squeeze got axis {one} of shape {shape}, whose length is not one"
            )
    return _reshaped(tensor, tuple(side for i, side in enumerate(shape) if i not in axes))


@op()
def flip(x: Like[D, V, R], /, *, axis: Axis = None) -> Tensor[D, V, R]:
    """`x` in reverse order along the given axes, or all.

    >>> flip([1, 2, 3]).tolist()
    [3, 2, 1]
    """
    tensor = convert.to_tensor(x)
    return views.rearranged("flip", tensor, axes_of("flip", axis, tensor.ndim))


@op()
def moveaxis(
    x: Like[D, V, R],
    source: int | tuple[int, ...],
    destination: int | tuple[int, ...],
    /,
) -> Tensor[D, V, R]:
    """`x` with some axes moved to other places.

    >>> moveaxis(permute_dims([[[1, 2, 3]]], (0, 1, 2)), 0, 2).shape
    (1, 3, 1)
    """
    tensor = convert.to_tensor(x)
    old = axes_of("moveaxis", source, tensor.ndim)
    new = axes_of("moveaxis", destination, tensor.ndim)
    if len(old) != len(new):
        raise AxisError(f"ops.moveaxis got {len(old)} sources for {len(new)} destinations")
    rest = iter(i for i in range(tensor.ndim) if i not in old)
    order = [old[new.index(i)] if i in new else next(rest) for i in range(tensor.ndim)]
    return views.rearranged("permute_dims", tensor, tuple(order))


@op()
def permute_dims(x: Like[D, V, R], /, axes: Sequence[int]) -> Tensor[D, V, R]:
    """`x` with its axes in another order.

    >>> permute_dims([[1, 2, 3]], (1, 0)).shape
    (3, 1)
    """
    tensor = convert.to_tensor(x)
    order = axes_of("permute_dims", tuple(axes), tensor.ndim)
    if len(order) != tensor.ndim:
        raise AxisError(
            f"ops.permute_dims got axes {order} for a tensor of {tensor.ndim} axes; name each once"
        )
    return views.rearranged("permute_dims", tensor, order)


def transpose(x: Like[D, V, R], /, axes: Sequence[int] | None = None) -> Tensor[D, V, R]:
    """`x` with its axes in another order; without `axes`, reversed.

    >>> transpose([[1, 2, 3]]).shape
    (3, 1)
    """
    tensor = convert.to_tensor(x)
    return permute_dims(tensor, tuple(range(tensor.ndim))[::-1] if axes is None else axes)


@op()
def repeat(x: Like[D, V], repeats: TensorLike, /, *, axis: int | None = None) -> Tensor[D, V]:
    """Each element repeated, as often for all or a number for each.

    >>> repeat([1, 2], 2).tolist()
    [1, 1, 2, 2]
    """
    tensor = convert.to_tensor(x)
    if axis is None:
        tensor = reshape(tensor, (-1,))
        axis = 0
    place = axis_of("repeat", axis, tensor.ndim)
    counts: Any
    if isinstance(repeats, int) and type(repeats) not in (int, bool):
        # A size that varies, in a function that is exported: each element beside itself.
        side, before, behind = tensor.shape[place], tensor.shape[:place], tensor.shape[place + 1 :]
        wide = broadcast_to(expand_dims(tensor, place + 1), (*before, side, repeats, *behind))
        return reshape(wide, (*before, side * repeats, *behind))
    if type(repeats) is int:  # as a tensor, it would have no value in a function that is traced
        counts = np.asarray(repeats)
    else:
        counts = convert.to_tensor(repeats, tensor._spec.backend)
        if not counts.dtype.is_integer:
            raise DomainError(f"ops.repeat takes integer repeats, not {counts.dtype}")
        counts = counts.numpy()
    if counts.ndim > 1 or (counts.ndim and counts.size not in (1, tensor.shape[place])):
        raise ShapeError(
            f"ops.repeat got {counts.size} repeats for axis {place} of shape {tensor.shape}"
        )
    if counts.size and int(counts.min()) < 0:
        raise DomainError("ops.repeat got negative repeats")
    return dispatch.call("repeat", tensor, counts, place)


@op()
def reshape(x: Like[D, V], /, shape: ShapeLike, *, copy: bool | None = None) -> Tensor[D, V]:
    """The same elements in another shape; one length may be -1, and is worked out.

    >>> reshape([1, 2, 3, 4], (2, -1)).tolist()
    [[1, 2], [3, 4]]
    """
    if copy is None:
        quick = views.quick_reshape(x, shape)
        if quick is not None:
            return quick
    tensor = convert.to_tensor(x)
    target = _complete(tensor, shape_of("reshape", shape, unknown=True))
    out = views.rearranged("reshape", tensor, target)
    if copy is None:
        return out
    shares = aliases.shares_memory(tensor, out)
    if copy and shares:
        return out.copy()
    if not copy and not shares and tensor.size and type(tensor) is not GradTensor:
        raise DomainError(
            f"ops.reshape(copy=False) of shape {tensor.shape} to {target} needs a copy"
        )
    return out


def _complete(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    size = x.size
    known = math.prod(side for side in shape if side != -1)
    gaps = shape.count(-1)
    if gaps == 1 and known and size % known == 0:
        return tuple(size // known if side == -1 else side for side in shape)
    if gaps or known != size:
        raise ShapeError(f"ops.reshape cannot make shape {shape} of {x.shape} ({size} elements)")
    return shape


@op()
def roll(
    x: Like[D, V, R], /, shift: int | tuple[int, ...], *, axis: Axis = None
) -> Tensor[D, V, R]:
    """Elements moved along axes; those that fall off come in at the other end.

    >>> roll([1, 2, 3], 1).tolist()
    [3, 1, 2]
    """
    tensor = convert.to_tensor(x)
    if axis is None:
        if isinstance(shift, tuple | list):
            raise AxisError("ops.roll takes one shift where axis is None; name the axes")
        flat = dispatch.call(
            "roll", reshape(tensor, (-1,)), (integer_of("roll", shift, "shift"),), (0,)
        )
        return reshape(flat, tensor.shape)
    given = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(axis_of("roll", one, tensor.ndim) for one in given)
    shifts = tuple(shift) if isinstance(shift, tuple | list) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise AxisError(f"ops.roll got {len(shifts)} shifts for {len(axes)} axes")
    if not axes:
        return tensor.copy()  # torch takes no shifts for one that was forgotten
    return dispatch.call(
        "roll", tensor, tuple(integer_of("roll", s, "shift") for s in shifts), axes
    )


@op()
def tile(x: Like[D, V], repetitions: Sequence[int], /) -> Tensor[D, V]:
    """The whole of `x` repeated along each axis.

    >>> tile([1, 2], (2,)).tolist()
    [1, 2, 1, 2]
    """
    tensor = convert.to_tensor(x)
    counts = shape_of("tile", repetitions)
    ndim = max(tensor.ndim, len(counts))
    counts = (1,) * (ndim - len(counts)) + counts
    tensor = reshape(tensor, (1,) * (ndim - tensor.ndim) + tensor.shape)
    return dispatch.call("tile", tensor, counts)


@op()
def unstack(x: TensorLike, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The tensors along an axis.

    >>> [t.tolist() for t in unstack([[1, 2], [3, 4]])]
    [[1, 2], [3, 4]]
    """
    tensor = convert.to_tensor(x)
    place = axis_of("unstack", axis, tensor.ndim)
    before = (slice(None),) * place
    return tuple(tensor[(*before, i)] for i in range(tensor.shape[place]))
