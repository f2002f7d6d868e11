"""LAMB: Adam for large batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ember_ml import ops
from ember_ml.tensor.core import Tensor
from ember_ml.training.optimizers.adam import corrections, require_betas
from ember_ml.training.optimizers.base import Optimizer, require
from ember_ml.training.schedules import Rate

__all__ = ["LAMB"]


class LAMB(Optimizer):
    """Adam's step, scaled for each parameter to the norm of its weights (You et al., 2020).

    `r = m̂ / (√v̂ + eps) + weight_decay p`, `p = p - lr (‖p‖ / ‖r‖) r`; where one of both norms
    is zero, their ratio counts as one.

    >>> from ember_ml import nn
    >>> from ember_ml.training import LAMB
    >>> w = nn.Parameter([3.0, 4.0])
    >>> LAMB([w], lr=0.1, weight_decay=0.0).update([w], [ops.asarray([2.0, -2.0])])
    >>> [round(x, 4) for x in w.tolist()]
    [2.6464, 4.3536]
    """

    def __init__(
        self,
        parameters: Any,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize
        )

    def _check(self, options: Mapping[str, Any]) -> None:
        require_betas("LAMB", options["betas"])
        for key in ("eps", "weight_decay"):
            require("LAMB", key, options[key], options[key] >= 0, "no negative number")

    def _remembered(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"step": (), "exp_avg": p.shape, "exp_avg_sq": p.shape}

    def _formula(
        self,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:
        beta1, beta2 = options["betas"]
        m = state["exp_avg"] = beta1 * state["exp_avg"] + (1.0 - beta1) * g
        v = state["exp_avg_sq"] = beta2 * state["exp_avg_sq"] + (1.0 - beta2) * (g * g)
        first, second = corrections(state, p, options["betas"])
        step = (m / first) / (ops.sqrt(v / second) + options["eps"])
        if options["weight_decay"]:
            step = step + options["weight_decay"] * p
        size, length = ops.sqrt(ops.sum(p * p)), ops.sqrt(ops.sum(step * step))
        known = ops.logical_and(size > 0.0, length > 0.0)
        one = ops.ones_like(size)
        ratio = ops.where(known, size / ops.where(known, length, one), one)
        made: Tensor = p - (lr * ratio) * step
        return made
