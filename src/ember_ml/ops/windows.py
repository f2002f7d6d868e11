"""Windows: weights that let a piece of a signal fade in and out.

All are computed in float64 on the host and cast, so that they are the same on every backend.
`periodic=True`, the default, is for spectra: the window continues seamlessly with the next one
(SciPy's `sym=False`). `periodic=False` is symmetric, for the design of filters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, DTypeError
from ember_ml.ops.axes import integer_of
from ember_ml.ops.creation import _host
from ember_ml.ops.registry import op
from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    from ember_ml.markers import D, Rank1
    from ember_ml.tensor.typed import DTypeOf

__all__ = [
    "bartlett_window",
    "blackman_window",
    "get_window",
    "hamming_window",
    "hann_window",
    "kaiser_window",
    "rectangular_window",
]

Values = np.ndarray[Any, Any]
# A name, or a name with its parameter.
WindowName: TypeAlias = str | tuple[str, float]

_SYMMETRIC: Final[dict[str, Callable[[int], Values]]] = {
    "bartlett": np.bartlett,
    "blackman": np.blackman,
    "hamming": np.hamming,
    "hann": np.hanning,
    "rectangular": np.ones,
}
_ALIASES: Final = {"boxcar": "rectangular", "hanning": "hann", "ones": "rectangular"}
_NAMES: Final = (*sorted(_SYMMETRIC), "boxcar", "('kaiser', beta)")
KAISER_BETA: Final = 12.0


@lru_cache(maxsize=64)
def values_of(op: str, window: WindowName, length: int, periodic: bool, dtype: DType) -> Values:
    """The values of a window; callers must only read them."""
    name, beta = window if isinstance(window, tuple) else (window, KAISER_BETA)
    name = _ALIASES.get(name, name)
    # A periodic window is a symmetric one without its last value.
    count = length + 1 if periodic and length > 1 else length
    if name == "kaiser":
        values = np.kaiser(count, beta)
    elif name in _SYMMETRIC and not isinstance(window, tuple):
        values = _SYMMETRIC[name](count)
    else:
        raise DomainError(f"ops.{op} knows the windows {', '.join(_NAMES)}, not {window!r}")
    made = values[:length].astype(dtype.numpy)
    made.flags.writeable = False
    return made


def named(op: str, window: Any) -> WindowName:
    """A window's name as users write it: a string, or a pair of string and number."""
    if isinstance(window, list | tuple):
        if len(window) == 2 and isinstance(window[0], str) and isinstance(window[1], int | float):
            return window[0], float(window[1])
    elif isinstance(window, str):
        return window
    raise DomainError(f"ops.{op} knows the windows {', '.join(_NAMES)}, not {window!r}")


def _made(
    op: str, window: WindowName, length: Any, periodic: bool, dtype: Any, device: str | None
) -> Tensor:
    count = integer_of(op, length, "length")
    if count < 0:
        raise DomainError(f"ops.{op} got length {count}; a length is not negative")
    wanted = dtypes.default_float if dtype is None else dtypes.to_dtype(dtype)
    if not wanted.is_floating:
        raise DTypeError(f"ops.{op} takes a real floating dtype, not {wanted}")
    return _host(values_of(op, window, count, periodic, wanted).copy(), wanted, device)


@op(standard=False, creates=True)
def hann_window(
    length: int, periodic: bool = True, *, dtype: DTypeOf[D] = None, device: str | None = None
) -> Tensor[D, Any, Rank1]:
    """A raised cosine that ends at zero.

    >>> hann_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return _made("hann_window", "hann", length, periodic, dtype, device)


@op(standard=False, creates=True)
def hamming_window(
    length: int, periodic: bool = True, *, dtype: DTypeOf[D] = None, device: str | None = None
) -> Tensor[D, Any, Rank1]:
    """A raised cosine that ends at 0.08, with lower side lobes than Hann's.

    >>> [round(value, 2) for value in hamming_window(4).tolist()]
    [0.08, 0.54, 1.0, 0.54]
    """
    return _made("hamming_window", "hamming", length, periodic, dtype, device)


@op(standard=False, creates=True)
def blackman_window(
    length: int, periodic: bool = True, *, dtype: DTypeOf[D] = None, device: str | None = None
) -> Tensor[D, Any, Rank1]:
    """A sum of two cosines, with a wider main lobe and lower side lobes.

    >>> [abs(round(value, 2)) for value in blackman_window(4).tolist()]
    [0.0, 0.34, 1.0, 0.34]
    """
    return _made("blackman_window", "blackman", length, periodic, dtype, device)


@op(standard=False, creates=True)
def bartlett_window(
    length: int, periodic: bool = True, *, dtype: DTypeOf[D] = None, device: str | None = None
) -> Tensor[D, Any, Rank1]:
    """A triangle that ends at zero.

    >>> bartlett_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return _made("bartlett_window", "bartlett", length, periodic, dtype, device)


@op(standard=False, creates=True)
def kaiser_window(
    length: int,
    periodic: bool = True,
    beta: float = KAISER_BETA,
    *,
    dtype: DTypeOf[D] = None,
    device: str | None = None,
) -> Tensor[D, Any, Rank1]:
    """Kaiser's window; a larger `beta` makes a wider main lobe and lower side lobes.

    >>> kaiser_window(3, beta=0.0).tolist()
    [1.0, 1.0, 1.0]
    """
    return _made("kaiser_window", ("kaiser", float(beta)), length, periodic, dtype, device)


@op(standard=False, creates=True)
def rectangular_window(
    length: int, periodic: bool = True, *, dtype: DTypeOf[D] = None, device: str | None = None
) -> Tensor[D, Any, Rank1]:
    """Ones: a piece cut out as it is.

    >>> rectangular_window(2).tolist()
    [1.0, 1.0]
    """
    return _made("rectangular_window", "rectangular", length, periodic, dtype, device)


@op(standard=False, creates=True)
def get_window(
    window: WindowName,
    length: int,
    periodic: bool = True,
    *,
    dtype: DTypeOf[D] = None,
    device: str | None = None,
) -> Tensor[D, Any, Rank1]:
    """A window by its name, or by a pair of name and parameter such as `("kaiser", 8.0)`.

    >>> get_window("hann", 4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return _made("get_window", named("get_window", window), length, periodic, dtype, device)
