"""The parts of networks on JAX, each as one compiled program.

16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.portable import activations

__all__ = ["ARRAYS", "OVERRIDES", "compiled"]


def compiled(kernel: Kernel, arrays: int) -> Kernel:
    """A kernel whose first arguments are arrays, or None, as a program for each set of options."""

    def run(natives: tuple[Any, ...], options: tuple[Any, ...]) -> Any:
        first = natives[0].dtype
        if first.itemsize > 2:
            return kernel(*natives, *options)
        wide = [x.astype(jnp.float32) if x is not None and x.dtype == first else x for x in natives]
        return jax.tree.map(
            lambda y: y.astype(first) if y.dtype == jnp.float32 else y, kernel(*wide, *options)
        )

    program = jax.jit(run, static_argnums=1, inline=True)
    return lambda *args: program(args[:arrays], args[arrays:])


# --- Activations ------------------------------------------------------------------------------


def gelu(x: NativeArray, tanh: bool) -> NativeArray:
    return jax.nn.gelu(x, approximate=tanh)


def softplus(x: NativeArray, beta: float, limit: float) -> NativeArray:
    scaled = x * beta
    return jnp.where(scaled > limit, x, jnp.logaddexp(scaled, 0.0) / beta)


_DIRECT: Final[dict[str, Kernel]] = {
    "gelu": gelu,
    "log_sigmoid": jax.nn.log_sigmoid,
    "log_softmax": jax.nn.log_softmax,
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "softmax": jax.nn.softmax,
    "softplus": softplus,
}

# How many arguments are arrays, for the portable kernels that are compiled whole.
ARRAYS: Final[dict[str, int]] = dict.fromkeys(activations.KERNELS, 1) | {"prelu": 2}

OVERRIDES: Final[dict[str, Kernel]] = {
    name: compiled(kernel, ARRAYS.get(name, 1)) for name, kernel in _DIRECT.items()
}
