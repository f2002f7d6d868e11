"""What initializers have in common."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.dtypes import DTypeLike
from ember_ml.errors import ShapeError
from ember_ml.nn import config
from ember_ml.ops.random.generator import Generator
from ember_ml.tensor.core import Tensor

__all__ = ["Initializer", "fans"]


class Initializer(config.Configured):
    """A function from a shape to a tensor, with a config."""

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not say what its values are")


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many inputs and outputs a weight of this shape connects.

    >>> fans((8, 3, 5, 5))
    (75, 200)
    """
    if len(shape) < 2:
        raise ShapeError(f"fans are of weights with two axes or more, not of shape {shape}")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def placed(values: np.ndarray[Any, Any], dtype: DTypeLike, device: str | None) -> Tensor:
    """Values that the host has made as a tensor of the current backend."""
    wanted = dtypes.default_float if dtype is None else dtypes.to_dtype(dtype)
    return ops.asarray(np.ascontiguousarray(values.astype(wanted.numpy)), device=device)
