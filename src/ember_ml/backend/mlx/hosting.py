"""When MLX has values for the host, and what it knows of kernels that run there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from ember_ml import dtypes
from ember_ml.backend import dlpack
from ember_ml.backend.compiling import READ
from ember_ml.backend.contract import Backend, Kernel, NativeArray
from ember_ml.errors import TraceError, UnsupportedOpError

__all__ = ["differentiable", "evaluated", "host_view", "require_values", "taped_rule"]


def evaluated(*natives: NativeArray) -> bool:
    """Compute lazy arrays; False where they have no values, inside of mx.compile and mx.vmap.

    MLX tells tracers by refusing to evaluate them. Under mx.grad, arrays have values.
    """
    try:
        mx.eval(*natives)
    except ValueError as error:
        if "[eval]" in str(error):
            return False
        raise
    except RuntimeError as error:
        if "without a primitive" in str(error):
            return False  # what a compiled function let out, after it was compiled
        if "in current thread" not in str(error):
            raise
        raise UnsupportedOpError(
            "MLX computes a lazy array only in the thread that made it; "
            f"read it there first, for example with .numpy() ({error})"
        ) from error
    return True


def require_values(native: NativeArray) -> None:
    """Compute a lazy array, or say why that cannot be."""
    if not evaluated(native):
        raise TraceError(f"{READ}; mx.compile or mx.vmap traces it")


def host_view(native: NativeArray) -> np.ndarray[Any, Any]:
    """A read-only NumPy array in the memory of an MLX array.

    A buffer of the object itself would not do: item assignment gives the object another array,
    and the next kernel may overwrite the memory of the first. A capsule of DLPack keeps it.
    """
    require_values(native)
    if native.__dlpack_device__()[0] == dlpack.CPU:
        array = dlpack.to_numpy(native) if native.dtype == mx.bfloat16 else np.from_dlpack(native)
    else:
        # NumPy refuses Metal's memory there, though the host shares it. The buffer is that of an
        # object of our own, which nobody assigns to.
        half = native.dtype == mx.bfloat16
        kept = native.view(mx.uint16) if half else mx.stop_gradient(native)
        mx.eval(kept)
        array = np.asarray(kept).view(dtypes.bfloat16.numpy) if half else np.asarray(kept)
    array.flags.writeable = False
    return array


def differentiable(name: str, kernel: Kernel, rule: Callable[..., Any]) -> Kernel:
    """A hosted kernel with its rule `rule(inputs, cotangents, outputs)`.

    MLX would take the result of a plain one for a constant, and its gradient for zero.
    """

    def run(*args: Any, **options: Any) -> NativeArray:
        try:
            return kernel(*args, **options)
        except UnsupportedOpError as error:
            raise UnsupportedOpError(
                f"ops.{name} runs in host memory on the 'mlx' backend: {error}"
            ) from error

    def refuse(*args: Any) -> Any:
        raise UnsupportedOpError(f"ops.{name} has no such gradient on the 'mlx' backend")

    custom = mx.custom_function(run)
    custom.vjp(rule)
    custom.jvp(refuse)
    return custom


def taped_rule(backend: Backend, name: str) -> Callable[..., Any]:
    """Our tape's rule of a kernel, as MLX asks for it: `rule(inputs, cotangents, outputs)`."""

    def pull(inputs: Any, cotangents: Any, outputs: Any) -> Any:
        # What MLX differentiates is built long after backends are loaded, and rules need backends.
        from ember_ml.autodiff import rules
        from ember_ml.ops.registry import REGISTRY
        from ember_ml.tensor.core import fill

        def tensor(native: NativeArray) -> Any:
            return fill(native, backend.spec_of(native))

        rule = rules.find(name)
        given = inputs if isinstance(inputs, tuple | list) else (inputs,)
        op = REGISTRY.get(name)
        count = sum(isinstance(one, mx.array) for one in given) if op is None else op.arity
        operands = [tensor(native) for native in given[:count]]
        several = isinstance(outputs, tuple | list)
        g, y = (
            [tensor(native) for native in one] if several else tensor(one)
            for one in (cotangents, outputs)
        )
        args = (y, *operands, *given[count:])
        if rule.joint is not None:
            parts = rule.joint(g, (True,) * count, *args)
        else:
            parts = [one(g, *args) for one in rule.pulls[:count] if one is not None]
        found = [None if part is None else part.native for part in parts]
        if len(given) == 1:
            return found[0]
        return (*found, *(None,) * (len(given) - count))

    return pull
