"""Functions of single elements as nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml.graph.tracing import carriers
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.trace import constant, emit

__all__ = ["EMITTERS", "choose", "maximum", "minimum", "number"]

# Gets the NumPy kernel on the example's values, then what the kernel gets.
Emitter = Callable[..., Any]


def number(value: Any, like: Operand) -> np.ndarray[Any, Any]:
    """A Python number as a constant beside an operand."""
    return np.array(value, like.dtype)


def choose(mask: Any, a: Any, b: Any) -> Operand:
    """Elements of `a` where the mask is true, of `b` elsewhere."""
    shadows = [x.shadow if isinstance(x, Operand) else x for x in (mask, a, b)]
    like = 1 if isinstance(a, Operand) else 2
    if shadows[like].dtype == np.bool_:  # ONNX Runtime has no Where of truth values
        other = emit("Not", [mask], np.logical_not(shadows[0]))
        first = emit("And", [mask, a], np.logical_and(shadows[0], shadows[1]))
        second = emit("And", [other, b], np.logical_and(other.shadow, shadows[2]))
        return emit("Or", [first, second], np.logical_or(first.shadow, second.shadow))
    return emit("Where", [mask, a, b], np.where(*shadows), like=like)


# --- One operand --------------------------------------------------------------------------------


def _unary(op: str, **attributes: Any) -> Emitter:
    def run(eager: Any, x: Operand) -> Any:
        if not carriers.takes(op, x.dtype) and x.dtype == np.float64:
            return _in_double(op, x)
        return emit(op, [x], eager(x), **attributes)

    return run


def _whole(op: str) -> Emitter:
    """A rounding, which leaves integers as they are."""

    def run(eager: Any, x: Operand) -> Any:
        if x.dtype.kind != "f" and x.dtype.kind != "V":
            return emit("Identity", [x], x.shadow)
        return emit(op, [x], eager(x))

    return run


def trunc(eager: Any, x: Operand) -> Any:
    if x.dtype.kind in "iu":
        return emit("Identity", [x], x.shadow)
    return choose(
        x < 0, emit("Ceil", [x], np.ceil(x.shadow)), emit("Floor", [x], np.floor(x.shadow))
    )


def square(eager: Any, x: Operand) -> Any:
    return emit("Mul", [x, x], eager(x))


def _double(name: str) -> Emitter:
    def run(eager: Any, x: Operand) -> Any:
        op = name.capitalize()
        if x.dtype == np.float64:
            return _in_double(op, x)
        return emit(op, [x], eager(x))

    return run


def _in_double(op: str, x: Operand) -> Any:
    """Functions that ONNX Runtime has in float32 alone, of those that it has in float64."""
    found = _DOUBLE.get(op)
    return NotImplemented if found is None else found(x)


def _root(x: Operand) -> Operand:
    return emit("Sqrt", [x], np.sqrt(x.shadow))


def _exp(x: Operand) -> Operand:
    return emit("Exp", [x], np.exp(x.shadow))


def _log(x: Operand) -> Operand:
    return emit("Log", [x], np.log(x.shadow))


def _atan(x: Operand) -> Operand:
    """Half the angle three times, then its series: tan(pi / 16) is a fifth."""
    large = abs(x) > 1
    inner = choose(large, 1.0 / choose(large, x, number(1.0, x)), x)
    for _ in range(2):
        inner = inner / (_root(inner * inner + 1.0) + 1.0)
    square = inner * inner
    total = square * 0.0
    for power in range(29, 0, -2):
        total = total * square + (1.0 if power % 4 == 1 else -1.0) / power
    angle = total * inner * 4.0
    quarter = _sign(x) * (math.pi / 2)
    return choose(large, quarter - angle, angle)


def _sign(x: Operand) -> Operand:
    if x.dtype == np.int64:  # as in _extreme
        made: Operand = _cast(x > 0, np.int64) - _cast(x < 0, np.int64)
        return made
    return emit("Sign", [x], np.sign(x.shadow))


def _asinh(x: Operand) -> Operand:
    size = abs(x)
    near = log1p(None, size + size * size / (_root(size * size + 1.0) + 1.0))
    made: Operand = _sign(x) * _far(size, near)
    return made


def _acosh(x: Operand) -> Operand:
    return _far(x, _log(x + _root(x - 1.0) * _root(x + 1.0)))


def _far(x: Operand, near: Operand) -> Operand:
    """The logarithm of 2x where the one is lost beside the square of x, which might be infinite."""
    return choose(x > 1e9, _log(x) + math.log(2.0), near)


_DOUBLE: Final[dict[str, Callable[[Operand], Operand]]] = {
    "Tan": lambda x: emit("Sin", [x], np.sin(x.shadow)) / emit("Cos", [x], np.cos(x.shadow)),
    "Atan": _atan,
    "Asin": lambda x: _atan(x / _root((1.0 - x) * (1.0 + x))),
    "Acos": lambda x: _atan(_root((1.0 - x) / (1.0 + x))) * 2.0,
    "Sinh": lambda x: (expm1(None, x) - expm1(None, -x)) * 0.5,
    "Cosh": lambda x: (_exp(x) + _exp(-x)) * 0.5,
    "Asinh": _asinh,
    "Acosh": _acosh,
    "Atanh": lambda x: log1p(None, (x + x) / (1.0 - x)) * 0.5,
}


def expm1(eager: Any, x: Operand) -> Any:
    """By tanh, which does not cancel: exp(x) - 1 = 2t / (1 - t) with t = tanh(x / 2)."""
    half = emit("Tanh", [x * 0.5], np.tanh(x.shadow * x.dtype.type(0.5)))
    near = (half + half) / (1.0 - half)
    return choose(abs(x) < 1.0, near, _exp(x) - 1.0)


def log1p(eager: Any, x: Operand) -> Any:
    """log(1 + x) times what the rounding of 1 + x lost."""
    one = x + 1.0
    lost = one - 1.0
    same = lost == 0.0
    right = _log(one) * (x / choose(same, number(1.0, x), lost))
    return choose(same, x, choose(one == math.inf, one, right))


def _scaled_log(base: float) -> Emitter:
    def run(eager: Any, x: Operand) -> Any:
        return _log(x) * (1 / math.log(base))

    return run


def isnan(eager: Any, x: Operand) -> Any:
    if x.dtype.kind in "iub":
        return logical_not(None, emit("Equal", [x, x], np.equal(x.shadow, x.shadow)))
    return emit("IsNaN", [x], eager(x))


def isinf(eager: Any, x: Operand) -> Any:
    if x.dtype.kind in "iub":
        return logical_not(None, emit("Equal", [x, x], np.equal(x.shadow, x.shadow)))
    return emit("IsInf", [x], eager(x))


def isfinite(eager: Any, x: Operand) -> Any:
    if x.dtype.kind in "iub":
        return emit("Equal", [x, x], np.equal(x.shadow, x.shadow))
    return ~(isnan(lambda x: np.isnan(x.shadow), x) | isinf(lambda x: np.isinf(x.shadow), x))


def logical_not(eager: Any, x: Operand) -> Any:
    return emit("Not", [x], np.logical_not(x.shadow))


def bitwise_invert(eager: Any, x: Operand) -> Any:
    return emit("Not" if x.dtype == np.bool_ else "BitwiseNot", [x], np.invert(x.shadow))


def identity(eager: Any, x: Operand) -> Any:
    return emit("Identity", [x], x.shadow, shape=x.shape)


# --- Two operands -------------------------------------------------------------------------------


def _binary(op: str, **attributes: Any) -> Emitter:
    def run(eager: Any, x: Operand, y: Any) -> Any:
        if not isinstance(y, Operand):
            from ember_ml.graph.tracing.backend import graph_backend

            y = graph_backend().spec_of(x).scalar(y)
        return emit(op, [x, y], eager(x, y), **attributes)

    return run


def not_equal(eager: Any, x: Operand, y: Operand) -> Any:
    return logical_not(None, emit("Equal", [x, y], np.equal(x.shadow, y.shadow)))


def _truth(op: str, bits: str) -> Emitter:
    def run(eager: Any, x: Operand, y: Operand) -> Any:
        return emit(op if x.dtype == np.bool_ else bits, [x, y], eager(x, y))

    return run


def pow(eager: Any, x: Operand, y: Operand) -> Any:
    if x.dtype.kind in "iu":
        return _integer_power(x, y)
    with np.errstate(all="ignore"):
        return emit("Pow", [x, y], np.power(x.shadow, y.shadow))


def _integer_power(x: Operand, y: Operand) -> Any:
    """By squares, which are exact and wrap: ONNX Runtime computes powers by way of float64."""
    if y.known and y.size == 1 and y.ndim <= x.ndim:
        exponent = int(y.shadow.item())
        made: Any = None
        while exponent > 0:
            if exponent % 2:
                made = x if made is None else made * x
            exponent //= 2
            x = x * x if exponent else x
        return x * 0 + 1 if made is None else made
    signed = x.dtype.kind == "i"
    power, made = x, None
    for place in range(8 * x.dtype.itemsize - signed):
        power = power * power if place else x
        factor = choose((y & (1 << place)) != 0, power, number(1, x))
        made = factor if made is None else made * factor
    if signed:
        # Exponents of the example that are negative are no mistake of the function.
        inexact = emit("Pow", [x, y], np.power(x.shadow, abs(y.shadow)))
        made = choose(y < 0, inexact, made)
    return made


def _integers(x: Operand, y: Operand) -> tuple[Any, Any]:
    """Example values to divide by: a zero of the example is no mistake of the function."""
    return x.shadow, np.where(y.shadow == 0, 1, y.shadow).astype(y.dtype)


def _divided(op: str, join: Any, x: Operand, y: Operand, **attributes: Any) -> Operand:
    """A node that divides integers.

    The least integer over -1 has no answer, and processors trap: ONNX Runtime would die of it.
    """
    safe = x.dtype not in (np.int32, np.int64) or (y.known and not np.any(y.shadow == -1))
    if safe:
        return emit(op, [x, y], join(*_integers(x, y)), **attributes)
    minus = y == -1
    divisor = choose(minus, number(1, y), y)
    made = emit(op, [x, divisor], join(*_integers(x, divisor)), **attributes)
    return made if op == "Mod" else choose(minus, -made, made)


def remainder(eager: Any, x: Operand, y: Operand) -> Any:
    if x.dtype.kind in "iu":
        return _divided("Mod", np.remainder, x, y)
    rest = emit("Mod", [x, y], np.fmod(x.shadow, y.shadow), fmod=1)
    other = (rest != 0.0) & ((rest < 0.0) ^ (y < 0.0))
    return choose(other, rest + y, rest)


def fmod(eager: Any, x: Operand, y: Operand) -> Any:
    if x.dtype.kind in "iu":
        return _divided("Mod", np.fmod, x, y, fmod=1)
    return emit("Mod", [x, y], np.fmod(x.shadow, y.shadow), fmod=1)


def floor_divide(eager: Any, x: Operand, y: Operand) -> Any:
    if x.dtype.kind in "iu":
        quotient = _divided("Div", _truncated, x, y)
        if x.dtype.kind == "u":
            return quotient
        # Div drops the fraction; of a negative number it is to be rounded up in size.
        below = (remainder(None, x, y) != 0) & ((x < 0) ^ (y < 0))
        return quotient - _cast(below, x.dtype)
    rest = remainder(None, x, y)
    exact = (x - rest) / y
    down = emit("Floor", [exact], np.floor(exact.shadow))
    nearest = choose((exact - down) > 0.5, down + 1.0, down)
    whole = x / y
    odd = isinf(lambda x: np.isinf(x.shadow), x) | isinf(lambda y: np.isinf(y.shadow), y)
    return choose(odd | (y == 0.0), whole, nearest)


def _truncated(x: Any, y: Any) -> Any:
    """The quotient of integers without its fraction, as ONNX divides."""
    return np.floor_divide(x, y) + ((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)))


def left_shift(eager: Any, x: Operand, y: Operand) -> Any:
    wide, count = _cast(x, np.uint64), _cast(y, np.uint64)
    made = emit(
        "BitShift", [wide, count], np.left_shift(wide.shadow, count.shadow), direction="LEFT"
    )
    return _cast(made, x.dtype)


def right_shift(eager: Any, x: Operand, y: Operand) -> Any:
    """The sign is dragged in: negative numbers are shifted as their complements."""
    wide = _cast(x, np.int64)
    negative = x.dtype.kind == "i"
    below = wide < 0 if negative else None
    inner = choose(below, ~wide, wide) if negative else _cast(x, np.uint64)
    bits, count = _cast(inner, np.uint64), _cast(y, np.uint64)
    made = emit(
        "BitShift", [bits, count], np.right_shift(bits.shadow, count.shadow), direction="RIGHT"
    )
    if not negative:
        return _cast(made, x.dtype)
    made = _cast(made, np.int64)
    return _cast(choose(below, ~made, made), x.dtype)


def _cast(x: Operand, dtype: Any) -> Operand:
    from ember_ml import dtypes
    from ember_ml.graph.tracing.trace import cast

    return cast(x, dtypes.to_dtype(dtype))


def atan2(eager: Any, y: Operand, x: Operand) -> Any:
    """The angle of the smaller slope, turned into its quadrant; a negative zero has a sign."""
    small = abs(y) <= abs(x)
    over, under = choose(small, y, x), choose(small, x, y)
    both = (x == 0.0) & (y == 0.0)
    infinite = isinf(lambda x: np.isinf(x.shadow), over)
    ratio = over / choose(both, number(1.0, x), under)
    ratio = choose(infinite, _sign(over) * _sign(under), ratio)
    ratio = choose(both, number(0.0, x), ratio)
    angle = (
        _atan(ratio) if x.dtype == np.float64 else emit("Atan", [ratio], np.arctan(ratio.shadow))
    )
    left = _negative(x)
    turned = choose(left, choose(_negative(y), angle - math.pi, angle + math.pi), angle)
    steep = choose(y > 0.0, math.pi / 2 - angle, -math.pi / 2 - angle)
    return choose(small, turned, steep)


def _negative(x: Operand) -> Operand:
    """True also for -0.0, which division tells."""
    made: Operand = (x < 0.0) | ((x == 0.0) & ((1.0 / x) < 0.0))
    return made


def heaviside(eager: Any, x: Operand, y: Operand) -> Any:
    step = choose(x == 0.0, y, choose(x < 0.0, number(0, x), number(1, x)))
    return choose(isnan(lambda x: np.isnan(x.shadow), x), x, step)


def logaddexp(eager: Any, x: Operand, y: Operand) -> Any:
    same = x == y
    gap = choose(same, number(0.0, x), x - y)
    larger = emit("Max", [x, y], np.maximum(x.shadow, y.shadow))
    return larger + log1p(None, _exp(-abs(gap)))


def where(eager: Any, mask: Operand, x: Any, y: Any) -> Any:
    like = x if isinstance(x, Operand) else y
    if not isinstance(like, Operand):
        return NotImplemented
    if not isinstance(x, Operand):
        x = number(x, like)
    if not isinstance(y, Operand):
        y = number(y, like)
    return choose(mask, x, y)


def _extreme(op: str) -> Emitter:
    join: Any = np.maximum if op == "Max" else np.minimum

    def run(eager: Any, x: Operand, y: Any) -> Any:
        if not isinstance(y, Operand):
            y = constant(number(y, x))
        if x.dtype == np.int64:
            # ONNX Runtime 1.31 compares the halves of int64 as signed numbers in Max, Min and Sign:
            # there 3 is greater than 3 * 10**9. Its comparisons are right.
            return choose(x < y if op == "Max" else x > y, y, x)
        return emit(op, [x, y], join(x.shadow, y.shadow))

    return run


maximum: Final = _extreme("Max")
minimum: Final = _extreme("Min")


EMITTERS: Final[dict[str, Emitter]] = {
    "abs": _unary("Abs"),
    "negative": _unary("Neg"),
    "sign": lambda eager, x: _sign(x),
    "sqrt": _unary("Sqrt"),
    "root": _unary("Sqrt"),
    "exp": _unary("Exp"),
    "log": _unary("Log"),
    "sin": _unary("Sin"),
    "cos": _unary("Cos"),
    "tanh": _unary("Tanh"),
    "reciprocal": _unary("Reciprocal"),
    **{name: _double(name) for name in ("tan", "asin", "acos", "atan", "sinh", "cosh")},
    **{name: _double(name) for name in ("asinh", "acosh", "atanh")},
    "erf": _unary("Erf"),
    "floor": _whole("Floor"),
    "ceil": _whole("Ceil"),
    "round": _whole("Round"),
    "trunc": trunc,
    "square": square,
    "expm1": expm1,
    "log1p": log1p,
    "log2": _scaled_log(2),
    "log10": _scaled_log(10),
    "isnan": isnan,
    "isinf": isinf,
    "isfinite": isfinite,
    "logical_not": logical_not,
    "bitwise_invert": bitwise_invert,
    "positive": identity,
    "stop_gradient": identity,
    "conj": identity,
    "real": identity,
    "add": _binary("Add"),
    "subtract": _binary("Sub"),
    "multiply": _binary("Mul"),
    "divide": _binary("Div"),
    "maximum": maximum,
    "minimum": minimum,
    "equal": _binary("Equal"),
    "not_equal": not_equal,
    "less": _binary("Less"),
    "less_equal": _binary("LessOrEqual"),
    "greater": _binary("Greater"),
    "greater_equal": _binary("GreaterOrEqual"),
    "logical_and": _binary("And"),
    "logical_or": _binary("Or"),
    "logical_xor": _binary("Xor"),
    "bitwise_and": _truth("And", "BitwiseAnd"),
    "bitwise_or": _truth("Or", "BitwiseOr"),
    "bitwise_xor": _truth("Xor", "BitwiseXor"),
    "bitwise_left_shift": left_shift,
    "bitwise_right_shift": right_shift,
    "pow": pow,
    "remainder": remainder,
    "fmod": fmod,
    "floor_divide": floor_divide,
    "atan2": atan2,
    "heaviside": heaviside,
    "logaddexp": logaddexp,
    "where": where,
}
