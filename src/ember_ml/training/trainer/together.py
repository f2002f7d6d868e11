"""What a Trainer and its strategy say to each other: one process among others, or alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ember_ml import ops, tree
from ember_ml.errors import DomainError, DTypeError, NaNLossError
from ember_ml.training.data.loader import Part, part_of
from ember_ml.training.trainer.objective import batch_size
from ember_ml.training.trainer.stepping import Stepper

if TYPE_CHECKING:
    from ember_ml.distributed.strategy.base import Strategy
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["Together", "is_restarted", "stepper"]


def is_restarted() -> bool:
    """Whether a launcher has started this process again after a failure."""
    return os.environ.get("EMBER_ATTEMPT", "0") not in ("", "0")


def stepper(strategy: Strategy | None, *args: Any) -> Stepper:
    """The steps of a run by a strategy."""
    if strategy is None:
        return Stepper(*args)
    from ember_ml.distributed.strategy.base import SingleDeviceStrategy, Strategy
    from ember_ml.training.trainer.spreading import SpreadStepper

    if not isinstance(strategy, Strategy):
        raise DTypeError(
            f"Trainer takes a strategy such as em.distributed.strategy.DataParallelStrategy(), "
            f"not {type(strategy).__name__}"
        )
    if isinstance(strategy, SingleDeviceStrategy):
        return Stepper(*args)
    return SpreadStepper(*args, strategy=strategy)


class Together:
    """The ranks of a run, of which all go through the same steps and leave them together."""

    def __init__(self, strategy: Strategy | None) -> None:
        self._strategy = strategy
        self.is_spread = False
        if strategy is not None:
            from ember_ml.distributed.strategy.base import SingleDeviceStrategy

            self.is_spread = not isinstance(strategy, SingleDeviceStrategy)
        self._has_begun = False
        # Whether Ctrl-C came, on any rank.
        self.interrupted = False
        self._note: Any = None

    @property
    def is_main(self) -> bool:
        """True in the process that prints and writes."""
        return self._strategy is None or self._strategy.is_main

    # --- Beginning ----------------------------------------------------------------------------

    def begin(self, trainer: Trainer, *loaders: Any) -> None:
        """Let all ranks have one model, one order of the data and one stream of random numbers."""
        self.interrupted = False
        if self._strategy is None:
            return
        self._strategy.begin(trainer)
        self._has_begun = True
        self._note = _noting()
        for one in loaders:
            if one is not None:
                self._strategy.settle(one)

    def enter(self, trainer: Trainer) -> None:
        """Training begins; ranks may keep parts of the model from now on."""
        if self._strategy is not None:
            self._strategy.enter(trainer)

    def leave(self, trainer: Trainer) -> None:
        """Training has ended; all ranks have the whole model."""
        if self._strategy is not None:
            self._strategy.leave(trainer)

    def join(self, trainer: Trainer, loader: Any) -> None:
        """The same for an evaluation, where no run has begun."""
        if self._strategy is None:
            return
        if not self._has_begun:
            self.begin(trainer)
        self._strategy.settle(loader)

    def first(self, value: Any) -> Any:
        """What rank 0 says."""
        return value if not self.is_spread or self._strategy is None else self._gather(value)[0]

    def _gather(self, value: Any) -> list[Any]:
        assert self._strategy is not None
        return self._strategy.gather(value)

    # --- Batches --------------------------------------------------------------------------------

    def batches(self, loader: Any) -> Iterator[Any]:
        """The batches of a loader, or the parts of them that this rank has."""
        strategy = self._strategy
        if strategy is None or not self.is_spread:
            return iter(loader)
        from ember_ml.distributed.strategy.base import Strategy

        rank, count = strategy.communicator.rank, strategy.num_devices
        if type(strategy).distribute is not Strategy.distribute:
            return _distributed(loader, strategy, rank)
        parts: Iterator[Any] = loader.parts(rank, count)
        return parts if loader.samples is not None or count == 1 else _agreed(parts, strategy)

    # --- Steps ----------------------------------------------------------------------------------

    def ask(self, stop: str, interrupted: bool) -> Callable[[], str]:
        """Begin to ask whether the run ends here: `stop` says why, or is empty.

        What is given waits for the answer: the reason of the first rank that has one.
        """
        strategy = self._strategy
        if strategy is None or not self.is_spread:
            self.interrupted = interrupted
            return lambda: stop
        asked = strategy.start_agree([bool(stop), interrupted])

        def wait() -> str:
            stops, self.interrupted = asked()
            return str(next(one for one in strategy.gather(stop) if one)) if stops else ""

        return wait

    def note(self, step: int) -> None:
        """Tell the launcher how far this process is."""
        if self._note is not None:
            self._note(step=step)

    def worst(self, error: NaNLossError) -> NaNLossError:
        """The error of the first rank that has found where a value is not finite."""
        if not self.is_spread or self._strategy is None:
            return error
        own = {"text": str(error), "batch": error.batch, "where": error.where}
        found = self._gather(own)
        rank = next((rank for rank, one in enumerate(found) if one["where"]), 0)
        one = found[rank]
        text = one["text"] if len(found) == 1 else f"{one['text']}\nFound on rank {rank}."
        return NaNLossError(text, step=error.step, batch=one["batch"], where=one["where"])

    # --- Predictions ----------------------------------------------------------------------------

    def predicted(self, found: list[Any], totals: Sequence[int]) -> Any:
        """What all ranks say of batches of so many rows, in the order of the rows."""
        structure = tree.structure(found[0])
        columns = [list(column) for column in zip(*map(tree.leaves, found), strict=True)]
        if not self.is_spread or self._strategy is None or self._strategy.num_devices == 1:
            return tree.unflatten(structure, [ops.concat(c, axis=0) for c in columns])
        rank, count = self._strategy.communicator.rank, self._strategy.num_devices
        sizes = [[part_of(total, one, count) for total in totals] for one in range(count)]
        kept = [
            [x[: stop - start] for x, (start, stop) in zip(column, sizes[rank], strict=True)]
            for column in columns
        ]
        ranks = self._gather([ops.concat(c, axis=0) for c in kept])
        ends = [np.cumsum([stop - start for start, stop in one])[:-1] for one in sizes]
        leaves = []
        for place in range(len(columns)):
            parts = [np.split(ranks[one][place], ends[one]) for one in range(count)]
            rows = [parts[one][batch] for batch in range(len(totals)) for one in range(count)]
            leaves.append(ops.asarray(np.concatenate(rows)))
        return tree.unflatten(structure, leaves)


def _distributed(loader: Any, strategy: Strategy, rank: int) -> Iterator[Part]:
    """Parts as a strategy of the user's own makes them."""
    for batch in loader:
        parts = strategy.distribute(batch)
        own, total = parts[rank], batch_size(batch)
        rows = batch_size(own)
        yield Part(own if rows else parts[0], rows, total)


def _agreed(parts: Iterator[Any], strategy: Strategy) -> Iterator[Any]:
    """Parts of data whose length nobody knows: all ranks end at the same batch, or fail."""
    try:
        while True:
            part = next(parts, None)
            ended, going = strategy.start_agree([part is None, part is not None])()
            if ended and going:
                raise DomainError(
                    "the ranks of a run must have the same data: an iterable has ended on some of "
                    "them, and has more samples on others"
                )
            if part is None:
                return
            yield part
    finally:
        parts.close()  # type: ignore[attr-defined]  # a loader's batches have it


def _noting() -> Any:
    """What tells the launcher of steps, where there is one."""
    try:
        from ember_ml.distributed.launching import beats  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        return None
    return beats.note
