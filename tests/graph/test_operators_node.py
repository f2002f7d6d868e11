"""ONNX's own node tests, at their own tolerances, on every backend.

On NumPy all of them run. On torch and MLX those run whose operator is not written out in older
ones ("expanded"): there, the operators run that it is written in, which have tests of their own.
On JAX, which compiles each operator anew for each shape, the first of these of each operator runs,
unless the operator is a function of `ops` as it stands, which the tests of `ops` try out there.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from ember_ml.graph.core import Graph
from ember_ml.graph.executors.interpreter import OpsProgram
from ember_ml.graph.executors.operators import OPERATORS
from tests.graph.node_cases import MODULES, arrays, cases_of, reason_not_to_run, tolerance
from tests.graph.proto_graphs import from_proto

_HELD = {"int4": "int8", "uint4": "uint8"}


def _chosen(module: str, backend: str) -> list[Any]:
    cases = [case for case in cases_of(module) if reason_not_to_run(case) is None]
    if backend != "numpy":
        cases = [case for case in cases if not case.name.endswith("_expanded")] or cases[:1]
    if backend == "jax":
        return [case for case in cases[:1] if not _is_of_ops(case)]
    return cases


def _is_of_ops(case: Any) -> bool:
    functions = [OPERATORS[node.domain, node.op_type][0].function for node in case.model.graph.node]
    return all(function.__module__.startswith("ember_ml.ops") for function in functions)


@pytest.mark.parametrize("module", MODULES)
def test_node_tests(module: str, backend: str) -> None:
    failures = []
    for case in _chosen(module, backend):
        try:
            _check(case, module, backend)
        except Exception as error:
            failures.append(f"{case.name}: {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures)


@cache
def _graph(name: str, module: str) -> Graph:
    """Read once, for all backends."""
    return from_proto(next(case.model for case in cases_of(module) if case.name == name))


def _check(case: Any, module: str, backend: str) -> None:
    graph = _graph(case.name, module)
    program = OpsProgram(graph, backend)
    for inputs, outputs in case.data_sets:
        feeds = dict(zip([x.name for x in graph.inputs], arrays(inputs), strict=True))
        got = program.run(feeds)
        for value, want in zip(graph.outputs, arrays(outputs), strict=True):
            _compare(case, got[value.name], want, backend)


def _compare(case: Any, got: Any, want: Any, backend: str) -> None:
    dtype = _HELD.get(want.dtype.name, want.dtype.name)
    assert got.backend == backend
    assert got.dtype.name == dtype
    assert got.shape == want.shape
    rtol, atol = tolerance(case, want)
    wide = np.float32 if dtype == "bfloat16" else dtype
    np.testing.assert_allclose(got.numpy().astype(wide), want.astype(wide), rtol=rtol, atol=atol)


def test_few_are_not_run() -> None:
    """Of the 1,876 node tests of onnx 1.23 outside of ai.onnx.ml, 1,616 run on NumPy."""
    reasons = [reason_not_to_run(case) for module in MODULES for case in cases_of(module)]
    left = [reason for reason in reasons if reason is not None]
    assert len(left) < 0.15 * len(reasons)
