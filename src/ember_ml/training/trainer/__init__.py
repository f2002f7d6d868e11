"""Trainer: the loop over data, and what can go wrong in it."""

from ember_ml.errors import NaNLossError
from ember_ml.training.trainer.trainer import Trainer

__all__ = ["NaNLossError", "Trainer"]
