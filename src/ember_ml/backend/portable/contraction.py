"""Contractions of Einstein's notation as matrix products, pair by pair.

`contract(arrays, terms, output)`: a term numbers the axes of an array, each number at most once;
numbers that the output lacks are summed over.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Final

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["KERNELS"]

Term = tuple[int, ...]


def contract(
    xp: Kernels, arrays: list[NativeArray], terms: tuple[Term, ...], output: Term
) -> NativeArray:
    sizes = {
        label: side
        for array, term in zip(arrays, terms, strict=True)
        for label, side in zip(term, array.shape, strict=True)
    }
    left = [
        _reduced(xp, array, term, {*output, *_others(terms, i)})
        for i, (array, term) in enumerate(zip(arrays, terms, strict=True))
    ]
    while len(left) > 1:
        i, j = _next_pair([term for _, term in left], output, sizes)
        second, first = left.pop(j), left.pop(i)
        kept = {*output, *(label for _, term in left for label in term)}
        left.append(_product(xp, first, second, kept, sizes))
    array, term = _reduced(xp, *left[0], set(output))
    return _ordered(xp, array, term, output)


def _others(terms: tuple[Term, ...], place: int) -> set[int]:
    return {label for i, term in enumerate(terms) if i != place for label in term}


def _next_pair(terms: list[Term], output: Term, sizes: dict[int, int]) -> tuple[int, int]:
    """The pair whose product is smallest beside what it replaces: greedy, and near the best."""
    if len(terms) == 2:
        return 0, 1

    def growth(pair: tuple[int, int]) -> int:
        i, j = pair
        kept = {
            *output,
            *(label for k, term in enumerate(terms) if k not in pair for label in term),
        }
        made = (set(terms[i]) | set(terms[j])) & kept
        return _size(made, sizes) - _size(set(terms[i]), sizes) - _size(set(terms[j]), sizes)

    return min(combinations(range(len(terms)), 2), key=growth)


def _size(labels: set[int], sizes: dict[int, int]) -> int:
    return math.prod(sizes[label] for label in labels)


def _reduced(
    xp: Kernels, array: NativeArray, term: Term, kept: set[int]
) -> tuple[NativeArray, Term]:
    """An array summed over the labels that nobody else has."""
    axes = tuple(i for i, label in enumerate(term) if label not in kept)
    if not axes:
        return array, term
    # Sums of small integers are 64 bits wide; the notation keeps the dtype.
    total = xp.cast(xp.sum(array, axis=axes, keepdims=False), xp.dtype(array))
    return total, tuple(label for label in term if label in kept)


def _ordered(xp: Kernels, array: NativeArray, term: Term, wanted: Term) -> NativeArray:
    if term == wanted:
        return array
    return xp.permute_dims(array, tuple(term.index(label) for label in wanted))


def _product(
    xp: Kernels,
    first: tuple[NativeArray, Term],
    second: tuple[NativeArray, Term],
    kept: set[int],
    sizes: dict[int, int],
) -> tuple[NativeArray, Term]:
    (a, term_a), (b, term_b) = first, second
    shared = [label for label in term_a if label in term_b]
    batch = tuple(label for label in shared if label in kept)
    summed = tuple(label for label in shared if label not in kept)
    only_a = tuple(label for label in term_a if label not in shared)
    only_b = tuple(label for label in term_b if label not in shared)

    def sides(*groups: Term) -> tuple[int, ...]:
        return tuple(sizes[label] for group in groups for label in group)

    a = _ordered(xp, a, term_a, (*batch, *only_a, *summed))
    b = _ordered(xp, b, term_b, (*batch, *summed, *only_b))
    out = (*batch, *only_a, *only_b)
    if not summed:
        a = xp.reshape(a, (*sides(batch, only_a), *(1,) * len(only_b)))
        b = xp.reshape(b, (*sides(batch), *(1,) * len(only_a), *sides(only_b)))
        return xp.multiply(a, b), out
    rows, inner, columns = (math.prod(sides(group)) for group in (only_a, summed, only_b))
    stack = sides(batch)
    product = xp.matmul(
        xp.reshape(a, (*stack, rows, inner)), xp.reshape(b, (*stack, inner, columns))
    )
    return xp.reshape(product, sides(out)), out


KERNELS: Final[dict[str, Kernel]] = {"contract": contract}
