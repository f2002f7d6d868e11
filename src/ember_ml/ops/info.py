"""What the current backend offers, as the array API asks it."""

from __future__ import annotations

from ember_ml import devices as _devices
from ember_ml import dtypes as _dtypes
from ember_ml.backend import selection
from ember_ml.dtypes import DType
from ember_ml.ops.data_types import isdtype

__all__ = ["Info", "__array_namespace_info__"]


class Info:
    """The answers of `__array_namespace_info__()` for the backend that was current then."""

    def __init__(self) -> None:
        self._backend = selection.current()

    def capabilities(self) -> dict[str, bool | int | None]:
        """What any backend of ember_ml can do."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": self._backend.max_ndim,
        }

    def default_device(self) -> str:
        """Where new tensors go."""
        return _devices.current_device(self._backend)

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The dtypes of new tensors: the same on every backend."""
        return {
            "real floating": _dtypes.default_float,
            "complex floating": _dtypes.default_complex,
            "integral": _dtypes.default_int,
            "indexing": _dtypes.default_int,
        }

    def dtypes(
        self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The dtypes of the standard that exist on a device, of some kinds or all."""
        place = self.default_device() if device is None else self._backend.canonical_device(device)
        outside = (_dtypes.float16, _dtypes.bfloat16)  # dtypes that the standard does not name
        return {
            dtype.name: dtype
            for dtype in _dtypes.ALL
            if dtype not in outside
            and self._backend.supports(dtype, place)
            and (kind is None or isdtype(dtype, kind))
        }

    def devices(self) -> tuple[str, ...]:
        """The devices of the backend."""
        return self._backend.devices()


def __array_namespace_info__() -> Info:
    """What the current backend offers.

    >>> sorted(__array_namespace_info__().dtypes(kind="bool"))
    ['bool']
    """
    return Info()
