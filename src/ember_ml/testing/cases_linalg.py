"""Linear algebra and Fourier transforms.

Factorisations are not unique, so their cases put them together again and compare that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample

__all__ = ["FOURIER", "LINEAR_ALGEBRA"]

_LINALG: Final = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
_NUMERIC: Final = tuple(d for d in dtypes.ALL if d is not dtypes.bool)


def _real(dtype: DType) -> DType:
    return dtypes.real_of(dtype)


def _index(dtype: DType) -> DType:
    return dtypes.int64


def _complex(dtype: DType) -> DType:
    return dtypes.complex_of(dtype)


def _of(*shapes: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [(sample(f"linalg{s}", s, dtype, -2, 2),) for s in shapes]


def _pairs(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [
        (sample(f"a{a}", a, dtype, -3, 3), sample(f"b{b}", b, dtype, -3, 3)) for a, b in shapes
    ]


def _well_conditioned(*shapes: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    def make(dtype: DType) -> list[Inputs]:
        return [
            ((sample(f"well{s}", s, dtype, -1, 1) + 4 * np.eye(s[-1])).astype(dtype.numpy),)
            for s in shapes
        ]

    return make


def _positive_definite(dtype: DType) -> list[Inputs]:
    runs: list[Inputs] = []
    for shape in ((3, 3), (2, 2, 2), (0, 3, 3)):
        a = sample(f"definite{shape}", shape, dtype, -1, 1).astype(complex)
        definite = a @ np.conj(np.swapaxes(a, -1, -2)) + 2 * np.eye(shape[-1])
        kept = definite if dtype.is_complex else definite.real
        runs.append((kept.astype(dtype.numpy),))
    return runs


def _systems(dtype: DType) -> list[Inputs]:
    shapes = (((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 1)), ((2, 3, 3), (3,)))
    return [
        (_well_conditioned(a)(dtype)[0][0], sample(f"right{b}", b, dtype, -1, 1)) for a, b in shapes
    ]


def _solve(a: Array, b: Array) -> Array:
    return np.linalg.solve(a, b[..., None])[..., 0] if b.ndim == 1 else np.linalg.solve(a, b)


def _case(
    op: str,
    run: Callable[..., Any],
    expect: Callable[..., Any],
    inputs: Callable[[DType], list[Inputs]],
    over: tuple[DType, ...] = _LINALG,
    result: Callable[[DType], DType | None] = lambda dtype: dtype,
    label: str = "",
    ulps: float = 400,
) -> Case:
    return Case(op, run, expect, inputs, over, result, ulps, label)


_SQUARE: Final = _well_conditioned((3, 3), (2, 4, 4), (0, 2, 2))
_TALL: Final = _of((4, 3), (2, 3, 4))

_PRODUCTS: Final = (
    _case("matmul", lambda xp, a, b: xp.matmul(a, b), np.matmul,
          _pairs(((2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)),
                 ((2, 1, 2, 3), (4, 3, 2)), ((0, 3), (3, 2)), ((2, 0), (0, 3))),
          _NUMERIC, law("matmul")),
    _case("matrix_transpose", lambda xp, x: xp.matrix_transpose(x),
          lambda x: np.swapaxes(x, -1, -2), _of((2, 3), (4, 2, 3), (0, 2)), dtypes.ALL),
    _case("tensordot", lambda xp, a, b: xp.tensordot(a, b, axes=1), lambda a, b: np.tensordot(
        a, b, axes=1), _pairs(((2, 3), (3, 4)), ((2, 0), (0, 3))), _NUMERIC),
    _case("tensordot", lambda xp, a, b: xp.tensordot(a, b, axes=((0, 2), (1, 0))),
          lambda a, b: np.tensordot(a, b, axes=((0, 2), (1, 0))), _pairs(((2, 3, 4), (4, 2))),
          _NUMERIC, label="pairs"),
    _case("tensordot", lambda xp, a, b: xp.tensordot(a, b, axes=0),
          lambda a, b: np.tensordot(a, b, axes=0), _pairs(((2,), (3,)), ((), (2,))), _NUMERIC,
          label="outer"),
    _case("vecdot", lambda xp, a, b: xp.vecdot(a, b), np.vecdot,
          _pairs(((2, 3), (2, 3)), ((3,), (2, 3)), ((0,), (0,))), _NUMERIC),
    _case("linalg.outer", lambda xp, a, b: xp.linalg.outer(a, b), np.outer,
          _pairs(((2,), (3,)), ((0,), (3,))), _NUMERIC),
    _case("linalg.cross", lambda xp, a, b: xp.linalg.cross(a, b), lambda a, b: np.cross(a, b),
          _pairs(((3,), (3,)), ((2, 3), (2, 3))),
          tuple(d for d in _NUMERIC if d.is_signed)),
    _case("linalg.matrix_power", lambda xp, x: xp.linalg.matrix_power(x, 3),
          lambda x: x @ x @ x, _of((2, 2), (3, 2, 2)), _NUMERIC),
    _case("linalg.matrix_power", lambda xp, x: xp.linalg.matrix_power(x, 0),
          lambda x: np.broadcast_to(np.eye(x.shape[-1]), x.shape), _of((2, 2), (3, 2, 2)),
          _NUMERIC, label="zero"),
    _case("linalg.matrix_power", lambda xp, x: xp.linalg.matrix_power(x, -2),
          lambda x: np.linalg.inv(x) @ np.linalg.inv(x), _SQUARE, label="negative"),
    _case("linalg.diagonal", lambda xp, x: xp.linalg.diagonal(x, offset=1),
          lambda x: np.diagonal(x, 1, -2, -1), _of((3, 4), (2, 3, 3), (2, 1)), dtypes.ALL),
    _case("linalg.trace", lambda xp, x: xp.linalg.trace(x, offset=-1),
          lambda x: np.trace(x, -1, -2, -1, dtype=law("linalg.trace")(
              dtypes.to_dtype(x.dtype)).numpy),
          _of((3, 4), (2, 3, 3)), _NUMERIC, law("linalg.trace")),
)  # fmt: skip


def _from_qr(xp: Any, x: Any) -> Any:
    q, r = xp.linalg.qr(x)
    return xp.matmul(q, r), xp.triu(r) - r, _gram(xp, q)


def _gram(xp: Any, q: Any) -> Any:
    return xp.matmul(xp.conj(xp.matrix_transpose(q)), q)


def _identities(x: Array, size: int) -> Array:
    return np.broadcast_to(np.eye(size), (*x.shape[:-2], size, size))


def _from_svd(xp: Any, x: Any) -> Any:
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    return xp.matmul(u * xp.expand_dims(xp.astype(s, u.dtype), -2), vh), _gram(xp, u)


def _full_svd(xp: Any, x: Any) -> Any:
    u, _, vh = xp.linalg.svd(x)
    return _gram(xp, u), _gram(xp, vh)


def _from_eigh(xp: Any, x: Any) -> Any:
    values, vectors = xp.linalg.eigh(x)
    assert values.dtype is dtypes.real_of(x.dtype)
    scaled = vectors * xp.expand_dims(xp.astype(values, vectors.dtype), -2)
    return xp.matmul(scaled, xp.conj(xp.matrix_transpose(vectors)))


def _from_eig(xp: Any, x: Any) -> Any:
    values, vectors = xp.linalg.eig(x)
    return xp.matmul(xp.astype(x, vectors.dtype), vectors) - vectors * xp.expand_dims(values, -2)


def _small(x: Array) -> int:
    return int(min(x.shape[-2:]))


_FACTORISATIONS: Final = (
    _case("linalg.cholesky", lambda xp, x: xp.linalg.cholesky(x), np.linalg.cholesky,
          _positive_definite),
    _case("linalg.cholesky", lambda xp, x: xp.linalg.cholesky(x, upper=True),
          lambda x: np.conj(np.swapaxes(np.linalg.cholesky(x), -1, -2)), _positive_definite,
          label="upper"),
    _case("linalg.det", lambda xp, x: xp.linalg.det(x), np.linalg.det, _SQUARE),
    _case("linalg.slogdet", lambda xp, x: tuple(xp.linalg.slogdet(x * np.nan)),
          lambda x: (np.full(x.shape[:-2], np.nan),) * 2, _SQUARE, label="nan",
          result=lambda dtype: None),
    _case("linalg.slogdet", lambda xp, x: tuple(xp.linalg.slogdet(x)),
          lambda x: tuple(np.linalg.slogdet(x)), _SQUARE, result=lambda dtype: None),
    _case("linalg.inv", lambda xp, x: xp.linalg.inv(x), np.linalg.inv, _SQUARE),
    _case("linalg.solve", lambda xp, a, b: xp.linalg.solve(a, b), _solve, _systems),
    _case("linalg.qr", _from_qr, lambda x: (x, np.zeros((*x.shape[:-2], _small(x), x.shape[-1])),
          _identities(x, _small(x))), _TALL),
    _case("linalg.qr", lambda xp, x: _gram(xp, xp.linalg.qr(x, mode="complete").Q),
          lambda x: _identities(x, x.shape[-2]), _TALL, label="complete"),
    _case("linalg.svd", _from_svd, lambda x: (x, _identities(x, _small(x))), _TALL),
    _case("linalg.svd", _full_svd,
          lambda x: (_identities(x, x.shape[-2]), _identities(x, x.shape[-1])), _TALL,
          label="full"),
    _case("linalg.svdvals", lambda xp, x: xp.linalg.svdvals(x), np.linalg.svdvals, _TALL,
          result=_real),
    _case("linalg.eigh", _from_eigh, lambda x: x, _positive_definite),
    _case("linalg.eigvalsh", lambda xp, x: xp.linalg.eigvalsh(x), np.linalg.eigvalsh,
          _positive_definite, result=_real),
    _case("linalg.eig", _from_eig, lambda x: np.zeros_like(x), _well_conditioned((3, 3), (2, 4, 4)),
          result=_complex, ulps=4000),
    _case("linalg.eigvals", lambda xp, x: xp.linalg.det(x) - xp.real(xp.prod(
        xp.linalg.eigvals(x), axis=-1)) if not x.dtype.is_complex else xp.linalg.det(x) - xp.prod(
        xp.linalg.eigvals(x), axis=-1), lambda x: np.zeros(x.shape[:-2]),
        _well_conditioned((3, 3), (2, 3, 3)), result=lambda dtype: dtype, ulps=40000),
    _case("linalg.pinv", lambda xp, x: xp.linalg.pinv(x), np.linalg.pinv, _TALL, ulps=4000),
    _case("linalg.matrix_rank", lambda xp, x: xp.linalg.matrix_rank(x),
          np.linalg.matrix_rank, lambda dtype: [
              (np.array([[1, 2], [2, 4]], dtype.numpy),), (np.eye(3, 4).astype(dtype.numpy),),
              (np.zeros((2, 2, 2), dtype.numpy),)], result=_index),
)  # fmt: skip


def _norm_case(ord: Any) -> Case:
    return _case("linalg.matrix_norm", lambda xp, x: xp.linalg.matrix_norm(x, ord=ord),
                 lambda x: np.linalg.matrix_norm(x, ord=ord), _TALL, result=_real,
                 label=str(ord))  # fmt: skip


def _vector_norm_case(ord: Any) -> Case:
    return _case("linalg.vector_norm",
                 lambda xp, x: xp.linalg.vector_norm(x, axis=(0, -1), ord=ord, keepdims=True),
                 lambda x: np.linalg.vector_norm(x, axis=(0, -1), ord=ord, keepdims=True),
                 _of((2, 3, 4)), accepted("linalg.vector_norm")[-6:], law("linalg.vector_norm"),
                 label=str(ord))  # fmt: skip


LINEAR_ALGEBRA: Final[tuple[Case, ...]] = (
    *_PRODUCTS,
    *_FACTORISATIONS,
    *map(_norm_case, ("fro", "nuc", 1, -1, 2, -2, float("inf"), float("-inf"))),
    *map(_vector_norm_case, (2, 1, 0, 3, float("inf"), float("-inf"))),
)


# --- Fourier ---------------------------------------------------------------------------------

_REALS: Final = (dtypes.float32, dtypes.float64)


def _line(op: str, over: tuple[DType, ...]) -> list[Case]:
    reference = getattr(np.fft, op)
    options: tuple[dict[str, Any], ...] = (
        {},
        {"n": 5, "axis": 0, "norm": "ortho"},
        {"n": 3, "norm": "forward"},
    )
    return [
        _case(
            f"fft.{op}",
            lambda xp, x, how=how: getattr(xp.fft, op)(x, **how),
            lambda x, how=how: reference(x, **how),
            _of((3, 4), (5,)) if "axis" not in how else _of((3, 4)),
            over,
            law(f"fft.{op}"),
            label="-".join(map(str, how.values())),
        )
        for how in options
    ]


def _box(op: str, over: tuple[DType, ...]) -> list[Case]:
    reference = getattr(np.fft, op)
    options: tuple[dict[str, Any], ...] = (
        {} if op.endswith("2") else {"axes": (0, 1, 2)},
        {"s": (2, 6), "axes": (0, 2), "norm": "ortho"},
    )
    return [
        _case(
            f"fft.{op}",
            lambda xp, x, how=how: getattr(xp.fft, op)(x, **how),
            lambda x, how=how: reference(x, **how),
            _of((3, 4, 5)),
            over,
            law(f"fft.{op}"),
            label="-".join(map(str, how)),
        )
        for how in options
    ]


FOURIER: Final[tuple[Case, ...]] = (
    *(c for op in ("fft", "ifft", "irfft", "hfft") for c in _line(op, _LINALG)),
    *(c for op in ("rfft", "ihfft") for c in _line(op, _REALS)),
    *(c for op in ("fftn", "ifftn", "irfftn") for c in _box(op, _LINALG)),
    *(c for op in ("fft2", "ifft2", "irfft2") for c in _box(op, _LINALG)),
    *(c for op in ("rfftn", "rfft2") for c in _box(op, _REALS)),
    _case("fft.fftfreq", lambda xp: xp.fft.fftfreq(5, d=0.5), lambda: np.fft.fftfreq(5, 0.5),
          lambda dtype: [()], (dtypes.float32,)),
    _case("fft.rfftfreq", lambda xp: xp.fft.rfftfreq(5, d=0.5), lambda: np.fft.rfftfreq(5, 0.5),
          lambda dtype: [()], (dtypes.float32,)),
    _case("fft.fftshift", lambda xp, x: xp.fft.fftshift(x), np.fft.fftshift, _of((3, 4), (5,)),
          dtypes.ALL),
    _case("fft.ifftshift", lambda xp, x: xp.fft.ifftshift(x, axes=0),
          lambda x: np.fft.ifftshift(x, axes=0), _of((3, 4), (5,)), dtypes.ALL),
)  # fmt: skip
