"""Graphs that read well and are wrong: every executor says which node, in an error of ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402  # after the skip

from ember_ml.errors import EmberError, FormatError  # noqa: E402
from ember_ml.graph import Graph, onnx_graphs  # noqa: E402
from ember_ml.graph.onnx_reading import load_onnx  # noqa: E402

X = np.ones(3, np.float32)


def info(name: str, kind: int = 1) -> Any:
    return helper.make_tensor_value_info(name, kind, None)


def scalar(name: str, kind: int, value: Any) -> Any:
    return helper.make_tensor(name, kind, [], [value])


def body(takes: list[tuple[str, int]], nodes: list[Any], gives: list[str]) -> Any:
    inputs = [info(name, kind) for name, kind in takes]
    return helper.make_graph(nodes, "body", inputs, [info(name) for name in gives])


NEG = helper.make_node("Neg", ["x"], ["p"])
ABS = helper.make_node("Abs", ["x"], ["q"])
ROUND = [("i", 7), ("c_in", 9), ("v", 1)]
SAME = helper.make_node("Identity", ["c_in"], ["c_out"])
ONE = body([], [NEG], ["p"])
TWO = body([], [NEG, ABS], ["p", "q"])
NO_RESULT = body(ROUND, [SAME], ["c_out"])
NO_INPUTS = body([], [], [])


def model(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    node = helper.make_node(op, inputs, outputs, name="the one", **attributes)
    given = [
        scalar("c", 9, True),
        scalar("n", 7, 2),
        scalar("zero", 7, 0),
        helper.make_tensor("two", 7, [2], [5, 5]),
    ]
    graph = helper.make_graph([node], "g", [info("x")], [info(x) for x in outputs], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


WRONG: dict[str, Any] = {
    "too few inputs": model("Add", ["x"], ["y"]),
    "no inputs": model("Add", [], ["y"]),
    "an input left out": model("Add", ["x", ""], ["y"]),
    "too many inputs": model("Add", ["x", "x", "x"], ["y"]),
    "too many outputs": model("Relu", ["x"], ["y", "z"]),
    "a shape": model("Reshape", ["x", "two"], ["y"]),
    "an axis": model("Concat", ["x", "x"], ["y"], axis=9),
    "text for a number": model("Concat", ["x", "x"], ["y"], axis="a"),
    "a list for a number": model("Concat", ["x", "x"], ["y"], axis=[1.5]),
    "NaN for a whole number": model("Softmax", ["x"], ["y"], axis=float("nan")),
    "text for a factor": model("LeakyRelu", ["x"], ["y"], alpha="z"),
    "a number for a body": model("If", ["c"], ["y"], then_branch=1, else_branch=2),
    "a body that is missing": model("If", ["c"], ["y"], then_branch=ONE),
    "branches that differ": model("If", ["c"], ["y"], then_branch=ONE, else_branch=TWO),
    "a branch of less": model("If", ["c"], ["y", "z"], then_branch=ONE, else_branch=TWO),
    "a loop without results": model("Loop", ["n", "c", "x"], ["y"], body=NO_RESULT),
    "a loop over nothing": model("Loop", ["n", "c", "x"], ["y"], body=NO_INPUTS),
    "a loop without inputs": model("Loop", [], ["y"], body=NO_RESULT),
    "a scan of too much": model("Scan", ["x"], ["y"], body=ONE, num_scan_inputs=5),
    "rows for a matrix": model("LSTM", ["x", "x", "x"], ["y"]),
    "more than there are": model("TopK", ["x", "n5"], ["y", "z"]),
    "parts that are not equal": model("Split", ["x"], ["y", "z"]),
}
WRONG["more than there are"].graph.initializer.append(helper.make_tensor("n5", 7, [1], [5]))
WRONG["parts that are not equal"].opset_import[0].version = 13


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("backend", ["onnxruntime", "numpy"])
def test_the_node_is_named(what: str, backend: str) -> None:
    graph = load_onnx(WRONG[what])
    with pytest.raises(EmberError) as caught:
        graph.run({"x": X}, backend)
    if (what, backend) != ("rows for a matrix", "onnxruntime"):  # which says no more than that
        assert any(text in str(caught.value) for text in (graph.nodes[0].op, "the one"))


def test_any_error_within_an_operator_is_ours(backend: str) -> None:
    start, step = np.int64(1), np.int64(0)
    graph = Graph("steps")
    a = graph.input("a", "int64", ())
    b = graph.input("b", "int64", ())
    graph.output("y", graph.add("Range", [a, a, b], [("int64", (None,))], label="count"))
    with pytest.raises(EmberError, match="Range 'count'"):
        graph.run({"a": start, "b": step}, backend)


@pytest.mark.parametrize(
    ("name", "value"),
    [("value_int", "abc"), ("value_floats", ["a"]), ("value", 3), ("value_string", 1)],
)
def test_constants_of_another_kind(name: str, value: Any) -> None:
    with pytest.raises(FormatError, match=f"Constant 'the one'.*'{name}'"):
        load_onnx(model("Constant", [], ["y"], **{name: value}))


# --- Sizes ----------------------------------------------------------------------------------------


def chain(count: int, label: str = "") -> bytes:
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"], name=label) for i in range(count)]
    graph = helper.make_graph(nodes, "g", [info("v0")], [info(f"v{count}")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    content: bytes = made.SerializeToString()
    return content


def within(seconds: float, work: Callable[[], Any]) -> Any:
    start = time.process_time()
    made = work()
    assert time.process_time() - start < seconds
    return made


def test_deep_chains_and_nodes_of_one_name() -> None:
    # Far deeper than Python recurses. Numbers that were looked for from 1 on took 36 seconds.
    graph = within(20, lambda: load_onnx(chain(20_000, "same")))
    assert len({node.name for node in graph.to_onnx().graph.node}) == 20_000
    for backend in ("onnxruntime", "numpy"):
        (y,) = within(20, lambda b=backend: graph.run({"v0": X}, b)).values()  # type: ignore[misc]
        np.testing.assert_array_equal(np.asarray(y), X)
    assert "20,000 nodes" in graph.summary()


def function_model(calls: int, name: str = "", nodes: int = 1, size: int = 8) -> Any:
    weight = np.zeros(size, np.float32)
    constant = helper.make_tensor("k", TensorProto.FLOAT, [size], weight.tobytes(), raw=True)
    inner = [helper.make_node("Constant", [], ["k"], value=constant)]
    inner += [helper.make_node("Neg", ["k"], [f"n{i}"]) for i in range(nodes)]
    inner.append(helper.make_node("Identity", ["a"], ["b"]))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "f", ["a"], ["b"], inner, opsets[:1])
    called = [
        helper.make_node("f", [f"v{i}"], [f"v{i + 1}"], name=name, domain="local")
        for i in range(calls)
    ]
    graph = helper.make_graph(called, "g", [info("v0")], [info(f"v{calls}")])
    return helper.make_model(graph, opset_imports=opsets, functions=[function])


def test_functions_do_not_multiply_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graphs, "_MOST_INLINED_BYTES", 1 << 16)
    with pytest.raises(FormatError, match="too often"):
        load_onnx(function_model(40, size=1 << 12))
    assert len(load_onnx(function_model(3, size=1 << 12)).nodes) == 6  # four of 16 KiB would do


def test_functions_do_not_multiply_names() -> None:
    graph = load_onnx(function_model(1, name="N" * 100_000, nodes=50))
    assert sum(len(value.name) for node in graph.nodes for value in node.outputs) < 10_000


# --- Names ----------------------------------------------------------------------------------------

EVIL = "a\x1b[31m\x07<b>&[red]\r\n\x0b\u202e"


def test_names_do_not_talk_to_a_terminal() -> None:
    made = model("Foo", ["x"], ["y"])
    made.graph.node[0].name = made.graph.node[0].domain = EVIL
    made.opset_import.add(domain=EVIL, version=1)
    graph = load_onnx(made)
    with pytest.raises(EmberError) as caught:
        graph.run({"x": X}, "numpy")
    assert str(caught.value).isprintable()
    made.graph.node[0].input[0] = EVIL
    with pytest.raises(FormatError) as refused:
        load_onnx(made)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1000


def _expanded(sides: list[int]) -> Any:
    node = helper.make_node("Expand", ["x", "s"], ["y"])
    shape = helper.make_tensor("s", TensorProto.INT64, [len(sides)], sides)
    graph = helper.make_graph([node], "g", [info("x")], [info("y")], [shape])
    return load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))


def test_what_no_memory_holds_is_an_error(backend: str) -> None:
    """A view of one number has no limit; a copy of it has."""
    with pytest.raises(EmberError, match="Expand"):
        _expanded([2**40, 2**10]).run({"x": np.ones(1, np.float32)}, backend=backend)


def test_lengths_below_zero(backend: str) -> None:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"])
    scales = helper.make_tensor("s", TensorProto.FLOAT, [2], [1.0, -1.0])
    graph = helper.make_graph([node], "g", [info("x")], [info("y")], [scales])
    made = load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    with pytest.raises(EmberError, match="Resize"):
        made.run({"x": np.ones((2, 2), np.float32)}, backend=backend)
