"""Where a NaN arose: the step's batch once more, with a look at every value on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes, tree
from ember_ml.autodiff import gradients
from ember_ml.errors import NaNLossError
from ember_ml.nn.module import Module, watching
from ember_ml.tensor.core import Tensor
from ember_ml.training.trainer.objective import Objective

__all__ = ["report"]

_HINTS: Final = {
    "input": "the data is at fault: look for missing values, or a division by zero on its way here",
    "target": "the data is at fault: look for missing values in the targets",
    "parameter": "the weights were not finite before this step: look where they come from",
    "module": (
        "lower the learning rate, warm it up, or give Trainer(clip_norm=1.0); in 16 bits, give "
        "precision with loss scaling"
    ),
    "loss": (
        "the predictions are finite and the loss is not: give logits to losses that take logits, "
        "keep logarithms and divisions away from 0, or lower the learning rate"
    ),
    "gradient": (
        "the loss is finite and its gradient is not: look for sqrt, norms, divisions or powers "
        "at 0, and add a small number there; clip_norm does not help against NaN"
    ),
}


def report(
    model: Module,
    objective: Objective,
    batches: list[Any],
    scope: Callable[[], Any],
    *,
    precision: Any,
    loss: float,
    step: int,
    batch: int,
    lr: float,
) -> NaNLossError:
    """The error of a step that was not finite: with the first place that is not, and a hint."""
    kind, where, about, place = "", "", "", batch
    for number, one in enumerate(batches, batch - len(batches) + 1):
        kind, where, about = _searched(model, objective, one, scope, precision)
        if kind:
            place = number
            break
    text = f"the loss of step {step} (batch {place} of the epoch, lr {lr:.3g}) is {loss:.6g}"
    if np.isfinite(loss):
        text = f"a gradient of step {step} (batch {place} of the epoch, lr {lr:.3g}) is not finite"
    if kind:
        text += f"; the first value that is not finite is {about}.\nHint: {_HINTS[kind]}."
    else:
        text += (
            "; the same batch, run again without a compiler, gives finite values: the numbers are "
            "at the edge of their dtype. Lower the learning rate, or clip gradients"
        )
    text += "\nThe weights are those of before this step."
    return NaNLossError(text, step=step, batch=place, where=where)


def _searched(
    model: Module, objective: Objective, batch: Any, scope: Callable[[], Any], precision: Any
) -> tuple[str, str, str]:
    """The kind, name and description of the first thing that is not finite."""
    leaves, structure = tree.flatten(batch)
    last = len(leaves) - 1 if isinstance(batch, tuple | list) and objective.step is None else -1
    for number, (path, leaf) in enumerate(zip(tree.paths(structure, "batch"), leaves, strict=True)):
        if isinstance(leaf, Tensor) and (said := _described(leaf)):
            kind = "target" if number == last else "input"
            return kind, path, f"in the {kind} {path}: {said}"
    for name, x in [*model.named_parameters(), *model.named_buffers()]:
        if said := _described(x):
            return "parameter", name, f"in the parameter '{name}' {said}"
    return _of_the_pass(model, objective, batch, scope, precision)


def _of_the_pass(
    model: Module, objective: Objective, batch: Any, scope: Callable[[], Any], precision: Any
) -> tuple[str, str, str]:
    names = {id(one): name for name, one in model.named_modules()}
    found: list[tuple[str, str, str]] = []

    def look(module: Module, args: tuple[Any, ...], result: Any) -> None:
        if found:
            return
        for leaf in tree.leaves(result):
            if isinstance(leaf, Tensor) and (said := _described(leaf)):
                name = names.get(id(module), "")
                shown = f"{type(module).__name__}({module.extra_repr()})"
                label = f"'{name}' {shown}" if name else shown
                given = ", ".join(_range(x) for x in tree.leaves(args) if isinstance(x, Tensor))
                found.append(
                    ("module", name or type(module).__name__, f"in the output of {label}: {said}")
                )
                if given:
                    kind, where, text = found[0]
                    found[0] = (kind, where, f"{text}; its input is finite: {given}")
                return

    def loss_of(one: Any) -> Any:
        return objective(one, batch, precision)

    with scope(), watching(look):
        (loss, _), grads = gradients.value_and_grad(loss_of, has_aux=True)(model)
    if found:
        return found[0]
    if said := _described(loss):
        return "loss", "loss", f"in the loss itself: {said}"
    # Gradients come from the loss: the last parameter of the model is next to where they went bad.
    for name, g in reversed(list(grads.named_parameters())):
        if said := _described(g):
            return "gradient", name, f"in the gradient of '{name}' {said}"
    return "", "", ""


def _described(x: Tensor) -> str:
    """What of a tensor is not finite; empty where all of it is."""
    if not x.dtype.is_floating:
        return ""
    values = _values(x)
    good = np.isfinite(values)
    if good.all():
        return ""
    bad = values.size - int(good.sum())
    nans = int(np.isnan(values).sum())
    said = f"shape {x.shape}, {x.dtype.name}, {nans} NaN and {bad - nans} infinite of {values.size}"
    if good.any():
        said += f"; the others are from {values[good].min():.4g} to {values[good].max():.4g}"
    return said


def _range(x: Tensor) -> str:
    values = _values(x)
    if not values.size:
        return f"shape {x.shape}"
    return f"shape {x.shape} from {values.min():.4g} to {values.max():.4g}"


def _values(x: Tensor) -> np.ndarray[Any, Any]:
    plain = x.detach() if x.requires_grad else x
    if plain.dtype == dtypes.bfloat16:
        plain = plain.astype(dtypes.float32)
    return np.asarray(plain.numpy())
