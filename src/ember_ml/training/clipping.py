"""Gradients within bounds, and their norm.

All functions take one of two things. Gradients, as `em.value_and_grad` gives them, or any tree of
tensors: these stay as they are, and new ones come out. A model, or parameters, after `backward()`:
what is in their `.grad` is changed in place.
"""

from __future__ import annotations

import math
from typing import Any

from ember_ml import dtypes, ops, tree
from ember_ml.autodiff import tape
from ember_ml.errors import DomainError, DTypeError
from ember_ml.tensor.core import GradTensor, Tensor
from ember_ml.training.optimizers.applying import fitting, write

__all__ = ["clip_grad_norm", "clip_grad_value", "global_norm", "put", "rebuilt", "tensors"]


def clip_grad_norm(
    grads: Any, max_norm: float, norm_type: float = 2.0, *, error_if_nonfinite: bool = False
) -> Any:
    """Scale gradients so that the norm of all of them together is at most `max_norm`.

    Of gradients, gives the scaled ones and the norm as it was; of a model or parameters, scales
    their `.grad` and gives the norm.

    >>> from ember_ml.training import clip_grad_norm
    >>> clipped, norm = clip_grad_norm({"w": ops.asarray([3.0, 4.0])}, 1.0)
    >>> norm.item(), [round(x, 3) for x in clipped["w"].tolist()]
    (5.0, [0.6, 0.8])
    """
    if not max_norm >= 0:
        raise DomainError(f"clip_grad_norm got max_norm={max_norm}; it takes no negative number")
    found, carried = tensors("clip_grad_norm", grads)
    with tape.no_grad():
        norm = _norm(found, norm_type)
        if error_if_nonfinite and not math.isfinite(float(norm)):
            raise DomainError(
                f"clip_grad_norm got gradients of norm {float(norm)}, which cannot be scaled"
            )
        scale = ops.minimum(max_norm / (norm + 1e-6), 1.0)
        made = [_scaled(g, scale) for g in found]
    if not carried:
        return rebuilt(grads, made), norm
    put(found, made)
    return norm


def clip_grad_value(grads: Any, clip_value: float) -> Any:
    """Bring every element of gradients to between `-clip_value` and `clip_value`.

    Of gradients, gives the new ones; of a model or parameters, changes their `.grad`.

    >>> from ember_ml.training import clip_grad_value
    >>> clip_grad_value([ops.asarray([3.0, -0.5])], 1.0)[0].tolist()
    [1.0, -0.5]
    """
    if not clip_value >= 0:
        raise DomainError(f"clip_grad_value got {clip_value}; it takes no negative number")
    found, carried = tensors("clip_grad_value", grads)
    with tape.no_grad():
        made = [ops.clip(g, -clip_value, clip_value) for g in found]
    if not carried:
        return rebuilt(grads, made)
    put(found, made)
    return None


def global_norm(grads: Any, norm_type: float = 2.0) -> Tensor:
    """The norm of all gradients together, as of one long vector.

    >>> from ember_ml.training import global_norm
    >>> global_norm({"w": ops.asarray([3.0]), "b": ops.asarray([4.0])}).item()
    5.0
    """
    found, _ = tensors("global_norm", grads)
    with tape.no_grad():
        return _norm(found, norm_type)


def tensors(name: str, given: Any) -> tuple[list[Tensor], bool]:
    """The gradients in something, and whether parameters carry them."""
    leaves = tree.leaves(given) if _is_tree(given) else list(given)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise DTypeError(
                f"{name} takes gradients, a model or parameters, and found {type(leaf).__name__}"
            )
    if not any(type(x) is GradTensor and x.is_leaf for x in leaves):
        return list(leaves), False
    return [x.grad for x in leaves if x.grad is not None], True


def _is_tree(given: Any) -> bool:
    return tree.structure(given) is not tree.LEAF or isinstance(given, Tensor)


def rebuilt(given: Any, leaves: list[Tensor]) -> Any:
    """New gradients in the tree of the old ones."""
    return tree.unflatten(tree.structure(given), leaves) if _is_tree(given) else leaves


def put(old: list[Tensor], new: list[Tensor]) -> None:
    """Write new values over gradients that parameters carry."""
    for g, value in zip(old, new, strict=True):
        write(g, value)


def _norm(grads: list[Tensor], norm_type: float) -> Tensor:
    if not grads:
        return ops.zeros(())
    # Squares of halves leave their range.
    norms = [
        ops.linalg.vector_norm(ops.astype(g, fitting(g._spec).dtype, copy=False), ord=norm_type)
        for g in grads
    ]
    if any(norm.dtype == dtypes.float64 for norm in norms):
        norms = [ops.astype(norm, dtypes.float64, copy=False) for norm in norms]
    return ops.linalg.vector_norm(ops.stack(norms), ord=norm_type)


def _scaled(g: Tensor, scale: Tensor) -> Tensor:
    return g * ops.astype(scale, g.dtype, copy=False)
