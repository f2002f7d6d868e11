"""All alignments of labels with frames, in few calls of NumPy a frame, and their gradient.

In float64, whose digits are enough for logarithms that grow with every frame, at the same price.

See backend/portable/alignment.py for what goes in and comes out.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import Kernel
from ember_ml.backend.numpy.kernels import quiet
from ember_ml.backend.portable.alignment import NEVER

__all__ = ["OVERRIDES"]

Array = np.ndarray[Any, Any]


def alignments(
    first: Array, heard: Array, skips: Array, live: Array, wall: Array, keep: bool
) -> tuple[Array, Array | None]:
    rows = _rows(first, heard, skips, live)
    return rows[-1, :, 2:].astype(first.dtype), rows if keep else None


def _rows(first: Array, heard: Array, skips: Array, live: Array) -> Array:
    """The rows after all frames, each behind two places that are never reached."""
    steps, batch, width = heard.shape
    rows = np.full((steps + 1, batch, width + 2), NEVER)
    rows[0, :, 2:] = first
    barred = np.where(skips, 0.0, NEVER)  # where no blank may be left out
    ways = np.empty((3, batch, width))
    stay, one, two = ways
    most, total = np.empty((2, batch, width))
    never = np.array(NEVER)
    for t, frame in enumerate(heard):
        before, after = rows[t], rows[t + 1, :, 2:]
        stay[...] = before[:, 2:]
        one[...] = before[:, 1:-1]
        np.add(before[:, :-2], barred, two)
        np.maximum(stay, one, out=most)
        np.maximum(most, two, out=most)
        np.subtract(ways, most, ways)
        np.exp(ways, ways)
        np.add(stay, one, total)
        np.add(total, two, total)
        np.log(total, total)
        np.add(total, most, total)
        np.add(total, frame, total)
        np.maximum(total, never, out=after)
        # Frames end with one sequence after the other: most often all of them count.
        if not (counts := live[t]).all():
            np.copyto(after, before[:, 2:], where=~counts)
    return rows


def alignments_grad(
    first: Array, heard: Array, skips: Array, live: Array, wall: Array, g: Array, kept: Any
) -> tuple[Array, Array]:
    """The gradient goes back along each way in proportion to what came along it."""
    rows = _rows(first, heard, skips, live) if kept is None else kept
    before = rows[:-1]
    far = before[..., :-2] + np.where(skips, 0.0, NEVER)
    ways = np.stack([before[..., 2:], before[..., 1:-1], far])
    # Parts of what came to a place, from the places that it came from: they add up to 1, which
    # they would not if the sum were taken from the row after, whose last digits are rounded.
    ways -= np.maximum.reduce(ways)
    np.exp(ways, ways)
    ways /= np.add.reduce(ways)
    # Nothing came to those that are never reached, and a frame that does not count keeps all.
    ways *= live & (rows[1:, :, 2:] > NEVER / 2)
    stay, one, two = ways
    np.copyto(stay, 1, where=~live)
    found = np.empty_like(heard)
    g = g.astype(np.float64)
    for t in range(len(heard) - 1, -1, -1):
        found[t] = g
        back = g * stay[t]
        back[:, :-1] += (g * one[t])[:, 1:]
        back[:, :-2] += (g * two[t])[:, 2:]
        g = back
    found *= live
    return g.astype(heard.dtype), found


OVERRIDES: Final[dict[str, Kernel]] = {
    "alignments": quiet(alignments),
    "alignments_grad": quiet(alignments_grad),
}
