"""Errors by the names that the specification gives them.

`MLTypeError` is a TypeError; the others have no built-in of their meaning in Python.
"""

from __future__ import annotations

from ember_ml.errors import EmberError

__all__ = [
    "InvalidStateError",
    "MLTypeError",
    "NotSupportedError",
    "OperationError",
    "UnknownError",
    "fault",
]


class MLTypeError(EmberError, TypeError):
    """What was given does not fit: an operand, an option, a descriptor, a buffer."""


class InvalidStateError(EmberError, RuntimeError):
    """What was called is destroyed, lost, or was built already."""


class OperationError(EmberError, RuntimeError):
    """The operation failed for a reason of its own."""


class UnknownError(EmberError, RuntimeError):
    """The engine failed."""


class NotSupportedError(EmberError, NotImplementedError):
    """The engine behind this context cannot do it."""


def fault(op: str, label: str, text: str) -> MLTypeError:
    """The error of a call to an op of the builder; its label stands in brackets.

    >>> fault("abs", "head", "its input is missing")
    MLTypeError('[head] abs: its input is missing')
    """
    return MLTypeError(f"[{label}] {op}: {text}" if label else f"{op}: {text}")
