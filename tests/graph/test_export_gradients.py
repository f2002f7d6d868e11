"""The gradient of every op that has one, exported and run on ONNX Runtime, against NumPy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.errors import EmberError, UnsupportedOpError
from ember_ml.graph import export
from ember_ml.testing.gradient_cases import CASES
from ember_ml.testing.gradients import GradientCase

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

# One case of each op, on real numbers.
_FIRST: Final = {
    case.op: case
    for case in reversed(CASES)
    if case.places and all(array.dtype.kind != "c" for array in case.inputs)
}
# Why there is no graph: see test_export_ops.py.
_REASONS: Final = ("depends on", "complex numbers", "factorisations", "random numbers", "nextafter")


@pytest.mark.parametrize("case", _FIRST.values(), ids=list(_FIRST))
def test_gradient(case: GradientCase) -> None:
    arrays = [a.astype(np.float32) if a.dtype == np.float64 else a for a in case.inputs]

    def loss(*xs: Any) -> Any:
        found = case.run(ops, *xs)
        results = found if isinstance(found, tuple | list) else (found,)
        return sum(ops.sum(ops.sin(y)) for y in results if y.dtype.is_floating)

    gradient = em.grad(loss, argnums=case.places, allow_unused=True)
    with np.errstate(all="ignore"):
        try:
            wanted = [g.numpy() for g in gradient(*[ops.asarray(array) for array in arrays])]
        except EmberError as error:
            pytest.skip(f"no gradient of real numbers: {error}")
        try:
            graph = export(gradient, *arrays)
        except UnsupportedOpError as error:
            if not any(reason in str(error) for reason in _REASONS):
                raise
            return
        feeds = {x.name: array for x, array in zip(graph.inputs, arrays, strict=True)}
        got = list(graph.run(feeds).values())
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        # In units of the largest gradient, as the kit has it.
        scale = max(float(np.abs(other[np.isfinite(other)]).max(initial=1)), 1.0)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * scale)
