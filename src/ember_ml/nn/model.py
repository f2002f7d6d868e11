"""Model: a module that is trained and asked by methods of its own."""

from __future__ import annotations

from typing import Any, TypeVar

from ember_ml import ops, tree
from ember_ml.autodiff import tape
from ember_ml.errors import DomainError, NotFittedError
from ember_ml.nn.module import Module
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__ = ["Model"]

Self = TypeVar("Self", bound="Model")


class Model(Module):
    """A module with `compile`, `fit`, `evaluate`, `predict`, `save` and `load`.

    `fit` and `evaluate` are those of `ember_ml.training.Trainer`; every other way of training a
    module works as well.

    >>> from ember_ml import nn
    >>> class Line(nn.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = nn.Linear(1, 1)
    ...
    ...     def forward(self, x):
    ...         return self.layer(x)
    >>> Line().predict(ops.ones((5, 1)), batch_size=2).shape
    (5, 1)
    """

    # What `compile` was given; a class attribute until then, so that no constructor is needed.
    _trainer: Any = None

    def compile(
        self: Self, optimizer: Any = "adam", loss: Any = None, metrics: Any = (), **options: Any
    ) -> Self:
        """Say how the model is trained: the arguments are those of `Trainer`. Gives itself."""
        from ember_ml.training import Trainer

        self.__dict__["_trainer"] = _Held(
            Trainer(self, optimizer, loss, metrics=metrics, **options)
        )
        return self

    @property
    def trainer(self) -> Any:
        """The Trainer that `compile` made."""
        if self._trainer is None:
            raise NotFittedError(
                f"{type(self).__name__} does not know how it is trained; call "
                f"compile(optimizer, loss) first"
            )
        return self._trainer.held

    def fit(self, data: Any, *args: Any, **options: Any) -> Any:
        """Train: `Trainer.fit`. Gives the history."""
        return self.trainer.fit(data, *args, **options)

    def evaluate(self, data: Any, *args: Any, **options: Any) -> Any:
        """Loss and metrics on data: `Trainer.evaluate`."""
        return self.trainer.evaluate(data, *args, **options)

    def predict(self, x: Any, batch_size: int | None = 32) -> Any:
        """Results for inputs, in use mode and without gradients, `batch_size` rows at a time.

        x is a tensor, or a tuple, list or dict of tensors with as many rows, which are the
        arguments. `batch_size=None` takes all at once. Modes are as before, afterwards.
        """
        if batch_size is not None and batch_size < 1:
            raise DomainError(f"predict got batch_size={batch_size}; it is 1 or more, or None")
        first = next(self.parameters(), None)
        home = None if first is None else first._spec.backend
        args, kwargs = _arguments(x, home)
        given = [*args, *kwargs.values()]
        rows = {len(one) if one.ndim else 0 for one in given}
        if len(rows) != 1:
            raise DomainError(
                f"{type(self).__name__}.predict got inputs of {sorted(rows)} rows; "
                f"they must have as many"
            )
        count = rows.pop()
        size = max(count, 1) if batch_size is None else batch_size
        modes = [(one, one.training) for one in self.modules()]
        self.eval()
        found = []
        try:
            with tape.no_grad():
                for start in range(0, max(count, 1), size):
                    span = slice(start, start + size)
                    part = self(
                        *(one[span] for one in args),
                        **{name: one[span] for name, one in kwargs.items()},
                    )
                    found.append(part)
        finally:
            for one, mode in modes:
                one.training = mode
        return found[0] if len(found) == 1 else tree.map(_joined, *found)

    def save(self, path: Any) -> None:
        """Write config and weights: `em.save(path, model)`."""
        from ember_ml.io import save

        save(path, self)

    @classmethod
    def load(cls: type[Self], path: Any) -> Self:
        """The model of a file that `save` wrote."""
        from ember_ml.io import load

        made = load(path)
        if not isinstance(made, cls):
            raise DomainError(
                f"{cls.__name__}.load found {type(made).__name__} in the file; use em.load"
            )
        return made


class _Held:
    """What is kept beside a model and is no part of it."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


def _arguments(x: Any, home: Any) -> tuple[list[Tensor], dict[str, Tensor]]:
    if isinstance(x, dict):
        return [], {name: convert.to_tensor(one, home) for name, one in x.items()}
    several = isinstance(x, tuple) or (
        isinstance(x, list) and bool(x) and all(isinstance(one, Tensor) for one in x)
    )
    return [convert.to_tensor(one, home) for one in (x if several else [x])], {}


def _joined(*parts: Any) -> Any:
    return ops.concat(list(parts), axis=0) if isinstance(parts[0], Tensor) else parts[0]
