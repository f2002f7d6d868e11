"""WebNN graphs beside ONNX Runtime itself: dispatch, building, and a loop that stays on the device.

Raw is ONNX Runtime's own `run_with_iobinding` on the session of the graph, with an IOBinding that
was bound beforehand: one session, so that both sides find the same weights in the same caches. For
building, it is only the session of a model that is serialised already. Both sides must agree
before they are timed. One thread computes: more would wait for each other, as CPU time.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.records import Bar
from ember_ml.bench.suites.engines import peers
from ember_ml.bench.timing import Measure, Program

if TYPE_CHECKING:
    from ember_ml.webnn import MLContext, MLGraph

__all__ = ["BENCHMARK"]

LIMIT = 1.3
BUILD_SECONDS = 0.020
STEPS = 100
HEADS, LENGTH, WIDTH = 4, 128, 32


def _weights() -> list[Any]:
    """Of the MLP 784-512-10."""
    draw = np.random.default_rng(0)
    shapes: tuple[tuple[int, ...], ...] = ((784, 512), (512,), (512, 10), (10,))
    return [(draw.standard_normal(shape) * 0.05).astype(np.float32) for shape in shapes]


def _context() -> MLContext:
    from ember_ml.webnn import ML

    importlib.import_module("onnxruntime")  # so that its absence is named, and not ours
    return ML().create_context(threads=1)


def _mlp(context: MLContext, batch: int, given: list[Any]) -> MLGraph:
    """The MLP as a graph."""
    from ember_ml.webnn import MLGraphBuilder

    builder = MLGraphBuilder(context)
    w1, b1, w2, b2 = (
        builder.constant({"data_type": "float32", "shape": w.shape}, w) for w in given
    )
    x = builder.input("x", {"data_type": "float32", "shape": [batch, 784]})
    hidden = builder.relu(builder.gemm(x, w1, {"c": b1}))
    return builder.build({"y": builder.gemm(hidden, w2, {"c": b2})})


def _pywebnn(batch: int, data: Any, expected: Any) -> Program:
    """The same graph of pywebnn, where it is installed; it takes arrays and gives arrays."""
    webnn = importlib.import_module("webnn")
    context = webnn.ML().create_context(device_type="cpu")
    builder = context.create_graph_builder()
    w1, b1, w2, b2 = (builder.constant(w) for w in _weights())
    x = builder.input("x", [batch, 784], "float32")
    hidden = builder.relu(builder.add(builder.matmul(x, w1), b1))
    graph = builder.build({"y": builder.add(builder.matmul(hidden, w2), b2)})

    def run() -> Any:
        return context.compute(graph, {"x": data})

    np.testing.assert_allclose(run()["y"], expected, rtol=1e-3, atol=1e-4)
    return run


def _session_of(graph: MLGraph) -> Any:
    """ONNX Runtime's session behind a graph."""
    return graph._compiled._session  # type: ignore[union-attr]  # of the engine that is used here


def _bound(session: Any, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, value in outputs.items():
        binding.bind_ortvalue_output(name, value)
    return binding


def dispatch(setting: Setting) -> Iterator[Measure]:
    """One dispatch of the MLP, the tensors on the device."""
    context = _context()
    for batch in (1, 64):
        yield _dispatch(context, batch)


def _dispatch(context: MLContext, batch: int) -> Measure:
    import onnxruntime

    graph = _mlp(context, batch, _weights())
    data = np.random.default_rng(1).standard_normal((batch, 784)).astype(np.float32)
    x = context.create_tensor([batch, 784], "float32", writable=True)
    y = context.create_tensor([batch, 10], "float32", readable=True)
    context.write_tensor(x, data)
    inputs, outputs = {"x": x}, {"y": y}

    session = _session_of(graph)
    made = onnxruntime.OrtValue.ortvalue_from_shape_and_type([batch, 10], np.float32)
    names = session.get_inputs()[0].name, session.get_outputs()[0].name
    binding = _bound(
        session, {names[0]: onnxruntime.OrtValue.ortvalue_from_numpy(data)}, {names[1]: made}
    )

    def raw() -> None:
        session.run_with_iobinding(binding)

    def ours() -> None:
        context.dispatch(graph, inputs, outputs)

    raw()
    ours()
    found = made.numpy()
    np.testing.assert_array_equal(context.read_tensor(y), found)
    others, notes = peers({"pywebnn": lambda: _pywebnn(batch, data, found)})
    return Measure(
        f"dispatch mlp, batch {batch}",
        raw,
        ours,
        LIMIT,
        "ONNX Runtime, bound beforehand",
        others,
        rounds=41,
        notes=notes,
    )


def building(setting: Setting) -> Iterator[Measure]:
    """From the builder to a compiled graph, beside the session alone."""
    context = _context()
    import onnxruntime

    given = _weights()
    model = _mlp(context, 1, given).graph.to_onnx().SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1

    def raw() -> Any:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    yield Measure(
        "build mlp",
        raw,
        lambda: _mlp(context, 1, given),
        Bar("most", BUILD_SECONDS),
        "ONNX Runtime's session alone",
    )


def _cache_step(context: MLContext) -> MLGraph:
    """A cache of keys that forgets the oldest and takes a new one."""
    from ember_ml.webnn import MLGraphBuilder

    builder = MLGraphBuilder(context)
    shape = [1, HEADS, LENGTH, WIDTH]
    cache = builder.input("cache", {"data_type": "float32", "shape": shape})
    token = builder.input("token", {"data_type": "float32", "shape": [1, HEADS, 1, WIDTH]})
    kept = builder.slice(cache, [0, 0, 1, 0], [1, HEADS, LENGTH - 1, WIDTH])
    return builder.build({"next": builder.concat([kept, token], 2)})


def loop(setting: Setting) -> Iterator[Measure]:
    """A hundred steps of a cache: what one writes, the next one reads."""
    context = _context()
    graph = _cache_step(context)
    first = context.create_tensor([1, HEADS, LENGTH, WIDTH], "float32")
    second = context.create_tensor([1, HEADS, LENGTH, WIDTH], "float32", readable=True)
    token = context.create_tensor([1, HEADS, 1, WIDTH], "float32", writable=True)
    context.write_tensor(token, np.ones((1, HEADS, 1, WIDTH), np.float32))

    def ours() -> None:
        a, b = first, second
        for _ in range(STEPS):
            context.dispatch(graph, {"cache": a, "token": token}, {"next": b})
            a, b = b, a

    before = context.statistics
    ours()
    after = context.statistics
    assert after.dispatches - before.dispatches == STEPS
    assert after.prepared - before.prepared == 2
    assert (after.reads, after.writes) == (before.reads, before.writes)
    yield Measure(
        f"cache, {STEPS} dispatches",
        _raw_loop(graph),
        ours,
        against="ONNX Runtime, bound beforehand",
        rounds=25,
    )


def _raw_loop(graph: MLGraph) -> Program:
    import onnxruntime

    session = _session_of(graph)
    make = onnxruntime.OrtValue.ortvalue_from_shape_and_type
    ends = [make([1, HEADS, LENGTH, WIDTH], np.float32) for _ in range(2)]
    one = onnxruntime.OrtValue.ortvalue_from_numpy(np.ones((1, HEADS, 1, WIDTH), np.float32))
    names = [graph._inputs["cache"].name, graph._inputs["token"].name, graph._outputs["next"].name]
    bindings = [
        _bound(session, {names[0]: a, names[1]: one}, {names[2]: b})
        for a, b in (ends, reversed(ends))
    ]

    def raw() -> None:
        for step in range(STEPS):
            session.run_with_iobinding(bindings[step % 2])

    return raw


BENCHMARK = Benchmark(
    "webnn",
    "WebNN graphs beside ONNX Runtime itself: dispatch, building, and a loop on the device.",
    {"dispatch": dispatch, "build": building, "loop": loop},
    (),
)
