"""Where the weights lie in an ONNX file, so that they are mapped and not parsed.

A model is a protobuf message, and a parser copies every byte of it, weights included, into memory
of its own. Its layout is simple, though: a field is a number, a kind and a length. This walks over
the fields of model, graph and initialisers, and gives the model without the large `raw_data`, for
the parser, and the place of each `raw_data` in the file. Where anything is unusual it gives up,
and the parser gets the whole.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["Place", "without_weights"]

# Numbers of fields in onnx.proto: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data.
_GRAPH: Final = 7
_INITIALIZER: Final = 5
_RAW_DATA: Final = 9
_BYTES: Final = 2  # the kind of a field that says its length
_SIZES: Final = {1: 8, 5: 4}  # the kinds of a fixed length

_LARGE: Final = 4096  # smaller tensors are not worth a map
_MOST_FIELDS: Final = 1_000_000  # a graph of more has something else than weights in it


class Place(NamedTuple):
    """Where bytes lie in a file."""

    start: int
    length: int


class _Field(NamedTuple):
    number: int
    kind: int
    at: int
    start: int
    stop: int


class _UnusualError(Exception):
    """Nothing is wrong with it necessarily; the parser decides."""


def without_weights(content: mmap.mmap) -> tuple[bytes, dict[int, Place]] | None:
    """The model without the large weights of its initialisers, and the places of those by index."""
    try:
        graphs = [x for x in _fields(content, 0, len(content)) if x.number == _GRAPH]
        if len(graphs) != 1 or graphs[0].kind != _BYTES:
            return None  # the parser would merge several
        graph, places = _graph(content, graphs[0])
    except _UnusualError:
        return None
    if not places:
        return None
    (whole,) = graphs
    head = content[: whole.at]
    return b"".join([head, _header(_GRAPH, len(graph)), graph, content[whole.stop :]]), places


def _graph(content: mmap.mmap, graph: _Field) -> tuple[bytes, dict[int, Place]]:
    parts: list[bytes] = []
    places: dict[int, Place] = {}
    kept = graph.start
    index = -1
    for field in _fields(content, graph.start, graph.stop):
        if field.number != _INITIALIZER:
            continue
        index += 1
        if field.kind != _BYTES or field.stop - field.start < _LARGE:
            continue
        raw = [x for x in _fields(content, field.start, field.stop) if x.number == _RAW_DATA]
        if len(raw) != 1 or raw[0].kind != _BYTES or raw[0].stop - raw[0].start < _LARGE:
            continue
        (data,) = raw
        rest = content[field.start : data.at] + content[data.stop : field.stop]
        parts += [content[kept : field.at], _header(_INITIALIZER, len(rest)), rest]
        kept = field.stop
        places[index] = Place(data.start, data.stop - data.start)
    parts.append(content[kept : graph.stop])
    return b"".join(parts), places


def _fields(content: mmap.mmap, at: int, stop: int) -> Iterator[_Field]:
    count = 0
    while at < stop:
        key, start = _number(content, at, stop)
        kind = key & 7
        if kind == _BYTES:
            length, start = _number(content, start, stop)
            end = start + length
        elif kind == 0:
            end = _number(content, start, stop)[1]
        elif kind in _SIZES:
            end = start + _SIZES[kind]
        else:
            raise _UnusualError
        count += 1
        if end > stop or count > _MOST_FIELDS:
            raise _UnusualError
        yield _Field(key >> 3, kind, at, start, end)
        at = end


def _number(content: mmap.mmap, at: int, stop: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where the next thing begins."""
    found = shift = 0
    while at < stop and shift < 64:
        byte = content[at]
        found |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return found, at
        shift += 7
    raise _UnusualError


def _header(number: int, length: int) -> bytes:
    made = bytearray([number << 3 | _BYTES])
    while length >= 0x80:
        made.append(length & 0x7F | 0x80)
        length >>= 7
    made.append(length)
    return bytes(made)
