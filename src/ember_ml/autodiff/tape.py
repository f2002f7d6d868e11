"""The record of what was done to tensors that need gradients.

torch keeps such a record itself. For every other backend, each op that is run on a GradTensor
leaves a Node: which rule differentiates it, whose results its operands were, and what of them the
rule will want to see. The nodes form the graph that `backward.py` walks from a result to the
leaves. A node never refers to tensors, only to other nodes and to native arrays: what users do to
their tensors later (a write, a rename) changes nothing in what was recorded.

What ops call on their way is compiled with the core, and in nodes.py; all of it is found here.
"""

from __future__ import annotations

import sys
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from ember_ml.autodiff.nodes import (
    BLOCKS,
    CAPTURED,
    KEEPER,
    LEAVES,
    RECORDING,
    RULES,
    Leaf,
    Node,
    Part,
    Pull,
    Rule,
    alias,
    constant,
    leaf,
    next_order,
    recorded,
    recorded_many,
    recorded_one,
    recorded_pair,
)
from ember_ml.backend import selection

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "CAPTURED",
    "KEEPER",
    "LEAVES",
    "RULES",
    "Leaf",
    "Node",
    "Part",
    "Pull",
    "Rule",
    "alias",
    "constant",
    "enable_grad",
    "is_grad_enabled",
    "keeping",
    "leaf",
    "next_order",
    "no_grad",
    "recorded",
    "recorded_many",
    "recorded_one",
    "recorded_pair",
    "set_grad_enabled",
]

# --- Switching it off -------------------------------------------------------------------------


_LOCK: Final = Lock()


def is_grad_enabled() -> bool:
    """True where ops on tensors that need gradients are recorded.

    >>> is_grad_enabled()
    True
    """
    return RECORDING.get()


class set_grad_enabled(ContextDecorator):
    """A block, or a decorated function, in which ops are recorded or are not."""

    def __init__(self, mode: bool) -> None:
        self._mode = mode
        self._open: list[tuple[Token[bool], Any]] = []

    def _recreate_cm(self) -> set_grad_enabled:
        return type(self)(self._mode)  # each call of a function has its own, in any thread

    def __enter__(self) -> None:
        engine = selection.loaded("torch")
        inner = None
        # torch's switch is that of the thread, which tasks share: there it stays on, and results
        # are cut off one by one.
        if engine is not None and not (_in_task() and (not self._mode or engine.is_recording())):
            inner = engine.recording(self._mode)
            inner.__enter__()
        with _LOCK:
            BLOCKS.open += 1
        self._open.append((RECORDING.set(self._mode), inner))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        token, inner = self._open.pop()
        RECORDING.reset(token)
        with _LOCK:
            BLOCKS.open -= 1
        if inner is not None:
            inner.__exit__(kind, error, trace)


def _in_task() -> bool:
    """True within a task of asyncio, which can be left in the middle of a block."""
    module = sys.modules.get("asyncio")
    return module is not None and module._get_running_loop() is not None


class keeping:
    """A block in which something else than Node makes the nodes; None for Node again.

    Or one in which something looks at operands: `variable` is KEEPER or CAPTURED.
    """

    def __init__(self, keeper: Any, variable: ContextVar[Any] = KEEPER) -> None:
        self._keeper = keeper
        self._variable = variable
        self._tokens: list[Token[Any]] = []

    def __enter__(self) -> None:
        with _LOCK:
            BLOCKS.open += 1
        self._tokens.append(self._variable.set(self._keeper))

    def __exit__(self, *failure: object) -> None:
        self._variable.reset(self._tokens.pop())
        with _LOCK:
            BLOCKS.open -= 1


def no_grad() -> set_grad_enabled:
    """A block, or a function by `@no_grad()`, in which nothing is recorded.

    >>> from ember_ml.nn import tensor
    >>> x = tensor.array([1.0], requires_grad=True)
    >>> with no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """
    return set_grad_enabled(False)


def enable_grad() -> set_grad_enabled:
    """A block in which ops are recorded again, within one of `no_grad`."""
    return set_grad_enabled(True)
