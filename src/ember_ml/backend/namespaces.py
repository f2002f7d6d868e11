"""The settled kernels of a backend as namespaces over native arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ember_ml import dtypes

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend
    from ember_ml.backend.spec import Kernel, NativeArray, Spec
    from ember_ml.dtypes import DType

__all__ = ["Bound", "Kernels"]


class Bound:
    """The kernels of a spec as a namespace: `spec.bound.add(a, b)` on native arrays of it."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def __getattr__(self, name: str) -> Kernel:
        kernel, _ = self._spec.backend.entry(self._spec, name)
        setattr(self, name, kernel)  # found at once from now on
        return kernel


class Kernels:
    """The settled kernels of a backend as a namespace over native arrays, for portable kernels.

    `xp.add(a, b)` runs the kernel that is settled for the dtype of `a`.
    """

    def __init__(self, backend: Backend, chapter: str = "") -> None:
        self._backend = backend
        self._chapter = chapter

    def __getattr__(self, name: str) -> Kernel:
        if name in ("linalg", "fft") and not self._chapter:  # fft.fft is a kernel
            namespace = Kernels(self._backend, name + ".")
            setattr(self, name, namespace)
            return namespace  # type: ignore[return-value]  # a namespace of kernels, not a kernel
        backend, full = self._backend, self._chapter + name

        def kernel(x: NativeArray, *options: Any, **named: Any) -> NativeArray:
            first = x[0] if isinstance(x, list | tuple) else x
            return backend.entry(backend.spec_of(first), full)[0](x, *options, **named)

        setattr(self, name, kernel)
        return kernel

    def cast(self, x: NativeArray, dtype: DType) -> NativeArray:
        """`x` with another dtype."""
        return self._backend.cast(x, dtype)

    def dtype(self, x: NativeArray) -> DType:
        """The dtype of a native array."""
        return self._backend.dtype_of(x)

    def full(self, shape: tuple[int, ...], value: object, like: NativeArray) -> NativeArray:
        """A constant array of the dtype and device of `like`."""
        return self._backend.full(shape, value, self._backend.spec_of(like))

    def host(self, array: np.ndarray[Any, Any], like: NativeArray) -> NativeArray:
        """A NumPy array of any dtype as a native array beside `like`."""
        spec = self._backend.spec(dtypes.to_dtype(array.dtype), self._backend.device_of(like))
        return self._backend.from_numpy(array, spec)
