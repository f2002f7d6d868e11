"""Updates of all parameters of an optimizer at once, in place, by torch's own kernels.

Each takes lists of arrays: parameters, gradients, what is remembered by name, the rate, and the
options of the optimizer. The formulas are those of training/optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

import torch

from ember_ml.backend.contract import Kernel, NativeArray

__all__ = ["OVERRIDES"]

Arrays = list[NativeArray]
States = Mapping[str, Arrays]
Options = Mapping[str, Any]
# Gives False where it has done nothing, since it cannot.
Update = Callable[[Arrays, Arrays, States, Any, Options], bool | None]

# Devices that torch has fused updates for.
_FUSED: Final = frozenset(("cpu", "cuda", "mps"))


def _quiet(update: Update) -> Update:
    """An update that torch does not record."""

    @wraps(update)
    def run(
        params: Arrays, grads: Arrays, states: States, lr: Any, options: Options
    ) -> bool | None:
        with torch.no_grad():
            return update(params, grads, states, lr, options)

    return run


def _fuses(params: Arrays) -> bool:
    """True where torch's fused updates, which read memory in its order, may be used."""
    return params[0].device.type in _FUSED and all(p.is_contiguous() for p in params)


def _in_order(grads: Arrays) -> Arrays:
    return [g.contiguous() for g in grads]


def _decayed(params: Arrays, grads: Arrays, options: Options) -> Arrays:
    """Gradients in the direction of the step, with the decay of weights added."""
    if options["maximize"]:
        grads = list(torch._foreach_neg(grads))
    if options.get("weight_decay"):
        grads = list(torch._foreach_add(grads, params, alpha=options["weight_decay"]))
    return grads


@_quiet
def sgd_update(params: Arrays, grads: Arrays, states: States, lr: float, options: Options) -> None:
    momentum, dampening = options["momentum"], options["dampening"]
    if not dampening and _fuses(params) and params[0].is_cpu:
        torch._fused_sgd_(
            params,
            _in_order(grads),
            states["momentum_buffer"] if momentum else [],
            weight_decay=options["weight_decay"],
            momentum=momentum,
            lr=lr,
            dampening=0.0,
            nesterov=options["nesterov"],
            maximize=options["maximize"],
            is_first_step=False,  # the buffer begins with zeros
        )
        return
    grads = _decayed(params, grads, options)
    if momentum:
        buffers = states["momentum_buffer"]
        torch._foreach_mul_(buffers, momentum)
        if dampening:
            steps = states["step"]
            for buffer, g, step in zip(buffers, grads, steps, strict=True):
                # The first buffer is the gradient itself.
                buffer.add_(g, alpha=1.0 - dampening if step.item() else 1.0)
            torch._foreach_add_(steps, 1.0)
        else:
            torch._foreach_add_(buffers, grads)
        if options["nesterov"]:
            grads = list(torch._foreach_add(grads, buffers, alpha=momentum))
        else:
            grads = buffers
    torch._foreach_add_(params, grads, alpha=-lr)


def _adam(
    params: Arrays, grads: Arrays, states: States, lr: Any, options: Options, decoupled: bool
) -> bool:
    beta1, beta2 = options["betas"]
    steps, means, squares = states["step"], states["exp_avg"], states["exp_avg_sq"]
    largest = states.get("max_exp_avg_sq", [])
    fuses = _fuses(params)
    if isinstance(lr, torch.Tensor) and not fuses:
        return False
    torch._foreach_add_(steps, 1.0)
    if fuses:
        run: Any = torch._fused_adamw_ if decoupled else torch._fused_adam_
        run(
            params,
            _in_order(grads),
            means,
            squares,
            largest,
            steps,
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            weight_decay=options["weight_decay"],
            eps=options["eps"],
            amsgrad=bool(largest),
            maximize=options["maximize"],
        )
        return True
    if decoupled:
        torch._foreach_mul_(params, 1.0 - lr * options["weight_decay"])
        grads = _decayed(params, grads, {"maximize": options["maximize"]})
    else:
        grads = _decayed(params, grads, options)
    torch._foreach_lerp_(means, grads, 1.0 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, grads, grads, 1.0 - beta2)
    if largest:
        torch._foreach_maximum_(largest, squares)
        squares = largest
    counts = [step.item() for step in steps]
    scale = list(torch._foreach_sqrt(squares))
    torch._foreach_div_(scale, [(1.0 - beta2**count) ** 0.5 for count in counts])
    torch._foreach_add_(scale, options["eps"])
    torch._foreach_addcdiv_(params, means, scale, [-lr / (1.0 - beta1**count) for count in counts])
    return True


@_quiet
def adam_update(params: Arrays, grads: Arrays, states: States, lr: Any, options: Options) -> bool:
    return _adam(params, grads, states, lr, options, decoupled=False)


@_quiet
def adamw_update(params: Arrays, grads: Arrays, states: States, lr: Any, options: Options) -> bool:
    return _adam(params, grads, states, lr, options, decoupled=True)


@_quiet
def adagrad_update(
    params: Arrays, grads: Arrays, states: States, lr: float, options: Options
) -> None:
    grads = _decayed(params, grads, options)
    sums = states["sum"]
    rates = [-lr] * len(params)
    if options["lr_decay"]:
        rates = [-lr / (1.0 + step.item() * options["lr_decay"]) for step in states["step"]]
        torch._foreach_add_(states["step"], 1.0)
    torch._foreach_addcmul_(sums, grads, grads, 1.0)
    scale = list(torch._foreach_sqrt(sums))
    torch._foreach_add_(scale, options["eps"])
    torch._foreach_addcdiv_(params, grads, scale, rates)


@_quiet
def rmsprop_update(
    params: Arrays, grads: Arrays, states: States, lr: float, options: Options
) -> None:
    grads = _decayed(params, grads, options)
    alpha, squares = options["alpha"], states["square_avg"]
    torch._foreach_mul_(squares, alpha)
    torch._foreach_addcmul_(squares, grads, grads, 1.0 - alpha)
    if options["centered"]:
        means = states["grad_avg"]
        torch._foreach_lerp_(means, grads, 1.0 - alpha)
        scale = list(torch._foreach_addcmul(squares, means, means, -1.0))
        torch._foreach_sqrt_(scale)
    else:
        scale = list(torch._foreach_sqrt(squares))
    torch._foreach_add_(scale, options["eps"])
    if options["momentum"]:
        buffers = states["momentum_buffer"]
        torch._foreach_mul_(buffers, options["momentum"])
        torch._foreach_addcdiv_(buffers, grads, scale)
        torch._foreach_add_(params, buffers, alpha=-lr)
    else:
        torch._foreach_addcdiv_(params, grads, scale, -lr)


@_quiet
def adadelta_update(
    params: Arrays, grads: Arrays, states: States, lr: float, options: Options
) -> None:
    grads = _decayed(params, grads, options)
    rho, eps = options["rho"], options["eps"]
    squares, moves = states["square_avg"], states["acc_delta"]
    torch._foreach_mul_(squares, rho)
    torch._foreach_addcmul_(squares, grads, grads, 1.0 - rho)
    scale = list(torch._foreach_add(squares, eps))
    torch._foreach_sqrt_(scale)
    steps = list(torch._foreach_add(moves, eps))
    torch._foreach_sqrt_(steps)
    torch._foreach_div_(steps, scale)
    torch._foreach_mul_(steps, grads)
    torch._foreach_mul_(moves, rho)
    torch._foreach_addcmul_(moves, steps, steps, 1.0 - rho)
    torch._foreach_add_(params, steps, alpha=-lr)


@_quiet
def lion_update(params: Arrays, grads: Arrays, states: States, lr: float, options: Options) -> None:
    beta1, beta2 = options["betas"]
    grads = _decayed(params, grads, {"maximize": options["maximize"]})
    means = states["exp_avg"]
    steps = list(torch._foreach_mul(means, beta1))
    torch._foreach_add_(steps, grads, alpha=1.0 - beta1)
    torch._foreach_sign_(steps)
    if options["weight_decay"]:
        torch._foreach_add_(steps, params, alpha=options["weight_decay"])
    torch._foreach_mul_(means, beta2)
    torch._foreach_add_(means, grads, alpha=1.0 - beta2)
    torch._foreach_add_(params, steps, alpha=-lr)


# These take the rate as a tensor as well, so that they can be part of a graph.
for _update in (adam_update, adamw_update):
    _update.traces = True  # type: ignore[attr-defined]  # a mark for training/optimizers/applying.py

OVERRIDES: Final[dict[str, Kernel]] = {
    "adadelta_update": adadelta_update,
    "adagrad_update": adagrad_update,
    "adam_update": adam_update,
    "adamw_update": adamw_update,
    "lion_update": lion_update,
    "rmsprop_update": rmsprop_update,
    "sgd_update": sgd_update,
}
