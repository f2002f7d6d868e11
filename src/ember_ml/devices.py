"""Devices: which exist, which is current, where a tensor lies, how full they are."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ember_ml.backend import selection
from ember_ml.backend.contract import Backend
from ember_ml.backend.scope import Scope

if TYPE_CHECKING:
    from ember_ml.markers import D, R
    from ember_ml.tensor import Tensor
    from ember_ml.tensor.typed import Like

__all__ = [
    "get_available_devices",
    "get_device",
    "get_device_of_tensor",
    "memory_info",
    "memory_usage",
    "set_device",
    "synchronize",
    "to_device",
    "use_device",
]

# The device chosen for each backend. A new mapping is stored on every change: contexts share it.
_chosen: ContextVar[Mapping[str, str]] = ContextVar("ember_ml_device", default={})  # noqa: B039 - never written to


def current_device(backend: Backend) -> str:
    """The device on which `backend` creates tensors in this thread or task."""
    return _chosen.get().get(backend.name) or backend.default_device()


def get_device(tensor: object = None) -> str:
    """The device of a tensor, or the one on which the current backend creates tensors.

    >>> from ember_ml import use_backend
    >>> with use_backend("numpy"):
    ...     get_device()
    'cpu'
    """
    if tensor is not None:
        return get_device_of_tensor(tensor)
    return current_device(selection.current())


def get_device_of_tensor(tensor: object) -> str:
    """The device that holds a tensor or a native array."""
    from ember_ml.tensor.convert import to_tensor

    return to_tensor(tensor).device


def set_device(device: str) -> None:
    """Choose where the current backend creates tensors in this thread or task."""
    _chosen.set(_with(selection.current(), device))


def _with(backend: Backend, device: str) -> Mapping[str, str]:
    return {**_chosen.get(), backend.name: backend.canonical_device(device)}


class use_device(Scope):
    """A scope in which the current backend creates tensors on another device.

    >>> with use_device("cpu"):
    ...     get_device()
    'cpu'
    """

    variable = _chosen

    def value(self) -> Mapping[str, str]:
        """The choices of all backends, with this one of the current backend."""
        return _with(selection.current(), self.choice)


def to_device(x: Like[D, Any, R], /, device: str) -> Tensor[D, Any, R]:
    """A tensor on another device of its backend; the same values."""
    from ember_ml.tensor.convert import to_tensor

    return to_tensor(x).to_device(device)


def _backend(name: str | None) -> Backend:
    return selection.current() if name is None else selection.load(name)


def get_available_devices(backend: str | None = None) -> tuple[str, ...]:
    """The devices of this machine that a backend (the current one) can use.

    >>> get_available_devices("numpy")
    ('cpu',)
    """
    return _backend(backend).devices()


def synchronize(device: str | None = None) -> None:
    """Wait until the work queued on a device (the current one) is done."""
    backend = selection.current()
    backend.synchronize(backend.canonical_device(device) if device else current_device(backend))


def memory_info(device: str | None = None) -> dict[str, int]:
    """Bytes on a device as the engine counts them: `allocated`, `reserved`, `peak`, `total`.

    Keys that an engine does not tell are absent.
    """
    backend = selection.current()
    return backend.memory_info(
        backend.canonical_device(device) if device else current_device(backend)
    )


def memory_usage(device: str | None = None) -> int:
    """Bytes that live tensors hold on a device, as the engine counts them."""
    return memory_info(device)["allocated"]
