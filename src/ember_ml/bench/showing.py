"""Tables of what was found, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ember_ml.bench.records import Record, Run, readable

__all__ = ["changes", "gaps", "table", "verdict"]

# A ratio that differs by less is noise, on most machines.
NOISE = 0.1
# Columns of a terminal from which on other libraries are shown as well.
WIDE = 120
BY_SIZE = ("interchange", "memory")


def verdict(record: Record) -> Text:
    """Met, missed, failed or left out."""
    if record.error:
        return Text("failed", "bold red")
    if record.left_out:
        return Text("left out", "yellow")
    if record.met is None:
        return Text("")
    return Text("met", "green") if record.met else Text("missed", "bold red")


def table(run: Run, before: Run | None = None, width: int = WIDE) -> Table:
    """Every measure: raw, ours, ratio, bar, and whether it is met; peers where there is room."""
    earlier = {one.key: one for one in before.records} if before else {}
    peers = width >= WIDE and any(one.peers for one in run.records)
    found = Table(title="ember_ml beside the raw engines", header_style="bold", pad_edge=False)
    found.add_column("measure", overflow="fold", min_width=16)
    for name in ("raw", "ember_ml", "ratio", "bar"):
        found.add_column(name, justify="right", no_wrap=name != "bar")
    found.add_column("")
    if before is not None:
        found.add_column("was", justify="right")
    if peers:
        found.add_column("beside it, ratio to raw", overflow="fold")
    benchmark = ""
    for record in run.records:
        if record.benchmark != benchmark:
            benchmark = record.benchmark
            found.add_section()
            found.add_row(Text(benchmark, "bold cyan"))
        cells: list[Text | str] = [Text(f"  {record.title}"), *_numbers(record), verdict(record)]
        if before is not None:
            old = earlier.get(record.key)
            cells.append("" if old is None or old.ratio is None else f"{old.ratio:.2f}")
        if peers:
            cells.append(_beside(record))
        found.add_row(*cells)
    return found


def _numbers(record: Record) -> Iterable[str]:
    for value in (record.raw, record.ours):
        yield "" if value is None else readable(value, record.unit)
    # Where the bar is one of wall time, so is the ratio beside it.
    wall = record.bar is not None and record.bar.kind == "wall"
    ratio = record.wall_ratio if wall else record.ratio
    yield "" if ratio is None else f"{ratio:.2f}"
    yield "" if record.bar is None else record.bar.text


def _beside(record: Record) -> str:
    if not record.raw or not record.peers:
        return ""
    if record.benchmark in BY_SIZE:  # other sizes of ours, not other libraries
        return ", ".join(f"{k} {readable(v, record.unit)}" for k, v in record.peers.items())
    return ", ".join(f"{name} {value / record.raw:.2f}" for name, value in record.peers.items())


def gaps(run: Run) -> list[str]:
    """Why some measures have no number, a line for each."""
    return [
        f"[red]failed[/red] {escape(one.title)} ({one.benchmark}): {escape(one.error)}"
        if one.error
        else f"[yellow]left out[/yellow] {escape(one.title)} ({one.benchmark}): "
        f"{escape(one.left_out)}"
        for one in run.records
        if one.error or one.left_out
    ]


def changes(run: Run, before: Run) -> list[tuple[Record, float, float]]:
    """The measures whose ratio is another one than before, the largest change first."""
    earlier = {one.key: one.ratio for one in before.records}
    found = []
    for record in run.records:
        old, new = earlier.get(record.key), record.ratio
        if old and new and abs(new / old - 1) > NOISE:
            found.append((record, old, new))
    return sorted(found, key=lambda one: one[2] / one[1], reverse=True)
