"""A function run where what it does is recorded, and gradients pulled back through the record.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ember_ml import tree
from ember_ml.autodiff import backward, nodes, tape
from ember_ml.autodiff.calls import Call, unused
from ember_ml.backend.contract import NativeArray, Spec
from ember_ml.backend.gradients import NESTING
from ember_ml.tensor.core import GradTensor, Tensor, fill, fill_grad

__all__ = ["NESTING", "Run", "alias", "apart", "completed", "made", "pulled", "separated", "shown"]


def alias(x: Tensor) -> Tensor:
    """A tensor of the same values as an input to differentiate by, and by it alone."""
    spec = x._spec
    if spec.backend.records:
        return fill_grad(spec.backend.gradients.alias(x.native), spec)
    if type(x) is GradTensor:
        return tape.recorded("copy", x.native, spec, (x,))
    return tape.alias(x.native, spec)


class Run:
    """What a function gave for aliases of its inputs, with the record of how.

    A context: within it, derivatives know that they are taken inside of another one.
    """

    __slots__ = ("_block", "_outside", "_token", "call", "depth", "inputs")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.depth = NESTING.get()[0]

    def __enter__(self) -> list[Tensor]:
        """The aliases, with which the function is to be run."""
        backend, tensors = self.call.backend, self.call.tensors
        self._outside = nodes.RECORDING.get() and (
            not backend.records or backend.gradients.is_recording()
        )
        self._block: Any = None
        if not self._outside:
            self._block = tape.enable_grad()
            self._block.__enter__()
        self._token = NESTING.set((self.depth + 1, not backend.records))
        try:
            if self.call.owned:
                self.inputs = tensors
            elif backend.records or self.call.connected:
                self.inputs = [alias(t) for t in tensors]
            else:
                self.inputs = [nodes.alias(t.native, t._spec) for t in tensors]
        except BaseException:  # torch.func has no such names for the arrays that it wraps
            self.__exit__(None, None, None)
            raise
        return self.inputs

    def __exit__(self, *error: Any) -> None:
        if self._block is not None:
            self._block.__exit__(*error)
        NESTING.reset(self._token)

    def is_connected(self, results: Iterable[Any]) -> bool:
        """True where results depend on more than the inputs, so that gradients must do so too."""
        if not self._outside or self.call.owned:
            return False
        if self.call.connected or (self.depth and self.call.backend.records):
            return True
        gradients = self.call.backend.gradients
        if not (tape.LEAVES.made or gradients.has_leaves or self.depth) or not self.inputs:
            return False  # there is nothing beyond
        some = [x for x in results if type(x) is GradTensor]
        if self.call.backend.records:
            inputs = [x.native for x in self.inputs]
            return gradients.reaches_beyond([x.native for x in some], inputs)
        return backward.reaches_beyond([x._node for x in some], self.inputs[0]._node.order)


def pulled(
    results: Sequence[Tensor],
    seeds: Sequence[Tensor],
    inputs: Sequence[Tensor],
    *,
    create: Any = False,
    retain: Any = False,
) -> list[Tensor | None]:
    """The gradients of inputs from those of results; None for inputs that were not used."""
    if len(results) == 1 and inputs and not (result := results[0])._spec.records:
        if type(result) is not GradTensor:
            return [None] * len(inputs)
        return _walked({result._node: seeds[0]}, inputs, create, retain)
    some = [(r, s) for r, s in zip(results, seeds, strict=True) if type(r) is GradTensor]
    if not some or not inputs:
        return [None] * len(inputs)
    gradients = results[0]._spec.backend.gradients
    if results[0]._spec.backend.records:
        natives = gradients.pull_back(
            [r.native for r, _ in some],
            [s.native for _, s in some],
            [x.native for x in inputs],
            create,
            retain,
        )
        wrap = made if create else fill
        return [
            None if n is None else wrap(n, x._spec) for n, x in zip(natives, inputs, strict=True)
        ]
    gathered: dict[Any, Tensor] = {}
    for result, seed in some:
        node = result._node
        gathered[node] = gathered[node] + seed if node in gathered else seed
    return _walked(gathered, inputs, create, retain)


def _walked(
    seeds: dict[Any, Tensor], inputs: Sequence[Tensor], create: Any, retain: Any
) -> list[Tensor | None]:
    """The same on our tape."""
    nodes = [x._node for x in inputs]
    found = backward.pull_back(seeds, nodes, retain=retain, create=create)
    # Besides these there are the gradients of results that keep theirs.
    out: list[Tensor | None] = [found.pop(node, None) for node in nodes]
    for place, g in enumerate(out):
        if g is None:
            first = out[nodes.index(nodes[place])]
            if first is not None:  # whoever asks twice gets two, each to be written to
                out[place] = first.copy()
    return out


def made(native: NativeArray, spec: Spec) -> Tensor:
    """A tensor around what torch gave."""
    return (fill_grad if native.requires_grad else fill)(native, spec)


def completed(call: Call, found: Sequence[Tensor | None], allow_unused: Any) -> Sequence[Tensor]:
    """Gradients with zeros, or an error, for inputs that were not used."""
    for g in found:
        if g is None:
            break
    else:
        return found  # type: ignore[return-value]  # none is None
    out: list[Tensor] = []
    for place, (x, g) in enumerate(zip(call.tensors, found, strict=True)):
        if g is None:
            if not allow_unused and x.size:  # nothing depends on an empty tensor
                raise unused(call.name, call.path(place))
            spec = x._spec
            g = fill(spec.backend.full(x.shape, 0, spec), spec)
        out.append(g)
    return out


def shown(call: Call, values: Any) -> Any:
    """A tree without the record of its tensors, in memory that is not that of the arguments.

    An engine's own transform gives arrays that nobody writes to; where they can be written to, a
    result that is an argument, or a view of it, is copied.
    """
    return separated(values, () if call.owned else call.tensors)


def separated(values: Any, given: Sequence[Tensor]) -> Any:
    """The same, with memory that is not that of some tensors."""
    if values is None:
        return None
    return tree.map(lambda x: apart(x, given) if isinstance(x, Tensor) else x, values)


def apart(x: Tensor, given: Sequence[Tensor]) -> Tensor:
    """A tensor without its record, in memory that is not that of others."""
    out = x.detach() if type(x) is GradTensor else x
    spec = out._spec
    if spec.mutable and not spec.backend.gradients.is_apart(x.native):
        shares, native = spec.backend.shares_memory, out.native
        for one in given:
            if one._spec.backend is spec.backend and shares(one.native, native):
                return out.copy()
    return out
