"""Sequences in windows: what happens in each, and at several strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ember_ml import ops
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.features import data as given
from ember_ml.features.base import FeatureExtractor
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__ = ["STATISTICS", "TemporalStrideFeatures", "WindowFeatures"]


# --- What is said of a window: functions of (batch, windows, size, channels) over axis 2 ------


def _mean(x: Tensor) -> Tensor:
    return ops.mean(x, axis=2)


def _var(x: Tensor) -> Tensor:
    return ops.var(x, axis=2)


def _std(x: Tensor) -> Tensor:
    # The root's slope at zero is infinite, and would make gradients NaN.
    var = _var(x)
    flat = var == 0
    root = ops.sqrt(ops.where(flat, ops.ones_like(var), var))
    return ops.where(flat, ops.zeros_like(var), root)


def _min(x: Tensor) -> Tensor:
    return ops.min(x, axis=2)


def _max(x: Tensor) -> Tensor:
    return ops.max(x, axis=2)


def _range(x: Tensor) -> Tensor:
    return _max(x) - _min(x)


def _median(x: Tensor) -> Tensor:
    ordered, last = ops.sort(x, axis=2), x.shape[2] - 1
    return (ordered[:, :, last // 2] + ordered[:, :, (last + 1) // 2]) / 2.0


def _energy(x: Tensor) -> Tensor:
    return ops.mean(x * x, axis=2)


def _first(x: Tensor) -> Tensor:
    return x[:, :, 0]


def _last(x: Tensor) -> Tensor:
    return x[:, :, -1]


def _delta(x: Tensor) -> Tensor:
    return _last(x) - _first(x)


def _slope(x: Tensor) -> Tensor:
    """The slope of the line of least squares, per sample of the window."""
    size = x.shape[2]
    steps = np.arange(size) - (size - 1) / 2.0
    weights = steps / max(float(steps @ steps), 1.0)
    line = convert.cast(convert.to_tensor(weights, x._spec.backend), x.dtype)
    return ops.sum(x * line.to_device(x.device)[:, None], axis=2)


def _crossings(x: Tensor) -> Tensor:
    """The share of steps at which the sign changes."""
    size = x.shape[2]
    if size < 2:
        return ops.zeros_like(x[:, :, 0])
    below = x < 0
    changes = ops.not_equal(below[:, :, 1:], below[:, :, :-1])
    return ops.mean(convert.cast(changes, x.dtype), axis=2)


STATISTICS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "mean": _mean,
    "std": _std,
    "var": _var,
    "min": _min,
    "max": _max,
    "range": _range,
    "median": _median,
    "energy": _energy,
    "first": _first,
    "last": _last,
    "delta": _delta,
    "slope": _slope,
    "crossings": _crossings,
}


# --- Sequences and their windows --------------------------------------------------------------


def _sequences(who: str, data: Any) -> tuple[Tensor, bool]:
    """Data as (batch, time, channels), and whether it was one sequence without a batch."""
    x = given.floats(who, data)
    if given.is_frame(data):  # its rows are times
        return x[None, :, :], True
    if x.ndim == 1:
        return x[None, :, None], True
    if x.ndim == 2:
        return x[:, :, None], False
    if x.ndim == 3:
        return x, False
    raise ShapeError(
        f"{who} takes (time,), (batch, time) or (batch, time, channels), not shape {x.shape}"
    )


def _windows(x: Tensor, starts: np.ndarray[Any, Any], size: int, step: int) -> Tensor:
    """The windows (batch, windows, size, channels) of `size` samples `step` apart."""
    places = starts[:, None] + step * np.arange(size)
    picked = ops.take(x, places.reshape(-1), axis=1)
    return ops.reshape(picked, (x.shape[0], len(starts), size, x.shape[2]))


def _described(windows: Tensor, statistics: Sequence[str] | None) -> Tensor:
    """Features (batch, windows, features) of windows: statistics by channel, or all samples."""
    if statistics is None:
        batch, count, size, channels = windows.shape
        return ops.reshape(windows, (batch, count, size * channels))
    return ops.concat([STATISTICS[name](windows) for name in statistics], axis=2)


def _names(size: int, channels: int, statistics: Sequence[str] | None) -> list[str]:
    told = [f"t{i}" for i in range(size)] if statistics is None else list(statistics)
    if channels == 1:
        return told
    return [f"{name}_{channel}" for name in told for channel in range(channels)]


def _positive(who: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise DTypeError(f"{who} takes {name} as an integer, not {value!r}")
    if value < 1:
        raise DomainError(f"{who} takes {name} from one up, not {value}")
    return int(value)


def _known(who: str, statistics: Sequence[str]) -> list[str]:
    wanted = [statistics] if isinstance(statistics, str) else list(statistics)
    unknown = [name for name in wanted if name not in STATISTICS]
    if unknown or not wanted:
        raise DomainError(
            f"{who} got statistics {wanted}; there are {', '.join(STATISTICS)}, and at least one "
            f"is needed"
        )
    return wanted


def _require_length(who: str, x: Tensor, needed: int) -> None:
    if x.shape[1] < needed:
        raise ShapeError(f"{who} got {x.shape[1]} times; its windows take {needed}")


class WindowFeatures(FeatureExtractor):
    """Statistics of windows of `size` samples that begin every `stride` samples.

    Sequences (batch, time) or (batch, time, channels) give (batch, windows, features), where
    features are the statistics in their order, each for all channels. One sequence (time,) gives
    (windows, features). Samples behind the last whole window are left out.

    >>> from ember_ml.features import WindowFeatures
    >>> WindowFeatures(3, stride=2, statistics=["mean", "slope"])([1, 2, 3, 5, 7]).tolist()
    [[2.0, 1.0], [5.0, 2.0]]
    """

    OPTIONS = ("size", "stride", "statistics")

    def __init__(
        self,
        size: int,
        *,
        stride: int = 1,
        statistics: Sequence[str] = ("mean", "std", "min", "max", "slope"),
    ) -> None:
        self.size = _positive("WindowFeatures", "size", size)
        self.stride = _positive("WindowFeatures", "stride", stride)
        self.statistics = _known("WindowFeatures", statistics)

    def windows(self, data: Any, /) -> Tensor:
        """The windows themselves, (batch, windows, size, channels)."""
        return self._cut(_sequences("WindowFeatures.windows", data)[0])

    def _cut(self, x: Tensor) -> Tensor:
        _require_length("WindowFeatures", x, self.size)
        starts = np.arange(0, x.shape[1] - self.size + 1, self.stride)
        return _windows(x, starts, self.size, 1)

    def extract(self, data: Any, /) -> Tensor:
        """The statistics of each window."""
        x, alone = _sequences("WindowFeatures.extract", data)
        found = _described(self._cut(x), self.statistics)
        return found[0] if alone else found

    def feature_names_out(self, channels: int = 1) -> list[str]:
        """The statistics; of several channels, with their numbers behind them."""
        return _names(self.size, channels, self.statistics)


class TemporalStrideFeatures(FeatureExtractor):
    """Sequences seen at several temporal strides at once: near and detailed, far and coarse.

    At stride s, a window has `size` samples that are s apart. Windows of all strides that end at
    the same time stand side by side; ends are `hop` apart, and the first is where the widest
    window fits. Sequences as for WindowFeatures; features are all samples of the windows, or
    their `statistics`, stride by stride.

    >>> from ember_ml.features import TemporalStrideFeatures
    >>> TemporalStrideFeatures(2, strides=(1, 3))([0, 1, 2, 3, 4]).tolist()
    [[2.0, 3.0, 0.0, 3.0], [3.0, 4.0, 1.0, 4.0]]
    """

    OPTIONS = ("size", "strides", "hop", "statistics")

    def __init__(
        self,
        size: int,
        *,
        strides: Sequence[int] = (1, 3, 5),
        hop: int = 1,
        statistics: Sequence[str] | None = None,
    ) -> None:
        who = "TemporalStrideFeatures"
        self.size = _positive(who, "size", size)
        self.strides = [_positive(who, "strides", stride) for stride in strides]
        if not self.strides or len(set(self.strides)) != len(self.strides):
            raise DomainError(f"{who} takes strides that differ, not {self.strides}")
        self.hop = _positive(who, "hop", hop)
        self.statistics = None if statistics is None else _known(who, statistics)

    def perspectives(self, data: Any, /) -> dict[int, Tensor]:
        """By stride, the windows (batch, windows, size, channels)."""
        return self._cut(_sequences("TemporalStrideFeatures.perspectives", data)[0])

    def _cut(self, x: Tensor) -> dict[int, Tensor]:
        widest = (self.size - 1) * max(self.strides) + 1
        _require_length("TemporalStrideFeatures", x, widest)
        ends = np.arange(widest - 1, x.shape[1], self.hop)
        return {
            stride: _windows(x, ends - (self.size - 1) * stride, self.size, stride)
            for stride in self.strides
        }

    def extract(self, data: Any, /) -> Tensor:
        """The windows of all strides, side by side."""
        x, alone = _sequences("TemporalStrideFeatures.extract", data)
        seen = self._cut(x).values()
        found = ops.concat([_described(windows, self.statistics) for windows in seen], axis=2)
        return found[0] if alone else found

    def feature_names_out(self, channels: int = 1) -> list[str]:
        """The names of a window's features, by stride: s1_t0, s1_t1, s3_t0 and so on."""
        inner = _names(self.size, channels, self.statistics)
        return [f"s{stride}_{name}" for stride in self.strides for name in inner]
