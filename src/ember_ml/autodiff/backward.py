"""From a result back to the leaves: the walk that turns a record into gradients.

The walk goes from the latest node to the earlier ones, which a heap of their orders gives without
looking at the graph first. It has two ways. Mostly its gradients are native arrays, and rules that
can (rules/quick.py) run over kernels; others get tensors that record nothing. Where the walk is
itself to be differentiated, gradients are tensors, connected to the graph.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, Final

import numpy as np

from ember_ml.autodiff import tape
from ember_ml.autodiff.tape import Kept, KeptPart, Leaf, Node, Part, Rule
from ember_ml.backend import pairs, writes
from ember_ml.backend.contract import Spec
from ember_ml.backend.gradients import FREED
from ember_ml.backend.numpy.kernels import quiet
from ember_ml.errors import GradientError
from ember_ml.ops.dispatch import binary
from ember_ml.tensor.core import GradTensor, Tensor, fill, new

__all__ = ["Mold", "leaves_of", "pull_back", "reaches_beyond", "settle"]

_WRITES: Final = writes.STATE
_KEEPING: Final = (Kept, KeptPart)


class Mold:
    """What a rule sees of an operand that was not kept: all but its values."""

    __slots__ = ("_spec", "shape")

    def __init__(self, shape: tuple[int, ...], spec: Any) -> None:
        self.shape = shape
        self._spec = spec

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self._spec.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for side in self.shape:
            count *= side
        return count


def pull_back(
    seeds: Mapping[Node, Tensor],
    wanted: Iterable[Node] | None = None,
    *,
    retain: bool = False,
    create: bool = False,
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
    natives = {node: g.native for node, g in seeds.items()}
    specs = {node: g._spec for node, g in seeds.items()}
    return _apart(_walk_quietly(natives, specs, targets, retain, since))


def _apart(found: dict[Node, tuple[Any, Spec]]) -> dict[Node, Tensor]:
    """Gradients each in memory of its own, to be written to: rules hand on what they were given
    where nothing is to be done, and constants that are kept.
    """
    out: dict[Node, Tensor] = {}
    while found:
        node, (native, spec) = found.popitem()
        if type(native) is not spec.native_type:  # sums of numbers are NumPy's scalars
            native = spec.backend.settle_native(native, spec)
        if spec.backend.mutable and not (_references(native) == _ALONE and _is_whole(native)):
            native = spec.backend.copy(native)
        out[node] = fill(native, spec)
    return out


def _is_whole(native: Any) -> bool:
    """True for an array that has all of its memory, which nothing else uses."""
    if type(native) is not np.ndarray:
        return False
    base = native.base
    if base is None:
        return True
    alone = type(base) is np.ndarray and _references(base) == _ALONE + 1
    return alone and native.flags.writeable


def _references(held: Any) -> int:
    return sys.getrefcount(held) if _COUNTED else -1


def _measured() -> int:
    held = np.empty(0)
    return _references(held)


# Whether reference counts tell who holds an object; and how many an array has that one variable
# holds, as they are counted here.
_COUNTED: Final = getattr(sys, "_is_gil_enabled", lambda: True)()
_ALONE: Final = _measured() if _COUNTED else 0


# --- Over native arrays -----------------------------------------------------------------------


def _walk_natives(
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
    for node, g in seeds.items():
        if type(node) is Leaf:
            ends[node] = [g, specs[node]]
        else:
            pending[node.order] = [node, g, specs[node]]
            heappush(heap, -node.order)
    while heap:
        node, g, spec = pending.pop(-heappop(heap))
        kind = type(node)
        if (stops and (node in inner or node.order < since)) or (
            kind is not Node and kind in _KEEPING
        ):
            found[node] = g, spec
        if node.order < since:
            continue
        rule: Rule | None = node.rule
        if rule is None:
            if kind is not Part and kind is not KeptPart:
                raise GradientError(FREED)
            _gather(node, g, spec, pending, heap)
            continue
        parents = node.parents
        if node.facts[4] != _WRITES.serial:
            _require_unchanged(node)
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
                        end = ends.get(parent)
                        if end is None:
                            ends[parent] = [part, spec]
                        else:
                            end[0] = bound.add(end[0], part)
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
            for place, made in _parts(node, rule, _as_tensor(g, spec, result), needs, False):
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
        node, (g, spec) = ends.popitem()
        if targets is None or node in targets:
            found[node] = g, spec
    return found


# Slopes at edges are infinite or NaN, and NumPy would warn.
_walk_quietly: Final = quiet(_walk_natives)


def _as_tensor(g: Any, spec: Any, result: Any) -> Any:
    """The gradient of a result, or of several, as a rule over ops takes it."""
    if type(result) is not tuple:
        return _tensor(g, spec)
    return [None if one is None else _tensor(one, own) for one, own in zip(g, result, strict=True)]


def _tensor(g: Any, spec: Spec) -> Tensor:
    # NumPy's kernels give scalars where no axis is left, and settle them only behind ops.
    if spec.settles and type(g) is not spec.native_type:
        g = spec.backend.settle_native(g, spec)
    return fill(g, spec)


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
    parts = pending[order][1]
    have = parts[place]
    parts[place] = g if have is None else spec.bound.add(have, g)


# --- Over tensors -----------------------------------------------------------------------------


def _walk(
    seeds: Mapping[Node, Tensor], targets: frozenset[Node] | None, since: int
) -> dict[Node, Tensor]:
    """The same, recorded; nothing is freed."""
    first = -1 if targets is None else min([node.order for node in targets], default=0)
    heap: list[int] = []
    pending: dict[int, list[Any]] = {}

    def add(node: Node, g: Tensor) -> None:
        have = pending.get(node.order)
        if have is None:
            pending[node.order] = [node, g]
            heappush(heap, -node.order)
        else:
            have[1] = binary(pairs.ADD, have[1], g)

    for node, g in seeds.items():
        add(node, g)
    found: dict[Node, Tensor] = {}
    while heap:
        node, g = pending.pop(-heappop(heap))
        kind = type(node)
        before = node.order < since
        wanted = (kind is Leaf or before) if targets is None else node in targets
        if wanted or kind in _KEEPING:
            found[node] = g
        if node.order < since:
            continue
        rule = node.rule
        if rule is not None:
            if node.writes != _WRITES.serial:
                _require_unchanged(node)
            needs = [parent is not None and parent.order >= first for parent in node.parents]
            for place, part in _parts(node, rule, g, needs, True):
                add(node.parents[place], part)
        elif isinstance(node, Part):
            (whole,) = node.parents
            if whole is None or whole.rule is None:
                raise GradientError(FREED)
            if whole.order not in pending:
                pending[whole.order] = [whole, [None] * len(whole.result)]
                heappush(heap, -whole.order)
            parts = pending[whole.order][1]
            have = parts[node.options[0]]
            parts[node.options[0]] = g if have is None else binary(pairs.ADD, have, g)
        elif type(node) is not Leaf:
            raise GradientError(FREED)
    return found


# --- One rule ---------------------------------------------------------------------------------


def _parts(
    node: Node, rule: Rule, g: Any, needs: list[bool], create: bool
) -> list[tuple[int, Tensor]]:
    """What a rule over ops gives for the operands that need it."""
    if not any(needs):
        return []
    args = _arguments(node, create)
    if rule.joint is not None:
        told = {"create": create} if rule.told else {}
        parts = rule.joint(g, tuple(needs), *args, **told)
        return [
            (place, parts[place])
            for place, needed in enumerate(needs)
            if needed and parts[place] is not None
        ]
    found = []
    last = len(rule.pulls) - 1
    for place, needed in enumerate(needs):
        if not needed:
            continue
        pull = rule.pulls[min(place, last)]
        if pull is None:
            raise GradientError(f"ops.{rule.name} has no gradient for its operand {place}")
        part = pull(g, *args)
        if part is not None:
            found.append((place, part))
    return found


def _arguments(node: Node, create: bool) -> list[Any]:
    """Result, operands and options as a rule over ops takes them."""
    specs, options, out, result, _ = node.facts
    args: list[Any] = [None]
    if type(result) is tuple:
        args[0] = [_one_of(node, place, create) for place in range(len(result))]
    elif type(out) is tuple:
        args[0] = Mold(out, result)
    elif create:
        args[0] = _connected(out, result, node)
    else:
        args[0] = fill(out, result)
    for place, value in enumerate(node.kept):
        if type(value) is tuple:
            args.append(Mold(value, specs[place]))
        elif value is None:
            args.append(None)
        elif create and node.parents[place] is not None:
            args.append(_connected(value, specs[place], node.parents[place]))
        else:
            args.append(fill(value, specs[place]))
    args += options
    return args


def _one_of(node: Node, place: int, create: bool) -> Tensor | Mold:
    """One of several results as a rule takes it."""
    value, spec = node.out[place], node.result[place]
    if type(value) is tuple:
        return Mold(value, spec)
    if create and spec.inexact:
        return _connected(value, spec, Part(None, (node,), (), (), (place,), None, None))
    return fill(value, spec)


def _connected(native: Any, spec: Any, node: Any) -> Tensor:
    out = new(GradTensor)
    out.native = native
    out._spec = spec
    out._node = node
    return out


def _require_unchanged(node: Node) -> None:
    """Raise GradientError where what a rule is about to read was written to since it was kept."""
    since = node.writes
    out = node.out if type(node.result) is tuple else (node.out,)
    if any(writes.changed(array, since) for array in (*node.kept, *out)):
        name = node.rule.name if node.rule is not None else "an op"
        raise GradientError(
            f"a tensor that the gradient of ops.{name} needs was written to after it was used; "
            f"write to a .copy() instead"
        )


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
