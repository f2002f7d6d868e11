"""Ops that read and write elements by their indices.

The specification takes indices from -size to size - 1, and leaves no element outside: those beyond
are clamped here, since ONNX Runtime refuses to run with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ember_ml.graph.core import Value
from ember_ml.webnn.builder.arithmetic import clipped, greater, lesser
from ember_ml.webnn.builder.base import BuilderBase, Call, Options
from ember_ml.webnn.operand import MLOperand

__all__ = ["Gathering"]


class Gathering(BuilderBase):
    """gather, gather_elements, gather_nd, scatter_elements, scatter_nd."""

    def gather(
        self,
        input: MLOperand,
        indices: MLOperand,
        options: Options = None,
        *,
        axis: int = 0,
        label: str = "",
    ) -> MLOperand:
        """The slices of an axis that indices name; the shape of the indices replaces the axis."""
        call = self._call("gather", options, axis=axis, label=label)
        x = call.operand("input", input)
        named = call.operand("indices", indices)
        place = call.axis("axis", call["axis"], len(x.shape))
        shape = [*x.shape[:place], *named.shape, *x.shape[place + 1 :]]
        value = call.node(
            "Gather", [x, _clamped(call, named, x.shape[place])], x.data_type, shape, axis=place
        )
        return call.result(value, x.data_type, shape)

    def gather_elements(
        self,
        input: MLOperand,
        indices: MLOperand,
        options: Options = None,
        *,
        axis: int = 0,
        label: str = "",
    ) -> MLOperand:
        """For each index the element at that place of the axis; the shape is that of the indices.

        The sizes of `indices` are those of `input`, but for the axis.
        """
        call = self._call("gather_elements", options, axis=axis, label=label)
        x = call.operand("input", input)
        named = call.operand("indices", indices)
        place = call.axis("axis", call["axis"], len(x.shape))
        _check_beside(call, x, named, place)
        value = call.node(
            "GatherElements",
            [x, _clamped(call, named, x.shape[place])],
            x.data_type,
            named.shape,
            axis=place,
        )
        return call.result(value, x.data_type, named.shape)

    def gather_nd(
        self,
        input: MLOperand,
        indices: MLOperand,
        options: Options = None,
        *,
        label: str = "",
    ) -> MLOperand:
        """The slices at coordinates, which are the last axis of the indices.

        (n0, n1, ...), (..., k) -> (..., nk, ...)
        """
        call = self._call("gather_nd", options, label=label)
        x = call.operand("input", input)
        named = call.operand("indices", indices)
        shape = _slices(call, x, named)
        value = call.node(
            "GatherND", [x, _clamped_coordinates(call, named, x.shape)], x.data_type, shape
        )
        return call.result(value, x.data_type, shape)

    def scatter_elements(
        self,
        input: MLOperand,
        indices: MLOperand,
        updates: MLOperand,
        options: Options = None,
        *,
        axis: int = 0,
        label: str = "",
    ) -> MLOperand:
        """The input with each update written to the place of the axis that its index names.

        The sizes of `indices` are those of `input`, but for the axis; `updates` has them too.
        """
        call = self._call("scatter_elements", options, axis=axis, label=label)
        x = call.operand("input", input)
        named = call.operand("indices", indices)
        written = call.operand("updates", updates)
        call.same_type("updates", written, x)
        place = call.axis("axis", call["axis"], len(x.shape))
        _check_beside(call, x, named, place)
        _check_updates(call, written, named.shape)
        value = call.node(
            "ScatterElements", [x, _clamped(call, named, x.shape[place]), written], axis=place
        )
        return call.result(value, x.data_type, x.shape)

    def scatter_nd(
        self,
        input: MLOperand,
        indices: MLOperand,
        updates: MLOperand,
        options: Options = None,
        *,
        label: str = "",
    ) -> MLOperand:
        """The input with slices written at coordinates, which are the last axis of the indices.

        (n0, n1, ...), (..., k), (..., nk, ...) -> (n0, n1, ...)
        """
        call = self._call("scatter_nd", options, label=label)
        x = call.operand("input", input)
        named = call.operand("indices", indices)
        written = call.operand("updates", updates)
        call.same_type("updates", written, x)
        _check_updates(call, written, _slices(call, x, named))
        value = call.node("ScatterND", [x, _clamped_coordinates(call, named, x.shape), written])
        return call.result(value, x.data_type, x.shape)


def _check_beside(call: Call, x: MLOperand, indices: MLOperand, axis: int) -> None:
    beside = len(indices.shape) == len(x.shape) and all(
        size == other or place == axis
        for place, (size, other) in enumerate(zip(indices.shape, x.shape, strict=True))
    )
    if not beside:
        raise call.fault(
            f"indices of {list(indices.shape)} do not go with an input of {list(x.shape)}: "
            f"sizes other than of axis {axis} are the same"
        )


def _check_updates(call: Call, updates: MLOperand, shape: Sequence[int]) -> None:
    if list(updates.shape) != list(shape):
        raise call.fault(
            f"updates has the shape {list(updates.shape)}; these indices take {list(shape)}"
        )


def _slices(call: Call, x: MLOperand, indices: MLOperand) -> list[int]:
    """The shape of the slices that coordinates name."""
    count = indices.shape[-1]
    if count > len(x.shape):
        raise call.fault(
            f"indices of {list(indices.shape)} have {count} coordinates each, "
            f"and the input has {len(x.shape)} axes"
        )
    return [*indices.shape[:-1], *x.shape[count:]]


def _clamped(call: Call, indices: MLOperand, size: int) -> Value:
    """Indices within an axis of that size, in a type that ONNX takes for them."""
    kind = indices.data_type
    least, most = (call.constant(n, kind) for n in (_first(kind, size), size - 1))
    made = clipped(call, indices._value, least, most)
    return call.cast(made, "int64") if kind == "uint32" else made


def _clamped_coordinates(call: Call, indices: MLOperand, shape: Sequence[int]) -> Value:
    """Coordinates within a shape; ONNX takes int64 for these."""
    kind, sizes = indices.data_type, shape[: indices.shape[-1]]
    least = call.constant([_first(kind, size) for size in sizes], kind)
    most = call.constant([size - 1 for size in sizes], kind)
    return call.cast(lesser(call, greater(call, indices._value, least), most), "int64")


def _first(data_type: str, size: int) -> int:
    """The least index of an axis."""
    return 0 if data_type == "uint32" else -size
