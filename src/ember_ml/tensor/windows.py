"""Views that are windows on the memory of a tensor: the classes that users see."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml.backend.contract import NativeArray
from ember_ml.markers import D, R, V
from ember_ml.tensor.core import Tensor

__all__ = ["TensorView", "TensorViewMut"]


class TensorView(Tensor[D, V, R]):
    """A window on the memory of a tensor, for reading: it shows what is written there later.

    >>> from ember_ml.nn import tensor
    >>> x = tensor.arange(4)
    >>> window = x.slice((1, 3))
    >>> x[1] = 7
    >>> window.tolist()
    [7, 2]
    """

    __slots__ = ()

    @property
    def native(self) -> NativeArray:
        """The elements as an array of the engine, read now."""
        return self._home.read()

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._home.layout.shape  # type: ignore[no-any-return]  # the home of a view is a Window

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._home.layout.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._home.layout.size  # type: ignore[no-any-return]  # as above

    def numpy(self, *, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The values as a NumPy array that cannot be written to, unless it is a copy."""
        array = self._spec.backend.to_numpy(self.native, copy)
        if array.flags.writeable and not copy:
            array = array.view()
            array.flags.writeable = False
        return array

    to_numpy = numpy


class TensorViewMut(TensorView[D, V, R]):
    """A window on the memory of a tensor, for reading and writing.

    >>> from ember_ml.nn import tensor
    >>> x = tensor.arange(4)
    >>> x.slice_mut((1, 3))[:] = 0
    >>> x.tolist()
    [0, 0, 0, 3]
    """

    __slots__ = ()

    def numpy(self, *, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The values as a NumPy array, without a copy where memory allows."""
        return self._spec.backend.to_numpy(self.native, copy)

    to_numpy = numpy
