"""Convolution, pooling, normalization, products and resampling against their definitions."""

import numpy as np
import pytest

from ember_ml.webnn import ML, MLGraphBuilder, MLTypeError
from tests.webnn import references, wpt
from tests.webnn.calls import compute

executors = pytest.mark.parametrize("executor", wpt.EXECUTORS)
RANDOM = np.random.default_rng(7)
IMAGE = RANDOM.standard_normal((2, 4, 5, 6)).astype(np.float32)
FILTER = RANDOM.standard_normal((6, 2, 3, 2)).astype(np.float32)
BIAS = RANDOM.standard_normal(6).astype(np.float32)
# 1e-6 of the greatest is a few units in the last place of what is summed.
TOLERANCES = {"float32": 2e-6, "float16": 2e-3}


def close(made, expected, data_type="float32"):
    assert made.dtype.name == data_type
    assert made.shape == expected.shape
    expected = expected.astype(np.float64)
    largest = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(made, expected, rtol=0, atol=TOLERANCES[data_type] * largest)


def ordered(x, layout, of):
    """An array whose axes are `of` with its axes as in `layout`."""
    return np.ascontiguousarray(x.transpose([of.index(c) for c in layout]))


@executors
@pytest.mark.parametrize("filter_layout", ["oihw", "hwio", "ohwi", "ihwo"])
@pytest.mark.parametrize("input_layout", ["nchw", "nhwc"])
def test_conv2d_in_every_layout(executor, input_layout, filter_layout):
    how = {"padding": (1, 2, 0, 3), "strides": (2, 1), "dilations": (1, 2), "groups": 2}
    expected = references.conv2d(IMAGE, FILTER, **how, bias=BIAS)
    made = compute(
        executor,
        "conv2d",
        ordered(IMAGE, input_layout, "nchw"),
        ordered(FILTER, filter_layout, "oihw"),
        bias=BIAS,
        input_layout=input_layout,
        filter_layout=filter_layout,
        **how,
    )
    close(made, ordered(expected, input_layout, "nchw"))


@executors
@pytest.mark.parametrize("filter_layout", ["iohw", "hwoi", "ohwi"])
@pytest.mark.parametrize("input_layout", ["nchw", "nhwc"])
def test_conv_transpose2d_in_every_layout(executor, input_layout, filter_layout):
    weight = FILTER[:4]
    how = {"padding": (1, 0, 0, 2), "strides": (2, 3), "dilations": (2, 1), "groups": 2}
    expected = references.conv_transpose2d(IMAGE, weight, more=(1, 2), bias=BIAS[:4], **how)
    for more in ({"output_padding": (1, 2)}, {"output_sizes": expected.shape[2:]}):
        made = compute(
            executor,
            "conv_transpose2d",
            ordered(IMAGE, input_layout, "nchw"),
            ordered(weight, filter_layout, "iohw"),
            bias=BIAS[:4],
            input_layout=input_layout,
            filter_layout=filter_layout,
            **how,
            **more,
        )
        close(made, ordered(expected, input_layout, "nchw"))


@executors
def test_half_precision_and_the_least_sizes(executor):
    half = IMAGE.astype(np.float16), FILTER[:, :, :1, :1].astype(np.float16)
    close(
        compute(executor, "conv2d", *half, groups=2), references.conv2d(*half, groups=2), "float16"
    )
    one = np.full((1, 1, 1, 1), 3, np.float32)
    assert compute(executor, "conv2d", one, one).tolist() == [[[[9]]]]
    assert compute(executor, "conv_transpose2d", one, one).tolist() == [[[[9]]]]
    for op in ("average_pool2d", "l2_pool2d", "max_pool2d"):
        assert compute(executor, op, one).tolist() == [[[[3]]]]


FOLDS = {
    "average_pool2d": np.mean,
    "l2_pool2d": lambda x: np.sqrt((x.astype(np.float64) ** 2).sum()),
    "max_pool2d": np.max,
}
WINDOWS = {
    "plain": ((2, 3), (0, 0, 0, 0), (1, 1), (1, 1), "floor", (4, 4)),
    "strides": ((2, 2), (1, 0, 0, 1), (2, 3), (1, 1), "floor", (3, 2)),
    "partly beyond": ((3, 2), (0, 0, 1, 0), (2, 3), (1, 1), "ceil", (2, 3)),
    "wholly beyond": ((3, 3), (1, 1, 1, 1), (3, 3), (1, 1), "ceil", (3, 3)),
    "dilated": ((2, 2), (1, 1, 0, 1), (1, 2), (3, 2), "floor", (4, 3)),
    "padded by more than the window": ((2, 1), (3, 2, 1, 1), (2, 2), (1, 2), "floor", (5, 4)),
}


@executors
@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_over_images(executor, name, op):
    window, padding, strides, dilations, rounding, sizes = WINDOWS[name]
    expected = references.pool2d(FOLDS[op], IMAGE, window, padding, strides, dilations, sizes)
    for layout in ("nchw", "nhwc"):
        made = compute(
            executor,
            op,
            ordered(IMAGE, layout, "nchw"),
            window_dimensions=window,
            padding=padding,
            strides=strides,
            dilations=dilations,
            layout=layout,
            output_shape_rounding=rounding,
        )
        close(made, ordered(expected.astype(np.float64), layout, "nchw"))


@executors
@pytest.mark.parametrize("data_type", "int8 uint8 int32 uint32 int64 uint64 float16".split())
def test_the_greatest_of_every_type(executor, data_type):
    dtype = np.dtype(data_type)
    x = IMAGE.astype(dtype)
    if dtype.kind != "f":
        bounds = np.iinfo(dtype)
        x = RANDOM.integers(bounds.min, bounds.max, IMAGE.shape, dtype=dtype, endpoint=True)
        # Neighbours that float64 and halves of int64 confuse; and none but negative ones.
        x[0, 0, 0, :3] = bounds.max - 1, bounds.max, bounds.max - 2
        x[0, 1] = bounds.min + (x[0, 1] % 3).astype(dtype)
        x[1, 0, 0, :2] = 3, 3_000_000_000 if bounds.max > 3_000_000_000 else 4
    for name in ("strides", "wholly beyond", "dilated"):
        window, padding, strides, dilations, rounding, sizes = WINDOWS[name]
        made = compute(
            executor,
            "max_pool2d",
            x,
            window_dimensions=window,
            padding=padding,
            strides=strides,
            dilations=dilations,
            output_shape_rounding=rounding,
        )
        expected = references.pool2d(np.max, x, window, padding, strides, dilations, sizes)
        assert made.dtype == dtype
        np.testing.assert_array_equal(made, expected.astype(dtype))


@executors
@pytest.mark.parametrize("data_type", ["float32", "float16"])
def test_normalization_over_any_axes(executor, data_type):
    # In quarters, whose sums are exact: what is left are the roundings of the division.
    x = (np.round(IMAGE * 12) / 4 + 5).astype(data_type)
    kind = np.dtype(data_type).type
    for axes in ((1, 2, 3), (3,), (2, 3), (0,), (2, 0), (3, 1)):
        sizes = [x.shape[axis] for axis in axes]
        scale = RANDOM.standard_normal(sizes).astype(data_type)
        bias = RANDOM.standard_normal(sizes).astype(data_type)
        shape = [n if axis in axes else 1 for axis, n in enumerate(x.shape)]
        spread = [
            one.astype(np.float64).transpose(np.argsort(axes)).reshape(shape)
            for one in (scale, bias)
        ]
        expected = references.normalized(x, axes, 1e-3) * spread[0] + spread[1]
        how = {"axes": axes, "epsilon": 1e-3}
        close(
            compute(executor, "layer_normalization", x, scale=scale, bias=bias, **how),
            expected,
            data_type,
        )
    plain = compute(executor, "layer_normalization", x)
    close(plain, references.normalized(x, (1, 2, 3), float(kind(1e-5))), data_type)
    # Each element is its own mean.
    for none in (x, np.array(4, data_type)):
        assert not compute(executor, "layer_normalization", none, axes=[]).any()
    weights = {k: np.abs(RANDOM.standard_normal(4)).astype(data_type) for k in ("scale", "bias")}
    expected = references.normalized(x, (2, 3), float(kind(1e-5)))
    expected = expected * weights["scale"][:, None, None] + weights["bias"][:, None, None]
    for layout in ("nchw", "nhwc"):
        given = ordered(x, layout, "nchw")
        made = compute(executor, "instance_normalization", given, layout=layout, **weights)
        close(made, ordered(expected, layout, "nchw"), data_type)


@executors
def test_batch_normalization_along_any_axis(executor):
    for axis, size in enumerate(IMAGE.shape):
        mean, variance, scale, bias = np.abs(RANDOM.standard_normal((4, size))).astype(np.float32)
        shape = [-1 if a == axis else 1 for a in range(4)]
        wide = [one.astype(np.float64).reshape(shape) for one in (mean, variance, scale, bias)]
        expected = (IMAGE - wide[0]) / np.sqrt(wide[1] + 1e-2) * wide[2] + wide[3]
        how = {"scale": scale, "bias": bias, "axis": axis, "epsilon": 1e-2}
        close(compute(executor, "batch_normalization", IMAGE, mean, variance, **how), expected)
    one = np.array([2.0], np.float32)
    made = compute(executor, "batch_normalization", one, one, one, axis=0)
    assert made.tolist() == [0]


@executors
def test_products(executor):
    a, b = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
    for c in (None, np.float32([[1, 2, 3]]), np.float32([[4], [5], [6]]), np.array(7, np.float32)):
        how = {} if c is None else {"c": c}
        expected = 0.5 * a.astype(float) @ b.T + (0 if c is None else 2.0 * c)
        for left, flip_a in ((a, False), (np.ascontiguousarray(a.T), True)):
            for right, flip_b in ((b, True), (np.ascontiguousarray(b.T), False)):
                flips = {"a_transpose": flip_a, "b_transpose": flip_b}
                made = compute(executor, "gemm", left, right, alpha=0.5, beta=2, **flips, **how)
                close(made, expected)
    many = RANDOM.standard_normal((2, 1, 3, 4)).astype(np.float32)
    more = RANDOM.standard_normal((5, 4, 2)).astype(np.float32)
    close(compute(executor, "matmul", many, more), many.astype(float) @ more)
    close(compute(executor, "matmul", a, more), a.astype(float) @ more)


@executors
@pytest.mark.parametrize("mode", ["nearest-neighbor", "linear"])
def test_images_in_other_sizes(executor, mode):
    for axes in ((2, 3), (1, 2), (3, 0), (0, 1)):
        for sizes in ((7, 3), (1, 11), (4, 4)):
            made = compute(executor, "resample2d", IMAGE, mode=mode, sizes=sizes, axes=axes)
            close(made, references.resampled(IMAGE, sizes, axes, mode))
    made = compute(executor, "resample2d", IMAGE, mode=mode, scales=(0.5, 1.7))
    close(made, references.resampled(IMAGE, (2, 10), (2, 3), mode))
    close(compute(executor, "resample2d", IMAGE, mode=mode), IMAGE)
    for data_type in ("int8", "uint8"):
        x = RANDOM.integers(0, 127, (1, 1, 3, 5)).astype(data_type)
        made = compute(executor, "resample2d", x, mode=mode, sizes=(5, 4))
        assert made.dtype.name == data_type
        expected = references.resampled(x, (5, 4), (2, 3), mode)
        assert np.abs(made - expected).max() <= 0.5 + 1e-4


@executors
def test_the_nearest_of_large_images_is_exact(executor):
    """Places near a tie: single precision takes the wrong one."""
    x = np.arange(999, dtype=np.float32).reshape(1, 1, 1, 999)
    made = compute(executor, "resample2d", x, sizes=(1, 2997))
    assert made[0, 0, 0].tolist() == [i // 3 for i in range(2997)]
    made = compute(executor, "resample2d", x, sizes=(1, 333))
    assert made[0, 0, 0].tolist() == [3 * i + 1 for i in range(333)]


def test_what_does_not_fit_is_refused():
    builder = MLGraphBuilder(ML().create_context())
    x = builder.input("x", {"data_type": "float32", "shape": [1, 4, 5, 5]})
    w = builder.input("w", {"data_type": "float32", "shape": [6, 2, 3, 3]})
    flat = builder.input("m", {"data_type": "float32", "shape": [3]})
    for wrong, text in (
        (lambda: builder.conv2d(x, w), "\\[4 channels|4 channels in 1 groups"),
        (lambda: builder.conv2d(x, w, groups=2, bias=flat), "6 output channels"),
        (lambda: builder.conv2d(x, w, groups=2, dilations=(3, 1)), "does not fit"),
        (lambda: builder.conv2d(x, w, groups=2, padding=(1, 1)), "4 entries"),
        (lambda: builder.conv2d(x, w, groups=2, filter_layout="oiwh"), "one of oihw"),
        (lambda: builder.conv_transpose2d(x, w), "the filter takes 6"),
        (lambda: builder.max_pool2d(x, window_dimensions=(6, 1)), "does not fit"),
        (lambda: builder.max_pool2d(x, output_sizes=(2, 2)), "output_sizes is \\[1, 1\\]"),
        (lambda: builder.batch_normalization(x, flat, flat), "sizes \\[4\\]"),
        (lambda: builder.layer_normalization(x, scale=flat), "scale has the shape \\[3\\]"),
        (lambda: builder.instance_normalization(x, epsilon=float("nan")), "finite"),
        (lambda: builder.matmul(x, w), "do not multiply"),
        (lambda: builder.resample2d(x, scales=(0.1, 1)), "from 1 on"),
        (lambda: builder.resample2d(x, axes=(1, 1)), "twice"),
        (lambda: builder.resample2d(x, sizes=(1, 2, 3)), "2 entries"),
    ):
        with pytest.raises(MLTypeError, match=text):
            wrong()
