"""backward(), and the gradients that tensors carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ember_ml.errors import GradientError, ShapeError

if TYPE_CHECKING:
    from ember_ml.tensor.core import GradTensor, Tensor

__all__ = ["backward", "grad_of", "set_grad"]


def grad_of(x: GradTensor) -> Tensor | None:
    """The gradient that a tensor carries."""
    from ember_ml.tensor.core import fill, fill_grad

    if x._spec.backend.records:
        native = x.native.grad if x.native.is_leaf else None
        if native is None:
            return None
        return (fill_grad if native.requires_grad else fill)(native, x._spec)
    return getattr(x._node, "grad", None)


def set_grad(x: GradTensor, value: Tensor | None) -> None:
    """Put a gradient in place of the one that a tensor carries; None clears it."""
    if x._spec.backend.records:
        x.native.grad = None if value is None else value.native
        return
    if not x.is_leaf:
        raise GradientError("only a tensor made with requires_grad=True carries a gradient")
    x._node.grad = value


def backward(
    x: GradTensor, gradient: Any, retain_graph: bool, create_graph: bool, inputs: Any
) -> None:
    """See GradTensor.backward."""
    from ember_ml.autodiff.backward import pull_back
    from ember_ml.ops.dispatch import binary
    from ember_ml.tensor import convert
    from ember_ml.tensor.core import fill

    spec = x._spec
    if gradient is None:
        if x.shape != ():
            raise ShapeError(
                f"backward() takes a tensor of one number, not shape {x.shape}; reduce it, "
                f"or give a gradient of that shape"
            )
        seed = fill(spec.scalar(1.0), spec)
    else:
        seed = convert.to_tensor(gradient, spec.backend)
        if seed.shape != x.shape:
            raise ShapeError(f"backward() got a gradient of shape {seed.shape} for {x.shape}")
        seed = convert.cast(seed, spec.dtype)
    if spec.backend.records:
        x.native.backward(
            seed.native,
            retain_graph=retain_graph or create_graph,
            create_graph=create_graph,
            inputs=None if inputs is None else [t.native for t in inputs],
        )
        return
    wanted = None if inputs is None else [t._node for t in inputs]
    found = pull_back({x._node: seed}, wanted, retain=retain_graph, create=create_graph)
    for node, g in found.items():
        have = node.grad  # type: ignore[attr-defined]  # of a leaf
        node.grad = g if have is None else binary("add", have, g)  # type: ignore[attr-defined]  # as above
