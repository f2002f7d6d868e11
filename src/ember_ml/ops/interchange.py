"""Arrays of NumPy, PyTorch, JAX and MLX as tensors, in their own memory where that can be.

`copy=None` shares memory where the engines can, `copy=True` never does, and `copy=False` raises
CopyError where only a copy would do. `docs/interchange.md` has the table of what can be shared.
"""

from __future__ import annotations

from typing import Any

from ember_ml.ops.registry import op
from ember_ml.tensor import interchange
from ember_ml.tensor.core import Tensor

__all__ = ["from_jax", "from_mlx", "from_numpy", "from_torch"]


@op(creates=True, standard=False)
def from_numpy(
    x: Any, /, *, copy: bool | None = None, backend: str | None = None, device: str | None = None
) -> Tensor:
    """A tensor of an `np.ndarray`, on the current backend unless another one is named.

    >>> import numpy as np
    >>> array = np.zeros(3)
    >>> x = from_numpy(array, backend="numpy")
    >>> array[0] = 5.0
    >>> x.tolist()
    [5.0, 0.0, 0.0]
    """
    return interchange.from_engine("numpy", x, backend, device, copy)


def from_torch(
    x: Any, /, *, copy: bool | None = None, backend: str | None = None, device: str | None = None
) -> Tensor:
    """A tensor of a `torch.Tensor`, on torch unless another backend is named.

    One that requires gradients keeps its history on torch; elsewhere, gradients begin anew.

    >>> import torch
    >>> from_torch(torch.ones(2), backend="numpy").tolist()
    [1.0, 1.0]
    """
    return interchange.from_engine("torch", x, backend, device, copy)


def from_jax(
    x: Any, /, *, copy: bool | None = None, backend: str | None = None, device: str | None = None
) -> Tensor:
    """A tensor of a `jax.Array`, on JAX unless another backend is named.

    A tracer, inside of `jax.jit` and its kin, has no values and can only stay on JAX.

    >>> import jax.numpy as jnp
    >>> from_jax(jnp.arange(3)).backend
    'jax'
    """
    return interchange.from_engine("jax", x, backend, device, copy)


def from_mlx(
    x: Any, /, *, copy: bool | None = None, backend: str | None = None, device: str | None = None
) -> Tensor:
    """A tensor of an `mlx.core.array`, on MLX unless another backend is named.

    >>> import mlx.core as mx
    >>> from_mlx(mx.array([1.5])).tolist()
    [1.5]
    """
    return interchange.from_engine("mlx", x, backend, device, copy)
