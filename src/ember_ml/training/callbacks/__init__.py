"""Callbacks: what happens beside training, at each step and epoch."""

from ember_ml.training.callbacks.base import Callback
from ember_ml.training.callbacks.checkpoint import Checkpoint
from ember_ml.training.callbacks.logging import CSVLogger, JSONLogger, TensorBoardLogger
from ember_ml.training.callbacks.progress import ProgressBar
from ember_ml.training.callbacks.stopping import EarlyStopping

__all__ = [
    "CSVLogger",
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "JSONLogger",
    "ProgressBar",
    "TensorBoardLogger",
]
