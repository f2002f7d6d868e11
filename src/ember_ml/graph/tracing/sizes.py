"""Sizes that are known when a graph runs: numbers that remember how they came about.

A size is a Python int, that of the example, so that all code over shapes goes on as ever. It also
is a polynomial of named sizes, from which the nodes are made that compute it. Quotients that do not
come out even, and sizes that only a node can tell, count as names of their own.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from ember_ml.errors import TraceError
from ember_ml.graph.tracing.lines import user_line

__all__ = [
    "Atom",
    "Name",
    "Polynomial",
    "Ratio",
    "Size",
    "names_in",
    "never_negative",
    "noted",
    "plain",
    "sizes_in",
    "valued",
]

# The name of a size; ("//", a, b) and ("%", a, b) of polynomials; ("shape", value, axis).
Atom = Any
Monomial = tuple[Atom, ...]
# Each product of atoms, in order, with its factor; hashed as a tuple of pairs.
Polynomial = tuple[tuple[Monomial, int], ...]

_LIBRARY: Final = __name__.partition(".")[0]
# What the code of a user computes of sizes, while somebody wants to know.
_NOTED: Final[ContextVar[list[Size] | None]] = ContextVar("noted", default=None)


class Name(str):
    """The name of a size in one export: that of another is another size, whatever it is called."""

    __slots__ = ("owner",)

    owner: object

    @staticmethod
    def of(name: str, owner: object) -> Name:
        """A name that belongs to an object, which no other has."""
        made = Name(name)
        made.owner = owner
        return made

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True and getattr(other, "owner", self.owner) is self.owner

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    __hash__ = str.__hash__


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
                return str(atoms[0])
        return None

    # --- Arithmetic ---------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if isinstance(other, float):
            return Ratio.of("Add", self, other)
        return _made(self, other, int.__add__, _sum)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, float):
            return Ratio.of("Sub", self, other)
        return _made(self, other, int.__sub__, _difference)

    def __rsub__(self, other: Any) -> Any:
        return _made(other, self, int.__sub__, _difference)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, float):
            return Ratio.of("Mul", self, other)
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

    def __lshift__(self, other: Any) -> Any:
        return self * 2 ** int(other)

    def __rshift__(self, other: Any) -> Any:
        return self // 2 ** int(other)

    # --- Reading: what is no size any more cannot be followed ---------------------------------

    def __index__(self) -> int:
        return int.__index__(self)

    def __int__(self) -> int:
        _refuse_users("int()")
        return int.__int__(self)

    def __float__(self) -> float:
        _refuse_users("float()")
        return int.__float__(self)

    def __bool__(self) -> bool:
        _settled(self, 0, "!=")
        return int.__bool__(self)

    def counted(self) -> int:
        """The answer to len(), for which Python takes plain numbers alone."""
        _refuse_users("len()", "ember_ml.tensor.core")
        return int.__int__(self)

    def __abs__(self) -> int:
        _refuse_users("abs()")
        return int.__abs__(self)

    def __round__(self, digits: Any = None) -> int:
        return self

    def __and__(self, other: int) -> int:
        _refuse_users("&")
        return int.__and__(self, other)

    __rand__ = __and__

    # --- Comparison ---------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int | float):
            return False
        return True if _settled(self, other, "==") else bool(plain(self) == _number(other))

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    def __lt__(self, other: Any) -> bool:
        _settled(self, other, "<")
        return bool(plain(self) < _number(other))

    def __le__(self, other: Any) -> bool:
        _settled(self, other, "<=")
        return bool(plain(self) <= _number(other))

    def __gt__(self, other: Any) -> bool:
        _settled(self, other, ">")
        return bool(plain(self) > _number(other))

    def __ge__(self, other: Any) -> bool:
        _settled(self, other, ">=")
        return bool(plain(self) >= _number(other))

    def __hash__(self) -> int:
        # What a dict or a cache holds for one size says nothing of another.
        _refuse_users("a key of a dict, a set or a cache made")
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
        made = Ratio(_MEANING[op](_number(a), _number(b)))
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

    def __int__(self) -> int:
        _refuse_users("int()")
        return float.__int__(self)

    __trunc__ = __int__

    def __floor__(self) -> int:
        _refuse_users("math.floor()")
        return float.__floor__(self)

    def __ceil__(self) -> int:
        _refuse_users("math.ceil()")
        return float.__ceil__(self)

    def __float__(self) -> float:
        _refuse_users("float()")
        return float.__float__(self)

    def __round__(self, digits: Any = None) -> Any:
        _refuse_users("round()")
        return float.__round__(self, digits)

    def __bool__(self) -> bool:
        _refuse_users("a truth value")
        return float.__bool__(self)

    def __eq__(self, other: object) -> bool:
        _refuse_users("a comparison (==)")
        return bool(_number(self) == _number(other))

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    def __lt__(self, other: Any) -> bool:
        _refuse_users("a comparison (<)")
        return bool(_number(self) < _number(other))

    def __le__(self, other: Any) -> bool:
        _refuse_users("a comparison (<=)")
        return bool(_number(self) <= _number(other))

    def __gt__(self, other: Any) -> bool:
        _refuse_users("a comparison (>)")
        return bool(_number(self) > _number(other))

    def __ge__(self, other: Any) -> bool:
        _refuse_users("a comparison (>=)")
        return bool(_number(self) >= _number(other))

    __hash__ = float.__hash__


def plain(value: int) -> int:
    """The number alone."""
    return int.__int__(value)


def sizes_in(shape: Any) -> bool:
    """True where some length varies."""
    return any(type(side) is Size for side in shape)


def never_negative(size: int) -> bool:
    """True where a number is at least zero whatever the sizes in it, each at least one."""
    if type(size) is not Size:
        return size >= 0
    least = _least(size.polynomial)
    return least is not None and least >= 0


@contextmanager
def noted() -> Iterator[list[Size]]:
    """A list of what a user's code computes of sizes within the block.

    Python takes such a number for a plain one in `range(n // 8)`, as an index of a list and in
    `[x] * (n // 8)`, and does not ask.
    """
    found: list[Size] = []
    token = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(token)


def names_in(polynomial: Polynomial) -> set[str]:
    """The names of the sizes that something was computed of."""
    found: set[str] = set()
    for atom in (atom for monomial, _ in polynomial for atom in monomial):
        if isinstance(atom, str):
            found.add(str(atom))
        elif atom[0] != "shape":
            found |= names_in(atom[1]) | names_in(atom[2])
    return found


def valued(size: int, sizes: Mapping[str, int]) -> int | None:
    """What a size is with others in place of those of the example; None where a node tells it."""
    return _value(size.polynomial, sizes) if type(size) is Size else size


def _number(value: Any) -> Any:
    """A number without what it was computed of, so that a comparison does not ask again."""
    if type(value) is Size:
        return int.__int__(value)
    return float.__float__(value) if type(value) is Ratio else value


# --- Questions of a user's code -----------------------------------------------------------------


def _settled(size: Size, other: Any, sign: str) -> bool | None:
    """Raise where a user's code asks what the answer to which depends on the run.

    True where the two are the same whatever their sizes. The library itself asks only where the
    general way holds for all sizes; a second trace with other sizes finds what does not.
    """
    polynomial = _read(other)
    if polynomial is not None and polynomial == size.polynomial:
        return True
    if not isinstance(other, int | float) or not _asked_by_user():
        return None
    if polynomial is not None:
        more = _least(_difference(size.polynomial, polynomial))
        less = _least(_difference(polynomial, size.polynomial))
        if (more is not None and (more > 0 or (more == 0 and sign in ("<", ">=")))) or (
            less is not None and (less > 0 or (less == 0 and sign in ("<=", ">")))
        ):
            return None
    raise TraceError(
        f"em.export: a comparison ({sign}) of a size that differs from run to run would be decided "
        f"once, by the example{user_line()}; leave the axis out of dynamic_axes, or write code "
        f"that is the same for all sizes"
    )


def _refuse_users(what: str, between: str = "") -> None:
    """Raise where a user's code makes a plain number of a size, whatever it does with it then.

    `between` is a module that stands between the user's code and this one.
    """
    if _asked_by_user(between):
        raise TraceError(
            f"em.export: {what} of a size that differs from run to run would be that of the "
            f"example in every run{user_line()}; compute with x.shape (+, -, *, /, //, %) and hand "
            f"it to ops as it is, or leave the axis out of dynamic_axes"
        )


def _asked_by_user(between: str = "") -> bool:
    caller: Any = sys._getframe(2)
    while caller is not None and caller.f_globals.get("__name__") in (__name__, between):
        caller = caller.f_back
    return caller is not None and not _is_library(caller.f_globals.get("__name__", ""))


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in (_LIBRARY, "numpy", "math", "contextlib", "functools")


# --- Polynomials --------------------------------------------------------------------------------


def _read(value: Any) -> Polynomial | None:
    if type(value) is Size:
        return value.polynomial
    if isinstance(value, int):
        return ((((), value),)) if value else ()
    return None


def _made(a: Any, b: Any, number: Any, combine: Any) -> Any:
    first, second = _read(a), _read(b)
    if first is None or second is None:
        return NotImplemented
    made = Size.of(number(plain(a), plain(b)), combine(first, second))
    computed = _NOTED.get()
    if computed is not None and type(made) is Size and _asked_by_user():
        computed.append(made)
    return made


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


def _value(polynomial: Polynomial, sizes: Mapping[str, int]) -> int | None:
    total = 0
    for monomial, factor in polynomial:
        for atom in monomial:
            part: int | None = None
            if isinstance(atom, str):
                part = sizes[atom]
            elif atom[0] != "shape":
                a, b = _value(atom[1], sizes), _value(atom[2], sizes)
                if a is not None and b:
                    part = a // b if atom[0] == "//" else a % b
            if part is None:
                return None
            factor *= part
        total += factor
    return total


def _least(polynomial: Polynomial) -> int | None:
    """What a polynomial is at least where every named size is one or more; None if unknown."""
    total = 0
    for monomial, factor in polynomial:
        if factor < 0 and monomial:
            # A quotient or a remainder is at most what was divided.
            if len(monomial) != 1 or not _is_share(monomial[0]):
                return None
            rest = tuple(term for term in polynomial if term[0] != monomial)
            whole = tuple((m, f * factor) for m, f in monomial[0][1])
            return _least(_sum(rest, whole))
        least = factor
        for atom in monomial:
            least *= 1 if isinstance(atom, str) else 0
            if not isinstance(atom, str) and atom[0] != "shape" and not _is_share(atom):
                return None
        total += least
    return total


def _is_share(atom: Atom) -> bool:
    """True for a quotient or a remainder of two numbers of which none is negative."""
    if isinstance(atom, str) or atom[0] == "shape":
        return False
    least, by = _least(atom[1]), _least(atom[2])
    return least is not None and least >= 0 and by is not None and by > 0
