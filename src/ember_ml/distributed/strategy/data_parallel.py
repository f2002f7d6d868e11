"""Data parallel training: every process has the model, and a part of each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, Final

from ember_ml import ops
from ember_ml.autodiff import gradients, runs, tape
from ember_ml.autodiff.compiling import draws
from ember_ml.distributed.communicator import Communicator
from ember_ml.distributed.strategy import beginning, buckets, exchange
from ember_ml.distributed.strategy.base import Strategy
from ember_ml.errors import DomainError
from ember_ml.nn.module import Module
from ember_ml.nn.modules.whole_batch import whole_batch
from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["DataParallelStrategy"]

_MB: Final = 1 << 20


class DataParallelStrategy(Strategy):
    """Every process has the whole model and a part of each batch; gradients are averaged.

    All processes run the same program; `ember launch -n 8 train.py` starts them. Batches are those
    of the whole job, so the result is that of one process: each takes its rows, and gradients are
    weighted by how many these are. A loss is to be a mean over samples.

    Gradients go in buckets of `bucket_mb` while the backward pass computes the others; the first
    one is of `first_bucket_mb`, so that sending begins early.

    >>> from ember_ml import nn, training
    >>> from ember_ml.distributed.strategy import DataParallelStrategy
    >>> strategy = DataParallelStrategy()
    >>> model = nn.Linear(2, 1)
    >>> trainer = training.Trainer(model, training.SGD(model, 0.1), "mse", strategy=strategy)
    >>> history = trainer.fit((ops.ones((4, 2)), ops.ones((4, 1))), verbose=0)
    >>> strategy.num_devices, [part.tolist() for part in strategy.distribute(ops.arange(3))]
    (1, [[0, 1, 2]])
    """

    def __init__(
        self,
        communicator: Communicator | None = None,
        *,
        bucket_mb: float = 25.0,
        first_bucket_mb: float = 1.0,
    ) -> None:
        for name, value in (("bucket_mb", bucket_mb), ("first_bucket_mb", first_bucket_mb)):
            if not value > 0:
                raise DomainError(f"{type(self).__name__} got {name}={value}; it is positive")
        super().__init__(communicator)
        self._bytes = int(first_bucket_mb * _MB), int(bucket_mb * _MB)
        self._buckets: buckets.Buckets | None = None

    # --- Before a run -----------------------------------------------------------------------

    def begin(self, trainer: Trainer) -> None:
        """Join; the ranks compare their models, and get the weights and the seeds of rank 0."""
        beginning.begin(self.communicator, trainer)

    def settle(self, loader: Any) -> None:
        """Compare what the ranks go through; the order is that of rank 0."""
        beginning.settle_loader(self.communicator, loader)

    def scope(self, counts: bool) -> AbstractContextManager[Any]:
        """A block in which this rank's rows are a part of a batch.

        Draws differ between ranks, and layers take the statistics of the whole batch. Rows that
        stand in for none do not count.
        """
        stack = ExitStack()
        if self.num_devices > 1:
            stack.enter_context(draws.lane(self.communicator.rank))
            stack.enter_context(whole_batch(_Whole(self.communicator, counts)))
        return stack

    # --- A step -----------------------------------------------------------------------------

    def value_and_grad(
        self, loss_of: Callable[[Any], Any], model: Module, share: Tensor | None
    ) -> tuple[Any, Any]:
        """`((scaled loss, (loss, outcome)), gradients)` over the whole batch; see Strategy."""
        if self.num_devices == 1 or share is None:
            return gradients.value_and_grad(loss_of, has_aux=True)(model)
        seen: list[Any] = []

        def part_of(model: Any) -> tuple[Tensor, Any]:
            scaled, aux = loss_of(model)
            seen[:] = aux
            return scaled * share.astype(scaled.dtype, copy=False), aux

        def numbers() -> list[Tensor]:
            loss, outcome = seen
            return _weighted([loss, *outcome.values.values()], share)

        if self._has_memory(share):
            totals: list[Tensor] = []
            if self._buckets is not None:
                self._buckets.forget()

            def pull(results: Any, seeds: Any, inputs: Any, *, create: bool = False) -> Any:
                if create:
                    return runs.pulled(results, seeds, inputs, create=True)
                found, totals[:] = self._reducer(inputs).pulled(results, seeds, inputs, numbers())
                return found

            (scaled, aux), grads = gradients.value_and_grad_by(pull, part_of, model)
        else:
            (scaled, aux), grads = gradients.value_and_grad(part_of, has_aux=True)(model)
            totals = []
        if not totals:
            seen[:] = aux  # an engine's own transform has other arrays within
            grads, totals = buckets.summed_tree(self.communicator, grads, numbers())
        values = dict(zip(aux[1].values, totals[1:], strict=True))
        return (scaled, (totals[0], aux[1]._replace(values=values))), grads

    def _has_memory(self, x: Tensor) -> bool:
        """Whether arrays are memory here, and no part of a trace."""
        backend = x._spec.backend
        return backend.name in buckets.FLAT and not backend.is_traced(x.native)

    def sum(self, tensors: Sequence[Tensor], numbers: Sequence[Tensor]) -> Any:
        """Gradients, as a list, and numbers: summed over ranks."""
        if self.num_devices == 1:
            return list(tensors), list(numbers)
        if self._has_memory(tensors[0]):
            return self._reducer(tensors).sum(tensors, numbers)
        found = buckets.summed(self.communicator, [*tensors, *numbers])
        return found[: len(tensors)], found[len(tensors) :]

    def is_surely_finite(self) -> bool:
        """By one sum over each bucket."""
        return self._buckets is not None and self._buckets.is_surely_finite()

    def _reducer(self, leaves: Sequence[Tensor]) -> buckets.Buckets:
        if self._buckets is None or not self._buckets.fits(leaves):
            if self._buckets is not None:
                self._buckets.release()
            self._buckets = buckets.Buckets(self.communicator, leaves, *self._bytes)
        return self._buckets

    # --- Agreement --------------------------------------------------------------------------

    def gather(self, value: Any) -> list[Any]:
        """A value of each rank, on every rank: JSON, with tensors in it as arrays of NumPy."""
        return exchange.gather(self.communicator, value)

    def start_agree(self, flags: Sequence[bool]) -> Callable[[], list[bool]]:
        """Begin to ask the other ranks; what is given waits, and tells what any rank says."""
        return beginning.asked(self.communicator, flags)


def _weighted(numbers: Sequence[Tensor], share: Tensor) -> list[Tensor]:
    with tape.no_grad():
        return [x.detach() * share.astype(x.dtype, copy=False) for x in numbers]


class _Whole:
    """The parts of a batch that the ranks have."""

    def __init__(self, communicator: Communicator, counts: bool) -> None:
        self._communicator = communicator
        self.counts = counts

    def gather(self, x: Tensor) -> Tensor:
        found = self._communicator._all_gather(x, 0)
        return ops.reshape(found, (self._communicator.world_size, *x.shape))
