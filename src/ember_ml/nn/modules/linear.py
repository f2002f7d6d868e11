"""Linear maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ember_ml.backend.selection import use_backend
from ember_ml.devices import use_device
from ember_ml.errors import ShapeError
from ember_ml.nn.initializers import Initializer, UniformFan
from ember_ml.nn.module import Module
from ember_ml.nn.parameter import Parameter
from ember_ml.ops.activations import get_activation
from ember_ml.ops.affine import applied
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["Dense", "Identity", "Linear"]


class Linear(Module):
    """`y = x Wᵀ + b`, over the last axis.

    Shapes: x `(..., in_features)`, weight `(out_features, in_features)`, y `(..., out_features)`.
    Weight and bias begin uniform within ±1/√in_features. With `in_features=None`, the first input
    tells it.

    >>> from ember_ml import nn
    >>> nn.Linear(3, 2)(ops.ones((4, 3))).shape
    (4, 2)
    """

    weight: Any  # a Tensor; None until a first input tells in_features
    bias: Tensor | None

    def __init__(
        self,
        in_features: int | None,
        out_features: int,
        bias: bool = True,
        *,
        weight_init: Initializer | None = None,
        bias_init: Initializer | None = None,
    ) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.use_bias = bias
        self._inits = (weight_init, bias_init)
        self.weight = self.bias = None
        self.is_lazy = in_features is None
        if in_features is not None:
            self._create(in_features)

    def _create(self, in_features: int) -> None:
        weight_init, bias_init = self._inits
        self.in_features = in_features
        self.weight = Parameter((weight_init or UniformFan())((self.out_features, in_features)))
        if self.use_bias:
            self.bias = Parameter((bias_init or UniformFan(in_features))((self.out_features,)))
        self.is_lazy = False

    def _size(self, x: TensorLike) -> Tensor:
        """Take the size of a first input."""
        first = convert.to_tensor(x)
        if not first.shape:
            raise ShapeError(f"{type(self).__name__} got shape (); it takes a last axis")
        with use_backend(first.backend), use_device(first.device):
            self._create(first.shape[-1])
        if first.dtype.is_floating:
            self.to(dtype=first.dtype)
        return first

    def size_from(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take the size of a weight that is to be loaded."""
        if len(shapes.get("weight", ())) == 2:
            self._create(shapes["weight"][1])

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        if self.is_lazy:
            x = self._size(x)
        return applied(x, self.weight, self.bias)


class Dense(Linear):
    """A Linear that takes its input size from the first input, with an activation after it.

    >>> from ember_ml import nn
    >>> nn.Dense(2, activation="relu")(ops.ones((4, 3))).shape
    (4, 2)
    """

    def __init__(
        self,
        units: int,
        activation: str | Callable[..., Any] | None = None,
        use_bias: bool = True,
        in_features: int | None = None,
        *,
        weight_init: Initializer | None = None,
        bias_init: Initializer | None = None,
    ) -> None:
        super().__init__(in_features, units, use_bias, weight_init=weight_init, bias_init=bias_init)
        self.activation = activation
        self._function = get_activation(activation)

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        y = super().forward(x)
        return y if self.activation is None else self._function(y)


class Identity(Module):
    """Its input, unchanged; it takes any arguments, as a stand-in for another layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        """See the class."""
        return x
