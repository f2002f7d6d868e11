"""Gradients of linear algebra and signals: cases where those of the values do not suit.

Matrices of which one triangle is read are made symmetric within the case, since differences take
each element by itself. Vectors of factorisations come in forms that do not depend on their signs
and phases, which nothing determines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml.testing.case import Array
from ember_ml.testing.gradients import GradientCase, derived

__all__ = ["LINALG"]

_INF: Final = float("inf")


def _draw(seed: int, *shape: int, low: float = -1.0, high: float = 1.0) -> Array:
    return np.random.Generator(np.random.Philox(seed)).uniform(low, high, shape)


def _complex(seed: int, *shape: int) -> Array:
    return _draw(seed, *shape) + 1j * _draw(seed + 1000, *shape)


def _well(seed: int, *shape: int) -> Array:
    """Square matrices that are far from singular; others as they come."""
    out = _draw(seed, *shape)
    sides = out.shape[-2:]
    square = len(sides) == 2 and sides[0] == sides[1]
    return out + 3 * np.diag(np.arange(1.0, sides[0] + 1)) if square else out


def _well_complex(seed: int, *shape: int) -> Array:
    return _well(seed, *shape) + 1j * _draw(seed + 1000, *shape)


def _case(op: str, label: str, run: Callable[..., Any], *inputs: Array, **how: Any) -> GradientCase:
    return GradientCase(op, run, inputs, label, **how)


def _both(
    op: str, label: str, run: Callable[..., Any], *shapes: tuple[int, ...], well: bool = False
) -> tuple[GradientCase, ...]:
    """A case of real numbers and one of complex ones."""
    real, imaginary = (_well, _well_complex) if well else (_draw, _complex)
    return (
        _case(op, f"{label}real", run, *(real(i, *s) for i, s in enumerate(shapes))),
        _case(op, f"{label}complex", run, *(imaginary(i, *s) for i, s in enumerate(shapes))),
    )


def _real(*args: Any, **how: Any) -> GradientCase:
    return _both(*args, **how)[0]


def _imaginary(*args: Any, **how: Any) -> GradientCase:
    return _both(*args, **how)[1]


def _adjoint(xp: Any, x: Any) -> Any:
    return xp.conj(xp.matrix_transpose(x))


def _definite(xp: Any, x: Any) -> Any:
    """A positive definite matrix of any."""
    one = xp.astype(xp.eye(x.shape[-1]), x.dtype)
    return xp.matmul(x, _adjoint(xp, x)) + one


def _hermitian(xp: Any, x: Any) -> Any:
    return x + _adjoint(xp, x)


def _scaled(xp: Any, x: Any, values: Any) -> Any:
    """x @ diag(values)."""
    return x * xp.expand_dims(xp.astype(values, x.dtype), -2)


# --- Products ---------------------------------------------------------------------------------


def _matmul(*shapes: tuple[int, ...]) -> GradientCase:
    label = "-".join("x".join(map(str, s)) for s in shapes)
    arrays = [_draw(i, *s) for i, s in enumerate(shapes)]
    return _case("matmul", label, lambda xp, a, b: xp.matmul(a, b), *arrays)


def _einsum(text: str, *shapes: tuple[int, ...]) -> GradientCase:
    arrays = [_draw(i, *s) for i, s in enumerate(shapes)]
    return _case("einsum", text, lambda xp, *xs: xp.einsum(text, *xs), *arrays)


_PRODUCTS: Final = (
    *_both("matmul", "", lambda xp, a, b: xp.matmul(a, b), (2, 3), (3, 4)),
    *_both("matmul", "stack-", lambda xp, a, b: xp.matmul(a, b), (2, 2, 3), (3, 2)),
    _case("matmul", "complex-vectors", lambda xp, a, b: xp.matmul(a, b), _complex(1, 3),
          _complex(2, 2, 3, 2)),
    _matmul((3,), (3,)),
    _matmul((2, 3), (3,)),
    _matmul((3,), (3, 2)),
    _matmul((2, 3), (2, 3, 2)),
    _matmul((2, 1, 2, 3), (2, 3, 2)),
    _matmul((2, 2, 3), (3,)),
    _matmul((3,), (2, 3, 2)),
    _imaginary("vdot", "", lambda xp, a, b: xp.vdot(a, b), (2, 3), (2, 3)),
    _imaginary("vecmat", "", lambda xp, a, b: xp.vecmat(a, b), (2, 3), (2, 3, 2)),
    _imaginary("vecdot", "", lambda xp, a, b: xp.vecdot(a, b, axis=-2), (3, 2), (3, 1)),
    *_both("einsum", "", lambda xp, a, b: xp.einsum("ij,jk->ik", a, b), (2, 3), (3, 4)),
    _einsum("ij->", (2, 3)),
    _einsum("ij->ji", (2, 3)),
    _einsum("ii->i", (3, 3)),
    _einsum("ij,jk,kl->il", (2, 3), (3, 2), (2, 2)),
    _einsum("ab,cd->bd", (2, 3), (2, 4)),
    _einsum("...ij,...jk->...ik", (2, 1, 2, 3), (2, 3, 2)),
    _einsum("ij,ij->ij", (2, 3), (2, 1)),
    _einsum("ij,j->", (2, 3), (3,)),
    _einsum(",i->i", (), (3,)),
)  # fmt: skip


# --- Solutions --------------------------------------------------------------------------------


def _triangular(lower: bool, unit: bool, *inputs: Array) -> GradientCase:
    label = f"{'lower' if lower else 'upper'}{'-unit' if unit else ''}"
    options = {"lower": lower, "unit_diagonal": unit, "trans": "C" if unit else "N"}
    return _case("linalg.solve_triangular", label,
                 lambda xp, a, b: xp.linalg.solve_triangular(a, b, **options), *inputs)  # fmt: skip


# Rank two, and rank one, of three.
_RANK2: Final = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, -1.0, 0.5]])
_RANK1: Final = np.outer([1.0, 2.0, -1.0], [0.5, 1.0, 2.0])

_SOLUTIONS: Final = (
    *_both("linalg.solve", "", lambda xp, a, b: xp.linalg.solve(a, b), (3, 3), (3, 2), well=True),
    _case("linalg.solve", "stack", lambda xp, a, b: xp.linalg.solve(a, b), _well(1, 2, 3, 3),
          _draw(2, 3)),
    _case("linalg.solve", "broadcast", lambda xp, a, b: xp.linalg.solve(a, b), _well(1, 3, 3),
          _draw(2, 2, 3, 1)),
    *_both("linalg.inv", "", lambda xp, x: xp.linalg.inv(x), (2, 3, 3), well=True),
    *_both("linalg.det", "", lambda xp, x: xp.linalg.det(x), (2, 3, 3), well=True),
    _real("linalg.det", "four-", lambda xp, x: xp.linalg.det(x), (4, 4), well=True),
    _case("linalg.det", "singular", lambda xp, x: xp.linalg.det(x), _RANK2),
    # Two singular values are equal: svd, by which cofactors are found, has no second derivative.
    _case("linalg.det", "rank-one", lambda xp, x: xp.linalg.det(x), _RANK1, second=False),
    _case("linalg.det", "one-of-two", lambda xp, x: xp.linalg.det(x),
          np.stack([_well(1, 3, 3), _RANK2])),
    *_both("linalg.slogdet", "", lambda xp, x: tuple(xp.linalg.slogdet(x)), (2, 3, 3), well=True),
    _triangular(False, False, _well(1, 3, 3), _draw(2, 2, 3, 2)),
    _triangular(True, False, _well_complex(1, 2, 3, 3), _complex(2, 3)),
    _triangular(False, True, _well_complex(1, 3, 3), _complex(2, 3, 2)),
    _triangular(True, True, _well(1, 3, 3), _draw(2, 3, 1)),
    *_both("linalg.cholesky_solve", "", lambda xp, a, b: xp.linalg.cholesky_solve(
        b, xp.linalg.cholesky(_definite(xp, a))), (3, 3), (3, 2)),
    _case("linalg.cholesky_solve", "factor", lambda xp, a, b: xp.linalg.cholesky_solve(
        b, a, upper=True), _well(1, 3, 3), _draw(2, 3)),
    _real("linalg.cholesky_inverse", "", lambda xp, a: xp.linalg.cholesky_inverse(
        xp.linalg.cholesky(_definite(xp, a), upper=True), upper=True), (3, 3)),
    _real("linalg.lu_solve", "", lambda xp, a, b: xp.linalg.lu_solve(
        *xp.linalg.lu_factor(a), b), (3, 3), (3, 2), well=True),
    _imaginary("linalg.lu_solve", "adjoint-", lambda xp, a, b: xp.linalg.lu_solve(
        *xp.linalg.lu_factor(a), b, adjoint=True), (2, 3, 3), (3,), well=True),
    *_both("linalg.pinv", "tall-", lambda xp, x: xp.linalg.pinv(x), (4, 2)),
    _real("linalg.pinv", "wide-", lambda xp, x: xp.linalg.pinv(x), (2, 2, 3)),
    _case("linalg.pinv", "equal-values", lambda xp, x: xp.linalg.pinv(x), 2 * np.eye(4, 3)),
    # A third of the values is left out, and none of them is zero.
    _case("linalg.pinv", "rtol", lambda xp, x: xp.linalg.pinv(x, rtol=0.2),
          np.diag([4.0, 2.0, 0.5]) + 0.05 * _draw(1, 3, 3)),
    *_both("linalg.lstsq", "tall-", lambda xp, a, b: tuple(xp.linalg.lstsq(a, b)), (4, 2), (4, 2)),
    _real("linalg.lstsq", "wide-", lambda xp, a, b: tuple(xp.linalg.lstsq(a, b)), (2, 4), (2,)),
    _case("linalg.lstsq", "equal-values", lambda xp, a, b: xp.linalg.lstsq(a, b)[:2],
          2 * np.eye(4, 3), _draw(1, 4)),
    _case("linalg.lstsq", "rcond", lambda xp, a, b: tuple(xp.linalg.lstsq(a, b, 0.2)),
          np.diag([4.0, 2.0, 0.5]) + 0.05 * _draw(1, 3, 3), _draw(2, 3)),
    *derived("linalg.tensorsolve"),
    _case("linalg.tensorinv", "", lambda xp, a: xp.linalg.tensorinv(a),
          _well(1, 4, 4).reshape(2, 2, 4)),
    *_both("linalg.expm", "", lambda xp, x: xp.linalg.expm(x), (2, 3, 3)),
    _case("linalg.expm", "large", lambda xp, x: xp.linalg.expm(x), 8 * _draw(1, 2, 2)),
    _imaginary("linalg.matrix_power", "", lambda xp, x: xp.linalg.matrix_power(x, 3), (2, 2, 2)),
    _real("linalg.matrix_power", "negative-", lambda xp, x: xp.linalg.matrix_power(x, -2),
           (3, 3), well=True),
    _case("linalg.vander", "", lambda xp, x: xp.linalg.vander(x), _draw(1, 3)),
    _case("linalg.vander", "increasing", lambda xp, x: xp.linalg.vander(x, 4, increasing=True),
          _draw(1, 2, 3)),
)  # fmt: skip


# --- Factorisations ---------------------------------------------------------------------------


def _from_eigh(xp: Any, x: Any) -> Any:
    values, vectors = xp.linalg.eigh(_hermitian(xp, x))
    # A function of the matrix that depends on both, the sizes of all elements, and values.
    spectral = xp.matmul(_scaled(xp, vectors, xp.sin(values)), _adjoint(xp, vectors))
    return spectral, xp.square(xp.abs(vectors)), values


def _from_eig(xp: Any, x: Any) -> Any:
    values, vectors = xp.linalg.eig(x)
    return values, xp.square(xp.abs(vectors))


def _sorted_eigvals(xp: Any, x: Any) -> Any:
    values = xp.linalg.eigvals(x)
    return xp.sum(values * values * values), xp.prod(values)


def _from_svd(full: bool) -> Callable[..., Any]:
    def run(xp: Any, x: Any) -> Any:
        u, s, vh = xp.linalg.svd(x, full_matrices=full)
        side = s.shape[-1]
        middle = _scaled(xp, u[..., :, :side], xp.sin(s))
        return (xp.matmul(middle, vh[..., :side, :]), xp.square(xp.abs(u[..., :side])),
                xp.square(xp.abs(vh[..., :side, :])), s)  # fmt: skip

    return run


def _beyond(xp: Any, x: Any) -> Any:
    """What is left of a space: no basis of it is special, and all of them together are."""
    u, s, vh = xp.linalg.svd(x)
    side = s.shape[-1]
    left, right = u[..., side:], _adjoint(xp, vh[..., side:, :])
    return xp.matmul(left, _adjoint(xp, left)), xp.matmul(right, _adjoint(xp, right)), s


def _from_qr(mode: str) -> Callable[..., Any]:
    def run(xp: Any, x: Any) -> Any:
        q, r = xp.linalg.qr(x, mode=mode)
        side = min(x.shape[-2:])
        rest = q[..., side:]
        return q[..., :side], r, xp.matmul(rest, _adjoint(xp, rest))

    return run


def _from_lu(xp: Any, x: Any) -> Any:
    _, low, up = xp.linalg.lu(x)
    return low, up


_FACTORISATIONS: Final = (
    *_both("linalg.cholesky", "", lambda xp, x: xp.linalg.cholesky(_definite(xp, x)), (2, 3, 3)),
    _imaginary("linalg.cholesky", "upper-", lambda xp, x: xp.linalg.cholesky(
        _definite(xp, x), upper=True), (3, 3)),
    *_both("linalg.eigh", "", _from_eigh, (3, 3)),
    _case("linalg.eigh", "stack", _from_eigh, _well(3, 2, 3, 3)),
    *_both("linalg.eigvalsh", "", lambda xp, x: xp.linalg.eigvalsh(_hermitian(xp, x)), (2, 3, 3)),
    *_both("linalg.eig", "", _from_eig, (3, 3), well=True),
    _case("linalg.eig", "turning", _from_eig, _draw(5, 3, 3)),
    *_both("linalg.eigvals", "", _sorted_eigvals, (2, 3, 3), well=True),
    *_both("linalg.svd", "tall-", _from_svd(False), (4, 2)),
    _real("linalg.svd", "wide-", _from_svd(False), (2, 4)),
    _imaginary("linalg.svd", "square-", _from_svd(True), (3, 3)),
    _real("linalg.svd", "full-", _from_svd(True), (3, 2)),
    *_both("linalg.svd", "beyond-", _beyond, (4, 2)),
    _case("linalg.svd", "beyond-wide", _beyond, _draw(2, 2, 4)),
    *_both("linalg.svdvals", "", lambda xp, x: xp.linalg.svdvals(x), (2, 3, 4)),
    *_both("linalg.qr", "tall-", _from_qr("reduced"), (4, 2)),
    _real("linalg.qr", "square-", _from_qr("reduced"), (3, 3)),
    *_both("linalg.qr", "wide-", _from_qr("reduced"), (2, 4)),
    *_both("linalg.qr", "complete-", _from_qr("complete"), (4, 2)),
    _real("linalg.qr", "complete-wide-", _from_qr("complete"), (2, 3)),
    _real("linalg.lq", "wide-", lambda xp, x: tuple(xp.linalg.lq(x)), (2, 4)),
    _imaginary("linalg.lq", "tall-", lambda xp, x: tuple(xp.linalg.lq(x)), (4, 2)),
    _real("linalg.orthogonal", "tall-", lambda xp, x: xp.linalg.orthogonal(x), (4, 2)),
    _imaginary("linalg.orthogonal", "wide-", lambda xp, x: xp.linalg.orthogonal(x), (2, 3)),
    *_both("linalg.lu_factor", "square-", lambda xp, x: xp.linalg.lu_factor(x).LU, (2, 3, 3)),
    _real("linalg.lu_factor", "wide-", lambda xp, x: xp.linalg.lu_factor(x).LU, (2, 4)),
    _imaginary("linalg.lu_factor", "tall-", lambda xp, x: xp.linalg.lu_factor(x).LU, (4, 2)),
    _real("linalg.lu", "", _from_lu, (2, 3, 3)),
    _real("linalg.lu", "tall-", _from_lu, (4, 2)),
)  # fmt: skip


# --- Norms ------------------------------------------------------------------------------------


def _vector_norm(order: float) -> GradientCase:
    return _real(
        "linalg.vector_norm",
        f"{order}-",
        lambda xp, x: xp.linalg.vector_norm(x, ord=order, axis=(0, 2)),
        (2, 2, 3),
    )


def _norm(label: str, *shape: int, **options: Any) -> GradientCase:
    return _real("linalg.norm", f"{label}-", lambda xp, x: xp.linalg.norm(x, **options), shape)


def _cond(order: Any) -> GradientCase:
    return _real(
        "linalg.cond", f"{order}-", lambda xp, x: xp.linalg.cond(x, order), (3, 3), well=True
    )


_NORMS: Final = (
    *(_vector_norm(order) for order in (1, 3, 1.5, _INF, -_INF, -1)),
    *_both("linalg.vector_norm", "", lambda xp, x: xp.linalg.vector_norm(x, axis=1), (2, 3)),
    *_both("linalg.norm", "", lambda xp, x: xp.linalg.norm(x), (2, 3)),
    *_both("linalg.norm", "nuc-", lambda xp, x: xp.linalg.norm(x, "nuc"), (3, 2)),
    _norm("axis", 2, 3, axis=1, keepdims=True),
    _norm("fro", 3, 2, ord="fro", keepdims=True),
    _norm("two", 3, 2, ord=2),
    _norm("axes", 2, 3, 2, ord=1, axis=(2, 0)),
    *(_cond(order) for order in (None, -2, _INF, "fro", "nuc")),
    _imaginary("linalg.cond", "", lambda xp, x: xp.linalg.cond(x, 1), (3, 3), well=True),
)  # fmt: skip


# --- Signals ----------------------------------------------------------------------------------


def _line(op: str, label: str, *inputs: Array, **options: Any) -> GradientCase:
    return _case(f"fft.{op}", label, lambda xp, x: getattr(xp.fft, op)(x, **options), *inputs)


def _lines(op: str, *, takes_complex: bool) -> list[GradientCase]:
    """Even and odd lengths, longer and shorter ones than there are, axes and norms."""
    made = [
        _line(op, "real", _draw(1, 3, 4)),
        _line(op, "odd", _draw(1, 3, 4), n=5, norm="ortho"),
        _line(op, "short", _draw(1, 3, 4), n=3, norm="forward"),
        _line(op, "axis", _draw(1, 3, 4), n=4, axis=0, norm="ortho"),
    ]
    if takes_complex:
        made.append(_line(op, "complex", _complex(1, 3, 4), n=6))
        made.append(_line(op, "complex-odd", _complex(1, 3, 4), n=5, norm="forward"))
    return made


def _boxes(op: str, *, takes_complex: bool) -> list[GradientCase]:
    odd = {"s": (3, 5), "axes": (2, 0), "norm": "forward"}
    made = [
        _line(op, "real", _draw(1, 2, 3, 3)),
        _line(op, "even", _draw(1, 2, 3, 3), s=(2, 4), axes=(0, 2), norm="ortho"),
        _line(op, "odd", _draw(1, 2, 3, 3), **odd),
    ]
    if takes_complex:
        made.append(_line(op, "complex", _complex(1, 2, 3, 3), **odd))
    return made


_TRANSFORMS: Final = (
    *(c for op in ("fft", "ifft", "irfft", "hfft") for c in _lines(op, takes_complex=True)),
    *(c for op in ("rfft", "ihfft") for c in _lines(op, takes_complex=False)),
    *(c for op in ("fftn", "ifftn", "irfftn") for c in _boxes(op, takes_complex=True)),
    *(c for op in ("fft2", "ifft2", "irfft2") for c in _boxes(op, takes_complex=True)),
    *(c for op in ("rfftn", "rfft2") for c in _boxes(op, takes_complex=False)),
)
_SIGNALS: Final = (
    *derived("stft"),
    _case("stft", "window", lambda xp, x, w: xp.stft(x, 5, 2, w, fft_length=6), _draw(1, 2, 9),
          _draw(2, 5)),
    _case("stft", "both-sides", lambda xp, x, w: xp.stft(x, 4, 1, w, onesided=False),
          _draw(1, 9), _draw(2, 4)),
    _case("stft", "complex", lambda xp, x, w: xp.stft(x, 4, 3, w, center=False),
          _complex(1, 2, 9), _complex(2, 4)),
    _case("istft", "", lambda xp, x: xp.istft(x, 4, 2, length=9), _complex(1, 2, 5, 3)),
    _case("istft", "window", lambda xp, x, w: xp.istft(x, 4, 2, w, fft_length=5),
          _complex(1, 4, 3), _draw(2, 4, low=0.5)),
    _case("frame", "rest", lambda xp, x: xp.frame(x, 3, 2), _draw(1, 2, 8)),
    _case("frame", "gaps", lambda xp, x: xp.frame(x, 2, 3, axis=0), _draw(1, 9, 2)),
    _case("frame", "padded", lambda xp, x: xp.frame(x, 3, 2, pad_end=True), _complex(1, 2, 8)),
    *derived("overlap_add"),
    _case("overlap_add", "complex", lambda xp, x: xp.overlap_add(x, 2), _complex(1, 2, 3, 3)),
    *derived("convolve"),
    _case("convolve", "fft", lambda xp, a, b: xp.convolve(a, b, method="fft"), _draw(1, 2, 5),
          _draw(2, 4)),
    _case("convolve", "complex", lambda xp, a, b: xp.convolve(a, b, "same"), _complex(1, 2, 5),
          _complex(2, 3)),
    *derived("correlate"),
    _case("correlate", "complex", lambda xp, a, b: xp.correlate(a, b, "full"), _complex(1, 5),
          _complex(2, 2, 3)),
    # Longer than tables of cosines are.
    _case("dct", "long", lambda xp, x: xp.dct(xp.tile(x, (65,))), _draw(1, 4)),
    *derived("dct")[::2],
    _case("power_to_db", "", lambda xp, x: xp.power_to_db(x, 2.0, top_db=None),
          _draw(1, 3, 4, low=0.1)),
    _case("power_to_db", "top", lambda xp, x: xp.power_to_db(x, top_db=5.0),
          _draw(1, 3, 4, low=0.01)),
)  # fmt: skip

LINALG: Final[tuple[GradientCase, ...]] = (
    *_PRODUCTS,
    *_SOLUTIONS,
    *_FACTORISATIONS,
    *_NORMS,
    *_TRANSFORMS,
    *_SIGNALS,
)
