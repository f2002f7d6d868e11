"""Gradients, compilation and checkpoints that mean the same on every backend."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ember_ml.autodiff.checkpointing import checkpoint, checkpoint_sequence
    from ember_ml.autodiff.custom import custom_gradient, stop_gradient
    from ember_ml.autodiff.derivatives import hessian, hvp, jacobian, jvp, vjp
    from ember_ml.autodiff.gradient_tape import GradientTape
    from ember_ml.autodiff.gradients import grad, value_and_grad
    from ember_ml.autodiff.jitting import jit, register_state
    from ember_ml.autodiff.tape import enable_grad, is_grad_enabled, no_grad, set_grad_enabled

__all__ = [
    "GradientTape",
    "checkpoint",
    "checkpoint_sequence",
    "custom_gradient",
    "enable_grad",
    "grad",
    "hessian",
    "hvp",
    "is_grad_enabled",
    "jacobian",
    "jit",
    "jvp",
    "no_grad",
    "register_state",
    "set_grad_enabled",
    "stop_gradient",
    "value_and_grad",
    "vjp",
]

# Where each name lives: what is not used is not imported.
_HOMES = {
    "GradientTape": "gradient_tape",
    "checkpoint": "checkpointing",
    "checkpoint_sequence": "checkpointing",
    "custom_gradient": "custom",
    "enable_grad": "tape",
    "grad": "gradients",
    "hessian": "derivatives",
    "hvp": "derivatives",
    "is_grad_enabled": "tape",
    "jacobian": "derivatives",
    "jit": "jitting",
    "jvp": "derivatives",
    "no_grad": "tape",
    "register_state": "jitting",
    "set_grad_enabled": "tape",
    "stop_gradient": "custom",
    "value_and_grad": "gradients",
    "vjp": "derivatives",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"ember_ml.autodiff.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
