"""The record of what was done to tensors that need gradients.

torch keeps such a record itself. For every other backend, each op that is run on a GradTensor
leaves a Node: which rule differentiates it, whose results its operands were, and what of them the
rule will want to see. The nodes form the graph that `backward.py` walks from a result to the
leaves. A node never refers to tensors, only to other nodes and to native arrays: what users do to
their tensors later (a write, a rename) changes nothing in what was recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from functools import partial
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ember_ml.backend import selection, writes
from ember_ml.backend.contract import NativeArray, Spec
from ember_ml.tensor.core import GradTensor, Tensor, blank, blank_grad, fill, fill_grad

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "Kept",
    "KeptPart",
    "Leaf",
    "Node",
    "Part",
    "Rule",
    "alias",
    "constant",
    "enable_grad",
    "is_grad_enabled",
    "keeping",
    "leaf",
    "no_grad",
    "recorded",
    "recorded_many",
    "recorded_one",
    "recorded_pair",
    "set_grad_enabled",
]

# A pull takes the gradient of a result, the result, the operands and the options of the op, and
# gives the gradient of one operand.
Pull = Callable[..., Any]


class Rule(NamedTuple):
    """How an op is differentiated: see rules/."""

    name: str
    # One for each operand, None for those that have no gradient; or one function for all, whose
    # result is a sequence.
    pulls: tuple[Pull | None, ...]
    joint: Pull | None
    # Which values it wants to see; of others it gets shape and dtype only.
    keeps_inputs: bool
    keeps_output: bool
    # The same pulls over native arrays, for real numbers: see rules/quick.py.
    quick: tuple[Pull, ...] | None = None
    # True where `joint` is told by `create=` whether it is itself to be differentiated.
    told: bool = False


_RECORDING: Final[ContextVar[bool]] = ContextVar("ember_ml recording", default=True)
# What makes the nodes, a memory.offloading.Keeper; None for Node itself.
KEEPER: Final[ContextVar[Any]] = ContextVar("ember_ml keeper", default=None)
# What looks at the operands of recorded ops, an engine_calls.Captured; None for nothing.
CAPTURED: Final[ContextVar[Any]] = ContextVar("ember_ml captured", default=None)
_WRITES: Final = writes.STATE
_next_order: Final = count().__next__
# Rules by the name of the kernel; filled by ember_ml.autodiff.rules when the first is asked for.
RULES: Final[dict[str, Rule]] = {}


class Node:
    """One op that was run on tensors that need gradients."""

    __slots__ = ("__weakref__", "facts", "family", "grad", "kept", "order", "parents", "rule")

    # The gradient, of a Leaf or a Kept; and the views of the tensor, once there are some.
    grad: Tensor | None
    family: Any

    def __init__(
        self,
        rule: Rule | None,
        parents: tuple[Node | None, ...],
        kept: tuple[Any, ...],
        specs: tuple[Any, ...],
        options: tuple[Any, ...],
        out: Any,
        result: Any,
    ) -> None:
        self.order = _next_order()  # operands come before what is made of them
        self.rule = rule
        self.parents = parents
        # What the rule wants to see of the operands: native arrays, or shapes where it needs no
        # values.
        self.kept = kept
        self.facts: tuple[Any, ...] = (specs, options, out, result, _WRITES.serial)

    @property
    def specs(self) -> tuple[Any, ...]:
        """The specs of the operands."""
        found: tuple[Any, ...] = self.facts[0]
        return found

    @property
    def options(self) -> tuple[Any, ...]:
        """The options with which the kernel was called."""
        found: tuple[Any, ...] = self.facts[1]
        return found

    @property
    def out(self) -> Any:
        """The native result, or its shape; a tuple of those where there are several."""
        return self.facts[2]

    @property
    def result(self) -> Any:
        """The spec of the result; a tuple of specs where there are several."""
        return self.facts[3]

    @property
    def writes(self) -> int:
        """How many writes there had been."""
        found: int = self.facts[4]
        return found


class _Leaves:
    """Whether there has ever been a tensor that needs gradients by itself."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = False


LEAVES: Final = _Leaves()


class Leaf(Node):
    """Where a graph begins: a tensor that the user made, and its gradient."""

    __slots__ = ()

    def __init__(self) -> None:
        self.order = _next_order()
        self.rule = None
        self.parents = ()
        self.grad = None
        _WRITES.watching = True
        LEAVES.made = True


class Kept(Node):
    """An op whose result keeps its gradient, by `retain_grad`; a node becomes one."""

    __slots__ = ()


class Part(Node):
    """One of several results of an op; `options` has its place among them."""

    __slots__ = ()


class KeptPart(Part):
    """One of several results, which keeps its gradient."""

    __slots__ = ()


# Allocations on the way of every op: called quickest through a partial.
_blank_node: Final[Callable[[], Node]] = partial(object.__new__, Node)
_blank_leaf: Final[Callable[[], Leaf]] = partial(object.__new__, Leaf)


def constant(x: Tensor) -> Tensor:
    """The same values, cut off from every record and from every transform of an engine."""
    if type(x) is GradTensor:
        return x.detach()
    backend = x._spec.backend
    return fill(backend.detach(x.native), x._spec) if backend.gradients.transforms else x


def alias(native: NativeArray, spec: Spec) -> Tensor:
    """A leaf that nobody sees but who differentiates by it."""
    node = _blank_leaf()
    node.order = _next_order()
    node.rule = None
    node.parents = ()
    node.grad = None
    _WRITES.watching = True
    out = blank_grad()
    out.native = native
    out._spec = spec
    out._node = node
    return out


def leaf(native: NativeArray, spec: Spec) -> Tensor:
    """A GradTensor around a native array, in which gradients end."""
    out = blank_grad()
    out.native = native
    out._spec = spec
    out._node = Leaf()
    return out


def _as_torch_says(native: NativeArray, spec: Spec) -> Tensor:
    """A result of an engine with a record of its own: it knows whether gradients are needed."""
    needed = native.requires_grad
    if needed and _BLOCKS.open and not _RECORDING.get():  # in a task: see set_grad_enabled
        native, needed = spec.backend.detach(native), False
    out = blank_grad() if needed else blank()
    out.native = native
    out._spec = spec
    return out


def recorded_one(
    name: str, native: NativeArray, spec: Spec, x: Tensor, options: tuple[Any, ...]
) -> Tensor:
    """`recorded` for a GradTensor and no other operand."""
    if spec.records:
        return _as_torch_says(native, spec)
    if _BLOCKS.open or not spec.inexact:
        return recorded(name, native, spec, (x,), options)
    try:
        rule = RULES[name]
    except KeyError:
        rule = _rule(name)
    array = x.native
    node = _blank_node()
    node.order = _next_order()
    node.rule = rule
    node.parents = (x._node,)
    node.kept = (array if rule.keeps_inputs else array.shape,)
    node.facts = (
        (x._spec,),
        options,
        native if rule.keeps_output else native.shape,
        spec,
        _WRITES.serial,
    )
    out = blank_grad()
    out.native = native
    out._spec = spec
    out._node = node
    return out


def recorded_pair(name: str, native: NativeArray, spec: Spec, x1: Tensor, x2: Tensor) -> Tensor:
    """`recorded` for two operands, one at least a GradTensor, and no options."""
    if spec.records:
        return _as_torch_says(native, spec)
    if _BLOCKS.open or not spec.inexact:
        return recorded(name, native, spec, (x1, x2))
    try:
        rule = RULES[name]
    except KeyError:
        rule = _rule(name)
    a, b = x1.native, x2.native
    node = _blank_node()
    node.order = _next_order()
    node.rule = rule
    node.parents = (
        x1._node if type(x1) is GradTensor else None,
        x2._node if type(x2) is GradTensor else None,
    )
    node.kept = (a, b) if rule.keeps_inputs else (a.shape, b.shape)
    node.facts = (
        (x1._spec, x2._spec),
        (),
        native if rule.keeps_output else native.shape,
        spec,
        _WRITES.serial,
    )
    out = blank_grad()
    out.native = native
    out._spec = spec
    out._node = node
    return out


def recorded(
    name: str,
    native: NativeArray,
    spec: Spec,
    inputs: Sequence[Tensor | None],
    options: tuple[Any, ...] = (),
) -> Tensor:
    """The result of an op, of which one input at least needs gradients, with its record.

    Inputs are the operands as the kernel got them: in the dtype in which it ran.
    """
    if spec.records:
        return _as_torch_says(native, spec)
    if _BLOCKS.open and (captured := CAPTURED.get()) is not None:
        captured.take(inputs)
    if not _RECORDING.get() or not spec.inexact:
        return fill(native, spec)
    rule = RULES.get(name) or _rule(name)
    out = blank_grad()
    out.native = native
    out._spec = spec
    out._node = (KEEPER.get() or Node)(
        rule,
        tuple([x._node if type(x) is GradTensor else None for x in inputs]),
        _kept(rule, inputs),
        tuple([None if x is None else x._spec for x in inputs]),
        options,
        native if rule.keeps_output else tuple(native.shape),
        spec,
    )
    return out


def recorded_many(
    name: str,
    results: Sequence[tuple[NativeArray, Spec]],
    inputs: Sequence[Tensor | None],
    options: tuple[Any, ...] = (),
) -> tuple[Tensor, ...]:
    """The results of an op that gives several arrays, with one record for all."""
    first = results[0][1] if results else None
    if first is None or first.backend.records:
        return tuple([_as_torch_says(native, spec) for native, spec in results])
    if _BLOCKS.open and (captured := CAPTURED.get()) is not None:
        captured.take(inputs)
    if not _RECORDING.get():
        return tuple(fill(native, spec) for native, spec in results)
    rule = RULES.get(name) or _rule(name)
    node = (KEEPER.get() or Node)(
        rule,
        tuple([x._node if type(x) is GradTensor else None for x in inputs]),
        _kept(rule, inputs),
        tuple([None if x is None else x._spec for x in inputs]),
        options,
        tuple([native if rule.keeps_output else tuple(native.shape) for native, _ in results]),
        tuple([spec for _, spec in results]),
    )
    made = []
    for place, (native, spec) in enumerate(results):
        out = fill(native, spec)
        if spec.inexact:
            out = fill_grad(native, spec)
            out._node = Part(None, (node,), (), (), (place,), None, None)
        made.append(out)
    return tuple(made)


def _kept(rule: Rule, inputs: Sequence[Tensor | None]) -> tuple[Any, ...]:
    if rule.keeps_inputs:
        return tuple([None if x is None else x.native for x in inputs])
    return tuple([None if x is None else tuple(x.native.shape) for x in inputs])


def _rule(name: str) -> Rule:
    from ember_ml.autodiff import rules

    return rules.find(name)


# --- Switching it off -------------------------------------------------------------------------


class _Blocks:
    """How many blocks are open, in all threads, in which something else than the default holds."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open = 0


_BLOCKS: Final = _Blocks()
_LOCK: Final = Lock()


def is_grad_enabled() -> bool:
    """True where ops on tensors that need gradients are recorded.

    >>> is_grad_enabled()
    True
    """
    return _RECORDING.get()


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
            _BLOCKS.open += 1
        self._open.append((_RECORDING.set(self._mode), inner))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        token, inner = self._open.pop()
        _RECORDING.reset(token)
        with _LOCK:
            _BLOCKS.open -= 1
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
            _BLOCKS.open += 1
        self._tokens.append(self._variable.set(self._keeper))

    def __exit__(self, *failure: object) -> None:
        self._variable.reset(self._tokens.pop())
        with _LOCK:
            _BLOCKS.open -= 1


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
