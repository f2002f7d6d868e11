"""Modules by chapter; so far the activations, as functions."""

from ember_ml.nn.modules import activations

__all__ = ["activations"]
