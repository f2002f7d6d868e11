"""Sizes that are known when a graph runs: numbers that remember how they came about.

A size is a Python int, that of the example, so that all code over shapes goes on as ever. It also
is a polynomial of named sizes, from which the nodes are made that compute it. Quotients that do not
come out even, and sizes that only a node can tell, count as names of their own.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from ember_ml.errors import TraceError
from ember_ml.graph.tracing.lines import user_line

__all__ = ["Atom", "Polynomial", "Ratio", "Size", "plain", "sizes_in"]

# The name of a size; ("//", a, b) and ("%", a, b) of polynomials; ("shape", value, axis).
Atom = Any
Monomial = tuple[Atom, ...]
# Each product of atoms, in order, with its factor; hashed as a tuple of pairs.
Polynomial = tuple[tuple[Monomial, int], ...]

_LIBRARY: Final = __name__.partition(".")[0]


class Size(int):
    """The length of an axis that differs from run to run, as that of the example."""

    polynomial: Polynomial

    @staticmethod
    def of(value: int, polynomial: Polynomial) -> int:
        """A size; an ordinary number where nothing in it varies."""
        if not polynomial:
            return 0
        if len(polynomial) == 1 and not polynomial[0][0]:
            return polynomial[0][1]
        made = Size(value)
        made.polynomial = polynomial
        return made

    @staticmethod
    def named(name: Atom, value: int) -> int:
        """A size by a name."""
        return Size.of(value, ((((name,)), 1),))

    @property
    def name(self) -> str | None:
        """Its name; None for what is made of others."""
        if len(self.polynomial) == 1 and self.polynomial[0][1] == 1:
            atoms = self.polynomial[0][0]
            if len(atoms) == 1 and isinstance(atoms[0], str):
                return atoms[0]
        return None

    # --- Arithmetic ---------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return _made(self, other, int.__add__, _sum)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _made(self, other, int.__sub__, _difference)

    def __rsub__(self, other: Any) -> Any:
        return _made(other, self, int.__sub__, _difference)

    def __mul__(self, other: Any) -> Any:
        return _made(self, other, int.__mul__, _product)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __floordiv__(self, other: Any) -> Any:
        return _made(self, other, int.__floordiv__, _quotient)

    def __rfloordiv__(self, other: Any) -> Any:
        return _made(other, self, int.__floordiv__, _quotient)

    def __mod__(self, other: Any) -> Any:
        return _made(self, other, int.__mod__, _remainder)

    def __rmod__(self, other: Any) -> Any:
        return _made(other, self, int.__mod__, _remainder)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return Ratio.of("Div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return Ratio.of("Div", other, self)

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        if isinstance(other, int) and not isinstance(other, Size) and 0 <= other <= 8:
            made: Any = 1
            for _ in range(other):
                made = made * self
            return made
        return Ratio.of("Pow", self, other)

    def __pos__(self) -> Size:
        return self

    def __index__(self) -> int:
        return int.__index__(self)

    # --- Comparison ---------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int | float):
            return False
        return True if _settled(self, other, "==") else float(self) == float(other)

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    def __lt__(self, other: Any) -> bool:
        _settled(self, other, "<")
        return int.__lt__(self, other)

    def __le__(self, other: Any) -> bool:
        _settled(self, other, "<=")
        return int.__le__(self, other)

    def __gt__(self, other: Any) -> bool:
        _settled(self, other, ">")
        return int.__gt__(self, other)

    def __ge__(self, other: Any) -> bool:
        _settled(self, other, ">=")
        return int.__ge__(self, other)

    def __hash__(self) -> int:
        return int.__hash__(self)


_MEANING: Final[dict[str, Callable[[float, float], float]]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": operator.truediv,
    "Pow": operator.pow,
}


class Ratio(float):
    """A float that was computed of sizes, with the way in which it was.

    Python asks a float on the left first, which takes sizes for plain numbers: `1 / n` is a ratio,
    `1.0 / n` a number, of which the second trace tells.
    """

    expression: tuple[str, Any, Any]

    @staticmethod
    def of(op: str, a: Any, b: Any) -> Any:
        """What an operator of ONNX makes of two numbers, sizes or ratios."""
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            return NotImplemented
        made = Ratio(_MEANING[op](float(a), float(b)))
        made.expression = (op, a, b)
        return made

    def __add__(self, other: Any) -> Any:
        return Ratio.of("Add", self, other)

    def __radd__(self, other: Any) -> Any:
        return Ratio.of("Add", other, self)

    def __sub__(self, other: Any) -> Any:
        return Ratio.of("Sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return Ratio.of("Sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return Ratio.of("Mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return Ratio.of("Mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return Ratio.of("Div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return Ratio.of("Div", other, self)

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        return Ratio.of("Pow", self, other)

    def __neg__(self) -> Any:
        return Ratio.of("Mul", self, -1.0)


def plain(value: int) -> int:
    """The number alone."""
    return int(value)


def sizes_in(shape: Any) -> bool:
    """True where some length varies."""
    return any(type(side) is Size for side in shape)


def _settled(size: Size, other: Any, sign: str) -> bool | None:
    """Raise where a user's code asks what the answer to which depends on the run.

    True where the two are the same whatever their sizes. The library itself asks only where the
    general way holds for all sizes; a second trace with other sizes finds what does not.
    """
    polynomial = _read(other)
    if polynomial is not None and polynomial == size.polynomial:
        return True
    caller: Any = sys._getframe(2)
    while caller is not None and caller.f_globals.get("__name__") == __name__:
        caller = caller.f_back
    if caller is None or _is_library(caller.f_globals.get("__name__", "")):
        return None
    if polynomial is None:
        return None
    signs = [factor for _, factor in _difference(size.polynomial, polynomial)]
    # Every named size is at least one: a sum of them all is at least that of its factors.
    if sum(signs) > 0 and all(f > 0 for m, f in _difference(size.polynomial, polynomial) if m):
        return None
    negated = _difference(polynomial, size.polynomial)
    if sum(f for _, f in negated) > 0 and all(f > 0 for m, f in negated if m):
        return None
    raise TraceError(
        f"em.export: a comparison ({sign}) of a size that differs from run to run would be decided "
        f"once, by the example{user_line()}; leave the axis out of dynamic_axes, or write code "
        f"that is the same for all sizes"
    )


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in (_LIBRARY, "numpy", "math", "contextlib", "functools")


# --- Polynomials --------------------------------------------------------------------------------


def _read(value: Any) -> Polynomial | None:
    if type(value) is Size:
        return value.polynomial
    if isinstance(value, int):
        return ((((), int(value)),)) if int(value) else ()
    return None


def _made(a: Any, b: Any, number: Any, combine: Any) -> Any:
    first, second = _read(a), _read(b)
    if first is None or second is None:
        return NotImplemented
    value = number(int(a), int(b))
    return Size.of(value, combine(first, second))


def _packed(terms: Mapping[Monomial, int]) -> Polynomial:
    kept = [(monomial, factor) for monomial, factor in terms.items() if factor]
    return tuple(sorted(kept, key=lambda term: (len(term[0]), repr(term[0]))))


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    terms = dict(a)
    for monomial, factor in b:
        terms[monomial] = terms.get(monomial, 0) + factor
    return _packed(terms)


def _difference(a: Polynomial, b: Polynomial) -> Polynomial:
    return _sum(a, tuple((monomial, -factor) for monomial, factor in b))


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    terms: dict[Monomial, int] = {}
    for left, first in a:
        for right, second in b:
            monomial = tuple(sorted((*left, *right), key=repr))
            terms[monomial] = terms.get(monomial, 0) + first * second
    return _packed(terms)


def _even(a: Polynomial, b: Polynomial) -> Polynomial | None:
    """The quotient where it comes out even whatever the sizes; None elsewhere."""
    if len(b) != 1:
        return ((((), 1),)) if a == b else None
    (divisor, by), terms = b[0], {}
    for monomial, factor in a:
        rest = list(monomial)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if factor % by:
            return None
        terms[tuple(rest)] = factor // by
    return _packed(terms)


def _quotient(a: Polynomial, b: Polynomial) -> Polynomial:
    found = _even(a, b)
    return (((("//", a, b),), 1),) if found is None else found


def _remainder(a: Polynomial, b: Polynomial) -> Polynomial:
    return (((("%", a, b),), 1),) if _even(a, b) is None else ()
