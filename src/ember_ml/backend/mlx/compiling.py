"""mx.compile. On the CPU it builds kernels with a C++ compiler, which must be there."""

from __future__ import annotations

import shutil
import warnings
from functools import cache
from typing import Any

import mlx.core as mx

from ember_ml.backend.compiling import Compiler, Function, Natives, Plan

__all__ = ["MlxCompiler"]


class MlxCompiler(Compiler):
    """Traced by the first call; memory that nobody else holds is used again by MLX itself."""

    traces = True
    reenters = True
    makes_values = True

    def compile(self, function: Function, natives: Natives, plan: Plan) -> Function:
        if mx.default_device().type == mx.DeviceType.cpu and not _has_compiler():
            return function
        run: Any = mx.compile(function)
        return run  # type: ignore[no-any-return]  # untyped

    def pull(self, function: Function, natives: Natives, gradients: Natives) -> list[Any]:
        _, found = mx.vjp(function, list(natives), list(gradients))
        return list(found)

    def is_complaint(self, error: BaseException) -> bool:
        return isinstance(error, ValueError | RuntimeError) and "[eval]" in str(error)


@cache
def _has_compiler() -> bool:
    """True where MLX finds what it builds kernels of the CPU with; says so once where not."""
    if shutil.which("g++") or shutil.which("clang++") or shutil.which("cl"):
        return True
    warnings.warn(
        "em.jit on the 'mlx' backend calls functions as they are: MLX compiles for the CPU by a "
        "C++ compiler, and found none; install g++",
        RuntimeWarning,
        stacklevel=2,
    )
    return False
