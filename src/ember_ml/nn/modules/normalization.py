"""Normalization: values scaled to a common mean and spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ember_ml import dtypes
from ember_ml.errors import DomainError, EmberError
from ember_ml.nn.initializers import Initializer, Ones, Zeros, get
from ember_ml.nn.module import Module
from ember_ml.nn.modules.inputs import Sized, refused, told
from ember_ml.nn.parameter import Parameter
from ember_ml.ops import normalization
from ember_ml.ops.normalization import normed
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "GroupNorm",
    "LayerNorm",
    "RMSNorm",
]

# Machine epsilons of float32, in which 16-bit floats are computed as well, and of float64.
_EPS: Final = (2.0**-23, 2.0**-52)


class _Trailing(Sized):
    """What is normalized over the last axes."""

    weight: Tensor | None
    bias: Tensor | None = None
    _inits: tuple[Initializer | None, Initializer | None]

    def _set(self, normalized_shape: int | Sequence[int] | None) -> None:
        self.is_lazy = normalized_shape is None
        self.normalized_shape: tuple[int, ...] | None = None
        if normalized_shape is not None:
            single = isinstance(normalized_shape, int)
            sides: Any = (normalized_shape,) if single else tuple(normalized_shape)  # type: ignore[arg-type]  # a sequence
            if not sides or not all(isinstance(side, int) and side > 0 for side in sides):
                raise DomainError(
                    f"{type(self).__name__} got normalized_shape={normalized_shape}; it takes the "
                    f"lengths of the last axes"
                )
            self._build(sides)

    def _create(self, size: int) -> None:
        self._build((size,))

    def _build(self, shape: tuple[int, ...]) -> None:
        raise NotImplementedError

    def size_from(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take the size of a weight that is to be loaded."""
        if shapes.get("weight"):
            self._build(shapes["weight"])

    def _told(self, x: TensorLike, error: EmberError) -> EmberError:
        shape = self.normalized_shape or ()
        if convert.to_tensor(x).shape[-len(shape) :] != shape:
            return refused(self, x, f"its last axes must be {shape}")
        return told(self, x, error)


class LayerNorm(_Trailing):
    """`(x - mean) / √(var + eps) · weight + bias`, over the last axes.

    Shapes: x `(..., *normalized_shape)`, weight and bias `normalized_shape`, which begin with ones
    and zeros. With `normalized_shape=None`, it is the last axis of the first input.

    >>> from ember_ml import nn
    >>> nn.LayerNorm(2, eps=0.0)([[0.0, 2.0]]).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int] | None,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        weight_init: str | Initializer | None = None,
        bias_init: str | Initializer | None = None,
    ) -> None:
        self.eps = float(eps)
        self.elementwise_affine = elementwise_affine
        self.use_bias = bias
        self._inits = (get(weight_init), get(bias_init))
        self.weight = self.bias = None
        self._set(normalized_shape)

    def _build(self, shape: tuple[int, ...]) -> None:
        self.normalized_shape = shape
        if self.elementwise_affine:
            weight_init, bias_init = self._inits
            self.weight = Parameter((weight_init or Ones())(shape))
            if self.use_bias:
                self.bias = Parameter((bias_init or Zeros())(shape))
        self.is_lazy = False

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        if self.is_lazy:
            x = self._size(x, -1)
        try:
            shape: Any = self.normalized_shape
            return normed("layer_norm", x, shape, (self.weight, self.bias), self.eps)
        except EmberError as error:
            raise self._told(x, error) from error


class RMSNorm(_Trailing):
    """`x / √(mean(x²) + eps) · weight`, over the last axes.

    Shapes: x `(..., *normalized_shape)`, weight `normalized_shape`, which begins with ones.
    `eps=None` is the machine epsilon of float32, or of float64 for inputs of it: that of the dtype
    in which PyTorch computes. With `normalized_shape=None`, it
    is the last axis of the first input.

    >>> from ember_ml import nn
    >>> nn.RMSNorm(2, eps=0.0)([[3.0, -3.0]]).tolist()
    [[1.0, -1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int] | None,
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        weight_init: str | Initializer | None = None,
    ) -> None:
        self.eps = None if eps is None else float(eps)
        self.elementwise_affine = elementwise_affine
        self._inits = (get(weight_init), None)
        self.weight = None
        self._set(normalized_shape)

    def _build(self, shape: tuple[int, ...]) -> None:
        self.normalized_shape = shape
        if self.elementwise_affine:
            self.weight = Parameter((self._inits[0] or Ones())(shape))
        self.is_lazy = False

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        if self.is_lazy:
            x = self._size(x, -1)
        eps = self.eps
        if eps is None:
            x = convert.to_tensor(x, None if self.weight is None else self.weight._spec.backend)
            eps = _EPS[x.dtype is dtypes.float64]
        try:
            shape: Any = self.normalized_shape
            return normed("rms_norm", x, shape, (self.weight,), eps)
        except EmberError as error:
            raise self._told(x, error) from error


class GroupNorm(Module):
    """Mean zero and variance one over each group of channels of each sample, then weight and bias.

    Shapes: x `(samples, num_channels, ...)`, weight and bias `(num_channels,)`, which begin with
    ones and zeros.

    >>> from ember_ml import nn
    >>> nn.GroupNorm(2, 4, eps=0.0)([[0.0, 2.0, 5.0, 9.0]]).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        data_format: str = "channels_first",
        weight_init: str | Initializer | None = None,
        bias_init: str | Initializer | None = None,
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise DomainError(
                f"GroupNorm got num_groups={num_groups} and num_channels={num_channels}; the "
                f"groups must divide the channels"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.data_format = data_format
        self.weight = self.bias = None
        if affine:
            self.weight = Parameter((get(weight_init) or Ones())((num_channels,)))
            self.bias = Parameter((get(bias_init) or Zeros())((num_channels,)))

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return normalization.group_norm(
                x,
                self.num_groups,
                self.weight,
                self.bias,
                self.eps,
                data_format=self.data_format,
            )
        except EmberError as error:
            shape = convert.to_tensor(x).shape
            place = -1 if self.data_format == "channels_last" else 1
            if len(shape) < 2 or shape[place] != self.num_channels:
                wants = f"it takes samples, {self.num_channels} channels, and any axes"
                raise refused(self, x, wants) from error
            raise told(self, x, error) from error
