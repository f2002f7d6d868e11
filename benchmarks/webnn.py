"""WebNN graphs beside ONNX Runtime itself: dispatch, building, and a loop that stays on the device.

    python benchmarks/webnn.py                  a table
    python benchmarks/webnn.py --check --json out.json

Raw is ONNX Runtime's own `run_with_iobinding` on the session of the graph, with an IOBinding that
was bound beforehand: one session, so that both sides find the same weights in the same caches. For
building, it is only the session of a model that is serialised already. Both sides must agree
before they are timed. One thread computes: more would wait for each other, as CPU time.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np
from measuring import Measure, Program, machine, measured, missed, show

from ember_ml.webnn import ML, MLContext, MLGraph, MLGraphBuilder

LIMIT = 1.3
BUILD_SECONDS = 0.020
STEPS = 100
HEADS, LENGTH, WIDTH = 4, 128, 32


def weights() -> list[Any]:
    """Of the MLP 784-512-10."""
    draw = np.random.default_rng(0)
    shapes = ((784, 512), (512,), (512, 10), (10,))
    return [(draw.standard_normal(shape) * 0.05).astype(np.float32) for shape in shapes]


def mlp(context: MLContext, batch: int, given: list[Any]) -> MLGraph:
    """The MLP as a graph."""
    builder = MLGraphBuilder(context)
    w1, b1, w2, b2 = (
        builder.constant({"data_type": "float32", "shape": w.shape}, w) for w in given
    )
    x = builder.input("x", {"data_type": "float32", "shape": [batch, 784]})
    hidden = builder.relu(builder.gemm(x, w1, {"c": b1}))
    return builder.build({"y": builder.gemm(hidden, w2, {"c": b2})})


def cache_step(context: MLContext) -> MLGraph:
    """A cache of keys that forgets the oldest and takes a new one."""
    builder = MLGraphBuilder(context)
    shape = [1, HEADS, LENGTH, WIDTH]
    cache = builder.input("cache", {"data_type": "float32", "shape": shape})
    token = builder.input("token", {"data_type": "float32", "shape": [1, HEADS, 1, WIDTH]})
    kept = builder.slice(cache, [0, 0, 1, 0], [1, HEADS, LENGTH - 1, WIDTH])
    return builder.build({"next": builder.concat([kept, token], 2)})


def session_of(graph: MLGraph) -> Any:
    """ONNX Runtime's session behind a graph."""
    return graph._compiled._session  # type: ignore[union-attr]  # of the engine that is used here


def bound(session: Any, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, value in outputs.items():
        binding.bind_ortvalue_output(name, value)
    return binding


def dispatch(context: MLContext, batch: int) -> Measure:
    """One dispatch of the MLP, the tensors on the device."""
    import onnxruntime

    graph = mlp(context, batch, weights())
    data = np.random.default_rng(1).standard_normal((batch, 784)).astype(np.float32)
    x = context.create_tensor([batch, 784], "float32", writable=True)
    y = context.create_tensor([batch, 10], "float32", readable=True)
    context.write_tensor(x, data)
    inputs, outputs = {"x": x}, {"y": y}

    session = session_of(graph)
    made = onnxruntime.OrtValue.ortvalue_from_shape_and_type([batch, 10], np.float32)
    names = session.get_inputs()[0].name, session.get_outputs()[0].name
    binding = bound(
        session, {names[0]: onnxruntime.OrtValue.ortvalue_from_numpy(data)}, {names[1]: made}
    )

    def raw() -> None:
        session.run_with_iobinding(binding)

    def ours() -> None:
        context.dispatch(graph, inputs, outputs)

    raw()
    ours()
    np.testing.assert_array_equal(context.read_tensor(y), made.numpy())
    return Measure(f"dispatch mlp, batch {batch}", raw, ours, limit=LIMIT, rounds=41)


def building(context: MLContext) -> Measure:
    """From the builder to a compiled graph, beside the session alone."""
    import onnxruntime

    given = weights()
    model = mlp(context, 1, given).graph.to_onnx().SerializeToString()

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1

    def raw() -> Any:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def ours() -> MLGraph:
        return mlp(context, 1, given)

    return Measure("build mlp", raw, ours, most=BUILD_SECONDS)


def loop(context: MLContext) -> Measure:
    """A hundred steps of a cache: what one writes, the next one reads."""
    graph = cache_step(context)
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
    return Measure(f"cache, {STEPS} dispatches", _raw_loop(graph), ours, rounds=25)


def _raw_loop(graph: MLGraph) -> Program:
    import onnxruntime

    session = session_of(graph)
    make = onnxruntime.OrtValue.ortvalue_from_shape_and_type
    ends = [make([1, HEADS, LENGTH, WIDTH], np.float32) for _ in range(2)]
    one = onnxruntime.OrtValue.ortvalue_from_numpy(np.ones((1, HEADS, 1, WIDTH), np.float32))
    names = [graph._inputs["cache"].name, graph._inputs["token"].name, graph._outputs["next"].name]
    bindings = [
        bound(session, {names[0]: a, names[1]: one}, {names[2]: b})
        for a, b in (ends, reversed(ends))
    ]

    def raw() -> None:
        for step in range(STEPS):
            session.run_with_iobinding(bindings[step % 2])

    return raw


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="instead of each measure's own number")
    parser.add_argument("--json", help="write all numbers here")
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed")
    options = parser.parse_args()
    context = ML().create_context(threads=1)
    measures = [dispatch(context, 1), dispatch(context, 64), building(context), loop(context)]
    results = measured(measures, options.rounds)
    show(results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "measures": results}, file, indent=1)
    if options.check and missed(results):
        sys.exit(f"beyond their bars: {', '.join(missed(results))}")


if __name__ == "__main__":
    main()
