"""checkpoint: what a function computed is computed again for its gradient, instead of kept.

There are three ways, and which one is taken depends on who differentiates. torch keeps a record of
its own and has checkpoints for it. JAX and MLX, where their transforms run the function, have
theirs. On the tape, the function is run with recording on, what it recorded is dropped but for the
nodes from outside that it reached, and one node stands for all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from contextvars import Context, copy_context
from functools import WRAPPER_ASSIGNMENTS, update_wrapper
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from ember_ml import tree
from ember_ml.autodiff import backward, tape
from ember_ml.autodiff.tape import Leaf, Node, Part, Rule
from ember_ml.backend import pairs, writes
from ember_ml.errors import DomainError, DTypeError, GradientError, UnsupportedOpError
from ember_ml.ops import dispatch
from ember_ml.ops.random import replay, seeding
from ember_ml.tensor.core import GradTensor, Tensor, fill, fill_grad

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend, Spec
    from ember_ml.tree import Structure

__all__ = ["checkpoint", "checkpoint_sequence"]


def checkpoint(
    fn: Callable[..., Any] | None = None,
    *,
    offload: bool = False,
    to_disk: Any = None,
) -> Callable[..., Any]:
    """A function that gives what `fn` gives, and runs it again for its gradient.

    Of each call only the arguments are kept for the gradient, not what was computed on the way. It
    takes and gives trees of tensors and others; tensors that `fn` closes over have gradients as
    ever, and random numbers are the same when it runs again. With `offload`, the arguments wait in
    host memory, with `to_disk` in a file in that directory: see `em.memory.offload`.

    >>> from ember_ml import ops
    >>> from ember_ml.autodiff import grad
    >>> def layer(x, w):
    ...     return ops.tanh(x @ w)
    >>> def loss(w):
    ...     return ops.sum(checkpoint(layer)(ops.ones((1, 2)), w))
    >>> grad(loss)(ops.zeros((2, 2))).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    if fn is None:
        return lambda function: checkpoint(function, offload=offload, to_disk=to_disk)
    if not callable(fn):
        raise DTypeError(
            f"checkpoint takes a function or a module, not {type(fn).__name__}; "
            f"a list of them takes checkpoint_sequence"
        )
    function = fn
    keeper: Any = None
    if offload or to_disk is not None:
        from ember_ml.memory.offloading import Keeper

        keeper = Keeper(to_disk)

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return _Run(function, args, kwargs, keeper).result()

    # Not the attributes of an instance, such as those of a module.
    assigned = [name for name in WRAPPER_ASSIGNMENTS if hasattr(fn, name)]
    return update_wrapper(checkpointed, fn, assigned, ())


def checkpoint_sequence(
    functions: Iterable[Callable[..., Any]],
    segments: int | None = None,
    *,
    offload: bool = False,
    to_disk: Any = None,
) -> Callable[..., Any]:
    """A function that hands the result of each of some functions to the next, by segments.

    Only what goes from segment to segment is kept for the gradient; by default there are as many
    as the square root of the number of functions, which needs the least memory. The last segment
    is not run again: the gradient begins there, while its values are fresh.

    >>> from ember_ml import ops
    >>> steps = [ops.exp, ops.negative, ops.square]
    >>> checkpoint_sequence(steps, segments=2)(ops.asarray(0.0)).item()
    1.0
    """
    steps = list(functions)
    for step in steps:
        if not callable(step):
            raise DTypeError(f"checkpoint_sequence takes functions, not {type(step).__name__}")
    if not steps:
        raise DomainError("checkpoint_sequence got no functions")
    count = max(1, round(math.sqrt(len(steps)))) if segments is None else segments
    if not 1 <= count <= len(steps):
        raise DomainError(
            f"checkpoint_sequence got segments={segments} for {len(steps)} functions; "
            f"give a number from 1 to {len(steps)}"
        )
    edges = [len(steps) * i // count for i in range(count + 1)]
    parts = [_in_a_row(steps[a:b]) for a, b in pairwise(edges)]
    parts[:-1] = [checkpoint(part, offload=offload, to_disk=to_disk) for part in parts[:-1]]
    return _in_a_row(parts)


def _in_a_row(steps: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        result = steps[0](*args, **kwargs)
        for step in steps[1:]:
            result = step(result)
        return result

    return run


class _Run:
    """A call of a function that is to be made again."""

    __slots__ = (
        "_context",
        "_draws",
        "_function",
        "_keeper",
        "_leaves",
        "_places",
        "_specs",
        "_structure",
        "_wants",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        keeper: Any,
    ) -> None:
        self._function = function
        self._keeper = keeper
        self._leaves, self._structure = tree.flatten((args, kwargs))
        self._places: list[int] = []
        self._specs: list[Spec] = []
        # Which of the tensors need gradients.
        self._wants: list[bool] = []
        self._draws: replay.Draws | None = None
        self._context: Context | None = None

    def result(self) -> Any:
        """What the function gives, with a record for its gradient where one is kept."""
        tensors: list[Tensor] = []
        for place, leaf in enumerate(self._leaves):
            if isinstance(leaf, Tensor):
                self._places.append(place)
                self._specs.append(leaf._spec)
                self._wants.append(type(leaf) is GradTensor)
                tensors.append(leaf)
                # What is to be kept is kept by the record, which knows when it is to be freed.
                self._leaves[place] = None
        backend = dispatch.home_of("checkpoint", tuple(tensors))
        plain = not backend.records and not any(self._wants)
        if plain and backend.gradients.transforming([t.native for t in tensors]):
            return self._by_engine(backend, tensors)  # also within no_grad, which is about records
        if not tape.is_grad_enabled():
            return self._call(self._filled(tensors))
        return self._by_engine(backend, tensors) if backend.records else self._by_tape(tensors)

    # --- Running it -------------------------------------------------------------------------

    def _first(self, tensors: Sequence[Tensor]) -> Any:
        """What the function gives; random numbers are noted."""
        seeding.current()  # a thread that has none yet gets its generator, which the context keeps
        self._context = copy_context()
        draws: replay.Draws = {}
        with replay.noted(draws):
            result = self._call(self._filled(tensors))
        self._draws = draws
        return result

    def _again(self, tensors: Sequence[Tensor], recording: bool) -> Any:
        """The same once more, wherever this is called from."""
        context, draws = self._context, self._draws
        assert context is not None, "_first() comes first"
        assert draws is not None, "_first() comes first"

        def run() -> Any:
            seeding.adopt()
            # What is needed at once goes nowhere else in between.
            with tape.keeping(None), replay.repeated(draws), tape.set_grad_enabled(recording):
                return self._call(self._filled(tensors))

        return context.copy().run(run)

    def _filled(self, tensors: Sequence[Tensor]) -> list[Any]:
        leaves = self._leaves.copy()
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        return leaves

    def _call(self, leaves: list[Any]) -> Any:
        args, kwargs = tree.unflatten(self._structure, leaves)
        return self._function(*args, **kwargs)

    # --- The engine's own way ---------------------------------------------------------------

    def _by_engine(self, backend: Backend, tensors: Sequence[Tensor]) -> Any:
        keeper, records = self._keeper, backend.records
        if keeper is not None and keeper.path is not None and not records:
            raise UnsupportedOpError(
                f"checkpoint(to_disk=...) under the transforms of the '{backend.name}' backend, "
                f"which keeps values itself; put `with em.memory.offload(to_disk=...):` around "
                f"em.grad, or use backward()"
            )
        outcome = _Outcome()
        draws = replay.Count()

        def function(given: Sequence[Any]) -> list[Any]:
            inputs = [
                (fill_grad if grad else fill)(native, spec)
                for native, spec, grad in zip(given, self._specs, self._wants, strict=True)
            ]
            if self._draws is not None:
                return outcome.natives(self._again(inputs, records))
            with nullcontext() if records else draws:
                result = self._first(inputs)
            return [*outcome.natives(result), *[calls.native for calls in _traced(draws).values()]]

        with (
            # The tape would keep what a transform makes, which does not outlive it.
            nullcontext() if records else tape.set_grad_enabled(False),
            keeper.engine(backend) if keeper is not None else nullcontext(),
        ):
            natives = [t.native for t in tensors]
            outs = backend.gradients.checkpoint(function, natives, keeper is not None)
        if draws.approximate:  # run as it is, its branches may be known
            draws.drop()
            return self._call(self._filled(tensors))
        # Counts that JAX traced with the function are results of it; MLX has one trace for all.
        given = iter(outs[outcome.count :])
        for source, calls in _traced(draws).items():
            draws.calls[source] = fill(next(given, calls.native), calls._spec)
        draws.settle()
        return outcome.tree(outs, records)

    # --- On the tape ------------------------------------------------------------------------

    def _by_tape(self, tensors: list[Tensor]) -> Any:
        if (captured := tape.CAPTURED.get()) is not None:
            captured.take(tensors)
        start = tape.next_order()
        since = writes.STATE.serial
        natives = [t.native for t in tensors]
        inner = self._leaves_of(tensors)
        if tape.KEEPER.get() is None:
            leaves, structure = tree.flatten(self._first(inner))
        else:
            with tape.keeping(None):  # what is dropped at once goes nowhere else before
                leaves, structure = tree.flatten(self._first(inner))
        places = [i for i, leaf in enumerate(leaves) if _is_taped(leaf)]
        results = [leaves[i] for i in places]
        reached = _reached(results, start)
        # In the order in which they were made, so that a run gives the same gradients as another.
        outer = tuple(sorted([n for n in reached if n.order < start], key=lambda n: n.order))
        inputs = {t._node for t in inner if type(t) is GradTensor}
        if not outer and inputs.isdisjoint(reached):
            return tree.unflatten(structure, leaves)  # nothing that is to be differentiated
        node = (self._keeper or tape.KEEPER.get() or Node)(
            _RULE,
            (*[t._node if type(t) is GradTensor else None for t in tensors], *outer),
            (*natives, *[None] * len(outer)),
            (*self._specs, *[reached[node] for node in outer]),
            (self, places, outer, _Unwritten(reached, natives, results, since)),
            tuple([tuple(r.native.shape) for r in results]),
            tuple([r._spec for r in results]),
        )
        for place, (i, r) in enumerate(zip(places, results, strict=True)):
            made = fill_grad(r.native, r._spec)
            made._node = Part(None, (node,), (), (), (place,), None, None)
            leaves[i] = made
        return tree.unflatten(structure, leaves)

    def _leaves_of(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The arguments, with leaves of a run in place of those that need gradients."""
        return [
            tape.leaf(t.native, t._spec) if grad else t
            for t, grad in zip(tensors, self._wants, strict=True)
        ]

    def pulled(
        self,
        g: Sequence[Tensor | None],
        places: Sequence[int],
        tensors: Sequence[Tensor],
        outer: Sequence[Node],
        create: bool,
    ) -> list[Tensor | None]:
        """The gradients of the arguments and of the nodes outside, from those of the results."""
        start = tape.next_order()
        # Where it will be differentiated, they are connected already.
        inner = list(tensors) if create else self._leaves_of(tensors)
        leaves = tree.leaves(self._again(inner, recording=True))
        seeds: dict[Node, Tensor] = {}
        for place, one in zip(places, g, strict=True):
            if one is None:
                continue
            if place >= len(leaves) or not _is_taped(leaves[place]):
                raise GradientError(
                    "checkpoint: the function gave something else when it ran again for its "
                    "gradient; it must depend on its arguments and on tensors that do not change"
                )
            node = leaves[place]._node
            have = seeds.get(node)
            seeds[node] = one if have is None else dispatch.binary(pairs.ADD, have, one)
        del leaves
        found = backward.pull_back(seeds, create=create, since=start)
        if not create:
            backward.settle(found.values())
        # Taken out: what is connected stands for all places of the same tensor at once.
        nodes = [t._node if type(t) is GradTensor else None for t in inner]
        return [found.pop(node, None) for node in (*nodes, *outer)]  # type: ignore[arg-type]  # None is no key


def _pull(
    g: Sequence[Tensor | None], needs: Sequence[bool], y: Any, *operands: Any, create: bool
) -> list[Tensor | None]:
    *tensors, run, places, outer, unwritten = operands
    unwritten.require()
    own = tensors[: len(tensors) - len(outer)]
    found: list[Tensor | None] = run.pulled(g, places, own, outer, create)
    return found


_RULE: Final = Rule("checkpoint", (), _pull, keeps_inputs=True, keeps_output=False, told=True)


def _reached(results: Sequence[Tensor], start: int) -> dict[Node, Any]:
    """The nodes on the ways from results, up to the first on each that is older than a run.

    With the specs of their tensors.
    """
    seen: dict[Node, Any] = {r._node: r._spec for r in results}
    stack = list(seen)
    while stack:
        node = stack.pop()
        if node.order < start or type(node) is Leaf:
            continue
        specs = (None,) if type(node) is Part else node.specs
        for parent, spec in zip(node.parents, specs, strict=True):
            if parent is not None and parent not in seen:
                seen[parent] = spec
                stack.append(parent)
    return seen


def _is_taped(leaf: Any) -> bool:
    return type(leaf) is GradTensor and not leaf._spec.backend.records


def _traced(draws: replay.Count) -> dict[replay.Counted, Tensor]:
    """The counts that are known to an engine alone."""
    return {source: calls for source, calls in draws.calls.items() if isinstance(calls, Tensor)}


class _Unwritten:
    """What a function read and did not make, such as weights: it must be the same when read again.

    Only weak references are held. What the function made has gone by the time of the gradient.
    """

    __slots__ = ("_roots", "_since")

    def __init__(
        self,
        nodes: Iterable[Node],
        natives: Sequence[Any],
        results: Sequence[Tensor],
        since: int,
    ) -> None:
        own = {id(writes.root(n)) for n in (*natives, *[r.native for r in results])}
        found: dict[int, Any] = {}
        for node in nodes:
            for value in () if node.rule is None else node.kept:
                root = writes.root(value)
                if root is not None and id(root) not in own:
                    found[id(root)] = root
        self._roots = [ref(root) for root in found.values()]
        self._since = since

    def require(self) -> None:
        """Raise where something was written to."""
        if self._since == writes.STATE.serial:
            return
        for weak in self._roots:
            root = weak()
            if root is not None and writes.changed(root, self._since):
                raise GradientError(
                    "a tensor that a checkpointed function reads was written to before the "
                    "gradient was taken; write to a .copy() instead"
                )


class _Hole:
    """The place of a tensor in a tree of results, without its values."""

    __slots__ = ("spec",)

    def __init__(self, spec: Spec) -> None:
        self.spec = spec


class _Outcome:
    """Any tree of results as native arrays, and the way back; it holds no arrays itself."""

    __slots__ = ("_leaves", "_structure", "count")

    def __init__(self) -> None:
        self._leaves: list[Any] = []
        self._structure: Structure | None = None
        # How many tensors there are.
        self.count = 0

    def natives(self, result: Any) -> list[Any]:
        """The native arrays of the tensors of a tree; the rest is remembered."""
        leaves, self._structure = tree.flatten(result)
        self._leaves = [_Hole(x._spec) if isinstance(x, Tensor) else x for x in leaves]
        natives = [x.native for x in leaves if isinstance(x, Tensor)]
        self.count = len(natives)
        return natives

    def tree(self, natives: Sequence[Any], records: bool) -> Any:
        """The tree with these arrays."""
        given = iter(natives)
        leaves: list[Any] = []
        for leaf in self._leaves:
            if type(leaf) is _Hole:
                native = next(given)
                made = fill_grad if records and native.requires_grad else fill
                leaf = made(native, leaf.spec)
            leaves.append(leaf)
        assert self._structure is not None, "natives() comes first"
        return tree.unflatten(self._structure, leaves)
