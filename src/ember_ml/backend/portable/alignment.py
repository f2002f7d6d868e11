"""All alignments of labels with frames, step by step over settled kernels, or over `ops` itself.

This is the recursion of the CTC loss, one kernel for all of its steps:

    last, kept = alignments(first, heard, skips, live, wall, keep)

A row has a place for each label and for the blanks around them. `first` is `(batch, places)`, the
logarithms of the probabilities of beginning at a place; `heard` is `(steps, batch, places)`, those
of what stands there in the frames that follow. `skips` is `(batch, places)` and true where the
blank before a label may be left out, `live` is `(steps, batch, 1)` and true where a frame counts,
and `wall` is `(batch, 2)` and full of NEVER. `last` are the logarithms of the probabilities of all
ways to each place. With `keep`, a kernel may give in `kept` what its own gradient wants.

    first's, heard's = alignments_grad(first, heard, skips, live, wall, g, kept)
"""

from __future__ import annotations

from typing import Any, Final

from ember_ml.backend.contract import Kernel, NativeArray

__all__ = ["ARRAYS", "KERNELS", "NEVER", "SHIFT", "alignments", "arrived", "shifted"]

Array = NativeArray

ARRAYS: Final = {"alignments": 5, "alignments_grad": 6}
# The logarithm of a probability that counts as zero. Infinity itself would make NaN of gradients.
NEVER: Final = -1e30
# After how many frames rows are shifted, where that is a step of its own.
SHIFT: Final = 16


def alignments(
    xp: Any, first: Array, heard: Array, skips: Array, live: Array, wall: Array, keep: bool
) -> tuple[Array, None]:
    """Step by step; `xp` is a namespace of kernels, or `ops` for tensors."""
    current, total = first, wall[:, :1] * 0
    for t in range(heard.shape[0]):
        moved = xp.maximum(arrived(xp, current, skips, wall) + heard[t], wall[:, :1])
        current = xp.where(live[t], moved, current)
        if t % SHIFT == SHIFT - 1:
            current, total = shifted(xp, current, total)
    return current + total, None


def arrived(xp: Any, current: Array, skips: Array, wall: Array) -> Array:
    """What comes to each place: who stays, who was at the one before, and who skips one."""
    padded = xp.concat([wall, current], 1)
    one, two = padded[:, 1:-1], xp.where(skips, padded[:, :-2], wall[:, :1])
    largest = xp.maximum(xp.maximum(current, one), two)
    parts = xp.exp(current - largest) + xp.exp(one - largest) + xp.exp(two - largest)
    return largest + xp.log(parts)


def shifted(xp: Any, current: Array, total: Array) -> tuple[Array, Array]:
    """A row less its largest number, which goes to the total.

    Logarithms that grow with every frame would soon have no digits left for their differences.
    """
    most = xp.max(current, axis=1, keepdims=True)
    return current - most, total + most


KERNELS: Final[dict[str, Kernel]] = {"alignments": alignments}
