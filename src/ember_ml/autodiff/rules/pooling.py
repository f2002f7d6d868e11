"""Gradients of pooling and of resizing."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.autodiff.rules.table import joint_rule, rule
from ember_ml.backend.portable.resizing import nearest, shares_of
from ember_ml.backend.portable.windows import bins
from ember_ml.ops.dispatch import together
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill

__all__: list[str] = []

Matrix = np.ndarray[Any, Any]


# --- The largest value of each window ---------------------------------------------------------
# Of several largest values the first one has the gradient, as in torch.


def _pulled(g: Tensor, x: Tensor, y: Tensor, *options: Any) -> Tensor:
    return together("max_pool1d", (g, x, y), *options, kernel="max_pool_pulled")


def _picked(v: Tensor, x: Tensor, y: Tensor, *options: Any) -> Tensor:
    return together("max_pool1d", (v, x, y), *options, kernel="max_pool_picked")


rule("max_pool", lambda g, y, x, *options: _pulled(g, x, y, *options), output=True)


@joint_rule("max_pool_indices", output=True)
def _max_pool_indices(
    g: list[Tensor | None], needs: Any, y: list[Tensor], x: Tensor, *options: Any
) -> list[Tensor | None]:
    return [None if g[0] is None else _pulled(g[0], x, y[0], *options)]


@joint_rule("max_pool_pulled")
def _max_pool_pulled(
    v: Tensor, needs: Any, _: Any, g: Tensor, x: Tensor, y: Tensor, *options: Any
) -> list[Tensor | None]:
    return [_picked(v, x, y, *options) if needs[0] else None, None, None]


@joint_rule("max_pool_picked")
def _max_pool_picked(
    g: Tensor, needs: Any, _: Any, v: Tensor, x: Tensor, y: Tensor, *options: Any
) -> list[Tensor | None]:
    return [_pulled(g, x, y, *options) if needs[0] else None, None, None]


def _adaptive_max(g: Tensor, y: Any, x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    spec = x._spec
    found = spec.backend.entry(spec, "adaptive_max_places")[0](x.native, sizes)
    places = convert.wrap(found, spec.backend)
    lead, area = x.shape[:2], math.prod(x.shape[2:])
    flat = ops.reshape(g, (*lead, math.prod(sizes)))
    return ops.reshape(ops.scatter_add(flat, places, area, 2), x.shape)


rule("adaptive_max_pool", _adaptive_max)

# --- The mean of each window ------------------------------------------------------------------

rule(
    "avg_pool",
    lambda g, y, x, *options: together(
        "avg_pool1d", (g,), x.shape[2:], *options, kernel="avg_pool_pulled"
    ),
    inputs=False,
)
rule(
    "avg_pool_pulled",
    lambda v, y, g, spatial, *options: together("avg_pool1d", (v,), *options, kernel="avg_pool"),
    inputs=False,
)


def _adaptive_avg(g: Tensor, y: Any, x: Any, sizes: tuple[int, ...]) -> Tensor:
    for axis, (side, size) in enumerate(zip(x.shape[2:], sizes, strict=True), 2):
        if side % size:
            g = _through(g, _means(side, size), axis)
        elif side != size:
            g = ops.repeat(g / (side // size), side // size, axis=axis)
    return g


rule("adaptive_avg_pool", _adaptive_avg, inputs=False)


# --- Another size -----------------------------------------------------------------------------


def _resample(
    g: Tensor, y: Any, x: Any, sizes: tuple[int, ...], method: str, align: bool
) -> Tensor:
    for axis, (side, size) in enumerate(zip(x.shape[2:], sizes, strict=True), 2):
        if side == size:
            continue
        if method == "nearest" and size % side == 0:
            parts = (*g.shape[:axis], side, size // side, *g.shape[axis + 1 :])
            g = ops.sum(ops.reshape(g, parts), axis=axis + 1)
        else:
            g = _through(g, _shares(side, size, method, align), axis)
    return g


rule("resample", _resample, inputs=False)


def _through(g: Tensor, matrix: Matrix, axis: int) -> Tensor:
    """An axis by way of a matrix (before, after)."""
    spec = g._spec
    table = fill(spec.backend.from_numpy(matrix.astype(spec.dtype.numpy), spec, True), spec)
    if axis == g.ndim - 1:
        return ops.matmul(g, table)
    return ops.moveaxis(ops.matmul(ops.moveaxis(g, axis, -1), table), -1, axis)


@lru_cache(maxsize=64)
def _means(side: int, size: int) -> Matrix:
    indices, inside, counts = bins(side, size)
    made = np.zeros((size, side))
    np.add.at(made, (np.arange(size)[:, None], indices), inside / counts[:, None])
    return made


@lru_cache(maxsize=64)
def _shares(side: int, size: int, method: str, align: bool) -> Matrix:
    made = np.zeros((size, side))
    if method == "nearest":
        made[np.arange(size), nearest(side, size)] = 1
    else:
        indices, shares = shares_of(side, size, method, align)
        np.add.at(made, (np.arange(size)[:, None], indices), shares)
    return made
