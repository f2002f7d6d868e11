"""Special functions for engines that lack them: error functions and logarithms of gamma.

Each formula is written once over the operators of native arrays and a few functions (`Maths`), in
two sizes: for float64 and for float32. The coefficients are Chebyshev fits of our own, computed
with 60 digits; their errors are below a quarter of the last place of the dtype. 16-bit floats run
in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ember_ml import dtypes
from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["FORMULAS", "KERNELS", "Maths", "digamma_near_root", "trigamma"]

Array = NativeArray


class Maths(NamedTuple):
    """What formulas need of an engine besides operators, for arrays of one dtype."""

    wide: bool  # float64, or else float32
    number: Callable[[float], Any]  # an operand that does not change the dtype
    abs: Callable[[Array], Array]
    exp: Callable[[Array], Array]
    floor: Callable[[Array], Array]
    log: Callable[[Array], Array]
    minimum: Callable[[Array, Array], Array]
    sin: Callable[[Array], Array]
    sqrt: Callable[[Array], Array]
    where: Callable[[Array, Array, Array], Array]

    def polynomial(self, coefficients: tuple[float, ...], t: Array) -> Array:
        """Horner's scheme, highest power first."""
        return _horner(coefficients, t, self.number)


def _horner(coefficients: tuple[float, ...], t: Array, number: Callable[[float], Any]) -> Array:
    out = t * number(coefficients[0]) + number(coefficients[1])
    for one in coefficients[2:]:
        out = out * t
        out += number(one)  # in place, where the engine has that
    return out


# --- Error functions --------------------------------------------------------------------------


def erf(m: Maths, x: Array) -> Array:
    """x P(x^2) up to one, and 1 - erfc(x) beyond, where erfc is small."""
    number = m.number
    one = number(1.0)
    size = m.abs(x)
    near = m.minimum(size, one)
    small = x * m.polynomial(_ERF64 if m.wide else _ERF32, near * near)
    far = m.minimum(size, number(6.0 if m.wide else 4.0))
    large = one - _scaled(m, far) * m.exp(-(far * far))
    return m.where(size < one, small, m.where(x < number(0.0), -large, large))


def erfc(m: Maths, x: Array) -> Array:
    """1 - erf(x) while that does not cancel, exp(-x^2) Q(x) beyond, and 2 - erfc(-x) below zero."""
    number = m.number
    one, half = number(1.0), number(0.5)
    size = m.abs(x)
    near = m.minimum(size, half)
    small = one - x * m.polynomial(_ERF64 if m.wide else _ERF32, near * near)
    tail = _tail(m, size)
    return m.where(size < half, small, m.where(x < number(0.0), number(2.0) - tail, tail))


def _tail(m: Maths, size: Array) -> Array:
    """erfc of what is at least a half."""
    number = m.number
    far = m.minimum(size, number(28.0 if m.wide else 10.5))
    # The square of a rounded x is exact; exp would enlarge the rounding of x * x.
    coarse = m.floor(far * number(16.0)) * number(1 / 16)
    rest = (far - coarse) * (far + coarse)
    return m.exp(-(coarse * coarse)) * (m.exp(-rest) * _scaled(m, far))


def _scaled(m: Maths, x: Array) -> Array:
    """exp(x^2) erfc(x) for x of at least a half: smooth in (x - 3) / (x + 3)."""
    three = m.number(3.0)
    t = (x - three) / (x + three)
    return m.polynomial(_ERFCX64 if m.wide else _ERFCX32, t) / (x + m.number(1.0))


def erfinv(m: Maths, x: Array) -> Array:
    """A fit in w = -log(1 - x^2); float64 takes two steps of Halley's method from there."""
    number = m.number
    zero, one = number(0.0), number(1.0)
    w = -m.log((one - x) * (one + x))
    root = m.sqrt(m.where(w < number(5.0), number(9.0), w))
    if m.wide:
        far = m.polynomial(_ERFINV_FAR, m.minimum(root, number(6.1)) - number(4.0))
    else:
        far = m.polynomial(_ERFINV_TAIL, m.minimum(root, number(4.1)) - number(3.0))
    inner = m.polynomial(_ERFINV, m.minimum(w, number(5.0)))
    y = x * m.where(w < number(5.0), inner, far)
    if m.wide:
        for _ in range(2):
            size = m.abs(y)
            error = m.where(
                m.abs(x) < number(0.5),
                erf(m, y) - x,
                # 1 - |x| is exact there, and erfc keeps what erf has rounded away.
                ((one - m.abs(x)) - erfc(m, size)) * m.where(x < zero, -one, one),
            )
            slope = number(2 / math.sqrt(math.pi)) * m.exp(-(size * size))
            y = y - error / (slope + y * error)
    edge = x * number(math.inf)
    y = m.where(m.abs(x) < one, y, m.where(m.abs(x) == one, edge, number(math.nan)))
    return m.where(x == zero, x, y)


# --- Gamma ------------------------------------------------------------------------------------


def lgamma(m: Maths, x: Array) -> Array:
    """The logarithm of |gamma(x)|; infinite at zero and at negative integers."""
    number = m.number
    zero = number(0.0)
    y = m.abs(x)
    positive = _lgamma_positive(m, y)
    # gamma(-y) gamma(y) = -pi / (y sin(pi y))
    reflected = m.log(number(math.pi) / (y * _sine_of_turn(m, y))) - positive
    out = m.where(x < zero, reflected, positive)
    return m.where((x < zero) & (m.floor(y) == y), number(math.inf), out)


def _sine_of_turn(m: Maths, y: Array) -> Array:
    """|sin(pi y)|, by the distance to the nearest integer, which is exact."""
    rest = y - m.floor(y + m.number(0.5))
    return m.abs(m.sin(rest * m.number(math.pi)))


def _lgamma_positive(m: Maths, x: Array) -> Array:
    """Stirling's series from 8 on; below, lgamma(2 + z) = z H(z) and the recurrence."""
    number = m.number
    one = number(1.0)
    part = m.minimum(x, number(8.0))
    # z is x - n, which is exact, for the whole number n that is nearest to x; 0, 1 and 2 apart.
    z = part - m.floor(part + number(0.5))
    series = z * m.polynomial(_LGAMMA64 if m.wide else _LGAMMA32, z)
    product = one + z * number(0.0)
    for k in range(1, 7):
        product = m.where(part < number(k + 1.5), product, product * (part - number(float(k))))
    below = m.where(part < number(0.5), part * (part + one), part)
    near = series + m.where(part < number(1.5), -m.log(below), m.log(product))
    inverse = one / m.where(x < number(8.0), number(8.0), x)
    tail = inverse * m.polynomial(_STIRLING64 if m.wide else _STIRLING32, inverse * inverse)
    far = (x - number(0.5)) * (m.log(x) - one) + (tail + number(0.5 * math.log(2 * math.pi) - 0.5))
    return m.where(x < number(8.0), near, far)


def digamma(m: Maths, x: Array) -> Array:
    """The derivative of lgamma; NaN at negative integers, infinite at zero."""
    number = m.number
    zero, one = number(0.0), number(1.0)
    negative = x < zero
    y = m.where(negative, one - x, x)
    positive = _digamma_positive(m, y)
    # psi(x) = psi(1 - x) - pi / tan(pi x), with the angle from the nearest integer.
    rest = (x - m.floor(x + number(0.5))) * number(math.pi)
    sine = m.sin(rest)
    cosine = m.sin(number(math.pi / 2) - m.abs(rest))
    reflected = positive - number(math.pi) * cosine / sine
    pole = negative & (m.floor(x) == x)
    out = m.where(negative, reflected, positive)
    return m.where(pole, number(math.nan), m.where(x == zero, -one / x, out))


def digamma_near_root(x: Array, wide: bool, number: Callable[[float], Any] = float) -> Array:
    """digamma between 1 and 2: the distance from its root times a smooth function."""
    first, rest = (_ROOT, _ROOT_REST) if wide else (_ROOT32, _ROOT_REST32)
    t = x - number(1.5)
    coefficients = _DIGAMMA64 if wide else _DIGAMMA32
    return ((x - number(first)) - number(rest)) * _horner(coefficients, t, number)


def _digamma_positive(m: Maths, x: Array) -> Array:
    """A fit around the root between 1 and 2; the asymptotic series from 8 on, shifted below."""
    number = m.number
    one, two, eight = number(1.0), number(2.0), number(8.0)
    unit = m.where(x < one, x + one, m.minimum(x, two))
    near = digamma_near_root(unit, m.wide, number)
    near = m.where(x < one, near - one / x, near)
    part = m.where(x < eight, x, two)
    steps = one / part
    for k in range(1, 6):
        steps = steps + one / (part + number(float(k)))
    shifted = m.where(x < eight, x + number(6.0), x)
    inverse = one / m.where(x < two, eight, shifted)
    square = inverse * inverse
    tail = square * m.polynomial(_DIGAMMA_TAIL64 if m.wide else _DIGAMMA_TAIL32, square)
    far = m.log(m.where(x < two, eight, shifted)) - number(0.5) * inverse - tail
    return m.where(x < two, near, m.where(x < eight, far - steps, far))


def trigamma(m: Maths, x: Array) -> Array:
    """The derivative of digamma, and no kernel: the slope of one.

    Written without a step in place, so that it can be differentiated again; infinite at zero and
    at negative integers.
    """
    number = m.number
    zero, one = number(0.0), number(1.0)
    negative = x < zero
    y = m.where(negative, one - x, x)
    total = one / (y * y)
    for k in range(1, 9):
        part = y + number(float(k))
        total = total + one / (part * part)
    # The asymptotic series in 1 / z, for z of at least 9, with Bernoulli's numbers.
    inverse = one / (y + number(9.0))
    square = inverse * inverse
    tail = square * number(7 / 6) - number(691 / 2730)
    for factor in (5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6):
        tail = tail * square + number(factor)
    positive = total + inverse * (one + inverse * (number(0.5) + inverse * tail))
    # psi'(x) + psi'(1 - x) = (pi / sin(pi x))^2, with the angle from the nearest integer.
    rest = m.where(negative, x - m.floor(x + number(0.5)), number(0.25))
    turn = number(math.pi) / m.sin(rest * number(math.pi))
    return m.where(negative, turn * turn - positive, positive)


# --- Coefficients, highest power first --------------------------------------------------------

# The root of digamma between 1 and 2, and what float64 and float32 have rounded away of it.
_ROOT: Final = 1.4616321449683622
_ROOT_REST: Final = 9.549995429965697e-17
_ROOT32: Final = 1.4616321325302124
_ROOT_REST32: Final = 1.2438149938918909e-08
_ERF64: Final = (
    -7.795898827002142e-10,
    1.3720064546777686e-08,
    -1.6208483801871705e-07,
    1.6447424703317362e-06,
    -1.492473690741966e-05,
    0.00012055294904839707,
    -0.0008548325975389692,
    0.0052239776071164225,
    -0.02686617064323777,
    0.11283791670945006,
    -0.37612638903183543,
    1.1283791670955126,
)
_ERF32: Final = (
    7.875875062685488e-05,
    -0.000801686428716587,
    0.005189087423433974,
    -0.026854212010626412,
    0.11283594715160218,
    -0.37612626666720334,
    1.1283791658483509,
)
_ERFCX64: Final = (
    1.6169239112752589e-09,
    3.491991112096615e-08,
    -2.0838402291101104e-08,
    -2.7650422140676463e-07,
    3.5796498966974287e-08,
    1.5785144919561202e-06,
    2.748801126951662e-07,
    -8.986204222213307e-06,
    -1.5194380905469892e-06,
    5.611843420772016e-05,
    -2.0550475442532073e-05,
    -0.0003672883319243714,
    0.0006458140469059499,
    0.001618569112587709,
    -0.009750689280229017,
    0.021957764013468654,
    -0.023803913109182822,
    -0.010235388899029555,
    0.09902075367944828,
    -0.23092733308380903,
    0.7160046047255598,
)
_ERFCX32: Final = (
    -0.00028305783835374815,
    0.000630616644088099,
    0.0015752000477705242,
    -0.009746405409822073,
    0.021967070673654467,
    -0.023804505808158898,
    -0.010236182431350266,
    0.09902078879806399,
    -0.23092731444379444,
    0.7160046043459192,
)
_LGAMMA64: Final = (
    -5.72865310850801e-07,
    1.2159620602745015e-06,
    -1.982565620739196e-06,
    4.2553702843110484e-06,
    -9.452938473714576e-06,
    2.0535581020500523e-05,
    -4.492443535898787e-05,
    9.945371368841632e-05,
    -0.00022315489463809116,
    0.0005096698119432116,
    -0.0011927539062598581,
    0.0028905103192621994,
    -0.0073855510287714685,
    0.02058080842799012,
    -0.06735230105319759,
    0.32246703342411215,
    0.42278433509846713,
)
_LGAMMA32: Final = (
    -0.00025056202146086636,
    0.0005702512502829781,
    -0.0011874848136699278,
    0.00287886868374075,
    -0.007385920884783578,
    0.0205816254365885,
    -0.06735229409087408,
    0.3224670180454995,
    0.42278433509846713,
)
_STIRLING64: Final = (
    0.005065905360156132,
    -0.001890382993887715,
    0.0008414700852503147,
    -0.0005952365845057049,
    0.0007936507897524059,
    -0.002777777777773988,
    0.08333333333333333,
)
_STIRLING32: Final = (
    0.0007800347189829517,
    -0.0027776985451962778,
    0.08333333326463777,
)
_DIGAMMA64: Final = (
    0.0002522590506964885,
    -0.0003783907897248858,
    0.00023650171719339814,
    -0.00035476352053371977,
    0.0007184107969046378,
    -0.0010776863967234226,
    0.0015580749137213761,
    -0.002337552647103118,
    0.0035187504361950134,
    -0.005280903066090605,
    0.007926972735646359,
    -0.011908146513976738,
    0.017907250563619775,
    -0.026975800029253667,
    0.0407608338843387,
    -0.06192213319072707,
    0.09498872445354183,
    -0.14840492305485808,
    0.24054248424078478,
    -0.4236274212814573,
    0.9510558760318328,
)
_DIGAMMA32: Final = (
    -0.01590631756163065,
    0.023909071438577043,
    -0.02604888222714401,
    0.03936941933941425,
    -0.062007068861342586,
    0.09511622179338902,
    -0.14840223752060958,
    0.24053845299247192,
    -0.42362743473901193,
    0.9510558962329134,
)
_DIGAMMA_TAIL64: Final = (
    -0.299425370626735,
    0.08002337465397756,
    -0.02105106090804774,
    0.007575459920369176,
    -0.004166665501516725,
    0.003968253965999701,
    -0.008333333333331664,
    0.08333333333333333,
)
_DIGAMMA_TAIL32: Final = (
    0.0038735882621179453,
    -0.008332783540638763,
    0.08333333285681879,
)
_ERFINV: Final = (
    -8.931925970244222e-09,
    2.243043015262031e-07,
    -2.0082713391637707e-06,
    4.150663236592616e-06,
    4.404880432626899e-05,
    -0.00012653947431268868,
    -0.0023352705948701527,
    0.011549165116928104,
    0.23201371276215604,
    0.8862269242011682,
)
_ERFINV_TAIL: Final = (
    0.0001115385807799795,
    -0.00030552505117411146,
    -5.045885289808411e-05,
    0.001479703952923971,
    -0.0036009003307526993,
    0.005689216294342166,
    -0.007636489636678905,
    0.009444992113527836,
    1.0016749120571993,
    2.8329768070195414,
)
_ERFINV_FAR: Final = (
    1.74421250146687e-05,
    -7.968250476082084e-05,
    9.503265534772373e-05,
    -2.3574038777811923e-05,
    0.0002419357859725081,
    -0.0009486335605301342,
    0.0013066017099415315,
    1.0095136286327868,
    3.839779481041642,
)


# --- As kernels -------------------------------------------------------------------------------

FORMULAS: Final[dict[str, Callable[[Maths, Array], Array]]] = {
    formula.__name__: formula for formula in (erf, erfc, erfinv, lgamma, digamma)
}


def _maths(xp: Kernels, x: Array) -> Maths:
    backend = xp._backend
    spec = backend.spec_of(x)
    run = {
        name: backend.entry(spec, name)[0]
        for name in ("abs", "exp", "floor", "log", "minimum", "sin", "sqrt", "where")
    }
    return Maths(wide=spec.dtype is dtypes.float64, number=spec.scalar, **run)


def _portable(formula: Callable[[Maths, Array], Array]) -> Kernel:
    def kernel(xp: Kernels, x: Array) -> Array:
        dtype = xp.dtype(x)
        if dtype in (dtypes.float32, dtypes.float64):
            return formula(_maths(xp, x), x)
        wide = xp.cast(x, dtypes.float32)
        return xp.cast(formula(_maths(xp, wide), wide), dtype)

    return kernel


KERNELS: Final[dict[str, Kernel]] = {name: _portable(formula) for name, formula in FORMULAS.items()}
