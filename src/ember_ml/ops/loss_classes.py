"""Losses of classes and of distributions.

Predictions come first, then targets. Functions take probabilities unless `from_logits=True`, except
`cross_entropy`, which takes logits, and `nll` and `kl_div`, which take their logarithms, as in
torch. Logits are the way to exact losses: probabilities near 0 or 1 have lost what they would tell,
and count as at least `eps`.
"""

from __future__ import annotations

from math import inf, nan

from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch, elementwise, manipulation, scoring
from ember_ml.ops import reduction as reductions
from ember_ml.ops.activations import log_softmax
from ember_ml.ops.axes import axis_of, broadcast
from ember_ml.ops.loss_rows import of_rows
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.ops.scoring import (
    checked_reduction,
    class_targets,
    fraction,
    reduced,
    same_shape,
    softplus,
)
from ember_ml.ops.searching import where
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "binary_crossentropy",
    "categorical_crossentropy",
    "cross_entropy",
    "focal",
    "kl_div",
    "nll",
    "sparse_categorical_crossentropy",
]


# --- Two classes ----------------------------------------------------------------------------------


@op("losses.binary_crossentropy", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def binary_crossentropy(
    predictions: TensorLike,
    targets: TensorLike,
    /,
    *,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    weight: TensorLike | None = None,
    pos_weight: TensorLike | None = None,
    eps: float = 1e-7,
    reduction: str = "mean",
) -> Tensor:
    """The cross-entropy of yes-or-no predictions; targets are 0, 1 or probabilities.

    Probabilities are cut to `eps` and `1 - eps`. `label_smoothing` draws targets towards one half.
    `weight` multiplies the losses, `pos_weight` the part of the targets that says yes; both
    broadcast to the predictions. The mean is over all elements, whatever their weights.

    >>> round(binary_crossentropy([0.0], [1.0], from_logits=True).item(), 4)
    0.6931
    """
    name = "losses.binary_crossentropy"
    checked_reduction(name, reduction)
    smoothing = fraction(name, label_smoothing, "label_smoothing")
    extra = [value for value in (weight, pos_weight) if value is not None]
    (score, truth, *rest), dtype = scoring.operands(name, predictions, targets, *extra)
    same_shape(name, score, truth)
    for factor in rest:
        _require_broadcast(name, factor, score)
    if smoothing:
        truth = elementwise.add(elementwise.multiply(truth, 1 - smoothing), smoothing / 2)
    yes, no = _surprises(score, from_logits, eps)
    if pos_weight is not None:
        yes = elementwise.multiply(yes, rest[-1])
    losses = elementwise.add(
        elementwise.multiply(truth, yes),
        elementwise.multiply(elementwise.subtract(1.0, truth), no),
    )
    if weight is not None:
        losses = elementwise.multiply(losses, rest[0])
    return reduced(losses, reduction, dtype)


def _surprises(score: Tensor, from_logits: bool, eps: float) -> tuple[Tensor, Tensor]:
    """The loss where the answer is yes, and where it is no."""
    if from_logits:
        return softplus(elementwise.negative(score)), softplus(score)
    cut = elementwise.minimum(elementwise.maximum(score, eps), 1 - eps)
    negative = elementwise.negative
    return negative(elementwise.log(cut)), negative(elementwise.log1p(negative(cut)))


def _require_broadcast(name: str, factor: Tensor, score: Tensor) -> None:
    if broadcast(name, [factor.shape, score.shape]) != score.shape:
        raise ShapeError(
            f"ops.{name} got weights of shape {factor.shape}, which do not broadcast to "
            f"{score.shape}"
        )


@op("losses.focal", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def focal(
    predictions: TensorLike,
    targets: TensorLike,
    /,
    *,
    from_logits: bool = False,
    gamma: float = 2.0,
    alpha: float | None = 0.25,
    eps: float = 1e-7,
    reduction: str = "mean",
) -> Tensor:
    """The binary cross-entropy, weighted by how wrong a prediction is, to the power of `gamma`.

    `alpha` weighs targets that say yes, and one less it those that say no; None weighs neither.

    >>> round(focal([0.5], [1.0], alpha=None).item(), 4)
    0.1733
    """
    name = "losses.focal"
    checked_reduction(name, reduction)
    if not gamma >= 0:
        raise DomainError(f"ops.{name} got gamma={gamma}; it must not be negative")
    (score, truth), dtype = scoring.operands(name, predictions, targets)
    same_shape(name, score, truth)
    yes, no = _surprises(score, from_logits, eps)
    other = elementwise.subtract(1.0, truth)
    losses = elementwise.add(elementwise.multiply(truth, yes), elementwise.multiply(other, no))
    if gamma:
        # The probability of the wrong answer.
        wrong = elementwise.add(
            elementwise.multiply(truth, elementwise.exp(elementwise.negative(no))),
            elementwise.multiply(other, elementwise.exp(elementwise.negative(yes))),
        )
        losses = elementwise.multiply(losses, elementwise.pow(wrong, float(gamma)))
    if alpha is not None:
        share = fraction(name, alpha, "alpha")
        weights = elementwise.add(
            elementwise.multiply(truth, share), elementwise.multiply(other, 1 - share)
        )
        losses = elementwise.multiply(losses, weights)
    return reduced(losses, reduction, dtype)


# --- Several classes ------------------------------------------------------------------------------


@op("losses.categorical_crossentropy", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def categorical_crossentropy(
    predictions: TensorLike,
    targets: TensorLike,
    /,
    *,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    weight: TensorLike | None = None,
    axis: int = -1,
    eps: float = 1e-7,
    reduction: str = "mean",
) -> Tensor:
    """The cross-entropy of targets that are one-hot or probabilities, with classes along `axis`.

    Probabilities count as at least `eps`. `label_smoothing` draws targets towards all classes
    alike, `weight` has a factor for each class. The mean is over all places, as in torch.

    >>> round(categorical_crossentropy([[0.25, 0.75]], [[0.0, 1.0]]).item(), 4)
    0.2877
    """
    name = "losses.categorical_crossentropy"
    checked_reduction(name, reduction)
    smoothing = fraction(name, label_smoothing, "label_smoothing")
    extra = [] if weight is None else [weight]
    (score, truth, *factors), dtype = scoring.operands(name, predictions, targets, *extra)
    place = _class_axis(name, score, axis)
    logs = _logarithms(score, place, from_logits, eps)
    return reduced(_soft(name, logs, truth, factors, smoothing, place), reduction, dtype)


@op(
    "losses.sparse_categorical_crossentropy",
    accepts=REAL_FLOATING,
    lift="float",
    standard=False,
)
def sparse_categorical_crossentropy(
    predictions: TensorLike,
    targets: TensorLike,
    /,
    *,
    from_logits: bool = False,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    weight: TensorLike | None = None,
    axis: int = -1,
    eps: float = 1e-7,
    reduction: str = "mean",
) -> Tensor:
    """The cross-entropy of targets that are class numbers, with classes along `axis`.

    Targets equal to `ignore_index` count for nothing. The mean divides by the weights of the
    targets' classes, as in torch. The other options are those of `categorical_crossentropy`.

    >>> round(sparse_categorical_crossentropy([[0.25, 0.75]], [1]).item(), 4)
    0.2877
    """
    name = "losses.sparse_categorical_crossentropy"
    checked_reduction(name, reduction)
    smoothing = fraction(name, label_smoothing, "label_smoothing")
    (score, *factors), dtype = scoring.operands(name, *_present(predictions, weight))
    place = _class_axis(name, score, axis)
    options = (factors, ignore_index, smoothing, place, reduction, dtype)
    if from_logits:
        return _of_logits(name, score, targets, *options)
    return _hard(name, _logarithms(score, place, False, eps), targets, *options)


@op("losses.cross_entropy", accepts=REAL_FLOATING, lift="float", standard=False)
def cross_entropy(
    logits: TensorLike,
    targets: TensorLike,
    /,
    *,
    weight: TensorLike | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    axis: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The cross-entropy of logits as in torch: targets are class numbers or probabilities.

    Integer targets are class numbers, others probabilities. Classes lie along axis 1, or 0 of one
    axis, unless `axis` says otherwise.

    >>> round(cross_entropy([[0.0, 0.0]], [1]).item(), 4)
    0.6931
    """
    if weight is None and axis is None and not label_smoothing:
        quick = of_rows(logits, targets, ignore_index, reduction)
        if quick is not None:
            return quick
    name = "losses.cross_entropy"
    checked_reduction(name, reduction)
    smoothing = fraction(name, label_smoothing, "label_smoothing")
    home = dispatch.home_of(name, tuple(_present(logits, targets, weight)))
    truth = convert.to_tensor(targets, home)
    if truth.dtype.is_integer:
        (score, *factors), dtype = scoring.operands(name, *_present(logits, weight))
        place = _class_axis(name, score, axis)
        options = (factors, ignore_index, smoothing, place, reduction, dtype)
        return _of_logits(name, score, truth, *options)
    (score, truth, *factors), dtype = scoring.operands(name, *_present(logits, truth, weight))
    place = _class_axis(name, score, axis)
    logs = _logarithms(score, place, True, 0.0)
    return reduced(_soft(name, logs, truth, factors, smoothing, place), reduction, dtype)


@op("losses.nll", accepts=REAL_FLOATING, lift="float", standard=False)
def nll(
    log_probabilities: TensorLike,
    targets: TensorLike,
    /,
    *,
    weight: TensorLike | None = None,
    ignore_index: int = -100,
    axis: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of class numbers: `cross_entropy` without its log-softmax.

    >>> nll([[-1.0, -0.5]], [0]).item()
    1.0
    """
    name = "losses.nll"
    checked_reduction(name, reduction)
    (logs, *factors), dtype = scoring.operands(name, *_present(log_probabilities, weight))
    place = _class_axis(name, logs, axis)
    return _hard(name, logs, targets, factors, ignore_index, 0.0, place, reduction, dtype)


def _present(*values: TensorLike | None) -> list[TensorLike]:
    return [value for value in values if value is not None]


def _class_axis(name: str, score: Tensor, axis: int | None) -> int:
    if not score.ndim:
        raise ShapeError(f"ops.{name} takes scores with an axis of classes, not a 0-d tensor")
    return axis_of(name, min(1, score.ndim - 1) if axis is None else axis, score.ndim)


def _logarithms(score: Tensor, axis: int, from_logits: bool, eps: float) -> Tensor:
    if from_logits:
        return log_softmax(score, axis)
    return elementwise.log(elementwise.maximum(score, eps))


def _class_weights(name: str, factors: list[Tensor], logs: Tensor, axis: int) -> Tensor | None:
    """Weights of classes in a shape that broadcasts to the scores."""
    if not factors:
        return None
    count = logs.shape[axis]
    if factors[0].shape != (count,):
        raise ShapeError(
            f"ops.{name} got weights of shape {factors[0].shape} for {count} classes; "
            f"their shape must be ({count},)"
        )
    shape = tuple(count if place == axis else 1 for place in range(logs.ndim))
    return manipulation.reshape(factors[0], shape)


def _soft(
    name: str, logs: Tensor, truth: Tensor, factors: list[Tensor], smoothing: float, axis: int
) -> Tensor:
    """Losses of probabilities."""
    if logs.shape != truth.shape:
        raise ShapeError(
            f"ops.{name} got scores of shape {logs.shape} and probabilities of shape "
            f"{truth.shape}, which must be equal; class numbers are integers"
        )
    if smoothing:
        share = smoothing / max(logs.shape[axis], 1)
        truth = elementwise.add(elementwise.multiply(truth, 1 - smoothing), share)
    # A class that cannot be, with a logit of -inf, counts for nothing where it is not the target.
    never = elementwise.logical_and(elementwise.equal(truth, 0.0), elementwise.equal(logs, -inf))
    terms = elementwise.multiply(truth, where(never, 0.0, logs))
    weights = _class_weights(name, factors, logs, axis)
    if weights is not None:
        terms = elementwise.multiply(terms, weights)
    return elementwise.negative(reductions.sum(terms, axis=axis))


def _of_logits(
    name: str,
    score: Tensor,
    targets: TensorLike,
    factors: list[Tensor],
    ignored: int | None,
    smoothing: float,
    axis: int,
    reduction: str,
    dtype: DType,
) -> Tensor:
    """Losses of class numbers from logits: by the engine's own function where it has one."""
    fused = score._spec.backend.overrides.get("losses.of_logits")
    # torch's own has no gradient by the weights.
    if fused is None or any(type(factor) is GradTensor for factor in factors):
        logs = _logarithms(score, axis, True, 0.0)
        return _hard(name, logs, targets, factors, ignored, smoothing, axis, reduction, dtype)
    classes = class_targets(name, targets, score, axis)
    scoring.require_classes(name, classes, score.shape[axis], ignored)
    _class_weights(name, factors, score, axis)
    weights = factors[0].native if factors else None
    options = (classes.native, weights, ignored, smoothing, axis, reduction)
    return convert.cast(dispatch.call("losses.of_logits", score, *options), dtype)


def _hard(
    name: str,
    logs: Tensor,
    targets: TensorLike,
    factors: list[Tensor],
    ignored: int | None,
    smoothing: float,
    axis: int,
    reduction: str,
    dtype: DType,
) -> Tensor:
    """Losses of class numbers."""
    classes = class_targets(name, targets, logs, axis)
    scoring.require_classes(name, classes, logs.shape[axis], ignored)
    kept: Tensor | None = None
    if ignored is not None:
        kept = elementwise.not_equal(classes, ignored)
        classes = where(kept, classes, 0)
    weights = _class_weights(name, factors, logs, axis)
    losses = elementwise.negative(scoring.picked(logs, classes, axis))
    share: Tensor | None = None
    if weights is not None:
        share = dispatch.call("take", factors[0], classes.native, 0)
        losses = elementwise.multiply(losses, share)
    if smoothing:
        spread = logs if weights is None else elementwise.multiply(logs, weights)
        even = elementwise.negative(reductions.sum(spread, axis=axis))
        losses = elementwise.add(
            elementwise.multiply(losses, 1 - smoothing),
            elementwise.multiply(even, smoothing / max(logs.shape[axis], 1)),
        )
    if kept is not None:
        losses = where(kept, losses, 0.0)
        counted = convert.cast(kept, losses.dtype)
        share = counted if share is None else elementwise.multiply(share, counted)
    if reduction != "mean" or share is None:
        return reduced(losses, reduction, dtype)
    # The mean of nothing is NaN, but no score has a slope: by a division by zero it would be NaN.
    total = reductions.sum(share)
    none = elementwise.equal(total, 0.0)
    mean = elementwise.divide(reductions.sum(losses), where(none, 1.0, total))
    return convert.cast(where(none, nan, mean), dtype)


# --- Distributions --------------------------------------------------------------------------------


@op("losses.kl_div", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def kl_div(
    log_predictions: TensorLike,
    targets: TensorLike,
    /,
    *,
    log_target: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """The Kullback-Leibler divergence of targets from predictions, element by element.

    Predictions are logarithms of probabilities, targets are probabilities, or with `log_target`
    logarithms too. "mean" is over all elements, as in torch; "batchmean" divides the sum by the
    length of the first axis, which is the divergence of mathematics.

    >>> kl_div([[0.0, -1.0]], [[1.0, 0.0]], reduction="batchmean").item()
    0.0
    """
    name = "losses.kl_div"
    checked_reduction(name, reduction, "batchmean")
    (logs, truth), dtype = scoring.operands(name, log_predictions, targets)
    same_shape(name, logs, truth)
    if log_target:
        chance, own = elementwise.exp(truth), truth
    else:
        # 0 log 0 is 0.
        chance = truth
        own = elementwise.log(where(elementwise.equal(truth, 0.0), 1.0, truth))
    losses = elementwise.multiply(chance, elementwise.subtract(own, logs))
    if reduction != "batchmean":
        return reduced(losses, reduction, dtype)
    count = losses.shape[0] if losses.ndim else 1
    return convert.cast(elementwise.divide(reductions.sum(losses), count), dtype)
