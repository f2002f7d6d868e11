"""What holds for every layer over sequences, and for their cells: one table, all backends."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops, tree
from ember_ml.nn import wirings
from ember_ml.nn.index import NAMES

# Few distinct shapes: JAX compiles every op anew for each.
BACKENDS = ("numpy", "torch", "jax", "mlx")
STEPS, BATCH, FEATURES, UNITS = 3, 2, 4, 4
WIRING = wirings.NCP(4, 4, 4, 2, 2, 3, 2, seed=1)


class Case(NamedTuple):
    name: str
    make: Callable[[int | None], nn.Module]
    shape: tuple[int, ...] = (STEPS, BATCH, FEATURES)
    # The axis along which sequences of a batch lie.
    batch: int = 1

    def input(self, dtype: str = "float32") -> Any:
        values = np.random.default_rng(3).standard_normal(self.shape)
        return ops.asarray(values, dtype=dtype)


CELL = (BATCH, FEATURES)
ROWS = (BATCH, STEPS, FEATURES)
CASES = [
    Case("RNN", lambda n: nn.RNN(n, UNITS, nonlinearity="relu")),
    Case("GRU", lambda n: nn.GRU(n, UNITS, bidirectional=True)),
    Case("LSTM", lambda n: nn.LSTM(n, UNITS, 2, batch_first=True, proj_size=2), ROWS, 0),
    Case("RNNCell", lambda n: nn.RNNCell(n, UNITS), CELL, 0),
    Case("GRUCell", lambda n: nn.GRUCell(n, UNITS), CELL, 0),
    Case("LSTMCell", lambda n: nn.LSTMCell(n, UNITS), CELL, 0),
    Case("LTC", lambda n: nn.LTC(n, WIRING, ode_unfolds=2), ROWS, 0),
    Case("LTCCell", lambda n: nn.LTCCell(n, UNITS, ode_unfolds=2), CELL, 0),
    Case("CfC", lambda n: nn.CfC(n, WIRING), ROWS, 0),
    Case("CfC mixed", lambda n: nn.CfC(n, 4, 2, mixed_memory=True, backbone_units=4), ROWS, 0),
    Case("CfCCell", lambda n: nn.CfCCell(n, UNITS, mode="pure", backbone_units=4), CELL, 0),
]
every = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
# What is the same Python on every backend is tried with few layers on JAX, which takes a second to
# compile the ops of each.
_QUICK = ("LSTMCell",)
few = pytest.mark.parametrize(
    ("case", "backend"),
    [(c, b) for c in CASES for b in BACKENDS if b != "jax" or c.name in _QUICK],
    ids=[f"{c.name}-{b}" for c in CASES for b in BACKENDS if b != "jax" or c.name in _QUICK],
    indirect=["backend"],
)


def test_every_layer_has_a_case() -> None:
    own = {n for n, where in NAMES.items() if where in ("modules.recurrent", "modules.liquid")}
    assert own == {case.name.split()[0] for case in CASES}


def made(case: Case, features: int | None = FEATURES) -> nn.Module:
    ops.random.set_seed(11)
    return case.make(features)


def leaves(results: Any) -> list[np.ndarray[Any, Any]]:
    return [leaf.detach().numpy() for leaf in tree.leaves(results)]


def assert_same(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    first, second = leaves(a), leaves(b)
    assert len(first) == len(second)
    for x, y in zip(first, second, strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def total(results: Any) -> Any:
    """One number in which every result has a part of its own."""
    parts = [ops.sum(ops.sin(leaf + i)) for i, leaf in enumerate(tree.leaves(results))]
    return sum(parts[1:], parts[0])


def _with_results(results: Any) -> tuple[Any, Any]:
    return total(results), results


@every
def test_values_and_gradients_are_those_of_numpy(case: Case, backend: str) -> None:
    results = {}
    for name in ("numpy", backend):
        with em.use_backend(name):
            model, x = made(case), case.input()
            run = em.value_and_grad(lambda m, x: _with_results(m(x)), has_aux=True)
            (loss, forward), grads = (em.jit(run) if name == "jax" else run)(model, x)
            found = dict(grads.named_parameters())
            results[name] = (forward, loss, found)
            if name == "jax" and case.name != "GRUCell":
                continue  # op by op it takes JAX seconds: see test_recurrent.py, test_liquid.py
            total(model(x)).backward()
            by_tape = {n: p.grad for n, p in model.named_parameters()}
            assert all(g is not None for g in by_tape.values())
            assert_same(by_tape, found, 2e-5)
    assert_same(results["numpy"], results[backend], 2e-5)
    for leaf in tree.leaves(results[backend]):
        assert (leaf.backend, leaf.dtype.name) == (backend, "float32")


@every
def test_compiled_copied_and_moved(case: Case, backend: str) -> None:
    model, x = made(case), case.input()
    with em.no_grad():
        compiled = em.jit(lambda x: model(x))(x)
        # What JAX gives op by op is compared for cells: many ops take it seconds.
        slow = backend == "jax" and not case.name.endswith("Cell")
        expected = compiled if slow else model(x)
        assert_same(compiled, expected, 2e-6)
        moved = copy.deepcopy(model).to(backend="numpy")
        assert_same(moved(x.to(backend="numpy")), expected, 2e-6)
        if slow:
            return
        assert_same(copy.deepcopy(model)(x), expected, 0)
        assert_same(copy.deepcopy(model).eval()(x), expected, 0)


@few
def test_kept_in_files_and_configs(case: Case, tmp_path: Path, backend: str) -> None:
    model, x = made(case), case.input()
    config = json.loads(json.dumps(model.get_config()))
    other = type(model).from_config(config)
    assert other.get_config() == model.get_config()
    other.load_state_dict(model.state_dict())
    em.save(tmp_path / "model.safetensors", model)
    loaded = em.load(tmp_path / "model.safetensors")
    with em.no_grad():
        expected = model(x)
        assert_same(other(x), expected, 0)
        assert_same(loaded(x), expected, 0)
    assert repr(loaded) == repr(model)


@few
def test_sizes_of_the_first_input_or_of_a_file(case: Case, backend: str) -> None:
    model, x = made(case), case.input()
    with em.no_grad():
        waiting, loaded = made(case, None), made(case, None)
        expected = model(x)
        assert waiting(x)[0].shape == expected[0].shape
        for other in (waiting, loaded):
            other.load_state_dict(model.state_dict())
            assert_same(other(x), expected, 0)


@few
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats(case: Case, dtype: str, backend: str) -> None:
    model, x = made(case), case.input()
    with em.no_grad():
        expected = leaves(model(x))
        got = tree.leaves(model.to(dtype=dtype)(x.astype(dtype)))
        assert {leaf.dtype.name for leaf in got} == {dtype}
        for y, z in zip(expected, got, strict=True):
            tolerance = {"float16": 2e-2, "bfloat16": 0.1, "float64": 1e-5}[dtype]
            values = z.astype("float32").numpy()
            np.testing.assert_allclose(values, y, atol=tolerance, rtol=tolerance)


@few
def test_empty_batches(case: Case, backend: str) -> None:
    model = made(case)
    shape = list(case.shape)
    shape[case.batch] = 0
    results = model(ops.zeros(shape))
    full = tree.leaves(model(case.input()))
    for empty, y in zip(tree.leaves(results), full, strict=True):
        assert empty.size == 0
        assert empty.ndim == y.ndim
    total(results).backward()
    for p in model.parameters():
        assert p.grad is not None
        assert not p.grad.any()


@every
def test_inputs_of_another_size_are_refused(case: Case) -> None:
    model = made(case)
    for shape in ((*case.shape[:-1], FEATURES + 1), (1, 1, *case.shape), ()):
        with pytest.raises(em.ShapeError) as caught:
            model(ops.zeros(shape))
        text = str(caught.value)
        assert case.name.split()[0] in text
        assert str(shape) in text
        assert "takes" in text


@few
def test_one_sequence_without_a_batch(case: Case, backend: str) -> None:
    model, x = made(case), case.input()
    with em.no_grad():
        one = model(ops.take(x, ops.asarray(1), axis=case.batch))
        batch = leaves(model(x))
    for y, z in zip(leaves(one), batch, strict=True):
        # States have their batch along axis 1 where there are layers, outputs where x has it.
        axis = next(a for a in range(z.ndim) if np.delete(z.shape, a).tolist() == list(y.shape))
        options = [np.take(z, 1, axis=a) for a in range(z.ndim) if z.shape[a] == BATCH]
        assert any(o.shape == y.shape and np.allclose(o, y, atol=1e-6) for o in options), axis
