"""What every tensor is made of: a native array, its spec, and Python's operators on them.

This is a file of the compiled core (ember_ml/compiled.py), so it reads plainly: a class with typed
fields, and no more. What type checkers are to make of the operators stands in tensor/methods.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ember_ml.backend import pairs
from ember_ml.backend.spec import NativeArray, Spec
from ember_ml.compiled import mypyc_attr
from ember_ml.errors import DomainError

if TYPE_CHECKING:
    # Written over tensors, so core.py hands it over once there are some. Compiled code needs no
    # module for it: the call goes from function to function.
    from ember_ml.ops import dispatch
    from ember_ml.tensor.core import Tensor

__all__ = ["CLASSES", "Cell", "blank", "blank_grad", "fill", "fill_grad"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Cell:
    """A native array with its spec, and Python's operators on it."""

    __slots__ = ("_home", "_node", "_role", "_spec", "native")
    # mypyc lets no field be emptied that is not named here.
    __deletable__ = ["_home", "_node", "_role", "_spec", "native"]  # noqa: RUF012 - mypyc's form

    native: NativeArray
    _spec: Spec
    # Whom the memory belongs to, once it is shared or written: see tensor/storage.py. Results of
    # ops leave the slot empty.
    _home: Any
    # What a GradTensor was made by, where the engine keeps no record: see autodiff/tape.py.
    _node: Any
    # What a tensor is to a network: see tensor/roles.py. Others leave the slot empty.
    _role: str

    def __new__(cls) -> Cell:
        return object.__new__(cls)

    # --- Arithmetic ---------------------------------------------------------------------

    def __add__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.ADD, self, other)

    def __radd__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.ADD, other, self)

    def __iadd__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.ADD, self, other)

    def __sub__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.SUBTRACT, self, other)

    def __rsub__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.SUBTRACT, other, self)

    def __isub__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.SUBTRACT, self, other)

    def __mul__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.MULTIPLY, self, other)

    def __rmul__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.MULTIPLY, other, self)

    def __imul__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.MULTIPLY, self, other)

    def __truediv__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.DIVIDE, self, other)

    def __rtruediv__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.DIVIDE, other, self)

    def __itruediv__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.DIVIDE, self, other)

    def __floordiv__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.FLOOR_DIVIDE, self, other)

    def __rfloordiv__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.FLOOR_DIVIDE, other, self)

    def __ifloordiv__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.FLOOR_DIVIDE, self, other)

    def __mod__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.REMAINDER, self, other)

    def __rmod__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.REMAINDER, other, self)

    def __imod__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.REMAINDER, self, other)

    def __pow__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.POW, self, other)

    def __rpow__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.POW, other, self)

    def __ipow__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.POW, self, other)

    def __matmul__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.MATMUL, self, other)

    def __rmatmul__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.MATMUL, other, self)

    def __imatmul__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.MATMUL, self, other)

    def __and__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.BITWISE_AND, self, other)

    def __rand__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.BITWISE_AND, other, self)

    def __iand__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.BITWISE_AND, self, other)

    def __or__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.BITWISE_OR, self, other)

    def __ror__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.BITWISE_OR, other, self)

    def __ior__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.BITWISE_OR, self, other)

    def __xor__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.BITWISE_XOR, self, other)

    def __rxor__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.BITWISE_XOR, other, self)

    def __ixor__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.BITWISE_XOR, self, other)

    def __lshift__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.BITWISE_LEFT_SHIFT, self, other)

    def __rlshift__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.BITWISE_LEFT_SHIFT, other, self)

    def __ilshift__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.BITWISE_LEFT_SHIFT, self, other)

    def __rshift__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.BITWISE_RIGHT_SHIFT, self, other)

    def __rrshift__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.BITWISE_RIGHT_SHIFT, other, self)

    def __irshift__(self, other: Any, /) -> Any:
        return dispatch.in_place(pairs.BITWISE_RIGHT_SHIFT, self, other)

    def __divmod__(self, other: Any, /) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any, /) -> Any:
        return other // self, other % self

    def __neg__(self, /) -> Any:
        return dispatch.unary("negative", self)

    def __pos__(self, /) -> Any:
        return dispatch.unary("positive", self)

    def __abs__(self, /) -> Any:
        return dispatch.unary("abs", self)

    def __invert__(self, /) -> Any:
        return dispatch.unary("bitwise_invert", self)

    def __round__(self, digits: Any = None, /) -> Any:
        if digits:
            raise DomainError(f"round() of a tensor takes no digits, got {digits}")
        return dispatch.unary("round", self)

    # --- Comparison -------------------------------------------------------------------------

    def __eq__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.EQUAL, self, other)

    def __ne__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.NOT_EQUAL, self, other)

    def __lt__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.LESS, self, other)

    def __le__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.LESS_EQUAL, self, other)

    def __gt__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.GREATER, self, other)

    def __ge__(self, other: Any, /) -> Any:
        return dispatch.binary(pairs.GREATER_EQUAL, self, other)


class _Classes:
    """The classes of results, which are made of cells and come after them."""

    __slots__ = ("grad", "plain")

    def __init__(self) -> None:
        self.plain: type[Cell] = Cell
        self.grad: type[Cell] = Cell


CLASSES: Final = _Classes()


def blank() -> Cell:
    """A tensor that is still empty: the allocation of every result."""
    return Cell.__new__(CLASSES.plain)


def blank_grad() -> Cell:
    """The same that needs gradients."""
    return Cell.__new__(CLASSES.grad)


def fill(native: NativeArray, spec: Spec) -> Tensor:
    """A Tensor around a native array whose spec is known."""
    out = blank()
    out.native = native
    out._spec = spec
    return out  # type: ignore[return-value]  # by CLASSES


def fill_grad(native: NativeArray, spec: Spec) -> Tensor:
    """A GradTensor around a native array; a plain one where its dtype has no gradient."""
    out = blank_grad() if spec.inexact else blank()
    out.native = native
    out._spec = spec
    return out  # type: ignore[return-value]  # as above
