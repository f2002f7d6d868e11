"""Gradients that users decide: stop_gradient and custom_gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

from ember_ml import tree
from ember_ml.autodiff import tape
from ember_ml.autodiff.calls import fitted
from ember_ml.autodiff.rules.table import joint_rule
from ember_ml.autodiff.runs import apart
from ember_ml.autodiff.runs import made as made_of_native
from ember_ml.backend.compiling import tracing
from ember_ml.backend.contract import Backend, Spec
from ember_ml.errors import GradientError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.tree import LEAF, Structure

__all__ = ["custom_gradient", "stop_gradient"]

T = TypeVar("T")
_KERNEL: Final = "custom_gradient"


def stop_gradient(x: T) -> T:
    """The same values, which count as constants in every derivative; of a tensor or a tree.

    >>> from ember_ml import autodiff, ops
    >>> autodiff.grad(lambda x: x * stop_gradient(x))(ops.asarray(3.0)).item()
    3.0
    """
    out: T = tree.map(_stopped, x)
    return out


def _stopped(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        out = tape.constant(leaf)
        return out.clone() if out._spec.mutable else out  # as where nobody writes to arrays
    backend = convert.backend_of(leaf)
    return leaf if backend is None else backend.detach(leaf)


def custom_gradient(fn: Callable[..., tuple[Any, Callable[[Any], Any]]]) -> Callable[..., Any]:
    """A function with a gradient of its own.

    `fn(*args)` gives `(value, pull)`. `pull(g)` is called with the gradient by the value, a tree
    like it, and gives that by the argument, or a tuple with one for each argument where there are
    several: trees like the arguments, None where there is none. Keyword arguments are constants.
    What `pull` does is differentiated for second derivatives. Tensors that need gradients must be
    arguments: one that `fn` finds elsewhere raises GradientError.

    >>> from ember_ml import autodiff, ops
    >>> @custom_gradient
    ... def log1pexp(x):
    ...     e = ops.exp(x)
    ...     return ops.log(1 + e), lambda g: g * (1 - 1 / (1 + e))
    >>> autodiff.grad(log1pexp)(ops.asarray(100.0)).item()
    1.0
    """

    @wraps(fn)
    def called(*args: Any, **kwargs: Any) -> Any:
        found, structure = tree.flatten(args)
        places = [i for i, leaf in enumerate(found) if _is_differentiable(leaf)]
        if not places:
            return _Custom(fn, found, structure, places, kwargs).run([])[0]
        name = getattr(fn, "__name__", "custom_gradient")
        home = dispatch.home_of(name, tuple(found))
        tensors = [convert.to_tensor(found[i], home) for i in places]
        return _apply(_Custom(fn, found, structure, places, kwargs), home, tensors)

    return called


def _is_differentiable(leaf: Any) -> bool:
    if not isinstance(leaf, Tensor):
        backend = convert.backend_of(leaf)
        return backend is not None and backend.dtype_of(leaf).is_inexact
    return leaf._spec.dtype.is_inexact


class _Custom:
    """A call of a function that comes with its own pull."""

    __slots__ = (
        "_found",
        "_function",
        "_kwargs",
        "_places",
        "_structure",
        "marks",
        "name",
        "outs",
        "pull",
        "shape",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        found: list[Any],
        structure: Structure,
        places: list[int],
        kwargs: dict[str, Any],
    ) -> None:
        self._function = function
        self._found = found
        self._structure = structure
        self._places = places
        self._kwargs = kwargs
        self.name = getattr(function, "__name__", "custom_gradient")
        self.pull: Callable[[list[Tensor]], list[Tensor]] | None = None
        self.shape: Structure = LEAF
        # Which of the results are tensors that have gradients, and what the others are.
        self.marks: list[bool] = []
        self.outs: list[Any] = []

    def run(self, tensors: Sequence[Tensor]) -> tuple[Any, Callable[[Any], Any]]:
        """What the function gives for these tensors in place of its own."""
        found = self._found.copy()
        for place, tensor in zip(self._places, tensors, strict=True):
            found[place] = tensor
        got = self._function(*tree.unflatten(self._structure, found), **self._kwargs)
        if not isinstance(got, tuple) or len(got) != 2 or not callable(got[1]):
            raise ShapeError(
                f"custom_gradient takes a function that gives (value, pull), and "
                f"{self.name} gave {type(got).__name__}"
            )
        return got[0], got[1]

    def forward(
        self, tensors: Sequence[Tensor]
    ) -> tuple[list[Tensor], Callable[[list[Tensor]], list[Tensor]]]:
        """The tensors that the function gives, and its pull as a function of lists."""
        value, pull = self.run(tensors)
        found, self.shape = tree.flatten(value)
        self.marks = [isinstance(out, Tensor) and out.dtype.is_inexact for out in found]
        outs = [out for out, mark in zip(found, self.marks, strict=True) if mark]
        # Results may be large, and must not be held by the record of how they came to be.
        self.outs = [None if mark else out for out, mark in zip(found, self.marks, strict=True)]

        def back(grads: list[Tensor]) -> list[Tensor]:
            return self._pulled(pull, grads, tensors)

        return outs, back

    def _pulled(
        self, pull: Callable[[Any], Any], grads: list[Tensor], tensors: Sequence[Tensor]
    ) -> list[Tensor]:
        # Others are given the same gradients, and some are constants: a pull that writes to what it
        # gets writes to its own.
        given = (g.copy() if g._spec.mutable else g for g in grads)
        leaves = [next(given) if mark else None for mark in self.marks]
        got = pull(tree.unflatten(self.shape, leaves))
        arguments = self._structure.children
        if len(arguments) == 1 and not (isinstance(got, tuple) and len(got) == 1):
            got = (got,)
        if not isinstance(got, tuple | list) or len(got) != len(arguments):
            count = len(got) if isinstance(got, tuple | list) else type(got).__name__
            raise ShapeError(
                f"the pull of {self.name} is to give a tuple of {len(arguments)} gradients, "
                f"one for each argument, not {count}"
            )
        # Of which argument each leaf is a part, and the tensor at it.
        taken = dict(zip(self._places, tensors, strict=True))
        out: dict[int, Tensor] = {}
        first = 0
        for number, (part, below) in enumerate(zip(got, arguments, strict=True)):
            stop = first + below.leaf_count
            here = [i for i in range(first, stop) if i in taken]
            first = stop
            if not here:
                continue
            spread = tree.spread(part, below, f"the pull of {self.name}", f"args[{number}]")
            for i in here:
                g = spread[i - stop]
                if g is None:  # the caller's word that there is none
                    out[i] = _zeros(taken[i])
                else:
                    what = f"the gradient that {self.name} pulls back"
                    made = fitted("custom_gradient", what, g, LEAF, [taken[i]])[0]
                    # A gradient that is an argument itself, or a tensor of the caller's, would be
                    # written to with it.
                    its_own = made.native is taken[i].native or (made is g and made._spec.mutable)
                    out[i] = made.copy() if its_own else made
        return [out[i] for i in self._places]

    def value(self, outs: Sequence[Tensor]) -> Any:
        """The result of the function, with other tensors in it."""
        given = iter(outs)
        leaves = [
            next(given) if mark else out for out, mark in zip(self.outs, self.marks, strict=True)
        ]
        return tree.unflatten(self.shape, leaves)


def _apply(custom: _Custom, home: Backend, tensors: list[Tensor]) -> Any:
    plain = [t.detach() if type(t) is GradTensor else t for t in tensors]
    needed = any(type(t) is GradTensor for t in tensors) and tape.is_grad_enabled()
    if home.gradients.transforms and not any(type(t) is GradTensor for t in tensors):
        return custom.value(_by_engine(custom, home, plain))
    if home.gradients.transforms and tracing():
        return _by_both(custom, home, tensors, needed)
    outs, back = custom.forward(plain)
    _require_closed(custom, outs)
    outs = [apart(out, plain) for out in outs]
    if not needed or not outs:
        return custom.value(outs)
    if not home.records:
        custom.pull = back
        results = [(out.native, out._spec) for out in outs]
        return custom.value(tape.recorded_many(_KERNEL, results, tensors, (custom,)))
    specs = [out._spec for out in outs]

    def again(natives: Sequence[Any] | None) -> Callable[[Sequence[Any]], list[Any]]:
        """The pull: that of the first run, or of another on arrays that are in the graph."""
        pull = back
        if natives is not None:
            given = [convert.wrap(n, home) for n in natives]
            pull = custom.forward(given)[1]

        def pulled(grads: Sequence[Any]) -> list[Any]:
            seeds = [convert.wrap(g, home) for g in grads]
            return [g.native for g in pull(seeds)]

        return pulled

    natives = home.gradients.attached([o.native for o in outs], again, [t.native for t in tensors])
    return custom.value([made_of_native(n, spec) for n, spec in zip(natives, specs, strict=True)])


def _by_both(custom: _Custom, home: Backend, tensors: list[Tensor], needed: bool) -> Any:
    """Where the engine will differentiate what is compiled, and the tape what is within it."""
    # Not detached: to the engine, that would be a constant.
    plain = [fill(t.native, t._spec) for t in tensors]
    outs = _by_engine(custom, home, plain)
    if not needed or not outs:
        return custom.value(outs)
    # What the engine has seen belongs to a trace of its own: the tape's pull runs it once more.
    custom.pull = lambda seeds: custom.forward([t.detach() for t in plain])[1](seeds)
    results = [(out.native, out._spec) for out in outs]
    return custom.value(tape.recorded_many(_KERNEL, results, tensors, (custom,)))


def _by_engine(custom: _Custom, home: Backend, tensors: list[Tensor]) -> list[Tensor]:
    """Where the engine transforms functions: it learns of the pull."""
    specs: list[Spec] = []
    given = [t._spec for t in tensors]

    def forward(natives: Sequence[Any]) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
        inner = [fill(n, spec) for n, spec in zip(natives, given, strict=True)]
        outs, back = custom.forward(inner)
        _require_closed(custom, outs)
        specs[:] = [out._spec for out in outs]

        def pull(grads: Sequence[Any]) -> list[Any]:
            seeds = [fill(g, spec) for g, spec in zip(grads, specs, strict=True)]
            return [g.native for g in back(seeds)]

        return [out.native for out in outs], pull

    natives = home.gradients.custom(forward, [t.native for t in tensors])
    return [fill(n, spec) for n, spec in zip(natives, specs, strict=True)]


def _require_closed(custom: _Custom, outs: Sequence[Tensor]) -> None:
    for out in outs:
        if type(out) is GradTensor:
            raise GradientError(
                f"custom_gradient: {custom.name} uses a tensor that needs gradients and is not "
                f"one of its arguments, so that no gradient would reach it; make it an argument"
            )


@joint_rule(_KERNEL)
def _pull_back(g: list[Tensor | None], needs: tuple[bool, ...], y: Any, *rest: Any) -> list[Tensor]:
    *operands, custom = rest
    seeds = [_zeros(mold) if one is None else one for one, mold in zip(g, y, strict=True)]
    if any(type(x) is GradTensor for x in operands):  # its gradient is asked for as well
        return custom.forward(operands)[1](seeds)  # type: ignore[no-any-return]  # as declared
    return custom.pull(seeds)  # type: ignore[no-any-return]  # as declared


def _zeros(mold: Any) -> Tensor:
    spec = mold._spec
    return fill(spec.backend.full(mold.shape, 0, spec), spec)
