"""The structure of trees, and how they come apart and together: what tree.py is made of.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, NamedTuple

from ember_ml.errors import ShapeError

__all__ = [
    "LEAF",
    "LEAVES",
    "NODES",
    "Node",
    "Structure",
    "apart",
    "item",
    "node_of",
    "sorted_keys",
    "text",
    "together",
]


class Node(NamedTuple):
    """How instances of a class come apart and together."""

    # The children, and what else tells this instance from others: it compares and hashes.
    flatten: Callable[[Any], Any]
    unflatten: Callable[[Any, list[Any]], Any]
    # How a child is written after the name of the node, by the aux value and its place.
    step: Callable[[Any, int], str]


class Structure:
    """The shape of a tree: its containers, without the leaves."""

    __slots__ = ("_hash", "aux", "children", "kind", "leaf_count", "order")

    def __init__(
        self,
        kind: type | None,
        aux: Any = None,
        children: tuple[Structure, ...] = (),
        order: tuple[Any, ...] | None = None,
        leaf_count: int = 1,
    ) -> None:
        self.kind = kind
        self.aux = aux
        self.children = children
        # The keys of a dict as they were filled in, where they were not sorted; it does not count.
        self.order = order
        self.leaf_count = leaf_count
        self._hash = 0

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Structure):
            return NotImplemented
        return (
            self.kind is other.kind
            and self.leaf_count == other.leaf_count
            and bool(self.aux == other.aux)
            and self.children == other.children
        )

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash((self.kind, self.aux, self.children)) or 1
        return self._hash

    def __repr__(self) -> str:
        return f"Structure({text(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.kind is None:
            return _the_leaf, ()
        return Structure, (self.kind, self.aux, self.children, self.order, self.leaf_count)


LEAF: Final = Structure(None)


def _the_leaf() -> Structure:
    return LEAF


# --- The nodes ------------------------------------------------------------------------------


def item(aux: Any, place: int) -> str:
    return f"[{place}]"


def _key(aux: Any, place: int) -> str:
    return f"[{aux[place]!r}]"


def _sequence(kind: Callable[[list[Any]], Any]) -> Node:
    return Node(lambda node: (node, len(node)), lambda _, children: kind(children), item)


def _named_tuple(cls: type) -> Node:
    make: Any = cls
    fields: Any = make._fields
    return Node(
        lambda node: (node, fields),
        lambda _, children: make(*children),
        lambda _, place: f".{fields[place]}",
    )


def _ordered(node: Any) -> tuple[Iterable[Any], Hashable]:
    return list(node.values()), tuple(node)


def _defaulted(node: Any) -> tuple[Iterable[Any], Hashable]:
    keys = sorted_keys(node)
    return [node[key] for key in keys], (node.default_factory, keys)


def sorted_keys(node: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(node))
    except TypeError:  # keys of several kinds have an order only as text
        return tuple(sorted(node, key=lambda key: (type(key).__name__, repr(key))))


NODES: Final[dict[type, Node]] = {
    tuple: _sequence(tuple),
    list: _sequence(list),
    type(None): Node(lambda _: ((), None), lambda _, __: None, item),
    # A dict is taken apart in _flatten, which keeps the order of its keys.
    dict: Node(
        lambda node: (list(node.values()), tuple(node)),
        lambda keys, children: dict(zip(keys, children, strict=True)),
        _key,
    ),
    OrderedDict: Node(
        _ordered, lambda keys, children: OrderedDict(zip(keys, children, strict=True)), _key
    ),
    defaultdict: Node(
        _defaulted,
        lambda aux, children: defaultdict(aux[0], zip(aux[1], children, strict=True)),
        lambda aux, place: f"[{aux[1][place]!r}]",
    ),
}
# Classes that were seen to be no nodes, so that a leaf is told by one look.
LEAVES: Final[set[type]] = set()


def node_of(cls: type) -> Node | None:
    """What a class that has not been met yet is; named tuples are told by their fields."""
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return NODES.setdefault(cls, _named_tuple(cls))
    if len(LEAVES) < 4096:  # classes made by the thousand must not be kept alive without end
        LEAVES.add(cls)
    return None


# --- Apart and together ---------------------------------------------------------------------

_LIMIT: Final[Any] = sys.getrecursionlimit


def apart(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a tree in order, and its structure."""
    if type(tree) in LEAVES:
        return [tree], LEAF
    found: list[Any] = []
    return found, _flatten(tree, found, _LIMIT())


def _flatten(node: Any, found: list[Any], left: int) -> Structure:
    # Compiled functions are not counted: a list that holds itself would end the process.
    if left <= 0:
        raise RecursionError("maximum recursion depth exceeded")
    cls = type(node)
    if cls in LEAVES:
        found.append(node)
        return LEAF
    order = None
    before = len(found)
    if cls is tuple or cls is list:
        children: Iterable[Any] = node
        aux: Any = len(node)
    elif cls is dict:
        aux = tuple(node)
        keys = sorted_keys(node)
        if keys != aux:
            aux, order = keys, aux
        children = [node[key] for key in keys]
    else:
        how = NODES.get(cls) or node_of(cls)
        if how is None:
            found.append(node)
            return LEAF
        children, aux = how.flatten(node)
    below: list[Structure] = []
    for child in children:
        if type(child) in LEAVES:
            found.append(child)
            below.append(LEAF)
        else:
            below.append(_flatten(child, found, left - 1))
    return Structure(cls, aux, tuple(below), order, len(found) - before)


def together(structure: Structure, leaves: Any) -> Any:
    """The tree of a structure with new leaves."""
    given: list[Any] = leaves if type(leaves) is list else list(leaves)
    if len(given) != structure.leaf_count:
        raise ShapeError(
            f"tree.unflatten got {len(given)} leaves for {text(structure)}, "
            f"which takes {structure.leaf_count}"
        )
    return given[0] if structure.kind is None else _build(structure, given, 0)


def _build(structure: Structure, given: list[Any], first: int) -> Any:
    """The tree of a structure that is no leaf, of the leaves from one place on."""
    children: list[Any] = []
    for child in structure.children:
        if child.kind is None:
            children.append(given[first])
            first += 1
        else:
            children.append(_build(child, given, first))
            first += child.leaf_count
    kind = structure.kind
    if kind is tuple:
        return tuple(children)
    if kind is list:
        return children
    if structure.order is not None:
        values = dict(zip(structure.aux, children, strict=True))
        return {key: values[key] for key in structure.order}
    return NODES[kind].unflatten(structure.aux, children)  # type: ignore[index]  # it is no leaf


def text(structure: Structure) -> str:
    """A structure as it would be written, with a star for each leaf."""
    kind = structure.kind
    if kind is None:
        return "*"
    parts = [text(child) for child in structure.children]
    if kind is type(None):
        return "None"
    if kind is list:
        return f"[{', '.join(parts)}]"
    if kind is tuple:
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    if kind is dict:
        values = dict(zip(structure.aux, parts, strict=True))
        keys = structure.order or structure.aux
        return "{" + ", ".join([f"{key!r}: {values[key]}" for key in keys]) + "}"
    step = NODES[kind].step
    named = [f"{step(structure.aux, i).lstrip('.')}={part}" for i, part in enumerate(parts)]
    return f"{kind.__name__}({', '.join(named)})"
