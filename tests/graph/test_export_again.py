"""What a function does otherwise when it is called again, and what belongs to another export."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any, Final

import numpy as np
import pytest

from ember_ml import nn, ops
from ember_ml.errors import TraceError
from ember_ml.graph import export, exporting

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

_GENERATOR: Final = np.random.default_rng(0)
_COUNTER: Final = itertools.count()


def _branch(x: Any) -> Any:
    return x if random.random() < 0.5 else -x


def _branch_by_generator(x: Any) -> Any:
    return x if _GENERATOR.random() < 0.5 else -x


CHANGING: Final[dict[str, Any]] = {
    "numpy": lambda x: x + np.random.rand(3).astype(np.float32),
    "generator": lambda x: x * float(_GENERATOR.standard_normal()),
    "fresh": lambda x: x * float(np.random.default_rng().standard_normal()),
    "python": lambda x: x * random.random(),
    "time": lambda x: x * (time.perf_counter_ns() % 1000003),
    "counter": lambda x: x + next(_COUNTER),
    "result": lambda x: (x, random.random()),
    "attribute": lambda x: ops.transpose(x.reshape(1, 1, 1, 3), random.sample(range(4), 4)),
    "branch": _branch,
    "branch-by-generator": _branch_by_generator,
    "number-of-results": lambda x: [x] * (1 + next(_COUNTER)),
    "in-a-body": lambda x: ops.cond(ops.sum(x) > 0, lambda: x * random.random(), lambda: x),
}


@pytest.mark.parametrize("axes", [None, [{0: "n"}]], ids=["fixed", "varying"])
@pytest.mark.parametrize("name", CHANGING)
def test_what_changes_from_call_to_call_is_refused(name: str, axes: Any) -> None:
    if axes and name in ("numpy", "attribute"):
        axes = None  # three numbers, for three elements
    with pytest.raises(TraceError, match="each time it is called"):
        export(CHANGING[name], ops.ones(3), dynamic_axes=axes)


def test_the_line_is_named() -> None:
    with pytest.raises(TraceError, match=r"test_export_again\.py:\d+: `.*random\.random\(\)"):
        export(CHANGING["python"], ops.ones(3))


def test_a_model_with_a_drawing_activation_is_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Lambda(lambda x: x * random.random()))
    with pytest.raises(TraceError, match="each time it is called"):
        export(model, ops.ones((1, 3)))


def test_a_function_that_fails_when_called_again_is_told() -> None:
    once = iter([2.0])
    with pytest.raises(TraceError, match=r"called twice.*StopIteration"):
        export(lambda x: x * next(once), ops.ones(3))


def test_weights_are_copied_once_and_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = ops.ones((40, 40))
    copied: list[Any] = []
    compared: list[Any] = []
    host, equal = exporting.host, np.array_equal
    monkeypatch.setattr(exporting, "host", lambda x: copied.append(x) or host(x))
    monkeypatch.setattr(np, "array_equal", lambda a, b: compared.append(a) or equal(a, b))
    graph = export(lambda x: x @ weight, np.ones((2, 40), np.float32))
    assert [x is weight for x in copied] == [True]
    assert all(np.size(x) < weight.size for x in compared)
    out = graph.run({"x": np.ones((2, 40), np.float32)})["output"]
    assert out.tolist() == [[40.0] * 40] * 2


def test_what_stays_the_same_is_taken() -> None:
    calls: list[int] = []
    norm = nn.BatchNorm1d(3)
    before = norm.running_mean.numpy().copy()

    def function(x: Any) -> Any:
        calls.append(1)
        drawn = np.random.default_rng(5).standard_normal(3).astype(np.float32)
        return norm(x) + drawn + np.float32("nan")

    graph = export(function, ops.ones((2, 3)))
    assert len(calls) == 2
    assert np.isnan(graph.run({"x": np.ones((2, 3), np.float32)})["output"]).all()
    assert np.array_equal(norm.running_mean.numpy(), before)


def test_draws_that_stay_out_of_the_graph_are_taken() -> None:
    def function(x: Any) -> Any:
        random.random()
        return x + 1.0

    assert [node.op for node in export(function, ops.ones(3)).nodes] == ["Add", "Identity"]


def test_a_draw_by_a_key_is_taken() -> None:
    key = ops.random.key(3)
    graph = export(lambda x: x + ops.random.normal((3,), generator=key), ops.zeros(3))
    wanted = ops.random.normal((3,), generator=key).numpy()
    found = graph.run({"x": np.zeros(3, np.float32)})["output"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_model_of_the_library_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    forward = nn.Linear.forward

    def counted(self: Any, x: Any) -> Any:
        calls.append(1)
        return forward(self, x)

    monkeypatch.setattr(nn.Linear, "forward", counted)
    # The test's own frame is one of a user: the nodes are made below it.
    export(nn.Linear(3, 2), ops.ones((1, 3)))
    assert len(calls) == 2
    monkeypatch.setattr(nn.Linear, "forward", forward)
    made: list[str] = []
    trace = exporting._Export._trace
    monkeypatch.setattr(
        exporting._Export, "_trace", lambda *given: (made.append("trace"), trace(*given))[1]
    )
    export(nn.Linear(3, 2), ops.ones((1, 3)))
    assert made == ["trace"]


# --- What belongs to another export --------------------------------------------------------------

INNER: Final[dict[str, Any]] = {
    "tensor": lambda x: export(lambda y: y + x, ops.ones(3)),
    "result": lambda x: export(lambda y: (y, x), ops.ones(3)),
    "size": lambda x: export(lambda y: y + x.shape[0], ops.ones(3)),
    "size-as-result": lambda x: export(lambda y: (y, x.shape[0]), ops.ones(3)),
    "shape": lambda x: export(lambda y: y + ops.zeros(x.shape), ops.ones(3)),
    "size-of-that-name": lambda x: export(
        lambda y: y + x.shape[0], ops.ones(3), dynamic_axes=[{0: "n"}]
    ),
    "two-sizes": lambda x: export(
        lambda y: ops.zeros(y.shape[0] + x.shape[0]), ops.ones(3), dynamic_axes=[{0: "n"}]
    ),
    "example": lambda x: export(lambda y: y + 1.0, x),
}


@pytest.mark.parametrize("name", INNER)
def test_an_inner_export_takes_nothing_of_the_outer_one(name: str) -> None:
    def outer(x: Any) -> Any:
        INNER[name](x)
        return x

    with pytest.raises(TraceError, match="another export"):
        export(outer, ops.ones(3), dynamic_axes=[{0: "n"}])


def test_an_inner_export_of_its_own_is_taken() -> None:
    weight = ops.asarray(5.0)

    def outer(x: Any) -> Any:
        inner = export(lambda y: y * weight, ops.ones(3), dynamic_axes=[{0: "n"}])
        return x + inner.run({"y": np.full(3, 2.0, np.float32)})["output"] + weight

    graph = export(outer, ops.ones(3))
    assert graph.run({"x": np.ones(3, np.float32)})["output"].tolist() == [16.0] * 3
    assert weight.item() == 5.0


def test_a_size_that_was_kept_is_refused() -> None:
    kept: list[Any] = []
    export(lambda x: (kept.append(x.shape[0]), x)[1], ops.ones(3), dynamic_axes=[{0: "n"}])
    with pytest.raises(TraceError, match="'n' belongs to another export"):
        export(lambda y: y + kept[0], ops.ones(7), dynamic_axes=[{0: "n"}])
