"""How benchmarks measure: both sides in one process, in shuffled rounds, by medians.

Times are CPU time of the process, which other programs on the machine touch least; wall time is
kept beside it. A script makes `Measure`s and hands them to `taken`, `show` and `missed`.
"""

from __future__ import annotations

import gc
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Measure",
    "Program",
    "Results",
    "finish",
    "installed",
    "machine",
    "missed",
    "show",
    "taken",
]

SECONDS_PER_BATCH = 0.02

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
