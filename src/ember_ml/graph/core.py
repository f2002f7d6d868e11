"""One graph, whoever made it: WebNN's builder, the tracer of ops, or an ONNX file.

Nodes are ONNX operators (of opset 21 where ember_ml makes them). That is the one vocabulary which
all who make graphs can speak and all who run them understand: ONNX Runtime takes it as it is, and
the `ops` executor gives each operator its meaning on NumPy, torch, JAX and MLX.

    graph = Graph("double")
    x = graph.input("x", "float32", ("batch", 3))
    two = graph.constant(np.float32(2))
    graph.output("y", graph.add("Mul", [x, two], [("float32", x.shape)]))
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ember_ml.errors import DomainError, DTypeError
from ember_ml.graph import types

if TYPE_CHECKING:
    from ember_ml.graph.executors.program import Program

__all__ = ["OPSET", "Attribute", "Dim", "Graph", "Node", "Shape", "Value"]

# What ember_ml writes; files of older and newer ones are read as they are.
OPSET: Final = 21

# A size, the name of one that is known when the graph runs, or nothing known.
Dim = int | str | None
Shape = tuple[Dim, ...]
# Numbers, texts, lists of them, an array, or a graph: the body of a branch or of a loop.
Attribute = Any


class Value:
    """What flows through a graph: a name, an element type and a shape; data where it is constant.

    `shape` is None where not even the number of axes is known. A value belongs to one graph and
    those within it, and is itself wherever it is used: there are no look-ups by name.
    """

    __slots__ = ("data", "dtype", "name", "shape")

    def __init__(
        self,
        name: str,
        dtype: str,
        shape: Shape | None,
        data: np.ndarray[Any, Any] | None = None,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.data = data

    def __repr__(self) -> str:
        what = "constant" if self.data is not None else "value"
        return f"<{what} {self.name!r}: {self.dtype}{_shown(self.shape)}>"


class Node:
    """One operator at work: its inputs (None where one is left out), outputs and attributes."""

    __slots__ = ("attributes", "domain", "inputs", "label", "op", "outputs", "source")

    def __init__(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        attributes: Mapping[str, Attribute] | None = None,
        *,
        domain: str = "",
        label: str = "",
        source: str = "",
    ) -> None:
        self.op = op
        self.domain = domain
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.attributes = dict(attributes or {})
        # What users called it: a label in WebNN, a node's name in a file.
        self.label = label
        # The line of code that it came from, where it was traced.
        self.source = source

    def __repr__(self) -> str:
        given = ", ".join("-" if x is None else x.name for x in self.inputs)
        return f"<{self.op}({given}) -> {', '.join(x.name for x in self.outputs)}>"

    def subgraphs(self) -> list[Graph]:
        """The bodies of a branch or of a loop."""
        return [value for value in self.attributes.values() if isinstance(value, Graph)]


class Graph:
    """Inputs, nodes in an order in which they can run, and outputs."""

    def __init__(self, name: str = "graph", *, opset: int = OPSET) -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[Node] = []
        # The version of each operator set; "" is ONNX's own.
        self.opsets: dict[str, int] = {"": opset}
        self.metadata: dict[str, str] = {}
        self._names: set[str] = set()
        self._programs: dict[Any, Program] = {}

    def __repr__(self) -> str:
        given = ", ".join(f"{x.name}: {x.dtype}{_shown(x.shape)}" for x in self.inputs)
        made = ", ".join(f"{x.name}: {x.dtype}{_shown(x.shape)}" for x in self.outputs)
        return f"<Graph {self.name!r}: {len(self.nodes)} nodes, ({given}) -> ({made})>"

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or a graph in another process, is made ready there."""
        return {**self.__dict__, "_programs": {}}

    # --- Building -----------------------------------------------------------------------------

    def input(self, name: str, dtype: str, shape: Shape | None) -> Value:
        """A new input."""
        self._programs.clear()
        made = Value(self._taken(name), types.name_of(dtype), shape)
        self.inputs.append(made)
        return made

    def constant(self, data: Any, name: str = "") -> Value:
        """A value that is known already; its memory is kept, not copied."""
        array = types.native(np.asarray(data))
        return Value(self.fresh(name or "constant"), types.name_of(array.dtype), array.shape, array)

    def add(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[str, Shape | None]],
        *,
        name: str = "",
        domain: str = "",
        label: str = "",
        source: str = "",
        **attributes: Attribute,
    ) -> Value:
        """Add a node; gives its first output. `outputs` says what each is: (dtype, shape).

        Attributes that are None are left out.
        """
        return self.add_many(
            op, inputs, outputs, name=name, domain=domain, label=label, source=source, **attributes
        )[0]

    def add_many(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[str, Shape | None]],
        *,
        name: str = "",
        domain: str = "",
        label: str = "",
        source: str = "",
        **attributes: Attribute,
    ) -> list[Value]:
        """Add a node of several outputs."""
        self._programs.clear()
        made = [Value(self.fresh(name or op), dtype, shape) for dtype, shape in outputs]
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(Node(op, inputs, made, given, domain=domain, label=label, source=source))
        return made

    def output(self, name: str, value: Value) -> Value:
        """Make a value an output under a name of its own; an Identity is put between."""
        self._programs.clear()
        made = Value(self._taken(name), value.dtype, value.shape)
        self.nodes.append(Node("Identity", [value], [made]))
        self.outputs.append(made)
        return made

    def fresh(self, stem: str) -> str:
        """A name that nothing has, beginning with `stem`."""
        if stem not in self._names:
            self._names.add(stem)
            return stem
        count = len(self._names)
        while f"{stem}_{count}" in self._names:
            count += 1
        made = f"{stem}_{count}"
        self._names.add(made)
        return made

    def _taken(self, name: str) -> str:
        if not name:
            raise DomainError(f"graph '{self.name}': inputs and outputs need a name")
        if name in self._names:
            raise DomainError(f"graph '{self.name}' has a value called '{name}' already")
        self._names.add(name)
        return name

    # --- Looking ------------------------------------------------------------------------------

    def constants(self) -> list[Value]:
        """The constants that nodes and outputs use, each once, in order of use."""
        found: dict[int, Value] = {}
        for value in self._used():
            if value.data is not None:
                found.setdefault(id(value), value)
        return list(found.values())

    def _used(self) -> Iterator[Value]:
        for node in self.nodes:
            yield from (x for x in node.inputs if x is not None)
            for body in node.subgraphs():
                yield from body._used()
        yield from self.outputs

    def prune(self) -> None:
        """Drop nodes that no output needs."""
        self._programs.clear()
        needed = {id(x) for x in self.outputs}
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if not any(id(x) in needed for x in node.outputs):
                continue
            kept.append(node)
            needed.update(id(x) for x in node.inputs if x is not None)
            for body in node.subgraphs():
                needed.update(id(x) for x in body._used())
        self.nodes = kept[::-1]

    # --- Using --------------------------------------------------------------------------------

    def program(self, backend: str | None = None) -> Program:
        """The graph made ready to run, once for each executor: see `run`.

        A graph that gets more nodes, inputs or outputs by its methods is made ready anew.
        """
        if backend is not None and not isinstance(backend, str):
            raise DTypeError(f"graph '{self.name}': backend is a name, not {backend!r}")
        found = self._programs.get(backend)
        if found is None:
            from ember_ml.graph.executors import make_program

            found = self._programs[backend] = make_program(self, backend)
        return found

    def run(self, feeds: Mapping[str, Any], backend: str | None = None) -> dict[str, Any]:
        """The outputs by name, for inputs by name.

        Without `backend`, or with "onnxruntime", ONNX Runtime computes and NumPy arrays come out;
        "numpy", "torch", "jax" and "mlx" compute by `ops`, and tensors of that backend come out.
        """
        return self.program(backend).run(feeds)

    def to_onnx(self) -> Any:
        """The graph as an onnx.ModelProto."""
        from ember_ml.graph.onnx_writing import to_onnx

        return to_onnx(self)

    def save(self, path: str | os.PathLike[str], *, external_data: bool | None = None) -> None:
        """Write it as an ONNX file; large weights go to a file beside it (`external_data`)."""
        from ember_ml.graph.onnx_writing import save

        save(self, _path(path, "Graph.save"), external_data=external_data)

    def summary(self) -> str:
        """What it takes, gives and consists of, as tables."""
        from ember_ml.graph.showing import summary

        return summary(self)

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draw it as an SVG file, for people to look at."""
        from ember_ml.graph.showing import draw

        draw(self, _path(path, "Graph.draw"))


def _path(path: str | os.PathLike[str], call: str) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise DTypeError(f"{call} takes the path of a file, not {type(path).__name__}") from None


def _shown(shape: Iterable[Dim] | None) -> str:
    if shape is None:
        return "[...]"
    return "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"
