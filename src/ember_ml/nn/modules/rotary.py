"""Rotary positions for attention: cosines and sines that are computed once, and read by place."""

from __future__ import annotations

from typing import Final

from ember_ml import dtypes, ops
from ember_ml.backend.contract import Spec
from ember_ml.ops import attention
from ember_ml.tensor.core import Tensor, fill

__all__ = ["Rotary", "rotary"]

Pair = tuple[Tensor, Tensor]


class Rotary:
    """The table of one base and size on one device. All layers of a model share it."""

    __slots__ = ("_base", "_dims", "_last", "_spec", "_table")

    def __init__(self, dims: int, base: float, spec: Spec) -> None:
        self._dims = dims
        self._base = base
        self._spec = spec
        self._table: Pair | None = None
        # Layers ask for the same places one after the other.
        self._last: tuple[tuple[int, int], Pair] | None = None

    def table(self, length: int) -> Pair:
        """Cosines and sines of the positions from 0 to `length`, or of more."""
        table = self._table
        if table is not None and table[0].shape[0] >= length:
            return table
        rows = 1 << max(length - 1, 63).bit_length()
        table = attention.tables(rows, self._dims, self._base, self._spec)
        # What is made while a function is traced exists only there, on some engines.
        if not self._is_traced(table):
            self._table = table
        return table

    def between(self, start: int, length: int) -> Pair:
        """Cosines and sines of `length` positions from `start` on."""
        if type(length) is not int:  # it varies, in a function that is exported
            return self._counted(start, length)
        last = self._last
        if last is not None and last[0] == (start, length):
            return last[1]
        cosine, sine = self.table(start + length)
        # A view that is read again and again is better as an array.
        found = cosine[start : start + length].copy(), sine[start : start + length].copy()
        if not self._is_traced(found):
            self._last = (start, length), found
        return found

    def _counted(self, start: int, length: int) -> Pair:
        """The same for a length that is known later; angles of float32 would drift."""
        wide = self._spec.with_dtype(dtypes.float64)
        places = fill(wide.backend.counted(length, wide), wide) + float(start)
        cosine, sine = attention.turns(places, self._dims, self._base, wide)
        made = attention.tables(1, self._dims, self._base, self._spec)[0].dtype
        return cosine.astype(made), sine.astype(made)

    def at(self, positions: Tensor, limit: int | None = None) -> Pair:
        """Cosines and sines of some positions, all below `limit` where it is given."""
        if limit is None:
            return attention.turns(positions, self._dims, self._base, self._spec)
        cosine, sine = self.table(limit)
        flat = ops.reshape(positions, (-1,))
        shape = (*positions.shape, self._dims // 2)
        return (
            ops.reshape(ops.take(cosine, flat, axis=0), shape),
            ops.reshape(ops.take(sine, flat, axis=0), shape),
        )

    def _is_traced(self, pair: Pair) -> bool:
        return self._spec.backend.is_traced(pair[0].native)


_KNOWN: Final[dict[tuple[int, float, Spec], Rotary]] = {}


def rotary(dims: int, base: float, spec: Spec) -> Rotary:
    """The table for tensors of a spec."""
    found = _KNOWN.get((dims, base, spec))
    if found is None:
        if len(_KNOWN) >= 16:  # models come and go; the oldest table is made again where it is used
            _KNOWN.pop(next(iter(_KNOWN)), None)
        found = _KNOWN[dims, base, spec] = Rotary(dims, base, spec)
    return found
