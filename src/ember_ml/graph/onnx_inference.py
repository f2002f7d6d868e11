"""Types that follow from others, by onnx's shape inference.

Inference is written in C++, for models that are as they should be: an index that is negative, a
type that is missing or a size near the largest number have ended the process, and with them the
program that opened the file. So it sees only nodes that fit the description of their operators,
and works on files in a process of its own, which takes some 50 ms.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from ember_ml.errors import DTypeError, FormatError
from ember_ml.graph.core import Graph, Value
from ember_ml.graph.onnx_types import read_type
from ember_ml.graph.onnx_writing import Writer, onnx_module

__all__ = ["learn_types"]

_MADE_UP: Final = re.compile(r"unk__\d+")  # what inference calls sizes that it cannot name
_PATIENCE: Final = 20.0  # seconds

# Only the compiled part of onnx is loaded: the package takes longer than the work.
_APART: Final = """
import importlib.util, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
except (ImportError, ValueError, OSError):
    pass
spec = importlib.util.spec_from_file_location("onnx_cpp2py_export", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
made = module.shape_inference.infer_shapes(sys.stdin.buffer.read(), False, False, False)
sys.stdout.buffer.write(made)
"""

# A domain that nobody describes: inference passes over its operators.
_UNKNOWN: Final = "ember_ml.unknown"
# Inference of these ends the process where the type of an input is not known.
_FRAGILE: Final = ("EyeLike",)


def learn_types(graph: Graph, *, trusted: bool) -> None:
    """Fill in types and shapes of values, as far as onnx's shape inference finds them.

    What is known already stays. Large constants take no part: only their types matter. Inference
    of a graph that is not `trusted` runs in a process of its own.
    """
    onnx = onnx_module()
    writer = Writer(onnx, weights_as_inputs=True)
    model = writer.model(graph)
    model.opset_import.add(domain=_UNKNOWN, version=1)
    _Screen(onnx, graph.opsets).graph(model.graph)
    found = _infer_here(onnx, model) if trusted else _infer_apart(onnx, model)
    if found is not None:
        _learn(graph, found.graph, writer)


def _infer_here(onnx: Any, model: Any) -> Any:
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:  # of onnx or of protobuf: types stay unknown, and executors say more
        return None


def _infer_apart(onnx: Any, model: Any) -> Any:
    """Infer in another process, which may crash or hang as it likes."""
    # In a program that has Python inside, another process would be another such program.
    if not Path(sys.executable or "").name.startswith(("python", "pypy")):
        return None
    from onnx import onnx_cpp2py_export

    command = [sys.executable, "-I", "-S", "-c", _APART, onnx_cpp2py_export.__file__]
    try:
        done = subprocess.run(
            command,
            input=model.SerializeToString(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=True,
        )
        return onnx.ModelProto.FromString(done.stdout)
    except Exception:  # whatever it was, types stay unknown
        return None


class _Screen:
    """Hides nodes from inference that are not as their operators demand.

    Inference reads inputs and attributes without asking whether they are there, and has ended the
    process on some that were not. Its `data_prop` is off: that counts to the length of a vector.
    """

    def __init__(self, onnx: Any, opsets: dict[str, int]) -> None:
        self._defs = onnx.defs
        self._version = opsets.get("", 0)
        self._schemas: dict[str, Any] = {}

    def graph(self, proto: Any) -> None:
        """Hide the unsound nodes of a graph and of its bodies."""
        for node in proto.node:
            if node.domain or not self._sound(node):
                node.domain = _UNKNOWN
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    self.graph(attribute.g)

    def _sound(self, node: Any) -> bool:
        if node.op_type not in self._schemas:
            try:
                made = self._defs.get_schema(node.op_type, self._version, "")
            except Exception:  # of onnx's own: there is no such operator
                made = None
            self._schemas[node.op_type] = made
        schema = self._schemas[node.op_type]
        if node.op_type in _FRAGILE or schema is None or len(node.output) > schema.max_output:
            return False
        if not schema.min_input <= len(node.input) <= schema.max_input:
            return False
        single = self._defs.OpSchema.FormalParameterOption.Single
        for name, formal in zip(node.input, schema.inputs, strict=False):
            if not name and formal.option == single:
                return False
        given = {x.name: x.type for x in node.attribute}
        return all(
            key in schema.attributes and int(schema.attributes[key].type.value) == kind
            for key, kind in given.items()
        ) and all(key in given for key, one in schema.attributes.items() if one.required)


def _learn(graph: Graph, proto: Any, writer: Any) -> None:
    told = {info.name: info.type for info in (*proto.value_info, *proto.output)}
    for node, written in zip(graph.nodes, proto.node, strict=True):
        for value in node.outputs:
            given = told.get(writer.name(value))
            if given is not None:
                _complete(value, given)
        for attribute in written.attribute:
            body = node.attributes.get(attribute.name)
            if isinstance(body, Graph):
                _learn(body, attribute.g, writer)


def _complete(value: Value, given: Any) -> None:
    try:
        dtype, shape = read_type(given)
    except (DTypeError, FormatError):
        return
    if not value.dtype:
        value.dtype = dtype
    if dtype != value.dtype or shape is None:
        return
    named = tuple(None if isinstance(d, str) and _MADE_UP.fullmatch(d) else d for d in shape)
    if value.shape is None:
        value.shape = named
    elif len(value.shape) == len(named):
        value.shape = tuple(
            new if old is None else old for old, new in zip(value.shape, named, strict=True)
        )
