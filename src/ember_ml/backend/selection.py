"""Which backend computes: explicit choice, environment, file, then what the machine has.

The choice is a ContextVar, so threads and asyncio tasks each see their own. What the main thread
sets outside of any task is the default of threads that have chosen nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ember_ml.backend.contract import Backend
from ember_ml.backend.scope import Scope
from ember_ml.errors import BackendUnavailableError, CommunicationError, UnknownBackendError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "auto_select_backend",
    "available_backends",
    "get_backend",
    "get_backend_module",
    "known_backends",
    "register_backend",
    "set_backend",
    "use_backend",
]

Loader = Callable[[], Backend]

ENTRY_POINT_GROUP = "ember_ml.backends"
ENVIRONMENT_VARIABLE = "EMBER_ML_BACKEND"
# The order of preference; the import name whose presence tells that the engine is installed.
_BUILT_IN = {"numpy": "numpy", "torch": "torch", "jax": "jax", "mlx": "mlx.core"}

# Known by its name and never listed: em.export traces with it.
_HIDDEN = {"graph": "ember_ml.graph.tracing.backend"}

_loaders: dict[str, Loader] = {}
_loaded: dict[str, Backend] = {}
_lock = threading.RLock()
_chosen: ContextVar[Backend | None] = ContextVar("ember_ml_backend", default=None)
_default: Backend | None = None


def backend_file() -> Path:
    """Where `set_backend(..., persist=True)` writes: `~/.ember/backend`."""
    from pathlib import Path  # pulls in urllib and more, for the one file that few ever have

    return Path.home() / ".ember" / "backend"


# --- Loading --------------------------------------------------------------------------------


def register_backend(name: str, loader: Loader) -> None:
    """Make a backend known; `loader()` gives its Backend when it is first used."""
    if name in _BUILT_IN or name in _HIDDEN:
        raise UnknownBackendError(f"'{name}' is built in; register yours under another name")
    with _lock:
        _loaders[name] = loader
        _loaded.pop(name, None)


def _entry_points() -> dict[str, Any]:
    # importlib.metadata is slow to import, and only unknown names need it.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def known_backends() -> tuple[str, ...]:
    """The names of all backends, installed or not, those of third parties last."""
    return tuple(dict.fromkeys([*_BUILT_IN, *_loaders, *_entry_points()]))


def available_backends() -> tuple[str, ...]:
    """The names of the backends whose packages are installed; none is imported.

    >>> "numpy" in available_backends()
    True
    """
    return tuple(n for n in known_backends() if n not in _BUILT_IN or _installed(n))


def _installed(name: str) -> bool:
    module = _BUILT_IN[name]
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # the parent package of mlx.core is absent
        return False


def load(name: str) -> Backend:
    """The backend of a name, loaded once."""
    found = _loaded.get(name)
    if found is not None:
        return found
    with _lock:
        found = _loaded.get(name)
        if found is None:
            found = _loaded[name] = _load(name)
    return found


def loaded(name: str) -> Backend | None:
    """A backend by its name where it is in use already."""
    return _loaded.get(name)


def all_loaded() -> list[Backend]:
    """The backends that are in use; that of em.export, which has no memory, is none of them."""
    return [backend for backend in _loaded.values() if not backend.adopts]


def _load(name: str) -> Backend:
    if name in _BUILT_IN:
        if not _installed(name):
            raise BackendUnavailableError(
                f"backend '{name}' is not installed; installed are "
                f"{', '.join(available_backends())}. Add it with: pip install 'ember-ml[{name}]'"
            )
        try:
            return importlib.import_module(f"ember_ml.backend.{name}").load()  # type: ignore[no-any-return]  # each folder's load gives a Backend
        except CommunicationError:
            raise  # that of JAX, which joins the other processes of a job first
        except Exception as error:
            raise BackendUnavailableError(
                f"backend '{name}' is installed but its package does not import: "
                f"{type(error).__name__}: {error}"
            ) from error
    if name in _HIDDEN:
        return importlib.import_module(_HIDDEN[name]).load()  # type: ignore[no-any-return]  # as above
    loader = _loaders.get(name)
    if loader is None:
        point = _entry_points().get(name)
        if point is None:
            raise UnknownBackendError(
                f"unknown backend {name!r}; installed are {', '.join(available_backends())}. "
                f"Others: pip install 'ember-ml[torch]', 'ember-ml[jax]' or 'ember-ml[mlx]'"
            )
        loader = point.load()
    backend = loader()
    if not isinstance(backend, Backend):
        raise BackendUnavailableError(
            f"the loader of backend '{name}' gave {type(backend).__name__}, not a Backend"
        )
    return backend


def backend_of(native: object) -> Backend | None:
    """The backend whose native array this is; None for data such as lists and ndarrays."""
    root = type(native).__module__.partition(".")[0]
    name = {"jaxlib": "jax", "numpy": ""}.get(root, root)
    if name in _BUILT_IN and _installed(name):
        backend = load(name)
        return backend if isinstance(native, backend.native_types) else None
    for backend in list(_loaded.values()):
        if backend.name != "numpy" and isinstance(native, backend.native_types):
            return backend
    return None


# --- Choosing -------------------------------------------------------------------------------


def current() -> Backend:
    """The backend that decides for inputs that have none."""
    return _chosen.get() or _default or _resolve()


def get_backend() -> str:
    """The name of the current backend.

    >>> with use_backend("numpy"):
    ...     get_backend()
    'numpy'
    """
    return current().name


def get_backend_module() -> ModuleType:
    """The module of the current backend, such as `ember_ml.backend.numpy`."""
    return current().module


def set_backend(name: str, *, persist: bool = False) -> None:
    """Choose the backend of this thread or task; in the main thread also of new threads.

    `persist=True` also writes the choice to `~/.ember/backend`, for programs started later.
    """
    global _default
    backend = load(name)
    _chosen.set(backend)
    if threading.current_thread() is threading.main_thread() and not _in_task():
        _default = backend
    if persist:
        _persist(backend.name)


def _in_task() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _persist(name: str) -> None:
    path = backend_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(name + "\n", encoding="utf-8")
    part.replace(path)


def _resolve() -> Backend:
    """Choose for a process in which nobody has: environment, file, machine."""
    global _default
    with _lock:
        if _default is None:
            _default = load(_resolve_name())
    return _default


def _resolve_name() -> str:
    from_environment = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if from_environment:
        return _known(from_environment, f"the environment variable {ENVIRONMENT_VARIABLE}")
    path = backend_file()
    try:
        from_file = path.read_text(encoding="utf-8").strip()
    except OSError:
        from_file = ""
    if from_file:
        return _known(from_file, f"the file {path}")
    return auto_select_backend()[0]


def _known(name: str, source: str) -> str:
    if name not in known_backends():
        raise UnknownBackendError(
            f"{source} names the unknown backend {name!r}; "
            f"installed are {', '.join(available_backends())}"
        )
    return name


def auto_select_backend() -> tuple[str, str]:
    """The best backend and device of this machine.

    torch with CUDA or MPS, torch, MLX on Apple silicon, JAX, NumPy: the first that works.
    """
    for name in ("torch", "mlx", "jax"):
        if not _installed(name) or (name == "mlx" and not _apple_silicon()):
            continue
        try:
            return name, load(name).default_device()
        except BackendUnavailableError as error:
            warnings.warn(f"passing over backend '{name}': {error}", RuntimeWarning, stacklevel=2)
    return "numpy", "cpu"


def _apple_silicon() -> bool:
    return sys.platform == "darwin" and os.uname().machine == "arm64"


class use_backend(Scope):
    """A scope with another backend, as a context manager or a decorator.

    >>> with use_backend("numpy"):
    ...     get_backend()
    'numpy'
    """

    variable = _chosen

    def value(self) -> Backend:
        """The backend of the name, loaded where it is not yet."""
        return load(self.choice)
