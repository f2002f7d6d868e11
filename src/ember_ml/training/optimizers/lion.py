"""Lion: steps of one size, by signs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ember_ml import ops
from ember_ml.tensor.core import Tensor
from ember_ml.training.optimizers.adam import require_betas
from ember_ml.training.optimizers.base import Optimizer, require
from ember_ml.training.schedules import Rate

__all__ = ["Lion"]


class Lion(Optimizer):
    """`p = p - lr (sign(b1 m + (1 - b1) g) + weight_decay p)`, `m = b2 m + (1 - b2) g`.

    All elements move by `lr`, so it takes a rate 3 to 10 times smaller than AdamW's, and as much
    more weight decay (Chen et al., 2023).

    >>> from ember_ml import nn
    >>> from ember_ml.training import Lion
    >>> w = nn.Parameter([1.0, 1.0])
    >>> Lion([w], lr=0.25).update([w], [ops.asarray([4.0, -0.1])])
    >>> w.tolist()
    [0.75, 1.25]
    """

    _kernel = "lion_update"

    def __init__(
        self,
        parameters: Any,
        lr: Rate = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(parameters, lr, betas=betas, weight_decay=weight_decay, maximize=maximize)

    def _check(self, options: Mapping[str, Any]) -> None:
        require_betas("Lion", options["betas"])
        decay = options["weight_decay"]
        require("Lion", "weight_decay", decay, decay >= 0, "no negative number")

    def _remembered(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"exp_avg": p.shape}

    def _formula(
        self,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:
        beta1, beta2 = options["betas"]
        m = state["exp_avg"]
        step = ops.sign(beta1 * m + (1.0 - beta1) * g)
        if options["weight_decay"]:
            step = step + options["weight_decay"] * p
        state["exp_avg"] = beta2 * m + (1.0 - beta2) * g
        made: Tensor = p - lr * step
        return made
