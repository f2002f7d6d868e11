"""The walk over native arrays, from the latest node to the leaves: see backward.py.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Final

from ember_ml.autodiff.nodes import Leaf, Node, Part
from ember_ml.autodiff.pulls import as_tensor, parts, require_unchanged
from ember_ml.backend import writes
from ember_ml.backend.gradients import FREED
from ember_ml.backend.spec import Spec
from ember_ml.errors import GradientError

__all__ = ["walk"]

_WRITES: Final = writes.STATE


def walk(
    seeds: dict[Node, Any],
    specs: dict[Node, Spec],
    targets: frozenset[Node] | None,
    retain: bool,
    since: int,
) -> dict[Node, tuple[Any, Spec]]:
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
    found: dict[Node, tuple[Any, Spec]] = {}
    g: Any
    part: Any
    for seed, g in seeds.items():
        if type(seed) is Leaf:
            ends[seed] = [g, specs[seed]]
        else:
            pending[seed.order] = [seed, g, specs[seed]]
            heappush(heap, -seed.order)
    while heap:
        one, g, own = pending.pop(-heappop(heap))
        node: Node = one
        spec: Spec = own
        if node.keeps or (stops and (node in inner or node.order < since)):
            found[node] = g, spec
        if node.order < since:
            continue
        rule = node.rule
        if rule is None:
            if not isinstance(node, Part):
                raise GradientError(FREED)
            _gather(node, g, spec, pending, heap)
            continue
        parents = node.parents
        if node.facts[4] != _WRITES.serial:
            require_unchanged(node)
        pulls = rule.quick
        if pulls is not None and spec.floating:
            bound = spec.bound
            rest = -1
            place = 0
            for pull in pulls:
                parent = parents[place]
                if parent is not None and parent.order >= first:
                    part = pull(bound, g, node)
                    if part is NotImplemented:
                        rest = place
                        break
                    if type(parent) is Leaf:
                        have = ends.get(parent)
                        if have is None:
                            ends[parent] = [part, spec]
                        else:
                            have[0] = bound.add(have[0], part)
                    else:
                        order = parent.order
                        have = pending.get(order)
                        if have is None:
                            pending[order] = [parent, part, spec]
                            heappush(heap, -order)
                        else:
                            have[1] = bound.add(have[1], part)
                place += 1  # noqa: SIM113 - enumerate costs more
        else:
            rest = 0
        if rest >= 0:
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
                    pending[parent.order] = [parent, made.native, in_specs[place]]
                    heappush(heap, -parent.order)
        if not retain and (rule.keeps_inputs or rule.keeps_output or rule.told):
            node.rule = None
            node.kept = node.facts = ()
    g = part = None
    while ends:
        leaf, (g, own) = ends.popitem()
        if targets is None or leaf in targets:
            found[leaf] = g, own
    return found


def _gather(node: Part, g: Any, spec: Spec, pending: dict[int, list[Any]], heap: list[int]) -> None:
    """Put the gradient of one of several results beside those of the others."""
    (whole,) = node.parents
    (place,) = node.options
    if whole is None or whole.rule is None:
        raise GradientError(FREED)
    order = whole.order
    if order not in pending:
        pending[order] = [whole, [None] * len(whole.result), spec]
        heappush(heap, -order)
    beside = pending[order][1]
    have = beside[place]
    beside[place] = g if have is None else spec.bound.add(have, g)
