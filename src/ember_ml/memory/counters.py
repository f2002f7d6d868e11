"""Who counts memory, and how a peak is taken between two moments.

Three kinds of counters exist, and a reading says which one it is from:

- `engine`: the engine's own count, exact, of its arrays alone.
- `tracemalloc`: Python's, to which NumPy reports its arrays; it begins when tracing begins.
- `resident`: the main memory that the process has, from the system: all of it, whoever asked.

Peaks of the process are one for all, and begin anew only for all. So whoever wants one of its own
is told by `Counter.fold` what it has been, before it begins anew.
"""

from __future__ import annotations

import threading
import time
import tracemalloc
from typing import TYPE_CHECKING, Final

import numpy as np

from ember_ml.backend import contract

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend

__all__ = ["Counter", "counter_of"]

_SECONDS_BETWEEN_SAMPLES: Final = 0.002


class Counter:
    """A count of bytes with a peak that several can follow at once."""

    name: str
    # Where peaks are looked for now and then, and short ones may be missed.
    sampled = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._peaks: dict[object, int] = {}
        # Since the process began, or since `forget`.
        self._highest_of_all = 0

    @property
    def label(self) -> str:
        """Its name, with a word where it may miss something."""
        return f"{self.name}, sampled" if self.sampled else self.name

    def current(self) -> int:
        """Bytes in use now."""
        raise NotImplementedError

    def _peak(self) -> int:
        """The most bytes in use since the last `_reset`."""
        raise NotImplementedError

    def _reset(self) -> None:
        """Let the peak begin anew."""

    def fold(self) -> None:
        """Tell all who follow how high it has been, and begin anew."""
        with self._lock:
            peak = max(self._peak(), self.current())
            for who, highest in self._peaks.items():
                self._peaks[who] = max(highest, peak)
            self._highest_of_all = max(self._highest_of_all, peak)
            self._reset()

    def highest(self) -> int:
        """The most bytes in use since the process began, or since `forget`."""
        with self._lock:
            self.fold()
            return self._highest_of_all

    def forget(self) -> None:
        """Let the highest of all begin anew; those who follow keep theirs."""
        with self._lock:
            self.fold()
            self._highest_of_all = 0

    def follow(self, who: object) -> int:
        """Keep a peak for someone from now on; gives the bytes in use."""
        with self._lock:
            self._begin()
            self.fold()
            current = self.current()
            self._peaks[who] = current
            return current

    def peak_for(self, who: object) -> int:
        """The most bytes in use since someone began to follow."""
        with self._lock:
            self.fold()
            return self._peaks[who]

    def leave(self, who: object) -> int:
        """End following; gives the peak."""
        with self._lock:
            peak = self.peak_for(who)
            del self._peaks[who]
            if not self._peaks:
                self._end()
            return peak

    def _begin(self) -> None:
        """Make ready for someone who follows."""

    def _end(self) -> None:
        """Nobody follows any more."""


class _Engine(Counter):
    name = "engine"

    def __init__(self, backend: Backend, device: str) -> None:
        super().__init__()
        self._backend = backend
        self._device = device
        # Where the peak cannot begin anew: what it was when somebody last asked.
        self._before = -1

    def current(self) -> int:
        return self._backend.memory_info(self._device)["allocated"]

    def _peak(self) -> int:
        peak = self._backend.memory_info(self._device).get("peak", 0)
        return 0 if peak == self._before else peak  # an old one says nothing of what came after

    def _reset(self) -> None:
        if not self._backend.reset_peak_memory(self._device):
            self._before = self._backend.memory_info(self._device).get("peak", 0)


class _Traced(Counter):
    name = "tracemalloc"
    _ours = False

    def current(self) -> int:
        return tracemalloc.get_traced_memory()[0]

    def _peak(self) -> int:
        return tracemalloc.get_traced_memory()[1]

    def _reset(self) -> None:
        tracemalloc.reset_peak()

    def _begin(self) -> None:
        if not tracemalloc.is_tracing():
            tracemalloc.start(1)
            self._ours = True

    def _end(self) -> None:
        if self._ours:  # and not where the user traces
            tracemalloc.stop()
            self._ours = False


class _Resident(Counter):
    name = "resident"

    def __init__(self) -> None:
        super().__init__()
        self._highest_of_all = contract.host_memory()["peak"]  # before the switch is tried
        self.sampled = not _reset_high_water()
        self._highest = 0
        self._sampler: threading.Thread | None = None

    def current(self) -> int:
        return contract.host_memory()["allocated"]

    def _peak(self) -> int:
        return self._highest if self.sampled else contract.host_memory()["peak"]

    def _reset(self) -> None:
        if self.sampled:
            self._highest = 0
        else:
            _reset_high_water()

    def _begin(self) -> None:
        if self.sampled and self._sampler is None:
            self._sampler = threading.Thread(target=self._sample, daemon=True)
            self._sampler.start()

    def _sample(self) -> None:
        while True:
            with self._lock:
                if self._sampler is not threading.current_thread():
                    return
                self._highest = max(self._highest, self.current())
            time.sleep(_SECONDS_BETWEEN_SAMPLES)

    def _end(self) -> None:
        self._sampler = None


def _reset_high_water() -> bool:
    """Let the system's peak of this process begin anew; False where it has no such switch."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as switch:
            switch.write("5")
    except OSError:
        return False
    return True


_COUNTERS: Final[dict[tuple[str, str], Counter]] = {}
_LOCK: Final = threading.Lock()


def counter_of(backend: Backend, device: str, tracing: bool) -> Counter:
    """Who counts the memory of a device; `tracing` says that NumPy's arrays are to be traced."""
    own = backend.memory_counter(device)
    if own:
        key = (backend.name, own)
    else:
        key = ("tracemalloc" if tracing and backend.native_type is np.ndarray else "resident", "")
    with _LOCK:
        found = _COUNTERS.get(key)
        if found is None:
            if own:
                found = _Engine(backend, device)
            else:
                found = _Traced() if key[0] == "tracemalloc" else _Resident()
            _COUNTERS[key] = found
        return found
