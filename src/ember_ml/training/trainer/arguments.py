"""What a Trainer is given, as it uses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ember_ml.errors import DomainError, DTypeError
from ember_ml.nn.module import Module
from ember_ml.training.metrics import Metric

__all__ = ["grouped", "made", "require_names", "several"]


def grouped(batches: Iterable[Any], count: int) -> Iterator[list[Any]]:
    group: list[Any] = []
    for batch in batches:
        group.append(batch)
        if len(group) == count:
            yield group
            group = []
    if group:
        yield group


def made(optimizer: Any, model: Module) -> Any:
    """An optimizer as it is, or made for the model by its name or class."""
    if hasattr(optimizer, "update"):
        if not isinstance(optimizer, type):
            return optimizer
    elif isinstance(optimizer, str):
        from ember_ml.training import get_optimizer

        return get_optimizer(optimizer, model)
    if callable(optimizer):
        return optimizer(model)
    raise DTypeError(
        f"Trainer takes an optimizer, its name or its class, not {type(optimizer).__name__}"
    )


def several(metrics: Any) -> list[Any]:
    return [metrics] if isinstance(metrics, str | Metric) else list(metrics)


def require_names(metrics: Sequence[Metric]) -> None:
    names = [one.name for one in metrics]
    for name in names:
        if names.count(name) > 1 or name == "loss":
            raise DomainError(
                f"Trainer got two metrics of the name '{name}'; give one of them another by name="
            )
