"""When MLX has values for the host, and what it knows of kernels that run there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.errors import UnsupportedOpError

__all__ = ["differentiable", "evaluated", "require_values"]


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
        raise UnsupportedOpError("an array has no values while mx.compile or mx.vmap traces")


def differentiable(name: str, kernel: Kernel, rule: Callable[..., Any] | None) -> Kernel:
    """A hosted kernel with its rule `rule(inputs, cotangents, outputs)`, or without gradient.

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
    custom.vjp(rule or refuse)
    custom.jvp(refuse)
    return custom
