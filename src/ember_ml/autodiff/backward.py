"""From a result back to the leaves: the walk that turns a record into gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from ember_ml.autodiff import tape
from ember_ml.autodiff.tape import Leaf, Node, Part
from ember_ml.backend import writes
from ember_ml.errors import GradientError
from ember_ml.ops.dispatch import binary
from ember_ml.tensor.core import GradTensor, Tensor, fill

__all__ = ["Mold", "leaves_of", "pull_back"]

_BY_ORDER: Final = attrgetter("order")
_FREED: Final = (
    "backward() got a graph whose values have been freed by an earlier backward(); "
    "give retain_graph=True to the first"
)


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
    itself recorded, so that its results can be differentiated. Nodes before `since` count as
    leaves.
    """
    retain = retain or create
    targets = None if wanted is None else frozenset(wanted)
    nodes = _reachable(seeds, targets, since)
    grads: dict[Node, Any] = dict(seeds)
    found: dict[Node, Tensor] = {}
    with tape.set_grad_enabled(create):
        while nodes:
            node = nodes.pop()
            g = grads.pop(node, None)
            if g is None:
                continue
            if targets is None:
                if type(node) is Leaf or node.order < since:
                    found[node] = g
                    continue
            elif node in targets:
                found[node] = g
            if node.parents:
                _step(node, g, grads, retain, create)
    return found


def _reachable(
    seeds: Iterable[Node], targets: frozenset[Node] | None, since: int = -1
) -> list[Node]:
    """All nodes on ways from the seeds, the latest at the end; none beyond those before `since`."""
    first = -1 if targets is None else min(map(_BY_ORDER, targets), default=0)
    stack = list(seeds)
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node.order < since:
            continue
        for parent in node.parents:
            if parent is not None and parent not in seen and parent.order >= first:
                seen.add(parent)
                stack.append(parent)
    nodes = list(seen)
    nodes.sort(key=_BY_ORDER)
    return nodes


def _step(node: Node, g: Any, grads: dict[Node, Any], retain: bool, create: bool) -> None:
    """Hand the gradient of one result on to those it was made of."""
    if type(node) is Part:
        _gather(node, g, grads)
        return
    rule = node.rule
    if rule is None:
        raise GradientError(_FREED)
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
    if not retain:
        node.rule = None
        node.kept, node.out, node.options = (), None, ()


def _gather(node: Part, g: Tensor, grads: dict[Node, Any]) -> None:
    """The gradient of one of several results, beside those of the others."""
    (whole,) = node.parents
    (place,) = node.options
    if whole is None or whole.rule is None:
        raise GradientError(_FREED)
    parts = grads.get(whole)
    if parts is None:
        parts = grads[whole] = [None] * len(whole.result)
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
