"""How ops are called: options by each spelling, what errors say, few axes and many."""

import numpy as np
import pytest

from ember_ml.webnn import ML, MLGraphBuilder, MLTypeError
from ember_ml.webnn.builder.base import snake
from ember_ml.webnn.limits import LIMITS
from tests.webnn.calls import compute

UNARY = (
    "abs cast ceil cos erf exp floor identity log neg reciprocal round_even sign sin sqrt tan"
).split()
BINARY = "add sub mul div max min pow".split()
COMPARISONS = "equal not_equal greater greater_or_equal lesser lesser_or_equal".split()
LOGIC = "logical_and logical_or logical_xor".split()
CLASSES = ["is_nan", "is_infinite"]
SHAPES = (
    "clamp elu gelu hard_sigmoid hard_swish leaky_relu linear relu sigmoid softplus softsign tanh"
).split()
REDUCTIONS = (
    "reduce_l1 reduce_l2 reduce_log_sum reduce_log_sum_exp reduce_max reduce_mean reduce_min "
    "reduce_product reduce_sum reduce_sum_square"
).split()
ALONG = ["arg_min", "arg_max", "cumulative_sum", "softmax"]
QUANTIZING = ["quantize_linear", "dequantize_linear"]
# Options by op, other than their defaults.
OPTIONS = {
    "clamp": {"min_value": -0.5, "max_value": 0.25},
    "elu": {"alpha": 2.5},
    "hard_sigmoid": {"alpha": 0.3, "beta": 0.1},
    "leaky_relu": {"alpha": 0.2},
    "linear": {"alpha": 3.0, "beta": -1.0},
    "triangular": {"upper": False, "diagonal": -1},
    "arg_min": {"keep_dimensions": True, "output_data_type": "int64"},
    "arg_max": {"keep_dimensions": True, "output_data_type": "int64"},
    "cumulative_sum": {"exclusive": True, "reversed": True},
    **{op: {"axes": [1], "keep_dimensions": True} for op in REDUCTIONS},
}
ALL = [
    *UNARY,
    *BINARY,
    *COMPARISONS,
    *LOGIC,
    *CLASSES,
    *SHAPES,
    *REDUCTIONS,
    *ALONG,
    *QUANTIZING,
    *("logical_not", "prelu", "triangular", "where"),
]


@pytest.fixture
def builder():
    return MLGraphBuilder(ML().create_context())


def arguments(op, shape=(2, 3)):
    """Arrays, and other arguments, that an op takes."""
    floats = np.linspace(0.5, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    bytes_ = np.ones(shape, np.uint8)
    if op in (*BINARY, *COMPARISONS, "prelu"):
        return floats, floats
    if op in LOGIC:
        return bytes_, bytes_
    return {
        "where": (bytes_, floats, floats),
        "logical_not": (bytes_,),
        "cast": (floats, "int32"),
        "quantize_linear": (floats, floats, bytes_),
        "dequantize_linear": (bytes_, floats, bytes_),
        **{along: (floats, len(shape) - 1) for along in ALONG},
    }.get(op, (floats,))


def operands(builder, op, shape=(2, 3)):
    return [
        builder.input("x", {"data_type": x.dtype.name, "shape": x.shape})
        if isinstance(x, np.ndarray)
        else x
        for x in arguments(op, shape)
    ]


def camel(name):
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


@pytest.mark.parametrize("op", OPTIONS)
def test_keywords_and_both_kinds_of_mappings_say_the_same(op):
    options = OPTIONS[op]
    x, *rest = arguments(op)
    given = (x - 1, *rest)
    by_keyword = compute("onnxruntime", op, *given, **options)
    by_mapping = compute("onnxruntime", op, *given, options)
    as_specified = compute("onnxruntime", op, *given, {camel(k): v for k, v in options.items()})
    default = compute("onnxruntime", op, *given)
    np.testing.assert_array_equal(by_keyword, by_mapping)
    np.testing.assert_array_equal(by_keyword, as_specified)
    assert by_keyword.shape != default.shape or not np.array_equal(by_keyword, default)


@pytest.mark.parametrize("op", ALL)
def test_errors_name_the_label_and_the_op(builder, op):
    given = operands(builder, op)
    other = MLGraphBuilder(builder._context).input("x", {"data_type": "float32", "shape": [2, 3]})
    with pytest.raises(MLTypeError, match=rf"^\[head/1\] {op}: .*another MLGraphBuilder"):
        getattr(builder, op)(other, *given[1:], label="head/1")
    with pytest.raises(MLTypeError, match=rf"^\[head/1\] {op}: .*is an MLOperand, not 3"):
        getattr(builder, op)(3, *given[1:], {"label": "head/1"})
    with pytest.raises(MLTypeError, match=rf"^\[head/1\] {op}: no option 'nothing'"):
        getattr(builder, op)(*given, {"nothing": 1, "label": "head/1"})
    with pytest.raises(MLTypeError, match=rf"^{op}: options are a dict"):
        getattr(builder, op)(*given, 3)


@pytest.mark.parametrize("op", ALL)
@pytest.mark.parametrize("rank", [0, 1, 8])
def test_few_axes_and_many(builder, op, rank):
    least = max((x.min_rank for name, x in LIMITS[op].items() if name != "output"), default=0)
    shape = (1, 2, 1, 2, 1, 1, 2, 3)[:rank]
    if rank < least:
        with pytest.raises(MLTypeError, match=rf"{op}: "):
            getattr(builder, op)(*operands(builder, op, shape))
        return
    made = compute("onnxruntime", op, *arguments(op, shape))
    gone = op in REDUCTIONS, op in ("arg_min", "arg_max")
    assert made.shape == (() if gone[0] else shape[:-1] if gone[1] else shape)


def test_all_are_ops_of_the_specification():
    assert len(set(ALL)) == len(ALL) == 66
    assert set(ALL) <= set(LIMITS)


def test_labels_may_repeat_and_ops_of_many_nodes_have_one(builder):
    x = builder.input("x", {"data_type": "float32", "shape": [2]})
    made = builder.elu(builder.sigmoid(x, label="same"), label="same")
    assert builder.build({"y": made})


@pytest.mark.parametrize(
    ("op", "options", "text"),
    [
        ("clamp", {"min_value": 2, "max_value": 1}, "min_value 2.0 is above max_value 1.0"),
        ("clamp", {"min_value": "1"}, "min_value is a number, not '1'"),
        ("elu", {"alpha": float("nan")}, "alpha is a finite number, not nan"),
        ("linear", {"beta": None}, "beta is a number, not None"),
        ("reduce_sum", {"axes": [2]}, "axes is [2], and there are 2 axes"),
        ("reduce_sum", {"axes": [0, 0]}, "axes has an axis twice: [0, 0]"),
        ("reduce_sum", {"axes": 1}, "axes is a sequence of sizes, not 1"),
        ("triangular", {"diagonal": 1.5}, "diagonal is an integer, not 1.5"),
        ("triangular", {"diagonal": 2**31}, "diagonal takes integers of 32 bits, not 2147483648"),
        ("abs", {"label": "x"}, None),
    ],
)
def test_wrong_options(builder, op, options, text):
    (x,) = operands(builder, op)
    if text is None:
        assert getattr(builder, op)(x, options).shape == x.shape
        return
    with pytest.raises(MLTypeError) as caught:
        getattr(builder, op)(x, **options)
    assert str(caught.value) == f"{op}: {text}"


def test_wrong_operands(builder):
    def made(data_type, *shape):
        return builder.input("x", {"data_type": data_type, "shape": shape})

    for call, text in (
        (lambda: builder.add(made("float32", 2), made("int32", 2)), "a is float32 and b is int32"),
        (
            lambda: builder.mul(made("int8", 2), made("int8", 3)),
            r"\[2\] and \[3\] do not broadcast",
        ),
        (lambda: builder.abs(made("uint8", 2)), "input is uint8; it takes float32"),
        (lambda: builder.is_nan(made("int32", 2)), "a is int32; it takes float32, float16"),
        (lambda: builder.logical_not(made("int8", 2)), "a is int8; it takes uint8"),
        (
            lambda: builder.cast(made("int8", 2), "bool"),
            "data_type is one of .*not 'bool'",
        ),
        (lambda: builder.softmax(made("float32", 2), 1), "axis is 1, and there are 1 axes"),
        (lambda: builder.softmax(made("float32", 2), -1), "axis takes integers from 0"),
        (
            lambda: builder.arg_max(made("int8", 2), 0, output_data_type="int8"),
            "output_data_type is one of int32, int64, not 'int8'",
        ),
        (
            lambda: builder.prelu(made("float32", 2), made("float32", 3)),
            r"input \[2\] and slope \[3\] do not broadcast",
        ),
        (
            lambda: builder.where(made("uint8", 2), made("int8", 3), made("int8", 1)),
            r"\[2\], \[3\], \[1\] do not broadcast",
        ),
        (
            lambda: builder.quantize_linear(
                made("float32", 4), made("float32", 3), made("int8", 3)
            ),
            r"the sizes of scale \[3\] do not divide those of the input \[4\]",
        ),
        (
            lambda: builder.dequantize_linear(made("int8", 4), made("float32", 2), made("int8", 1)),
            r"scale has the shape \[2\] and zero_point \[1\]",
        ),
    ):
        with pytest.raises(MLTypeError, match=text):
            call()


def test_names_of_the_specification_are_spelt_in_python():
    names = ("roundEven", "isNaN", "reduceLogSumExp", "greaterOrEqual", "hardSwish", "argMin")
    assert [snake(name) in ALL for name in names] == [True] * len(names)
