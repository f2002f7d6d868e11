"""The record of every op: which dtypes it takes, what it gives, where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import DTypeError

__all__ = [
    "ANY",
    "BITS",
    "BOOLEAN",
    "COMPLEX",
    "FLOATING",
    "INTEGRAL",
    "LINALG",
    "NUMERIC",
    "REAL",
    "REAL_FLOATING",
    "REGISTRY",
    "Op",
    "op",
]

F = TypeVar("F", bound=Callable[..., Any])

ANY: Final = frozenset(dtypes.ALL)
BOOLEAN: Final = frozenset((dtypes.bool,))
NUMERIC: Final = ANY - BOOLEAN
COMPLEX: Final = frozenset((dtypes.complex64, dtypes.complex128))
REAL: Final = NUMERIC - COMPLEX
INTEGRAL: Final = frozenset(d for d in dtypes.ALL if d.is_integer)
BITS: Final = INTEGRAL | BOOLEAN
FLOATING: Final = NUMERIC - INTEGRAL
REAL_FLOATING: Final = REAL - INTEGRAL
# Factorisations and transforms exist in no engine for 16-bit floats.
LINALG: Final = FLOATING - {dtypes.float16, dtypes.bfloat16}


class Op(NamedTuple):
    """What the library knows of an op besides its code."""

    name: str
    function: Callable[..., Any]
    accepts: frozenset[DType]
    # What other dtypes are cast to first: "float" and "int" the defaults, "bool", "sum" the
    # default integer of the same sign; "" refuses them.
    lift: str
    # The dtype of the result: "same", "bool", "real", "complex", "index".
    result: str
    arity: int
    standard: bool
    creates: bool

    def run_dtype(self, dtype: DType) -> DType:
        """The dtype in which the op runs for operands of `dtype`."""
        if self.lift == "sum":
            return _accumulator(dtype)
        if dtype in self.accepts:
            return dtype
        if self.lift == "bool":
            return dtypes.bool
        if dtype in BITS:
            if self.lift == "float":
                return dtypes.default_float
            if self.lift == "int":
                return dtypes.default_int
        names = ", ".join(d.name for d in dtypes.ALL if d in self.accepts)
        raise DTypeError(f"ops.{self.name} does not take {dtype}; it takes {names}")

    def result_dtype(self, run: DType) -> DType:
        """The dtype of the result for operands that run in `run`."""
        match self.result:
            case "bool":
                return dtypes.bool
            case "index":
                return dtypes.default_int
            case "real":
                return dtypes.real_of(run)
            case "complex":
                return dtypes.complex_of(run)
            case _:
                return run


def _accumulator(dtype: DType) -> DType:
    if dtype is dtypes.bool or (dtype.is_integer and dtype.is_signed):
        return dtypes.int64
    return dtypes.uint64 if dtype.is_integer else dtype


REGISTRY: Final[dict[str, Op]] = {}


def op(
    name: str = "",
    *,
    accepts: frozenset[DType] = ANY,
    lift: str = "",
    result: str = "same",
    arity: int = 1,
    standard: bool = True,
    creates: bool = False,
) -> Callable[[F], F]:
    """Record a function as an op and give it back untouched."""

    def record(function: F) -> F:
        full = name or function.__name__
        REGISTRY[full] = Op(full, function, accepts, lift, result, arity, standard, creates)
        return function

    return record
