"""Recurrent layers on NumPy: all steps in one kernel, and their gradient written by hand.

On the tape, 32 steps of an LSTM would be some 500 small ops. Here they are one, and of each step no
more is left to do one by one than what depends on the step before: a product and the gates.
See backend/portable/recurrent.py for what goes in and comes out.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.portable.recurrent import WEIGHTS

__all__ = ["KERNELS"]

Array = NativeArray


def recurrent(
    x: Array, h0: Array, c0: Array | None, mask: Array | None, *rest: Any
) -> tuple[Array, Array, Array | None, list[dict[str, Array]] | None]:
    weights, kind, keep = rest[: 2 * WEIGHTS], rest[2 * WEIGHTS], rest[2 * WEIGHTS + 1]
    directions, _, size = h0.shape
    steps, batch = x.shape[:2]
    out = np.empty((steps, batch, directions * size), x.dtype)
    h = np.empty_like(h0)
    c = None if c0 is None else np.empty_like(c0)
    kept: list[dict[str, Array]] = []
    walk = _FORWARD[kind]
    for d in range(directions):
        own = weights[d * WEIGHTS : (d + 1) * WEIGHTS]
        order = range(steps - 1, -1, -1) if d else range(steps)
        into = out[:, :, d * size : (d + 1) * size]
        cell = None if c0 is None else c0[d]
        h[d], last, saved = walk(x, h0[d], cell, mask, own, order, into, kind)
        if c is not None:
            c[d] = last
        kept.append(saved)
    return out, h, c, kept if keep else None


def recurrent_grad(
    x: Array, h0: Array, c0: Array | None, mask: Array | None, *rest: Any
) -> list[Array | None]:
    """The gradients of all operands, from those of the results and what the forward run kept."""
    weights = rest[: 2 * WEIGHTS]
    g_out, g_h, g_c, kind, kept = rest[2 * WEIGHTS :]
    directions, _, size = h0.shape
    steps = x.shape[0]
    g_x: Any = None
    g_h0 = np.empty_like(h0)
    g_c0 = None if c0 is None else np.empty_like(c0)
    found: list[Array | None] = []
    pull = _BACKWARD[kind]
    for d in range(directions):
        own = weights[d * WEIGHTS : (d + 1) * WEIGHTS]
        order = range(steps) if d else range(steps - 1, -1, -1)
        above = None if g_out is None else g_out[:, :, d * size : (d + 1) * size]
        cell = None if g_c is None else g_c[d]
        hidden = np.zeros_like(h0[d]) if g_h is None else g_h[d].copy()
        part, g_h0[d], last, of_weights = pull(
            x, h0[d], cell, mask, own, order, above, hidden, kept[d], kind
        )
        if g_c0 is not None:
            g_c0[d] = last
        g_x = part if g_x is None else g_x + part
        found += of_weights
    found += [None] * (2 * WEIGHTS - len(found))
    return [g_x, g_h0, g_c0, None, *found]


# --- What the kinds share -----------------------------------------------------------------------


def _rows(x: Array) -> Array:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _projected(x: Array, weight: Array, *biases: Array | None) -> Array:
    """`x @ weight.T` of all steps in one product, plus the biases."""
    out = np.matmul(_rows(x), weight.T)
    for bias in biases:
        if bias is not None:
            out += bias
    return out.reshape(*x.shape[:-1], weight.shape[0])


def _before(out: Array, h0: Array, mask: Array | None, order: range) -> Array:
    """The hidden states that each step began with."""
    befores = np.empty((*out.shape[:2], h0.shape[-1]), h0.dtype)
    if mask is None:
        if order.step > 0:
            befores[0], befores[1:] = h0, out[:-1]
        else:
            befores[-1], befores[:-1] = h0, out[1:]
        return befores
    h = h0
    for t in order:
        befores[t] = h
        h = np.where(mask[t][:, None], out[t], h)
    return befores


def _into_weights(
    g: Array, x: Array, inner: Array, befores: Array, weights: tuple[Any, ...]
) -> tuple[Array, list[Array | None]]:
    """The gradients of x and of the weights from those of the sums: over all steps at once."""
    w_ih, _, b_ih, b_hh, _ = weights
    flat, flat_inner = _rows(g), _rows(inner)
    g_x = np.matmul(flat, w_ih).reshape(x.shape)
    return g_x, [
        np.matmul(flat.T, _rows(x)),
        np.matmul(flat_inner.T, _rows(befores)),
        None if b_ih is None else flat.sum(0),
        None if b_hh is None else flat_inner.sum(0),
        None,
    ]


def _split(g: Array, counts: Array | None) -> tuple[Array, Array | None]:
    """A gradient apart into what goes through a step and what goes past it, where it is padded."""
    if counts is None:
        return g, None
    return g * counts, g * ~counts


def _reached(above: Array | None, carried: Array, t: int, counts: Array | None) -> Array:
    """The gradient of the state after a step: of the output, and of what came later."""
    if above is None:
        return carried
    return carried + (above[t] if counts is None else above[t] * counts)


def _counts(mask: Array | None, t: int) -> Array | None:
    return None if mask is None else mask[t][:, None]


# --- tanh and relu ------------------------------------------------------------------------------


def _rnn(
    x: Array, h: Array, c: Any, mask: Any, weights: Any, order: range, out: Array, kind: str
) -> tuple[Array, None, dict[str, Array]]:
    w_ih, w_hh, b_ih, b_hh, _ = weights
    sums = _projected(x, w_ih, b_ih, b_hh)
    turned = np.ascontiguousarray(w_hh.T)
    for t in order:
        new = sums[t]
        new += h.dot(turned)
        if kind == "tanh":
            np.tanh(new, out=new)
        else:
            np.maximum(new, 0, out=new)
        counts = _counts(mask, t)
        if counts is None:
            h = out[t] = new
        else:
            out[t] = np.where(counts, new, 0)
            h = np.where(counts, new, h)
    return h, None, {"y": sums, "out": out}


def _rnn_back(
    x: Array,
    h0: Array,
    g_c: Any,
    mask: Any,
    weights: Any,
    order: range,
    above: Any,
    g_h: Array,
    kept: dict[str, Array],
    kind: str,
) -> tuple[Array, Array, None, list[Array | None]]:
    w_hh = weights[1]
    y = kept["y"]
    slopes = 1 - y * y if kind == "tanh" else (y > 0).astype(y.dtype)
    g = np.empty_like(y)
    for t in order:
        counts = _counts(mask, t)
        through, past = _split(_reached(above, g_h, t, counts), counts)
        np.multiply(through, slopes[t], out=g[t])
        g_h = g[t].dot(w_hh)
        if past is not None:
            g_h += past
    befores = _before(kept["out"], h0, mask, order[::-1])
    g_x, found = _into_weights(g, x, g, befores, weights)
    return g_x, g_h, None, found


# --- LSTM ---------------------------------------------------------------------------------------


def _lstm(
    x: Array, h: Array, c: Array, mask: Any, weights: Any, order: range, out: Array, kind: str
) -> tuple[Array, Array, dict[str, Array]]:
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    size = c.shape[-1]
    gates = _projected(x, w_ih, b_ih, b_hh)
    # The sigmoid of s is (1 + tanh(s / 2)) / 2, so that one call does for all four gates.
    half = np.full(4 * size, 0.5, x.dtype)
    half[2 * size : 3 * size] = 1
    gates *= half
    turned = np.ascontiguousarray(w_hh.T) * half
    cells = np.empty((x.shape[0], *c.shape), x.dtype)  # before each step
    tops = np.empty_like(cells)
    for t in order:
        sums, cells[t] = gates[t], c
        sums += h.dot(turned)
        np.tanh(sums, out=sums)
        for part in (sums[:, : 2 * size], sums[:, 3 * size :]):
            part *= 0.5
            part += 0.5
        new = sums[:, size : 2 * size] * c
        new += sums[:, :size] * sums[:, 2 * size : 3 * size]
        top = np.tanh(new, out=tops[t])
        made = sums[:, 3 * size :] * top
        if w_hr is not None:
            made = np.matmul(made, w_hr.T)
        counts = _counts(mask, t)
        if counts is None:
            out[t], h, c = made, made, new
        else:
            out[t] = np.where(counts, made, 0)
            h, c = np.where(counts, made, h), np.where(counts, new, c)
    return h, c, {"gates": gates, "cells": cells, "tops": tops, "out": out}


def _lstm_back(
    x: Array,
    h0: Array,
    g_c: Any,
    mask: Any,
    weights: Any,
    order: range,
    above: Any,
    g_h: Array,
    kept: dict[str, Array],
    kind: str,
) -> tuple[Array, Array, Array, list[Array | None]]:
    w_hh, w_hr = weights[1], weights[4]
    gates, cells, tops = kept["gates"], kept["cells"], kept["tops"]
    size = tops.shape[-1]
    i, f, a, o = (gates[..., k * size : (k + 1) * size] for k in range(4))
    # What a gradient is multiplied with on its way into the sums of the gates; that of the output
    # gate is reached by the hidden state, the others by the cell.
    into = np.empty_like(gates)
    into[..., :size] = a * i * (1 - i)
    into[..., size : 2 * size] = cells * f * (1 - f)
    into[..., 2 * size : 3 * size] = i * (1 - a * a)
    into[..., 3 * size :] = tops * o * (1 - o)
    into_cell = o * (1 - tops * tops)
    g = np.empty_like(gates)
    g_c = np.zeros_like(cells[0]) if g_c is None else g_c
    g_made = None if w_hr is None else np.empty((*x.shape[:2], h0.shape[-1]), x.dtype)
    for t in order:
        counts = _counts(mask, t)
        g_new, past = _split(_reached(above, g_h, t, counts), counts)
        g_c, past_c = _split(g_c, counts)
        if w_hr is not None and g_made is not None:
            g_made[t] = g_new
            g_new = np.matmul(g_new, w_hr)
        g_c = g_c + g_new * into_cell[t]
        np.multiply(
            into[t, :, : 3 * size].reshape(len(g_c), 3, size),
            g_c[:, None],
            out=g[t, :, : 3 * size].reshape(len(g_c), 3, size),
        )
        np.multiply(into[t, :, 3 * size :], g_new, out=g[t, :, 3 * size :])
        g_h = g[t].dot(w_hh)
        g_c = g_c * f[t]
        if past is not None and past_c is not None:
            g_h += past
            g_c += past_c
    befores = _before(kept["out"], h0, mask, order[::-1])
    g_x, found = _into_weights(g, x, g, befores, weights)
    if g_made is not None:
        found[4] = np.matmul(_rows(g_made).T, _rows(o * tops))
    return g_x, g_h, g_c, found


# --- GRU ----------------------------------------------------------------------------------------


def _gru(
    x: Array, h: Array, c: Any, mask: Any, weights: Any, order: range, out: Array, kind: str
) -> tuple[Array, None, dict[str, Array]]:
    w_ih, w_hh, b_ih, b_hh, _ = weights
    size = h.shape[-1]
    gates = _projected(x, w_ih, b_ih)
    half = np.full(3 * size, 0.5, x.dtype)
    half[2 * size :] = 1
    gates *= half  # as for the LSTM
    turned = np.ascontiguousarray(w_hh.T) * half
    shift = None if b_hh is None else b_hh * half
    inners = np.empty((*x.shape[:2], size), x.dtype)
    for t in order:
        sums = gates[t]
        inner = h.dot(turned)
        if shift is not None:
            inner += shift
        both, n = sums[:, : 2 * size], sums[:, 2 * size :]
        both += inner[:, : 2 * size]
        np.tanh(both, out=both)
        both *= 0.5
        both += 0.5
        inners[t] = inner[:, 2 * size :]
        n += both[:, :size] * inners[t]
        np.tanh(n, out=n)
        made = h - n
        made *= both[:, size:]
        made += n
        counts = _counts(mask, t)
        if counts is None:
            h = out[t] = made
        else:
            out[t] = np.where(counts, made, 0)
            h = np.where(counts, made, h)
    return h, None, {"gates": gates, "inners": inners, "out": out}


def _gru_back(
    x: Array,
    h0: Array,
    g_c: Any,
    mask: Any,
    weights: Any,
    order: range,
    above: Any,
    g_h: Array,
    kept: dict[str, Array],
    kind: str,
) -> tuple[Array, Array, None, list[Array | None]]:
    w_hh = weights[1]
    gates, inners = kept["gates"], kept["inners"]
    size = inners.shape[-1]
    r, z, n = (gates[..., k * size : (k + 1) * size] for k in range(3))
    befores = _before(kept["out"], h0, mask, order[::-1])
    into_n = (1 - z) * (1 - n * n)
    into_z = (befores - n) * z * (1 - z)
    into_r = inners * r * (1 - r) * into_n
    g = np.empty_like(gates)  # by the sums of the input
    g_inner = np.empty_like(gates)  # by those of the hidden state
    for t in order:
        counts = _counts(mask, t)
        g_new, past = _split(_reached(above, g_h, t, counts), counts)
        row, inner = g[t], g_inner[t]
        np.multiply(g_new, into_r[t], out=row[:, :size])
        np.multiply(g_new, into_z[t], out=row[:, size : 2 * size])
        np.multiply(g_new, into_n[t], out=row[:, 2 * size :])
        inner[:, : 2 * size] = row[:, : 2 * size]
        np.multiply(row[:, 2 * size :], r[t], out=inner[:, 2 * size :])
        g_h = np.matmul(inner, w_hh)
        g_h += g_new * z[t]
        if past is not None:
            g_h += past
    g_x, found = _into_weights(g, x, g_inner, befores, weights)
    return g_x, g_h, None, found


_FORWARD: Final[dict[str, Any]] = {"tanh": _rnn, "relu": _rnn, "lstm": _lstm, "gru": _gru}
_BACKWARD: Final[dict[str, Any]] = {
    "tanh": _rnn_back,
    "relu": _rnn_back,
    "lstm": _lstm_back,
    "gru": _gru_back,
}

KERNELS: Final[dict[str, Kernel]] = {"recurrent": recurrent, "recurrent_grad": recurrent_grad}
