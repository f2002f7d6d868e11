"""The record of what was done to tensors that need gradients.

torch keeps such a record itself. For every other backend, each op that is run on a GradTensor
leaves a Node: which rule differentiates it, whose results its operands were, and what of them the
rule will want to see. The nodes form the graph that `backward.py` walks from a result to the
leaves. A node never refers to tensors, only to other nodes and to native arrays: what users do to
their tensors later (a write, a rename) changes nothing in what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any, Final, NamedTuple

from ember_ml.backend import writes
from ember_ml.backend.contract import NativeArray, Spec
from ember_ml.tensor.core import GradTensor, Tensor, fill, fill_grad

__all__ = [
    "Leaf",
    "Node",
    "Part",
    "Rule",
    "enable_grad",
    "is_grad_enabled",
    "keeping",
    "leaf",
    "no_grad",
    "recorded",
    "recorded_many",
    "set_grad_enabled",
]

# A pull takes the gradient of a result, the result, the operands and the options of the op, and
# gives the gradient of one operand.
Pull = Callable[..., Tensor]


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


# False where nothing is recorded; else True, or what makes the nodes: see memory/offloading.py.
_RECORDING: Final[ContextVar[Any]] = ContextVar("ember_ml recording", default=True)
_KEEPER: Final[ContextVar[Any]] = ContextVar("ember_ml keeper", default=True)
_ORDER: Final = count()
# Rules by the name of the kernel; filled by ember_ml.autodiff.rules when the first is asked for.
RULES: Final[dict[str, Rule]] = {}


class Node:
    """One op that was run on tensors that need gradients."""

    __slots__ = (
        "__weakref__",
        "kept",
        "options",
        "order",
        "out",
        "parents",
        "result",
        "rule",
        "specs",
        "writes",
    )

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
        self.order = next(_ORDER)  # operands come before what is made of them
        self.rule = rule
        self.parents = parents
        self.kept = kept
        self.specs = specs
        self.options = options
        self.out = out
        self.result = result
        self.writes = writes.serial()


class Leaf(Node):
    """Where a graph begins: a tensor that the user made, and its gradient."""

    __slots__ = ("grad",)

    def __init__(self) -> None:
        super().__init__(None, (), (), (), (), None, None)
        self.grad: Tensor | None = None


class Part(Node):
    """One of several results of an op; `options` has its place among them."""

    __slots__ = ()


def leaf(native: NativeArray, spec: Spec) -> Tensor:
    """A GradTensor around a native array, in which gradients end."""
    out = object.__new__(GradTensor)
    out.native = native
    out._spec = spec
    out._node = Leaf()
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
    if spec.backend.records:
        return (fill_grad if native.requires_grad else fill)(native, spec)
    mode = _RECORDING.get()
    if not mode or not spec.dtype.is_inexact:
        return fill(native, spec)
    rule = RULES.get(name)
    if rule is None:
        rule = _rule(name)
    if rule.keeps_inputs:
        kept = tuple([None if x is None else x.native for x in inputs])
    else:
        kept = tuple([None if x is None else _shape(x) for x in inputs])
    out = object.__new__(GradTensor)
    out.native = native
    out._spec = spec
    out._node = (Node if mode is True else mode)(
        rule,
        tuple([x._node if type(x) is GradTensor else None for x in inputs]),
        kept,
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
        return tuple(
            (fill_grad if getattr(native, "requires_grad", False) else fill)(native, spec)
            for native, spec in results
        )
    mode = _RECORDING.get()
    if not mode:
        return tuple(fill(native, spec) for native, spec in results)
    rule = RULES.get(name) or _rule(name)
    node = (Node if mode is True else mode)(
        rule,
        tuple([x._node if type(x) is GradTensor else None for x in inputs]),
        tuple(
            [None if x is None else x.native if rule.keeps_inputs else _shape(x) for x in inputs]
        ),
        tuple([None if x is None else x._spec for x in inputs]),
        options,
        tuple([native if rule.keeps_output else tuple(native.shape) for native, _ in results]),
        tuple([spec for _, spec in results]),
    )
    made = []
    for place, (native, spec) in enumerate(results):
        out = fill(native, spec)
        if spec.dtype.is_inexact:
            out = fill_grad(native, spec)
            out._node = Part(None, (node,), (), (), (place,), None, None)
        made.append(out)
    return tuple(made)


def _shape(x: Tensor) -> tuple[int, ...]:
    return tuple(x.native.shape)


def _rule(name: str) -> Rule:
    from ember_ml.autodiff import rules

    return rules.find(name)


# --- Switching it off -------------------------------------------------------------------------


def is_grad_enabled() -> bool:
    """True where ops on tensors that need gradients are recorded.

    >>> is_grad_enabled()
    True
    """
    return bool(_RECORDING.get())


@contextmanager
def set_grad_enabled(mode: bool) -> Iterator[None]:
    """Record ops within the block, or do not."""
    from ember_ml.backend import selection

    engine = selection.loaded("torch")
    token = _RECORDING.set(_KEEPER.get() if mode else False)
    try:
        if engine is None:
            yield
        else:
            with engine.recording(mode):
                yield
    finally:
        _RECORDING.reset(token)


@contextmanager
def keeping(keeper: Any) -> Iterator[None]:
    """Let something else than Node make the nodes within the block; True for Node again."""
    kept = _KEEPER.set(keeper)
    token = _RECORDING.set(_RECORDING.get() and keeper)
    try:
        yield
    finally:
        _RECORDING.reset(token)
        _KEEPER.reset(kept)


def no_grad() -> Any:
    """A block, or a function by `@no_grad()`, in which nothing is recorded.

    >>> from ember_ml.nn import tensor
    >>> x = tensor.array([1.0], requires_grad=True)
    >>> with no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """
    return set_grad_enabled(False)


def enable_grad() -> Any:
    """A block in which ops are recorded again, within one of `no_grad`."""
    return set_grad_enabled(True)
