"""How benchmarks measure: both sides in one process, in shuffled rounds, by medians.

Times are CPU time of the process, which other programs on the machine touch least; wall time is
kept beside it. A script makes `Measure`s and hands them to `taken`, `show` and `missed`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "Measure",
    "Program",
    "Results",
    "finish",
    "installed",
    "machine",
    "main",
    "missed",
    "show",
    "taken",
]

SECONDS_PER_BATCH = 0.02
# Two threads on a busy machine spend their time waiting for each other, as CPU time.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}

Program = Callable[[], Any]


@dataclass
class Measure:
    """Two programs that do the same, and how much more ours may cost."""

    name: str
    raw: Program
    ours: Program
    limit: float | None = None  # what we hold ourselves to: ours over raw,
    extra: float | None = None  # or seconds more than raw,
    most: float | None = None  # or seconds,
    wall: float | None = None  # or ours over raw in wall time
    rounds: int = 15

    @property
    def bar(self) -> str:
        """What we hold ourselves to, in words."""
        if self.extra is not None:
            return f"+{self.extra * 1e6:g} us"
        if self.most is not None:
            return f"{self.most * 1e6:g} us"
        if self.wall is not None:
            return f"{self.wall:g} of wall time"
        return "" if self.limit is None else f"{self.limit:g}"

    def is_missed(self, found: dict[str, float]) -> bool:
        """True where ours costs more."""
        if self.extra is not None:
            return found["ours"] - found["raw"] > self.extra
        if self.most is not None:
            return found["ours"] > self.most
        if self.wall is not None:
            return found["ours_wall"] / found["raw_wall"] > self.wall
        return self.limit is not None and found["ratio"] > self.limit


def finish(result: Any) -> Any:
    """Wait for engines that compute later."""
    native = getattr(result, "native", result)
    wait = getattr(native, "block_until_ready", None)
    if wait is not None:
        wait()
    elif type(native).__module__.startswith("mlx"):
        import mlx.core as mx

        mx.eval(native)
    return result


def once(program: Program, count: int) -> tuple[float, float]:
    """CPU and wall seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        program()
    return (time.process_time() - cpu) / count, (time.perf_counter() - wall) / count


def taken(measure: Measure, rounds: int | None = None) -> dict[str, Any]:
    """What a measure found, beside what we hold ourselves to."""
    found = medians(measure, rounds)
    return {**found, "bar": measure.bar, "missed": measure.is_missed(found)}


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


Results = dict[str, dict[str, Any]]


def show(results: Results) -> None:
    """A table of what was found; `bar` and `missed` stand with the numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table("measure", "raw", "ember_ml", "ratio", "bar", "ratio of wall time")
    for name, found in results.items():
        mark = "red" if found["missed"] else "default"
        table.add_row(
            name,
            readable(found["raw"]),
            readable(found["ours"]),
            f"[{mark}]{found['ratio']:.2f}[/{mark}]",
            found["bar"],
            f"{found['ours_wall'] / found['raw_wall']:.2f}",
        )
    Console(width=120).print(table)


def missed(results: Results) -> list[str]:
    """The measures beyond their bars."""
    return [name for name, found in results.items() if found["missed"]]


def readable(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds > 1e-4 else f"{seconds * 1e6:.2f} us"


def machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def installed() -> list[str]:
    import ember_ml as em

    return [name for name in ("numpy", "torch", "jax", "mlx") if name in em.available_backends()]


def measured(measures: Iterable[Measure], rounds: int | None) -> Results:
    """What some measures find, in this process."""
    results: Results = {}
    for measure in measures:
        print(f"  {measure.name}", file=sys.stderr)
        results[measure.name] = taken(measure, rounds)
    return results


def main(
    description: str | None,
    script: str,
    groups: list[str],
    measures: Callable[[str, list[str]], Iterable[Measure]],
) -> None:
    """The command line of a script: each backend in a process of its own, on one thread."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--backend", action="append", choices=["numpy", "torch", "jax", "mlx"])
    parser.add_argument("--only", action="append", choices=groups)
    parser.add_argument("--rounds", type=int, help="instead of each measure's own number")
    parser.add_argument("--json", help="write all numbers here")
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed")
    options = parser.parse_args()
    backends = options.backend or installed()
    results: Results = {}
    if len(backends) == 1 and ONE_THREAD.items() <= os.environ.items():
        import ember_ml as em

        em.set_backend(backends[0])  # before anything else of JAX: it switches 64-bit types on
        if backends[0] == "torch":
            import torch

            torch.set_num_threads(1)
        chosen = measures(backends[0], options.only or groups)
        results = measured(chosen, options.rounds)
    else:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "found.json"
            command = [sys.executable, script, "--json", str(path)]
            for only in options.only or ():
                command += ["--only", only]
            if options.rounds:
                command += ["--rounds", str(options.rounds)]
            for backend in backends:
                subprocess.run(
                    [*command, "--backend", backend],
                    check=True,
                    stdout=subprocess.DEVNULL,
                    env=os.environ | ONE_THREAD,
                )
                results |= json.loads(path.read_text())["measures"]
    show(results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "measures": results}, file, indent=1)
    if options.check and missed(results):
        sys.exit(f"beyond their bars: {', '.join(missed(results))}")
