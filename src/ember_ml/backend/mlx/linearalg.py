"""Linear algebra and transforms on MLX.

mx.linalg ends the process where a matrix is singular, empty or not finite, so factorisations run
in host memory with NumPy, whose errors are those of every backend.
"""

from __future__ import annotations

from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel
from ember_ml.backend.mlx.hosting import evaluated

__all__ = ["HOSTED", "OVERRIDES", "integer_matmul"]

Array = Any  # mx.array; its operators are untyped

HOSTED: Final = frozenset(
    "linalg." + name
    for name in (
        "cholesky det eig eigh eigvals eigvalsh expm inv lu_factor permutation_of_pivots pinv qr "
        "slogdet solve solve_triangular svd svdvals"
    ).split()
)

# The norm that undoes another.
_INVERSE: Final = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def integer_matmul(hosted: Kernel) -> Kernel:
    """Products of integers: in host memory, or as sums of products where a function is traced."""

    def run(x: Array, y: Array) -> Array:
        return hosted(x, y) if evaluated(x, y) else _sum_of_products(x, y)

    return run


def _sum_of_products(x: Array, y: Array) -> Array:
    left = x if x.ndim > 1 else x[None, :]
    right = y if y.ndim > 1 else y[:, None]
    out = mx.sum(left[..., :, :, None] * right[..., None, :, :], axis=-2).astype(x.dtype)
    if x.ndim == 1:
        out = mx.squeeze(out, -2)
    return mx.squeeze(out, -1) if y.ndim == 1 else out


# --- Transforms -----------------------------------------------------------------------------


def irfft(x: Array, n: int | None, axis: int, norm: str) -> Array:
    return mx.fft.irfft(x.astype(mx.complex64), n, axis, norm)


def irfftn(x: Array, s: Any, axes: Any, norm: str) -> Array:
    return mx.fft.irfftn(x.astype(mx.complex64), s, axes, norm)


def hfft(x: Array, n: int | None, axis: int, norm: str) -> Array:
    return mx.fft.irfft(mx.conj(x.astype(mx.complex64)), n, axis, _INVERSE[norm])


def ihfft(x: Array, n: int | None, axis: int, norm: str) -> Array:
    return mx.conj(mx.fft.rfft(x, n, axis, _INVERSE[norm]))


OVERRIDES: Final[dict[str, Kernel]] = {
    **{"fft." + kernel.__name__: kernel for kernel in (irfft, irfftn, hfft, ihfft)},
}
