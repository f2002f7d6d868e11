"""The command line of a program in benchmarks/: one benchmark, by itself."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ember_ml.bench.catalog import ENGINES, benchmark

__all__ = ["main"]


def main(name: str) -> None:
    """Run a benchmark as a program: a table, and files where they are asked for."""
    from rich.console import Console

    from ember_ml.bench import machine
    from ember_ml.bench.progress import run_with_progress
    from ember_ml.bench.records import save_run
    from ember_ml.bench.showing import gaps, table
    from ember_ml.errors import EmberError

    chosen = benchmark(name)
    parser = argparse.ArgumentParser(description=chosen.about)
    parser.add_argument("--backend", action="append", choices=chosen.backends or ENGINES)
    parser.add_argument("--only", action="append", choices=list(chosen.groups))
    parser.add_argument("--rounds", type=int, help="instead of each measure's own number")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--json", type=Path, help="write all numbers here")
    parser.add_argument("--plot", type=Path, help="draw them here: .html, .svg or .png")
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed")
    options = parser.parse_args()
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds takes a number of at least 1, not {options.rounds}")
    console = Console(stderr=True)
    try:
        run = run_with_progress(
            console,
            [name],
            backends=options.backend or (),
            only=options.only or (),
            quick=options.quick,
            rounds=options.rounds,
        )
        out = Console()
        out.print(table(run, width=out.width))
        for line in gaps(run):
            out.print(line, soft_wrap=True, highlight=False)
        console.print(machine.summary(run.machine), style="dim", highlight=False)
        if options.json:
            save_run(run, options.json)
        if options.plot:
            from ember_ml.bench.drawing import draw

            draw(run, options.plot)
    except (EmberError, OSError) as error:
        sys.exit(f"error: {error}")
    if run.failed:
        sys.exit("failed: " + ", ".join(one.title for one in run.failed))
    if options.check and run.missed:
        sys.exit("beyond their bars: " + ", ".join(one.title for one in run.missed))
