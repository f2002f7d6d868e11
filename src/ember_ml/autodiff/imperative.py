"""backward(), and the gradients that tensors carry."""

from __future__ import annotations

import warnings
from threading import active_count
from typing import TYPE_CHECKING, Any

from ember_ml.backend import pairs
from ember_ml.errors import DomainError, DTypeError, GradientError, ShapeError
from ember_ml.tensor import roles

if TYPE_CHECKING:
    from ember_ml.tensor.core import GradTensor, Tensor

__all__ = ["backward", "grad_of", "require", "retain", "set_grad"]


def grad_of(x: GradTensor) -> Tensor | None:
    """The gradient that a tensor carries."""
    from ember_ml.tensor.core import fill, fill_grad

    if x._spec.backend.records:
        native = x.native
        if native.is_leaf or native.retains_grad:
            native = native.grad
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a look at what inner results seldom have
                native = native.grad
        if native is None:
            return None
        return (fill_grad if native.requires_grad else fill)(native, x._spec)
    return getattr(x._node, "grad", None)


def set_grad(x: GradTensor, value: Any) -> None:
    """Put a gradient in place of the one that a tensor carries; None clears it."""
    from ember_ml.tensor import convert

    spec = x._spec
    if value is not None:
        value = convert.to_tensor(value, spec.backend)
        if value._spec is not spec:
            raise DTypeError(
                f"the gradient of a {x.dtype} tensor on '{x.backend}' ({x.device}) is one itself, "
                f"not {value.dtype} on '{value.backend}' ({value.device})"
            )
        if value.shape != x.shape:
            raise ShapeError(f"the gradient of shape {x.shape} has that shape, not {value.shape}")
    if not x.is_leaf and not _retains(x):
        if value is None:
            return  # it has none
        raise GradientError(
            "only a tensor made with requires_grad=True carries a gradient, "
            "or one on which retain_grad() was called"
        )
    if spec.backend.records:
        x.native.grad = None if value is None else value.native
    else:
        x._node.grad = value


def _retains(x: GradTensor) -> bool:
    if x._spec.backend.records:
        return bool(x.native.retains_grad)
    return hasattr(x._node, "grad")


def retain(x: GradTensor) -> None:
    """See GradTensor.retain_grad."""
    if x.is_leaf or _retains(x):
        return
    if x._spec.backend.records:
        x.native.retain_grad()
        return
    x._node.keeps = True
    x._node.grad = None


def require(x: Tensor, mode: bool) -> Tensor:
    """See Tensor.requires_grad_."""
    from ember_ml.autodiff.tape import Leaf
    from ember_ml.tensor.core import GradTensor, Tensor

    backend = x._spec.backend
    if type(x) is GradTensor:
        if mode:
            return x
        if not x.is_leaf:
            raise GradientError(
                "requires_grad_(False) takes a tensor made with requires_grad=True, not the "
                "result of an op; take .detach()"
            )
        native = backend.detach(x.native)
        if not backend.records:
            del x._node
        x.__class__ = Tensor  # type: ignore[assignment]  # its own class no longer
        x.native = native
        roles.freeze(x)
        return x
    if not mode:
        roles.freeze(x)
        return x
    if not x._spec.dtype.is_inexact:
        raise DTypeError(f"requires_grad takes a floating dtype, not {x.dtype}")
    if type(x) is not Tensor:
        raise DomainError(
            "requires_grad_() takes a tensor of its own, not a view for reading or writing; "
            "call it on a .copy()"
        )
    x.native = backend.require_grad(x.native)
    x.__class__ = GradTensor
    if not backend.records:
        x._node = Leaf()
    roles.thaw(x)
    return x


def backward(
    x: GradTensor, gradient: Any, retain_graph: bool, create_graph: bool, inputs: Any
) -> None:
    """See GradTensor.backward."""
    from ember_ml.autodiff.backward import pull_back
    from ember_ml.tensor.core import GradTensor

    spec = x._spec
    seed = _seed(x, gradient)
    if inputs is not None:
        inputs = [inputs] if isinstance(inputs, GradTensor) else list(inputs)
        if not inputs or not all(isinstance(t, GradTensor) for t in inputs):
            raise GradientError(
                f"backward(inputs=...) takes tensors that need gradients, not {inputs!r}"[:300]
            )
    if spec.backend.records:
        natives = None if inputs is None else [t.native for t in inputs]
        spec.backend.gradients.backward(
            x.native, seed.native, natives, retain_graph or create_graph, create_graph
        )
        return
    wanted = None if inputs is None else [t._node for t in inputs]
    found = pull_back({x._node: seed}, wanted, retain=retain_graph, create=create_graph)
    several = active_count() > 1
    for node, g in found.items():
        # A lazy array could be computed in this thread alone, and not at all in a trace.
        if several and not spec.backend.is_traced(g.native):
            spec.backend.finish(g.native)
        _accumulate(node, g)


def _accumulate(node: Any, g: Tensor) -> None:
    from ember_ml.ops.dispatch import binary, in_place
    from ember_ml.tensor.core import GradTensor

    have = getattr(node, "grad", None)
    if have is None:
        node.grad = g
    elif type(have) is GradTensor or type(g) is GradTensor:
        node.grad = binary(pairs.ADD, have, g)
    else:
        in_place(pairs.ADD, have, g)  # whoever has taken it sees the sum, as in torch


def _seed(x: GradTensor, gradient: Any) -> Tensor:
    """The gradient of the result itself."""
    from ember_ml.tensor import convert
    from ember_ml.tensor.core import fill

    spec = x._spec
    if gradient is not None:
        seed = convert.to_tensor(gradient, spec.backend)
        if seed.shape != x.shape:
            raise ShapeError(f"backward() got a gradient of shape {seed.shape} for {x.shape}")
        return convert.cast(seed, spec.dtype)
    if x.size != 1:
        raise ShapeError(
            f"backward() takes a tensor of one number, not shape {x.shape}; reduce it, "
            f"or give a gradient of that shape"
        )
    if not spec.dtype.is_floating:
        raise DTypeError(f"backward() of a {spec.dtype} tensor takes a gradient")
    if not x.shape:
        return fill(spec.scalar(1.0), spec)
    return fill(spec.backend.full(x.shape, 1, spec), spec)
