"""Two-operand ops by number: the numbers, and when the kernels behind them are found anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.backend import pairs, selection
from ember_ml.backend.spec import CLOSED
from ember_ml.errors import ShapeError
from ember_ml.ops.registry import REGISTRY


def test_each_constant_is_the_number_of_its_name() -> None:
    constants = {name: value for name, value in vars(pairs).items() if type(value) is int}
    assert constants == {name.upper(): number for number, name in enumerate(pairs.NAMES)}
    assert {pairs.NAMES[number]: number for number in pairs.NUMBERS.values()} == pairs.NUMBERS


def test_each_name_is_an_op_of_two_operands() -> None:
    assert {REGISTRY[name].arity for name in pairs.NAMES} == {2}


def called(x: Any) -> Callable[..., Any]:
    """A kernel that gives what no op would."""
    return lambda a, b: x


def test_a_number_finds_what_its_name_finds(backend: str) -> None:
    x = ops.asarray([1.0, 2.0])
    spec = x._spec
    ops.add(x, x)
    found = spec.pairs[pairs.ADD]
    assert found is not None
    assert (found.kernel, found.result) == spec.backend.entry(spec, "add")


def test_what_is_found_anew_by_name_is_so_by_number(backend: str) -> None:
    x = ops.asarray([1.0, 2.0])
    engine = selection.load(backend)
    assert ops.add(x, x).tolist() == [2.0, 4.0]
    engine.resettle(["add"])
    try:
        assert x._spec.pairs[pairs.ADD] is None
        x._spec.kernels["add"] = called(x.native), x._spec
        assert [(x + x).tolist(), (x + 1.0).tolist(), ops.add(2.0, x).tolist()] == [[1.0, 2.0]] * 3
    finally:
        engine.resettle(["add"])
    assert (x + x).tolist() == [2.0, 4.0]


def test_nothing_is_kept_where_a_trace_looks_on() -> None:
    x = em.Tensor([1.0, 2.0])
    spec = x._spec
    before = spec.pairs
    spec.pairs = CLOSED
    try:
        assert (x * x).tolist() == [1.0, 4.0]
        assert all(one is None for one in CLOSED)
    finally:
        spec.pairs = before


@pytest.mark.parametrize("name", pairs.NAMES)
def test_errors_name_the_op(backend: str, name: str) -> None:
    kind = "int32" if name.startswith("bitwise") else "bool" if name.startswith("logic") else None
    a = ops.asarray(np.ones((2, 3)), dtype=kind or "float32")
    b = ops.asarray(np.ones((4, 5)), dtype=kind or "float32")
    with pytest.raises(ShapeError, match=name):
        getattr(ops, name)(a, b)
