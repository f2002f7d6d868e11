"""The parts of networks as nodes that ONNX Runtime is quick at.

What is not here is made of smaller steps, as on engines that lack it: see backend/portable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ember_ml.graph.tracing import carriers
from ember_ml.graph.tracing.elementwise import choose, number
from ember_ml.graph.tracing.linearalg import product
from ember_ml.graph.tracing.moving import expanded, permuted, reshaped
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.sizes import Size, sizes_in
from ember_ml.graph.tracing.trace import constant, current, emit, emit_many

__all__ = ["EMITTERS"]

Sides = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
Emitter = Callable[..., Any]

# As ONNX writes the constants of SELU; its own defaults are rounded.
_SELU_SCALE: Final = 1.0507009873554804934193349852946
_SELU_ALPHA: Final = 1.6732632423543772848170429916717


# --- Activations --------------------------------------------------------------------------------


def _simple(op: str, **attributes: Any) -> Emitter:
    def run(eager: Any, x: Operand) -> Any:
        if not carriers.takes(op, x.dtype) and x.dtype == np.float64:
            return NotImplemented
        return emit(op, [x], eager(x), shape=x.shape, **attributes)

    return run


def _with(op: str, attribute: str) -> Emitter:
    def run(eager: Any, x: Operand, value: float) -> Any:
        if not carriers.takes(op, x.dtype) and x.dtype == np.float64:
            return NotImplemented
        given: dict[str, Any] = {attribute: float(value)}
        return emit(op, [x], eager(x, value), shape=x.shape, **given)

    return run


def celu(eager: Any, x: Operand, alpha: float) -> Any:
    if x.dtype != np.float32:
        return NotImplemented
    return emit("Celu", [x], eager(x, alpha), shape=x.shape, alpha=float(alpha))


def softplus(eager: Any, x: Operand, beta: float, limit: float) -> Any:
    # Beyond the limit it is x itself, which float32 cannot tell from the logarithm above 20.
    if beta != 1 or limit < 20 or x.dtype == np.float64:
        return NotImplemented
    return emit("Softplus", [x], eager(x, beta, limit), shape=x.shape)


def gelu(eager: Any, x: Operand, tanh: bool) -> Any:
    if x.dtype == np.float64:
        return NotImplemented
    how = "tanh" if tanh else "none"
    return emit("Gelu", [x], eager(x, tanh), shape=x.shape, approximate=how)


def _along(op: str) -> Emitter:
    def run(eager: Any, x: Operand, axis: int) -> Any:
        if not x.ndim or 0 in [int(side) for side in x.shape]:
            return NotImplemented
        if op == "LogSoftmax" and x.dtype == np.float64:
            return NotImplemented  # ONNX Runtime makes numbers of NaN and of infinity there
        return emit(op, [x], eager(x, axis), shape=x.shape, axis=axis % x.ndim)

    return run


def prelu(eager: Any, x: Operand, weight: Operand) -> Any:
    if x.dtype == np.float64:
        return NotImplemented
    if x.ndim > 1:
        weight = reshaped(weight, (-1, *(1,) * (x.ndim - 2)))
    elif not x.ndim:
        weight = reshaped(weight, ())
    out = np.where(x.shadow > 0, x.shadow, x.shadow * weight.shadow)
    return emit("PRelu", [x, weight], out, shape=x.shape)


# --- Linear maps and norms ----------------------------------------------------------------------


def linear(eager: Any, x: Operand, weight: Operand, bias: Operand | None) -> Any:
    if x.ndim == 2 and bias is not None and carriers.takes("Gemm", x.dtype):
        shape = (x.shape[0], weight.shape[0])
        return emit("Gemm", [x, weight, bias], eager(x, weight, bias), shape=shape, transB=1)
    out = product(x, permuted(weight, (1, 0)))
    return out if bias is None else out + bias


def layer_norm(
    eager: Any, x: Operand, weight: Operand | None, bias: Operand | None, ndim: int, eps: float
) -> Any:
    if not carriers.takes("LayerNormalization", x.dtype) or 0 in [int(s) for s in x.shape]:
        return NotImplemented
    scale: Any = weight
    if weight is None:
        scale = expanded(constant(np.ones((), x.dtype)), x.shape[x.ndim - ndim :])
    out = eager(x, weight, bias, ndim, eps)
    inputs = [x, scale] if bias is None else [x, scale, bias]
    return emit("LayerNormalization", inputs, out, shape=x.shape, axis=-ndim, epsilon=float(eps))


def batch_norm(
    eager: Any,
    x: Operand,
    mean: Operand,
    variance: Operand,
    weight: Operand | None,
    bias: Operand | None,
    eps: float,
) -> Any:
    if x.dtype != np.float32 or x.ndim < 2:
        return NotImplemented
    channels = x.shape[1]
    scale = constant(np.ones(int(channels), x.dtype)) if weight is None else weight
    shift = constant(np.zeros(int(channels), x.dtype)) if bias is None else bias
    out = eager(x, mean, variance, weight, bias, eps)
    inputs = [x, scale, shift, mean, variance]
    return emit("BatchNormalization", inputs, out, shape=x.shape, epsilon=float(eps))


def attention(
    eager: Any,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    causal: bool,
    scale: float,
    groups: int,
) -> Any:
    """Without a mask every row sees a key, and weights are one Softmax."""
    if mask is not None or groups != 1 or 0 in [int(s) for s in (*query.shape, *key.shape)]:
        if not causal or not any(type(s) is Size for s in (query.shape[-2], key.shape[-2])):
            return NotImplemented
        mask = _causal(query, key) if mask is None else mask
        if mask.dtype == np.bool_ and mask is not None:
            return _masked(query, key, value, mask & _causal(query, key), scale, groups)
        return NotImplemented
    axes = (*range(key.ndim - 2), key.ndim - 1, key.ndim - 2)
    scores = product(query * scale, permuted(key, axes))
    if causal:
        scores = choose(_causal(query, key), scores, number(-math.inf, scores))
    out = np.exp(scores.shadow - scores.shadow.max(-1, keepdims=True))
    out = (out / out.sum(-1, keepdims=True)).astype(scores.dtype)
    return product(emit("Softmax", [scores], out, shape=scores.shape, axis=scores.ndim - 1), value)


def _masked(
    query: Operand, key: Operand, value: Operand, mask: Operand, scale: float, groups: int
) -> Any:
    from ember_ml.backend.portable.attention import scaled_dot_product_attention
    from ember_ml.graph.tracing.backend import graph_backend

    return scaled_dot_product_attention(
        graph_backend().kernels, query, key, value, mask, False, scale, groups
    )


def _causal(query: Operand, key: Operand) -> Operand:
    rows, columns = query.shape[-2], key.shape[-2]
    if type(rows) is not Size and type(columns) is not Size:
        return constant(np.tri(rows, columns, dtype=bool))
    ones = expanded(constant(np.ones((), np.bool_)), (rows, columns))
    array = np.tri(int(rows), int(columns), dtype=bool)
    return emit("Trilu", [ones], array, shape=(rows, columns), upper=0)


# --- Windows ------------------------------------------------------------------------------------


def _lengths(spatial: Any, kernel: Sides, stride: Sides, pairs: Pairs, dilation: Sides) -> Sides:
    return tuple(
        (side + low + high - (size - 1) * gap - 1) // step + 1
        for side, size, step, (low, high), gap in zip(
            spatial, kernel, stride, pairs, dilation, strict=True
        )
    )


def _pads(pairs: Pairs) -> list[int]:
    return [int(low) for low, _ in pairs] + [int(high) for _, high in pairs]


def _first(x: Operand) -> Operand:
    return permuted(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def _last(x: Operand) -> Operand:
    return permuted(x, (0, *range(2, x.ndim), 1))


def conv(
    eager: Any,
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    groups: int,
    last: bool,
) -> Any:
    negative = any(side < 0 for pair in pairs for side in pair)
    if not carriers.takes("Conv", x.dtype) or negative or 0 in [int(s) for s in x.shape]:
        return NotImplemented
    inner = _first(x) if last else x
    kernel = tuple(weight.shape[2:])
    out = eager(inner, weight, bias, stride, pairs, dilation, groups, False)
    spatial = _lengths(inner.shape[2:], kernel, stride, pairs, dilation)
    made = emit(
        "Conv",
        [inner, weight] if bias is None else [inner, weight, bias],
        out,
        shape=(inner.shape[0], weight.shape[0], *spatial),
        kernel_shape=list(kernel),
        strides=list(stride),
        pads=_pads(pairs),
        dilations=list(dilation),
        group=groups,
    )
    return _last(made) if last else made


def conv_transpose(
    eager: Any,
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: Sides,
    pairs: Pairs,
    more: Sides,
    dilation: Sides,
    groups: int,
    last: bool,
) -> Any:
    negative = any(side < 0 for pair in pairs for side in pair)
    if not carriers.takes("ConvTranspose", x.dtype) or negative or 0 in [int(s) for s in x.shape]:
        return NotImplemented
    inner = _first(x) if last else x
    kernel = tuple(weight.shape[2:])
    wanted = more
    # An attribute cannot vary: the longest result is made, and cut to its size.
    more = tuple(step - 1 if type(m) is Size else m for m, step in zip(more, stride, strict=True))
    out = eager(inner, weight, bias, stride, pairs, more, dilation, groups, False)
    spatial = tuple(
        (side - 1) * step + (length - 1) * gap + 1 - low - high + extra
        for side, step, length, gap, (low, high), extra in zip(
            inner.shape[2:], stride, kernel, dilation, pairs, more, strict=True
        )
    )
    made = emit(
        "ConvTranspose",
        [inner, weight] if bias is None else [inner, weight, bias],
        out,
        shape=(inner.shape[0], weight.shape[1] * groups, *spatial),
        kernel_shape=list(kernel),
        strides=list(stride),
        pads=_pads(pairs),
        output_padding=list(more),
        dilations=list(dilation),
        group=groups,
    )
    if sizes_in(wanted):
        cut = [side - a + b for side, a, b in zip(spatial, more, wanted, strict=True)]
        made = _cut(made, cut)
    return _last(made) if last else made


def _cut(x: Operand, sides: Sequence[int]) -> Operand:
    """The first elements along each axis behind the channels."""
    array = x.shadow[(slice(None), slice(None), *(slice(0, int(side)) for side in sides))]
    axes = np.arange(2, x.ndim)
    given: list[Any] = [x, np.zeros_like(axes), current().sides(sides), axes]
    return emit("Slice", given, array, shape=(*x.shape[:2], *sides))


def max_pool(
    eager: Any,
    x: Operand,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    ceil: bool,
) -> Any:
    if ceil or not carriers.takes("MaxPool", x.dtype) or not _poolable(x, kernel, pairs):
        return NotImplemented
    spatial = _lengths(x.shape[2:], kernel, stride, pairs, dilation)
    return emit(
        "MaxPool",
        [x],
        eager(x, kernel, stride, pairs, dilation, ceil),
        shape=(*x.shape[:2], *spatial),
        kernel_shape=list(kernel),
        strides=list(stride),
        pads=_pads(pairs),
        dilations=list(dilation),
    )


def _poolable(x: Operand, kernel: Sides, pairs: Pairs) -> bool:
    """What ONNX Runtime takes: one to three axes, padding below the window, some elements."""
    fits = all(max(pair) < size for pair, size in zip(pairs, kernel, strict=True))
    return fits and 1 <= len(kernel) <= 3 and 0 not in [int(side) for side in x.shape]


def avg_pool(
    eager: Any,
    x: Operand,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    ceil: bool,
    include: bool,
) -> Any:
    if ceil or not carriers.takes("AveragePool", x.dtype) or not _poolable(x, kernel, pairs):
        return NotImplemented
    spatial = _lengths(x.shape[2:], kernel, stride, pairs, (1,) * len(kernel))
    return emit(
        "AveragePool",
        [x],
        eager(x, kernel, stride, pairs, ceil, include),
        shape=(*x.shape[:2], *spatial),
        kernel_shape=list(kernel),
        strides=list(stride),
        pads=_pads(pairs),
        count_include_pad=int(include),
    )


# --- Recurrent layers ---------------------------------------------------------------------------

# Ours are in the order of PyTorch; these are the places of ONNX's gates in it.
_GATES: Final = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "tanh": (0,), "relu": (0,)}
_NODES: Final = {"lstm": "LSTM", "gru": "GRU", "tanh": "RNN", "relu": "RNN"}


def recurrent(
    eager: Any, x: Operand, h0: Operand, c0: Operand | None, mask: Operand | None, *rest: Any
) -> Any:
    weights, kind = rest[:10], rest[10]
    directions = h0.shape[0]
    projected = weights[4] is not None or (directions == 2 and weights[9] is not None)
    if mask is not None or projected or x.dtype != np.float32 or 0 in [int(s) for s in x.shape]:
        return NotImplemented
    gates, size = _GATES[kind], weights[1].shape[-1]
    own = [weights[5 * i : 5 * i + 5] for i in range(directions)]
    w = _stacked([_ordered(one[0], gates, size) for one in own])
    r = _stacked([_ordered(one[1], gates, size) for one in own])
    biases = None
    if own[0][2] is not None or own[0][3] is not None:
        zeros = constant(np.zeros(len(gates) * size, x.dtype))
        both = []
        for one in own:
            pair = [zeros if b is None else _ordered(b, gates, size) for b in one[2:4]]
            both.append(_joined(pair))
        biases = _stacked(both)
    out, h, c, _ = eager(x, h0, c0, mask, *rest)
    steps, batch = x.shape[:2]
    y = np.moveaxis(out.reshape(*out.shape[:2], directions, size), 2, 1)
    inputs = [x, w, r, biases, None, h0]
    outs, shapes = [y, h], [(steps, directions, batch, size), (directions, batch, size)]
    if kind == "lstm":
        inputs.append(c0)
        outs.append(c)
        shapes.append((directions, batch, size))
    made = emit_many(
        _NODES[kind],
        inputs,
        outs,
        shapes=shapes,
        hidden_size=size,
        direction="bidirectional" if directions == 2 else "forward",
        linear_before_reset=1 if kind == "gru" else None,
        activations=["Relu"] * directions if kind == "relu" else None,
    )
    turned = permuted(made[0], (0, 2, 1, 3))
    result = reshaped(turned, (steps, batch, directions * size))
    return result, made[1], made[2] if kind == "lstm" else None, None


def _ordered(x: Operand, gates: tuple[int, ...], size: int) -> Operand:
    if gates == tuple(range(len(gates))):
        return x
    return _joined([x[gate * size : (gate + 1) * size] for gate in gates])


def _joined(parts: list[Operand]) -> Operand:
    from ember_ml.graph.tracing.moving import concat

    return concat(parts, 0)


def _stacked(parts: list[Operand]) -> Operand:
    from ember_ml.graph.tracing.moving import concat, unsqueezed

    wide = [unsqueezed(part, [0]) for part in parts]
    return wide[0] if len(wide) == 1 else concat(wide, 0)


def recurrent_grad(eager: Any, *args: Any) -> Any:
    """By the steps one after the other on our tape, whose rules become nodes."""
    from ember_ml.autodiff import backward, tape
    from ember_ml.autodiff.rules.recurrent import _OPS
    from ember_ml.backend.portable import recurrent as portable
    from ember_ml.graph.tracing.backend import graph_backend
    from ember_ml.tensor.core import GradTensor, fill

    backend, count = graph_backend(), portable.ARRAYS
    spec = backend.spec_of(args[0])
    operands: list[Any] = [
        x
        if x is None
        else (tape.alias if x.dtype == spec.dtype.numpy else fill)(x, backend.spec_of(x))
        for x in args[:count]
    ]
    with tape.set_grad_enabled(True):
        results = portable.recurrent(_OPS, *operands, args[count + 3], False)[:3]
    seeds = {
        result._node: fill(g, spec)
        for result, g in zip(results, args[count : count + 3], strict=False)
        if g is not None and type(result) is GradTensor
    }
    found = backward.pull_back(seeds, retain=False)
    made = [found.get(x._node) if type(x) is GradTensor else None for x in operands]
    return [None if x is None else x.native for x in made]


EMITTERS: Final[dict[str, Emitter]] = {
    "relu": _simple("Relu"),
    "sigmoid": _simple("Sigmoid"),
    "softsign": _simple("Softsign"),
    "mish": _simple("Mish"),
    "hard_swish": _simple("HardSwish"),
    "hard_sigmoid": _simple("HardSigmoid", alpha=1 / 6, beta=0.5),
    "selu": _simple("Selu", alpha=_SELU_ALPHA, gamma=_SELU_SCALE),
    "elu": _with("Elu", "alpha"),
    "leaky_relu": _with("LeakyRelu", "alpha"),
    "celu": celu,
    "softplus": softplus,
    "gelu": gelu,
    "softmax": _along("Softmax"),
    "log_softmax": _along("LogSoftmax"),
    "prelu": prelu,
    "linear": linear,
    "layer_norm": layer_norm,
    "batch_norm": batch_norm,
    "scaled_dot_product_attention": attention,
    "conv": conv,
    "conv_transpose": conv_transpose,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "recurrent": recurrent,
    "recurrent_grad": recurrent_grad,
}
