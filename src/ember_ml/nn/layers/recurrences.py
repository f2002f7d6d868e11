"""Linear recurrences, all steps at once."""

from __future__ import annotations

import numpy as np

from ember_ml import ops
from ember_ml.ops.control import associative_scan
from ember_ml.ops.fitting import beside
from ember_ml.tensor.core import Tensor

__all__ = ["last", "linear_recurrence"]


def _join(before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return before[0] * after[0], before[1] * after[0] + after[1]


def linear_recurrence(decay: Tensor, added: Tensor, state: Tensor | None = None) -> Tensor:
    """`h_t = decay_t · h_(t-1) + added_t` along axis 1, from a state or from zeros.

    Both are elementwise of one shape `(batch, length, ...)`; the state lacks the second axis. It
    takes a number of calls that is a logarithm of the length.
    """
    if not added.shape[1]:
        return added
    if added.shape[1] == 1:
        return added if state is None else decay * ops.expand_dims(state, axis=1) + added
    if state is not None:
        first = added[:, :1] + decay[:, :1] * ops.expand_dims(state, axis=1)
        added = ops.concat([first, added[:, 1:]], axis=1)
    found: tuple[Tensor, Tensor] = associative_scan(_join, (decay, added), axis=1)
    return found[1]


def last(x: Tensor, axis: int = 1) -> Tensor:
    """The last slice along an axis, in memory of its own.

    A view would keep the whole sequence alive as long as the state, and its strides would be those
    of that sequence: another trace of a compiled step.
    """
    place = beside(x, np.asarray([x.shape[axis] - 1]))
    return ops.squeeze(ops.take(x, place, axis=axis), axis=axis)
