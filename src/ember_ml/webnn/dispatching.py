"""What is checked before a graph is dispatched, and what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ember_ml.webnn.descriptors import MLOperandDescriptor
from ember_ml.webnn.errors import InvalidStateError, MLTypeError
from ember_ml.webnn.graph import MLGraph
from ember_ml.webnn.tensors import MLTensor

if TYPE_CHECKING:
    from ember_ml.webnn.context import MLContext
    from ember_ml.webnn.engines import Compiled

__all__ = ["Named", "Statistics", "check_dispatch"]

Named = Mapping[str, MLTensor]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a context did so far.

    Reads and writes are copies between the host and tensors; a dispatch makes none. `prepared`
    counts the sets of tensors that a graph was bound to, which is done once for each.
    """

    dispatches: int = 0
    prepared: int = 0
    reads: int = 0
    writes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


def check_dispatch(context: MLContext, graph: MLGraph, inputs: Named, outputs: Named) -> Compiled:
    """Everything that the specification asks of a dispatch; gives what the engine compiled."""
    if not isinstance(graph, MLGraph):
        raise MLTypeError(f"dispatch: give an MLGraph, not {graph!r}")
    if graph._context is not context:
        raise MLTypeError("dispatch: the graph belongs to another MLContext")
    context._require_alive("dispatch")
    compiled = graph._compiled
    if compiled is None:
        raise InvalidStateError("dispatch: the graph is destroyed")
    _check_named(context, "inputs", inputs)
    _check_named(context, "outputs", outputs)
    everything = [*inputs.values(), *outputs.values()]
    if len({id(tensor) for tensor in everything}) != len(everything):
        raise MLTypeError("dispatch: a tensor is given more than once; each needs its own")
    _check_fit("inputs", inputs, graph.input_descriptors)
    _check_fit("outputs", outputs, graph.output_descriptors)
    return compiled


def _check_named(context: MLContext, role: str, named: Named) -> None:
    if not isinstance(named, Mapping):
        raise MLTypeError(f"dispatch: {role} are a dict of tensors by name, not {named!r}")
    for name, tensor in named.items():
        if not isinstance(tensor, MLTensor):
            raise MLTypeError(f"dispatch: {role}[{name!r}] is an MLTensor, not {tensor!r}")
        if tensor._context is not context:
            raise MLTypeError(f"dispatch: {role}[{name!r}] belongs to another MLContext")
        if tensor._is_destroyed:
            raise MLTypeError(f"dispatch: {role}[{name!r}] is destroyed")
        if tensor.constant:
            raise MLTypeError(
                f"dispatch: {role}[{name!r}] is a constant tensor; those go to "
                "MLGraphBuilder.constant"
            )


def _check_fit(role: str, named: Named, wanted: Mapping[str, MLOperandDescriptor]) -> None:
    if named.keys() != wanted.keys():
        raise MLTypeError(
            f"dispatch: the {role} of the graph are {sorted(wanted)}, and {sorted(named)} came"
        )
    for name, tensor in named.items():
        expected = wanted[name]
        if (tensor.data_type, tensor.shape) != (expected.data_type, expected.shape):
            raise MLTypeError(
                f"dispatch: {role}[{name!r}] is {expected.data_type}{list(expected.shape)}, "
                f"and a tensor of {tensor.data_type}{list(tensor.shape)} came"
            )
