"""Muon: steps whose singular values are all near one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ember_ml import ops
from ember_ml.errors import ShapeError
from ember_ml.tensor.core import Tensor
from ember_ml.training.optimizers.base import Optimizer, require
from ember_ml.training.schedules import Rate

__all__ = ["Muon"]


class Muon(Optimizer):
    """Momentum made orthogonal, for weight matrices.

    `b = momentum b + (1 - momentum) g`; the step is `b`, or with `nesterov` `g + momentum (b - g)`,
    after `ns_steps` of a Newton-Schulz iteration that brings its singular values near one. It is
    for matrices alone: give biases, norms, embeddings and the last layer to AdamW.
    `adjust_lr_fn` is "original" (also None), which scales the rate of tall matrices by the root of
    their ratio, or "match_rms_adamw", with which rates are as of AdamW.

    The iteration runs in the dtype of the parameter; that of PyTorch does in bfloat16.

    >>> from ember_ml import nn
    >>> from ember_ml.training import AdamW, Muon
    >>> model = nn.Linear(4, 4)
    >>> opt = Muon([("weight", model.weight)], lr=0.02)
    >>> opt.steps
    0
    """

    def __init__(
        self,
        parameters: Any,
        lr: Rate = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(
            parameters,
            lr,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            ns_coefficients=ns_coefficients,
            eps=eps,
            ns_steps=ns_steps,
            adjust_lr_fn=adjust_lr_fn,
        )

    def _check(self, options: Mapping[str, Any]) -> None:
        for key in ("weight_decay", "momentum"):
            require("Muon", key, options[key], options[key] >= 0, "no negative number")
        steps, how = options["ns_steps"], options["adjust_lr_fn"]
        require("Muon", "ns_steps", steps, 0 <= steps < 100, "a number from 0 to 99")
        coefficients = options["ns_coefficients"]
        require("Muon", "ns_coefficients", coefficients, len(coefficients) == 3, "three numbers")
        good = how in (None, "original", "match_rms_adamw")
        require("Muon", "adjust_lr_fn", how, good, "'original', 'match_rms_adamw' or None")

    def _remembered(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
        if p.ndim != 2:
            raise ShapeError(
                f"Muon got a parameter of shape {p.shape}; it takes matrices only: give it those, "
                f"and the others to an AdamW of their own"
            )
        return {"momentum_buffer": p.shape}

    def _formula(
        self,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:
        momentum = options["momentum"]
        b = state["momentum_buffer"]
        b = state["momentum_buffer"] = b + (1.0 - momentum) * (g - b)
        step = _orthogonal(g + momentum * (b - g) if options["nesterov"] else b, options)
        rows, columns = p.shape
        if options["adjust_lr_fn"] == "match_rms_adamw":
            scale = 0.2 * math.sqrt(max(rows, columns))
        else:
            scale = math.sqrt(max(1.0, rows / max(columns, 1)))
        made: Tensor = p * (1.0 - lr * options["weight_decay"]) - (lr * scale) * step
        return made


def _orthogonal(x: Tensor, options: Mapping[str, Any]) -> Tensor:
    """A matrix with the singular vectors of another one, and singular values near one."""
    a, b, c = options["ns_coefficients"]
    is_tall = x.shape[0] > x.shape[1]
    if is_tall:
        x = ops.matrix_transpose(x)
    x = x / ops.maximum(ops.sqrt(ops.sum(x * x)), options["eps"])
    for _ in range(options["ns_steps"]):
        gram = ops.matmul(x, ops.matrix_transpose(x))
        x = a * x + ops.matmul(b * gram + c * ops.matmul(gram, gram), x)
    return ops.matrix_transpose(x) if is_tall else x
