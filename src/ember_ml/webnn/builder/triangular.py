"""Halves of matrices."""

from __future__ import annotations

from typing import Final

import numpy as np

from ember_ml.webnn.builder.base import BuilderBase, Options
from ember_ml.webnn.operand import MLOperand

__all__ = ["Triangular"]

# Those for which ONNX Runtime's Trilu has no kernel, and what holds all their bits.
_HOLDERS: Final = {"int8": "int32", "uint8": "int32", "uint32": "int64", "uint64": "int64"}


class Triangular(BuilderBase):
    """triangular."""

    def triangular(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        upper: bool = True,
        diagonal: int = 0,
        label: str = "",
    ) -> MLOperand:
        """The upper or the lower part of matrices, from or to a diagonal, and 0 elsewhere.

        (..., m, n) -> (..., m, n). `diagonal` counts from the main one, upwards.
        """
        call = self._call("triangular", options, upper=upper, diagonal=diagonal, label=label)
        x = call.operand("input", input)
        given = call["diagonal"]
        if isinstance(given, bool) or not isinstance(given, int | np.integer):
            raise call.fault(f"diagonal is an integer, not {given!r}")
        if not -(2**31) <= given < 2**31:
            raise call.fault(f"diagonal takes integers of 32 bits, not {given}")
        holder = call.cast(x, _HOLDERS.get(x.data_type, x.data_type))
        made = call.node(
            "Trilu",
            [holder, call.constant(int(given), "int64")],
            upper=int(bool(call["upper"])),
        )
        return call.result(call.cast(made, x.data_type), x.data_type, x.shape)
