"""Losses: how far predictions are from targets.

Predictions come first, then targets. `reduction` is "mean", "sum" or "none", which gives the loss
of each element or place. The mean of nothing is NaN. 16-bit floats are computed in float32.
"""

from __future__ import annotations

from ember_ml.ops.loss_classes import (
    binary_crossentropy,
    categorical_crossentropy,
    cross_entropy,
    focal,
    kl_div,
    nll,
    sparse_categorical_crossentropy,
)
from ember_ml.ops.loss_distances import (
    cosine,
    cosine_similarity,
    hinge,
    margin_ranking,
    squared_hinge,
    triplet,
)
from ember_ml.ops.loss_sequences import ctc
from ember_ml.ops.loss_values import (
    gaussian_nll,
    huber,
    log_cosh,
    mae,
    mse,
    poisson_nll,
    smooth_l1,
)

__all__ = [
    "binary_crossentropy",
    "categorical_crossentropy",
    "cosine",
    "cosine_similarity",
    "cross_entropy",
    "ctc",
    "focal",
    "gaussian_nll",
    "hinge",
    "huber",
    "kl_div",
    "log_cosh",
    "mae",
    "margin_ranking",
    "mean_absolute_error",
    "mean_squared_error",
    "mse",
    "nll",
    "poisson_nll",
    "smooth_l1",
    "sparse_categorical_crossentropy",
    "squared_hinge",
    "triplet",
]

mean_absolute_error = mae
mean_squared_error = mse
