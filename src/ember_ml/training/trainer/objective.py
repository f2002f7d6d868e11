"""What is made small: the loss of a batch, with what metrics need of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ember_ml import dtypes, ops, tree
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.tensor.core import Tensor

__all__ = ["Objective", "Outcome", "batch_size", "get_loss"]

Loss = Callable[[Any, Any], Any]
Step = Callable[[Any, Any], Any]


class Outcome(NamedTuple):
    """What comes of a batch beside its loss."""

    prediction: Any
    target: Any
    # Numbers to be logged, by name.
    values: dict[str, Tensor]


def get_loss(loss: str | Loss) -> Loss:
    """A loss by its name in `ops.losses`, or a function of a prediction and a target."""
    if isinstance(loss, str):
        found = getattr(ops.losses, loss, None) if loss in ops.losses.__all__ else None
        if found is None:
            there = ", ".join(ops.losses.__all__)
            raise DomainError(f"there is no loss {loss!r}; there are {there}")

        made: Loss = found
        return made
    if not callable(loss):
        raise DTypeError(f"Trainer takes a loss as a name or a function, not {type(loss).__name__}")
    return loss


class Objective:
    """The loss of a model on a batch: by a loss function, or by a step of the user's own."""

    def __init__(self, loss: str | Loss | None, step: Step | None) -> None:
        if (loss is None) == (step is None):
            raise DomainError(
                "Trainer takes a loss, as in Trainer(model, opt, 'mse'), or a function "
                "step(model, batch) that gives the loss, and not both"
            )
        self.loss = None if loss is None else get_loss(loss)
        self.step = step

    def __call__(self, model: Any, batch: Any, precision: Any = None) -> tuple[Tensor, Outcome]:
        """The loss of a batch, and what else came of it.

        With a precision, the model and its inputs are cast; the loss is of float32 predictions.
        """
        if precision is not None:
            with precision.casting(model) as half:
                return self._run(half, batch, precision)
        return self._run(model, batch, None)

    def _run(self, model: Any, batch: Any, precision: Any) -> tuple[Tensor, Outcome]:
        if self.step is not None:
            return _read(self.step(model, batch if precision is None else precision.cast(batch)))
        inputs, target = self.parts(batch)
        if precision is None:
            prediction = model(*inputs)
        else:
            prediction = tree.map(_widened, model(*precision.cast(inputs)))
        assert self.loss is not None
        return _number(self.loss(prediction, target)), Outcome(prediction, target, {})

    def parts(self, batch: Any) -> tuple[tuple[Any, ...], Any]:
        """The inputs and the target of a batch."""
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            shape = f" of shape {batch.shape}" if isinstance(batch, Tensor) else ""
            raise DTypeError(
                f"Trainer got a batch that is {type(batch).__name__}{shape}; with a loss, batches "
                f"are (inputs, ..., target). Give fit((x, y)), fit((x, x)) for an autoencoder, or "
                f"take other batches apart by Trainer(model, opt, step=fn)"
            )
        return tuple(batch[:-1]), batch[-1]


def _widened(leaf: Any) -> Any:
    is_half = isinstance(leaf, Tensor) and leaf.dtype in (dtypes.float16, dtypes.bfloat16)
    return leaf.astype(dtypes.float32) if is_half else leaf


def _read(result: Any) -> tuple[Tensor, Outcome]:
    """What a step of the user's own gave."""
    if not isinstance(result, tuple):
        return _number(result), Outcome(None, None, {})
    if len(result) == 2 and isinstance(result[1], dict):
        values = {str(name): _number(value) for name, value in result[1].items()}
        return _number(result[0]), Outcome(None, None, values)
    if len(result) == 3:
        return _number(result[0]), Outcome(result[1], result[2], {})
    raise DTypeError(
        f"a step gives loss, (loss, prediction, target), or (loss, dict of numbers), "
        f"not a tuple of {len(result)}"
    )


def _number(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise DTypeError(f"a loss is a tensor of one number, not {type(value).__name__}")
    if value.ndim:
        raise ShapeError(
            f"a loss is one number, not a tensor of shape {value.shape}; take its mean, or a loss "
            f"with reduction='mean'"
        )
    return value


def batch_size(batch: Any) -> int:
    """How many samples a batch has."""
    for leaf in tree.leaves(batch):
        if isinstance(leaf, Tensor) and leaf.ndim:
            return leaf.shape[0]
    return 1
