"""The manager of memory, and checkpoints under the names that older programs use."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ember_ml import devices
from ember_ml.autodiff.checkpointing import checkpoint
from ember_ml.backend import selection
from ember_ml.memory.counters import Counter, counter_of
from ember_ml.memory.offloading import offload
from ember_ml.memory.tracking import Reading, Tracker, readings_table, synchronize_all
from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    import os

    from rich.table import Table

    from ember_ml.backend.contract import Backend

__all__ = ["GradientCheckpointing", "MemoryManager", "checkpoint_function"]


def checkpoint_function(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `fn(*args, **kwargs)` gives; it is run again for its gradient: see `em.checkpoint`.

    >>> from ember_ml import ops
    >>> checkpoint_function(ops.exp, ops.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return checkpoint(fn)(*args, **kwargs)


class GradientCheckpointing:
    """Checkpoints whose arguments are made tensors first.

    >>> from ember_ml import ops
    >>> GradientCheckpointing().checkpoint(ops.exp, [0.0, 0.0]).tolist()
    [1.0, 1.0]
    """

    def checkpoint(self, fn: Callable[..., Any], *args: Any) -> Any:
        """What `fn` gives for the arguments as tensors; trees of tensors stay as they are."""
        return checkpoint_function(fn, *[_converted(arg) for arg in args])


def _converted(arg: Any) -> Any:
    from ember_ml import tree
    from ember_ml.nn import tensor

    if arg is None or isinstance(arg, dict) or any(isinstance(x, Tensor) for x in tree.leaves(arg)):
        return arg
    return tensor.convert_to_tensor(arg)


class MemoryManager:
    """How much memory is in use, by backend and device, and how to get some back.

    Methods take the name of a backend and of a device, by default the current ones. Numbers are
    bytes that the engine counts or, where it counts none, the resident memory of the process (for
    NumPy those of tracemalloc, while it is tracing); `reading` says which.

    >>> m = MemoryManager()
    >>> m.current("numpy") <= m.peak("numpy")
    True
    """

    # --- Counting ---------------------------------------------------------------------------

    def current(self, backend: str | None = None, device: str | None = None) -> int:
        """Bytes in use."""
        return _counter(*_place(backend, device)).current()

    def peak(self, backend: str | None = None, device: str | None = None) -> int:
        """The most bytes in use since the process began, or since `reset_peak`."""
        return _counter(*_place(backend, device)).highest()

    def reset_peak(self, backend: str | None = None, device: str | None = None) -> None:
        """Let the peak begin anew, for all managers; blocks of `track` keep theirs."""
        _counter(*_place(backend, device)).forget()

    def reading(self, backend: str | None = None, device: str | None = None) -> Reading:
        """All numbers of a device, and who counts them."""
        return _reading(*_place(backend, device))

    def readings(self) -> list[Reading]:
        """Those of every device of each backend in use."""
        selection.current()
        synchronize_all()
        return [_reading(b, device) for b in selection.all_loaded() for device in b.devices()]

    def table(self) -> Table:
        """All readings, for rich to print."""
        return readings_table(self.readings(), changes=False)

    def __rich__(self) -> Table:
        return self.table()

    def track(self, backend: str | None = None, device: str | None = None) -> Tracker:
        """Count the memory of a block: see `em.memory.track`."""
        return Tracker(backend, device)

    # --- Using less -------------------------------------------------------------------------

    def clear_cache(self, backend: str | None = None) -> None:
        """Give memory that engines hold in reserve back; of one backend, or of all in use."""
        gc.collect()
        chosen = selection.all_loaded() if backend is None else [selection.load(backend)]
        for one in chosen:
            for device in one.devices():
                one.synchronize(device)
                one.clear_cache(device)

    def checkpoint(self, fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """A function that is run again for its gradient: see `em.checkpoint`."""
        return checkpoint(fn, **options)

    def checkpoint_function(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What such a function gives."""
        return checkpoint_function(fn, *args, **kwargs)

    def offload(self, to_disk: str | os.PathLike[str] | None = None) -> offload:
        """A block whose values for gradients are kept elsewhere: see `em.memory.offload`."""
        return offload(to_disk)


def _place(backend: str | None, device: str | None) -> tuple[Backend, str]:
    home = selection.current() if backend is None else selection.load(backend)
    where = devices.current_device(home) if device is None else home.canonical_device(device)
    home.synchronize(where)
    return home, where


def _counter(backend: Backend, device: str) -> Counter:
    return counter_of(backend, device, tracing=tracemalloc.is_tracing())


def _reading(backend: Backend, device: str) -> Reading:
    counter = _counter(backend, device)
    current, peak = counter.current(), counter.highest()
    return Reading(backend.name, device, counter.label, current, current, peak)
