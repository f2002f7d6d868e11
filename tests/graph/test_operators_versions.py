"""Older forms of operators against ONNX Runtime or onnx's reference evaluator, on every backend.

On JAX, which compiles each operator anew for each shape, one case runs of each form that is not
the newest one: that has node tests.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the models are made by the onnx package")
pytest.importorskip("onnxruntime", reason="the expected values are ONNX Runtime's")

from ember_ml.graph.executors.interpreter import OpsProgram
from ember_ml.graph.executors.operators import OPERATORS, find
from tests.graph.proto_graphs import from_proto
from tests.graph.version_cases import CASES, VersionCase, expected, feeds_of, model_of
from tests.graph.version_cases_network import NETWORK_CASES
from tests.graph.version_cases_steps import STEP_CASES

ALL = (*CASES, *NETWORK_CASES, *STEP_CASES)


@cache
def _expected(number: int) -> list[Any]:
    return expected(ALL[number])


def _cases() -> list[Any]:
    chosen = []
    seen: set[int] = set()
    for backend in ("numpy", "torch", "jax", "mlx"):
        for number, case in enumerate(ALL):
            if backend == "jax":
                found = find(case.domain, case.op, 1 if case.domain else case.opset, case.id)
                newest = not case.domain and found is OPERATORS["", case.op][0]
                if newest or id(found) in seen:
                    continue
                seen.add(id(found))
            chosen.append(pytest.param(backend, number, id=f"{backend}-{case.id}"))
    return chosen


@pytest.mark.parametrize(("backend", "number"), _cases())
def test_older_forms(backend: str, number: int) -> None:
    case: VersionCase = ALL[number]
    graph = from_proto(model_of(case))
    got = OpsProgram(graph, backend).run(feeds_of(case))
    for value, want in zip(graph.outputs, _expected(number), strict=True):
        result = got[value.name]
        assert result.backend == backend
        assert result.dtype.name == {"int4": "int8", "uint4": "uint8"}.get(value.dtype, value.dtype)
        assert result.shape == want.shape
        wide = want if want.dtype.name not in ("int4", "uint4") else want.astype(np.int8)
        np.testing.assert_allclose(
            result.numpy().astype(wide.dtype), wide, rtol=case.rtol, atol=case.atol
        )
