"""Branches and loops of traced values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from ember_ml import ops
from ember_ml.errors import TraceError
from ember_ml.graph import export

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

_X: Final = np.arange(6, dtype=np.float32).reshape(3, 2)


def _nested(x: Any) -> Any:
    def inner(x: Any) -> Any:
        return ops.cond(x[0, 0] > 1.0, lambda y: y + 1.0, lambda y: y - 1.0, x)

    return ops.cond(ops.sum(x) > 3.0, inner, lambda x: -x, x)


def _closing_over(x: Any) -> Any:
    total = ops.sum(x)
    return ops.cond(total > 3.0, lambda: total * 2.0, lambda: total * ops.sum(x * x))


_CASES: Final[dict[str, tuple[Any, list[tuple[Any, ...]], str]]] = {
    "cond": (
        lambda x: ops.cond(ops.sum(x) > 3.0, lambda x: x * 10.0, lambda x: -x, x),
        [(_X,), (-_X,)],
        "If",
    ),
    "cond-of-trees": (
        lambda x: ops.cond(
            ops.sum(x) > 3.0, lambda x: (x, ops.sum(x)), lambda x: (-x, ops.mean(x)), x
        ),
        [(_X,), (-_X,)],
        "If",
    ),
    "cond-nested": (_nested, [(_X,), (-_X,), (_X + 2,)], "If"),
    "cond-closing-over": (_closing_over, [(_X,), (-_X,)], "If"),
    "switch": (
        lambda i, x: ops.switch(i, [lambda x: x, lambda x: x * x, lambda x: -x], x),
        [(np.array(i), _X) for i in range(3)],
        "If",
    ),
    "while": (
        lambda x: ops.while_loop(
            lambda c: ops.sum(c[0]) < 100.0, lambda c: (c[0] * 2.0, c[1] + 1), (x, 0)
        ),
        [(_X,), (_X + 1,), (_X + 100,)],
        "Loop",
    ),
    "fori": (lambda x: ops.fori_loop(0, 3, lambda i, c: c * 2.0 + i, x), [(_X,)], "Mul"),
    "fori-long": (
        lambda x: ops.fori_loop(0, 100, lambda i, c: c * 0.9 + i, x), [(_X,)], "Loop",
    ),
    "fori-traced": (
        lambda n, x: ops.fori_loop(0, n, lambda i, c: c * 2.0 + i, x),
        [(np.array(3), _X), (np.array(0), _X), (np.array(5), _X)],
        "Loop",
    ),
    "scan": (
        lambda x: ops.scan(lambda c, row: (c + row, c * row), x[0], x), [(_X,), (-_X,)], "Mul",
    ),
    "scan-reverse": (
        lambda x: ops.scan(lambda c, row: (c + row, c * row), x[0], x, reverse=True),
        [(_X,), (-_X,)],
        "Mul",
    ),
    "scan-long": (
        lambda x: ops.scan(lambda c, row: (c * 0.5 + row, c), x[0], x, reverse=True),
        [(np.linspace(0, 1, 200, dtype=np.float32).reshape(100, 2),)],
        "Scan",
    ),
    "vmap": (lambda x: ops.vmap(lambda row: ops.sum(row * row))(x), [(_X,)], "ReduceSum"),
    "associative": (lambda x: ops.associative_scan(ops.add, x), [(_X,)], "Add"),
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_it_runs_for_values_of_both_kinds(name: str) -> None:
    function, runs, op = _CASES[name]
    graph = export(function, *runs[0])
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    assert op in {node.op for node in graph.nodes}
    for arrays in runs:
        feeds = {x.name: array for x, array in zip(graph.inputs, arrays, strict=True)}
        wanted = function(*[ops.asarray(array) for array in arrays])
        results = wanted if isinstance(wanted, tuple) else (wanted,)
        for got, other in zip(graph.run(feeds).values(), results, strict=True):
            array = other.numpy()
            assert got.dtype == array.dtype
            assert got.shape == array.shape
            np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-6)


def test_tensors_of_another_graph_are_an_error() -> None:
    kept: list[Any] = []

    def around(x: Any) -> Any:
        return export(lambda y: y + x, ops.ones(3)) and x

    def remembering(x: Any) -> Any:
        kept.append(x * 2)
        return x + ops.sum(kept[0])

    def leaking(x: Any) -> Any:
        inner: list[Any] = []
        ops.cond(ops.sum(x) > 0, lambda: inner.append(x * 2) or x, lambda: -x)
        return x + inner[0]

    for function, axes in ((around, None), (remembering, {"x": [0]}), (leaking, None)):
        with pytest.raises(TraceError, match=r"no part of this graph at .*test_export_control\.py"):
            export(function, ops.ones(3), dynamic_axes=axes)
