"""Sequences: standardised along time, in windows, at several strides; and what all share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import features, ops
from ember_ml.features import TemporalStrideFeatures, TimeSeriesFeatures, WindowFeatures, base
from ember_ml.features.windows import STATISTICS
from ember_ml.nn import features as transformers
from ember_ml.nn import tensor


def series(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).normal(size=shape) * 3.0 + 20.0


class TestTimeSeries:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("shape", [(3, 7), (2, 7, 3)], ids=str)
    def test_each_sequence_is_standardised(
        self, backend: str, shape: tuple[int, ...], dtype: str
    ) -> None:
        x = series(*shape).astype(dtype)
        found = TimeSeriesFeatures().extract(ops.asarray(x))
        assert (found.backend, found.dtype) == (backend, dtype)
        wide = x.astype(np.float64)
        wanted = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
        tolerance = 2e-5 if dtype == "float32" else 1e-12  # 20 has seven digits, less one
        np.testing.assert_allclose(found.numpy(), wanted, atol=tolerance)

    def test_equal_values_become_zeros(self, backend: str) -> None:
        x = ops.asarray([[0.1] * 1000, [1e4] * 1000])
        assert ops.max(ops.abs(TimeSeriesFeatures()(x))).item() == 0.0

    def test_far_from_zero_float32_is_not_taken_for_constant(self, backend: str) -> None:
        x = (np.arange(4096) % 2 + 10000.0).astype(np.float32)[None, :]
        found = TimeSeriesFeatures()(ops.asarray(x)).numpy()
        np.testing.assert_allclose(found, np.where(x == 10000.0, -1.0, 1.0), atol=1e-5)

    def test_a_mask_leaves_values_out(self, backend: str) -> None:
        x = series(2, 6)
        mask = np.array([[True] * 4 + [False] * 2, [False] * 6])
        found = TimeSeriesFeatures().extract(x, mask).numpy()
        part = x[0, :4]
        np.testing.assert_allclose(found[0, :4], (part - part.mean()) / part.std(), rtol=1e-9)
        assert not found[0, 4:].any()
        assert not found[1].any()

    def test_other_axes_and_epsilon(self, backend: str) -> None:
        x = series(5)
        found = TimeSeriesFeatures(axis=0, epsilon=2.0)(x).numpy()
        np.testing.assert_allclose(found, (x - x.mean()) / np.sqrt(x.var() + 2.0), rtol=1e-9)
        with pytest.raises(em.AxisError):
            TimeSeriesFeatures()(x)

    def test_gradients_are_numbers_where_the_spread_is_zero(self) -> None:
        import torch

        held = torch.tensor([[2.0, 2.0, 2.0], [1.0, 2.0, 4.0]], requires_grad=True)
        TimeSeriesFeatures()(held).native[:, 0].sum().backward()
        assert held.grad is not None
        assert torch.isfinite(held.grad).all()
        assert held.grad[1].abs().sum() > 0

    def test_tracing(self) -> None:
        import jax

        x = series(3, 7)
        found = jax.jit(lambda y: TimeSeriesFeatures()(y).native)(jax.numpy.asarray(x))
        np.testing.assert_allclose(np.asarray(found), TimeSeriesFeatures()(x).numpy(), atol=1e-12)

    def test_mistakes(self) -> None:
        with pytest.raises(em.DTypeError, match="one axis"):
            TimeSeriesFeatures(axis=(0, 1))  # type: ignore[arg-type]
        with pytest.raises(em.DomainError, match="epsilon"):
            TimeSeriesFeatures(epsilon=-1.0)


REFERENCES: dict[str, Any] = {
    "mean": lambda w: w.mean(),
    "std": lambda w: w.std(),
    "var": lambda w: w.var(),
    "min": lambda w: w.min(),
    "max": lambda w: w.max(),
    "range": lambda w: w.max() - w.min(),
    "median": np.median,
    "energy": lambda w: (w**2).mean(),
    "first": lambda w: w[0],
    "last": lambda w: w[-1],
    "delta": lambda w: w[-1] - w[0],
    "slope": lambda w: np.polyfit(np.arange(len(w)), w, 1)[0],
    "crossings": lambda w: np.mean((w[1:] < 0) != (w[:-1] < 0)),
}


class TestWindows:
    @pytest.mark.parametrize("size", [4, 5])
    def test_every_statistic(self, backend: str, size: int) -> None:
        x = series(2, 11, 3) - 20.0
        names = list(STATISTICS)
        assert names == list(REFERENCES)
        extractor = WindowFeatures(size, stride=3, statistics=names)
        found = extractor(ops.asarray(x))
        starts = range(0, 11 - size + 1, 3)
        wanted = np.array(
            [
                [
                    [REFERENCES[n](x[b, s : s + size, c]) for n in names for c in range(3)]
                    for s in starts
                ]
                for b in range(2)
            ]
        )
        assert (found.backend, found.shape) == (backend, wanted.shape)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-9)
        assert extractor.feature_names_out(3)[:4] == ["mean_0", "mean_1", "mean_2", "std_0"]

    @given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 12))
    @settings(max_examples=50, deadline=None)
    def test_windows_are_slices(self, length: int, stride: int, size: int) -> None:
        x = np.arange(float(length))
        extractor = WindowFeatures(size, stride=stride)
        if size > length:
            with pytest.raises(em.ShapeError, match=f"got {length} times; its windows take {size}"):
                extractor.windows(x)
            return
        wanted = np.lib.stride_tricks.sliding_window_view(x, size)[::stride]
        np.testing.assert_array_equal(extractor.windows(x).numpy()[0, :, :, 0], wanted)

    def test_shapes(self, backend: str) -> None:
        extractor = WindowFeatures(2, statistics=["mean", "max"])
        assert extractor(ops.ones((5,))).shape == (4, 2)
        assert extractor(ops.ones((3, 5))).shape == (3, 4, 2)
        assert extractor(ops.ones((3, 5, 2))).shape == (3, 4, 4)
        assert extractor(pd.Series([1, 2, 3])).shape == (2, 2)
        frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0.0, 0.0, 1.0]})
        assert extractor(frame).tolist() == [[1.5, 0.0, 2.0, 0.0], [2.5, 0.5, 3.0, 1.0]]
        assert extractor([1, 2, 3]).dtype == "float32"

    def test_one_sample_windows(self) -> None:
        found = WindowFeatures(1, statistics=["slope", "std", "crossings", "delta"])([1.0, 2.0])
        assert found.tolist() == [[0.0] * 4] * 2

    def test_gradients_and_tracing(self) -> None:
        import jax
        import torch

        extractor = WindowFeatures(3, statistics=["std", "slope", "median"])
        held = torch.ones((1, 5), requires_grad=True)
        extractor(held).native.sum().backward()
        assert held.grad is not None
        assert torch.isfinite(held.grad).all()
        x = series(2, 6)
        found = jax.jit(lambda y: extractor(y).native)(jax.numpy.asarray(x))
        np.testing.assert_allclose(np.asarray(found), extractor(x).numpy(), atol=1e-10)

    def test_mistakes(self) -> None:
        with pytest.raises(em.DomainError, match="size from one up, not 0"):
            WindowFeatures(0)
        with pytest.raises(em.DTypeError, match=r"stride as an integer, not 1\.5"):
            WindowFeatures(2, stride=1.5)  # type: ignore[arg-type]
        with pytest.raises(em.DomainError, match=r"\['mode'\]; there are mean, std"):
            WindowFeatures(2, statistics=["mode"])
        with pytest.raises(em.DomainError, match="at least one"):
            WindowFeatures(2, statistics=[])
        with pytest.raises(em.ShapeError, match="not shape"):
            WindowFeatures(2)(ops.ones((2, 2, 2, 2)))


class TestStrides:
    def test_windows_of_all_strides_end_together(self, backend: str) -> None:
        x = series(2, 14, 2)
        extractor = TemporalStrideFeatures(3, strides=(1, 2, 5), hop=2)
        seen = extractor.perspectives(ops.asarray(x))
        ends = range(10, 14, 2)
        for stride, windows in seen.items():
            wanted = np.stack([x[:, e - 2 * stride : e + 1 : stride] for e in ends], axis=1)
            assert windows.backend == backend
            np.testing.assert_array_equal(windows.numpy(), wanted)
        found = extractor(ops.asarray(x))
        flat = [w.numpy().reshape(2, 2, 6) for w in seen.values()]
        np.testing.assert_array_equal(found.numpy(), np.concatenate(flat, axis=2))
        names = extractor.feature_names_out(2)
        assert len(names) == found.shape[2]
        assert (names[0], names[-1]) == ("s1_t0_0", "s5_t2_1")

    def test_statistics_by_stride(self, backend: str) -> None:
        extractor = TemporalStrideFeatures(2, strides=(1, 3), statistics=["mean", "delta"])
        assert extractor([0, 1, 2, 4]).tolist() == [[3.0, 2.0, 2.0, 4.0]]
        assert extractor.feature_names_out() == ["s1_mean", "s1_delta", "s3_mean", "s3_delta"]

    def test_components_of_the_strides(self, backend: str) -> None:
        both = TemporalStrideFeatures(4, strides=(1, 2)).then(transformers.pca(2))
        assert both.fit_transform(series(30)).shape == (24, 2)

    def test_mistakes(self) -> None:
        with pytest.raises(em.DomainError, match="strides that differ"):
            TemporalStrideFeatures(2, strides=(1, 1))
        with pytest.raises(em.DomainError, match="strides that differ"):
            TemporalStrideFeatures(2, strides=())
        with pytest.raises(em.ShapeError, match="got 10 times; its windows take 11"):
            TemporalStrideFeatures(3)(series(10))


class TestBase:
    def test_a_subclass_as_the_documents_write_it(self, backend: str) -> None:
        class Own(base.FeatureExtractor):
            def extract(self, data: Any) -> Any:
                x = tensor.convert_to_tensor(data)
                mean = ops.mean(x, axis=1, keepdims=True)
                std = ops.std(x, axis=1, keepdims=True)
                return ops.divide(ops.subtract(x, mean), std)

        x = series(2, 5)
        wanted = TimeSeriesFeatures()(x).numpy()
        for found in (Own().extract(x), Own()(x), Own().fit_transform(x), Own().transform(x)):
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9)
        with pytest.raises(em.DomainError, match="Own has no inverse"):
            Own().inverse_transform(x)
        with pytest.raises(em.DomainError, match="Own gives its features no names"):
            Own().feature_names_out()
        with pytest.raises(TypeError, match="abstract"):
            base.FeatureExtractor()  # type: ignore[abstract]

    def test_pipelines(self, backend: str) -> None:
        x = series(20, 4)
        scaler, reducer = transformers.standardize_features(), transformers.pca(2)
        both = scaler.then(reducer)
        assert not both.is_fitted
        assert both.fit(x) is both
        assert both.is_fitted
        wanted = reducer.transform(scaler.transform(x))
        assert both(x).tolist() == wanted.tolist() == both.fit_transform(x).tolist()
        assert both.feature_names_out() == ["pca0", "pca1"]
        back = both.inverse_transform(both(x))
        np.testing.assert_allclose(
            back.numpy(), scaler.inverse_transform(reducer.inverse_transform(both(x))).numpy()
        )
        three = both.then(transformers.normalize_features())
        assert [type(step).__name__ for step in three.steps] == ["Standardize", "PCA", "Normalize"]
        assert three.fit_transform(x, norm="l1").shape == (20, 2)
        assert repr(both) == f"Pipeline({scaler!r}, {reducer!r})"

    def test_mistakes_in_pipelines(self) -> None:
        with pytest.raises(em.DTypeError, match="not function"):
            features.Pipeline(lambda x: x)  # type: ignore[arg-type]
        with pytest.raises(em.DomainError, match="at least one"):
            features.Pipeline()
        with pytest.raises(em.NotFittedError, match="Standardize"):
            transformers.standardize_features().then(transformers.pca()).transform([[1.0]])

    def test_a_fit_that_fails_leaves_nothing_learned(self) -> None:
        ours = transformers.pca(2).fit(series(6, 4))
        with pytest.raises(em.DomainError):
            ours.fit([[1.0, float("nan")], [1.0, 2.0]])
        assert not ours.is_fitted
        with pytest.raises(em.NotFittedError):
            ours.transform(series(6, 4))
        assert list(ours.state_dict()) == ["config"]

    def test_repr_and_config(self) -> None:
        ours = transformers.normalize_features("l1")
        assert repr(ours) == "Normalize(norm='l1', axis=1)"
        assert type(ours)(**ours.get_config()).get_config() == ours.get_config()
