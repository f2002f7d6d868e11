"""Laws of the parts of networks, PyTorch's results beside ours, gradients and tracing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch.nn import functional as F

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.nn.modules import activations


def _sample(*shape: int, seed: int = 0, dtype: str = "float64") -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# --- Beside PyTorch ---------------------------------------------------------------------------

X4, W4, B4 = _sample(2, 4, 9, 8), _sample(6, 2, 3, 2, seed=1), _sample(6, seed=2)
T4 = _sample(4, 3, 3, 2, seed=3)
Q, K, V = (_sample(2, 4, 6, 8, seed=s) for s in (4, 5, 6))

BESIDE: dict[str, tuple[Callable[[], Any], Callable[..., Any], tuple[Any, ...]]] = {
    "conv2d": (
        lambda: ops.conv2d(X4, W4, B4, stride=2, padding=(1, 2), dilation=(2, 1), groups=2),
        lambda x, w, b: F.conv2d(x, w, b, 2, (1, 2), (2, 1), 2),
        (X4, W4, B4),
    ),
    "conv2d-same": (
        lambda: ops.conv2d(X4[:, :2], W4, padding="same"),
        lambda x, w: F.conv2d(x, w, padding="same"),
        (X4[:, :2], W4),
    ),
    "conv_transpose2d": (
        lambda: ops.conv_transpose2d(X4, T4, None, 3, 1, 2, 2, 2),
        lambda x, w: F.conv_transpose2d(x, w, None, 3, 1, 2, 2, 2),
        (X4, T4),
    ),
    "unfold": (
        lambda: ops.unfold(X4, (3, 2), (2, 1), 1, 2),
        lambda x: F.unfold(x, (3, 2), (2, 1), 1, 2),
        (X4,),
    ),
    "max_pool2d": (
        lambda: ops.max_pool2d(X4, 3, 2, 1, 1, True, return_indices=True),
        lambda x: F.max_pool2d(x, 3, 2, 1, 1, True, return_indices=True),
        (X4,),
    ),
    "avg_pool2d": (
        lambda: ops.avg_pool2d(X4, 3, 2, 1, True, False),
        lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
        (X4,),
    ),
    "adaptive_avg_pool2d": (
        lambda: ops.adaptive_avg_pool2d(X4, (4, 3)),
        lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
        (X4,),
    ),
    "bilinear": (
        lambda: ops.resize(X4, (5, 13), method="bilinear"),
        lambda x: F.interpolate(x, (5, 13), mode="bilinear"),
        (X4,),
    ),
    "bicubic": (
        lambda: ops.resize(X4, (5, 13), method="bicubic", align_corners=True),
        lambda x: F.interpolate(x, (5, 13), mode="bicubic", align_corners=True),
        (X4,),
    ),
    "nearest": (
        lambda: ops.resize(X4, (5, 13)),
        lambda x: F.interpolate(x, (5, 13), mode="nearest"),
        (X4,),
    ),
    "pixel_shuffle": (lambda: ops.pixel_shuffle(X4, 2), lambda x: F.pixel_shuffle(x, 2), (X4,)),
    "attention": (
        lambda: ops.scaled_dot_product_attention(Q, K, V, is_causal=True, scale=0.2),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2),
        (Q, K, V),
    ),
    "group_norm": (lambda: ops.group_norm(X4, 2), lambda x: F.group_norm(x, 2), (X4,)),
    "gelu": (lambda: ops.gelu(X4), F.gelu, (X4,)),
    "mish": (lambda: ops.mish(X4), F.mish, (X4,)),
    "softmax": (lambda: ops.softmax(X4, 1), lambda x: F.softmax(x, 1), (X4,)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", BESIDE)
def test_as_pytorch(backend: str, name: str) -> None:
    ours, theirs, inputs = BESIDE[name]
    wanted = theirs(*map(torch.from_numpy, inputs))
    got = ours()
    got, wanted = (r if isinstance(r, tuple) else (r,) for r in (got, wanted))
    for a, b in zip(got, wanted, strict=True):
        assert a.backend == backend
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-11)


# --- Laws -------------------------------------------------------------------------------------


@given(
    arrays.arrays(np.float64, (3, 5), elements=st.floats(-1e4, 1e4)),
    st.sampled_from(("numpy", "torch", "jax", "mlx")),
)
@settings(max_examples=30, deadline=None)
def test_rows_of_softmax_sum_to_one(x: np.ndarray[Any, Any], backend: str) -> None:
    with em.use_backend(backend):
        out = ops.softmax(x).numpy()
        logs = ops.log_softmax(x).numpy()
    np.testing.assert_allclose(out.sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.exp(logs), out, rtol=1e-10, atol=1e-300)
    assert (out >= 0).all()


@given(
    st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.sampled_from((1, 2)),
    st.sampled_from(("numpy", "mlx")),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_transposes_are_transposes(
    stride: int, dilation: int, padding: int, groups: int, backend: str
) -> None:
    """<conv(x), y> is <x, conv_transpose(y)>."""
    x, w = _sample(2, 4, 11), _sample(6, 4 // groups, 3, seed=1)
    with em.use_backend(backend):
        out = ops.conv1d(x, w, None, stride, padding, dilation, groups)
        y = _sample(*out.shape, seed=2)
        missing = (11 + 2 * padding - dilation * 2 - 1) % stride
        if missing >= max(stride, dilation):
            return
        back = ops.conv_transpose1d(y, w, None, stride, padding, missing, groups, dilation)
    assert back.shape == x.shape
    np.testing.assert_allclose((out.numpy() * y).sum(), (x * back.numpy()).sum(), rtol=1e-9)


def test_rotation_keeps_lengths_and_differences(backend: str) -> None:
    q, k = _sample(1, 6, 8), _sample(1, 6, 8, seed=1)
    turned = ops.rope(q).numpy()
    np.testing.assert_allclose((turned**2).sum(-1), (q**2).sum(-1), rtol=1e-10)
    # Products depend on the distance of positions alone.
    here = ops.rope(q, [0, 1, 2, 3, 4, 5]), ops.rope(k, [3, 4, 5, 6, 7, 8])
    there = ops.rope(q, [10, 11, 12, 13, 14, 15]), ops.rope(k, [13, 14, 15, 16, 17, 18])
    first, second = (ops.sum(a * b, axis=-1).numpy() for a, b in (here, there))
    np.testing.assert_allclose(first, second, rtol=1e-9)


def test_positions_of_rope_are_exact_where_they_are_large(backend: str) -> None:
    """Angles in float32 would be wrong in the third place at the end of a long text."""
    length = 100_001
    x = np.zeros((length, 2), np.float32)
    x[:, 0] = 1
    out = ops.rope(x).numpy()[-1]
    np.testing.assert_allclose(out, [np.cos(length - 1), np.sin(length - 1)], atol=1e-6)


# --- Values -----------------------------------------------------------------------------------


def test_large_arguments_without_warnings(backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ops.softplus([100.0, -1000.0]).tolist() == [100.0, 0.0]
        assert ops.sigmoid([-1000.0, 1000.0]).tolist() == [0.0, 1.0]
        assert ops.silu([-1000.0, 1000.0]).tolist() == [0.0, 1000.0]
        assert ops.log_sigmoid([-1000.0]).tolist() == [-1000.0]
        assert ops.softmax([[1e4, 1e4, -1e4]]).tolist() == [[0.5, 0.5, 0.0]]
        assert ops.log_softmax([0.0, -float("inf")]).tolist() == [0.0, -float("inf")]
        assert ops.elu([-1000.0]).tolist() == [-1.0]
        hidden = ops.scaled_dot_product_attention(
            ops.ones((1, 2, 4)),
            ops.ones((1, 2, 4)),
            ops.ones((1, 2, 4)),
            [[True, True], [False] * 2],
        )
        assert hidden.tolist() == [[[1.0] * 4, [0.0] * 4]]


def test_halves_are_added_in_float32(backend: str) -> None:
    x = ops.full((4, 4096), 300.0, dtype="float16")
    assert ops.rms_norm(x).numpy().ravel()[0] == 1  # squares are beyond the range of float16
    np.testing.assert_allclose(ops.softmax(x).numpy().astype("float64").sum(-1), 1, rtol=1e-3)
    y = ops.normalize(x)
    assert y.dtype == "float16"
    np.testing.assert_allclose(y.numpy().astype("float64"), 1 / 64, rtol=1e-3)


def test_batch_norm_leaves_its_statistics(backend: str) -> None:
    mean, var = ops.zeros((3,)), ops.ones((3,))
    _, new_mean, new_var = ops.batch_norm(_sample(5, 3, dtype="float32"), mean, var, training=True)
    assert mean.tolist() == [0, 0, 0]
    assert var.tolist() == [1, 1, 1]
    assert new_mean.tolist() != mean.tolist()
    assert new_var.tolist() != var.tolist()


@pytest.mark.parametrize(
    "run",
    [
        lambda x: ops.max_pool1d(x, 1),
        lambda x: ops.avg_pool1d(x, 1),
        lambda x: ops.adaptive_max_pool1d(x, 3),
        lambda x: ops.adaptive_avg_pool1d(x, None),
        lambda x: ops.resize(x, 3),
        lambda x: ops.resize(x, scale=1, method="linear"),
        lambda x: ops.relu(x),
        lambda x: ops.hard_tanh(x),
        lambda x: ops.threshold(x, 0.0, 0.0),
    ],
)
def test_results_have_memory_of_their_own(backend: str, run: Callable[[Any], Any]) -> None:
    x = ops.ones((1, 1, 3))
    out = run(x)
    assert out.tolist() == x.tolist()
    out[0, 0, 0] = 7.0
    assert x.tolist() == [[[1.0, 1.0, 1.0]]]


def test_lists_and_native_arrays(backend: str) -> None:
    weight = ops.asarray([[[1.0, 10.0]]])
    assert ops.conv1d([[[1.0, 2.0, 3.0]]], weight).tolist() == [[[21.0, 32.0]]]
    assert ops.conv1d(np.ones((1, 1, 3), np.float32), weight.native).backend == backend
    with em.use_backend("numpy" if backend != "numpy" else "torch"):
        other = ops.asarray([[[1.0, 2.0]]])
    with pytest.raises(em.BackendMismatchError, match="conv1d"):
        ops.conv1d(weight, other)
    with pytest.raises(em.DTypeError, match="float16"):
        ops.layer_norm(ops.ones((2, 3), dtype="float16"), weight=ops.ones((3,)))


# --- Gradients and tracing --------------------------------------------------------------------


def _network(x: Any, w: Any, g: Any) -> Any:
    """A bit of everything, down to one number."""
    y = ops.max_pool2d(ops.relu(ops.conv2d(x, w, padding="same")), 2)
    y = ops.group_norm(y, 2)
    y = ops.reshape(ops.resize(y, 4, method="bilinear"), (2, 4, 4, 4))
    y = ops.layer_norm(ops.gelu(y), weight=g)
    y = ops.scaled_dot_product_attention(y, y, ops.silu(y), is_causal=True)
    return ops.sum(ops.log_softmax(ops.avg_pool2d(y, 2)) * 0.5)


NETWORK = _sample(2, 2, 4, 4), _sample(4, 2, 3, 3, seed=1), _sample(4, seed=2)


def _gradients_of_torch() -> list[np.ndarray[Any, Any]]:
    tensors = [torch.from_numpy(a).requires_grad_() for a in NETWORK]
    out = _network(*(em.from_torch(t) for t in tensors))
    assert out.requires_grad
    return [g.numpy() for g in torch.autograd.grad(out.native, tensors)]


def test_gradients_agree() -> None:
    wanted = _gradients_of_torch()

    def of_jax(*arrays: Any) -> Any:
        return _network(*arrays).native

    traced = jax.jit(jax.grad(of_jax, (0, 1, 2)))(*map(jnp.asarray, NETWORK))
    for a, b in zip(traced, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-8, atol=1e-10)
    # MLX convolves float64 by windows and matmul, which have gradients as well.
    natives = [mx.array(a, dtype=mx.float64) for a in NETWORK]
    found = mx.grad(lambda *v: _network(*v).native, (0, 1, 2))(*natives)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.array(a), b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("engine", ["torch", "jax", "mlx"])
def test_compiled_values_agree(engine: str) -> None:
    inputs = [a.astype("float32") for a in NETWORK]
    with em.use_backend(engine):
        eager = _network(*map(ops.asarray, inputs)).numpy()
    if engine == "jax":
        program = jax.jit(lambda *v: _network(*v).native)
        got = np.asarray(program(*map(jnp.asarray, inputs)))
    elif engine == "torch":
        from torch.fx.experimental.proxy_tensor import make_fx

        tensors = [torch.from_numpy(a) for a in inputs]
        got = make_fx(lambda *v: _network(*v).native)(*tensors)(*tensors).numpy()
    else:
        arrays = [mx.array(a) for a in inputs]
        got = np.array(mx.compile(lambda *v: _network(*v).native)(*arrays))
    np.testing.assert_allclose(got, eager, rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["softplus", "log_sigmoid", "sigmoid", "silu", "mish", "elu", "gelu"]
)
def test_slopes_of_activations(name: str) -> None:
    """At zero, where formulas have their seams, and far out, where they overflow."""
    points = np.array([0.0, -0.0, 1.0, -1.0, 30.0, -30.0, 800.0, -800.0])
    ours = getattr(ops, name)
    leaf = torch.from_numpy(points).requires_grad_()
    (wanted,) = torch.autograd.grad(
        getattr(F, {"log_sigmoid": "logsigmoid"}.get(name, name))(leaf).sum(), leaf
    )
    mine = jax.grad(lambda x: ours(x).native.sum())(jnp.asarray(points))
    np.testing.assert_allclose(np.asarray(mine), wanted.numpy(), rtol=1e-10, atol=1e-12)
    found = mx.grad(lambda x: ours(x).native.sum())(mx.array(points, dtype=mx.float64))
    np.testing.assert_allclose(np.array(found), wanted.numpy(), rtol=1e-10, atol=1e-12)


# --- Names ------------------------------------------------------------------------------------


def test_activations_by_name() -> None:
    assert ops.get_activation("relu") is ops.relu
    assert ops.get_activation("swish") is ops.silu
    assert ops.get_activation("LeakyReLU") is ops.leaky_relu
    assert ops.get_activation("hardswish") is ops.hard_swish
    assert ops.get_activation("tanh") is ops.tanh
    assert ops.get_activation(ops.gelu) is ops.gelu
    assert ops.get_activation("linear") is ops.get_activation(None) is activations.linear
    x = ops.asarray([1.0])
    assert activations.identity(x) is x


def test_activations_are_those_of_ops() -> None:
    for name in activations.__all__:
        if name[0].isupper():
            assert getattr(activations, name) is getattr(nn, name)
        elif name not in ("identity", "linear"):
            assert getattr(activations, name) is getattr(ops, name)
