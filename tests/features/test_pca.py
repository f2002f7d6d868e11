"""nn.features.pca agrees with scikit-learn, on every backend and in each of its solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA as Reference

import ember_ml as em
from ember_ml import ops
from ember_ml.backend import selection
from ember_ml.nn import features

Array = np.ndarray[Any, Any]
BACKENDS = ("numpy", "torch", "jax", "mlx")
ATTRIBUTES = (
    "components_",
    "explained_variance_",
    "explained_variance_ratio_",
    "singular_values_",
    "mean_",
)


def samples(rows: int, columns: int, seed: int = 0) -> Array:
    """Samples whose directions have well separated variances, far from the origin."""
    generator = np.random.default_rng(seed)
    mixing = np.linalg.qr(generator.normal(size=(columns, columns)))[0]
    spread = np.geomspace(5.0, 0.2, columns)
    return generator.normal(size=(rows, columns)) * spread @ mixing + 10.0


def agree(ours: features.PCA, reference: Reference, tolerance: float = 1e-6) -> None:
    assert ours.n_components_ == reference.n_components_
    assert ours.n_features_in_ == reference.n_features_in_
    assert ours.n_samples_ == reference.n_samples_
    for name in ATTRIBUTES:
        mine, theirs = getattr(ours, name), getattr(reference, name)
        assert mine.shape == theirs.shape, name
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=tolerance, atol=tolerance)
    assert abs(ours.noise_variance_ - reference.noise_variance_) < tolerance


@pytest.mark.parametrize("shape", [(60, 6), (12, 6), (5, 8)], ids=str)
@pytest.mark.parametrize("whiten", [False, True])
def test_as_in_scikit_learn(backend: str, shape: tuple[int, int], whiten: bool) -> None:
    x = samples(*shape)
    tensor = ops.asarray(x)
    # Five centred samples span four directions; a fifth would be anybody's.
    for count in (4 if shape == (5, 8) else None, 3):
        ours = features.pca().fit(tensor, n_components=count, whiten=whiten)
        reference = Reference(n_components=count, whiten=whiten, svd_solver="full").fit(x)
        agree(ours, reference)
        found = ours.transform(tensor)
        assert (found.backend, found.dtype) == (backend, "float64")
        np.testing.assert_allclose(found.numpy(), reference.transform(x), rtol=1e-6, atol=1e-6)
        back = ours.inverse_transform(found)
        wanted = reference.inverse_transform(reference.transform(x))
        np.testing.assert_allclose(back.numpy(), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("solver", ["full", "covariance", "randomized"])
def test_solvers_agree(backend: str, solver: Any) -> None:
    for shape in ((60, 6), (6, 20)):
        x = samples(*shape)
        ours = features.pca(2, svd_solver=solver).fit(ops.asarray(x))
        agree(ours, Reference(2, svd_solver="full").fit(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_keep_the_dtype_and_the_digits(backend: str, dtype: str) -> None:
    x = samples(60, 6).astype(dtype) + np.asarray(1000, dtype)
    tensor = ops.asarray(x)
    ours = features.pca(3).fit(tensor)
    found = ours.transform(tensor)
    assert found.dtype == dtype
    reference = Reference(3).fit(x.astype(np.float64))
    agree(ours, reference)
    wanted = reference.transform(x.astype(np.float64))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)
    assert ours.inverse_transform(found).dtype == dtype


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats_are_fitted_in_more_digits(backend: str, dtype: str) -> None:
    x = ops.astype(ops.asarray(samples(60, 6)), dtype)
    ours = features.pca(2).fit(x)
    agree(ours, Reference(2).fit(ops.astype(x, "float64").numpy()))
    assert ours.transform(x).dtype == dtype


@pytest.mark.parametrize("share", [0.2, 0.9, 0.999])
def test_a_share_of_the_variance(share: float) -> None:
    x = samples(60, 6)
    agree(features.pca().fit(x, n_components=share), Reference(share, svd_solver="full").fit(x))


@pytest.mark.parametrize("seed", range(4))
def test_as_many_as_the_data_tell(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(200, 3)) @ generator.normal(size=(3, 8))
    x = x + 0.1 * generator.normal(size=(200, 8))
    agree(features.pca("mle").fit(x), Reference("mle").fit(x))
    assert features.pca("mle").fit(x).n_components_ == 3
    assert features.pca("mle").fit(x[:, :1]).n_components_ == 1


def test_auto_is_exact_up_to_a_thousand_and_quick_beyond() -> None:
    from ember_ml.nn.features.pca import _chosen

    def chosen(rows: int, columns: int, count: Any, dtype: str = "float64") -> str:
        return _chosen(ops.empty((rows, columns), dtype=dtype), count)

    assert chosen(100, 10, 3) == "covariance"
    assert chosen(100, 10, 3, "float32") == "full"
    assert chosen(50, 10, 3) == "full"
    assert chosen(1500, 1200, 10) == "randomized"
    assert chosen(1500, 1200, 600) == "full"
    assert chosen(1500, 1200, 0.9) == "full"


def test_randomized_is_repeatable_and_equal_on_all_backends() -> None:
    x = samples(60, 20)
    found = []
    for name in BACKENDS:
        with em.use_backend(name):
            one = features.pca(2, svd_solver="randomized", seed=3).fit(x)
            two = features.pca(2, svd_solver="randomized", seed=3).fit(x)
            assert one.components_.tolist() == two.components_.tolist()
            found.append(one.components_.numpy())
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-12)


def test_without_centering(backend: str) -> None:
    x = samples(60, 6)
    ours = features.pca(center=False).fit(x)
    values = np.linalg.svd(x, compute_uv=False)
    np.testing.assert_allclose(ours.singular_values_.numpy(), values, rtol=1e-9)
    assert ours.mean_.tolist() == [0.0] * 6
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(x)).numpy(), x, rtol=1e-9)


def test_components_are_orthonormal_and_signed(backend: str) -> None:
    directions = features.pca().fit(samples(60, 6)).components_.numpy()
    np.testing.assert_allclose(directions @ directions.T, np.eye(6), atol=1e-12)
    assert np.all(directions[np.arange(6), np.abs(directions).argmax(axis=1)] > 0)


def test_whitened_coordinates_have_variance_one(backend: str) -> None:
    found = features.pca(whiten=True).fit_transform(samples(60, 6)).numpy()
    np.testing.assert_allclose(np.cov(found.T), np.eye(6), atol=1e-12)


def test_equal_samples_have_no_variance(backend: str) -> None:
    x = np.full((5, 3), 2.5)
    ours = features.pca(whiten=True).fit(x)
    assert ours.explained_variance_ratio_.tolist() == [0.0, 0.0, 0.0]
    assert ours.transform(x).tolist() == [[0.0] * 3] * 5


def test_lists_integers_and_frames(backend: str) -> None:
    rows = [[1, 2, 0], [3, 4, 1], [5, 9, 7], [2, 2, 2]]
    reference = Reference(2).fit_transform(np.asarray(rows, np.float64))
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    for x in (rows, np.asarray(rows), frame, ops.asarray(rows)):
        found = features.pca().fit_transform(x, n_components=2)
        assert (found.backend, found.dtype) == (backend, "float32")
        np.testing.assert_allclose(found.numpy(), reference, atol=1e-5)
    fitted = features.pca(2).fit(frame)
    assert fitted.feature_names_in_ == ["a", "b", "c"]
    assert fitted.feature_names_out() == ["pca0", "pca1"]


def test_the_backend_of_the_tensor_computes_and_data_goes_there(backend: str) -> None:
    x = samples(12, 6)
    with em.use_backend("numpy"):
        ours = features.pca(2).fit(ops.asarray(x).to_backend(backend))
        assert ours.components_.backend == backend
        assert ours.transform(x).backend == backend
        if backend != "numpy":
            with pytest.raises(em.BackendMismatchError):
                ours.transform(ops.asarray(x))
        moved = ours.to_backend("numpy")
        assert moved.transform(ops.asarray(x)).backend == "numpy"
        assert ours.components_.backend == backend


def test_gradients_and_tracing_go_through_transform() -> None:
    import jax
    import torch

    x = samples(12, 6)
    ours = features.pca(2).fit(x)
    with em.use_backend("torch"):
        held = torch.tensor(x, requires_grad=True)
        ours.to_backend("torch").transform(held).native.sum().backward()
        assert held.grad is not None
        wanted = np.tile(ours.components_.numpy().sum(axis=0), (12, 1))
        np.testing.assert_allclose(held.grad.numpy(), wanted, atol=1e-12)
        assert not features.pca(2).fit(held).components_.requires_grad
    traced = ours.to_backend("jax")
    found = jax.jit(lambda y: traced.transform(y).native)(jax.numpy.asarray(x))
    np.testing.assert_allclose(np.asarray(found), ours.transform(x).numpy(), atol=1e-10)


def test_mistakes(backend: str) -> None:
    x = ops.asarray(samples(12, 6))
    fresh = features.pca()
    for use in (fresh.transform, fresh.inverse_transform):
        with pytest.raises(em.NotFittedError, match=r"call PCA.fit\(x\) first") as caught:
            use(x)
        assert isinstance(caught.value, ValueError)
    with pytest.raises(em.NotFittedError, match="'components_' only after fit"):
        _ = fresh.components_
    assert not hasattr(fresh, "components_")
    assert not hasattr(fresh, "no_such_name")
    fitted = features.pca(2).fit(x)
    with pytest.raises(em.ShapeError, match=r"got 5 features.*fit was given 6"):
        fitted.transform(x[:, :5])
    with pytest.raises(em.ShapeError, match=r"got 6 features.*transform gives 2"):
        fitted.inverse_transform(x)
    for shape in ((6,), (2, 3, 4)):
        with pytest.raises(em.ShapeError, match=r"takes a matrix \(samples, features\)"):
            features.pca().fit(ops.ones(shape))
    with pytest.raises(em.ShapeError, match="two samples"):
        features.pca().fit(x[:1])
    with pytest.raises(em.ShapeError, match="at least one sample"):
        features.pca().fit(x[:0])
    for wrong in (0, 7, -1, 0.0, 1.0, 1.5, float("nan"), "all"):
        with pytest.raises(em.DomainError, match="n_components"):
            features.pca().fit(x, n_components=wrong)  # type: ignore[arg-type]
    for wrong in (True, [2]):
        with pytest.raises(em.DTypeError, match="n_components"):
            features.pca().fit(x, n_components=wrong)  # type: ignore[arg-type]
    with pytest.raises(em.DomainError, match="'mle' for shape"):
        features.pca("mle").fit(x[:4])
    with pytest.raises(em.DomainError, match="takes n_components as a number"):
        features.pca(0.5, svd_solver="randomized").fit(x)
    with pytest.raises(em.DomainError, match="solvers auto, full"):
        features.pca(svd_solver="lanczos")  # type: ignore[arg-type]
    for bad in (float("nan"), float("inf")):
        with pytest.raises(em.DomainError, match="1 of 4 values that are NaN or infinite"):
            features.pca().fit(ops.asarray([[1.0, 2.0], [bad, 3.0]]))
    with pytest.raises(em.DTypeError, match="real numbers, not complex64"):
        features.pca().fit(ops.astype(x, "complex64"))


def test_devices_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    home = selection.load("numpy")
    monkeypatch.setattr(type(home), "supports", lambda self, dtype, device: dtype != "float64")
    x = samples(60, 6).astype(np.float32)
    ours = features.pca(3).fit(ops.asarray(x))
    assert ours.components_.dtype == "float32"
    agree(ours, Reference(3).fit(x.astype(np.float64)), 1e-4)
    scaled = features.standardize_features().fit(ops.asarray(x))
    assert scaled.mean_ is not None
    assert scaled.mean_.dtype == "float32"
