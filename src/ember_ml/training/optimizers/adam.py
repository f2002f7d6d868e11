"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ember_ml import ops
from ember_ml.tensor.core import Tensor
from ember_ml.training.optimizers.base import Optimizer, require
from ember_ml.training.schedules import Rate

__all__ = ["Adam", "AdamW", "corrections", "require_betas"]


class Adam(Optimizer):
    """Steps of about the size `lr`, by running means of the gradients and of their squares.

    `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g²`,
    `p = p - lr m / (1 - b1ᵗ) / (√(v / (1 - b2ᵗ)) + eps)`. `weight_decay` adds its multiple of p to
    g. `amsgrad` takes the largest v so far.

    >>> from ember_ml import nn
    >>> from ember_ml.training import Adam
    >>> w = nn.Parameter([1.0])
    >>> opt = Adam([w], lr=0.1)
    >>> opt.update([w], [w * 2])
    >>> round(w.item(), 4)
    0.9
    """

    _kernel = "adam_update"
    # True where weights shrink by themselves, and not by what is added to their gradients.
    _decoupled: ClassVar[bool] = False

    def __init__(
        self,
        parameters: Any,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            parameters,
            lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            maximize=maximize,
        )

    def _check(self, options: Mapping[str, Any]) -> None:
        where = type(self).__name__
        require_betas(where, options["betas"])
        for key in ("eps", "weight_decay"):
            require(where, key, options[key], options[key] >= 0, "no negative number")

    def _remembered(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"step": (), "exp_avg": p.shape, "exp_avg_sq": p.shape}
        if options["amsgrad"]:
            found["max_exp_avg_sq"] = p.shape
        return found

    def _formula(
        self,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:
        beta1, beta2 = options["betas"]
        if options["weight_decay"] and self._decoupled:
            p = p * (1.0 - lr * options["weight_decay"])
        elif options["weight_decay"]:
            g = g + options["weight_decay"] * p
        m = state["exp_avg"] = state["exp_avg"] + (1.0 - beta1) * (g - state["exp_avg"])
        v = state["exp_avg_sq"] = beta2 * state["exp_avg_sq"] + (1.0 - beta2) * (g * g)
        first, second = corrections(state, p, options["betas"])
        if options["amsgrad"]:
            v = state["max_exp_avg_sq"] = ops.maximum(state["max_exp_avg_sq"], v)
        made: Tensor = p - (lr / first) * (m / (ops.sqrt(v) / ops.sqrt(second) + options["eps"]))
        return made


class AdamW(Adam):
    """Adam whose `weight_decay` shrinks the weights themselves: `p = p (1 - lr weight_decay)`.

    >>> from ember_ml import nn
    >>> from ember_ml.training import AdamW
    >>> model = nn.Linear(3, 1)
    >>> opt = AdamW(model, lr=1e-3)
    >>> loss, grads = em.value_and_grad(lambda m: ops.mean(m(ops.ones((4, 3))) ** 2))(model)
    >>> opt.update(model, grads)
    >>> opt.steps
    1
    """

    _kernel = "adamw_update"
    _decoupled = True

    def __init__(
        self,
        parameters: Any,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            parameters, lr, betas, eps, weight_decay, amsgrad=amsgrad, maximize=maximize
        )


def corrections(
    state: dict[str, Tensor], p: Tensor, betas: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """`1 - bᵗ` for both betas, by which means that began with zeros are too small; counts t.

    By expm1: in float32, 1 - 0.999 has lost four of its seven digits.
    """
    state["step"] = state["step"] + 1.0
    step = state["step"].astype(p.dtype, copy=False)
    first, second = [
        -ops.expm1(step * math.log(beta)) if beta else ops.ones_like(step) for beta in betas
    ]
    return first, second


def require_betas(name: str, betas: Any) -> None:
    """Raise where betas are no two numbers from 0 to 1, 1 excluded."""
    good = len(betas) == 2 and all(0 <= beta < 1 for beta in betas)
    require(name, "betas", betas, good, "two numbers from 0 to 1, 1 excluded")
