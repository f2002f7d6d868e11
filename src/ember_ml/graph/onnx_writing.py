"""Graphs as ONNX models: protobuf messages and files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ember_ml.errors import BackendUnavailableError, DomainError, FormatError
from ember_ml.graph import types
from ember_ml.graph.core import Graph, Node, Value
from ember_ml.graph.onnx_types import write_type
from ember_ml.io.atomic import replacing
from ember_ml.io.content import write_array
from ember_ml.io.progress import ByteProgress

if TYPE_CHECKING:
    import onnx

__all__ = ["MODEL_KEYS", "Writer", "onnx_module", "pack4", "save", "to_onnx"]

# The newest that onnxruntime 1.20, our lower bound, reads; opset 21 belongs to it.
IR_VERSION: Final = 10

# What a model says of itself beside its metadata stands in `Graph.metadata` under these keys.
MODEL_KEYS: Final = {
    "onnx.producer_name": "producer_name",
    "onnx.producer_version": "producer_version",
    "onnx.domain": "domain",
    "onnx.model_version": "model_version",
    "onnx.doc_string": "doc_string",
}

# A protobuf message has at most 2 GB; weights of this many bytes go to a file of their own.
_AUTOMATIC: Final = 1_000_000_000
_MOST: Final = (1 << 31) - 1
_PAGE: Final = 4096  # where tensors begin in external data, so that each can be mapped by itself
_LARGE: Final = 1024  # bytes from which a tensor is external, or has no part in inference

Array = np.ndarray[Any, Any]
# What becomes of a large constant: fills the TensorProto of an array.
Placer = Callable[[Any, Array], None]


def onnx_module() -> Any:
    """The onnx package, or an error that tells how to get it."""
    try:
        import onnx
    except ImportError as error:
        raise BackendUnavailableError(
            "graphs are read and written by the onnx package, which is not installed; "
            "install it with: pip install 'ember-ml[onnx]'"
        ) from error
    return onnx


def to_onnx(graph: Graph) -> onnx.ModelProto:
    """A graph as a model."""
    return Writer(onnx_module()).model(graph)  # type: ignore[no-any-return]  # onnx is Any here: it is imported late


class Writer:
    """Writes one graph as a model.

    Names come out unique even where values share one, as in the branches of an `If`: inputs and
    outputs keep theirs, others get a number. `place` decides what happens to large constants;
    `weights_as_inputs` leaves their data out, for those who ask only for types; `with_types` adds
    the types of all values.
    """

    def __init__(
        self,
        onnx: Any,
        *,
        place: Placer | None = None,
        large: int = _LARGE,
        weights_as_inputs: bool = False,
        with_types: bool = False,
    ) -> None:
        self._onnx = onnx
        self._place = place
        self._large = large
        self._as_inputs = weights_as_inputs
        self._with_types = with_types
        self._names: dict[int, str] = {}
        self._taken: dict[str, int] = {}
        self._labels: dict[str, int] = {}
        self._kinds: dict[tuple[str, str], dict[str, int]] = {}
        self._kept: list[Value] = []  # an id names a value only while the value lives

    def name(self, value: Value) -> str:
        """The name under which a value is written."""
        found = self._names.get(id(value))
        if found is None:
            found = self._names[id(value)] = _unique(value.name, self._taken)
            self._kept.append(value)
        return found

    def model(self, graph: Graph) -> Any:
        """The graph as an onnx.ModelProto."""
        model = self._onnx.ModelProto()
        model.ir_version = IR_VERSION
        model.producer_name = "ember_ml"
        for domain, version in graph.opsets.items():
            model.opset_import.add(domain=domain, version=version)
        for key, text in graph.metadata.items():
            field = MODEL_KEYS.get(key)
            if field is None:
                model.metadata_props.add(key=key, value=text)
            elif field == "model_version":
                model.model_version = int(text)
            else:
                setattr(model, field, text)
        for value in (*graph.inputs, *graph.outputs):
            self.name(value)
        self._graph(graph, model.graph, graph.constants())
        return model

    def _graph(self, graph: Graph, proto: Any, constants: list[Value]) -> None:
        proto.name = graph.name or "graph"  # a graph without a name is no valid one
        for value in graph.inputs:
            self._info(proto.input.add(), value)
        for value in graph.outputs:
            self._info(proto.output.add(), value)
        for value in constants:
            self._constant(value, proto)
        for count, node in enumerate(graph.nodes):
            self._node(node, proto.node.add(), count)
        if self._with_types:
            shown = {id(value) for value in graph.outputs}
            for value in (x for node in graph.nodes for x in node.outputs):
                if value.dtype and value.name and id(value) not in shown:
                    self._info(proto.value_info.add(), value)

    def _info(self, proto: Any, value: Value) -> None:
        proto.name = self.name(value)
        write_type(proto.type, value.dtype, value.shape)

    def _constant(self, value: Value, proto: Any) -> None:
        assert value.data is not None
        if self._as_inputs and value.data.nbytes > self._large:
            self._info(proto.input.add(), value)
            return
        self._tensor(proto.initializer.add(), value.data, self.name(value), self._place)

    def _node(self, node: Node, proto: Any, count: int) -> None:
        proto.op_type = node.op
        if node.op == "Identity" and types.BITS.get(node.outputs[0].dtype) == 4:
            # ONNX Runtime has no Identity for them; a cast to their own type is one.
            proto.op_type = "Cast"
            number = types.number_of(node.outputs[0].dtype)
            proto.attribute.append(self._onnx.helper.make_attribute("to", number))
        proto.domain = node.domain
        proto.name = _unique(node.label or f"{node.op}_{count}", self._labels)
        inputs = ["" if x is None else self.name(x) for x in node.inputs]
        while inputs and not inputs[-1]:
            inputs.pop()  # ONNX Runtime has crashed on an input that is left out at the end
        proto.input.extend(inputs)
        proto.output.extend([self.name(x) for x in node.outputs])
        if node.source:
            proto.doc_string = node.source
        for key, value in node.attributes.items():
            self._attribute(node, proto.attribute.add(), key, value)

    def _attribute(self, node: Node, proto: Any, key: str, value: Any) -> None:
        kinds = self._onnx.AttributeProto
        if isinstance(value, Graph):
            proto.name, proto.type = key, kinds.GRAPH
            self._graph(value, proto.g, [])  # constants of a body stand in the outermost graph
            return
        if isinstance(value, np.ndarray):
            proto.name, proto.type = key, kinds.TENSOR
            self._tensor(proto.t, value, key, None)
            return
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, list | tuple) and value and isinstance(value[0], np.ndarray):
            proto.name, proto.type = key, kinds.TENSORS
            for one in value:
                self._tensor(proto.tensors.add(), one, key, None)
            return
        kind = self._kind(node, key)
        try:
            if kind == kinds.FLOAT and isinstance(value, int):
                value = float(value)  # people write 1 for 1.0
            elif kind == kinds.FLOATS and isinstance(value, list | tuple):
                value = [float(one) for one in value]
            # Of what an empty list is one, only the operator's own description tells.
            empty = isinstance(value, list | tuple) and not value
            made = self._onnx.helper.make_attribute(key, value, attr_type=kind if empty else None)
        except (TypeError, ValueError, AssertionError) as error:
            raise DomainError(
                f"{node.op} '{node.label}': its attribute '{key}' cannot be {value!r}: {error}"
            ) from None
        proto.CopyFrom(made)

    def _kind(self, node: Node, key: str) -> int | None:
        known = self._kinds.get((node.op, node.domain))
        if known is None:
            known = self._kinds[node.op, node.domain] = {}
            try:
                schema = self._onnx.defs.get_schema(node.op, domain=node.domain)
            except Exception:  # of onnx's own, where it does not know the operator
                schema = None
            for name, one in schema.attributes.items() if schema else ():
                known[name] = int(one.type.value)
        return known.get(key)

    def _tensor(self, proto: Any, array: Array, name: str, place: Placer | None) -> None:
        dtype = types.name_of(array.dtype)
        proto.name = name
        proto.data_type = types.number_of(dtype)
        proto.dims.extend(array.shape)
        if dtype == "string":
            proto.string_data.extend([str(text).encode() for text in array.flat])
            return
        stored = pack4(array) if types.BITS[dtype] < 8 else array
        if place is not None and stored.nbytes > self._large:
            place(proto, stored)
            return
        little = stored.astype(stored.dtype.newbyteorder("<"), copy=False)
        proto.raw_data = np.ascontiguousarray(little).tobytes()


def _unique(name: str, taken: dict[str, int]) -> str:
    """A name that nothing else has; "" stays what it is, an output that is left out.

    `taken` has the number last given to each: a million nodes may have one name.
    """
    if not name or name not in taken:
        taken[name] = 0
        return name
    count = taken[name] + 1
    while f"{name}_{count}" in taken:
        count += 1
    taken[name] = count
    taken[f"{name}_{count}"] = 0
    return f"{name}_{count}"


def pack4(array: Array) -> Array:
    """4-bit integers two to a byte, the first in the low half."""
    nibbles = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & 0xF
    if nibbles.size % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    return nibbles[0::2] | (nibbles[1::2] << 4)


# --- Files --------------------------------------------------------------------------------------


class _DataFile:
    """Where large weights go: one after another, each at the beginning of a page."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._arrays: list[tuple[int, Array]] = []
        self._end = 0

    def place(self, proto: Any, array: Array) -> None:
        """Note an array, and where it will be."""
        start = -(-self._end // _PAGE) * _PAGE
        self._arrays.append((start, array))
        self._end = start + array.nbytes
        proto.data_location = 1  # TensorProto.EXTERNAL
        for key, text in (
            ("location", self.name),
            ("offset", str(start)),
            ("length", str(array.nbytes)),
        ):
            proto.external_data.add(key=key, value=text)

    def write(self, path: Path) -> None:
        """Write all of them."""
        with ByteProgress(f"saving {path.name}", self._end) as progress, replacing(str(path)) as f:
            for start, array in self._arrays:
                f.seek(start)
                write_array(f, array, progress)


def save(graph: Graph, path: Path, *, external_data: bool | None = None) -> None:
    """Write a graph to a file, which appears whole or not at all.

    With `external_data`, tensors of more than 1 kB go to a file beside it, `<name>.onnx.data`;
    without it they go into the model, which can take 2 GB; None decides by their size.
    """
    if path.suffix != ".onnx":
        raise FormatError(f"graphs are saved as ONNX: give a path that ends in .onnx, not {path}")
    size = sum(value.data.nbytes for value in graph.constants() if value.data is not None)
    if external_data is None:
        external_data = size > _AUTOMATIC
    if not external_data and size > _MOST:
        raise DomainError(
            f"{path}: the weights take {size:,} bytes, and an ONNX file holds 2 GB; "
            "save with external_data=True"
        )
    old = _data_files(path)
    data = _DataFile(_data_name(path, old)) if external_data else None
    writer = Writer(onnx_module(), place=data.place if data else None, with_types=True)
    made = writer.model(graph).SerializeToString()
    if data:
        data.write(path.with_name(data.name))
    try:
        with replacing(str(path)) as file:
            file.write(made)
    except BaseException:
        if data:  # no model reads it
            path.with_name(data.name).unlink(missing_ok=True)
        raise
    if data:  # those of the model that was just replaced; maps of them stay valid
        for other in old:
            other.unlink(missing_ok=True)


def _data_files(path: Path) -> list[Path]:
    if not path.parent.is_dir():  # told by who writes there
        return []
    pattern = re.compile(re.escape(path.name) + r"\.data(-[0-9a-f]{8})?")
    return [x for x in path.parent.iterdir() if pattern.fullmatch(x.name)]


def _data_name(path: Path, old: list[Path]) -> str:
    """A name that no model has: until the new model is there, the old one needs its own data."""
    plain = f"{path.name}.data"
    return plain if path.with_name(plain) not in old else f"{plain}-{os.urandom(4).hex()}"
