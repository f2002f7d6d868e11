"""The exceptions of ember_ml: one class per mistake, the same on every backend.

    EmberError
    ├── ShapeError              (ValueError)   shapes that do not fit, ragged lists
    ├── AxisError               (ValueError, IndexError)   an axis the tensor does not have
    ├── DTypeError              (TypeError)    a dtype that op, backend or promotion refuse
    ├── DomainError             (ValueError)   a value for which the op is not defined
    │   └── CopyError           (BufferError)  copy=False where only a copy could do it
    ├── ReadOnlyError           (ValueError)   a write to what is only for reading
    ├── OutOfBoundsError        (IndexError)   an index beyond its axis
    ├── IntegerDivisionError    (ZeroDivisionError)   an integer divided by zero
    ├── LinAlgError             (numpy.linalg.LinAlgError)   a matrix the factorisation cannot take
    ├── BackendMismatchError    (TypeError)    two backends in one call
    ├── UnknownBackendError     (ValueError)   a backend name nobody registered
    ├── BackendUnavailableError (ImportError)  a backend whose package is missing or broken
    ├── DeviceError             (ValueError)   a device that does not exist, or two in one call
    ├── FormatError             (ValueError)   a file that is malformed or of an unknown format
    ├── UnknownKeyError         (KeyError)     a name that a file does not hold
    ├── NotFittedError          (ValueError, AttributeError)   a transformer used before fit
    ├── CommunicationError      (ConnectionError)   a rank is gone, silent or was never there
    ├── GradientError           (RuntimeError) a gradient that does not exist, or no longer
    ├── NaNLossError            (FloatingPointError)   a loss or gradient that is NaN or infinite
    └── UnsupportedOpError      (NotImplementedError)   an op the backend has no kernel for
        └── TraceError          (TypeError)    what cannot be done to a tensor that is traced

Each also derives from the built-in exception that users of NumPy and PyTorch catch today.
"""

from __future__ import annotations

import numpy as np

__all__ = [
    "AxisError",
    "BackendMismatchError",
    "BackendUnavailableError",
    "CommunicationError",
    "CopyError",
    "DTypeError",
    "DeviceError",
    "DomainError",
    "EmberError",
    "FormatError",
    "GradientError",
    "IntegerDivisionError",
    "LinAlgError",
    "NaNLossError",
    "NotFittedError",
    "OutOfBoundsError",
    "ReadOnlyError",
    "ShapeError",
    "TraceError",
    "UnknownBackendError",
    "UnknownKeyError",
    "UnsupportedOpError",
]


class EmberError(Exception):
    """The root of every exception that ember_ml raises on purpose."""


class ShapeError(EmberError, ValueError):
    """Shapes do not fit each other or the operation."""


class AxisError(EmberError, ValueError, IndexError):
    """An axis is out of range, given twice, or of the wrong kind."""


class DTypeError(EmberError, TypeError):
    """A dtype is not accepted here, or two dtypes have no common one."""


class DomainError(EmberError, ValueError):
    """A value lies outside of what the operation is defined for."""


class ReadOnlyError(EmberError, ValueError):
    """A write to a tensor that is only for reading."""


class CopyError(DomainError, BufferError):
    """copy=False was asked for, and memory cannot be shared.

    The array API standard names ValueError in asarray and BufferError in from_dlpack; this is both.
    """


class OutOfBoundsError(EmberError, IndexError):
    """An index points beyond its axis."""


class IntegerDivisionError(EmberError, ZeroDivisionError):
    """An integer was divided by zero."""


class LinAlgError(EmberError, np.linalg.LinAlgError):
    """A matrix is singular, not positive definite, or a factorisation did not converge."""


class BackendMismatchError(EmberError, TypeError):
    """Tensors of two backends met in one call."""


class UnknownBackendError(EmberError, ValueError):
    """No backend of this name is registered."""


class BackendUnavailableError(EmberError, ImportError):
    """The package behind a backend is not installed, or fails to import."""


class DeviceError(EmberError, ValueError):
    """A device does not exist on this machine, or two devices met in one call."""


class FormatError(EmberError, ValueError):
    """A file is malformed, or of a format that is not read or written here."""


class UnknownKeyError(EmberError, KeyError):
    """A name that is not among those of a file."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the text quoted, as if it were the key


class NotFittedError(EmberError, ValueError, AttributeError):
    """What `fit` would have learned is asked for, and `fit` was not called.

    AttributeError, as in scikit-learn: `hasattr(pca, "components_")` tells whether it was.
    """


class CommunicationError(EmberError, ConnectionError):
    """Another rank is gone, does not answer, or could not be reached."""


class GradientError(EmberError, RuntimeError):
    """A gradient does not exist: an op has none, nothing was recorded, or the record is freed."""


class NaNLossError(EmberError, FloatingPointError):
    """A loss or a gradient in training is NaN or infinite; the text says where it arose.

    `step` and `batch` are their numbers from 1 on; `where` is the name of the first module,
    parameter, input or gradient that is not finite.
    """

    def __init__(self, message: str, *, step: int = 0, batch: int = 0, where: str = "") -> None:
        super().__init__(message)
        self.step = step
        self.batch = batch
        self.where = where


class UnsupportedOpError(EmberError, NotImplementedError):
    """The backend has no kernel for this operation."""


class TraceError(UnsupportedOpError, TypeError):
    """A compiled function reads a traced value, writes to what is not its own, or lets one out."""
