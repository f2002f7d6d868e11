"""Where JAX differs from the standard, or lets pass what NumPy refuses."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ember_ml.backend import checks
from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.jax import complexes, hosting, products, slopes
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, IntegerDivisionError, UnsupportedOpError

__all__ = ["OVERRIDES", "cast", "copy", "in_place", "of_dtype", "pick", "readable", "truth"]


def readable(x: NativeArray) -> bool:
    """True where checks that read values run: not traced, and where the user has them."""
    where = checks.mode()
    if where == "none" or isinstance(x, Tracer):
        return False
    if where == "all" or isinstance(x, np.ndarray):
        return True
    return all(device.platform == "cpu" for device in x.devices())


def in_place(x: NativeArray) -> bool:
    """True where NumPy may read an array where it lies, instead of a program."""
    return not isinstance(x, np.ndarray) and readable(x) and hosting.is_on_host(x)


# --- Compiled: JAX runs these op by op, at three to five times the cost ---------------------------


def _compiled(function: Kernel, static: tuple[int, ...] = ()) -> Kernel:
    """A function as one compiled program for each shape, dtype and static argument."""

    def kernel(*args: Any) -> NativeArray:
        return function(*args)

    return jax.jit(kernel, static_argnums=static, inline=True)


def _contract(arrays: list[NativeArray], terms: Any, output: Any) -> NativeArray:
    pairs = (part for pair in zip(arrays, terms, strict=True) for part in pair)
    return jnp.einsum(*pairs, output, precision="highest")


def _surround(x: NativeArray, widths: Any, value: NativeArray) -> NativeArray:
    return jax.lax.pad(x, value, [(before, behind, 0) for before, behind in widths])


_COMPILED: Final[dict[str, Kernel]] = {
    # jnp.ufunc objects in Python around their compiled function.
    "add": _compiled(jnp.add),
    "bitwise_and": _compiled(jnp.bitwise_and),
    "bitwise_or": _compiled(jnp.bitwise_or),
    "bitwise_xor": _compiled(jnp.bitwise_xor),
    "logaddexp": _compiled(jnp.logaddexp),
    "logical_and": _compiled(jnp.logical_and),
    "logical_or": _compiled(jnp.logical_or),
    "logical_xor": _compiled(jnp.logical_xor),
    "maximum": _compiled(jnp.maximum),
    "minimum": _compiled(jnp.minimum),
    "multiply": _compiled(jnp.multiply),
    "negative": _compiled(jnp.negative),
    "popcount": _compiled(jax.lax.population_count),
    "subtract": _compiled(jnp.subtract),
    "matmul": _compiled(products.matmul),
    # Moves of values, which JAX does not compile by itself.
    "broadcast_to": _compiled(jnp.broadcast_to, (1,)),
    "concat": _compiled(jnp.concatenate, (1,)),
    "flip": _compiled(jnp.flip, (1,)),
    "matrix_transpose": _compiled(jnp.matrix_transpose),
    "permute_dims": _compiled(jnp.permute_dims, (1,)),
    "reshape": _compiled(jnp.reshape, (1,)),
    "stack": _compiled(jnp.stack, (1,)),
    "where": _compiled(jnp.where),
    "contract": _compiled(_contract, (1, 2)),
    "surround": _compiled(_surround, (1,)),
}
copy: Final = _compiled(jnp.copy)
# The second argument is a NumPy dtype.
cast: Final = _compiled(jax.lax.convert_element_type, (1,))
# A cast would drop imaginary parts first, with a warning.
truth: Final = _compiled(lambda x: x != 0)
# The second argument is a tuple of integers: a program for all of them.
pick: Final = _compiled(operator.getitem)


# --- Reductions ---------------------------------------------------------------------------------


def _reduction(function: Kernel) -> Kernel:
    def kernel(x: NativeArray, axis: Any = None, keepdims: bool = False) -> NativeArray:
        return function(x, axis=axis, keepdims=keepdims)

    return jax.jit(kernel, static_argnames=("axis", "keepdims"), inline=True)


def _of_truths(function: Kernel) -> Kernel:
    """JAX takes the real part of a complex number for its truth."""

    def kernel(x: NativeArray, axis: Any, keepdims: bool) -> NativeArray:
        truths = x != 0 if jnp.issubdtype(x.dtype, jnp.complexfloating) else x
        return function(truths, axis=axis, keepdims=keepdims)

    return kernel


_REDUCTIONS: Final = {
    name: _reduction(getattr(jnp, name))
    for name in ("count_nonzero", "max", "mean", "min", "prod", "sum")
} | {name: _reduction(_of_truths(getattr(jnp, name))) for name in ("all", "any")}


def argmax(x: NativeArray, axis: int | None, keepdims: bool) -> NativeArray:
    return jnp.argmax(x, axis, keepdims=keepdims)


def argmin(x: NativeArray, axis: int | None, keepdims: bool) -> NativeArray:
    return jnp.argmin(x, axis, keepdims=keepdims)


def cumulative_sum(x: NativeArray, axis: int) -> NativeArray:
    return jnp.cumsum(x, axis)


def cumulative_prod(x: NativeArray, axis: int) -> NativeArray:
    return jnp.cumprod(x, axis)


@partial(jax.jit, static_argnums=(1, 2, 3))
def var(x: NativeArray, axes: tuple[int, ...], correction: float, keepdims: bool) -> NativeArray:
    # jnp.var divides by negative counts; squares of 16-bit floats overflow soon.
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    centred = wide - jnp.mean(wide, axes, keepdims=True)
    count = math.prod(x.shape[axis] for axis in axes) - correction
    total = jnp.sum(jnp.square(centred), axes, keepdims=keepdims)
    return (total / max(count, 0)).astype(x.dtype)


@jax.custom_jvp
def _root(x: NativeArray) -> NativeArray:
    return jnp.sqrt(x)


@_root.defjvp
def _root_slope(x: tuple[NativeArray], dx: tuple[NativeArray]) -> tuple[NativeArray, NativeArray]:
    y = _root(*x)
    # The slope at zero counts as zero; JAX has infinity there.
    return y, dx[0] / (2 * jnp.where(y == 0, jnp.inf, y))


root: Final = _compiled(_root)


# --- Real numbers -------------------------------------------------------------------------------


@jax.jit
def _sign(x: NativeArray) -> NativeArray:
    return jnp.where(x == 0, 0.0, jnp.sign(x))  # JAX keeps -0.0


_FLOATING: Final[dict[str, Kernel]] = {**slopes.KERNELS, "sign": _sign}


# --- Integers -----------------------------------------------------------------------------------


def _no_zero(name: str, function: Kernel) -> Kernel:
    def kernel(x: NativeArray, y: NativeArray) -> NativeArray:
        if readable(y) and not np.asarray(y).all():
            raise IntegerDivisionError(f"ops.{name} got an integer divisor of zero")
        return function(x, y)

    return kernel


def _integer_pow(x: NativeArray, y: NativeArray) -> NativeArray:
    if readable(y) and y.size and np.asarray(y).min() < 0:
        raise DomainError("ops.pow takes no negative integer exponents for integers; cast to float")
    return _wrapped_power(x, y)


@_compiled
def _wrapped_power(x: NativeArray, y: NativeArray) -> NativeArray:
    # jnp.power looks at six bits of an exponent: what overflows would not wrap as elsewhere.
    def square(state: Any) -> Any:
        base, left, out = state
        return base * base, left >> 1, jnp.where(left & 1 == 1, out * base, out)

    base, left = jnp.broadcast_arrays(x, y)
    start = base, left, jnp.ones_like(base)
    return jax.lax.while_loop(lambda state: jnp.any(state[1] > 0), square, start)[2]


_INTEGER: Final[dict[str, Kernel]] = {
    "ceil": copy,  # JAX rounds integers in floating point
    "floor": copy,
    "round": copy,
    "trunc": copy,
    "floor_divide": _no_zero("floor_divide", jnp.floor_divide),
    "remainder": _no_zero("remainder", jnp.remainder),
    "pow": _integer_pow,
}


def of_dtype(name: str, dtype: DType) -> Kernel | None:
    """The kernel of an op for a kind of dtypes that JAX's own function does not serve."""
    if dtype.is_complex:
        return complexes.KERNELS.get(name)
    if dtype.is_integer:
        return _INTEGER.get(name)
    return _FLOATING.get(name) if dtype.is_floating else None


# --- Order, sets, joining -----------------------------------------------------------------------


def sort(x: NativeArray, axis: int, descending: bool, stable: bool) -> NativeArray:
    if not descending:
        return jnp.sort(x, axis, stable=stable)
    # Turned round before as well, so that gradients find equal values in their order.
    return jnp.flip(jnp.sort(jnp.flip(x, axis), axis, stable=stable), axis)


def argsort(x: NativeArray, axis: int, descending: bool, stable: bool) -> NativeArray:
    return jnp.argsort(x, axis, descending=descending, stable=stable)


def searchsorted(x: NativeArray, y: NativeArray, side: str) -> NativeArray:
    return jnp.searchsorted(x, y, side).astype(np.int64)  # int32 where that is enough


def isin(x: NativeArray, y: NativeArray, invert: bool) -> NativeArray:
    return jnp.isin(x, y, invert=invert)


def _of_values(name: str) -> Kernel:
    """A function whose result has as many elements as the values say."""
    function = getattr(jnp, name)

    def kernel(x: NativeArray) -> NativeArray:
        if not isinstance(x, Tracer):
            return function(x)
        known: Any = jax.lax.stop_gradient(x)  # jax.grad by itself knows the values
        if isinstance(known, Tracer):
            raise UnsupportedOpError(
                f"ops.{name} gives a shape that depends on values, which jit cannot know"
            )
        if name == "nonzero":
            return function(known)
        _, indices, *rest = jnp.unique_all(known)
        values = x.reshape(-1)[indices]
        return values if name == "unique_values" else (values, indices, *rest)

    return kernel


OVERRIDES: Final[dict[str, Kernel]] = (
    {
        kernel.__name__: kernel
        for kernel in (
            argmax,
            argmin,
            cumulative_sum,
            cumulative_prod,
            sort,
            argsort,
            searchsorted,
            isin,
        )
    }
    | _COMPILED
    | _REDUCTIONS
)
OVERRIDES["var"] = var
OVERRIDES["root"] = root
OVERRIDES["stop_gradient"] = jax.lax.stop_gradient
OVERRIDES.update({name: _of_values(name) for name in ("nonzero", "unique_all", "unique_values")})
