"""How an engine compiles functions of its arrays. See autodiff/jitting.py for the use.

A function takes native arrays and gives a list of them. Compilers trace it: they call it once with
arrays that have no values, and run from then on what they saw. An engine without a compiler calls
the function as it is, each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend

__all__ = [
    "FROM_OUTSIDE",
    "READ",
    "Compiler",
    "Plan",
    "note",
    "outlived",
    "tracing",
    "under_trace",
]

Natives = Sequence[Any]
# Takes native arrays one by one.
Function = Callable[..., list[Any]]

READ: Final = (
    "a compiled function reads the value of a tensor that it is traced with, and there is none: "
    "take ops.where or ops.cond for an `if`, ops.while_loop or ops.scan for a loop, and read "
    "values (float, bool, .item(), .numpy()) outside, of results; a tensor that was kept from "
    "inside (in a list, an attribute) has none either: return it, or keep it in state="
)
FROM_OUTSIDE: Final = (
    "a tensor from outside cannot be written to while a function is traced: its memory would "
    "hold what exists only there; give it to em.jit in state=, return the new value, or write "
    "to a .copy() of it"
)

# What was written to while a function is traced, and the arrays of before; None outside.
Journal = list[tuple[ref[Any], Any]]
_TRACING: Final[ContextVar[Journal | None]] = ContextVar("ember_ml tracing", default=None)


def tracing() -> bool:
    """True within a function that em.jit traces."""
    return _TRACING.get() is not None


@contextmanager
def under_trace() -> Iterator[Journal]:
    """A block in which functions are called as a part of one that is traced."""
    journal: Journal = []
    token = _TRACING.set(journal)
    try:
        yield journal
    finally:
        _TRACING.reset(token)


def note(holder: Any, native: Any) -> bool:
    """Tell that a storage or tensor is about to lose an array with values for one without.

    Where that is the engine's way of making tensors within a trace, the holder is allowed to be
    one of those, which die with it: who lives on is told of by `outlived`. Else gives False.
    """
    journal = _TRACING.get()
    if journal is None:
        return False
    journal.append((ref(holder), native))
    return True


def outlived(journal: Journal) -> bool:
    """True where a holder was not made within the trace; all who live have their arrays again."""
    found = False
    for one, native in reversed(journal):
        holder = one()
        if holder is None:
            continue
        found = True
        if hasattr(holder, "replace"):  # a storage
            holder.replace(native)
        else:
            holder.native = native
    return found


class Plan:
    """What a compiler is to do with a function.

    The first `owned` inputs are state: it may be written in place within the function.
    """

    __slots__ = ("compiler", "donated", "owned")

    def __init__(
        self,
        owned: int = 0,
        donated: Callable[[], Sequence[int]] | None = None,
        compiler: str | None = None,
    ) -> None:
        self.owned = owned
        # Once the function has been traced: the inputs whose memory may be used for results.
        self.donated = donated or _none
        # What to compile with, where an engine has a choice.
        self.compiler = compiler


def _none() -> Sequence[int]:
    return ()


class Compiler:
    """An engine that runs functions as they are."""

    # False where a function is called each time.
    traces: bool = False
    # True where what was compiled can be traced and differentiated in place of the function.
    replays: bool = False
    # True where a compiled function may call the function itself, where it is differentiated.
    reenters: bool = False
    # True where a trace holds for the strides of its inputs only.
    strided: bool = False
    # True where inputs that are given up to a call must belong to nobody else.
    donates: bool = False
    # True where arrays that are made within a trace have values all the same.
    makes_values: bool = False
    # The choices of `compiler=`, the default first.
    compilers: tuple[str, ...] = ()

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def compile(self, function: Function, natives: Natives, plan: Plan) -> Function:
        """A function traced with arrays like these, as what runs instead."""
        return function

    def inlines(self) -> bool:
        """True where somebody else's trace or transform is to see the function itself."""
        return False

    def is_complaint(self, error: BaseException) -> bool:
        """True for the engine's own way of saying that a traced value was read, or got out."""
        return False

    def changed(self, given: Any, now: Any) -> bool:
        """True where an array of the state was written to within a function, in some way."""
        return now is not given

    def own(self, native: Any, leaf: bool) -> Any:
        """What stands for an array of the state within a traced function.

        `leaf` asks for one in which gradients that the engine records end.
        """
        return native

    def apart(self, native: Any, given: Natives) -> Any:
        """A result of a traced function that is not an input, and no view of one."""
        return native

    def cut(self, native: Any) -> Any:
        """An array of the new state, through which no gradient of results goes."""
        return native

    def pull(self, function: Function, natives: Natives, gradients: Natives) -> list[Any]:
        """The gradients of inputs of a function from those of its results."""
        _, _, pull = self.backend.gradients.vjp(lambda given: (function(*given), []), natives)
        return pull(gradients)

    def record(
        self, run: Callable[[Natives], list[Any]], pull: Callable[..., list[Any]], natives: Natives
    ) -> list[Any]:
        """Results of a compiled function in the engine's own record of gradients, if it has one."""
        return run(natives)
