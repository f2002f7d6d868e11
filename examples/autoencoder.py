"""Pictures through a bottleneck of eight numbers, and a picture of what comes out.

python examples/autoencoder.py --backend torch --plot digits.png
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from sklearn.datasets import load_digits

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.training import AdamW, DataLoader, Trainer


class Autoencoder(nn.Module):
    """Convolutions down to a code, and transposed ones back."""

    def __init__(self, code: int = 8) -> None:
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 2 * 2, code),
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, 32 * 2 * 2),
            nn.ReLU(),
            nn.Unflatten(1, (32, 2, 2)),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, x: em.Tensor) -> em.Tensor:
        """From pictures to pictures, `(batch, 1, 8, 8)`."""
        return self.decoder(self.encoder(x))


def main() -> None:
    """Train on all but the last hundred digits, and draw some of these."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["numpy", "torch", "jax", "mlx"])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", metavar="PNG", help="draw pictures and what became of them")
    options = parser.parse_args()
    if options.backend:
        em.set_backend(options.backend)
    ops.random.set_seed(options.seed)

    pictures = (load_digits().images / 16).astype(np.float32)[:, None]
    train, test = pictures[:-100], pictures[-100:]
    loader = DataLoader((train, train), batch_size=64, shuffle=True, seed=options.seed)

    model = Autoencoder()
    trainer = Trainer(model, AdamW(model, lr=3e-3), "mse")
    trainer.fit(loader, options.epochs, validation=(test, test))

    made = trainer.predict(test).numpy()
    error = float(np.mean((made - test) ** 2))
    mean = float(np.mean((train.mean(axis=0) - test) ** 2))
    console = Console()
    console.print(f"mean squared error on '{em.get_backend()}': {error:.4f}")
    console.print(f"of the mean picture: {mean:.4f}")
    if options.plot:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, grid = pyplot.subplots(2, 10, figsize=(10, 2.4))
        for place in range(10):
            for row, picture in enumerate((test[place, 0], made[place, 0])):
                grid[row, place].imshow(picture, cmap="gray", vmin=0, vmax=1)
                grid[row, place].axis("off")
        figure.suptitle("above: digits; below: the same through eight numbers")
        figure.savefig(options.plot)
        console.print(f"pictures are in {options.plot}")


if __name__ == "__main__":
    main()
