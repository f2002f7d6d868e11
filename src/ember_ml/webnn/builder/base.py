"""What all ops of the builder are written with: checks of operands, options, and nodes.

An op is a method of MLGraphBuilder. It checks what it was given and finds the shape of its result
as the specification says, and adds the ONNX nodes that mean the same to the graph at once:

    def relu(self, input, options=None, *, label=""):
        call = self._call("relu", options, label=label)
        call.operand("input", input)
        return call.result(call.node("Relu", [input]), input.data_type, input.shape)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ember_ml.graph.core import Graph, Value
from ember_ml.graph.types import numpy_dtype
from ember_ml.webnn.descriptors import MLOperandDescriptor, check_sizes, sizes, unsigned
from ember_ml.webnn.errors import InvalidStateError, MLTypeError, fault
from ember_ml.webnn.limits import LIMITS
from ember_ml.webnn.operand import MLOperand

if TYPE_CHECKING:
    from ember_ml.webnn.context import MLContext

__all__ = ["BuilderBase", "Call", "Options", "snake"]

# Options as in the specification, by either spelling; the same go by keyword.
Options = Mapping[str, Any] | None

_MISSING: Final = object()


def snake(name: str) -> str:
    """The Python spelling of a name of the specification.

    >>> snake("inputLayout"), snake("isNaN"), snake("convTranspose2d")
    ('input_layout', 'is_nan', 'conv_transpose2d')
    """
    name = name.replace("NaN", "_nan").replace("ND", "_nd")
    spelt = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return spelt.lstrip("_")


class BuilderBase:
    """The state of a builder: its context, the graph so far, and whether it was built."""

    def __init__(self, context: MLContext) -> None:
        self._context = context
        self._graph = Graph("webnn")
        self._is_built = False

    def _require_open(self, what: str) -> None:
        """InvalidStateError where the builder was built, or its context is lost."""
        if self._is_built:
            raise InvalidStateError(
                f"{what}: this MLGraphBuilder has built its graph; make another one"
            )
        self._context._require_alive(what)

    def _call(self, op: str, options: Options, **named: Any) -> Call:
        """A call of an op, with its options from a mapping and by keyword."""
        self._require_open(op)
        return Call(self, op, options, named)


class Call:
    """One call of an op: what is wrong with it, and what it adds to the graph."""

    def __init__(
        self, builder: BuilderBase, op: str, options: Options, named: dict[str, Any]
    ) -> None:
        self.builder = builder
        self.op = op
        # The options that were given; defaults of keywords are those of the specification.
        self.options: dict[str, Any] = named
        self.label = ""
        if options is not None and not isinstance(options, Mapping):
            raise fault(op, str(named.get("label", "")), f"options are a dict, not {options!r}")
        for key, value in (options or {}).items():
            name = snake(key)
            if name not in named:
                known = ", ".join(named)
                raise fault(
                    op,
                    str((options or {}).get("label", "")),
                    f"no option '{key}'; there are {known}",
                )
            named[name] = value
        self.label = str(named.get("label", ""))

    def __getitem__(self, option: str) -> Any:
        return self.options[option]

    def fault(self, text: str) -> MLTypeError:
        """The error of this call."""
        return fault(self.op, self.label, text)

    @property
    def what(self) -> str:
        """The call's name in errors of conversions."""
        return f"[{self.label}] {self.op}" if self.label else self.op

    # --- Arguments ----------------------------------------------------------------------------

    def operand(self, name: str, given: Any, limits: str = "") -> MLOperand:
        """Check an operand: whose it is, and its type and axes by the limits of this op.

        `limits` is the name under which they are listed, where it is another.
        """
        if not isinstance(given, MLOperand):
            raise self.fault(f"{name} is an MLOperand, not {given!r}")
        if given._builder is not self.builder:
            raise self.fault(f"{name} belongs to another MLGraphBuilder")
        allowed = LIMITS[self.op].get(limits or name)
        if allowed is None:
            return given
        if given.data_type not in allowed.data_types:
            raise self.fault(
                f"{name} is {given.data_type}; it takes {', '.join(allowed.data_types)}"
            )
        if not allowed.min_rank <= len(given.shape) <= allowed.max_rank:
            least, most = allowed.min_rank, allowed.max_rank
            count = str(least) if least == most else f"{least} to {most}"
            raise self.fault(f"{name} has the shape {list(given.shape)}; it takes {count} axes")
        return given

    def optional(self, name: str) -> MLOperand | None:
        """The operand of an option, checked; None where it was not given."""
        given = self.options[name]
        return None if given is None else self.operand(name, given)

    def same_type(self, name: str, operand: MLOperand, other: MLOperand) -> None:
        """Raise where two operands have different types."""
        if operand.data_type != other.data_type:
            raise self.fault(f"{name} is {operand.data_type}, not {other.data_type} as the input")

    def number(self, name: str) -> float:
        """An option that is a finite number."""
        given = self.options[name]
        if isinstance(given, bool) or not isinstance(given, int | float | np.number):
            raise self.fault(f"{name} is a number, not {given!r}")
        if not np.isfinite(float(given)):
            raise self.fault(f"{name} is a finite number, not {given!r}")
        return float(given)

    def choice(self, name: str, among: Sequence[str]) -> str:
        """An option that is one of some words."""
        given = self.options[name]
        if given not in among:
            raise self.fault(f"{name} is one of {', '.join(among)}, not {given!r}")
        return str(given)

    def unsigned(self, name: str, given: Any = _MISSING) -> int:
        """An argument, or else an option, that is an unsigned 32-bit integer."""
        return unsigned(self.what, self.options[name] if given is _MISSING else given, name)

    def sizes(self, name: str, given: Any = _MISSING) -> tuple[int, ...]:
        """An argument, or else an option, that is a sequence of unsigned 32-bit integers."""
        return sizes(self.what, self.options[name] if given is _MISSING else given, name)

    def axis(self, name: str, given: Any, rank: int) -> int:
        """An axis of something of that many."""
        found = unsigned(self.what, given, name)
        if found >= rank:
            raise self.fault(f"{name} is {found}, and there are {rank} axes")
        return found

    # --- Nodes --------------------------------------------------------------------------------

    def constant(self, data: Any, data_type: str) -> Value:
        """A constant of the graph: a scalar, a list, or an array."""
        return self.builder._graph.constant(np.asarray(data, dtype=numpy_dtype(data_type)))

    def int64s(self, numbers: Sequence[int]) -> Value:
        """A list of sizes, axes or steps, as ONNX's operators take them."""
        return self.constant(list(numbers), "int64")

    def node(
        self,
        onnx_op: str,
        inputs: Sequence[MLOperand | Value | None],
        data_type: str | None = None,
        shape: Sequence[int] | None = None,
        **attributes: Any,
    ) -> Value:
        """Add an ONNX node of one output.

        Without `data_type` and `shape` it has those of the first input.
        """
        values = _values(inputs)
        first = values[0] if values else None
        made_type = data_type or (first.dtype if first is not None else "float32")
        made_shape = tuple(shape) if shape is not None else (first.shape if first else None)
        return self.builder._graph.add(
            onnx_op, values, [(made_type, made_shape)], label=self.label, **attributes
        )

    def nodes(
        self,
        onnx_op: str,
        inputs: Sequence[MLOperand | Value | None],
        outputs: Sequence[tuple[str, Sequence[int]]],
        **attributes: Any,
    ) -> list[Value]:
        """Add an ONNX node of several outputs, each by data type and shape."""
        values = _values(inputs)
        made = [(data_type, tuple(shape)) for data_type, shape in outputs]
        return self.builder._graph.add_many(onnx_op, values, made, label=self.label, **attributes)

    def cast(self, value: MLOperand | Value, data_type: str) -> Value:
        """A value in another element type (also "bool"); itself where it has it."""
        inner = value._value if isinstance(value, MLOperand) else value
        if inner.dtype == data_type:
            return inner
        from ember_ml.graph.types import number_of

        return self.node("Cast", [inner], data_type, inner.shape, to=number_of(data_type))  # type: ignore[arg-type]  # WebNN's shapes are all known

    def result(self, value: Value, data_type: str, shape: Sequence[int]) -> MLOperand:
        """The operand that the op gives; its sizes are checked."""
        sizes = tuple(shape)
        check_sizes(self.what, data_type, sizes)
        return MLOperand(self.builder, MLOperandDescriptor(data_type, sizes), value, "result")


def _values(inputs: Sequence[MLOperand | Value | None]) -> list[Value | None]:
    values = [x._value if isinstance(x, MLOperand) else x for x in inputs]
    # ONNX Runtime crashes on a LayerNormalization whose last input is there and left out.
    while values and values[-1] is None:
        values.pop()
    return values
