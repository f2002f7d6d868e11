"""The graph of an ONNX model: names become values, bodies graphs, and calls of functions nodes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from ember_ml.errors import DTypeError, FormatError
from ember_ml.graph import types
from ember_ml.graph.core import OPSET, Graph, Node, Shape, Value
from ember_ml.graph.onnx_tensors import TensorReader
from ember_ml.graph.onnx_types import read_type
from ember_ml.graph.onnx_writing import MODEL_KEYS
from ember_ml.graph.text import plain

__all__ = ["NEWEST", "OLDEST", "ModelReader"]

# Older operators mean other things by the same names, and no executor knows all of them.
OLDEST: Final = 7
NEWEST: Final = 23

# Functions are put in place of their calls; a small file could ask for any number of nodes.
_MOST_INLINED: Final = 100_000
_DEEPEST: Final = 60
_MOST_INLINED_BYTES: Final = 1 << 28  # beside the size of the model itself
_NAMES_SHOWN: Final = 6
_LONGEST: Final = 800  # letters of a message
_NAME_KEPT: Final = 80  # letters of a call's name, which the names within its function begin with


# The attributes of a Constant, and the kinds that they are of (AttributeProto.AttributeType).
_CONSTANTS: Final = {
    "value": (4,),
    "sparse_value": (11,),
    "value_float": (1,),
    "value_int": (2,),
    "value_string": (3,),
    "value_floats": (6,),
    "value_ints": (7,),
    "value_strings": (8,),
}


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


class _Scope:
    """Values by name: those of a graph, and those of the graphs around it."""

    __slots__ = ("outer", "values")

    def __init__(self, outer: _Scope | None = None) -> None:
        self.outer = outer
        # None is an input that the caller of a function left out.
        self.values: dict[str, Value | None] = {}

    def find(self, name: str) -> Value | None:
        """The value of a name; KeyError where there is none."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise KeyError(name)


class _Function:
    """A function of the model that is being put in place: what its attributes are, and where."""

    __slots__ = ("attributes", "prefix", "stack")

    def __init__(self, attributes: dict[str, Any], prefix: str, stack: tuple[Any, ...]) -> None:
        self.attributes = attributes
        self.prefix = prefix
        self.stack = stack


_OUTSIDE: Final = _Function({}, "", ())


class ModelReader:
    """Makes a graph of a model; `what` begins every message."""

    def __init__(self, onnx: Any, model: Any, what: str, tensors: TensorReader) -> None:
        self._kinds = onnx.AttributeProto
        self._model = model
        self._what = what
        self._tensors = tensors
        self._opsets = self._imports()
        self._functions: dict[tuple[str, str, str], Any] = {}
        for function in model.functions:
            key = (_domain(function.domain), function.name, function.overload)
            if key in self._functions:
                raise self._error(f"two functions are called {function.name}")
            self._functions[key] = function
        self._inlined = 0
        self._sizes: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._bytes_left = _MOST_INLINED_BYTES + (model.ByteSize() if model.functions else 0)

    def _error(self, text: str) -> FormatError:
        return FormatError(f"{self._what}: {plain(text, _LONGEST)}")

    def _imports(self) -> dict[str, int]:
        made: dict[str, int] = {}
        for entry in self._model.opset_import:
            domain = _domain(entry.domain)
            if made.setdefault(domain, entry.version) != entry.version:
                raise self._error(f"two versions of the operators '{domain}' are asked for")
        version = made.setdefault("", OPSET)
        if not OLDEST <= version <= NEWEST:
            raise self._error(
                f"its operators are of opset {version}; {OLDEST} to {NEWEST} can be read. "
                "onnx.version_converter.convert_version brings a model to another one"
            )
        return made

    def main(self) -> Graph:
        """The graph of the model."""
        proto = self._model.graph
        graph = self._body(proto, None, _OUTSIDE, main=True)
        graph.opsets = self._opsets
        for key, field in MODEL_KEYS.items():
            said = getattr(self._model, field)
            if said:
                graph.metadata[key] = str(said)
        for entry in self._model.metadata_props:
            graph.metadata[entry.key] = entry.value
        graph._names.update(_names(graph))
        return graph

    # --- Graphs -----------------------------------------------------------------------------------

    def _body(
        self, proto: Any, outer: _Scope | None, function: _Function, *, main: bool = False
    ) -> Graph:
        graph = Graph(proto.name or "graph")
        scope = _Scope(outer)
        self._initializers(proto, scope, main)
        for info in proto.input:
            self._input(info, graph, scope, main)
        told = {info.name: self._type(info) for info in (*proto.value_info, *proto.output)}
        for node in self._ordered(proto, scope):
            self._node(node, graph, scope, told, function)
        self._outputs(proto, graph, scope, main)
        return graph

    def _initializers(self, proto: Any, scope: _Scope, main: bool) -> None:
        for index, tensor in enumerate(proto.initializer):
            array = self._tensors.array(tensor, "initializer", index if main else None)
            self._define(scope, tensor.name, _constant(tensor.name, array))
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            array = self._tensors.dense(sparse, "sparse initializer")
            self._define(scope, name, _constant(name, array))

    def _define(self, scope: _Scope, name: str, value: Value) -> None:
        if not name:
            raise self._error("an input or an initializer has no name")
        if name in scope.values:
            raise self._error(f"two values are called '{name}'")
        scope.values[name] = value

    def _input(self, info: Any, graph: Graph, scope: _Scope, main: bool) -> None:
        dtype, shape = self._type(info)
        given = scope.values.get(info.name)
        if given is not None and given.data is not None:
            # A default of an input, as old files have for every weight: it is a constant here.
            if (dtype and dtype != given.dtype) or not _fits(given.data.shape, shape):
                raise self._error(
                    f"input '{info.name}' is {dtype} {shape}, "
                    f"and its initializer {given.dtype} {given.shape}"
                )
            return
        if main and dtype not in types.NAMES.values():
            raise self._error(
                f"input '{info.name}' is of type {dtype or 'unknown'}; graphs take tensors"
            )
        value = Value(info.name, dtype, shape)
        self._define(scope, info.name, value)
        graph.inputs.append(value)

    def _type(self, info: Any) -> tuple[str, Shape | None]:
        try:
            return read_type(info.type)
        except (DTypeError, FormatError) as error:
            raise self._error(f"the type of '{info.name}': {error}") from None

    def _outputs(self, proto: Any, graph: Graph, scope: _Scope, main: bool) -> None:
        made = {id(x) for node in graph.nodes for x in node.outputs}
        given = {id(x) for x in graph.inputs} if main else set()
        listed: set[str] = set()
        for info in proto.output:
            if info.name in listed or not info.name:
                raise self._error(f"two outputs are called '{info.name}'")
            listed.add(info.name)
            value = self._read_value(info.name, scope, "an output of the graph")
            if id(value) not in made and id(value) not in given:
                # Constants and values of a graph around are no results of this one by themselves.
                inner = value
                value = Value(info.name, inner.dtype, inner.shape)
                if inner.data is not None:
                    inner.name = f"{info.name}_value"
                graph.nodes.append(Node("Identity", [inner], [value]))
            graph.outputs.append(value)

    def _read_value(self, name: str, scope: _Scope, who: str) -> Value:
        try:
            value = scope.find(name)
        except KeyError:
            value = None
        if value is None:
            raise self._error(f"{who} is '{name}', which nothing makes")
        return value

    # --- Order ------------------------------------------------------------------------------------

    def _ordered(self, proto: Any, scope: _Scope) -> Sequence[Any]:
        """The nodes in an order in which they can run; files need not have them so."""
        nodes = list(proto.node)
        makers: dict[str, int] = {}
        for index, node in enumerate(nodes):
            for name in node.output:
                if not name:
                    continue
                if name in makers or name in scope.values:
                    raise self._error(f"two values are called '{name}'; {_called(node)} makes one")
                makers[name] = index
        needs = [{makers[x] for x in _reads(node) if x in makers} for node in nodes]
        if all(max(before, default=-1) < index for index, before in enumerate(needs)):
            return nodes
        return [nodes[index] for index in self._sorted(nodes, needs)]

    def _sorted(self, nodes: list[Any], needs: list[set[int]]) -> list[int]:
        users: list[list[int]] = [[] for _ in nodes]
        for index, before in enumerate(needs):
            for one in before:
                users[one].append(index)
        waiting = [len(before) for before in needs]
        ready = [index for index, count in enumerate(waiting) if not count]
        order: list[int] = []
        while ready:
            index = heapq.heappop(ready)
            order.append(index)
            for user in users[index]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, user)
        if len(order) < len(nodes):
            stuck = [_called(node) for node, count in zip(nodes, waiting, strict=True) if count]
            shown = ", ".join(stuck[:_NAMES_SHOWN])
            raise self._error(f"the graph has a cycle: nodes wait for each other ({shown})")
        return order

    # --- Nodes ------------------------------------------------------------------------------------

    def _node(
        self,
        proto: Any,
        graph: Graph,
        scope: _Scope,
        told: dict[str, tuple[str, Shape | None]],
        function: _Function,
    ) -> None:
        domain = _domain(proto.domain)
        if not proto.op_type:
            raise self._error(f"a node '{proto.name}' has no operator")
        key = (domain, proto.op_type, proto.overload)
        attributes = self._given(proto, function)
        if key in self._functions:
            self._call(proto, key, attributes, graph, scope, told, function)
            return
        if proto.op_type == "Constant" and not domain:
            self._constant_node(proto, attributes, scope, function)
            return
        self._add_version(domain, proto)
        inputs = [None if not name else self._input_of(name, scope, proto) for name in proto.input]
        outputs = []
        for name in proto.output:
            value = Value(function.prefix + name if name else "", *told.get(name, ("", None)))
            if name:
                scope.values[name] = value
            outputs.append(value)
        found = {
            name: self._attribute(one, proto, scope, function) for name, one in attributes.items()
        }
        graph.nodes.append(
            Node(
                proto.op_type,
                inputs,
                outputs,
                found,
                domain=domain,
                label=function.prefix + proto.name if proto.name else "",
                source=proto.doc_string,
            )
        )

    def _add_version(self, domain: str, proto: Any) -> None:
        if domain not in self._opsets:
            raise self._error(
                f"{_called(proto)} is of the domain '{domain}', whose version is not said"
            )

    def _input_of(self, name: str, scope: _Scope, proto: Any) -> Value | None:
        try:
            return scope.find(name)
        except KeyError:
            text = f"{_called(proto)} reads '{name}', which nothing makes"
            raise self._error(text) from None

    def _given(self, proto: Any, function: _Function) -> dict[str, Any]:
        """The attributes of a node, references to those of a function resolved."""
        found: dict[str, Any] = {}
        for attribute in proto.attribute:
            if attribute.name in found or not attribute.name:
                raise self._error(f"{_called(proto)} has two attributes '{attribute.name}'")
            if not attribute.ref_attr_name:
                found[attribute.name] = attribute
            elif attribute.ref_attr_name in function.attributes:
                found[attribute.name] = function.attributes[attribute.ref_attr_name]
            elif not function.stack:
                raise self._error(
                    f"{_called(proto)}: '{attribute.name}' refers to an attribute of a function"
                )
        return found

    def _attribute(self, proto: Any, node: Any, scope: _Scope, function: _Function) -> Any:
        kinds = self._kinds
        where = f"{_called(node)}: attribute '{proto.name}'"
        kind = proto.type
        if kind == kinds.FLOAT:
            return float(proto.f)
        if kind == kinds.INT:
            return int(proto.i)
        if kind == kinds.STRING:
            return _text(proto.s)
        if kind == kinds.TENSOR:
            return self._tensors.array(proto.t, where)
        if kind == kinds.SPARSE_TENSOR:
            return self._tensors.dense(proto.sparse_tensor, where)
        if kind == kinds.GRAPH:
            return self._body(proto.g, scope, function)
        if kind == kinds.FLOATS:
            return [float(x) for x in proto.floats]
        if kind == kinds.INTS:
            return [int(x) for x in proto.ints]
        if kind == kinds.STRINGS:
            return [_text(x) for x in proto.strings]
        if kind == kinds.TENSORS:
            return [self._tensors.array(x, where) for x in proto.tensors]
        if kind == kinds.TYPE_PROTO:
            return proto.tp  # only ONNX Runtime has a use for it, and takes it as it is
        raise self._error(f"{where} is of a kind that is not supported ({kind})")

    def _constant_node(
        self, proto: Any, attributes: dict[str, Any], scope: _Scope, function: _Function
    ) -> None:
        if len(attributes) != 1 or len(proto.output) != 1 or not proto.output[0]:
            raise self._error(f"{_called(proto)} needs one value and one output")
        ((name, attribute),) = attributes.items()
        value = self._attribute(attribute, proto, scope, function)
        if attribute.type not in _CONSTANTS.get(name, ()):
            raise self._error(f"{_called(proto)} has the attribute '{name}', which is no value")
        array = value
        if not isinstance(value, np.ndarray):
            dtype = np.int64 if "int" in name else np.float32 if "float" in name else object
            array = np.asarray(value, dtype)
        made = proto.output[0]
        scope.values[made] = _constant(function.prefix + made, array)

    # --- Functions --------------------------------------------------------------------------------

    def _size_of(self, key: tuple[str, str, str]) -> tuple[int, int]:
        """The number of nodes in a function, those of bodies included, and its bytes."""
        found = self._sizes.get(key)
        if found is None:
            body = self._functions[key]
            found = self._sizes[key] = (_node_count(body), body.ByteSize())
        return found

    def _call(
        self,
        proto: Any,
        key: tuple[str, str, str],
        attributes: dict[str, Any],
        graph: Graph,
        scope: _Scope,
        told: dict[str, tuple[str, Shape | None]],
        caller: _Function,
    ) -> None:
        """Put the nodes of a function in place of its call."""
        body = self._functions[key]
        if key in caller.stack:
            raise self._error(f"the function {key[1]} calls itself")
        nodes, size = self._size_of(key)
        self._inlined += 1 + nodes
        self._bytes_left -= size
        few = self._inlined <= _MOST_INLINED and self._bytes_left >= 0
        if len(caller.stack) >= _DEEPEST or not few:
            raise self._error(f"its functions call each other too often ({key[1]})")
        if len(proto.input) > len(body.input) or len(proto.output) > len(body.output):
            raise self._error(f"{_called(proto)} has more inputs or outputs than its function")
        for entry in body.opset_import:
            domain = _domain(entry.domain)
            if self._opsets.setdefault(domain, entry.version) != entry.version:
                raise self._error(
                    f"the function {key[1]} uses version {entry.version} of the operators "
                    f"'{domain}', and the model version {self._opsets[domain]}"
                )
        given = {one.name: one for one in body.attribute_proto} | attributes
        called = (proto.name or proto.op_type)[:_NAME_KEPT]
        prefix = f"{called}_{self._inlined}/"
        inner = _Scope()
        for index, name in enumerate(body.input):
            there = index < len(proto.input) and proto.input[index]
            inner.values[name] = self._input_of(proto.input[index], scope, proto) if there else None
        before = len(graph.nodes)
        function = _Function(given, prefix, (*caller.stack, key))
        for node in self._ordered(body, inner):
            self._node(node, graph, inner, {}, function)
        own = {id(x) for node in graph.nodes[before:] for x in node.outputs}
        for name, result in zip(proto.output, body.output, strict=False):
            if not name:
                continue
            value = self._read_value(result, inner, f"an output of the function {key[1]}")
            if id(value) in own:
                own.discard(id(value))  # it has one name only
                value.name = caller.prefix + name
                value.dtype, value.shape = told.get(name, ("", None))
            else:
                same = Value(caller.prefix + name, *told.get(name, ("", None)))
                graph.nodes.append(Node("Identity", [value], [same]))
                value = same
            scope.values[name] = value


def _constant(name: str, array: np.ndarray[Any, Any]) -> Value:
    return Value(name, types.name_of(array.dtype), array.shape, array)


def _fits(shape: tuple[int, ...], declared: Shape | None) -> bool:
    return declared is None or (
        len(shape) == len(declared)
        and all(not isinstance(d, int) or d == s for s, d in zip(shape, declared, strict=True))
    )


def _called(node: Any) -> str:
    made = node.name or ", ".join(node.output[:2])
    return f"{node.op_type} '{made}'"


def _text(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content  # bytes are allowed, and kept


def _reads(node: Any) -> Iterator[str]:
    """The names that a node reads, in its bodies as well."""
    yield from (name for name in node.input if name)
    for body in _bodies_of(node):
        yield from _free(body)


def _bodies_of(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.type in (5, 10):  # GRAPH and GRAPHS
            yield from (attribute.g, *attribute.graphs)


def _free(body: Any) -> set[str]:
    """The names that a graph reads and does not make."""
    made = {x.name for x in body.input} | {x.name for x in body.initializer}
    made.update(x.values.name for x in body.sparse_initializer)
    made.update(name for node in body.node for name in node.output)
    read = {name for node in body.node for name in _reads(node)}
    read.update(x.name for x in body.output)
    return read - made


def _node_count(body: Any) -> int:
    return len(body.node) + sum(
        _node_count(inner) for node in body.node for inner in _bodies_of(node)
    )


def _names(graph: Graph) -> Iterator[str]:
    yield from (x.name for x in graph.inputs)
    for node in graph.nodes:
        yield from (x.name for x in node.inputs if x is not None)
        yield from (x.name for x in node.outputs)
        for body in node.subgraphs():
            yield from _names(body)
