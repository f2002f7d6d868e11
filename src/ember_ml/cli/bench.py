"""`ember bench`: what this library costs on this machine, as a table, JSON and a page of plots."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from ember_ml.bench import machine
from ember_ml.bench.catalog import BENCHMARKS
from ember_ml.bench.records import Run, load_run, merged, save_run
from ember_ml.errors import DomainError, FormatError

__all__ = ["bench"]


def bench(
    console: Console,
    names: list[str],
    backends: list[str],
    out: Path,
    *,
    quick: bool,
    compare: Path | None,
    docs: Path | None,
    sources: list[Path],
    check: bool,
) -> None:
    """Measure (or read an earlier run), show, and write files."""
    # What can be wrong is looked at first: nobody waits half an hour for a name that is misspelt.
    before = None if compare is None else _read(compare, "--compare")
    if out.exists() and not out.is_dir():
        raise FormatError(f"--out takes a directory, and '{out}' is a file")
    if docs is not None:
        from ember_ml.bench.documents import check_docs

        check_docs(docs)
    if sources:
        if names or backends or quick:
            raise DomainError(
                "--from shows an earlier run and measures nothing: "
                "leave out NAMES, --backend and --quick"
            )
        runs = [_read(path, "--from") for path in sources]
        run = runs[0] if len(runs) == 1 else merged(runs, BENCHMARKS)
    else:
        from ember_ml.bench.progress import run_with_progress

        def keep(run: Run) -> None:
            out.mkdir(parents=True, exist_ok=True)
            save_run(run, out / "bench.json")

        run = run_with_progress(console, names, backends=backends, quick=quick, keep=keep)
    _show(console, run, before)
    _write(console, run, before, out, docs)
    if run.failed or (check and run.missed):
        raise typer.Exit(1)


def _read(path: Path, option: str) -> Run:
    if not path.is_file():
        raise FormatError(f"{option} takes the bench.json of an earlier run; there is no '{path}'")
    return load_run(path)


def _show(console: Console, run: Run, before: Run | None) -> None:
    from ember_ml.bench.showing import changes, gaps, table

    console.print(table(run, before, console.width))
    for line in gaps(run):
        console.print(line, soft_wrap=True, highlight=False)
    met = len(run.judged) - len(run.missed)
    said = [f"{met} of {len(run.judged)} bars met"] if run.judged else []
    said += [f"{len(run.failed)} failed"] if run.failed else []
    if before is not None:
        said.append(f"{len(changes(run, before))} ratios differ by more than a tenth")
    console.print(f"[bold]{'; '.join(said) or 'no bar was measured'}[/bold]", highlight=False)
    console.print(escape(machine.summary(run.machine)), highlight=False, soft_wrap=True)
    if not {"keras", "autoray", "autograd"} & set(run.machine.get("versions", {})):
        console.print(
            "[dim]Other libraries beside ours: pip install 'ember-ml\\[bench]'[/dim]",
            highlight=False,
        )
    if run.quick:
        console.print("[dim]A quick run: few rounds, some sizes smaller; not for comparison.[/dim]")


def _write(console: Console, run: Run, before: Run | None, out: Path, docs: Path | None) -> None:
    from ember_ml.bench.drawing import write_all

    paths, reason = write_all(run, out, before)
    for path in paths:
        console.print(f"wrote {escape(str(path))}", highlight=False, soft_wrap=True)
    if reason:
        console.print(f"[yellow]{escape(reason)}[/yellow]", soft_wrap=True)
    if docs is not None:
        from ember_ml.bench.documents import renew

        for path in renew(run, docs):
            console.print(f"renewed {escape(str(path))}", highlight=False, soft_wrap=True)
