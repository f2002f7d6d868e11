"""One step of training and one of evaluation, compiled where that is quicker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from ember_ml import dtypes, ops, tree
from ember_ml.autodiff import gradients, jitting, tape
from ember_ml.autodiff.compiling import draws
from ember_ml.errors import DomainError
from ember_ml.nn.module import Module
from ember_ml.ops.random.generator import Generator
from ember_ml.tensor.core import Tensor
from ember_ml.training.clipping import clip_grad_norm
from ember_ml.training.computing import LATER, compute_now
from ember_ml.training.metrics import Mean, Metric
from ember_ml.training.trainer.objective import Objective, batch_size

__all__ = ["Done", "Stepper", "detached"]

# Engines whose steps are compiled unless it is said otherwise. JAX runs an op at a time five
# times slower, MLX three times; torch's graph saves less than what it costs to call it, and NumPy
# has no compiler.
_COMPILED: Final = ("jax", "mlx")
# A loss that is scaled by less than this has gradients that are not finite for another reason.
_LEAST_FACTOR: Final = 1e-4


class Done(NamedTuple):
    """What came of a step."""

    loss: float
    is_finite: bool
    values: dict[str, float]
    # True where gradients were not finite in 16 bits: no update was made, and the scale is lower.
    is_skipped: bool = False


class Stepper:
    """Steps of one model with one optimizer: `train(batches)` and `evaluate(batch)`."""

    def __init__(
        self,
        model: Module,
        optimizer: Any,
        objective: Objective,
        metrics: Sequence[Metric],
        jit: bool | str,
        clip_norm: float | None,
        precision: Any,
        check_finite: bool,
    ) -> None:
        if jit not in (True, False, "auto"):
            raise DomainError(f"Trainer got jit={jit!r}; it is True, False or 'auto'")
        self.model = model
        self.optimizer = optimizer
        self.objective = objective
        self.clip_norm = clip_norm
        self.precision = precision
        self.scaler = None if precision is None else precision.scaler
        # A scaler of losses leaves bad updates out, and has to know of them.
        self.check_finite = check_finite or self.scaler is not None
        self.jit = jit
        self.metrics = [one for one in metrics if one.traceable]
        self.others = [one for one in metrics if not one.traceable]
        self.losses = Mean("loss")
        self.extra: dict[str, Mean] = {}
        self._compiled: dict[str, Any] = {}
        self._generators = self._found_generators()

    # --- Where it runs ------------------------------------------------------------------------

    @property
    def home(self) -> Any:
        """The backend and device of the model, as the spec of its first tensor."""
        for x in self.model.parameters():
            return x._spec
        raise DomainError("Trainer got a model without parameters")

    @property
    def is_compiled(self) -> bool:
        """Whether steps are compiled."""
        return self.home.backend.name in _COMPILED if self.jit == "auto" else bool(self.jit)

    @property
    def traces(self) -> int:
        """How often the training step has been traced; 0 where it is not compiled."""
        return sum(
            one.traces for name, one in self._compiled.items() if not name.startswith("evaluate")
        )

    def _run(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a step, compiled or not; its draws are the same either way."""
        if not self.is_compiled:
            with self._draws():
                return function(*args)
        found = self._compiled.get(name)
        if found is None:
            state = [self.model, *self.metrics, self.losses]
            if not name.startswith("evaluate"):
                state += [self.optimizer]
                if self.scaler is not None:
                    state += [self.scaler._factor]
            found = self._compiled[name] = jitting.jit(function, state=state)
        return found(*args)

    def _draws(self) -> AbstractContextManager[None]:
        """A scope whose draws are those of a compiled function."""
        spec = self.home.with_dtype(dtypes.uint32)
        return draws.scope(draws.lazy_streams(spec, self._generators))

    # --- Training -----------------------------------------------------------------------------

    def train(self, batches: Sequence[Any]) -> Done:
        """One update of the model, by the mean gradient of some batches."""
        if len(batches) == 1:
            loss, fine, outcome = self._once(batches[0])
            outcomes = [outcome]
            weights = [1.0]
        else:
            loss, fine, outcomes, weights = self._accumulated(batches)
        compute_now(self._waiting())
        is_finite = bool(fine)
        values: dict[str, float] = {}
        if is_finite:
            for outcome, batch in zip(outcomes, batches, strict=True):
                self._measure_others(outcome, batch)
            for name in outcomes[0].values:
                values[name] = sum(
                    weight * float(one.values[name])
                    for weight, one in zip(weights, outcomes, strict=True)
                )
        found = float(loss)
        if self.scaler is None:
            return Done(found, is_finite, values)
        self.scaler.adjust(is_finite)
        is_skipped = not is_finite and math.isfinite(found) and self.scaler.factor > _LEAST_FACTOR
        return Done(found, is_finite or is_skipped, values, is_skipped)

    def _once(self, batch: Any) -> Any:
        return self._run("train", self._train, batch)

    def _train(self, batch: Any) -> tuple[Tensor, Tensor, Any]:
        before = self._kept()
        loss, outcome, grads = self._gradients(batch)
        return self._update(loss, grads, before, [(outcome, batch)])

    def _update(
        self, loss: Tensor, grads: Any, before: list[Tensor], done: list[tuple[Any, Any]]
    ) -> tuple[Tensor, Tensor, Any]:
        """Write the update, unless something is not finite; then all is as before."""
        with tape.no_grad():
            grads, fine = self._prepared(loss, grads)
            if not self.is_compiled:
                if fine is not None and not bool(fine):
                    self._restore(before)
                    return loss, fine, done[0][0]
                self.optimizer.update(self.model, grads)
            else:
                self.optimizer.update(self.model, grads)
                if fine is not None:
                    self._restore(before, unless=fine)
            for outcome, _ in done:
                self._measure(outcome)
        left = self._left(done[0][0]) if done else None
        return loss, ops.isfinite(loss) if fine is None else fine, left

    def _loss_of(self, batch: Any) -> Callable[[Any], tuple[Tensor, Any]]:
        def loss_of(model: Any) -> tuple[Tensor, Any]:
            loss, outcome = self.objective(model, batch, self.precision)
            scaled = loss if self.precision is None else self.precision.scale(loss)
            return scaled, (loss, outcome)

        return loss_of

    def _gradients(self, batch: Any) -> tuple[Tensor, Any, Any]:
        found = gradients.value_and_grad(self._loss_of(batch), has_aux=True)(self.model)
        (_, (loss, outcome)), grads = found
        if self.precision is not None:
            grads = self.precision.unscale(grads)
        return loss.detach(), tree.map(detached, outcome), grads

    def _prepared(self, loss: Tensor, grads: Any) -> tuple[Any, Tensor | None]:
        """Gradients clipped, and whether they and the loss are finite."""
        fine: Tensor | None = None
        if self.check_finite:
            fine = ops.isfinite(loss)
            for g in tree.leaves(grads):
                fine = ops.logical_and(fine, ops.all(ops.isfinite(g)))
        if self.clip_norm is not None:
            grads = self._clipped(grads, self.clip_norm)
        return grads, fine

    def _clipped(self, grads: Any, max_norm: float) -> Any:
        return clip_grad_norm(grads, max_norm)[0]

    # --- Several batches for one update -----------------------------------------------------

    def _accumulated(self, batches: Sequence[Any]) -> Any:
        sizes = [batch_size(batch) for batch in batches]
        weights = [size / sum(sizes) for size in sizes]
        total: Any = None
        loss: Tensor | None = None
        outcomes = []
        # The passes write to buffers before it is known whether all is well.
        buffers = [x.copy() for x in self.model.buffers()] if self.check_finite else []
        for batch, weight in zip(batches, weights, strict=True):
            share = ops.asarray(weight, dtype=self.home.dtype, device=self.home.device)
            args = (batch, share) if total is None else (batch, share, loss, total)
            name = "first" if total is None else "more"
            loss, total, outcome = self._run(name, self._add, *args)
            outcomes.append(outcome)
        named = [outcome._replace(values={}) for outcome in outcomes]
        loss, fine = self._run("apply", self._apply, loss, total, named)
        if not bool(fine):
            _write(self.model.buffers(), buffers)
        return loss, fine, outcomes, weights

    def _add(
        self, batch: Any, share: Tensor, loss: Tensor | None = None, total: Any = None
    ) -> tuple[Tensor, list[Tensor], Any]:
        """The gradients of a batch, by its share of the samples, added to those before."""
        own, outcome, grads = self._gradients(batch)
        with tape.no_grad():
            part = own * share.astype(own.dtype)
            scaled = [g * share.astype(g.dtype) for g in tree.leaves(grads)]
            if total is not None and loss is not None:
                part = loss + part
                scaled = [a + b for a, b in zip(total, scaled, strict=True)]
        return part, scaled, outcome

    def _apply(self, loss: Tensor, total: list[Tensor], outcomes: list[Any]) -> Any:
        grads = tree.unflatten(tree.structure(self.model), total)
        before = self._kept()
        loss, fine, _ = self._update(loss, grads, before, [(one, None) for one in outcomes])
        return loss, fine

    # --- What a bad step leaves as it was ---------------------------------------------------

    def _guarded(self) -> list[Tensor]:
        """All that a step writes to: parameters, buffers, and what the optimizer remembers."""
        found = [*self.model.trainable_parameters(), *self.model.buffers()]
        state: Any = getattr(self.optimizer, "__jit_state__", dict)()
        seen = {id(x) for x in found}
        for x in tree.leaves(state):
            if isinstance(x, Tensor) and id(x) not in seen:
                seen.add(id(x))
                found.append(x)
        return found

    def _kept(self) -> list[Tensor]:
        if not self.check_finite:
            return []
        # Without a compiler, the update is not made at all; only buffers are written before.
        kept = self._guarded() if self.is_compiled else list(self.model.buffers())
        return [x.detach().copy() for x in kept]

    def _restore(self, before: list[Tensor], unless: Tensor | None = None) -> None:
        """Write the values of before, or where a truth value is traced, let it decide."""
        if unless is None:
            _write(self.model.buffers(), before)
            return
        for x, old in zip(self._guarded(), before, strict=False):
            x[...] = ops.where(unless, x.detach(), old)

    # --- Measuring --------------------------------------------------------------------------

    def _measure(self, outcome: Any) -> None:
        for one in self.metrics:
            _require_prediction(one, outcome)
            one.update(outcome.prediction, outcome.target)

    def _measure_others(self, outcome: Any, batch: Any) -> None:
        for one in self.others:
            _require_prediction(one, outcome)
            one.update(outcome.prediction, outcome.target)

    def _left(self, outcome: Any) -> Any:
        """What is needed outside of a step: a compiled one computes nothing else."""
        return outcome if self.others else outcome._replace(prediction=None, target=None)

    def _waiting(self) -> list[Tensor]:
        """Sums and statistics that no later step reads, where they are not computed yet."""
        if self.home.backend.name not in LATER:
            return []
        found = [x for one in (*self.metrics, self.losses) for x in one.state_dict().values()]
        return [*found, *self.model.buffers()]

    def reset(self) -> None:
        """Let metrics begin anew, beside the model."""
        from ember_ml.backend.selection import use_backend

        if self.scaler is not None:
            home = self.home
            if (self.scaler._factor.backend, self.scaler._factor.device) != (
                home.backend.name,
                home.device,
            ):
                self.scaler.to(home.backend.name, home.device)
        with use_backend(self.home.backend.name):
            for one in (*self.metrics, *self.others, self.losses):
                one.reset()
            self.extra = {}
        self._generators = self._found_generators()

    def _found_generators(self) -> list[Generator]:
        """Generators of the model's own, which compiled functions have as state."""
        found = [value for one in self.model.modules() for value in vars(one).values()]
        return [value for value in found if isinstance(value, Generator)]

    def measured(self) -> dict[str, Any]:
        """The metrics so far."""
        return {one.name: one.compute() for one in (*self.metrics, *self.others)}

    # Where a run is spread over processes, these differ: see SpreadStepper.

    def measured_here(self) -> dict[str, Any]:
        """The metrics so far, without asking other processes."""
        return self.measured()

    def fold(self) -> None:
        """Let metrics hold all that was gathered, as a checkpoint needs it."""

    def resumed(self) -> None:
        """Metrics have been loaded from a checkpoint."""

    def raw(self, batch: Any) -> Any:
        """What the model gets of a batch."""
        return batch

    def size_of(self, batch: Any) -> int:
        """How many samples a batch has."""
        return batch_size(batch)

    def _weight_of(self, batch: Any) -> float:
        return float(batch_size(batch))

    # --- Evaluation -------------------------------------------------------------------------

    def evaluate(self, batch: Any) -> None:
        """Add a batch to the metrics and to the mean loss."""
        self._evaluated(batch, batch, float(batch_size(batch)))

    def _evaluated(self, batch: Any, given: Any, weight: float) -> None:
        outcome = self._run("evaluate", self._evaluate, batch)
        self._measure_others(outcome, given)
        for name, value in outcome.values.items():
            self.extra.setdefault(name, Mean(name)).update(value, weights=weight)
        compute_now(self._waiting())

    def evaluated(self) -> dict[str, Any]:
        """The mean loss and the metrics of all batches that were added."""
        found = {"loss": self.losses.compute()}
        found.update({name: one.compute() for name, one in self.extra.items()})
        found.update(self.measured())
        return found

    def _evaluate(self, batch: Any) -> Any:
        with tape.no_grad():
            loss, outcome = self.objective(self.model, batch, self.precision)
            self.losses.update(loss, weights=self._weight_of(batch))
            self._measure(outcome)
        return self._left(outcome)

    def predict(self, inputs: tuple[Any, ...], given: Any = None) -> Any:
        """What the model says of inputs, of a batch."""
        return self._run("evaluate predict", self._predict, *inputs)

    def _predict(self, *inputs: Any) -> Any:
        with tape.no_grad():
            if self.precision is None:
                return self.model(*inputs)
            with self.precision.casting(self.model) as half:
                return half(*self.precision.cast(inputs))


def _write(tensors: Iterable[Tensor], values: list[Tensor]) -> None:
    with tape.no_grad():
        for x, value in zip(tensors, values, strict=False):
            x[...] = value


def detached(leaf: Any) -> Any:
    """A leaf of a tree without its record."""
    return leaf.detach() if isinstance(leaf, Tensor) and leaf.requires_grad else leaf


def _require_prediction(metric: Metric, outcome: Any) -> None:
    if outcome.prediction is None:
        raise DomainError(
            f"the metric '{metric.name}' needs predictions and targets; let step(model, batch) "
            f"give (loss, prediction, target)"
        )
