"""The report of a job that failed: which rank, how and where, and whom it took along."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ember_ml.distributed.launching.output import Screen, printable
from ember_ml.distributed.launching.ranks import RankState

__all__ = ["sentence", "show"]

_MOST_LINES = 12
_MOST_ROWS = 16


def sentence(cause: RankState | None, why: str = "") -> str:
    """What happened, in one line."""
    if cause is None:
        return why or "the job failed"
    if cause.ending == "lost":
        return cause.error or "a node is lost"
    at = f" at step {cause.step}" if cause.step is not None else ""
    who = f"rank {cause.rank} (host {cause.host}, pid {cause.pid})"
    if cause.error and cause.ending in ("", "exit"):
        first = cause.error.splitlines()[0]
        return f"{who} raised {first}{at}"
    how, comma, rest = cause.how().partition(",")
    was = "" if cause.ending == "exit" else "was "
    return f"{who} {was}{how}{at}{comma}{rest}"


def show(
    screen: Screen,
    cause: RankState | None,
    ranks: Sequence[RankState],
    *,
    why: str = "",
    attempt: int = 0,
    seconds: float = 0.0,
) -> None:
    """Print the report on stderr, at once, between the lines of ranks."""
    stream = screen.stream("err")
    width = None if stream.isatty() else 100
    console = Console(file=stream, width=width, highlight=False, emoji=False)
    parts: list[RenderableType] = [Text(printable(sentence(cause, why)), style="bold")]
    if cause is not None:
        parts += _about(cause)
        if cause.doubt:
            parts += _gone_before(ranks)
    parts.append(_table(cause, ranks))
    title = f"ember launch: the job failed after {seconds:.1f} s"
    if attempt:
        title += f" (attempt {attempt + 1})"
    with console.capture() as kept:
        console.print(Panel(Group(*parts), title=title, title_align="left", border_style="red"))
    screen.write("err", kept.get())


def _about(cause: RankState) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if cause.where:
        text = f"in {cause.where}"
        if cause.inside:
            text += f", which was in {cause.inside}"
        if not cause.error:
            text += f" (as of its last beat, {cause.silent:.1f} s before)"
        parts.append(Text(printable(text)))
    if cause.lines:
        kept = cause.lines[-_MOST_LINES:]
        parts.append(Text("\n" + "\n".join(printable(line) for line in kept) + "\n", style="dim"))
    return parts


def _gone_before(ranks: Sequence[RankState]) -> list[RenderableType]:
    """Who was missed by the others though nothing was wrong with it: its program had ended."""
    early = [one for one in ranks if one.finished or one.left]
    if not early:
        return []
    first = early[0]
    how = "ended well" if first.finished else "left by em.distributed.shutdown()"
    at = f" at step {first.step}" if first.step is not None else ""
    others = f" (and {len(early) - 1} more)" if len(early) > 1 else ""
    text = (
        f"the program of rank {first.rank}{others} had {how}{at}, and another rank still "
        f"needed it: all ranks must make the same collective calls"
    )
    return [Text(text)]


def _table(cause: RankState | None, ranks: Sequence[RankState]) -> Table:
    grid = Table(box=None, pad_edge=False, show_edge=False)
    for name in ("rank", "host", "pid", "how it ended", "step", "where"):
        grid.add_column(name, overflow="fold", justify="right" if name == "step" else "left")
    # Those that failed by themselves first, where there are too many to show.
    ordered = sorted(ranks, key=lambda one: (one is not cause, one.asked, one.rank))
    for one in sorted(ordered[:_MOST_ROWS], key=lambda one: one.rank):
        style = "red" if one is cause else ("" if one.failed else "dim")
        step = "" if one.step is None else str(one.step)
        cells = (str(one.rank), one.host, str(one.pid or ""), _ending(one, cause), step, one.where)
        grid.add_row(*(Text(printable(cell)) for cell in cells), style=style)
    if len(ordered) > _MOST_ROWS:
        grid.add_row("...", f"{len(ordered) - _MOST_ROWS} more", style="dim")
    return grid


def _ending(one: RankState, cause: RankState | None) -> str:
    if one.asked:
        return "ended by the launcher because of it"
    if one is not cause and one.follows:
        return f"{one.how()}: it lost its peers"
    if one.ending == "exit" and not one.code and not one.error:
        return "ended well"
    return one.how()
