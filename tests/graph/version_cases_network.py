"""Layers in the forms of older opsets: convolution, pooling, images, recurrence, quantisation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tests.graph.version_cases import VersionCase

__all__ = ["NETWORK_CASES"]

_rng = np.random.default_rng(11)
_MS = "com.microsoft"


def _f(*shape: int) -> Any:
    return _rng.standard_normal(shape).astype(np.float32)


def _i(*values: int) -> Any:
    return np.array(values, np.int64)


_IMAGE = _f(1, 2, 5, 6)


def _windows() -> Iterator[VersionCase]:
    weights = _f(4, 2, 3, 3)
    for auto_pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        attributes = {"auto_pad": auto_pad, "strides": [2, 2]}
        yield VersionCase("Conv", 11, auto_pad, (_IMAGE, weights, _f(4)), attributes=attributes)
        pool = {**attributes, "kernel_shape": [3, 2]}
        yield VersionCase("MaxPool", 12, auto_pad, (_IMAGE,), attributes=pool)
        yield VersionCase("AveragePool", 11, auto_pad, (_IMAGE,), attributes=pool)
    yield VersionCase(
        "Conv",
        11,
        "groups",
        (_f(1, 4, 7), _f(6, 2, 3)),
        attributes={"group": 2, "dilations": [2], "pads": [0, 3]},
    )
    yield VersionCase("Conv", 11, "volume", (_f(1, 1, 4, 4, 4), _f(2, 1, 2, 2, 2)))
    spread = _f(2, 3, 3, 3)
    yield VersionCase(
        "ConvTranspose",
        11,
        "pads",
        (_IMAGE, spread, _f(3)),
        attributes={"strides": [2, 2], "pads": [1, 0, 0, 1], "output_padding": [1, 1]},
    )
    yield VersionCase(
        "ConvTranspose",
        11,
        "shape",
        (_IMAGE, spread),
        attributes={"strides": [2, 2], "output_shape": [10, 12]},
    )
    yield VersionCase(
        "ConvTranspose",
        11,
        "same",
        (_IMAGE, spread),
        attributes={"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    )
    yield VersionCase(
        "ConvTranspose",
        11,
        "groups",
        (_IMAGE, _f(2, 2, 2, 2)),
        attributes={"group": 2, "dilations": [2, 1]},
    )
    places = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 1, 0, 1]}
    yield VersionCase("MaxPool", 12, "indices", (_IMAGE,), (), ("float32", "int64"), places)
    yield VersionCase(
        "MaxPool", 12, "column", (_IMAGE,), (), ("float32", "int64"), {**places, "storage_order": 1}
    )
    yield VersionCase(
        "MaxPool",
        12,
        "ceil",
        (_IMAGE,),
        attributes={"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "dilations": [1, 2]},
    )
    yield VersionCase(
        "MaxPool",
        12,
        "bytes",
        (np.arange(30, dtype=np.uint8).reshape(1, 1, 5, 6),),
        (),
        ("uint8",),
        {"kernel_shape": [2, 2]},
    )
    for include in (0, 1):
        mean = {
            "kernel_shape": [3, 3],
            "pads": [1, 1, 1, 1],
            "strides": [2, 2],
            "count_include_pad": include,
        }
        yield VersionCase("AveragePool", 11, f"include{include}", (_IMAGE,), attributes=mean)
        yield VersionCase(
            "AveragePool",
            19,
            f"dilated{include}",
            (_IMAGE,),
            attributes={**mean, "dilations": [1, 2]},
        )
    yield VersionCase("LpPool", 11, "three", (_IMAGE,), attributes={"kernel_shape": [2, 2], "p": 3})
    yield VersionCase(
        "LpPool", 18, "two", (_IMAGE,), attributes={"kernel_shape": [2, 2], "pads": [0, 1, 1, 0]}
    )
    yield VersionCase("GlobalLpPool", 2, "two", (_IMAGE,))
    yield VersionCase(
        "MaxRoiPool",
        13,
        "regions",
        (_IMAGE, np.array([[0, 0, 0, 4, 3], [0, 2, 1, 5, 4]], np.float32)),
        attributes={"pooled_shape": [2, 2]},
    )
    rois = np.array([[0.5, 0.5, 4.5, 3.5], [1, 2, 3, 4]], np.float32)
    for opset in (10, 16):
        for mode in ("avg", "max"):
            region = {
                "output_height": 2,
                "output_width": 3,
                "sampling_ratio": 2,
                "mode": mode,
                "spatial_scale": 0.8,
            }
            yield VersionCase("RoiAlign", opset, mode, (_IMAGE, rois, _i(0, 0)), attributes=region)
    yield VersionCase(
        "RoiAlign",
        16,
        "adaptive",
        (_IMAGE, rois, _i(0, 0)),
        attributes={"output_height": 2, "output_width": 2},
    )
    yield VersionCase(
        "LRN",
        13,
        "channels",
        (_f(1, 5, 2, 2),),
        attributes={"size": 3, "alpha": 0.5},
    )


def _images() -> Iterator[VersionCase]:
    for mode in ("nearest", "linear", "cubic"):
        for way in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
            yield VersionCase(
                "Resize",
                13,
                f"{mode}-{way}",
                (_IMAGE, None, None, _i(1, 2, 7, 4)),
                (3,),
                attributes={"mode": mode, "coordinate_transformation_mode": way},
                atol=1e-5,
            )
    scales = np.array([1, 1, 0.6, 0.6], np.float32)
    for mode in ("linear", "cubic"):
        yield VersionCase(
            "Resize",
            13,
            f"down-{mode}",
            (_f(1, 1, 4, 4), None, scales),
            (2,),
            atol=1e-5,
            attributes={"mode": mode, "coordinate_transformation_mode": "align_corners"},
        )
        yield VersionCase(
            "Resize",
            18,
            f"antialias-{mode}",
            (_IMAGE, None, None, _i(3, 3)),
            (3,),
            atol=1e-5,
            attributes={"mode": mode, "antialias": 1, "axes": [2, 3]},
        )
    yield VersionCase(
        "Resize",
        13,
        "crop",
        (_IMAGE, np.array([0, 0, 0.2, -0.2, 1, 1, 0.9, 1.3], np.float32), None, _i(1, 2, 4, 4)),
        (1, 3),
        attributes={
            "mode": "linear",
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "extrapolation_value": 3.0,
        },
    )
    for rule in ("floor", "ceil", "round_prefer_ceil"):
        yield VersionCase(
            "Resize",
            13,
            rule,
            (_IMAGE, None, np.array([1, 1, 2, 0.5], np.float32)),
            (2,),
            attributes={"nearest_mode": rule},
        )
    yield VersionCase("Upsample", 9, "nearest", (_IMAGE, np.array([1, 1, 2, 3], np.float32)), (1,))
    yield VersionCase(
        "Upsample",
        9,
        "linear",
        (_IMAGE, np.array([1, 1, 2, 2], np.float32)),
        (1,),
        attributes={"mode": "linear"},
    )
    grid = (_rng.random((1, 3, 4, 2)) * 2.6 - 1.3).astype(np.float32)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                yield VersionCase(
                    "GridSample",
                    16,
                    f"{mode}-{padding}-{corners}",
                    (_IMAGE, grid),
                    atol=1e-5,
                    attributes={"mode": mode, "padding_mode": padding, "align_corners": corners},
                )


def _normalized() -> Iterator[VersionCase]:
    moments = (np.abs(_f(2)), _f(2), _f(2), np.abs(_f(2)) + 0.5)
    for opset in (9, 14, 15):
        yield VersionCase("BatchNormalization", opset, "inference", (_IMAGE, *moments))
    yield VersionCase(
        "BatchNormalization",
        14,
        "training",
        (_IMAGE, *moments),
        (),
        ("float32",) * 3,
        {"training_mode": 1, "momentum": 0.7},
        oracle="reference",
    )
    yield VersionCase("InstanceNormalization", 6, "scale", (_IMAGE, _f(2), _f(2)), atol=1e-5)
    yield VersionCase(
        "GroupNormalization",
        18,
        "groups",
        (_f(1, 4, 3), _f(2), _f(2)),
        attributes={"num_groups": 2},
        atol=1e-5,
    )
    yield VersionCase(
        "GroupNormalization",
        21,
        "channels",
        (_f(1, 4, 3), _f(4), _f(4)),
        attributes={"num_groups": 2},
        atol=1e-5,
    )
    yield VersionCase(
        "LayerNormalization",
        17,
        "all",
        (_f(2, 3, 4), _f(3, 4), _f(3, 4)),
        (),
        ("float32",) * 3,
        {"axis": 1},
        atol=1e-5,
    )


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


NETWORK_CASES: tuple[VersionCase, ...] = (
    *_windows(),
    *_images(),
    *_normalized(),
    *_recurrent(),
    *_quantized(),
    *_signals(),
    *_fused(),
)
