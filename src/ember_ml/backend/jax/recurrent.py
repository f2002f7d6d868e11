"""Recurrent layers on JAX: the steps are one compiled loop.

See backend/portable/recurrent.py for what goes in and comes out.
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.portable import recurrent as portable
from ember_ml.backend.portable.recurrent import WEIGHTS

__all__ = ["ARRAYS", "KERNELS"]

Array = NativeArray


class _Namespace:
    """What a step calls."""

    tanh = staticmethod(jnp.tanh)
    relu = staticmethod(jax.nn.relu)
    sigmoid = staticmethod(jax.nn.sigmoid)

    @staticmethod
    def linear(x: Array, weight: Array, bias: Array | None) -> Array:
        out = jax.lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())), precision="highest")
        return out if bias is None else out + bias


_XP: Final = _Namespace()


def recurrent(
    x: Array, h0: Array, c0: Array | None, mask: Array | None, *rest: Any
) -> tuple[Array, Array, Array | None, None]:
    weights, kind = rest[: 2 * WEIGHTS], rest[2 * WEIGHTS]
    outs, states = [], []
    for d in range(h0.shape[0]):
        w_ih, w_hh, b_ih, b_hh, w_hr = weights[d * WEIGHTS : (d + 1) * WEIGHTS]

        def step(state: Any, row: Any) -> Any:
            gates, counts = row
            new = portable.step(_XP, gates, state, w_hh, b_hh, w_hr, kind)  # noqa: B023 - run here
            if counts is None:
                return new, new[0]
            kept = jax.tree.map(lambda a, b: jnp.where(counts[:, None], a, b), new, state)
            return kept, jnp.where(counts[:, None], new[0], 0)

        state, out = jax.lax.scan(
            step,
            (h0[d], None if c0 is None else c0[d]),
            (_XP.linear(x, w_ih, b_ih), mask),
            reverse=d == 1,
        )
        outs.append(out)
        states.append(state)
    out = outs[0] if len(outs) == 1 else jnp.concatenate(outs, -1)
    h = jnp.stack([state[0] for state in states])
    return out, h, None if c0 is None else jnp.stack([state[1] for state in states]), None


def recurrent_grad(*args: Any) -> list[Array | None]:
    """The gradients of all operands: JAX's own of the loop, which is run once more."""
    operands, grads, kind = args[: portable.ARRAYS], args[portable.ARRAYS : -2], args[-2]

    def run(*inner: Any) -> Any:
        return recurrent(*inner[:3], operands[3], *inner[3:], kind, False)[:3]

    values, pull = jax.vjp(run, *operands[:3], *operands[4:])
    seeds = [
        None if y is None else jnp.zeros_like(y) if g is None else g
        for g, y in zip(grads, values, strict=True)
    ]
    found = pull(tuple(seeds))
    return [*found[:3], None, *found[3:]]


KERNELS: Final[dict[str, Kernel]] = {"recurrent": recurrent, "recurrent_grad": recurrent_grad}
ARRAYS: Final = {"recurrent": portable.ARRAYS, "recurrent_grad": portable.ARRAYS + 3}
