"""Where channels lie and how windows are written, for convolution, pooling and their kin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.ops.axes import integer_of
from ember_ml.ops.manipulation import moveaxis
from ember_ml.tensor.core import Tensor

__all__ = ["channels_first", "channels_last", "is_last", "pairs_of", "same_padding", "sides_of"]


def is_last(name: str, data_format: str) -> bool:
    """True for "channels_last", False for "channels_first", an error for anything else."""
    if data_format not in ("channels_first", "channels_last"):
        raise DomainError(
            f"ops.{name} takes data_format='channels_first' or 'channels_last', not {data_format!r}"
        )
    return data_format == "channels_last"


def channels_first(name: str, x: Tensor, data_format: str) -> Tensor:
    """A tensor of (samples, channels, ...), whose channels lay where `data_format` says."""
    last = is_last(name, data_format)
    if x.ndim < 2:
        raise ShapeError(f"ops.{name} takes (samples, channels, ...), not shape {x.shape}")
    return moveaxis(x, -1, 1) if last and x.ndim > 2 else x


def channels_last(x: Tensor, data_format: str) -> Tensor:
    """The reverse of `channels_first`."""
    return moveaxis(x, 1, -1) if data_format == "channels_last" and x.ndim > 2 else x


def sides_of(name: str, value: Any, count: int, what: str, least: int = 1) -> tuple[int, ...]:
    """One integer for all spatial axes, or one for each."""
    several = isinstance(value, Sequence) and not isinstance(value, str)
    given = tuple(integer_of(name, v, what) for v in (value if several else (value,)))
    sides = given * count if len(given) == 1 else given
    if len(sides) != count:
        raise ShapeError(f"ops.{name} got {len(given)} numbers for {what}; it takes 1 or {count}")
    if any(side < least for side in sides):
        raise DomainError(f"ops.{name} got {what}={value}; it must be at least {least}")
    return sides


def pairs_of(name: str, padding: Any, count: int) -> tuple[tuple[int, int], ...]:
    """Padding as (before, after) for each spatial axis."""
    if isinstance(padding, str):
        raise DomainError(
            f"ops.{name} takes padding='valid', 'same', a number or numbers, not {padding!r}"
        )
    if isinstance(padding, Sequence) and any(isinstance(one, Sequence) for one in padding):
        if len(padding) != count or not all(
            isinstance(one, Sequence) and len(one) == 2 for one in padding
        ):
            raise ShapeError(f"ops.{name} got padding={padding}; it takes a pair for each axis")
        low = sides_of(name, tuple(one[0] for one in padding), count, "padding", 0)
        high = sides_of(name, tuple(one[1] for one in padding), count, "padding", 0)
        return tuple(zip(low, high, strict=True))
    if not isinstance(padding, Sequence) and not hasattr(padding, "__index__"):
        raise DTypeError(f"ops.{name} takes an integer padding, not {padding!r}")
    return tuple((side, side) for side in sides_of(name, padding, count, "padding", 0))


def same_padding(
    spatial: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """Zeros that give ceil(length / stride) results; an odd one goes behind.

    `kernel` is the extent of the window, with its gaps.
    """
    pairs = []
    for length, extent, step in zip(spatial, kernel, stride, strict=True):
        total = max((-(-length // step) - 1) * step + extent - length, 0)
        pairs.append((total // 2, total - total // 2))
    return tuple(pairs)
