"""Networks, a step of training and generation, beside plain programs of the same engine.

Raw is what users of the engine write: functional torch for the forward pass of the layered MLP;
torch.nn with torch.optim.AdamW, a jitted JAX program with AdamW written out, mlx.nn with its own
AdamW for the step of a transformer; plain torch with a cache of keys and values for generation.
Keras, torch.nn and mlx.nn stand beside them. Both sides start from the same weights and must agree
before they are timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.suites import plain_networks as plain
from ember_ml.bench.suites.engines import Factory, peers
from ember_ml.bench.suites.plain_networks import (
    HEADS,
    LAYERS,
    LENGTH,
    NEW,
    PROMPT,
    RATE,
    VOCABULARY,
    WIDTH,
    batch,
    weights,
)
from ember_ml.bench.timing import Measure, Program, finish
from ember_ml.compiled import is_compiled

__all__ = ["BENCHMARK"]

COMPILED_MLP = {"torch": 1.15}
LIMITS = {
    "mlp": {"torch": 1.3},
    "transformer": {"torch": 1.1, "jax": 1.05},
    "generation": {"torch": 1.2},
}
RAW_MLP = {"numpy": "numpy", "torch": "functional torch", "jax": "jax.numpy", "mlx": "mlx.core"}
RAW_STEP = {
    "torch": "torch.nn, torch.optim.AdamW",
    "jax": "jitted JAX",
    "mlx": "mlx.nn, mlx.optimizers",
}


# --- The layered MLP ----------------------------------------------------------------------------


def mlp(setting: Setting) -> Iterator[Measure]:
    """The forward pass of 64-128-10 for 32 rows, of weights that need no gradients."""
    from ember_ml import nn, ops

    backend = setting.backend
    draw = np.random.default_rng(0)
    shapes: tuple[tuple[int, ...], ...] = ((128, 64), (128,), (10, 128), (10,))
    w1, b1, w2, b2 = ((draw.standard_normal(s) * 0.1).astype(np.float32) for s in shapes)
    x = draw.standard_normal((32, 64)).astype(np.float32)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model.load_state_dict({"0.weight": w1, "0.bias": b1, "2.weight": w2, "2.bias": b2})
    data = ops.asarray(x, copy=True)
    model.freeze()

    def eager() -> Any:
        return model(data)

    def awaited() -> Any:
        return finish(model(data))

    ours = awaited if backend in ("jax", "mlx") else eager
    theirs = plain.raw_mlp(backend, x, w1, b1, w2, b2)
    np.testing.assert_allclose(ours().numpy(), np.asarray(theirs().tolist()), rtol=1e-3, atol=1e-4)
    makers: dict[str, Factory] = {}
    if backend == "torch":
        makers["torch.nn"] = lambda: plain.torch_mlp(x)
    if backend == "mlx":
        makers["mlx.nn"] = lambda: plain.mlx_mlp(x)
    else:
        makers["keras.Sequential"] = lambda: plain.keras_mlp(backend, x)
    others, notes = peers(makers)
    limit = (COMPILED_MLP if is_compiled() else LIMITS["mlp"]).get(backend)
    yield Measure(
        "mlp forward", theirs, ours, limit, RAW_MLP[backend], others, rounds=25, notes=notes
    )


# --- A step of training -------------------------------------------------------------------------


def transformer(setting: Setting) -> Iterator[Measure]:
    """Forward, backward and AdamW of a decoder of 4 layers."""
    backend = setting.backend
    if backend == "mlx" and setting.quick:
        return  # its wheel for Linux has a plain BLAS: a step takes seconds
    theirs, ours = plain.STEPS[backend](), _our_step(backend)
    for _ in range(3):
        np.testing.assert_allclose(ours(), theirs(), rtol=1e-3)
    makers: dict[str, Factory] = {} if backend == "mlx" else {"keras": plain.keras_step}
    others, notes = peers(makers)
    yield Measure(
        "transformer step",
        theirs,
        ours,
        LIMITS["transformer"].get(backend),
        RAW_STEP[backend],
        others,
        rounds=3 if backend == "mlx" else 9,
        notes=notes,
    )


def our_model() -> Any:
    """The transformer of `weights` in ember_ml."""
    from ember_ml import nn, ops

    class Block(nn.Module):
        def __init__(self) -> None:
            self.norm1 = nn.LayerNorm(WIDTH)
            self.attention = nn.MultiHeadAttention(WIDTH, HEADS, causal=True)
            self.norm2 = nn.LayerNorm(WIDTH)
            self.up = nn.Linear(WIDTH, 4 * WIDTH)
            self.down = nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any, cache: Any = None) -> Any:
            x = x + self.attention(self.norm1(x), cache=cache)
            return x + self.down(ops.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.places = nn.Embedding(LENGTH, WIDTH)
            self.blocks = [Block() for _ in range(LAYERS)]
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY)

        def forward(self, tokens: Any, start: int = 0, caches: Any = None) -> Any:
            places = self.places.weight[start : start + tokens.shape[1]]
            x = self.tokens(tokens) + places
            for place, block in enumerate(self.blocks):
                x = block(x, None if caches is None else caches[place])
            return self.head(self.norm(x))

    model = Decoder()
    model.load_state_dict(weights())
    return model


def _our_step(backend: str) -> Program:
    import ember_ml as em
    from ember_ml import ops
    from ember_ml.training import AdamW

    model = our_model()
    optimizer = AdamW(model, lr=RATE)
    tokens, targets = (ops.asarray(one, copy=True) for one in batch())

    def step(tokens: Any, targets: Any) -> Any:
        loss, grads = em.value_and_grad(
            lambda m: ops.losses.cross_entropy(
                ops.reshape(m(tokens), (-1, VOCABULARY)), ops.reshape(targets, (-1,))
            )
        )(model)
        optimizer.update(model, grads)
        return loss

    if backend in ("jax", "mlx"):
        step = em.jit(step, state=[model, optimizer])

    def run() -> float:
        value: float = step(tokens, targets).item()
        if backend == "mlx":
            import mlx.core as mx

            mx.eval([p.native for p in model.parameters()])
        return value

    return run


# --- Generation ---------------------------------------------------------------------------------


def generation(setting: Setting) -> Iterator[Measure]:
    """64 tokens after 16, the likeliest each time, with a cache of keys and values."""
    theirs, ours = plain.torch_generation(), _our_generation()
    if theirs() != ours():
        raise AssertionError("the two programs give other tokens")
    limit = LIMITS["generation"]["torch"]
    yield Measure("generate 64 tokens", theirs, ours, limit, "plain torch", rounds=25)


# What Decoder calls the parameters of `weights`.
NAMES = {
    "tokens": "token_embedding",
    "places": "position_embedding",
    "blocks": "layers",
    "norm1": "attention_norm",
    "norm2": "mlp_norm",
    "up": "mlp.up",
    "down": "mlp.down",
}


def _our_generation() -> Program:
    from ember_ml import ops
    from ember_ml.models import Decoder

    model = Decoder(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        intermediate_size=4 * WIDTH,
        max_length=LENGTH,
        norm="layer",
        norm_eps=1e-5,
        positions="learned",
        activation="gelu",
        bias=True,
        tied=False,
    )
    state = {
        ".".join(NAMES.get(part, part) for part in name.split(".")): value
        for name, value in weights().items()
        if name != "head.bias"  # zeros, and Decoder has none
    }
    model.load_state_dict(state)
    prompt = ops.asarray(batch()[0][0, :PROMPT], copy=True)

    def run() -> list[int]:
        found: list[int] = model.generate(prompt, NEW)[PROMPT:].tolist()
        return found

    return run


BENCHMARK = Benchmark(
    "nn",
    "Networks, a step of training and generation, beside plain programs of the same engine.",
    {"mlp": mlp, "transformer": transformer, "generation": generation},
    # Nobody trains a transformer by hand in NumPy; generation is held against plain torch.
    only={"transformer": ("torch", "jax", "mlx"), "generation": ("torch",)},
)
