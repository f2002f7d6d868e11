"""Data parallel training: every process has the model, and a part of each batch."""

from __future__ import annotations

from ember_ml.distributed.strategy.base import Strategy

__all__ = ["DataParallelStrategy"]


class DataParallelStrategy(Strategy):
    """Every process has the whole model, and gradients are averaged."""
