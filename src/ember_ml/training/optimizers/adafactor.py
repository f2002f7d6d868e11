"""Adafactor: second moments in the memory of their rows and columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ember_ml import ops
from ember_ml.tensor.core import Tensor
from ember_ml.training.optimizers.base import Optimizer, require
from ember_ml.training.schedules import Rate

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Steps over the root of mean squares that are kept for rows and columns only.

    For a matrix, `r` and `c` are running means of g² over its rows and columns, with
    `1 - t**beta2_decay` for beta, and the squares are taken as `r c / mean(r)`; a vector keeps all
    of them. The step has root mean square at most `d`, and is scaled by `min(lr, 1/√t)` and by
    that of p, at least `eps[1]` (Shazeer and Stern, 2018). `eps[0]` is the dtype's where None.

    >>> from ember_ml import nn
    >>> from ember_ml.training import Adafactor
    >>> model = nn.Linear(1000, 500)
    >>> opt = Adafactor(model)
    >>> sum(x.size for state in opt.state_dict()["state"].values() for x in state.values())
    2002
    """

    def __init__(
        self,
        parameters: Any,
        lr: Rate = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            parameters,
            lr,
            beta2_decay=beta2_decay,
            eps=eps,
            d=d,
            weight_decay=weight_decay,
            maximize=maximize,
        )

    def _check(self, options: Mapping[str, Any]) -> None:
        decay, eps, d = options["beta2_decay"], options["eps"], options["d"]
        require("Adafactor", "beta2_decay", decay, decay <= 0, "no positive number")
        good = len(eps) == 2 and (eps[0] is None or eps[0] >= 0) and eps[1] >= 0
        require("Adafactor", "eps", eps, good, "two numbers that are not negative, or (None, ...)")
        require("Adafactor", "d", d, d >= 1, "a number of at least 1")
        shrink = options["weight_decay"]
        require("Adafactor", "weight_decay", shrink, shrink >= 0, "no negative number")

    def _remembered(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
        shape = p.shape
        if len(shape) < 2:
            return {"step": (), "variance": shape}
        return {
            "step": (),
            "row_var": (*shape[:-1], 1),
            "col_var": (*shape[:-2], 1, shape[-1]),
        }

    def _formula(
        self,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:
        small, least = options["eps"]
        if small is None:
            small = float(ops.finfo(p.dtype).eps)
        state["step"] = state["step"] + 1.0
        step = state["step"].astype(p.dtype, copy=False)
        share = step ** options["beta2_decay"]
        rate = ops.minimum(lr, 1.0 / ops.sqrt(step))
        alpha = ops.maximum(_root_mean_square(p), least) * rate
        if options["weight_decay"]:
            p = p * (1.0 - lr * options["weight_decay"])
        squares = g * g
        if "variance" in state:
            squares = state["variance"] = _toward(state["variance"], squares, share)
        else:
            rows = ops.mean(squares, axis=-1, keepdims=True)
            columns = ops.mean(squares, axis=-2, keepdims=True)
            rows = state["row_var"] = _toward(state["row_var"], rows, share)
            columns = state["col_var"] = _toward(state["col_var"], columns, share)
            mean = ops.maximum(ops.mean(rows, axis=-2, keepdims=True), small)
            squares = rows * columns / mean
        move = g / ops.sqrt(ops.maximum(squares, small * small))
        excess = ops.maximum(_root_mean_square(move) / options["d"], 1.0)
        made: Tensor = p - (alpha / excess) * move
        return made


def _toward(old: Tensor, new: Tensor, share: Tensor) -> Tensor:
    return old + share * (new - old)


def _root_mean_square(x: Tensor) -> Tensor:
    return ops.sqrt(ops.sum(x * x)) / math.sqrt(max(x.size, 1))
