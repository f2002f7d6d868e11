"""Contexts: what is asked of them, what they say they are, how graphs are built and dispatched."""

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from ember_ml.webnn import (
    ML,
    InvalidStateError,
    MLGraphBuilder,
    MLTypeError,
    NotSupportedError,
    OperationError,
)
from ember_ml.webnn.builder.making import number
from ember_ml.webnn.descriptors import DATA_TYPES, MAX_BYTES
from ember_ml.webnn.engines import Wishes
from ember_ml.webnn.engines.runtime import choose
from ember_ml.webnn.limits import LIMITS

FLOATS = {"data_type": "float32", "shape": [2]}
EXECUTORS = ["onnxruntime", "numpy", "torch", "jax", "mlx"]
CPU = "CPUExecutionProvider"


@pytest.fixture(scope="module")
def context():
    return ML().create_context()


@pytest.fixture
def builder(context):
    return MLGraphBuilder(context)


def doubling(context):
    builder = MLGraphBuilder(context)
    x = builder.input("x", FLOATS)
    return builder.build({"y": builder.add(x, x)})


# --- What is asked for --------------------------------------------------------------------------


@pytest.mark.parametrize("backend", EXECUTORS)
def test_executors(backend):
    context = ML().create_context(backend=backend)
    assert context.backend == backend
    assert context.device == "cpu"
    assert not context.accelerated
    assert context.providers == ((CPU,) if backend == "onnxruntime" else ())
    graph = doubling(context)
    x, y = context.create_host_tensor([2], "float32"), context.create_host_tensor([2], "float32")
    context.write_tensor(x, [1.0, 2.0])
    context.dispatch(graph, {"x": x}, {"y": y})
    assert context.read_tensor(y).tolist() == [2.0, 4.0]
    # The output of one dispatch is the input of the next, and the first input stays as it was.
    context.dispatch(graph, {"x": y}, {"y": context.create_tensor([2], "float32")})
    context.write_tensor(x, [5.0, 5.0])
    assert context.read_tensor(y).tolist() == [2.0, 4.0]
    assert graph.devices == ("cpu",)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"deviceType": "xpu"}, {}),
        ({"powerPreference": "auto"}, {}),
        ({"accelerated": 1}, {}),
        ({"device": "cpu"}, {}),
        ("cpu", {}),
        (None, {"device_type": "xpu"}),
        (None, {"power_preference": ""}),
        (None, {"backend": "tensorflow"}),
        (None, {"threads": 0}),
        (None, {"threads": True}),
        (None, {"threads": 1.5}),
    ],
)
def test_wrong_options(options, named):
    with pytest.raises(MLTypeError, match="create_context"):
        ML().create_context(options, **named)


def test_a_device_is_a_hint_and_accelerated_a_demand():
    for given in ({"deviceType": "gpu"}, {"device_type": "npu"}, {"accelerated": True}):
        context = ML().create_context(given)
        if context.providers[0] == CPU:
            assert (context.device, context.accelerated) == ("cpu", False)
    if ML().create_context(device_type="gpu").accelerated:
        pytest.skip("there is an accelerator here")
    with pytest.raises(NotSupportedError, match="accelerated=True"):
        ML().create_context(accelerated=True)
    with pytest.raises(NotSupportedError, match="accelerated=True"):
        ML().create_context(backend="numpy", accelerated=True)
    for given in ({"cache": "folder"}, {"threads": 1}):
        with pytest.raises(NotSupportedError, match="for ONNX Runtime"):
            ML().create_context(backend="numpy", **given)


CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
COREML, DML = "CoreMLExecutionProvider", "DmlExecutionProvider"


@pytest.mark.parametrize(
    ("available", "wishes", "device", "providers"),
    [
        ([CUDA, TENSORRT], Wishes(), "cpu", (CPU,)),
        ([], Wishes("gpu"), "cpu", (CPU,)),
        ([CUDA], Wishes("npu"), "cpu", (CPU,)),
        ([TENSORRT, CUDA], Wishes("gpu"), "gpu", (CUDA, CPU)),
        ([TENSORRT, CUDA], Wishes("gpu", "high-performance"), "gpu", (TENSORRT, CUDA, CPU)),
        ([TENSORRT, CUDA], Wishes(accelerated=True), "gpu", (CUDA, CPU)),
        ([DML], Wishes("gpu"), "gpu", (DML, CPU)),
        ([COREML], Wishes("npu"), "npu", (COREML, CPU)),
        ([COREML], Wishes("gpu"), "gpu", (COREML, CPU)),
        (
            [CUDA, COREML],
            Wishes(power_preference="low-power", accelerated=True),
            "npu",
            (COREML, CPU),
        ),
    ],
)
def test_choice_of_providers(available, wishes, device, providers):
    assert choose([*available, CPU], wishes) == (device, providers)


def test_cache_keeps_what_was_compiled(tmp_path):
    for _ in range(2):
        context = ML().create_context(cache=tmp_path, threads=1)
        graph = doubling(context)
        x, y = (context.create_host_tensor([2], "float32") for _ in range(2))
        context.write_tensor(x, [1.0, 2.0])
        context.dispatch(graph, {"x": x}, {"y": y})
        assert context.read_tensor(y).tolist() == [2.0, 4.0]
    assert len(list(Path(tmp_path).iterdir())) == 1


# --- What it says -------------------------------------------------------------------------------


def test_limits(context):
    limits = context.op_support_limits()
    assert limits["preferred_input_layout"] == "nchw"
    assert limits["max_tensor_byte_length"] == MAX_BYTES
    for name in ("input", "constant", "output"):
        assert limits[name] == {"data_types": DATA_TYPES, "rank_range": {"min": 0, "max": 8}}
    ops = {key: value for key, value in limits.items() if key in LIMITS}
    assert len(ops) == 95
    assert set(limits) - set(ops) == {
        "preferred_input_layout",
        "max_tensor_byte_length",
        "input",
        "constant",
        "output",
    }
    assert ops["gemm"]["c"] == {
        "data_types": ["float32", "float16"],
        "rank_range": {"min": 0, "max": 2},
    }
    assert all(hasattr(MLGraphBuilder, op) for op in ops)


def test_statistics_count_copies():
    context = ML().create_context()
    graph = doubling(context)
    x = context.create_tensor([2], "float32", writable=True)
    y = context.create_tensor([2], "float32", readable=True)
    context.write_tensor(x, [1.0, 2.0])
    context.dispatch(graph, {"x": x}, {"y": y})
    context.read_tensor(y)
    made = context.statistics
    assert (made.dispatches, made.prepared) == (1, 1)
    assert (made.writes, made.bytes_written, made.reads, made.bytes_read) == (1, 8, 1, 8)


@pytest.mark.parametrize("backend", EXECUTORS)
def test_a_cache_of_keys_stays_on_the_device(backend):
    context = ML().create_context(backend=backend)
    builder = MLGraphBuilder(context)
    cache = builder.input("cache", {"data_type": "float32", "shape": [1, 8, 4]})
    token = builder.input("token", {"data_type": "float32", "shape": [1, 1, 4]})
    kept = builder.slice(cache, [0, 1, 0], [1, 7, 4])
    graph = builder.build({"next": builder.concat([kept, builder.add(token, token)], 1)})
    ends = [context.create_tensor([1, 8, 4], "float32", readable=True) for _ in range(2)]
    one = context.create_tensor([1, 1, 4], "float32", writable=True)
    context.write_tensor(one, np.ones((1, 1, 4), np.float32))
    before = context.statistics
    places = [end._storage.value.data_ptr() for end in ends] if backend == "onnxruntime" else []
    for _ in range(100):
        context.dispatch(graph, {"cache": ends[0], "token": one}, {"next": ends[1]})
        ends.reverse()
    after = context.statistics
    assert after.dispatches - before.dispatches == 100
    assert after.prepared - before.prepared == 2
    assert (after.reads, after.writes) == (before.reads, before.writes)
    assert places == ([end._storage.value.data_ptr() for end in ends] if places else [])
    assert (context.read_tensor(ends[0]) == 2).all()


# --- The end of a context -----------------------------------------------------------------------


def test_lost():
    context = ML().create_context()
    graph = doubling(context)
    x, y = context.create_host_tensor([2], "float32"), context.create_host_tensor([2], "float32")
    builder = MLGraphBuilder(context)
    told = []
    context.lost.add_done_callback(told.append)
    assert not context.lost.done()
    with pytest.raises(TimeoutError):
        context.lost.result(timeout=0)
    context.destroy()
    context.destroy()
    assert context.lost.done()
    assert "destroy" in context.lost.result().message
    assert told == [context.lost.result()]
    for call in (
        lambda: context.create_tensor([1], "int8"),
        lambda: context.create_constant_tensor(FLOATS, [1.0, 2.0]),
        lambda: context.read_tensor(x),
        lambda: context.write_tensor(x, [1.0, 2.0]),
        lambda: context.dispatch(graph, {"x": x}, {"y": y}),
        lambda: builder.input("x", FLOATS),
        lambda: builder.build({}),
        lambda: MLGraphBuilder(context),
    ):
        with pytest.raises(InvalidStateError):
            call()
    assert "lost" in repr(context)


def test_lost_is_awaited_by_several():
    async def main():
        context = ML().create_context()
        tasks = [asyncio.ensure_future(context.lost) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()  # takes nothing from the others
        await asyncio.sleep(0)
        threading.Thread(target=context.destroy).start()
        made = await asyncio.wait_for(asyncio.gather(*tasks[1:]), 10)
        assert {info.message for info in made} == {"destroy() was called"}

    asyncio.run(main())


def test_pending_calls_fail_when_the_context_is_lost():
    async def main():
        context = ML().create_context()
        tensor = context.create_host_tensor([1], "int8")
        gate = threading.Event()
        context._timeline.submit(lambda: gate.wait(10))
        pending = [
            context.read_tensor_async(tensor),
            context.create_tensor_async([1], "int8"),
            context.write_tensor_async(tensor, [1]),
        ]
        context.destroy()
        gate.set()
        for one in pending:
            with pytest.raises(InvalidStateError):
                await one

    asyncio.run(main())


# --- Building -----------------------------------------------------------------------------------


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
    made = number(given, data_type)
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
