"""What raw programs have in common: an engine's own namespace and arrays."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["Factory", "installed_targets", "namespace", "native", "peers"]

MODULES = {"numpy": "numpy", "torch": "torch", "jax": "jax.numpy", "mlx": "mlx.core"}

Factory = Callable[[], Any]


def namespace(backend: str) -> ModuleType:
    """The module whose functions users of an engine call."""
    return importlib.import_module(MODULES[backend])


def native(backend: str, array: Any) -> Any:
    """A host array as the engine's own; the engine is the current backend."""
    xp = namespace(backend)
    if backend == "numpy":
        return array
    return xp.from_numpy(array) if backend == "torch" else xp.array(array)


def installed_targets() -> list[str]:
    """The engines that are installed, in one order."""
    import ember_ml as em

    return [name for name in MODULES if name in em.available_backends()]


def peers(makers: dict[str, Factory]) -> tuple[dict[str, Any], str]:
    """What the makers of other libraries' programs give, and why some gave nothing.

    A library that is not installed is not mentioned: it is no finding.
    """
    found: dict[str, Any] = {}
    notes = []
    for name, make in makers.items():
        try:
            found[name] = make()
        except ModuleNotFoundError:
            continue
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            notes.append(f"{name} left out: {type(error).__name__}: {text}")
    return found, "; ".join(notes)
