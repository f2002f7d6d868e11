"""What storage costs: files against the safetensors library, as ratios.

    python benchmarks/storage.py                      all measures, a table
    python benchmarks/storage.py --only load --json out.json

Both sides of a measure run in one process, in shuffled rounds; times are CPU time of the process,
and the ratio is of medians. `MEASURES` lists the functions that make the measures.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEGABYTE = 1 << 20
SIZE = 512 * MEGABYTE
SECONDS_PER_BATCH = 0.02

Program = Callable[[], Any]


@dataclass
class Measure:
    """Two programs that do the same, and how much more ours may cost."""

    name: str
    raw: Program
    ours: Program
    limit: float | None = None  # what we hold ourselves to
    rounds: int = 15


# --- Files ----------------------------------------------------------------------------------


def tensors(count: int) -> dict[str, Any]:
    import torch

    return {f"layers.{i}.weight": torch.randn(SIZE // 4 // count) for i in range(count)}


def loading(place: Path) -> Iterator[Measure]:
    """Memory maps of 512 MB; a program that reads the values pays for that alike."""
    import safetensors.torch

    import ember_ml as em

    for count, limit in ((64, 1.5), (1, None), (1000, None)):
        path = place / f"load-{count}.safetensors"
        safetensors.torch.save_file(tensors(count), path)

        def raw(path: Path = path) -> Any:
            return safetensors.torch.load_file(path)

        def ours(path: Path = path) -> Any:
            return em.load(path, backend="torch")

        yield Measure(f"load 512 MB, {count} tensors", raw, ours, limit)
        if count == 64:
            yield Measure(
                "load 512 MB and read it all",
                lambda: [float(x.sum()) for x in raw().values()],
                lambda: [float(x.native.sum()) for x in ours().values()],
                rounds=7,
            )
        path.unlink()


def saving(place: Path) -> Iterator[Measure]:
    """512 MB in files; ours is on disk before it takes the place of the old one."""
    import safetensors.torch

    import ember_ml as em

    for count in (64, 1000):
        natives = tensors(count)
        tree = {name: em.ops.asarray(native) for name, native in natives.items()}
        theirs, mine = place / "theirs.safetensors", place / "mine.safetensors"
        yield Measure(
            f"save 512 MB, {count} tensors",
            lambda natives=natives, path=theirs: safetensors.torch.save_file(natives, path),
            lambda tree=tree, path=mine: em.save(path, tree),
            1.1,
            rounds=9,
        )
        theirs.unlink()
        mine.unlink()


# Functions that are given a directory, and make measures one after another.
MEASURES: dict[str, Callable[[Path], Iterator[Measure]]] = {"load": loading, "save": saving}


# --- Measuring ------------------------------------------------------------------------------


def once(program: Program, count: int) -> tuple[float, float]:
    """CPU and wall seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        program()
    return (time.process_time() - cpu) / count, (time.perf_counter() - wall) / count


def medians(measure: Measure, rounds: int | None = None) -> dict[str, float]:
    """Seconds per call of both programs: medians over shuffled rounds."""
    programs = {"raw": measure.raw, "ours": measure.ours}
    counts = {}
    for name, program in programs.items():
        program()
        counts[name] = max(1, int(SECONDS_PER_BATCH / (once(program, 1)[0] or 1e-6)))
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    order = list(programs)
    gc.collect()
    gc.disable()
    for _ in range(rounds or measure.rounds):
        random.shuffle(order)
        for name in order:
            times[name].append(once(programs[name], counts[name]))
    gc.enable()
    result = {}
    for name, spent in times.items():
        result[name] = statistics.median(cpu for cpu, _ in spent)
        result[f"{name}_wall"] = statistics.median(wall for _, wall in spent)
    return {**result, "ratio": result["ours"] / result["raw"]}


def show(results: dict[str, dict[str, float]], limits: dict[str, float | None]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("measure", "raw ms", "ember_ml ms", "ratio", "bar", "ratio of wall time")
    for name, found in results.items():
        limit = limits[name]
        missed = limit is not None and found["ratio"] > limit
        table.add_row(
            name,
            f"{found['raw'] * 1e3:.2f}",
            f"{found['ours'] * 1e3:.2f}",
            f"[red]{found['ratio']:.2f}[/red]" if missed else f"{found['ratio']:.2f}",
            "" if limit is None else f"{limit}",
            f"{found['ours_wall'] / found['raw_wall']:.2f}",
        )
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=list(MEASURES))
    parser.add_argument("--rounds", type=int, help="instead of each measure's own number")
    parser.add_argument("--json", help="write all numbers here")
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed")
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    limits: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name in options.only or MEASURES:
            for measure in MEASURES[name](Path(directory)):
                print(f"  {measure.name}", file=sys.stderr)
                results[measure.name] = medians(measure, options.rounds)
                limits[measure.name] = measure.limit
    show(results, limits)
    if options.json:
        machine = (
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        )
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "measures": results}, file, indent=1)
    missed = [n for n, limit in limits.items() if limit and results[n]["ratio"] > limit]
    if options.check and missed:
        sys.exit(f"beyond their bars: {', '.join(missed)}")


if __name__ == "__main__":
    main()
