"""Special functions: the error function and its kin, the logarithm of gamma and its derivative."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ember_ml.ops.dispatch import unary
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    from ember_ml.markers import D, R, V
    from ember_ml.tensor.typed import LikeFloat

__all__: list[str] = ["digamma", "erf", "erfc", "erfinv", "lgamma"]


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def erf(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """The error function: the integral of the bell curve 2 exp(-t^2) / sqrt(pi) from 0 to x.

    >>> erf([0.0, 9.0]).tolist(), round(erf(0.5).item(), 6)
    ([0.0, 1.0], 0.5205)
    """
    return unary("erf", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def erfc(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """1 - erf(x), exact also where erf(x) rounds to one.

    >>> erfc([0.0, -9.0]).tolist(), round(erfc(5.0).item() * 1e12, 4)
    ([1.0, 2.0], 1.5375)
    """
    return unary("erfc", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def erfinv(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """The y whose erf is x; infinite at -1 and 1, NaN beyond.

    >>> erfinv([0.0, 1.0]).tolist()
    [0.0, inf]
    """
    return unary("erfinv", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def lgamma(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """The logarithm of |gamma(x)|: of (x - 1)! for whole numbers.

    >>> lgamma([1.0, 2.0, 0.0]).tolist()
    [0.0, 0.0, inf]
    """
    return unary("lgamma", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def digamma(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """The derivative of lgamma.

    >>> round(digamma(1.0).item(), 6)
    -0.577216
    """
    return unary("digamma", x)
