"""Activations that torch computes in one pass."""

from __future__ import annotations

from typing import Final

import torch
from torch.nn import functional

from ember_ml.backend.contract import Kernel

__all__ = ["KERNELS"]

Tensor = torch.Tensor


def gelu(x: Tensor, tanh: bool) -> Tensor:
    return functional.gelu(x, approximate="tanh" if tanh else "none")


def softmax(x: Tensor, axis: int) -> Tensor:
    return torch.softmax(x, axis)


def log_softmax(x: Tensor, axis: int) -> Tensor:
    return torch.log_softmax(x, axis)


def softsign(x: Tensor) -> Tensor:
    return x / (x.abs() + 1)


def swiglu(x: Tensor, axis: int) -> Tensor:
    value, gate = x.chunk(2, axis)
    return value * functional.silu(gate)


def geglu(x: Tensor, axis: int, tanh: bool) -> Tensor:
    value, gate = x.chunk(2, axis)
    return value * gelu(gate, tanh)


KERNELS: Final[dict[str, Kernel]] = {
    "celu": functional.celu,
    "elu": functional.elu,
    "geglu": geglu,
    "gelu": gelu,
    "glu": functional.glu,
    "hard_shrink": functional.hardshrink,
    "hard_sigmoid": functional.hardsigmoid,
    "hard_swish": functional.hardswish,
    "hard_tanh": functional.hardtanh,
    "leaky_relu": functional.leaky_relu,
    "log_sigmoid": functional.logsigmoid,
    "log_softmax": log_softmax,
    "mish": functional.mish,
    "prelu": functional.prelu,
    "relu": torch.relu,
    "relu6": functional.relu6,
    "selu": torch.selu,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "soft_shrink": functional.softshrink,
    "softmax": softmax,
    "softplus": functional.softplus,
    "softsign": softsign,
    "swiglu": swiglu,
    "tanhshrink": functional.tanhshrink,
    "threshold": functional.threshold,
}
