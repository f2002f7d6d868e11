"""Tensors that need gradients and their views, on engines that keep no record of their own.

A view of such a tensor is the result of an op. Where the tensor is written to, its views must show
that: they are made again, and are from then on views of what was written. A view itself is not
written to while others that show the same memory are alive, since they could not follow.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import ref

from ember_ml.autodiff import tape
from ember_ml.backend.contract import NativeArray
from ember_ml.errors import UnsupportedOpError
from ember_ml.tensor.core import GradTensor, Tensor
from ember_ml.tensor.storage import remember

__all__ = ["Family", "Member", "is_recording", "join", "refresh", "require_alone", "retrace"]

# The name of a kernel and its options: how a view is made.
Step = tuple[str, tuple[Any, ...]]

_NEEDS_GRAD: Final = (
    "a view of a tensor that needs gradients cannot be written to on this backend while that "
    "tensor or another view of it is in use; write to the tensor itself, or to a .copy()"
)


class Family:
    """A tensor that needs gradients, and those that show its memory."""

    __slots__ = ("members", "root")

    def __init__(self, root: Tensor) -> None:
        self.root: Final = ref(root)
        self.members: list[ref[Tensor]] = []

    def others(self, x: Tensor) -> list[Tensor]:
        """The living ones but `x`."""
        found = [t for one in self.members if (t := one()) is not None and t is not x]
        found = [t for t in found if _family_of(t) is self]  # others have left by a write
        root = self.root()
        return found if root is None or root is x else [root, *found]


class Member:
    """The home of a view: whose memory it shows, and how it is made of that."""

    __slots__ = ("family", "steps")

    def __init__(self, family: Family, steps: tuple[Step, ...]) -> None:
        self.family: Final = family
        self.steps: Final = steps


def _family_of(x: Tensor) -> Family | None:
    home = getattr(x, "_home", None)
    return home.family if type(home) is Member else None


def is_recording(x: Tensor) -> bool:
    """True where a write of values that need gradients to `x` is recorded."""
    backend = x._spec.backend
    return tape.is_grad_enabled() and (not backend.records or backend.is_recording())


def join(x: Tensor, out: Tensor, *steps: Step) -> Tensor:
    """Take a view of `x`, made by some steps, into its family."""
    home = getattr(x, "_home", None)
    family: Family | None
    if type(home) is Member:
        family, steps = home.family, (*home.steps, *steps)
    else:
        family = getattr(x._node, "family", None)
        if family is None:
            family = x._node.family = Family(x)
    out._home = Member(family, steps)
    remember(family.members, out)
    return out


def require_alone(x: Tensor, home: Member) -> None:
    """Raise where a view must not be written to; one that is left alone is no view any more."""
    if not home.family.others(x):
        x._home = None
    elif not x._spec.backend.mutable or is_recording(x):
        raise UnsupportedOpError(_NEEDS_GRAD)


def refresh(x: Tensor) -> None:
    """Show what `x` has now in all views of it: its values changed, and nothing was recorded."""
    family = getattr(getattr(x, "_node", None), "family", None)
    if family is None or x._spec.backend.mutable:
        return
    for view in family.others(x):
        view.native = _made(x, x.native, view._home.steps)


def retrace(x: Tensor, before: Any) -> None:
    """Make all views of `x` again: it was a result of `before`, and is another one now."""
    family = getattr(before, "family", None)
    if family is None:
        return
    x._node.family = family
    for view in family.others(x):
        again = x
        for step in view._home.steps if type(view) is GradTensor else ():
            native = _made(x, again.native, (step,))
            again = tape.recorded(step[0], native, x._spec, (again,), step[1])
        if type(view) is GradTensor:
            view.native, view._node = again.native, again._node
        else:
            view.native = _made(x, x.native, view._home.steps)


def _made(x: Tensor, native: NativeArray, steps: tuple[Step, ...]) -> NativeArray:
    backend = x._spec.backend
    for name, options in steps:
        if name == "getitem":
            native = backend.getitem(native, *options)
        else:
            native = backend.entry(x._spec, name)[0](native, *options)
    return native
