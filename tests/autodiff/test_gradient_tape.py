"""GradientTape: what is watched, what is recorded, and for how long; on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops


def near(got: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(got.numpy(), np.asarray(wanted), rtol=tolerance, atol=tolerance)


def wide(*values: float) -> em.Tensor:
    return ops.asarray(list(values), dtype=em.float64)


def test_a_watched_tensor_is_plain_again_after_the_block(backend: str) -> None:
    x = wide(1, 2)
    native = x.native
    with em.GradientTape() as tape:
        tape.watch(x)
        assert x.requires_grad
        y = ops.sum(x * x)
    assert type(x) is em.Tensor
    assert not x.requires_grad
    assert x.native is native
    assert not (x * 2.0).requires_grad
    g = tape.gradient(y, x)
    near(g, [2, 4])
    assert type(g) is em.Tensor


def test_it_is_plain_again_after_an_error(backend: str) -> None:
    x = wide(1)

    def fail() -> None:
        with em.GradientTape() as tape:
            tape.watch(x)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert type(x) is em.Tensor
    assert em.is_grad_enabled()


def test_tensors_that_need_gradients_are_watched_by_themselves(backend: str) -> None:
    w = em.Tensor(wide(1, 2), requires_grad=True)
    with em.GradientTape() as tape:
        y = w * w
    near(tape.gradient(y, w), [2, 4])
    assert w.requires_grad
    assert w.grad is None


def test_sources_and_targets_are_trees(backend: str) -> None:
    x, y = wide(1, 2), wide(3, 4)
    with em.GradientTape(persistent=True) as tape:
        tape.watch({"x": [x]}, y)
        h = x * y
        z = [ops.sum(h), h]
    got = tape.gradient(z, {"a": (x, y), "h": h})
    near(got["a"][0], [6, 8])
    near(got["a"][1], [2, 4])
    near(got["h"], [2, 2])
    seeds = [10.0, wide(1, 2)]
    near(tape.gradient(z, [x], output_gradients=seeds)[0], [33, 48])
    near(tape.gradient(x, x), [1, 1])


def test_once_or_often(backend: str) -> None:
    x = wide(1, 2)
    with em.GradientTape() as tape:
        tape.watch(x)
        y = ops.sum(x * x)
    tape.gradient(y, x)
    with pytest.raises(em.GradientError, match="persistent=True"):
        tape.gradient(y, x)
    with em.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = ops.sum(x * x), ops.sum(x * 3.0)
    for _ in range(2):
        near(tape.gradient(y, x), [2, 4])
        near(tape.gradient(z, x), [3, 3])


def test_second_derivatives_by_two_tapes(backend: str) -> None:
    x = wide(1, 2)
    with em.GradientTape() as outer:
        outer.watch(x)
        with em.GradientTape() as inner:
            inner.watch(x)
            y = ops.sum(x * x * x)
        slope = inner.gradient(y, x)
        near(slope.detach(), [3, 12])
    near(outer.gradient(slope, x), [6, 12])
    assert type(x) is em.Tensor


def test_second_derivatives_by_one_persistent_tape(backend: str) -> None:
    x = wide(1, 2)
    with em.GradientTape(persistent=True) as tape:
        tape.watch(x)
        slope = tape.gradient(ops.sum(x * x * x), x)
    near(tape.gradient(slope, x), [6, 12])
    assert not tape.gradient(slope, x).requires_grad


def test_within_functional_derivatives(backend: str) -> None:
    def slope(x: Any) -> Any:
        with em.GradientTape() as tape:
            tape.watch(x)
            y = ops.sum(x * x * x)
        return ops.sum(tape.gradient(y, x))

    near(em.grad(slope)(wide(1, 2)), [6, 12])
    x = wide(1, 2)
    with em.GradientTape() as tape:
        tape.watch(x)
        inner = ops.sum(em.grad(lambda y: ops.sum(y * y * y))(x))
    near(tape.gradient(inner, x), [6, 12])


def test_what_is_not_recorded(backend: str) -> None:
    x = wide(1, 2)
    with em.GradientTape(persistent=True) as tape:
        tape.watch(x)
        with tape.stop_recording():
            still = x * x
        y = ops.sum(x * still)
    assert not still.requires_grad
    near(tape.gradient(y, x), [1, 4])
    with em.no_grad(), em.GradientTape() as tape:
        tape.watch(x)
        y = ops.sum(x * x)
    near(tape.gradient(y, x), [2, 4])


def test_reset_forgets(backend: str) -> None:
    x = wide(1, 2)
    with em.GradientTape() as tape:
        tape.watch(x)
        tape.gradient(ops.sum(x * x), x)
        tape.reset()
        assert not x.requires_grad
        tape.watch(x)
        y = ops.sum(x * 5.0)
    near(tape.gradient(y, x), [5, 5])


def test_jacobian(backend: str) -> None:
    x, w = wide(1, 2), wide(3, 4)
    with em.GradientTape() as tape:
        tape.watch(x, w)
        y = x * x
    found = tape.jacobian(y, [x, w], unused="zero")
    near(found[0], np.diag([2, 4]))
    near(found[1], np.zeros((2, 2)))


def test_writes_within_the_block(backend: str) -> None:
    x = wide(1, 2)
    with em.GradientTape(), em.no_grad():
        x += 1.0
    assert x.tolist() == [2, 3]


def test_mistakes_are_named(backend: str) -> None:
    x, w = wide(1, 2), wide(3, 4)
    with em.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = ops.sum(x * x)
        for wrong, text in ((ops.asarray([1]), "int64"), ("a", "str")):
            with pytest.raises(em.DTypeError, match=rf"{text} at args\[1\]"):
                tape.watch(x, wrong)
        with pytest.raises(em.UnsupportedOpError, match="view"):
            tape.watch(w[1:])
        with pytest.raises(em.GradientError, match="already"):
            tape.__enter__()
    with pytest.raises(em.GradientError, match="within the block"):
        tape.watch(w)
    with pytest.raises(em.GradientError, match=r"sources\['w'\] was not watched"):
        tape.gradient(y, {"w": w})
    assert tape.gradient(y, w, unused="zero").tolist() == [0, 0]
    with pytest.raises(em.DTypeError, match="int64 at target"):
        tape.gradient(ops.asarray([1]), x)
    with pytest.raises(em.DomainError, match="'none'"):
        tape.gradient(y, x, unused="none")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(em.ShapeError, match="output_gradients"):
        tape.gradient(y, x, output_gradients=wide(1, 2))
    with em.GradientTape() as other:
        other.watch(x, w)
        y = ops.sum(x * x)
    with pytest.raises(em.GradientError, match=r"depend on sources\[1\]"):
        other.gradient(y, [x, w])
