"""The walk over native arrays, from the latest node to the leaves: see backward.py.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

import sys
from heapq import heappop, heappush
from typing import Any, Final

import numpy as np

from ember_ml.autodiff.nodes import Leaf, Node, Part
from ember_ml.autodiff.pulls import as_tensor, parts, require_unchanged
from ember_ml.backend import writes
from ember_ml.backend.gradients import FREED
from ember_ml.backend.spec import Spec
from ember_ml.errors import GradientError
from ember_ml.tensor.cell import fill

__all__ = ["walk"]

_WRITES: Final = writes.STATE
_ARRAY: Final[Any] = np.ndarray
_COUNT: Final[Any] = sys.getrefcount
_MANY: Final = sys.maxsize


def walk(
    seeds: dict[Node, Any], targets: frozenset[Node] | None, retain: Any, since: int
) -> dict[Node, Any]:
    first = -1
    inner: frozenset[Node] = frozenset()  # wanted, and no leaves
    if targets is not None:
        first = min([node.order for node in targets], default=0)
        inner = frozenset([node for node in targets if type(node) is not Leaf])
    stops = bool(inner) or since >= 0
    heap: list[int] = []
    # By the order of a node: the node, its gradient, and the spec of both.
    pending: dict[int, list[Any]] = {}
    # The same for leaves, which need no place in the heap: nothing comes after them.
    ends: dict[Node, list[Any]] = {}
    # One node that waits alone needs no place in it, either: most networks are chains.
    alone: Node | None = None
    alone_g: Any = None
    alone_spec: Spec | None = None
    kept: dict[Node, list[Any]] = {}
    g: Any
    part: Any
    for seed, value in seeds.items():  # some are views, whose arrays are made when asked for
        if type(seed) is Leaf:
            ends[seed] = [value.native, value._spec]
        else:
            pending[seed.order] = [seed, value.native, value._spec]
            heappush(heap, -seed.order)
    while True:
        if alone is not None and alone_spec is not None:
            node = alone
            spec = alone_spec
            g = alone_g
            alone = alone_g = None
        elif heap:
            its_node, g, its_spec = pending.pop(-heappop(heap))
            node = its_node
            spec = its_spec
        else:
            break
        if node.keeps or (stops and (node in inner or node.order < since)):
            kept[node] = [g, spec]
        if node.order < since or node.order < first:  # what is wanted came later
            continue
        rule = node.rule
        if rule is None:
            if not isinstance(node, Part):
                raise GradientError(FREED)
            _gather(node, g, spec, pending, heap)
            continue
        parents = node.parents
        if node.writes != _WRITES.serial:
            require_unchanged(node)
        pulls = rule.quick
        if pulls is not None and spec.floating:
            bound = spec.bound
            rest = -1
            for place in range(len(pulls)):  # by number, which is compiled to a count
                parent = parents[place]
                if parent is not None and parent.order >= first:
                    part = pulls[place](bound, g, node)
                    if part is NotImplemented:
                        rest = place
                        break
                    if type(parent) is Leaf:
                        have = ends.get(parent)
                        if have is None:
                            ends[parent] = [part, spec]
                        else:
                            have[0] = bound.add(have[0], part)
                    elif alone is parent:
                        alone_g = bound.add(alone_g, part)
                    elif alone is None and not heap:
                        alone = parent
                        alone_g = part
                        alone_spec = spec
                    else:
                        if alone is not None:
                            _wait(alone, alone_g, alone_spec, pending, heap)
                            alone = alone_g = None
                        have = pending.get(parent.order)
                        if have is None:
                            _wait(parent, part, spec, pending, heap)
                        else:
                            have[1] = bound.add(have[1], part)
        else:
            rest = 0
        if rest >= 0:
            if alone is not None:
                _wait(alone, alone_g, alone_spec, pending, heap)
                alone = alone_g = None
            in_specs, result = node.specs, node.result
            needs = [
                place >= rest and parent is not None and parent.order >= first
                for place, parent in enumerate(parents)
            ]
            for place, made in parts(node, rule, as_tensor(g, spec, result), needs, False):
                parent = parents[place]
                line = ends.get(parent) if type(parent) is Leaf else pending.get(parent.order)
                if line is not None:
                    line[-2] = line[-1].bound.add(line[-2], made.native)
                elif type(parent) is Leaf:
                    ends[parent] = [made.native, in_specs[place]]
                else:
                    _wait(parent, made.native, in_specs[place], pending, heap)
        if not retain and (rule.keeps_inputs or rule.keeps_output or rule.told):
            node.rule = None
            node.kept = node.facts = ()
    g = part = None
    found: dict[Node, Any] = {}
    while kept:
        node, (g, spec) = kept.popitem()
        found[node] = _apart(g, spec)
    while ends:
        node, (g, spec) = ends.popitem()
        if targets is None or node in targets:
            found[node] = _apart(g, spec)
    return found


def _wait(node: Node, g: Any, spec: Any, pending: dict[int, list[Any]], heap: list[int]) -> None:
    """Give a node a place among those whose gradients are not complete."""
    order = node.order
    pending[order] = [node, g, spec]
    heappush(heap, -order)


def _gather(node: Part, g: Any, spec: Spec, pending: dict[int, list[Any]], heap: list[int]) -> None:
    """Put the gradient of one of several results beside those of the others."""
    (whole,) = node.parents
    (place,) = node.options
    if whole is None or whole.rule is None:
        raise GradientError(FREED)
    if whole.order not in pending:
        _wait(whole, [None] * len(whole.result), spec, pending, heap)
    beside = pending[whole.order][1]
    have = beside[place]
    beside[place] = g if have is None else spec.bound.add(have, g)


# --- Memory of their own ------------------------------------------------------------------------


def _apart(native: Any, spec: Spec) -> Any:
    """A gradient in memory of its own, to be written to: rules hand on what they were given where
    nothing is to be done, and constants that are kept.
    """
    # An argument that is assigned to has a reference more where this is compiled: none is.
    if type(native) is not spec.native_type:  # sums of numbers are NumPy's scalars
        return fill(spec.backend.settle_native(native, spec), spec)
    if spec.mutable and not (_references(native) <= _ALONE and _is_whole(native)):
        return fill(spec.backend.copy(native), spec)
    return fill(native, spec)


def _is_whole(native: Any) -> bool:
    """True for an array that has all of its memory, which nothing else uses."""
    if type(native) is not _ARRAY:
        return False
    base = native.base
    if base is None:
        return True
    if type(base) is not _ARRAY or _references(base) > _ALONE_BASE:
        return False
    writable: bool = native.flags.writeable
    return writable


def _references(held: Any) -> int:
    """How many hold an object; more than any count where counts do not tell."""
    return _COUNT(held) if _COUNTED else _MANY


def _measured(native: Any, spec: Any) -> int:
    """What `_apart` counts for an array that its caller alone holds, in a variable."""
    return _references(native)


def _measured_base(native: Any) -> int:
    """What `_is_whole` counts for the memory of such an array."""
    base = native.base
    return _references(base)


def _alone() -> tuple[int, int]:
    lines: dict[int, list[Any]] = {0: [np.empty(2)[:1], None]}
    _, (held, none) = lines.popitem()
    return _measured(held, none), _measured_base(held)


_COUNTED: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()
_COUNTS: Final = _alone()
_ALONE: Final = _COUNTS[0] if _COUNTED else 0
_ALONE_BASE: Final = _COUNTS[1] if _COUNTED else 0
