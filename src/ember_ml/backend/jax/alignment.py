"""All alignments of labels with frames on JAX: the frames are one compiled loop.

See backend/portable/alignment.py for what goes in and comes out.
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.jax.network import compiled
from ember_ml.backend.portable.alignment import ARRAYS, arrived, shifted

__all__ = ["OVERRIDES"]

Array = NativeArray


class _Namespace:
    """What a step calls."""

    exp = staticmethod(jnp.exp)
    log = staticmethod(jnp.log)
    max = staticmethod(jnp.max)
    maximum = staticmethod(jnp.maximum)
    where = staticmethod(jnp.where)
    concat = staticmethod(jnp.concatenate)


_XP: Final = _Namespace()


def alignments(
    first: Array, heard: Array, skips: Array, live: Array, wall: Array, keep: bool
) -> tuple[Array, None]:
    def move(state: tuple[Array, Array], frame: Any) -> tuple[tuple[Array, Array], None]:
        row, counts = frame
        current, total = state
        moved = jnp.maximum(arrived(_XP, current, skips, wall) + row, wall[:, :1])
        return shifted(_XP, jnp.where(counts, moved, current), total), None

    (last, total), _ = jax.lax.scan(move, (first, wall[:, :1] * 0), (heard, live))
    return last + total, None


def alignments_grad(
    first: Array, heard: Array, skips: Array, live: Array, wall: Array, g: Array, kept: Any
) -> tuple[Array, Array]:
    """JAX's own gradient of the loop, which is run once more."""
    _, pull = jax.vjp(lambda a, b: alignments(a, b, skips, live, wall, False)[0], first, heard)
    both: tuple[Array, Array] = pull(g)
    return both


OVERRIDES: Final[dict[str, Kernel]] = {
    kernel.__name__: compiled(kernel, ARRAYS[kernel.__name__])
    for kernel in (alignments, alignments_grad)
}
