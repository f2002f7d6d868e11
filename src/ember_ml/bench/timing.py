"""How benchmarks measure: all sides in one process, in shuffled rounds, by medians.

Times are CPU time of the process, which other programs on the machine touch least; wall time is
kept beside it.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ember_ml.bench.records import Bar

__all__ = ["Measure", "Program", "finish", "medians"]

Program = Callable[[], Any]
Times = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Measure:
    """Programs that do the same, and how much more ours may cost."""

    name: str
    raw: Program
    ours: Program
    bar: Bar | float | None = None  # a number is a ratio
    against: str = ""  # what raw is
    peers: Mapping[str, Program] = field(default_factory=dict)
    rounds: int = 15
    batch: float = 0.02  # seconds that the calls of one round take together
    wait: bool = False  # for the last call of a round, where programs do not wait themselves
    notes: str = ""
    size: int | None = None

    @property
    def limit(self) -> Bar | None:
        """The bar, as a Bar."""
        return Bar("ratio", self.bar) if isinstance(self.bar, (int, float)) else self.bar


def finish(result: Any) -> Any:
    """Wait for engines that compute later; of several results for all at once."""
    several = result if isinstance(result, tuple) else (result,)
    natives = [getattr(one, "native", one) for one in several]
    if hasattr(natives[0], "block_until_ready"):
        import jax

        jax.block_until_ready(natives)
    elif type(natives[0]).__module__.startswith("mlx"):
        import mlx.core as mx

        mx.eval(natives)
    return result


def _once(program: Program, count: int, wait: bool = False) -> tuple[float, float]:
    """CPU and wall seconds of one call; `wait` lets JAX finish what it does in the background.

    Otherwise nobody looks at the result, since a look may compute: a view that runs backwards is an
    array of torch only once it is asked for.
    """
    result = None
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        result = program()
    if wait:
        settle = getattr(getattr(result, "native", result), "block_until_ready", None)
        if settle is not None:
            settle()
    return (time.process_time() - cpu) / count, (time.perf_counter() - wall) / count


def _count(program: Program, seconds: float, wait: bool) -> int:
    """How many calls take so long together."""
    count = 1
    while True:
        cpu, wall = _once(program, count, wait)
        if cpu * count < seconds:
            # Once more: what only the first calls pay for would make the batches too small.
            cpu = min(cpu, _once(program, count, wait)[0])
        # One that waits, and does not compute, must not be called for ever.
        if cpu * count > seconds / 4 or wall * count > 10 * seconds:
            return max(1, int(seconds / max(cpu, wall / 40)))
        count *= 4


def medians(
    programs: Mapping[str, Program], rounds: int, batch: float, wait: bool = False
) -> Times:
    """CPU and wall seconds of a call of each: medians over rounds in which they take turns."""
    for program in programs.values():
        program()
    counts = {name: _count(program, batch, wait) for name, program in programs.items()}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    order = list(programs)
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            random.shuffle(order)
            for name in order:
                spent[name].append(_once(programs[name], counts[name], wait))
    finally:
        if collects:
            gc.enable()
    return {
        name: (statistics.median(cpu for cpu, _ in one), statistics.median(wall for _, wall in one))
        for name, one in spent.items()
    }
