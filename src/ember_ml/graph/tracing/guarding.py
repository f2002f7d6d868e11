"""Whether a graph holds for other sizes than those of its example, and for another call.

A function is traced again with other sizes, of several kinds. Where the graphs differ, a size went
into a constant, an attribute or the number of nodes: the graph would be wrong for other sizes.
Where they differ with the same sizes, a random number, a time or a counter did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from ember_ml.errors import EmberError, TraceError
from ember_ml.graph.core import Graph, Node, Value
from ember_ml.graph.tracing.lines import text_of
from ember_ml.graph.tracing.sizes import Size, names_in, valued
from ember_ml.graph.tracing.trace import Trace

__all__ = [
    "ENOUGH",
    "other_sizes",
    "require_own",
    "require_repeated",
    "require_results",
    "require_same",
    "telling_sizes",
]


# How many other traces a graph is compared with: some code asks whether a size is even, or fits
# a multiple, so one kind of size is not enough.
ENOUGH: Final = 2
# By how much sizes grow until something changes: each is a trace that computes so much more.
_LARGER: Final = (4, 16, 64, 256)
# How far results of graphs of another form may be apart, by the largest of them.
_ROUNDING: Final = 1e-2


def other_sizes(first: dict[str, int]) -> Iterator[dict[str, int]]:
    """Sizes for more traces, the most telling first; not every function takes all of them."""
    # No even size stays even, and no multiple of three a multiple: code may ask for either.
    yield {name: side + 1 + 6 * i for i, (name, side) in enumerate(first.items())}
    yield {name: side * (2 + i) for i, (name, side) in enumerate(first.items())}
    yield {name: side + 1 + i for i, (name, side) in enumerate(first.items())}
    yield {name: side * 2 for name, side in first.items()}
    fewer = {name: side - 1 for name, side in first.items()}
    for made in (fewer, {name: side // 2 for name, side in first.items()}):
        if min(made.values()) > 1:
            yield made


def telling_sizes(
    computed: Sequence[Size], first: dict[str, int], others: Sequence[dict[str, int]]
) -> dict[str, int] | None:
    """Sizes at which more changes of what a user's code computed of sizes; None where all did.

    `n // 8` is 0 for most examples, and `range(n // 8)` a loop that none of their traces has.
    """
    silent = [
        size
        for size in {size.polynomial: size for size in computed}.values()
        if len({_count(size, sizes) for sizes in (first, *others)}) == 1
    ]
    best, changed = None, 0
    for times in _LARGER:
        sizes = dict(first)
        for name in set().union(*(names_in(size.polynomial) for size in silent)):
            sizes[name] = first[name] * times + 1
        found = sum(_count(size, sizes) != _count(size, first) for size in silent)
        if found > changed:
            best, changed = sizes, found
    return best


def _count(size: Size, sizes: dict[str, int]) -> int:
    """How often a loop goes; nothing that a node tells is of interest here."""
    return max(valued(size, sizes) or 0, 0)


def require_own(trace: Trace) -> None:
    """Raise TraceError where a node takes what another graph, or the inside of a branch, has."""
    _require_known(trace, trace.graph, set())


def _require_known(trace: Trace, graph: Graph, outside: set[int]) -> None:
    known = outside | {id(value) for value in graph.inputs}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and value.data is None and id(value) not in known:
                where = text_of(trace.places.get(id(node)))
                raise TraceError(
                    f"em.export: a tensor of another export, kept or still under way, or from "
                    f"inside of a branch or loop, is no part of this graph{where}; give it as an "
                    f"argument, and return what is needed later"
                )
        for body in node.subgraphs():
            _require_known(trace, body, known)
        known.update(id(value) for value in node.outputs)


class _Pairs:
    """Which values of two graphs stand for each other."""

    def __init__(self) -> None:
        self._names: dict[int, int] = {}

    def join(self, a: Value, b: Value) -> None:
        self._names[id(a)] = id(b)

    def same(self, a: Value | None, b: Value | None) -> bool:
        if a is None or b is None:
            return a is b
        if a.data is None or b.data is None:
            return self._names.get(id(a)) == id(b)
        return _same_bytes(a.data, b.data)


def _same_bytes(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays have the same content, NaN and the signs of zeros included."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a is b or a.__array_interface__ == b.__array_interface__:  # weights, which may be large
        return True
    if a.dtype.hasobject:  # texts
        return bool(np.array_equal(a, b))
    left, right = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b))
    return bool(np.array_equal(left, right))


def _joined(first: Trace, second: Trace) -> _Pairs:
    pairs = _Pairs()
    for a, b in zip(first.graph.inputs, second.graph.inputs, strict=True):
        pairs.join(a, b)
    return pairs


def require_same(
    first: Trace, second: Trace, sizes: dict[str, int], others: dict[str, int]
) -> None:
    """Raise TraceError where two traces of a function differ by more than names."""
    found = _found(first, second)
    if found is None:
        return
    what, where = found
    changed = ", ".join(f"'{name}' {sizes[name]} and {others[name]}" for name in sizes)
    raise TraceError(
        f"em.export: the graph depends on a size that is to be dynamic: with {changed}, "
        f"{what}{where}; compute with x.shape (+, -, *, //) and hand it to ops, without int(), "
        f"float() and loops over it, or leave the axis out of dynamic_axes"
    )


def require_repeated(first: Trace, second: Trace) -> None:
    """Raise TraceError where a function does otherwise when it is called again."""
    found = _found(first, second)
    if found is None:
        return
    what, where = found
    raise TraceError(
        f"em.export: the function does otherwise each time it is called, and the graph would keep "
        f"what it did once: {what}{where}; draw random numbers by a key, as "
        f"ops.random.normal(shape, generator=key), and give what else changes (a time, a counter, "
        f"the next of a series) as an argument"
    )


def _found(first: Trace, second: Trace) -> tuple[str, str] | None:
    """In what two traces differ, and at which line; None where they are the same."""
    found = _difference(first.graph, second.graph, _joined(first, second))
    if found is None:
        return None
    nodes, what = found
    known = [trace.places.get(id(node)) for trace, node in zip((first, second), nodes, strict=True)]
    return what, text_of(known[0] or known[1])


def require_results(first: Trace, small: Trace, sizes: dict[str, int]) -> None:
    """Raise TraceError where results for small sizes are others than the graph gives.

    Some code goes another way where a size is one, or less than that of a window. It may do so as
    long as the results are the same: where the two graphs differ, both are run.
    """
    _require_shapes(first, small, sizes)
    if _difference(first.graph, small.graph, _joined(first, small)) is None:
        return
    if _loops(first.graph) or _loops(small.graph):  # which might not end for made-up values
        return
    try:
        found, wanted = (x.graph.run(small.examples, backend="numpy") for x in (first, small))
    except EmberError:  # an error at run time is not silent
        return
    for value, got, other in zip(first.graph.outputs, found.values(), wanted.values(), strict=True):
        if not _near(got.numpy(), other.numpy()):
            raise TraceError(
                f"em.export: the graph would not hold for all sizes: with {sizes} the output "
                f"'{value.name}' has other values; leave the axis out of dynamic_axes, or write "
                f"code that is the same for all sizes"
            )


def _near(got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> bool:
    """Whether values are the same but for rounding."""
    if wanted.dtype.kind in "biu":
        return bool(np.array_equal(got, wanted))
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    whole = np.isfinite(a) & np.isfinite(b)
    if (np.isfinite(a) != np.isfinite(b)).any():
        return False
    scale = np.abs(b[whole]).max(initial=0.0)
    return bool((np.abs(a[whole] - b[whole]) <= _ROUNDING * scale).all())


def _loops(graph: Graph) -> bool:
    return any(node.op == "Loop" or any(map(_loops, node.subgraphs())) for node in graph.nodes)


def _require_shapes(first: Trace, small: Trace, sizes: dict[str, int]) -> None:
    found = [tuple(valued(side, sizes) for side in shape) for shape in first.results]
    if any(None in shape for shape in found):  # only nodes can tell
        try:
            made = first.graph.run(small.examples, backend="numpy")
        except EmberError:  # an error at run time is not silent
            return
        found = [np.shape(array) for array in made.values()]
    for value, shape, other in zip(first.graph.outputs, found, small.results, strict=True):
        wanted = tuple(map(int, other))
        if shape != wanted:
            raise TraceError(
                f"em.export: the graph would not hold for all sizes: with {sizes} the output "
                f"'{value.name}' has the shape {wanted} and not {shape}; leave the axis out of "
                f"dynamic_axes, or write code that is the same for all sizes"
            )


Found = tuple[tuple[Node | None, Node | None], str]


def _difference(a: Graph, b: Graph, pairs: _Pairs) -> Found | None:
    for one, other in zip(a.nodes, b.nodes, strict=False):
        what = _compare(one, other, pairs)
        if what is not None:
            return (one, other), what
    if len(a.nodes) != len(b.nodes):
        count = min(len(a.nodes), len(b.nodes))
        more = [graph.nodes[count] if len(graph.nodes) > count else None for graph in (a, b)]
        return (more[0], more[1]), f"it has {len(a.nodes)} and {len(b.nodes)} nodes"
    if len(a.outputs) != len(b.outputs):
        return (None, None), f"it gives {len(a.outputs)} and {len(b.outputs)} results"
    for x, y in zip(a.outputs, b.outputs, strict=True):
        if x.shape != y.shape:
            what = f"the output '{x.name}' has the shapes {x.shape} and {y.shape}"
            return (None, None), what
    return None


def _compare(a: Node, b: Node, pairs: _Pairs) -> str | None:
    if a.op != b.op or len(a.inputs) != len(b.inputs):
        return f"there is {a.op} in one and {b.op} in the other"
    for one, other in zip(a.inputs, b.inputs, strict=True):
        if not pairs.same(one, other):
            if a.op == "Identity" and not a.source:
                name = a.outputs[0].name
                return f"the output '{name}' is a constant ({_said(one)} and {_said(other)})"
            return f"a constant of {a.op} differs ({_said(one)} and {_said(other)})"
    if set(a.attributes) != set(b.attributes):
        return f"the attributes of {a.op} differ"
    for name, value in a.attributes.items():
        other_value = b.attributes[name]
        if isinstance(value, Graph):
            if len(value.inputs) != len(other_value.inputs):
                return f"{a.op} takes {len(value.inputs)} and {len(other_value.inputs)} values"
            for x, y in zip(value.inputs, other_value.inputs, strict=True):
                pairs.join(x, y)
            found = _difference(value, other_value, pairs)
            if found is not None:
                return found[1]
        elif not _equal(value, other_value):
            return f"{a.op} has {name}={value!r} and {other_value!r}"
    for x, y in zip(a.outputs, b.outputs, strict=True):
        if x.shape != y.shape:
            return f"a result of {a.op} has the shapes {x.shape} and {y.shape}"
        pairs.join(x, y)
    return None


def _said(value: Value | None) -> str:
    if value is None or value.data is None:
        return "a result of another node"
    return repr(value.data.tolist())[:40] if value.data.size <= 8 else f"{value.data.shape}"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b) or bool(a != a and b != b)  # NaN
