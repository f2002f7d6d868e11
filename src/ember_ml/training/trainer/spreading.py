"""Steps of a run that is spread over processes, each of which has a part of every batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from ember_ml import ops, tree
from ember_ml.autodiff import tape
from ember_ml.autodiff.compiling import draws
from ember_ml.distributed.strategy.base import Strategy
from ember_ml.errors import DomainError
from ember_ml.tensor.core import Tensor
from ember_ml.training.data.loader import Part
from ember_ml.training.metrics import Metric
from ember_ml.training.trainer.objective import batch_size
from ember_ml.training.trainer.stepping import Stepper, detached

__all__ = ["SpreadStepper"]


class SpreadStepper(Stepper):
    """A Stepper whose batches are Parts: losses, gradients and metrics are of all of them."""

    def __init__(self, *args: Any, strategy: Strategy) -> None:
        super().__init__(*args)
        self.strategy = strategy
        # False while the rows of this rank stand in for none.
        self._counts = True
        self._shares: dict[float, Tensor] = {}
        for one in (*self.metrics, *self.others):
            _require_joinable(one)

    def _run(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        # Metrics leave stand-ins out, which a compiled step knows when it is traced.
        own = name if self._counts else f"{name} of a stand-in"
        with self.strategy.scope(self._counts):
            return super()._run(own, function, *args)

    def _draws(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        stack.enter_context(draws.lane(self.strategy.communicator.rank))
        stack.enter_context(super()._draws())
        return stack

    def raw(self, batch: Any) -> Any:
        """The rows of this rank."""
        return batch.batch

    def size_of(self, batch: Any) -> int:
        """How many samples a batch has on all ranks."""
        return int(batch.total)

    def _weight_of(self, batch: Any) -> float:
        return float(batch_size(batch)) if self._counts else 0.0

    def _share(self, part: Part, total: int) -> Tensor:
        """How much the rows of this rank are of so many samples."""
        value = part.rows / total
        found = self._shares.get(value)
        home = self.home
        if found is None or found._spec.backend is not home.backend or found.device != home.device:
            if len(self._shares) > 64:
                self._shares.clear()
            found = ops.asarray(value, dtype=home.dtype, device=home.device)
            self._shares[value] = found
        return found

    # --- Training -----------------------------------------------------------------------------

    def _once(self, batch: Part) -> Any:
        self._counts = batch.rows > 0
        return self._run("train", self._train, batch.batch, self._share(batch, batch.total))

    def _train(self, batch: Any, share: Any = None) -> tuple[Tensor, Tensor, Any]:
        before = self._kept()
        loss_of = self._loss_of(batch)
        (_, (loss, outcome)), grads = self.strategy.value_and_grad(loss_of, self.model, share)
        if self.precision is not None:
            grads = self.precision.unscale(grads)
        done = tree.map(detached, outcome)
        return self._update(loss.detach(), grads, before, [(done, batch)])

    def _prepared(self, loss: Tensor, grads: Any) -> tuple[Any, Tensor | None]:
        if self.is_compiled or not self.check_finite or not self.strategy.is_surely_finite():
            grads, fine = super()._prepared(loss, grads)
            return grads, None if fine is None else self.strategy.all_true(fine)
        if self.clip_norm is not None:
            grads = self._clipped(grads, self.clip_norm)
        return grads, ops.isfinite(loss)

    def _clipped(self, grads: Any, max_norm: float) -> Any:
        return self.strategy.clipped(grads, max_norm)

    def _measure(self, outcome: Any) -> None:
        if self._counts:
            super()._measure(outcome)

    def _measure_others(self, outcome: Any, batch: Part) -> None:
        if batch.rows:
            super()._measure_others(outcome, batch)

    # --- Several batches for one update: ranks speak once --------------------------------------

    def _accumulated(self, batches: Sequence[Part]) -> Any:
        samples = sum(part.total for part in batches)
        numbers: Any = None
        total: Any = None
        outcomes = []
        buffers = [x.copy() for x in self.model.buffers()] if self.check_finite else []
        for part in batches:
            self._counts = part.rows > 0
            share = self._share(part, samples)
            args = (part.batch, share) if total is None else (part.batch, share, numbers, total)
            numbers, total, outcome = self._run(
                "first" if total is None else "more", self._add, *args
            )
            outcomes.append(outcome)
        names = list(outcomes[0].values)
        counted = [
            outcome._replace(values={})
            for outcome, part in zip(outcomes, batches, strict=True)
            if part.rows
        ]
        self._counts = True
        loss, fine, found = self._run("apply", self._apply, numbers, total, counted)
        if not bool(fine):
            with tape.no_grad():
                for x, value in zip(self.model.buffers(), buffers, strict=False):
                    x[...] = value
        # What is left is of the whole update, and counts once.
        values = dict(zip(names, found, strict=True))
        outcomes = [one._replace(values=values) for one in outcomes]
        return loss, fine, outcomes, [1.0] + [0.0] * (len(outcomes) - 1)

    def _add(
        self, batch: Any, share: Tensor, loss: Any = None, total: Any = None
    ) -> tuple[Any, list[Tensor], Any]:
        """Gradients and numbers of this rank, by its share of the samples, added to those before.

        The loss is weighted before it is differentiated: gradients of statistics over ranks mix
        what comes from all of them.
        """
        loss_of = self._loss_of(batch)

        def weighted(model: Any) -> tuple[Tensor, Any]:
            scaled, aux = loss_of(model)
            return scaled * share.astype(scaled.dtype, copy=False), aux

        (_, (own, outcome)), grads = self.strategy.part_value_and_grad(weighted, self.model)
        if self.precision is not None:
            grads = self.precision.unscale(grads)
        with tape.no_grad():
            numbers = [
                x.detach() * share.astype(x.dtype, copy=False)
                for x in (own, *outcome.values.values())
            ]
            leaves = tree.leaves(grads)
            if total is not None:
                numbers = [a + b for a, b in zip(loss, numbers, strict=True)]
                leaves = [a + b for a, b in zip(total, leaves, strict=True)]
        return numbers, leaves, tree.map(detached, outcome)

    def _apply(self, loss: Any, total: list[Tensor], outcomes: list[Any]) -> Any:
        total, numbers = self.strategy.sum(total, loss)
        grads = tree.unflatten(tree.structure(self.model), total)
        before = self._kept()
        done = [(one, None) for one in outcomes]
        whole, fine, _ = self._update(numbers[0], grads, before, done)
        return whole, fine, numbers[1:]

    # --- Metrics --------------------------------------------------------------------------------

    def _folded(self) -> list[Metric]:
        """All metrics, with what every rank has gathered, on every rank."""
        every = [*self.metrics, *self.others, self.losses, *self.extra.values()]
        states = self.strategy.gather([one.state_dict() for one in every])
        for place, one in enumerate(every):
            one.load_state_dict(states[0][place])
            for other in states[1:]:
                one.join(other[place])
        return every

    def fold(self) -> None:
        """Give rank 0 what all ranks have gathered; the others begin anew."""
        self._left_to_first(self._folded())

    def _left_to_first(self, every: Sequence[Metric]) -> None:
        if not self.strategy.is_main:
            for one in every:
                one.reset()

    def resumed(self) -> None:
        """What a checkpoint had is of all ranks, and rank 0 keeps it."""
        self._left_to_first([*self.metrics, *self.others])

    def measured(self) -> dict[str, Any]:
        """The metrics so far, of all ranks."""
        every = self._folded()
        found = super().measured()
        self._left_to_first(every)
        return found

    def measured_here(self) -> dict[str, Any]:
        """The metrics of this rank's part, without asking the others."""
        return super().measured()

    def evaluated(self) -> dict[str, Any]:
        """The mean loss and the metrics, of all ranks."""
        every = self._folded()
        found = {"loss": self.losses.compute()}
        found.update({name: one.compute() for name, one in self.extra.items()})
        found.update(super().measured())
        self._left_to_first(every)
        return found

    # --- Evaluation -----------------------------------------------------------------------------

    def evaluate(self, batch: Part) -> None:
        """Add a part of a batch to the metrics and to the mean loss."""
        self._counts = batch.rows > 0
        self._evaluated(batch.batch, batch, float(batch.rows))

    def _evaluate(self, batch: Any) -> Any:
        evaluate = super()._evaluate
        return self.strategy.within(self.model, lambda: evaluate(batch))

    def _predict(self, *inputs: Any) -> Any:
        predict = super()._predict
        return self.strategy.within(self.model, lambda: predict(*inputs))

    def predict(self, inputs: tuple[Any, ...], given: Any = None) -> Any:
        """What the model says of inputs."""
        self._counts = given.rows > 0
        return super().predict(inputs)


def _require_joinable(metric: Metric) -> None:
    """Raise where a metric keeps what only its own `compute` knows of."""
    kind = type(metric)
    if kind.compute is not Metric.compute and kind.join is Metric.join:
        raise DomainError(
            f"the metric '{metric.name}' has a compute of its own; with a strategy, it also needs "
            f"join(state), which adds the state_dict of another rank's to its own"
        )
