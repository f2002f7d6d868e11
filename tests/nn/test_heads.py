"""What attention layers do to the layout of their arrays, and norms by layers."""

from __future__ import annotations

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.errors import ShapeError
from ember_ml.ops.attention import merge_heads, split_heads
from ember_ml.ops.normalization import normed


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 1, 8), (3, 8), (0, 3, 8)])
def test_heads_apart_and_together(backend: str, shape: tuple[int, ...], dtype: str) -> None:
    x = ops.asarray(np.arange(np.prod(shape)).reshape(shape), dtype=dtype)
    split = split_heads(x, 2)
    wanted = np.swapaxes(x.numpy().reshape(*shape[:-1], 2, 4), -3, -2)
    assert (split.dtype, split.shape) == (dtype, wanted.shape)
    np.testing.assert_array_equal(split.numpy(), wanted)
    merged = merge_heads(split)
    assert (merged.dtype, merged.shape) == (dtype, shape)
    np.testing.assert_array_equal(merged.numpy(), x.numpy())


def test_gradients_of_heads(backend: str) -> None:
    weights = np.arange(24, dtype=np.float32).reshape(2, 2, 3, 2)
    x = em.Tensor(np.ones((2, 3, 4), np.float32), requires_grad=True)
    ops.sum(split_heads(x, 2) * ops.asarray(weights)).backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.swapaxes(weights, 1, 2).reshape(2, 3, 4))
    y = em.Tensor(np.ones((2, 2, 3, 2), np.float32), requires_grad=True)
    flat = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    ops.sum(merge_heads(y) * ops.asarray(flat)).backward()
    assert y.grad is not None
    np.testing.assert_array_equal(y.grad.numpy(), np.swapaxes(flat.reshape(2, 3, 2, 2), 1, 2))


def test_a_norm_by_a_layer(backend: str) -> None:
    x = ops.asarray(np.random.default_rng(0).standard_normal((2, 3, 4)), dtype="float32")
    weight, bias = ops.full((3, 4), 2.0), ops.full((3, 4), 1.0)
    made = normed("layer_norm", x, (3, 4), (weight, bias), 1e-5)
    wanted = ops.layer_norm(x, (3, 4), weight, bias)
    np.testing.assert_array_equal(made.numpy(), wanted.numpy())
    for shape in ((4, 3), (2, 3, 4, 1), (5, 2, 3, 4)):
        with pytest.raises(ShapeError, match="the last axes must be"):
            normed("layer_norm", x, shape, (None, None), 1e-5)
    view = normed("layer_norm", x.slice((0, 1)), (3, 4), (weight, bias), 1e-5)
    assert not view.requires_grad
    np.testing.assert_allclose(view.numpy(), wanted.numpy()[:1], rtol=1e-6)
