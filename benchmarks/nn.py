"""Networks, a step of training and generation, beside plain programs of the same engine.

    python benchmarks/nn.py                     all installed backends, a table
    python benchmarks/nn.py --backend torch --only mlp --json out.json

Raw is what users of the engine write: functional torch for the forward pass of the layered MLP;
torch.nn with torch.optim.AdamW, a jitted JAX program with AdamW written out, mlx.nn with its own
AdamW for the step of a transformer; plain torch with a cache of keys and values for generation.
Keras stands beside them where it is installed. Both sides start from the same weights and must
agree before they are timed. Each backend has a process of its own, on one thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from measuring import Measure, Program, finish, main

GROUPS = ["mlp", "transformer", "generation"]
LIMITS = {
    "mlp": {"torch": 1.3},
    "transformer": {"torch": 1.1, "jax": 1.05},
    "generation": {"torch": 1.2},
}
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


def mlp(backend: str) -> list[Measure]:
    """The forward pass of 64-128-10 for 32 rows, of weights that need no gradients."""
    from ember_ml import nn, ops

    draw = np.random.default_rng(0)
    w1, b1, w2, b2 = (
        (draw.standard_normal(shape) * 0.1).astype(np.float32)
        for shape in ((128, 64), (128,), (10, 128), (10,))
    )
    x = draw.standard_normal((32, 64)).astype(np.float32)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model.load_state_dict({"0.weight": w1, "0.bias": b1, "2.weight": w2, "2.bias": b2})
    data = ops.asarray(x, copy=True)
    model.freeze()

    def ours() -> Any:
        return model(data)

    if backend in ("jax", "mlx"):

        def ours() -> Any:
            return finish(model(data))

    theirs = _raw_mlp(backend, x, w1, b1, w2, b2)
    np.testing.assert_allclose(ours().numpy(), np.asarray(theirs().tolist()), rtol=1e-3, atol=1e-4)
    limit = LIMITS["mlp"].get(backend)
    found = [Measure(f"{backend} mlp 64-128-10", theirs, ours, limit=limit, rounds=25)]
    keras_mlp = _keras_mlp(x) if backend == "torch" else None
    if keras_mlp is not None:
        found.append(Measure("mlp beside keras.Sequential", keras_mlp, ours))
    if backend == "torch":
        import torch

        twin = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        ).requires_grad_(False)
        raw = torch.from_numpy(x)
        found.append(Measure("mlp beside torch.nn", lambda: twin(raw), ours))
    return found


def _raw_mlp(backend: str, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Program:
    if backend == "torch":
        import torch
        from torch.nn.functional import linear, relu

        given = [torch.from_numpy(one) for one in (x, w1, b1, w2, b2)]

        def torch_forward() -> Any:
            x, w1, b1, w2, b2 = given
            return linear(relu(linear(x, w1, b1)), w2, b2)

        return torch_forward
    if backend == "jax":
        import jax.numpy as xp
    elif backend == "mlx":
        import mlx.core as xp
    else:
        xp = np
    given = [xp.array(one) for one in (x, w1, b1, w2, b2)]

    def forward() -> Any:
        x, w1, b1, w2, b2 = given
        return finish(xp.maximum(x @ w1.T + b1, 0) @ w2.T + b2)

    return forward


def _keras_mlp(x: Any) -> Program | None:
    keras = _keras()
    if keras is None:
        return None
    import torch

    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)]
    )
    raw = torch.from_numpy(x)

    def forward() -> Any:
        with torch.no_grad():
            return model(raw, training=False)

    return forward


def _keras() -> Any:
    import os

    os.environ.setdefault("KERAS_BACKEND", "torch")
    try:
        import keras
    except ImportError:
        return None
    return keras


# --- A step of training -------------------------------------------------------------------------


def transformer(backend: str) -> list[Measure]:
    """Forward, backward and AdamW of a decoder of 4 layers."""
    if backend == "numpy":
        return []  # nobody trains this by hand
    theirs = {"torch": _torch_step, "jax": _jax_step, "mlx": _mlx_step}[backend]()
    ours = _our_step(backend)
    for _ in range(3):
        np.testing.assert_allclose(ours(), theirs(), rtol=1e-3)
    limit = LIMITS["transformer"].get(backend)
    found = [
        Measure(
            f"{backend} transformer step",
            theirs,
            ours,
            limit=limit,
            rounds=3 if backend == "mlx" else 9,
        )
    ]
    keras_step = _keras_step() if backend == "torch" else None
    if keras_step is not None:
        found.append(Measure("transformer step beside keras", keras_step, ours, rounds=5))
    return found


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
        loss.backward()
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
    import mlx.nn as mnn
    import mlx.optimizers as optimizers

    class Attention(mnn.Module):
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

    class Block(mnn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = mnn.LayerNorm(WIDTH), mnn.LayerNorm(WIDTH)
            self.attention = Attention()
            self.up, self.down = mnn.Linear(WIDTH, 4 * WIDTH), mnn.Linear(4 * WIDTH, WIDTH)

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.down(mnn.gelu(self.up(self.norm2(x))))

    class Decoder(mnn.Module):
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


def _keras_step() -> Program | None:
    keras = _keras()
    if keras is None:
        return None
    layers = keras.layers
    given = keras.Input((LENGTH,), dtype="int32")

    class Places(layers.Layer):  # type: ignore[misc, name-defined]  # Keras has no types
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


# --- Generation ---------------------------------------------------------------------------------


def generation(backend: str) -> list[Measure]:
    """64 tokens after 16, the likeliest each time, with a cache of keys and values."""
    if backend != "torch":
        return []
    theirs, ours = _torch_generation(), _our_generation()
    if theirs() != ours():
        raise AssertionError("the two programs give other tokens")
    limit = LIMITS["generation"]["torch"]
    return [Measure("torch generation of 64 tokens", theirs, ours, limit=limit, rounds=25)]


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


def _torch_generation() -> Program:
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
            return torch.cat(found, 1).tolist()[0]

    return run


def measures(backend: str, only: list[str]) -> list[Measure]:
    """What is asked for."""
    programs = {"mlp": mlp, "transformer": transformer, "generation": generation}
    return [one for name in only for one in programs[name](backend)]


if __name__ == "__main__":
    main(__doc__, __file__, GROUPS, measures)
