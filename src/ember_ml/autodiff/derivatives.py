"""Derivatives of functions that give more than a number: vjp, jvp, jacobian, hessian, hvp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ember_ml import ops, tree
from ember_ml.autodiff import runs
from ember_ml.autodiff.calls import Call, Outcome, fitted, require_unit, unused
from ember_ml.autodiff.gradients import grad
from ember_ml.autodiff.runs import NESTING, Run
from ember_ml.errors import DTypeError
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.tree import Structure

__all__ = ["hessian", "hvp", "jacobian", "jvp", "rows_of", "vjp"]

# A column of a jacobian is a walk through the record of a walk: some four times the work of a row.
_COLUMN_COST = 4


class _Linear(NamedTuple):
    """A function at a point: what it gave, and its derivative there."""

    call: Call
    results: list[Tensor]
    structure: Structure
    aux: Any
    # The gradients of inputs, None for those not used, from those of results.
    back: Callable[[list[Tensor]], list[Tensor | None]]


def vjp(
    fn: Callable[..., Any], *args: Any, has_aux: bool = False, allow_unused: bool = False
) -> Any:
    """What `fn` gives for some arguments, and a function that pulls gradients back through it.

    That function takes a tree like the result, the gradient of some number by it, and gives a
    tuple with the gradient by each argument. With `has_aux`, `fn` gives `(result, aux)`, and there
    are three results. Complex tensors have gradients as in PyTorch: those of a real loss, dL/dx +
    i dL/dy.

    >>> from ember_ml import ops
    >>> y, pull = vjp(lambda a, b: a * b, ops.asarray([1.0, 2.0]), ops.asarray([3.0, 4.0]))
    >>> y.tolist(), [g.tolist() for g in pull(ops.asarray([1.0, 10.0]))]
    ([3.0, 8.0], [[3.0, 40.0], [1.0, 20.0]])
    """
    call = Call("vjp", fn, tuple(range(len(args))), args, {})
    linear = _linearized(call, has_aux)
    value = tree.unflatten(linear.structure, linear.results)

    def pull(gradient: Any) -> Any:
        seeds = fitted("vjp", "the gradient", gradient, linear.structure, linear.results)
        found = linear.back(seeds)
        return call.tree(runs.completed(call, found, allow_unused))

    return (value, pull, linear.aux) if has_aux else (value, pull)


def jvp(
    fn: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
) -> Any:
    """What `fn` gives for the arguments `primals`, and how that changes along `tangents`.

    Both are tuples of arguments, each a tree. With `has_aux`, `fn` gives `(result, aux)`, and
    there are three results. A result that does not depend on any argument does not change: zeros.

    >>> from ember_ml import ops
    >>> x, v = ops.asarray([1.0, 2.0]), ops.asarray([1.0, 0.5])
    >>> y, along = jvp(lambda x: x * x, (x,), (v,))
    >>> y.tolist(), along.tolist()
    ([1.0, 4.0], [2.0, 2.0])
    """
    call, directions = _directed("jvp", fn, primals, tangents)
    found = _forward(call, directions, has_aux)
    if found is None:
        found = _twice_back(call, directions, has_aux)
    results, moved, structure, aux = found
    out = tree.unflatten(structure, results), tree.unflatten(structure, moved)
    return (*out, aux) if has_aux else out


def jacobian(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    allow_unused: bool = False,
) -> Callable[..., Any]:
    """A function that gives the derivatives of all elements of a result by all of some arguments.

    Each has the shape of the result followed by that of the argument. Results may be trees: the
    jacobian is a tree like the result, whose leaves are trees like the arguments.

    >>> from ember_ml import ops
    >>> jacobian(lambda x: x * x)(ops.asarray([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    @wraps(fn)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        return _jacobian(Call("jacobian", fn, argnums, args, kwargs), has_aux, allow_unused)

    return differentiated


def hessian(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the second derivatives of `fn`, one number, by some arguments.

    It is the jacobian of the gradient: a tree like the arguments, whose leaves are such trees.

    >>> from ember_ml import ops
    >>> hessian(lambda x: ops.sum(x * x * x))(ops.asarray([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    first = grad(fn, argnums, has_aux)

    @wraps(fn)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        # Where a gradient is constant, its derivative is zero, and no mistake.
        return _jacobian(Call("hessian", first, argnums, args, kwargs), has_aux, True)

    return differentiated


def hvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The hessian of `fn`, one number, by all its arguments, times a direction; never built whole.

    >>> from ember_ml import ops
    >>> x, v = ops.asarray([1.0, 2.0]), ops.asarray([1.0, 1.0])
    >>> hvp(lambda x: ops.sum(x * x * x), (x,), (v,))[0].tolist()
    [6.0, 12.0]
    """
    call, directions = _directed("hvp", fn, primals, tangents)
    require_unit(call.tensors, "hvp")
    every = tuple(range(len(primals)))
    # A hessian is symmetric: what is pulled back by the gradient is what is pushed forward.
    linear = _linearized(Call("hvp", grad(fn, every), every, tuple(primals), {}), False)
    found: tuple[Any, ...] = call.tree(runs.completed(call, linear.back(directions), True))
    return found


# --- A function at a point ------------------------------------------------------------------


def _by_transform(call: Call) -> bool:
    """True where the engine's own transform is to be used, and not a record."""
    call.backend.gradients.prepare()
    return call.backend.gradients.transforms_all and not call.connected and not NESTING.get()[1]


class _ConnectedError(Exception):
    """A function gave a tensor that is on our tape, of which the engine knows nothing."""


class _Native:
    """A call as a function of native arrays, for an engine's transforms."""

    def __init__(self, call: Call, has_aux: bool) -> None:
        self._call = call
        self._has_aux = has_aux
        self._aux = Outcome()
        self.specs: list[Any] = []
        self.structure = tree.LEAF

    def __call__(self, natives: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        call = self._call
        given = [fill(n, t._spec) for n, t in zip(natives, call.tensors, strict=True)]
        result, aux = call.run(given), None
        if self._has_aux:
            result, aux = call.pair(result)
        tensors, self.structure = call.results(result)
        self.specs = [t._spec for t in tensors]
        others = self._aux.natives(aux, call.backend)
        if self._aux.connected or any(type(t) is GradTensor for t in tensors):
            raise _ConnectedError
        return [t.native for t in tensors], others

    def results(self, natives: Sequence[Any]) -> list[Tensor]:
        """Native arrays as tensors like the results."""
        return [fill(n, spec) for n, spec in zip(natives, self.specs, strict=True)]

    def aux(self, natives: Sequence[Any]) -> Any:
        """What came besides."""
        return self._aux.tree(natives)


def _linearized(call: Call, has_aux: bool) -> _Linear:
    if _by_transform(call):
        function = _Native(call, has_aux)
        try:
            outs, others, back = call.backend.gradients.vjp(
                function, [t.native for t in call.tensors]
            )
        except _ConnectedError:
            return _recorded(call, has_aux)

        def pull(seeds: list[Tensor]) -> list[Tensor | None]:
            if any(type(s) is GradTensor for s in seeds):  # they are on our tape
                return _recorded(call, has_aux).back(seeds)
            found = back([s.native for s in seeds])
            return [
                None if g is None else fill(g, t._spec)
                for g, t in zip(found, call.tensors, strict=True)
            ]

        return _Linear(call, function.results(outs), function.structure, function.aux(others), pull)
    return _recorded(call, has_aux)


def _recorded(call: Call, has_aux: bool) -> _Linear:
    run = Run(call)
    with run as inputs:
        result, aux = call.run(inputs), None
        if has_aux:
            result, aux = call.pair(result)
        results, structure = call.results(result)
        create = run.is_connected((*results, *tree.leaves(aux)))

    def back(seeds: list[Tensor]) -> list[Tensor | None]:
        again = create or any(type(s) is GradTensor for s in seeds)
        return runs.pulled(results, seeds, inputs, create=again, retain=True)

    outs = results if create else runs.shown(call, results)
    return _Linear(call, outs, structure, aux if create else runs.shown(call, aux), back)


def _directed(
    name: str, fn: Callable[..., Any], primals: Any, tangents: Any
) -> tuple[Call, list[Tensor]]:
    """A call, and a direction in the space of its arguments."""
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise DTypeError(
                f"{name} takes {what} as a tuple with one entry for each argument, "
                f"not {type(given).__name__}"
            )
    call = Call(name, fn, tuple(range(len(primals))), tuple(primals), {})
    return call, fitted(name, "tangents", tuple(tangents), call.structure, call.tensors)


_Moved = tuple[list[Tensor], list[Tensor], Structure, Any]


def _forward(call: Call, directions: list[Tensor], has_aux: bool) -> _Moved | None:
    """By the engine's own forward mode; None where there is none for this."""
    if not _by_transform(call) or any(type(d) is GradTensor for d in directions):
        return None
    function = _Native(call, has_aux)
    try:
        found = call.backend.gradients.jvp(
            function, [t.native for t in call.tensors], [d.native for d in directions]
        )
    except _ConnectedError:
        return None
    if found is None:
        return None
    outs, moved, others = found
    return function.results(outs), function.results(moved), function.structure, function.aux(others)


def _twice_back(call: Call, directions: list[Tensor], has_aux: bool) -> _Moved:
    """Forward by going backward twice: what is pulled back depends linearly on the gradients of
    the results, and the gradient of that is the way forward.
    """
    run = Run(call)
    with run as inputs:
        result, aux = call.run(inputs), None
        if has_aux:
            result, aux = call.pair(result)
        results, structure = call.results(result)
        create = run.is_connected((*results, *tree.leaves(aux)))
        create = create or any(type(d) is GradTensor for d in directions)
        seeds = [runs.alias(_zeros_like(r)) for r in results]
        grads = runs.pulled(results, seeds, inputs, create=True)
        pairs = [(g, d) for g, d in zip(grads, directions, strict=True) if g is not None]
        moved = runs.pulled([g for g, _ in pairs], [d for _, d in pairs], seeds, create=create)
    changes = [_zeros_like(r) if m is None else m for r, m in zip(results, moved, strict=True)]
    if create:
        return results, changes, structure, aux
    return runs.shown(call, results), changes, structure, runs.shown(call, aux)


def _zeros_like(x: Tensor) -> Tensor:
    return fill(x._spec.backend.full(x.shape, 0, x._spec), x._spec)


# --- Jacobians ------------------------------------------------------------------------------


def _jacobian(call: Call, has_aux: bool, allow_unused: bool) -> Any:
    require_unit(call.tensors, call.name)
    if _by_transform(call):
        linear = _linearized(call, has_aux)
        call.results(tree.unflatten(linear.structure, linear.results), real=True)
        if call.backend.gradients.transforms_all and not any(
            type(r) is GradTensor for r in linear.results
        ):
            return _assembled(linear, _by_engine(linear), has_aux, allow_unused)
    run = Run(call)
    with run as inputs:
        result, aux = call.run(inputs), None
        if has_aux:
            result, aux = call.pair(result)
        results, structure = call.results(result, real=True)
        create = run.is_connected((*results, *tree.leaves(aux)))
        if _size(inputs) * _COLUMN_COST < _size(results):
            blocks = _by_columns(results, inputs, create)
        else:
            blocks = [rows_of(r, inputs, create) for r in results]
    if not create:
        aux = runs.shown(call, aux)
    linear = _Linear(call, results, structure, aux, lambda _: [])
    return _assembled(linear, blocks, has_aux, allow_unused)


# For each result, for each input: its part of the jacobian, or None where it was not used.
_Blocks = list[list[Tensor | None]]


def _assembled(linear: _Linear, blocks: _Blocks, has_aux: bool, allow_unused: bool) -> Any:
    call = linear.call
    inputs = call.tensors
    for place in range(len(inputs)):
        if not allow_unused and inputs[place].size and all(row[place] is None for row in blocks):
            raise unused(call.name, call.path(place))
    trees = []
    for result, row in zip(linear.results, blocks, strict=True):
        parts = []
        for x, block in zip(inputs, row, strict=True):
            if block is None:
                shape, spec = result.shape + x.shape, x._spec
                block = fill(spec.backend.full(shape, 0, spec), spec)
            parts.append(block)
        trees.append(call.tree(parts))
    out = tree.unflatten(linear.structure, trees)
    return (out, linear.aux) if has_aux else out


def _size(tensors: Sequence[Tensor]) -> int:
    return sum(t.size for t in tensors)


def _units(x: Tensor, rows: int = 0, first: int = 0) -> Tensor:
    """For each element of `x` a tensor like it that is one there and zero elsewhere, stacked; they
    are the rows from `first` on of `rows`, the others are zero.
    """
    size, spec = x.size, x._spec
    host = np.zeros((rows or size, size), spec.dtype.numpy)
    host[first : first + size] = np.eye(size, dtype=spec.dtype.numpy)
    host = host.reshape((rows or size, *x.shape))
    return fill(spec.backend.from_numpy(host, spec), spec)


def rows_of(result: Tensor, inputs: Sequence[Tensor], create: bool) -> list[Tensor | None]:
    """One walk back for each element of a result."""
    if not inputs:
        return []
    if type(result) is not GradTensor or not result.size:
        return [None if type(result) is not GradTensor else _empty(result, x) for x in inputs]
    units = _units(result)
    gradients = result._spec.backend.gradients
    if result._spec.backend.records:
        natives = gradients.pull_rows(
            result.native, units.native, [x.native for x in inputs], create
        )
        if natives is not None:
            return [
                None if n is None else _shaped(runs.made(n, x._spec), result, x)
                for n, x in zip(natives, inputs, strict=True)
            ]
    rows = [
        runs.pulled((result,), (units[i],), inputs, create=create, retain=True)
        for i in range(units.shape[0])
    ]
    return [
        None
        if rows[0][place] is None
        else _shaped(ops.stack([row[place] for row in rows]), result, x)
        for place, x in enumerate(inputs)
    ]


def _empty(result: Tensor, x: Tensor) -> Tensor:
    spec = x._spec
    return fill(spec.backend.full(result.shape + x.shape, 0, spec), spec)


def _shaped(rows: Tensor, result: Tensor, x: Tensor) -> Tensor:
    return ops.reshape(rows, result.shape + x.shape)


def _by_columns(results: list[Tensor], inputs: list[Tensor], create: bool) -> _Blocks:
    """One walk forward, which is two back, for each element of the inputs."""
    seeds = [runs.alias(_zeros_like(r)) for r in results]
    grads = runs.pulled(results, seeds, inputs, create=True)
    blocks: _Blocks = [[None] * len(inputs) for _ in results]
    for place, (x, g) in enumerate(zip(inputs, grads, strict=True)):
        if g is None:
            continue
        if not x.size:
            for result, row in zip(results, blocks, strict=True):
                row[place] = _empty(result, x)
            continue
        units = _units(x)
        columns = [
            runs.pulled((g,), (units[i],), seeds, create=create, retain=True)
            for i in range(units.shape[0])
        ]
        for which, (result, row) in enumerate(zip(results, blocks, strict=True)):
            found = [column[which] for column in columns]
            if found[0] is not None:
                row[place] = ops.reshape(ops.stack(found, axis=-1), result.shape + x.shape)
    return blocks


def _by_engine(linear: _Linear) -> _Blocks:
    """All rows, or all columns, at once: for engines that transform functions."""
    call, results = linear.call, linear.results
    gradients = call.backend.gradients
    count, inputs = _size(results), call.tensors
    used = [False] * len(inputs)

    def back(natives: Sequence[Any]) -> list[Any]:
        specs = [r._spec for r in results]
        grads = linear.back([fill(n, spec) for n, spec in zip(natives, specs, strict=True)])
        for place, g in enumerate(grads):
            used[place] = g is not None
        return [x.native * 0 if g is None else g.native for g, x in zip(grads, inputs, strict=True)]

    width = _size(inputs)
    if width < count:
        zeros = [_zeros_like(r).native for r in results]
        _, _, ahead = gradients.vjp(lambda given: (back(given), []), zeros)
        units, firsts = _staggered(inputs)
        moved = gradients.each(lambda given: _filled(ahead(given), zeros), units)
        columns = [
            ops.moveaxis(fill(m, r._spec), 0, -1) for m, r in zip(moved, results, strict=True)
        ]
        return [
            [
                _shaped(c[..., first : first + x.size], r, x) if use else None
                for first, x, use in zip(firsts, inputs, used, strict=True)
            ]
            for c, r in zip(columns, results, strict=True)
        ]
    units, firsts = _staggered(results)
    found = gradients.each(back, units)
    rows = [fill(n, x._spec) for n, x in zip(found, inputs, strict=True)]
    return [
        [
            _shaped(row[first : first + r.size], r, x) if use else None
            for row, x, use in zip(rows, inputs, used, strict=True)
        ]
        for first, r in zip(firsts, results, strict=True)
    ]


def _filled(found: Sequence[Any], zeros: Sequence[Any]) -> list[Any]:
    return [z if n is None else n for n, z in zip(found, zeros, strict=True)]


def _staggered(tensors: Sequence[Tensor]) -> tuple[list[Any], list[int]]:
    """The unit vectors of several tensors together, and where those of each begin."""
    total = _size(tensors)
    units, firsts, first = [], [], 0
    for x in tensors:
        units.append(_units(x, total, first).native)
        firsts.append(first)
        first += prod(x.shape)
    return units, firsts
