"""Keys: random state as a tensor, for functions that are compiled."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.ops import creation, manipulation
from ember_ml.ops.axes import integer_of
from ember_ml.ops.random.generator import seed_of
from ember_ml.ops.registry import REGISTRY, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import TensorLike

__all__ = ["fold_in", "key", "split"]

_KEYS: Final = frozenset((dtypes.uint32,))
# Streams of a key that no draw has: those of draws count up from zero.
_SPLIT: Final = -1
_FOLD: Final = -2


@op("random.key", standard=False, creates=True)
def key(seed: int, /, *, device: str | None = None) -> Tensor:
    """A key of a seed: two words of uint32, from which draws follow by array ops alone.

    Hand it to a draw as `generator=`, also inside of jax.jit, mx.compile or torch's make_fx. The
    same key gives the same numbers, so split it first: one key for each draw.

    >>> key(7).tolist()
    [0, 7]
    """
    number = seed_of(seed, 1 << 64)
    words = np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)
    return creation.asarray(words, device=device)


@op("random.split", accepts=_KEYS, standard=False)
def split(key: TensorLike, /, n: int = 2) -> Tensor:
    """`n` keys of one, as rows: their draws have nothing to do with each other.

    >>> a, b = split(key(0))
    >>> a.tolist() == b.tolist()
    False
    """
    tensor = key_of("random.split", key)
    count = integer_of("random.split", n, "n")
    if count < 0:
        raise DomainError(f"ops.random.split got n={count}; a count is not negative")
    numbers = np.arange(count, dtype=np.int32)
    return _blocks(tensor, convert.to_tensor(numbers, tensor._spec.backend), _SPLIT)


@op("random.fold_in", accepts=_KEYS, standard=False)
def fold_in(key: TensorLike, number: TensorLike, /) -> Tensor:
    """The key that follows from a key and a number, such as that of a step; it may be a tensor.

    >>> fold_in(key(0), 3).tolist() == fold_in(key(0), 4).tolist()
    False
    """
    tensor = key_of("random.fold_in", key)
    if isinstance(number, int):
        if not 0 <= number < 1 << 32:
            raise DomainError(f"ops.random.fold_in takes 0 to 2**32 - 1, not {number}")
        number = np.array([number], np.uint32).view(np.int32)
    numbers = convert.to_tensor(number, tensor._spec.backend)
    if not numbers.dtype.is_integer:
        raise DTypeError(f"ops.random.fold_in takes an integer, not {numbers.dtype}")
    if numbers.size != 1:
        raise ShapeError(f"ops.random.fold_in takes one number, not shape {numbers.shape}")
    return manipulation.reshape(_blocks(tensor, manipulation.reshape(numbers, (1,)), _FOLD), (2,))


def key_of(op: str, key: Any) -> Tensor:
    """A key as a tensor."""
    tensor = convert.to_tensor(key)
    REGISTRY["random.split"]._replace(name=op).run_dtype(tensor.dtype)
    if tensor.shape != (2,):
        raise ShapeError(
            f"ops.{op} got a key of shape {tensor.shape}; a key has two words, "
            f"as ops.random.key gives them"
        )
    return tensor


def _blocks(key: Tensor, numbers: Tensor, stream: int) -> Tensor:
    """A key for each of some integers."""
    words = convert.cast(key, dtypes.int32)
    spec = words._spec
    kernel, _ = spec.backend.entry(spec, "random_blocks")
    native = kernel(words.native, convert.cast(numbers, dtypes.int32).native, stream)
    return convert.cast(fill(native, spec), dtypes.uint32)
