"""Checkpoints save memory: counted where a count has no noise, on each backend in its own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.memory import track
from ember_ml.nn import tensor

LAYERS = 24
SIDE, ROWS = 64, 512
# An activation in float32.
BYTES = 4 * ROWS * SIDE

Loss = Callable[[em.Tensor], em.Tensor]


def _layer(h: em.Tensor, w: em.Tensor) -> em.Tensor:
    return ops.tanh(ops.sin(h @ w) * h) + h


def _loss(step: Callable[..., em.Tensor]) -> Loss:
    def loss(w: em.Tensor) -> em.Tensor:
        h = ops.full((ROWS, SIDE), 0.5)
        for _ in range(LAYERS):
            h = step(h, w)
        return ops.mean(h * h)

    return loss


def _weights() -> em.Tensor:
    values = np.random.default_rng(0).standard_normal((SIDE, SIDE)) / SIDE
    return tensor.array(values, dtype="float32")


def _peak(loss: Loss) -> int:
    w = _weights()
    em.grad(loss)(w).numpy()  # what is made once is made now
    with track() as m:
        em.grad(loss)(w).numpy()
    return m.added


def _peak_of_backward(loss: Loss) -> int:
    w = tensor.array(_weights(), requires_grad=True)
    loss(w).backward()
    w.grad = None
    with track() as m:
        loss(w).backward()
        assert w.grad.numpy().shape == (SIDE, SIDE)
    return m.added


@pytest.mark.parametrize("peak", [_peak, _peak_of_backward], ids=["grad", "backward"])
@pytest.mark.parametrize("backend", ["numpy", "mlx"])
def test_peak(backend: str, peak: Callable[[Loss], int]) -> None:
    """NumPy tells Python's tracer of its arrays, and MLX counts its own."""
    with em.use_backend(backend):
        without, within = peak(_loss(_layer)), peak(_loss(em.checkpoint(_layer)))
        rows = peak(_in_segments)
    # MLX has memory for some ops ahead of those that are done: thirty arrays, however many layers.
    ahead = 32 if backend == "mlx" else 0
    assert without >= 3 * LAYERS * BYTES  # what goes into the product, the sine, the tanh
    assert within <= (LAYERS + 12 + ahead) * BYTES
    assert within < without / 2
    # By segments: five arrays between them, and all of one segment, four for each layer.
    assert rows <= (5 + 4 * 5 + 12 + ahead) * BYTES


def _in_segments(w: em.Tensor) -> em.Tensor:
    row = em.autodiff.checkpoint_sequence([lambda h: _layer(h, w)] * LAYERS)
    h = row(ops.full((ROWS, SIDE), 0.5))
    return ops.mean(h * h)


def test_what_torch_saves() -> None:
    import torch

    def saved(loss: Loss) -> int:
        seen: dict[int, int] = {}
        alive: list[Any] = []

        def pack(x: torch.Tensor) -> torch.Tensor:
            seen[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            alive.append(x)  # so that no address comes twice
            return x

        w = tensor.array(_weights(), requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            out = loss(w)
        assert out.requires_grad
        return sum(seen.values())

    with em.use_backend("torch"):
        without, within = saved(_loss(_layer)), saved(_loss(em.checkpoint(_layer)))
    assert without >= 3 * LAYERS * BYTES
    assert within <= (LAYERS + 4) * BYTES
    assert within < without / 2


def test_what_jax_saves() -> None:
    import jax

    def residuals(loss: Loss) -> int:
        _, pull = jax.vjp(lambda w: loss(ops.asarray(w)).native, _weights().native)
        arrays = {id(x): x for x in jax.tree_util.tree_leaves(pull)}
        return sum(x.nbytes for x in arrays.values())

    def compiled(step: Callable[..., em.Tensor]) -> int:
        """Temporary memory of the program, as XLA plans it."""

        def scanned(w: em.Tensor) -> em.Tensor:
            h = ops.full((ROWS, SIDE), 0.5)
            last, _ = ops.scan(lambda h, _: (step(h, w), None), h, None, length=LAYERS)
            return ops.mean(last * last)

        program = jax.jit(lambda w: em.grad(scanned)(ops.asarray(w)).native)
        plan = program.lower(_weights().native).compile().memory_analysis()
        return int(plan.temp_size_in_bytes)

    with em.use_backend("jax"):
        without, within = residuals(_loss(_layer)), residuals(_loss(em.checkpoint(_layer)))
        long, short = compiled(_layer), compiled(em.checkpoint(_layer))
    assert without >= 3 * LAYERS * BYTES
    assert within <= (LAYERS + 4) * BYTES
    assert within < without / 2
    assert long >= 3 * LAYERS * BYTES
    assert short <= (LAYERS + 12) * BYTES
    assert short < long / 2


@pytest.mark.parametrize("backend", ["numpy", "mlx"])
def test_peak_with_values_in_a_file(backend: str, tmp_path: Any) -> None:
    """Hardly anything but the file holds what gradients need."""

    def offloaded(loss: Loss) -> Loss:
        def run(w: em.Tensor) -> em.Tensor:
            with em.memory.offload(to_disk=tmp_path):
                return loss(w)

        return run

    with em.use_backend(backend):
        without = _peak_of_backward(_loss(_layer))
        within = _peak_of_backward(offloaded(_loss(_layer)))
    assert without >= 3 * LAYERS * BYTES
    assert within <= 16 * BYTES
