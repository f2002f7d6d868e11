"""A trace: the graph that is being made, and how nodes come into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.errors import TraceError, UnsupportedOpError
from ember_ml.graph import types
from ember_ml.graph.core import Graph, Node, Value
from ember_ml.graph.tracing import carriers
from ember_ml.graph.tracing.lines import brief_line, place, user_line
from ember_ml.graph.tracing.operand import Array, Operand
from ember_ml.graph.tracing.sizes import Polynomial, Size, plain, sizes_in

__all__ = [
    "Trace",
    "broadcast",
    "cast",
    "constant",
    "current",
    "dims",
    "emit",
    "emit_many",
    "readable",
    "size_operand",
    "tracing",
]

_CURRENT: Final[ContextVar[Trace | None]] = ContextVar("ember_ml export", default=None)
# Constants of up to so many elements are looked for among those that are there already.
_SMALL: Final = 64
_READ: Final = (
    "em.export: the value of a traced tensor was read, and there is none: take ops.where or "
    "ops.cond for an `if`, ops.while_loop or ops.scan for a loop, and read values (float, bool, "
    ".item(), .numpy()) outside, of results"
)

Input = Operand | Value | Array | np.generic | None


class Trace:
    """One run of a function on operands."""

    def __init__(self, name: str) -> None:
        self.graph = Graph(name)
        # The graph that nodes go into, innermost last: bodies of branches and loops.
        self.graphs: list[Graph] = [self.graph]
        # What was computed of sizes, in each of those graphs.
        self._sizes: list[dict[Any, Value]] = [{}]
        # What sizes of this trace are known by.
        self.mark: Final = object()
        # Where each named size is read: an input and its axis.
        self.named: dict[str, tuple[Value, int]] = {}
        self._small: dict[Any, Value] = {}
        # The line of code of each node, which the graph keeps alive.
        self.places: dict[int, tuple[str, int] | None] = {}
        # Constants by operand, which is kept so that its id stays its own.
        self._made: dict[int, tuple[Operand, Value]] = {}
        # Tensors from outside by their own id.
        self.adopted: dict[int, tuple[Any, Operand]] = {}
        # What the inputs were, by name.
        self.examples: dict[str, Array] = {}
        # The shapes of the results, with the sizes that vary.
        self.results: list[tuple[int, ...]] = []

    # --- Values -------------------------------------------------------------------------------

    def value(self, x: Operand) -> Value:
        """The value of an operand; a constant comes into the graph here."""
        if x.value is not None:
            return x.value
        if x.parts is not None:
            raise UnsupportedOpError(
                f"em.export: graphs of ONNX Runtime have no complex numbers to take, give or "
                f"hand to this op; use ops.real, ops.imag or ops.abs{user_line()}"
            )
        found = self._made.get(id(x))
        if found is not None:
            return found[1]
        made = self.constant(x.shadow, x.name)
        self._made[id(x)] = (x, made)
        return made

    def constant(self, data: Any, name: str = "") -> Value:
        """An array as a constant; small ones of the same content are one."""
        array = np.asarray(data)
        if array.dtype.kind == "c":
            raise UnsupportedOpError(
                f"em.export: graphs of ONNX Runtime have no complex numbers, and a constant of "
                f"{array.dtype} came up{user_line()}"
            )
        if name or array.size > _SMALL:
            return self.graph.constant(array, name)
        key = (array.dtype, array.shape, array.tobytes())
        found = self._small.get(key)
        if found is None:
            found = self._small[key] = self.graph.constant(np.array(array))
        return found

    def node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[str, Any]],
        **attributes: Any,
    ) -> list[Value]:
        """Add a node to the innermost graph."""
        graph = self.graphs[-1]
        made = [Value(self.graph.fresh(op), dtype, shape) for dtype, shape in outputs]
        given = {key: _written(value) for key, value in attributes.items() if value is not None}
        where = place()
        node = Node(op, inputs, made, given, source=brief_line(where))
        self.places[id(node)] = where
        graph.nodes.append(node)
        return made

    @contextmanager
    def body(self, name: str) -> Iterator[Graph]:
        """A block whose nodes go into a graph of their own, with names that nothing else has."""
        made = Graph(name)
        made._names = self.graph._names
        self.graphs.append(made)
        self._sizes.append({})
        try:
            yield made
        finally:
            self.graphs.pop()
            self._sizes.pop()

    # --- Sizes --------------------------------------------------------------------------------

    def size(self, side: int) -> Value:
        """A size as an int64 array of one element."""
        if type(side) is not Size:
            return self.constant(np.array([side], np.int64))
        return self._polynomial(side.polynomial)

    def sides(self, shape: Sequence[int]) -> Value:
        """A shape as an int64 array."""
        if not sizes_in(shape):
            return self.constant(np.array(list(shape), np.int64))
        parts = [self.size(side) for side in shape]
        if len(parts) == 1:
            return parts[0]
        return self._whole("Concat", parts, (len(parts),), axis=0)

    def _whole(
        self, op: str, inputs: Sequence[Value], shape: tuple[int, ...] = (1,), **attributes: Any
    ) -> Value:
        return self.node(op, inputs, [("int64", shape)], **attributes)[0]

    def _polynomial(self, polynomial: Polynomial) -> Value:
        for known in self._sizes:
            if polynomial in known:
                return known[polynomial]
        total: Value | None = None
        for monomial, factor in polynomial:
            term: Value | None = None
            for atom in monomial:
                part = self._atom(atom)
                term = part if term is None else self._whole("Mul", [term, part])
            if term is None:
                term = self.size(factor)
            elif factor != 1:
                term = self._whole("Mul", [term, self.size(factor)])
            total = term if total is None else self._whole("Add", [total, term])
        assert total is not None
        self._sizes[-1][polynomial] = total
        return total

    def _atom(self, atom: Any) -> Value:
        for known in self._sizes:
            if atom in known:
                return known[atom]
        if isinstance(atom, str):
            if getattr(atom, "owner", None) is not self.mark:
                raise TraceError(
                    f"em.export: the size '{atom}' belongs to another export, and no input of this "
                    f"one has it{user_line()}; read it of an argument"
                )
            source, axis = self.named[atom]
            made = self._whole("Shape", [source], start=axis, end=axis + 1)
        elif atom[0] == "shape":
            made = self._whole("Shape", [atom[1]], start=atom[2], end=atom[2] + 1)
        else:
            first, second = self._polynomial(atom[1]), self._polynomial(atom[2])
            # ONNX divides towards zero, Python downwards; its remainder is Python's.
            rest = self._whole("Mod", [first, second])
            if atom[0] == "//":
                made = self._whole("Div", [self._whole("Sub", [first, rest]), second])
            else:
                made = rest
        self._sizes[-1][atom] = made
        return made


def current() -> Trace:
    """The trace that is being made in this thread or task."""
    found = _CURRENT.get()
    if found is None:
        raise TraceError(
            "a tensor that was kept from inside of an exported function has no values and belongs "
            "to no trace any more; return it from the function"
        )
    return found


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """A block in which operands go into a trace."""
    token = _CURRENT.set(trace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def readable(x: Operand) -> Array:
    """The values of an operand, where they can be read."""
    if x.known:
        return x.shadow
    raise TraceError(_READ + user_line())


def constant(array: Any, name: str = "") -> Operand:
    """An operand whose values are known."""
    return Operand(np.asarray(array), known=True, name=name)


# --- Nodes of operands --------------------------------------------------------------------------


def emit(
    op: str,
    inputs: Sequence[Input],
    out: Any,
    *,
    shape: tuple[int, ...] | None = None,
    like: int = 0,
    **attributes: Any,
) -> Operand:
    """A node of one result, whose values for the example are `out`.

    `shape` says which sides of the result vary; without it, that is worked out. Where ONNX Runtime
    has no kernel for the dtype of the operand at `like`, the node runs in one that holds it.
    """
    return emit_many(op, inputs, [out], shapes=[shape], like=like, **attributes)[0]


def emit_many(
    op: str,
    inputs: Sequence[Input],
    outs: Sequence[Any],
    *,
    shapes: Sequence[tuple[int, ...] | None] | None = None,
    like: int = 0,
    key: str = "",
    **attributes: Any,
) -> list[Operand]:
    """A node of several results; `key` names it in the table of types where its name does not."""
    arrays = [np.asarray(out) for out in outs]
    if all(x.known for x in inputs if isinstance(x, Operand)) and not any(
        isinstance(x, Value) for x in inputs
    ):
        return [constant(array) for array in arrays]
    trace = current()
    first: Any = inputs[like]
    dtype = first.dtype
    carrier = carriers.of(key or op, dtype)
    given = [_input(trace, x, dtype, carrier) for x in inputs]
    names = [types.name_of(carrier if array.dtype == dtype else array.dtype) for array in arrays]
    wanted = [
        _symbolic(inputs, array, None if shapes is None else shapes[i])
        for i, array in enumerate(arrays)
    ]
    made = trace.node(
        op,
        given,
        [
            (name, None if sides is None else dims(sides))
            for name, sides in zip(names, wanted, strict=True)
        ],
        **attributes,
    )
    results = []
    for array, value, sides in zip(arrays, made, wanted, strict=True):
        if sides is None:
            sides = _from_node(inputs, array, value)
            value.shape = dims(sides)
        if array.dtype == dtype and carrier != dtype:
            target = types.name_of(dtype)
            value = trace.node(
                "Cast", [value], [(target, dims(sides))], to=types.number_of(target)
            )[0]
        results.append(Operand(array, sides, value))
    return results


def _written(attribute: Any) -> Any:
    """An attribute with plain numbers: sizes of one name are equal, what is written is not."""
    if isinstance(attribute, list | tuple):
        return [_written(one) for one in attribute]
    return plain(attribute) if type(attribute) is Size else attribute


def _input(trace: Trace, x: Input, dtype: Any, carrier: Any) -> Value | None:
    if x is None or isinstance(x, Value):
        return x
    if isinstance(x, Operand):
        if carrier == dtype or x.dtype != dtype:
            return trace.value(x)
        if x.known:
            return trace.constant(x.shadow.astype(carrier))
        name = types.name_of(carrier)
        return trace.node(
            "Cast", [trace.value(x)], [(name, dims(x.shape))], to=types.number_of(name)
        )[0]
    array = np.asarray(x)
    return trace.constant(array.astype(carrier) if array.dtype == dtype else array)


def dims(shape: Sequence[int]) -> tuple[Any, ...]:
    """A shape as a graph tells it: names of sizes, None for what is made of several."""
    return tuple(side.name if type(side) is Size else int(side) for side in shape)


def _symbolic(
    inputs: Sequence[Input], array: Array, shape: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """The shape of a result with the sizes that vary; None where only the node can tell."""
    if shape is not None:
        assert tuple(map(int, shape)) == array.shape, (shape, array.shape)
        return shape
    varying = [x.shape for x in inputs if isinstance(x, Operand) and sizes_in(x.shape)]
    if not varying:
        return tuple(array.shape)
    found = broadcast([x.shape for x in inputs if isinstance(x, Operand)])
    return found if found is not None and tuple(map(int, found)) == array.shape else None


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape to which others broadcast, with the sizes that vary; None where they do not."""
    ndim = max((len(shape) for shape in shapes), default=0)
    out: list[int] = [1] * ndim
    for shape in shapes:
        for axis, side in enumerate(shape, ndim - len(shape)):
            if int(side) == 1:
                continue
            if int(out[axis]) == 1:
                out[axis] = side
            elif int(out[axis]) != int(side):
                return None
            elif type(side) is not Size:
                out[axis] = side  # both are equal, and one is known
    return tuple(out)


def _from_node(inputs: Sequence[Input], array: Array, value: Value) -> tuple[int, ...]:
    """A shape whose varying sides the node itself tells: those that have the length of one."""
    lengths = {
        int(side)
        for x in inputs
        if isinstance(x, Operand)
        for side in x.shape
        if type(side) is Size
    }
    return tuple(
        Size.named(("shape", value, axis), side) if side in lengths else side
        for axis, side in enumerate(array.shape)
    )


def cast(x: Operand, dtype: dtypes.DType) -> Operand:
    """An operand in another dtype."""
    if x.dtype == dtype.numpy:
        return x
    with np.errstate(all="ignore"):
        array = x.shadow.astype(dtype.numpy)
    if x.known:
        return constant(array)
    trace = current()
    if dtype.is_complex or x.dtype.kind == "c":
        raise UnsupportedOpError(
            f"em.export: graphs of ONNX Runtime have no complex numbers; a cast from {x.dtype} to "
            f"{dtype} came up{user_line()}"
        )
    name = types.name_of(dtype.numpy)
    value = trace.node("Cast", [trace.value(x)], [(name, dims(x.shape))], to=types.number_of(name))
    return Operand(array, x.shape, value[0])


def size_operand(size: Size) -> Operand:
    """A size as a 0-d int64 operand."""
    trace = current()
    made = Operand(np.array([int(size)]), (1,), trace.size(size))
    return emit("Squeeze", [made, np.array([0])], np.array(int(size)), shape=())


Emitter = Callable[..., Any]
