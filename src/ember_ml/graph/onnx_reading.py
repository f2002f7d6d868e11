"""ONNX files as graphs.

Files are not trusted: whatever is wrong with one is a FormatError that names the file and what it
is, nothing outside of the model's folder is read, and the work is bounded by the file's size.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

from ember_ml.errors import DomainError, DTypeError, FormatError
from ember_ml.graph.core import Graph
from ember_ml.graph.onnx_graphs import ModelReader
from ember_ml.graph.onnx_inference import learn_types
from ember_ml.graph.onnx_layout import Place, without_weights
from ember_ml.graph.onnx_tensors import TensorReader
from ember_ml.graph.onnx_writing import onnx_module
from ember_ml.io.content import Content

__all__ = ["load_onnx"]

_MESSAGE = "the model cannot be read"


def load_onnx(source: str | os.PathLike[str] | bytes | Any) -> Graph:
    """The graph of an ONNX file, of its bytes or of an onnx.ModelProto.

    Weights are mapped, not read, where the file allows. Functions are put in place of their calls,
    `Constant` nodes and inputs with a default become constants, and sizes keep their names.

    >>> import onnx.parser
    >>> text = '<ir_version: 9, opset_import: ["": 17]> g (float[n] x) => (float[n] y) {y = Neg(x)}'
    >>> graph = em.load_onnx(onnx.parser.parse_model(text))
    >>> graph
    <Graph 'g': 1 nodes, (x: float32[n]) -> (y: float32[n])>
    """
    onnx = onnx_module()
    if isinstance(source, onnx.ModelProto):
        # Who has the message has made it, or has parsed it and knows what it is.
        return _read(onnx, source, _MESSAGE, TensorReader(_MESSAGE, None), trusted=True)
    if isinstance(source, bytes | bytearray | memoryview):
        model = _parsed(onnx, bytes(source), _MESSAGE)
        return _read(onnx, model, _MESSAGE, TensorReader(_MESSAGE, None))
    try:
        path = Path(source)
    except TypeError:
        raise DTypeError(
            "em.load_onnx takes a path, the bytes of a file or an onnx.ModelProto, "
            f"not {type(source).__name__}"
        ) from None
    what = f"'{path}' cannot be read as an ONNX model"
    model, tensors = _open(onnx, path, what)
    try:
        return _read(onnx, model, what, tensors)
    finally:
        tensors.close()


def _open(onnx: Any, path: Path, what: str) -> tuple[Any, TensorReader]:
    with Content(str(path), mmap=False) as content:
        if not content.size:
            raise FormatError(f"{what}: the file is empty")
        found: tuple[bytes, dict[int, Place]] | None = None
        mapped: mmap.mmap | None = None
        try:
            mapped = mmap.mmap(content.fileno(), content.size, access=mmap.ACCESS_READ)
            found = without_weights(mapped)
        except (OSError, ValueError):  # a file system without maps; a file that became shorter
            mapped = None
        if found is None:
            found = (mapped[:] if mapped is not None else content.bytes(0, content.size), {})
    model = _parsed(onnx, found[0], what)
    return model, TensorReader(what, path.parent, mapped, found[1])


def _parsed(onnx: Any, content: bytes, what: str) -> Any:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # DecodeError of protobuf, which publishes no types
        raise FormatError(
            f"{what}: it is cut off, nested too deeply or no ONNX at all ({error})"
        ) from None
    return model


def _is_text(message: Any) -> bool:
    """Whether all strings are ones: the parser gives bytes where they are no UTF-8."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            if not (type(value) is str or all(type(x) is str for x in value)):
                return False
        elif field.type == field.TYPE_MESSAGE:
            single = hasattr(value, "ListFields")
            if not all(map(_is_text, (value,) if single else value)):
                return False
    return True


def _read(
    onnx: Any, model: Any, what: str, tensors: TensorReader, *, trusted: bool = False
) -> Graph:
    if not _is_text(model):
        raise FormatError(f"{what}: a name in it is no UTF-8")
    if not model.HasField("graph") or not model.opset_import:
        raise FormatError(f"{what}: it has no graph, or does not say which operators it uses")
    graph = ModelReader(onnx, model, what, tensors).main()
    try:
        learn_types(graph, trusted=trusted)
    except DomainError as error:  # an attribute that no operator can have
        raise FormatError(f"{what}: {error}") from None
    return graph
