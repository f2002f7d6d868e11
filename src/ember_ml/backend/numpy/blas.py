"""Which of its kernels the BLAS of NumPy takes: that decides how quick products are."""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np

__all__ = ["kernels"]

# What OpenBLAS calls the function, by how it was built.
_NAMES: Final = tuple(
    f"{prefix}openblas_get_corename{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "")
)


def kernels() -> str:
    """The processor for which OpenBLAS has chosen kernels, as "Haswell"; empty for another BLAS."""
    try:
        found = np._core._multiarray_umath.__file__  # type: ignore[attr-defined]  # private
        library = ctypes.CDLL(found)  # with all that it is linked to
    except (AttributeError, OSError):
        return ""
    for name in _NAMES:
        function = getattr(library, name, None)
        if function is not None:
            function.restype = ctypes.c_char_p
            return str(function().decode())
    return ""
