"""Random numbers made on the engine itself: from a key by Threefry, or by its own generator.

A source gives uniform and normal numbers and integers of 31 bits; what else there is follows from
these by ops, so that it runs in compiled functions and on any device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import pi, prod
from typing import Any, Final

from ember_ml import dtypes
from ember_ml.backend.contract import Spec
from ember_ml.ops import elementwise as el
from ember_ml.ops import manipulation
from ember_ml.ops.random import host
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill

__all__ = ["ArraySource", "EngineSource", "KeySource", "Shape"]

Shape = tuple[int, ...]

# The largest number below one.
_BELOW_ONE: Final = {dtypes.float32: 1 - 2.0**-24, dtypes.float64: 1 - 2.0**-53}


class ArraySource(ABC):
    """Draws of one call, each independent of those before it.

    `spec` is of float32 or float64, or of int64 for integers.
    """

    @abstractmethod
    def unit(self, shape: Shape, spec: Spec) -> Tensor:
        """Uniform numbers from 0 up to but without 1, at equal distances."""

    @abstractmethod
    def fine(self, shape: Shape, spec: Spec) -> Tensor:
        """Uniform numbers between 0 and 1, neither of them met, with small ones close together."""

    @abstractmethod
    def normal(self, shape: Shape, spec: Spec) -> Tensor:
        """Normal numbers of mean 0 and deviation 1."""

    @abstractmethod
    def bits(self, shape: Shape, spec: Spec) -> Tensor:
        """Integers of 31 random bits."""

    def exponential(self, shape: Shape, spec: Spec) -> Tensor:
        """Exponential numbers of mean 1, all positive."""
        return el.negative(el.log1p(el.negative(self.fine(shape, spec))))

    def gumbel(self, shape: Shape, spec: Spec) -> Tensor:
        """Gumbel numbers of location 0 and scale 1."""
        return el.negative(el.log(self.exponential(shape, spec)))

    def laplace(self, shape: Shape, spec: Spec) -> Tensor:
        """Laplace numbers of location 0 and scale 1."""
        size = self.exponential(shape, spec)
        bit = el.bitwise_and(self.bits(shape, spec.with_dtype(dtypes.int64)), 1)
        sign = el.subtract(el.multiply(convert.cast(bit, spec.dtype), 2), 1)
        return el.multiply(size, sign)


class KeySource(ArraySource):
    """Threefry: each draw of a call has its stream of the call's key."""

    def __init__(self, key: Tensor) -> None:
        self.key = convert.cast(key, dtypes.int32)
        self._stream = 0

    def _words(self, count: int) -> Tensor:
        spec: Spec = self.key._spec
        kernel, _ = spec.backend.entry(spec, "random_words")
        native = kernel(self.key.native, count, self._stream)
        self._stream += 1
        return fill(native, spec)

    def unit(self, shape: Shape, spec: Spec) -> Tensor:
        return manipulation.reshape(self._unit(prod(shape), spec.dtype), shape)

    def fine(self, shape: Shape, spec: Spec) -> Tensor:
        return manipulation.reshape(self._fine(prod(shape), spec.dtype), shape)

    def _unit(self, count: int, dtype: Any) -> Tensor:
        if dtype is dtypes.float64:
            high, low = _upper(self._words(count), 27, dtype), _upper(self._words(count), 26, dtype)
            # Exact in every step: no engine can round otherwise.
            return el.multiply(el.add(el.multiply(high, 2.0**26), low), 2.0**-53)
        return el.multiply(_upper(self._words(count), 24, dtype), 2.0**-24)

    def _fine(self, count: int, dtype: Any) -> Tensor:
        if dtype is dtypes.float64:
            fine = el.add(self._unit(count, dtype), 2.0**-54)
        else:
            words = self._words(count)
            low = convert.cast(el.bitwise_and(words, 255), dtype)
            coarse = el.multiply(_upper(words, 24, dtype), 2.0**-24)
            fine = el.add(coarse, el.multiply(el.add(low, 0.5), 2.0**-32))
        return el.minimum(fine, _BELOW_ONE[dtype])

    def normal(self, shape: Shape, spec: Spec) -> Tensor:
        # Box and Muller: two independent numbers of two.
        count = prod(shape)
        half = (count + 1) // 2
        radius = el.sqrt(el.multiply(el.log(self._fine(half, spec.dtype)), -2.0))
        angle = el.multiply(self._unit(half, spec.dtype), 2 * pi)
        both = [el.multiply(radius, el.cos(angle)), el.multiply(radius, el.sin(angle))]
        flat = manipulation.concat(both)
        if count != 2 * half:
            backend = flat._spec.backend
            flat = fill(backend.getitem(flat.native, (slice(0, count),)), flat._spec)
        return manipulation.reshape(flat, shape)

    def bits(self, shape: Shape, spec: Spec) -> Tensor:
        words = el.bitwise_and(self._words(prod(shape)), 0x7FFFFFFF)
        return manipulation.reshape(convert.cast(words, spec.dtype), shape)


def _upper(words: Tensor, count: int, dtype: Any) -> Tensor:
    """The upper bits of words as floating numbers."""
    shifted = el.bitwise_right_shift(words, 32 - count)
    return convert.cast(el.bitwise_and(shifted, (1 << count) - 1), dtype)


class EngineSource(ArraySource):
    """The engine's own generator, seeded anew for each draw."""

    def __init__(self, seed: int, call: int) -> None:
        # No call draws more than four times.
        self._seeds = host.raw(seed, call, host.ENGINES, 8)

    def _draw(self, kind: str, shape: Shape, spec: Spec) -> Tensor:
        backend = spec.backend
        kernel = backend.kernel(f"random_native_{kind}", dtypes.float32)
        native = kernel(self._seeds.pop(), shape, backend.native_dtypes[spec.dtype], spec.device)
        if backend.device_of(native) != spec.device:
            native = backend.to_device(native, spec.device)
        return fill(native, spec)

    def unit(self, shape: Shape, spec: Spec) -> Tensor:
        return self._draw("uniform", shape, spec)

    def fine(self, shape: Shape, spec: Spec) -> Tensor:
        # Engines give multiples of some 2**-24 or 2**-53, zero among them.
        above_zero = 1 - _BELOW_ONE[spec.dtype]
        return el.maximum(self.unit(shape, spec), above_zero / 2)

    def normal(self, shape: Shape, spec: Spec) -> Tensor:
        return self._draw("normal", shape, spec)

    def bits(self, shape: Shape, spec: Spec) -> Tensor:
        return self._draw("bits", shape, spec)
