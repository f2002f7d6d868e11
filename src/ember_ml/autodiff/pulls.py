"""One rule over ops: what it is given, and what it gives for the operands that need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ember_ml.autodiff.nodes import Node, Part, Rule
from ember_ml.backend import writes
from ember_ml.backend.contract import Spec
from ember_ml.errors import GradientError
from ember_ml.tensor.core import GradTensor, Tensor, fill, new

__all__ = ["Mold", "as_tensor", "parts", "require_unchanged"]


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


def parts(
    node: Node, rule: Rule, g: Any, needs: list[bool], create: bool
) -> list[tuple[int, Tensor]]:
    """What a rule over ops gives for the operands that need it."""
    if not any(needs):
        return []
    args = _arguments(node, create)
    if rule.joint is not None:
        told = {"create": create} if rule.told else {}
        found = rule.joint(g, tuple(needs), *args, **told)
        return [
            (place, found[place])
            for place, needed in enumerate(needs)
            if needed and found[place] is not None
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
    specs, options, out, result = node.facts
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


def require_unchanged(node: Node) -> None:
    """Raise GradientError where what a rule is about to read was written to since it was kept."""
    since = node.writes
    out = node.out if type(node.result) is tuple else (node.out,)
    if any(writes.changed(array, since) for array in (*node.kept, *out, *_arrays(node.options))):
        name = node.rule.name if node.rule is not None else "an op"
        raise GradientError(
            f"a tensor that the gradient of ops.{name} needs was written to after it was used; "
            f"write to a .copy() instead"
        )


def _arrays(options: tuple[Any, ...]) -> Iterator[Any]:
    """What options may hold of arrays, as keys do: indices, masks, classes."""
    for option in options:
        if type(option) is tuple or type(option) is list:
            yield from option
        else:
            yield option


def as_tensor(g: Any, spec: Any, result: Any) -> Any:
    """The gradient of a result, or of several, as a rule over ops takes it."""
    if type(result) is not tuple:
        return _tensor(g, spec)
    return [None if one is None else _tensor(one, own) for one, own in zip(g, result, strict=True)]


def _tensor(g: Any, spec: Spec) -> Tensor:
    # NumPy's kernels give scalars where no axis is left, and settle them only behind ops.
    if spec.settles and type(g) is not spec.native_type:
        g = spec.backend.settle_native(g, spec)
    return fill(g, spec)
