"""From raw data to features: time series, windows, columns of tables."""

from ember_ml.features import base
from ember_ml.features.base import FeatureExtractor, MatrixExtractor, Pipeline
from ember_ml.features.columns import ColumnFeatureExtractor
from ember_ml.features.time_series import TimeSeriesFeatures
from ember_ml.features.windows import TemporalStrideFeatures, WindowFeatures

__all__ = [
    "ColumnFeatureExtractor",
    "FeatureExtractor",
    "MatrixExtractor",
    "Pipeline",
    "TemporalStrideFeatures",
    "TimeSeriesFeatures",
    "WindowFeatures",
    "base",
]
