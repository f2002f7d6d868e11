"""Distributions that take trials, by array ops alone: from a key, also in compiled functions.

Each number has several trials at once, of which the first that succeeds counts. That all of them
fail is less likely than 2**-32, which no sample tells.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ember_ml import dtypes
from ember_ml.backend.contract import Spec
from ember_ml.ops import elementwise as el
from ember_ml.ops import indexing, manipulation, reduction, searching, special
from ember_ml.ops.random.arrays import ArraySource, Shape
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill

__all__ = ["binomial", "counting", "gamma", "log_gamma", "poisson", "tensor_of"]

# At the worst parameters a trial fails in 0.049 of all cases for gamma numbers, and in 0.25 and
# 0.29 for counts.
_GAMMA_TRIALS: Final = 8
_COUNT_TRIALS: Final = 18
# Up to here counts are found by adding up their probabilities; beyond so many terms lies less
# than 2**-32 of them.
_FEW: Final = 10.0
_TERMS: Final = 36


def tensor_of(value: Tensor | float, spec: Spec) -> Tensor:
    """A parameter as a tensor of a floating spec, without its record."""
    if isinstance(value, Tensor):
        return convert.cast(value.detach(), spec.dtype)
    return fill(spec.scalar(value), spec)


def counting(spec: Spec) -> Spec:
    """In which counts are drawn: float64 tells all of them apart, but some devices have none."""
    wide = spec.backend.supports(dtypes.float64, spec.device)
    return spec.with_dtype(dtypes.float64 if wide else dtypes.float32)


def _first(succeeds: Tensor, values: Tensor) -> Tensor:
    """The value of the first trial that succeeds; trials lie along the first axis."""
    place = searching.argmax(convert.cast(succeeds, dtypes.int32), axis=0, keepdims=True)
    return manipulation.squeeze(indexing.take_along_axis(values, place, axis=0), axis=0)


def gamma(source: ArraySource, alpha: Tensor, shape: Shape, spec: Spec) -> Tensor:
    """Gamma numbers of scale 1."""
    size, log_rest = _gamma(source, alpha, shape, spec)
    return el.multiply(size, el.exp(log_rest))


def log_gamma(source: ArraySource, alpha: Tensor, shape: Shape, spec: Spec) -> Tensor:
    """Logarithms of gamma numbers, since those of small concentration are below all others."""
    size, log_rest = _gamma(source, alpha, shape, spec)
    return el.add(log_rest, el.log(size))


def _gamma(source: ArraySource, alpha: Tensor, shape: Shape, spec: Spec) -> tuple[Tensor, Tensor]:
    """About how large gamma numbers are, and the logarithms of what is to be multiplied with it:
    of large ones, whole logarithms would lose the digits in which they differ.

    By Marsaglia and Tsang's method (2000).
    """
    boosted = searching.where(el.less(alpha, 1.0), el.add(alpha, 1.0), alpha)
    d = el.subtract(boosted, 1 / 3)
    c = el.divide(1 / 3, el.sqrt(d))
    trials = (_GAMMA_TRIALS, *shape)
    x = source.normal(trials, spec)
    root = el.multiply(c, x)
    inside = el.greater(root, -1.0)
    log_v = el.multiply(el.log1p(searching.where(inside, root, 0.0)), 3.0)
    # v - 1, where v is (1 + root)**3.
    above = el.multiply(root, el.add(el.multiply(root, el.add(root, 3.0)), 3.0))
    limit = el.add(el.multiply(el.square(x), 0.5), el.multiply(d, el.subtract(log_v, above)))
    succeeds = el.logical_and(inside, el.less(el.log(source.fine(trials, spec)), limit))
    made = _first(succeeds, log_v)
    boost = el.divide(el.log(source.fine(shape, spec)), alpha)
    return d, searching.where(el.less(alpha, 1.0), el.add(made, boost), made)


def poisson(source: ArraySource, rate: Tensor, shape: Shape, spec: Spec) -> Tensor:
    """Poisson counts as floating numbers: few by their probabilities, many by Hörmann's PTRS."""
    few = el.minimum(rate, _FEW)
    ratios = el.divide(few, _steps(shape, spec))
    count = _few(source.fine(shape, spec), el.exp(el.negative(few)), ratios)

    mu = el.maximum(rate, _FEW)
    b = el.add(el.multiply(el.sqrt(mu), 2.53), 0.931)
    a = el.subtract(el.multiply(b, 0.02483), 0.059)
    inverse = el.add(el.divide(1.1328, el.subtract(b, 3.4)), 1.1239)
    quick = el.subtract(0.9277, el.divide(3.6224, el.subtract(b, 2.0)))
    u, v, us = _trial(source, shape, spec)
    k_many = el.floor(el.add(el.multiply(_slope(a, b, us), u), el.add(mu, 0.43)))
    inside = el.greater_equal(k_many, 0.0)
    steep = el.logical_and(el.less(us, 0.013), el.greater(v, us))
    known = searching.where(inside, k_many, 0.0)
    left = el.subtract(el.log(el.multiply(v, inverse)), _log_hat(a, b, us))
    right = el.subtract(
        el.subtract(el.multiply(known, el.log(mu)), mu), special.lgamma(el.add(known, 1.0))
    )
    slow = el.logical_and(el.logical_and(inside, el.logical_not(steep)), el.less_equal(left, right))
    many = _first(el.logical_or(_at_once(us, v, quick), slow), known)
    return searching.where(el.less(rate, _FEW), count, many)


def binomial(source: ArraySource, n: Tensor, p: Tensor, shape: Shape, spec: Spec) -> Tensor:
    """Binomial counts as floating numbers: few by their probabilities, many by Hörmann's BTRS."""
    flips = el.greater(p, 0.5)
    p = searching.where(flips, el.subtract(1.0, p), p)
    q = el.subtract(1.0, p)
    expected = el.multiply(n, p)
    is_few = el.less(expected, _FEW)

    # Of the others it is not asked, and would overflow.
    n_few = searching.where(is_few, n, 0.0)
    steps = _steps(shape, spec)
    left_over = el.maximum(el.subtract(n_few, el.subtract(steps, 1.0)), 0.0)
    ratios = el.multiply(el.divide(left_over, steps), el.divide(p, q))
    none = el.exp(el.multiply(n_few, el.log1p(el.negative(p))))
    count = el.minimum(_few(source.fine(shape, spec), none, ratios), n)

    # Where few are expected, some parameters for which the steps below are defined.
    n_many = searching.where(is_few, 100.0, n)
    p_many = searching.where(is_few, 0.5, p)
    q_many = el.subtract(1.0, p_many)
    mean = el.multiply(n_many, p_many)
    spread = el.sqrt(el.multiply(mean, q_many))
    b = el.add(el.multiply(spread, 2.53), 1.15)
    a = el.add(el.subtract(el.multiply(b, 0.0248), 0.0873), el.multiply(p_many, 0.01))
    quick = el.subtract(0.92, el.divide(4.2, b))
    alpha = el.multiply(el.add(el.divide(5.1, b), 2.83), spread)
    mode = el.floor(el.multiply(el.add(n_many, 1.0), p_many))
    u, v, us = _trial(source, shape, spec)
    k_many = el.floor(el.add(el.multiply(_slope(a, b, us), u), el.add(mean, 0.5)))
    inside = el.logical_and(el.greater_equal(k_many, 0.0), el.less_equal(k_many, n_many))
    known = searching.where(inside, k_many, mode)
    left = el.subtract(el.log(el.multiply(v, alpha)), _log_hat(a, b, us))
    right = el.add(
        el.subtract(_log_ways(n_many, mode), _log_ways(n_many, known)),
        el.multiply(el.subtract(known, mode), el.log(el.divide(p_many, q_many))),
    )
    slow = el.logical_and(inside, el.less_equal(left, right))
    many = _first(el.logical_or(el.logical_and(inside, _at_once(us, v, quick)), slow), known)
    found = searching.where(is_few, count, many)
    return searching.where(flips, el.subtract(n, found), found)


def _steps(shape: Shape, spec: Spec) -> Tensor:
    """1, 2, 3 and so on along a first axis, before those of the numbers that are drawn."""
    numbers = np.arange(1, _TERMS, dtype=spec.dtype.numpy).reshape(-1, *(1,) * len(shape))
    return fill(spec.backend.from_numpy(numbers, spec, copy=True), spec)


def _few(level: Tensor, none: Tensor, ratios: Tensor) -> Tensor:
    """The count at a level between 0 and 1: how many sums of the first probabilities lie below.

    `none` is the probability of no event, and `ratios` are those of each count to the one before.
    """
    terms = el.multiply(none, reduction.cumulative_prod(ratios, axis=0))
    sums = el.add(none, reduction.cumulative_sum(terms, axis=0))
    below = reduction.sum(el.greater(level, sums), axis=0)
    return convert.cast(
        el.add(below, convert.cast(el.greater(level, none), below.dtype)), level.dtype
    )


def _trial(source: ArraySource, shape: Shape, spec: Spec) -> tuple[Tensor, Tensor, Tensor]:
    """A number around zero, another up to one, and the distance of the first from its bounds."""
    trials = (_COUNT_TRIALS, *shape)
    u = el.subtract(source.fine(trials, spec), 0.5)
    return u, source.fine(trials, spec), el.subtract(0.5, el.abs(u))


def _slope(a: Tensor, b: Tensor, us: Tensor) -> Tensor:
    return el.add(el.divide(el.multiply(a, 2.0), us), b)


def _log_hat(a: Tensor, b: Tensor, us: Tensor) -> Tensor:
    return el.log(el.add(el.divide(a, el.square(us)), b))


def _at_once(us: Tensor, v: Tensor, quick: Tensor) -> Tensor:
    return el.logical_and(el.greater_equal(us, 0.07), el.less_equal(v, quick))


def _log_ways(n: Tensor, k: Tensor) -> Tensor:
    """The logarithm of k! (n - k)!."""
    return el.add(special.lgamma(el.add(k, 1.0)), special.lgamma(el.add(el.subtract(n, k), 1.0)))
