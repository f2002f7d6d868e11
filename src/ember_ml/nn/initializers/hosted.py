"""Values that are made in host memory, so that every backend gets the same bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.backend.selection import use_backend
from ember_ml.dtypes import DTypeLike
from ember_ml.errors import DomainError, ShapeError
from ember_ml.nn.initializers.base import Initializer, placed
from ember_ml.ops.random.generator import Generator
from ember_ml.tensor.core import Tensor

__all__ = ["Orthogonal", "Sparse"]


class Orthogonal(Initializer):
    """`gain` times a matrix whose rows, or columns where they are fewer, are orthonormal.

    Axes behind the first count as one. It is the Q of a QR decomposition of normal numbers, with
    the signs that make it uniform among such matrices.

    >>> w = Orthogonal()((2, 5))
    >>> bool(ops.allclose(w @ w.T, ops.eye(2), atol=1e-6))
    True
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        if len(shape) < 2:
            raise ShapeError(f"{self!r} makes weights of two axes or more, not of shape {shape}")
        rows, columns = shape[0], math.prod(shape[1:])
        drawn = _host("normal", (max(rows, columns), min(rows, columns)), generator)
        q, r = np.linalg.qr(drawn)
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
        values = (q if rows >= columns else q.T).reshape(shape)
        return placed(values * self.gain, dtype, device)


class Sparse(Initializer):
    """Normal of deviation `std`, with a share `sparsity` of each column zero.

    >>> int(ops.sum(Sparse(0.5)((4, 3)) == 0))
    6
    """

    def __init__(self, sparsity: float, std: float = 0.01) -> None:
        if not 0 <= sparsity <= 1:
            raise DomainError(f"Sparse got sparsity={sparsity}; it is a share, from 0 to 1")
        self.sparsity = sparsity
        self.std = std

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        if len(shape) != 2:
            raise ShapeError(f"{self!r} makes weights of two axes, not of shape {shape}")
        values = _host("normal", shape, generator) * self.std
        ranks = np.argsort(_host("uniform", shape, generator), axis=0)
        zeros = math.ceil(self.sparsity * shape[0])
        np.put_along_axis(values, ranks[:zeros], 0.0, axis=0)
        return placed(values, dtype, device)


def _host(
    distribution: str, shape: tuple[int, ...], generator: Generator | None
) -> np.ndarray[Any, Any]:
    """Draws in host memory, in float64, from the same stream as any other."""
    with use_backend("numpy"):
        draw = getattr(ops.random, distribution)
        drawn: Tensor = draw(shape, dtype="float64", generator=generator)
    return drawn.numpy()
