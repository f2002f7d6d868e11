"""Errors by the names that the specification gives them.

`MLTypeError` is a TypeError; the others have no built-in of their meaning in Python.
"""

from __future__ import annotations

from typing import NoReturn

from ember_ml.errors import EmberError

__all__ = [
    "InvalidStateError",
    "MLTypeError",
    "NotCopied",
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


class NotCopied:
    """What belongs to its context: a copy would be a second owner of the same memory."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise MLTypeError(
            f"{type(self).__name__} belongs to its context, and is neither copied nor pickled; "
            "read_tensor gives the contents of a tensor, and MLGraph.graph one to save"
        )


def fault(op: str, label: str, text: str) -> MLTypeError:
    """The error of a call to an op of the builder; its label stands in brackets.

    >>> fault("abs", "head", "its input is missing")
    MLTypeError('[head] abs: its input is missing')
    """
    return MLTypeError(f"[{label}] {op}: {text}" if label else f"{op}: {text}")
