"""Einstein's notation: one parser for every backend, then the engine's contraction."""

from __future__ import annotations

import string
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ember_ml.autodiff.tape import recorded
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch, linearalg, manipulation
from ember_ml.ops.explain import explain
from ember_ml.ops.registry import NUMERIC, REGISTRY, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import TensorLike

__all__: list[str] = ["einsum"]

_LETTERS: Final = frozenset(string.ascii_letters)


class _Notation(NamedTuple):
    """The labels of each operand's axes and of the result's: letters, or numbers for `...`."""

    terms: list[list[Any]]
    output: list[Any]


class _Plan(NamedTuple):
    """What a notation asks of some shapes.

    Of each operand some pairs of axes are replaced by their diagonal, and the result is given
    another shape, or none; then its axes have the numbers of `terms`.
    """

    steps: list[tuple[list[tuple[int, int]], tuple[int, ...] | None]]
    terms: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]


@op(accepts=NUMERIC, lift="int", arity=2, standard=False)
def einsum(subscripts: Any, /, *operands: Any) -> Tensor:
    """Sums of products in Einstein's notation, with all that NumPy's einsum reads.

    A letter names an axis; a letter that the result lacks is summed over, a letter that stands
    twice in one operand takes its diagonal, `...` stands for any axes, which broadcast. Without
    "->" the result has the letters that stand once, in order. Operands may also be followed each
    by a list of integers instead of letters: `einsum(a, [0, 1], b, [1, 2])`.

    >>> einsum("ij,jk->ik", [[1, 2], [3, 4]], [[1, 0], [0, 1]]).tolist()
    [[1, 2], [3, 4]]
    >>> einsum("ii", [[1, 2], [3, 4]]).item()
    5
    """
    text, values = _as_text(subscripts, operands)
    if not values:
        raise DomainError(f"ops.einsum got {text!r} without an operand")
    home = dispatch.home_of("einsum", values)
    tensors = [convert.to_tensor(value, home) for value in values]
    plan = _plan(text, tuple(t.shape for t in tensors))
    simple = [_simplified(x, *steps) for x, steps in zip(tensors, plan.steps, strict=True)]
    return contracted(simple, plan.terms, plan.output)


def contracted(
    tensors: list[Tensor], terms: tuple[tuple[int, ...], ...], output: tuple[int, ...]
) -> Tensor:
    spec, natives, taped = dispatch.operands("einsum", *tensors)
    spec = spec.with_dtype(REGISTRY["einsum"].run_dtype(spec.dtype))
    backend = spec.backend
    arrays = [backend.cast(native, spec.dtype) for native in natives]
    try:
        native = backend.entry(spec, "contract")[0](arrays, terms, output)
    except Exception as error:
        raise explain("einsum", error, tuple(tensors)) from error
    if type(native) is not spec.native_type:
        native = backend.settle_native(native, spec)
    if spec.mutable and len(arrays) == 1 and backend.shares_memory(arrays[0], native):
        native = backend.copy(native)
    if taped:
        return recorded("contract", native, spec, taped, (terms, output))
    return fill(native, spec)


# --- The notation ---------------------------------------------------------------------------


def _as_text(subscripts: Any, operands: tuple[Any, ...]) -> tuple[str, tuple[TensorLike, ...]]:
    """The notation as text, and the operands."""
    if isinstance(subscripts, str):
        return subscripts.replace(" ", ""), operands
    given = (subscripts, *operands)
    pairs, last = divmod(len(given), 2)
    terms = [_letters(given[2 * i + 1]) for i in range(pairs)]
    text = ",".join(terms) + (f"->{_letters(given[-1])}" if last else "")
    return text, given[: 2 * pairs : 2]


def _letters(labels: Any) -> str:
    try:
        return "".join("..." if n is Ellipsis else string.ascii_letters[n] for n in labels)
    except (TypeError, IndexError):
        raise DomainError(
            f"ops.einsum got labels {labels!r}; they are integers from 0 to 51 or Ellipsis"
        ) from None


def _parse(text: str, shapes: list[tuple[int, ...]]) -> _Notation:
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(shapes):
        raise DomainError(
            f"ops.einsum got {len(shapes)} operands for the {len(inputs)} of {text!r}"
        )
    spans = [_hidden(text, term, shape) for term, shape in zip(inputs, shapes, strict=True)]
    hidden = max(spans)
    terms = [
        _labels(term, list(range(hidden - span, hidden)))
        for term, span in zip(inputs, spans, strict=True)
    ]
    if not arrow:
        letters = [label for term in terms for label in term if isinstance(label, str)]
        single = sorted(label for label in set(letters) if letters.count(label) == 1)
        return _Notation(terms, [*range(hidden), *single])
    _read(text, right)
    output = _labels(right, list(range(hidden)))
    if "..." not in right and hidden:
        raise DomainError(f"ops.einsum got {text!r}, whose result lacks the axes of '...'")
    known = {label for term in terms for label in term}
    for label in output:
        if label not in known:
            raise DomainError(f"ops.einsum got {text!r}, where no operand has {label!r}")
        if output.count(label) > 1:
            raise DomainError(f"ops.einsum got {text!r}, whose result has {label!r} twice")
    return _Notation(terms, output)


def _read(text: str, term: str) -> str:
    """The letters of a term; DomainError for what is no term."""
    letters = term.replace("...", "", 1)
    wrong = set(letters) - _LETTERS
    if wrong:
        raise DomainError(f"ops.einsum got {text!r}, where {sorted(wrong)[0]!r} means nothing")
    return letters


def _hidden(text: str, term: str, shape: tuple[int, ...]) -> int:
    """How many axes the `...` of a term stands for."""
    span = len(shape) - len(_read(text, term))
    if span < 0 or (span and "..." not in term):
        raise ShapeError(f"ops.einsum got {text!r}, whose {term!r} does not fit shape {shape}")
    return span


def _labels(term: str, hidden: list[int]) -> list[Any]:
    before, dots, after = term.partition("...")
    return [*before, *(hidden if dots else ()), *after]


@lru_cache(maxsize=512)
def _plan(text: str, shapes: tuple[tuple[int, ...], ...]) -> _Plan:
    notation = _parse(text, list(shapes))
    sizes = _sizes(text, shapes, notation)
    steps, terms = [], []
    for shape, term in zip(shapes, notation.terms, strict=True):
        pairs, sides, labels = _diagonals(text, list(shape), list(term))
        # Axes of one that other operands make longer need not be there.
        kept = [i for i, label in enumerate(labels) if sides[i] == sizes[label]]
        steps.append((pairs, None if len(kept) == len(labels) else tuple(sides[i] for i in kept)))
        terms.append([labels[i] for i in kept])
    numbers = {label: i for i, label in enumerate(sizes)}
    return _Plan(
        steps,
        tuple(tuple(numbers[label] for label in term) for term in terms),
        tuple(numbers[label] for label in notation.output),
    )


def _sizes(text: str, shapes: tuple[tuple[int, ...], ...], notation: _Notation) -> dict[Any, int]:
    """The length of each label; one broadcasts."""
    sizes: dict[Any, int] = {}
    for shape, term in zip(shapes, notation.terms, strict=True):
        for label, side in zip(term, shape, strict=True):
            known = sizes.setdefault(label, side)
            if known == 1:
                sizes[label] = side
            elif side not in (1, known):
                name = f"label {label!r}" if isinstance(label, str) else "an axis of '...'"
                raise ShapeError(
                    f"ops.einsum got {text!r} for shapes {', '.join(map(str, shapes))}, "
                    f"where {name} has lengths {known} and {side}"
                )
    return sizes


def _diagonals(
    text: str, sides: list[int], labels: list[Any]
) -> tuple[list[tuple[int, int]], list[int], list[Any]]:
    """The pairs of axes of one label, one after the other, and what is left; diagonals go last."""
    pairs = []
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if sides[first] != sides[second]:
                raise ShapeError(
                    f"ops.einsum got {text!r}, where {label!r} takes the diagonal of lengths "
                    f"{sides[first]} and {sides[second]}"
                )
            pairs.append((first, second))
            labels = [old for i, old in enumerate(labels) if i not in (first, second)] + [label]
            rest = [side for i, side in enumerate(sides) if i not in (first, second)]
            sides = [*rest, sides[first]]
    return pairs, sides, labels


def _simplified(x: Tensor, pairs: list[tuple[int, int]], shape: tuple[int, ...] | None) -> Tensor:
    for pair in pairs:
        x = linearalg.diagonal(manipulation.moveaxis(x, pair, (-2, -1)))
    return x if shape is None else manipulation.reshape(x, shape)
