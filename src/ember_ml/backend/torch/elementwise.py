"""Element-wise kernels where torch's own miss a value of the standard, by kind of dtype."""

from __future__ import annotations

from typing import Final

import torch

from ember_ml.backend.contract import Kernel
from ember_ml.backend.torch.tracing import readable
from ember_ml.errors import DomainError

__all__ = ["BY_KIND"]

Tensor = torch.Tensor


# --- Real numbers -----------------------------------------------------------------------------


def sign(x: Tensor) -> Tensor:
    return torch.where(torch.isnan(x), x, torch.sign(x))  # torch gives 0 for NaN


def imag_of_real(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


# --- Integers ---------------------------------------------------------------------------------


def pow(x: Tensor, y: Tensor) -> Tensor:
    if readable(y) and bool((y < 0).any()):
        raise DomainError("ops.pow takes no negative integer exponents for integers; cast to float")
    return torch.pow(x, y)


# --- Complex numbers --------------------------------------------------------------------------


def real(x: Tensor) -> Tensor:
    return torch.real(x).clone()  # a tensor of its own, as on every backend


def imag(x: Tensor) -> Tensor:
    return torch.imag(x).clone()


def round_complex(x: Tensor) -> Tensor:
    return torch.complex(torch.round(x.real), torch.round(x.imag))


_EXACT: Final[dict[str, Kernel]] = {
    "conj": torch.clone,
    "real": torch.clone,
    "imag": imag_of_real,
}
_INTEGERS: Final[dict[str, Kernel]] = {**_EXACT, "pow": pow}

BY_KIND: Final[dict[str, dict[str, Kernel]]] = {
    "bool": {},
    "signed integer": _INTEGERS,
    "unsigned integer": _INTEGERS,
    "real floating": {**_EXACT, "sign": sign},
    "complex floating": {
        # torch.conj only notes the sign, which other engines cannot read.
        "conj": torch.conj_physical,
        "real": real,
        "imag": imag,
        "round": round_complex,
        "sign": torch.sgn,
    },
}
