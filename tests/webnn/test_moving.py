"""Ops that move elements: every type and every rank, exactly."""

import numpy as np
import pytest

from ember_ml.webnn import ML, MLGraphBuilder, MLTypeError
from ember_ml.webnn.limits import ANY
from tests.webnn import wpt
from tests.webnn.calls import compute

executors = pytest.mark.parametrize("executor", wpt.EXECUTORS)
data_types = pytest.mark.parametrize("data_type", ANY)


def filled(shape, data_type, seed=0):
    """Numbers over the whole range of a type."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(data_type)
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    bounds = np.iinfo(dtype)
    return random.integers(bounds.min, bounds.max, shape, dtype=dtype, endpoint=True)


def same(made, expected):
    assert made.dtype == expected.dtype
    assert made.shape == expected.shape
    np.testing.assert_array_equal(made, expected)


@executors
@data_types
def test_every_type_moves_unchanged(executor, data_type):
    x, y = filled((2, 1, 3), data_type), filled((2, 2, 3), data_type, 1)
    same(compute(executor, "concat", [x, y], 1), np.concatenate([x, y], 1))
    same(compute(executor, "expand", x, (4, 2, 2, 3)), np.broadcast_to(x, (4, 2, 2, 3)))
    same(compute(executor, "reshape", x, (3, 2)), x.reshape(3, 2))
    same(compute(executor, "reverse", x), x[::-1, ::-1, ::-1])
    same(compute(executor, "reverse", x, axes=[2]), x[:, :, ::-1])
    same(compute(executor, "slice", y, (0, 1, 0), (2, 1, 3), strides=(1, 1, 2)), y[:, 1:2, ::2])
    same(compute(executor, "tile", x, (1, 2, 2)), np.tile(x, (1, 2, 2)))
    same(compute(executor, "transpose", x), x.transpose())
    same(compute(executor, "transpose", x, permutation=(1, 2, 0)), x.transpose(1, 2, 0))
    first, second = compute(executor, "split", y, (1, 2), axis=2)
    same(first, y[:, :, :1])
    same(second, y[:, :, 1:])
    for mode, numpy_mode in (("edge", "edge"), ("reflection", "reflect")):
        expected = np.pad(y, ((0, 0), (1, 0), (2, 1)), mode=numpy_mode)
        same(compute(executor, "pad", y, (0, 1, 2), (0, 0, 1), mode=mode), expected)


@executors
@data_types
def test_every_type_is_gathered_and_scattered(executor, data_type):
    x = filled((3, 4), data_type)
    rows = np.array([[2, 0], [-1, 1]], np.int32)
    same(compute(executor, "gather", x, rows), x[rows])
    same(compute(executor, "gather", x, rows, axis=1), x[:, rows])
    places = np.array([[1, 0, -1, 2]], np.int64)
    same(compute(executor, "gather_elements", x, places), np.take_along_axis(x, places, 0))
    same(compute(executor, "gather_nd", x, np.array([2, -4])), x[2, 0])
    updates = filled((1, 4), data_type, 2)
    expected = x.copy()
    np.put_along_axis(expected, places, updates, 0)
    same(compute(executor, "scatter_elements", x, places, updates), expected)
    expected = x.copy()
    expected[[2, 0]] = filled((2, 4), data_type, 3)
    at = np.array([[2], [-3]], np.int32)
    same(compute(executor, "scatter_nd", x, at, filled((2, 4), data_type, 3)), expected)


@executors
@pytest.mark.parametrize("data_type", ["int32", "uint32", "int64"])
def test_indices_beyond_are_clamped(executor, data_type):
    """The ends of each type, and those at which a comparison of halves goes wrong."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    bounds = np.iinfo(data_type)
    large = [bounds.max, 2**31 - 1, 2**31, 3_000_000_000, 3, 2]
    small = [bounds.min, -(2**31), -3_000_000_000, -4, -3, -1]
    given = [i for i in large + small if bounds.min <= i <= bounds.max]
    indices = np.array(given, data_type)
    expected = x[[min(max(i, -3), 2) for i in given]]
    same(compute(executor, "gather", x, indices), expected)
    same(compute(executor, "gather_nd", x, indices[:, None]), expected)
    along = np.broadcast_to(indices[:, None], (len(given), 4)).copy()
    same(compute(executor, "gather_elements", x, along), expected)
    one = np.zeros(3, np.int8)
    mark = np.ones(1, np.int8)
    for index in given:
        hit = np.array([index], data_type)
        place = min(max(index, -3), 2)
        for op, at in (("scatter_elements", hit), ("scatter_nd", hit[:, None])):
            assert compute(executor, op, one, at, mark).tolist() == [
                int(i == place % 3) for i in range(3)
            ]


@executors
def test_scalars_and_eight_axes(executor):
    scalar = np.array(3, np.float32)
    for op, rest in (
        ("reshape", [()]),
        ("expand", [()]),
        ("transpose", []),
        ("reverse", []),
        ("tile", [()]),
        ("slice", [(), ()]),
        ("pad", [(), ()]),
    ):
        same(compute(executor, op, scalar, *rest), scalar)
    x = filled((1, 2, 1, 3, 1, 2, 1, 2), "int64")
    same(compute(executor, "transpose", x), x.transpose())
    same(compute(executor, "reverse", x), np.flip(x))
    pads = ((1, 0),) * 8
    expected = np.pad(x, pads, constant_values=-7)
    same(compute(executor, "pad", x, (1,) * 8, (0,) * 8, value=-7), expected)
    same(compute(executor, "tile", x, (2,) * 8), np.tile(x, (2,) * 8))
    same(compute(executor, "concat", [x, x], 7), np.concatenate([x, x], 7))
    same(compute(executor, "gather", x, np.array(2, np.uint32), axis=3), x[:, :, :, 2])


@executors
def test_padding_with_any_number(executor):
    x = np.array([1, 2], np.int64)
    made = compute(executor, "pad", x, [0], [1], value=2**53 + 1)
    assert made.tolist() == [1, 2, 2**53 + 1]
    made = compute(executor, "pad", x.astype(np.uint8), [1], [0], value=999)
    assert made.tolist() == [255, 1, 2]
    made = compute(executor, "pad", x.astype(np.float16), [1], [1], value=float("-inf"))
    assert made.tolist() == [-np.inf, 1, 2, -np.inf]
    made = compute(executor, "pad", x.astype(np.float32), [1], [0], value=float("nan"))
    assert np.isnan(made[0])


@executors
def test_one_part_and_many(executor):
    x = np.arange(6, dtype=np.int32)
    assert [part.tolist() for part in compute(executor, "split", x, 3)] == [[0, 1], [2, 3], [4, 5]]
    assert [part.tolist() for part in compute(executor, "split", x, 1)] == [[0, 1, 2, 3, 4, 5]]
    assert [part.tolist() for part in compute(executor, "split", x, [6])] == [[0, 1, 2, 3, 4, 5]]
    same(compute(executor, "concat", [x], 0), x)


def test_what_does_not_fit_is_refused():
    builder = MLGraphBuilder(ML().create_context())
    x = builder.input("x", {"data_type": "float32", "shape": [2, 3]})
    names = builder.input("i", {"data_type": "int32", "shape": [2, 3]})
    for wrong, text in (
        (lambda: builder.concat("xy", 0), "sequence of operands"),
        (lambda: builder.concat([], 0), "1 to 8192"),
        (lambda: builder.concat([x, names], 0), "inputs\\[1\\] is int32"),
        (lambda: builder.reshape(x, [7]), "6 elements"),
        (lambda: builder.reshape(x, [-6]), "from 0"),
        (lambda: builder.expand(x, [3, 3]), "not broadcastable"),
        (lambda: builder.pad(x, [2, 0], [0, 0], mode="reflection"), "less than its size"),
        (lambda: builder.pad(x, [2, 0], [0, 0], mode="wrap"), "constant, edge, reflection"),
        (lambda: builder.pad(x, [2, 0], [0, 0], value="1"), "value is a number"),
        (lambda: builder.slice(x, [0, 1], [2, 3]), "not within"),
        (lambda: builder.split(x, 2, axis=1), "no 2 equal parts"),
        (lambda: builder.tile(x, [0, 1]), "1 at least"),
        (lambda: builder.transpose(x, permutation=[0, 0]), "each axis"),
        (lambda: builder.reverse(x, axes=[1, 1]), "twice"),
        (lambda: builder.gather(x, x), "indices is float32"),
        (lambda: builder.gather(x, names, axis=2), "there are 2 axes"),
        (lambda: builder.gather_elements(x, names, label="here"), ""),
        (lambda: builder.scatter_elements(x, names, names), "updates is int32"),
        (lambda: builder.gather_nd(x, names), "3 coordinates"),
    ):
        if not text:
            assert wrong().shape == (2, 3)
            continue
        with pytest.raises(MLTypeError, match=text):
            wrong()
