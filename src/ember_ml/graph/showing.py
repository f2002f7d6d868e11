"""Graphs for people: tables of what they take, give and consist of, and drawings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from ember_ml.errors import FormatError
from ember_ml.graph import types
from ember_ml.graph.core import Dim, Graph, Node, Value
from ember_ml.graph.text import plain
from ember_ml.io.atomic import replacing

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "draw",
    "nodes_of",
    "shape_text",
    "shown",
    "size_text",
    "summary",
    "tables",
    "value_text",
    "weights_of",
]

_WIDTH = 100
_METADATA_SHOWN = 80
_TIMES = " \N{MULTIPLICATION SIGN} "


def summary(graph: Graph) -> str:
    """What a graph takes, gives and consists of, as tables."""
    from rich.console import Console

    out = StringIO()
    console = Console(file=out, width=_WIDTH, color_system=None)
    for part in tables(graph):
        console.print(part)
    return out.getvalue().rstrip("\n")


def shown(text: str, most: int = 200) -> str:
    """A name or a text of a file in a table of rich."""
    from rich.markup import escape

    return escape(plain(text, most))


def tables(graph: Graph) -> Iterator[RenderableType]:
    """The parts of a summary, for a console."""
    from rich import box
    from rich.table import Table

    count = sum(1 for _ in nodes_of(graph))
    table = Table(
        title=f"{shown(graph.name)}: {count:,} nodes",
        box=box.SQUARE,
        title_justify="left",
        caption=shown(weights_of(graph)),
        caption_justify="left",
    )
    for heading in ("", "name", "type", "shape"):
        table.add_column(heading, overflow="fold")
    for what, values in (("input", graph.inputs), ("output", graph.outputs)):
        for place, value in enumerate(values):
            last = place == len(values) - 1
            name, dtype = shown(value.name), shown(value.dtype or "?")
            table.add_row(what, name, dtype, shown(shape_text(value.shape)), end_section=last)
    yield table

    table = Table(title="operators", box=box.SQUARE, title_justify="left")
    table.add_column("operator")
    table.add_column("domain")
    table.add_column("version", justify="right")
    table.add_column("nodes", justify="right")
    counted = Counter((node.op, node.domain) for node in nodes_of(graph))
    for (op, domain), number in sorted(counted.items(), key=lambda x: (-x[1], x[0])):
        version = str(graph.opsets.get(domain, "?"))
        table.add_row(shown(op), shown(domain or "ai.onnx"), version, f"{number:,}")
    yield table

    if graph.metadata:
        table = Table(title="metadata", box=box.SQUARE, title_justify="left", show_header=False)
        table.add_column()
        table.add_column(overflow="fold")
        for key, text in graph.metadata.items():
            more = "..." if len(text) > _METADATA_SHOWN else ""
            table.add_row(shown(key), shown(text[:_METADATA_SHOWN] + more))
        yield table


def nodes_of(graph: Graph) -> Iterator[Node]:
    """All nodes, those of bodies after the node that has them."""
    for node in graph.nodes:
        yield node
        for body in node.subgraphs():
            yield from nodes_of(body)


def weights_of(graph: Graph) -> str:
    """How many constants there are, and how large."""
    constants = graph.constants()
    elements = sum(x.data.size for x in constants if x.data is not None)
    size = sum(
        x.data.size * types.BITS.get(x.dtype, 8 * x.data.itemsize)
        for x in constants
        if x.data is not None
    )
    return f"{elements:,} numbers in {len(constants):,} constants, {size_text((size + 7) // 8)}"


def size_text(count: int) -> str:
    """Bytes in a unit that fits.

    >>> size_text(1500)
    '1.5 kB'
    """
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def shape_text(shape: tuple[Dim, ...] | None) -> str:
    """A shape as people write it: "batch × 3", "scalar", "?" where nothing is known."""
    if shape is None:
        return "?"
    return _TIMES.join("?" if d is None else plain(str(d), 40) for d in shape) or "scalar"


def value_text(value: Value) -> str:
    """Type and shape, as in "float32 [batch × 3]"."""
    shape = f"[{shape_text(value.shape)}]" if value.shape else shape_text(value.shape)
    return f"{value.dtype or '?'} {shape}"


def draw(graph: Graph, path: Path) -> None:
    """Draw a graph as an SVG file."""
    if path.suffix != ".svg":
        raise FormatError(f"graphs are drawn as SVG: give a path that ends in .svg, not {path}")
    from ember_ml.graph.drawing import svg

    content = svg(graph).encode()
    with replacing(str(path)) as file:
        file.write(content)
