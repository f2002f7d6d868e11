"""`ember demo`: a network that learns handwritten digits, with its curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from rich.console import Console

import ember_ml as em

__all__ = ["Pictures", "chart", "drawn_pictures", "load_pictures", "run", "train"]

Array = np.ndarray[Any, Any]


class Pictures(NamedTuple):
    """Pictures of digits in rows of 64 numbers from 0 to 1, and which digit each one shows."""

    train: tuple[Array, Array]
    test: tuple[Array, Array]
    source: str


def train(pictures: Pictures, epochs: int, seed: int) -> Any:
    """Two hidden layers, AdamW, and a learning rate that falls to zero."""
    from ember_ml import nn, ops
    from ember_ml.training import AdamW, CosineSchedule, DataLoader, Trainer

    ops.random.set_seed(seed)
    model = nn.Sequential(
        nn.Linear(64, 256),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(256, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    loader = DataLoader(pictures.train, batch_size=64, shuffle=True, seed=seed)
    rate = CosineSchedule(3e-3, steps=epochs * len(loader))
    optimizer = AdamW(model, lr=rate, weight_decay=0.05)
    trainer = Trainer(model, optimizer, "cross_entropy", metrics=["accuracy"])
    return trainer.fit(loader, epochs, validation=pictures.test)


def run(console: Console, epochs: int, seed: int, plot: Path | None) -> None:
    """Train, and show what came of it."""
    pictures = load_pictures()
    count = len(pictures.train[0]) + len(pictures.test[0])
    console.print(f"{count:,} pictures of digits ({pictures.source}), on '{em.get_backend()}'")
    history = train(pictures, epochs, seed)
    console.print("\nloss by step")
    for line in chart(history.steps["loss"]):
        console.print(line, highlight=False)
    accuracy = history["val_accuracy"][-1]
    console.print(f"\n{accuracy:.1%} of the test pictures are right")
    if plot is not None:
        history.plot(plot)
        console.print(f"the curve is in {plot}")


def load_pictures() -> Pictures:
    """scikit-learn's digits where it is installed, else digits that are drawn here."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        x, y = drawn_pictures()
        source = "drawn here; scikit-learn would bring real ones"
    else:
        digits: Any = load_digits()
        x, y = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
        source = "scikit-learn's"
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    held = len(x) // 5
    return Pictures((x[held:], y[held:]), (x[:held], y[:held]), source)


# Each digit in five columns and seven rows; a row is a number of five bits.
_GLYPHS: Final = (
    (14, 17, 17, 17, 17, 17, 14),
    (4, 12, 20, 4, 4, 4, 31),
    (14, 17, 1, 2, 4, 8, 31),
    (14, 17, 1, 6, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2),
    (31, 16, 30, 1, 1, 17, 14),
    (6, 8, 16, 30, 17, 17, 14),
    (31, 1, 2, 4, 4, 8, 8),
    (14, 17, 17, 14, 17, 17, 14),
    (14, 17, 17, 15, 1, 2, 12),
)


def drawn_pictures(count: int = 1800) -> tuple[Array, Array]:
    """Digits of one hand, shifted, worn and noisy."""
    draw = np.random.default_rng(0)
    shapes = np.array([[[row >> (4 - bit) & 1 for bit in range(5)] for row in g] for g in _GLYPHS])
    labels = draw.integers(0, 10, count)
    pictures = np.zeros((count, 8, 8), np.float32)
    for place, digit in enumerate(labels):
        top, left = draw.integers(0, 2), draw.integers(0, 4)
        ink = shapes[digit] * draw.uniform(0.5, 1.0, (7, 5))
        pictures[place, top : top + 7, left : left + 5] = ink
    pictures += draw.normal(0, 0.15, pictures.shape)
    return np.clip(pictures, 0, 1).reshape(count, 64).astype(np.float32), labels


_BLOCKS: Final = " ▁▂▃▄▅▆▇█"


def chart(values: Sequence[float], width: int = 64, height: int = 8) -> list[str]:
    """A curve in lines of text, with its largest and smallest value at the side.

    >>> for line in chart([4.0, 3.0, 2.0, 1.0, 0.0], width=5, height=2):
    ...     print(line)
    4.00 │█▄
    0.00 │███▄
    """
    known = [float(v) for v in values if math.isfinite(v)]
    if not known:
        return []
    # Each column is the mean of its share of the values.
    parts = np.array_split(np.array(known), min(width, len(known)))
    columns = [float(part.mean()) for part in parts]
    low, high = min(columns), max(columns)
    span = (high - low) or 1.0
    heights = [round((v - low) / span * height * 8) for v in columns]
    labels = {height - 1: f"{high:.2f}", 0: f"{low:.2f}"}
    side = max(len(text) for text in labels.values())
    lines = []
    for row in reversed(range(height)):
        cells = [_BLOCKS[max(0, min(8, tall - row * 8))] for tall in heights]
        lines.append(f"{labels.get(row, ''):>{side}} │{''.join(cells)}".rstrip())
    return lines
