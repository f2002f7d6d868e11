"""Strategies: how a training run is spread over processes."""

from ember_ml.distributed.strategy.base import SingleDeviceStrategy, Strategy
from ember_ml.distributed.strategy.data_parallel import DataParallelStrategy
from ember_ml.distributed.strategy.sharded import ShardedDataParallelStrategy

__all__ = [
    "DataParallelStrategy",
    "ShardedDataParallelStrategy",
    "SingleDeviceStrategy",
    "Strategy",
]
