"""Where graphs begin and end: inputs, constants, build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ember_ml.graph.core import Node, Value
from ember_ml.graph.types import number_of, numpy_dtype
from ember_ml.webnn import buffers
from ember_ml.webnn.builder.base import BuilderBase
from ember_ml.webnn.descriptors import (
    DATA_TYPES,
    DescriptorLike,
    MLOperandDescriptor,
    operand_descriptor,
)
from ember_ml.webnn.errors import InvalidStateError, MLTypeError, OperationError
from ember_ml.webnn.graph import MLGraph
from ember_ml.webnn.operand import MLOperand
from ember_ml.webnn.tensors import MLTensor
from ember_ml.webnn.timeline import Pending

if TYPE_CHECKING:
    from ember_ml.webnn.context import MLContext

__all__ = ["Making"]


class Making(BuilderBase):
    """The builder's calls that are no ops."""

    def __init__(self, context: MLContext) -> None:
        if not hasattr(context, "_require_alive"):
            raise MLTypeError(f"MLGraphBuilder: give an MLContext, not {context!r}")
        context._require_alive("MLGraphBuilder")
        super().__init__(context)
        self._inputs: list[tuple[str, Value]] = []

    def input(self, name: str, descriptor: DescriptorLike) -> MLOperand:
        """An input of the graph."""
        self._require_open("input")
        _check_name("input", name)
        made = operand_descriptor("input", descriptor)
        # The web platform's tests give a name twice to one builder: `build` minds, if both are
        # used. The graph's own names differ.
        value = Value(self._graph.fresh("input"), made.data_type, made.shape)
        self._inputs.append((name, value))
        return MLOperand(self, made, value, "input")

    @overload
    def constant(self, descriptor: DescriptorLike, buffer: Any) -> MLOperand: ...
    @overload
    def constant(self, descriptor: str, buffer: float) -> MLOperand: ...
    @overload
    def constant(self, descriptor: MLTensor) -> MLOperand: ...
    def constant(self, descriptor: Any, buffer: Any = None) -> MLOperand:
        """What is known when the graph is built, in one of three forms.

        `constant(descriptor, buffer)` copies bytes or an array; `constant(data_type, value)` is a
        number; `constant(tensor)` is what `MLContext.create_constant_tensor` made.
        """
        if isinstance(descriptor, MLTensor):
            return self._of_tensor(descriptor)
        self._require_open("constant")
        if isinstance(descriptor, str):
            return self._of_number(descriptor, buffer)
        made = operand_descriptor("constant", descriptor)
        # A copy, taken now: the buffer is the caller's own to change.
        raw = buffers.contents("constant", buffer, made).copy()
        return self._known(made, buffers.elements(raw, made))

    def _of_tensor(self, tensor: MLTensor) -> MLOperand:
        if tensor._context is not self._context:
            raise MLTypeError("constant: the tensor belongs to another MLContext")
        if tensor._is_destroyed:
            raise MLTypeError("constant: the tensor is destroyed")
        if not tensor.constant:
            raise MLTypeError(
                f"constant: {tensor!r} is no constant tensor; make one by create_constant_tensor"
            )
        self._require_open("constant")
        # Its contents cannot change, and the graph keeps them: no copy, and it may be destroyed.
        made = MLOperandDescriptor(tensor.data_type, tensor.shape)
        return self._known(made, tensor._storage)

    def _of_number(self, data_type: str, value: Any) -> MLOperand:
        if data_type not in DATA_TYPES or buffers.is_packed(data_type):
            known = ", ".join(t for t in DATA_TYPES if not buffers.is_packed(t))
            raise MLTypeError(f"constant: numbers are one of {known}, not {data_type!r}")
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise MLTypeError(f"constant: give a number of type {data_type}, not {value!r}")
        return self._known(MLOperandDescriptor(data_type, ()), number(value, data_type))

    def _known(self, descriptor: MLOperandDescriptor, data: Any) -> MLOperand:
        return MLOperand(self, descriptor, self._graph.constant(data), "constant")

    # --- The end ------------------------------------------------------------------------------

    def build(self, outputs: Mapping[str, MLOperand]) -> MLGraph:
        """The graph of some operands by name, compiled."""
        return self._context._timeline.run(self._building(outputs))

    def build_async(self, outputs: Mapping[str, MLOperand]) -> Pending[MLGraph]:
        """`build` for `await`."""
        return self._context._later("build", lambda: self._building(outputs))

    def _building(self, outputs: Mapping[str, MLOperand]) -> Callable[[], MLGraph]:
        self._require_open("build")
        self._check_outputs(outputs)
        graph = self._graph
        before = list(graph.nodes)
        results = self._results(outputs)
        graph.outputs = list(results.values())
        graph.prune()
        used = {id(x) for node in graph.nodes for x in node.inputs}
        inputs: dict[str, Value] = {}
        for name, value in self._inputs:
            if id(value) not in used:
                continue
            if name in inputs:
                graph.nodes = before  # the builder goes on as if nothing had been asked
                raise MLTypeError(f"build: two inputs of the graph are called {name!r}")
            inputs[name] = value
        graph.inputs = list(inputs.values())
        self._is_built = True
        context = self._context

        def work() -> MLGraph:
            try:
                compiled = context._engine.compile(graph)
            except InvalidStateError:
                raise
            except Exception as error:
                raise OperationError(f"build: the graph does not compile: {error}") from error
            return context._join(MLGraph(context, graph, inputs, results, compiled))

        return work

    def _check_outputs(self, outputs: Mapping[str, MLOperand]) -> None:
        if not isinstance(outputs, Mapping):
            raise MLTypeError(f"build: outputs are a dict of operands by name, not {outputs!r}")
        if not outputs:
            raise MLTypeError("build: give at least one operand by name: build({'y': operand})")
        for name, operand in outputs.items():
            _check_name("build", name)
            if not isinstance(operand, MLOperand):
                raise MLTypeError(f"build: output {name!r} is an MLOperand, not {operand!r}")
            if operand._builder is not self:
                raise MLTypeError(f"build: output {name!r} belongs to another MLGraphBuilder")
            if operand.kind != "result":
                raise MLTypeError(
                    f"build: output {name!r} is an {operand.kind} of the graph itself; "
                    "put builder.identity(...) between"
                )

    def _results(self, outputs: Mapping[str, MLOperand]) -> dict[str, Value]:
        """The values that are the graph's outputs: those of the operands, each at most once."""
        graph = self._graph
        made = {id(x) for node in graph.nodes for x in node.outputs}
        results: dict[str, Value] = {}
        for name, operand in outputs.items():
            value = operand._value
            if id(value) not in made or any(value is other for other in results.values()):
                value = self._copied(value)
            results[name] = value
        return results

    def _copied(self, value: Value) -> Value:
        graph = self._graph
        if not buffers.is_packed(value.dtype):
            return graph.add("Identity", [value], [(value.dtype, value.shape)])
        # ONNX Runtime has no Identity of 4-bit integers, and casts both ways.
        wide = graph.add("Cast", [value], [("int8", value.shape)], to=number_of("int8"))
        copied = Value(graph.fresh("output"), value.dtype, value.shape)
        graph.nodes.append(Node("Cast", [wide], [copied], {"to": number_of(value.dtype)}))
        return copied


def _check_name(what: str, name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise MLTypeError(f"{what}: inputs and outputs need a name, not {name!r}")


def number(value: Any, data_type: str) -> np.ndarray[Any, Any]:
    """A number in a data type, as the specification casts it: integers wrap, fractions are cut."""
    dtype = numpy_dtype(data_type)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.asarray(float(value)).astype(dtype)
    if not np.isfinite(value):
        raise MLTypeError(f"constant: {value!r} is no {data_type} number")
    bits = 8 * dtype.itemsize
    wrapped = int(value) % 2**bits
    return np.asarray(wrapped, dtype=f"uint{bits}").view(dtype)
