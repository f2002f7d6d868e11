"""One trace of a function: what was seen of it, and how a call is run from then on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from ember_ml import dtypes, tree
from ember_ml.autodiff.compiling import arguments, draws
from ember_ml.autodiff.compiling.captured import Reference, tensors_in
from ember_ml.autodiff.compiling.program import Program
from ember_ml.autodiff.compiling.state import (
    Picture,
    Root,
    State,
    picture,
    put,
    same,
    tracing,
)
from ember_ml.backend.compiling import FROM_OUTSIDE, Plan, outlived, under_trace
from ember_ml.backend.contract import Backend, NativeArray, Spec
from ember_ml.errors import GradientError, TraceError
from ember_ml.tensor import convert, homes
from ember_ml.tensor.core import GradTensor, Tensor, fill, fill_grad, require_grad
from ember_ml.tensor.storage import Storage

__all__ = ["Call", "Trace", "foreign_write"]

# Whether reference counts tell who holds an object.
_COUNTED: Final = getattr(sys, "_is_gil_enabled", lambda: True)()
# Who holds an array that belongs to a tensor alone: the tensor, the list of inputs, and for a look
# at the count the argument.
_OWN_REFERENCES: Final = 3


class Call:
    """What one call brings: its arguments, the state, and what the function closes over."""

    __slots__ = ("args", "backend", "captured", "kwargs", "objects", "state", "tensors", "trees")

    def __init__(
        self,
        backend: Backend,
        given: arguments.Arguments,
        state: State,
        trees: list[Any],
        captured: list[Reference],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.backend = backend
        self.tensors: list[Tensor] = given.tensors
        self.objects = given.objects
        # The roots of `trees`, then those of the variables that are named in `captured`.
        self.state = state
        self.trees = trees
        self.captured = captured
        self.args = args
        self.kwargs = kwargs


class _Old:
    """A leaf of the state that was there before, by its place."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place


class _New:
    """A leaf of the state that is a tensor made by the function, by its place in the results."""

    __slots__ = ("leaf", "place", "spec")

    def __init__(self, place: int, spec: Spec, leaf: bool) -> None:
        self.place = place
        self.spec = spec
        self.leaf = leaf


def _itself(leaf: Any) -> Any:
    return leaf


def foreign_write(name: str, what: str) -> TraceError:
    """The error of a write to what is not the function's own."""
    return TraceError(
        f"em.jit({name}) writes to {what}, which is not in its state; give the tensor to em.jit "
        f"in state=, write to a .copy() of it, or return the new value"
    )


class Trace:
    """A function as it was seen with some arguments."""

    def __init__(
        self, function: Callable[..., Any], name: str, call: Call, static: Any, compiler: str | None
    ) -> None:
        self.backend = call.backend
        self._function = function
        self._name = name
        count = arguments.counter()
        self._args = [
            arguments.template(value, count, place in static)
            for place, value in enumerate(call.args)
        ]
        self._kwargs = {
            key: arguments.template(value, count, key in static)
            for key, value in call.kwargs.items()
        }
        self._specs = [x._spec for x in call.tensors]
        self._needs = [type(x) is GradTensor for x in call.tensors]
        self._paths = arguments.named(call.args, call.kwargs)
        self._captured = call.captured
        self._own = len(call.state.roots) - len(call.captured)
        self._key = call.backend.spec(dtypes.uint32)
        self._no_key = draws.key_native(self._key, 0)
        # Whose arrays are traced: a later call has the same structure.
        self._now = (call.state, call.trees, call.objects)
        roots = call.state.roots
        self.program = Program(
            call.backend, self._body, Plan(len(roots), lambda: self._written, compiler)
        )
        self.program.inputs = [
            *[root.spec for root in roots],
            *[root.spec for root in roots if root.grad is not None],
            *self._specs,
            *[self._key] * (1 + len(call.state.generators)),
        ]
        self._is_traced = False
        # True where a call takes tensors, gives some, and does nothing else.
        self.is_simple = False
        self._plain = False
        # What the state held when the function was called last, where that may be asked for.
        self._shown: list[Picture] = []
        # What follows is known when the function has been traced: whether it draws, by which
        # generators; its results; which of them need gradients, and which are native arrays;
        # the roots that were written to, and those whose gradient was.
        self._draws: list[bool] = []
        self._leaves: list[Any] = []
        self._structure: tree.Structure = tree.LEAF
        self._recorded: list[bool] = []
        self._raw: list[bool] = []
        self._written: list[int] = []
        self._grads: list[tuple[int, bool]] = []
        # True where results may be differentiated by leaves of the state.
        self._connects = True
        # What the state holds in the end, where containers have changed.
        self._after: list[Picture] | None = None

    # --- Tracing ----------------------------------------------------------------------------

    def _body(self, *natives: NativeArray) -> list[NativeArray]:
        """The function over native arrays: state, gradients in it, arguments, keys."""
        state, trees, objects = self._now
        own, roots = self.backend.compiler.own, state.roots
        given = iter(natives)
        firsts = [next(given) for _ in roots]
        grads = [None if root.grad is None else own(next(given), False) for root in roots]
        tensors = [
            _argument(next(given), spec, needs)
            for spec, needs in zip(self._specs, self._needs, strict=True)
        ]
        before = [x.native for x in tensors]
        streams = draws.streams([fill(native, self._key) for native in given], state.generators)
        shown = [picture(one, _itself) for one in trees]
        installed: list[Root] = []
        journal: Any = ()
        try:
            if self._is_traced:  # again, for a gradient
                self._return()
            with under_trace() as journal, draws.scope(streams[0]), tracing(trees):
                for root, native, grad in zip(roots, firsts, grads, strict=True):
                    installed.append(root)
                    root.install(own(native, root.leaf), grad)
                result = self._function(
                    *[arguments.build(one, tensors, objects) for one in self._args],
                    **{
                        name: arguments.build(one, tensors, objects)
                        for name, one in self._kwargs.items()
                    },
                )
                self._require_own(tensors, before, roots)
                self._draws = [stream.used for stream in streams]
                outs = self._collected(result, natives, self._shown)
                del result
        finally:
            for one, picture_of in zip(trees, shown, strict=True):
                put(one, picture_of, _itself)
            for root in installed:
                root.restore()
            written = bool(journal) and outlived(journal)
        if written:
            raise TraceError(FROM_OUTSIDE)
        return outs

    def _return(self) -> None:
        """Let the state hold what it did when the function was called."""
        state, trees, _ = self._now
        for one, before in zip(trees, self._shown, strict=True):
            put(one, before, _itself)
        for (label, get), root in zip(self._captured, state.roots[self._own :], strict=True):
            if not any(
                x is root.holder or homes.home_of(x) is root.holder for x in tensors_in(get())
            ):
                raise GradientError(
                    f"em.jit({self._name}): '{label}' was another tensor when the function was "
                    f"called; its gradient computes values again, so keep the tensor there until "
                    f"then, or give it as an argument"
                )

    def _require_own(
        self, tensors: list[Tensor], before: list[NativeArray], roots: list[Root]
    ) -> None:
        changed = self.backend.compiler.changed
        for place, (x, native) in enumerate(zip(tensors, before, strict=True)):
            if changed(native, x.native):
                raise foreign_write(self._name, self._paths[place])
        for (label, _), root in zip(self._captured, roots[self._own :], strict=True):
            if changed(root.given, root.native) or root.grad_now() is not root.grad_given:
                raise foreign_write(self._name, f"'{label}'")

    def _collected(
        self, result: Any, natives: Sequence[NativeArray], shown: list[Picture]
    ) -> list[NativeArray]:
        """All that comes out: results, the new state, gradients in it, new tensors of it."""
        state, trees, _ = self._now
        backend, compiler, roots = self.backend, self.backend.compiler, state.roots
        inputs = [*natives, *[root.given for root in roots]]
        outs: list[NativeArray] = []
        specs: list[Spec] = []

        def out(native: NativeArray, spec: Spec) -> int:
            outs.append(native)
            specs.append(spec)
            return len(outs) - 1

        found, self._structure = tree.flatten(result)
        self._leaves, self._recorded, self._raw = [], [], []
        for leaf in found:
            raw = not isinstance(leaf, Tensor) and isinstance(leaf, backend.native_types)
            x = convert.wrap(leaf, backend) if raw else leaf
            if not isinstance(x, Tensor) or x._spec.backend is not backend:
                self._leaves.append(leaf)
                continue
            out(compiler.apart(x.native, inputs), x._spec)
            self._leaves.append(Tensor)
            self._recorded.append(type(x) is GradTensor)
            self._raw.append(raw)
        own = list(enumerate(roots[: self._own]))
        self._written = [i for i, root in own if compiler.changed(root.given, root.native)]
        for place in self._written:
            out(compiler.cut(roots[place].native), roots[place].spec)
        self._grads = []
        for place, root in own:
            now, given = root.grad_now(), root.grad_given
            if now is not None and (given is None or compiler.changed(given, now)):
                self._grads.append((place, True))
                out(compiler.cut(now), root.spec)
            elif now is None and given is not None:
                self._grads.append((place, False))
        touched = {*self._written, *[place for place, _ in self._grads]}
        self._connects = not any(roots[place].leaf for place in touched)
        places = {id(x): place for place, x in enumerate(state.tensors)}

        def after(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if id(leaf) in places:
                return _Old(places[id(leaf)])
            is_leaf = type(leaf) is GradTensor and leaf.is_leaf
            native = compiler.cut(compiler.apart(leaf.native, inputs))
            return _New(out(native, leaf._spec), leaf._spec, is_leaf)

        def is_same(old: Any, new: Any) -> bool:
            return (state.tensors[new.place] if type(new) is _Old else new) is old

        pictures = [picture(one, after) for one in trees]
        unchanged = all(same(a, b, is_same) for a, b in zip(shown, pictures, strict=True))
        self._after = None if unchanged else pictures
        self.program.results = specs
        return outs

    # --- Running ----------------------------------------------------------------------------

    def run_simply(self, tensors: list[Tensor]) -> Any:
        """The results of a call without a state, draws and gradients: see `is_simple`."""
        outs = self.program.run([*[x.native for x in tensors], self._no_key])
        if self._structure is tree.LEAF:
            return fill(outs[0], self.program.results[0]) if self._raw else self._leaves[0]
        made = map(fill, outs, self.program.results)
        if self._plain:
            return tree.unflatten(self._structure, list(made))
        return tree.unflatten(
            self._structure, [next(made) if x is Tensor else x for x in self._leaves]
        )

    def run(self, call: Call) -> Any:
        """The results of a call; the state is written to."""
        state = call.state
        self._now = (state, call.trees, call.objects)
        roots, backend = state.roots, self.backend
        first = not self._is_traced
        if first or True in self._recorded or backend.compiler.reenters:
            self._shown = [picture(one, _itself) for one in call.trees]
        natives = [root.native for root in roots]
        natives += [root.grad.native for root in roots if root.grad is not None]
        natives += [x.native for x in call.tensors]
        sources: list[Any] = []
        if first or True in self._draws:
            used = self._draws or [True] * (1 + len(state.generators))
            sources = draws.sources(state.generators)
            natives += draws.keys(sources, used, self._key, self._no_key, peek=first)
        else:
            natives += [self._no_key] * len(self._draws)
        if first:
            # In a graph of torch's, leaves of the state stand for themselves.
            examples = natives
            if backend.records:
                examples = [backend.detach(n) for n in natives[: len(roots)]]
                examples += natives[len(roots) :]
            self.program.compile(examples)
        results = self._results(call, natives)
        if first:
            self._is_traced = True
            draws.take(sources, self._draws)
            self._plain = all(x is Tensor for x in self._leaves)
            self.is_simple = not (
                roots or True in self._draws or True in self._needs or True in self._raw
            )
        return results

    def _results(self, call: Call, natives: list[NativeArray]) -> Any:
        state, backend = call.state, self.backend
        roots = state.roots
        if self._written:
            self._prepare(call, natives)
        inputs: list[Tensor | None] = []
        recorded = True in self._needs or any(root.leaf for root in roots)
        outs: Sequence[Any]
        if backend.records and recorded and True in self._recorded:
            inputs = self._inputs(call, natives)
            for place in self._written:  # its record keeps what is written to below
                natives[place] = backend.copy(natives[place])
            outs = [x.native for x in self.program.record(natives, inputs)]
        else:
            outs = self.program.run(natives)
            if recorded:  # as is known of MLX's functions when they have been called
                inputs = self._inputs(call, natives)
        recorded = any(type(x) is GradTensor for x in inputs) and True in self._recorded
        if backend.records or not recorded:
            made = self._wrapped(outs)
        else:
            made = self.program.taped(natives, inputs, outs)
            made = [
                x if needs else fill(x.native, x._spec)
                for x, needs in zip(made, self._recorded, strict=False)
            ]
        self._write(call, outs)
        if self._structure is tree.LEAF:
            return made[0] if made else self._leaves[0]
        given = iter(made)
        return tree.unflatten(
            self._structure, [next(given) if x is Tensor else x for x in self._leaves]
        )

    def _wrapped(self, outs: Sequence[Any]) -> list[Any]:
        made: list[Any] = []
        results, records = self.program.results, self.backend.records
        for place, raw in enumerate(self._raw):
            native = outs[place]
            if raw:
                made.append(native)
            elif records and native.requires_grad:
                needs = self._recorded[place]
                made.append((fill_grad if needs else _cut)(native, results[place]))
            else:
                made.append(fill(native, results[place]))
        return made

    def _inputs(self, call: Call, natives: list[NativeArray]) -> list[Tensor | None]:
        """The inputs by which results may be differentiated, for a record."""
        inputs: list[Tensor | None] = [None] * len(natives)
        roots = call.state.roots
        for place, root in enumerate(roots):
            if not root.leaf:
                continue
            if self._connects:
                inputs[place] = root.holder
            elif self.backend.records:
                natives[place] = self.backend.detach(natives[place])
        start = len(roots) + sum(root.grad is not None for root in roots)
        for place, x in enumerate(call.tensors):
            inputs[start + place] = x
        return inputs

    def _prepare(self, call: Call, natives: list[NativeArray]) -> None:
        """See that what is given up to the call belongs to nobody else."""
        backend, roots = self.backend, call.state.roots
        if not backend.compiler.donates:
            return
        for place in self._written:
            holder = roots[place].holder
            known = _OWN_REFERENCES
            if type(holder) is Storage:
                known += len(holder.aliases())
            if not _COUNTED or sys.getrefcount(natives[place]) != known:
                natives[place] = backend.copy(natives[place])

    def _write(self, call: Call, outs: Sequence[Any]) -> None:
        """Put the new state where the old was."""
        place = len(self._recorded)
        roots, detach = call.state.roots, self.backend.detach
        cuts = self.backend.records
        for written in self._written:
            roots[written].write(detach(outs[place]) if cuts else outs[place])
            place += 1
        for written, there in self._grads:
            root = roots[written]
            grad = None
            if there:
                grad = fill(detach(outs[place]) if cuts else outs[place], root.spec)
                place += 1
            root.holder.grad = grad
        if self._after is None:
            return
        tensors = call.state.tensors

        def value(leaf: Any) -> Any:
            if type(leaf) is _Old:
                return tensors[leaf.place]
            if type(leaf) is not _New:
                return leaf
            native = detach(outs[leaf.place]) if cuts else outs[leaf.place]
            made = fill(native, leaf.spec)
            return require_grad(made) if leaf.leaf else made

        for one, shown in zip(call.trees, self._after, strict=True):
            put(one, shown, value)


def _argument(native: NativeArray, spec: Spec, needs: bool) -> Tensor:
    """An argument within a traced function."""
    if not needs:
        return fill(native, spec)
    made = fill_grad(native, spec)
    if spec.backend.records:
        return made
    return require_grad(fill(native, spec))


def _cut(native: NativeArray, spec: Spec) -> Tensor:
    return fill(native.detach(), spec)
