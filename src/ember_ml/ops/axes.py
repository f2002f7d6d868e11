"""Reading shapes, axes and numbers as users write them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ember_ml.errors import AxisError, DomainError, DTypeError, EmberError, ShapeError

__all__ = ["axes_of", "axis_of", "broadcast", "integer_of", "number_of", "shape_of"]


def integer_of(op: str, value: Any, what: str) -> int:
    """A Python int of anything that is one."""
    if isinstance(value, int) and type(value) is not bool:
        return value  # one that varies stays one: operator.index gives a plain number
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(
            f"ops.{op} takes an integer {what}, not {value!r} of type {type(value).__name__}"
        ) from None


def number_of(op: str, value: Any, what: str) -> float:
    """A Python float of anything that is a real number; text that spells one is none."""
    if type(value) is float:
        return value
    try:
        if not isinstance(value, str | bytes | bytearray):
            return float(value)
    except EmberError:
        raise  # a tensor of several elements, or one without values yet, says so itself
    except OverflowError:
        raise DomainError(f"ops.{op} got a number as {what} that no float can hold") from None
    except (TypeError, ValueError):
        pass
    raise DTypeError(
        f"ops.{op} takes a real number as {what}, not {value!r} of type {type(value).__name__}"
    )


def shape_of(op: str, shape: Any, *, unknown: bool = False) -> tuple[int, ...]:
    """A shape as a tuple: of an int, a tuple, a list or a tensor; `unknown` allows -1."""
    several = isinstance(shape, Sequence) or getattr(shape, "ndim", 0) != 0
    sides = shape if several else (shape,)
    checked = tuple(integer_of(op, side, "shape") for side in sides)
    if any(side < (-1 if unknown else 0) for side in checked):
        raise ShapeError(f"ops.{op} got shape {checked}; lengths of axes are not negative")
    return checked


def axis_of(op: str, axis: Any, ndim: int) -> int:
    """An axis as a number from 0 to ndim - 1."""
    index = integer_of(op, axis, "axis")
    if not -ndim <= index < ndim:
        have = f"axes {-ndim} to {ndim - 1}" if ndim else "none"
        raise AxisError(f"ops.{op} got axis {index} for a tensor of {ndim} axes; it has {have}")
    return index % ndim


def axes_of(op: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """One axis, several or None (all) as a tuple without repeats."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(axis_of(op, one, ndim) for one in given)
    if len(set(axes)) < len(axes):
        raise AxisError(f"ops.{op} got axes {tuple(given)}, where one is given twice")
    return axes


def broadcast(op: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape to which all the given ones broadcast."""
    ndim = max((len(shape) for shape in shapes), default=0)
    out = [1] * ndim
    for shape in shapes:
        for place, side in enumerate(shape, ndim - len(shape)):
            if side != 1:
                if out[place] not in (1, side):
                    listed = ", ".join(map(str, shapes))
                    raise ShapeError(f"ops.{op} got shapes {listed}, which do not broadcast")
                out[place] = side
    return tuple(out)
