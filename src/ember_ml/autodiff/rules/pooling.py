"""Gradients of pooling and of resizing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.autodiff.rules.table import joint_rule, rule
from ember_ml.backend.portable.resizing import nearest, shares_of
from ember_ml.backend.portable.windows import bins
from ember_ml.ops.dispatch import together
from ember_ml.tensor.core import Tensor, fill

__all__: list[str] = []

Matrix = np.ndarray[Any, Any]


# --- The largest value of each window ---------------------------------------------------------
# Of several largest values the first one has the gradient, as in torch.


def _largest(name: str, op: str) -> None:
    """The rules of a pool, and of its two gradients, which are each other's transposes."""

    def pulled(g: Tensor, x: Tensor, y: Tensor, *options: Any) -> Tensor:
        return together(op, (g, x, y), *options, kernel=f"{name}_pulled")

    def picked(v: Tensor, x: Tensor, y: Tensor, *options: Any) -> Tensor:
        return together(op, (v, x, y), *options, kernel=f"{name}_picked")

    rule(name, lambda g, y, x, *options: pulled(g, x, y, *options), output=True)
    # The places of the largest values are constant between the points at which they change.
    joint_rule(f"{name}_pulled")(
        lambda v, needs, _, g, x, y, *options: (picked(v, x, y, *options), None, None)
    )
    joint_rule(f"{name}_picked")(
        lambda g, needs, _, v, x, y, *options: (pulled(g, x, y, *options), None, None)
    )
    if name == "max_pool":
        joint_rule("max_pool_indices", output=True)(
            lambda g, needs, y, x, *options: (
                None if g[0] is None else pulled(g[0], x, y[0], *options),
            )
        )


_largest("max_pool", "max_pool1d")
_largest("adaptive_max_pool", "adaptive_max_pool1d")

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
