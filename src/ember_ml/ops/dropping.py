"""Dropout: values that are zeroed by chance, so that a network does not rely on any of them.

Which ones is drawn as in `ops.random`: the same on every backend for a seed, and in compiled
functions from the key of the call.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ember_ml.backend.selection import use_backend
from ember_ml.devices import use_device
from ember_ml.errors import DomainError, DTypeError
from ember_ml.ops import dispatch
from ember_ml.ops import elementwise as el
from ember_ml.ops.axes import axes_of
from ember_ml.ops.random.discrete import bernoulli
from ember_ml.ops.random.generator import Generator
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__: list[str] = ["alpha_dropout", "dropout"]

# Where SELU goes for large negative values, without its sign: scale times alpha.
_SELU: Final = 1.0507009873554805 * 1.6732632423543772


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def dropout(
    x: TensorLike,
    /,
    p: float = 0.5,
    *,
    training: bool = True,
    axis: int | tuple[int, ...] | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Zero with probability `p`, else `x / (1 - p)`; without `training`, x as it is.

    With `axis`, one draw is made for each place along these axes, and all values that share it are
    dropped together. `generator` and `native` are those of `ops.random`.

    >>> dropout([1.0, 2.0], 0.0).tolist(), dropout([1.0, 2.0], 1.0).tolist()
    ([1.0, 2.0], [0.0, 0.0])
    >>> y = dropout(ops.ones((4, 2, 3)), 0.5, axis=(0, 1))
    >>> bool(ops.all(y[..., :1] == y))
    True
    """
    tensor, share = _given("dropout", x, p)
    if not training or not share:
        return tensor
    if share == 1.0:
        return el.multiply(tensor, 0.0)
    kept = _kept("dropout", tensor, share, axis, generator, native)
    return el.multiply(tensor, el.multiply(kept, 1.0 / (1.0 - share)))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def alpha_dropout(
    x: TensorLike,
    /,
    p: float = 0.5,
    *,
    training: bool = True,
    axis: int | tuple[int, ...] | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Dropout for networks of SELU: mean and variance stay as they are.

    Values are set to the limit of SELU instead of zero, and all are scaled and shifted after it.
    The options are those of `dropout`.

    >>> alpha_dropout([1.0, 2.0], 0.0).tolist(), alpha_dropout([1.0, 2.0], 1.0).tolist()
    ([1.0, 2.0], [0.0, 0.0])
    """
    tensor, share = _given("alpha_dropout", x, p)
    if not training or not share:
        return tensor
    if share == 1.0:
        return el.multiply(tensor, 0.0)
    kept = _kept("alpha_dropout", tensor, share, axis, generator, native)
    scale = 1.0 / math.sqrt((_SELU**2 * share + 1.0) * (1.0 - share))
    # Kept values get the shift alone; the others come from the limit.
    shift = el.add(el.multiply(kept, _SELU * scale), _SELU * scale * (share - 1.0))
    return el.add(el.multiply(tensor, el.multiply(kept, scale)), shift)


def _given(name: str, x: TensorLike, p: Any) -> tuple[Tensor, float]:
    if not isinstance(p, int | float | np.integer | np.floating) or isinstance(p, bool):
        raise DTypeError(f"ops.{name} takes a number as p, not {type(p).__name__}")
    if not 0 <= p <= 1:
        raise DomainError(f"ops.{name} got p={p}; a probability is from 0 to 1")
    return dispatch.lifted(name, x), float(p)


def _kept(
    name: str,
    x: Tensor,
    p: float,
    axis: int | tuple[int, ...] | None,
    generator: Generator | Tensor | None,
    native: bool,
) -> Tensor:
    """Ones for values that stay and zeros for the others, in the dtype of `x`."""
    shape = x.shape
    if axis is not None:
        drawn = axes_of(name, axis, x.ndim)
        shape = tuple(side if place in drawn else 1 for place, side in enumerate(shape))
    with use_backend(x.backend), use_device(x.device):
        return bernoulli(shape, 1.0 - p, dtype=x.dtype, generator=generator, native=native)
