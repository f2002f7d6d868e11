"""The state of a compiled function: tensors that it reads and writes, wherever they are kept.

Its arrays go into a program as inputs. While a function is traced, what is traced stands in their
place; the new arrays come out as results, and are put where the old ones were. Tensors that share
memory are one array here, the root: that of their storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from ember_ml import tree
from ember_ml.autodiff import tape
from ember_ml.autodiff.compiling import hooks
from ember_ml.backend.contract import Backend, NativeArray, Spec
from ember_ml.errors import GradientError, TraceError
from ember_ml.ops.random.generator import Generator
from ember_ml.structure import NODES, node_of
from ember_ml.tensor import aliases, homes
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.tensor.storage import Storage, Window

__all__ = ["TRACED", "Picture", "Root", "State", "picture", "put", "same", "tracing"]


# Classes of which every value has a hash, and no tensors: most attributes of a module.
_PLAIN: Final = frozenset((bool, int, str, type(None)))


# The trees and objects that are the state of the function that is being traced; None outside.
TRACED: Final[ContextVar[Sequence[Any] | None]] = ContextVar("ember_ml traced", default=None)


@contextmanager
def tracing(trees: Sequence[Any]) -> Iterator[None]:
    """A block in which a function with this state is traced."""
    token = TRACED.set(trees)
    try:
        yield
    finally:
        TRACED.reset(token)


class Root:
    """An array of the state: that of a storage, or of a tensor that is alone or needs gradients."""

    __slots__ = ("_saved", "given", "grad", "grad_given", "holder", "leaf", "spec")

    def __init__(self, holder: Tensor | Storage) -> None:
        self.holder: Any = holder
        self.leaf = type(holder) is GradTensor
        self.spec: Spec = holder.spec if type(holder) is Storage else holder._spec  # type: ignore[union-attr]  # a Tensor
        # What a leaf carries as its gradient is written and read as well.
        self.grad: Tensor | None = holder.grad if self.leaf else None  # type: ignore[union-attr]  # a Tensor
        self._saved: Any = None
        # What stands for the array, and for that of the gradient, while a function is traced.
        self.given: NativeArray = None
        self.grad_given: NativeArray = None

    @property
    def native(self) -> NativeArray:
        """The array as it is now."""
        return self.holder.native

    # --- Tracing ----------------------------------------------------------------------------

    def install(self, native: NativeArray, grad: NativeArray) -> None:
        """Let another array stand in place of this one, for `restore`."""
        holder = self.holder
        self.given, self.grad_given = native, grad
        if type(holder) is Storage:
            self._saved = _save(holder)
            old = holder.native
            # A write within the trace is no business of those who borrow the memory outside.
            holder._lender, holder.foreign, holder._borrowers = None, False, None
            holder.replace(native)
            if self.spec.backend.mutable:
                for view, own in self._saved[4]:
                    view.native = self.spec.backend.rebase(own, old, native)
                for window, base in self._saved[5]:
                    window.base = self.spec.backend.rebase(base, old, native)
            return
        self._saved = (type(holder), holder.native, homes.home_of(holder))
        holder.native, holder._home = native, None
        if self.leaf:
            if grad is not None and self.spec.records and not native.is_leaf:
                native.retain_grad()  # run again for its gradient, it is no leaf, and carries none
            set_grad(holder, None if grad is None else fill(grad, self.spec))

    def restore(self) -> None:
        """Put the array itself in its place again."""
        holder, saved = self.holder, self._saved
        self._saved = None
        self.given = self.grad_given = None
        if saved is None:
            return
        if type(holder) is Storage:
            holder._lender, holder.foreign, holder._borrowers = saved[1:4]
            holder.replace(saved[0])
            for view, own in saved[4]:
                view.native = own
            for window, base in saved[5]:
                window.base = base
            return
        holder.__class__, holder.native, holder._home = saved[0], saved[1], saved[2]
        if self.leaf:
            set_grad(holder, self.grad)

    def grad_now(self) -> NativeArray:
        """The array of the gradient that a traced function left; None where there is none."""
        found = self.holder.grad if self.leaf else None
        return None if found is None else found.native

    # --- Running ----------------------------------------------------------------------------

    def write(self, native: NativeArray) -> None:
        """Take the array that came of a call."""
        holder, backend = self.holder, self.spec.backend
        if backend.leaks(holder.native, native):
            raise TraceError(
                "a compiled function that writes to its state was called within a function that "
                "is traced or differentiated, where the state would hold what exists only there; "
                "differentiate within it, as in em.jit(em.value_and_grad(fn), state=...)"
            )
        if type(holder) is Storage:
            with holder.lock:
                if backend.mutable:
                    holder.prepare()
                    native = backend.assign(holder.native, native)
                if native is not holder.native:
                    holder.replace(native)
                holder.version += 1
        elif backend.mutable:
            with tape.set_grad_enabled(False):
                holder.native = backend.assign(holder.native, native)
        else:
            holder.native = native
            home = homes.home_of(holder)
            if type(home) is Storage:  # others look at the memory of a leaf: its .detach(), for one
                with home.lock:
                    home.replace(native)
                    home.version += 1

    def rollback(self, native: NativeArray, copied: NativeArray) -> None:
        """Give an array that a function has written to its values of before again."""
        holder = self.holder
        if type(holder) is Storage:
            if holder.native is native:
                holder.spec.backend.assign(native, copied)
            else:
                holder.replace(native)
        else:
            self.spec.backend.assign(native, copied)
            holder.native = native
            if self.leaf:
                set_grad(holder, self.grad)


def set_grad(leaf: Any, grad: Tensor | None) -> None:
    """Set what a tensor carries as its gradient."""
    leaf.grad = grad


def _save(storage: Storage) -> tuple[Any, ...]:
    looking = [v for ref in storage._views or () if (v := ref()) is not None]
    windows = [w for ref in storage._windows or () if (w := ref()) is not None]
    return (
        storage.native,
        storage._lender,
        storage.foreign,
        storage._borrowers,
        [(view, view.native) for view in looking] if storage.spec.backend.mutable else [],
        [(w, w.base) for w in windows if w.base is not None],
    )


class State:
    """The tensors, generators and other values of some trees and objects, as they are now."""

    __slots__ = ("_places", "generators", "key", "roots", "tensors")

    def __init__(self, key: list[Any]) -> None:
        self.key = key
        self.roots: list[Root] = []
        self._places: dict[int, int] = {}
        self.tensors: list[Tensor] = []
        self.generators: list[Generator] = []

    def gather(self, node: Any) -> None:
        """Take a tree or an object apart."""
        kind = type(node)
        if isinstance(node, Tensor):
            self.tensors.append(node)
            self.key.append(self.root(node))
            self.key += _within(node)
        elif kind in _PLAIN:
            self.key += (kind, node)
        elif kind is dict:
            self.key += (dict, tuple(node))
            for child in node.values():
                self.gather(child)
        elif kind is tuple or kind is list:
            self.key += (kind, len(node))
            for child in node:
                self.gather(child)
        elif kind is Generator:
            self.generators.append(node)
            self.key.append(Generator)
        else:
            hook = hooks.of(kind)
            if hook is not None:
                self.key.append(kind)
                self.gather(hook.get(node))
                return
            how = NODES.get(kind) or node_of(kind)
            if how is None:
                self.key += (kind, node.hex() if kind is float else node)
                return
            children, aux = how.flatten(node)
            self.key += (kind, aux)
            for child in children:
                self.gather(child)

    def root(self, x: Tensor) -> int:
        """The place of the root of a tensor; it is added where it is new."""
        holder: Any = x
        if type(x) is not GradTensor and (type(x) is not Tensor or homes.home_of(x) is not None):
            holder = homes.storage_of(x)
        place = self._places.get(id(holder))
        if place is None:
            place = self._places[id(holder)] = len(self.roots)
            if type(holder) is GradTensor and not holder.is_leaf:
                raise GradientError(
                    "em.jit got a state with a tensor that an op made of others that need "
                    "gradients; keep those others as state, or give .detach() of it"
                )
            root = Root(holder)
            self.roots.append(root)
            self.key += (root.spec, tuple(root.native.shape), root.leaf, root.grad is not None)
        return place

    def knows(self, x: Tensor) -> bool:
        """True where the root of a tensor is here."""
        home = homes.home_of(x)
        holder = x if type(x) is GradTensor or home is None else homes.storage_of(x)
        return id(holder) in self._places

    def backend(self) -> Backend | None:
        """The backend of the tensors; None where there are none."""
        return self.roots[0].spec.backend if self.roots else None


def _within(x: Tensor) -> tuple[Any, ...]:
    """Where a view lies in its root."""
    home = getattr(x, "_home", None)
    if type(home) is Window:
        layout = home.layout
        return type(x), layout.shape, layout.strides, layout.offset
    if type(home) is Tensor:  # an engine's view of it
        return x.shape, *aliases.strides_and_offset(x)
    return ()


# --- The containers -----------------------------------------------------------------------------


class Picture:
    """What a tree or an object held at some time: containers and their leaves."""

    __slots__ = ("aux", "children", "kind", "leaf")

    def __init__(
        self, kind: Any, aux: Any = None, children: tuple[Picture, ...] = (), leaf: Any = None
    ) -> None:
        self.kind = kind
        self.aux = aux
        self.children = children
        self.leaf = leaf


_LEAF: Final = object()


def picture(node: Any, leaf: Callable[[Any], Any]) -> Picture:
    """A picture of a tree, with what `leaf` makes of its leaves."""
    kind = type(node)
    if isinstance(node, Tensor) or kind is Generator:
        return Picture(_LEAF, leaf=leaf(node))
    hook = hooks.of(kind)
    if hook is not None:
        return Picture(kind, hook, (picture(hook.get(node), leaf),))
    if kind is dict:
        return Picture(dict, tuple(node), tuple([picture(child, leaf) for child in node.values()]))
    how = NODES.get(kind) or node_of(kind)
    if how is None:
        return Picture(_LEAF, leaf=leaf(node))
    children, aux = how.flatten(node)
    return Picture(kind, aux, tuple([picture(child, leaf) for child in children]))


def put(live: Any, shown: Picture, value: Callable[[Any], Any]) -> Any:
    """Make a tree hold what a picture shows, in its own containers; gives the tree.

    `value` gives what a leaf of the picture stands for.
    """
    kind = shown.kind
    if kind is _LEAF:
        return value(shown.leaf)
    same = type(live) is kind
    if kind is dict:
        old: dict[Any, Any] = live if same else {}
        made = {
            name: put(old.get(name), child, value)
            for name, child in zip(shown.aux, shown.children, strict=True)
        }
        if not same:
            return made
        if list(made) != list(live) or any(made[name] is not live[name] for name in made):
            live.clear()
            live.update(made)
        return live
    if hooks.of(kind) is not None:
        if not same:
            raise TraceError(
                f"a compiled function put a new {kind.__name__} into its state; "
                f"make it outside, and write to its tensors within"
            )
        inner = shown.aux.get(live)
        before = tree.leaves(inner)
        new = put(inner, shown.children[0], value)
        after = tree.leaves(new)
        if len(before) != len(after) or any(a is not b for a, b in zip(before, after, strict=True)):
            shown.aux.put(live, new)
        return live
    how = NODES[kind]
    under = list(how.flatten(live)[0]) if same else []
    under += [None] * (len(shown.children) - len(under))
    parts = [put(a, child, value) for a, child in zip(under, shown.children, strict=False)]
    if kind is list and same:
        if len(live) != len(parts) or any(a is not b for a, b in zip(live, parts, strict=True)):
            live[:] = parts
        return live
    if same and len(under) == len(parts) and all(a is b for a, b in zip(under, parts, strict=True)):
        return live
    if not same or isinstance(live, tuple | dict):
        return how.unflatten(shown.aux, parts)
    return _reset(live, under, parts)


def same(a: Picture, b: Picture, equal: Callable[[Any, Any], bool]) -> bool:
    """True where two pictures show the same containers with leaves that are equal."""
    if a.kind is not b.kind or len(a.children) != len(b.children):
        return False
    if a.kind is _LEAF:
        return equal(a.leaf, b.leaf)
    return bool(a.aux == b.aux) and all(
        same(one, other, equal) for one, other in zip(a.children, b.children, strict=True)
    )


def _reset(live: Any, old: list[Any], new: list[Any]) -> Any:
    """Set those attributes of an instance whose values are children that changed."""
    names = list(getattr(live, "__dict__", ()))
    for cls in type(live).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    for before, after in zip(old, new, strict=True):
        if before is after:
            continue
        found = [name for name in names if getattr(live, name, None) is before]
        if not found:
            raise TraceError(
                f"a compiled function put another tensor into a {type(live).__name__}, which has "
                f"it in no attribute of its own; write to the tensor in place, as in "
                f"`w[...] = value`, or give the class __jit_state__ and __set_jit_state__"
            )
        for name in found:
            object.__setattr__(live, name, after)
    return live
