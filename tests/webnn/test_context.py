"""Contexts: what is asked of them, what they say they are, and how they end."""

import asyncio
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ember_ml.errors import BackendUnavailableError
from ember_ml.webnn import (
    ML,
    InvalidStateError,
    MLGraphBuilder,
    MLTypeError,
    NotSupportedError,
    OperationError,
)
from ember_ml.webnn.descriptors import DATA_TYPES, MAX_BYTES
from ember_ml.webnn.engines import Wishes
from ember_ml.webnn.engines.runtime import choose
from ember_ml.webnn.limits import LIMITS
from tests.webnn.calls import FLOATS, doubling

EXECUTORS = ["onnxruntime", "numpy", "torch", "jax", "mlx"]
CPU = "CPUExecutionProvider"


@pytest.fixture(scope="module")
def context():
    return ML().create_context()


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
        ([CUDA, TENSORRT], Wishes("cpu"), "cpu", (CPU,)),
        ([CUDA, TENSORRT], Wishes(accelerated=False), "cpu", (CPU,)),
        ([CUDA, TENSORRT], Wishes(), "gpu", (CUDA, CPU)),
        ([COREML], Wishes(), "gpu", (COREML, CPU)),
        ([], Wishes(), "cpu", (CPU,)),
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


def test_without_onnxruntime_or_onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(BackendUnavailableError, match="pip install"):
        doubling(ML().create_context())
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(BackendUnavailableError, match="pip install"):
        ML().create_context()
    doubling(ML().create_context(backend="numpy"))


def test_a_cache_is_a_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OperationError, match="file' is no folder"):
        doubling(ML().create_context(cache=tmp_path / "file"))
    with pytest.raises(MLTypeError, match="cache is the path of a folder, not 5"):
        ML().create_context(cache=5)


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
