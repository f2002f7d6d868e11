"""Arguments of a call: their tensors in a row, and a key that tells what a trace depends on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from ember_ml.autodiff.compiling import hooks
from ember_ml.backend.contract import Backend
from ember_ml.errors import TraceError
from ember_ml.ops import dispatch
from ember_ml.structure import NODES, node_of
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor

__all__ = ["Arguments", "Template", "build", "named", "template"]

# Classes of which every value has a hash, and no tensors.
_PLAIN: Final = frozenset((bool, int, complex, str, bytes, type(None), slice))


class Arguments:
    """The tensors of some arguments, objects with a state of their own, and the key."""

    __slots__ = ("key", "objects", "raw", "statics", "tensors")

    def __init__(self, key: list[Any]) -> None:
        self.key = key
        self.tensors: list[Any] = []
        # Objects that tell their state: see hooks.py.
        self.objects: list[Any] = []
        # Other objects, whose tensors are not traced with the arguments.
        self.statics: list[Any] = []
        # Where arrays that are no tensors stand, among the tensors and in the key.
        self.raw: list[tuple[int, int]] = []

    def gather(self, node: Any) -> None:
        """Take a tree apart."""
        kind = type(node)
        if kind is Tensor:
            self.tensors.append(node)
            self.key += (node._spec, node.native.shape)
            return
        children: Iterable[Any]
        if kind is tuple or kind is list:
            self.key += (kind, len(node))
            children = node
        elif kind is dict:
            self.key += (dict, *node)
            children = node.values()
        else:
            self._other(node, kind)
            return
        for child in children:
            if type(child) is Tensor:  # without a call: these are most
                self.tensors.append(child)
                self.key += (child._spec, child.native.shape)
            else:
                self.gather(child)

    def _other(self, node: Any, kind: type) -> None:
        key = self.key
        if isinstance(node, Tensor):
            self.tensors.append(node)
            key += (kind if kind is GradTensor else None, node._spec, node.shape)
        elif kind is float:
            key += (float, node.hex())  # 0.0 and -0.0 are equal and NaN is not, other than here
        elif kind in _PLAIN:
            key += (kind, node)
        elif isinstance(node, np.generic):
            key += (kind, node.tobytes())  # a number, as beside tensors; zeros as above
        elif isinstance(node, np.ndarray) or convert.backend_of(node) is not None:
            self.raw.append((len(self.tensors), len(key)))
            self.tensors.append(node)
            key += (None, None)
        elif hooks.of(kind) is not None:
            self.objects.append(node)
            key.append(kind)
        else:
            how = NODES.get(kind) or node_of(kind)
            if how is None:
                self.static(node)
                return
            children, aux = how.flatten(node)
            key += (kind, aux)
            for child in children:
                self.gather(child)

    def static(self, node: Any) -> None:
        """Take a value as it is: another one means another trace."""
        if isinstance(node, float | np.generic):
            self._other(node, type(node))
            return
        self.key += (type(node), node)
        if hasattr(node, "__dict__"):
            self.statics.append(node)

    def settle(self, home: Backend | None) -> Backend:
        """Make tensors of all arrays; gives the backend of them all."""
        if self.raw:
            home = dispatch.home_of("jit", tuple(self.tensors)) if home is None else home
            for place, in_key in self.raw:
                made = convert.to_tensor(self.tensors[place], home)
                self.tensors[place] = made
                self.key[in_key : in_key + 2] = (made._spec, made.shape)
        if home is None:
            first = self.tensors[0]._spec.backend if self.tensors else convert.current_backend()
        else:
            first = home
        for x in self.tensors:
            if x._spec.backend is not first:
                return dispatch.home_of("jit", (*self.tensors,))  # raises
        return first


# --- Arguments again ----------------------------------------------------------------------------


class Template:
    """Arguments without their tensors; a leaf has its place, an object as well."""

    __slots__ = ("aux", "children", "kind", "place")

    def __init__(
        self, kind: Any, aux: Any = None, children: tuple[Template, ...] = (), place: int = -1
    ) -> None:
        self.kind = kind
        self.aux = aux
        self.children = children
        self.place = place


_TENSOR: Final = object()
_OBJECT: Final = object()
_STATIC: Final = object()


class _Counter:
    def __init__(self) -> None:
        self.tensors = 0
        self.objects = 0


def template(node: Any, count: _Counter | None = None, static: bool = False) -> Template:
    """What is left of arguments without their tensors, in the order in which they are gathered."""
    count = count or _Counter()
    kind = type(node)
    if static:
        return Template(_STATIC, node)
    if isinstance(node, Tensor | np.ndarray) or (
        kind not in _PLAIN and kind is not float and convert.backend_of(node) is not None
    ):
        count.tensors += 1
        return Template(_TENSOR, place=count.tensors - 1)
    if hooks.of(kind) is not None:
        count.objects += 1
        return Template(_OBJECT, place=count.objects - 1)
    if kind is dict:
        below = tuple(template(child, count) for child in node.values())
        return Template(dict, tuple(node), below)
    how = None if kind in _PLAIN else NODES.get(kind) or node_of(kind)
    if how is None:
        return Template(_STATIC, node)
    children, aux = how.flatten(node)
    return Template(kind, aux, tuple(template(child, count) for child in children))


def counter() -> Any:
    """The places that several templates share."""
    return _Counter()


def build(made: Template, tensors: list[Any], objects: list[Any]) -> Any:
    """Arguments with other tensors and objects."""
    kind = made.kind
    if kind is _TENSOR:
        return tensors[made.place]
    if kind is _OBJECT:
        return objects[made.place]
    if kind is _STATIC:
        return made.aux
    children = [build(child, tensors, objects) for child in made.children]
    return NODES[kind].unflatten(made.aux, children)


def named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """How each tensor of a call would be written, in the order in which they are gathered."""
    found: list[str] = []
    for place, value in enumerate(args):
        _named(value, f"args[{place}]", found)
    for name, value in kwargs.items():
        _named(value, name, found)
    return found


def _named(node: Any, path: str, found: list[str]) -> None:
    kind = type(node)
    if isinstance(node, Tensor | np.ndarray) or (
        kind not in _PLAIN and convert.backend_of(node) is not None
    ):
        found.append(path)
    elif kind is dict:
        for key, child in node.items():
            _named(child, f"{path}[{key!r}]", found)
    elif hooks.of(kind) is None:
        how = None if kind in _PLAIN else NODES.get(kind)
        if how is not None:
            children, aux = how.flatten(node)
            for place, child in enumerate(children):
                _named(child, path + how.step(aux, place), found)


def require_hashable(name: str, path: str, value: Any) -> None:
    """Raise TraceError for a static value that has no hash; look into containers for it."""
    try:
        hash(value)
    except TypeError:
        raise TraceError(
            f"em.jit({name}) got {type(value).__name__} as static {path}, which has no hash; a "
            f"static argument is told from others by its hash: give a tuple, or a frozen class"
        ) from None
