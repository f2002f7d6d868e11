"""SGD: stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ember_ml import ops
from ember_ml.errors import DomainError
from ember_ml.tensor.core import Tensor
from ember_ml.training.optimizers.base import Optimizer, require
from ember_ml.training.schedules import Rate

__all__ = ["SGD"]


class SGD(Optimizer):
    """Gradient descent, with momentum where asked for.

    `b = momentum b + (1 - dampening) g`, at first `b = g`; `p = p - lr b`, and with `nesterov`
    `p = p - lr (g + momentum b)`. `weight_decay` adds its multiple of p to g.

    >>> from ember_ml import nn
    >>> from ember_ml.training import SGD
    >>> w = nn.Parameter([1.0])
    >>> opt = SGD([w], lr=0.25, momentum=0.5)
    >>> for _ in range(2):
    ...     opt.update([w], [w * 2])
    >>> w.tolist()
    [0.0]
    """

    _kernel = "sgd_update"

    def __init__(
        self,
        parameters: Any,
        lr: Rate = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            parameters,
            lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
        )

    def _check(self, options: Mapping[str, Any]) -> None:
        for key in ("momentum", "weight_decay"):
            require("SGD", key, options[key], options[key] >= 0, "no negative number")
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise DomainError("SGD got nesterov=True; it takes a momentum and no dampening then")

    def _remembered(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
        if not options["momentum"]:
            return {}
        # The first momentum is the gradient itself, which matters where it is dampened later.
        return {"momentum_buffer": p.shape, **({"step": ()} if options["dampening"] else {})}

    def _formula(
        self,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:
        momentum = options["momentum"]
        if options["weight_decay"]:
            g = g + options["weight_decay"] * p
        if momentum:
            buffer = momentum * state["momentum_buffer"]
            if "step" in state:
                is_first = state["step"] == 0.0
                state["step"] = state["step"] + 1.0
                buffer = ops.where(is_first, g, buffer + (1.0 - options["dampening"]) * g)
            else:
                buffer = buffer + g
            state["momentum_buffer"] = buffer
            g = g + momentum * buffer if options["nesterov"] else buffer
        return p - lr * g
