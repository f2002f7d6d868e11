"""Turn an engine's complaint into the one error of its mistake, with the facts of the call."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml.backend.compiling import READ
from ember_ml.errors import (
    AxisError,
    DomainError,
    DTypeError,
    EmberError,
    IntegerDivisionError,
    LinAlgError,
    OutOfBoundsError,
    ShapeError,
    TraceError,
)

__all__ = ["describe", "explain"]


def describe(inputs: tuple[Any, ...]) -> str:
    """Shapes, dtypes and backend of the inputs of a call, for messages."""
    parts = []
    backend = ""
    for value in inputs:
        if hasattr(value, "_spec"):
            parts.append(f"{value.dtype}{list(value.shape)}")
            backend = value.backend
        elif isinstance(value, tuple | list):
            parts.append(f"a {type(value).__name__} of {len(value)}")
        else:
            parts.append(repr(value)[:60])
    return ", ".join(parts) + (f" on backend '{backend}'" if backend else "")


def explain(
    op: str,
    error: Exception,
    inputs: tuple[Any, ...],
    *,
    axis: Any = None,
    options: tuple[Any, ...] = (),
) -> Exception:
    """The ember_ml error for an exception that came out of a kernel, which is its cause."""
    if isinstance(error, EmberError):
        return error
    found = _explained(op, error, inputs, axis, options)
    if found is not error:
        found.__cause__ = error  # compiled code raises, but keeps no cause by itself
    return found


def _explained(
    op: str, error: Exception, inputs: tuple[Any, ...], axis: Any, options: tuple[Any, ...]
) -> Exception:
    for value in inputs:
        spec = getattr(value, "_spec", None)
        if spec is not None and spec.backend.compiler.is_complaint(error):
            return TraceError(f"ops.{op}: {READ}")
    facts = describe(inputs)
    shapes = [tuple(v.shape) if hasattr(v, "shape") else () for v in inputs]
    if axis is not None and shapes:
        wrong = _wrong_axis(axis, len(shapes[0]))
        if wrong:
            return AxisError(f"ops.{op} got axis {axis} for {facts}; {wrong}")
    if isinstance(error, MemoryError | RecursionError | NameError | Warning | FloatingPointError):
        # No mistake of the caller; the last two come where filters and np.errstate ask for them.
        return error
    if op == "matmul" and len(shapes) == 2:
        wrong = _wrong_matmul(shapes[0], shapes[1])
        if wrong:
            return ShapeError(f"ops.matmul got {facts}; {wrong}")
    elif len(shapes) == 2 and not _broadcastable(shapes[0], shapes[1]):
        return ShapeError(f"ops.{op} got {facts}; these shapes do not broadcast")
    text = " ".join(str(error).split())
    chosen = _class_of(error, text)
    extra = f" with {', '.join(repr(o)[:60] for o in options)}" if options else ""
    return chosen(f"ops.{op} failed for {facts}{extra}: {text[:300]}")


def _class_of(error: Exception, text: str) -> type[EmberError]:
    if isinstance(error, np.linalg.LinAlgError) or "linalg" in text.lower():
        return LinAlgError
    if isinstance(error, ZeroDivisionError) or "ZeroDivisionError" in text:
        return IntegerDivisionError
    if isinstance(error, OverflowError):
        return DomainError
    if isinstance(error, IndexError):
        return OutOfBoundsError
    if isinstance(error, TypeError | NotImplementedError):
        return DTypeError
    return ShapeError


def _wrong_axis(axis: Any, ndim: int) -> str:
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    seen: set[int] = set()
    for one in axes:
        try:
            index = one.__index__()
        except (AttributeError, TypeError):
            return f"{one!r} is no integer"
        if not -ndim <= index < ndim:
            return (
                f"a tensor of {ndim} axes has axes {-ndim} to {ndim - 1}"
                if ndim
                else ("a 0-d tensor has no axes")
            )
        if index % ndim in seen:
            return f"axis {one} is given twice"
        seen.add(index % ndim)
    return ""


def _wrong_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> str:
    if not a or not b:
        return "a 0-d tensor is no matrix; use ops.multiply"
    inner = b[0] if len(b) == 1 else b[-2]
    if a[-1] != inner:
        return f"the last axis of the first ({a[-1]}) must equal {inner} of the second"
    if not _broadcastable(a[:-2], b[:-2]):
        return "the stacks of matrices do not broadcast"
    return ""


def _broadcastable(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or x == 1 or y == 1 for x, y in zip(a[::-1], b[::-1], strict=False))
