"""Shapes, casts, and constants: what moves or makes values and computes nothing."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.backend import selection
from ember_ml.errors import DTypeError, ShapeError
from ember_ml.graph import types
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__ = ["axes_of", "hosted", "narrowed"]

_MOST: Final = 1 << 44  # bytes


def hosted(array: Any) -> Tensor:
    """A value on the host; it moves to the backend when it meets a tensor there."""
    return convert.asarray(np.asarray(array), backend=selection.load("numpy"))


def axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front."""
    return tuple(int(axis) % ndim if ndim else 0 for axis in axes)


# --- Shapes -------------------------------------------------------------------------------------


@operator("Identity", 1, 13, 14, 16, 19, 21, 23, 24, 25)
def identity(x: Tensor) -> Tensor:
    return x


@operator("Shape", 1, 13, 15, 19, 21, 23, 24, 25)
def shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    low = max(start + x.ndim, 0) if start < 0 else start
    high = x.ndim if end is None else max(end + x.ndim, 0) if end < 0 else end
    return hosted(np.array(x.shape[low : max(high, low)], dtype=np.int64))


@operator("Size", 1, 13, 19, 21, 23, 24, 25)
def size(x: Tensor) -> Tensor:
    return hosted(np.array(x.size, dtype=np.int64))


@operator("Reshape", 5, 13)
def reshape(x: Tensor, shape: Host) -> Tensor:
    return reshape_allowing_zero(x, shape)


@operator("Reshape", 14, 19, 21, 23, 24, 25)
def reshape_allowing_zero(x: Tensor, shape: Host, *, allowzero: int = 0) -> Tensor:
    """A new shape: -1 is what is left, 0 is the input's size there unless `allowzero`."""
    sizes = shape.tolist()
    if not allowzero and 0 in sizes:
        for axis, length in enumerate(sizes):
            if length == 0:
                if axis >= x.ndim:
                    raise ShapeError(f"Reshape to {sizes} takes axis {axis} from shape {x.shape}")
                sizes[axis] = x.shape[axis]
    if -1 in sizes and 0 in sizes:  # what is left cannot be told from nothing
        rest = int(np.prod([n for n in sizes if n != -1]))
        if not rest:
            sizes[sizes.index(-1)] = 0
    return ops.reshape(x, tuple(sizes))


@operator("Flatten", 11, 13, 21, 23, 24, 25)
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    place = axis + x.ndim if axis < 0 else axis
    return ops.reshape(x, (int(np.prod(x.shape[:place])), int(np.prod(x.shape[place:]))))


@operator("Squeeze", 11)
def squeeze_by_attribute(x: Tensor, *, axes: Any = None) -> Tensor:
    return squeeze(x, None if axes is None else np.asarray(axes))


@operator("Squeeze", 13, 21, 23, 24, 25)
def squeeze(x: Tensor, axes: Host | None = None) -> Tensor:
    if axes is None:
        over = tuple(i for i, n in enumerate(x.shape) if n == 1)
    else:
        over = axes_of(axes.reshape(-1), x.ndim)
    return ops.squeeze(x, over) if over else x


@operator("Unsqueeze", 11)
def unsqueeze_by_attribute(x: Tensor, *, axes: Any) -> Tensor:
    return unsqueeze(x, np.asarray(axes))


@operator("Unsqueeze", 13, 21, 23, 24, 25)
def unsqueeze(x: Tensor, axes: Host) -> Tensor:
    given = axes.reshape(-1)
    sizes = list(x.shape)
    for axis in sorted(axes_of(given, x.ndim + len(given))):
        sizes.insert(axis, 1)
    return ops.reshape(x, tuple(sizes))


@operator("Transpose", 1, 13, 21, 23, 24, 25)
def transpose(x: Tensor, *, perm: Any = None) -> Tensor:
    return ops.permute_dims(x, tuple(reversed(range(x.ndim))) if perm is None else tuple(perm))


@operator("Expand", 8, 13)
def expand(x: Tensor, shape: Host) -> Tensor:
    """Broadcasting in both directions: where the shape says 1, the input may be longer."""
    sides = np.broadcast_shapes(x.shape, tuple(shape.tolist()))
    # It costs nothing, being a view; MLX ends the process where the next step has no memory.
    if math.prod(sides) * x.dtype.itemsize > _MOST:
        raise ShapeError(f"Expand would give the shape {sides}, more than any memory holds")
    return ops.broadcast_to(x, sides)


@operator("Tile", 6, 13)
def tile(x: Tensor, repeats: Host) -> Tensor:
    return ops.tile(x, tuple(repeats.tolist()))


# --- Constants ----------------------------------------------------------------------------------


@operator("Constant", 9, 11, 12, 13, 19, 21, 23, 24, 25)
def constant(
    *,
    value: Any = None,
    value_float: float | None = None,
    value_floats: Any = None,
    value_int: int | None = None,
    value_ints: Any = None,
) -> Tensor:
    if value is not None:
        return hosted(plain(np.asarray(value)))
    if value_float is not None:
        return hosted(np.float32(value_float))
    if value_floats is not None:
        return hosted(np.asarray(value_floats, dtype=np.float32))
    if value_int is not None:
        return hosted(np.int64(value_int))
    return hosted(np.asarray(value_ints, dtype=np.int64))


def plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """4-bit integers as 8-bit ones, which is how tensors hold them."""
    return array.astype({"int4": "int8", "uint4": "uint8"}.get(array.dtype.name, array.dtype))


@operator("ConstantOfShape", 9, 20, 21, 23, 24, 25)
def constant_of_shape(shape: Host, *, value: Any = None) -> Tensor:
    filling = np.zeros(1, np.float32) if value is None else plain(np.asarray(value))
    return hosted(np.full(tuple(shape.tolist()), filling.reshape(-1)[0], filling.dtype))


@operator("EyeLike", 9, 22)
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    wanted = x.dtype.numpy if dtype is None else types.numpy_dtype(types.type_name(dtype))
    rows, columns = x.shape
    return hosted(np.eye(rows, columns, k=k).astype(wanted))


# --- Element types ------------------------------------------------------------------------------


@operator("Cast", 9, 13, 19, 21, 23, 24, 25, 28)
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """Another element type. `saturate` and `round_mode` are about 8-bit floats, which are none."""
    return _cast(x, types.type_name(to))


@operator("CastLike", 15, 19, 21, 23, 24, 25)
def cast_like(
    x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up", made: tuple[str, ...]
) -> Tensor:
    return _cast(x, made[0] if made[0].endswith("int4") else like.dtype.name)


def _cast(x: Tensor, name: str) -> Tensor:
    if name == "string":
        raise DTypeError("Cast to string is for ONNX Runtime; the ops executor computes numbers")
    if name in ("int4", "uint4"):
        return narrowed(ops.astype(x, "int32" if x.dtype is not dtypes.int64 else "int64"), name)
    return ops.astype(x, name, copy=False)


def narrowed(x: Tensor, name: str) -> Tensor:
    """Integers in the range of a 4-bit type, by their lowest bits, as C++ casts them."""
    if name == "uint4":
        return ops.astype(ops.bitwise_and(x, 15), dtypes.uint8)
    return ops.astype(ops.subtract(ops.bitwise_and(ops.add(x, 8), 15), 8), dtypes.int8)


@operator("BitCast", 26)
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    """The same bits as another type, by way of the host: backends have no such function."""
    name = types.type_name(to)
    if name.endswith("int4"):
        raise DTypeError("BitCast of 4-bit integers is for ONNX Runtime")
    made = np.ascontiguousarray(x.numpy()).view(types.numpy_dtype(name)).reshape(x.shape)
    return ops.from_numpy(made, backend=x.backend, device=x.device)


@operator("Dropout", 10)
def dropout_by_attribute(
    x: Tensor, *, ratio: float = 0.5, outputs: int = 1
) -> tuple[Tensor, Tensor] | Tensor:
    """Nothing at inference, which is all that this version knows."""
    return dropout(x, outputs=outputs)


@operator("Dropout", 12, 13, 22)
def dropout(
    x: Tensor,
    ratio: Host | None = None,
    training_mode: Host | None = None,
    *,
    seed: int | None = None,
    outputs: int = 1,
) -> tuple[Tensor, Tensor] | Tensor:
    """Nothing at inference; in training, elements become zero with the probability `ratio`."""
    rate = 0.5 if ratio is None else float(ratio)
    if training_mode is None or not bool(training_mode) or not rate:
        return (x, ops.ones_like(x, dtype=dtypes.bool)) if outputs > 1 else x
    with ops.use_backend(x.backend):
        generator = None if seed is None else ops.random.Generator(seed)
        kept = ops.greater_equal(ops.random.uniform(x.shape, generator=generator), rate)
    made = ops.where(kept, ops.multiply(x, 1 / (1 - rate)), 0)
    return (made, kept) if outputs > 1 else made
