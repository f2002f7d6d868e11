"""MLX: batches; loops and branches have no primitive, so mx.compile unrolls or selects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from ember_ml.backend.control import Control
from ember_ml.backend.mlx.elementwise import BATCHING
from ember_ml.backend.mlx.hosting import evaluated

if TYPE_CHECKING:
    from ember_ml.backend.contract import NativeArray
    from ember_ml.backend.control import Function, Natives

__all__ = ["MlxControl"]


class MlxControl(Control):
    """Both branches under mx.compile; mx.vmap where it knows the ops."""

    def number(self, native: NativeArray) -> Any:
        return native.item() if evaluated(native) else None

    def rows(self, native: NativeArray) -> Sequence[NativeArray]:
        # One op, whose gradient is one op: slices would each add up an array of the whole size.
        return mx.unstack(native) if native.shape[0] else []

    def batch(
        self, function: Function, natives: Natives, axes: Sequence[int | None], size: int
    ) -> list[NativeArray] | None:
        BATCHING.depth += 1
        try:
            return list(mx.vmap(function, in_axes=tuple(axes), out_axes=0)(*natives))
        except Exception:  # an op without a rule, or that runs on the host
            return None
        finally:
            BATCHING.depth -= 1
