"""nn.features.normalize_features agrees with scikit-learn's Normalizer and normalize."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import Normalizer, normalize

import ember_ml as em
from ember_ml import ops
from ember_ml.nn import features


def samples() -> np.ndarray[Any, Any]:
    x = np.random.default_rng(2).normal(size=(6, 4)) * 3
    x[2] = 0.0
    x[3] = [0.0, -5.0, 0.0, 0.0]
    return x


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_as_in_scikit_learn(backend: str, norm: Any, dtype: str) -> None:
    x = samples().astype(dtype)
    ours = features.normalize_features()
    found = ours.fit(ops.asarray(x), norm=norm).transform(ops.asarray(x))
    assert (found.backend, found.dtype, ours.n_features_in_) == (backend, dtype, 4)
    wanted = Normalizer(norm=norm).fit_transform(x)
    tolerance = 1e-6 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(found.numpy(), wanted, rtol=tolerance, atol=tolerance)
    back = ours.inverse_transform(found)
    np.testing.assert_allclose(back.numpy(), x, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_columns_by_the_norms_of_fit(backend: str, norm: Any) -> None:
    x = samples()
    x[:, 1] = 0.0
    ours = features.normalize_features(norm, axis=0).fit(x)
    np.testing.assert_allclose(ours.transform(x).numpy(), normalize(x, norm=norm, axis=0))
    again = ours.transform(2 * x[:2])
    np.testing.assert_allclose(again.numpy(), 2 * normalize(x, norm=norm, axis=0)[:2])
    np.testing.assert_allclose(ours.inverse_transform(again).numpy(), 2 * x[:2])


def test_squares_neither_overflow_nor_vanish(backend: str) -> None:
    x = ops.asarray([[3e30, 4e30], [3e-30, 4e-30]])
    found = features.normalize_features().fit_transform(x)
    assert found.dtype == "float32"
    np.testing.assert_allclose(found.numpy(), [[0.6, 0.8]] * 2, rtol=1e-6)


def test_other_rows_come_back_by_their_norms() -> None:
    ours = features.normalize_features().fit([[3.0, 4.0]])
    assert ours.norms_.tolist() == [5.0]
    x = ops.asarray([[6.0, 8.0], [0.0, 0.0], [0.0, 2.0]])
    with pytest.raises(em.ShapeError, match=r"give norms="):
        ours.inverse_transform(ours.transform(x))
    found = ours.inverse_transform(ours.transform(x), norms=ours.norms(x))
    np.testing.assert_allclose(found.numpy(), x.numpy(), rtol=1e-6)


def test_frames_and_lists(backend: str) -> None:
    frame = pd.DataFrame({"a": [3.0, 1.0], "b": [4.0, 0.0]})
    ours = features.normalize_features().fit(frame)
    np.testing.assert_allclose(ours.transform(frame).numpy(), [[0.6, 0.8], [1.0, 0.0]])
    assert ours.feature_names_out() == ["a", "b"]
    assert ours.transform([[0, 2]]).tolist() == [[0.0, 1.0]]


def test_gradients_of_zero_rows_are_numbers() -> None:
    import torch

    held = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    with em.use_backend("torch"):
        ours = features.normalize_features().fit(held.detach())
        ours.transform(held).native[:, 0].sum().backward()
    assert held.grad is not None
    wanted = torch.tensor([3.0, 4.0]).pow(2).sum().pow(-1.5) * torch.tensor([16.0, -12.0])
    assert torch.isfinite(held.grad).all()
    assert torch.allclose(held.grad[1], wanted, atol=1e-6)


def test_mistakes() -> None:
    with pytest.raises(em.DomainError, match="norms 'l1', 'l2' and 'max'"):
        features.normalize_features("l3")  # type: ignore[arg-type]
    with pytest.raises(em.AxisError, match="rows"):
        features.normalize_features(axis=2)
    with pytest.raises(em.NotFittedError):
        features.normalize_features().transform([[1.0]])
    with pytest.raises(em.DomainError, match="NaN or infinite"):
        features.normalize_features().fit([[float("nan")]])
    with pytest.raises(em.ShapeError, match="got 1 features"):
        features.normalize_features().fit([[1.0, 2.0]]).transform([[1.0]])
