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

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from ember_ml.errors import DomainError, ShapeError

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


class Node(NamedTuple):
    """How instances of a class come apart and together."""

    # The children, and what else tells this instance from others: it compares and hashes.
    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]]
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
        return f"Structure({_text(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.kind is None:
            return _the_leaf, ()
        return Structure, (self.kind, self.aux, self.children, self.order, self.leaf_count)


LEAF: Final = Structure(None)


def _the_leaf() -> Structure:
    return LEAF


# --- The nodes ------------------------------------------------------------------------------


def _item(aux: Any, place: int) -> str:
    return f"[{place}]"


def _key(aux: Any, place: int) -> str:
    return f"[{aux[place]!r}]"


def _sequence(kind: Callable[[list[Any]], Any]) -> Node:
    return Node(lambda node: (node, len(node)), lambda _, children: kind(children), _item)


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
    keys = _sorted(node)
    return [node[key] for key in keys], (node.default_factory, keys)


def _sorted(node: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(node))
    except TypeError:  # keys of several kinds have an order only as text
        return tuple(sorted(node, key=lambda key: (type(key).__name__, repr(key))))


_NODES: Final[dict[type, Node]] = {
    tuple: _sequence(tuple),
    list: _sequence(list),
    type(None): Node(lambda _: ((), None), lambda _, __: None, _item),
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
_LEAVES: Final[set[type]] = set()


def register(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten: Callable[[Any, list[Any]], Any],
    step: Callable[[Any, int], str] = _item,
) -> None:
    """Make instances of a class nodes of trees.

    `flatten(node)` gives the children and what else is to be kept, which must compare and hash;
    `unflatten(kept, children)` builds the node again. `step(kept, place)` names a child in
    messages.

    >>> class Pair:
    ...     def __init__(self, left, right):
    ...         self.left, self.right = left, right
    >>> register(Pair, lambda p: ((p.left, p.right), None), lambda _, parts: Pair(*parts))
    >>> leaves([Pair(1, 2), 3])
    [1, 2, 3]
    """
    if cls in _NODES:
        raise DomainError(f"tree.register got {cls.__name__}, which is a node of trees already")
    _NODES[cls] = Node(flatten, unflatten, step)
    _LEAVES.discard(cls)


def _node_of(cls: type) -> Node | None:
    """What a class that has not been met yet is; named tuples are told by their fields."""
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return _NODES.setdefault(cls, _named_tuple(cls))
    if len(_LEAVES) < 4096:  # classes made by the thousand must not be kept alive without end
        _LEAVES.add(cls)
    return None


# --- Apart and together ---------------------------------------------------------------------


def flatten(tree: Tree) -> tuple[list[Any], Structure]:
    """The leaves of a tree in order, and its structure.

    >>> flatten({"b": 2, "a": (1, None)})
    ([1, 2], Structure({'b': *, 'a': (*, None)}))
    """
    if type(tree) in _LEAVES:
        return [tree], LEAF
    found: list[Any] = []
    return found, _flatten(tree, found)


def _flatten(node: Any, found: list[Any]) -> Structure:
    cls = type(node)
    if cls in _LEAVES:
        found.append(node)
        return LEAF
    order = None
    before = len(found)
    if cls is tuple or cls is list:
        children: Iterable[Any] = node
        aux: Any = len(node)
    elif cls is dict:
        aux = tuple(node)
        keys = _sorted(node)
        if keys != aux:
            aux, order = keys, aux
        children = [node[key] for key in keys]
    else:
        how = _NODES.get(cls) or _node_of(cls)
        if how is None:
            found.append(node)
            return LEAF
        children, aux = how.flatten(node)
    below: list[Structure] = []
    for child in children:
        if type(child) in _LEAVES:
            found.append(child)
            below.append(LEAF)
        else:
            below.append(_flatten(child, found))
    return Structure(cls, aux, tuple(below), order, len(found) - before)


def leaves(tree: Tree) -> list[Any]:
    """The leaves of a tree, in order."""
    return flatten(tree)[0]


def structure(tree: Tree) -> Structure:
    """The structure of a tree."""
    return flatten(tree)[1]


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Tree:
    """The tree of a structure with new leaves.

    >>> unflatten(structure({"a": 1, "b": [2, None]}), [10, 20])
    {'a': 10, 'b': [20, None]}
    """
    given = leaves if type(leaves) is list else list(leaves)
    if len(given) != structure.leaf_count:
        raise ShapeError(
            f"tree.unflatten got {len(given)} leaves for {_text(structure)}, "
            f"which takes {structure.leaf_count}"
        )
    return given[0] if structure is LEAF else _build(structure, iter(given))


def _build(structure: Structure, leaves: Iterator[Any]) -> Tree:
    kind = structure.kind
    if kind is None:
        return next(leaves)
    children = [
        next(leaves) if child is LEAF else _build(child, leaves) for child in structure.children
    ]
    if kind is tuple:
        return tuple(children)
    if kind is list:
        return children
    if structure.order is not None:
        values = dict(zip(structure.aux, children, strict=True))
        return {key: values[key] for key in structure.order}
    return _NODES[kind].unflatten(structure.aux, children)


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
    step = _NODES[structure.kind].step
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
    step = _NODES[first.kind].step
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
    how = _NODES.get(kind) or _node_of(kind)
    if prefix is None or how is None:
        return [prefix] * structure.leaf_count
    children: Iterable[Any]
    aux: Hashable
    if kind is dict:
        aux = keys = _sorted(prefix)
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


def _text(structure: Structure) -> str:
    kind = structure.kind
    if kind is None:
        return "*"
    parts = [_text(child) for child in structure.children]
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
    step = _NODES[kind].step
    named = [f"{step(structure.aux, i).lstrip('.')}={part}" for i, part in enumerate(parts)]
    return f"{kind.__name__}({', '.join(named)})"
