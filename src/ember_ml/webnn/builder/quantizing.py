"""Between floats and small integers."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ember_ml.graph.core import Value
from ember_ml.webnn.builder.arithmetic import (
    between,
    clipped,
    constant_like,
    shape_of,
    unwrapped,
    wide,
)
from ember_ml.webnn.builder.base import BuilderBase, Call, Options
from ember_ml.webnn.operand import MLOperand
from ember_ml.webnn.shapes import broadcasts_blockwise

__all__ = ["Quantizing"]

_RANGES: Final = {
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
}


class Quantizing(BuilderBase):
    """Linear quantisation. Scale and zero point have one shape and as many axes as the input.

    An element of theirs stands for a block of the input's: sizes divide the input's sizes.
    """

    def quantize_linear(
        self,
        input: MLOperand,
        scale: MLOperand,
        zero_point: MLOperand,
        options: Options = None,
        *,
        label: str = "",
    ) -> MLOperand:
        """round(x / scale) + zero_point, within the bounds of the zero point's data type."""
        call = self._call("quantize_linear", options, label=label)
        x = call.operand("input", input)
        step, zero = call.operand("scale", scale), call.operand("zero_point", zero_point)
        call.same_type("scale", step, x)
        _check_shapes(call, x, step, zero)
        made_type = zero.data_type
        grain = _granularity(step.shape, x.shape)
        if grain is not None and made_type not in ("int32", "uint32"):
            # Of float16, ONNX Runtime makes the least integer of +inf.
            pair = wide(call, x), wide(call, step)
            made = _native(call, "QuantizeLinear", *pair, unwrapped(zero), grain, made_type)
            return call.result(made, made_type, x.shape)
        ratio = between(
            call, "Div", [wide(call, x), wide(call, _blocks(call, unwrapped(step), x.shape))]
        )
        # What lies past these bounds is cut off anyway; it must not overflow before.
        bounds = [constant_like(call, ratio, n) for n in (-(2.0**34), 2.0**34)]
        whole = call.cast(call.node("Clip", [call.node("Round", [ratio]), *bounds]), "int64")
        moved = between(call, "Add", [whole, _blocks(call, call.cast(zero, "int64"), x.shape)])
        least, most = (call.constant(n, "int64") for n in _RANGES[made_type])
        made = call.cast(clipped(call, moved, least, most), made_type)
        return call.result(made, made_type, x.shape)

    def dequantize_linear(
        self,
        input: MLOperand,
        scale: MLOperand,
        zero_point: MLOperand,
        options: Options = None,
        *,
        label: str = "",
    ) -> MLOperand:
        """(x - zero_point) * scale, in the scale's data type."""
        call = self._call("dequantize_linear", options, label=label)
        x = call.operand("input", input)
        step, zero = call.operand("scale", scale), call.operand("zero_point", zero_point)
        call.same_type("zero_point", zero, x)
        _check_shapes(call, x, step, zero)
        made_type = step.data_type
        grain = _granularity(step.shape, x.shape)
        if grain is not None and x.data_type not in ("int32", "uint32"):
            given = unwrapped(x), unwrapped(step), unwrapped(zero)
            made = _native(call, "DequantizeLinear", *given, grain, made_type)
            return call.result(made, made_type, x.shape)
        # The difference of two 32-bit integers needs more than 32 bits.
        exact = "int64" if x.data_type.endswith("32") else "int32"
        difference = between(
            call,
            "Sub",
            [call.cast(x, exact), _blocks(call, call.cast(zero, exact), x.shape)],
        )
        factor = wide(call, _blocks(call, unwrapped(step), x.shape))
        made = between(call, "Mul", [call.cast(difference, "float32"), factor])
        return call.result(call.cast(made, made_type), made_type, x.shape)


class _Grain(NamedTuple):
    """How ONNX's own operators can be told about scales: their shape, and two attributes."""

    shape: tuple[int, ...]
    axis: int | None = None
    block_size: int | None = None


def _granularity(scale: tuple[int, ...], shape: tuple[int, ...]) -> _Grain | None:
    """One scale for all, one for each place along an axis, or blocks along one axis; else None."""
    if all(size == 1 for size in scale):
        return _Grain(())
    many = [axis for axis, size in enumerate(scale) if size != 1]
    if len(many) == 1 and scale[many[0]] == shape[many[0]]:
        return _Grain((scale[many[0]],), axis=many[0])
    blocked = [axis for axis, size in enumerate(scale) if size != shape[axis]]
    if len(blocked) == 1:
        axis = blocked[0]
        return _Grain(scale, axis=axis, block_size=shape[axis] // scale[axis])
    return None


def _check_shapes(call: Call, x: MLOperand, scale: MLOperand, zero: MLOperand) -> None:
    for name, operand in (("scale", scale), ("zero_point", zero)):
        if len(operand.shape) != len(x.shape):
            raise call.fault(
                f"{name} has the shape {list(operand.shape)}; "
                f"it needs as many axes as the input of {list(x.shape)}"
            )
    if scale.shape != zero.shape:
        raise call.fault(
            f"scale has the shape {list(scale.shape)} and zero_point {list(zero.shape)}; "
            "they need the same"
        )
    if not broadcasts_blockwise(scale.shape, x.shape):
        raise call.fault(
            f"the sizes of scale {list(scale.shape)} do not divide those of the input "
            f"{list(x.shape)}"
        )


def _native(
    call: Call,
    onnx_op: str,
    x: Value,
    scale: Value,
    zero: Value,
    grain: _Grain,
    data_type: str,
) -> Value:
    shaped = [_reshaped(call, one, grain.shape) for one in (scale, zero)]
    return call.node(
        onnx_op,
        [x, *shaped],
        data_type,
        shape_of(x),
        axis=grain.axis,
        block_size=grain.block_size,
    )


def _reshaped(call: Call, x: Value, shape: tuple[int, ...]) -> Value:
    if shape_of(x) == shape:
        return x
    if x.data is not None:
        return call.constant(x.data.reshape(shape), x.dtype)
    # ONNX Runtime moves no 4-bit integers about.
    plain = call.cast(x, "int8") if x.dtype.endswith("int4") else x
    made = call.node("Reshape", [plain, call.int64s(shape)], plain.dtype, shape)
    return call.cast(made, x.dtype)


def _blocks(call: Call, x: Value, shape: tuple[int, ...]) -> Value:
    """Elements repeated to blocks; axes of size 1 are left to broadcasting."""
    for axis, (size, target) in enumerate(zip(shape_of(x), shape, strict=True)):
        if size in (1, target):
            continue
        made = [*shape_of(x)]
        made[axis] = target
        places = call.int64s(np.repeat(np.arange(size), target // size).tolist())
        x = call.node("Gather", [x, places], x.dtype, made, axis=axis)
    return x
