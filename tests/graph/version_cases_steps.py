"""Recurrence, quantisation and signals in older forms, and ONNX Runtime's fused operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tests.graph.version_cases import VersionCase

__all__ = ["STEP_CASES"]

_rng = np.random.default_rng(13)
_MS = "com.microsoft"


def _f(*shape: int) -> Any:
    return _rng.standard_normal(shape).astype(np.float32)


def _i(*values: int) -> Any:
    return np.array(values, np.int64)


_IMAGE = _f(1, 2, 5, 6)


def _recurrent() -> Iterator[VersionCase]:
    steps, batch, size, hidden = 3, 2, 2, 2
    x = _f(steps, batch, size)
    for op, gates, state in (("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)):
        for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            w = _f(count, gates * hidden, size)
            r = _f(count, gates * hidden, hidden)
            b = _f(count, 2 * gates * hidden)
            h = _f(count, batch, hidden)
            inputs: tuple[Any, ...] = (x, w, r, b, None, h)
            outputs = ("float32",) * (1 + state)
            attributes = {"hidden_size": hidden, "direction": direction}
            yield VersionCase(op, 7, direction, inputs, (), outputs, attributes)
            if op == "GRU":
                after = {**attributes, "linear_before_reset": 1}
                yield VersionCase(op, 7, f"linear-{direction}", inputs, (), outputs, after)
        lengths = np.array([2, 3], np.int32)
        yield VersionCase(op, 7, "lengths", (x, w, r, b, lengths, h), (), outputs, attributes)
        back = {**attributes, "direction": "reverse"}
        one = (x, w[1:], r[1:], b[1:], lengths, h[1:])
        yield VersionCase(op, 7, "lengths-reverse", one, (), outputs, back)
    w, r, b = _f(1, 6, size), _f(1, 6, hidden), _f(1, 12)
    yield VersionCase(
        "GRU",
        7,
        "linear",
        (x, w, r, b),
        (),
        ("float32",) * 2,
        {"hidden_size": hidden, "linear_before_reset": 1},
    )
    yield VersionCase(
        "GRU",
        7,
        "functions",
        (x, w, r, b),
        (),
        ("float32",) * 2,
        {
            "hidden_size": hidden,
            "activations": ["HardSigmoid", "Softsign"],
            "activation_alpha": [0.3],
            "activation_beta": [0.4],
            "clip": 0.5,
        },
    )
    w, r, b = _f(1, 8, size), _f(1, 8, hidden), _f(1, 16)
    peeps = _f(1, 6)
    yield VersionCase(
        "LSTM",
        7,
        "peepholes",
        (x, w, r, b, None, None, None, peeps),
        (),
        ("float32",) * 3,
        {"hidden_size": hidden, "clip": 0.8},
    )
    yield VersionCase(
        "LSTM",
        7,
        "coupled",
        (x, w, r, b),
        (),
        ("float32",) * 3,
        {"hidden_size": hidden, "input_forget": 1},
    )


def _quantized() -> Iterator[VersionCase]:
    x = (_f(2, 3) * 40).astype(np.float32)
    scale = np.array([0.5, 1.0, 2.0], np.float32)
    zero = np.array([0, 10, 128], np.uint8)
    yield VersionCase("QuantizeLinear", 13, "axis", (x, scale, zero), (), ("uint8",), {"axis": 1})
    yield VersionCase("QuantizeLinear", 19, "all", (x, np.float32(0.7), np.int8(-5)), (), ("int8",))
    yield VersionCase(
        "QuantizeLinear",
        13,
        "halves",
        (np.array([0.5, 1.5, -2.5], np.float32), np.float32(1)),
        (),
        ("uint8",),
    )
    yield VersionCase(
        "QuantizeLinear",
        21,
        "int4",
        (x, np.float32(4), ml_dtypes.int4(1) * np.ones((), ml_dtypes.int4)),
        (1, 2),
        ("int4",),
        oracle="reference",
    )
    codes = np.array([[1, 200, 3], [255, 0, 6]], np.uint8)
    yield VersionCase("DequantizeLinear", 13, "axis", (codes, scale, zero), attributes={"axis": 1})
    yield VersionCase("DequantizeLinear", 19, "all", (codes, np.float32(0.3), np.uint8(7)))
    yield VersionCase(
        "DequantizeLinear", 13, "int32", (np.array([7, -9], np.int32), np.float32(0.5))
    )
    nibbles = np.arange(-8, 8).reshape(4, 4).astype(ml_dtypes.int4)
    yield VersionCase(
        "DequantizeLinear",
        21,
        "blocks",
        (nibbles, np.abs(_f(2, 4))),
        (0, 1),
        attributes={"axis": 0, "block_size": 2},
    )
    yield VersionCase(
        "DynamicQuantizeLinear", 11, "values", (x,), (), ("uint8", "float32", "uint8")
    )
    a, b = codes, np.arange(6, dtype=np.uint8).reshape(3, 2)
    yield VersionCase(
        "MatMulInteger", 10, "zeros", (a, b, np.uint8(3), np.uint8(1)), (), ("int32",)
    )
    image = np.arange(18, dtype=np.uint8).reshape(1, 2, 3, 3)
    filters = np.arange(16, dtype=np.uint8).reshape(2, 2, 2, 2)
    yield VersionCase(
        "ConvInteger",
        10,
        "zeros",
        (image, filters, np.uint8(3)),
        (),
        ("int32",),
        {"pads": [1, 0, 0, 1]},
    )
    scales = (np.float32(0.1), np.float32(0.05), np.float32(0.4))
    yield VersionCase(
        "QLinearConv",
        10,
        "bias",
        (
            image,
            scales[0],
            np.uint8(4),
            filters,
            scales[1],
            np.uint8(8),
            scales[2],
            np.uint8(120),
            np.array([5, -9], np.int32),
        ),
        (1, 2, 3, 4, 5, 6, 7, 8),
        ("uint8",),
    )
    yield VersionCase(
        "QLinearMatMul",
        10,
        "all",
        (a, scales[0], np.uint8(4), b, scales[1], np.uint8(2), scales[2], np.uint8(100)),
        (1, 2, 4, 5, 6, 7),
        ("uint8",),
    )


def _signals() -> Iterator[VersionCase]:
    yield VersionCase(
        "DFT", 17, "real", (_f(1, 6, 1),), attributes={"axis": 1, "onesided": 1}, atol=1e-5
    )
    yield VersionCase(
        "DFT", 17, "inverse", (_f(1, 6, 2), np.int64(8)), (1,), attributes={"axis": 1, "inverse": 1}
    )
    yield VersionCase("DFT", 20, "axis", (_f(2, 5, 2), None, np.int64(-2)), (2,))
    yield VersionCase(
        "STFT",
        17,
        "window",
        (_f(1, 16, 1), np.int64(4), np.hanning(8).astype(np.float32)),
        (1,),
        atol=1e-5,
    )
    # Without a last axis, as torch writes it.
    yield VersionCase(
        "STFT", 17, "flat", (_f(2, 16), np.int64(4), None, np.int64(8)), (1, 3), atol=1e-5
    )


def _halves() -> Iterator[VersionCase]:
    """16-bit floats where no engine has a kernel of them."""
    signal = np.array([1, -2, 3, 0.5], np.float16).reshape(1, 4, 1)
    yield VersionCase("DFT", 20, "half", (signal,), (), ("float16",), oracle="reference", rtol=2e-3)


def _fused() -> Iterator[VersionCase]:
    x = _f(2, 3, 4)
    gamma, beta = _f(4), _f(4)
    yield VersionCase("Gelu", 13, "fused", (x,), domain=_MS)
    yield VersionCase("BiasGelu", 13, "fused", (x, beta), domain=_MS)
    yield VersionCase("FastGelu", 13, "fused", (x, beta), domain=_MS)
    yield VersionCase("QuickGelu", 13, "fused", (x,), domain=_MS)
    yield VersionCase(
        "FusedMatMul",
        13,
        "fused",
        (x, _f(2, 5, 4)),
        domain=_MS,
        attributes={"alpha": 0.5, "transB": 1},
    )
    yield VersionCase(
        "SkipLayerNormalization",
        13,
        "fused",
        (x, _f(2, 3, 4), gamma, beta, _f(4)),
        (),
        ("float32", "", "", "float32"),
        domain=_MS,
        atol=1e-5,
    )
    yield VersionCase(
        "SkipSimplifiedLayerNormalization",
        13,
        "fused",
        (x, _f(2, 3, 4), gamma),
        domain=_MS,
        atol=1e-5,
    )
    yield VersionCase(
        "SimplifiedLayerNormalization",
        13,
        "fused",
        (x, gamma),
        attributes={"epsilon": 1e-3},
        atol=1e-5,
    )
    yield VersionCase("LayerNormalization", 13, "fused", (x, gamma, beta), atol=1e-5)
    yield VersionCase(
        "FusedGemm",
        13,
        "fused",
        (x[0], _f(4, 2), _f(2)),
        domain=_MS,
        attributes={"activation": "LeakyRelu", "activation_alpha": 0.2},
    )
    for name, numbers in (("Relu", None), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4])):
        fused = {"activation": name, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        if numbers:
            fused["activation_params"] = numbers
        inputs = (_IMAGE, _f(2, 2, 3, 3), _f(2), *([_f(1, 2, 5, 6)] if not numbers else []))
        yield VersionCase("FusedConv", 13, name, inputs, domain=_MS, attributes=fused)


STEP_CASES: tuple[VersionCase, ...] = (
    *_recurrent(),
    *_quantized(),
    *_signals(),
    *_halves(),
    *_fused(),
)
