"""Layers in the forms of older opsets: convolution, pooling, images, normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.graph.version_cases import VersionCase

__all__ = ["NETWORK_CASES"]

_rng = np.random.default_rng(11)


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
    # Factors that float32 does not hold: which element is nearest, and how many there are.
    for rule in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        for way in ("asymmetric", "half_pixel"):
            yield VersionCase(
                "Resize",
                13,
                f"uneven-{rule}-{way}",
                (_f(1, 1, 10, 30), None, np.array([1, 1, 0.7, 1.2], np.float32)),
                (2,),
                attributes={"nearest_mode": rule, "coordinate_transformation_mode": way},
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


NETWORK_CASES: tuple[VersionCase, ...] = (*_windows(), *_images(), *_normalized())
