"""Over axes: sums and their like, extremes and where they stand, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from ember_ml.graph.core import Value
from ember_ml.webnn.builder.arithmetic import (
    constant_like,
    extreme,
    fold,
    ordered,
    shape_of,
    unwrapped,
    where,
    wide,
)
from ember_ml.webnn.builder.base import BuilderBase, Call, Options
from ember_ml.webnn.builder.moving import distinct_axes
from ember_ml.webnn.limits import FLOATS, LIMITS
from ember_ml.webnn.operand import MLOperand

__all__ = ["Reductions"]

_ONNX: Final = {
    "reduce_l1": "ReduceL1",
    "reduce_l2": "ReduceL2",
    "reduce_log_sum": "ReduceLogSum",
    "reduce_log_sum_exp": "ReduceLogSumExp",
    "reduce_max": "ReduceMax",
    "reduce_mean": "ReduceMean",
    "reduce_min": "ReduceMin",
    "reduce_product": "ReduceProd",
    "reduce_sum": "ReduceSum",
    "reduce_sum_square": "ReduceSumSquare",
}
Axes = Sequence[int] | None
# So many 32-bit integers have a sum that a double holds.
_EXACT: Final = 2**21


class Reductions(BuilderBase):
    """Reductions over all axes, or over those that `axes` lists.

    They are left out of the result, or have size 1 with `keep_dimensions`. With no axes listed
    (`[]`), each element is reduced by itself.
    """

    def reduce_l1(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        axes: Axes = None,
        keep_dimensions: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The sum of |x|."""
        return self._reduce("reduce_l1", input, options, axes, keep_dimensions, label)

    def reduce_l2(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        axes: Axes = None,
        keep_dimensions: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The square root of the sum of squares."""
        return self._reduce("reduce_l2", input, options, axes, keep_dimensions, label)

    def reduce_log_sum(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        axes: Axes = None,
        keep_dimensions: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The logarithm of the sum."""
        return self._reduce("reduce_log_sum", input, options, axes, keep_dimensions, label)

    def reduce_log_sum_exp(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        axes: Axes = None,
        keep_dimensions: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The logarithm of the sum of exp(x)."""
        return self._reduce("reduce_log_sum_exp", input, options, axes, keep_dimensions, label)

    def reduce_max(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        axes: Axes = None,
        keep_dimensions: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The greatest element."""
        return self._reduce("reduce_max", input, options, axes, keep_dimensions, label)

    def reduce_mean(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        axes: Axes = None,
        keep_dimensions: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The average."""
        return self._reduce("reduce_mean", input, options, axes, keep_dimensions, label)

    def reduce_min(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        axes: Axes = None,
        keep_dimensions: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The least element."""
        return self._reduce("reduce_min", input, options, axes, keep_dimensions, label)

    def reduce_product(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        axes: Axes = None,
        keep_dimensions: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The product."""
        return self._reduce("reduce_product", input, options, axes, keep_dimensions, label)

    def reduce_sum(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        axes: Axes = None,
        keep_dimensions: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The sum."""
        return self._reduce("reduce_sum", input, options, axes, keep_dimensions, label)

    def reduce_sum_square(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        axes: Axes = None,
        keep_dimensions: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The sum of squares."""
        return self._reduce("reduce_sum_square", input, options, axes, keep_dimensions, label)

    def arg_min(
        self,
        input: MLOperand,
        axis: int,
        options: Options = None,
        *,
        keep_dimensions: bool = False,
        output_data_type: str = "int32",
        label: str = "",
    ) -> MLOperand:
        """Where the least element stands along an axis; the first of several."""
        return self._place(
            "arg_min", "ArgMin", input, axis, options, keep_dimensions, output_data_type, label
        )

    def arg_max(
        self,
        input: MLOperand,
        axis: int,
        options: Options = None,
        *,
        keep_dimensions: bool = False,
        output_data_type: str = "int32",
        label: str = "",
    ) -> MLOperand:
        """Where the greatest element stands along an axis; the first of several."""
        return self._place(
            "arg_max", "ArgMax", input, axis, options, keep_dimensions, output_data_type, label
        )

    def cumulative_sum(
        self,
        input: MLOperand,
        axis: int,
        options: Options = None,
        *,
        exclusive: bool = False,
        reversed: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The sum of all elements up to each one along an axis; without itself if `exclusive`."""
        call = self._call(
            "cumulative_sum", options, exclusive=exclusive, reversed=reversed, label=label
        )
        x = call.operand("input", input)
        place = call.constant(call.axis("axis", axis, len(x.shape)), "int64")
        # Unsigned integers add up as signed ones do, bit by bit.
        given = call.cast(x, "int64") if x.data_type.startswith("uint") else wide(call, x)
        made = call.node(
            "CumSum",
            [given, place],
            exclusive=int(call.flag("exclusive")),
            reverse=int(call.flag("reversed")),
        )
        return call.result(call.cast(made, x.data_type), x.data_type, x.shape)

    def _reduce(
        self,
        op: str,
        input: MLOperand,
        options: Options,
        axes: Axes,
        keep_dimensions: bool,
        label: str,
    ) -> MLOperand:
        call = self._call(op, options, axes=axes, keep_dimensions=keep_dimensions, label=label)
        x = call.operand("input", input)
        rank = len(x.shape)
        over = tuple(range(rank)) if call["axes"] is None else distinct_axes(call, rank)
        shape = _reduced(x.shape, over, keep=call.flag("keep_dimensions"))
        if not over:
            made = _each(call, unwrapped(x))
        elif x.data_type in FLOATS:
            given = wide(call, x)
            made = _native(call, _ONNX[op], given, over, shape)
            if op in ("reduce_max", "reduce_min"):
                made = _with_nan(call, made, given, over, shape)
        elif op in ("reduce_max", "reduce_min"):
            made = _extreme(call, unwrapped(x), over, shape)
        else:
            made = _total(call, unwrapped(x), over, shape)
        return call.result(call.cast(made, x.data_type), x.data_type, shape)

    def _place(
        self,
        op: str,
        onnx_op: str,
        input: MLOperand,
        axis: int,
        options: Options,
        keep_dimensions: bool,
        output_data_type: str,
        label: str,
    ) -> MLOperand:
        call = self._call(
            op,
            options,
            keep_dimensions=keep_dimensions,
            output_data_type=output_data_type,
            label=label,
        )
        x = call.operand("input", input)
        place = call.axis("axis", axis, len(x.shape))
        made_type = call.choice("output_data_type", LIMITS[op]["output"].data_types)
        most = np.iinfo(made_type).max
        if x.shape[place] > most:
            raise call.fault(
                f"axis {place} has {x.shape[place]} elements; {made_type} ends at {most}"
            )
        keep = call.flag("keep_dimensions")
        shape = _reduced(x.shape, (place,), keep=keep)
        made = _found(call, onnx_op, ordered(call, x), place, shape)
        if x.data_type in FLOATS:
            made = _first_nan(call, made, unwrapped(x), place, shape)
        return call.result(call.cast(made, made_type), made_type, shape)


def _reduced(shape: Sequence[int], axes: Sequence[int], *, keep: bool) -> tuple[int, ...]:
    if keep:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _native(call: Call, onnx_op: str, x: Value, axes: Sequence[int], shape: Sequence[int]) -> Value:
    keep = len(shape) == len(x.shape or ())
    return call.node(onnx_op, [x, call.int64s(axes)], x.dtype, shape, keepdims=int(keep))


def _found(call: Call, onnx_op: str, x: Value, axis: int, shape: Sequence[int]) -> Value:
    keep = len(shape) == len(x.shape or ())
    return call.node(onnx_op, [x], "int64", shape, axis=axis, keepdims=int(keep))


def _first_nan(call: Call, made: Value, x: Value, axis: int, shape: Sequence[int]) -> Value:
    """The place of the first NaN, where there is one; ONNX Runtime leaves open what it gives."""
    is_nan = call.cast(call.node("IsNaN", [x], "bool"), "int8")
    first = _found(call, "ArgMax", is_nan, axis, shape)
    some = _native(call, "ReduceMax", is_nan, [axis], shape)
    return where(call, call.cast(some, "bool"), first, made)


def _each(call: Call, x: Value) -> Value:
    """Every element reduced by itself; ONNX and its runtimes do not agree on that."""
    if call.op in ("reduce_l1", "reduce_l2") and not x.dtype.startswith("uint"):
        return call.node("Abs", [x])
    if call.op == "reduce_log_sum":
        return call.node("Log", [x])
    if call.op == "reduce_sum_square":
        return call.node("Mul", [x, x])
    return call.node("Identity", [x])


def _extreme(call: Call, x: Value, axes: Sequence[int], shape: Sequence[int]) -> Value:
    if x.dtype in ("int8", "uint8", "int32"):
        return _native(call, _ONNX[call.op], x, axes, shape)
    made = extreme(call, "ArgMax" if call.op == "reduce_max" else "ArgMin", x, axes)
    return call.node("Reshape", [made, call.int64s(shape)], x.dtype, shape)


def _with_nan(
    call: Call, made: Value, x: Value, axes: Sequence[int], shape: Sequence[int]
) -> Value:
    """NaN where there was one: ONNX Runtime passes over it in extremes, and not in sums."""
    bounds = [constant_like(call, x, n) for n in (-1, 1)]  # infinities of two signs would add to it
    total = _native(call, "ReduceSum", call.node("Clip", [x, *bounds]), axes, shape)
    return where(call, call.node("IsNaN", [total], "bool", shape), total, made)


def _total(call: Call, x: Value, axes: Sequence[int], shape: Sequence[int]) -> Value:
    """A sum or a product of integers."""
    if call.op == "reduce_l1" and not x.dtype.startswith("uint"):
        x = call.node("Abs", [x])
    if call.op == "reduce_sum_square":
        x = call.node("Mul", [x, x])
    is_product = call.op == "reduce_product"
    count = prod(shape_of(x)[axis] for axis in axes)
    if is_product or x.dtype.endswith("64") or count > _EXACT:
        made = fold(call, "Mul" if is_product else "Add", x, axes)
        return call.node("Reshape", [made, call.int64s(shape)], x.dtype, shape)
    # Those of 32 bits are summed as int64, in double, and what overflows wraps.
    return _native(call, "ReduceSum", call.cast(x, "int64"), axes, shape)
