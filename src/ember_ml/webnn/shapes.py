"""Broadcasting, as the specification defines it."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["broadcast", "broadcasts_blockwise", "broadcasts_to"]


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


def broadcasts_blockwise(a: Sequence[int], target: Sequence[int]) -> bool:
    """Whether each element of a shape can stand for a block of another.

    >>> broadcasts_blockwise((4, 5), (16, 10)), broadcasts_blockwise((4, 5), (9, 5))
    (True, False)
    """
    return len(a) == len(target) and all(n % m == 0 for m, n in zip(a, target, strict=True))
