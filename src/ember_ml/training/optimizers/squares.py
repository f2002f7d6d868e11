"""Adagrad, RMSprop and Adadelta: steps over the root of squares of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ember_ml import ops
from ember_ml.tensor.core import Tensor
from ember_ml.training.optimizers.base import Optimizer, require
from ember_ml.training.schedules import Rate

__all__ = ["Adadelta", "Adagrad", "RMSprop"]


class Adagrad(Optimizer):
    """`s = s + g²`, `p = p - lr g / (√s + eps)`: seldom gradients make large steps.

    The rate falls as `lr / (1 + t lr_decay)`. `weight_decay` adds its multiple of p to g.

    >>> from ember_ml import nn
    >>> from ember_ml.training import Adagrad
    >>> w = nn.Parameter([1.0, 1.0])
    >>> Adagrad([w], lr=0.5).update([w], [ops.asarray([4.0, -0.1])])
    >>> w.tolist()
    [0.5, 1.5]
    """

    _kernel = "adagrad_update"

    def __init__(
        self,
        parameters: Any,
        lr: Rate = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            parameters,
            lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
            maximize=maximize,
        )

    def _check(self, options: Mapping[str, Any]) -> None:
        for key in ("lr_decay", "weight_decay", "initial_accumulator_value", "eps"):
            require("Adagrad", key, options[key], options[key] >= 0, "no negative number")

    def _remembered(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"sum": (p.shape, options["initial_accumulator_value"])}
        return {"step": (), **found} if options["lr_decay"] else found

    def _formula(
        self,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:
        if options["weight_decay"]:
            g = g + options["weight_decay"] * p
        if options["lr_decay"]:
            before = state["step"].astype(p.dtype, copy=False)
            lr = lr / (1.0 + before * options["lr_decay"])
            state["step"] = state["step"] + 1.0
        total = state["sum"] = state["sum"] + g * g
        made: Tensor = p - lr * (g / (ops.sqrt(total) + options["eps"]))
        return made


class RMSprop(Optimizer):
    """`v = alpha v + (1 - alpha) g²`, `p = p - lr g / (√v + eps)`.

    `centered` takes the square of the mean gradient off v. With `momentum`, what is taken off p is
    a running sum. `weight_decay` adds its multiple of p to g.

    >>> from ember_ml import nn
    >>> from ember_ml.training import RMSprop
    >>> w = nn.Parameter([1.0])
    >>> RMSprop([w], lr=0.1, alpha=0.75).update([w], [ops.asarray([3.0])])
    >>> round(w.item(), 4)
    0.8
    """

    _kernel = "rmsprop_update"

    def __init__(
        self,
        parameters: Any,
        lr: Rate = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            parameters,
            lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            maximize=maximize,
        )

    def _check(self, options: Mapping[str, Any]) -> None:
        for key in ("alpha", "eps", "weight_decay", "momentum"):
            require("RMSprop", key, options[key], options[key] >= 0, "no negative number")

    def _remembered(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"square_avg": p.shape}
        if options["momentum"]:
            found["momentum_buffer"] = p.shape
        if options["centered"]:
            found["grad_avg"] = p.shape
        return found

    def _formula(
        self,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:
        alpha = options["alpha"]
        if options["weight_decay"]:
            g = g + options["weight_decay"] * p
        v = state["square_avg"] = alpha * state["square_avg"] + (1.0 - alpha) * (g * g)
        if options["centered"]:
            mean = state["grad_avg"] = state["grad_avg"] + (1.0 - alpha) * (g - state["grad_avg"])
            v = v - mean * mean
        step = g / (ops.sqrt(v) + options["eps"])
        if options["momentum"]:
            step = state["momentum_buffer"] = options["momentum"] * state["momentum_buffer"] + step
        made: Tensor = p - lr * step
        return made


class Adadelta(Optimizer):
    """Steps of the size of earlier ones, so that no rate is to be chosen.

    `v = rho v + (1 - rho) g²`, `d = g √(u + eps) / √(v + eps)`, `u = rho u + (1 - rho) d²`,
    `p = p - lr d`. `weight_decay` adds its multiple of p to g.

    >>> from ember_ml import nn
    >>> from ember_ml.training import Adadelta
    >>> w = nn.Parameter([1.0])
    >>> Adadelta([w]).update([w], [ops.asarray([3.0])])
    >>> round(w.item(), 4)
    0.9968
    """

    _kernel = "adadelta_update"

    def __init__(
        self,
        parameters: Any,
        lr: Rate = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            parameters, lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize
        )

    def _check(self, options: Mapping[str, Any]) -> None:
        rho = options["rho"]
        require("Adadelta", "rho", rho, 0 <= rho <= 1, "a number from 0 to 1")
        for key in ("eps", "weight_decay"):
            require("Adadelta", key, options[key], options[key] >= 0, "no negative number")

    def _remembered(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"square_avg": p.shape, "acc_delta": p.shape}

    def _formula(
        self,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:
        rho, eps = options["rho"], options["eps"]
        if options["weight_decay"]:
            g = g + options["weight_decay"] * p
        v = state["square_avg"] = rho * state["square_avg"] + (1.0 - rho) * (g * g)
        step = ops.sqrt(state["acc_delta"] + eps) / ops.sqrt(v + eps) * g
        state["acc_delta"] = rho * state["acc_delta"] + (1.0 - rho) * (step * step)
        made: Tensor = p - lr * step
        return made
