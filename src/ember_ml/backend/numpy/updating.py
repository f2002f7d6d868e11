"""Updates of all parameters of an optimizer, in place, a piece that fits the cache at a time.

Each formula is that of the optimizer in training/optimizers, for arrays of one axis, with `out=`
and a few scratch arrays. A piece is read and written by all of its steps while it is in the cache,
so that each array passes through memory once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Final

import numpy as np

from ember_ml.backend import writes
from ember_ml.backend.contract import Kernel

__all__ = ["OVERRIDES"]

Array = np.ndarray[Any, Any]
State = Mapping[str, Array]
Options = Mapping[str, Any]
# Takes pieces of a parameter, its gradient and its state, then three scratch arrays, the rate, the
# options, and how many updates there have been.
Formula = Callable[[Array, Array, State, tuple[Array, Array, Array], float, Options, float], None]

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
                    formula(one, slope, state, (a, b, c), lr, options, step)

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


def sgd(
    p: Array,
    g: Array,
    state: State,
    scratch: tuple[Array, Array, Array],
    lr: float,
    options: Options,
    step: float,
) -> None:
    a, b, _ = scratch
    momentum = options["momentum"]
    if momentum:
        buffer = state["momentum_buffer"]
        buffer *= momentum
        if options["dampening"] and step > 1.0:  # the first buffer is the gradient itself
            buffer += np.multiply(g, 1.0 - options["dampening"], out=a)
        else:
            buffer += g
        if options["nesterov"]:
            np.multiply(buffer, momentum, out=a)
            g = np.add(g, a, out=b)
        else:
            g = buffer
    p -= np.multiply(g, lr, out=a)


def _adam(
    p: Array,
    g: Array,
    state: State,
    scratch: tuple[Array, Array, Array],
    lr: float,
    options: Options,
    step: float,
) -> None:
    a, b, _ = scratch
    beta1, beta2 = options["betas"]
    m, v = state["exp_avg"], state["exp_avg_sq"]
    _toward(m, g, beta1, a)
    _toward(v, np.multiply(g, g, out=b), beta2, a)
    if "max_exp_avg_sq" in state:
        v = np.maximum(state["max_exp_avg_sq"], v, out=state["max_exp_avg_sq"])
    # m / (√v / s + eps) is s m / (√v + s eps), which is one pass less.
    scale = (1.0 - beta2**step) ** 0.5
    np.sqrt(v, out=a)
    a += scale * options["eps"]
    np.divide(m, a, out=a)
    a *= lr * scale / (1.0 - beta1**step)
    p -= a


def adam(
    p: Array,
    g: Array,
    state: State,
    scratch: tuple[Array, Array, Array],
    lr: float,
    options: Options,
    step: float,
) -> None:
    _adam(p, g, state, scratch, lr, options, step)


def adamw(
    p: Array,
    g: Array,
    state: State,
    scratch: tuple[Array, Array, Array],
    lr: float,
    options: Options,
    step: float,
) -> None:
    if options["weight_decay"]:
        p *= 1.0 - lr * options["weight_decay"]
    _adam(p, g, state, scratch, lr, options, step)


def adagrad(
    p: Array,
    g: Array,
    state: State,
    scratch: tuple[Array, Array, Array],
    lr: float,
    options: Options,
    step: float,
) -> None:
    a, b, _ = scratch
    total = state["sum"]
    total += np.multiply(g, g, out=a)
    np.sqrt(total, out=a)
    a += options["eps"]
    np.divide(g, a, out=b)
    b *= lr / (1.0 + (step - 1.0) * options["lr_decay"])
    p -= b


def rmsprop(
    p: Array,
    g: Array,
    state: State,
    scratch: tuple[Array, Array, Array],
    lr: float,
    options: Options,
    step: float,
) -> None:
    a, b, _ = scratch
    v = state["square_avg"]
    _toward(v, np.multiply(g, g, out=b), options["alpha"], a)
    if options["centered"]:
        mean = state["grad_avg"]
        _toward(mean, g, options["alpha"], a)
        np.multiply(mean, mean, out=a)
        np.subtract(v, a, out=a)
        np.sqrt(a, out=a)
    else:
        np.sqrt(v, out=a)
    a += options["eps"]
    np.divide(g, a, out=a)
    if options["momentum"]:
        buffer = state["momentum_buffer"]
        buffer *= options["momentum"]
        buffer += a
        np.multiply(buffer, lr, out=a)
    else:
        a *= lr
    p -= a


def adadelta(
    p: Array,
    g: Array,
    state: State,
    scratch: tuple[Array, Array, Array],
    lr: float,
    options: Options,
    step: float,
) -> None:
    a, b, _ = scratch
    rho, eps = options["rho"], options["eps"]
    v, moves = state["square_avg"], state["acc_delta"]
    _toward(v, np.multiply(g, g, out=b), rho, a)
    np.sqrt(np.add(v, eps, out=a), out=a)
    np.sqrt(np.add(moves, eps, out=b), out=b)
    b /= a
    b *= g
    np.multiply(b, b, out=a)
    a *= 1.0 - rho
    moves *= rho
    moves += a
    b *= lr
    p -= b


def lion(
    p: Array,
    g: Array,
    state: State,
    scratch: tuple[Array, Array, Array],
    lr: float,
    options: Options,
    step: float,
) -> None:
    a, b, _ = scratch
    beta1, beta2 = options["betas"]
    m = state["exp_avg"]
    np.multiply(m, beta1, out=a)
    a += np.multiply(g, 1.0 - beta1, out=b)
    np.sign(a, out=a)
    if options["weight_decay"]:
        a += np.multiply(p, options["weight_decay"], out=b)
    a *= lr
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
