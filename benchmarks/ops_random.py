"""What random numbers cost: ours against NumPy's Philox, and each engine's own beside.

    python benchmarks/ops_random.py                   all installed backends, a table
    python benchmarks/ops_random.py --json out.json

Each backend has a process of its own. Programs run in shuffled rounds; times are CPU time of the
process, and the ratio is of medians. `measure(backend)` gives the numbers.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

LARGE = 10_000_000
SMALL = 10
ROUNDS = 11
SECONDS_PER_BATCH = 0.02
# Ours as a multiple of NumPy's Philox, on every backend.
LIMITS = {"normal 1e7": 1.3}

Program = Callable[[], Any]


def philox_programs() -> dict[str, Program]:
    """NumPy by itself: a generator of Philox for each call, as ours has a stream for each."""
    import numpy as np
    from numpy.random import Generator, Philox

    def draws() -> Generator:
        return Generator(Philox(key=5, counter=[0, 0, 1, 0]))

    return {
        "normal 1e7": lambda: draws().standard_normal(LARGE, dtype=np.float32),
        "uniform 1e7": lambda: draws().random(LARGE, dtype=np.float32),
        "normal 10": lambda: draws().standard_normal(SMALL, dtype=np.float32),
        "randint 10": lambda: draws().integers(0, 100, SMALL),
    }


def ember_programs(backend: str, **options: Any) -> dict[str, Program]:
    import ember_ml as em
    from ember_ml import ops

    em.set_backend(backend)
    ops.random.set_seed(5)
    if backend == "torch":
        import torch

        torch.set_num_threads(1)
    return {
        "normal 1e7": lambda: ops.random.normal((LARGE,), **options),
        "uniform 1e7": lambda: ops.random.uniform((LARGE,), **options),
        "normal 10": lambda: ops.random.normal((SMALL,), **options),
        "randint 10": lambda: ops.random.randint(0, 100, (SMALL,), **options),
    }


def finish(result: Any) -> None:
    """Wait for engines that compute later."""
    native = getattr(result, "native", result)
    wait = getattr(native, "block_until_ready", None)
    if wait is not None:
        wait()
    elif type(native).__module__.startswith("mlx"):
        import mlx.core as mx

        mx.eval(native)


def once(program: Program, count: int) -> float:
    """Seconds of one call, over several."""
    started = time.process_time()
    for _ in range(count):
        finish(program())
    return (time.process_time() - started) / count


def measure(backend: str, rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Seconds of a call, by program and library: medians over shuffled rounds."""
    libraries = {
        "philox": philox_programs(),
        "ember_ml": ember_programs(backend),
        "native": ember_programs(backend, native=True),
    }
    programs = {(n, lib): p for lib, made in libraries.items() for n, p in made.items()}
    counts = {}
    for key, program in programs.items():
        once(program, 1)
        counts[key] = max(1, int(SECONDS_PER_BATCH / max(once(program, 1), 1e-6)))
    times: dict[tuple[str, str], list[float]] = {key: [] for key in programs}
    order = list(programs)
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        random.shuffle(order)
        for key in order:
            times[key].append(once(programs[key], counts[key]))
    gc.enable()
    found: dict[str, dict[str, float]] = {}
    for (name, library), spent in times.items():
        found.setdefault(name, {})[library] = statistics.median(spent)
    return found


def show(results: dict[str, dict[str, dict[str, float]]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Random numbers: microseconds of a call, and ours over NumPy's Philox")
    for column in ("backend", "program", "philox", "ember_ml", "native=True", "ratio", "bar", ""):
        table.add_column(column, justify="left" if column in ("backend", "program") else "right")
    for backend, programs in results.items():
        for name, times in programs.items():
            ratio = times["ember_ml"] / times["philox"]
            limit = LIMITS.get(name)
            verdict = "" if limit is None else "[green]met" if ratio <= limit else "[red]missed"
            cells = [f"{times[lib] * 1e6:,.1f}" for lib in ("philox", "ember_ml", "native")]
            bar = "" if limit is None else f"{limit:g}"
            table.add_row(backend, name, *cells, f"{ratio:.2f}", bar, verdict)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", action="append", help="only these backends")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", help="write all numbers here")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(options.worker, options.rounds)))
        return
    from ember_ml import available_backends

    results = {}
    for backend in options.backend or available_backends():
        out = subprocess.run(
            [sys.executable, __file__, "--worker", backend, "--rounds", str(options.rounds)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        results[backend] = json.loads(out.stdout.splitlines()[-1])
    show(results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
