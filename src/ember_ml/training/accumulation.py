"""Gradients of a large batch from those of small ones."""

from __future__ import annotations

from typing import Any

from ember_ml import tree
from ember_ml.autodiff import tape
from ember_ml.errors import DomainError
from ember_ml.training import clipping

__all__ = ["Accumulator"]


class Accumulator:
    """The mean of the gradients of `steps` small batches: that of one batch as large as all.

    With gradients as values, `add(grads)` gives None until enough are there, and then the mean:

    >>> from ember_ml.training import Accumulator
    >>> accumulator = Accumulator(2)
    >>> accumulator.add([ops.asarray([1.0])]) is None
    True
    >>> accumulator.add([ops.asarray([3.0])])[0].tolist()
    [2.0]

    After `backward()`, which adds gradients up by itself, `ready(model)` is False until enough are
    there, and then divides what parameters carry. Batches of different sizes have their size for
    `weight`; for `ready`, each loss is multiplied with it before `backward()`.
    """

    def __init__(self, steps: int) -> None:
        if int(steps) != steps or steps < 1:
            raise DomainError(f"Accumulator got steps={steps}; it takes at least 1")
        self.steps = int(steps)
        # How many there are, and their weights together.
        self.count = 0
        self.weight = 0.0
        self._sum: Any = None

    def add(self, grads: Any, weight: float = 1.0) -> Any:
        """Take gradients; gives their mean where enough are there, else None."""
        with tape.no_grad():
            part = grads if weight == 1.0 else tree.map(lambda g: g * weight, grads)
            self._sum = part if self._sum is None else tree.map(_plus, self._sum, part)
        self._count(weight)
        return self.flush() if self.count >= self.steps else None

    def flush(self) -> Any:
        """The mean of what is there, as at the end of an epoch; None where nothing is."""
        total, weight = self._sum, self.weight
        self.reset()
        if total is None:
            return None
        with tape.no_grad():
            return tree.map(lambda g: g / weight, total)

    def ready(self, model: Any, weight: float = 1.0, *, flush: bool = False) -> bool:
        """Count a `backward()`; True where parameters carry the mean now, for an update.

        `flush` has it so now, whatever the count.
        """
        self._count(weight)
        if self.count < self.steps and not flush:
            return False
        found, carried = clipping.tensors("Accumulator.ready", model)
        if not carried and found:
            raise DomainError(
                "Accumulator.ready takes a model or parameters after backward(); "
                "give gradients to add()"
            )
        total = self.weight
        self.reset()
        with tape.no_grad():
            clipping.put(found, [g / total for g in found])
        return True

    def reset(self) -> None:
        """Forget what is there."""
        self.count, self.weight, self._sum = 0, 0.0, None

    def _count(self, weight: float) -> None:
        if not weight > 0:
            raise DomainError(f"Accumulator got a weight of {weight}; it takes a positive number")
        self.count += 1
        self.weight += weight

    def state_dict(self) -> dict[str, Any]:
        """What is there: counts, and the sum of gradients as a list of tensors."""
        total = None if self._sum is None else tree.leaves(self._sum)
        return {"count": self.count, "weight": self.weight, "sum": total}

    def load_state_dict(self, state: dict[str, Any], like: Any = None) -> None:
        """Go on from what `state_dict` gave; `like` is a tree as gradients are, such as the model.

        It is needed where gradients were added and not yet used.
        """
        total = state["sum"]
        if total is not None:
            if like is None:
                raise DomainError(
                    "Accumulator.load_state_dict got gradients; give the model as `like`"
                )
            total = tree.unflatten(tree.structure(like), total)
        self.count, self.weight, self._sum = int(state["count"]), float(state["weight"]), total


def _plus(a: Any, b: Any) -> Any:
    return a + b
