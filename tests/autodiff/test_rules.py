"""Every op has a gradient that central differences confirm, or says that it has none."""

from __future__ import annotations

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.autodiff import rules
from ember_ml.autodiff.rules.table import CONSTANT, NO_GRADIENT
from ember_ml.ops.registry import REGISTRY
from ember_ml.testing import gradients
from ember_ml.testing.gradient_cases import CASES
from ember_ml.testing.gradients import GradientCase

rules.load_all()


_FOUND: dict[int, list[np.ndarray]] = {}
# JAX compiles every shape and dtype anew, eager too: some of its runs take the first cases of each
# op alone. On the tape its rules are those that NumPy runs on all.
_FIRST = [case for i, case in enumerate(CASES) if case.op not in {c.op for c in CASES[:i]}]
_ON_TAPE = [
    pytest.param(case, backend, id=f"{backend}-{case.id}")
    for backend, cases in (("jax", _FIRST), ("mlx", CASES))
    for case in cases
]


def _expected(case: GradientCase) -> list[np.ndarray]:
    """Central differences, once for all backends."""
    found = _FOUND.get(id(case))
    if found is None:
        found = _FOUND[id(case)] = gradients.numeric(case)
    return found


@pytest.mark.parametrize("case", CASES, ids=[c.id for c in CASES])
@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "mlx"])
def test_gradient(case: GradientCase, backend: str) -> None:
    """The functional gradient, in float64 and in float32."""
    expected = _expected(case)
    gradients.check(case, backend, expected)
    if backend != "jax" or any(case is first for first in _FIRST):
        gradients.check_narrow(case, backend, expected)


@pytest.mark.parametrize(("case", "backend"), _ON_TAPE)
def test_gradient_on_tape(case: GradientCase, backend: str) -> None:
    """The imperative gradient where it goes another way: by our tape."""
    gradients.check(case, backend, _expected(case), taped=True)


_TWICE = [case for case in CASES if case.second]


@pytest.mark.parametrize("case", _TWICE, ids=[c.id for c in _TWICE])
def test_second_derivative(case: GradientCase) -> None:
    """Rules are written over ops that have rules: gradients of gradients, on our tape."""
    gradients.check_second(case, "numpy")


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_op_declares_its_gradient(name: str) -> None:
    """An op that gives floats for floats has a case here, or a reason for having no gradient."""
    if not gradients.has_float_result(name) or name in CONSTANT:
        return
    tested = any(case.op == name for case in CASES)
    assert tested or name in NO_GRADIENT, f"ops.{name} has no case and no reason"
    assert not (tested and name in NO_GRADIENT)


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "mlx"])
@pytest.mark.parametrize("name", sorted(CONSTANT))
def test_what_looks_at_shapes_alone_is_a_constant(name: str, backend: str) -> None:
    """Beside it gradients flow, through it none does."""
    make = REGISTRY[name].function
    more = (2.0,) if name == "full_like" else ()
    with em.use_backend(backend):
        x = ops.asarray([1.0, 2.0])
        g = em.grad(lambda x: ops.sum(x * x + 0.0 * ops.where(True, 1.0, make(x, *more))))(x)
        assert g.tolist() == [2.0, 4.0]
        with pytest.raises(em.GradientError, match=r"args\[0\]"):
            em.grad(lambda x: ops.sum(make(x, *more)))(x)
