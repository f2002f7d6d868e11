"""Several processes: a launcher, a communicator on each engine, and strategies for training."""

from ember_ml.distributed.communicator import Communicator
from ember_ml.distributed.joining import get_communicator, initialize, is_initialized, shutdown
from ember_ml.distributed.world import World

__all__ = [
    "Communicator",
    "World",
    "get_communicator",
    "initialize",
    "is_initialized",
    "shutdown",
]
