"""Normalization with running statistics: batch norms and instance norms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ember_ml import dtypes, ops
from ember_ml.autodiff.custom import stop_gradient
from ember_ml.errors import DomainError, EmberError, ShapeError
from ember_ml.nn.initializers import Initializer, Ones, Zeros, get
from ember_ml.nn.modules.inputs import Sized, refused, told
from ember_ml.nn.modules.whole_batch import WHOLE, WholeBatch
from ember_ml.nn.parameter import Buffer, Parameter
from ember_ml.ops import dispatch, normalization
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "InstanceNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
]


class _Running(Sized):
    """A layer that keeps the mean and the variance of what it has seen."""

    # The numbers of axes that it takes; None is any number from the least on.
    _ranks: ClassVar[tuple[int, ...] | None] = None
    _least: ClassVar[int] = 2
    # The number of axes of one sample alone, where it is taken.
    _alone: ClassVar[int] = 0
    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def _set(
        self,
        num_features: int | None,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        data_format: str,
        inits: tuple[str | Initializer | None, str | Initializer | None],
    ) -> None:
        name = type(self).__name__
        if momentum is not None and not 0 <= momentum <= 1:
            raise DomainError(f"{name} got momentum={momentum}; it is a share, from 0 to 1")
        if data_format not in ("channels_first", "channels_last"):
            raise DomainError(
                f"{name} takes data_format='channels_first' or 'channels_last', not {data_format!r}"
            )
        self.num_features = num_features
        self.eps = float(eps)
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.data_format = data_format
        self._inits = (get(inits[0]), get(inits[1]))
        self.weight = self.bias = None
        self.running_mean = self.running_var = self.num_batches_tracked = None
        self.is_lazy = num_features is None and (affine or track_running_stats)
        if num_features is not None:
            self._create(num_features)

    def _create(self, size: int) -> None:
        self.num_features = size
        if self.affine:
            weight_init, bias_init = self._inits
            self.weight = Parameter((weight_init or Ones())((size,)))
            self.bias = Parameter((bias_init or Zeros())((size,)))
        if self.track_running_stats:
            self.running_mean = Buffer(ops.zeros((size,)))
            self.running_var = Buffer(ops.ones((size,)))
            self.num_batches_tracked = Buffer(ops.zeros((), dtype=dtypes.int64))
        self.is_lazy = False

    def reset_running_stats(self) -> None:
        """Begin again with mean zero and variance one."""
        kept = self._statistics()
        if kept is not None:
            self.running_mean = ops.zeros_like(kept[0])
            self.running_var = ops.ones_like(kept[1])
            self.num_batches_tracked = ops.zeros_like(kept[2])

    def _statistics(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Mean, variance and count, where they are kept."""
        mean, variance, count = self.running_mean, self.running_var, self.num_batches_tracked
        if mean is None or variance is None or count is None:
            return None
        return mean, variance, count

    def size_from(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take the size of a weight or a mean that is to be loaded."""
        for name in ("weight", "running_mean"):
            if len(shapes.get(name, ())) == 1:
                self._create(shapes[name][0])
                return

    def _note(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch."""
        kept = self._statistics()
        if kept is None:
            return
        self.num_batches_tracked = ops.add(kept[2], 1)
        share: Any = self.momentum
        if share is None:  # the mean of all batches so far
            share = 1.0 / convert.cast(self.num_batches_tracked, mean.dtype)
        self.running_mean = kept[0] * (1.0 - share) + mean * share
        self.running_var = kept[1] * (1.0 - share) + variance * share

    def _by_running(self, x: Tensor, kept: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Normalized by the statistics that are kept."""
        inputs = (x, kept[0], kept[1], self.weight, self.bias)
        if self.data_format == "channels_first":  # what fits needs not be looked at again
            return dispatch.together("batch_norm", inputs, self.eps)
        return normalization.batch_norm(*inputs, eps=self.eps, data_format=self.data_format)

    def _input(self, x: TensorLike) -> Tensor:
        """The input, once its axes and channels fit."""
        known = self.weight if self.weight is not None else self.running_mean
        tensor = convert.to_tensor(x, None if known is None else known._spec.backend)
        ndim = tensor.ndim
        if ndim < self._least or (self._ranks is not None and ndim not in self._ranks):
            raise refused(self, tensor, self._wants())
        place = self._place(ndim)
        if self.is_lazy:
            tensor = self._size(tensor, place)
        elif self.num_features is not None and tensor.shape[place] != self.num_features:
            raise refused(self, tensor, self._wants())
        return tensor

    def _place(self, ndim: int) -> int:
        """The axis of the channels."""
        if self.data_format == "channels_last":
            return ndim - 1
        return 0 if ndim == self._alone else 1

    def _wants(self) -> str:
        count = "" if self.num_features is None else f"{self.num_features} "
        last = self.data_format == "channels_last"
        order = f"..., {count}channels" if last else f"{count}channels, ..."
        ranks = f"{self._least} axes or more"
        if self._ranks is not None:
            ranks = " or ".join(map(str, self._ranks)) + " axes"
        return f"it takes samples, {order}: {ranks}"


class BatchNorm(_Running):
    """`(x - mean) / √(var + eps) · weight + bias` for each channel, over samples and places.

    In training, mean and variance are those of the batch, and the running ones move towards them
    by `momentum`, or are the mean over all batches with `momentum=None`. In use, they are the
    running ones, or without `track_running_stats` those of the batch again.

    Shapes: x `(samples, num_features, ...)`, weight, bias and statistics `(num_features,)`. The
    variance that is kept is the unbiased one. With `num_features=None`, the first input tells it.
    BatchNorm1d, 2d and 3d take inputs of that many spatial axes alone.

    >>> from ember_ml import nn
    >>> layer = nn.BatchNorm(1, eps=0.0, momentum=0.5)
    >>> layer([[0.0], [2.0]]).tolist(), layer.running_mean.tolist()
    ([[-1.0], [1.0]], [0.5])
    """

    def __init__(
        self,
        num_features: int | None,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        data_format: str = "channels_first",
        weight_init: str | Initializer | None = None,
        bias_init: str | Initializer | None = None,
    ) -> None:
        inits = (weight_init, bias_init)
        self._set(num_features, eps, momentum, affine, track_running_stats, data_format, inits)

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        tensor = self._input(x)
        try:
            return self._normalized(tensor)
        except EmberError as error:
            raise told(self, tensor, error) from error

    def _normalized(self, x: Tensor) -> Tensor:
        kept = self._statistics()
        options: Any = {"eps": self.eps, "data_format": self.data_format}
        weights = (self.weight, self.bias)
        if kept is not None and not self.training:
            return self._by_running(x, kept)
        whole = WHOLE.get()
        if whole is not None:
            return self._over_all(x, whole)
        if kept is None or self.momentum is None:
            y, mean, variance = normalization.batch_norm(
                x, None, None, *weights, training=True, **options
            )
            self._note(mean, variance)
            return y
        y, self.running_mean, self.running_var = normalization.batch_norm(
            x, *kept[:2], *weights, training=True, momentum=self.momentum, **options
        )
        self.num_batches_tracked = ops.add(kept[2], 1)
        return y

    def _over_all(self, x: Tensor, whole: WholeBatch) -> Tensor:
        """Normalized by mean and variance over the parts that all processes have."""
        place = self._place(x.ndim)
        axes = tuple(axis for axis in range(x.ndim) if axis != place)
        values = x.astype(dtypes.float32) if x.dtype.bits < 32 else x
        here = ops.mean(values, axis=axes)
        spread = ops.var(values, axis=axes)
        count = math.prod(x.shape[axis] for axis in axes) if whole.counts else 0
        count_of = ops.full((1,), float(count), dtype=values.dtype, device=x.device)
        # One message: the mean of each part, the mean square beside it, and how much they count.
        rows = whole.gather(ops.concat([count_of, here, spread]))
        counts, size = rows[:, :1], here.shape[0]
        means, spreads = rows[:, 1 : 1 + size], rows[:, 1 + size :]
        total = ops.sum(counts)
        if count < 2 and not total._spec.backend.is_traced(total.native) and float(total) < 2:
            raise ShapeError("the variance of a channel needs two values or more")
        share = counts / total
        mean = ops.sum(means * share, axis=0)
        apart = means - mean
        variance = ops.sum((spreads + apart * apart) * share, axis=0)
        if self.running_mean is not None:  # in half precision, it is of half precision
            kept = self.running_mean.dtype
            unbiased = stop_gradient(variance * (total / (total - 1.0)))
            self._note(convert.cast(stop_gradient(mean), kept), convert.cast(unbiased, kept))
        return self._scaled(values, mean, variance, place).astype(x.dtype, copy=False)

    def _scaled(self, x: Tensor, mean: Tensor, variance: Tensor, place: int) -> Tensor:
        shape = [1] * x.ndim
        shape[place] = x.shape[place]
        scale = 1.0 / ops.sqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight.astype(x.dtype, copy=False)
        out = (x - ops.reshape(mean, shape)) * ops.reshape(scale, shape)
        if self.bias is not None:
            out = out + ops.reshape(self.bias.astype(x.dtype, copy=False), shape)
        return out


class BatchNorm1d(BatchNorm):
    """BatchNorm of `(samples, channels)` or `(samples, channels, length)`.

    >>> from ember_ml import nn
    >>> nn.BatchNorm1d(3)(ops.ones((4, 3))).tolist()[0]
    [0.0, 0.0, 0.0]
    """

    _ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """BatchNorm of `(samples, channels, height, width)`.

    >>> from ember_ml import nn
    >>> nn.BatchNorm2d(None)(ops.ones((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    _ranks = (4,)


class BatchNorm3d(BatchNorm):
    """BatchNorm of `(samples, channels, depth, height, width)`.

    >>> from ember_ml import nn
    >>> nn.BatchNorm3d(3)(ops.ones((2, 3, 2, 2, 2))).shape
    (2, 3, 2, 2, 2)
    """

    _ranks = (5,)


class InstanceNorm(_Running):
    """Mean zero and variance one over each channel of each sample, then weight and bias.

    Shapes: x `(samples, num_features, ...)`, weight and bias `(num_features,)`, which there are
    with `affine` only. With `track_running_stats`, running statistics are kept in training, and
    used otherwise, as in BatchNorm. InstanceNorm1d, 2d and 3d take inputs of that many spatial
    axes alone, and one sample without an axis of samples as well.

    >>> from ember_ml import nn
    >>> nn.InstanceNorm(2, eps=0.0)([[[0.0, 2.0], [4.0, 2.0]]]).tolist()
    [[[-1.0, 1.0], [1.0, -1.0]]]
    """

    _least = 3

    def __init__(
        self,
        num_features: int | None,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        data_format: str = "channels_first",
        weight_init: str | Initializer | None = None,
        bias_init: str | Initializer | None = None,
    ) -> None:
        inits = (weight_init, bias_init)
        self._set(num_features, eps, momentum, affine, track_running_stats, data_format, inits)

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        tensor = self._input(x)
        try:
            if tensor.ndim != self._alone:
                return self._normalized(tensor)
            return ops.squeeze(self._normalized(ops.expand_dims(tensor, 0)), 0)
        except EmberError as error:
            raise told(self, tensor, error) from error

    def _normalized(self, x: Tensor) -> Tensor:
        kept = self._statistics()
        options: Any = {"eps": self.eps, "data_format": self.data_format}
        weights = (self.weight, self.bias)
        if kept is not None and not self.training:
            return self._by_running(x, kept)
        last = self.data_format == "channels_last"
        places = tuple(range(1, x.ndim - 1) if last else range(2, x.ndim))
        if math.prod(x.shape[place] for place in places) < 2:
            raise ShapeError("the variance of a channel needs two values or more")
        y = normalization.instance_norm(x, *weights, **options)
        if kept is not None:
            seen = stop_gradient(x)
            mean = ops.mean(ops.mean(seen, axis=places), axis=0)
            variance = ops.mean(ops.var(seen, axis=places, correction=1.0), axis=0)
            whole = WHOLE.get()
            if whole is not None:
                mean, variance = _over_samples(whole, x.shape[0], mean, variance)
            self._note(mean, variance)
        return y


def _over_samples(
    whole: WholeBatch, count: int, mean: Tensor, variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Means over samples, of the samples that all processes have."""
    own = float(count if whole.counts else 0)
    rows = whole.gather(ops.concat([ops.full((1,), own, dtype=mean.dtype), mean, variance]))
    share, size = rows[:, :1] / ops.sum(rows[:, 0]), mean.shape[0]
    found = ops.sum(rows[:, 1:] * share, axis=0)
    return found[:size], found[size:]


class InstanceNorm1d(InstanceNorm):
    """InstanceNorm of `(samples, channels, length)`.

    >>> from ember_ml import nn
    >>> nn.InstanceNorm1d(3)(ops.ones((2, 3, 4))).shape
    (2, 3, 4)
    """

    _ranks = (2, 3)
    _least = 2
    _alone = 2


class InstanceNorm2d(InstanceNorm):
    """InstanceNorm of `(samples, channels, height, width)`.

    >>> from ember_ml import nn
    >>> nn.InstanceNorm2d(3)(ops.ones((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    _ranks = (3, 4)
    _alone = 3


class InstanceNorm3d(InstanceNorm):
    """InstanceNorm of `(samples, channels, depth, height, width)`.

    >>> from ember_ml import nn
    >>> nn.InstanceNorm3d(3)(ops.ones((2, 3, 2, 2, 2))).shape
    (2, 3, 2, 2, 2)
    """

    _ranks = (4, 5)
    _alone = 4
