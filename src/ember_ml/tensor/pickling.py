"""Tensors in pickles: their state, and where it is brought back to life."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import numpy as np

from ember_ml import devices, dtypes
from ember_ml.autodiff import tape
from ember_ml.backend import selection
from ember_ml.backend.contract import Backend, Spec
from ember_ml.backend.scope import Scope
from ember_ml.errors import (
    BackendUnavailableError,
    DeviceError,
    DomainError,
    UnknownBackendError,
)
from ember_ml.tensor.core import GradTensor, Tensor, new
from ember_ml.tensor.roles import role_of

__all__ = ["empty", "revive", "state_of", "unpickle_to"]

_chosen: ContextVar[Backend | None] = ContextVar("ember_ml_unpickle", default=None)


class unpickle_to(Scope):
    """A scope in which unpickled tensors go to this backend, not to the one they were made on.

    For pickles from machines with other packages or devices. Their tensors go to the device on
    which the backend creates tensors.

    >>> import pickle
    >>> pickled = pickle.dumps(em.Tensor([1.0, 2.0]))
    >>> with em.io.unpickle_to("numpy"):
    ...     pickle.loads(pickled).backend
    'numpy'
    """

    variable = _chosen

    def value(self) -> Backend:
        """The backend of the name, loaded where it is not yet."""
        return selection.load(self.choice)


def empty(requires_grad: bool) -> Tensor:
    """A tensor without anything, for `__setstate__` to fill."""
    # Views and other classes are how memory is shared here; elsewhere there is nothing to share.
    return new(GradTensor if requires_grad else Tensor)


def state_of(x: Tensor) -> dict[str, Any]:
    """What a pickle keeps of a tensor; protocol 5 can pass the values beside the pickle."""
    array = x.numpy()
    if x.dtype is dtypes.bfloat16:
        array = array.view(np.uint16)  # pickles of ml_dtypes' own dtypes depend on its version
    state = {
        "data": np.ascontiguousarray(array).reshape(-1),
        "shape": x.shape,
        "dtype": x.dtype.name,
        "device": x.device,
        "backend": x.backend,
        "requires_grad": x.requires_grad,
    }
    role = role_of(x)
    return state if role is None else {**state, "role": role}


def revive(x: Tensor, state: dict[str, Any]) -> None:
    """Fill a tensor from a state."""
    if getattr(x, "_home", None) is not None:
        raise DomainError(
            "a state cannot replace a tensor that is a view, has views or has a storage; "
            "unpickle it as a whole"
        )
    if state["requires_grad"] != x.requires_grad:
        raise DomainError(
            f"this state has requires_grad={state['requires_grad']}, and the tensor has not; "
            f"unpickle it as a whole"
        )
    dtype = dtypes.to_dtype(state["dtype"])
    spec = _spec(dtype, state["backend"], state["device"])
    array = state["data"].view(dtype.numpy).reshape(state["shape"])
    native = spec.backend.from_numpy(array, spec, copy=True)
    x.native = spec.backend.require_grad(native) if state["requires_grad"] else native
    x._spec = spec
    if state["requires_grad"] and not spec.backend.records:
        x._node = tape.Leaf()
    if "role" in state:
        x._role = state["role"]


def _spec(dtype: dtypes.DType, backend: str, device: str) -> Spec:
    chosen = _chosen.get()
    if chosen is not None:
        return chosen.spec(dtype, devices.current_device(chosen))
    hint = (
        'choose another with `with em.io.unpickle_to("numpy"):` around the unpickling, '
        'or keep tensors in files: em.load(path, backend="numpy")'
    )
    try:
        engine = selection.load(backend)
        return engine.spec(dtype, engine.canonical_device(device))
    except (BackendUnavailableError, UnknownBackendError) as error:
        raise type(error)(
            f"this tensor was pickled on backend '{backend}', which is not here; {hint} ({error})"
        ) from error
    except DeviceError as error:
        raise DeviceError(
            f"this tensor was pickled on device '{device}' of backend '{backend}'; {hint} ({error})"
        ) from error
