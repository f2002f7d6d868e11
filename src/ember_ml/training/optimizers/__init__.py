"""Optimizers: how parameters follow their gradients."""

from __future__ import annotations

from typing import Any

from ember_ml.errors import UnknownKeyError
from ember_ml.training.optimizers.adafactor import Adafactor
from ember_ml.training.optimizers.adam import Adam, AdamW
from ember_ml.training.optimizers.base import Optimizer
from ember_ml.training.optimizers.lamb import LAMB
from ember_ml.training.optimizers.lion import Lion
from ember_ml.training.optimizers.muon import Muon
from ember_ml.training.optimizers.sgd import SGD
from ember_ml.training.optimizers.squares import Adadelta, Adagrad, RMSprop

__all__ = [
    "LAMB",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Lion",
    "Muon",
    "Optimizer",
    "RMSprop",
    "get_optimizer",
]


def get_optimizer(
    name: str | type[Optimizer] | Optimizer, parameters: Any = None, **options: Any
) -> Optimizer:
    """An optimizer by its name, in any case; one that is made already comes back.

    >>> from ember_ml import nn
    >>> from ember_ml.training import get_optimizer
    >>> get_optimizer("adamw", nn.Linear(2, 1), lr=0.1).lr
    0.1
    """
    if isinstance(name, Optimizer):
        return name
    if isinstance(name, type) and issubclass(name, Optimizer):
        return name(parameters, **options)
    known: dict[str, Any] = {one.lower(): globals()[one] for one in __all__ if one[0].isupper()}
    found = known.get(str(name).lower())
    if found is None or found is Optimizer:
        names = ", ".join(one for one in __all__ if one[0].isupper() and one != "Optimizer")
        raise UnknownKeyError(f"there is no optimizer {name!r}; there are {names}")
    made: Optimizer = found(parameters, **options)
    return made
