"""How rules are written down.

A rule belongs to a kernel, by its name. For each operand it has a pull: a function of the gradient
of the result, the result, the operands and the options, in the order in which the kernel takes
them, that gives the gradient of that operand.

    rule("multiply", lambda g, y, a, b: summed_to(g * b, a), lambda g, y, a, b: summed_to(g * a, b))

Pulls are written over `ops`, on whatever backend the tensors are, and must themselves be
differentiable: second derivatives go through them. What a rule does not say that it keeps comes as
a Mold, with shape and dtype and no values, so that memory is freed early. Gradients of complex
tensors are those of JAX turned round by a conjugation, as torch has them: for a real loss L and
z = x + iy, the gradient is dL/dx + i dL/dy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ember_ml.autodiff.tape import RULES, Pull, Rule
from ember_ml.errors import GradientError
from ember_ml.tensor.core import Tensor

__all__ = [
    "CONSTANT",
    "NO_GRADIENT",
    "ZERO_GRADIENT",
    "joint_rule",
    "no_gradient",
    "rule",
    "zero_gradient",
]

# Ops whose results are floats and that have no gradient, each with the reason.
NO_GRADIENT: Final[dict[str, str]] = {}
# Ops that look at the shape and dtype of their operand alone: nothing goes through them.
CONSTANT: Final = frozenset(("empty_like", "full_like", "ones_like", "zeros_like"))
# Kernels that are constant between their steps.
ZERO_GRADIENT: Final[set[str]] = set()


def rule(name: str, *pulls: Pull | None, inputs: bool = True, output: bool = False) -> None:
    """Record the pulls of a kernel; the last one goes for all operands that follow.

    `inputs` and `output` tell which values the pulls read. None stands for an operand that is
    never differentiated.
    """
    RULES[name] = Rule(name, pulls, None, inputs, output)


def joint_rule(
    name: str, *, inputs: bool = True, output: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Record one function that gives the gradients of all operands: `f(g, needs, y, *operands,
    *options)`, where `needs` tells for each operand whether its gradient is asked for.

    For a kernel with several results, `g` and `y` are lists; what was not used has None in `g`.
    """

    def record(function: Callable[..., Any]) -> Callable[..., Any]:
        RULES[name] = Rule(name, (), function, inputs, output)
        return function

    return record


def zero_gradient(*names: str) -> None:
    """Record kernels that are constant between their steps."""

    def zeros(g: Tensor, y: Any, *operands: Any) -> Tensor:
        from ember_ml import ops

        return ops.zeros_like(g)

    for name in names:
        ZERO_GRADIENT.add(name)
        rule(name, zeros, inputs=False)


def no_gradient(name: str, reason: str) -> None:
    """Record a kernel that cannot be differentiated; the reason ends the sentence of the error."""
    NO_GRADIENT[name] = reason

    def refuse(g: Tensor, needs: tuple[bool, ...], *rest: Any) -> Any:
        raise GradientError(f"ops.{name} has no gradient: {reason}")

    RULES[name] = Rule(name, (), refuse, False, False)
