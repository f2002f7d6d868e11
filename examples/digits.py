"""Handwritten digits: a small network on scikit-learn's 1,797 pictures, over 97 % right.

python examples/digits.py                        on the current backend
python examples/digits.py --backend torch --plot curve.png
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.training import AdamW, CosineSchedule, DataLoader, Trainer


def build() -> nn.Module:
    """64 pixels, two hidden layers, a score for each digit."""
    return nn.Sequential(
        nn.Linear(64, 256),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(256, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def main() -> None:
    """Train, test, and show which digits are taken for which."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["numpy", "torch", "jax", "mlx"])
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", metavar="PNG", help="draw the loss curve")
    options = parser.parse_args()
    if options.backend:
        em.set_backend(options.backend)
    ops.random.set_seed(options.seed)

    digits = load_digits()
    x_train, x_test, y_train, y_test = train_test_split(
        (digits.data / 16).astype(np.float32), digits.target, test_size=0.2, random_state=0
    )
    loader = DataLoader((x_train, y_train), batch_size=64, shuffle=True, seed=options.seed)

    model = build()
    console = Console()
    console.print(model.summary())
    schedule = CosineSchedule(3e-3, steps=options.epochs * len(loader))
    optimizer = AdamW(model, lr=schedule, weight_decay=0.05)
    trainer = Trainer(model, optimizer, "cross_entropy", metrics=["accuracy"])
    history = trainer.fit(loader, options.epochs, validation=(x_test, y_test))

    guesses = ops.argmax(trainer.predict(x_test), axis=-1).numpy()
    accuracy = float(np.mean(guesses == y_test))
    table = Table("digit", "right", "taken for")
    for digit in range(10):
        mine = guesses[y_test == digit]
        wrong = ", ".join(str(other) for other in sorted(set(mine[mine != digit].tolist())))
        table.add_row(str(digit), f"{np.mean(mine == digit):.0%}", wrong)
    console.print(table)
    console.print(f"test accuracy on '{em.get_backend()}': {accuracy:.2%}")
    if options.plot:
        history.plot(options.plot)
        console.print(f"the curve is in {options.plot}")


if __name__ == "__main__":
    main()
