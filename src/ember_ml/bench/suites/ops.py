"""The wider ops beside the raw calls of each engine: scatter, stft, network parts, random numbers.

Where an engine has no such function, raw is what its users write: NumPy's windows and matmul,
jitted jax.numpy. Of several raw ways of a scatter, ours is held against the quickest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.timing import Measure, Program, finish, medians

__all__ = ["BENCHMARK"]

VALUES, PLACES = 1_000_000, 10_000
SAMPLES, FRAME, HOP = 60 * 16_000, 1024, 256
DRAWN = 10_000_000
SHAPES = {
    "attention": ((8, 8, 256, 64),) * 3,
    "conv2d": ((8, 32, 56, 56), (64, 32, 3, 3)),
    "layer_norm": ((32, 512, 768), (768,), (768,)),
    "gelu": ((32, 512, 768),),
}


def done(program: Program) -> Program:
    """A program that waits for its result."""
    return lambda: finish(program())


# --- Scatter --------------------------------------------------------------------------------


def scatter_ways(backend: str) -> dict[str, Callable[[Any, Any], Any]]:
    """The ways in which users of an engine would add values at indices."""
    if backend == "numpy":

        def at(values: Any, indices: Any) -> Any:
            out = np.zeros(PLACES, np.float32)
            np.add.at(out, indices, values)
            return out

        return {
            "np.add.at": at,
            "np.bincount": lambda v, i: np.bincount(i, v, PLACES).astype(np.float32),
        }
    if backend == "torch":
        import torch

        return {
            "scatter_add_": lambda v, i: torch.zeros(PLACES).scatter_add_(0, i, v),
            "index_add_": lambda v, i: torch.zeros(PLACES).index_add_(0, i, v),
        }
    if backend == "jax":
        import jax
        import jax.numpy as jnp

        return {
            "jit .at[].add": jax.jit(lambda v, i: jnp.zeros(PLACES, v.dtype).at[i].add(v)),
            "jit segment_sum": jax.jit(lambda v, i: jax.ops.segment_sum(v, i, PLACES)),
        }
    import mlx.core as mx

    return {".at[].add": lambda v, i: mx.zeros(PLACES).at[i].add(v)}


def scatter(setting: Setting) -> Iterator[Measure]:
    """A million values into ten thousand places: indices that are met again, and new ones."""
    from ember_ml import ops

    generator = np.random.default_rng(0)
    host = generator.random(VALUES, dtype=np.float32)
    places = generator.integers(0, PLACES, VALUES)
    values, indices = ops.asarray(host, copy=True), ops.asarray(places, copy=True)
    exact = np.bincount(places, host, PLACES)
    ways = scatter_ways(setting.backend)
    found = {}
    for name, way in ways.items():
        program = done(partial(way, values.native, indices.native))
        error = np.abs(np.asarray(program()) - exact).max()
        assert error < 1e-3, f"{setting.backend} {name}: {error}"
        found[name] = medians({"raw": program}, setting.rounds_of(5), 0.02)["raw"][0]
    quickest = min(found, key=found.__getitem__)
    raw = ways[quickest]
    got = ops.scatter(values, indices, PLACES, "add").numpy()
    assert np.abs(got - exact).max() < 1e-3
    yield Measure(
        "scatter-add 1e6 into 1e4",
        done(lambda: raw(values.native, indices.native)),
        done(lambda: ops.scatter(values, indices, PLACES, "add")),
        1.2,
        quickest,
    )
    # Both sides get arrays that are in no cache.
    fresh = iter([ops.asarray(places, copy=True) for _ in range(400)])
    yield Measure(
        "scatter-add at indices never seen",
        done(lambda: raw(values.native, next(fresh).native)),
        done(lambda: ops.scatter(values, next(fresh), PLACES, "add")),
        1.2,
        quickest,
        rounds=9,
        batch=0.01,
    )


# --- Signals --------------------------------------------------------------------------------


def stft(setting: Setting) -> Iterator[Measure]:
    """A minute of sound at 16 kHz."""
    from ember_ml import ops

    host = np.random.default_rng(0).standard_normal(SAMPLES).astype(np.float32)
    x = ops.asarray(host, copy=True)
    spectrum = ops.stft(x, FRAME, HOP)

    def ours() -> Any:
        return ops.stft(x, FRAME, HOP)

    def back() -> Any:
        return ops.istft(spectrum, FRAME, HOP, length=SAMPLES)

    if setting.backend == "numpy":
        import scipy.signal

        hann: Any = scipy.signal.get_window("hann", FRAME)
        window = hann.astype(np.float32)
        short = scipy.signal.ShortTimeFFT(window, HOP, 16_000)
        options = {"window": window, "nperseg": FRAME, "noverlap": FRAME - HOP}
        theirs = spectrum.numpy().T
        yield Measure(
            "stft", lambda: scipy.signal.stft(host, **options), ours, 1.0, "scipy.signal.stft"
        )
        yield Measure("stft, ShortTimeFFT", lambda: short.stft(host), ours, 1.0, "ShortTimeFFT")
        yield Measure(
            "istft", lambda: scipy.signal.istft(theirs, **options), back, against="scipy.signal"
        )
    if setting.backend == "torch":
        import torch

        torch_hann, raw = torch.hann_window(FRAME), x.native
        bins = torch.stft(raw, FRAME, HOP, window=torch_hann, return_complex=True)
        yield Measure(
            "stft",
            lambda: torch.stft(raw, FRAME, HOP, window=torch_hann, return_complex=True),
            ours,
            1.1,
            "torch.stft",
        )
        yield Measure(
            "istft",
            lambda: torch.istft(bins, FRAME, HOP, window=torch_hann, length=SAMPLES),
            back,
            against="torch.istft",
        )


# --- Parts of networks ----------------------------------------------------------------------


def numpy_parts(v: dict[str, list[Any]]) -> dict[str, Program]:
    from numpy.lib.stride_tricks import sliding_window_view

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2) / np.float32(math.sqrt(q.shape[-1]))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v

    def conv2d(x: Any, w: Any) -> Any:
        seen = sliding_window_view(x, w.shape[2:], (2, 3))
        return np.moveaxis(np.tensordot(seen, w, ((1, 4, 5), (1, 2, 3))), -1, 1)

    def layer_norm(x: Any, w: Any, b: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        spread = np.square(centred).mean(-1, keepdims=True)
        return centred / np.sqrt(spread + np.float32(1e-5)) * w + b

    return {
        "attention": lambda: attention(*v["attention"]),
        "conv2d": lambda: conv2d(*v["conv2d"]),
        "layer_norm": lambda: layer_norm(*v["layer_norm"]),
    }


def torch_parts(v: dict[str, list[Any]]) -> dict[str, Program]:
    from torch.nn import functional as F

    x, w, b = v["layer_norm"]
    return {
        "attention": lambda: F.scaled_dot_product_attention(*v["attention"]),
        "conv2d": lambda: F.conv2d(*v["conv2d"]),
        "layer_norm": lambda: F.layer_norm(x, (768,), w, b),
        "gelu": lambda: F.gelu(v["gelu"][0]),
    }


def jax_parts(v: dict[str, list[Any]]) -> dict[str, Program]:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def layer_norm(x: Any, w: Any, b: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        spread = jnp.square(centred).mean(-1, keepdims=True)
        return centred / jnp.sqrt(spread + 1e-5) * w + b

    # Its own layout: (samples, length, heads, features).
    turned = [jnp.array(a.swapaxes(1, 2)) for a in v["attention"]]
    attend = jax.jit(jax.nn.dot_product_attention)
    convolve = jax.jit(lambda x, w: jax.lax.conv(x, w, (1, 1), "VALID"))
    gelu = jax.jit(lambda x: jax.nn.gelu(x, approximate=False))
    return {
        "attention": lambda: attend(*turned),
        "conv2d": lambda: convolve(*v["conv2d"]),
        "layer_norm": lambda: layer_norm(*v["layer_norm"]),
        "gelu": lambda: gelu(v["gelu"][0]),
    }


def mlx_parts(v: dict[str, list[Any]]) -> dict[str, Program]:
    import mlx.core as mx

    x, w = v["conv2d"]
    images, windows = mx.contiguous(mx.moveaxis(x, 1, -1)), mx.contiguous(mx.moveaxis(w, 1, -1))
    mx.eval(images, windows)
    scale = 1 / math.sqrt(64)
    rows, weight, bias = v["layer_norm"]
    return {
        "attention": lambda: mx.fast.scaled_dot_product_attention(*v["attention"], scale=scale),
        "conv2d": lambda: mx.conv2d(images, windows),
        "layer_norm": lambda: mx.fast.layer_norm(rows, weight, bias, 1e-5),
    }


# What raw is for parts of networks.
RAW = {
    "numpy": "written with numpy",
    "torch": "torch.nn.functional",
    "jax": "jitted jax.numpy, jax.nn",
    "mlx": "mlx.core.fast",
}
PARTS = {"numpy": numpy_parts, "torch": torch_parts, "jax": jax_parts, "mlx": mlx_parts}


def network(setting: Setting) -> Iterator[Measure]:
    """Attention, convolution, normalisation and an activation of sizes that networks have."""
    from ember_ml import ops

    generator = np.random.default_rng(0)
    v = {
        name: [
            ops.asarray(generator.standard_normal(s).astype(np.float32), copy=True).native
            for s in shapes
        ]
        for name, shapes in SHAPES.items()
    }
    t = {name: [ops.asarray(a) for a in arrays] for name, arrays in v.items()}
    x, w, b = t["layer_norm"]
    images, windows = t["conv2d"]
    ours: dict[str, Program] = {
        "attention": lambda: ops.scaled_dot_product_attention(*t["attention"]),
        "conv2d": lambda: ops.conv2d(images, windows),
        "layer_norm": lambda: ops.layer_norm(x, (768,), w, b),
        "gelu": lambda: ops.gelu(t["gelu"][0]),
    }
    for name, raw in PARTS[setting.backend](v).items():
        yield Measure(name, done(raw), done(ours[name]), 1.1, RAW[setting.backend])


# --- Random numbers -------------------------------------------------------------------------


def random_numbers(setting: Setting) -> Iterator[Measure]:
    """Ours against NumPy's Philox, with a generator for each call, as ours has a stream."""
    from numpy.random import Generator, Philox

    from ember_ml import ops

    count = DRAWN // 10 if setting.quick else DRAWN

    def draws() -> Generator:
        return Generator(Philox(key=5, counter=[0, 0, 1, 0]))

    yield Measure(
        f"random.normal of {count:.0e}".replace("e+0", "e"),
        lambda: draws().standard_normal(count, dtype=np.float32),
        done(lambda: ops.random.normal((count,))),
        1.3,
        "NumPy's Philox",
    )
    yield Measure(
        f"random.uniform of {count:.0e}".replace("e+0", "e"),
        lambda: draws().random(count, dtype=np.float32),
        done(lambda: ops.random.uniform((count,))),
        against="NumPy's Philox",
    )
    yield Measure(
        "random.normal of 10",
        lambda: draws().standard_normal(10, dtype=np.float32),
        done(lambda: ops.random.normal((10,))),
        against="NumPy's Philox",
    )


BENCHMARK = Benchmark(
    "ops",
    "The wider ops beside the raw calls of each engine.",
    {"scatter": scatter, "stft": stft, "network": network, "random": random_numbers},
    only={"stft": ("numpy", "torch")},
)
