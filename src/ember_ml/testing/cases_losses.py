"""Losses: closed forms in float64. The tests of the repository compare with torch too."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import (
    AxisError,
    DomainError,
    DTypeError,
    OutOfBoundsError,
    ShapeError,
)
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["LOSSES", "MISTAKES"]

_FLOATS: Final = tuple(d for d in dtypes.ALL if d.is_floating)
_WIDE: Final = (dtypes.float32, dtypes.float64)
_SHAPE: Final = (4, 3)
_CLASSES: Final = np.array([2, 0, 1, 1])
_SOME: Final = np.array([2, -100, 1, -100])
_WEIGHTS: Final = np.array([0.5, 1.0, 2.0], "float32")


def _of(
    count: int, *shapes: tuple[int, ...], low: float = -2, high: float = 2
) -> Callable[..., list[Inputs]]:
    """Runs with so many inputs of each shape."""
    return lambda dtype: [
        tuple(sample(f"loss{i}{s}", s, dtype, low, high) for i in range(count)) for s in shapes
    ]


def _with_truths(low: float, high: float, *, signed: bool = False) -> Callable[..., list[Inputs]]:
    """Predictions between two bounds, and targets of 0 or 1, or of -1 or 1, in the same dtype."""

    def make(dtype: DType) -> list[Inputs]:
        score = sample("score", _SHAPE, dtype, low, high)
        truth = sample("truth", _SHAPE, dtypes.bool, 0, 1)
        sides = np.where(truth, 1, -1 if signed and dtype.is_signed else 0)
        return [(score, sides.astype(dtype.numpy))]

    return make


def _distributions(dtype: DType) -> list[Inputs]:
    """Scores and rows of probabilities; integers have only those of one class."""
    score = sample("logits", _SHAPE, dtype, -2, 2)
    rows = np.array([[0, 0, 1], [1, 0, 0], [0.25, 0.25, 0.5], [0, 0.5, 0.5]])
    return [(score, (rows if dtype.is_floating else rows >= 0.5).astype(dtype.numpy))]


def _case(
    name: str,
    run: Callable[..., Any],
    expect: Callable[..., Any],
    inputs: Callable[..., list[Inputs]],
    label: str = "",
    over: tuple[DType, ...] | None = None,
    ulps: float = 32,
) -> Case:
    op = f"losses.{name}"
    return Case(op, run, expect, inputs, over or accepted(op), law(op), ulps, label)


def _pair(
    name: str,
    formula: Callable[..., Any],
    inputs: Callable[..., list[Inputs]],
    label: str = "",
    over: tuple[DType, ...] | None = None,
    ulps: float = 32,
    **options: Any,
) -> list[Case]:
    """A loss by its formula for each element: all reductions of it."""

    def run(reduction: str) -> Callable[..., Any]:
        return lambda xp, *xs: getattr(xp.losses, name)(*xs, reduction=reduction, **options)

    def expect(reduce: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *xs: reduce(formula(*(x.astype(float) for x in xs)))

    first = _case(name, run("mean"), expect(np.mean), inputs, label, over, ulps)
    if label:
        return [first]
    return [
        first,
        _case(name, run("sum"), expect(np.sum), inputs, "sum", _WIDE, ulps),
        _case(name, run("none"), expect(np.asarray), inputs, "none", _FLOATS, ulps),
    ]


# --- Formulas -------------------------------------------------------------------------------------


def _huber(a: Array, b: Array, delta: float = 1.0) -> Array:
    e = np.abs(a - b)
    return np.asarray(np.where(e <= delta, 0.5 * e**2, delta * (e - 0.5 * delta)))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _binary(p: Array, t: Array) -> Array:
    return np.asarray(-t * np.log(p) - (1 - t) * np.log(1 - p))


def _focal(x: Array, t: Array) -> Array:
    p = _sigmoid(x)
    wrong = t * (1 - p) + (1 - t) * p
    return np.asarray((0.25 * t + 0.75 * (1 - t)) * wrong**2 * _binary(p, t))


def _log_softmax(x: Array, axis: int = -1) -> Array:
    return np.asarray(x - np.log(np.sum(np.exp(x), axis, keepdims=True)))


def _kl(a: Array, t: Array) -> Array:
    return np.asarray(np.where(t == 0, 0.0, t * (np.log(np.where(t == 0, 1, t)) - a)))


def _gaussian(a: Array, b: Array, v: Array) -> Array:
    v = np.maximum(v, 1e-6)
    return np.asarray(0.5 * (np.log(v) + (a - b) ** 2 / v))


def _norm(x: Array, p: float = 2.0) -> Array:
    return np.asarray(np.sum(np.abs(x + 1e-6) ** p, -1) ** (1 / p))


def _triplet(a: Array, b: Array, c: Array) -> Array:
    return np.asarray(np.maximum(_norm(a - b) - _norm(a - c) + 1, 0))


def _swapped(a: Array, b: Array, c: Array) -> Array:
    far = np.minimum(_norm(a - c, 3.0), _norm(b - c, 3.0))
    return np.asarray(np.maximum(_norm(a - b, 3.0) - far + 2, 0))


def _cosine(a: Array, b: Array) -> Array:
    a, b = a.astype(float), b.astype(float)
    lengths = [np.maximum(np.linalg.norm(x, axis=-1), 1e-8) for x in (a, b)]
    return np.asarray(np.sum(a * b, -1) / lengths[0] / lengths[1])


_DIFFERENT: Final = _of(2, _SHAPE)
_VECTORS: Final = _of(2, _SHAPE, low=1, high=3)

_VALUES: Final = (
    *_pair("mse", lambda a, b: (a - b) ** 2, _of(2, _SHAPE, (), (0, 3))),
    *_pair("mae", lambda a, b: np.abs(a - b), _of(2, _SHAPE, ())),
    *_pair("huber", _huber, _DIFFERENT),
    *_pair("huber", lambda a, b: _huber(a, b, 0.5), _DIFFERENT, "delta", _FLOATS, delta=0.5),
    *_pair("smooth_l1", _huber, _DIFFERENT),
    *_pair("smooth_l1", lambda a, b: _huber(a, b, 0.5) / 0.5, _DIFFERENT, "beta", _FLOATS,
           beta=0.5),
    *_pair("smooth_l1", lambda a, b: np.abs(a - b), _DIFFERENT, "sharp", _WIDE, beta=0.0),
    *_pair("log_cosh", lambda a, b: np.log(np.cosh(a - b)), _DIFFERENT),
    *_pair("poisson_nll", lambda a, b: np.exp(a) - b * a, _of(2, _SHAPE, low=0, high=2)),
    *_pair("poisson_nll", lambda a, b: a - b * np.log(a + 1e-8), _of(2, _SHAPE, low=1, high=3),
           "rates", _WIDE, log_input=False),
    *_pair("poisson_nll",
           lambda a, b: np.exp(a) - b * a + np.where(
               b > 1, b * np.log(b) - b + 0.5 * np.log(2 * np.pi * b), 0),
           _of(2, _SHAPE, low=0.1, high=3), "full", _WIDE, full=True),
    *_pair("gaussian_nll", _gaussian, _of(3, _SHAPE, low=1, high=4)),
    *_pair("gaussian_nll", lambda a, b, v: _gaussian(a, b, v) + 0.5 * np.log(2 * np.pi),
           _of(3, _SHAPE, low=1, high=4), "full", _WIDE, full=True),
)  # fmt: skip

_MARGINS: Final = (
    *_pair("hinge", lambda a, t: np.maximum(1 - a * t, 0), _with_truths(-2, 2, signed=True)),
    *_pair("squared_hinge", lambda a, t: np.maximum(1 - a * t, 0) ** 2,
           _with_truths(-2, 2, signed=True)),
    *_pair("margin_ranking", lambda a, b, t: np.maximum(-t * (a - b), 0), _of(3, _SHAPE)),
    *_pair("margin_ranking", lambda a, b, t: np.maximum(-t * (a - b) + 0.5, 0), _of(3, _SHAPE),
           "margin", _WIDE, margin=0.5),
    *_pair("triplet", _triplet, _of(3, _SHAPE)),
    *_pair("triplet", _swapped, _of(3, _SHAPE), "swap", _WIDE, 64, p=3.0, swap=True, margin=2.0),
    *_pair("cosine", lambda a, b: 1 - _cosine(a, b), _VECTORS),
    _case("cosine_similarity", lambda xp, a, b: xp.losses.cosine_similarity(a, b), _cosine,
          _VECTORS),
    _case("cosine_similarity", lambda xp, a, b: xp.losses.cosine_similarity(a, b, axis=0),
          lambda a, b: _cosine(a.T, b.T), _VECTORS, "axis", _WIDE),
    _case("cosine_similarity", lambda xp, a, b: xp.losses.cosine_similarity(a * 0.0, b),
          lambda a, b: np.zeros(len(a)), _VECTORS, "zero", _WIDE),
)  # fmt: skip


def _smoothed(x: Array, t: Array) -> Array:
    t = 0.8 * t + 0.2 / 3
    return np.asarray(-np.sum(t * _log_softmax(x) * _WEIGHTS, -1))


def _nll(logs: Array, classes: Array = _CLASSES) -> Array:
    kept = classes >= 0
    safe = np.where(kept, classes, 0)
    return np.where(kept, -np.take_along_axis(logs, safe[:, None], -1)[:, 0], 0.0)


def _weighted(x: Array) -> Any:
    """Class numbers with weights, smoothing and some left out."""
    logs, kept = _log_softmax(x.astype(float)), _SOME >= 0
    weights = np.where(kept, _WEIGHTS[np.where(kept, _SOME, 0)], 0.0)
    even = np.where(kept, -np.sum(logs * _WEIGHTS, -1), 0.0)
    return np.sum(0.9 * _nll(logs, _SOME) * weights + 0.1 / 3 * even) / np.sum(weights)


def _volume(x: Array) -> Any:
    logs = _log_softmax(x.astype(float), 1)
    return np.mean([-logs[i, (i + j) % 3, j] for i in range(2) for j in range(2)])


_LOGITS: Final = _of(1, _SHAPE)
_LOGS: Final = {"from_logits": True}

_CLASSIFICATION: Final = (
    *_pair("binary_crossentropy", lambda x, t: _binary(_sigmoid(x), t), _with_truths(-2, 2), "",
           None, 64, from_logits=True),
    *_pair("binary_crossentropy", _binary, _with_truths(0.1, 0.9), "probabilities", _FLOATS, 64),
    *_pair("binary_crossentropy",
           lambda x, t: (0.2 * t + 0.4) * -np.log(_sigmoid(x)) * 3
           + (0.6 - 0.2 * t) * -np.log(1 - _sigmoid(x)),
           _with_truths(-2, 2), "weights", _WIDE, 64, from_logits=True, label_smoothing=0.8,
           pos_weight=3.0),
    *_pair("binary_crossentropy", lambda x, t: _binary(_sigmoid(x), t) * [0.5, 1, 2],
           _with_truths(-2, 2), "weight", _WIDE, 64, from_logits=True, weight=[0.5, 1.0, 2.0]),
    *_pair("focal", _focal, _with_truths(-2, 2), "", None, 64, from_logits=True),
    *_pair("categorical_crossentropy", lambda x, t: -np.sum(t * _log_softmax(x), -1),
           _distributions, "", None, 64, from_logits=True),
    *_pair("categorical_crossentropy", _smoothed, _distributions, "smoothed", _WIDE, 64,
           from_logits=True, label_smoothing=0.2, weight=[0.5, 1.0, 2.0]),
    *_pair("categorical_crossentropy", lambda p, t: -np.sum(t * np.log(p), 0),
           lambda dtype: [(sample("p", _SHAPE, dtype, 0.1, 1), sample("t", _SHAPE, dtype, 0, 1))],
           "probabilities", _FLOATS, 64, axis=0),
    *(
        _case(name, lambda xp, x, name=name, options=options: getattr(xp.losses, name)(
            x, _CLASSES, **options), lambda x: np.mean(_nll(_log_softmax(x.astype(float)))),
            _LOGITS, ulps=64)
        for name, options in (("sparse_categorical_crossentropy", _LOGS), ("cross_entropy", {}))
    ),
    _case("sparse_categorical_crossentropy",
          lambda xp, x: xp.losses.sparse_categorical_crossentropy(x, _CLASSES, reduction="none"),
          lambda x: _nll(np.log(x)), _of(1, _SHAPE, low=0.1, high=0.9), "probabilities", _FLOATS,
          64),
    _case("sparse_categorical_crossentropy",
          lambda xp, x: xp.losses.sparse_categorical_crossentropy(
              x, _SOME, ignore_index=-100, label_smoothing=0.1, weight=_WEIGHTS, **_LOGS),
          _weighted, _LOGITS, "weights", _WIDE, 64),
    _case("cross_entropy", lambda xp, x: xp.losses.cross_entropy(
        x, _SOME, label_smoothing=0.1, weight=_WEIGHTS), _weighted, _LOGITS, "weights", _WIDE, 64),
    _case("cross_entropy", lambda xp, x: xp.losses.cross_entropy(x, [[0, 1], [1, 2]]), _volume,
          _of(1, (2, 3, 2)), "volume", _WIDE, 64),
    _case("cross_entropy", lambda xp, x, t: xp.losses.cross_entropy(x, t, reduction="sum"),
          lambda x, t: -np.sum(t * _log_softmax(x)), _distributions, "soft", _FLOATS, 64),
    _case("nll", lambda xp, x: xp.losses.nll(x, _CLASSES),
          lambda x: np.mean(_nll(x.astype(float))), _LOGITS),
    _case("nll", lambda xp, x: xp.losses.nll(x, _SOME, reduction="none"),
          lambda x: _nll(x, _SOME), _LOGITS, "some", _WIDE),
    *_pair("kl_div", _kl, _distributions),
    *_pair("kl_div", lambda a, b: np.exp(b) * (b - a), _DIFFERENT, "log", _WIDE, log_target=True),
    _case("kl_div", lambda xp, a, t: xp.losses.kl_div(a, t, reduction="batchmean"),
          lambda a, t: np.sum(_kl(a, t)) / 4, _distributions, "batchmean", _WIDE),
)  # fmt: skip


# --- CTC ------------------------------------------------------------------------------------------


def _alignments(logs: Array, labels: list[int]) -> float:
    """The definition: the probability of every path that reads as the labels, added up."""
    total = 0.0
    for path in product(range(logs.shape[1]), repeat=len(logs)):
        merged = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
        if [c for c in merged if c] == labels:
            total += float(np.exp(sum(logs[t, c] for t, c in enumerate(path))))
    return float(-np.log(total))


def _spoken(dtype: DType) -> list[Inputs]:
    chances = np.exp(sample("spoken", (4, 2, 3), dtypes.float64, -2, 2))
    logs = np.log(chances / chances.sum(-1, keepdims=True))
    return (
        [(logs.astype(dtype.numpy),)]
        if dtype.is_floating
        else [(np.zeros((4, 2, 3), dtype.numpy),)]
    )


def _ctc(x: Array) -> Array:
    x = x.astype(float)
    return np.array([_alignments(x[:, 0], [1, 1]), _alignments(x[:3, 1], [2])])


_ALIGNED: Final = ([[1, 1], [2, 0]], [4, 3], [2, 1])
_SEQUENCES: Final = (
    _case("ctc", lambda xp, x: xp.losses.ctc(x, *_ALIGNED, reduction="none"), _ctc, _spoken,
          ulps=64),
    _case("ctc", lambda xp, x: xp.losses.ctc(x, *_ALIGNED), lambda x: np.mean(_ctc(x) / [2, 1]),
          _spoken, "mean", _WIDE, 64),
    _case("ctc", lambda xp, x: xp.losses.ctc(x, [1, 1, 2], *_ALIGNED[1:], reduction="sum"),
          lambda x: np.sum(_ctc(x)), _spoken, "joined", _WIDE, 64),
)  # fmt: skip

LOSSES: Final[tuple[Case, ...]] = (*_VALUES, *_MARGINS, *_CLASSIFICATION, *_SEQUENCES)


# --- Mistakes -------------------------------------------------------------------------------------


def _mistake(label: str, error: Any, run: Callable[[Any], Any], *facts: str) -> Mistake:
    return Mistake(label, error, run, facts)


MISTAKES: Final[tuple[Mistake, ...]] = (
    _mistake("mse-shapes", ShapeError, lambda xp: xp.losses.mse(xp.ones((2, 1)), xp.ones((2,))),
             "ops.losses.mse", "(2, 1)", "(2,)"),
    _mistake("mse-reduction", DomainError,
             lambda xp: xp.losses.mse(xp.ones((2,)), xp.ones((2,)), reduction="average"),
             "average", "mean", "sum", "none"),
    _mistake("mse-mixed", DTypeError, lambda xp: xp.losses.mse(
        xp.ones((2,), dtype="float16"), xp.ones((2,), dtype="float32"))),
    _mistake("huber-delta", DomainError,
             lambda xp: xp.losses.huber(xp.ones((2,)), xp.ones((2,)), delta=0.0), "delta"),
    _mistake("smooth-l1-beta", DomainError,
             lambda xp: xp.losses.smooth_l1(xp.ones((2,)), xp.ones((2,)), beta=-1.0), "beta"),
    _mistake("gaussian-variance", DomainError, lambda xp: xp.losses.gaussian_nll(
        xp.ones((2,)), xp.ones((2,)), xp.asarray([1.0, -1.0])), "negative"),
    _mistake("gaussian-shape", ShapeError, lambda xp: xp.losses.gaussian_nll(
        xp.ones((2,)), xp.ones((2,)), xp.ones((2, 2))), "(2, 2)"),
    _mistake("bce-smoothing", DomainError, lambda xp: xp.losses.binary_crossentropy(
        xp.ones((2,)), xp.ones((2,)), label_smoothing=1.5), "label_smoothing", "1.5"),
    _mistake("bce-weight", ShapeError, lambda xp: xp.losses.binary_crossentropy(
        xp.ones((2,)), xp.ones((2,)), weight=xp.ones((3, 2))), "(3, 2)"),
    _mistake("focal-gamma", DomainError,
             lambda xp: xp.losses.focal(xp.ones((2,)), xp.ones((2,)), gamma=-1.0), "gamma"),
    _mistake("focal-alpha", DomainError,
             lambda xp: xp.losses.focal(xp.ones((2,)), xp.ones((2,)), alpha=2.0), "alpha"),
    _mistake("classes-beyond", OutOfBoundsError,
             lambda xp: xp.losses.cross_entropy(xp.ones((2, 3)), [0, 3]), "class 3", "0 to 2"),
    _mistake("classes-before", OutOfBoundsError,
             lambda xp: xp.losses.sparse_categorical_crossentropy(xp.ones((2, 3)), [0, -1]), "-1"),
    _mistake("classes-floating", DTypeError,
             lambda xp: xp.losses.nll(xp.ones((2, 3)), xp.ones((2,))), "float32"),
    _mistake("classes-shape", ShapeError,
             lambda xp: xp.losses.cross_entropy(xp.ones((2, 3)), [[0], [1]]), "(2, 1)", "(2,)"),
    _mistake("classes-weights", ShapeError,
             lambda xp: xp.losses.nll(xp.ones((2, 3)), [0, 1], weight=xp.ones((2,))), "3 classes"),
    _mistake("classes-0d", ShapeError, lambda xp: xp.losses.cross_entropy(xp.ones(()), 0)),
    _mistake("classes-axis", AxisError, lambda xp: xp.losses.categorical_crossentropy(
        xp.ones((2, 3)), xp.ones((2, 3)), axis=2), "axis 2"),
    _mistake("soft-shape", ShapeError,
             lambda xp: xp.losses.cross_entropy(xp.ones((2, 3)), xp.ones((2,))), "(2, 3)", "(2,)"),
    _mistake("kl-reduction", DomainError, lambda xp: xp.losses.kl_div(
        xp.ones((2,)), xp.ones((2,)), reduction="batch"), "batchmean"),
    _mistake("cosine-0d", ShapeError, lambda xp: xp.losses.cosine(xp.ones(()), xp.ones(()))),
    _mistake("cosine-axis", AxisError,
             lambda xp: xp.losses.cosine_similarity(xp.ones((2,)), xp.ones((2,)), axis=1)),
    _mistake("triplet-order", DomainError,
             lambda xp: xp.losses.triplet(*[xp.ones((2,))] * 3, p=0.0), "p=0.0"),
    _mistake("triplet-shapes", ShapeError, lambda xp: xp.losses.triplet(
        xp.ones((2, 2)), xp.ones((2, 2)), xp.ones((3, 2))), "(3, 2)"),
    _mistake("ctc-shape", ShapeError, lambda xp: xp.losses.ctc(xp.ones((4,)), [1], [4], [1])),
    _mistake("ctc-blank", OutOfBoundsError,
             lambda xp: xp.losses.ctc(xp.ones((4, 1, 2)), [[1]], [4], [1], blank=2), "blank=2"),
    _mistake("ctc-label", OutOfBoundsError,
             lambda xp: xp.losses.ctc(xp.ones((4, 1, 2)), [[2]], [4], [1]), "class 2"),
    _mistake("ctc-input-length", DomainError,
             lambda xp: xp.losses.ctc(xp.ones((4, 1, 2)), [[1]], [5], [1]), "[5]", "at most 4"),
    _mistake("ctc-target-length", ShapeError,
             lambda xp: xp.losses.ctc(xp.ones((4, 1, 2)), [[1]], [4], [2]), "length 2"),
    _mistake("ctc-batch", ShapeError,
             lambda xp: xp.losses.ctc(xp.ones((4, 2, 2)), [[1], [1]], [4], [1, 1]), "batch of 2"),
    _mistake("ctc-joined", ShapeError,
             lambda xp: xp.losses.ctc(xp.ones((4, 2, 2)), [1], [4, 4], [1, 1]), "1 labels"),
    _mistake("ctc-floating", DTypeError,
             lambda xp: xp.losses.ctc(xp.ones((4, 1, 2)), [[1.0]], [4], [1]), "targets"),
)  # fmt: skip
