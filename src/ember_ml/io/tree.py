"""Trees of tensors: what `em.save` takes, as names with tensors and a text that tells the rest.

The text is JSON. Numbers, strings, booleans, null and lists stand for themselves; everything else
is an object with one of these keys:

    {"tensor": name, ...}       a tensor, with "requires_grad", "dtype", "backend", "device" where
                                they are not what the file stores or what the text says above
    {"dict": [[key, value], ...]}, {"tuple": [...]}, {"float": "nan"}, {"complex": [1.0, 2.0]}
    {"object": name, "state": {"dict": ...}}    an object of a class in the table of objects.py
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.backend import selection
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, DTypeError, FormatError
from ember_ml.io.objects import name_of, state_of
from ember_ml.io.parts import Part
from ember_ml.tensor import Tensor
from ember_ml.tensor.convert import asarray, backend_of, to_tensor

__all__ = [
    "METADATA_KEY",
    "Leaf",
    "Saved",
    "Tree",
    "build",
    "decode",
    "encode",
    "flatten",
    "leaves",
    "names",
    "parse",
    "prune",
]

# Dicts, lists and tuples of numbers, strings, None, tensors and savable objects, nested; Leaf and
# Saved stand in the place of the last two.
Tree = Any

_CONTAINERS = (dict, list, tuple)
METADATA_KEY = "ember_ml"
ROOT = "tensor"  # the name of a tensor that is saved alone
MAX_DEPTH = 64
_VERSION = 1
_RESERVED = "__metadata__"  # what the format itself stores under


@dataclass(frozen=True, slots=True)
class Leaf:
    """The place of a tensor in a tree: its name in the file, and what the file cannot say."""

    name: str
    dtype: DType | None = None
    backend: str | None = None
    device: str | None = None
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class Saved:
    """The place of an object in a tree: the name of its class, and its state, a tree as well."""

    name: str
    state: Tree


# --- From the user's tree to names ----------------------------------------------------------


def flatten(tree: Tree, parts: dict[str, Part] | None = None) -> tuple[Tree, dict[str, Tensor]]:
    """The tree with leaves in place of tensors, and the tensors by name.

    Names are the keys on the way to a tensor, joined with dots. Where two would be the same, the
    later one gets a number. Parts of tensors are put down in `parts`.
    """
    tensors: dict[str, Tensor] = {}

    def place(value: object, recorded: bool, path: tuple[str, ...]) -> Leaf:
        x = to_tensor(value)
        name = _unique(".".join(path) if path else ROOT, tensors)
        tensors[name] = x
        dtype = x.dtype if x.dtype is dtypes.complex128 else None  # stored as pairs of float64
        if not recorded:
            return Leaf(name, dtype)
        return Leaf(name, dtype, x.backend, x.device, x.requires_grad)

    def walk(node: object, path: tuple[str, ...]) -> Tree:
        if isinstance(node, Tensor):
            return place(node, True, path)
        if node is None or isinstance(node, str):
            return node
        if isinstance(node, np.ndarray | np.generic):
            return place(_array(node, path), False, path)  # data, which is of no backend
        if isinstance(node, bool | int | float | complex):
            return node
        if isinstance(node, Part):
            leaf = place(_part(node, parts, path), True, path)
            if parts is not None:
                parts[leaf.name] = node
            return leaf
        if len(path) >= MAX_DEPTH:
            raise DomainError(
                f"em.save got a tree that is nested deeper than {MAX_DEPTH} levels, "
                f"or that holds itself, at '{'.'.join(path[:4])}...'"
            )
        if type(node) not in _CONTAINERS and (name := name_of(type(node))) is not None:
            return Saved(name, walk(state_of(node), path))
        if isinstance(node, Mapping):
            return {_key(k, path): walk(v, (*path, str(k))) for k, v in node.items()}
        if isinstance(node, tuple):
            return tuple(walk(v, (*path, str(i))) for i, v in enumerate(node))
        if isinstance(node, list):
            return [walk(v, (*path, str(i))) for i, v in enumerate(node)]
        if backend_of(node) is not None:
            return place(node, True, path)
        raise DTypeError(
            f"em.save got {type(node).__name__} at {_where(path)}; a tree holds tensors, arrays, "
            f"numbers, strings, None and savable objects (em.io.savable) in dicts, lists and tuples"
        )

    return walk(tree, ()), tensors


def _part(node: Part, parts: dict[str, Part] | None, path: tuple[str, ...]) -> Tensor:
    if parts is not None:
        return node.x
    if not node.is_whole:
        raise DomainError(
            f"em.save got a part of the tensor at {_where(path)}; the other ranks have the rest: "
            f"save by trainer.save_checkpoint or the Checkpoint callback, on all ranks"
        )
    return node.x.reshape(node.shape)


def _array(node: Any, path: tuple[str, ...]) -> Tensor:
    try:
        return asarray(node, backend=selection.load("numpy"))
    except DTypeError as error:
        raise DTypeError(f"em.save at {_where(path)}: {error}") from None


def _key(key: object, path: tuple[str, ...]) -> object:
    if key is None or isinstance(key, bool | int | str) or (key == key and isinstance(key, float)):
        return key
    raise DTypeError(f"em.save got the key {key!r} at {_where(path)}; keys are strings and numbers")


def _where(path: tuple[str, ...]) -> str:
    return f"'{'.'.join(path)}'" if path else "the root of the tree"


def _unique(name: str, taken: Mapping[str, object]) -> str:
    # Half of a surrogate pair is no text that a file could hold.
    name = name.encode("utf-8", "backslashreplace").decode("utf-8")
    found, count = name, 1
    while found in taken or found == _RESERVED:
        count += 1
        found = f"{name}~{count}"
    return found


# --- Leaves ---------------------------------------------------------------------------------


def leaves(tree: Tree) -> Iterator[Leaf]:
    """The leaves of a tree, in order."""
    if isinstance(tree, Leaf):
        yield tree
    elif isinstance(tree, Saved):
        yield from leaves(tree.state)
    elif isinstance(tree, dict | list | tuple):
        for node in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(node)


def names(tree: Tree, path: str = "") -> Iterator[str]:
    """The names of all values of a tree, those of its numbers and strings included."""
    if isinstance(tree, Saved):
        yield from names(tree.state, path)
    elif isinstance(tree, dict | list | tuple):
        for key, node in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from names(node, f"{path}.{key}" if path else str(key))
    else:
        yield tree.name if isinstance(tree, Leaf) else path


def build(
    tree: Tree,
    tensor: Callable[[Leaf], Tensor],
    maker: Callable[[str], Callable[[Tree], object]],
) -> Tree:
    """The tree with tensors and objects in their places; `maker` gives what makes an object."""
    if isinstance(tree, Leaf):
        return tensor(tree)
    if isinstance(tree, Saved):
        make = maker(tree.name)  # an unknown name is found before values are read
        return make(build(tree.state, tensor, maker))
    if isinstance(tree, dict):
        return {key: build(node, tensor, maker) for key, node in tree.items()}
    if isinstance(tree, list):
        return [build(node, tensor, maker) for node in tree]
    if isinstance(tree, tuple):
        return tuple(build(node, tensor, maker) for node in tree)
    return tree


_NOTHING: Any = object()


def prune(tree: Tree, wanted: Callable[[str], bool]) -> Tree:
    """The tree without what is not wanted; in lists and tuples None keeps its place.

    An object of which a part is not wanted is no object any more, and leaves a dict.
    """
    found = _pruned(tree, wanted, "")
    return {} if found is _NOTHING else found


def _pruned(tree: Tree, wanted: Callable[[str], bool], name: str) -> Tree:
    def inner(key: object, node: Tree) -> Tree:
        return _pruned(node, wanted, f"{name}.{key}" if name else str(key))

    if isinstance(tree, Saved):
        if all(wanted(part) for part in list(names(tree.state, name)) or [name]):
            return tree
        return _pruned(tree.state, wanted, name)
    if isinstance(tree, dict):
        kept = {k: v for k, n in tree.items() if (v := inner(k, n)) is not _NOTHING}
        return kept or _NOTHING
    if isinstance(tree, list | tuple):
        items = [inner(i, n) for i, n in enumerate(tree)]
        if all(item is _NOTHING for item in items):
            return _NOTHING
        return type(tree)(None if item is _NOTHING else item for item in items)
    return tree if wanted(tree.name if isinstance(tree, Leaf) else name) else _NOTHING


# --- As text --------------------------------------------------------------------------------


def encode(tree: Tree) -> str:
    """The text of a tree with leaves."""
    homes = Counter((leaf.backend, leaf.device) for leaf in leaves(tree))
    backend, device = homes.most_common(1)[0][0] if homes else (None, None)

    def node(value: Tree) -> Any:
        if isinstance(value, Leaf):
            return _leaf_text(value, backend, device)
        if isinstance(value, Saved):
            return {"object": value.name, "state": node(value.state)}
        if isinstance(value, dict):
            return {"dict": [[_scalar(k), node(v)] for k, v in value.items()]}
        if isinstance(value, tuple):
            return {"tuple": [node(v) for v in value]}
        if isinstance(value, list):
            return [node(v) for v in value]
        return _scalar(value)

    text = {"version": _VERSION, "backend": backend, "device": device, "tree": node(tree)}
    try:
        return json.dumps(text, separators=(",", ":"), allow_nan=False)
    except ValueError as error:  # integers of more than 4300 digits
        raise DomainError(f"em.save cannot write a number of this tree: {error}") from None


def _leaf_text(leaf: Leaf, backend: str | None, device: str | None) -> dict[str, Any]:
    text: dict[str, Any] = {"tensor": leaf.name}
    if leaf.requires_grad:
        text["requires_grad"] = True
    if leaf.dtype is not None:
        text["dtype"] = leaf.dtype.name
    if leaf.backend != backend:
        text["backend"] = leaf.backend
    if leaf.device != device:
        text["device"] = leaf.device
    return text


def _scalar(value: Any) -> Any:
    if isinstance(value, complex):
        return {"complex": [_scalar(value.real), _scalar(value.imag)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(float(value))}
    return value


def parse(text: str, what: str) -> Any:
    """The value of a JSON text; FormatError for what is wrong with it, duplicate keys included."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse,
            # JSON's -0 is no integer, and Python reads it as one.
            parse_int=_integer if "-0" in text else None,
        )
    except FormatError as error:
        raise FormatError(f"{what}: {error}") from None
    except RecursionError:
        raise FormatError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"{what} is no JSON: {error}") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        name, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise FormatError(f"the key {name!r} occurs twice")
    return found


def _refuse(constant: str) -> Any:
    raise FormatError(f"{constant} is no JSON")


def _integer(text: str) -> int | float:
    return -0.0 if text == "-0" else int(text)


def decode(text: str, what: str) -> Tree:
    """The tree with leaves of a text."""
    found = parse(text, what)
    if not isinstance(found, dict) or "tree" not in found:
        raise FormatError(f"{what} has no tree")
    version = found.get("version")
    if version != _VERSION:
        raise FormatError(
            f"{what} is of version {version!r}, and this ember_ml reads version {_VERSION}"
        )
    home = _Fields(found, what)
    backend, device = home.text("backend"), home.text("device")

    def node(value: Any, depth: int) -> Tree:
        if depth > MAX_DEPTH + 1:
            raise FormatError(f"{what} is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, list):
            return [node(v, depth + 1) for v in value]
        if not isinstance(value, dict):
            return value
        if "tensor" in value:
            return _leaf(_Fields(value, what), backend, device)
        if "object" in value:
            return _saved(value, node, depth, what)
        kind, inner = next(iter(value.items()), ("", None))
        if len(value) == 1 and isinstance(inner, list):
            if kind == "tuple":
                return tuple(node(v, depth + 1) for v in inner)
            if kind == "dict":
                return _dict([_pair(pair, what) for pair in inner], node, depth, what)
        return _number(value, what)

    return node(found["tree"], 0)


def _pair(pair: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise FormatError(f"{what} has a dict whose entries are no pairs")
    key = _number(pair[0], what) if isinstance(pair[0], dict) else pair[0]
    if isinstance(key, list | complex):
        raise FormatError(f"{what} has a dict with the key {key!r}")
    return key, pair[1]


def _dict(
    pairs: list[tuple[Any, Any]], node: Callable[[Any, int], Tree], depth: int, what: str
) -> dict[Any, Tree]:
    found = {key: node(value, depth + 1) for key, value in pairs}
    if len(found) != len(pairs):
        raise FormatError(f"{what} has a dict in which a key occurs twice")
    return found


def _saved(value: dict[str, Any], node: Callable[[Any, int], Tree], depth: int, what: str) -> Saved:
    match value:
        case {"object": str(name), "state": {"dict": list()} as state, **rest} if not rest:
            return Saved(name, node(state, depth))
    raise FormatError(f"{what} has an object without a name or without a state that is a dict")


def _number(value: dict[str, Any], what: str) -> complex | float:
    """The number of `{"float": "nan"}` or `{"complex": [re, im]}`."""
    match value:
        case {"float": "nan" | "inf" | "-inf" as text, **rest} if not rest:
            return float(text)
        case {"complex": [re, im], **rest} if not rest:
            parts = [_number(p, what) if isinstance(p, dict) else p for p in (re, im)]
            if all(isinstance(part, float) for part in parts):
                return complex(*parts)
    raise FormatError(f"{what} has {str(value)[:60]!r}, which stands for nothing")


class _Fields:
    """Fields of an object of which each has its type."""

    def __init__(self, fields: dict[str, Any], what: str) -> None:
        self._fields = fields
        self.what = what

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._fields.get(name, default)
        if value is not None and not isinstance(value, str):
            raise FormatError(f"{self.what} has a {name} that is no text")
        return value

    def truth(self, name: str) -> bool:
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise FormatError(f"{self.what} has a {name} that is neither true nor false")
        return value


def _leaf(fields: _Fields, backend: str | None, device: str | None) -> Leaf:
    name, dtype = fields.text("tensor"), fields.text("dtype")
    if name is None or dtype not in (None, dtypes.complex128.name):
        raise FormatError(f"{fields.what} has a tensor without a name or with dtype {dtype!r}")
    return Leaf(
        name,
        None if dtype is None else dtypes.complex128,
        fields.text("backend", backend),
        fields.text("device", device),
        fields.truth("requires_grad"),
    )
