"""Charts as SVG: no script, no font and no picture from elsewhere, in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

from ember_ml.bench.charts import (
    DARK,
    LIGHT,
    OURS,
    RAW,
    Axis,
    Chart,
    Panel,
    Row,
    place,
    slot,
    tick_text,
    ticks,
)

__all__ = ["STYLE", "figure", "legend", "panel"]

WIDTH = 430.0
ROW, BAR = 25.0, 9.0
FOOT = 42.0
LINES = 210.0
LETTER = 6.7  # the width of a letter of the labels, about


def _palette(colours: Sequence[str], ink: str, soft: str, grid: str, paper: str) -> str:
    names = "".join(f"--s{i}:{colour};" for i, colour in enumerate(colours))
    return f"{names}--ink:{ink};--soft:{soft};--grid:{grid};--paper:{paper};"


# Shared by pages and by files of their own; a page may set the same variables.
VARIABLES = (
    f":root{{{_palette(LIGHT, '#1d1d1b', '#62625d', '#e3e2dd', '#ffffff')}"
    "--good:#1a7f37;--bad:#c4282d}"
    "@media (prefers-color-scheme: dark){"
    f":root{{{_palette(DARK, '#ecebe6', '#a9a8a2', '#3a3a3f', '#1b1b1f')}"
    "--good:#57c26f;--bad:#ff7b72}}"
)
STYLE = (
    VARIABLES + "svg text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',"
    "sans-serif;fill:var(--ink)}"
    "svg .soft{fill:var(--soft);font-size:11px}svg .head{font-weight:600;font-size:13px}"
    "svg .number{font-variant-numeric:tabular-nums}"
    "svg .good{fill:var(--good)}svg .bad{fill:var(--bad);font-weight:600}"
    "svg .grid{stroke:var(--grid);stroke-width:1}svg .one{stroke:var(--soft);stroke-width:1.2}"
    "svg .limit{stroke:var(--ink);stroke-width:2}svg .stem{stroke-width:2;opacity:.5}"
    "svg .line{fill:none;stroke-width:2;stroke-linejoin:round}"
    + "".join(
        f"svg .f{i}{{fill:var(--s{i});stroke:var(--paper);stroke-width:1}}"
        f"svg .l{i}{{stroke:var(--s{i})}}"
        for i in range(len(LIGHT))
    )
    + f"svg .f{RAW}{{fill:var(--paper);stroke:var(--s{RAW});stroke-width:2}}"
    + f"svg rect.f{RAW}{{fill:var(--s{RAW});stroke:none;opacity:.55}}"
)


def _n(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    kinds = f" class={quoteattr(kind)}" if kind else ""
    side = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{_n(x)}" y="{_n(y)}"{kinds}{side}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"></line>'


def _mark(series: str, x: float, y: float, title: str = "") -> str:
    """A dot, whose shape differs as its colour does."""
    kind = slot(series)
    told = f"<title>{escape(title)}</title>" if title else ""
    if kind in (0, RAW):
        radius = 6 if kind == 0 else 4.5
        return f'<circle class="f{kind}" cx="{_n(x)}" cy="{_n(y)}" r="{radius}">{told}</circle>'
    r = 5.0
    corners = {
        1: [(-r, r * 0.9), (r, r * 0.9), (0, -r)],  # a triangle
        2: [(-r, 0), (0, -r), (r, 0), (0, r)],  # a diamond
        3: [(-r + 1, -r + 1), (r - 1, -r + 1), (r - 1, r - 1), (-r + 1, r - 1)],  # a square
        4: [(-r, -r * 0.9), (r, -r * 0.9), (0, r)],  # a triangle on its head
    }[kind]
    points = " ".join(f"{_n(x + a)},{_n(y + b)}" for a, b in corners)
    return f'<polygon class="f{kind}" points="{points}">{told}</polygon>'


def _shortened(label: str, letters: int) -> str:
    return label if len(label) <= letters else label[: letters - 1].rstrip() + "…"


# --- Rows -----------------------------------------------------------------------------------


def _gutters(chart: Chart, width: float) -> tuple[float, float]:
    """Room for labels at the left and numbers at the right, the same in all panels."""
    rows = [row for one in chart.panels for row in one.rows]
    letters = max((len(row.label) for row in rows), default=0)
    numbers = max((len(row.text) + 2 * (row.met is not None) for row in rows), default=0)
    left = min(letters * LETTER + 20, width * 0.46)
    # Numbers may be bold, which is wider.
    return left, numbers * LETTER * 1.2 + 16


def _axis(axis: Axis, left: float, right: float, top: float, bottom: float) -> list[str]:
    found = []
    for value in ticks(axis, max(3, int((right - left) / 52))):
        x = left + place(axis, value) * (right - left)
        found.append(_line(x, top, x, bottom, "grid"))
        found.append(_text(x, bottom + 14, tick_text(axis, value), "soft", "middle"))
    if axis.reference is not None:
        x = left + place(axis, axis.reference) * (right - left)
        found.append(_line(x, top, x, bottom, "one"))
    found.append(_text((left + right) / 2, bottom + 31, axis.title, "soft", "middle"))
    return found


def _verdict(row: Row, x: float, y: float) -> str:
    if row.met is None:
        return _text(x, y, row.text, "soft number")
    kind, sign = ("good", "✓") if row.met else ("bad", "✗")
    return _text(x, y, f"{row.text} {sign}", f"number {kind}")


def _rows(chart: Chart, one: Panel, width: float) -> tuple[list[str], float]:
    left, gutter = _gutters(chart, width)
    right = width - gutter
    top = 26.0 if one.title else 6.0
    heights = [
        max(ROW, BAR * len(row.points) + 10) if chart.kind == "bars" else ROW for row in one.rows
    ]
    bottom = top + sum(heights)
    found = [_text(0, 15, one.title, "head")] if one.title else []
    found += _axis(chart.x, left, right, top, bottom)
    y = top
    for row, height in zip(one.rows, heights, strict=True):
        middle = y + height / 2
        label = _shortened(row.label, int((left - 8) / LETTER))
        found.append(_text(left - 8, middle + 4, label, "", "end"))
        draw = _bars if chart.kind == "bars" else _dots
        found += draw(chart, row, left, right, middle)
        found.append(_verdict(row, right + 10, middle + 4))
        y += height
    return found, bottom + FOOT


def _dots(chart: Chart, row: Row, left: float, right: float, y: float) -> Iterable[str]:
    def at(value: float) -> float:
        return left + place(chart.x, value) * (right - left)

    ours = next((name for name in row.points if slot(name) == 0), OURS)
    start = row.points.get(chart.stem, chart.x.reference)
    if start is not None and math.isfinite(row.points.get(ours, math.nan)):
        yield _line(at(start), y, at(row.points[ours]), y, "stem l0")
    if row.bar is not None:
        yield _line(at(row.bar), y - 9, at(row.bar), y + 9, "limit")
    for name in chart.series:
        value = row.points.get(name, math.nan)
        if math.isfinite(value):
            yield _mark(name, at(value), y, f"{name}: {_said(chart.x, value)}")


def _bars(chart: Chart, row: Row, left: float, right: float, y: float) -> Iterable[str]:
    top = y - BAR * len(row.points) / 2
    for i, (name, value) in enumerate(row.points.items()):
        long = place(chart.x, value) * (right - left)
        told = escape(f"{name}: {_said(chart.x, value)}")
        # One bar for a row may be as wide as the row.
        thick = BAR - 1 if len(row.points) > 1 else 14
        start = top + i * BAR if len(row.points) > 1 else y - 7
        yield (
            f'<rect class="f{slot(name)}" x="{_n(left)}" y="{_n(start)}" width="{_n(long)}" '
            f'height="{_n(thick)}"><title>{told}</title></rect>'
        )


def _said(axis: Axis, value: float) -> str:
    if axis.unit == "ratio":
        return f"{value:.2f} times"
    return tick_text(axis, value)


# --- Lines ----------------------------------------------------------------------------------


def _curves(chart: Chart, one: Panel, width: float) -> tuple[list[str], float]:
    vertical = chart.y
    assert vertical is not None, "a chart of lines has two axes"
    left, right, top = 46.0, width - 10, 30.0 if one.title else 10.0
    bottom = top + LINES
    found = [_text(0, 15, one.title, "head")] if one.title else []
    found += _axis(chart.x, left, right, top, bottom)
    for value in ticks(vertical):
        y = bottom - place(vertical, value) * LINES
        found.append(_line(left, y, right, y, "grid"))
        found.append(_text(left - 6, y + 4, tick_text(vertical, value), "soft", "end"))
    if vertical.reference is not None:
        y = bottom - place(vertical, vertical.reference) * LINES
        found.append(_line(left, y, right, y, "one"))
    for name in (name for name in chart.series if name in one.lines):
        points = [
            (left + place(chart.x, x) * (right - left), bottom - place(vertical, y) * LINES, x, y)
            for x, y in one.lines[name]
            if math.isfinite(y)
        ]
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y, _, _ in points)
        found.append(f'<polyline class="line l{slot(name)}" points="{path}"></polyline>')
        found += [
            _mark(name, x, y, f"{name}, {tick_text(chart.x, a)}: {_said(vertical, b)}")
            for x, y, a, b in points
        ]
    return found, bottom + FOOT


# --- Whole drawings -------------------------------------------------------------------------


def _drawn(chart: Chart, one: Panel, width: float) -> tuple[list[str], float]:
    return (_curves if chart.kind == "lines" else _rows)(chart, one, width)


def panel(chart: Chart, one: Panel, width: float = WIDTH) -> str:
    """One panel as an <svg>, which takes the style of the page that it is in."""
    parts, height = _drawn(chart, one, width)
    name = quoteattr(one.title or chart.title or chart.x.title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={name} '
        f'viewBox="0 0 {_n(width)} {_n(height)}">{"".join(parts)}</svg>'
    )


def legend(chart: Chart) -> list[tuple[str, str]]:
    """Names and marks of the series, ours first; the bar last."""
    # Rows draw ours last, on top of the others; a legend names it first.
    names = chart.series if chart.kind == "lines" else tuple(reversed(chart.series))
    found = [(name, _mark(name, 8, 8)) for name in names]
    if chart.kind == "bars":
        found = [
            (name, f'<rect class="f{slot(name)}" x="2" y="3" width="12" height="10"></rect>')
            for name in chart.series
        ]
    if chart.has_bars:
        found.append(("bar: what we hold ourselves to", _line(8, 1, 8, 15, "limit")))
    return found


def figure(chart: Chart, columns: int = 2) -> str:
    """A chart as a file of its own, with its legend and its style."""
    columns = min(columns, len(chart.panels))
    # Pages of text are some 700 pixels wide.
    width = 560.0 if columns == 1 else 370.0
    gap, y, x = 28.0, 0.0, 0.0
    total = columns * width + (columns - 1) * gap
    parts: list[str] = []
    if len(chart.series) > 1:
        for name, mark in legend(chart):
            wide = len(name) * LETTER + 38
            if x and x + wide > total:
                x, y = 0.0, y + 22
            parts.append(f'<g transform="translate({_n(x)} {_n(y)})">{mark}')
            parts.append(_text(20, 12, name) + "</g>")
            x += wide
        y += 32
    for start in range(0, len(chart.panels), columns):
        tallest = 0.0
        for column, one in enumerate(chart.panels[start : start + columns]):
            inner, height = _drawn(chart, one, width)
            tallest = max(tallest, height)
            parts.append(f'<g transform="translate({_n(column * (width + gap))} {_n(y)})">')
            parts.append("".join(inner) + "</g>")
        y += tallest + 8
    edge = 14.0
    box = f"{_n(-edge)} {_n(-edge)} {_n(total + 2 * edge)} {_n(y + 2 * edge)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" '
        f'width="{_n(total + 2 * edge)}" height="{_n(y + 2 * edge)}">'
        f"<style>{escape(STYLE)}</style>"
        f'<rect x="{_n(-edge)}" y="{_n(-edge)}" width="100%" height="100%" rx="8" '
        'fill="var(--paper)"></rect>'
        f"{''.join(parts)}</svg>\n"
    )
