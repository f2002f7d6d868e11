"""Charts as data: what is drawn, whoever draws it. `svg` makes pages of them, `png` pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ember_ml.bench.records import readable

__all__ = [
    "DARK",
    "LIGHT",
    "OURS",
    "RAW",
    "TIMES",
    "Axis",
    "Chart",
    "Panel",
    "Row",
    "place",
    "series_of",
    "slot",
    "tick_text",
    "ticks",
]

OURS = "ember_ml"
TIMES = "\N{MULTIPLICATION SIGN}"

# A library has the same colour and the same shape wherever it is drawn.
SLOTS = {
    OURS: 0,
    "64 MB": 0,
    "each layer a checkpoint": 0,
    "array-api-compat": 1,
    "torch.nn": 1,
    "mlx.nn": 1,
    "HIPS autograd": 1,
    "autograd": 1,
    "jax": 1,
    "autoray": 2,
    "mlx": 2,
    "mlx.core": 2,
    "8 segments": 2,
    "64 MB with copy=True": 2,
    "keras": 3,
    "25 Gb/s Ethernet": 1,
    "100 Gb/s Ethernet": 2,
    "400 Gb/s InfiniBand": 3,
    "keras.ops": 3,
    "keras.Sequential": 3,
    "numpy": 3,
    "pywebnn": 4,
    "torch": 4,
}
# Ours, four others, then what they are held against; the names are those of CSS variables.
LIGHT = ("#d4500c", "#00798c", "#7b4fb5", "#2f6fd0", "#b8336a", "#8a8a85")
DARK = ("#ff8f4f", "#3fb8c6", "#b794f0", "#7aa7ff", "#f07ba8", "#93939c")
RAW = 5


def slot(series: str) -> int:
    """The colour and the shape of a series; what nobody knows is drawn as raw is."""
    return SLOTS.get(series, RAW)


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high`; `unit` is s, B, ratio or count."""

    title: str
    unit: str
    low: float
    high: float
    log: bool = True
    reference: float | None = None  # a line that is drawn through all rows

    @classmethod
    def around(
        cls,
        values: Iterable[float],
        title: str,
        unit: str,
        *,
        log: bool = True,
        reference: float | None = None,
        least: float = 0.0,
    ) -> Axis:
        """An axis on which all values have a place, with some air; `least` is how wide it must be.

        >>> axis = Axis.around([1.0, 2.0], "times", "ratio", reference=1.0)
        >>> axis.low < 1.0, axis.high > 2.0
        (True, True)
        """
        found = [one for one in values if one > 0 or not log]
        found += [] if reference is None else [reference]
        low, high = min(found, default=1.0), max(found, default=1.0)
        if not log:
            return cls(title, unit, 0.0, (high or 1.0) * 1.06, False, reference)
        middle, spread = math.sqrt(low * high), max(high / low, 10**least)
        low, high = middle / math.sqrt(spread), middle * math.sqrt(spread)
        air = spread**0.06
        return cls(title, unit, low / air, high * air, True, reference)


@dataclass(frozen=True)
class Row:
    """A measure: the values of some series, and the bar that ours is held to."""

    label: str
    points: Mapping[str, float]
    bar: float | None = None
    text: str = ""  # the number beside the row
    met: bool | None = None


@dataclass(frozen=True)
class Panel:
    """Rows, or lines of (x, y), under one title."""

    title: str
    rows: tuple[Row, ...] = ()
    lines: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Chart:
    """Panels that share their axes; `kind` is dots, bars or lines."""

    kind: str
    panels: tuple[Panel, ...]
    series: tuple[str, ...]
    x: Axis
    y: Axis | None = None
    title: str = ""
    stem: str = ""  # dots: the series from which a line leads to ours; the reference if none

    @property
    def has_bars(self) -> bool:
        """Whether any row has a bar."""
        return any(row.bar is not None for panel in self.panels for row in panel.rows)


def place(axis: Axis, value: float) -> float:
    """Where a value is between the ends of an axis, from 0 to 1.

    >>> round(place(Axis("", "ratio", 0.1, 10.0), 1.0), 6)
    0.5
    """
    if axis.log:
        low, high = math.log(axis.low), math.log(axis.high)
        value = math.log(max(value, axis.low))
    else:
        low, high = axis.low, axis.high
    return min(1.0, max(0.0, (value - low) / (high - low)))


def ticks(axis: Axis, most: int = 6) -> list[float]:
    """Round values on an axis, few enough to be read.

    >>> ticks(Axis("", "ratio", 0.4, 12.0))
    [0.5, 1.0, 2.0, 5.0, 10.0]
    """
    if not axis.log:
        step = 10.0 ** math.floor(math.log10(max(axis.high, 1e-300)))
        sizes = (step / 5, step / 2, step, step * 2, step * 5)
        step = next((s for s in sizes if axis.high / s <= most), step * 10)
        return [i * step for i in range(int(axis.high / step) + 1)]
    first, last = math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high))
    found: list[float] = []
    for steps in ((1, 1.2, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        found = [
            float(f"{s}e{power}")
            for power in range(first, last + 1)
            for s in steps
            if axis.low <= float(f"{s}e{power}") <= axis.high
        ]
        if len(found) <= most:
            return found
    return found[:: -(-len(found) // most)]


def tick_text(axis: Axis, value: float) -> str:
    """A value of an axis in words.

    >>> tick_text(Axis("", "s", 1e-7, 1e-3), 1e-6), tick_text(Axis("", "count", 1, 1e6), 1e5)
    ('1 µs', '100k')
    """
    if axis.unit == "ratio":
        return f"{value:g}{TIMES}"
    if axis.unit == "percent":
        return f"{value:g}%"
    if axis.unit == "count":
        for size, name in ((1e6, "M"), (1e3, "k")):
            if value >= size:
                return f"{value / size:g}{name}"
        return f"{value:g}"
    if not value:
        return "0"
    number, _, unit = readable(value, axis.unit).partition(" ")
    return f"{float(number.replace(',', '')):g} {unit.replace('us', 'µs')}"


def series_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """All series of some rows: what ours is held against first, ours last, drawn on top."""
    found = dict.fromkeys(name for row in rows for name in row.points)
    return tuple(sorted(found, key=lambda name: (slot(name) != RAW, -slot(name))))
