"""Kernels that run in host memory: what MLX's tracing and differentiation must know of them."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.dtypes import DType
from ember_ml.errors import EmberError, UnsupportedOpError

__all__ = ["differentiable", "in_own_thread", "in_tracing"]

# Ops whose results are indices or truth values: nothing flows back through them.
_FLAT = frozenset(("isin", "nonzero", "searchsorted"))


def in_tracing(error: Exception) -> bool:
    """True where MLX refused to evaluate an array because a function is being traced."""
    return "[eval]" in str(error)


def in_own_thread(error: RuntimeError) -> Exception:
    """The error of reading a lazy array in another thread than the one that computes it."""
    if "in current thread" not in str(error):
        return error
    return UnsupportedOpError(
        "MLX evaluates a lazy array only in the thread that made it; "
        f"call .numpy() or mx.eval there before another thread reads it ({error})"
    )


def differentiable(name: str, kernel: Kernel, dtype: DType) -> Kernel:
    """A hosted kernel that refuses to be traced, and gradients instead of dropping them.

    MLX would take the result for a constant, and its gradient for zero.
    """

    def run(*args: Any, **options: Any) -> NativeArray:
        try:
            return kernel(*args, **options)
        except ValueError as error:
            if isinstance(error, EmberError) or not in_tracing(error):
                raise
            raise UnsupportedOpError(
                f"ops.{name} on {dtype} runs in host memory on the 'mlx' backend; "
                f"mx.compile and mx.vmap cannot trace it"
            ) from error

    if name in _FLAT or not (dtype.is_floating or dtype.is_complex):
        return run
    custom = mx.custom_function(run)

    def refuse(*args: Any) -> Any:
        raise UnsupportedOpError(f"ops.{name} has no gradient on the 'mlx' backend")

    custom.vjp(refuse)
    custom.jvp(refuse)
    return custom  # type: ignore[no-any-return]  # MLX is untyped here
