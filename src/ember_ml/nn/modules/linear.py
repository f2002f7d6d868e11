"""Linear maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ember_ml.errors import EmberError, ShapeError
from ember_ml.nn.initializers import Initializer, UniformFan, get
from ember_ml.nn.module import Module
from ember_ml.nn.modules.inputs import Sized, refused, told
from ember_ml.nn.parameter import Parameter
from ember_ml.ops.activations import get_activation
from ember_ml.ops.affine import linear
from ember_ml.ops.contraction import einsum
from ember_ml.ops.dispatch import affine
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["Bilinear", "Dense", "Identity", "Linear"]


class Linear(Sized):
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
        weight_init: str | Initializer | None = None,
        bias_init: str | Initializer | None = None,
    ) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.use_bias = bias
        self._inits = (get(weight_init), get(bias_init))
        self.weight = self.bias = None
        self.is_lazy = in_features is None
        if in_features is not None:
            self._create(in_features)

    def _create(self, size: int) -> None:
        weight_init, bias_init = self._inits
        self.in_features = size
        self.weight = Parameter((weight_init or UniformFan())((self.out_features, size)))
        if self.use_bias:
            self.bias = Parameter((bias_init or UniformFan(size))((self.out_features,)))
        self.is_lazy = False

    def size_from(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take the size of a weight that is to be loaded."""
        if len(shapes.get("weight", ())) == 2:
            self._create(shapes["weight"][1])

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        if self.is_lazy:
            x = self._size(x, -1)
        try:
            quick = affine(x, self.weight, self.bias)
            return linear(x, self.weight, self.bias) if quick is None else quick
        except EmberError as error:
            raise self._told(x, error) from error

    def _told(self, x: TensorLike, error: EmberError) -> EmberError:
        if isinstance(error, ShapeError):
            return refused(self, x, f"its last axis must be {self.in_features}")
        return told(self, x, error)


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
        weight_init: str | Initializer | None = None,
        bias_init: str | Initializer | None = None,
    ) -> None:
        super().__init__(in_features, units, use_bias, weight_init=weight_init, bias_init=bias_init)
        self.activation = activation
        self._function = get_activation(activation)

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        y = super().forward(x)
        return y if self.activation is None else self._function(y)


class Bilinear(Module):
    """`yₒ = Σᵢⱼ x1ᵢ Wₒᵢⱼ x2ⱼ + bₒ`, over the last axes of two inputs.

    Shapes: x1 `(..., in1_features)`, x2 `(..., in2_features)`, weight `(out_features, in1_features,
    in2_features)`, y `(..., out_features)`. Weight and bias begin uniform within ±1/√in1_features.

    >>> from ember_ml import nn
    >>> nn.Bilinear(3, 4, 2)(ops.ones((5, 3)), ops.ones((5, 4))).shape
    (5, 2)
    """

    bias: Tensor | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        *,
        weight_init: str | Initializer | None = None,
        bias_init: str | Initializer | None = None,
    ) -> None:
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        default = UniformFan(in1_features)
        self.weight = Parameter(
            (get(weight_init) or default)((out_features, in1_features, in2_features))
        )
        self.bias = Parameter((get(bias_init) or default)((out_features,))) if bias else None

    def forward(self, x1: TensorLike, x2: TensorLike) -> Tensor:
        """See the class."""
        home = self.weight._spec.backend
        first, second = convert.to_tensor(x1, home), convert.to_tensor(x2, home)
        wanted = (self.in1_features, self.in2_features)
        if (
            (first.shape[-1:], second.shape[-1:]) != ((wanted[0],), (wanted[1],))
            or first.shape[:-1] != second.shape[:-1]
        ):  # fmt: skip
            raise ShapeError(
                f"Bilinear({self.extra_repr()}) got shapes {first.shape} and {second.shape}; they "
                f"must be alike but for the last axes, which must be {wanted[0]} and {wanted[1]}"
            )
        rows = math.prod(first.shape[:-1])
        y = einsum(
            "ni,oij,nj->no",
            first.reshape((rows, wanted[0])),
            self.weight,
            second.reshape((rows, wanted[1])),
        )
        y = y if self.bias is None else y + self.bias
        return y.reshape((*first.shape[:-1], self.out_features))


class Identity(Module):
    """Its input, unchanged; it takes any arguments, as a stand-in for another layer.

    >>> from ember_ml import nn
    >>> nn.Identity()(3)
    3
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        """See the class."""
        return x
