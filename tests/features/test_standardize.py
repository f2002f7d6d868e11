"""nn.features.standardize_features agrees with scikit-learn's StandardScaler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

import ember_ml as em
from ember_ml import ops
from ember_ml.nn import features

Array = np.ndarray[Any, Any]


def samples(rows: int = 40, columns: int = 4) -> Array:
    generator = np.random.default_rng(1)
    return generator.normal(size=(rows, columns)) * [1.0, 10.0, 0.01, 3.0] + [0.0, 5.0, 100.0, -7.0]


def agree(ours: features.Standardize, reference: StandardScaler, tolerance: float = 1e-9) -> None:
    assert ours.n_features_in_ == reference.n_features_in_
    count = ours.n_samples_seen_
    np.testing.assert_array_equal(
        count.numpy() if isinstance(count, em.Tensor) else count, reference.n_samples_seen_
    )
    for name in ("mean_", "var_", "scale_"):
        mine, theirs = getattr(ours, name), getattr(reference, name)
        assert (mine is None) == (theirs is None), name
        if mine is not None:
            np.testing.assert_allclose(mine.numpy(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("with_mean", [True, False])
@pytest.mark.parametrize("with_std", [True, False])
def test_as_in_scikit_learn(backend: str, with_mean: bool, with_std: bool) -> None:
    x = samples()
    ours = features.standardize_features().fit(x, with_mean=with_mean, with_std=with_std)
    reference = StandardScaler(with_mean=with_mean, with_std=with_std).fit(x)
    agree(ours, reference)
    found = ours.transform(x)
    assert (found.backend, found.dtype, found.shape) == (backend, "float64", x.shape)
    np.testing.assert_allclose(found.numpy(), reference.transform(x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.inverse_transform(found).numpy(), x, rtol=1e-9, atol=1e-9)


def test_constant_columns_become_zeros(backend: str) -> None:
    x = np.array([[0.1, 1e8 + 0.1, 0.0, 1.0]] * 9 + [[0.1, 1e8 + 0.1, 0.0, 2.0]])
    ours = features.standardize_features().fit(x)
    assert ours.scale_ is not None
    assert ours.scale_.tolist()[:3] == [1.0, 1.0, 1.0]
    reference = StandardScaler().fit(x)
    np.testing.assert_allclose(ours.transform(x).numpy(), reference.transform(x), atol=1e-7)


def test_nan_is_left_out_and_stays(backend: str) -> None:
    x = samples()
    x[::3, 0] = np.nan
    x[1, 2] = np.nan
    x[:, 3] = np.nan
    ours = features.standardize_features().fit(x)
    with np.errstate(all="ignore"):
        reference = StandardScaler().fit(x)
        wanted = reference.transform(x)
    agree(ours, reference)
    np.testing.assert_allclose(ours.transform(x).numpy(), wanted, rtol=1e-9, atol=1e-9)


def test_float32_keeps_its_digits_far_from_zero(backend: str) -> None:
    x = (samples() + 4000.0).astype(np.float32)
    ours = features.standardize_features().fit(ops.asarray(x))
    wide = x.astype(np.float64)
    reference = StandardScaler().fit(wide)
    agree(ours, reference)
    found = ours.transform(ops.asarray(x))
    assert found.dtype == "float32"
    np.testing.assert_allclose(found.numpy(), reference.transform(wide), rtol=1e-5, atol=1e-5)
    back = ours.inverse_transform(found)
    assert back.dtype == "float32"
    np.testing.assert_allclose(back.numpy(), x, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats(backend: str, dtype: str) -> None:
    x = ops.astype(ops.asarray([[1000.0, 1.0], [1008.0, 2.0], [1016.0, 4.0]]), dtype)
    found = features.standardize_features().fit_transform(x)
    assert found.dtype == dtype
    wanted = StandardScaler().fit_transform(ops.astype(x, "float64").numpy())
    np.testing.assert_allclose(ops.astype(found, "float64").numpy(), wanted, rtol=1e-2)


def test_integers_are_lifted(backend: str) -> None:
    found = features.standardize_features().fit_transform([[1, 0], [3, 0]])
    assert (found.dtype, found.tolist()) == ("float32", [[-1.0, 0.0], [1.0, 0.0]])


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_parts_teach_what_the_whole_teaches(sizes: list[int], seed: int, holes: bool) -> None:
    generator = np.random.default_rng(seed)
    parts = [generator.normal(size=(size, 3)) * [1.0, 50.0, 0.1] + 9.0 for size in sizes]
    if holes:
        for part in parts:
            part[generator.random(part.shape) < 0.3] = np.nan
    whole = features.standardize_features().fit(np.concatenate(parts))
    ours = features.standardize_features()
    for part in parts:
        ours.partial_fit(part)
    for name in ("mean_", "var_"):
        mine, theirs = getattr(ours, name).numpy(), getattr(whole, name).numpy()
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    assert str(ours.n_samples_seen_) == str(whole.n_samples_seen_)


def test_partial_fit_on_every_backend(backend: str) -> None:
    x = samples()
    reference = StandardScaler()
    ours = features.standardize_features()
    for part in (x[:7], x[7:8], x[8:]):
        assert ours.partial_fit(ops.asarray(part)) is ours
        reference.partial_fit(part)
        agree(ours, reference)
    for options in ({"with_std": False}, {"with_mean": False, "with_std": False}):
        ours = features.standardize_features(**options)
        reference = StandardScaler(**options)
        for part in (x[:7], x[7:]):
            agree(ours.partial_fit(part), reference.partial_fit(part))


def test_a_new_fit_forgets_the_old() -> None:
    x = samples()
    ours = features.standardize_features().fit(x[:5, :2]).fit(x)
    agree(ours, StandardScaler().fit(x))


class TestPandas:
    def test_a_frame_and_its_names(self, backend: str) -> None:
        frame = pd.DataFrame(samples(), columns=list("abcd"))
        ours = features.standardize_features().fit(frame)
        assert ours.feature_names_out() == list("abcd")
        found = ours.transform(frame)
        assert found.backend == backend
        wanted = StandardScaler().fit_transform(frame)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9)
        with pytest.raises(em.DomainError, match="got columns"):
            ours.transform(frame[list("bacd")])
        ours.transform(frame.to_numpy())  # what has no names is not compared

    def test_nullable_columns_and_truth_values(self) -> None:
        frame = pd.DataFrame(
            {
                "a": pd.array([1, None, 3], dtype="Int64"),
                "b": [True, False, True],
                "c": [0.5, 1.5, 2.5],
            }
        )
        ours = features.standardize_features().fit(frame)
        assert ours.mean_ is not None
        assert ours.mean_.tolist() == pytest.approx([2.0, 2 / 3, 1.5])
        assert str(ours.n_samples_seen_.tolist()) == "[2, 3, 3]"  # type: ignore[union-attr]
        assert np.isnan(ours.transform(frame).numpy()[1, 0])

    def test_a_series_is_one_column(self, backend: str) -> None:
        found = features.standardize_features().fit_transform(pd.Series([1.0, 3.0], name="a"))
        assert found.tolist() == [[-1.0], [1.0]]

    def test_texts_are_refused_by_name(self) -> None:
        frame = pd.DataFrame({"a": [1.0], "city": ["Rome"], "when": pd.to_datetime(["2020-01-01"])})
        with pytest.raises(em.DTypeError, match=r"'city', 'when' hold none.*ColumnFeature"):
            features.standardize_features().fit(frame)


def test_mistakes(backend: str) -> None:
    fresh = features.standardize_features()
    with pytest.raises(em.NotFittedError, match=r"Standardize.transform needs"):
        fresh.transform([[1.0]])
    with pytest.raises(em.DomainError, match="1 of 2 values that are infinite"):
        fresh.fit([[1.0], [float("inf")]])
    fitted = features.standardize_features().fit([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(em.ShapeError, match=r"got 3 features.*fit was given 2"):
        fitted.transform([[1.0, 2.0, 3.0]])
    with pytest.raises(em.ShapeError, match=r"got 1 features.*fit was given 2"):
        fitted.partial_fit([[1.0]])
    with pytest.raises(em.ShapeError, match="transform gives 2"):
        fitted.inverse_transform([[1.0]])
    with pytest.raises(em.ShapeError, match="takes a matrix"):
        fitted.transform([1.0, 2.0])
