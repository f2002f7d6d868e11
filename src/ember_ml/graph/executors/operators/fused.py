"""Operators of ONNX Runtime's own domain, which its optimiser puts into models."""

from __future__ import annotations

from typing import Any

from ember_ml import ops
from ember_ml.errors import UnsupportedOpError
from ember_ml.graph.executors.operators.arithmetic import gemm
from ember_ml.graph.executors.operators.convolution import convolved
from ember_ml.graph.executors.operators.normalization import layer_normalized, rms_normalized
from ember_ml.graph.executors.operators.registry import operator
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

_DOMAIN = "com.microsoft"


@operator("Gelu", 1, domain=_DOMAIN)
def gelu(x: Tensor) -> Tensor:
    return ops.gelu(x)


@operator("BiasGelu", 1, domain=_DOMAIN)
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return ops.gelu(ops.add(x, bias))


@operator("FastGelu", 1, domain=_DOMAIN)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return ops.gelu(x if bias is None else ops.add(x, bias), "tanh")


@operator("QuickGelu", 1, domain=_DOMAIN)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return ops.multiply(x, ops.sigmoid(ops.multiply(x, alpha)))


@operator("FusedMatMul", 1, domain=_DOMAIN)
def fused_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # ONNX Runtime's names
    transB: int = 0,
) -> Tensor:
    left = ops.matrix_transpose(a) if transA and a.ndim > 1 else a
    right = ops.matrix_transpose(b) if transB and b.ndim > 1 else b
    made = ops.matmul(left, right)
    return made if alpha == 1.0 else ops.multiply(made, alpha)


@operator("LayerNormalization", 1)
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> tuple[Tensor, ...]:
    """ONNX Runtime puts this into models of opsets below 17 under ONNX's own name."""
    return layer_normalized(x, scale, b, axis, epsilon)[:outputs]


@operator("SimplifiedLayerNormalization", 1)
def simplified_layer_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Tensor, Tensor]:
    return rms_normalized(x, scale, axis, epsilon)


@operator("SkipLayerNormalization", 1, domain=_DOMAIN)
def skip_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = ops.add(x, skip)
    if bias is not None:
        total = ops.add(total, bias)
    return (*layer_normalized(total, gamma, beta, -1, epsilon), total)


@operator("SkipSimplifiedLayerNormalization", 1, domain=_DOMAIN)
def skip_simplified_layer_normalization(
    x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = ops.add(x, skip)
    if bias is not None:
        total = ops.add(total, bias)
    made, inverse = rms_normalized(total, gamma, -1, epsilon)
    return made, inverse, inverse, total


# --- With an activation behind ------------------------------------------------------------------


def _activated(x: Tensor, name: str, numbers: Any) -> Tensor:
    """What a fused activation makes of a result; its numbers are in the order of its attributes."""
    given = list(numbers or [])
    if name == "Relu":
        return ops.relu(x)
    if name == "Tanh":
        return ops.tanh(x)
    if name == "Sigmoid":
        return ops.sigmoid(x)
    if name == "LeakyRelu":
        return ops.leaky_relu(x, *given)
    if name == "Clip":
        return ops.clip(x, *given)
    if name == "HardSigmoid":
        alpha, beta = given or (0.2, 0.5)
        return ops.clip(ops.add(ops.multiply(x, alpha), beta), 0, 1)
    raise UnsupportedOpError(f"the ops executor has no fused activation '{name}'")


@operator("FusedConv", 1, domain=_DOMAIN)
def fused_conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: Any = None,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    made = convolved(x, w, b, auto_pad, dilations, group, pads, strides)
    if z is not None:
        made = ops.add(made, z)
    return _activated(made, activation, activation_params) if activation else made


@operator("FusedGemm", 1, domain=_DOMAIN)
def fused_gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    made = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    numbers = [v for v in (activation_alpha, activation_beta, activation_gamma) if v is not None]
    return _activated(made, activation, numbers) if activation else made
