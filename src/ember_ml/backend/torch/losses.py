"""Steps of losses that torch does in one pass, with a gradient of its own."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn.functional import cross_entropy

from ember_ml.backend.contract import Kernel
from ember_ml.backend.portable.alignment import NEVER
from ember_ml.backend.torch.tracing import is_traced
from ember_ml.errors import DeviceError

__all__ = ["OVERRIDES"]

Tensor = torch.Tensor
# torch has no way to ignore nothing; no class is this number.
_NO_CLASS: Final = -(1 << 62)


def of_logits(
    logits: Tensor,
    classes: Tensor,
    weights: Tensor | None,
    ignored: int | None,
    smoothing: float,
    axis: int,
    reduction: str,
) -> Tensor:
    """The cross-entropy of class numbers, checked already."""
    return cross_entropy(
        # torch has classes along axis 1, or 0 of one axis.
        logits.movedim(axis, min(1, logits.ndim - 1)),
        classes,
        weights,
        ignore_index=_NO_CLASS if ignored is None else ignored,
        reduction=reduction,
        label_smoothing=smoothing,
    )


def of_rows(
    scores: Tensor, classes: Tensor, ignored: int | None, reduction: str, sloped: bool
) -> tuple[Tensor, None]:
    """The same for rows of scores; torch looks at the classes and has the slope itself."""
    if not scores.is_cpu:
        raise DeviceError("elsewhere it does not look")
    number = _NO_CLASS if ignored is None else ignored
    return cross_entropy(scores, classes, ignore_index=number, reduction=reduction), None


# --- Alignments -----------------------------------------------------------------------------------


class _Likelihood(torch.autograd.Function):
    """The logarithm of the probability of label sequences, by torch's CTC loss.

    torch gives the gradient by what went into a log-softmax, which is that by the logarithms plus
    their probabilities. It is taken of logarithms that are normalised here, so that nothing large
    cancels; what they are all shifted by is a part of the result. float64 within, since the
    logarithms of long sequences are so large that float32 has few digits left for their parts.
    """

    @staticmethod
    def forward(
        ctx: Any, logs: Tensor, labels: Tensor, frames: list[int], sizes: list[int], blank: int
    ) -> Tensor:
        clamped = logs.clamp(min=NEVER).double()
        shift = torch.logsumexp(clamped, -1)
        probable = clamped - shift[..., None]
        loss, ways = torch.ops.aten._ctc_loss(probable, labels, frames, sizes, blank, True)
        live = _live(frames, probable)
        ctx.save_for_backward(logs, probable, labels, loss, ways, live)
        ctx.options = frames, sizes, blank
        found: Tensor = torch.where(live, shift, 0.0).sum(0) - loss
        return found.to(logs.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (g,) = grads
        logs, probable, labels, loss, ways, live = ctx.saved_tensors
        frames, sizes, blank = ctx.options
        if torch.is_grad_enabled():  # torch's own cannot be differentiated again
            from ember_ml.ops.loss_sequences import composed

            found = composed(logs, labels, frames, sizes, blank)
            return *torch.autograd.grad(found, logs, g, create_graph=True), *(None,) * 4
        back = torch.ops.aten._ctc_loss_backward(
            g.double(), probable, labels, frames, sizes, loss, ways, blank, True
        )
        slope = torch.where(live[..., None], probable.exp() * g[:, None] - back, 0.0)
        return slope.to(logs.dtype), None, None, None, None


def _live(frames: list[int], beside: Tensor) -> Tensor:
    """True for the frames of each sequence, as (time, batch)."""
    ends = torch.tensor(frames, device=beside.device)
    return torch.arange(len(beside), device=beside.device)[:, None] < ends


def ctc(logs: Tensor, labels: Tensor, frames: Tensor, sizes: Tensor, blank: int) -> Tensor | None:
    """The logarithm of the probability of label sequences; None where torch does not tell.

    Lengths are read, which a trace does not have; a transform has no rule for the kernel.
    """
    given = (logs, labels, frames, sizes)
    if any(is_traced(x) or is_functorch_wrapped_tensor(x) for x in given):
        return None
    if logs.device.type not in ("cpu", "cuda") or not frames.numel():
        return None
    lengths = frames.tolist()
    # Blanks stand behind each sequence. With one among its labels, torch's gradient is another.
    if not min(lengths) or int((labels != blank).sum()) != int(sizes.sum()):
        return None
    return _Likelihood.apply(logs, labels, lengths, sizes.tolist(), blank)  # type: ignore[no-untyped-call,no-any-return]  # torch leaves it untyped


OVERRIDES: Final[dict[str, Kernel]] = {
    "losses.ctc": ctc,
    "losses.of_rows": of_rows,
    "losses.of_logits": of_logits,
}
