"""Orders and choices: permutations, shuffled tensors, elements picked at random."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.backend.contract import Backend, Spec
from ember_ml.dtypes import float_limits
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch, indexing, manipulation, searching
from ember_ml.ops import elementwise as el
from ember_ml.ops.axes import axis_of, shape_of
from ember_ml.ops.random.arrays import KeySource
from ember_ml.ops.random.classes import draw_classes
from ember_ml.ops.random.discrete import draw_range
from ember_ml.ops.random.generator import Generator
from ember_ml.ops.random.request import Request, source_of, values_of
from ember_ml.ops.registry import op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import ShapeLike, TensorLike

__all__ = ["choice", "permutation", "shuffle"]


@op("random.permutation", standard=False, creates=True)
def permutation(
    x: TensorLike,
    /,
    *,
    axis: int = 0,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """The numbers 0 to `x - 1` in random order, or the parts of a tensor along `axis`.

    >>> sorted(permutation(4).tolist())
    [0, 1, 2, 3]
    """
    name = "random.permutation"
    if not isinstance(x, int | np.integer):
        return _shuffled(name, convert.asarray(x, None, device), axis, generator, native)
    if x < 0:
        raise DomainError(f"ops.{name} got {x}; a count is not negative")
    source = source_of(name, generator, native)
    call = Request(name, _spec(_home(name, source), device), (), (), source, native)
    return _order(call, int(x))


@op("random.shuffle", standard=False)
def shuffle(
    x: TensorLike,
    /,
    axis: int = 0,
    *,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """A new tensor with the parts of `x` along `axis` in random order; `x` stays as it is.

    >>> sorted(shuffle([3, 1, 2]).tolist())
    [1, 2, 3]
    """
    return _shuffled("random.shuffle", convert.to_tensor(x), axis, generator, native)


@op("random.choice", standard=False, creates=True)
def choice(
    a: TensorLike,
    /,
    shape: ShapeLike | None = None,
    replace: bool = True,
    p: TensorLike = None,
    *,
    axis: int = 0,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Elements of a tensor along `axis`, or numbers below an integer, picked at random.

    `p` has the probability of each; without `replace` nothing is picked twice.

    >>> sorted(choice(3, (3,), replace=False).tolist())
    [0, 1, 2]
    >>> choice([10, 20], 2, p=[0.0, 1.0]).tolist()
    [20, 20]
    """
    name = "random.choice"
    source = source_of(name, generator, native)
    count, values = (int(a), None) if isinstance(a, int | np.integer) else (0, a)
    home = _home(name, source, values, p)
    place = 0
    if values is not None:
        values = convert.asarray(values, None, device, backend=home)
        place = _axis(name, values, axis)
        count = values.shape[place]
    sides = () if shape is None else shape_of(name, shape)
    picks = prod(sides)
    if picks and (count <= 0 or (not replace and picks > count)):
        kind = "" if replace else " without replacement"
        raise DomainError(f"ops.{name} cannot pick {picks} of {count}{kind}")
    spec = _spec(home, device) if values is None else values._spec.with_dtype(dtypes.int64)
    call = Request(name, spec, (picks,), (), source, native)
    if not picks:
        picked = call.nothing()
    elif p is not None:
        weights = _probabilities(name, convert.asarray(p, backend=home), count)
        picked = draw_classes(call, weights, picks, replace)
    elif replace:
        picked = draw_range(call, 0, count)
    else:
        picked = _order(call, count)[:picks]
    if values is None:
        return manipulation.reshape(picked, sides)
    taken = indexing.take(values, picked, axis=place)
    whole = values.shape
    return manipulation.reshape(taken, (*whole[:place], *sides, *whole[place + 1 :]))


def _home(name: str, source: Generator | KeySource, *owners: Any) -> Backend:
    key = source.key if isinstance(source, KeySource) else None
    return dispatch.home_of(name, tuple(o for o in (*owners, key) if o is not None))


def _spec(home: Backend, device: str | None) -> Spec:
    place = convert.device_for(home) if device is None else home.canonical_device(device)
    return home.spec(dtypes.int64, place)


def _axis(name: str, x: Tensor, axis: int) -> int:
    if not x.ndim:
        raise ShapeError(f"ops.{name} takes a tensor of at least one axis, not a 0-d one")
    return axis_of(name, axis, x.ndim)


def _shuffled(name: str, x: Tensor, axis: int, generator: Any, native: bool) -> Tensor:
    place = _axis(name, x, axis)
    source = source_of(name, generator, native)
    _home(name, source, x)
    call = Request(name, x._spec.with_dtype(dtypes.int64), (), (), source, native)
    return indexing.take(x, _order(call, x.shape[place]), axis=place)


def _order(call: Request, count: int) -> Tensor:
    """The numbers below `count` in random order."""
    source = call.arrays()
    if source is None:
        return call.tensor(call.host().permutation(count))
    # 62 bits for each, so that two are hardly ever the same.
    high, low = (source.bits((count,), call.spec) for _ in range(2))
    return searching.argsort(el.bitwise_or(el.bitwise_left_shift(high, 31), low))


def _probabilities(name: str, p: Tensor, count: int) -> Tensor:
    if p.shape != (count,):
        raise ShapeError(
            f"ops.{name} got p of shape {p.shape}; it has one number for each of {count}"
        )
    lifted = convert.cast(p, p.dtype if p.dtype.is_floating else dtypes.default_float)
    if p._spec.backend.checks_values(p.native):
        total = float(np.sum(values_of(name, lifted), dtype=np.float64))
        # What rounding to the dtype of p can leave, as in NumPy.
        if not abs(total - 1) <= float_limits(lifted.dtype).eps ** 0.5:
            raise DomainError(f"ops.{name} got p with the sum {total}; it must be 1")
    return lifted
