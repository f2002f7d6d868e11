"""NaN, infinities and overflow where ONNX Runtime's own operators lose them."""

import numpy as np
import pytest

from ember_ml.webnn import MLGraphBuilder, MLOperand, MLTypeError, OperationError
from ember_ml.webnn.limits import LIMITS
from tests.webnn import wpt
from tests.webnn.calls import compute, make_context

NAN, INF = np.nan, np.inf
ROWS = [
    *([1, NAN, 3], [NAN, 1, 3], [1, 3, NAN], [NAN, NAN, NAN], [1, 3, 2]),
    *([INF, NAN, -INF], [-INF, INF, NAN], [INF, -INF, INF], [-INF, -INF, -INF], [-0.0, 0, -0.0]),
]


@pytest.mark.parametrize("executor", wpt.EXECUTORS)
@pytest.mark.parametrize("data_type", ["float32", "float16"])
def test_one_nan_is_the_extreme(executor, data_type):
    x = np.array(ROWS, data_type)
    for op, meaning in (("reduce_max", np.max), ("reduce_min", np.min)):
        for axes, keep in (([1], False), ([0], True), ([1, 0], False)):
            made = compute(executor, op, x, axes=axes, keep_dimensions=keep)
            expected = meaning(x, axis=tuple(axes), keepdims=keep)
            np.testing.assert_array_equal(made, expected, strict=True)


@pytest.mark.parametrize("executor", wpt.EXECUTORS)
@pytest.mark.parametrize("data_type", ["float32", "float16"])
def test_the_first_nan_is_where_the_extreme_stands(executor, data_type):
    x = np.array(ROWS, data_type)
    for op, meaning in (("arg_max", np.argmax), ("arg_min", np.argmin)):
        for axis, keep in ((1, False), (0, True)):
            made = compute(executor, op, x, axis, keep_dimensions=keep, output_data_type="int64")
            expected = meaning(x, axis=axis, keepdims=keep)
            np.testing.assert_array_equal(made, expected, strict=True)


@pytest.mark.parametrize("executor", wpt.EXECUTORS)
@pytest.mark.parametrize("data_type", ["int32", "uint32"])
def test_sums_and_products_of_32_bits_wrap(executor, data_type):
    ends = np.iinfo(data_type)
    x = np.array([[ends.max, 2, 3], [ends.max, ends.max, 7], [ends.min, 5, 1]], data_type)
    wide = x.astype(object)  # Python's integers, which have no end
    for op, terms, fold in (
        ("reduce_sum", wide, np.sum),
        ("reduce_product", wide, np.prod),
        ("reduce_l1", abs(wide), np.sum),
        ("reduce_sum_square", wide * wide, np.sum),
    ):
        for axes in ([1], [0], [0, 1]):
            total = fold(terms, axis=tuple(axes)) % 2**32
            expected = np.asarray(total, dtype=np.uint32).view(data_type)
            made = compute(executor, op, x, axes=axes)
            np.testing.assert_array_equal(made, expected, strict=True)


@pytest.mark.parametrize("executor", wpt.EXECUTORS)
@pytest.mark.parametrize("data_type", ["float32", "float16"])
@pytest.mark.parametrize("made_type", ["int8", "uint8", "int32", "uint32"])
def test_infinities_are_quantised_to_the_ends(executor, data_type, made_type):
    x = np.array([INF, -INF, 6e4, -6e4], data_type)
    ends = np.iinfo(made_type)
    made = compute(
        executor, "quantize_linear", x, np.array([0.01], data_type), np.array([3], made_type)
    )
    assert made[:2].tolist() == [ends.max, ends.min]
    if made_type.endswith("8"):
        assert made[2:].tolist() == [ends.max, ends.min]


def test_ops_of_one_operand_take_all_types_and_ranks_of_their_limits():
    builder = MLGraphBuilder(make_context("numpy"))
    tried = 0
    for op, operands in LIMITS.items():
        names = operands.keys() - {"output"}
        if len(names) != 1 or op in ("arg_max", "arg_min", "softmax", "cast"):
            continue
        (limits,) = (operands[name] for name in names)
        for data_type in limits.data_types:
            for rank in range(limits.min_rank, limits.max_rank + 1):
                x = builder.input("x", {"data_type": data_type, "shape": [2] * rank})
                given = {
                    "expand": [x, [2] * rank],
                    "reshape": [x, [2] * rank],
                    "pad": [x, [1] * rank, [0] * rank],
                    "slice": [x, [0] * rank, [1] * rank],
                    "tile": [x, [1] * rank],
                    "concat": [[x], 0],
                    "cumulative_sum": [x, 0],
                    "split": [x, 1],
                }.get(op, [x])
                made = getattr(builder, op)(*given)
                assert isinstance(made, MLOperand) or op == "split"
                tried += 1
    assert tried > 1800


@pytest.mark.parametrize("executor", [*wpt.EXECUTORS, "torch", "jax", "mlx"])
def test_division_by_zero_is_an_error_of_the_operation_and_names_its_label(executor):
    pair = [np.array([4, -4], np.int32), np.array([2, 0], np.int32)]
    with pytest.raises(OperationError, match=r"dispatch: .*'head"):
        compute(executor, "div", *pair, label="head")
    with pytest.raises(MLTypeError, match=r"\[head\] div: b is constant and has a 0"):
        compute(executor, "div", *pair, constants=(1,), label="head")
