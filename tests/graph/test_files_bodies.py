"""Bodies of branches and loops, and functions, in ONNX files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")
ort: Any = pytest.importorskip("onnxruntime")
from onnx import parser  # noqa: E402  # after the skip

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
