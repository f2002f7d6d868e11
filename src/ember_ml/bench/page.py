"""A run as one page of HTML: plots first, every number below them, no script and nothing loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

from ember_ml.bench import machine, svg
from ember_ml.bench.charts import Chart
from ember_ml.bench.records import Record, Run, readable
from ember_ml.bench.sections import NAMES, Section, headlines, sections, verdict_text
from ember_ml.bench.showing import changes

__all__ = ["render"]

STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
  font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:28px;line-height:1.2;margin:0 0 6px}
h2{font-size:20px;margin:0 0 4px}
p{margin:0 0 10px;max-width:78ch}
a{color:var(--s0)}
.soft{color:var(--soft);font-size:14px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(118px,1fr));gap:10px;margin:18px 0}
.tile{background:var(--paper);border:1px solid var(--grid);border-radius:10px;padding:10px 12px}
.tile b{display:block;font-size:22px;line-height:1.3;white-space:nowrap;
  font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:13px}
nav{display:flex;flex-wrap:wrap;gap:4px 14px;margin:0 0 22px;font-size:14px}
.sections{display:grid;grid-template-columns:minmax(0,1fr);gap:18px;margin:0 0 18px}
@media (min-width:1000px){.sections{grid-template-columns:repeat(2,minmax(0,1fr))}
  .wide{grid-column:1/-1}}
section{background:var(--paper);border:1px solid var(--grid);border-radius:12px;
  padding:18px 20px;min-width:0}
.panels{display:grid;gap:8px 30px;
  grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}
.panels.three{grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr))}
.panels svg{width:100%;height:auto;display:block}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin:6px 0 10px;padding:0;list-style:none;
  font-size:13px;color:var(--soft)}
.legend svg{width:16px;height:16px;vertical-align:-3px;margin-right:5px}
.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}
.missed{columns:2 320px;margin:0 0 10px;padding-left:20px;font-size:14px}
details{margin-top:10px}section>details:first-child{margin-top:0}
summary{cursor:pointer;color:var(--soft);font-size:14px}
.scroll{overflow-x:auto;margin-top:8px}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;min-width:100%}
th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--grid);vertical-align:top}
th{color:var(--soft);font-weight:600;white-space:nowrap}
.right{text-align:right;white-space:nowrap}
@media (max-width:520px){main{padding:18px 10px 40px}section{padding:14px 12px}h1{font-size:23px}
  .tile b{font-size:18px}}
@media print{section{break-inside:avoid}}
"""
GROUND = (
    ":root{color-scheme:light dark;--ground:#f6f5f1}"
    "@media (prefers-color-scheme: dark){:root{--ground:#131316}}"
)

MANY = 12


def render(run: Run, before: Run | None = None) -> str:
    """The page, as well-formed XML that browsers read as HTML."""
    chapters = sections(run)
    body = [
        "<main>",
        _head(run),
        _nav(chapters),
        '<div class="sections">',
        _misses(run),
        "" if before is None else _changes(run, before),
        *map(_section, chapters),
        _absent(run),
        "</div>",
        _foot(run),
        "</main>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        "<title>ember_ml beside the raw engines</title>"
        f"<style>{escape(svg.STYLE + GROUND + STYLE)}</style></head>\n"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _head(run: Run) -> str:
    tiles = "".join(
        f'<div class="tile"><b{_kind(one.good)}>{escape(one.number)}</b>'
        f"<span>{escape(one.label)}</span></div>"
        for one in headlines(run)
    )
    date = str(run.machine.get("date", "")).partition("T")[0]
    quick = " A quick run: few rounds, some sizes smaller." if run.quick else ""
    return (
        "<h1>ember_ml beside the raw engines</h1>"
        "<p>Each number is what our call costs over what the engine's own call costs, in one "
        f"process, in turns: 1 is no overhead.{quick}</p>"
        f'<p class="soft">{escape(date)} on {escape(machine.summary(run.machine))}.</p>'
        f'<div class="tiles">{tiles}</div>'
    )


def _kind(good: bool | None) -> str:
    return "" if good is None else ' class="good"' if good else ' class="bad"'


def _nav(chapters: Sequence[Section]) -> str:
    links = "".join(f'<a href="#{one.key}">{escape(one.title)}</a>' for one in chapters)
    return f"<nav>{links}</nav>"


def _misses(run: Run) -> str:
    if not run.missed:
        return ""
    rows = "".join(
        f"<li>{escape(_title(one))}: "
        f'<span class="bad">{escape(verdict_text(one))}</span>, bar {escape(_bar(one))}</li>'
        for one in run.missed
    )
    # The charts mark each of them as well: a long list must not push those off the screen.
    shown = ' open="open"' if len(run.missed) <= MANY else ""
    count = "1 measure is" if len(run.missed) == 1 else f"{len(run.missed)} measures are"
    return (
        f'<section class="wide"><details{shown}><summary>{count} beyond the bar</summary>'
        f'<ul class="missed">{rows}</ul><p class="soft">Bars are what we hold ourselves to; a busy '
        "machine moves those that are near.</p></details></section>"
    )


def _title(record: Record) -> str:
    engine = NAMES.get(record.backend, record.backend) if record.backend else ""
    return f"{engine} {record.name}".strip()


def _bar(record: Record) -> str:
    return "" if record.bar is None else record.bar.text.replace(" us", " µs")


def _changes(run: Run, before: Run) -> str:
    found = changes(run, before)
    date = str(before.machine.get("date", "an earlier run")).partition("T")[0]
    rows = [
        [
            _title(record),
            record.benchmark,
            f"{old:.2f}",
            f"{new:.2f}",
            f"{100 * (new / old - 1):+.0f}%",
        ]
        for record, old, new in found
    ]
    words = (
        f"{len(rows)} ratios differ by more than a tenth from the run of {date}."
        if rows
        else f"No ratio differs by more than a tenth from the run of {date}."
    )
    text = '<section class="wide"><h2>Compared</h2>'
    text += f"<p>{escape(words)}</p>"
    if rows:
        names = ("measure", "benchmark", "before", "now", "change")
        text += _table(names, rows, right=(2, 3, 4))
    return text + "</section>"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = [' class="right"' if i in right else "" for i in range(len(row))]
        return "".join(f"<{tag}{kind}>{one}</{tag}>" for kind, one in zip(kinds, row, strict=True))

    head = cells("th", list(map(escape, names)))
    body = "".join(f"<tr>{cells('td', list(map(escape, row)))}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _section(one: Section) -> str:
    drawn = "".join(map(_chart, one.charts))
    # One panel needs half of a wide screen.
    wide = ' class="wide"' if any(len(chart.panels) > 1 for chart in one.charts) else ""
    return (
        f'<section id="{one.key}"{wide}><h2>{escape(one.title)}</h2>'
        f"<p>{escape(one.about)}</p>{drawn}"
        f"<details><summary>Numbers ({len(one.records)})</summary>{_numbers(one.records)}"
        "</details></section>"
    )


def _chart(chart: Chart) -> str:
    marks = "".join(
        f'<li><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" aria-hidden="true">'
        f"{mark}</svg>{escape(name)}</li>"
        for name, mark in svg.legend(chart)
    )
    # Rows that name themselves need no legend.
    shows = chart.kind != "bars" or len(chart.panels[0].rows[0].points) > 1
    key = f'<ul class="legend">{marks}</ul>' if shows else ""
    count = {1: " one", 3: " three"}.get(len(chart.panels), "")
    # Between what a wide screen shows and what a narrow one does: letters can be read on both.
    width = 350.0 if count == " three" else svg.WIDTH
    panels = "".join(svg.panel(chart, one, width) for one in chart.panels)
    return f'{key}<div class="panels{count}">{panels}</div>'


def _numbers(records: Sequence[Record]) -> str:
    rows = []
    for one in records:
        beside = ", ".join(
            f"{name} {value / one.raw:.2f}" if one.raw else f"{name} {readable(value, one.unit)}"
            for name, value in one.peers.items()
        )
        met = "" if one.met is None else "met" if one.met else "missed"
        rows.append(
            [
                _title(one),
                one.against,
                *("" if v is None else _plain(v, one.unit) for v in (one.raw, one.ours)),
                "" if one.ratio is None else f"{one.ratio:.2f}",
                "" if one.wall_ratio is None else f"{one.wall_ratio:.2f}",
                _bar(one),
                met,
                beside,
                one.notes,
            ]
        )
    names = ("measure", "raw is", "raw", "ember_ml", "ratio", "wall", "bar", "", "beside", "notes")
    kept = [i for i in range(len(names)) if i == 0 or any(row[i] for row in rows)]
    return _table(
        [names[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        right=[place for place, i in enumerate(kept) if i in (2, 3, 4, 5, 6)],
    )


def _plain(value: float, unit: str) -> str:
    return readable(value, unit).replace(" us", " µs")


def _absent(run: Run) -> str:
    rows = [
        [_title(one), one.benchmark, one.error or one.left_out]
        for one in run.records
        if one.error or one.left_out
    ]
    if not rows:
        return ""
    table = _table(("measure", "benchmark", "why"), rows)
    return f'<section class="wide"><h2>Without a number</h2>{table}</section>'


def _foot(run: Run) -> str:
    return (
        '<p class="soft">Times are CPU time of the process, medians over shuffled rounds, one '
        "thread. Absolute times depend on the machine; trust the ratios, and not their last digit. "
        f"Measured with {escape(machine.versions_text(run.machine))}.</p>"
    )
