"""`ember compare`: one program, written once, on every backend that is installed."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import ember_ml as em
from ember_ml import ops

__all__ = ["Outcome", "agrees", "difference", "program", "run", "run_all", "table"]

# The program runs in float32; sums over 512 points differ in the last digits from engine to engine.
TOLERANCE = 1e-4
REPEATS = 5


def program() -> em.Tensor:
    """Fit a line to 512 points: normal equations first, then gradient descent."""
    x = ops.linspace(-1.0, 1.0, 512)
    y = 2.0 * x + 0.5 + 0.1 * ops.sin(40.0 * x)

    features = ops.stack([x, ops.ones_like(x)], axis=1)
    target = ops.expand_dims(y, axis=1)
    transposed = ops.matrix_transpose(features)
    exact = ops.linalg.solve(transposed @ features, transposed @ target)

    walked = ops.zeros_like(exact)
    for _ in range(60):
        gradient = transposed @ (features @ walked - target) / 512
        walked = walked - gradient

    spread = ops.std(target - features @ walked, keepdims=True)
    return ops.concat([exact, walked, spread])[:, 0]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one backend made of the program: values and times, or its error."""

    backend: str
    device: str = ""
    values: tuple[float, ...] = ()
    start_seconds: float = 0.0
    run_seconds: float = 0.0
    error: str = ""


def run(backend: str) -> Outcome:
    """Load a backend and run the program on it, once to warm up and then for the time."""
    try:
        started = time.perf_counter()
        with em.use_backend(backend):
            device = em.get_device()
            values = tuple(float(v) for v in program().tolist())
            warm = time.perf_counter()
            times = []
            for _ in range(REPEATS):
                began = time.perf_counter()
                program().tolist()
                times.append(time.perf_counter() - began)
    except Exception as error:  # an engine may fail in its own way: report it and go on
        return Outcome(backend, error=f"{type(error).__name__}: {error}")
    return Outcome(backend, device, values, warm - started, min(times))


def run_all(backends: Iterable[str], console: Console) -> list[Outcome]:
    """Run the program on each backend, with a spinner while engines load."""
    outcomes = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        for backend in backends:
            task = progress.add_task(f"{backend}: loading and running")
            outcomes.append(run(backend))
            progress.remove_task(task)
    return outcomes


def difference(outcome: Outcome, reference: Outcome) -> float:
    """The largest distance between the values of two outcomes; infinite where one failed."""
    if outcome.error or reference.error:
        return math.inf
    gaps = [abs(a - b) for a, b in zip(outcome.values, reference.values, strict=True)]
    return math.inf if any(math.isnan(gap) for gap in gaps) else max(gaps)


def agrees(outcome: Outcome, reference: Outcome) -> bool:
    """True where the program ran and gave the reference's values."""
    return difference(outcome, reference) <= TOLERANCE


def table(outcomes: Iterable[Outcome], reference: Outcome) -> Table:
    """The outcomes side by side, each compared with the reference."""
    grid = Table(
        title="One program on every backend installed", box=box.SIMPLE_HEAD, pad_edge=False
    )
    grid.add_column("backend", style="bold")
    grid.add_column("device")
    for heading in ("solved", "descent", "spread", f"vs {reference.backend}", "start", "run"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        if outcome.error:
            grid.add_row(outcome.backend, "[red]failed[/red]")
            continue
        slope, _, slope_walked, _, spread = outcome.values
        off = difference(outcome, reference)
        colour = "green" if agrees(outcome, reference) else "red"
        grid.add_row(
            outcome.backend,
            outcome.device,
            f"{slope:.4f}",
            f"{slope_walked:.4f}",
            f"{spread:.4f}",
            f"[{colour}]{off:.0e}[/{colour}]" if off else f"[{colour}]0[/{colour}]",
            f"{outcome.start_seconds:.2f} s",
            f"{outcome.run_seconds * 1e3:.1f} ms",
        )
    return grid
