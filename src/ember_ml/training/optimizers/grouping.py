"""Which parameters an optimizer has, and which gradient belongs to which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ember_ml import tree
from ember_ml.errors import DomainError, DTypeError, GradientError, ShapeError, UnknownKeyError
from ember_ml.nn.module import Module, require_built
from ember_ml.tensor import roles
from ember_ml.tensor.core import GradTensor, Tensor

__all__ = ["gradients", "groups", "named"]

Named = list[tuple[str, Tensor]]


def groups(name: str, given: Any) -> list[dict[str, Any]]:
    """What an optimizer was made with, as a list of group dicts with named parameters."""
    if isinstance(given, Mapping) and "params" in given:
        given = [given]
    if not isinstance(given, Module | Mapping | Tensor):
        try:
            given = list(given)
        except TypeError:
            raise DTypeError(
                f"{name} takes a Module, parameters, (name, parameter) pairs or group dicts, "
                f"not {type(given).__name__}"
            ) from None
        if given and all(isinstance(one, Mapping) and "params" in one for one in given):
            made: list[dict[str, Any]] = []
            count = 0
            for one in given:
                found = named(name, one["params"], count)
                count += len(found)
                made.append({**one, "params": found})
            return made
    return [{"params": named(name, given)}]


def named(name: str, given: Any, count: int = 0) -> Named:
    """Parameters with names; those that came without one are named by their number."""
    if isinstance(given, Module):
        require_built(given, name)
        found = list(given.named_parameters())
    elif isinstance(given, Mapping):
        found = [(str(key), x) for key, x in given.items()]
    elif isinstance(given, Tensor):
        raise DTypeError(f"{name} takes several parameters; give one of them in a list")
    else:
        items = list(given)
        found = [
            one if isinstance(one, tuple) and len(one) == 2 else (str(count + place), one)
            for place, one in enumerate(items)
        ]
    if not found:
        raise DomainError(f"{name} got no parameters")
    for key, x in found:
        _require_parameter(name, key, x)
    return found


def _require_parameter(name: str, key: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name} takes parameters, and '{key}' is {type(x).__name__}")
    if not x.dtype.is_floating:
        raise DTypeError(f"{name} trains real floating dtypes, and '{key}' is {x.dtype}")
    if type(x) is GradTensor and not x.is_leaf:
        raise GradientError(
            f"{name} takes parameters, and '{key}' is the result of an op; give what it was made of"
        )


def gradients(name: str, model: Any, grads: Any) -> list[tuple[Tensor, Any]]:
    """Pairs of the parameters of a model and their gradients, None where there is none."""
    params, structure = tree.flatten(model)
    if isinstance(grads, Module) or not isinstance(model, Module):
        found, other = tree.flatten(grads)
        tree.require_same(structure, other, f"{name}.update", ("the model", "its gradients"))
        return list(zip(params, found, strict=True))
    trained = [(key, x) for key, x in model.named_parameters() if _is_trained(x)]
    if isinstance(grads, Mapping):
        unknown = [key for key in grads if key not in {key for key, _ in trained}]
        if unknown:
            raise UnknownKeyError(
                f"{name}.update got a gradient of {unknown[0]!r}, which is no parameter of the "
                f"model that is trained"
            )
        return [(x, grads.get(key)) for key, x in trained]
    if not isinstance(grads, Iterable):
        raise DTypeError(
            f"{name}.update takes gradients as em.value_and_grad gives them, as a dict by name or "
            f"as a list, not {type(grads).__name__}"
        )
    values = list(grads)
    if len(values) != len(trained):
        raise ShapeError(f"{name}.update got {len(values)} gradients for {len(trained)} parameters")
    return [(x, g) for (_, x), g in zip(trained, values, strict=True)]


def _is_trained(x: Tensor) -> bool:
    return roles.role_of(x) == roles.PARAMETER
