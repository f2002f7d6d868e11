"""Factorisations and triangular systems in torch's words."""

from __future__ import annotations

from typing import Any, Final

import torch

from ember_ml.backend.contract import Kernel
from ember_ml.backend.torch.tracing import readable
from ember_ml.errors import LinAlgError

__all__ = ["OVERRIDES"]

Tensor = torch.Tensor


def solve_triangular(a: Tensor, b: Tensor, lower: bool, unit: bool) -> Any:
    return torch.linalg.solve_triangular(a, b, upper=not lower, unitriangular=unit)


def lu_factor(x: Tensor) -> tuple[Tensor, Tensor]:
    if readable(x) and not bool(torch.isfinite(x).all()):
        raise LinAlgError("ops.linalg.lu_factor takes finite numbers, not NaN or infinity")
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


OVERRIDES: Final[dict[str, Kernel]] = {
    **{
        f"linalg.{kernel.__name__}": kernel
        for kernel in (solve_triangular, lu_factor, permutation_of_pivots)
    },
    "linalg.expm": torch.linalg.matrix_exp,
}
