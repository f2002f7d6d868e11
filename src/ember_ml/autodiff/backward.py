"""From a result back to the leaves: the walk that turns a record into gradients.

The walk goes from the latest node to the earlier ones, which a heap of their orders gives without
looking at the graph first. It has two ways. Mostly its gradients are native arrays, and rules that
can (rules/quick.py) run over kernels; others get tensors that record nothing. Where the walk is
itself to be differentiated, gradients are tensors, connected to the graph.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, Final

import numpy as np

from ember_ml.autodiff import tape
from ember_ml.autodiff.nodes import Leaf, Node, Part
from ember_ml.autodiff.pulls import parts, require_unchanged
from ember_ml.autodiff.walk import walk
from ember_ml.backend import pairs, writes
from ember_ml.backend.gradients import FREED
from ember_ml.backend.numpy.kernels import hush, unhush
from ember_ml.errors import GradientError
from ember_ml.ops.dispatch import binary
from ember_ml.tensor.core import Tensor

__all__ = ["leaves_of", "pull_back", "reaches_beyond", "settle"]

# Constants, which compiled code holds at hand.
_WRITES: Final = writes.STATE
_HUSH: Final[Any] = hush
_UNHUSH: Final[Any] = unhush


def pull_back(
    seeds: Any,
    wanted: Iterable[Node] | None = None,
    *,
    retain: Any = False,
    create: Any = False,
    since: int = -1,
) -> dict[Node, Tensor]:
    """The gradients of leaves, or of the `wanted` nodes, from those of some results.

    What the nodes kept is freed on the way unless it is to be retained. With `create`, the walk is
    itself recorded, so that its results can be differentiated. Nodes before `since` are left as
    they are: they count as leaves.
    """
    targets = None if wanted is None else frozenset(wanted)
    captured = tape.CAPTURED.get()
    if captured is not None:
        captured.require_inner(targets)
    if create:
        with np.errstate(all="ignore"):
            if tape.is_grad_enabled():
                return _walk(seeds, targets, since)
            with tape.set_grad_enabled(True):
                return _walk(seeds, targets, since)
    # Slopes at edges are infinite or NaN, and NumPy would warn.
    token = _HUSH()
    try:
        found: dict[Node, Tensor] = walk(seeds, targets, retain, since)
    finally:
        _UNHUSH(token)
    return found


# --- Over tensors -----------------------------------------------------------------------------


def _walk(
    seeds: Mapping[Node, Tensor], targets: frozenset[Node] | None, since: int
) -> dict[Node, Tensor]:
    """The same, recorded; nothing is freed."""
    first = -1 if targets is None else min([node.order for node in targets], default=0)
    heap: list[int] = []
    pending: dict[int, list[Any]] = {}

    for node, g in seeds.items():
        _add(node, g, pending, heap)
    found: dict[Node, Tensor] = {}
    while heap:
        node, g = pending.pop(-heappop(heap))
        kind = type(node)
        before = node.order < since
        wanted = (kind is Leaf or before) if targets is None else node in targets
        if wanted or node.keeps:
            found[node] = g
        if node.order < since or node.order < first:
            continue
        rule = node.rule
        if rule is not None:
            if node.writes != _WRITES.serial:
                require_unchanged(node)
            needs = [parent is not None and parent.order >= first for parent in node.parents]
            for place, part in parts(node, rule, g, needs, True):
                _add(node.parents[place], part, pending, heap)
        elif isinstance(node, Part):
            (whole,) = node.parents
            if whole is None or whole.rule is None:
                raise GradientError(FREED)
            if whole.order not in pending:
                pending[whole.order] = [whole, [None] * len(whole.result)]
                heappush(heap, -whole.order)
            beside = pending[whole.order][1]
            have = beside[node.options[0]]
            beside[node.options[0]] = g if have is None else binary(pairs.ADD, have, g)
        elif type(node) is not Leaf:
            raise GradientError(FREED)
    return found


def _add(node: Node, g: Tensor, pending: dict[int, list[Any]], heap: list[int]) -> None:
    """Put a gradient beside what a node has of it."""
    have = pending.get(node.order)
    if have is None:
        pending[node.order] = [node, g]
        heappush(heap, -node.order)
    else:
        have[1] = binary(pairs.ADD, have[1], g)


def settle(found: Iterable[Tensor]) -> None:
    """Compute gradients where an engine would put it off, so that what made them can go."""
    natives = [g.native for g in found]
    for g in found:
        g._spec.backend.gradients.settle(natives)
        break  # they are all of one backend


def leaves_of(nodes: Iterable[Node]) -> list[Leaf]:
    """The leaves that some results depend on."""
    stack = list(nodes)
    seen = set(stack)
    while stack:
        for parent in stack.pop().parents:
            if parent is not None and parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return sorted((n for n in seen if type(n) is Leaf), key=lambda n: n.order)


def reaches_beyond(nodes: Iterable[Node], first: int) -> bool:
    """True where results depend on a node that was there before the one of order `first`."""
    stack = list(nodes)
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node.order < first:
            return True
        for parent in node.parents:
            if parent is not None and parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return False
