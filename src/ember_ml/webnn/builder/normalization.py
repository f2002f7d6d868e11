"""Normalization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ember_ml.graph.core import Value
from ember_ml.webnn.builder.arithmetic import shape_of
from ember_ml.webnn.builder.base import BuilderBase, Call, Options
from ember_ml.webnn.builder.moving import distinct_axes
from ember_ml.webnn.builder.windows import LAYOUTS, permuted
from ember_ml.webnn.numbers import cast_number
from ember_ml.webnn.operand import MLOperand

__all__ = ["Normalization"]


class Normalization(BuilderBase):
    """batch_normalization, instance_normalization, layer_normalization."""

    def batch_normalization(
        self,
        input: MLOperand,
        mean: MLOperand,
        variance: MLOperand,
        options: Options = None,
        *,
        scale: MLOperand | None = None,
        bias: MLOperand | None = None,
        axis: int = 1,
        epsilon: float = 1e-5,
        label: str = "",
    ) -> MLOperand:
        """(input - mean) / sqrt(variance + epsilon) * scale + bias, for each place of an axis.

        The others have one axis, of that axis' size.
        """
        call = self._call(
            "batch_normalization",
            options,
            scale=scale,
            bias=bias,
            axis=axis,
            epsilon=epsilon,
            label=label,
        )
        x = call.operand("input", input)
        place = call.axis("axis", call["axis"], len(x.shape))
        centre = _beside(call, "mean", call.operand("mean", mean), x, [place])
        spread = _beside(call, "variance", call.operand("variance", variance), x, [place])
        # ONNX Runtime's own node folds the scale into the mean, and misses the tests' tolerance.
        # A sum, a product and a sum it puts into the weights of a convolution before them, where
        # the operands are constants.
        off = call.node("Add", [call.cast(x, "float32"), call.node("Neg", [centre])])
        scaled, added = _features(call, x, [place])
        one = call.constant(1, "float32")
        weight = one if scaled is None else _beside(call, "scale", scaled, x, [place])
        factor = call.node(
            "Div", [weight, _deviation(call, x, spread)], "float32", shape_of(spread)
        )
        made = call.node("Mul", [off, factor])
        if added is not None:
            made = call.node("Add", [made, _beside(call, "bias", added, x, [place])])
        return call.result(call.cast(made, x.data_type), x.data_type, x.shape)

    def instance_normalization(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        scale: MLOperand | None = None,
        bias: MLOperand | None = None,
        epsilon: float = 1e-5,
        layout: str = "nchw",
        label: str = "",
    ) -> MLOperand:
        """Images with mean 0 and variance 1 in each channel, times scale, plus bias.

        (n, c, h, w) -> (n, c, h, w); scale and bias are (c,).
        """
        call = self._call(
            "instance_normalization",
            options,
            scale=scale,
            bias=bias,
            epsilon=epsilon,
            layout=layout,
            label=label,
        )
        x = call.operand("input", input)
        channel = 1 if call.choice("layout", LAYOUTS) == "nchw" else 3
        if channel == 3:
            return _normalized(call, x, [1, 2], [channel])
        scaled, added = _features(call, x, [channel])
        size = x.shape[channel]
        plain = [call.constant(np.full(size, number), "float32") for number in (1, 0)]
        weight = plain[0] if scaled is None else call.cast(scaled, "float32")
        offset = plain[1] if added is None else call.cast(added, "float32")
        small = cast_number(call.number("epsilon"), x.data_type)
        value = call.node(
            "InstanceNormalization",
            [call.cast(x, "float32"), weight, offset],
            epsilon=float(small),
        )
        return call.result(call.cast(value, x.data_type), x.data_type, x.shape)

    def layer_normalization(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        scale: MLOperand | None = None,
        bias: MLOperand | None = None,
        axes: Sequence[int] | None = None,
        epsilon: float = 1e-5,
        label: str = "",
    ) -> MLOperand:
        """Mean 0 and variance 1 over axes (all but the first), times scale, plus bias.

        The sizes of scale and bias are those of the axes, in their order.
        """
        call = self._call(
            "layer_normalization",
            options,
            scale=scale,
            bias=bias,
            axes=axes,
            epsilon=epsilon,
            label=label,
        )
        x = call.operand("input", input)
        rank = len(x.shape)
        over = tuple(range(1, rank)) if call["axes"] is None else distinct_axes(call, rank)
        if not over or over != tuple(range(over[0], rank)):
            return _normalized(call, x, over, over)
        weight: MLOperand | Value | None
        weight, added = _features(call, x, over)
        if weight is None:
            weight = call.constant(np.ones(x.shape[over[0] :]), x.data_type)
        small = cast_number(call.number("epsilon"), x.data_type)
        value = call.node(
            "LayerNormalization", [x, weight, added], axis=over[0], epsilon=float(small)
        )
        return call.result(value, x.data_type, x.shape)


def _features(
    call: Call, x: MLOperand, axes: Sequence[int]
) -> tuple[MLOperand | None, MLOperand | None]:
    """The scale and the bias, of the sizes of some axes."""
    scale, bias = call.optional("scale"), call.optional("bias")
    for name, given in (("scale", scale), ("bias", bias)):
        if given is not None:
            _check_sizes(call, name, given, x, axes)
    return scale, bias


def _normalized(
    call: Call, x: MLOperand, over: Sequence[int], features: Sequence[int]
) -> MLOperand:
    """Normalize by the mean and the variance over some axes."""
    wide = call.cast(x, "float32")
    if over:
        centre = _mean(call, wide, over)
        off = call.node("Sub", [wide, centre])
        spread = _mean(call, call.node("Mul", [off, off]), over)
    else:
        off = call.node("Sub", [wide, wide])
        spread = call.node("Mul", [off, off])
    return _scaled(call, x, off, spread, features)


def _mean(call: Call, x: Value, over: Sequence[int]) -> Value:
    shape = [1 if axis in over else size for axis, size in enumerate(shape_of(x))]
    return call.node("ReduceMean", [x, call.int64s(sorted(over))], x.dtype, shape, keepdims=1)


def _scaled(
    call: Call, x: MLOperand, off: Value, variance: Value, features: Sequence[int]
) -> MLOperand:
    """What is off the mean, divided by the deviation, with the scale and the bias of features."""
    made = call.node("Div", [off, _deviation(call, x, variance)])
    for name, onnx_op in (("scale", "Mul"), ("bias", "Add")):
        given = call.optional(name)
        if given is not None:
            made = call.node(onnx_op, [made, _beside(call, name, given, x, features)])
    return call.result(call.cast(made, x.data_type), x.data_type, x.shape)


def _deviation(call: Call, x: MLOperand, variance: Value) -> Value:
    """sqrt(variance + epsilon)."""
    epsilon = cast_number(call.number("epsilon"), x.data_type)
    return call.node("Sqrt", [call.node("Add", [variance, call.constant(epsilon, "float32")])])


def _beside(call: Call, name: str, given: MLOperand, x: MLOperand, axes: Sequence[int]) -> Value:
    """An operand of the sizes of some axes, in a shape that is broadcast to the input's."""
    _check_sizes(call, name, given, x, axes)
    order = sorted(range(len(axes)), key=lambda place: axes[place])
    value = permuted(call, call.cast(given, "float32"), order)
    shape = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
    if value.shape == tuple(shape):
        return value
    return call.node("Reshape", [value, call.int64s(shape)], value.dtype, shape)


def _check_sizes(
    call: Call, name: str, given: MLOperand, x: MLOperand, axes: Sequence[int]
) -> None:
    call.same_type(name, given, x)
    sizes = tuple(x.shape[axis] for axis in axes)
    if given.shape != sizes:
        raise call.fault(
            f"{name} has the shape {list(given.shape)}, and the input {list(x.shape)}; "
            f"it has the sizes {list(sizes)} of axes {list(axes)}"
        )
