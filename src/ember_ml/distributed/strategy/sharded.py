"""Sharded data parallel training: every process keeps a part of the weights."""

from __future__ import annotations

from ember_ml.distributed.strategy.data_parallel import DataParallelStrategy

__all__ = ["ShardedDataParallelStrategy"]


class ShardedDataParallelStrategy(DataParallelStrategy):
    """Every process keeps a part of the weights and of the optimizer's memory."""
