"""Who computes: the backends, and which of them is current."""

from ember_ml.backend.checks import use_checks
from ember_ml.backend.contract import Backend
from ember_ml.backend.selection import (
    auto_select_backend,
    available_backends,
    get_backend,
    get_backend_module,
    known_backends,
    register_backend,
    set_backend,
    use_backend,
)

__all__ = [
    "Backend",
    "auto_select_backend",
    "available_backends",
    "get_backend",
    "get_backend_module",
    "known_backends",
    "register_backend",
    "set_backend",
    "use_backend",
    "use_checks",
]
