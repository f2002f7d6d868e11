"""Memory: how much is used, and how to use less of it."""

from __future__ import annotations

from ember_ml.autodiff.checkpointing import checkpoint, checkpoint_sequence
from ember_ml.memory import manager
from ember_ml.memory.manager import GradientCheckpointing, MemoryManager, checkpoint_function
from ember_ml.memory.offloading import offload
from ember_ml.memory.tracking import Reading, Tracker, track

__all__ = [
    "GradientCheckpointing",
    "MemoryManager",
    "Reading",
    "Tracker",
    "checkpoint",
    "checkpoint_function",
    "checkpoint_sequence",
    "manager",
    "offload",
    "track",
]
