"""The steps of a recurrent layer over settled kernels, or over `ops` itself.

A layer is one kernel for all of its steps and directions:

    out, h, c, kept = recurrent(x, h0, c0, mask, *weights, kind, keep)

`x` is `(steps, batch, features)`, `h0` and `c0` are `(directions, batch, size)`, `mask` is
`(steps, batch)` and true where a step counts, and `weights` are `w_ih, w_hh, b_ih, b_hh, w_hr` of
one direction and then of the other, None where there is none. `kind` is 'tanh', 'relu', 'lstm' or
'gru'. Only 'lstm' has `c`. With `keep`, a kernel may give in `kept` what its own gradient wants.
"""

from __future__ import annotations

from typing import Any, Final

from ember_ml.backend.contract import Kernel, NativeArray

__all__ = ["ARRAYS", "KERNELS", "WEIGHTS", "recurrent", "step"]

# How many weights a direction has, and how many arrays the kernel takes.
WEIGHTS: Final = 5
ARRAYS: Final = 4 + 2 * WEIGHTS

Array = NativeArray
# h and c after a step; c is None where there is none.
State = tuple[Array, Array]


def recurrent(
    xp: Any,
    x: Array,
    h0: Array,
    c0: Array | None,
    mask: Array | None,
    *rest: Any,
) -> tuple[Array, Array, Array | None, None]:
    """Step by step; `xp` is a namespace of kernels, or `ops` for tensors."""
    weights, kind = rest[: 2 * WEIGHTS], rest[2 * WEIGHTS]
    outs, states = [], []
    for direction in range(h0.shape[0]):
        own = weights[direction * WEIGHTS : (direction + 1) * WEIGHTS]
        state = (h0[direction], None if c0 is None else c0[direction])
        out, state = _walk(xp, x, state, mask, own, kind, direction == 1)
        outs.append(out)
        states.append(state)
    out = outs[0] if len(outs) == 1 else xp.concat(outs, -1)
    h = xp.stack([state[0] for state in states], 0)
    c = None if c0 is None else xp.stack([state[1] for state in states], 0)
    return out, h, c, None


def _walk(
    xp: Any,
    x: Array,
    state: State,
    mask: Array | None,
    weights: tuple[Any, ...],
    kind: str,
    reverse: bool,
) -> tuple[Array, State]:
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    gates = xp.linear(x, w_ih, b_ih)  # of all steps in one product
    steps = range(x.shape[0])
    outs = []
    for t in reversed(steps) if reverse else steps:
        new = step(xp, gates[t], state, w_hh, b_hh, w_hr, kind)
        out = new[0]
        if mask is not None:
            counts = mask[t][:, None]
            out = xp.where(counts, out, 0.0)
            new = (
                xp.where(counts, new[0], state[0]),
                None if new[1] is None else xp.where(counts, new[1], state[1]),
            )
        state = new
        outs.append(out)
    return xp.stack(outs[::-1] if reverse else outs, 0), state


def step(
    xp: Any, gates: Array, state: State, w_hh: Array, b_hh: Array | None, w_hr: Any, kind: str
) -> State:
    """h and c after one step, from the sums of the input; over any namespace."""
    h, c = state
    inner = xp.linear(h, w_hh, b_hh)
    if kind == "tanh":
        return xp.tanh(gates + inner), None
    if kind == "relu":
        return xp.relu(gates + inner), None
    if kind == "gru":
        size = h.shape[-1]
        both = xp.sigmoid(gates[:, : 2 * size] + inner[:, : 2 * size])
        r, z = both[:, :size], both[:, size:]
        n = xp.tanh(gates[:, 2 * size :] + r * inner[:, 2 * size :])
        return n + z * (h - n), None
    size = c.shape[-1]
    sums = gates + inner
    both = xp.sigmoid(sums[:, : 2 * size])
    o = xp.sigmoid(sums[:, 3 * size :])
    c = both[:, size:] * c + both[:, :size] * xp.tanh(sums[:, 2 * size : 3 * size])
    h = o * xp.tanh(c)
    return (h if w_hr is None else xp.linear(h, w_hr, None)), c


KERNELS: Final[dict[str, Kernel]] = {"recurrent": recurrent}
