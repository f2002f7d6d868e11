"""Gradients of branches, loops and batches, and of losses whose targets have an edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml.testing.case import Array
from ember_ml.testing.gradients import GradientCase

__all__ = ["CONTROL", "LOSSES"]

_X: Final = np.array([[0.5, -1.25], [1.5, 0.75], [-0.25, 2.0]])
_W: Final = np.array([0.75, -0.5])


def _case(op: str, run: Callable[..., Any], label: str = "", *inputs: Array) -> GradientCase:
    return GradientCase(op, run, inputs or (_X, _W), label)


def _while(xp: Any, x: Any, w: Any) -> Any:
    return xp.while_loop(
        lambda carry: carry[0] < 3, lambda carry: (carry[0] + 1, xp.tanh(carry[1] * w)), (0, x)
    )[1]


def _recurrent(xp: Any, x: Any, w: Any, **options: Any) -> Any:
    """A state and a row, with `w` closed over."""

    def step(state: Any, row: Any) -> Any:
        new = xp.tanh(state * w + row)
        return new, {"y": new * row}

    last, ys = xp.scan(step, w, x, **options)
    return last, ys["y"]


CONTROL: Final[tuple[GradientCase, ...]] = (
    _case(
        "cond",
        lambda xp, x, w: xp.cond(xp.sum(x) > 0, lambda a, b: xp.sin(a) * b, xp.add, x, w),
        "true",
    ),
    _case(
        "cond",
        lambda xp, x, w: xp.cond(xp.sum(x) < 0, xp.add, lambda a: xp.sin(a) * w, x),
        "false",
    ),
    _case(
        "switch",
        lambda xp, x, w: xp.switch(1, [lambda x: x, lambda x: x * x * w, lambda x: -x], x),
    ),
    _case("while_loop", _while),
    _case(
        "fori_loop",
        lambda xp, x, w: xp.fori_loop(0, 4, lambda i, c: xp.sin(c * w) + x * i, x),
    ),
    _case("scan", _recurrent),
    _case("scan", lambda xp, x, w: _recurrent(xp, x, w, reverse=True, unroll=2), "reverse"),
    _case(
        "scan",
        lambda xp, x, w: xp.scan(lambda c, _: (xp.sin(c) * w, c), x, None, 3),
        "length",
    ),
    _case(
        "map_fn",
        lambda xp, x, w: xp.map_fn(lambda pair: pair[0] * pair[1][0] + w, (x, x * x)),
    ),
    _case("associative_scan", lambda xp, x, w: xp.associative_scan(xp.multiply, x + w)),
    _case(
        "associative_scan",
        lambda xp, x, w: xp.associative_scan(
            lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x * w), axis=0, reverse=True
        ),
        "linear",
    ),
    _case("vmap", lambda xp, x, w: xp.vmap(lambda row: xp.sin(row) * xp.sum(row * w))(x)),
    _case(
        "vmap",
        lambda xp, x, w: xp.vmap(
            lambda a, b: (a * a, xp.sum(a) * b), in_axes=(1, 0), out_axes=(1, 0)
        )(x, w),
        "axes",
    ),
    _case(
        "vmap",
        lambda xp, x, w: xp.vmap(lambda row: xp.vmap(lambda a, b: a * xp.exp(b))(row, w))(x),
        "nested",
    ),
    _case(
        "vectorize",
        lambda xp, x, w: xp.vectorize(lambda a, b: xp.sum(xp.sin(a) * b), signature="(n),(n)->()")(
            x, w
        ),
    ),
)

_LOGITS: Final = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
_CHANCES: Final = np.array([[0.2, 0.5, 0.3], [0.1, 0.6, 0.3]])


def _divergence(label: str, **options: Any) -> GradientCase:
    # At a target of zero the slope is infinite.
    return _case(
        "losses.kl_div",
        lambda xp, logs, truth: xp.losses.kl_div(logs, truth, **options),
        label,
        _LOGITS,
        _CHANCES,
    )


def _classes(name: str, label: str, **options: Any) -> GradientCase:
    def run(xp: Any, logits: Any, weights: Any, classes: Any) -> Any:
        loss = getattr(xp.losses, name)
        return loss(logits, classes, weight=weights, **options)

    classes = np.array([2, 0, 1, 2])
    scores = np.concatenate([_LOGITS, _LOGITS[:, ::-1] * 0.75 - 0.5])
    return _case(f"losses.{name}", run, label, scores, np.array([0.5, 1.5, 1.25]), classes)


def _plain(name: str, label: str, **options: Any) -> GradientCase:
    def run(xp: Any, logits: Any, classes: Any) -> Any:
        return getattr(xp.losses, name)(logits, classes, **options)

    return _case(f"losses.{name}", run, label, _LOGITS, np.array([2, 0]))


def _soft(name: str, label: str, truth: Array, **options: Any) -> GradientCase:
    def run(xp: Any, logits: Any, truth: Any) -> Any:
        return getattr(xp.losses, name)(logits, truth, **options)

    return _case(f"losses.{name}", run, label, _LOGITS, truth)


_HOT: Final = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])

LOSSES: Final[tuple[GradientCase, ...]] = (
    _plain("cross_entropy", "rows"),
    _plain("cross_entropy", "none", reduction="none"),
    _plain("cross_entropy", "smooth", label_smoothing=0.2, reduction="sum"),
    _classes("cross_entropy", "weights"),
    _classes("cross_entropy", "ignored", ignore_index=2, label_smoothing=0.1),
    _soft("cross_entropy", "soft", _CHANCES, label_smoothing=0.1),
    _soft("cross_entropy", "hot", _HOT, reduction="sum"),
    _classes("sparse_categorical_crossentropy", "weights", from_logits=True, reduction="none"),
    _classes("sparse_categorical_crossentropy", "axis", from_logits=True, axis=1, ignore_index=1),
    _soft("categorical_crossentropy", "hot", _HOT, from_logits=True),
    _soft("categorical_crossentropy", "axis", _CHANCES, from_logits=True, axis=0),
    _classes("nll", "weights", ignore_index=0),
    _divergence("mean"),
    _divergence("batch", reduction="batchmean"),
    _divergence("none", reduction="none"),
    _divergence("log", log_target=True, reduction="sum"),
)
