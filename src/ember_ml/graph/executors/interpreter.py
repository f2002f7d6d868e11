"""The `ops` executor: a graph run operator by operator on NumPy, torch, JAX or MLX.

Everything that can be is settled beforehand: each value has a number, each node is the function
that it means with its attributes bound, and the constants lie on the backend. What is left for a
run is a loop over a list.

Shapes stay on the host. What comes of Shape, of small constants and of operators over nothing
else is held by NumPy, so that Shape -> Gather -> Concat -> Reshape makes no arrays on a device
only to read them back; such values are moved when they meet a tensor of the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ember_ml.backend import selection
from ember_ml.errors import DomainError, DTypeError, EmberError, UnsupportedOpError
from ember_ml.graph.core import Graph, Node, Value
from ember_ml.graph.executors.operators import find
from ember_ml.graph.executors.operators.control import check_bodies
from ember_ml.graph.executors.program import Program, fed
from ember_ml.graph.text import plain
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend

__all__ = ["Block", "Frame", "OpsProgram"]

# Values of at most so many elements stay on the host while nothing else than such is in play.
SMALL: Final = 1024
# Operators whose results are always memory of their own. Others may give an input back, or a view
# of one: what they make of an input or of a constant is copied before it leaves as an output.
_FRESH: Final = frozenset(
    "Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization "
    "Ceil Celu Conv ConvInteger ConvTranspose Cos Cosh CumProd CumSum DequantizeLinear Div Elu "
    "Equal Erf Exp Floor Gelu Gemm Greater GreaterOrEqual GridSample GroupNormalization "
    "HardSigmoid HardSwish InstanceNormalization IsInf IsNaN LayerNormalization LeakyRelu Less "
    "LessOrEqual Log LogSoftmax LpNormalization MatMul MatMulInteger MaxPool Mish Mod Mul Neg Not "
    "Or PRelu Pow QLinearConv QLinearMatMul QuantizeLinear RMSNormalization Reciprocal Relu Round "
    "Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Sub Tan Tanh TopK Where Xor".split()
)
# What draws anew in each run is not computed beforehand.
_DRAWN: Final = frozenset(
    "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform "
    "RandomUniformLike".split()
)
_NAMES_SHOWN: Final = 8  # outputs of a node in a message
_LONGEST: Final = 400  # letters
# The slot of inputs that are left out.
_NOTHING: Final = 0


class Step:
    """A node made ready: its function, and the slots that it reads, writes and frees."""

    __slots__ = ("call", "controls", "data", "frees", "host", "inputs", "node", "outputs")

    def __init__(self, node: Node, call: Callable[..., Any], *, controls: bool) -> None:
        self.node = node
        self.call = call
        self.controls = controls
        self.inputs: tuple[int, ...] = ()
        self.outputs: tuple[int, ...] = ()
        self.frees: tuple[int, ...] = ()
        # The places of inputs that are wanted as NumPy arrays, and of the others.
        self.host: tuple[int, ...] = ()
        self.data: tuple[int, ...] = ()


class Block:
    """A graph, or the body of a branch or of a loop, made ready."""

    __slots__ = ("inputs", "outputs", "shapes", "steps", "types")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.inputs: tuple[int, ...] = ()
        self.outputs: tuple[int, ...] = ()
        self.types: tuple[str, ...] = ()
        self.shapes: tuple[Any, ...] = ()


class Frame:
    """A run: the values that are alive, by slot. Bodies use the slots of the graph around them."""

    __slots__ = ("_home", "_moved", "slots")

    def __init__(self, home: Backend | None, slots: list[Any], moved: dict[int, Tensor]) -> None:
        # None where the backend is NumPy itself, and all values are on the host anyway.
        self._home = home
        self._moved = moved
        self.slots = slots

    def run(self, block: Block) -> None:
        """Run the steps of a block, whose inputs are in their slots."""
        slots = self.slots
        home = self._home
        step: Step | None = None
        try:
            for step in block.steps:
                args = [slots[i] for i in step.inputs]
                if home is not None and step.data:
                    on_host = self._together(step, args, home)
                else:
                    on_host = home is not None
                for place in step.host:
                    given = args[place]
                    if given is not None and type(given) is not np.ndarray:
                        args[place] = given.numpy()
                made = step.call(self, *args) if step.controls else step.call(*args)
                outputs = step.outputs
                if type(made) is not tuple:
                    made = (made,)
                if len(made) < len(outputs):
                    _check_count(step.node, len(made))
                for slot, value in zip(outputs, made, strict=False):
                    slots[slot] = value
                if on_host and not step.controls:
                    self._settle(outputs)
                for slot in step.frees:
                    slots[slot] = None
        except EmberError as error:
            if step is not None:
                _name_node(error, step.node)
            raise
        except MemoryError as error:
            if step is not None:
                error.add_note(f"in {described(step.node)}")
            raise
        except Exception as error:
            # An operator that is given what it is not made for, as a file can ask for.
            if step is None:
                raise
            raise DomainError(f"{described(step.node)} cannot be run: {error}") from error

    def call(self, block: Block, *inputs: Any) -> list[Any]:
        """Run a body for some inputs; gives its outputs."""
        slots = self.slots
        for slot, value in zip(block.inputs, inputs, strict=True):
            slots[slot] = value
        self.run(block)
        results = [slots[i] for i in block.outputs]
        if any(x is None for x in results):
            raise DomainError("a body gives fewer results than it says")
        return results

    def gathered(self, values: list[Tensor]) -> list[Tensor]:
        """Values that came one after another, all of them on the backend if one of them is."""
        home = self._home
        if home is None or len({id(x._spec.backend) for x in values}) < 2:
            return values
        return [self._move(x, home) for x in values]

    def _together(self, step: Step, args: list[Any], home: Backend) -> bool:
        """Move inputs to the backend where one of them is there; whether none is."""
        apart = []
        there = False
        for place in step.data:
            given = args[place]
            if given is None:
                continue
            if given._spec.backend is home:
                there = True
            else:
                apart.append(place)
        if not there:
            return True
        if not step.controls:  # bodies move what they need
            for place in apart:
                kept = self._moved.get(step.inputs[place])
                args[place] = self._move(args[place], home) if kept is None else kept
        return False

    def _settle(self, outputs: tuple[int, ...]) -> None:
        """What has grown large leaves the host."""
        home = self._home
        for slot in outputs:
            value = self.slots[slot]
            if home is not None and value is not None and value.size > SMALL:
                self.slots[slot] = self._move(value, home)

    def _move(self, value: Tensor, home: Backend) -> Tensor:
        return value if value._spec.backend is home else convert.to_backend(value, home)


class OpsProgram(Program):
    """A graph made ready to run by `ops` on a backend."""

    def __init__(self, graph: Graph, backend: str) -> None:
        self.executor = backend
        self._graph = graph
        self._opsets = {"" if d == "ai.onnx" else d: v for d, v in graph.opsets.items()}
        self._backend = selection.load(backend)
        numpy = selection.load("numpy")
        self._home = None if self._backend is numpy else self._backend
        self._numpy = numpy
        # Of values by identity; the values are kept alive with them.
        self._slots: dict[int, tuple[int, Value]] = {}
        self._template: list[Any] = [None]
        self._arrays: dict[int, int] = {}
        # Constants on the host that some node may want on the backend, by slot.
        self._moved: dict[int, Tensor] = {}
        # Slots of constants, and of what follows from constants alone.
        self._fixed: set[int] = {_NOTHING}
        for value in graph.inputs:
            self._refuse_strings(value)
        self._block = self._compile(graph)
        self._inputs = [(x.name, self._slot(x), self._stays(x)) for x in graph.inputs]
        # Views follow a write on every backend, whether its arrays can be written to or not.
        aliases = self._aliases()
        self._outputs = [(x.name, self._slot(x), id(x) in aliases) for x in graph.outputs]

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, as tensors of the backend.

        Inputs are NumPy arrays, lists, or tensors; those of another backend are moved. 4-bit
        integers, which no backend has, come out as 8-bit ones.
        """
        given = fed(self._graph, feeds)
        slots = self._template.copy()
        for name, slot, stays in self._inputs:
            slots[slot] = self._fed(given[name], stays)
        frame = Frame(self._home, slots, self._moved)
        frame.run(self._block)
        results: dict[str, Any] = {}
        for name, slot, aliased in self._outputs:
            value = slots[slot]
            if value is None:
                raise DomainError(f"graph '{self._graph.name}': no node makes the output '{name}'")
            results[name] = self._given(name, value, aliased)
        return results

    def _given(self, name: str, value: Tensor, aliased: bool) -> Tensor:
        """An output on the backend. No write to it changes an input, a constant or another one."""
        try:
            if value._spec.backend is not self._backend:
                return convert.to_backend(value, self._backend, True if aliased else None)
            return value.copy() if aliased else value
        except (EmberError, MemoryError):
            raise
        except Exception as error:  # a view of one number can be larger than any memory
            raise DomainError(
                f"graph '{self._graph.name}': the output '{plain(name)}' of shape {value.shape} "
                f"cannot be made: {error}"
            ) from error

    def _fed(self, value: Any, stays: bool) -> Tensor:
        if isinstance(value, Tensor):
            return value if stays else self._to_backend(value)
        return convert.to_tensor(_plain(value), self._numpy if stays else self._backend)

    # --- Making ready -------------------------------------------------------------------------

    def _compile(self, graph: Graph) -> Block:
        block = Block()
        inner = {id(x) for x in graph.inputs}
        last: dict[int, int] = {}
        for node in graph.nodes:
            step = self._step(node)
            if self._folded(step):
                continue
            count = len(block.steps)
            block.steps.append(step)
            inner.update(id(x) for x in node.outputs)
            for value in _reads(node):
                last[id(value)] = count
            for value in node.outputs:
                last.setdefault(id(value), count)
        kept = {id(x) for x in graph.outputs}
        frees: dict[int, list[int]] = {}
        for key, count in last.items():
            if key in inner and key not in kept:
                frees.setdefault(count, []).append(self._slots[key][0])
        for count, slots in frees.items():
            block.steps[count].frees = tuple(slots)
        block.inputs = tuple(self._slot(x) for x in graph.inputs)
        block.outputs = tuple(self._slot(x) for x in graph.outputs)
        block.types = tuple(x.dtype for x in graph.outputs)
        block.shapes = tuple(x.shape for x in graph.outputs)
        return block

    def _step(self, node: Node) -> Step:
        where = described(node)
        domain = "" if node.domain == "ai.onnx" else node.domain
        found = find(domain, node.op, self._opsets.get(domain), where)
        if found.most is not None and len(node.inputs) > found.most:
            raise UnsupportedOpError(
                f"{where} has {len(node.inputs)} inputs; the ops executor knows {found.most}"
            )
        for place in range(found.least):
            if place >= len(node.inputs) or node.inputs[place] is None:
                raise DomainError(f"{where} lacks input {place + 1} of at least {found.least}")
        for value in (*node.inputs, *node.outputs):
            if value is not None:
                self._refuse_strings(value, where)
        check_bodies(node, where)
        attributes = {
            name: self._compile(value) if isinstance(value, Graph) else _plain_text(value)
            for name, value in node.attributes.items()
        }
        asked = {
            "outputs": len(node.outputs),
            "given": tuple(None if x is None else x.dtype for x in node.inputs),
            "made": tuple(x.dtype for x in node.outputs),
        }
        step = Step(node, found.bound(attributes, asked, where), controls=found.controls)
        inputs = []
        for place, value in enumerate(node.inputs):
            if value is None:
                inputs.append(_NOTHING)
            elif place in found.host and value.data is not None:
                inputs.append(self._array_slot(value))
            else:
                inputs.append(self._slot(value))
        step.inputs = tuple(inputs)
        step.host = tuple(i for i in found.host if i < len(inputs))
        step.data = tuple(i for i, x in enumerate(inputs) if i not in found.host and x)
        step.outputs = tuple(self._slot(x) for x in node.outputs)
        return step

    def _folded(self, step: Step) -> bool:
        """Compute what follows from constants alone, once; whether it was so."""
        if step.controls or step.node.op in _DRAWN or not self._fixed.issuperset(step.inputs):
            return False
        block = Block()
        block.steps.append(step)
        try:
            Frame(self._home, self._template, self._moved).run(block)
        except Exception:
            return False  # a run says what is wrong, if it ever comes here
        for slot in step.outputs:
            value = self._template[slot]
            if value is not None:
                self._template[slot] = self._place(slot, value)
        self._fixed.update(step.outputs)
        return True

    def _place(self, slot: int, value: Tensor) -> Tensor:
        """A constant where nodes want it: small ones on the host and on the backend."""
        home = self._home
        if home is None or value.size > SMALL:
            return self._to_backend(value)
        if value._spec.backend is home:
            self._moved[slot] = value
            return convert.asarray(value.numpy(), backend=self._numpy)
        self._moved[slot] = convert.to_backend(value, home)
        return value

    def _to_backend(self, value: Tensor) -> Tensor:
        there = value._spec.backend is self._backend
        return value if there else convert.to_backend(value, self._backend)

    def _slot(self, value: Value) -> int:
        """The slot of a value; constants are put there."""
        found = self._slots.get(id(value))
        if found is not None:
            return found[0]
        slot = len(self._template)
        self._slots[id(value)] = (slot, value)
        self._template.append(None)
        if value.data is not None:
            array = _plain(value.data)
            first = self._numpy if array.size <= SMALL else self._backend
            self._template[slot] = self._place(slot, convert.asarray(array, backend=first))
            self._fixed.add(slot)
        return slot

    def _array_slot(self, value: Value) -> int:
        """The slot of a constant that is wanted as a NumPy array."""
        slot = self._arrays.get(id(value))
        if slot is None:
            slot = self._arrays[id(value)] = len(self._template)
            self._template.append(_plain(value.data))
            self._fixed.add(slot)
        return slot

    def _refuse_strings(self, value: Value, where: str = "") -> None:
        if value.dtype == "string":
            raise DTypeError(
                f"{where or f'graph {self._graph.name!r}'}: '{value.name}' holds strings, and the "
                f"ops executor computes with numbers; run the graph on ONNX Runtime"
            )

    def _stays(self, value: Value) -> bool:
        """Whether an input is wanted on the host only: sizes, axes and the like."""
        slot = self._slots[id(value)][0]
        if self._home is None or slot in self._block.outputs:
            return False
        wanted = False
        for step in _all_steps(self._block):
            for place, one in enumerate(step.inputs):
                if one == slot:
                    if place not in step.host:
                        return False
                    wanted = True
        return wanted

    def _aliases(self) -> set[int]:
        """Outputs that may share memory with an input, with a constant or with one before them."""
        above: dict[int, int] = {}

        def group(key: int) -> int:
            """Who stands for all values that may share memory with one."""
            first = key
            while above.get(first, first) != first:
                first = above[first]
            while above.get(key, key) != first:
                above[key], key = first, above[key]
            return first

        for node in self._graph.nodes:
            if node.op not in _FRESH:
                for value in (*_reads(node), *node.outputs[1:]):
                    above[group(id(value))] = group(id(node.outputs[0]))
        taken = {group(id(x)) for x in self._graph.inputs}
        taken.update(group(key) for key, (slot, _) in self._slots.items() if slot in self._fixed)
        found = set()
        for value in self._graph.outputs:
            if group(id(value)) in taken:
                found.add(id(value))
            taken.add(group(id(value)))
        return found


def described(node: Node) -> str:
    """A node for messages: what it is, what it is called and what it makes."""
    called = f"{node.domain}.{node.op}" if node.domain else node.op
    label = f" '{node.label}'" if node.label else ""
    source = f" ({node.source})" if node.source else ""
    made = ", ".join(x.name for x in node.outputs[:_NAMES_SHOWN])
    return plain(f"node {called}{label} -> {made}{source}", _LONGEST)


def _check_count(node: Node, made: int) -> None:
    """Raise where a node has an output that its operator does not make."""
    if any(value.name for value in node.outputs[made:]):
        raise DomainError(f"{node.op} makes {made} outputs, not {len(node.outputs)}")


def _name_node(error: EmberError, node: Node) -> None:
    """Say in an error's text which node it was."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]} (in {described(node)})",)
    else:
        error.add_note(f"in {described(node)}")


def _reads(node: Node) -> list[Value]:
    found = [x for x in node.inputs if x is not None]
    for body in node.subgraphs():
        for inner in body.nodes:
            found.extend(_reads(inner))
        found.extend(body.outputs)
    return found


def _all_steps(block: Block) -> list[Step]:
    found = []
    for step in block.steps:
        found.append(step)
        for value in getattr(step.call, "keywords", {}).values():
            if isinstance(value, Block):
                found.extend(_all_steps(value))
    return found


def _plain(array: Any) -> np.ndarray[Any, Any]:
    """An array in a dtype that tensors have: 4-bit integers become 8-bit ones."""
    made = np.asarray(array)
    if made.dtype.name == "int4":
        return made.astype(np.int8)
    return made.astype(np.uint8) if made.dtype.name == "uint4" else made


def _plain_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [x.decode() for x in value]
    return value
