"""Gradients, compilation and checkpoints that mean the same on every backend."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ember_ml.autodiff.gradients import grad, value_and_grad, vjp
    from ember_ml.autodiff.tape import enable_grad, is_grad_enabled, no_grad, set_grad_enabled

__all__ = [
    "enable_grad",
    "grad",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
    "value_and_grad",
    "vjp",
]

# Where each name lives: what is not used is not imported.
_HOMES = {
    "enable_grad": "tape",
    "grad": "gradients",
    "is_grad_enabled": "tape",
    "no_grad": "tape",
    "set_grad_enabled": "tape",
    "value_and_grad": "gradients",
    "vjp": "gradients",
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
