"""From a result back to the leaves: the walk that turns a record into gradients."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

import numpy as np

from ember_ml.autodiff import tape
from ember_ml.autodiff.tape import Kept, KeptPart, Leaf, Node, Part
from ember_ml.backend import writes
from ember_ml.backend.gradients import FREED
from ember_ml.errors import GradientError
from ember_ml.ops.dispatch import binary
from ember_ml.tensor.core import GradTensor, Tensor, fill

__all__ = ["Mold", "leaves_of", "pull_back"]

_BY_ORDER: Final = attrgetter("order")


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
) -> dict[Node, Tensor]:
    """The gradients of leaves, or of the `wanted` nodes, from those of some results.

    What the nodes kept is freed on the way unless it is to be retained. With `create`, the walk is
    itself recorded, so that its results can be differentiated.
    """
    retain = retain or create
    targets = None if wanted is None else frozenset(wanted)
    nodes = _reachable(seeds, targets)
    grads: dict[Node, Any] = dict(seeds)
    found: dict[Node, Tensor] = {}
    with tape.set_grad_enabled(create):
        while nodes:
            node = nodes.pop()
            g = grads.pop(node, None)
            if g is None:
                continue
            kind = type(node)
            if targets is None:
                if kind is Leaf:
                    found[node] = g
                    continue
            elif node in targets:
                found[node] = g
            if kind is Kept or kind is KeptPart:
                found[node] = g
            if node.parents:
                _step(node, g, grads, retain, create)
    g = None
    return found if create else _apart(found)


def _apart(found: dict[Node, Tensor]) -> dict[Node, Tensor]:
    """Gradients each in memory of its own, to be written to: rules hand on what they were given
    where nothing is to be done, and kept constants too.
    """
    out: dict[Node, Tensor] = {}
    while found:
        node, g = found.popitem()
        native, spec = g.native, g._spec
        del g  # else it would count
        if spec.backend.mutable and not (_references(native) == _ALONE and _is_whole(native)):
            native = spec.backend.copy(native)
        out[node] = fill(native, spec)
    return out


def _is_whole(native: Any) -> bool:
    """True for an array that has all of its memory, which nothing else uses."""
    if type(native) is not np.ndarray or not native.flags.writeable:
        return False
    base = native.base
    return base is None or (type(base) is np.ndarray and _references(base) == _ALONE + 1)


def _references(held: Any) -> int:
    return sys.getrefcount(held) if _COUNTED else -1


def _measured() -> int:
    held = np.empty(0)
    return _references(held)


_COUNTED: Final = getattr(sys, "_is_gil_enabled", lambda: True)()
# How many references an array has that one variable holds, as they are counted here.
_ALONE: Final = _measured() if _COUNTED else 0


def _reachable(seeds: Iterable[Node], targets: frozenset[Node] | None) -> list[Node]:
    """All nodes on ways from the seeds, the latest at the end."""
    first = -1 if targets is None else min(map(_BY_ORDER, targets), default=0)
    stack = list(seeds)
    seen = set(stack)
    while stack:
        for parent in stack.pop().parents:
            if parent is not None and parent not in seen and parent.order >= first:
                seen.add(parent)
                stack.append(parent)
    nodes = list(seen)
    nodes.sort(key=_BY_ORDER)
    return nodes


def _step(node: Node, g: Any, grads: dict[Node, Any], retain: bool, create: bool) -> None:
    """Hand the gradient of one result on to those it was made of."""
    if isinstance(node, Part):
        _gather(node, g, grads)
        return
    rule = node.rule
    if rule is None:
        raise GradientError(FREED)
    args = _arguments(node, create)
    parents = node.parents
    if rule.joint is None:
        parts = None
    else:
        needs = tuple([parent is not None for parent in parents])
        parts = rule.joint(g, needs, *args)
    for place, parent in enumerate(parents):
        if parent is None:
            continue
        if parts is not None:
            part: Any = parts[place]
        else:
            pull = rule.pulls[min(place, len(rule.pulls) - 1)]
            if pull is None:
                raise GradientError(f"ops.{rule.name} has no gradient for its operand {place}")
            part = pull(g, *args)
        if part is None:
            continue
        have = grads.get(parent)
        grads[parent] = part if have is None else binary("add", have, part)
    if not retain and (rule.keeps_inputs or rule.keeps_output):
        node.rule = None
        node.kept, node.out = (), None


def _gather(node: Part, g: Tensor, grads: dict[Node, Any]) -> None:
    """The gradient of one of several results, beside those of the others."""
    (whole,) = node.parents
    (place,) = node.options
    if whole is None or whole.rule is None:
        raise GradientError(FREED)
    parts: list[Any] | None = grads.get(whole)
    if parts is None:
        parts = [None] * len(whole.result)
        grads[whole] = parts
    have = parts[place]
    parts[place] = g if have is None else binary("add", have, g)


def _arguments(node: Node, create: bool) -> list[Any]:
    """Result, operands and options as a rule takes them."""
    since = node.writes
    if since != writes.STATE.serial:
        _require_unchanged(node, since)
    kept, specs, parents = node.kept, node.specs, node.parents
    args: list[Any] = [None]
    result, out = node.result, node.out
    if type(result) is tuple:
        args[0] = [_one_of(node, place, create) for place in range(len(result))]
    elif type(out) is tuple:
        args[0] = Mold(out, result)
    elif create:
        args[0] = _connected(out, result, node)
    else:
        args[0] = fill(out, result)
    for place, value in enumerate(kept):
        if type(value) is tuple:
            args.append(Mold(value, specs[place]))
        elif value is None:
            args.append(None)
        elif create and parents[place] is not None:
            args.append(_connected(value, specs[place], parents[place]))
        else:
            args.append(fill(value, specs[place]))
    args += node.options
    return args


def _one_of(node: Node, place: int, create: bool) -> Tensor | Mold:
    """One of several results as a rule takes it."""
    value, spec = node.out[place], node.result[place]
    if type(value) is tuple:
        return Mold(value, spec)
    if create and spec.dtype.is_inexact:
        return _connected(value, spec, Part(None, (node,), (), (), (place,), None, None))
    return fill(value, spec)


def _connected(native: Any, spec: Any, node: Any) -> Tensor:
    out = object.__new__(GradTensor)
    out.native = native
    out._spec = spec
    out._node = node
    return out


def _require_unchanged(node: Node, since: int) -> None:
    out = node.out if type(node.result) is tuple else (node.out,)
    if any(writes.changed(array, since) for array in (*node.kept, *out)):
        name = node.rule.name if node.rule is not None else "an op"
        raise GradientError(
            f"a tensor that the gradient of ops.{name} needs was written to after it was used; "
            f"write to a .copy() instead"
        )


def leaves_of(nodes: Iterable[Node]) -> list[Leaf]:
    """The leaves that some results depend on."""
    return [node for node in _reachable(nodes, None) if type(node) is Leaf]
