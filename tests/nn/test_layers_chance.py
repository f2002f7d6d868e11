"""Layers that draw: the same for a seed on every backend, right in gradients and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import nn, ops

BACKENDS = ("numpy", "torch", "jax", "mlx")
DROPPING = {
    "Dropout": (64, 8),
    "AlphaDropout": (64, 8),
    "Dropout1d": (16, 8, 3),
    "Dropout2d": (16, 8, 2, 3),
    "Dropout3d": (16, 8, 2, 1, 3),
    "DropPath": (64, 8),
}
EVERY = pytest.mark.parametrize("name", DROPPING)


def ones(name: str) -> Any:
    return ops.ones(DROPPING[name])


@EVERY
def test_a_seed_gives_the_same_everywhere(name: str) -> None:
    found = []
    for backend in BACKENDS:
        with em.use_backend(backend), ops.random.use_seed(3):
            layer = getattr(nn, name)(0.5)
            found.append([layer(ones(name)).numpy() for _ in range(2)])
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    assert (found[0][0] != found[0][1]).any()  # another draw at each call


@EVERY
def test_a_share_is_dropped_and_the_mean_stays(name: str) -> None:
    layer = getattr(nn, name)(0.25)
    with ops.random.use_seed(5):
        y = np.stack([layer(ones(name)).numpy() for _ in range(64)])
    low, high = np.unique(y)
    draws = 64 * {"DropPath": 64, "Dropout": 512, "AlphaDropout": 512}.get(name, 128)
    spread = 5 * np.sqrt(0.25 * 0.75 / draws)  # five deviations of a share of so many draws
    assert abs((y == low).mean() - 0.25) < spread
    if name != "AlphaDropout":
        assert (low, high) == (0.0, np.float32(1) / np.float32(0.75))


def test_alpha_dropout_keeps_a_unit_normal() -> None:
    with ops.random.use_seed(6):
        y = nn.AlphaDropout(0.3)(ops.random.normal((200_000,))).numpy()
    assert abs(y.mean()) < 0.02
    assert abs(y.var() - 1) < 0.02


@pytest.mark.parametrize(("name", "shared"), [("Dropout1d", 1), ("Dropout2d", 2), ("Dropout3d", 3)])
def test_channels_are_dropped_whole(name: str, shared: int) -> None:
    with ops.random.use_seed(7):
        first = getattr(nn, name)(0.5)(ones(name)).numpy()
        last = getattr(nn, name)(0.5, data_format="channels_last")(
            ops.ones((16, *(2,) * shared, 8))
        ).numpy()
        alone = getattr(nn, name)(0.5)(ones(name)[0]).numpy()
    axes = tuple(range(-shared, 0))
    np.testing.assert_array_equal(first.min(axes), first.max(axes))
    middle = tuple(range(1, shared + 1))
    np.testing.assert_array_equal(last.min(middle), last.max(middle))
    np.testing.assert_array_equal(alone.min(axes), alone.max(axes))
    assert len(np.unique(first.min(axes))) == len(np.unique(last.min(middle))) == 2


@EVERY
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_the_edges(name: str, p: float, backend: str) -> None:
    layer = getattr(nn, name)(p)
    np.testing.assert_array_equal(layer(ones(name)).numpy(), np.full(DROPPING[name], 1 - p))
    x = ones(name)
    assert layer.eval()(x) is x


def test_gradients_go_where_values_went(backend: str) -> None:
    layer = nn.Dropout(0.5)
    x = ops.ones((4, 8)).requires_grad_()
    with ops.random.use_seed(8):
        y = layer(x)
        ops.sum(y).backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    with ops.random.use_seed(8):
        value, grad = em.value_and_grad(lambda x: ops.sum(layer(x)))(ops.ones((4, 8)))
    np.testing.assert_array_equal(grad.numpy(), y.numpy())
    assert float(value) == y.numpy().sum()


def test_compiled_draws_are_new_at_each_call(backend: str) -> None:
    layer = nn.Dropout(0.5)
    step = em.jit(em.value_and_grad(lambda x: ops.sum(layer(x) * x)), state=[layer])
    x = ops.ones((8, 8))
    with ops.random.use_seed(9):
        found = [step(x)[1].numpy() for _ in range(2)]
    with ops.random.use_seed(9):
        again = [step(x)[1].numpy() for _ in range(2)]
    np.testing.assert_array_equal(found, again)
    assert (found[0] != found[1]).any()
    assert set(np.unique(found)) == {0.0, 4.0}  # 2x of what is kept, with x = 1, times 1 / (1 - p)
    assert 0.3 < (np.stack(found) == 0).mean() < 0.7
    layer.eval()
    np.testing.assert_array_equal(step(x)[1].numpy(), np.full((8, 8), 2.0))


def test_a_generator_of_its_own() -> None:
    layer, other = nn.Dropout(0.5), nn.Dropout(0.5)
    layer.generator, other.generator = ops.random.Generator(1), ops.random.Generator(1)
    x = ops.ones(32)
    ops.random.normal(())  # draws from elsewhere move nothing
    np.testing.assert_array_equal(layer(x).numpy(), other(x).numpy())
    step = em.jit(lambda x: layer(x), state=[layer])
    assert set(np.unique(step(x).numpy())) <= {0.0, 2.0}


@settings(max_examples=30, deadline=None)
@given(p=st.floats(0.0, 1.0), seed=st.integers(0, 2**32), rows=st.integers(0, 5))
def test_a_value_is_dropped_or_scaled(p: float, seed: int, rows: int) -> None:
    x = np.linspace(1, 2, 3 * rows).reshape(rows, 3)
    y = ops.dropout(x, p, generator=ops.random.Generator(seed)).numpy()
    assert (y.dtype, y.shape) == (np.float64, x.shape)
    if p < 1:
        assert np.all((y == 0) | np.isclose(y, x / (1 - p), rtol=1e-12))
    else:
        assert not y.any()
