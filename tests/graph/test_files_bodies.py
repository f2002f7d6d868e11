"""Bodies of branches and loops, functions, and a text model, in ONNX files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")
ort: Any = pytest.importorskip("onnxruntime")
from onnx import numpy_helper, parser  # noqa: E402  # after the skip

import ember_ml as em  # noqa: E402
from ember_ml.graph import Graph  # noqa: E402
from ember_ml.graph.onnx_reading import load_onnx  # noqa: E402

RNG = np.random.default_rng(0)


def parsed(text: str) -> Any:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')


def run(model: Any, feeds: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    found: list[Any] = ort.InferenceSession(model.SerializeToString(), options).run(None, feeds)
    return found


class TestBodies:
    LOOP = (
        "g (int64 n, float[2] x) => (float[2] last, float[k, 2] all) { "
        "yes = Constant <value = bool {1}> () "
        "last, all = Loop (n, yes, x) <body = b (int64 i, bool c, float[2] v) => "
        "(bool c2, float[2] v2, float[2] scan) "
        "<float step = {2.0}> "
        "{ c2 = Identity(c) t = Mul(v, step) v2 = Add(t, x) scan = Identity(v2) }> }"
    )

    def test_loop(self) -> None:
        model = parsed(self.LOOP)
        graph = load_onnx(model)
        (loop,) = graph.nodes
        (body,) = loop.subgraphs()
        # What a body takes from around is the value itself.
        assert body.nodes[2].inputs[1] is graph.inputs[1]
        feeds = {"n": np.asarray(3), "x": np.array([1, 2], np.float32)}
        for got, expected in zip(graph.run(feeds).values(), run(model, feeds), strict=True):
            np.testing.assert_array_equal(got, expected)
        again = load_onnx(graph.to_onnx())
        assert [x.op for x in again.nodes[0].subgraphs()[0].nodes] == [x.op for x in body.nodes]
        for got, expected in zip(again.run(feeds).values(), run(model, feeds), strict=True):
            np.testing.assert_array_equal(got, expected)
        assert body.nodes[1].outputs[0].dtype == "float32"

    def test_branches_of_outer_values_and_constants(self) -> None:
        model = parsed(
            "g (bool c, float[1] x) => (float[1] y) { y = If (c) "
            "<then_branch = t () => (float[1] x) {}, "
            "else_branch = e () => (float[1] k) <float[1] k = {5.0}> {}> }"
        )
        graph = load_onnx(model)
        assert graph.run({"c": np.asarray(True), "x": [1]})["y"].tolist() == [1]
        assert graph.run({"c": np.asarray(False), "x": [1]})["y"].tolist() == [5]

    def test_constants_of_bodies_have_names_of_their_own(self) -> None:
        graph = Graph("outer")
        x = graph.input("x", "float32", (2,))
        c = graph.input("c", "bool", ())

        def scaled(by: float) -> Graph:
            body = Graph("scaled")
            made = body.add("Mul", [x, body.constant(np.float32(by))], [("float32", (2,))])
            body.output("y", made)
            return body

        y = graph.add("If", [c], [("float32", (2,))], then_branch=scaled(3), else_branch=scaled(5))
        graph.output("y", graph.add("Add", [y, graph.constant(np.float32(1))], [("float32", (2,))]))
        onnx.checker.check_model(graph.to_onnx(), full_check=True)
        for backend in ("onnxruntime", "numpy"):
            for which, want in ((True, 4.0), (False, 6.0)):
                made = graph.run({"x": np.ones(2, np.float32), "c": np.bool_(which)}, backend)
                assert made["y"].tolist() == [want] * 2

    def test_names_in_a_body_may_repeat(self) -> None:
        model = parsed(
            "g (bool c, float[1] x) => (float[1] y) { a = Neg(x) b = If (c) "
            "<then_branch = t () => (float[1] z) <float[1] k = {5.0}> { z = Add(a, k) }, "
            "else_branch = e () => (float[1] z) <float[1] k = {7.0}> { z = Add(a, k) }> "
            "y = Neg(b) }"
        )
        graph = load_onnx(model)
        for flag in (True, False):
            feeds = {"c": np.asarray(flag), "x": np.array([1], np.float32)}
            assert graph.run(feeds)["y"].tolist() == run(model, feeds)[0].tolist()
        onnx.checker.check_model(graph.to_onnx(), full_check=True)

    def test_a_body_that_reads_what_comes_later(self) -> None:
        """A node must wait for what only its body reads."""
        model = parsed(
            "g (bool c, float[1] x) => (float[1] y) { a = Neg(x) y = If (c) "
            "<then_branch = t () => (float[1] z) { z = Neg(a) }, "
            "else_branch = e () => (float[1] z) { z = Abs(a) }> }"
        )
        model.graph.node.reverse()
        graph = load_onnx(model)
        assert [x.op for x in graph.nodes] == ["Neg", "If"]

    def test_scan(self) -> None:
        model = parsed(
            "g (float[2] start, float[3, 2] x) => (float[2] last, float[3, 2] all) { "
            "last, all = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] v) => "
            "(float[2] s2, float[2] o) { s2 = Add(s, v) o = Identity(s2) }> (start, x) }"
        )
        x = RNG.random((3, 2)).astype(np.float32)
        made = load_onnx(model).run({"start": np.zeros(2, np.float32), "x": x})
        np.testing.assert_allclose(made["all"], np.cumsum(x, 0), rtol=1e-6)


class TestFunctions:
    TEXT = """
    <ir_version: 8, opset_import: ["": 17, "local": 1]>
    g (float[2] x) => (float[2] y, float[2] z) {
        y = local.scaled <by = 3.0> (x)
        a, z = local.twice (x)
    }
    <domain: "local", opset_import: ["": 17]> scaled <by> (v) => (out) {
        k = Constant <value_float: float = @by> ()
        out = Mul(v, k)
    }
    <domain: "local", opset_import: ["": 17, "local": 1]> twice (v) => (same, out) {
        same = Identity(v)
        t = local.scaled <by = 2.0> (v)
        out = local.scaled <by = 0.5> (t)
    }
    """

    def test_calls_become_their_nodes(self) -> None:
        model = parser.parse_model(self.TEXT)
        graph = load_onnx(model)
        assert [x.op for x in graph.nodes] == ["Mul", "Identity", "Mul", "Mul"]
        assert all(x.outputs[0].shape == (2,) for x in graph.nodes)
        feeds = {"x": np.array([1, 2], np.float32)}
        made = graph.run(feeds)
        assert made["y"].tolist() == [3, 6]
        assert made["z"].tolist() == [1, 2]
        for got, expected in zip(made.values(), run(model, feeds), strict=True):
            np.testing.assert_array_equal(got, expected)

    def test_left_out_inputs_and_passed_on_values(self) -> None:
        graph = load_onnx(
            parser.parse_model(
                """
                <ir_version: 8, opset_import: ["": 17, "local": 1]>
                g (float[2] x) => (float[2] y, float[2] z) { y, z = local.clipped (x) }
                <domain: "local", opset_import: ["": 17]>
                clipped (v, low, high) => (out, v) { out = Clip(v, low, high) }
                """
            )
        )
        made = graph.run({"x": [1, 2]})
        assert made["y"].tolist() == made["z"].tolist() == [1, 2]


def encoder(opset: int) -> Any:
    """A text model as exporters write one: embedding, attention with reshapes, norm, MLP."""
    rng = np.random.default_rng(1)
    model = parser.parse_model(
        f"""
        <ir_version: 8, opset_import: ["": {opset}]>
        g (int64[batch, time] ids, int64[batch, time] mask) => (float[batch, time, 8] y) {{
            x = Gather (table, ids)
            shape = Shape (ids)
            zero = Constant <value_ints = [0]> ()
            one = Constant <value_ints = [1]> ()
            two = Constant <value_ints = [2]> ()
            four = Constant <value_ints = [4]> ()
            eight = Constant <value_ints = [8]> ()
            axes = Constant <value_ints = [1, 2]> ()
            low = Constant <value_float = -1e9> ()
            batch = Slice (shape, zero, one)
            time = Slice (shape, one, two)
            split = Concat <axis = 0> (batch, time, two, four)
            join = Concat <axis = 0> (batch, time, eight)
            q0 = MatMul (x, wq)  q1 = Reshape (q0, split)  q = Transpose <perm = [0, 2, 1, 3]> (q1)
            k0 = MatMul (x, wk)  k1 = Reshape (k0, split)  k = Transpose <perm = [0, 2, 3, 1]> (k1)
            v0 = MatMul (x, wv)  v1 = Reshape (v0, split)  v = Transpose <perm = [0, 2, 1, 3]> (v1)
            s0 = MatMul (q, k)
            half = Constant <value_float = 0.5> ()
            s1 = Mul (s0, half)
            m0 = Unsqueeze (mask, axes)
            m1 = Cast <to = 9> (m0)
            s2 = Where (m1, s1, low)
            a = Softmax <axis = -1> (s2)
            o0 = MatMul (a, v)  o1 = Transpose <perm = [0, 2, 1, 3]> (o0)  o = Reshape (o1, join)
            r = Add (x, o)
            n = LayerNormalization <axis = -1, epsilon = 1e-5> (r, scale, bias)
            h0 = MatMul (n, w1)  h1 = Relu (h0)  h = MatMul (h1, w2)
            y = Add (n, h)
        }}
        """
    )
    shapes = {"table": (11, 8), "w1": (8, 16), "w2": (16, 8), "scale": (8,), "bias": (8,)}
    shapes |= dict.fromkeys(("wq", "wk", "wv"), (8, 8))
    for name, shape in shapes.items():
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("backend", [None, "numpy", "torch"])
def test_a_text_model(opset: int, backend: str | None) -> None:
    if backend and backend not in em.available_backends():
        pytest.skip(f"{backend} is not installed")
    model = encoder(opset)
    graph = load_onnx(model.SerializeToString())
    softmax = next(x for x in graph.nodes if x.op == "Softmax").outputs[0]
    assert softmax.dtype == "float32"
    assert graph.outputs[0].shape == ("batch", "time", 8)
    for batch, time in ((1, 5), (3, 2)):
        feeds = {
            "ids": RNG.integers(0, 11, (batch, time)),
            "mask": np.tril(np.ones((batch, time), np.int64)) | (np.arange(time) == 0),
        }
        feeds["mask"] = feeds["mask"].astype(np.int64)
        made = graph.run(feeds, backend)["y"]
        found = made if isinstance(made, np.ndarray) else made.numpy()
        np.testing.assert_allclose(found, run(model, feeds)[0], rtol=1e-5, atol=1e-5)
