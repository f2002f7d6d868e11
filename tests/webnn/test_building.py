"""Building graphs: inputs, constants and outputs; and what a dispatch asks of its tensors."""

import numpy as np
import pytest

from ember_ml.webnn import (
    ML,
    InvalidStateError,
    MLGraphBuilder,
    MLTypeError,
    OperationError,
)
from ember_ml.webnn.numbers import wrapped_number
from tests.webnn.calls import FLOATS, doubling

EXECUTORS = ["onnxruntime", "numpy", "torch", "jax", "mlx"]


@pytest.fixture(scope="module")
def context():
    return ML().create_context()


@pytest.fixture
def builder(context):
    return MLGraphBuilder(context)


def test_build_checks(context, builder):
    x = builder.input("x", FLOATS)
    y = builder.abs(x)
    other = MLGraphBuilder(context)
    for outputs, text in (
        ({}, "at least one"),
        (None, "dict"),
        ([y], "dict"),
        ({"": y}, "name"),
        ({1: y}, "name"),
        ({"y": None}, "MLOperand"),
        ({"y": other.abs(other.input("x", FLOATS))}, "another MLGraphBuilder"),
        ({"x": x}, "identity"),
        ({"c": builder.constant("float32", 1)}, "identity"),
    ):
        with pytest.raises(MLTypeError, match=text):
            builder.build(outputs)
    graph = builder.build({"y": y, "again": y, "z": builder.add(y, x)})
    assert list(graph.output_descriptors) == ["y", "again", "z"]
    assert list(graph.input_descriptors) == ["x"]
    with pytest.raises(InvalidStateError, match="has built"):
        builder.build({"y": y})
    given = context.create_host_tensor([2], "float32")
    made = {name: context.create_host_tensor([2], "float32") for name in ("y", "again", "z")}
    context.write_tensor(given, [-1.0, 2.0])
    context.dispatch(graph, {"x": given}, made)
    assert {name: context.read_tensor(one).tolist() for name, one in made.items()} == {
        "y": [1.0, 2.0],
        "again": [1.0, 2.0],
        "z": [0.0, 4.0],
    }


def test_unused_inputs_are_none_of_the_graph(context, builder):
    x = builder.input("x", FLOATS)
    builder.input("unused", FLOATS)
    graph = builder.build({"y": builder.abs(x)})
    assert list(graph.input_descriptors) == ["x"]


@pytest.mark.parametrize("backend", ["onnxruntime", "numpy"])
def test_inputs_that_no_node_needs_are_asked_for_still(backend, tmp_path):
    cache = tmp_path if backend == "onnxruntime" else None
    for _ in range(2):  # compiled, and where there is a cache, from that
        context = ML().create_context(backend=backend, cache=cache)
        builder = MLGraphBuilder(context)
        x, other = builder.input("x", FLOATS), builder.input("other", FLOATS)
        call = builder._call("max", None, label="")
        a, _ = call.operand("a", x), call.operand("b", builder.abs(other))
        y = call.result(call.node("Identity", [a]), "float32", x.shape)
        graph = builder.build({"y": builder.neg(y)})
        assert list(graph.input_descriptors) == ["x", "other"]
        given, unused, made = (context.create_host_tensor([2], "float32") for _ in range(3))
        context.write_tensor(given, [1, 2])
        with pytest.raises(MLTypeError, match=r"\['other', 'x'\]"):
            context.dispatch(graph, {"x": given}, {"y": made})
        context.dispatch(graph, {"x": given, "other": unused}, {"y": made})
        assert context.read_tensor(made).tolist() == [-1, -2]


def test_many_nodes(context, builder):
    x = y = builder.input("x", FLOATS)
    for _ in range(1000):
        y = builder.add(y, x)
    given, made = (context.create_host_tensor([2], "float32") for _ in range(2))
    context.write_tensor(given, [1, 2])
    context.dispatch(builder.build({"y": y}), {"x": given}, {"y": made})
    assert context.read_tensor(made).tolist() == [1001, 2002]


def test_two_inputs_of_one_name(builder):
    x, twin = builder.input("x", FLOATS), builder.input("x", FLOATS)
    both = builder.add(x, twin)
    with pytest.raises(MLTypeError, match="two inputs of the graph are called 'x'"):
        builder.build({"y": both})
    assert list(builder.build({"y": builder.abs(twin)}).input_descriptors) == ["x"]


def test_a_graph_that_does_not_compile(context, builder, monkeypatch):
    y = builder.abs(builder.input("x", FLOATS))

    def fail(graph):
        raise RuntimeError("no such node")

    monkeypatch.setattr(context._engine, "compile", fail)
    with pytest.raises(OperationError, match="build: the graph does not compile: no such node"):
        builder.build({"y": y})


def test_builders_need_a_context():
    with pytest.raises(MLTypeError, match="MLContext"):
        MLGraphBuilder(None)


@pytest.mark.parametrize("name", ["", None, 3])
def test_names_of_inputs(builder, name):
    with pytest.raises(MLTypeError, match="name"):
        builder.input(name, FLOATS)


@pytest.mark.parametrize(
    ("data_type", "given", "expected"),
    [
        ("float32", 0.1, np.float32(0.1)),
        ("float32", float("nan"), np.float32(np.nan)),
        ("float16", 1e6, np.float16(np.inf)),
        ("int64", 2**63 - 1, np.int64(2**63 - 1)),
        ("uint64", 2**64 - 1, np.uint64(2**64 - 1)),
        ("int8", -128, np.int8(-128)),
        ("int8", 1.9, np.int8(1)),
        ("int8", -1.9, np.int8(-1)),
        ("uint8", 256, np.uint8(0)),
        ("int64", np.int64(3), np.int64(3)),
    ],
)
def test_numbers(data_type, given, expected):
    made = wrapped_number(given, data_type)
    assert (made.dtype, made.shape) == (np.dtype(data_type), ())
    assert made.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("int4", 1), "int4"),
        (("float64", 1), "float64"),
        (("float32", "1"), "number"),
        (("float32", True), "number"),
        (("float32", None), "number"),
        (("int8", float("nan")), "no int8 number"),
        ((FLOATS, [1.0]), "shape"),
        ((FLOATS, np.zeros(2)), "float64"),
        ((FLOATS, b""), "0 bytes"),
        ((None, b""), "descriptor"),
    ],
)
def test_wrong_constants(builder, given, text):
    with pytest.raises(MLTypeError, match=text) as caught:
        builder.constant(*given)
    assert str(caught.value).startswith("constant: ")


def test_constants_of_tensors(context, builder):
    other = ML().create_context()
    with pytest.raises(MLTypeError, match="another MLContext"):
        builder.constant(other.create_constant_tensor(FLOATS, [1.0, 2.0]))
    with pytest.raises(MLTypeError, match="no constant tensor"):
        builder.constant(context.create_tensor([2], "float32"))
    tensor = context.create_constant_tensor(FLOATS, [1.0, 2.0])
    tensor.destroy()
    with pytest.raises(MLTypeError, match="destroyed"):
        builder.constant(tensor)


# --- Dispatching --------------------------------------------------------------------------------


def test_dispatch_checks(context):
    graph = doubling(context)
    x, y = context.create_tensor([2], "float32"), context.create_tensor([2], "float32")
    other = ML().create_context()
    gone = context.create_tensor([2], "float32")
    gone.destroy()
    for inputs, outputs, text in (
        ({}, {"y": y}, "inputs of the graph"),
        ({"x": x}, {}, "outputs of the graph"),
        ({"x": x, "z": y}, {"y": context.create_tensor([2], "float32")}, "inputs of the graph"),
        ({"x": x}, {"y": x}, "more than once"),
        ({"x": None}, {"y": y}, "MLTensor"),
        (None, {"y": y}, "dict"),
        ([x], {"y": y}, "dict"),
        ({5: x, "x": context.create_tensor([2], "float32")}, {"y": y}, "names, not by 5"),
        ({"x": other.create_tensor([2], "float32")}, {"y": y}, "another MLContext"),
        ({"x": context.create_tensor([3], "float32")}, {"y": y}, r"float32\[3\] came"),
        ({"x": context.create_tensor([2], "int32")}, {"y": y}, r"int32\[2\] came"),
        ({"x": gone}, {"y": y}, "destroyed"),
    ):
        with pytest.raises(MLTypeError, match=text):
            context.dispatch(graph, inputs, outputs)
    context.dispatch(graph, {"x": x}, {"y": y})
    with pytest.raises(MLTypeError, match="another MLContext"):
        other.dispatch(graph, {"x": x}, {"y": y})
    with pytest.raises(MLTypeError, match="MLGraph"):
        context.dispatch(None, {"x": x}, {"y": y})
    graph.destroy()
    graph.destroy()
    with pytest.raises(InvalidStateError, match="the graph is destroyed"):
        context.dispatch(graph, {"x": x}, {"y": y})


@pytest.mark.parametrize("backend", ["onnxruntime", "numpy"])
@pytest.mark.parametrize("data_type", ["int4", "uint4"])
def test_packed_integers_go_through_graphs(backend, data_type):
    context = ML().create_context(backend=backend)
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": data_type, "shape": [3]})
    scale = builder.constant({"data_type": "float32", "shape": [1]}, [0.5])
    zero = builder.constant({"data_type": data_type, "shape": [1]}, [1])
    wide = builder.dequantize_linear(x, scale, zero)
    again = builder.quantize_linear(wide, scale, zero)
    graph = builder.build({"wide": wide, "again": again, "twice": again})
    given = context.create_tensor([3], data_type, writable=True)
    outputs = {
        name: context.create_tensor(one.shape, one.data_type, readable=True)
        for name, one in graph.output_descriptors.items()
    }
    context.write_tensor(given, bytes([0x72, 0x05]))
    context.dispatch(graph, {"x": given}, outputs)
    assert context.read_tensor(outputs["wide"]).tolist() == [0.5, 3.0, 2.0]
    for name in ("again", "twice"):
        made = context.read_tensor(outputs[name])
        assert made.dtype.name == data_type
        assert made.tolist() == [2, 7, 5]
