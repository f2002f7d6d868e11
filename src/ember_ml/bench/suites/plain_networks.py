"""The programs that networks are held against: plain torch, jitted JAX, mlx.nn, and Keras.

All start from the same weights and see the same batch.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from ember_ml.bench.suites.engines import namespace, native
from ember_ml.bench.timing import Program, finish

__all__ = [
    "BATCH",
    "HEADS",
    "LAYERS",
    "LENGTH",
    "NEW",
    "PROMPT",
    "RATE",
    "STEPS",
    "VOCABULARY",
    "WIDTH",
    "batch",
    "keras_mlp",
    "keras_step",
    "mlx_mlp",
    "raw_mlp",
    "torch_generation",
    "torch_mlp",
    "weights",
]

WIDTH, HEADS, LAYERS, VOCABULARY = 256, 4, 4, 256
BATCH, LENGTH = 8, 128
PROMPT, NEW = 16, 64
RATE = 3e-4


def weights() -> dict[str, Any]:
    """The parameters of the transformer, by the names of torch.nn."""
    draw = np.random.default_rng(0)
    found: dict[str, Any] = {}

    def linear(name: str, inner: int, outer: int) -> None:
        found[f"{name}.weight"] = draw.standard_normal((outer, inner)) / math.sqrt(inner)
        found[f"{name}.bias"] = np.zeros(outer)

    def norm(name: str) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = np.ones(WIDTH), np.zeros(WIDTH)

    found["tokens.weight"] = draw.standard_normal((VOCABULARY, WIDTH)) * 0.02
    found["places.weight"] = draw.standard_normal((LENGTH, WIDTH)) * 0.02
    for place in range(LAYERS):
        block = f"blocks.{place}"
        norm(f"{block}.norm1")
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            linear(f"{block}.attention.{name}", WIDTH, WIDTH)
        norm(f"{block}.norm2")
        linear(f"{block}.up", WIDTH, 4 * WIDTH)
        linear(f"{block}.down", 4 * WIDTH, WIDTH)
    norm("norm")
    linear("head", WIDTH, VOCABULARY)
    return {name: value.astype(np.float32) for name, value in found.items()}


def batch() -> tuple[Any, Any]:
    """Tokens, and the tokens that follow."""
    text = np.random.default_rng(1).integers(0, VOCABULARY, (BATCH, LENGTH + 1))
    return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])


# --- The layered MLP ----------------------------------------------------------------------------


def raw_mlp(backend: str, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Program:
    """The forward pass of 64-128-10, as users of the engine write it."""
    if backend == "torch":
        import torch
        from torch.nn.functional import linear, relu

        given = [torch.from_numpy(one) for one in (x, w1, b1, w2, b2)]

        def torch_forward() -> Any:
            x, w1, b1, w2, b2 = given
            return linear(relu(linear(x, w1, b1)), w2, b2)

        return torch_forward
    xp = namespace(backend)
    arrays = [xp.array(one) for one in (x, w1, b1, w2, b2)]

    def forward() -> Any:
        x, w1, b1, w2, b2 = arrays
        return finish(xp.maximum(x @ w1.T + b1, 0) @ w2.T + b2)

    return forward


def torch_mlp(x: Any) -> Program:
    """The same as layers of torch.nn."""
    import torch

    twin = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    ).requires_grad_(False)
    data = torch.from_numpy(x)
    return lambda: twin(data)


def mlx_mlp(x: Any) -> Program:
    """The same as layers of mlx.nn."""
    import mlx.core as mx

    mnn: Any = importlib.import_module("mlx.nn")  # it publishes types for a part of its names
    twin = mnn.Sequential(mnn.Linear(64, 128), mnn.ReLU(), mnn.Linear(128, 10))
    data = mx.array(x)
    mx.eval(twin.parameters(), data)
    return lambda: finish(twin(data))


def keras_mlp(backend: str, x: Any) -> Program:
    """The same in Keras, on the engine that the process was started with."""
    keras: Any = importlib.import_module("keras")
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)]
    )
    data = native(backend, x)
    if backend != "torch":
        return lambda: finish(model(data, training=False))
    import torch

    def forward() -> Any:
        with torch.no_grad():
            return model(data, training=False)

    return forward


# --- A step of training -------------------------------------------------------------------------


def torch_model() -> Any:
    """The same in torch.nn."""
    import torch
    from torch import nn
    from torch.nn.functional import gelu, scaled_dot_product_attention

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_proj, self.k_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.v_proj, self.out_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Any, cache: Any = None) -> Any:
            rows, length, _ = x.shape
            shape = (rows, length, HEADS, WIDTH // HEADS)
            q = self.q_proj(x).view(shape).transpose(1, 2)
            k = self.k_proj(x).view(shape).transpose(1, 2)
            v = self.v_proj(x).view(shape).transpose(1, 2)
            causal = length > 1
            if cache is not None:
                keys, values, start = cache
                keys[:, :, start : start + length] = k
                values[:, :, start : start + length] = v
                cache[2] = start + length
                k, v = keys[:, :, : start + length], values[:, :, : start + length]
            y = scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.out_proj(y.transpose(1, 2).reshape(rows, length, WIDTH))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.attention = Attention()
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any, cache: Any = None) -> Any:
            x = x + self.attention(self.norm1(x), cache)
            return x + self.down(gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.places = nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, tokens: Any, start: int = 0, caches: Any = None) -> Any:
            x = self.tokens(tokens) + self.places.weight[start : start + tokens.shape[1]]
            for place, block in enumerate(self.blocks):
                x = block(x, None if caches is None else caches[place])
            return self.head(self.norm(x))

    model = Decoder()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights().items()})
    return model


def _torch_step() -> Program:
    import torch
    from torch.nn.functional import cross_entropy

    model = torch_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    tokens, targets = (torch.from_numpy(one) for one in batch())

    def step() -> float:
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens).reshape(-1, VOCABULARY), targets.reshape(-1))
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        optimizer.step()
        return loss.item()

    return step


def _jax_step() -> Program:
    import jax
    import jax.numpy as jnp

    parameters = {name: jnp.asarray(value) for name, value in weights().items()}
    tokens, targets = (jnp.asarray(one) for one in batch())
    mean = {name: jnp.zeros_like(value) for name, value in parameters.items()}
    square = {name: jnp.zeros_like(value) for name, value in parameters.items()}

    def linear(p: Any, name: str, x: Any) -> Any:
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def norm(p: Any, name: str, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]

    def attend(p: Any, name: str, x: Any) -> Any:
        rows, length, _ = x.shape
        shape = (rows, length, HEADS, WIDTH // HEADS)
        q, k, v = (linear(p, f"{name}.{one}_proj", x).reshape(shape) for one in "qkv")
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return linear(p, f"{name}.out_proj", y.reshape(x.shape))

    def loss(p: Any, tokens: Any, targets: Any) -> Any:
        x = p["tokens.weight"][tokens] + p["places.weight"][: tokens.shape[1]]
        for place in range(LAYERS):
            block = f"blocks.{place}"
            x = x + attend(p, f"{block}.attention", norm(p, f"{block}.norm1", x))
            hidden = linear(p, f"{block}.up", norm(p, f"{block}.norm2", x))
            x = x + linear(p, f"{block}.down", jax.nn.gelu(hidden, approximate=False))
        scores = jax.nn.log_softmax(linear(p, "head", norm(p, "norm", x)))
        return -jnp.take_along_axis(scores, targets[..., None], axis=-1).mean()

    def step(p: Any, mean: Any, square: Any, count: Any, tokens: Any, targets: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, tokens, targets)
        count = count + 1
        rate = RATE / (1 - 0.9**count)
        spread = jnp.sqrt(1 - 0.999**count)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
        square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, square, grads)
        p = jax.tree.map(
            lambda w, m, s: w * (1 - RATE * 0.01) - rate * m / (jnp.sqrt(s) / spread + 1e-8),
            p,
            mean,
            square,
        )
        return value, p, mean, square, count

    fast = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    state = [parameters, mean, square, jnp.zeros((), jnp.float32)]

    def run() -> float:
        value, *state[:] = fast(*state, tokens, targets)
        return float(value)

    return run


def _mlx_step() -> Program:
    import mlx.core as mx

    mnn: Any = importlib.import_module("mlx.nn")  # it publishes types for a part of its names
    optimizers: Any = importlib.import_module("mlx.optimizers")

    class Attention(mnn.Module):  # type: ignore[misc]  # Any, as above
        def __init__(self) -> None:
            super().__init__()
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                setattr(self, name, mnn.Linear(WIDTH, WIDTH))

        def __call__(self, x: Any) -> Any:
            rows, length, _ = x.shape
            shape = (rows, length, HEADS, WIDTH // HEADS)
            q, k, v = (
                one(x).reshape(shape).transpose(0, 2, 1, 3)
                for one in (self.q_proj, self.k_proj, self.v_proj)
            )
            scale = (WIDTH // HEADS) ** -0.5
            y = mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask="causal")
            return self.out_proj(y.transpose(0, 2, 1, 3).reshape(x.shape))

    class Block(mnn.Module):  # type: ignore[misc]  # Any, as above
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = mnn.LayerNorm(WIDTH), mnn.LayerNorm(WIDTH)
            self.attention = Attention()
            self.up, self.down = mnn.Linear(WIDTH, 4 * WIDTH), mnn.Linear(4 * WIDTH, WIDTH)

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.down(mnn.gelu(self.up(self.norm2(x))))

    class Decoder(mnn.Module):  # type: ignore[misc]  # Any, as above
        def __init__(self) -> None:
            super().__init__()
            self.tokens = mnn.Embedding(VOCABULARY, WIDTH)
            self.places = mnn.Embedding(LENGTH, WIDTH)
            self.blocks = [Block() for _ in range(LAYERS)]
            self.norm, self.head = mnn.LayerNorm(WIDTH), mnn.Linear(WIDTH, VOCABULARY)

        def __call__(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    model = Decoder()
    model.load_weights([(name, mx.array(value)) for name, value in weights().items()])
    optimizer = optimizers.AdamW(learning_rate=RATE, bias_correction=True)
    tokens, targets = (mx.array(one) for one in batch())
    pull = mnn.value_and_grad(
        model, lambda: mnn.losses.cross_entropy(model(tokens), targets, reduction="mean")
    )
    state = [model.state, optimizer.state]

    def step() -> Any:
        loss, grads = pull()
        optimizer.update(model, grads)
        return loss

    fast = mx.compile(step, inputs=state, outputs=state)

    def run() -> float:
        loss = fast()
        mx.eval(loss, *state)
        return float(loss.item())

    return run


def keras_step() -> Program:
    """The same in Keras, with its own initial weights."""
    keras: Any = importlib.import_module("keras")
    layers: Any = keras.layers
    given = keras.Input((LENGTH,), dtype="int32")

    class Places(layers.Layer):  # type: ignore[misc]  # Keras has no types
        def build(self, shape: Any) -> None:
            self.table = self.add_weight(shape=(LENGTH, WIDTH))

        def call(self, x: Any) -> Any:
            return x + self.table

    x = Places()(layers.Embedding(VOCABULARY, WIDTH)(given))
    for _ in range(LAYERS):
        h = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        x = x + attention(h, h, use_causal_mask=True)
        h = layers.Dense(4 * WIDTH, "gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dense(WIDTH)(h)
    model = keras.Model(given, layers.Dense(VOCABULARY)(layers.LayerNormalization()(x)))
    model.compile(
        keras.optimizers.AdamW(RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    tokens, targets = batch()
    return lambda: model.train_on_batch(tokens, targets)


STEPS = {"torch": _torch_step, "jax": _jax_step, "mlx": _mlx_step}


# --- Generation ---------------------------------------------------------------------------------


def torch_generation() -> Program:
    """64 tokens after 16, with a cache of keys and values."""
    import torch

    model = torch_model().eval()
    prompt = torch.from_numpy(batch()[0][:1, :PROMPT])

    def run() -> list[int]:
        with torch.no_grad():
            shape = (1, HEADS, PROMPT + NEW, WIDTH // HEADS)
            caches = [[torch.zeros(shape), torch.zeros(shape), 0] for _ in range(LAYERS)]
            tokens, start, found = prompt, 0, []
            for _ in range(NEW):
                scores = model(tokens, start, caches)
                start += tokens.shape[1]
                tokens = scores[:, -1].argmax(-1, keepdim=True)
                found.append(tokens)
            tokens_found: list[int] = torch.cat(found, 1).tolist()[0]
            return tokens_found

    return run
