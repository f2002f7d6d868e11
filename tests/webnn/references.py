"""Layers as the specification defines them, in NumPy and float64, one element at a time."""

from itertools import product

import numpy as np


def conv2d(x, w, padding=(0, 0, 0, 0), strides=(1, 1), dilations=(1, 1), groups=1, bias=None):
    x, w = x.astype(np.float64), w.astype(np.float64)
    top, bottom, left, right = padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    made, each, kh, kw = w.shape
    high = (x.shape[2] - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    wide = (x.shape[3] - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    y = np.zeros((x.shape[0], made, high, wide))
    for o, i, j in product(range(made), range(high), range(wide)):
        first = o // (made // groups) * each
        rows = i * strides[0] + np.arange(kh) * dilations[0]
        columns = j * strides[1] + np.arange(kw) * dilations[1]
        part = x[:, first : first + each][:, :, rows][:, :, :, columns]
        y[:, o, i, j] = (part * w[o]).sum((1, 2, 3))
    return y if bias is None else y + bias[:, None, None]


def conv_transpose2d(
    x, w, padding=(0, 0, 0, 0), strides=(1, 1), dilations=(1, 1), more=(0, 0), groups=1, bias=None
):
    x, w = x.astype(np.float64), w.astype(np.float64)
    batch, taken, high, wide = x.shape
    _, each, kh, kw = w.shape
    top, bottom, left, right = padding
    full = (
        (high - 1) * strides[0] + (kh - 1) * dilations[0] + 1 + more[0],
        (wide - 1) * strides[1] + (kw - 1) * dilations[1] + 1 + more[1],
    )
    y = np.zeros((batch, each * groups, *full))
    for c, i, j, k, m in product(*(range(n) for n in (taken, high, wide, kh, kw))):
        first = c // (taken // groups) * each
        row, column = i * strides[0] + k * dilations[0], j * strides[1] + m * dilations[1]
        y[:, first : first + each, row, column] += x[:, c, i, j, None] * w[c, :, k, m]
    y = y[:, :, top : full[0] - bottom, left : full[1] - right]
    return y if bias is None else y + bias[:, None, None]


def pool2d(fold, x, window, padding, strides, dilations, sizes):
    """`fold` of the elements that lie under a window; 0 where none does."""
    y = np.zeros((*x.shape[:2], *sizes), object)
    for i, j in product(range(sizes[0]), range(sizes[1])):
        rows = i * strides[0] - padding[0] + np.arange(window[0]) * dilations[0]
        columns = j * strides[1] - padding[2] + np.arange(window[1]) * dilations[1]
        rows = rows[(rows >= 0) & (rows < x.shape[2])]
        columns = columns[(columns >= 0) & (columns < x.shape[3])]
        for n, c in product(*map(range, x.shape[:2])):
            if rows.size and columns.size:
                y[n, c, i, j] = fold(x[n, c][np.ix_(rows, columns)])
    return y


def normalized(x, axes, epsilon):
    x = x.astype(np.float64)
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def resampled(x, sizes, axes, mode):
    x = x.astype(np.float64)
    for axis, size in zip(axes, sizes, strict=True):
        old = x.shape[axis]
        at = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
        if mode == "nearest-neighbor":
            x = np.take(x, np.ceil(at - 0.5).astype(int), axis)
            continue
        low = np.floor(at).astype(int)
        share = (at - low).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
        first, last = np.take(x, low, axis), np.take(x, np.ceil(at).astype(int), axis)
        x = first * (1 - share) + last * share
    return x


FUNCTIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def gru_cell(x, w, r, h, b, rb, order="zrn", after=True, activations=("sigmoid", "tanh")):
    f, g = (FUNCTIONS[name] for name in activations)
    size = h.shape[1]
    part = {c: slice(k * size, (k + 1) * size) for k, c in enumerate(order)}
    z, reset = (f(x @ w[part[c]].T + h @ r[part[c]].T + b[part[c]] + rb[part[c]]) for c in "zr")
    n = part["n"]
    if after:
        new = g(x @ w[n].T + b[n] + reset * (h @ r[n].T + rb[n]))
    else:
        new = g(x @ w[n].T + b[n] + (reset * h) @ r[n].T + rb[n])
    return (1 - z) * new + z * h


def lstm_cell(x, w, r, h, c, b, rb, p, order="iofg", activations=("sigmoid", "tanh", "tanh")):
    f, g, last = (FUNCTIONS[name] for name in activations)
    size = h.shape[1]
    part = {gate: slice(k * size, (k + 1) * size) for k, gate in enumerate(order)}
    gates = {k: x @ w[v].T + h @ r[v].T + b[v] + rb[v] for k, v in part.items()}
    peep = {gate: p[k * size : (k + 1) * size] for k, gate in enumerate("iof")}
    # All three look at the state before this step.
    i, o, forget = (f(gates[gate] + peep[gate] * c) for gate in "iof")
    cell = forget * c + i * g(gates["g"])
    return o * last(cell), cell
