"""Batching: a function of single examples on whole batches."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ember_ml import tree
from ember_ml.backend.contract import Backend, NativeArray
from ember_ml.errors import AxisError, DomainError, ShapeError
from ember_ml.ops import dispatch, manipulation, reduction
from ember_ml.ops.axes import broadcast, integer_of
from ember_ml.ops.control.counting import largest, settle
from ember_ml.ops.control.scanning import map_fn
from ember_ml.ops.control.trees import (
    Branch,
    Rows,
    backend_of,
    is_taped,
    owned,
    rows_of,
    tensor_of,
    tensors_of,
    wrapped,
    zeros,
)
from ember_ml.ops.random import replay
from ember_ml.ops.registry import op
from ember_ml.tensor.core import Tensor, fill
from ember_ml.tree import Structure, Tree

__all__ = ["vectorize", "vmap"]


@op(standard=False)
def vmap(
    fn: Callable[..., Any],
    /,
    in_axes: Tree = 0,
    out_axes: Tree = 0,
    *,
    axis_size: int | None = None,
) -> Callable[..., Any]:
    """A function that runs `fn` on each example of a batch, and stacks the results.

    `in_axes` says along which axis of each argument examples lie: one number for all, or one for
    each argument, or trees of numbers like the arguments; None gives an argument whole to every
    call. `out_axes` says the same of results; None there is for what is equal for all examples.
    Keyword arguments are batched along their first axis.

    >>> x, w = ops.ones((3, 4)), ops.arange(4, dtype="float32")
    >>> vmap(lambda x, w: ops.sum(x * w), in_axes=(0, None))(x, w).tolist()
    [6.0, 6.0, 6.0]
    """

    @wraps(fn)
    def batched(*args: Any, **named: Any) -> Any:
        return _batched(fn, in_axes, out_axes, axis_size, args, named)

    return batched


def _batched(
    fn: Callable[..., Any],
    in_axes: Tree,
    out_axes: Tree,
    axis_size: int | None,
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> Tree:
    backend = backend_of("vmap", args, named)
    tensors, positional = tensors_of("vmap", args, backend, "args")
    more, by_name = tensors_of("vmap", named, backend, "kwargs")
    tensors += more
    structure = Structure(tuple, 2, (positional, by_name), None, len(tensors))
    axes, size = _axes(tensors, structure, in_axes, axis_size)

    def call(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return fn(*args, **named)

    branch = Branch("vmap", "fn", call, tensors, structure, backend)
    found = None
    draws, moved_by = replay.Count(), list[NativeArray]()
    if not is_taped(tensors):
        # What the examples draw from goes on by the most that one of them takes, below.
        def run(*natives: NativeArray) -> list[NativeArray]:
            with draws:
                out = branch(*natives)
            traced = [calls for calls in draws.calls.values() if isinstance(calls, Tensor)]
            return [*out, *[calls.native for calls in traced]]

        found = backend.control.batch(run, [t.native for t in tensors], axes, size)
        if found is not None:
            found, moved_by = found[: len(branch.results)], found[len(branch.results) :]
    # Rules of ops for batches are not all right: a wrong shape gives some of those away.
    if (
        found is None
        or draws.approximate
        or is_taped(branch.results)
        or any(
            tuple(native.shape) != (size, *t.shape)
            for native, t in zip(found, branch.results, strict=True)
        )
    ):
        draws.drop()
        stacked = _loop(branch, tensors, axes, size, backend)
    else:
        stacked = wrapped(found, branch.results)
        _settle(draws, moved_by)
    places = tree.spread(out_axes, branch.structure, "ops.vmap: out_axes", "result")
    paths = tree.paths(branch.structure, "result")
    apart = [owned(t, tensors) for t in stacked]
    moved = [_placed(*each, size) for each in zip(apart, places, paths, strict=True)]
    return tree.unflatten(branch.structure, moved)


def _settle(draws: replay.Count, moved_by: Sequence[NativeArray]) -> None:
    """Let sources go on from a batch, whose examples all drew from where they stood."""
    each = iter(moved_by)
    for source, calls in draws.calls.items():
        if isinstance(calls, Tensor):
            draws.calls[source] = reduction.max(fill(next(each), calls._spec))
    draws.settle()


def _loop(
    branch: Branch,
    tensors: Sequence[Tensor],
    axes: Sequence[int | None],
    size: int,
    backend: Backend,
) -> list[Tensor]:
    """The function on one example after the other."""
    rows = Rows("vmap", size, backend)
    if not size:  # the results of an example of zeros tell dtypes and shapes
        example = [_example(t, axis) for t, axis in zip(tensors, axes, strict=True)]
        with replay.Count() as once:
            rows.add_flat(branch.run(example), branch.structure)
        once.settle()
        return rows.columns()
    fronts: list[Tensor | None] = []
    for t, axis in zip(tensors, axes, strict=True):
        front = t if axis in (None, 0) else manipulation.moveaxis(t, axis, 0)
        fronts.append(None if axis is None else front)
    if type(size) is not int:  # one that varies, in a function that is exported
        return _mapped(branch, tensors, fronts)
    columns: list[Any] = [None if front is None else rows_of(front) for front in fronts]
    runs: list[replay.Count] = []
    taken: replay.Taken = {}
    for i in range(size):
        row = [
            t if column is None else column[i] for t, column in zip(tensors, columns, strict=True)
        ]
        # Every example draws the same numbers, as where the engine runs all at once.
        with replay.Count(taken=taken) as draws:
            rows.add_flat(branch.run(row), branch.structure)
        if draws.calls:
            runs.append(draws)
    if runs:
        settle(runs, largest)
    return rows.columns()


def _mapped(
    branch: Branch, tensors: Sequence[Tensor], fronts: Sequence[Tensor | None]
) -> list[Tensor]:
    """The function on one row after the other, by a loop of the engine."""

    def one(rows: list[Tensor]) -> list[Tensor]:
        waiting = iter(rows)
        return branch.run(
            [
                t if front is None else next(waiting)
                for t, front in zip(tensors, fronts, strict=True)
            ]
        )

    found: list[Tensor] = map_fn(one, [front for front in fronts if front is not None])
    return found


def _example(t: Tensor, axis: int | None) -> Tensor:
    if axis is None:
        return t
    return zeros((*t.shape[:axis], *t.shape[axis + 1 :]), t._spec)


def _axes(
    tensors: Sequence[Tensor], structure: Structure, in_axes: Tree, axis_size: int | None
) -> tuple[list[int | None], int]:
    """The axis of each leaf, and the number of examples along them all."""
    positional, by_name = structure.children
    given = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if isinstance(given, tuple) and len(given) != len(positional.children):
        raise ShapeError(
            f"ops.vmap got in_axes for {len(given)} arguments, and the function was called "
            f"with {len(positional.children)}"
        )
    wanted = tree.spread(given, positional, "ops.vmap: in_axes", "args")
    wanted += [0] * by_name.leaf_count
    names = tree.paths(positional, "args") + tree.paths(by_name, "kwargs")
    axes: list[int | None] = []
    sizes: list[tuple[str, int]] = []
    for t, axis, path in zip(tensors, wanted, names, strict=True):
        if axis is None:
            axes.append(None)
            continue
        place = integer_of("vmap", axis, "in_axes")
        if not -t.ndim <= place < t.ndim:
            raise AxisError(
                f"ops.vmap got in_axes {place} for {path} of shape {t.shape}; "
                f"give None for what is no batch"
            )
        axes.append(place % t.ndim)
        sizes.append((path, t.shape[place]))
    if axis_size is not None:
        sizes.insert(0, ("axis_size", integer_of("vmap", axis_size, "axis_size")))
    if not sizes:
        raise DomainError(
            "ops.vmap got no argument with a batch; give in_axes a number, or axis_size"
        )
    if any(size != sizes[0][1] for _, size in sizes):
        listed = ", ".join([f"{size} of {path}" for path, size in sizes])
        raise ShapeError(f"ops.vmap got batches of different sizes: {listed}")
    return axes, sizes[0][1]


def _placed(stacked: Tensor, axis: Any, path: str, size: int) -> Tensor:
    """A result with its examples along another axis; None is for one that has no examples."""
    if axis is None:
        if not size:
            raise DomainError(f"ops.vmap got out_axes None for {path} of an empty batch")
        found = stacked[0]
        backend = stacked._spec.backend
        if backend.checks_values(stacked.native):
            values = stacked.numpy()
            first = np.broadcast_to(values[:1], values.shape)
            same = (values == first) | ((values != values) & (first != first))
            if not same.all():
                raise DomainError(
                    f"ops.vmap got out_axes None for {path}, which is not the same for all "
                    f"examples; give it an axis"
                )
        return found
    place = integer_of("vmap", axis, "out_axes")
    if not -stacked.ndim <= place < stacked.ndim:
        raise AxisError(
            f"ops.vmap got out_axes {place} for {path}, which has {stacked.ndim} axes "
            f"with that of the batch"
        )
    return stacked if place % stacked.ndim == 0 else manipulation.moveaxis(stacked, 0, place)


# --- By a signature --------------------------------------------------------------------------

_CORE = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*)?\)"
_LIST = rf"\s*{_CORE}\s*(?:,\s*{_CORE}\s*)*"
_SIGNATURE = rf"(?P<given>{_LIST})->(?P<made>{_LIST})"


@op(standard=False)
def vectorize(fn: Callable[..., Any], /, *, signature: str | None = None) -> Callable[..., Any]:
    """A function that runs `fn` on the last axes of its arguments, and broadcasts all others.

    The signature names those axes as np.vectorize does, such as "(n),(n)->()"; without one, `fn`
    takes and gives single values.

    >>> dot = vectorize(lambda a, b: ops.sum(a * b), signature="(n),(n)->()")
    >>> dot(ops.ones((4, 1, 3)), ops.ones((2, 3))).shape
    (4, 2)
    """
    wanted = None if signature is None else _read(signature)

    @wraps(fn)
    def vectorized(*args: Any) -> Any:
        if not args:
            raise DomainError("ops.vectorize takes at least one argument")
        inputs, outputs = wanted or ([()] * len(args), None)
        if len(args) != len(inputs):
            raise ShapeError(
                f"ops.vectorize got {len(args)} arguments for the signature '{signature}'"
            )
        backend = dispatch.home_of("vectorize", args)
        tensors = [tensor_of("vectorize", value, backend) for value in args]
        return _vectorized(fn, tensors, inputs, outputs, signature)

    return vectorized


def _read(signature: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    match = re.fullmatch(_SIGNATURE, signature)
    if match is None:
        raise DomainError(
            f"ops.vectorize got the signature {signature!r}; one is written as '(m,n),(n)->(m)'"
        )
    return _cores(match["given"]), _cores(match["made"])


def _cores(text: str) -> list[tuple[str, ...]]:
    return [tuple(re.findall(r"\w+", core)) for core in re.findall(_CORE, text)]


def _vectorized(
    fn: Callable[..., Any],
    tensors: Sequence[Tensor],
    inputs: Sequence[tuple[str, ...]],
    outputs: Sequence[tuple[str, ...]] | None,
    signature: str | None,
) -> Tree:
    sizes: dict[str, int] = {}
    loops: list[tuple[int, ...]] = []
    for place, (t, core) in enumerate(zip(tensors, inputs, strict=True)):
        if t.ndim < len(core):
            raise ShapeError(
                f"ops.vectorize: args[{place}] of shape {t.shape} has fewer axes than "
                f"({','.join(core)}) of '{signature}'"
            )
        split = t.ndim - len(core)
        loops.append(t.shape[:split])
        for axis, size in zip(core, t.shape[split:], strict=True):
            if sizes.setdefault(axis, size) != size:
                raise ShapeError(
                    f"ops.vectorize: axis {axis} of '{signature}' has length {sizes[axis]}, "
                    f"and {size} in args[{place}] of shape {t.shape}"
                )
    whole = broadcast("vectorize", loops)
    if not whole:
        backend = tensors[0]._spec.backend
        made, structure = tensors_of("vectorize", fn(*tensors), backend, "result")
        return _checked(tree.unflatten(structure, made), outputs, sizes, signature, 0)
    flat: list[Tensor] = []
    axes: list[int | None] = []
    for t, loop in zip(tensors, loops, strict=True):
        last = t.shape[len(loop) :]
        if loop:
            count = math.prod(whole)
            t = manipulation.reshape(manipulation.broadcast_to(t, (*whole, *last)), (count, *last))
        flat.append(t)
        axes.append(0 if loop else None)
    results = vmap(fn, in_axes=tuple(axes))(*flat)
    _checked(results, outputs, sizes, signature, 1)
    return tree.map(lambda t: manipulation.reshape(t, (*whole, *t.shape[1:])), results)


def _checked(
    results: Tree,
    outputs: Sequence[tuple[str, ...]] | None,
    sizes: dict[str, int],
    signature: str | None,
    skip: int,
) -> Tree:
    """Results whose shapes are those that the signature promises."""
    given = tree.leaves(results)
    if outputs is None:
        outputs, signature = [()] * len(given), "->()"
    if len(given) != len(outputs):
        raise ShapeError(
            f"ops.vectorize: the function gave {len(given)} results, and '{signature}' "
            f"names {len(outputs)}"
        )
    for result, core in zip(given, outputs, strict=True):
        shape = result.shape[skip:]
        if len(shape) != len(core) or any(
            sizes.setdefault(axis, side) != side for axis, side in zip(core, shape, strict=True)
        ):
            raise ShapeError(
                f"ops.vectorize: the function gave shape {shape} for ({','.join(core)}) "
                f"of '{signature}'"
            )
    return results
