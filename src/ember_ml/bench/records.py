"""What a benchmark finds: one `Record` for each measure, and a `Run` of many with its machine.

>>> from ember_ml.bench.records import Bar, Record
>>> record = Record("overhead", "ops", "add", "numpy", ours=6e-7, raw=5e-7, bar=Bar("ratio", 1.7))
>>> round(record.ratio, 2), record.met, record.bar.text
(1.2, True, '1.7')
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ember_ml.errors import FormatError

__all__ = ["FORMAT", "Bar", "Record", "Run", "load_run", "merged", "readable", "save_run"]

FORMAT = 1  # of the JSON files
KINDS = ("ratio", "extra", "most", "wall")
UNITS = ("s", "B")


def readable(value: float, unit: str = "s") -> str:
    """A time or a number of bytes, as a person reads it.

    >>> readable(3.2e-5), readable(2.5e8, "B")
    ('32.0 us', '250 MB')
    """
    steps = (
        [(1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s")]
        if unit == "s"
        else [(1.0, "B"), (1e3, "KB"), (1e6, "MB"), (1e9, "GB")]
    )
    size, name = next((one for one in reversed(steps) if abs(value) >= one[0]), steps[0])
    scaled = value / size
    digits = 0 if abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:,.{digits}f} {name}"


@dataclass(frozen=True)
class Bar:
    """What we hold ourselves to: `ratio` and `wall` to raw, `extra` over it, or `most` at all."""

    kind: str
    value: float

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise FormatError(f"Bar: no kind is called {self.kind!r}; there are {', '.join(KINDS)}")

    @property
    def text(self) -> str:
        """In words."""
        if self.kind == "extra":
            return f"+{readable(self.value)}"
        if self.kind == "most":
            return f"at most {readable(self.value)}"
        return f"{self.value:.3g}" + (" of wall time" if self.kind == "wall" else "")


@dataclass(frozen=True)
class Record:
    """One measure: ours beside the raw engine, with other libraries where they are installed."""

    benchmark: str
    group: str
    name: str
    backend: str = ""  # empty where no engine is chosen
    ours: float | None = None
    raw: float | None = None
    unit: str = "s"
    against: str = ""  # what raw is
    bar: Bar | None = None
    notes: str = ""
    peers: Mapping[str, float] = field(default_factory=dict)
    ours_wall: float | None = None
    raw_wall: float | None = None
    size: int | None = None  # elements or bytes, where cost is shown by size
    error: str = ""  # why there are no numbers, though there should be
    left_out: str = ""  # what is not installed here

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What is the same in another run."""
        return self.benchmark, self.group, self.name, self.backend

    @property
    def title(self) -> str:
        """The measure with its engine."""
        return f"{self.backend} {self.name}".strip()

    @property
    def ratio(self) -> float | None:
        """Ours over raw."""
        return _over(self.ours, self.raw)

    @property
    def wall_ratio(self) -> float | None:
        """Ours over raw, in wall time."""
        return _over(self.ours_wall, self.raw_wall)

    @property
    def barred(self) -> float | None:
        """What the bar is compared with."""
        if self.bar is None or self.ours is None:
            return None
        if self.bar.kind == "extra":
            return None if self.raw is None else self.ours - self.raw
        if self.bar.kind == "most":
            return self.ours
        return self.wall_ratio if self.bar.kind == "wall" else self.ratio

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where there is none, or no number."""
        found = self.barred
        return None if found is None or self.bar is None else found <= self.bar.value

    def to_json(self) -> dict[str, Any]:
        """For a file; fields that are empty are left out, what follows from others is added."""
        names = ("benchmark", "group", "name")
        found = {k: v for k, v in asdict(self).items() if k in names or v not in (None, "", {})}
        for name in ("ratio", "met"):
            value = getattr(self, name)
            if value is not None:
                found[name] = value
        return found

    @classmethod
    def from_json(cls, data: Any) -> Record:
        """What `to_json` wrote."""
        if not isinstance(data, dict):
            raise FormatError(f"a record is an object, not {data!r}")
        known = {one.name for one in fields(cls)}
        given = {k: v for k, v in data.items() if k in known}
        bar = given.pop("bar", None)
        try:
            record = cls(**given, bar=None if bar is None else Bar(**bar))
        except TypeError as error:
            raise FormatError(f"a record needs other fields: {error}") from error
        numbers = [record.ours, record.raw, record.ours_wall, record.raw_wall]
        numbers += [*record.peers.values(), None if bar is None else bar["value"]]
        for number in numbers:
            if number is not None and not _is_number(number):
                raise FormatError(f"the record {record.title!r} holds {number!r} for a number")
        if record.unit not in UNITS:
            raise FormatError(f"the record {record.title!r} has the unit {record.unit!r}, not s, B")
        return record


def _over(first: float | None, second: float | None) -> float | None:
    return None if first is None or not second else first / second


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and value is not True


@dataclass(frozen=True)
class Run:
    """All records of one run, and the machine that it ran on."""

    machine: Mapping[str, Any]
    records: tuple[Record, ...]
    quick: bool = False

    def of(self, benchmark: str, *groups: str) -> list[Record]:
        """The records of a benchmark, or of some of its groups, that have numbers."""
        return [
            one
            for one in self.records
            if one.benchmark == benchmark and one.group in (groups or (one.group,)) and one.ours
        ]

    @property
    def judged(self) -> list[Record]:
        """Those with a bar and a number."""
        return [one for one in self.records if one.met is not None]

    @property
    def missed(self) -> list[Record]:
        """Those beyond their bars."""
        return [one for one in self.records if one.met is False]

    @property
    def failed(self) -> list[Record]:
        """Those that ended with an error."""
        return [one for one in self.records if one.error]

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            "format": FORMAT,
            "quick": self.quick,
            "machine": dict(self.machine),
            "records": [one.to_json() for one in self.records],
        }

    @classmethod
    def from_json(cls, data: Any) -> Run:
        """What `to_json` wrote."""
        if not isinstance(data, dict) or not {"format", "machine", "records"} <= data.keys():
            raise FormatError("no run of `ember bench`: it has no format, machine and records")
        if data["format"] != FORMAT:
            raise FormatError(
                f"a run in format {data['format']!r}; this version of ember_ml reads {FORMAT}"
            )
        machine, records = data["machine"], data["records"]
        if not isinstance(machine, dict) or not isinstance(records, Iterable):
            raise FormatError("a run whose machine is no object, or whose records are no list")
        return cls(
            machine, tuple(map(Record.from_json, records)), quick=bool(data.get("quick", False))
        )


def merged(runs: Sequence[Run], order: Sequence[str] = ()) -> Run:
    """Runs of several parts as one: of a measure in two of them, the later number is kept.

    The machine is that of the first, with the loads of all and the number of parts.
    """
    found: dict[tuple[str, str, str, str], Record] = {}
    loads: list[float] = []
    for run in runs:
        for one in run.records:
            if one.ours is not None or one.key not in found:
                found[one.key] = one
        loads += run.machine.get("loads") or run.machine.get("load") or []
    places = {name: place for place, name in enumerate(order)}
    records = sorted(found.values(), key=lambda one: places.get(one.benchmark, len(places)))
    machine = dict(runs[0].machine)
    if len(runs) > 1:
        machine |= {"loads": loads, "parts": len(runs)}
    return Run(machine, tuple(records), any(run.quick for run in runs))


def save_run(run: Run, path: Path) -> None:
    """Write a run as JSON."""
    path.write_text(json.dumps(run.to_json(), indent=1) + "\n", encoding="utf-8")


def load_run(path: Path) -> Run:
    """Read a run; a file that holds none is a FormatError that names it."""
    try:
        return Run.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, FormatError) as error:  # JSON's and Unicode's errors are ValueErrors
        raise FormatError(f"{path}: {error}") from error
