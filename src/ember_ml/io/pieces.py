"""Tensors in pieces: those that ranks have parts of, and those cut so that each writes its share.

A shard stores a piece under a name of its own and tells, in its metadata, of what it is a piece;
the index has the pieces of each tensor in order:

    "ember_ml.pieces": {"model.w": {"shape": [6, 4], "axis": 0,
                                    "pieces": [["model.w@0", 0, 3], ["model.w@1", 3, 6]]}}

Where "axis" is null, pieces are elements in the order of memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from ember_ml import ops
from ember_ml.errors import FormatError, ShapeError
from ember_ml.io.parts import Array, Part, Range, take
from ember_ml.io.tree import parse
from ember_ml.tensor import Tensor

__all__ = [
    "PIECES_KEY",
    "Piece",
    "Share",
    "Whole",
    "gathered",
    "index_text",
    "join",
    "read_pieces",
    "share_out",
    "told",
]

PIECES_KEY: Final = "ember_ml.pieces"
# A tensor below this is never cut: it would have to be put together again, and is quickly written.
_LEAST_CUT: Final = 1 << 20


# --- Reading --------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A piece: its name among those that shards store, and where it is along the axis."""

    stored: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A tensor in pieces, which are in order and leave no holes."""

    shape: tuple[int, ...]
    axis: int | None
    pieces: tuple[Piece, ...]

    @property
    def length(self) -> int:
        """How far the ranges go."""
        return prod(self.shape) if self.axis is None else self.shape[self.axis]

    def piece_shape(self, piece: Piece) -> tuple[int, ...]:
        """The shape that a piece is stored with."""
        count = piece.stop - piece.start
        if self.axis is None:
            return (count,)
        return (*self.shape[: self.axis], count, *self.shape[self.axis + 1 :])

    def array(self, piece_array: Callable[[str], Array]) -> Array:
        """All of it, put together of its pieces; mapped, where one piece is all."""
        return self.part(Range(self.axis, 0, self.length), piece_array).reshape(self.shape)

    def part(self, wanted: Range, piece_array: Callable[[str], Array]) -> Array:
        """A range of it; only the pieces that overlap with it are read."""
        if wanted.axis != self.axis:
            # Rows of a tensor that is kept by elements are elements; for the rest, all is needed.
            inner = prod(self.shape[1:])
            if self.axis is None and wanted.axis == 0:
                flat = Range(None, wanted.start * inner, wanted.stop * inner)
                rows = wanted.stop - wanted.start
                return self.part(flat, piece_array).reshape(rows, *self.shape[1:])
            return take(self.array(piece_array), wanted)
        parts = [
            take(piece_array(one.stored), cut)
            for one in self.pieces
            if one.start < one.stop and (cut := _overlap(wanted, one)) is not None
        ]
        if len(parts) == 1:
            return parts[0]
        if not parts:  # nothing is asked for, or nothing is there: the dtype is that of any piece
            return take(piece_array(self.pieces[0].stored), Range(self.axis, 0, 0))
        return np.concatenate(parts, axis=0 if self.axis is None else self.axis)


def _overlap(wanted: Range, piece: Piece) -> Range | None:
    """What of a piece is in a range, counted from where the piece begins."""
    start, stop = max(wanted.start, piece.start), min(wanted.stop, piece.stop)
    if start >= stop:
        return None
    return Range(wanted.axis, start - piece.start, stop - piece.start)


def read_pieces(text: str, stored: Collection[str], what: str) -> dict[str, Whole]:
    """The tensors in pieces that an index tells of; FormatError where it is not sound."""
    found = parse(text, f"{what}: its pieces")
    if not isinstance(found, dict):
        raise FormatError(f"{what}: its pieces are no map from tensors")
    wholes: dict[str, Whole] = {}
    seen: set[str] = set()
    for name, value in found.items():
        match value:
            case {"shape": list() as shape, "axis": int() | None as axis, "pieces": list() as rows}:
                pieces = [_piece(row, f"{what}: tensor {name!r}") for row in rows]
            case _:
                raise FormatError(f"{what}: tensor {name!r} has no shape, axis and pieces")
        if not all(type(n) is int and n >= 0 for n in shape):
            raise FormatError(f"{what}: tensor {name!r} has the shape {shape}")
        try:
            wholes[name] = join(name, tuple(shape), axis, pieces)
        except ShapeError as error:
            raise FormatError(f"{what}: {error}") from None
        for one in pieces:
            if one.stored in seen or one.stored not in stored:
                raise FormatError(f"{what}: the piece {one.stored!r} is in no shard, or in two")
            seen.add(one.stored)
    return wholes


def _piece(row: Any, what: str) -> Piece:
    match row:
        case [str(stored), int(start), int(stop)] if type(start) is int and type(stop) is int:
            return Piece(stored, start, stop)
    raise FormatError(f"{what} has {str(row)[:60]!r} for a piece")


def join(name: str, shape: tuple[int, ...], axis: int | None, pieces: Iterable[Piece]) -> Whole:
    """A tensor of pieces; ShapeError where they leave holes or overlap."""
    if axis is not None and not 0 <= axis < len(shape):
        raise ShapeError(f"tensor {name!r} of shape {shape} is cut along axis {axis}")
    whole = Whole(shape, axis, tuple(sorted(pieces, key=lambda one: (one.start, one.stop))))
    end = 0
    for one in whole.pieces:
        if one.start != end or one.stop < one.start:
            raise ShapeError(
                f"the pieces of {name!r}, of shape {shape}, overlap or leave holes: one is from "
                f"{one.start} to {one.stop} along axis {axis}, where {end} is next"
            )
        end = one.stop
    if end != whole.length or not whole.pieces:
        raise ShapeError(
            f"the pieces of {name!r}, of shape {shape}, end at {end} of {whole.length} along "
            f"axis {axis}"
        )
    return whole


# --- Writing --------------------------------------------------------------------------------


class Share(NamedTuple):
    """What one rank writes: tensors by the names they are stored under, and which are pieces."""

    tensors: dict[str, Tensor]
    # By stored name: the tensor of which it is a piece, the shape of that as stored, and where.
    pieces: dict[str, tuple[str, tuple[int, ...], Range]]


def share_out(
    tensors: Mapping[str, Tensor], parts: Mapping[str, Part], rank: int, ranks: int
) -> Share:
    """What a rank writes of tensors that all ranks have, and of those that it has a part of.

    All ranks come to the same division. Tensors go, the largest first, to the rank that has the
    least; those that are more than half of a rank's share are cut to fill what the ranks lack.
    """
    share = Share({}, {})
    alike = {name: x for name, x in tensors.items() if name not in parts}
    fair = -(-sum(x.nbytes for x in alike.values()) // ranks)
    loads = [0] * ranks
    large: list[tuple[str, Tensor, int]] = []
    for name, x in sorted(alike.items(), key=lambda item: -item[1].nbytes):
        axis = _cut_axis(x, ranks) if x.nbytes > max(fair // 2, _LEAST_CUT) else None
        if axis is not None:
            large.append((name, x, axis))
            continue
        owner = loads.index(min(loads))
        loads[owner] += x.nbytes
        if owner == rank:
            share.tensors[name] = x
    # The large ones, one after another, are a line of bytes of which each rank has a stretch.
    gaps = [max(fair - load, 0) for load in loads]
    total = sum(x.nbytes for _, x, _ in large)
    ends = [total * sum(gaps[:i]) // max(sum(gaps), 1) for i in range(ranks + 1)]
    begin = 0
    for name, x, axis in large:
        row = x.nbytes // x.shape[axis]
        rows = [min(max((end - begin + row // 2) // row, 0), x.shape[axis]) for end in ends]
        rows[-1] = x.shape[axis]
        begin += x.nbytes
        start, stop = rows[rank], rows[rank + 1]
        if start < stop:
            cut = (slice(None),) * axis + (slice(start, stop),)
            where = Range(axis, start, stop)
            _add(share, name, x.detach()[cut], x.shape, where, rank, tensors)
    for name, part in parts.items():
        _add(share, name, part.x, part.shape, part.range, rank, tensors)
    return share


def _cut_axis(x: Tensor, ranks: int) -> int | None:
    return next((axis for axis, side in enumerate(x.shape) if side >= ranks), None)


def _add(
    share: Share,
    name: str,
    x: Tensor,
    shape: tuple[int, ...],
    where: Range,
    rank: int,
    taken: Mapping[str, object],
) -> None:
    stored = f"{name}@{rank}"
    while stored in taken or stored in share.tensors:
        stored += "~"
    if x.dtype == ops.complex128:  # stored as pairs of float64
        shape = (*shape, 2)
        if where.axis is None:
            x = ops.stack([ops.real(x), ops.imag(x)], axis=-1).reshape(-1)
            where = Range(None, 2 * where.start, 2 * where.stop)
    share.tensors[stored] = x
    share.pieces[stored] = (name, shape, where)


def told(share: Share) -> str:
    """The pieces of a share as its shard tells them."""
    rows = {stored: [name, shape, *where] for stored, (name, shape, where) in share.pieces.items()}
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)


def gathered(texts: Iterable[str], what: str) -> dict[str, Whole]:
    """The tensors in pieces, of what all shards tell; ShapeError where ranks do not fit."""
    found: dict[str, tuple[tuple[int, ...], int | None, list[Piece]]] = {}
    for text in texts:
        for stored, (name, shape, axis, start, stop) in parse(text, what).items():
            known = found.setdefault(name, (tuple(shape), axis, []))
            if known[:2] != (tuple(shape), axis):
                raise ShapeError(
                    f"ranks have parts of {name!r} with shape {known[0]} along axis {known[1]}, "
                    f"and with shape {tuple(shape)} along axis {axis}"
                )
            known[2].append(Piece(stored, start, stop))
    return {name: join(name, shape, axis, rows) for name, (shape, axis, rows) in found.items()}


def index_text(wholes: Mapping[str, Whole]) -> str:
    """The tensors in pieces as an index has them."""
    rows = {
        name: {"shape": one.shape, "axis": one.axis, "pieces": one.pieces}
        for name, one in wholes.items()
    }
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
