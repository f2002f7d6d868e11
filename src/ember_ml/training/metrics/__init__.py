"""Metrics: how good predictions are, over as many batches as there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ember_ml.errors import DomainError, DTypeError
from ember_ml.training.metrics.base import FunctionMetric, Mean, Metric
from ember_ml.training.metrics.classes import F1, Accuracy, Precision, Recall, TopKAccuracy
from ember_ml.training.metrics.ranking import AUC
from ember_ml.training.metrics.values import MAE, MSE, R2, Perplexity

__all__ = [
    "AUC",
    "F1",
    "MAE",
    "MSE",
    "R2",
    "Accuracy",
    "Mean",
    "Metric",
    "Perplexity",
    "Precision",
    "Recall",
    "TopKAccuracy",
    "get_metric",
]

_BY_NAME: Final[dict[str, Callable[..., Metric]]] = {
    "accuracy": Accuracy,
    "auc": AUC,
    "f1": F1,
    "mae": MAE,
    "mean": Mean,
    "mean_absolute_error": MAE,
    "mean_squared_error": MSE,
    "mse": MSE,
    "perplexity": Perplexity,
    "precision": Precision,
    "r2": R2,
    "recall": Recall,
    "top_k_accuracy": TopKAccuracy,
}


def get_metric(metric: Any, **options: Any) -> Metric:
    """A metric by its name, with its options; a metric is given back, a function is averaged.

    >>> from ember_ml import training
    >>> training.get_metric("top_k_accuracy", k=3)
    TopKAccuracy(name='top3_accuracy')
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        made = _BY_NAME.get(metric.lower())
        if made is None:
            raise DomainError(f"there is no metric {metric!r}; there are {', '.join(_BY_NAME)}")
        return made(**options)
    if isinstance(metric, type) and issubclass(metric, Metric):
        return metric(**options)
    if callable(metric):
        return FunctionMetric(metric, **options)
    raise DTypeError(
        f"a metric is a name, a Metric or a function of predictions and targets, "
        f"not {type(metric).__name__}"
    )
