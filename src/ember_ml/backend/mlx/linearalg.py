"""Linear algebra and transforms on MLX.

mx.linalg ends the process where a matrix is singular, empty or not finite, so factorisations run
in host memory with NumPy, whose errors are those of every backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel, Kernels
from ember_ml.backend.mlx.hosting import evaluated

__all__ = ["HOSTED", "OVERRIDES", "gradient", "integer_matmul"]

Array = Any  # mx.array; its operators are untyped

HOSTED: Final = frozenset(
    "linalg." + name
    for name in (
        "cholesky det eig eigh eigvals eigvalsh expm inv lu_factor permutation_of_pivots qr "
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


# --- Gradients of what runs in host memory ----------------------------------------------------


def gradient(name: str, xp: Kernels) -> Callable[..., Any] | None:
    """The rule `rule(inputs, cotangents, outputs)` of a factorisation of real matrices."""
    rule = _RULES.get(name)
    return None if rule is None else lambda *flow: rule(xp, *flow)


def _inv(xp: Any, x: Array, cotangent: Array, inverse: Array) -> Array:
    turned = mx.swapaxes(inverse, -1, -2)
    return -(turned @ cotangent @ turned)


def _solve(xp: Any, inputs: tuple[Array, Array], cotangent: Array, out: Array) -> Any:
    x, y = inputs
    for_y = xp.linalg.solve(mx.swapaxes(x, -1, -2), cotangent)
    for_x = -(for_y @ mx.swapaxes(out, -1, -2))
    return _summed(for_x, x.shape), _summed(for_y, y.shape)


def _det(xp: Any, x: Array, cotangent: Array, det: Array) -> Array:
    return (cotangent * det)[..., None, None] * mx.swapaxes(xp.linalg.inv(x), -1, -2)


def _slogdet(xp: Any, x: Array, cotangents: Any, outputs: Any) -> Array:
    # The sign is constant almost everywhere.
    return cotangents[1][..., None, None] * mx.swapaxes(xp.linalg.inv(x), -1, -2)


def _solve_triangular(xp: Any, inputs: tuple[Any, ...], cotangent: Array, out: Array) -> Any:
    x, y, lower, unit = inputs
    for_y = xp.linalg.solve_triangular(mx.swapaxes(x, -1, -2), cotangent, not lower, unit)
    for_x = -(for_y @ mx.swapaxes(out, -1, -2))
    # Only what was read has a gradient.
    for_x = mx.tril(for_x, -int(unit)) if lower else mx.triu(for_x, int(unit))
    return _summed(for_x, x.shape), _summed(for_y, y.shape), None, None


def _expm(xp: Any, x: Array, cotangent: Array, out: Array) -> Array:
    # The derivative along a direction is a block of the exponential of [[x, direction], [0, x]].
    turned, side = mx.swapaxes(x, -1, -2), x.shape[-1]
    above = mx.concatenate([turned, cotangent], -1)
    below = mx.concatenate([mx.zeros_like(turned), turned], -1)
    return xp.linalg.expm(mx.concatenate([above, below], -2))[..., :side, side:]


def _summed(x: Array, shape: tuple[int, ...]) -> Array:
    """The sum over the axes along which `shape` was broadcast."""
    x = mx.sum(x, axis=tuple(range(x.ndim - len(shape))))
    return mx.sum(x, axis=tuple(i for i, n in enumerate(shape) if n != x.shape[i]), keepdims=True)


_RULES: Final[dict[str, Callable[..., Any]]] = {
    "linalg.inv": _inv,
    "linalg.solve": _solve,
    "linalg.det": _det,
    "linalg.slogdet": _slogdet,
    "linalg.solve_triangular": _solve_triangular,
    "linalg.expm": _expm,
}


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
    "fft." + kernel.__name__: kernel for kernel in (irfft, irfftn, hfft, ihfft)
}
