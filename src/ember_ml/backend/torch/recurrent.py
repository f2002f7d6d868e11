"""Recurrent layers on torch, by its fused kernels; see backend/portable/recurrent.py."""

from __future__ import annotations

import warnings
from typing import Any, Final

import torch
from torch import Tensor

from ember_ml.backend import selection
from ember_ml.backend.contract import Kernel
from ember_ml.backend.portable import recurrent as portable
from ember_ml.backend.portable.recurrent import WEIGHTS
from ember_ml.backend.torch.tracing import is_traced

__all__ = ["KERNELS"]

_FUSED: Final[dict[str, Any]] = {
    "tanh": torch.rnn_tanh,
    "relu": torch.rnn_relu,
    "lstm": torch.lstm,
    "gru": torch.gru,
}


def recurrent(
    x: Tensor, h0: Tensor, c0: Tensor | None, mask: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor | None, None]:
    weights, kind = rest[: 2 * WEIGHTS], rest[2 * WEIGHTS]
    # The fused kernels take no empty batch and, of a transform, no batch of weights. Of a mask
    # they take lengths, which a trace does not have.
    if not x.shape[1] or is_traced(x) or is_traced(weights[1]):
        return _stepwise(x, h0, c0, mask, *rest)
    lengths = None if mask is None else _lengths(mask)
    if mask is not None and lengths is None:
        return _stepwise(x, h0, c0, mask, *rest)
    directions = h0.shape[0]
    given = [w for w in weights[: directions * WEIGHTS] if w is not None]
    has_biases = weights[2] is not None
    state = h0 if c0 is None else (h0, c0)
    # Where this is not said, the kernels keep nothing for a gradient.
    training = torch.is_grad_enabled()
    fused = _FUSED[kind] if weights[4] is None else _quietly_projected
    if lengths is None:
        got = fused(x, state, given, has_biases, 1, 0.0, training, directions == 2, False)
        return got[0], got[1], got[2] if c0 is not None else None, None
    order = torch.argsort(lengths, descending=True)
    back = torch.argsort(order)
    home = lengths.index_select(0, order).cpu()
    packed, sizes = torch._VF._pack_padded_sequence(x.index_select(1, order), home, False)
    state = (
        h0.index_select(1, order)
        if c0 is None
        else (h0.index_select(1, order), c0.index_select(1, order))
    )
    got = fused(packed, sizes, state, given, has_biases, 1, 0.0, training, directions == 2)
    out = torch._VF._pad_packed_sequence(got[0], sizes, False, 0.0, x.shape[0])[0]
    h = got[1].index_select(1, back)
    c = None if c0 is None else got[2].index_select(1, back)
    return out.index_select(1, back), h, c, None


def _quietly_projected(*args: Any) -> Any:
    with warnings.catch_warnings():
        # That oneDNN has no projections, and another kernel runs.
        warnings.filterwarnings("ignore", message="LSTM with projections", category=UserWarning)
        return torch.lstm(*args)


def _lengths(mask: Tensor) -> Tensor | None:
    """How many steps of each sequence count; None where they are not the first ones, or none."""
    lengths = mask.sum(0)
    first = torch.arange(len(mask), device=mask.device)[:, None] < lengths
    if is_traced(mask) or not bool(lengths.min()) or not torch.equal(first, mask):
        return None
    return lengths


def _stepwise(*args: Any) -> Any:
    return portable.recurrent(selection.load("torch").kernels, *args)


KERNELS: Final[dict[str, Kernel]] = {"recurrent": recurrent}
