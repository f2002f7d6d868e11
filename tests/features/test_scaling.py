"""The scalers by range agree with those of scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler

import ember_ml as em
from ember_ml import ops
from ember_ml.nn import features

PAIRS = [
    (lambda: features.min_max_features(), MinMaxScaler()),
    (lambda: features.min_max_features(-2.0, 3.0), MinMaxScaler((-2, 3))),
    (lambda: features.max_abs_features(), MaxAbsScaler()),
    (lambda: features.robust_features(), RobustScaler()),
    (lambda: features.robust_features(10.0, 80.0), RobustScaler(quantile_range=(10, 80))),
]


def samples() -> np.ndarray[Any, Any]:
    x = np.random.default_rng(3).normal(size=(11, 5)) * [1.0, 20.0, 0.1, 1.0, 1.0] + 4.0
    x[2:4, 1] = np.nan
    x[:, 3] = 7.0
    x[:, 4] = np.nan
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("make", "reference"), PAIRS, ids=range(len(PAIRS)))
def test_as_in_scikit_learn(backend: str, make: Any, reference: Any, dtype: str) -> None:
    x = samples().astype(dtype)
    ours = make().fit(ops.asarray(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the column without values
        wanted = reference.fit_transform(x.astype(np.float64))
    found = ours.transform(ops.asarray(x))
    assert (found.backend, found.dtype) == (backend, dtype)
    tolerance = 1e-5 if dtype == "float32" else 1e-9
    np.testing.assert_allclose(found.numpy(), wanted, rtol=tolerance, atol=tolerance)
    back = ours.inverse_transform(found).numpy()
    np.testing.assert_allclose(back[:, :4], x[:, :4], rtol=tolerance)


def test_attributes() -> None:
    x = samples()
    ours, reference = features.min_max_features().fit(x), MinMaxScaler().fit(x[:, :4])
    np.testing.assert_allclose(ours.data_min_.numpy()[:4], reference.data_min_)
    np.testing.assert_allclose(ours.data_max_.numpy()[:4], reference.data_max_)
    largest = features.max_abs_features().fit(x)
    np.testing.assert_allclose(largest.max_abs_.numpy()[:4], MaxAbsScaler().fit(x[:, :4]).max_abs_)
    middle, other = features.robust_features().fit(x), RobustScaler().fit(x[:, :4])
    np.testing.assert_allclose(middle.center_.numpy()[:4], other.center_)
    np.testing.assert_allclose(middle.scale_.numpy()[:4], other.scale_)


def test_mistakes() -> None:
    with pytest.raises(em.DomainError, match="range from 1 to 0"):
        features.min_max_features(1, 0)
    with pytest.raises(em.DomainError, match="quantiles 80 and 20"):
        features.robust_features(80, 20)
    with pytest.raises(em.NotFittedError, match=r"MaxAbsScale.transform"):
        features.max_abs_features().transform([[1.0]])
    with pytest.raises(em.DomainError, match="infinite"):
        features.max_abs_features().fit([[float("inf")]])
