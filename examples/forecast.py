"""A time series: a GRU reads two days of a noisy signal and tells the next six hours.

python examples/forecast.py --backend jax --plot forecast.png
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.training import AdamW, DataLoader, Trainer

PAST, AHEAD = 48, 6


def series(hours: int = 2400) -> np.ndarray:
    """Days within weeks, a slow drift, and noise."""
    t = np.arange(hours)
    noise = np.random.default_rng(0).normal(0, 0.1, hours)
    day, week = np.sin(2 * np.pi * t / 24), np.sin(2 * np.pi * t / 168)
    return (day * (1 + 0.5 * week) + 0.3 * np.sin(2 * np.pi * t / 900) + noise).astype(np.float32)


def windows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every stretch of the past with what came after it."""
    rows = np.lib.stride_tricks.sliding_window_view(values, PAST + AHEAD)
    return rows[:, :PAST, None].copy(), rows[:, PAST:].copy()


class Forecaster(nn.Module):
    """A GRU over the past, and a line from its last state to all hours ahead."""

    def __init__(self, hidden: int = 32) -> None:
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, AHEAD)

    def forward(self, x: em.Tensor) -> em.Tensor:
        """From `(batch, hours, 1)` to `(batch, hours ahead)`."""
        outputs, _ = self.gru(x)
        return self.head(outputs[:, -1])


def main() -> None:
    """Train on the first part of the series, compare with yesterday's values on the rest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["numpy", "torch", "jax", "mlx"])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", metavar="PNG", help="draw a forecast")
    options = parser.parse_args()
    if options.backend:
        em.set_backend(options.backend)
    ops.random.set_seed(options.seed)

    values = series()
    x_train, y_train = windows(values[:1900])
    x_test, y_test = windows(values[1900:])
    loader = DataLoader((x_train, y_train), batch_size=64, shuffle=True, seed=options.seed)

    model = Forecaster()
    trainer = Trainer(model, AdamW(model, lr=5e-3), "mse", clip_norm=1.0)
    trainer.fit(loader, options.epochs, validation=(x_test, y_test))

    told = trainer.predict(x_test).numpy()
    error = float(np.mean((told - y_test) ** 2))
    naive = float(np.mean((x_test[:, PAST - 24 : PAST - 24 + AHEAD, 0] - y_test) ** 2))
    console = Console()
    console.print(f"mean squared error on '{em.get_backend()}': {error:.4f}")
    console.print(f"of yesterday's values at the same hours: {naive:.4f}")
    if options.plot:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(9, 3.5))
        hours = np.arange(PAST + AHEAD)
        axes.plot(hours[:PAST], x_test[0, :, 0], label="past")
        axes.plot(hours[PAST:], y_test[0], "o", label="what came")
        axes.plot(hours[PAST:], told[0], label="forecast")
        axes.set_xlabel("hour")
        axes.legend()
        figure.tight_layout()
        figure.savefig(options.plot)
        console.print(f"a forecast is drawn in {options.plot}")


if __name__ == "__main__":
    main()
