"""`ops` bound to a backend: what `x.__array_namespace__()` gives.

The functions are those of `ops` themselves, since ops follow their tensors. Only those that make
tensors of nothing are called under the backend of `x`, whatever backend is current.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ember_ml.backend import selection
from ember_ml.backend.contract import Backend
from ember_ml.errors import DomainError
from ember_ml.ops.registry import REGISTRY

__all__ = ["BoundOps", "of"]

# The namespaces within ops, with what begins the names of their ops in the registry.
_CHAPTERS = {
    "fft": "fft.",
    "linalg": "linalg.",
    "linearalg": "linalg.",
    "losses": "losses.",
    "random": "random.",
    "signal": "",
    "stats": "",
}
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


class BoundOps:
    """A view of `ember_ml.ops` whose creation functions make tensors of one backend."""

    def __init__(self, backend: Backend, module: Any, prefix: str | None = None) -> None:
        self.__name__ = module.__name__ + "." + backend.name
        self.__doc__ = module.__doc__
        self._backend = backend
        self._module = module
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name in _CHAPTERS and self._prefix is None:
            found = BoundOps(self._backend, found, _CHAPTERS[name])
        elif _creates((self._prefix or "") + name):
            found = self._bound(found)
        setattr(self, name, found)
        return found

    def _bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        name = self._backend.name

        @wraps(function)
        def bound(*args: Any, **options: Any) -> Any:
            with selection.use_backend(name):
                return function(*args, **options)

        return bound

    def __dir__(self) -> list[str]:
        return dir(self._module)

    def __repr__(self) -> str:
        return f"<ember_ml.ops on backend '{self._backend.name}'>"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _by_name, (self._backend.name,)


def _creates(name: str) -> bool:
    op = REGISTRY.get(name)
    return name == "__array_namespace_info__" or (op is not None and op.creates)


_bound: dict[str, BoundOps] = {}


def of(backend: Backend, api_version: str | None = None) -> BoundOps:
    """The namespace of a backend."""
    if api_version is not None and api_version not in VERSIONS:
        raise DomainError(
            f"__array_namespace__ knows versions {', '.join(VERSIONS)}, not {api_version!r}"
        )
    found = _bound.get(backend.name)
    if found is None or found._backend is not backend:
        from ember_ml import ops

        found = _bound[backend.name] = BoundOps(backend, ops)
    return found


def _by_name(name: str) -> BoundOps:
    return of(selection.load(name))
