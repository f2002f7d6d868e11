"""Programs whose collectives run in the order in which they were called.

XLA orders what does not depend on each other as it likes. Ranks whose programs differ by a number,
such as a weight of their own, may get different orders, and would wait for each other for ever. So
each collective is made to depend on the one before, where it does not do so by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
from jax import lax
from jax.extend.core import Literal

__all__ = ["has_collectives", "in_sequence"]

# Calls of functions, by the parameter that holds what is called. Others with collectives inside
# (loops, conditions, what is computed again for gradients) are taken as one.
_CALLS: Final = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


def has_collectives(program: Any, axis: str) -> bool:
    """True where a traced program, or one step of it, talks over an axis."""
    return any(getattr(effect, "name", None) == axis for effect in program.effects)


def in_sequence(program: Any, axis: str) -> Callable[..., list[Any]]:
    """A traced program as a function of arrays, with its collectives one after another."""

    def run(*natives: Any) -> list[Any]:
        return _Run(axis).whole(program, natives)

    return run


class _Run:
    """One walk through a program and the functions that it calls."""

    def __init__(self, axis: str) -> None:
        self._axis = axis
        # How many collectives there were, those that were started together counted as one.
        self._count = 0
        # What the last ones gave, those before them, and what they have in common.
        self._last: list[Any] = []
        self._before: list[Any] = []
        self._group: object = None

    def whole(self, program: Any, natives: Sequence[Any]) -> list[Any]:
        """The results of a program, none of whose collectives XLA can leave out."""
        outs, ages = self._walked(program, natives, [0] * len(natives))
        sizes = [math.prod(out.shape) or math.inf for out in outs]
        if outs and max(ages) < self._count and min(sizes) < math.inf:
            least = sizes.index(min(sizes))
            outs[least] = self._after(outs[least], self._last)
        return outs

    def _walked(
        self, program: Any, natives: Sequence[Any], ages: Sequence[int]
    ) -> tuple[list[Any], list[int]]:
        """Results, and of each the number of the last collective that it depends on."""
        jaxpr = program.jaxpr
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, program.consts, strict=True))
        values.update(zip(jaxpr.invars, natives, strict=True))
        seen: dict[Any, int] = dict(zip(jaxpr.invars, ages, strict=True))
        together: dict[Any, object] = {}

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        def age(atom: Any) -> int:
            return 0 if isinstance(atom, Literal) else seen.get(atom, 0)

        for step in jaxpr.eqns:
            given = [read(atom) for atom in step.invars]
            old = [age(atom) for atom in step.invars]
            name = step.primitive.name
            if name == "optimization_barrier":
                together.update(dict.fromkeys(step.outvars, step))
            if name == "axis_index" or not has_collectives(step, self._axis):
                outs, new = _bound(step, given), [max(old, default=0)] * len(step.outvars)
            elif name in _CALLS:
                outs, new = self._walked(step.params[_CALLS[name]], given, old)
            else:
                source = step.invars[0] if name == "psum" else None
                group = None if isinstance(source, Literal) else together.get(source)
                outs = self._collective(step, given, max(old, default=0), group)
                new = [self._count] * len(outs)
            values.update(zip(step.outvars, outs, strict=True))
            seen.update(zip(step.outvars, new, strict=True))
        return [read(atom) for atom in jaxpr.outvars], [age(atom) for atom in jaxpr.outvars]

    def _collective(self, step: Any, given: list[Any], age: int, group: object) -> list[Any]:
        if group is None or group is not self._group:
            self._before, self._last = self._last, []
            self._count += 1
        self._group = group
        if age < self._count - 1:
            given = [self._after(given[0], self._before), *given[1:]]
        outs = _bound(step, given)
        self._last.extend(outs)
        return outs

    def _after(self, x: Any, others: Sequence[Any]) -> Any:
        """An array that cannot be there before some others, as far as XLA knows.

        It drops barriers before it orders what is left, and keeps to what depends on values.
        """
        zero: Any = False
        for other in others:
            if 0 not in other.shape:
                zero |= lax.index_in_dim(other.reshape(-1), 0, keepdims=False) == 0
        never = (lax.axis_index(self._axis) < 0) & zero
        return jnp.where(never, jnp.zeros_like(x), x)


def _bound(step: Any, given: list[Any]) -> list[Any]:
    """What one step of a program gives."""
    params: Any = step.primitive.get_bind_params(step.params)
    if isinstance(params, tuple):  # before JAX 0.10
        given, params = [*params[0], *given], params[1]
    with step.ctx.manager:
        out = step.primitive.bind(*given, **params)
    return list(out) if step.primitive.multiple_results else [out]
