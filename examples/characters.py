"""A language model of characters, trained on a text that a small grammar makes.

    python examples/characters.py --backend jax --steps 300

The loop is written out: one compiled function holds the loss, its gradients and the update.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.progress import track

import ember_ml as em
from ember_ml import ops, registry
from ember_ml.training import AdamW, CosineSchedule, WarmupSchedule, clip_grad_norm

LENGTH, BATCH = 48, 16

WHO = ("the fox", "a sailor", "my sister", "the old clock", "a quiet river", "the baker")
DOES = ("watches", "follows", "remembers", "carries", "paints", "waits for")
WHAT = ("the moon", "a red kite", "two lanterns", "the morning train", "a song", "the harbour")
WHEN = ("at dawn", "in winter", "every day", "after the rain", "without a word")


def text(sentences: int = 2000) -> str:
    """Sentences such as "the fox watches a red kite at dawn."."""
    draw = np.random.default_rng(0)
    return " ".join(
        f"{draw.choice(WHO)} {draw.choice(DOES)} {draw.choice(WHAT)} {draw.choice(WHEN)}."
        for _ in range(sentences)
    )


def main() -> None:
    """Train, then write some sentences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["numpy", "torch", "jax", "mlx"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.backend:
        em.set_backend(options.backend)
    ops.random.set_seed(options.seed)

    corpus = text()
    letters = sorted(set(corpus))
    numbers = np.array([letters.index(letter) for letter in corpus])
    model = registry.create(
        "models/decoder",
        vocab_size=len(letters),
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        intermediate_size=128,
    )
    rate = WarmupSchedule(CosineSchedule(4e-3, steps=options.steps), steps=20)
    optimizer = AdamW(model, lr=rate)

    def loss(model: em.nn.Module, tokens: em.Tensor, following: em.Tensor) -> em.Tensor:
        scores = model(tokens)
        return ops.losses.cross_entropy(
            ops.reshape(scores, (-1, len(letters))), ops.reshape(following, (-1,))
        )

    @em.jit(state=[model, optimizer])
    def step(tokens: em.Tensor, following: em.Tensor) -> em.Tensor:
        value, grads = em.value_and_grad(loss)(model, tokens, following)
        grads, _ = clip_grad_norm(grads, 1.0)
        optimizer.update(model, grads)
        return value

    draw = np.random.default_rng(options.seed)
    console = Console()
    for number in track(range(options.steps), "training", console=console):
        starts = draw.integers(0, len(numbers) - LENGTH - 1, BATCH)
        rows = numbers[starts[:, None] + np.arange(LENGTH + 1)]
        value = step(ops.asarray(rows[:, :-1].copy()), ops.asarray(rows[:, 1:].copy()))
        if number % 50 == 0 or number == options.steps - 1:
            console.print(f"step {number:4}: loss {value.item():.3f}")

    model.eval()
    prompt = [letters.index(letter) for letter in "the fox "]
    written = model.generate(ops.asarray(prompt), max_new_tokens=120, temperature=0.5)
    console.print("".join(letters[number] for number in written.tolist()), style="bold")


if __name__ == "__main__":
    main()
