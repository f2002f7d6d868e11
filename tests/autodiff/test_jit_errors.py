"""What compiled functions must not do, and the one error that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.errors import EmberError, TraceError, UnsupportedOpError
from ember_ml.nn import tensor

COMPILED = ("torch", "jax", "mlx")
READERS: dict[str, Callable[[Tensor], Any]] = {
    "if": lambda x: x if ops.sum(x) > 0 else -x,
    "while": lambda x: [x for _ in iter(lambda: bool(ops.all(x > 0)), True)],
    "float": lambda x: float(ops.sum(x)),
    "int": lambda x: int(ops.sum(x)),
    "item": lambda x: ops.sum(x).item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "asarray": lambda x: np.asarray(x),
    "index": lambda x: [1, 2, 3][ops.astype(x[0], "int64")],
    "range": lambda x: list(range(ops.astype(x[0], "int64"))),
    "contains": lambda x: 1.0 in x,
    "iter": lambda x: list(x.iter()),
    "format": lambda x: f"{ops.sum(x):.2f}",
}


@pytest.fixture(params=COMPILED)
def compiled(request: pytest.FixtureRequest) -> Any:
    with em.use_backend(request.param):
        yield request.param


def test_the_class() -> None:
    for base in (EmberError, TypeError, UnsupportedOpError):
        assert issubclass(TraceError, base)
    assert em.TraceError is TraceError


@pytest.mark.parametrize("how", READERS)
def test_values_cannot_be_read(compiled: str, how: str) -> None:
    jitted = em.jit(READERS[how])
    with pytest.raises(TraceError, match=r"ops\.where or ops\.cond"):
        jitted(ops.asarray([1.0, 2.0]))


@pytest.mark.parametrize("how", READERS)
def test_numpy_reads(how: str) -> None:
    jitted = em.jit(READERS[how])
    x = ops.asarray([1.0, 2.0])
    same = READERS[how](x)
    found = jitted(x)
    assert repr(found) == repr(same)


def test_what_was_read_before_is_no_matter(compiled: str) -> None:
    x = ops.asarray([1.0, 2.0])
    constant = ops.asarray([3, 4])

    def function(x: Tensor) -> Tensor:
        shape = x.shape[0] if x.ndim == 1 else 0
        return x * shape + len(x) + x.size + (1 if x.dtype == "float32" else 2)

    assert em.jit(function)(x).tolist() == [7.0, 9.0]
    assert constant.tolist() == [3, 4]


def test_what_gets_out_has_no_value(compiled: str) -> None:
    kept: list[Tensor] = []

    class Box:
        value: Any = None

    box = Box()

    def function(x: Tensor) -> Tensor:
        y = x * 2
        kept.append(y)
        box.value = y + 1
        return y + 1

    jitted = em.jit(function)
    assert jitted(ops.ones(2)).tolist() == [3.0, 3.0]
    for leaked in (kept[0], box.value):
        for use in (
            lambda leaked=leaked: leaked.numpy(),
            lambda leaked=leaked: leaked.tolist(),
            lambda leaked=leaked: (leaked + 1).numpy(),
            lambda leaked=leaked: bool(ops.sum(leaked) > 0),
        ):
            with pytest.raises(TraceError, match="state="):
                use()


def test_writes_to_constants(compiled: str) -> None:
    class Deep:
        def __init__(self, x: Any) -> None:
            self.inner = x

    # Too deep to be found before the function runs.
    hidden = Deep(Deep(Deep(Deep(Deep(Deep({"w": ops.ones(2)}))))))

    def at() -> Any:
        return hidden.inner.inner.inner.inner.inner.inner

    def in_place(x: Tensor) -> Tensor:
        at()["w"] += x
        return x

    def by_item(x: Tensor) -> Tensor:
        at()["w"][0] = x[0]
        return x

    def by_view(x: Tensor) -> Tensor:
        part = at()["w"][1:]
        part += x[1:]
        return x

    for function in (in_place, by_item, by_view):
        with pytest.raises(TraceError, match="state="):
            em.jit(function)(ops.ones(2))
        assert at()["w"].tolist() == [1.0, 1.0]

    leaf = Deep(Deep(Deep(Deep(Deep(tensor.array([1.0], requires_grad=True))))))

    def on_a_leaf(x: Tensor) -> Tensor:
        w = leaf.inner.inner.inner.inner.inner
        with em.no_grad():
            w -= x
        return x

    with pytest.raises(TraceError, match="state="):
        em.jit(on_a_leaf)(ops.ones(1))
    assert leaf.inner.inner.inner.inner.inner.tolist() == [1.0]


def test_own_tensors_are_written(backend: str) -> None:
    def function(x: Tensor) -> Any:
        y = x * 2
        y += 1.0
        y[0] = 10.0
        part = y[1:]
        part *= 3.0
        z = ops.zeros(3)
        z[1:] = part[:2]
        rows = ops.reshape(y, (3, 1))
        rows[2] = 0.0
        return y, z, part

    x = ops.asarray([1.0, 2.0, 3.0])
    for found, expected in zip(em.jit(function)(x), function(x), strict=True):
        assert found.tolist() == expected.tolist()
    assert x.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("count", [3, 5000])
def test_own_tensors_of_arrays_are_written(backend: str, count: int) -> None:
    """What a compiled function makes of NumPy's arrays is its own, small or large."""
    values = np.arange(count, dtype=np.float64)

    def function(x: Tensor) -> Tensor:
        y = ops.asarray(values, copy=True)
        y[1:] = x[1:]
        return y

    step = em.jit(function)
    for given in (1.0, 2.0):
        full = ops.full((count,), given, dtype="float64")
        if backend == "torch":  # where arrays keep their values in a trace, and can be read there
            with pytest.raises(TraceError, match=r"\.copy\(\)"):
                step(full)
            continue
        found = step(full)
        assert found.tolist() == [0.0] + [given] * (count - 1)
    assert values.tolist() == list(range(count))


def test_state_after_an_error_can_be_used(compiled: str) -> None:
    w = ops.ones(2)

    @em.jit(state=w)
    def step(x: Tensor) -> Tensor:
        nonlocal w
        w += x
        return w if ops.sum(x) > 0 else -w

    with pytest.raises(TraceError):
        step(ops.ones(2))
    assert w.tolist() == [1.0, 1.0]
    w += 1.0
    assert (w * 2).tolist() == [4.0, 4.0]
