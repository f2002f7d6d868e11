"""Losses of sequences whose alignment is not known."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.autodiff import tape
from ember_ml.backend.contract import NativeArray
from ember_ml.backend.portable.alignment import NEVER
from ember_ml.errors import (
    DomainError,
    DTypeError,
    OutOfBoundsError,
    ShapeError,
    UnsupportedOpError,
)
from ember_ml.ops import dispatch, elementwise, manipulation, scoring
from ember_ml.ops.axes import integer_of
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.ops.scoring import checked_reduction
from ember_ml.ops.searching import where
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill, fill_grad
from ember_ml.typing import TensorLike

__all__ = ["composed", "ctc"]

_NAME: Final = "losses.ctc"


@op("losses.ctc", accepts=REAL_FLOATING, lift="float", standard=False)
def ctc(
    log_probabilities: TensorLike,
    targets: TensorLike,
    input_lengths: TensorLike,
    target_lengths: TensorLike,
    /,
    *,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Connectionist temporal classification: how unlikely label sequences are, over all alignments.

    `log_probabilities` are `(time, batch, classes)`, normalised as by a log-softmax, or `(time,
    classes)` of one sequence. `targets` are `(batch, longest)`, where labels beyond a sequence's
    length do not matter, or all sequences one after another. A sequence that is too long for its
    input has an infinite loss, and `zero_infinity` makes that zero. "mean" divides each loss by
    the length of its target first, as in torch.

    >>> even = ops.log(ops.full((2, 1, 2), 0.5))
    >>> round(ctc(even, [[1]], [2], [1]).item(), 4)
    0.2877
    """
    checked_reduction(_NAME, reduction)
    (logs,), dtype = scoring.operands(_NAME, log_probabilities)
    alone = logs.ndim == 2
    if alone:
        logs = manipulation.expand_dims(logs, 1)
    if logs.ndim != 3 or not logs.shape[0]:
        raise ShapeError(
            f"ops.{_NAME} takes log probabilities as (time, batch, classes), not {logs.shape}"
        )
    steps, batch, count = logs.shape
    empty = integer_of(_NAME, blank, "blank")
    if not 0 <= empty < count:
        raise OutOfBoundsError(f"ops.{_NAME} got blank={empty}; there are classes 0 to {count - 1}")
    frames = _lengths(logs, input_lengths, batch, "input_lengths", steps)
    sizes = _lengths(logs, target_lengths, batch, "target_lengths", None)
    labels = _padded(logs, targets, sizes, batch, empty)
    scoring.require_classes(_NAME, labels, count, None)
    likelihood = _likelihood(logs, labels, frames, sizes, empty)
    never = elementwise.less(likelihood, NEVER / 10)
    losses = where(never, 0.0 if zero_infinity else float("inf"), elementwise.negative(likelihood))
    if alone:
        losses, sizes = losses[0], sizes[0]
    if reduction == "mean":
        losses = elementwise.divide(
            losses, convert.cast(elementwise.maximum(sizes, 1), losses.dtype)
        )
    return scoring.reduced(losses, reduction, dtype)


# --- Inputs ---------------------------------------------------------------------------------------


def _integers(beside: Tensor, values: TensorLike, what: str) -> Tensor:
    home = dispatch.home_of(_NAME, (beside, values))
    made: Tensor = convert.to_tensor(values, home)
    if not made.size:
        made = convert.cast(made, dtypes.int64)
    if not made.dtype.is_integer:
        raise DTypeError(f"ops.{_NAME} takes integer {what}, not {made.dtype}")
    dispatch.same_device(_NAME, beside.device, made.device)
    return convert.cast(made, dtypes.int64)


def _lengths(beside: Tensor, values: TensorLike, batch: int, what: str, most: int | None) -> Tensor:
    made = manipulation.reshape(_integers(beside, values, what), (-1,))
    if made.shape != (batch,):
        raise ShapeError(f"ops.{_NAME} got {made.shape[0]} {what} for a batch of {batch}")
    if batch and made._spec.backend.checks_values(made.native):
        host: Any = made.numpy()
        if host.min() < 0 or (most is not None and host.max() > most):
            bound = "" if most is None else f" and at most {most}"
            raise DomainError(f"ops.{_NAME} got {what} {host.tolist()}; they are at least 0{bound}")
    return made


def _padded(beside: Tensor, targets: TensorLike, sizes: Tensor, batch: int, blank: int) -> Tensor:
    """Labels as (batch, longest), with blanks behind each sequence."""
    labels = _integers(beside, targets, "targets")
    backend = sizes._spec.backend
    if labels.ndim == 1 and batch == 1:
        labels = manipulation.expand_dims(labels, 0)
    elif labels.ndim == 1:
        labels = _separated(labels, sizes)
    if labels.ndim != 2 or labels.shape[0] != batch:
        raise ShapeError(
            f"ops.{_NAME} takes targets as ({batch}, longest) or one after another, "
            f"not shape {labels.shape}"
        )
    longest = labels.shape[1]
    if batch and backend.checks_values(sizes.native):
        most = int(sizes.numpy().max())
        if most > longest:
            raise ShapeError(f"ops.{_NAME} got a target of length {most} in {longest} labels")
    inside = elementwise.less(_constant(labels, np.arange(longest)), sizes[:, None])
    return where(inside, labels, blank)


def _separated(labels: Tensor, sizes: Tensor) -> Tensor:
    """Sequences that came one after another as rows."""
    if sizes._spec.backend.is_traced(sizes.native):
        raise UnsupportedOpError(
            f"ops.{_NAME} cannot tell sequences apart whose lengths are traced; "
            f"give targets as (batch, longest)"
        )
    host: Any = sizes.numpy()
    if int(host.sum()) != labels.shape[0]:
        raise ShapeError(
            f"ops.{_NAME} got {labels.shape[0]} labels for target_lengths {host.tolist()}"
        )
    if not labels.shape[0]:
        return manipulation.reshape(labels, (len(host), 0))
    starts = np.cumsum(host) - host
    places = starts[:, None] + np.arange(int(host.max(initial=0)))
    within = np.minimum(places, labels.shape[0] - 1)
    return dispatch.call("take", labels, _constant(labels, within).native, 0)


def _constant(beside: Tensor, values: np.ndarray[Any, Any]) -> Tensor:
    spec = beside._spec.with_dtype(dtypes.to_dtype(values.dtype))
    return fill(spec.backend.from_numpy(values, spec), spec)


# --- The sum over alignments ----------------------------------------------------------------------


def _likelihood(logs: Tensor, labels: Tensor, frames: Tensor, sizes: Tensor, blank: int) -> Tensor:
    """The logarithm of the probability of all alignments: by the engine's own function if any."""
    fused = logs._spec.backend.overrides.get("losses.ctc")
    if fused is not None:
        native = fused(logs.native, labels.native, frames.native, sizes.native, blank)
        if native is not None:
            taped = type(logs) is GradTensor
            return (fill_grad if taped else fill)(native, logs._spec)
    return _summed(logs, labels, frames, sizes, blank)


def composed(
    logs: NativeArray, labels: NativeArray, frames: list[int], sizes: list[int], blank: int
) -> NativeArray:
    """The same of native arrays by steps that can be differentiated again and again."""
    tensor, classes = convert.to_tensor(logs), convert.to_tensor(labels)
    ends, lengths = (_constant(classes, np.array(one)) for one in (frames, sizes))
    return _summed(tensor, classes, ends, lengths, blank).native


def _summed(logs: Tensor, labels: Tensor, frames: Tensor, sizes: Tensor, blank: int) -> Tensor:
    """The same by the forward recursion: see backend/portable/alignment.py."""
    steps, batch, _ = logs.shape
    longest = labels.shape[1]
    width = 2 * longest + 1
    blanks = elementwise.multiply(labels, 0) + blank
    ends = _constant(labels, np.full((batch, 1), blank))
    pairs = manipulation.reshape(
        manipulation.stack([blanks, labels], axis=-1), (batch, 2 * longest)
    )
    row = manipulation.concat([pairs, ends], axis=1)
    places = manipulation.broadcast_to(row, (steps, batch, width))
    heard = dispatch.call("take_along_axis", logs, places.native, 2)
    heard = elementwise.maximum(heard, NEVER)
    # A blank may be left out between labels that differ.
    odd = _constant(logs, np.arange(width) % 2 == 1)
    before = manipulation.concat([_constant(labels, np.full((batch, 2), blank)), row], axis=1)
    skips = elementwise.logical_and(odd, elementwise.not_equal(row, before[:, :width]))
    starts = _constant(logs, np.arange(width) < 2)
    live = elementwise.less(_constant(frames, np.arange(1, steps)[:, None, None]), frames[:, None])
    last = _aligned(where(starts, heard[0], NEVER), heard[1:], skips, live)

    end = elementwise.multiply(sizes, 2)
    some = elementwise.greater(sizes, 0)
    final = scoring.picked(last, end, 1)
    label = scoring.picked(last, elementwise.maximum(end - 1, 0), 1)
    found = elementwise.logaddexp(final, where(some, label, NEVER))
    # Without input, nothing is certain and everything else impossible.
    nothing = where(some, NEVER, elementwise.multiply(found, 0.0))
    return where(elementwise.equal(frames, 0), nothing, found)


def _aligned(first: Tensor, heard: Tensor, skips: Tensor, live: Tensor) -> Tensor:
    """The logarithms of the probabilities of all ways to each place of a row."""
    wall = _constant(first, np.full((first.shape[0], 2), NEVER, first.dtype.numpy))
    spec, (start, rest), taped = dispatch.operands(_NAME, first, heard)
    kernel, result = spec.backend.entry(spec, "alignments")
    keep = bool(taped) and not spec.backend.records and tape.is_grad_enabled()
    options = (skips.native, live.native, wall.native)
    native, kept = kernel(start, rest, *options, keep)
    if not taped:
        return fill(native, result)
    return tape.recorded("alignments", native, result, taped, (*options, kept))
