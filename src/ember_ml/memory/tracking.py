"""track: how much memory a block of code used, by backend and device."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ember_ml import devices
from ember_ml.backend import selection
from ember_ml.errors import EmberError
from ember_ml.memory.counters import Counter, counter_of

if TYPE_CHECKING:
    from rich.table import Table

    from ember_ml.backend.contract import Backend

__all__ = ["Reading", "Tracker", "readable", "readings_table", "synchronize_all", "track"]


class Reading(NamedTuple):
    """What a counter says of a device, in bytes; see `Tracker` for the words."""

    backend: str
    device: str
    counter: str
    allocated_before: int
    current: int
    peak: int

    @property
    def added(self) -> int:
        """How much the peak lies above what was there before."""
        return self.peak - self.allocated_before


class Tracker:
    """A block whose memory is counted, on every backend that is in use.

    Its numbers are bytes: `allocated_before` at the beginning, `current` and `peak` until now, and
    until the end once it has ended; `added` is the peak without what was there before. They are
    those of one device; `readings` has all, and who counted them: the engine itself where it does,
    tracemalloc for NumPy (from the beginning of the block on), else the resident memory of the
    process. All of these count what the whole process does, in every thread.
    """

    def __init__(self, backend: str | None = None, device: str | None = None) -> None:
        self._chosen = (backend, device)
        self._main: tuple[str, str] | None = None
        self._counters: dict[tuple[str, str], tuple[Counter, int]] = {}
        self._ended: dict[tuple[str, str], Reading] | None = None

    def __enter__(self) -> Tracker:
        if self._main is not None:
            raise EmberError("a Tracker tracks one block; call em.memory.track() again")
        name, device = self._chosen
        home = selection.current() if name is None else selection.load(name)
        where = devices.current_device(home) if device is None else home.canonical_device(device)
        self._main = (home.name, where)
        followed: dict[Counter, int] = {}
        for backend in selection.all_loaded():
            for each in backend.devices():
                counter = counter_of(backend, each, tracing=True)
                if counter not in followed:
                    backend.synchronize(each)
                    followed[counter] = counter.follow(self)
                self._counters[backend.name, each] = (counter, followed[counter])
        return self

    def __exit__(self, *failure: object) -> None:
        synchronize_all()
        current = {counter: counter.current() for counter, _ in self._counters.values()}
        peaks = {counter: counter.leave(self) for counter in current}
        self._ended = {
            (name, device): Reading(
                name, device, counter.label, before, current[counter], peaks[counter]
            )
            for (name, device), (counter, before) in self._counters.items()
        }

    @property
    def readings(self) -> list[Reading]:
        """One for each device of each backend that was in use when the block began."""
        if self._ended is not None:
            return list(self._ended.values())
        if self._main is None:
            raise EmberError("memory is tracked in a block: `with em.memory.track() as m:`")
        synchronize_all()
        return [
            Reading(name, device, counter.label, before, counter.current(), counter.peak_for(self))
            for (name, device), (counter, before) in self._counters.items()
        ]

    def reading(self, backend: str | None = None, device: str | None = None) -> Reading:
        """That of a device, by default the one for which the block was begun."""
        found = self.readings
        main = self._main
        assert main is not None, "readings come only after the beginning"
        name = main[0] if backend is None else backend
        where = device or (main[1] if name == main[0] else None)
        for one in found:
            if one.backend == name and where in (None, one.device):
                return one
        have = ", ".join(f"{one.backend} {one.device}" for one in found)
        raise EmberError(
            f"nothing was tracked for {name} {where or ''}: when the block began there was {have}"
        )

    @property
    def allocated_before(self) -> int:
        """Bytes in use when the block began."""
        return self.reading().allocated_before

    @property
    def current(self) -> int:
        """Bytes in use now, or when the block ended."""
        return self.reading().current

    @property
    def peak(self) -> int:
        """The most bytes that were in use at a time."""
        return self.reading().peak

    @property
    def added(self) -> int:
        """How much the peak lies above what was there before."""
        return self.reading().added

    @property
    def counter(self) -> str:
        """Who counted: "engine", "tracemalloc", "resident" or "resident, sampled"."""
        return self.reading().counter

    def table(self) -> Table:
        """All readings, for rich to print."""
        return readings_table(self.readings)

    def __rich__(self) -> Table:
        return self.table()


def track(backend: str | None = None, device: str | None = None) -> Tracker:
    """Count the memory of a block; see `Tracker`.

    >>> from ember_ml import ops
    >>> with track("numpy") as m:
    ...     x = ops.zeros((1000, 1000))
    ...     del x
    >>> m.counter, m.peak - m.allocated_before >= 4_000_000, m.current < m.peak
    ('tracemalloc', True, True)
    """
    return Tracker(backend, device)


def readings_table(readings: list[Reading], changes: bool = True) -> Table:
    """Readings as a table, with what has changed or without."""
    from rich.table import Table

    table = Table("backend", "device", "counter", title="memory")
    for column in ("before", "now", "peak", "added") if changes else ("now", "peak"):
        table.add_column(column, justify="right")
    for one in readings:
        numbers = [one.current, one.peak]
        if changes:
            numbers = [one.allocated_before, *numbers, one.added]
        table.add_row(one.backend, one.device, one.counter, *map(readable, numbers))
    return table


def readable(count: int) -> str:
    """Bytes as people write them.

    >>> readable(3_500_000)
    '3.5 MB'
    """
    size, unit = float(abs(count)), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    sign = "-" if count < 0 else ""
    return f"{sign}{size:.0f} B" if unit == "B" else f"{sign}{size:.1f} {unit}"


def synchronize_all() -> None:
    """Wait for all work that is queued: what it needs is counted, too."""
    backend: Backend
    for backend in selection.all_loaded():
        for device in backend.devices():
            backend.synchronize(device)
