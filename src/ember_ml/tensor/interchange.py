"""Arrays of engines in and out: whose memory a tensor uses, and when it is copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml.backend import selection
from ember_ml.backend.contract import Backend, NativeArray
from ember_ml.errors import CopyError, DTypeError
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
    taken = convert.wrap(array, engine)
    if home is None or home is engine:
        return convert.asarray(taken, None, device, copy)
    return _placed(convert.to_backend(taken, home, copy), device, copy)


def from_dlpack(x: Any, device: str | None, copy: bool | None) -> Tensor:
    """A tensor of an object with `__dlpack__`: see ops.from_dlpack."""
    if isinstance(x, Tensor | np.ndarray) or convert.backend_of(x) is not None:
        return convert.asarray(x, None, device, copy)
    backend: Backend = selection.current()
    return _placed(convert.wrap(backend.from_dlpack(x, copy), backend), device, copy)


def _placed(x: Tensor, device: str | None, copy: bool | None) -> Tensor:
    if device is None:
        return x
    moved = convert.to_device(x, device)
    if copy is False and moved is not x:
        raise CopyError(f"copy=False cannot move a tensor from '{x.device}' to '{device}'")
    return moved


def native_of(x: Tensor, name: str, copy: bool | None) -> NativeArray:
    """The native array of `x` on a backend, which the caller may write to unless copy=False."""
    backend = selection.load(name)
    moved = convert.to_backend(x, backend, copy)
    if copy is None and backend.is_borrowed(moved.native):
        return backend.copy(moved.native)
    return moved.native
