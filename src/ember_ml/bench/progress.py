"""A run of benchmarks with a progress bar that says what is measured at the moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ember_ml.bench import machine
from ember_ml.bench.records import Run
from ember_ml.bench.running import plan, run_tasks
from ember_ml.errors import BackendUnavailableError

__all__ = ["run_with_progress"]


def run_with_progress(
    console: Console,
    names: Sequence[str] = (),
    *,
    backends: Sequence[str] = (),
    only: Sequence[str] = (),
    quick: bool = False,
    rounds: int | None = None,
    keep: Callable[[Run], None] = lambda run: None,
) -> Run:
    """Run benchmarks; Ctrl-C keeps what was measured before it.

    `keep` is given what there is after each benchmark, so that a long run that is killed has left
    something behind.
    """
    tasks, records = plan(names, backends, only)
    if not tasks:
        missing = ", ".join(f"{one.name} ({one.left_out})" for one in records)
        raise BackendUnavailableError(
            f"ember bench has nothing to run: {missing or 'no engine has what was asked for'}"
        )
    about: dict[str, Any] = machine.describe()
    loads = list(about["load"][:1])
    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(tasks))
        title = tasks[0].title

        def listen(at: str) -> None:
            progress.update(bar, description=f"{escape(title)}: {escape(at)}")

        listen("starting")
        try:
            for place, (task, found) in enumerate(
                run_tasks(tasks, quick=quick, rounds=rounds, listen=listen)
            ):
                records += found
                if hasattr(os, "getloadavg"):
                    loads.append(round(os.getloadavg()[0], 2))
                if not console.is_terminal:  # a log: a line in place of a bar that moves
                    measures = f"{len(found)} measure" + ("s" if len(found) != 1 else "")
                    console.print(f"{escape(task.title)}: {measures}", highlight=False)
                for one in found:
                    if one.error:
                        console.print(f"[red]{escape(task.title)}[/red]: {escape(one.error)}")
                keep(Run(about | {"loads": loads}, tuple(records), quick))
                progress.advance(bar)
                if place + 1 < len(tasks):
                    title = tasks[place + 1].title
                    listen("starting")
        except KeyboardInterrupt:
            if not records:
                raise
            console.print("[yellow]interrupted[/yellow]: what was measured so far is shown")
    return Run(about | {"loads": loads}, tuple(records), quick)
