"""Activations: the functions between the layers of a network.

Integers are lifted to the default float. They are stable at large arguments; 16-bit floats are
computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ember_ml.autodiff.tape import recorded
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.ops.axes import axis_of, number_of
from ember_ml.ops.dispatch import call, gathered, unary
from ember_ml.ops.elementwise import multiply, tanh
from ember_ml.ops.explain import describe, explain
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import TensorLike

if TYPE_CHECKING:
    from ember_ml.markers import D, R, V
    from ember_ml.tensor.typed import LikeFloat

__all__: list[str] = [
    "celu",
    "elu",
    "geglu",
    "gelu",
    "get_activation",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "lecun_tanh",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "relu_squared",
    "selu",
    "sigmoid",
    "silu",
    "soft_shrink",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "swiglu",
    "swish",
    "tanhshrink",
    "threshold",
]


# --- Pieces of straight lines -----------------------------------------------------------------


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def relu(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """x where it is positive, else zero.

    >>> relu([-1.0, 2.0]).tolist()
    [0.0, 2.0]
    """
    return unary("relu", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def relu6(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """x limited to the range from 0 to 6.

    >>> relu6([-1.0, 2.0, 9.0]).tolist()
    [0.0, 2.0, 6.0]
    """
    return unary("relu6", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def relu_squared(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """The square of x where it is positive, else zero.

    >>> relu_squared([-1.0, 3.0]).tolist()
    [0.0, 9.0]
    """
    return unary("relu_squared", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def leaky_relu(x: LikeFloat[D, V, R], /, negative_slope: float = 0.01) -> Tensor[D, V, R]:
    """x where it is positive, else `negative_slope * x`.

    >>> leaky_relu([-2.0, 2.0], 0.5).tolist()
    [-1.0, 2.0]
    """
    return call("leaky_relu", x, number_of("leaky_relu", negative_slope, "negative_slope"))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def prelu(x: TensorLike, weight: TensorLike, /) -> Tensor:
    """x where it is positive, else `weight * x`: one weight for all, or one for each channel.

    Channels are axis 1 of `x`, as in PyTorch.

    >>> prelu([[-2.0, -2.0]], [0.5, 0.25]).tolist()
    [[-1.0, -0.5]]
    """
    spec, (native, slope), taped = gathered("prelu", (x, weight))
    channels = native.shape[1] if native.ndim > 1 else 1  # type: ignore[union-attr]  # given
    shape = tuple(slope.shape)  # type: ignore[union-attr]  # given
    if len(shape) > 1 or shape not in ((), (1,), (channels,)):
        raise ShapeError(
            f"ops.prelu got weights of shape {shape} for {describe((x,))}; "
            f"it takes one weight, or {channels}, one for each channel of axis 1"
        )
    kernel, result = spec.backend.entry(spec, "prelu")
    try:
        out = kernel(native, spec.backend.kernels.reshape(slope, (-1,)))
    except Exception as error:
        raise explain("prelu", error, (x, weight)) from error
    if result.settles and type(out) is not result.native_type:
        out = result.backend.settle_native(out, result)
    return recorded("prelu", out, result, taped) if taped else fill(out, result)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def threshold(x: LikeFloat[D, V, R], /, threshold: float, value: float) -> Tensor[D, V, R]:
    """x where it is above `threshold`, else `value`.

    >>> threshold([0.5, 2.0], 1.0, 0.0).tolist()
    [0.0, 2.0]
    """
    limit = number_of("threshold", threshold, "threshold")
    return call("threshold", x, limit, number_of("threshold", value, "value"))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def hard_tanh(
    x: LikeFloat[D, V, R], /, min_val: float = -1.0, max_val: float = 1.0
) -> Tensor[D, V, R]:
    """x limited to the range from `min_val` to `max_val`.

    >>> hard_tanh([-3.0, 0.5, 3.0]).tolist()
    [-1.0, 0.5, 1.0]
    """
    low = number_of("hard_tanh", min_val, "min_val")
    high = number_of("hard_tanh", max_val, "max_val")
    if not low <= high:
        raise DomainError(f"ops.hard_tanh got the range {min_val} to {max_val}, which is empty")
    return call("hard_tanh", x, low, high)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def hard_sigmoid(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """`relu6(x + 3) / 6`: straight lines near the sigmoid.

    >>> hard_sigmoid([-3.0, 0.0, 3.0]).tolist()
    [0.0, 0.5, 1.0]
    """
    return unary("hard_sigmoid", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def hard_swish(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """`x * relu6(x + 3) / 6`.

    >>> hard_swish([-3.0, 0.0, 3.0]).tolist()
    [-0.0, 0.0, 3.0]
    """
    return unary("hard_swish", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def hard_shrink(x: LikeFloat[D, V, R], /, lambd: float = 0.5) -> Tensor[D, V, R]:
    """Zero where x is at most `lambd` away from it, else x.

    >>> hard_shrink([-1.0, 0.25, 2.0]).tolist()
    [-1.0, 0.0, 2.0]
    """
    return call("hard_shrink", x, _not_negative("hard_shrink", lambd))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def soft_shrink(x: LikeFloat[D, V, R], /, lambd: float = 0.5) -> Tensor[D, V, R]:
    """x moved towards zero by `lambd`, and no further.

    >>> soft_shrink([-1.0, 0.25, 2.0]).tolist()
    [-0.5, 0.0, 1.5]
    """
    return call("soft_shrink", x, _not_negative("soft_shrink", lambd))


def _not_negative(name: str, lambd: float) -> float:
    distance = number_of(name, lambd, "lambd")
    if not distance >= 0:
        raise DomainError(f"ops.{name} got lambd={lambd}; it must not be negative")
    return distance


# --- Curves -----------------------------------------------------------------------------------


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def sigmoid(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """`1 / (1 + exp(-x))`, the logistic function.

    >>> sigmoid([-1000.0, 0.0, 1000.0]).tolist()
    [0.0, 0.5, 1.0]
    """
    return unary("sigmoid", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def log_sigmoid(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """The logarithm of the sigmoid.

    >>> log_sigmoid([-1000.0]).tolist()
    [-1000.0]
    """
    return unary("log_sigmoid", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def softplus(
    x: LikeFloat[D, V, R], /, beta: float = 1.0, threshold: float = 20.0
) -> Tensor[D, V, R]:
    """`log(1 + exp(beta * x)) / beta`; x itself where `beta * x` is above `threshold`.

    >>> softplus([-1000.0, 100.0]).tolist()
    [0.0, 100.0]
    """
    factor = number_of("softplus", beta, "beta")
    if not factor:
        raise DomainError("ops.softplus got beta=0; it must not be zero")
    return call("softplus", x, factor, number_of("softplus", threshold, "threshold"))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def softsign(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """`x / (1 + abs(x))`.

    >>> softsign([-1.0, 3.0]).tolist()
    [-0.5, 0.75]
    """
    return unary("softsign", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def tanhshrink(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """`x - tanh(x)`.

    >>> tanhshrink([0.0]).tolist()
    [0.0]
    """
    return unary("tanhshrink", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def lecun_tanh(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """`1.7159 * tanh(2 * x / 3)`, which keeps unit variance.

    >>> lecun_tanh([0.0]).tolist()
    [0.0]
    """
    return unary("lecun_tanh", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def elu(x: LikeFloat[D, V, R], /, alpha: float = 1.0) -> Tensor[D, V, R]:
    """x where it is positive, else `alpha * (exp(x) - 1)`.

    >>> elu([-1000.0, 2.0]).tolist()
    [-1.0, 2.0]
    """
    return call("elu", x, number_of("elu", alpha, "alpha"))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def selu(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """The scaled elu that keeps mean zero and variance one.

    >>> selu([0.0]).tolist()
    [0.0]
    """
    return unary("selu", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def celu(x: LikeFloat[D, V, R], /, alpha: float = 1.0) -> Tensor[D, V, R]:
    """x where it is positive, else `alpha * (exp(x / alpha) - 1)`.

    >>> celu([-1000.0, 2.0], 0.5).tolist()
    [-0.5, 2.0]
    """
    scale = number_of("celu", alpha, "alpha")
    if not scale:
        raise DomainError("ops.celu got alpha=0; it must not be zero")
    return call("celu", x, scale)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def silu(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """`x * sigmoid(x)`, also called swish.

    >>> silu([0.0, 100.0]).tolist()
    [0.0, 100.0]
    """
    return unary("silu", x)


swish = silu


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def mish(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """`x * tanh(softplus(x))`.

    >>> mish([0.0, 100.0]).tolist()
    [0.0, 100.0]
    """
    return unary("mish", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def gelu(x: LikeFloat[D, V, R], /, approximate: str | bool = "none") -> Tensor[D, V, R]:
    """x times the normal distribution function; `approximate="tanh"` is a shorter formula.

    >>> gelu([0.0, 100.0]).tolist()
    [0.0, 100.0]
    """
    return call("gelu", x, _by_tanh("gelu", approximate))


def _by_tanh(name: str, approximate: str | bool) -> bool:
    if isinstance(approximate, bool):
        return approximate
    if approximate not in ("none", "tanh"):
        raise DomainError(f"ops.{name} takes approximate='none' or 'tanh', not {approximate!r}")
    return approximate == "tanh"


# --- Along an axis ----------------------------------------------------------------------------


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def softmax(x: LikeFloat[D, V, R], /, axis: int = -1) -> Tensor[D, V, R]:
    """Exponentials scaled to sum to one along `axis`.

    Rows that are -inf throughout have no such scale and become NaN.

    >>> softmax([1000.0, 1000.0]).tolist()
    [0.5, 0.5]
    """
    tensor = convert.to_tensor(x)
    return call("softmax", tensor, axis_of("softmax", axis, tensor.ndim))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def log_softmax(x: LikeFloat[D, V, R], /, axis: int = -1) -> Tensor[D, V, R]:
    """The logarithm of softmax, without its underflow.

    >>> log_softmax([0.0, -1000.0]).tolist()
    [0.0, -1000.0]
    """
    tensor = convert.to_tensor(x)
    return call("log_softmax", tensor, axis_of("log_softmax", axis, tensor.ndim))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def softmin(x: LikeFloat[D, V, R], /, axis: int = -1) -> Tensor[D, V, R]:
    """softmax of -x.

    >>> softmin([2.0, 2.0]).tolist()
    [0.5, 0.5]
    """
    tensor = convert.to_tensor(x)
    place = axis_of("softmin", axis, tensor.ndim)
    # Unsigned integers have no negatives; those of the others are the same in floating point.
    return call("softmax", multiply(tensor, -1.0), place)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def glu(x: TensorLike, /, axis: int = -1) -> Tensor:
    """The first half of x times the sigmoid of the second half.

    >>> glu([3.0, 0.0]).tolist()
    [1.5]
    """
    return call("glu", *_even("glu", x, axis))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def swiglu(x: TensorLike, /, axis: int = -1) -> Tensor:
    """The first half of x times the silu of the second half.

    >>> swiglu([3.0, 100.0]).tolist()
    [300.0]
    """
    return call("swiglu", *_even("swiglu", x, axis))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def geglu(x: TensorLike, /, axis: int = -1, approximate: str | bool = "none") -> Tensor:
    """The first half of x times the gelu of the second half.

    >>> geglu([3.0, 100.0]).tolist()
    [300.0]
    """
    return call("geglu", *_even("geglu", x, axis), _by_tanh("geglu", approximate))


def _even(name: str, x: TensorLike, axis: int) -> tuple[Tensor, int]:
    tensor = convert.to_tensor(x)
    place = axis_of(name, axis, tensor.ndim)
    if tensor.shape[place] % 2:
        raise ShapeError(
            f"ops.{name} got shape {tensor.shape}; axis {axis} must have an even length"
        )
    return tensor, place


# --- By name ----------------------------------------------------------------------------------


def identity(x: TensorLike, /) -> Tensor:
    """x as it is: the activation of a linear layer.

    >>> identity([1.0, 2.0]).tolist()
    [1.0, 2.0]
    """
    return convert.to_tensor(x)


_BY_NAME: Final[dict[str, Callable[..., Tensor]]] = {
    function.__name__: function
    for function in (
        celu,
        elu,
        geglu,
        gelu,
        glu,
        hard_shrink,
        hard_sigmoid,
        hard_swish,
        hard_tanh,
        identity,
        leaky_relu,
        lecun_tanh,
        log_sigmoid,
        log_softmax,
        mish,
        prelu,
        relu,
        relu6,
        relu_squared,
        selu,
        sigmoid,
        silu,
        soft_shrink,
        softmax,
        softmin,
        softplus,
        softsign,
        swiglu,
        tanh,
        tanhshrink,
    )
} | {"linear": identity, "swish": silu}


def get_activation(name: str | Callable[..., Any] | None, /) -> Callable[..., Any]:
    """The activation of a name; a function is its own, and None is the identity.

    >>> get_activation("relu")([-1.0, 2.0]).tolist()
    [0.0, 2.0]
    """
    if name is None:
        return identity
    if callable(name):
        return name
    if not isinstance(name, str):
        raise DTypeError(
            f"ops.get_activation takes a name or a function, not {name!r} "
            f"of type {type(name).__name__}"
        )
    # "LeakyReLU" and "hardswish" are how PyTorch and Keras write some of them.
    found = _BY_NAME.get(name) or _SQUEEZED.get(name.replace("_", "").lower())
    if found is None:
        raise DomainError(f"no activation is called {name!r}; there are {', '.join(_BY_NAME)}")
    return found


_SQUEEZED: Final = {name.replace("_", ""): function for name, function in _BY_NAME.items()}
