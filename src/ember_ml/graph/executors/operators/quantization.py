"""Numbers as small integers and back, and products of them."""

from __future__ import annotations

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.dtypes import DType
from ember_ml.errors import UnsupportedOpError
from ember_ml.graph import types
from ember_ml.graph.executors.operators.convolution import integer_convolved
from ember_ml.graph.executors.operators.registry import operator
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

_RANGES = {"int4": (-8, 7), "uint4": (0, 15)}
_HELD = {"int4": "int8", "uint4": "uint8"}


def _range(name: str) -> tuple[int, int]:
    if name in _RANGES:
        return _RANGES[name]
    if name not in ("int8", "uint8", "int16", "uint16", "int32", "uint32"):
        raise UnsupportedOpError(f"the ops executor quantizes to integers, not to {name}")
    limits = np.iinfo(name)
    return int(limits.min), int(limits.max)


def _spread(scale: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """Scales or zero points so that they broadcast: for all, for each of an axis, or of a block."""
    if scale.ndim == 0 or (scale.size == 1 and scale.ndim <= 1):
        return ops.reshape(scale, ())
    place = axis % x.ndim
    if not block_size:
        if scale.ndim != 1:
            return scale
        return ops.reshape(scale, tuple(-1 if i == place else 1 for i in range(x.ndim)))
    whole = ops.repeat(scale, block_size, axis=place)
    keys = [slice(None)] * x.ndim
    keys[place] = slice(0, x.shape[place])
    return whole[tuple(keys)]


def _quantized(x: Tensor, scale: Tensor, zero: Tensor | None, name: str, work: DType) -> Tensor:
    low, high = _range(name)
    # XLA divides by a number through its reciprocal, which is one unit off; not so by an array.
    divisor = ops.broadcast_to(ops.astype(scale, work, copy=False), x.shape)
    made = ops.round(ops.divide(ops.astype(x, work, copy=False), divisor))
    # Numbers beyond 2**24, and NaN's, are out of range in any case.
    wide = ops.astype(made, dtypes.float64)
    if zero is not None:
        wide = ops.add(wide, ops.astype(zero, dtypes.float64))
    return ops.astype(ops.clip(wide, low, high), _HELD.get(name, name))


@operator("QuantizeLinear", 10, 13)
def quantize_linear_of_old(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    made: tuple[str, ...],
) -> Tensor:
    return quantize_linear(x, scale, zero, axis=axis, made=made)


@operator("QuantizeLinear", 19)
def quantize_linear_saturating(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    made: tuple[str, ...],
) -> Tensor:
    return quantize_linear(x, scale, zero, axis=axis, made=made)


@operator("QuantizeLinear", 21, 23, 24, 25, 28)
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
    made: tuple[str, ...],
) -> Tensor:
    """Rounded quotients, to even, within the range of the type."""
    name = types.type_name(output_dtype) if output_dtype else made[0]
    work = scale.dtype
    if precision:
        work = dtypes.to_dtype(types.type_name(precision))
    if not work.is_floating:
        work = dtypes.float32
    whole = _spread(scale, x, axis, block_size)
    points = None if zero is None else _spread(zero, x, axis, block_size)
    return _quantized(x, whole, points, name, work)


@operator("DequantizeLinear", 10, 13, 19)
def dequantize_linear_of_old(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1
) -> Tensor:
    return dequantize_linear(x, scale, zero, axis=axis)


@operator("DequantizeLinear", 21, 23, 24, 25, 28)
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    """Differences from the zero point times the scale, in the scale's dtype."""
    whole = _spread(scale, x, axis, block_size)
    wide = ops.astype(x, dtypes.int64 if x.dtype.itemsize > 2 else dtypes.int32)
    if zero is not None:
        points = _spread(zero, x, axis, block_size)
        wide = ops.subtract(wide, ops.astype(points, wide.dtype))
    work = dtypes.float32 if whole.dtype.itemsize < 4 else whole.dtype
    made = ops.multiply(ops.astype(wide, work), ops.astype(whole, work, copy=False))
    wanted = types.type_name(output_dtype) if output_dtype else scale.dtype
    return ops.astype(made, wanted, copy=False)


@operator("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """To uint8, by a scale and a zero point that cover the values and zero."""
    low = ops.minimum(ops.min(x), 0)
    high = ops.maximum(ops.max(x), 0)
    scale = ops.divide(ops.subtract(high, low), 255)
    none = ops.equal(scale, 0)
    point = ops.divide(ops.negative(low), ops.where(none, 1, scale))
    zero = ops.astype(ops.clip(ops.round(point), 0, 255), dtypes.uint8)
    made = _quantized(x, ops.where(none, 1, scale), zero, "uint8", dtypes.float32)
    return made, scale, zero


# --- Products -----------------------------------------------------------------------------------


@operator("MatMulInteger", 10)
def matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    return ops.astype(_integer_product(a, b, a_zero, b_zero), dtypes.int32)


def _integer_product(a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    """A product of 8-bit integers without their zero points: those of a by row, of b by column.

    float64 holds it exactly, and engines have fast products of it.
    """
    left, right = ops.astype(a, dtypes.float64), ops.astype(b, dtypes.float64)
    if a_zero is not None:
        zero = ops.astype(a_zero, dtypes.float64)
        left = ops.subtract(left, zero if a_zero.ndim != 1 or a_zero.size == 1
                            else ops.reshape(zero, (-1, 1)))  # fmt: skip
    if b_zero is not None:
        right = ops.subtract(right, ops.astype(b_zero, dtypes.float64))
    return ops.matmul(left, right)


@operator("QLinearMatMul", 10, 21)
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    *,
    made: tuple[str, ...],
) -> Tensor:
    product = _integer_product(a, b, a_zero, b_zero)
    left = ops.astype(a_scale, dtypes.float64)
    if a_scale.ndim == 1 and a_scale.size > 1:
        left = ops.reshape(left, (-1, 1))
    right = ops.astype(b_scale, dtypes.float64)
    real = ops.multiply(product, ops.multiply(left, right))
    return _quantized(real, y_scale, y_zero, made[0], dtypes.float64)


@operator("QLinearConv", 10)
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    made: tuple[str, ...],
) -> Tensor:
    total = integer_convolved(x, w, x_zero, w_zero, auto_pad, dilations, group, pads, strides)
    column = (-1, *[1] * (x.ndim - 2))
    if b is not None:
        total = ops.add(total, ops.reshape(ops.astype(b, dtypes.float64), column))
    scale = ops.multiply(ops.astype(ops.reshape(x_scale, ()), dtypes.float64),
                         ops.astype(w_scale, dtypes.float64))  # fmt: skip
    real = ops.multiply(total, ops.reshape(scale, () if scale.size == 1 else column))
    return _quantized(real, y_scale, y_zero, made[0], dtypes.float64)
