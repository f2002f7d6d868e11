"""Values that the web platform's tests do not reach: large integers, NaN, infinities, extremes."""

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from tests.webnn import wpt
from tests.webnn.calls import compute

pytestmark = pytest.mark.parametrize("executor", wpt.EXECUTORS)

FLOATS = ("float32", "float16")
INTEGERS = ("int8", "uint8", "int32", "uint32", "int64", "uint64")
QUANTIZED = {
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
}
# Where the low half of a 64-bit integer looks negative, and where doubles have no digits left.
HALVES = (0, 1, 2**31 - 1, 2**31, 2**31 + 5, 2**32 - 1)
WIDE = {
    "int64": [high * 2**32 + low for high in (-(2**31), -1, 0, 1, 2**31 - 1) for low in HALVES],
    "uint64": [high * 2**32 + low for high in (0, 1, 2**31, 2**32 - 1) for low in HALVES],
    "uint32": list(HALVES),
}


def wrapped(number, data_type):
    """The lowest bits of a Python integer."""
    bits = np.iinfo(data_type).bits
    low = int(number) % 2**bits
    return low - 2**bits if data_type[0] == "i" and low >= 2 ** (bits - 1) else low


def exact(numbers, data_type):
    flat = [wrapped(n, data_type) for n in np.asarray(numbers, dtype=object).ravel()]
    return np.array(flat, dtype=data_type).reshape(np.shape(numbers))


def integers(data_type, shape):
    """All over the range, its ends among them."""
    ends = np.iinfo(data_type)
    made = np.random.default_rng(0).integers(
        ends.min, ends.max, shape, dtype=data_type, endpoint=True
    )
    made.flat[:2] = ends.min, ends.max
    return made


def same(made, expected):
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)


def near(made, expected, ulp):
    wpt.check(made, np.asarray(expected), {"metric": "ULP", "value": ulp}, "made")


# --- Integers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data_type", INTEGERS)
@pytest.mark.parametrize(
    ("op", "meaning"),
    [
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul", lambda a, b: a * b),
        ("max", max),
        ("min", min),
    ],
)
def test_integers_wrap_and_are_never_rounded(executor, op, meaning, data_type):
    a, b = integers(data_type, (4, 5)), integers(data_type, (5,))
    expected = [[meaning(int(x), int(y)) for x, y in zip(row, b, strict=True)] for row in a]
    same(compute(executor, op, a, b), exact(expected, data_type))


@pytest.mark.parametrize("data_type", WIDE)
def test_order_of_wide_integers(executor, data_type):
    values = np.array(WIDE[data_type], dtype=data_type)
    a, b = (x.ravel() for x in np.meshgrid(values, values))
    same(compute(executor, "max", a, b), np.maximum(a, b))
    same(compute(executor, "min", a, b), np.minimum(a, b))
    same(compute(executor, "lesser", a, b), (a < b).astype("uint8"))
    same(compute(executor, "equal", a, b), (a == b).astype("uint8"))
    rows = np.random.default_rng(0).choice(values, (20, 6))
    for axis in (0, 1):
        same(compute(executor, "reduce_max", rows, axes=[axis]), rows.max(axis))
        same(compute(executor, "reduce_min", rows, axes=[axis]), rows.min(axis))
        same(compute(executor, "arg_max", rows, axis), rows.argmax(axis).astype("int32"))
        same(compute(executor, "arg_min", rows, axis), rows.argmin(axis).astype("int32"))
    low, high = int(values[1]), int(values[4])
    clamped = compute(executor, "clamp", values, min_value=low, max_value=high)
    same(clamped, np.clip(values, values[1], values[4]))
    if data_type == "int64":
        same(compute(executor, "sign", values), np.sign(values))
        same(compute(executor, "relu", values), np.maximum(values, 0))


@pytest.mark.parametrize("data_type", ["int64", "uint64"])
@pytest.mark.parametrize("axes", [[0], [2, 0], [1], None])
def test_wide_sums_and_products(executor, data_type, axes):
    x = integers(data_type, (3, 4, 5))
    over = tuple(axes) if axes is not None else None
    numbers = x.astype(object)
    for op, expected in (
        ("reduce_sum", numbers.sum(axis=over)),
        ("reduce_product", numbers.prod(axis=over)),
        ("reduce_l1", np.abs(numbers).sum(axis=over)),
        ("reduce_sum_square", (numbers * numbers).sum(axis=over)),
    ):
        same(compute(executor, op, x, axes=axes), exact(expected, data_type))
    kept = compute(executor, "reduce_sum", x, axes=axes, keep_dimensions=True)
    same(kept, exact(numbers.sum(axis=over, keepdims=True), data_type))


@pytest.mark.parametrize("data_type", ["int32", "uint32", "int64", "uint64"])
def test_running_sums_wrap(executor, data_type):
    x = integers(data_type, (3, 4))
    forward = np.cumsum(x, axis=1, dtype=data_type)
    same(compute(executor, "cumulative_sum", x, 1), forward)
    same(compute(executor, "cumulative_sum", x, 1, exclusive=True), forward - x)
    backward = np.flip(np.cumsum(np.flip(x, 1), axis=1, dtype=data_type), 1)
    same(compute(executor, "cumulative_sum", x, 1, reversed=True), backward)


@pytest.mark.parametrize("data_type", INTEGERS)
def test_integer_quotients_drop_the_fraction(executor, data_type):
    a = integers(data_type, (4, 6))
    b = integers(data_type, (6,))
    b[b == 0] = 3
    b[2] = 7
    if data_type[0] == "i":
        b[3] = -1  # the least integer over it has no answer; it wraps
    expected = [
        [
            abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1)
            for x, y in zip(row, b, strict=True)
        ]
        for row in a
    ]
    for constants in ((), (1,)):
        same(compute(executor, "div", a, b, constants=constants), exact(expected, data_type))


@pytest.mark.parametrize("data_type", INTEGERS)
def test_integer_powers_are_exact(executor, data_type):
    signed = data_type[0] == "i"
    base = np.array([0, 1, 2, 3, 10, *((-1, -2, -7) if signed else (7, 15, 6))], dtype=data_type)
    exponent = np.array([0, 1, 2, 3, 7, 31, 39, 63, 64, 100, *((-1, -2) if signed else ())])
    exponent = exponent.astype(data_type)[:, None]
    made = compute(executor, "pow", base, exponent)
    for row, (power,) in zip(made.tolist(), exponent.tolist(), strict=True):
        for got, number in zip(row, base.tolist(), strict=True):
            if power < 0:
                expected = number ** (-power) if abs(number) == 1 else 0
            else:
                expected = wrapped(number**power, data_type)
            assert got == expected, (number, power)
    for power in (3, 100):
        made = compute(executor, "pow", base, np.array(power, data_type), constants=(1,))
        same(made, exact([wrapped(int(n) ** power, data_type) for n in base], data_type))


def test_powers_past_doubles(executor):
    base = np.array([2**31 + 1, 3, -7], dtype=np.int64)
    made = compute(executor, "pow", base, np.array([2, 39, 21], np.int64))
    assert made.tolist() == [(2**31 + 1) ** 2, 3**39, (-7) ** 21]


@pytest.mark.parametrize("data_type", INTEGERS)
@pytest.mark.parametrize("target", INTEGERS)
def test_casts_between_integers_keep_the_lowest_bits(executor, data_type, target):
    x = integers(data_type, (9,))
    same(compute(executor, "cast", x, target), exact(x, target))


@pytest.mark.parametrize("data_type", INTEGERS)
def test_selection_and_triangles_of_every_integer(executor, data_type):
    x = integers(data_type, (2, 3, 3))
    condition = np.array([[2], [0], [255]], dtype=np.uint8)
    same(compute(executor, "where", condition, x, x[0]), np.where(condition != 0, x, x[0]))
    for diagonal in (-(2**31), -1, 0, 2, 2**31 - 1):
        near_one = max(min(diagonal, 5), -5)
        same(compute(executor, "triangular", x, diagonal=diagonal), np.triu(x, near_one))
        lower = compute(executor, "triangular", x, upper=False, diagonal=diagonal)
        same(lower, np.tril(x, near_one))


# --- Floats -----------------------------------------------------------------------------------

LINE = np.concatenate(
    [
        np.linspace(-60, 60, 601),
        np.logspace(-30, 2, 60),
        -np.logspace(-30, 2, 60),
        [0, np.inf, -np.inf, np.nan],
    ]
)


@pytest.mark.parametrize("data_type", FLOATS)
@pytest.mark.parametrize(
    ("op", "meaning", "ulp", "options"),
    [
        ("sigmoid", scipy.special.expit, {"float32": 34, "float16": 10}, {}),
        ("tanh", np.tanh, {"float32": 16, "float16": 16}, {}),
        ("softplus", lambda x: np.logaddexp(x, 0), {"float32": 18, "float16": 18}, {}),
        ("elu", lambda x: np.where(x > 0, x, np.expm1(x)), {"float32": 18, "float16": 18}, {}),
        (
            "elu",
            lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)),
            {"float32": 18, "float16": 18},
            {"alpha": 1.5},
        ),
        (
            "leaky_relu",
            lambda x: np.where(x > 0, x, 0.25 * x),
            {"float32": 1, "float16": 2},
            {"alpha": 0.25},
        ),
        ("exp", np.exp, {"float32": 32, "float16": 1}, {}),
        ("sign", lambda x: 1.0 * (x > 0) - (x < 0), {"float32": 0, "float16": 0}, {}),
        ("round_even", np.round, {"float32": 0, "float16": 0}, {}),
        ("relu", lambda x: np.maximum(x, 0), {"float32": 0, "float16": 0}, {}),
    ],
)
def test_functions_at_their_tolerance_everywhere(executor, op, meaning, ulp, options, data_type):
    x = LINE.astype(data_type)
    with np.errstate(all="ignore"):
        expected = meaning(x.astype(np.float64)).astype(data_type)
    near(compute(executor, op, x, **options), expected, ulp[data_type])


@pytest.mark.parametrize("data_type", FLOATS)
def test_hard_swish_near_its_corner(executor, data_type):
    x = np.linspace(-3.1, 3.1, 200).astype(data_type)
    wide = x.astype(np.float64)
    expected = (wide * np.clip(wide + 3, 0, 6) / 6).astype(data_type)
    near(compute(executor, "hard_swish", x), expected, 4)
    assert compute(executor, "hard_swish", np.full(1, 6e4, data_type))[0] == np.array(
        6e4, data_type
    )


@pytest.mark.parametrize("data_type", FLOATS)
def test_comparisons_with_nan_are_false(executor, data_type):
    a = np.array([np.nan, 1, np.nan, np.inf, -0.0], dtype=data_type)
    b = np.array([1, np.nan, np.nan, np.inf, 0.0], dtype=data_type)
    for op, expected in (
        ("equal", [0, 0, 0, 1, 1]),
        ("not_equal", [1, 1, 1, 0, 0]),
        ("greater", [0, 0, 0, 0, 0]),
        ("greater_or_equal", [0, 0, 0, 1, 1]),
        ("lesser", [0, 0, 0, 0, 0]),
        ("lesser_or_equal", [0, 0, 0, 1, 1]),
    ):
        assert compute(executor, op, a, b).tolist() == expected, op
    assert compute(executor, "is_nan", a).tolist() == [1, 0, 1, 0, 0]
    assert compute(executor, "is_infinite", -a).tolist() == [0, 0, 0, 1, 0]


def test_any_byte_but_0_is_true(executor):
    a, b = np.array([0, 0, 2, 255], np.uint8), np.array([0, 7, 0, 128], np.uint8)
    assert compute(executor, "logical_and", a, b).tolist() == [0, 0, 0, 1]
    assert compute(executor, "logical_or", a, b).tolist() == [0, 1, 1, 1]
    assert compute(executor, "logical_xor", a, b).tolist() == [0, 1, 1, 0]
    assert compute(executor, "logical_not", a).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("data_type", FLOATS)
def test_infinities_pass_one_sided_bounds(executor, data_type):
    x = np.array([-np.inf, 1, np.inf, np.nan], dtype=data_type)
    same(compute(executor, "clamp", x, min_value=2), np.maximum(x, x.dtype.type(2)))
    same(compute(executor, "clamp", x, max_value=0), np.minimum(x, x.dtype.type(0)))
    same(compute(executor, "clamp", x, min_value=np.nan), x)
    same(compute(executor, "clamp", x), x)


def test_bounds_past_the_type_are_its_own(executor):
    x = integers("int64", (5,))
    same(compute(executor, "clamp", x, min_value=-(2**70), max_value=2**70), x)
    small = np.array([1, 255], np.uint8)
    assert compute(executor, "clamp", small, min_value=-5, max_value=300).tolist() == [1, 255]
    assert compute(executor, "clamp", small, min_value=np.inf).tolist() == [255, 255]
    floats = np.array([1, np.inf], np.float32)
    assert compute(executor, "clamp", floats, max_value=10**400).tolist() == [1, np.inf]


def test_float16_overflows_at_the_end_only(executor):
    x = np.full((2, 4), 60000, np.float16)
    assert compute(executor, "add", x, x)[0, 0] == np.inf
    assert compute(executor, "reduce_sum", x) == np.inf
    assert compute(executor, "reduce_mean", x, axes=[1]).tolist() == [60000, 60000]
    assert compute(executor, "reduce_l2", np.full(4, 300, np.float16)) == 600
    assert compute(executor, "cast", np.array([1e6, 65519], np.float32), "float16").tolist() == [
        np.inf,
        65504,
    ]


@pytest.mark.parametrize("data_type", FLOATS)
def test_logarithms_of_sums_do_not_overflow(executor, data_type):
    x = np.array([[1000, 1000], [-1000, -1000], [-np.inf, -np.inf]], data_type)
    expected = np.array([1000 + np.log(2), -1000 + np.log(2), -np.inf], data_type)
    near(compute(executor, "reduce_log_sum_exp", x, axes=[1]), expected, 22)


@pytest.mark.parametrize("data_type", FLOATS)
def test_no_axes_reduce_each_element_by_itself(executor, data_type):
    x = np.array([[-2, 0.5], [3, -4]], data_type)
    for op, expected in (
        ("reduce_l1", np.abs(x)),
        ("reduce_l2", np.abs(x)),
        ("reduce_log_sum_exp", x),
        ("reduce_max", x),
        ("reduce_mean", x),
        ("reduce_product", x),
        ("reduce_sum", x),
        ("reduce_sum_square", x * x),
    ):
        same(compute(executor, op, x, axes=[]), expected)
    near(compute(executor, "reduce_log_sum", np.abs(x), axes=[]), np.log(np.abs(x)), 18)


@pytest.mark.parametrize("data_type", ["float32", "float16", "int32", "int64", "int8"])
def test_slopes_broadcast_both_ways(executor, data_type):
    x = np.array([[-3], [4]], data_type)
    slope = np.array([2, 3], data_type)
    expected = np.array([[-6, -9], [4, 4]], data_type)
    same(compute(executor, "prelu", x, slope), expected)
    same(compute(executor, "prelu", expected, slope), np.where(expected < 0, expected * slope, 4))


# --- Quantisation -----------------------------------------------------------------------------


def blocks(x, shape):
    for axis, size in enumerate(shape):
        x = np.repeat(x, size // x.shape[axis], axis)
    return x


@pytest.mark.parametrize("data_type", FLOATS)
@pytest.mark.parametrize("quantized", QUANTIZED)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 4, 1), (1, 1, 4), (6, 2, 8), (3, 2, 1), (6, 4, 8)]
)
def test_scales_for_blocks(executor, data_type, quantized, shape):
    least, most = QUANTIZED[quantized]
    holder = getattr(ml_dtypes, quantized) if quantized.endswith("int4") else quantized
    chance = np.random.default_rng(0)
    x = (50 * chance.normal(size=(6, 4, 8))).astype(data_type)
    scale = chance.uniform(0.3, 2, shape).astype(data_type)
    zero = chance.integers(max(least, -1000), min(most, 1000), shape).astype(holder)
    wide, offset = blocks(scale, x.shape).astype(np.float32), blocks(zero, x.shape)
    steps = np.round(x.astype(np.float32) / wide).astype(np.int64)
    expected = np.clip(steps + offset.astype(np.int64), least, most).astype(holder)
    back = (expected.astype(np.int64) - offset.astype(np.int64)).astype(np.float32) * wide
    for constants in ((), (1, 2)):
        made = compute(executor, "quantize_linear", x, scale, zero, constants=constants)
        near(made, expected, 1)
        made = compute(executor, "dequantize_linear", expected, scale, zero, constants=constants)
        near(made, back.astype(data_type), 1)


def test_quantisation_at_the_ends_of_32_bits(executor):
    one = np.array([1], np.float32)
    x = np.array([-1e30, -np.inf, 1e30, np.inf, 2**31, 0.5, 1.5], np.float32)
    made = compute(executor, "quantize_linear", x, one, np.array([3], np.int32))
    low, high = -(2**31), 2**31 - 1
    assert made.tolist() == [low, low, high, high, high, 3, 5]
    made = compute(executor, "quantize_linear", x, one, np.array([2**32 - 1], np.uint32))
    high = 2**32 - 1
    assert made.tolist() == [0, 0, high, high, high, high, high]
    ends = np.array([-(2**31), 2**31 - 1], np.int32)
    made = compute(executor, "dequantize_linear", ends, one, ends[:1])
    assert made.tolist() == [0, 2.0**32]
    near_by = np.array([2**31 - 1, 2**31 - 4], np.int32)  # floats would not tell them apart
    assert compute(executor, "dequantize_linear", near_by, one, near_by[1:]).tolist() == [3, 0]
