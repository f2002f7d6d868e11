"""Reductions. Axes are an attribute in older versions and an input in newer ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _axes(x: Tensor, axes: Any) -> tuple[int, ...]:
    return tuple(int(axis) % max(x.ndim, 1) for axis in axes) if x.ndim else ()


def _reduced(
    reduction: Reduction, x: Tensor, axes: Any, keepdims: int, noop_with_empty_axes: int = 0
) -> Tensor:
    """A reduction over the axes given, over all of them, or over none."""
    if axes is None or not len(axes):
        over = () if noop_with_empty_axes else tuple(range(x.ndim))
    else:
        over = _axes(x, axes)
    return reduction(x, over, bool(keepdims))


def _by_attribute(name: str, reduction: Reduction, *versions: int) -> None:
    def reduced(x: Tensor, *, axes: Any = None, keepdims: int = 1) -> Tensor:
        return _reduced(reduction, x, axes, keepdims)

    operator(name, *versions)(reduced)


def _by_input(name: str, reduction: Reduction, *versions: int) -> None:
    def reduced(
        x: Tensor, axes: Host | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        return _reduced(reduction, x, axes, keepdims, noop_with_empty_axes)

    operator(name, *versions)(reduced)


# --- What is computed over some axes, which may be none ----------------------------------------


def _sum(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return ops.sum(x, axis=axes, dtype=x.dtype, keepdims=keepdims) if axes else x


def _prod(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return ops.prod(x, axis=axes, dtype=x.dtype, keepdims=keepdims) if axes else x


def _mean(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if x.dtype.is_floating:
        return ops.mean(x, axis=axes, keepdims=keepdims) if axes else x
    return _as_floating(_mean, x, axes, keepdims)


def _as_floating(reduction: Reduction, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Integers by way of floating numbers; the fraction of the result is lost."""
    wide = ops.astype(x, dtypes.float64)
    return ops.astype(reduction(wide, axes, keepdims), x.dtype)


def _extreme(largest: bool) -> Reduction:
    def reduction(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        if not axes:
            return x
        if any(not x.shape[axis] for axis in axes):
            return _of_nothing(x, axes, keepdims)
        return (ops.max if largest else ops.min)(x, axis=axes, keepdims=keepdims)

    def _of_nothing(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        sizes = [1 if i in axes else n for i, n in enumerate(x.shape)]
        shape = sizes if keepdims else [n for i, n in enumerate(x.shape) if i not in axes]
        return ops.full_like(ops.zeros_like(_emptied(x, shape)), _worst(x))

    def _worst(x: Tensor) -> Any:
        if x.dtype is dtypes.bool:
            return not largest
        if x.dtype.is_floating:
            return -np.inf if largest else np.inf
        limits = np.iinfo(x.dtype.numpy)
        return limits.min if largest else limits.max

    return reduction


def _emptied(x: Tensor, shape: list[int]) -> Tensor:
    """Some tensor of a shape, beside `x`, which has no elements."""
    return ops.broadcast_to(ops.sum(x, dtype=x.dtype), tuple(shape)) \
        if x.dtype is not dtypes.bool else ops.broadcast_to(ops.any(x), tuple(shape))  # fmt: skip


def _l1(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return _sum(ops.abs(x), axes, keepdims)


def _sum_square(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return _sum(ops.square(x), axes, keepdims)


def _l2(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if not x.dtype.is_floating:
        return _as_floating(_l2, x, axes, keepdims)
    return ops.sqrt(_sum_square(x, axes, keepdims))


def _log_sum(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if not x.dtype.is_floating:
        return _as_floating(_log_sum, x, axes, keepdims)
    return ops.log(_sum(x, axes, keepdims))


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if not x.dtype.is_floating:
        return _as_floating(_log_sum_exp, x, axes, keepdims)
    if not axes:
        return x
    if any(not x.shape[axis] for axis in axes):
        return ops.log(_sum(x, axes, keepdims))
    return ops.logsumexp(x, axis=axes, keepdims=keepdims)


_by_attribute("ReduceSum", _sum, 11)
_by_input("ReduceSum", _sum, 13)
_by_attribute("ReduceMean", _mean, 11, 13)
_by_input("ReduceMean", _mean, 18)
_by_attribute("ReduceProd", _prod, 11, 13)
_by_input("ReduceProd", _prod, 18)
_by_attribute("ReduceMax", _extreme(True), 11, 12, 13)
_by_input("ReduceMax", _extreme(True), 18, 20)
_by_attribute("ReduceMin", _extreme(False), 11, 12, 13)
_by_input("ReduceMin", _extreme(False), 18, 20)
_by_attribute("ReduceL1", _l1, 11, 13)
_by_input("ReduceL1", _l1, 18)
_by_attribute("ReduceL2", _l2, 11, 13)
_by_input("ReduceL2", _l2, 18)
_by_attribute("ReduceLogSum", _log_sum, 11, 13)
_by_input("ReduceLogSum", _log_sum, 18, 28)
_by_attribute("ReduceLogSumExp", _log_sum_exp, 11, 13)
_by_input("ReduceLogSumExp", _log_sum_exp, 18, 28)
_by_attribute("ReduceSumSquare", _sum_square, 11, 13)
_by_input("ReduceSumSquare", _sum_square, 18)


# --- Where it is --------------------------------------------------------------------------------


@operator("ArgMax", 11, 12, 13)
def argmax(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _place(ops.argmax, x, axis, keepdims, select_last_index)


@operator("ArgMin", 11, 12, 13)
def argmin(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _place(ops.argmin, x, axis, keepdims, select_last_index)


def _place(
    find: Callable[..., Tensor], x: Tensor, axis: int, keepdims: int, select_last_index: int
) -> Tensor:
    if not select_last_index:
        return find(x, axis=axis, keepdims=bool(keepdims))
    back = find(ops.flip(x, axis=axis), axis=axis, keepdims=bool(keepdims))
    return ops.subtract(x.shape[axis] - 1, back)
