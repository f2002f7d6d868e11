"""offload: what gradients need is kept elsewhere, and comes back as it was."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.memory import offload
from ember_ml.memory.offloading import _FILES, Keeper, _InMemory
from ember_ml.nn import tensor

SIDE = 64  # matrices of 32 KB in float64


def _weights(dtype: str = "float64") -> em.Tensor:
    values = np.random.default_rng(0).standard_normal((SIDE, SIDE)) / 8
    return tensor.array(values, dtype=dtype)


def _loss(w: em.Tensor) -> em.Tensor:
    h = ops.ones((SIDE, SIDE), dtype=w.dtype)
    for _ in range(3):
        h = ops.tanh(h @ w) + ops.sin(h)
    return ops.sum(h * h)


def _leaf(dtype: str = "float64") -> em.Tensor:
    return tensor.array(_weights(dtype), requires_grad=True)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What goes must go by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_gradients_are_the_same(backend: str, tmp_path: Path) -> None:
    expected = em.grad(_loss)(_weights())
    with offload(to_disk=tmp_path) as kept:
        found = em.grad(_loss)(_weights())
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-10)
    # The three layers keep what goes into the product and the sine, and the tanh.
    assert kept.moved_bytes >= 6 * 8 * SIDE * SIDE


def test_backward_after_the_block(backend: str, tmp_path: Path) -> None:
    w = _leaf()
    with offload(to_disk=tmp_path) as kept:
        loss = _loss(w)
    moved = kept.moved_bytes
    assert moved
    loss.backward()
    assert kept.moved_bytes == moved
    expected = em.grad(_loss)(_weights())
    np.testing.assert_allclose(w.grad.numpy(), expected.numpy(), rtol=1e-10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64"])
def test_dtypes_come_back_exactly(backend: str, tmp_path: Path, dtype: str) -> None:
    def loss(x: em.Tensor) -> em.Tensor:
        return ops.sum(ops.real(ops.multiply(x * x, x)))

    values = np.random.default_rng(1).standard_normal((SIDE, SIDE)).astype(np.float32)
    first, second = (
        tensor.array(ops.asarray(values).astype(dtype), requires_grad=True) for _ in range(2)
    )
    loss(first).backward()
    with offload(to_disk=tmp_path) as kept:
        loss(second).backward()
    assert kept.moved_bytes
    assert second.grad.dtype == dtype
    np.testing.assert_array_equal(second.grad.numpy(), first.grad.numpy())


@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")  # torch's, about its cycles
def test_second_derivatives(backend: str, tmp_path: Path) -> None:
    def slope(w: em.Tensor) -> em.Tensor:
        g = em.grad(_loss)(w)
        return ops.sum(g * g)

    expected = em.grad(slope)(_weights("float64"))
    with offload(to_disk=tmp_path) as kept:
        found = em.grad(slope)(_weights("float64"))
    assert kept.moved_bytes
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-10)


def test_checkpoints(backend: str, tmp_path: Path) -> None:
    """Only the arguments of a checkpoint are moved."""
    step = em.checkpoint(lambda h, w: ops.tanh(h @ w) + ops.sin(h), to_disk=tmp_path)

    def loss(w: em.Tensor) -> em.Tensor:
        h = ops.ones((SIDE, SIDE), dtype=w.dtype)
        for _ in range(3):
            h = step(h, w)
        return ops.sum(h)

    def plain(w: em.Tensor) -> em.Tensor:
        h = ops.ones((SIDE, SIDE), dtype=w.dtype)
        for _ in range(3):
            h = ops.tanh(h @ w) + ops.sin(h)
        return ops.sum(h)

    expected = em.grad(plain)(_weights()).numpy()
    w = _leaf()
    loss(w).backward()
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-10)
    if backend in ("jax", "mlx"):
        with pytest.raises(em.UnsupportedOpError, match=r"offload\(to_disk=...\)"):
            em.grad(loss)(_weights())
    else:
        np.testing.assert_allclose(em.grad(loss)(_weights()).numpy(), expected, rtol=1e-10)


def test_checkpoints_within(backend: str, tmp_path: Path) -> None:
    def loss(w: em.Tensor) -> em.Tensor:
        step = em.checkpoint(lambda h: ops.tanh(h @ w) + ops.sin(h))
        h = ops.ones((SIDE, SIDE), dtype=w.dtype)
        for _ in range(3):
            h = step(h)
        return ops.sum(h)

    expected = em.grad(loss)(_weights()).numpy()
    with offload(to_disk=tmp_path) as kept:
        found = em.grad(loss)(_weights()).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert kept.moved_bytes == 3 * 8 * SIDE * SIDE


def test_offload_of_arguments_to_host(backend: str) -> None:
    """On one memory nothing is to be done; JAX puts them where its policy says."""

    def loss(w: em.Tensor) -> em.Tensor:
        step = em.checkpoint(lambda h, w: ops.tanh(h @ w), offload=True)
        return ops.sum(step(step(ops.ones((SIDE, SIDE), dtype=w.dtype), w), w))

    def plain(w: em.Tensor) -> em.Tensor:
        return ops.sum(ops.tanh(ops.tanh(ops.ones((SIDE, SIDE), dtype=w.dtype) @ w) @ w))

    expected = em.grad(plain)(_weights()).numpy()
    np.testing.assert_allclose(em.grad(loss)(_weights()).numpy(), expected, rtol=1e-10)
    w = _leaf()
    loss(w).backward()
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-10)


def test_jax_keeps_arguments_in_host_memory() -> None:
    import jax

    def loss(w: Any) -> Any:
        step = em.checkpoint(lambda h, w: ops.tanh(h @ w), offload=True)
        h = ops.ones((SIDE, SIDE)) * ops.asarray(w)
        return ops.sum(step(h, ops.asarray(w))).native

    with em.use_backend("jax"):
        text = str(jax.make_jaxpr(jax.grad(loss))(_weights("float32").native))
    assert "f32<host>[64,64]" in text


def test_to_another_memory() -> None:
    """As on an accelerator: a device whose memory is not the host's."""
    with em.use_backend("numpy"):
        spec = _weights()._spec
        keeper = Keeper(None)
        assert not keeper.moves(spec)
        array = _weights().native
        assert keeper.put(array, spec) is None
        keeper.moves = lambda spec: True  # type: ignore[method-assign]  # no such device is here
        place = keeper.put(array, spec)
        assert isinstance(place, _InMemory)
        assert place is keeper.put(array, spec)
        kept = array.copy()
        array[...] = 0.0
        np.testing.assert_array_equal(place.get(), kept)


def test_no_block_no_offload(backend: str) -> None:
    with offload() as kept:  # host memory already
        em.grad(_loss)(_weights())
    assert kept.moved_bytes == 0


def test_the_file_has_no_name_and_goes_with_the_values(
    backend: str, tmp_path: Path, no_collector: None
) -> None:
    w = _leaf()
    with offload(to_disk=tmp_path):
        loss = _loss(w)
    assert os.listdir(tmp_path) == []
    key = os.path.realpath(tmp_path)
    assert key in _FILES
    loss.backward()
    if backend == "torch":
        del loss
    assert key not in _FILES


def test_places_in_the_file_are_used_again(tmp_path: Path, no_collector: None) -> None:
    with em.use_backend("numpy"), offload(to_disk=tmp_path) as kept:
        w = _leaf()
        first = w * 2.0
        held = ops.sum(first * first)  # so that the file stays
        file = _FILES[os.path.realpath(tmp_path)]
        ends = []
        for _ in range(3):
            _loss(w).backward()
            ends.append(file._end)
        assert ends[0] == ends[1] == ends[2]
        assert kept.moved_bytes > ends[0]
        held.backward()


def test_writes_after_the_values_were_moved(tmp_path: Path) -> None:
    """The record has a copy, so that a write that would else be refused is fine."""
    with em.use_backend("numpy"):
        x = tensor.array(np.ones((SIDE, SIDE)))
        w = _leaf()
        with offload(to_disk=tmp_path):
            loss = ops.sum(x @ w)
            x[...] = 5.0
            again = ops.sum(x @ w)
        loss.backward()
        np.testing.assert_array_equal(w.grad.numpy(), np.full((SIDE, SIDE), SIDE))
        w.grad = None
        again.backward()
        np.testing.assert_array_equal(w.grad.numpy(), np.full((SIDE, SIDE), 5 * SIDE))


def test_several_threads(tmp_path: Path) -> None:
    expected = em.grad(_loss)(_weights()).numpy()
    found: list[np.ndarray] = []

    def work() -> None:
        with offload(to_disk=tmp_path):
            for _ in range(5):
                found.append(em.grad(_loss)(_weights()).numpy())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    for one in found:  # BLAS adds up in another order where several threads call it
        np.testing.assert_allclose(one, expected, rtol=1e-10)


def test_mistakes(backend: str, tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="create it first"):
        offload(to_disk=tmp_path / "none")
