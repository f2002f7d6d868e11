"""Gradients of the steps of loops."""

from __future__ import annotations

from typing import Any

from ember_ml import ops
from ember_ml.autodiff.rules.table import joint_rule
from ember_ml.tensor.core import Tensor, fill

__all__: list[str] = []


@joint_rule("rows", inputs=False)
def _rows(g: list[Tensor | None], needs: tuple[bool, ...], y: Any, x: Any) -> list[Tensor]:
    """Those of rows that were not used are zeros."""
    found = next((one for one in g if one is not None), None)
    assert found is not None, "a gradient came from one of them"
    empty = fill(found._spec.backend.full(found.shape, 0, found._spec), found._spec)
    return [ops.stack([empty if one is None else one for one in g])]
