"""Metrics against scikit-learn, on every backend, whole and in batches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import ops, training
from ember_ml.errors import DomainError, DTypeError, ShapeError

rng = np.random.default_rng(0)
N, C = 40, 4
CLASSES = rng.integers(0, C, N)
SCORES = rng.normal(size=(N, C)).astype("float32")
WIDE = np.exp(SCORES.astype("float64"))
SOFT = WIDE / WIDE.sum(1, keepdims=True)
BINARY = rng.integers(0, 2, N)
# Few values, so that there are ties.
PROBABILITY = (rng.integers(0, 8, N) / 8 + 0.01).astype("float32")
VALUES = rng.normal(size=(N, 2)).astype("float32") + 1000.0
GUESSES = (VALUES + rng.normal(size=(N, 2)).astype("float32") * 0.3).astype("float32")
ODD_MASK = np.arange(N) % 3 > 0


def average(kind: str | None) -> dict[str, Any]:
    return {"average": kind, "zero_division": 0}


# Name, metric, predictions, targets, what it must be.
CASES: dict[str, tuple[Any, Any, Any, Any]] = {
    "accuracy": (
        lambda: training.Accuracy(),
        SCORES,
        CLASSES,
        lambda p, t: sk.accuracy_score(t, p.argmax(1)),
    ),
    "accuracy of probabilities": (
        lambda: training.Accuracy(),
        PROBABILITY,
        BINARY,
        lambda p, t: sk.accuracy_score(t, p > 0.5),
    ),
    "accuracy of logits": (
        lambda: training.Accuracy(threshold=0.7, from_logits=True),
        SCORES[:, :1],
        BINARY,
        lambda p, t: sk.accuracy_score(t, 1 / (1 + np.exp(-p[:, 0])) > 0.7),
    ),
    "accuracy without a class": (
        lambda: training.Accuracy(ignore_index=2),
        SCORES,
        CLASSES,
        lambda p, t: sk.accuracy_score(t[t != 2], p.argmax(1)[t != 2]),
    ),
    "accuracy of channels": (
        lambda: training.Accuracy(axis=1),
        SCORES.reshape(10, 4, 4),
        CLASSES.reshape(10, 4),
        lambda p, t: sk.accuracy_score(t.ravel(), p.argmax(1).ravel()),
    ),
    "top 2": (
        lambda: training.TopKAccuracy(k=2),
        SCORES,
        CLASSES,
        lambda p, t: sk.top_k_accuracy_score(t, p, k=2, labels=range(C)),
    ),
    "auc": (
        lambda: training.AUC(),
        PROBABILITY,
        BINARY,
        lambda p, t: sk.roc_auc_score(t, p),
    ),
    "auc of classes": (
        lambda: training.AUC(),
        SOFT,
        CLASSES,
        lambda p, t: sk.roc_auc_score(t, p, multi_class="ovr"),
    ),
    "average precision": (
        lambda: training.AUC(curve="pr"),
        PROBABILITY,
        BINARY,
        lambda p, t: sk.average_precision_score(t, p),
    ),
    # Eighths fall into bins of sixteenths without a loss.
    "auc in bins": (
        lambda: training.AUC(thresholds=16),
        PROBABILITY,
        BINARY,
        lambda p, t: sk.roc_auc_score(t, p),
    ),
    "average precision in bins": (
        lambda: training.AUC(curve="pr", thresholds=16),
        PROBABILITY,
        BINARY,
        lambda p, t: sk.average_precision_score(t, p),
    ),
    "auc of classes in bins": (
        lambda: training.AUC(thresholds=32),
        np.floor(SOFT * 32) / 32,
        CLASSES,
        lambda p, t: np.mean([sk.roc_auc_score(t == k, p[:, k]) for k in range(C)]),
    ),
    "mse": (
        lambda: training.MSE(),
        GUESSES,
        VALUES,
        lambda p, t: sk.mean_squared_error(t, p),
    ),
    "mae": (lambda: training.MAE(), GUESSES, VALUES, lambda p, t: sk.mean_absolute_error(t, p)),
    "r2": (lambda: training.R2(), GUESSES, VALUES, lambda p, t: sk.r2_score(t, p)),
    "perplexity": (
        lambda: training.Perplexity(),
        SCORES,
        CLASSES,
        lambda p, t: np.exp(sk.log_loss(t, SOFT[: len(t)], labels=range(C))),
    ),
}
for made, theirs in (
    (training.Precision, sk.precision_score),
    (training.Recall, sk.recall_score),
    (training.F1, sk.f1_score),
):
    CASES[f"{made.__name__} of two"] = (
        made,
        PROBABILITY,
        BINARY,
        lambda p, t, theirs=theirs: theirs(t, p > 0.5, zero_division=0),
    )
    for kind in ("macro", "micro", "weighted", None):
        CASES[f"{made.__name__} {kind}"] = (
            lambda made=made, kind=kind: made(average=kind),
            SCORES,
            CLASSES,
            lambda p, t, theirs=theirs, kind=kind: theirs(t, p.argmax(1), **average(kind)),
        )


def batches(*arrays: np.ndarray, size: int = 20) -> Any:
    for start in range(0, len(arrays[0]), size):
        yield [ops.asarray(one[start : start + size]) for one in arrays]


@pytest.mark.parametrize("name", CASES)
def test_as_scikit_learn(name: str, backend: str) -> None:
    make, p, t, expected = CASES[name]
    metric = make()
    for some_p, some_t in batches(p, t):
        metric.update(some_p, some_t)
    found = metric.compute()
    wanted = expected(p, t)
    assert type(found) is (list if np.ndim(wanted) else float)
    np.testing.assert_allclose(found, wanted, rtol=2e-6)
    # One batch beside those that were gathered, which stay.
    np.testing.assert_allclose(metric(ops.asarray(p), ops.asarray(t)), wanted, rtol=2e-6)
    assert metric.compute() == found
    # A state, and a new beginning.
    other = make()
    other.load_state_dict(metric.state_dict())
    assert other.compute() == found
    metric.reset()
    empty = metric.compute()
    assert all(map(math.isnan, empty if isinstance(empty, list) else [empty]))


def test_masks_leave_samples_out(backend: str) -> None:
    left = np.flatnonzero(ODD_MASK)
    for name in ("accuracy", "F1 macro", "auc", "auc in bins", "mse", "r2", "perplexity", "top 2"):
        make, p, t, _ = CASES[name]
        mask = ODD_MASK if t.ndim == 1 or name == "r2" else np.stack([ODD_MASK] * 2, 1)
        p = p.copy()
        p[~ODD_MASK] = np.nan if name in ("mse", "r2") else 0.5
        metric = make()
        for some in batches(p, t, mask):
            metric.update(*some)
        wanted = make()(ops.asarray(p[left]), ops.asarray(t[left]))
        np.testing.assert_allclose(metric.compute(), wanted, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["accuracy", "mse", "F1 macro", "auc in bins", "perplexity"])
def test_within_compiled_functions(name: str, backend: str) -> None:
    make, p, t, _ = CASES[name]
    metric = make()
    update = em.jit(lambda p, t: metric.update(p, t), state=[metric])
    for some in batches(p, t):
        update(*some)
    wanted = make()
    for some in batches(p, t):
        wanted.update(*some)
    assert metric.compute() == pytest.approx(wanted.compute(), rel=1e-6)


def test_sums_do_not_drift(backend: str) -> None:
    # 4,000 times 0.1 in float32 is off by 1e-5 where each addition rounds.
    metric = training.Mean()
    x = ops.asarray(np.float32(0.1))
    add = em.jit(lambda x: metric.update(x), state=[metric])
    for _ in range(300 if backend == "mlx" else 2000):
        add(x)
    assert metric.compute() == pytest.approx(float(np.float32(0.1)), rel=1e-12)


def test_the_backend_is_that_of_the_predictions() -> None:
    with em.use_backend("torch"):
        p, t = ops.asarray(SCORES), ops.asarray(CLASSES)
    for name in CASES:
        make, theirs, about, expected = CASES[name]
        with em.use_backend("torch"):
            p, t = ops.asarray(theirs), ops.asarray(about)
        with em.use_backend("numpy"):
            np.testing.assert_allclose(make()(p, t), expected(theirs, about), rtol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(dtype: str, backend: str) -> None:
    x = ops.asarray([1.0, 2.0, 4.0], dtype=dtype)
    y = ops.asarray([1.0, 4.0, 4.0], dtype=dtype)
    assert training.MSE()(x, y) == pytest.approx(4 / 3, rel=1e-6)
    assert training.R2()(x, y) == pytest.approx(1 - 4 / 6, rel=1e-6)
    assert training.AUC()(x, ops.asarray([0, 1, 1])) == 1.0
    assert training.Accuracy(threshold=1.5)(x, ops.asarray([0, 1, 1])) == 1.0


def test_one_class_and_nothing(backend: str) -> None:
    ones = ops.asarray([1, 1])
    scores = ops.asarray([0.2, 0.7])
    for make in (training.AUC, lambda: training.AUC(thresholds=4)):
        assert math.isnan(make()(scores, ones))
        assert math.isnan(make().compute())
    assert training.Precision()(ops.asarray([0, 0]), ones) == 0.0
    assert training.Precision(zero_division=1.0)(ops.asarray([0, 0]), ones) == 1.0
    assert training.F1()(ops.asarray([0, 0]), ops.asarray([0, 0])) == 0.0
    listed = training.Recall(average=None, num_classes=3)(ops.asarray([0, 0]), ops.asarray([0, 1]))
    assert listed[:2] == [1.0, 0.0]
    assert math.isnan(listed[2])
    assert training.R2()(scores, ops.asarray([3.0, 3.0])) == 0.0
    assert training.R2()(ops.asarray([3.0, 3.0]), ops.asarray([3.0, 3.0])) == 1.0
    assert math.isnan(training.R2()(scores[:1], scores[:1]))
    empty = ops.zeros((0,), dtype="float32")
    for metric in (training.Accuracy(), training.MSE(), training.AUC(), training.Mean()):
        assert math.isnan(metric(empty, ops.zeros((0,), dtype="int64").astype("float32")))


def test_means_and_functions(backend: str) -> None:
    mean = training.get_metric("mean")
    mean.update(ops.asarray([1.0, 2.0]), weights=ops.asarray([3.0, 1.0]))
    mean.update(6.0)
    assert mean.compute() == pytest.approx(11 / 5)
    worst = training.get_metric(lambda p, t: ops.max(ops.abs(p - t)), name="worst")
    worst.update(ops.asarray([1.0, 2.0]), ops.asarray([1.0, 5.0]))
    worst.update(ops.asarray([1.0]), ops.asarray([1.0]))
    assert (worst.compute(), worst.name) == (2.0, "worst")
    losses = training.Perplexity(from_logits=False)
    assert losses(ops.asarray([0.0, math.log(4.0)])) == pytest.approx(2.0)


def test_names() -> None:
    for name in ("accuracy", "auc", "f1", "mae", "mse", "r2", "recall", "precision", "perplexity"):
        assert training.get_metric(name).name == name
    assert training.get_metric(training.MSE).name == "mse"
    assert training.get_metric("top_k_accuracy", k=3).name == "top3_accuracy"
    with pytest.raises(DomainError, match="no metric 'acuracy'; there are accuracy"):
        training.get_metric("acuracy")
    with pytest.raises(DTypeError, match="not int"):
        training.get_metric(3)


def test_mistakes(backend: str) -> None:
    a, b = ops.ones((2, 3)), ops.ones((3,))
    for metric in (training.MSE(), training.R2(), training.Accuracy(), training.AUC()):
        with pytest.raises(ShapeError, match=r"\(2, 3\).*\(3,\)"):
            metric.update(a, b)
    with pytest.raises(ShapeError, match="one more axis"):
        training.TopKAccuracy().update(b, b)
    with pytest.raises(ShapeError, match="from_logits=False"):
        training.Perplexity().update(b)
    with pytest.raises(ShapeError, match="mask of shape"):
        training.Accuracy().update(ops.ones(2), ops.ones(2), mask=ops.ones(3))
    with pytest.raises(DomainError, match="num_classes="):
        training.F1(average="macro").update(ops.asarray([1]), ops.asarray([1]))
    with pytest.raises(DomainError, match="average='binary'"):
        training.F1(average="binary")(ops.ones((2, 3)), ops.asarray([0, 1]))
    for wrong in (
        lambda: training.F1(average="mean"),
        lambda: training.AUC(curve="xy"),
        lambda: training.AUC(thresholds=1),
        lambda: training.TopKAccuracy(k=0),
    ):
        with pytest.raises(DomainError):
            wrong()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 30),
)
def test_auc_counts_pairs(pairs: list[tuple[int, bool]], size: int) -> None:
    """The share of pairs of a positive and a negative that are in order; ties are half."""
    scores = np.array([s for s, _ in pairs], dtype="float32")
    truths = np.array([t for _, t in pairs])
    metric = training.AUC()
    for some in batches(scores, truths.astype("int64"), size=size):
        metric.update(*some)
    won = [
        1.0 if a > b else 0.5 if a == b else 0.0 for a in scores[truths] for b in scores[~truths]
    ]
    found = metric.compute()
    assert math.isnan(found) if not won else found == pytest.approx(np.mean(won))
