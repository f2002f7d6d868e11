"""Tables and drawings of graphs."""

# ruff: noqa: RUF001  # shapes are written with the sign for "times"

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from ember_ml.errors import FormatError
from ember_ml.graph import Graph, Node, Value
from ember_ml.graph.drawing import svg
from ember_ml.graph.layout import GAP_X, Box, Wire, arrange
from ember_ml.graph.showing import shape_text, size_text, summary

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "a\x1b[31m\x07\x00<b>&[red]\r\n\x0b\u202e"


def network() -> Graph:
    graph = Graph('a <b> & "c"')
    graph.metadata["note"] = "[red]plain[/red]"
    x = graph.input("x", "float32", ("batch", 4))
    w = graph.constant(np.ones((4, 8), np.float32), name="w")
    scale = graph.constant(np.float32(0.5), name="scale")
    y = graph.add("MatMul", [x, w], [("float32", ("batch", 8))], label="first", source="m.py:3")
    z = graph.add("Relu", [y], [("float32", ("batch", 8))])
    z = graph.add("Mul", [z, scale], [("float32", ("batch", 8))])
    z = graph.add("Add", [z, y], [("float32", ("batch", 8))])
    z = graph.add("Cast", [z], [("float16", ("batch", 8))], to=10)
    graph.output("out<1>", z)
    return graph


def branching() -> Graph:
    graph = Graph("branching")
    flag = graph.input("flag", "bool", ())
    x = graph.input("x", "float32", None)
    bodies = {}
    for key, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        body = Graph(key)
        body.outputs.append(Value("inner", "float32", None))
        body.nodes.append(Node(op, [x], body.outputs))
        bodies[key] = body
    graph.output("y", graph.add("If", [flag], [("float32", None)], label="choice", **bodies))
    return graph


class TestSummary:
    def test_tables(self) -> None:
        text = network().summary()
        assert 'a <b> & "c": 6 nodes' in text
        assert re.search(r"input +│ x +│ float32 +│ batch × 4", text)
        assert re.search(r"output +│ out<1> +│ float16 +│ batch × 8", text)
        assert re.search(r"MatMul +│ ai.onnx +│ +21 │ +1", text)
        assert "33 numbers in 2 constants, 132 B" in text
        assert "[red]plain[/red]" in text

    def test_bodies_count(self) -> None:
        text = summary(branching())
        assert "3 nodes" not in text
        assert "branching: 4 nodes" in text
        assert "Neg" in text

    def test_an_empty_graph(self) -> None:
        assert "graph: 0 nodes" in Graph().summary()

    def test_texts(self) -> None:
        assert shape_text(None) == "?"
        assert shape_text(()) == "scalar"
        assert shape_text((1, "n", None)) == "1 × n × ?"
        assert [size_text(x) for x in (1, 999, 1000, 2_500_000, 10**13)] == [
            "1 B",
            "999 B",
            "1.0 kB",
            "2.5 MB",
            "10000.0 GB",
        ]

    def test_4_bit_weights_take_half_a_byte(self) -> None:
        import ml_dtypes

        graph = Graph()
        graph.output("y", graph.constant(np.zeros(9, ml_dtypes.int4)))
        assert "9 numbers in 1 constants, 5 B" in graph.summary()


def texts(drawing: str) -> list[str]:
    return [x.text or "" for x in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


class TestDrawing:
    def test_what_stands_in_it(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.svg"
        network().draw(path)
        drawing = path.read_text(encoding="utf-8")
        found = texts(drawing)
        assert found[0] == 'a <b> & "c"'
        for expected in (
            "x",
            "float32 [batch × 4]",
            "MatMul",
            "w: float32 [4 × 8]",
            "scale = 0.5",
            "to=float16",
            "→ float16 [batch × 8]",
            "out<1>",
        ):
            assert expected in found
        root = ElementTree.fromstring(drawing)
        hints = [x.text for x in root.iter(f"{SVG}title")]
        assert "first\nm.py:3" in hints
        # x to MatMul, to Relu and Add, to Mul, to Add, to Cast, to Identity, to the output
        assert len([x for x in root.iter(f"{SVG}path") if x.get("class") == "w"]) == 8

    def test_boxes_lie_in_the_picture_and_apart(self) -> None:
        root = ElementTree.fromstring(svg(network()))
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        boxes = []
        for rect in root.iter(f"{SVG}rect"):
            if rect.get("rx") and float(rect.attrib["width"]) > 20:
                x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
                assert 0 <= x < x + w <= width
                assert 0 <= y < y + h <= height
                boxes.append((x, y, w, h))
        assert len(boxes) == 8
        for i, (x, y, w, h) in enumerate(boxes):
            for u, v, p, q in boxes[:i]:
                assert x >= u + p or u >= x + w or y >= v + q or v >= y + h

    def test_bodies_are_drawn_below(self) -> None:
        found = texts(svg(branching()))
        assert "If choice: then_branch" in found
        assert "If choice: else_branch" in found
        assert "from around" in found
        assert "then_branch=1 nodes" in found

    @pytest.mark.parametrize("text", ["<script>", "a&b", "\x00\x1b[31m", "x" * 500, "名前"])
    def test_any_text(self, text: str) -> None:
        graph = Graph(text.replace("\x00", "").replace("\x1b", ""))
        x = graph.input(text, "float32", (text.replace("\x00", "").replace("\x1b", ""),))
        graph.output("y", graph.add("Odd", [x], [("float32", None)], domain="d", note=text))
        assert max(map(len, texts(svg(graph)))) <= 510

    def test_an_empty_graph(self) -> None:
        ElementTree.fromstring(svg(Graph()))

    def test_a_long_one_is_tall_and_quick(self) -> None:
        graph = Graph()
        first = x = graph.input("x", "float32", (1,))
        for _ in range(1500):
            x = graph.add("Add", [x, first], [("float32", (1,))])
        graph.output("y", x)
        root = ElementTree.fromstring(svg(graph))
        assert float(root.attrib["height"]) > 50_000
        assert float(root.attrib["width"]) < 1000

    def test_the_ending_is_demanded(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match=r"\.svg"):
            network().draw(tmp_path / "graph.png")


class TestLayout:
    def test_a_box_lies_below_what_it_reads(self) -> None:
        rng = np.random.default_rng(0)
        count = 60
        wires = [
            Wire(int(rng.integers(0, stop)), stop) for stop in range(1, count) for _ in range(2)
        ]
        widths: Any = rng.integers(40, 200, count)
        layout = arrange([Box(float(w), 30.0) for w in widths], wires)
        for wire in layout.wires:
            start, stop = layout.boxes[wire.start], layout.boxes[wire.stop]
            assert start.y + start.height < stop.y
        by_layer: dict[int, list[Box]] = {}
        for box in layout.boxes:
            by_layer.setdefault(box.layer, []).append(box)
        for layer in by_layer.values():
            layer.sort(key=lambda box: box.x)
            for left, right in pairwise(layer):
                gap = (right.x - right.width / 2) - (left.x + left.width / 2)
                assert gap >= GAP_X - 1e-6

    def test_an_input_that_is_used_late_lies_by_its_reader(self) -> None:
        boxes = [Box(50, 20) for _ in range(5)]
        wires = [Wire(0, 2), Wire(2, 3), Wire(3, 4), Wire(1, 4)]
        layout = arrange(boxes, wires)
        assert layout.boxes[1].layer == layout.boxes[3].layer


def test_names_of_a_file_are_shown_as_letters() -> None:
    graph = Graph(EVIL)
    graph.metadata[EVIL] = EVIL
    cond = graph.input(EVIL, "bool", (EVIL,))
    inner = Graph("inner")
    inner.output("z", inner.add(EVIL, [cond], [("bool", (EVIL,))], domain=EVIL))
    options = {EVIL: inner, "mode": EVIL}
    made = graph.add("If", [cond], [("bool", None)], label=EVIL, source=EVIL, **options)
    graph.output(EVIL + "2", made)
    text = summary(graph)
    assert all(line.isprintable() for line in text.split("\n"))
    drawn = svg(graph)
    ElementTree.fromstring(drawn)  # XML allows no control characters, even escaped
    assert all(line.isprintable() for line in drawn.split("\n"))
    graph.name = "n" * 1_000_000
    assert len(svg(graph)) < 20_000
