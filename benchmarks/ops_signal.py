"""The short-time Fourier transform of a minute of sound against SciPy's and torch's own.

    python benchmarks/ops_signal.py

60 s at 16 kHz in float32, frames of 1024 samples, 256 apart, on one thread. Raw call and ours run
in one process, in shuffled rounds; times are CPU time of the process, and the ratio is of medians.
A bar of 1.0 says: no slower.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

SAMPLES = 60 * 16_000
FRAME, HOP = 1024, 256
ROUNDS = 15

Program = Callable[[], Any]


class Ratio(NamedTuple):
    """One comparison: medians in milliseconds, and the largest ratio that is allowed."""

    backend: str
    ours: str
    raw: str
    ours_ms: float
    raw_ms: float
    bar: float | None

    @property
    def ratio(self) -> float:
        return self.ours_ms / self.raw_ms

    @property
    def met(self) -> bool:
        return self.bar is None or self.ratio <= self.bar


def signal() -> Any:
    import numpy as np

    return np.random.default_rng(0).standard_normal(SAMPLES).astype("float32")


def finish(result: Any) -> None:
    """Wait for engines that compute later."""
    native = getattr(result, "native", result)
    wait = getattr(native, "block_until_ready", None)
    if wait is not None:
        wait()


def medians(programs: dict[str, Program], rounds: int = ROUNDS) -> dict[str, float]:
    """Milliseconds of each program: medians over shuffled rounds."""
    for program in programs.values():
        finish(program())
    times: dict[str, list[float]] = {name: [] for name in programs}
    order = list(programs)
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            started = time.process_time()
            finish(programs[name]())
            times[name].append((time.process_time() - started) * 1e3)
    gc.enable()
    return {name: statistics.median(spent) for name, spent in times.items()}


# --- The programs ---------------------------------------------------------------------------


def on_numpy(rounds: int = ROUNDS) -> list[Ratio]:
    """Ours on NumPy, against both of SciPy's."""
    import scipy.signal

    import ember_ml as em
    from ember_ml import ops

    x = signal()
    window = scipy.signal.get_window("hann", FRAME).astype("float32")
    short = scipy.signal.ShortTimeFFT(window, HOP, 16_000)
    with em.use_backend("numpy"):
        tensor = ops.asarray(x)
        spectrum = ops.stft(tensor, FRAME, HOP)
        times = medians(
            {
                "ops.stft": lambda: ops.stft(tensor, FRAME, HOP),
                "ops.istft": lambda: ops.istft(spectrum, FRAME, HOP, length=SAMPLES),
                "scipy.signal.stft": lambda: scipy.signal.stft(
                    x, window=window, nperseg=FRAME, noverlap=FRAME - HOP
                ),
                "ShortTimeFFT.stft": lambda: short.stft(x),
                "scipy.signal.istft": lambda: scipy.signal.istft(
                    spectrum.numpy().T, window=window, nperseg=FRAME, noverlap=FRAME - HOP
                ),
            },
            rounds,
        )
    pairs = (
        ("ops.stft", "scipy.signal.stft", 1.0),
        ("ops.stft", "ShortTimeFFT.stft", 1.0),
        ("ops.istft", "scipy.signal.istft", None),
    )
    return [Ratio("numpy", a, b, times[a], times[b], bar) for a, b, bar in pairs]


def on_torch(rounds: int = ROUNDS) -> list[Ratio]:
    """Ours on torch, against torch.stft and torch.istft."""
    import torch

    import ember_ml as em
    from ember_ml import ops

    torch.set_num_threads(1)
    x = torch.from_numpy(signal())
    window = torch.hann_window(FRAME)
    raw = torch.stft(x, FRAME, HOP, window=window, return_complex=True)
    with em.use_backend("torch"):
        tensor = ops.asarray(x)
        spectrum = ops.stft(tensor, FRAME, HOP)
        times = medians(
            {
                "ops.stft": lambda: ops.stft(tensor, FRAME, HOP),
                "ops.istft": lambda: ops.istft(spectrum, FRAME, HOP, length=SAMPLES),
                "torch.stft": lambda: torch.stft(x, FRAME, HOP, window=window, return_complex=True),
                "torch.istft": lambda: torch.istft(raw, FRAME, HOP, window=window, length=SAMPLES),
            },
            rounds,
        )
    pairs = (("ops.stft", "torch.stft", 1.1), ("ops.istft", "torch.istft", None))
    return [Ratio("torch", a, b, times[a], times[b], bar) for a, b, bar in pairs]


def measure(rounds: int = ROUNDS) -> list[Ratio]:
    """All comparisons."""
    return [*on_numpy(rounds), *on_torch(rounds)]


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="stft of 60 s at 16 kHz, CPU time")
    for column in ("backend", "ours", "raw", "ours ms", "raw ms", "ratio", "bar", ""):
        table.add_column(column)
    for row in measure():
        verdict = "" if row.bar is None else "[green]met" if row.met else "[red]missed"
        table.add_row(
            row.backend, row.ours, row.raw, f"{row.ours_ms:.1f}", f"{row.raw_ms:.1f}",
            f"{row.ratio:.2f}", "" if row.bar is None else f"{row.bar:.2f}", verdict,
        )  # fmt: skip
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
