"""Normalization: values scaled to a common mean and spread, over the axes that each form names.

16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from typing import Any, Literal, overload

from ember_ml.autodiff.tape import recorded
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.ops.axes import axes_of, integer_of, shape_of
from ember_ml.ops.explain import explain
from ember_ml.ops.layouts import channels_first, channels_last
from ember_ml.ops.manipulation import moveaxis
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.typing import ShapeLike, TensorLike

__all__: list[str] = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "normalize",
    "rms_norm",
]


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def layer_norm(
    x: TensorLike,
    /,
    normalized_shape: ShapeLike | None = None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
    *,
    axis: int | tuple[int, ...] = -1,
) -> Tensor:
    """Mean zero and variance one over `axis`, then times `weight` plus `bias`.

    `normalized_shape`, as in PyTorch, names the last axes by their lengths, instead of `axis`.
    `weight` and `bias` have the shape of the axes that are normalized.

    >>> layer_norm([[0.0, 2.0]], eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    tensor, count, back = _trailing("layer_norm", x, normalized_shape, axis, (weight, bias))
    inputs = (tensor, weight, bias)
    return _returned(dispatch.together("layer_norm", inputs, count, float(eps)), back)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def rms_norm(
    x: TensorLike,
    /,
    weight: TensorLike | None = None,
    eps: float = 1e-5,
    *,
    axis: int | tuple[int, ...] = -1,
) -> Tensor:
    """Divided by the root of the mean square over `axis`, then times `weight`.

    >>> rms_norm([[3.0, -3.0]], eps=0.0).tolist()
    [[1.0, -1.0]]
    """
    tensor, count, back = _trailing("rms_norm", x, None, axis, (weight,))
    return _returned(dispatch.together("rms_norm", (tensor, weight), count, float(eps)), back)


def normed(
    name: str, x: Any, shape: tuple[int, ...], parameters: tuple[Tensor | None, ...], eps: float
) -> Tensor:
    """A norm over the last axes by a layer, whose parameters fit `shape`."""
    count = len(shape)
    if not isinstance(x, Tensor):
        home = next((p._spec.backend for p in parameters if p is not None), None)
        x = convert.to_tensor(x, home)  # data goes where the parameters are
    if x.shape[-count:] != shape:
        raise ShapeError(f"ops.{name} got shape {x.shape}; the last axes must be {shape}")
    spec = x._spec
    natives = [x.native]
    needs = type(x) is GradTensor
    for one in parameters:
        if one is None:
            natives.append(None)
            continue
        if one._spec is not spec:
            return dispatch.together(name, (x, *parameters), count, eps)
        if type(one) is GradTensor:
            needs = True
        natives.append(one.native)
    try:
        kernel, result = spec.kernels[name]
    except KeyError:
        return dispatch.together(name, (x, *parameters), count, eps)
    native = kernel(*natives, count, eps)
    if result.settles and type(native) is not result.native_type:
        native = result.backend.settle_native(native, result)
    # An engine's own record tells by the result that nothing was recorded.
    if needs and (not result.records or native.requires_grad):
        return recorded(name, native, result, (x, *parameters), (count, eps))
    return fill(native, result)


def _trailing(
    name: str,
    x: TensorLike,
    shape: ShapeLike | None,
    axis: int | tuple[int, ...],
    parameters: tuple[TensorLike | None, ...],
) -> tuple[Tensor, int, tuple[int, ...]]:
    """`x` with the axes that count moved to the end, their number, and where they came from."""
    home = dispatch.home_of(name, tuple(p for p in (x, *parameters) if p is not None))
    tensor = convert.to_tensor(x, home)
    if shape is not None:
        sides = shape_of(name, shape)
        if not sides or tensor.shape[-len(sides) :] != sides:
            raise ShapeError(
                f"ops.{name} got shape {tensor.shape} and normalized_shape {sides}; "
                f"the last axes must have these lengths"
            )
        axes = tuple(range(tensor.ndim - len(sides), tensor.ndim))
    else:
        axes = axes_of(name, axis, tensor.ndim)
    if not axes:
        raise ShapeError(f"ops.{name} got no axis to normalize over for shape {tensor.shape}")
    wanted = tuple(tensor.shape[a] for a in axes)
    for parameter in parameters:
        if parameter is not None and convert.to_tensor(parameter, home).shape != wanted:
            raise ShapeError(
                f"ops.{name} got shape {tensor.shape} and a weight or bias of shape "
                f"{convert.to_tensor(parameter, home).shape}; it must be {wanted}"
            )
    last = tuple(range(tensor.ndim - len(axes), tensor.ndim))
    if axes == last:
        return tensor, len(axes), ()
    return moveaxis(tensor, axes, last), len(axes), axes


def _returned(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return moveaxis(x, tuple(range(x.ndim - len(axes), x.ndim)), axes) if axes else x


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def group_norm(
    x: TensorLike,
    /,
    num_groups: int,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """Mean zero and variance one over each group of channels of each sample.

    `x` has shape (samples, channels, ...); `weight` and `bias` have one value for each channel.

    >>> group_norm([[0.0, 2.0, 5.0, 5.0]], 2, eps=0.0)[0, :2].tolist()
    [-1.0, 1.0]
    """
    groups = integer_of("group_norm", num_groups, "num_groups")
    tensor = _with_channels("group_norm", x, data_format, weight, bias)
    channels = tensor.shape[1]
    if groups < 1 or channels % groups:
        raise ShapeError(f"ops.group_norm got {channels} channels, which {groups} do not divide")
    out = dispatch.together("group_norm", (tensor, weight, bias), groups, float(eps))
    return channels_last(out, data_format)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def instance_norm(
    x: TensorLike,
    /,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """Mean zero and variance one over each channel of each sample.

    >>> instance_norm([[[0.0, 2.0], [4.0, 2.0]]], eps=0.0).tolist()
    [[[-1.0, 1.0], [1.0, -1.0]]]
    """
    tensor = _with_channels("instance_norm", x, data_format, weight, bias)
    inputs, channels = (tensor, weight, bias), tensor.shape[1]
    out = dispatch.together(
        "instance_norm", inputs, max(channels, 1), float(eps), kernel="group_norm"
    )
    return channels_last(out, data_format)


@overload
def batch_norm(
    x: TensorLike,
    running_mean: TensorLike | None,
    running_var: TensorLike | None,
    /,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    training: Literal[False] = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    data_format: str = "channels_first",
) -> Tensor: ...
@overload
def batch_norm(
    x: TensorLike,
    running_mean: TensorLike | None,
    running_var: TensorLike | None,
    /,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    *,
    training: Literal[True],
    momentum: float = 0.1,
    eps: float = 1e-5,
    data_format: str = "channels_first",
) -> tuple[Tensor, Tensor, Tensor]: ...
@op(accepts=REAL_FLOATING, lift="float", standard=False)
def batch_norm(
    x: TensorLike,
    running_mean: TensorLike | None,
    running_var: TensorLike | None,
    /,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    data_format: str = "channels_first",
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Each channel scaled by a mean and a variance: the running ones, or those of the batch.

    Nothing is written to: in training it gives the result, the new running mean and the new
    running variance, which move by `momentum` towards the mean and the unbiased variance of the
    batch; without running ones, these themselves.

    >>> batch_norm([[3.0]], [1.0], [4.0], eps=0.0).tolist()
    [[1.0]]
    >>> y, mean, var = batch_norm([[0.0], [2.0]], [0.0], [1.0], training=True, momentum=0.5)
    >>> mean.tolist(), var.tolist()
    ([0.5], [1.5])
    """
    statistics = (running_mean, running_var)
    tensor = _with_channels("batch_norm", x, data_format, *statistics, weight, bias)
    inputs = (tensor, *statistics, weight, bias)
    if (running_mean is None) != (running_var is None):
        raise DomainError("ops.batch_norm got one of running_mean and running_var; give both")
    if not training:
        if running_mean is None:
            raise DomainError("ops.batch_norm needs running_mean and running_var unless training")
        return channels_last(dispatch.together("batch_norm", inputs, float(eps)), data_format)
    if tensor.size // max(tensor.shape[1], 1) < 2:
        raise ShapeError(
            f"ops.batch_norm(training=True) got shape {tensor.shape}; "
            f"the variance of a channel needs two values or more"
        )
    spec, natives, taped = dispatch.gathered("batch_norm", inputs)
    kernel, _ = spec.backend.entry(spec, "batch_norm_training")
    try:
        out, mean, variance = kernel(*natives, float(momentum), float(eps))
    except Exception as error:
        raise explain("batch_norm", error, (tensor,)) from error
    native, result = dispatch.settled(out, spec)
    if taped:
        y = recorded("batch_norm_training", native, result, taped, (float(momentum), float(eps)))
    else:
        y = fill(native, result)
    # The running values are records of the past, which no gradient passes.
    detach = spec.backend.detach
    return (
        channels_last(y, data_format),
        fill(*dispatch.settled(detach(mean), spec)),
        fill(*dispatch.settled(detach(variance), spec)),
    )


def _with_channels(
    name: str, x: TensorLike, data_format: str, *parameters: TensorLike | None
) -> Tensor:
    """`x` with its channels in axis 1, and vectors that fit them."""
    home = dispatch.home_of(name, tuple(p for p in (x, *parameters) if p is not None))
    tensor = channels_first(name, convert.to_tensor(x, home), data_format)
    for parameter in parameters:
        if parameter is not None:
            shape = convert.to_tensor(parameter, home).shape
            if shape != (tensor.shape[1],):
                raise ShapeError(
                    f"ops.{name} got {tensor.shape[1]} channels and a parameter of shape {shape}; "
                    f"it must be ({tensor.shape[1]},)"
                )
    return tensor


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def normalize(
    x: TensorLike,
    /,
    axis: int | tuple[int, ...] = -1,
    *,
    ord: float = 2,
    eps: float = 1e-12,
) -> Tensor:
    """Vectors along `axis` divided by their norm, or by `eps` where that is larger.

    >>> normalize([3.0, 4.0]).tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    if not ord > 0 or math.isnan(ord):
        raise DomainError(f"ops.normalize got ord={ord}; it must be positive")
    tensor: Any = convert.to_tensor(x)
    axes = axes_of("normalize", axis, tensor.ndim)
    return dispatch.call("normalize", tensor, axes, float(ord), float(eps))
