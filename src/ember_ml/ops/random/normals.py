"""The normal distribution function and its inverse."""

from __future__ import annotations

from math import erfc, sqrt
from typing import Any, Final

__all__ = ["inverse_normal", "normal_mass"]

# Rational approximations by M. J. Wichura, algorithm AS 241 (Applied Statistics 37, 1988), lowest
# power first: around the middle, in the tails, far out in them. Good to 1e-16.
_MIDDLE: Final = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
     5.2264952788528545610e3),
)  # fmt: skip
_TAIL: Final = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
     3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9),
)  # fmt: skip
_FAR: Final = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
     2.04426310338993978564e-15),
)  # fmt: skip


def normal_mass(x: float) -> float:
    """The share of normal numbers that lie below `x`, exact also far down.

    >>> round(normal_mass(-1.959963984540054), 12)
    0.025
    """
    return 0.5 * erfc(-x / sqrt(2.0))


def inverse_normal(xp: Any, p: Any) -> Any:
    """Where the share `p`, between 0 and 1, of the normal numbers lies below.

    `xp` is NumPy or `ops`: what is needed of them has the same names.
    """
    centred = p - 0.5
    middle = centred * _ratio(_MIDDLE, 0.180625 - centred * centred)
    # Logarithms of what the middle is for are never used, but must not be of zero.
    distance = xp.sqrt(-xp.log(xp.where(centred < 0, p, 1 - p)))
    tail = xp.where(distance <= 5, _ratio(_TAIL, distance - 1.6), _ratio(_FAR, distance - 5))
    signed = xp.where(centred < 0, -tail, tail)
    return xp.where(xp.abs(centred) <= 0.425, middle, signed)


def _ratio(polynomials: tuple[tuple[float, ...], ...], x: Any) -> Any:
    over, under = (_polynomial(coefficients, x) for coefficients in polynomials)
    return over / under


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    value: Any = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value
