"""Graphs as SVG: boxes with operators, attributes and shapes, and wires between them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final
from xml.sax.saxutils import escape

import numpy as np

from ember_ml.graph import types
from ember_ml.graph.core import Graph, Node, Value
from ember_ml.graph.layout import Box, Layout, Wire, arrange
from ember_ml.graph.showing import nodes_of, shape_text, value_text, weights_of
from ember_ml.graph.text import plain

__all__ = ["svg"]

_MARGIN: Final = 32.0
_LINE: Final = 15.0
_LONGEST: Final = 38  # letters in a line of a box
_MOST_CONSTANTS: Final = 4

# A family has a colour; the operators that are in none are plain.
_FAMILIES: Final = {
    "products": ("#dbeafe", "#2563eb"),
    "activations": ("#ffedd5", "#ea580c"),
    "norms and pools": ("#dcfce7", "#16a34a"),
    "shapes and indices": ("#f1f5f9", "#64748b"),
    "reductions": ("#fef9c3", "#ca8a04"),
    "recurrent": ("#f3e8ff", "#9333ea"),
    "control flow": ("#fee2e2", "#dc2626"),
    "types": ("#cffafe", "#0891b2"),
    "elementwise": ("#fce7f3", "#db2777"),
}
_OPERATORS: Final = {
    "products": "Conv ConvTranspose ConvInteger MatMul MatMulInteger QLinearConv QLinearMatMul "
    "Gemm Einsum Attention MultiHeadAttention DeformConv",
    "activations": "Relu LeakyRelu PRelu Elu Celu Selu Gelu FastGelu Sigmoid HardSigmoid HardSwish "
    "Softmax LogSoftmax Hardmax Softplus Softsign Tanh ThresholdedRelu Mish Swish Clip Erf",
    "norms and pools": "BatchNormalization InstanceNormalization LayerNormalization "
    "GroupNormalization RMSNormalization LpNormalization LRN MeanVarianceNormalization MaxPool "
    "AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool Dropout "
    "SkipLayerNormalization SimplifiedLayerNormalization",
    "shapes and indices": "Reshape Transpose Squeeze Unsqueeze Flatten Concat Split Slice Gather "
    "GatherElements GatherND Scatter ScatterElements ScatterND Expand Tile Pad Shape Size Resize "
    "Upsample DepthToSpace SpaceToDepth Identity ConstantOfShape Range NonZero Where OneHot Trilu "
    "ReverseSequence Compress EyeLike CenterCropPad",
    "reductions": "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 "
    "ReduceLogSum ReduceLogSumExp ReduceSumSquare ArgMax ArgMin CumSum TopK Unique",
    "recurrent": "LSTM GRU RNN",
    "control flow": "If Loop Scan",
    "types": "Cast CastLike QuantizeLinear DequantizeLinear DynamicQuantizeLinear BitCast",
    "elementwise": "Add Sub Mul Div Pow Mod Neg Abs Sqrt Exp Log Sin Cos Tan Asin Acos Atan Sinh "
    "Cosh Asinh Acosh Atanh Reciprocal Floor Ceil Round Sign Max Min Mean Sum And Or Xor Not Equal "
    "Greater GreaterOrEqual Less LessOrEqual IsNaN IsInf BitShift BitwiseAnd BitwiseOr BitwiseXor "
    "BitwiseNot",
}
_FAMILY_OF: Final = {op: family for family, ops in _OPERATORS.items() for op in ops.split()}
_PLAIN: Final = ("#ffffff", "#475569")
_INPUT: Final = ("#111827", "#111827")

_STYLE: Final = """
text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
.t { font-size: 13px; font-weight: 600; }
.s { font-size: 11px; fill: #475569; }
.h { font-size: 17px; font-weight: 700; fill: #0f172a; }
.n { font-size: 12px; fill: #475569; }
.w { fill: none; stroke: #94a3b8; stroke-width: 1.4; }
"""
_ARROW: Final = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0 8 4 0 8z" fill="#94a3b8"/></marker></defs>'
)


@dataclass(slots=True)
class _Text:
    """What stands in a box: a heading and smaller lines, in the colours of a family."""

    title: str
    lines: list[str]
    fill: str
    edge: str
    ink: str = "#0f172a"
    round: bool = False
    hint: str = ""

    def width(self) -> float:
        """Of the letters, by a guess that suits most fonts, and a margin."""
        letters = max([8.0 * len(self.title), *(6.4 * len(x) for x in self.lines)])
        return max(letters + 24, 72)

    def height(self) -> float:
        return 24 + _LINE * len(self.lines)


def svg(graph: Graph) -> str:
    """The drawing of a graph; bodies of branches and loops are drawn below it."""
    parts: list[str] = []
    y = _MARGIN + 76
    width = 640.0
    sections = [("", graph), *_bodies(graph, "")]
    for title, one in sections:
        if title:
            y += 30
            parts.append(f'<text class="t" x="{_MARGIN:.0f}" y="{y:.0f}">{escape(title)}</text>')
            y += 18
        drawn, size = _section(one, y)
        parts += drawn
        y += size[1]
        width = max(width, size[0] + 2 * _MARGIN)
    used = {_FAMILY_OF[node.op] for node in nodes_of(graph) if node.op in _FAMILY_OF}
    head = _head(graph, [family for family in _FAMILIES if family in used])
    width = max(width, head[1])
    height = y + _MARGIN
    extent = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {extent}>',
            f"<title>{escape(plain(graph.name))}</title>",
            f"<style>{_STYLE}</style>",
            _ARROW,
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *head[0],
            *parts,
            "</svg>",
            "",
        ]
    )


def _head(graph: Graph, families: list[str]) -> tuple[list[str], float]:
    count = sum(1 for _ in nodes_of(graph))
    said = f"{count:,} nodes, {weights_of(graph)}"
    made = [
        f'<text class="h" x="{_MARGIN:.0f}" y="38">{escape(plain(graph.name))}</text>',
        f'<text class="n" x="{_MARGIN:.0f}" y="57">{escape(said)}</text>',
    ]
    x = _MARGIN
    for family in families:
        fill, edge = _FAMILIES[family]
        made.append(
            f'<rect x="{x:.0f}" y="66" width="11" height="11" rx="3" fill="{fill}" '
            f'stroke="{edge}"/><text class="s" x="{x + 16:.0f}" y="76">{family}</text>'
        )
        x += 34 + 6.2 * len(family)
    return made, x + _MARGIN


def _bodies(graph: Graph, above: str) -> list[tuple[str, Graph]]:
    found: list[tuple[str, Graph]] = []
    for node in graph.nodes:
        name = node.label or (node.outputs[0].name if node.outputs else "")
        for key, body in node.attributes.items():
            if isinstance(body, Graph):
                title = f"{above}{_short(node.op)} {_short(name)}: {_short(key)}"
                found += [(title, body), *_bodies(body, f"{title} / ")]
    return found


def _section(graph: Graph, top: float) -> tuple[list[str], tuple[float, float]]:
    """The boxes and wires of one graph, from `top` on, and its size."""
    texts: list[_Text] = []
    maker: dict[int, int] = {}
    wires: dict[tuple[int, int], Wire] = {}
    for value in graph.inputs:
        maker[id(value)] = len(texts)
        texts.append(_Text(_short(value.name), [value_text(value)], *_INPUT, "#ffffff", True))
    outer: dict[int, Value] = {}
    made = {id(x) for node in graph.nodes for x in node.outputs}
    for node in graph.nodes:
        for given in _reads(node):
            if given.data is None and id(given) not in made and id(given) not in maker:
                outer[id(given)] = given
    for value in outer.values():
        maker[id(value)] = len(texts)
        lines = ["from around", value_text(value)]
        texts.append(_Text(_short(value.name), lines, "#ffffff", "#111827", round=True))
    for node in graph.nodes:
        index = len(texts)
        texts.append(_node_text(node))
        for given in _reads(node):
            start = maker.get(id(given))
            if start is not None:
                wires.setdefault((start, index), Wire(start, index))
        for value in node.outputs:
            maker[id(value)] = index
    ends = []
    for value in graph.outputs:
        index = len(texts)
        ends.append(index)
        texts.append(_Text(_short(value.name), [value_text(value)], *_INPUT, "#ffffff", True))
        start = maker.get(id(value))
        if start is not None:
            wires.setdefault((start, index), Wire(start, index))
    boxes = [Box(text.width(), text.height()) for text in texts]
    layout = arrange(boxes, list(wires.values()), ends)
    drawn = []
    begun: dict[int, int] = {}  # wires from one box share their way: it is drawn once
    for wire in layout.wires:
        shared = min(begun.get(wire.start, 0), len(wire.places))
        drawn.append(_wire(wire, shared, layout, top))
        begun[wire.start] = max(begun.get(wire.start, 0), len(wire.places))
    drawn += [
        _box(text, box, top) for text, box in zip(texts, layout.boxes[: len(texts)], strict=True)
    ]
    return drawn, (layout.width, layout.height)


def _reads(node: Node) -> list[Value]:
    """What a node reads, with what only its bodies read."""
    found = [x for x in node.inputs if x is not None]
    for body in node.subgraphs():
        inside = {id(x) for one in body.nodes for x in one.outputs} | {id(x) for x in body.inputs}
        for one in body.nodes:
            found += [x for x in _reads(one) if id(x) not in inside]
    return found


def _node_text(node: Node) -> _Text:
    lines = [f"{key}={_named(key, value)}" for key, value in node.attributes.items()]
    constants = [x for x in node.inputs if x is not None and x.data is not None]
    for value in constants[:_MOST_CONSTANTS]:
        lines.append(_constant(value))
    if len(constants) > _MOST_CONSTANTS:
        lines.append(f"and {len(constants) - _MOST_CONSTANTS} more constants")
    for value in node.outputs[:3]:
        if value.dtype or value.shape is not None:
            lines.append(f"→ {value_text(value)}")
    fill, edge = _FAMILIES.get(_FAMILY_OF.get(node.op, ""), _PLAIN)
    title = f"{node.domain}.{node.op}" if node.domain else node.op
    hint = "\n".join(plain(x) for x in (node.label, node.source) if x)
    return _Text(_short(title), [_short(x) for x in lines], fill, edge, hint=hint)


def _named(key: str, value: Any) -> str:
    """An attribute; those that are a type by its number."""
    if key in ("to", "dtype", "output_dtype") and value in types.NAMES:
        return types.NAMES[value]
    return _value(value)


def _value(value: Any) -> str:
    if isinstance(value, Graph):
        return f"{len(value.nodes)} nodes"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {shape_text(value.shape)}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value[:8])) + (", ..." if len(value) > 8 else "") + "]"
    return str(value)


def _constant(value: Value) -> str:
    assert value.data is not None
    if value.data.size == 1 and value.dtype != "string":
        return f"{_short(value.name, 16)} = {_value(value.data.reshape(-1)[0].item())}"
    if value.data.size <= 6 and value.data.dtype.kind in "iu":
        return f"{_short(value.name, 16)} = {_value(value.data.reshape(-1).tolist())}"
    return f"{_short(value.name, 16)}: {value_text(value)}"


def _short(text: str, most: int = _LONGEST) -> str:
    """A line that fits: the end of a long name tells more than its middle."""
    return plain(text, most)


def _box(text: _Text, box: Box, top: float) -> str:
    x, y = box.x - box.width / 2 + _MARGIN, box.y + top
    centre = box.x + _MARGIN
    radius = min(box.height / 2, 20) if text.round else 6
    dash = ' stroke-dasharray="4 3"' if text.lines[:1] == ["from around"] else ""
    hint = f"<title>{escape(text.hint)}</title>" if text.hint else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    colours = f'fill="{text.fill}" stroke="{text.edge}"{dash}'
    heading = f'x="{centre:.1f}" y="{y + 17:.1f}" text-anchor="middle" fill="{text.ink}"'
    made = [
        f'<g>{hint}<rect {place} rx="{radius:.0f}" {colours}/>',
        f'<text class="t" {heading}>{escape(text.title)}</text>',
    ]
    light = ' style="fill:#cbd5e1"' if text.ink == "#ffffff" else ""
    for number, line in enumerate(text.lines):
        made.append(
            f'<text class="s" x="{centre:.1f}" y="{y + 32 + _LINE * number:.1f}" '
            f'text-anchor="middle"{light}>{escape(line)}</text>'
        )
    return "".join(made) + "</g>"


def _wire(wire: Wire, shared: int, layout: Layout, top: float) -> str:
    """A smooth line through the places of a wire, from the last of those that are drawn."""
    start, stop = layout.boxes[wire.start], layout.boxes[wire.stop]
    points = [(layout.boxes[i].x, layout.boxes[i].y) for i in wire.places[max(shared - 1, 0) :]]
    if not shared:
        points.insert(0, (start.x, start.y + start.height))
    points.append((stop.x, stop.y))
    path = [f"M{points[0][0] + _MARGIN:.1f} {points[0][1] + top:.1f}"]
    for (x, y), (to_x, to_y) in pairwise(points):
        bend = (to_y - y) / 2
        path.append(
            f"C{x + _MARGIN:.1f} {y + bend + top:.1f} {to_x + _MARGIN:.1f} "
            f"{to_y - bend + top:.1f} {to_x + _MARGIN:.1f} {to_y + top:.1f}"
        )
    return f'<path class="w" marker-end="url(#a)" d="{"".join(path)}"/>'
