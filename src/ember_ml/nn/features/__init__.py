"""Transformers of features: fitted on data, applied to more of it, saved by `em.save`.

`one_hot` and `scatter` learn nothing, and are those of `ops`.
"""

from ember_ml.nn.features.normalize import Normalize, normalize_features
from ember_ml.nn.features.pca import PCA, pca
from ember_ml.nn.features.scaling import (
    MaxAbsScale,
    MinMaxScale,
    RobustScale,
    max_abs_features,
    min_max_features,
    robust_features,
)
from ember_ml.nn.features.standardize import Standardize, standardize_features
from ember_ml.ops import one_hot, scatter

__all__ = [
    "PCA",
    "MaxAbsScale",
    "MinMaxScale",
    "Normalize",
    "RobustScale",
    "Standardize",
    "max_abs_features",
    "min_max_features",
    "normalize_features",
    "one_hot",
    "pca",
    "robust_features",
    "scatter",
    "standardize_features",
]
