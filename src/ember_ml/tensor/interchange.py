"""Arrays of engines in and out: whose memory a tensor uses, and when it is copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml.backend import selection
from ember_ml.backend.contract import NativeArray
from ember_ml.errors import DTypeError
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__ = ["from_dlpack", "from_engine", "native_of"]


def from_engine(
    name: str, array: Any, backend: str | None, device: str | None, copy: bool | None
) -> Tensor:
    """A tensor of an array of engine `name`: see ops.from_torch and its siblings."""
    engine = selection.load(name)
    if not isinstance(array, engine.native_types):
        raise DTypeError(
            f"ops.from_{name} takes an array of '{name}', not {type(array).__name__}; "
            f"ops.asarray takes anything"
        )
    home = selection.load(backend) if backend else None
    if name == "numpy":
        return convert.asarray(array, None, device, copy, home)
    return convert.to_backend(convert.wrap(array, engine), home or engine, copy, device)


def from_dlpack(x: Any, device: str | None, copy: bool | None) -> Tensor:
    """A tensor of an object with `__dlpack__`: see ops.from_dlpack."""
    if isinstance(x, Tensor | np.ndarray) or convert.backend_of(x) is not None:
        return convert.asarray(x, None, device, copy)
    backend = selection.current()
    made = convert.wrap(backend.from_dlpack(x, copy), backend)
    # What it has to be by now, it need not become again.
    return convert.asarray(made, None, device, False if copy is False else None)


def native_of(x: Tensor, name: str, copy: bool | None) -> NativeArray:
    """The native array of `x` on a backend, which the caller may write to unless copy=False."""
    backend = selection.load(name)
    moved = convert.to_backend(x, backend, copy)
    if copy is None and backend.is_borrowed(moved.native):
        return backend.copy(moved.native)
    return moved.native
