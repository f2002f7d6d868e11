"""Images in other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

import numpy as np

from ember_ml.graph.core import Value
from ember_ml.webnn.builder.base import BuilderBase, Call, Options
from ember_ml.webnn.builder.moving import distinct_axes
from ember_ml.webnn.builder.windows import permuted
from ember_ml.webnn.descriptors import check_sizes
from ember_ml.webnn.operand import MLOperand

__all__ = ["Resampling"]


class Resampling(BuilderBase):
    """resample2d."""

    def resample2d(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        mode: str = "nearest-neighbor",
        scales: Sequence[float] | None = None,
        sizes: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        label: str = "",
    ) -> MLOperand:
        """Stretch or shrink two axes, the last two unless `axes` says so.

        `mode` is "nearest-neighbor" or "linear"; `sizes` go before `scales`.
        """
        call = self._call(
            "resample2d", options, mode=mode, scales=scales, sizes=sizes, axes=axes, label=label
        )
        x = call.operand("input", input)
        how = call.choice("mode", ("nearest-neighbor", "linear"))
        places = (2, 3) if call["axes"] is None else distinct_axes(call, len(x.shape))
        if len(places) != 2:
            raise call.fault(f"axes has 2 entries; {list(places)} came")
        shape = list(x.shape)
        for axis, size in zip(places, _sizes(call, x, places), strict=True):
            shape[axis] = size
        check_sizes(call.what, x.data_type, tuple(shape))
        if how == "nearest-neighbor":
            made = _nearest(call, x, shape)
        else:
            made = _linear(call, x, shape, places)
        return call.result(made, x.data_type, shape)


def _sizes(call: Call, x: MLOperand, axes: Sequence[int]) -> list[int]:
    factors = _scales(call)
    if call["sizes"] is not None:
        made = list(call.sizes("sizes"))
        if len(made) != 2:
            raise call.fault(f"sizes has 2 entries; {made} came")
    else:
        made = [floor(x.shape[axis] * scale) for axis, scale in zip(axes, factors, strict=True)]
    if 0 in made:
        raise call.fault(f"the result has sizes from 1 on, not {made}")
    return made


def _scales(call: Call) -> list[float]:
    given = call["scales"]
    if given is None:
        return [1.0, 1.0]
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise call.fault(f"scales is a sequence of numbers, not {given!r}")
    made = []
    for one in given:
        if isinstance(one, bool) or not isinstance(one, int | float | np.number):
            raise call.fault(f"scales takes numbers, not {one!r}")
        # The specification has them in single precision.
        made.append(float(np.float32(one)))
    if len(made) != 2 or not all(0 < scale < np.inf for scale in made):
        raise call.fault(f"scales are 2 finite numbers above 0; {list(given)} came")
    return made


def _nearest(call: Call, x: MLOperand, shape: Sequence[int]) -> Value:
    """Which element is nearest is known already: whole numbers say so exactly, ties go down."""
    made = x._value
    for axis, size in enumerate(shape):
        old = x.shape[axis]
        if size == old:
            continue
        # ceil(x - 0.5) of x = (i + 0.5) * old / size - 0.5
        at = [-((2 * size - (2 * i + 1) * old) // (2 * size)) for i in range(size)]
        sizes = [*shape[: axis + 1], *x.shape[axis + 1 :]]
        made = call.node("Gather", [made, call.int64s(at)], x.data_type, sizes, axis=axis)
    return made if made is not x._value else call.node("Identity", [x])


def _linear(call: Call, x: MLOperand, shape: Sequence[int], axes: Sequence[int]) -> Value:
    # ONNX Runtime interpolates over the last two axes.
    order = [*(axis for axis in range(4) if axis not in axes), *sorted(axes)]
    back = [order.index(axis) for axis in range(4)]
    source = permuted(call, call.cast(x, "float32") if "int" in x.data_type else x, order)
    sizes = [shape[axis] for axis in order]
    made = call.node(
        "Resize",
        [source, None, None, call.int64s(sizes)],
        source.dtype,
        sizes,
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    if "int" in x.data_type:
        made = call.cast(call.node("Round", [made]), x.data_type)
    return permuted(call, made, back)
