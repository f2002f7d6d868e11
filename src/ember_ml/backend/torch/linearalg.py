"""Factorisations and triangular systems in torch's words."""

from __future__ import annotations

from typing import Any, Final

import torch

from ember_ml.backend.contract import Kernel
from ember_ml.backend.torch.tracing import readable
from ember_ml.errors import LinAlgError

__all__ = ["OVERRIDES"]

Tensor = torch.Tensor


def _require_finite(name: str, x: Tensor) -> None:
    if readable(x) and not bool(torch.isfinite(x).all()):
        raise LinAlgError(f"ops.linalg.{name} takes finite numbers, not NaN or infinity")


def solve_triangular(a: Tensor, b: Tensor, lower: bool, unit: bool) -> Any:
    return torch.linalg.solve_triangular(a, b, upper=not lower, unitriangular=unit)


def lu_factor(x: Tensor) -> tuple[Tensor, Tensor]:
    _require_finite("lu_factor", x)
    # lu_factor itself refuses singular matrices, whose factors are well defined.
    both, pivots, _ = torch.linalg.lu_factor_ex(x)
    return both, pivots.to(torch.int64) - 1  # LAPACK counts rows from one


def permutation_of_pivots(pivots: Tensor, rows: int) -> Tensor:
    shape = (*pivots.shape[:-1], rows, pivots.shape[-1])
    like = torch.empty((), device=pivots.device).expand(shape)
    swaps = (pivots + 1).to(torch.int32)
    matrix, _, _ = torch.lu_unpack(like, swaps, unpack_data=False)
    places = torch.arange(rows, device=pivots.device, dtype=matrix.dtype)
    return torch.sum(matrix * places[:, None], -2).to(torch.int64)


def euclidean(x: Tensor, *, axis: Any = None, keepdims: bool = False) -> Any:
    return torch.linalg.vector_norm(x, 2, axis, keepdims)


# --- Gradients: see autodiff/rules/linearalg.py for the conventions -----------------------------


def _differentiated(x: Tensor) -> bool:
    return x.requires_grad and torch.is_grad_enabled()


def eigh(x: Tensor) -> Any:
    _require_finite("eigh", x)
    if _differentiated(x):
        # Half of x is read; without this, the gradient would not be symmetric.
        even = (x + x.mH) * 0.5
        x = x.detach() + (even - even.detach())
    return torch.linalg.eigh(x)


class _Determinant(torch.autograd.Function):
    """torch's own gives zero for the gradient of most singular matrices; here it is cofactors."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Any:
        return torch.linalg.det(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        singular, side = (y == 0)[..., None, None], x.shape[-1]
        regular = torch.where(singular, torch.eye(side, dtype=x.dtype, device=x.device), x)
        by_inverse = (y[..., None, None] * torch.linalg.inv(regular)).mH
        # Of others, products of all singular values but one.
        distinct = torch.arange(side, 0, -1, device=x.device).to(x.dtype).diag()
        u, s, vh = torch.linalg.svd(torch.where(singular, x, distinct))
        one = torch.eye(side, dtype=torch.bool, device=x.device)
        left_out = torch.where(one, 1, s[..., None, :]).prod(-1)
        turn = (torch.linalg.det(u) * torch.linalg.det(vh)).conj()[..., None, None]
        found = turn * ((u * left_out[..., None, :]) @ vh)
        return grads[0][..., None, None] * torch.where(singular, found, by_inverse)


def det(x: Tensor) -> Any:
    if not _differentiated(x) or not x.numel():
        return torch.linalg.det(x)
    if readable(x):
        out = torch.linalg.det(x)
        if bool((out != 0).all()):
            return out
    return _Determinant.apply(x)  # type: ignore[no-untyped-call]  # torch leaves it untyped


def pinv(x: Tensor, rtol: Any) -> Any:
    _require_finite("pinv", x)
    return torch.linalg.pinv(x, rtol=rtol)


def svd(x: Tensor, full_matrices: bool) -> Any:
    _require_finite("svd", x)
    u, s, vh = torch.linalg.svd(x, full_matrices)
    if full_matrices and _differentiated(x):
        side = s.shape[-1]
        u = _completed(u[..., :side], u[..., side:])
        vh = _completed(vh[..., :side, :].mH, vh[..., side:, :].mH).mH
    return u, s, vh


def qr(x: Tensor, mode: str) -> Any:
    side = x.shape[-1]
    if mode == "complete" and x.shape[-2] > side and _differentiated(x):
        q, r = torch.linalg.qr(x)
        whole, below = torch.linalg.qr(x.detach(), mode)
        return _completed(q, whole[..., side:]), torch.cat([r, below[..., side:, :]], -2)
    return torch.linalg.qr(x, mode)


def _completed(own: Tensor, rest: Tensor) -> Tensor:
    """A basis with columns that torch would leave without a gradient: they stay at right angles."""
    if not rest.shape[-1]:
        return own
    rest = rest.detach()
    mixed = own.mH @ rest  # zero, and its derivative is not
    moved = rest - own @ mixed + 0.5 * (rest @ (mixed.mH @ mixed))
    return torch.cat([own, moved], -1)


OVERRIDES: Final[dict[str, Kernel]] = {
    **{
        f"linalg.{kernel.__name__}": kernel
        for kernel in (solve_triangular, lu_factor, permutation_of_pivots)
    },
    **{f"linalg.{kernel.__name__}": kernel for kernel in (det, euclidean, eigh, pinv, qr, svd)},
    "linalg.expm": torch.linalg.matrix_exp,
}
