"""Gradients of the elementwise functions of the standard."""

from __future__ import annotations

from typing import Any

from ember_ml import ops
from ember_ml.autodiff.rules.shapes import summed_to
from ember_ml.autodiff.rules.table import rule
from ember_ml.ops.dispatch import binary, unary
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


def _conj(x: Tensor) -> Tensor:
    return ops.conj(x) if x.dtype.is_complex else x


def _add1(g: Tensor, y: Any, a: Any, b: Any) -> Tensor:
    return summed_to(g, a)


def _add2(g: Tensor, y: Any, a: Any, b: Any) -> Tensor:
    return summed_to(g, b)


def _subtract2(g: Tensor, y: Any, a: Any, b: Any) -> Tensor:
    return summed_to(unary("negative", g), b)


def _multiply1(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    return summed_to(binary("multiply", g, _conj(b)), a)


def _multiply2(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    return summed_to(binary("multiply", g, _conj(a)), b)


rule("add", _add1, _add2, inputs=False)
rule("subtract", _add1, _subtract2, inputs=False)
rule("multiply", _multiply1, _multiply2)
rule("negative", lambda g, y, x: -g, inputs=False)
rule("exp", lambda g, y, x: g * _conj(y), inputs=False, output=True)
rule("tanh", lambda g, y, x: g * _conj(1 - y * y), inputs=False, output=True)
