"""Programs: compiled functions of native arrays, whose gradients are programs in turn.

Engines that transform functions differentiate a program themselves. Where gradients are recorded,
on the tape or by torch, one record stands for the whole program, and its gradient is a program of
the inputs and of the gradients of the results. It computes again what it needs of the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ember_ml.autodiff import tape
from ember_ml.autodiff.tape import Node, Part, Rule
from ember_ml.backend.compiling import Function, Plan
from ember_ml.backend.contract import Backend, Spec
from ember_ml.tensor.core import GradTensor, Tensor, fill, fill_grad

__all__ = ["Program"]

Needs = tuple[bool, ...]


class Program:
    """A function of native arrays, compiled when it is first run."""

    def __init__(self, backend: Backend, body: Function, plan: Plan) -> None:
        self.backend = backend
        self.body = body
        self.plan = plan
        # Of its inputs, and of its results once it was traced.
        self.inputs: list[Spec] = []
        self.results: list[Spec] = []
        self._run: Function | None = None
        self._pullbacks: dict[Needs, Program] = {}

    def compile(self, natives: Sequence[Any]) -> None:
        """Trace and compile it."""
        compiler = self.backend.compiler
        self._run = compiler.compile(self.body, natives, self.plan)
        if compiler.replays:
            self.body = self._run

    def run(self, natives: Sequence[Any]) -> list[Any]:
        """What it gives."""
        if self._run is None:
            self.compile([self.backend.detach(native) for native in natives])
        return self._run(*natives)  # type: ignore[misc]  # compiled above

    # --- With gradients -----------------------------------------------------------------------

    def record(self, natives: Sequence[Any], inputs: Sequence[Tensor | None]) -> list[Tensor]:
        """Its results as tensors, with a record of how they came of the inputs."""
        if self.backend.records:
            outs = self.backend.compiler.record(self.run, self.pull, natives)
            return [
                (fill_grad if native.requires_grad else fill)(native, spec)
                for native, spec in zip(outs, self.results, strict=True)
            ]
        return self.taped(natives, inputs, self.run(natives))

    def taped(
        self, natives: Sequence[Any], inputs: Sequence[Tensor | None], outs: Sequence[Any]
    ) -> list[Tensor]:
        """Results as tensors, with one record on the tape."""
        specs = self.results
        node = Node(
            self._rule(),
            tuple([x._node if type(x) is GradTensor else None for x in inputs]),
            tuple(natives),
            tuple(self.inputs),
            (),
            tuple([tuple(native.shape) for native in outs]),
            tuple(specs),
        )
        made = []
        for place, (native, spec) in enumerate(zip(outs, specs, strict=True)):
            out = fill(native, spec)
            if spec.dtype.is_inexact:
                out = fill_grad(native, spec)
                out._node = Part(None, (node,), (), (), (place,), None, None)
            made.append(out)
        return made

    def call(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Its results for tensors, recorded where one of those needs gradients."""
        natives = [t.native for t in tensors]
        if tape.is_grad_enabled() and any(type(t) is GradTensor for t in tensors):
            return self.record(natives, tensors)
        return [fill(n, spec) for n, spec in zip(self.run(natives), self.results, strict=True)]

    def pullback(self, needs: Needs) -> Program:
        """The program of the gradients of those inputs that need them.

        It takes the inputs, and the gradients of all results that can have one.
        """
        found = self._pullbacks.get(needs)
        if found is None:
            found = self._pullbacks[needs] = self._pullback(needs)
        return found

    def _pullback(self, needs: Needs) -> Program:
        body, count = self.body, len(self.inputs)
        wanted = [place for place, needed in enumerate(needs) if needed]
        given = [place for place, spec in enumerate(self.results) if spec.dtype.is_inexact]
        pull = self.backend.compiler.pull

        def back(*natives: Any) -> list[Any]:
            inputs, gradients = list(natives[:count]), natives[count:]

            def part(*chosen: Any) -> list[Any]:
                for place, native in zip(wanted, chosen, strict=True):
                    inputs[place] = native
                outs = body(*inputs)
                return [outs[place] for place in given]

            return pull(part, [inputs[place] for place in wanted], gradients)

        made = Program(self.backend, back, Plan(compiler=self.plan.compiler))
        made.inputs = [*self.inputs, *[self.results[place] for place in given]]
        made.results = [self.inputs[place] for place in wanted]
        return made

    def pull(self, needs: Needs, natives: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        """The gradients of inputs by native arrays, as torch's record asks for them."""
        chosen = [
            g for g, spec in zip(gradients, self.results, strict=True) if spec.dtype.is_inexact
        ]
        back = self.pullback(needs)
        found = iter(self.backend.compiler.record(back.run, back.pull, [*natives, *chosen]))
        return [next(found) if needed else None for needed in needs]

    def _rule(self) -> Rule:
        def joint(g: Any, needs: Needs, y: Any, *operands: Any) -> list[Tensor | None]:
            gradients = [
                _zeros(mold) if one is None else one
                for one, mold in zip(g, y, strict=True)
                if mold.dtype.is_inexact
            ]
            found = iter(self.pullback(needs).call([*operands, *gradients]))
            return [next(found) if needed else None for needed in needs]

        return Rule("jit", (), joint, True, False)


def _zeros(mold: Any) -> Tensor:
    spec: Spec = mold._spec
    return fill(spec.backend.full(mold.shape, 0, spec), spec)
