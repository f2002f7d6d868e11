"""A run as one picture, by matplotlib, where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import math
import textwrap
from pathlib import Path
from typing import Any

from ember_ml.bench import machine
from ember_ml.bench.charts import LIGHT, RAW, Axis, Chart, Panel, slot, tick_text, ticks
from ember_ml.bench.records import Run
from ember_ml.bench.sections import headlines, sections
from ember_ml.errors import DomainError

__all__ = ["draw_png", "is_available"]

SHAPES = ("o", "^", "D", "s", "v", "o")
INCHES = 0.29  # of a row
INK, SOFT, GRID, GOOD, BAD = "#1d1d1b", "#62625d", "#e3e2dd", "#1a7f37", "#c4282d"


def is_available() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_png(run: Run, path: Path) -> None:
    """Draw all charts of a run below each other."""
    if not is_available():
        raise DomainError(
            f"{path.name} is drawn by matplotlib, which is not installed: "
            "pip install 'ember-ml[plot]'; the HTML page needs none"
        )
    # Its own Figure, not pyplot: nothing of the caller's matplotlib is changed.
    figures: Any = importlib.import_module("matplotlib.figure")
    chapters = [one for one in sections(run) if one.charts]
    charts = [(one, chart) for one in chapters for chart in one.charts]
    if not charts:
        raise DomainError(f"{path.name} was not drawn: no measure of this run has a number")
    heights = [_height(chart) for _, chart in charts]
    top = 1.3
    figure = figures.Figure(figsize=(13, sum(heights) + top), dpi=110, layout="constrained")
    parts = figure.subfigures(len(charts) + 1, 1, height_ratios=[top, *heights])
    _head(run, parts[0])
    for part, (section, chart) in zip(parts[1:], charts, strict=True):
        part.suptitle(section.title, x=0.01, ha="left", fontsize=13, weight="bold", color=INK)
        _chart(part, chart)
    figure.savefig(path, format=path.suffix[1:] or "png")


def _head(run: Run, part: Any) -> None:
    part.text(0.01, 0.72, "ember_ml beside the raw engines", fontsize=18, weight="bold", color=INK)
    numbers = " · ".join(f"{one.number} {one.label}" for one in headlines(run))
    part.text(0.01, 0.38, textwrap.fill(numbers, 150), fontsize=10, color=INK)
    date = str(run.machine.get("date", "")).partition("T")[0]
    text = f"{date} on {machine.summary(run.machine)}"
    part.text(0.01, 0.08, text + (", a quick run" if run.quick else ""), fontsize=9, color=SOFT)


def _columns(chart: Chart) -> int:
    return min(len(chart.panels), 3 if len(chart.panels) == 3 else 2)


def _height(chart: Chart) -> float:
    columns = _columns(chart)
    if chart.kind == "lines":
        return 3.6 * math.ceil(len(chart.panels) / columns)
    rows = [_lanes(chart, one) for one in chart.panels]
    tall = [max(rows[i : i + columns]) for i in range(0, len(rows), columns)]
    return sum(INCHES * count + 0.95 for count in tall) + 0.75


def _lanes(chart: Chart, one: Panel) -> int:
    if chart.kind == "bars":
        return sum(max(1, math.ceil(0.6 * len(row.points))) for row in one.rows)
    return len(one.rows)


def _chart(part: Any, chart: Chart) -> None:
    columns = _columns(chart)
    rows = math.ceil(len(chart.panels) / columns)
    lanes = [_lanes(chart, one) for one in chart.panels]
    tall = [max(lanes[i : i + columns]) + 3 for i in range(0, len(lanes), columns)]
    axes = part.subplots(rows, columns, squeeze=False, height_ratios=tall).flat
    for place, one in zip(axes, chart.panels, strict=False):
        (_lines if chart.kind == "lines" else _rows)(place, chart, one)
        if one.title:
            place.set_title(one.title, fontsize=10, loc="left", color=INK)
    for place in list(axes)[len(chart.panels) :]:
        place.axis("off")
    if len({slot(name) for name in chart.series}) > 1:
        names = chart.series if chart.kind == "lines" else reversed(chart.series)
        handles = [_handle(chart, name) for name in names]
        part.legend(
            handles=handles, loc="upper right", ncols=6, fontsize=8, frameon=False, labelcolor=INK
        )


def _handle(chart: Chart, name: str) -> Any:
    lines: Any = importlib.import_module("matplotlib.lines")
    style = "-" if chart.kind == "lines" else ""
    return lines.Line2D([], [], linestyle=style, label=name, **_look(name))


def _look(name: str) -> dict[str, Any]:
    kind = slot(name)
    colour = LIGHT[kind]
    face = "white" if kind == RAW else colour
    return {
        "color": colour,
        "marker": SHAPES[kind],
        "markerfacecolor": face,
        "markeredgecolor": colour if kind == RAW else "white",
        "markersize": 8 if kind == 0 else 6,
    }


def _scale(place: Any, axis: Axis, which: str) -> None:
    if axis.log:
        getattr(place, f"set_{which}scale")("log")
    getattr(place, f"set_{which}lim")(axis.low, axis.high)
    values = ticks(axis)
    getattr(place, f"set_{which}ticks")(values, [tick_text(axis, one) for one in values])
    getattr(place, f"{which}axis").minorticks_off()
    getattr(place, f"set_{which}label")(axis.title, fontsize=8, color=SOFT)
    if axis.reference is not None:
        line = place.axvline if which == "x" else place.axhline
        line(axis.reference, color=SOFT, linewidth=1, zorder=1)
    place.tick_params(labelsize=8, length=0, colors=SOFT)
    place.grid(True, axis=which, color=GRID, linewidth=0.8)
    place.set_axisbelow(True)
    for spine in place.spines.values():
        spine.set_visible(False)


def _rows(place: Any, chart: Chart, one: Panel) -> None:
    _scale(place, chart.x, "x")
    at = list(range(len(one.rows)))
    place.set_yticks(at, [row.label for row in one.rows], fontsize=8.5, color=INK)
    place.set_ylim(len(one.rows) - 0.4, -0.6)
    for y, row in zip(at, one.rows, strict=True):
        if chart.kind == "bars":
            thick = 0.8 / len(row.points)
            for i, (name, value) in enumerate(row.points.items()):
                shift = (i - (len(row.points) - 1) / 2) * thick
                place.barh(y + shift, value, thick * 0.9, color=LIGHT[slot(name)])
        else:
            start = row.points.get(chart.stem, chart.x.reference)
            ours = next((v for name, v in row.points.items() if slot(name) == 0), None)
            if start is not None and ours is not None:
                place.plot([start, ours], [y, y], color=LIGHT[0], alpha=0.5, linewidth=2)
            if row.bar is not None:
                place.plot([row.bar] * 2, [y - 0.35, y + 0.35], color=INK, linewidth=1.8)
            for name in chart.series:
                if name in row.points:
                    place.plot([row.points[name]], [y], linestyle="", **_look(name))
        colour = SOFT if row.met is None else GOOD if row.met else BAD
        sign = "" if row.met is None else " ✓" if row.met else " ✗"
        place.text(
            1.01, y, row.text + sign, transform=place.get_yaxis_transform(), fontsize=8.5,
            va="center", color=colour,
        )  # fmt: skip


def _lines(place: Any, chart: Chart, one: Panel) -> None:
    assert chart.y is not None, "a chart of lines has two axes"
    _scale(place, chart.x, "x")
    _scale(place, chart.y, "y")
    for name in chart.series:
        if name in one.lines:
            xs, ys = zip(*one.lines[name], strict=True)
            place.plot(xs, ys, linewidth=1.8, **(_look(name) | {"markersize": 5}))
