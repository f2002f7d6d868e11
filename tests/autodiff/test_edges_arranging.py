"""Edges of gradients that only move elements: ties, padding, casts, complex numbers, nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops

BACKENDS = ("numpy", "torch", "jax", "mlx")


def both(backend: str, function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    """Gradients by em.grad; those of backward() are the same."""
    with em.use_backend(backend):
        tensors = [ops.asarray(np.array(a)) for a in arrays]
        found = em.grad(function, argnums=tuple(range(len(arrays))))(*tensors)
        leaves = [em.Tensor(ops.asarray(np.array(a)), requires_grad=True) for a in arrays]
        function(*leaves).backward()
        for g, x in zip(found, leaves, strict=True):
            assert x.grad is not None
            assert g.dtype is x.grad.dtype is x.dtype
            assert g.shape == x.grad.shape == x.shape
            np.testing.assert_array_equal(g.numpy(), x.grad.numpy())
        return [g.numpy() for g in found]


# --- Ties -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["scatter_max", "scatter_min"])
def test_equal_values_share_the_gradient_of_their_place(backend: str, name: str) -> None:
    sign = 1.0 if name == "scatter_max" else -1.0
    x = sign * np.array([2.0, 2.0, 1.0, 3.0, 3.0, 3.0, -1.0])
    weights = [6.0, 9.0, 5.0]

    def run(x: Any) -> Any:
        out = getattr(ops, name)(x, [0, 0, 0, 1, 1, 1, 2], 3)
        return (out * ops.asarray(weights, dtype="float64")).sum()

    (g,) = both(backend, run, x)
    assert g.tolist() == [3.0, 3.0, 0.0, 3.0, 3.0, 3.0, 5.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_with_zeros(backend: str) -> None:
    (g,) = both(
        backend,
        lambda x: ops.scatter_mul(x, [0, 0, 1, 1, 1, 2], 4).sum(),
        np.array([2.0, 0.0, 0.0, 3.0, 0.0, 5.0]),
    )
    assert g.tolist() == [0.0, 2.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_means_of_groups(backend: str) -> None:
    (g,) = both(
        backend, lambda x: ops.scatter_mean(x, [1, 1, 3], 4).sum(), np.array([1.0, 2.0, 3.0])
    )
    assert g.tolist() == [0.5, 0.5, 1.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_has_no_gradient(backend: str) -> None:
    """The row of padding_idx gets nothing, however often it is asked for."""
    (g,) = both(
        backend,
        lambda w: (ops.embedding([[1, 0, 1], [2, -1, 2]], w, padding_idx=-1) ** 2).sum(),
        np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
    )
    assert g.tolist() == [[2.0, 4.0], [12.0, 16.0], [0.0, 0.0]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["maximum", "minimum", "median", "mean"])
def test_padding_by_statistics_of_equal_values(backend: str, mode: str) -> None:
    (g,) = both(backend, lambda x: ops.pad(x, (0, 2), mode)[2:].sum(), np.array([1.0, 1.0]))
    assert g.sum() == pytest.approx(2.0)
    if mode != "median":
        assert g.tolist() == [1.0, 1.0]


# --- Indices that are worked out from what is differentiated ----------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda x, i, w: ops.take(x, i) * w, [3.0, 1.0, 2.0]),
        (lambda x, i, w: ops.take_along_axis(x, i, axis=0) * w, [3.0, 1.0, 2.0]),
        (lambda x, i, w: x[i] * w, [3.0, 1.0, 2.0]),
        (lambda x, i, w: ops.scatter_add(x, i, 3) * w, [2.0, 3.0, 1.0]),
        (lambda x, i, w: ops.index_add(x, i, x) * w, [3.0, 5.0, 4.0]),
        (lambda x, i, w: ops.index_update(x, i, x * 2.0) * w, [4.0, 6.0, 2.0]),
        (lambda x, i, w: ops.put_along_axis(x, i, x * 2.0, axis=0) * w, [4.0, 6.0, 2.0]),
        (lambda x, i, w: ops.embedding(i, x[:, None], 0)[:, 0] * w, [0.0, 1.0, 2.0]),
        (lambda x, i, w: ops.one_hot(i, 3, dtype="float64") @ x * w, [3.0, 1.0, 2.0]),
    ],
    ids=["take", "along", "key", "scatter", "add", "update", "put", "embedding", "one_hot"],
)
def test_computed_indices(backend: str, run: Any, expected: list[float]) -> None:
    def loss(x: Any) -> Any:
        weights = ops.asarray([1.0, 2.0, 3.0], dtype="float64").to_backend(x.backend)
        return run(x, ops.argsort(x), weights).sum()

    (g,) = both(backend, loss, np.array([3.0, 1.0, 2.0]))
    assert g.tolist() == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_value_that_another_replaces_has_no_gradient(backend: str) -> None:
    """Where an index stands twice, the value that stays has the gradient."""
    x, v = np.zeros((2, 2)), np.array([[1.0], [2.0], [3.0]])

    def run(x: Any, v: Any) -> Any:
        weights = ops.asarray([[10.0, 20.0], [1.0, 2.0]], dtype="float64").to_backend(x.backend)
        return (ops.index_update(x, [0, 0, 1], v) * weights).sum()

    with em.use_backend(backend):
        stayed = ops.index_update(ops.asarray(x), [0, 0, 1], ops.asarray(v))[0, 0].item()
    before, g = both(backend, run, x, v)
    assert before.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert g.tolist() == [[30.0 * (stayed == 1.0)], [30.0 * (stayed == 2.0)], [3.0]]


# --- Casts and complex numbers ---------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_casts(backend: str) -> None:
    x = np.array([1.0, 2.0], np.float32)
    (g,) = both(backend, lambda x: (x.astype("float64") ** 2).sum(), x)
    assert (g.dtype, g.tolist()) == (np.float32, [2.0, 4.0])
    (g,) = both(backend, lambda x: (x.astype("float16") * 3.0).sum().astype("float32"), x)
    assert g.tolist() == [3.0, 3.0]
    (g,) = both(backend, lambda x: ops.real(x.astype("complex64") * (2 + 3j)).sum(), x)
    assert (g.dtype, g.tolist()) == (np.float32, [2.0, 2.0])
    # What became integers has no gradient any more, and what is beside it keeps its own.
    (g,) = both(backend, lambda x: (x * x.astype("int64").astype("float32")).sum(), x)
    assert g.tolist() == [1.0, 2.0]


_MOVES: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda z: z.reshape(4),
    "T": lambda z: z.T,
    "mT": lambda z: z.mT,
    "flip": lambda z: ops.flip(z, axis=0),
    "roll": lambda z: ops.roll(z, 1),
    "tile": lambda z: ops.tile(z, (2, 1)),
    "repeat": lambda z: ops.repeat(z, 2, axis=1),
    "uneven": lambda z: ops.repeat(z, ops.asarray([2, 1]), axis=1),
    "concat": lambda z: ops.concat([z, z * 2.0]),
    "stack": lambda z: ops.stack([z, z]),
    "pad": lambda z: ops.pad(z, 1, "reflect"),
    "zeros": lambda z: ops.pad(z, 1),
    "key": lambda z: z[::-1, [0, 0, 1]],
    "mask": lambda z: z[ops.asarray([[True, False], [True, True]])],
    "take": lambda z: ops.take(z, [1, 1], axis=0),
    "along": lambda z: ops.take_along_axis(z, ops.asarray([[1, 1], [0, 1]]), axis=1),
    "update": lambda z: ops.index_update(z, 0, z[1] * 2.0),
    "add": lambda z: ops.index_add(z, [0, 0], z),
    "scatter": lambda z: ops.scatter_add(z, [1, 1], 3),
    "product": lambda z: ops.scatter_mul(z, [1, 1], 3),
    "tril": lambda z: ops.tril(z),
    "diagonal": lambda z: ops.linalg.diagonal(z),
    "embed": lambda z: ops.linalg.diag_embed(z),
    "broadcast": lambda z: ops.broadcast_to(z, (3, 2, 2)),
    "unstack": lambda z: ops.unstack(z)[1],
    "copy": lambda z: z.copy(),
    "clone": lambda z: z.clone(),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", _MOVES)
def test_complex_numbers(backend: str, name: str) -> None:
    """The gradient of a real loss is dL/dx + i dL/dy, by differences of its two parts."""
    z = np.array([[1 + 2j, -0.5j], [0.25 - 1j, 2 + 0.5j]])

    def loss(z: Any) -> Any:
        out = _MOVES[name](z)
        weights = np.linspace(0.5, 1.5, out.size).reshape(out.shape)
        first, second = (
            ops.asarray(w.astype("f4" if z.dtype == "complex64" else "f8"))
            for w in (weights, weights[::-1])
        )
        return (ops.real(out) * first).sum() + (ops.imag(out) * second).sum()

    (g,) = both(backend, loss, z.astype(np.complex64))
    expected = np.zeros_like(z)
    with em.use_backend("numpy"):
        for index in np.ndindex(z.shape):
            for direction in (1e-6, 1e-6j):
                ahead, behind = z.copy(), z.copy()
                ahead[index] += direction
                behind[index] -= direction
                slope = loss(ops.asarray(ahead)).item() - loss(ops.asarray(behind)).item()
                expected[index] += direction / 1e-6 * slope / 2e-6
    np.testing.assert_allclose(g, expected, atol=2e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_of_complex_numbers(backend: str) -> None:
    z = np.array([1 + 2j, 3 - 1j], np.complex64)
    (g,) = both(backend, lambda z: (z.real * 2.0 + z.imag * 3.0).sum(), z)
    assert g.tolist() == [2 + 3j, 2 + 3j]
    (g,) = both(backend, lambda x: (x.real * x).sum(), np.array([1.0, 2.0]))
    assert g.tolist() == [2.0, 4.0]


# --- Half precision and nothing --------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [n for n in _MOVES if n != "product"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits(backend: str, name: str, dtype: str) -> None:
    with em.use_backend(backend):
        x = em.Tensor([[1.0, 2.0], [3.0, 4.0]], dtype=dtype, requires_grad=True)
        _MOVES[name](x).sum().backward()
        assert x.grad is not None
        assert (x.grad.dtype, x.grad.shape) == (x.dtype, x.shape)
        wide = em.Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        _MOVES[name](wide).sum().backward()
        assert wide.grad is not None
        assert x.grad.astype("float32").tolist() == wide.grad.tolist()


_EMPTY: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(3, 0),
    "T": lambda x: x.T,
    "concat": lambda x: ops.concat([x, ops.ones((2, 3))]),
    "stack": lambda x: ops.stack([x, x]),
    "key": lambda x: x[:, 1:],
    "indices": lambda x: x[[]],
    "column": lambda x: x[:, [0, 2]],
    "mask": lambda x: x[ops.zeros((0, 3), dtype="bool")],
    "take": lambda x: ops.take(x, [1, 1], axis=1),
    "along": lambda x: ops.take_along_axis(x, ops.zeros((0, 2), dtype="int64"), axis=1),
    "repeat": lambda x: ops.repeat(x, 2, axis=0),
    "tile": lambda x: ops.tile(x, (2, 2)),
    "roll": lambda x: ops.roll(x, 1, axis=0),
    "flip": lambda x: ops.flip(x),
    "pad": lambda x: ops.pad(x, 1),
    "scatter": lambda x: ops.scatter_add(x, [], 2),
    "product": lambda x: ops.scatter_mul(x, [], 2),
    "largest": lambda x: ops.scatter_max(x, [], 2),
    "update": lambda x: ops.index_update(x, slice(None), 1.0),
    "tril": lambda x: ops.tril(x),
    "broadcast": lambda x: ops.broadcast_to(x, (2, 0, 3)),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", _EMPTY)
def test_nothing(backend: str, name: str) -> None:
    (g,) = both(backend, lambda x: _EMPTY[name](x).sum() + x.sum(), np.zeros((0, 3), np.float32))
    assert (g.shape, g.dtype) == ((0, 3), np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_keys_that_choose_nothing(backend: str) -> None:
    x = np.array([1.0, 2.0])
    for key in (slice(1, 1), [], np.array([False, False]), False):
        (g,) = both(backend, lambda x, key=key: x[key].sum() + (x * x).sum(), x)
        assert g.tolist() == [2.0, 4.0]
