"""The newest run in the documentation: tables and plots between markers of benchmarks.md.

What stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->` is written anew; all else is
prose, and kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from ember_ml.bench import machine, svg
from ember_ml.bench.catalog import ENGINES
from ember_ml.bench.page import render
from ember_ml.bench.records import Record, Run, readable, save_run
from ember_ml.bench.scaling import chart as scaling_chart
from ember_ml.bench.scaling import links
from ember_ml.bench.sections import NAMES, headlines, sections, verdict_text
from ember_ml.distributed.scaling import Link
from ember_ml.errors import FormatError

__all__ = ["PAGE", "blocks", "check_docs", "renew", "replaced"]

PAGE = "benchmarks.md"
MARKER = re.compile(r"<!-- bench:([a-z]+) -->\n(.*?)<!-- /bench:\1 -->", re.DOTALL)


def check_docs(docs: Path) -> None:
    """Raise where the page or its markers are missing."""
    page = docs / PAGE
    if not page.is_file():
        raise FormatError(f"--docs takes the folder that has {PAGE}; '{docs}' has none")
    if not MARKER.search(page.read_text(encoding="utf-8")):
        raise FormatError(f"{page} has no marker as <!-- bench:overhead -->, so nothing is renewed")


def renew(run: Run, docs: Path) -> list[Path]:
    """Write the page's tables, its plots, and the whole run beside them; the files written."""
    check_docs(docs)
    # All of it is made before the first file is touched.
    found, written = blocks(run), {}
    for page in sorted(docs.glob("*.md")):  # others may have markers too
        text = page.read_text(encoding="utf-8")
        if MARKER.search(text):
            written[page] = replaced(text, found)
    assets = docs / "assets"
    for one in sections(run):
        for chart in one.charts:
            written[assets / f"bench-{one.key}.svg"] = svg.figure(chart)
    ranks = scaling_chart(run)
    if ranks is not None:
        written[assets / "scaling.svg"] = svg.figure(ranks)
    written[assets / "bench.html"] = render(run)
    assets.mkdir(exist_ok=True)
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    save_run(run, assets / "bench.json")
    return [*written, assets / "bench.json"]


def replaced(text: str, found: dict[str, str]) -> str:
    r"""The text with what stands between its markers written anew.

    >>> replaced("a <!-- bench:x -->\nold\n<!-- /bench:x --> b", {"x": "new\n"})
    'a <!-- bench:x -->\nnew\n<!-- /bench:x --> b'
    """

    def one(match: re.Match[str]) -> str:
        name = match[1]
        # A run of some benchmarks leaves the numbers of the others as they are.
        inner = found.get(name, match[2])
        return f"<!-- bench:{name} -->\n{inner}<!-- /bench:{name} -->"

    return MARKER.sub(one, text)


# --- Blocks ---------------------------------------------------------------------------------


def blocks(run: Run) -> dict[str, str]:
    """What a run has to say, by the name of its marker."""
    found = {"machine": _machine(run), "missed": _missed(run)}
    for one in sections(run):
        picture = ""
        if one.charts:
            picture = f"![{one.title}: {one.charts[0].x.title}](assets/bench-{one.key}.svg)\n\n"
        make = TABLES.get(one.key, _measures)
        found[one.key] = f"\n{picture}{make(one.records)}\n"
    measured = links(run)
    if measured:
        found["links"] = _links(run, measured)
    return found


def _links(run: Run, measured: dict[str, Link]) -> str:
    """The constants of the links, in words."""
    each = [
        f"{link.latency * 1e6:,.0f} µs for a message and {link.bandwidth / 1e9:.1f} GB in a second "
        f"on {NAMES[engine]}"
        for engine, link in measured.items()
    ]
    return (
        "On the left, links as two processes find them on "
        f"{escape(machine.summary(run.machine))}, by "
        f"`benchmarks/distributed.py`: {', '.join(each)}.\n"
    )


def _machine(run: Run) -> str:
    date = str(run.machine.get("date", "")).partition("T")[0]
    numbers = ", ".join(f"{one.number} {one.label}" for one in headlines(run))
    quick = " It was a quick run: few rounds, some sizes smaller." if run.quick else ""
    return (
        f"\nThis run: {date} on {escape(machine.summary(run.machine))}, with "
        f"{escape(machine.versions_text(run.machine))}.{quick} In short: {numbers}. "
        "[All of it on one page](assets/bench.html), [as JSON](assets/bench.json).\n\n"
    )


def _missed(run: Run) -> str:
    lines = [
        f"- {_engine(one)}`{one.name}`: {verdict_text(one)}, bar {_bar(one)}" for one in run.missed
    ]
    lines += [f"- {one.title} ({one.benchmark}) failed: {escape(one.error)}" for one in run.failed]
    return "\n" + "\n".join(lines or ["Every bar was met."]) + "\n\n"


def _engine(record: Record) -> str:
    return f"{NAMES[record.backend]} " if record.backend else ""


def _bar(record: Record) -> str:
    return "" if record.bar is None else record.bar.text.replace(" us", " µs")


def _value(value: float | None, unit: str) -> str:
    return "" if value is None else readable(value, unit).replace(" us", " µs")


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    kept = [i for i in range(len(names)) if any(row[i] for row in rows)]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells[i].replace("|", "\\|") for i in kept) + " |"

    return "\n".join([line(names), "|" + "---|" * len(kept), *map(line, rows)]) + "\n"


def _measures(records: Sequence[Record]) -> str:
    """A row for each measure, bold beyond the bar; several peers take the place of times."""
    peers = list(dict.fromkeys(name for one in records for name in one.peers))
    names = ("engine", "measure", "against", "raw", "ember_ml", "ratio", *peers, "bar")
    rows = []
    for one in records:
        beside = [
            f"{one.peers[name] / one.raw:.2f}" if one.raw and name in one.peers else ""
            for name in peers
        ]
        times = [_value(one.raw, one.unit), _value(one.ours, one.unit)]
        ratio = one.wall_ratio if one.bar and one.bar.kind == "wall" else one.ratio
        ours = ["" if ratio is None else f"{ratio:.2f}"]
        # What the bar is about is bold: a time where it is one of times.
        bold = times if one.bar and one.bar.kind in ("extra", "most") else ours
        if one.met is False:
            bold[-1] = f"**{verdict_text(one) if bold is ours else bold[-1]}**"
        engine, against = _engine(one).strip(), one.against
        rows.append([engine, one.name, against, *times, *ours, *beside, _bar(one)])
    if len(peers) > 1:
        # The ratio is ours: it stands beside those of the others.
        kept = [0, 1, 3, *range(5, len(names))]
        names = tuple("ember_ml" if name == "ratio" else name for name in names)
        return _table([names[i] for i in kept], [[row[i] for i in kept] for row in rows])
    return _table(names, rows)


def _by_engine(records: Sequence[Record]) -> str:
    """A row for each measure with a column for each engine: numbers beyond the bar are bold."""
    names = list(dict.fromkeys(one.name for one in records))
    cells = {(one.name, one.backend): one for one in records}
    rows = []
    for name in names:
        found = [cells.get((name, engine)) for engine in ENGINES]
        first = next(one for one in found if one is not None)
        row = [f"`{name}`"]
        for one in found:
            text = "" if one is None else verdict_text(one)
            row.append(f"**{text}**" if one is not None and one.met is False else text)
        # Bars that come from the measure itself are not the same on all engines.
        bars = {_bar(one) for one in found if one is not None}
        rows.append([*row, _bar(first) if len(bars) == 1 else ""])
    return _table(("measure", *(NAMES[engine] for engine in ENGINES), "bar"), rows)


def _growth(records: Sequence[Record]) -> str:
    """The ends and the middle of each curve."""
    sizes = sorted({one.size for one in records if one.size})
    shown = [size for size in sizes if size in (4, 256, 16384, 262144, 1_000_000)] or sizes
    rows = []
    for group in dict.fromkeys(one.group for one in records):
        for engine in ENGINES:
            found = {
                one.size: one.ratio
                for one in records
                if one.group == group and one.backend == engine
            }
            if found:
                cells = [found.get(size) for size in shown]
                texts = ["" if ratio is None else f"{ratio:.2f}" for ratio in cells]
                rows.append([group, NAMES[engine], *texts])
    return _table(("op", "engine", *(f"{size:,}" for size in shown)), rows)


def _imports(records: Sequence[Record]) -> str:
    """A row for each library, the quickest first."""
    one = records[0]
    times = {"numpy": one.raw or 0.0, "**ember_ml**": one.ours or 0.0, **one.peers}
    rows = [
        [f"import {name}", _value(value, "s"), _bar(one) if name == "**ember_ml**" else ""]
        for name, value in sorted(times.items(), key=lambda item: item[1])
    ]
    return _table(("library", "CPU time", "bar"), rows)


def _memory(records: Sequence[Record]) -> str:
    """Peaks, and the ratio of a checkpoint for each layer to none."""
    parts = "8 segments"
    rows = []
    for one in records:
        peaks = [_value(one.raw, "B"), _value(one.ours, "B"), _value(one.peers.get(parts), "B")]
        ratio = verdict_text(one)
        bold = f"**{ratio}**" if one.met is False else ratio
        rows.append([NAMES[one.backend], one.name, *peaks, bold, _bar(one)])
    names = ("engine", "way", "kept", "each layer a checkpoint", parts, "ratio", "bar")
    return _table(names, rows)


def _moves(records: Sequence[Record]) -> str:
    """Times at both sizes, and whether memory is shared."""
    copied = "64 MB with copy=True"
    rows = []
    for one in records:
        large = _value(one.ours, "s")
        large = f"**{large}**" if one.met is False else large
        times = [_value(one.raw, "s"), large, _value(one.peers.get(copied), "s")]
        kind = one.notes.removeprefix("memory is ")
        rows.append([NAMES[one.backend], one.name, *times, kind, _bar(one)])
    return _table(("from", "", "16 B", "64 MB", copied, "memory", "bar"), rows)


TABLES: dict[str, Callable[[Sequence[Record]], str]] = {
    "growth": _growth,
    "imports": _imports,
    "memory": _memory,
    "moves": _moves,
    "ops": _by_engine,
    "storage": _by_engine,
}
