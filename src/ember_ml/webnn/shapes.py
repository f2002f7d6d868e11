"""Broadcasting, as the specification defines it."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["broadcast", "broadcasts_to"]


def broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """The shape to which two broadcast; None where they do not.

    >>> broadcast((5, 1), (4,)), broadcast((2,), (3,))
    ((5, 4), None)
    """
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b)
    if any(m != n and 1 not in (m, n) for m, n in zip(left, right, strict=True)):
        return None
    return tuple(max(m, n) for m, n in zip(left, right, strict=True))


def broadcasts_to(a: Sequence[int], target: Sequence[int]) -> bool:
    """Whether a shape can be stretched to another.

    >>> broadcasts_to((4,), (5, 4)), broadcasts_to((5, 4), (4,))
    (True, False)
    """
    return broadcast(a, target) == tuple(target)
