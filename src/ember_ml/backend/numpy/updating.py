"""Updates of all parameters of an optimizer, in place, a piece that fits the cache at a time.

Each formula is that of the optimizer in training/optimizers, for arrays of one axis, with `out=`
and a few scratch arrays. A piece is read and written by all of its steps while it is in the cache,
so that each array passes through memory once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Final, NamedTuple

import numpy as np

from ember_ml.backend import writes
from ember_ml.backend.contract import Kernel

__all__ = ["OVERRIDES"]

Array = np.ndarray[Any, Any]
State = Mapping[str, Array]
Options = Mapping[str, Any]


class Piece(NamedTuple):
    """A stretch of a parameter, its gradient and its state, with all that an update asks for."""

    p: Array
    g: Array
    state: State
    scratch: tuple[Array, Array, Array]
    lr: float
    options: Options
    # How many updates there have been, this one included.
    step: float


Formula = Callable[[Piece], None]

# Elements of a piece: with those of gradients, states and scratch, they fit a second-level cache.
_PIECE: Final = 1 << 14


def _pieces(arrays: list[Array]) -> Iterator[list[Array]]:
    """Pieces of several arrays of one shape, side by side, as views of one axis."""
    first = arrays[0]
    if not all(a.flags.c_contiguous for a in arrays):
        if first.ndim < 2:
            yield arrays if first.ndim else [a.reshape(1) for a in arrays]
            return
        for rows in zip(*arrays, strict=True):
            yield from _pieces(list(rows))
        return
    flat = [a.reshape(-1) for a in arrays]
    for start in range(0, first.size, _PIECE):
        yield [a[start : start + _PIECE] for a in flat]


def _update(formula: Formula) -> Kernel:
    """An update of all parameters by the formula of a piece."""

    @wraps(formula)
    def run(
        params: list[Array],
        grads: list[Array],
        states: Mapping[str, list[Array]],
        lr: float,
        options: Options,
    ) -> None:
        kept = [key for key in states if key != "step"]
        dtype = params[0].dtype
        scratch = [np.empty(_PIECE, dtype) for _ in range(3)]
        with np.errstate(all="ignore"):  # what is not finite shows in the loss
            for place, (p, g) in enumerate(zip(params, grads, strict=True)):
                writes.note(p)
                mine = [states[key][place] for key in kept]
                step = 0.0
                if "step" in states:
                    states["step"][place][...] += 1.0
                    step = float(states["step"][place])
                for one, slope, *rest in _pieces([p, g, *mine]):
                    size = one.size
                    if size > scratch[0].size:  # a row of an array with gaps
                        scratch = [np.empty(size, dtype) for _ in range(3)]
                    a, b, c = scratch[0][:size], scratch[1][:size], scratch[2][:size]
                    slope = _decayed(one, slope, c, options, formula not in _DECOUPLED)
                    state = dict(zip(kept, rest, strict=True))
                    formula(Piece(one, slope, state, (a, b, c), lr, options, step))

    return run


def _decayed(p: Array, g: Array, out: Array, options: Options, adds: bool) -> Array:
    """The gradient in the direction of the step, with the decay of weights added."""
    if options["maximize"]:
        g = np.negative(g, out=out)
    if adds and options["weight_decay"]:
        decay = p * p.dtype.type(options["weight_decay"])
        g = np.add(g, decay, out=out)
    return g


def _toward(x: Array, y: Array, beta: float, out: Array) -> None:
    """`x = beta x + (1 - beta) y`."""
    np.multiply(y, 1.0 - beta, out=out)
    x *= beta
    x += out


def sgd(piece: Piece) -> None:
    p, g = piece.p, piece.g
    a, b, _ = piece.scratch
    momentum = piece.options["momentum"]
    if momentum:
        buffer = piece.state["momentum_buffer"]
        buffer *= momentum
        if (
            piece.options["dampening"] and piece.step > 1.0
        ):  # the first buffer is the gradient itself
            buffer += np.multiply(g, 1.0 - piece.options["dampening"], out=a)
        else:
            buffer += g
        if piece.options["nesterov"]:
            np.multiply(buffer, momentum, out=a)
            g = np.add(g, a, out=b)
        else:
            g = buffer
    p -= np.multiply(g, piece.lr, out=a)


def _adam(piece: Piece) -> None:
    p, g = piece.p, piece.g
    a, b, _ = piece.scratch
    beta1, beta2 = piece.options["betas"]
    m, v = piece.state["exp_avg"], piece.state["exp_avg_sq"]
    _toward(m, g, beta1, a)
    _toward(v, np.multiply(g, g, out=b), beta2, a)
    if "max_exp_avg_sq" in piece.state:
        v = np.maximum(piece.state["max_exp_avg_sq"], v, out=piece.state["max_exp_avg_sq"])
    # m / (√v / s + eps) is s m / (√v + s eps), which is one pass less.
    scale = (1.0 - beta2**piece.step) ** 0.5
    np.sqrt(v, out=a)
    a += scale * piece.options["eps"]
    np.divide(m, a, out=a)
    a *= piece.lr * scale / (1.0 - beta1**piece.step)
    p -= a


def adam(piece: Piece) -> None:
    _adam(piece)


def adamw(piece: Piece) -> None:
    p = piece.p
    if piece.options["weight_decay"]:
        p *= 1.0 - piece.lr * piece.options["weight_decay"]
    _adam(piece)


def adagrad(piece: Piece) -> None:
    p, g = piece.p, piece.g
    a, b, _ = piece.scratch
    total = piece.state["sum"]
    total += np.multiply(g, g, out=a)
    np.sqrt(total, out=a)
    a += piece.options["eps"]
    np.divide(g, a, out=b)
    b *= piece.lr / (1.0 + (piece.step - 1.0) * piece.options["lr_decay"])
    p -= b


def rmsprop(piece: Piece) -> None:
    p, g = piece.p, piece.g
    a, b, _ = piece.scratch
    v = piece.state["square_avg"]
    _toward(v, np.multiply(g, g, out=b), piece.options["alpha"], a)
    if piece.options["centered"]:
        mean = piece.state["grad_avg"]
        _toward(mean, g, piece.options["alpha"], a)
        np.multiply(mean, mean, out=a)
        np.subtract(v, a, out=a)
        np.sqrt(a, out=a)
    else:
        np.sqrt(v, out=a)
    a += piece.options["eps"]
    np.divide(g, a, out=a)
    if piece.options["momentum"]:
        buffer = piece.state["momentum_buffer"]
        buffer *= piece.options["momentum"]
        buffer += a
        np.multiply(buffer, piece.lr, out=a)
    else:
        a *= piece.lr
    p -= a


def adadelta(piece: Piece) -> None:
    p, g = piece.p, piece.g
    a, b, _ = piece.scratch
    rho, eps = piece.options["rho"], piece.options["eps"]
    v, moves = piece.state["square_avg"], piece.state["acc_delta"]
    _toward(v, np.multiply(g, g, out=b), rho, a)
    np.sqrt(np.add(v, eps, out=a), out=a)
    np.sqrt(np.add(moves, eps, out=b), out=b)
    b /= a
    b *= g
    np.multiply(b, b, out=a)
    a *= 1.0 - rho
    moves *= rho
    moves += a
    b *= piece.lr
    p -= b


def lion(piece: Piece) -> None:
    p, g = piece.p, piece.g
    a, b, _ = piece.scratch
    beta1, beta2 = piece.options["betas"]
    m = piece.state["exp_avg"]
    np.multiply(m, beta1, out=a)
    a += np.multiply(g, 1.0 - beta1, out=b)
    np.sign(a, out=a)
    if piece.options["weight_decay"]:
        a += np.multiply(p, piece.options["weight_decay"], out=b)
    a *= piece.lr
    _toward(m, g, beta2, b)
    p -= a


# Optimizers whose decay shrinks weights by itself.
_DECOUPLED: Final = frozenset((adamw, lion))

OVERRIDES: Final[dict[str, Kernel]] = {
    "adadelta_update": _update(adadelta),
    "adagrad_update": _update(adagrad),
    "adam_update": _update(adam),
    "adamw_update": _update(adamw),
    "lion_update": _update(lion),
    "rmsprop_update": _update(rmsprop),
    "sgd_update": _update(sgd),
}
