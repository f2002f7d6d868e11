"""Activations as modules: each calls the op of the same name.

Where an activation has no options, its `forward` is the op itself, so that a call costs no more.
"""

from __future__ import annotations

from ember_ml.errors import EmberError
from ember_ml.nn.initializers import Constant
from ember_ml.nn.module import Module
from ember_ml.nn.modules.inputs import told
from ember_ml.nn.parameter import Parameter
from ember_ml.ops import activations as act
from ember_ml.ops.elementwise import tanh
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "CELU",
    "ELU",
    "GEGLU",
    "GELU",
    "GLU",
    "SELU",
    "HardShrink",
    "HardSigmoid",
    "HardSwish",
    "HardTanh",
    "LeakyReLU",
    "LecunTanh",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU6",
    "ReLUSquared",
    "SiLU",
    "Sigmoid",
    "SoftShrink",
    "Softmax",
    "Softmin",
    "Softplus",
    "Softsign",
    "SwiGLU",
    "Swish",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


# --- Without options --------------------------------------------------------------------------


class ReLU(Module):
    """`max(x, 0)`.

    >>> from ember_ml import nn
    >>> nn.ReLU()([-1.0, 2.0]).tolist()
    [0.0, 2.0]
    """

    forward = staticmethod(act.relu)


class ReLU6(Module):
    """`min(max(x, 0), 6)`.

    >>> from ember_ml import nn
    >>> nn.ReLU6()([-1.0, 9.0]).tolist()
    [0.0, 6.0]
    """

    forward = staticmethod(act.relu6)


class ReLUSquared(Module):
    """`max(x, 0)²`.

    >>> from ember_ml import nn
    >>> nn.ReLUSquared()([-1.0, 3.0]).tolist()
    [0.0, 9.0]
    """

    forward = staticmethod(act.relu_squared)


class SELU(Module):
    """The scaled elu that keeps mean zero and variance one.

    >>> from ember_ml import nn
    >>> nn.SELU()([0.0]).tolist()
    [0.0]
    """

    forward = staticmethod(act.selu)


class SiLU(Module):
    """`x · sigmoid(x)`.

    >>> from ember_ml import nn
    >>> nn.SiLU()([0.0, 100.0]).tolist()
    [0.0, 100.0]
    """

    forward = staticmethod(act.silu)


class Swish(SiLU):
    """Another name of SiLU.

    >>> from ember_ml import nn
    >>> nn.Swish()([0.0, 100.0]).tolist()
    [0.0, 100.0]
    """


class Mish(Module):
    """`x · tanh(softplus(x))`.

    >>> from ember_ml import nn
    >>> nn.Mish()([0.0, 100.0]).tolist()
    [0.0, 100.0]
    """

    forward = staticmethod(act.mish)


class Sigmoid(Module):
    """`1 / (1 + exp(-x))`.

    >>> from ember_ml import nn
    >>> nn.Sigmoid()([0.0, 1000.0]).tolist()
    [0.5, 1.0]
    """

    forward = staticmethod(act.sigmoid)


class LogSigmoid(Module):
    """The logarithm of the sigmoid.

    >>> from ember_ml import nn
    >>> nn.LogSigmoid()([-1000.0]).tolist()
    [-1000.0]
    """

    forward = staticmethod(act.log_sigmoid)


class HardSigmoid(Module):
    """`min(max(x + 3, 0), 6) / 6`.

    >>> from ember_ml import nn
    >>> nn.HardSigmoid()([-3.0, 0.0, 3.0]).tolist()
    [0.0, 0.5, 1.0]
    """

    forward = staticmethod(act.hard_sigmoid)


class HardSwish(Module):
    """`x · min(max(x + 3, 0), 6) / 6`.

    >>> from ember_ml import nn
    >>> nn.HardSwish()([0.0, 3.0]).tolist()
    [0.0, 3.0]
    """

    forward = staticmethod(act.hard_swish)


class Tanh(Module):
    """The hyperbolic tangent.

    >>> from ember_ml import nn
    >>> nn.Tanh()([0.0, 100.0]).tolist()
    [0.0, 1.0]
    """

    forward = staticmethod(tanh)


class Tanhshrink(Module):
    """`x - tanh(x)`.

    >>> from ember_ml import nn
    >>> nn.Tanhshrink()([0.0]).tolist()
    [0.0]
    """

    forward = staticmethod(act.tanhshrink)


class LecunTanh(Module):
    """`1.7159 · tanh(2x / 3)`, which keeps unit variance.

    >>> from ember_ml import nn
    >>> nn.LecunTanh()([0.0]).tolist()
    [0.0]
    """

    forward = staticmethod(act.lecun_tanh)


class Softsign(Module):
    """`x / (1 + |x|)`.

    >>> from ember_ml import nn
    >>> nn.Softsign()([-1.0, 3.0]).tolist()
    [-0.5, 0.75]
    """

    forward = staticmethod(act.softsign)


# --- With options -----------------------------------------------------------------------------


class LeakyReLU(Module):
    """x where it is positive, else `negative_slope · x`.

    >>> from ember_ml import nn
    >>> nn.LeakyReLU(0.5)([-2.0, 2.0]).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return act.leaky_relu(x, self.negative_slope)


class PReLU(Module):
    """x where it is positive, else `weight · x`, with a weight that is trained.

    There is one weight for all, or `num_parameters`, one for each channel of axis 1; they begin
    with `init`.

    >>> from ember_ml import nn
    >>> nn.PReLU(2)([[-4.0, 4.0]]).tolist()
    [[-1.0, 4.0]]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.weight = Parameter(Constant(init)((num_parameters,)))

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return act.prelu(x, self.weight)
        except EmberError as error:
            raise told(self, x, error) from error


class Threshold(Module):
    """x where it is above `threshold`, else `value`.

    >>> from ember_ml import nn
    >>> nn.Threshold(1.0, 0.0)([0.5, 2.0]).tolist()
    [0.0, 2.0]
    """

    def __init__(self, threshold: float, value: float) -> None:
        self.threshold = threshold
        self.value = value

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return act.threshold(x, self.threshold, self.value)


class HardTanh(Module):
    """x limited to the range from `min_val` to `max_val`.

    >>> from ember_ml import nn
    >>> nn.HardTanh()([-3.0, 0.5, 3.0]).tolist()
    [-1.0, 0.5, 1.0]
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return act.hard_tanh(x, self.min_val, self.max_val)


class HardShrink(Module):
    """Zero where x is at most `lambd` away from it, else x.

    >>> from ember_ml import nn
    >>> nn.HardShrink()([-1.0, 0.25, 2.0]).tolist()
    [-1.0, 0.0, 2.0]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return act.hard_shrink(x, self.lambd)


class SoftShrink(Module):
    """x moved towards zero by `lambd`, and no further.

    >>> from ember_ml import nn
    >>> nn.SoftShrink()([-1.0, 0.25, 2.0]).tolist()
    [-0.5, 0.0, 1.5]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return act.soft_shrink(x, self.lambd)


class Softplus(Module):
    """`log(1 + exp(beta · x)) / beta`; x itself where `beta · x` is above `threshold`.

    >>> from ember_ml import nn
    >>> nn.Softplus()([-1000.0, 100.0]).tolist()
    [0.0, 100.0]
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta = beta
        self.threshold = threshold

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return act.softplus(x, self.beta, self.threshold)


class ELU(Module):
    """x where it is positive, else `alpha · (exp(x) - 1)`.

    >>> from ember_ml import nn
    >>> nn.ELU()([-1000.0, 2.0]).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return act.elu(x, self.alpha)


class CELU(Module):
    """x where it is positive, else `alpha · (exp(x / alpha) - 1)`.

    >>> from ember_ml import nn
    >>> nn.CELU(0.5)([-1000.0, 2.0]).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return act.celu(x, self.alpha)


class GELU(Module):
    """x times the normal distribution function; `approximate="tanh"` is a shorter formula.

    >>> from ember_ml import nn
    >>> nn.GELU()([0.0, 100.0]).tolist()
    [0.0, 100.0]
    """

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return act.gelu(x, self.approximate)


# --- Along an axis ----------------------------------------------------------------------------


class _AlongAxis(Module):
    """An activation that looks along one axis."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis


class Softmax(_AlongAxis):
    """Exponentials scaled to sum to one along `axis`.

    >>> from ember_ml import nn
    >>> nn.Softmax()([1000.0, 1000.0]).tolist()
    [0.5, 0.5]
    """

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return act.softmax(x, self.axis)
        except EmberError as error:
            raise told(self, x, error) from error


class LogSoftmax(_AlongAxis):
    """The logarithm of softmax along `axis`.

    >>> from ember_ml import nn
    >>> nn.LogSoftmax()([0.0, -1000.0]).tolist()
    [0.0, -1000.0]
    """

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return act.log_softmax(x, self.axis)
        except EmberError as error:
            raise told(self, x, error) from error


class Softmin(_AlongAxis):
    """Softmax of -x along `axis`.

    >>> from ember_ml import nn
    >>> nn.Softmin()([2.0, 2.0]).tolist()
    [0.5, 0.5]
    """

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return act.softmin(x, self.axis)
        except EmberError as error:
            raise told(self, x, error) from error


class GLU(_AlongAxis):
    """The first half of x along `axis` times the sigmoid of the second half.

    >>> from ember_ml import nn
    >>> nn.GLU()([3.0, 0.0]).tolist()
    [1.5]
    """

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return act.glu(x, self.axis)
        except EmberError as error:
            raise told(self, x, error) from error


class SwiGLU(_AlongAxis):
    """The first half of x along `axis` times the silu of the second half.

    >>> from ember_ml import nn
    >>> nn.SwiGLU()([3.0, 100.0]).tolist()
    [300.0]
    """

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return act.swiglu(x, self.axis)
        except EmberError as error:
            raise told(self, x, error) from error


class GEGLU(Module):
    """The first half of x along `axis` times the gelu of the second half.

    >>> from ember_ml import nn
    >>> nn.GEGLU()([3.0, 100.0]).tolist()
    [300.0]
    """

    def __init__(self, axis: int = -1, approximate: str = "none") -> None:
        self.axis = axis
        self.approximate = approximate

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return act.geglu(x, self.axis, self.approximate)
        except EmberError as error:
            raise told(self, x, error) from error
