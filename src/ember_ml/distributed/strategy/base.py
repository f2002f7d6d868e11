"""Strategy: how a training run is spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ember_ml import ops, tree
from ember_ml.autodiff import gradients
from ember_ml.distributed import joining
from ember_ml.distributed.communicator import Communicator
from ember_ml.distributed.world import World
from ember_ml.errors import ShapeError
from ember_ml.io.parts import Range
from ember_ml.nn.module import Module
from ember_ml.tensor.core import Tensor
from ember_ml.training.clipping import clip_grad_norm

if TYPE_CHECKING:
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["SingleDeviceStrategy", "Strategy"]


class Strategy:
    """What a Trainer asks of the processes it runs in: `Trainer(model, ..., strategy=strategy)`.

    Batches are those of the whole job: each process takes its part of every batch, by
    `distribute`. Losses, gradients and metrics are those of the whole batch on every process.
    """

    def __init__(self, communicator: Communicator | None = None) -> None:
        self._communicator = communicator

    @property
    def communicator(self) -> Communicator:
        """Who talks to the other processes; joins them where that has not been done."""
        if self._communicator is None:
            self._communicator = joining.initialize()
        return self._communicator

    @property
    def num_devices(self) -> int:
        """How many parts a batch has."""
        return self.communicator.world_size

    @property
    def is_main(self) -> bool:
        """True in the process that speaks for all: it prints, and writes what is written once."""
        return self.communicator.rank == 0

    def distribute(self, batch: Any) -> list[Any]:
        """The parts of a batch, one for each rank: tensors, or trees of them, along the first axis.

        Where ranks cannot divide it, the first ones have a row more; the last may have none.
        """
        count = self.num_devices
        leaves, structure = tree.flatten(batch)
        rows = {len(leaf) for leaf in leaves if getattr(leaf, "ndim", 0)}
        if len(rows) != 1:
            raise ShapeError(
                f"{type(self).__name__}.distribute takes tensors with one number of rows, "
                f"and got {sorted(rows)}"
            )
        sizes = part_sizes(rows.pop(), count)
        ends = [sum(sizes[: i + 1]) for i in range(count - 1)]
        split = [
            ops.split(leaf, ends) if getattr(leaf, "ndim", 0) else [leaf] * count for leaf in leaves
        ]
        return [tree.unflatten(structure, [parts[i] for parts in split]) for i in range(count)]

    # --- What a Trainer calls ---------------------------------------------------------------

    def begin(self, trainer: Trainer) -> None:
        """Before a run: join, and let every rank have the weights and the seeds of rank 0."""

    def settle(self, loader: Any) -> None:
        """Before a loader is gone through: all ranks have the same data, in the same order."""

    # For strategies whose ranks keep parts of a model: see sharded.py.

    def enter(self, trainer: Trainer) -> None:
        """Training begins, all ranks having the whole model."""

    def leave(self, trainer: Trainer) -> None:
        """Training has ended: all ranks are to have the whole model."""

    def within(self, model: Module, function: Callable[[], Any]) -> Any:
        """Call a function that uses the model without gradients."""
        return function()

    def clipped(self, grads: Any, max_norm: float) -> Any:
        """Gradients that `value_and_grad` gave, of a norm of at most so much."""
        return clip_grad_norm(grads, max_norm)[0]

    def all_true(self, fine: Tensor) -> Tensor:
        """Whether what a rank finds of its gradients is true on all of them."""
        return fine

    def part_value_and_grad(
        self, loss_of: Callable[[Any], Any], model: Module
    ) -> tuple[tuple[Tensor, Any], Any]:
        """`((loss, aux), gradients)` of the part of this rank, which `sum` then sums."""
        found: tuple[tuple[Tensor, Any], Any]
        found = gradients.value_and_grad(loss_of, has_aux=True)(model)
        return found

    def value_and_grad(
        self, loss_of: Callable[[Any], Any], model: Module, share: Tensor | None
    ) -> tuple[Any, Any]:
        """`((scaled loss, aux), gradients)` of a function of the model, over the whole batch.

        `share` is the part of the batch's samples that this rank has, a number from 0 to 1.
        """
        return gradients.value_and_grad(loss_of, has_aux=True)(model)

    def scope(self, counts: bool) -> AbstractContextManager[Any]:
        """A block in which this rank's rows are a part of a batch, or count for nothing."""
        return nullcontext()

    def sum(self, tensors: Sequence[Tensor], numbers: Sequence[Tensor]) -> Any:
        """Gradients and numbers, each as a list: summed over ranks."""
        return list(tensors), list(numbers)

    def is_surely_finite(self) -> bool:
        """Whether a quick look shows that the gradients of this step are finite; False tells
        nothing.
        """
        return False

    def gather(self, value: Any) -> list[Any]:
        """A value of each rank, on every rank: JSON, with tensors in it as arrays of NumPy."""
        return [value]

    def start_agree(self, flags: Sequence[bool]) -> Callable[[], list[bool]]:
        """Begin to ask the other ranks; what is given waits, and tells what any rank says."""
        return lambda: list(flags)

    def agree(self, flag: bool) -> bool:
        """True where any rank says so."""
        return self.start_agree([flag])()[0]

    # --- What a checkpoint holds: see training/checkpointing.py -----------------------------

    def checkpoint_state(self, trainer: Trainer) -> dict[str, Any]:
        """The states of "model" and "optimizer"; `Part`s stand for what ranks have between them."""
        from ember_ml.training import checkpointing

        return checkpointing.plain_state(trainer)

    def wanted(self, name: str, shape: tuple[int, ...]) -> Range | None:
        """Which part of a tensor in a checkpoint this rank loads; None for all of it."""
        return None

    def load_checkpoint_state(self, trainer: Trainer, state: Mapping[str, Any]) -> None:
        """Take what `checkpoint_state` gave, with what this rank wanted in the place of tensors."""
        from ember_ml.training import checkpointing

        checkpointing.load_plain_state(trainer, state)


class SingleDeviceStrategy(Strategy):
    """One process with one device: what a Trainer does by itself."""

    @property
    def communicator(self) -> Communicator:
        """One of a single rank."""
        if self._communicator is None:
            from ember_ml.backend import selection

            self._communicator = Communicator(World(), selection.current())
        return self._communicator


def part_sizes(rows: int, parts: int) -> list[int]:
    """How many rows each part has: the first ones one more, where they do not come out even."""
    return [rows // parts + (i < rows % parts) for i in range(parts)]
