"""Every op on every backend, and every mistake with its one error."""

from __future__ import annotations

from ember_ml.ops.registry import REGISTRY
from ember_ml.testing import CASES, Conformance


class TestNumpy(Conformance):
    backend = "numpy"


class TestTorch(Conformance):
    backend = "torch"


class TestJax(Conformance):
    backend = "jax"


class TestMlx(Conformance):
    backend = "mlx"


def test_every_op_has_a_case() -> None:
    assert set(REGISTRY) - {case.op for case in CASES} == set()


def test_every_case_names_an_op() -> None:
    assert {case.op for case in CASES} - set(REGISTRY) == set()
