"""The nodes of the record, and how ops leave them behind.

This is a file of the compiled core (ember_ml/compiled.py); tape.py tells what the record is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import count
from typing import Any, Final

from ember_ml.backend import writes
from ember_ml.backend.spec import NativeArray, Spec
from ember_ml.compiled import mypyc_attr
from ember_ml.tensor.core import GradTensor, Tensor  # first: it sets `blank`

# isort: split
from ember_ml.tensor.cell import Cell, blank, blank_grad, fill, fill_grad

__all__ = [
    "BLOCKS",
    "CAPTURED",
    "KEEPER",
    "LEAVES",
    "RECORDING",
    "RULES",
    "Leaf",
    "Node",
    "Part",
    "Pull",
    "Rule",
    "alias",
    "constant",
    "leaf",
    "next_order",
    "recorded",
    "recorded_many",
    "recorded_one",
    "recorded_pair",
]

# A pull takes the gradient of a result, the result, the operands and the options of the op, and
# gives the gradient of one operand.
Pull = Callable[..., Any]


class Rule:
    """How an op is differentiated: see rules/."""

    __slots__ = ("joint", "keeps_inputs", "keeps_output", "name", "pulls", "quick", "told")

    def __init__(
        self,
        name: str,
        pulls: tuple[Any, ...],
        joint: Any,
        keeps_inputs: bool,
        keeps_output: bool,
        quick: tuple[Any, ...] | None = None,
        told: bool = False,
    ) -> None:
        self.name: Final = name
        # One for each operand, None for those that have no gradient; or one function for all,
        # whose result is a sequence.
        self.pulls: Final = pulls
        self.joint: Final[Any] = joint
        # Which values it wants to see; of others it gets shape and dtype only.
        self.keeps_inputs: Final = keeps_inputs
        self.keeps_output: Final = keeps_output
        # The same pulls over native arrays, for real numbers: see rules/quick.py.
        self.quick: Final = quick
        # True where `joint` is told by `create=` whether it is itself to be differentiated.
        self.told: Final = told

    def shortened(self, quick: tuple[Any, ...]) -> Rule:
        """The same rule with a short cut."""
        return Rule(
            self.name,
            self.pulls,
            self.joint,
            self.keeps_inputs,
            self.keeps_output,
            quick,
            self.told,
        )


RECORDING: Final[ContextVar[bool]] = ContextVar("ember_ml recording", default=True)
# What makes the nodes, a memory.offloading.Keeper; None for Node itself.
KEEPER: Final[ContextVar[Any]] = ContextVar("ember_ml keeper", default=None)
# What looks at the operands of recorded ops, an engine_calls.Captured; None for nothing.
CAPTURED: Final[ContextVar[Any]] = ContextVar("ember_ml captured", default=None)
# Constants, which compiled code holds at hand; names of another module it would look up.
_GRAD: Final[Any] = GradTensor
_WRITES: Final = writes.STATE
next_order: Final[Callable[[], int]] = count().__next__
# Rules by the name of the kernel; filled by ember_ml.autodiff.rules when the first is asked for.
RULES: Final[dict[str, Rule]] = {}


class _Blocks:
    """How many blocks are open, in all threads, in which something else than the default holds."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open = 0


class _Leaves:
    """Whether there has ever been a tensor that needs gradients by itself."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = False


BLOCKS: Final = _Blocks()
LEAVES: Final = _Leaves()


@mypyc_attr(allow_interpreted_subclasses=True)  # memory/offloading.py has one
class Node:
    """One op that was run on tensors that need gradients."""

    __slots__ = (
        "facts",
        "family",
        "grad",
        "keeps",
        "kept",
        "order",
        "parents",
        "rule",
        "writes",
    )
    # The gradient, of a Leaf or of one that keeps it; and the views of the tensor, once there are
    # some.
    grad: Any
    family: Any

    def __init__(
        self,
        rule: Rule | None,
        parents: tuple[Any, ...],
        kept: tuple[Any, ...],
        specs: tuple[Any, ...],
        options: tuple[Any, ...],
        out: Any,
        result: Any,
    ) -> None:
        self.order: int = next_order()  # operands come before what is made of them
        self.rule = rule
        self.parents = parents
        # What the rule wants to see of the operands: native arrays, or shapes where it needs no
        # values.
        self.kept = kept
        self.facts: tuple[Any, ...] = (specs, options, out, result)
        # How many writes there had been.
        self.writes: int = _WRITES.serial
        # True where the result keeps its gradient, by `retain_grad`.
        self.keeps = False

    @property
    def specs(self) -> Any:
        """The specs of the operands."""
        return self.facts[0]

    @property
    def options(self) -> Any:
        """The options with which the kernel was called."""
        return self.facts[1]

    @property
    def out(self) -> Any:
        """The native result, or its shape; a tuple of those where there are several."""
        return self.facts[2]

    @property
    def result(self) -> Any:
        """The spec of the result; a tuple of specs where there are several."""
        return self.facts[3]


@mypyc_attr(allow_interpreted_subclasses=True)
class Leaf(Node):
    """Where a graph begins: a tensor that the user made, and its gradient."""

    __slots__ = ()

    def __init__(self, hidden: bool = False) -> None:
        self.order = next_order()
        self.rule = None
        self.parents = ()
        self.keeps = False
        self.grad = None
        _WRITES.watching = True
        if not hidden:
            LEAVES.made = True


# As its base: else mypyc calls __init__ twice, and never frees what the first call took.
@mypyc_attr(allow_interpreted_subclasses=True)
class Part(Node):
    """One of several results of an op; `options` has its place among them."""

    __slots__ = ()


def constant(x: Any) -> Tensor:
    """The same values, cut off from every record and from every transform of an engine."""
    if type(x) is _GRAD:
        cut: Tensor = x.detach()
        return cut
    spec: Spec = x._spec
    backend = spec.backend
    return fill(backend.detach(x.native), spec) if backend.gradients.transforms else x


def leaf(native: NativeArray, spec: Spec, hidden: bool = False) -> Tensor:
    """A GradTensor around a native array, in which gradients end."""
    out = blank_grad()
    out.native = native
    out._spec = spec
    out._node = Leaf(hidden)
    return out  # type: ignore[return-value]  # a GradTensor, which Cell cannot name


def alias(native: NativeArray, spec: Spec) -> Tensor:
    """A leaf that nobody sees but who differentiates by it."""
    return leaf(native, spec, True)


def _as_torch_says(native: NativeArray, spec: Spec) -> Tensor:
    """A result of an engine with a record of its own: it knows whether gradients are needed."""
    needed: bool = native.requires_grad
    if needed and BLOCKS.open and not RECORDING.get():  # in a task: see set_grad_enabled
        native, needed = spec.backend.detach(native), False
    out = blank_grad() if needed else blank()
    out.native = native
    out._spec = spec
    return out  # type: ignore[return-value]  # as above


def recorded_one(
    name: str, native: NativeArray, spec: Spec, x: Any, options: tuple[Any, ...]
) -> Tensor:
    """`recorded` for a GradTensor and no other operand."""
    if spec.records:
        return _as_torch_says(native, spec)
    if BLOCKS.open or not spec.inexact:
        return recorded(name, native, spec, (x,), options)
    try:
        rule = RULES[name]
    except KeyError:
        rule = _rule(name)
    operand: Cell = x
    array = operand.native
    out = blank_grad()
    out.native = native
    out._spec = spec
    out._node = Node(
        rule,
        (operand._node,),
        (array if rule.keeps_inputs else array.shape,),
        (operand._spec,),
        options,
        native if rule.keeps_output else native.shape,
        spec,
    )
    return out  # type: ignore[return-value]  # as above


def recorded_pair(name: str, native: NativeArray, spec: Spec, x1: Any, x2: Any) -> Tensor:
    """`recorded` for two operands, one at least a GradTensor, and no options."""
    if spec.records:
        return _as_torch_says(native, spec)
    if BLOCKS.open or not spec.inexact:
        return recorded(name, native, spec, (x1, x2))
    try:
        rule = RULES[name]
    except KeyError:
        rule = _rule(name)
    first: Cell = x1
    second: Cell = x2
    a, b = first.native, second.native
    out = blank_grad()
    out.native = native
    out._spec = spec
    out._node = Node(
        rule,
        (
            first._node if type(x1) is _GRAD else None,
            second._node if type(x2) is _GRAD else None,
        ),
        (a, b) if rule.keeps_inputs else (a.shape, b.shape),
        (first._spec, second._spec),
        (),
        native if rule.keeps_output else native.shape,
        spec,
    )
    return out  # type: ignore[return-value]  # as above


def recorded(
    name: str,
    native: NativeArray,
    spec: Spec,
    inputs: Sequence[Any],
    options: tuple[Any, ...] = (),
) -> Tensor:
    """The result of an op, of which one input at least needs gradients, with its record.

    Inputs are the operands as the kernel got them: in the dtype in which it ran.
    """
    if spec.records:
        return _as_torch_says(native, spec)
    if BLOCKS.open and (captured := CAPTURED.get()) is not None:
        captured.take(inputs)
    if not RECORDING.get() or not spec.inexact:
        return fill(native, spec)
    rule = RULES.get(name) or _rule(name)
    out = blank_grad()
    out.native = native
    out._spec = spec
    out._node = (KEEPER.get() or Node)(
        rule,
        tuple([x._node if type(x) is _GRAD else None for x in inputs]),
        _kept(rule, inputs),
        tuple([None if x is None else x._spec for x in inputs]),
        options,
        native if rule.keeps_output else tuple(native.shape),
        spec,
    )
    return out  # type: ignore[return-value]  # as above


def recorded_many(
    name: str,
    results: Sequence[tuple[NativeArray, Any]],
    inputs: Sequence[Any],
    options: tuple[Any, ...] = (),
) -> tuple[Tensor, ...]:
    """The results of an op that gives several arrays, with one record for all."""
    first = results[0][1] if results else None
    if first is None or first.backend.records:
        return tuple([_as_torch_says(native, spec) for native, spec in results])
    if BLOCKS.open and (captured := CAPTURED.get()) is not None:
        captured.take(inputs)
    if not RECORDING.get():
        return tuple(fill(native, spec) for native, spec in results)
    rule = RULES.get(name) or _rule(name)
    node = (KEEPER.get() or Node)(
        rule,
        tuple([x._node if type(x) is _GRAD else None for x in inputs]),
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


def _kept(rule: Rule, inputs: Sequence[Any]) -> tuple[Any, ...]:
    if rule.keeps_inputs:
        return tuple([None if x is None else x.native for x in inputs])
    return tuple([None if x is None else tuple(x.native.shape) for x in inputs])


def _rule(name: str) -> Rule:
    from ember_ml.autodiff import rules

    return rules.find(name)
