"""Which of its kernels the BLAS of NumPy takes: that decides how quick products are."""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np

__all__ = ["faster_kernels", "kernels"]

# What OpenBLAS calls the function, by how it was built.
_NAMES: Final = tuple(
    f"{prefix}openblas_get_corename{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "")
)


# Its kernels that use AVX2 and no more: the choice for a processor that it does not know.
_AVX2: Final = ("Haswell", "Zen")


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


def faster_kernels() -> str:
    """What OPENBLAS_CORETYPE would have to name for kernels that use all of the processor.

    Empty where OpenBLAS has chosen well. It goes by the model of a processor, not by what that can
    do: one that it does not know has kernels with AVX2, even where AVX-512 is there.
    """
    features = getattr(np._core._multiarray_umath, "__cpu_features__", {})  # type: ignore[attr-defined]
    return "SkylakeX" if features.get("AVX512_SKX") and kernels() in _AVX2 else ""
