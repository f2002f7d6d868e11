"""Trees: nested tuples, lists, dicts, named tuples and None, with tensors or others as leaves.

    leaves, structure = tree.flatten({"w": w, "b": [b, None]})
    tree.unflatten(structure, leaves)

A structure is what is left of a tree without its leaves. It compares and hashes, whatever the
leaves were. Only the classes below and those given to `register` are nodes; an instance of any
other class, subclasses of list and dict included, is a leaf. None is a node without leaves.

The leaves of a dict come in the order of its sorted keys, so that two dicts of the same keys agree
however they were filled; the dict that is built again has its own order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from ember_ml.errors import DomainError, ShapeError
from ember_ml.structure import (
    LEAF,
    LEAVES,
    NODES,
    Node,
    Structure,
    apart,
    item,
    node_of,
    sorted_keys,
    together,
)

__all__ = [
    "LEAF",
    "Structure",
    "Tree",
    "difference",
    "flatten",
    "leaves",
    "map",
    "paths",
    "register",
    "require_same",
    "spread",
    "structure",
    "unflatten",
]

# Containers in containers, of any leaves: Python's types cannot say it.
Tree = Any

# Compiled classes come without one.
Structure.__doc__ = "The shape of a tree: its containers, without the leaves."


def register(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten: Callable[[Any, list[Any]], Any],
    step: Callable[[Any, int], str] | None = None,
) -> None:
    """Make instances of a class nodes of trees.

    `flatten(node)` gives the children and what else is to be kept, which must compare and hash;
    `unflatten(kept, children)` builds the node again. `step(kept, place)` names a child in
    messages, by its number where it is left out.

    >>> class Pair:
    ...     def __init__(self, left, right):
    ...         self.left, self.right = left, right
    >>> register(Pair, lambda p: ((p.left, p.right), None), lambda _, parts: Pair(*parts))
    >>> leaves([Pair(1, 2), 3])
    [1, 2, 3]
    """
    if cls in NODES:
        raise DomainError(f"tree.register got {cls.__name__}, which is a node of trees already")
    NODES[cls] = Node(flatten, unflatten, step or item)
    LEAVES.discard(cls)


# --- Apart and together ---------------------------------------------------------------------


def flatten(tree: Tree) -> tuple[list[Any], Structure]:
    """The leaves of a tree in order, and its structure.

    >>> flatten({"b": 2, "a": (1, None)})
    ([1, 2], Structure({'b': *, 'a': (*, None)}))
    """
    return apart(tree)


def leaves(tree: Tree) -> list[Any]:
    """The leaves of a tree, in order."""
    return apart(tree)[0]


def structure(tree: Tree) -> Structure:
    """The structure of a tree."""
    return apart(tree)[1]


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Tree:
    """The tree of a structure with new leaves.

    >>> unflatten(structure({"a": 1, "b": [2, None]}), [10, 20])
    {'a': 10, 'b': [20, None]}
    """
    return together(structure, leaves)


def map(function: Callable[..., Any], tree: Tree, /, *others: Tree) -> Tree:
    """A tree of the results of a function on each leaf, with those of other trees in its place.

    >>> map(lambda x, y: x + y, {"a": 1, "b": (2,)}, {"a": 10, "b": (20,)})
    {'a': 11, 'b': (22,)}
    """
    first, found = flatten(tree)
    columns = [first]
    for place, other in enumerate(others):
        column, second = flatten(other)
        require_same(found, second, "tree.map", ("the first tree", f"tree {place + 2}"))
        columns.append(column)
    return unflatten(found, [function(*row) for row in zip(*columns, strict=True)])


# --- Names and differences ------------------------------------------------------------------


def paths(structure: Structure, root: str = "") -> list[str]:
    """The place of each leaf, as it would be written after `root`.

    >>> paths(structure({"a": (1, 2)}), "carry")
    ["carry['a'][0]", "carry['a'][1]"]
    """
    if structure.kind is None:
        return [root]
    step = NODES[structure.kind].step
    found: list[str] = []
    for place, child in enumerate(structure.children):
        found += paths(child, root + step(structure.aux, place))
    return found


def difference(first: Structure, second: Structure, root: str = "") -> tuple[str, str, str] | None:
    """Where two structures first differ, and what is there in each; None where they are equal.

    >>> difference(structure({"a": (1, 2)}), structure({"a": (1, [2])}), "x")
    ("x['a'][1]", 'a leaf', 'a list of 1')
    """
    if first == second:
        return None
    if first.kind is not second.kind or first.aux != second.aux or first.kind is None:
        return root, _brief(first), _brief(second)
    step = NODES[first.kind].step
    for place, (one, other) in enumerate(zip(first.children, second.children, strict=False)):
        found = difference(one, other, root + step(first.aux, place))
        if found is not None:
            return found
    return root, _brief(first), _brief(second)


def require_same(
    first: Structure, second: Structure, name: str, what: tuple[str, str], root: str = ""
) -> None:
    """Raise ShapeError where two structures differ, with the place and both sides."""
    if first is second or first == second:
        return
    found = difference(first, second, root)
    if found is not None:
        place = f"at {found[0]} " if found[0] else ""
        raise ShapeError(
            f"{name} got trees that differ: {place}{what[0]} has {found[1]} "
            f"and {what[1]} {found[2]}"
        )


def spread(prefix: Tree, structure: Structure, name: str, root: str = "") -> list[Any]:
    """The leaves of `prefix`, each repeated for all leaves of the subtree it stands for.

    None is a leaf here: it is the way to say "not this one".

    >>> spread((0, None), structure(([1, 2], {"a": 3})), "vmap")
    [0, 0, None]
    """
    kind = type(prefix)
    how = NODES.get(kind) or node_of(kind)
    if prefix is None or how is None:
        return [prefix] * structure.leaf_count
    children: Iterable[Any]
    aux: Hashable
    if kind is dict:
        aux = keys = sorted_keys(prefix)
        children = [prefix[key] for key in keys]
    else:
        children, aux = how.flatten(prefix)
    if kind is not structure.kind or aux != structure.aux:
        count = f"{kind.__name__} of {len(prefix)}" if hasattr(prefix, "__len__") else kind.__name__
        raise ShapeError(
            f"{name} has a {count} {f'at {root} ' if root else ''}where the tree has "
            f"{_brief(structure)}; give a tree of the same containers, or one value for all"
        )
    found: list[Any] = []
    for place, (child, below) in enumerate(zip(children, structure.children, strict=True)):
        found += spread(child, below, name, root + how.step(aux, place))
    return found


def _brief(structure: Structure) -> str:
    kind = structure.kind
    if kind is None:
        return "a leaf"
    if kind is type(None):
        return "None"
    if kind in (dict, OrderedDict):
        keys = ", ".join([repr(key) for key in structure.aux])
        return f"a {kind.__name__} with keys {keys}" if keys else f"a {kind.__name__} without keys"
    article = "an" if kind.__name__[0] in "AEIOUaeiou" else "a"
    return f"{article} {kind.__name__} of {len(structure.children)}"
