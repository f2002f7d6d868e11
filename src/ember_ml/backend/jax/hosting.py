"""JAX and host memory: taking it as it is, and giving it."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core  # no public name tells whether a trace is under way
from jax.core import ShapedArray, Tracer
from jax.sharding import SingleDeviceSharding
from jaxlib import xla_client

from ember_ml import dtypes
from ember_ml.backend import aligned, dlpack
from ember_ml.backend.compiling import READ
from ember_ml.backend.contract import NativeArray
from ember_ml.backend.jax import ranks
from ember_ml.errors import CopyError, TraceError

__all__ = ["is_on_host", "share", "take", "to_numpy", "within_trace"]


def within_trace() -> bool:
    """True while JAX traces a function in this thread, for a program or for gradients."""
    return not core.trace_state_clean()


def share(array: np.ndarray[Any, Any], device: Any) -> NativeArray | None:
    """A JAX array in the memory of a NumPy array; None where JAX does not take that.

    XLA asks for 64-byte alignment and for no gaps; the axes may be in any order.
    """
    if not aligned.is_aligned(array):
        return None
    if array.flags.c_contiguous:
        made = take(array, device)
    elif _is_compact(array):
        # Other ways would bring it into C order.
        made = jnp.from_dlpack(_Lent(array), device=device)
    else:
        return None
    # That JAX shares is a fact of its versions, and no promise.
    return made if made.unsafe_buffer_pointer() == aligned.address(array) else None


def take(array: np.ndarray[Any, Any], device: Any) -> NativeArray:
    """A JAX array of a NumPy array, which nobody may write to who does not mean JAX.

    Its memory is used as it is where it is aligned.
    """
    # Not bound to its device where JAX's own arrays are not: a program with arguments of both kinds
    # would be compiled anew, or all of them bound at each call (compiling.py).
    bound = not _is_first(device)
    if _PUT is not None:
        return _PUT(_aval(array.shape, array.dtype), _sharding(device), [array], [device], bound)
    made = jax.make_array_from_callback(array.shape, _sharding(device), lambda _: array)
    ordinary: Any = type(made)
    return made if bound else ordinary(made.aval, made.sharding, [made], False, _skip_checks=True)


# What jax.device_put and jnp.array end in, at a fifth to a tenth of their cost. It has no public
# name: where it is missing, there is the long way.
_PUT: Final[Any] = getattr(xla_client, "batched_device_put", None)


@lru_cache(1024)
def _aval(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return ShapedArray(shape, dtype)


@cache
def _is_first(device: Any) -> bool:
    return bool(device == jax.local_devices()[0])


@cache
def _sharding(device: Any) -> SingleDeviceSharding:
    return SingleDeviceSharding(device)


def to_numpy(native: NativeArray, copy: bool | None) -> np.ndarray[Any, Any]:
    """A JAX array as a read-only NumPy array in the same memory, or as a copy that can be written.

    Arrays of GPUs and of several devices are copied.
    """
    if isinstance(native, Tracer):
        raise TraceError(f"{READ}; jax.jit, jax.grad or jax.vmap traces it")
    permuted = native.ndim > 1 and _is_permuted(native) and is_on_host(native)
    try:
        # NumPy would copy what does not lie in C order.
        array = dlpack.to_numpy(native) if permuted else np.asarray(native)
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        # A program runs on after the call: that a peer was lost may be known only here.
        loss = ranks.as_loss(error) if ranks.current() is not None else None
        if loss is None:
            raise
        raise loss from error
    if copy:
        return aligned.copy(array)
    if copy is False and not is_on_host(native):
        raise CopyError(f"a JAX array on {native.devices()} reaches NumPy only by a copy")
    return array


def is_on_host(native: NativeArray) -> bool:
    """True where an array lies in one piece in host memory."""
    devices = native.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


def _is_permuted(native: NativeArray) -> bool:
    """True where the axes lie in memory in another order than C's."""
    layout = native.format.layout
    return layout is not None and tuple(layout.major_to_minor) != tuple(range(native.ndim))


def _is_compact(array: np.ndarray[Any, Any]) -> bool:
    """True where the elements fill their memory without gaps, in some order of the axes."""
    step = array.itemsize
    for stride, side in sorted(zip(array.strides, array.shape, strict=True)):
        if side == 1:
            continue
        if stride != step:
            return False
        step *= side
    return array.size > 0


class _Lent:
    """A NumPy array for JAX, which refuses read-only memory (jax#40789) though it never writes."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array if array.flags.writeable else aligned.unlocked(array)

    def __dlpack__(self, **options: Any) -> Any:
        if self._array.dtype != dtypes.bfloat16.numpy:
            return self._array.__dlpack__(**options)
        return dlpack.export_bfloat16(self._array.view(np.uint16).__dlpack__(**options))

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0
