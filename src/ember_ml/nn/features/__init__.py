"""Transformers of features: fitted on data, applied to more of it, saved by `em.save`."""

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
    "pca",
    "robust_features",
    "standardize_features",
]
