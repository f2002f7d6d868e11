"""The parts of networks on JAX, each as one compiled program.

16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from typing import Any, Final

import jax
import jax.numpy as jnp

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.jax import recurrent, windows
from ember_ml.backend.jax.slopes import settled_far
from ember_ml.backend.portable.network import ARRAYS

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
    if tanh:
        # (1 + tanh(u)) / 2 is the sigmoid of 2u, which does not cancel.
        return x * jax.nn.sigmoid(x * (x * x * 0.044715 + 1) * math.sqrt(8 / math.pi))
    return jax.nn.gelu(x, approximate=False)


def linear(x: NativeArray, weight: NativeArray, bias: NativeArray | None) -> NativeArray:
    out = jax.lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())), precision="highest")
    return out if bias is None else out + bias


def relu(x: NativeArray) -> NativeArray:
    return jnp.where(x <= 0, 0.0, x)  # jax.nn.relu has no slope at NaN, as all others have


def relu6(x: NativeArray) -> NativeArray:
    return hard_tanh(x, 0.0, 6.0)  # of two maxima, each would have half of the gradient at a limit


def hard_tanh(x: NativeArray, low: float, high: float) -> NativeArray:
    return jnp.where(x <= low, low, jnp.where(x >= high, high, x))


def soft_shrink(x: NativeArray, size: float) -> NativeArray:
    return jnp.where(jnp.abs(x) <= size, 0.0, x - jnp.sign(x) * size)


def mish(x: NativeArray) -> NativeArray:
    return x * jnp.tanh(jax.nn.softplus(x))


def softplus(x: NativeArray, beta: float, limit: float) -> NativeArray:
    scaled = x * beta
    return jnp.where(scaled > limit, x, jnp.logaddexp(scaled, 0.0) / beta)


_DIRECT: Final[dict[str, Kernel]] = {
    "gelu": settled_far(gelu, 100.0),
    "hard_tanh": hard_tanh,
    "linear": linear,
    "log_sigmoid": jax.nn.log_sigmoid,
    "log_softmax": jax.nn.log_softmax,
    "mish": settled_far(mish, 1e3),
    "relu": relu,
    "relu6": relu6,
    "sigmoid": jax.nn.sigmoid,
    "silu": settled_far(jax.nn.silu, 1e3),
    "soft_shrink": soft_shrink,
    "softmax": jax.nn.softmax,
    "softplus": softplus,
    **windows.KERNELS,
}

OVERRIDES: Final[dict[str, Kernel]] = {
    **{name: compiled(kernel, ARRAYS[name]) for name, kernel in _DIRECT.items()},
    **windows.STEPS,
    **{
        name: compiled(kernel, recurrent.ARRAYS[name]) for name, kernel in recurrent.KERNELS.items()
    },
}
