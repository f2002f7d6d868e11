"""Trainer: a model, an optimizer and a loss, and the loop that brings them together."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ember_ml.backend.selection import use_backend
from ember_ml.errors import DomainError, DTypeError
from ember_ml.nn.module import Module, require_built
from ember_ml.ops import random
from ember_ml.training import checkpointing
from ember_ml.training.callbacks.base import Callback
from ember_ml.training.callbacks.checkpoint import Checkpoint, latest
from ember_ml.training.callbacks.progress import ProgressBar
from ember_ml.training.data.loader import DataLoader
from ember_ml.training.history import History
from ember_ml.training.metrics import Metric, get_metric
from ember_ml.training.trainer import arguments, diagnosis, together
from ember_ml.training.trainer.interrupts import Interrupts
from ember_ml.training.trainer.objective import Loss, Objective, Step
from ember_ml.training.trainer.stepping import Done, Stepper

if TYPE_CHECKING:
    from ember_ml.distributed.strategy.base import Strategy

__all__ = ["Trainer"]


class Trainer:
    """Trains a model: `Trainer(model, optimizer, loss).fit(data, epochs)` gives a History.

    `loss` is the name of one in `ops.losses`, or a function of a prediction and a target; batches
    are then (inputs, ..., target). For anything else, `step(model, batch)` gives the loss, or
    (loss, prediction, target), or (loss, {name: number}).

    `metrics` are names, Metrics, or functions. `clip_norm` bounds the norm of the gradients,
    `accumulate` takes that many batches for one update, `precision` is "float16", "bfloat16" or a
    MixedPrecision. `jit="auto"` compiles the step on JAX and
    MLX; random numbers are the same either way. `seed` is set when `fit` begins. With
    `check_finite`, a loss or gradient that is not finite raises NaNLossError, which says where it
    arose, and the weights stay as they were. `strategy` spreads the run over processes: see
    `em.distributed.strategy`.

    >>> from ember_ml import nn, training
    >>> ops.random.set_seed(0)
    >>> x = ops.random.normal((64, 3))
    >>> y = x @ ops.asarray([[1.0], [-2.0], [0.5]])
    >>> model = nn.Linear(3, 1)
    >>> trainer = training.Trainer(model, training.SGD(model, lr=0.1), "mse", metrics=["r2"])
    >>> history = trainer.fit((x, y), epochs=20, batch_size=16, verbose=0)
    >>> history["loss"][-1] < 1e-2 * history["loss"][0], history["r2"][-1] > 0.99
    (True, True)
    """

    def __init__(
        self,
        model: Module,
        optimizer: Any,
        loss: str | Loss | None = None,
        *,
        metrics: Sequence[Any] = (),
        callbacks: Sequence[Callback] = (),
        step: Step | None = None,
        jit: bool | str = "auto",
        clip_norm: float | None = None,
        accumulate: int = 1,
        precision: Any = None,
        seed: int | None = None,
        check_finite: bool = True,
        strategy: Strategy | None = None,
    ) -> None:
        if not isinstance(model, Module):
            raise DTypeError(f"Trainer takes a Module, not {type(model).__name__}")
        if accumulate < 1:
            raise DomainError(f"Trainer got accumulate={accumulate}; it is at least 1")
        if clip_norm is not None and not clip_norm > 0:
            raise DomainError(f"Trainer got clip_norm={clip_norm}; it is greater than 0")
        self.model = model
        self.optimizer = arguments.made(optimizer, model)
        self.objective = Objective(loss, step)
        self.metrics: list[Metric] = [get_metric(one) for one in arguments.several(metrics)]
        arguments.require_names(self.metrics)
        self.given_callbacks = list(callbacks)
        self.callbacks: list[Callback] = list(callbacks)
        self.accumulate = accumulate
        if isinstance(precision, str):
            from ember_ml.training.precision import MixedPrecision

            precision = MixedPrecision(precision)
        self.precision = precision
        self.seed = seed
        self.strategy = strategy
        self.stepper: Stepper = together.stepper(
            strategy,
            model,
            self.optimizer,
            self.objective,
            self.metrics,
            jit,
            clip_norm,
            precision,
            check_finite,
        )
        self._together = together.Together(strategy)
        # The batches of the next step, where they were fetched while the ranks spoke.
        self._ahead: tuple[list[Any] | None] | None = None
        self.history = History()
        self.loader: Any = None
        # How far a run is: numbers from 1 on, of the epoch and step that run or ran last.
        self.epoch = 0
        self.epochs = 0
        self.epochs_done = 0
        self.step = 0
        self.step_in_epoch = 0
        self.resumed = False
        self.interrupted = False
        # Sums of the epoch that runs.
        self._in_epoch = False
        self._batch = self._samples = 0
        self._loss = 0.0
        self._values: dict[str, float] = {}
        self._stop = ""

    # --- Training -------------------------------------------------------------------------------

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        *,
        validation: Any = None,
        batch_size: int = 32,
        shuffle: bool = True,
        resume: str | os.PathLike[str] | bool | None = None,
        verbose: int = 1,
    ) -> History:
        """Train for some epochs; gives what was measured.

        `data` is a DataLoader, or what it takes: then batches of `batch_size` are made of it, and
        it is shuffled where that can be. `validation` is evaluated after each epoch. `resume` is
        the path of a checkpoint, or of a directory with some; True means that of the Checkpoint
        among the callbacks, and a new run where it has none yet. `epochs` counts those before.

        Ctrl-C ends the run after the step, and a Checkpoint saves it; a second one ends it at once.
        """
        if epochs < 0:
            raise DomainError(f"Trainer.fit got epochs={epochs}; it is not negative")
        spec = self.stepper.home
        require_built(self.model, "Trainer.fit")
        with use_backend(spec.backend.name):
            if self.seed is not None:
                random.set_seed(self.seed)
            self.loader = self._loader(data, batch_size, shuffle)
            held = None if validation is None else self._loader(validation, batch_size, False)
            self._together.begin(self, self.loader, held)
            self._together.enter(self)
            self._begin(epochs, verbose)
            path = self._resume_path(resume)
            if path is not None:
                checkpointing.restore(self, path)
                self.stepper.resumed()
                self.resumed = True
            self._fit(held)
            self._together.leave(self)
        return self.history

    def _begin(self, epochs: int, verbose: int) -> None:
        self.epochs, self.epoch, self.epochs_done, self.step = epochs, 0, 0, 0
        self.resumed = self.interrupted = False
        self._stop = ""
        self.history = History()
        self.callbacks = list(self.given_callbacks)
        has_bar = any(isinstance(one, ProgressBar) for one in self.callbacks)
        if verbose and not has_bar:
            self.callbacks.append(ProgressBar())
        elif not verbose:
            self.callbacks = [one for one in self.callbacks if not isinstance(one, ProgressBar)]
        if not self._together.is_main:
            self.callbacks = [one for one in self.callbacks if not one.main_only]
        self._begin_epoch()
        self.stepper.reset()

    def _fit(self, held: Any) -> None:
        is_training = self.model.training
        try:
            with Interrupts() as interrupts:
                self._call("on_fit_begin")
                while self.epochs_done < self.epochs and not self._stop:
                    self._run_epoch(held, interrupts)
                    if self._is_ending(interrupts) and self._together.interrupted:
                        self._interrupt()
        finally:
            self.model.train(is_training)
            self._call("on_fit_end")
        self.history.stopped = self._stop
        if self.interrupted and self._together.is_main:
            self._tell_interrupt()

    def _run_epoch(self, held: Any, interrupts: Interrupts) -> None:
        # A resumed run may be in the middle of an epoch, which then goes on.
        if not self._in_epoch:
            self._begin_epoch()
            self.stepper.reset()
            self._in_epoch = True
        self.epoch = self.epochs_done + 1
        self.model.train()
        self._call("on_epoch_begin")
        began, samples = time.perf_counter(), self._samples
        batches = self._together.batches(self.loader)
        groups = arguments.grouped(batches, self.accumulate)
        is_ending = False
        try:
            while not is_ending and (group := self._next_group(groups)) is not None:
                self._run_step(group)
                is_ending = self._is_ending(interrupts, groups)
        finally:
            self._ahead = None
            close = getattr(batches, "close", None)
            if close is not None:
                close()
        if not is_ending:  # it ends as one, whatever comes from now on
            seconds = time.perf_counter() - began
            self._end_epoch(held, seconds, self._samples - samples)

    def _next_group(self, groups: Iterator[list[Any]]) -> list[Any] | None:
        if self._ahead is None:
            return next(groups, None)
        (group,), self._ahead = self._ahead, None
        return group

    def _is_ending(self, interrupts: Interrupts, groups: Iterator[list[Any]] | None = None) -> bool:
        """Whether the run was stopped or interrupted, on any rank; the same on all."""
        wait = self._together.ask(self._stop, interrupts.came)
        place = None
        if groups is not None and self._together.is_spread:
            # The next batch comes while the ranks ask each other; it is given back if need be.
            place = self.loader.place()
            self._ahead = (next(groups, None),)
        self._stop = wait()
        is_ending = self._together.interrupted or bool(self._stop)
        if is_ending and place is not None:
            self.loader.go_back(place)
        return is_ending

    def _run_step(self, group: list[Any]) -> None:
        self._call("on_step_begin")
        lr = float(getattr(self.optimizer, "lr", 0.0))
        before = random.get_state()
        done = self.stepper.train(group)
        self.step += 1
        self.step_in_epoch += 1
        self._batch += len(group)
        if not done.is_finite and self.stepper.check_finite:
            raise self._diagnosed(group, done, lr, before)
        size = sum(self.stepper.size_of(one) for one in group)
        self._samples += size
        self._loss += done.loss * size
        for name, value in done.values.items():
            self._values[name] = self._values.get(name, 0.0) + value * size
        logs = {"loss": done.loss, **done.values, "lr": lr}
        if done.is_skipped:
            logs["skipped"] = 1.0
        self.history.add_step({"step": self.step, "epoch": self.epoch, **logs})
        self._together.note(self.step)
        self._call("on_step_end", logs)

    def _end_epoch(self, held: Any, seconds: float, new: int) -> None:
        count = max(self._samples, 1)
        logs: dict[str, Any] = {"loss": self._loss / count if self._samples else float("nan")}
        logs.update({name: value / count for name, value in self._values.items()})
        logs.update(self.stepper.measured())
        if held is not None:
            self._call("on_validation_begin")
            # The metrics of training are kept in the record; those of validation begin anew.
            found = {f"val_{name}": value for name, value in self._evaluated(held).items()}
            logs.update(found)
            self._call("on_validation_end", found)
        logs["lr"] = float(getattr(self.optimizer, "lr", 0.0))
        logs["seconds"] = seconds
        logs["samples_per_second"] = new / max(seconds, 1e-9)
        logs = self._together.first(logs)  # times differ between ranks
        self._observe(logs)
        self.epochs_done = self.epoch
        self._in_epoch = False
        self.history.add_epoch({"epoch": self.epoch, "step": self.step, **logs})
        self._call("on_epoch_end", logs)

    def _begin_epoch(self) -> None:
        self._in_epoch = False
        self.step_in_epoch = self._batch = self._samples = 0
        self._loss = 0.0
        self._values = {}

    def _observe(self, logs: Mapping[str, Any]) -> None:
        """Tell schedules that follow a metric what was measured."""
        seen: set[int] = set()
        for group in getattr(self.optimizer, "param_groups", ()):
            watching = getattr(group.get("lr"), "_watching", None)
            for one in () if watching is None else watching():
                if id(one) not in seen:
                    seen.add(id(one))
                    one.observe(logs[self._watched(one, logs)])

    def _watched(self, schedule: Any, logs: Mapping[str, Any]) -> str:
        name = "loss"
        if getattr(schedule, "mode", "min") == "max":
            if not self.metrics:
                raise DomainError("a PlateauSchedule of mode 'max' needs a metric to follow")
            name = self.metrics[0].name
        return f"val_{name}" if f"val_{name}" in logs else name

    # --- Ends -----------------------------------------------------------------------------------

    def stop(self, reason: str = "stopped") -> None:
        """End the run after this step or epoch; the history tells the reason."""
        self._stop = reason or "stopped"

    def _interrupt(self) -> None:
        self.interrupted = True
        self._stop = "interrupted"
        self.history.stopped = ""  # a run that goes on from here was not stopped
        self._call("on_interrupt")

    def _tell_interrupt(self) -> None:
        from rich.console import Console

        saving = [one for one in self.callbacks if isinstance(one, Checkpoint)]
        text = f"Interrupted after step {self.step}, in epoch {self.epoch} of {self.epochs}."
        if saving:
            path = latest(saving[0].directory)
            text += f" Saved {path}; go on with trainer.fit(..., resume={path!r})."
        else:
            text += " Nothing was saved: training.Checkpoint(directory) among callbacks would."
        Console(stderr=True).print(text, highlight=False, soft_wrap=True, markup=False)

    def _diagnosed(
        self, group: list[Any], done: Done, lr: float, before: Mapping[str, int]
    ) -> Exception:
        """The error of a step that was not finite; random numbers are drawn as in that step."""
        self._together.leave(self)
        after = random.get_state()
        buffers = {name: x.copy() for name, x in self.model.named_buffers()}
        random.set_state(before)
        try:
            found = diagnosis.report(
                self.model,
                self.objective,
                [self.stepper.raw(one) for one in group],
                self.stepper._draws,
                precision=self.precision,
                loss=done.loss,
                step=self.step,
                batch=self._batch,
                lr=lr,
            )
            return self._together.worst(found)
        finally:
            random.set_state(after)
            for name, x in self.model.named_buffers():
                if name in buffers:
                    x[...] = buffers[name]

    # --- Evaluation -----------------------------------------------------------------------------

    def evaluate(self, data: Any, *, batch_size: int = 32) -> dict[str, Any]:
        """The loss and the metrics on some data, without training.

        >>> from ember_ml import nn, training
        >>> model = nn.Linear(2, 1, bias=False)
        >>> trainer = training.Trainer(model, training.SGD(model, 0.1), "mse", metrics=["mae"])
        >>> sorted(trainer.evaluate((ops.ones((4, 2)), ops.ones((4, 1)))))
        ['loss', 'mae']
        """
        with use_backend(self.stepper.home.backend.name):
            loader = self._loader(data, batch_size, False)
            self._together.join(self, loader)
            return self._evaluated(loader)

    def _evaluated(self, loader: Any) -> dict[str, Any]:
        is_training = self.model.training
        kept = [(one, one.state_dict()) for one in self.metrics]  # perhaps within an epoch
        self.model.eval()
        self.stepper.reset()
        try:
            for batch in self._together.batches(loader):
                self.stepper.evaluate(batch)
            found = self.stepper.evaluated()
        finally:
            self.model.train(is_training)
            for one, state in kept:
                one.load_state_dict(state)
        return found

    def predict(self, data: Any, *, batch_size: int = 32, targets: bool = False) -> Any:
        """What the model says of inputs, in their order, as one tensor or tree of tensors.

        With `targets=True`, the last part of each batch is a target and is left out.

        >>> from ember_ml import nn, training
        >>> model = nn.Linear(2, 3)
        >>> trainer = training.Trainer(model, training.SGD(model, 0.1), "mse")
        >>> trainer.predict(ops.ones((5, 2)), batch_size=2).shape
        (5, 3)
        """
        is_training = self.model.training
        self.model.eval()
        found, sizes = [], []
        try:
            with use_backend(self.stepper.home.backend.name):
                loader = self._loader(data, batch_size, False)
                self._together.join(self, loader)
                for given in self._together.batches(loader):
                    batch = self.stepper.raw(given)
                    several = isinstance(batch, tuple | list)
                    inputs = tuple(batch) if several else (batch,)
                    found.append(self.stepper.predict(inputs[:-1] if targets else inputs, given))
                    sizes.append(self.stepper.size_of(given))
                if not found:
                    raise DomainError("Trainer.predict got data without any batch")
                return self._together.predicted(found, sizes)
        finally:
            self.model.train(is_training)

    # --- Checkpoints ----------------------------------------------------------------------------

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Save all that this run needs to go on; the file appears whole or not at all."""
        checkpointing.save(self, path)

    def progress_state(self) -> dict[str, Any]:
        """How far the run is."""
        return {
            "epochs_done": self.epochs_done,
            "in_epoch": self._in_epoch,
            "step": self.step,
            "step_in_epoch": self.step_in_epoch,
            "batch": self._batch,
            "samples": self._samples,
            "loss": self._loss,
            "values": self._values,
        }

    def load_progress_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.epochs_done = self.epoch = int(state["epochs_done"])
        self._in_epoch = bool(state["in_epoch"])
        self.epoch += self._in_epoch
        self.step, self.step_in_epoch = int(state["step"]), int(state["step_in_epoch"])
        self._batch, self._samples = int(state["batch"]), int(state["samples"])
        self._loss, self._values = float(state["loss"]), dict(state["values"])

    def _resume_path(self, resume: str | os.PathLike[str] | bool | None) -> str | None:
        saving = next((one for one in self.callbacks if isinstance(one, Checkpoint)), None)
        if saving is not None and resume is not False and together.is_restarted():
            # What a launcher has started again goes on from where it was, if it came that far.
            found = checkpointing.newest_of_job(saving.directory, self)
            if found is not None:
                return found
        if resume is None or resume is False:
            return None
        if resume is not True:
            return checkpointing.find(resume, self)
        if saving is None:
            raise DomainError("Trainer.fit(resume=True) needs a Checkpoint among the callbacks")
        return checkpointing.newest(saving.directory, self)

    # --- What callbacks ask ---------------------------------------------------------------------

    @property
    def steps_per_epoch(self) -> int | None:
        """How many steps an epoch has; None where the data does not tell."""
        try:
            return -(-len(self.loader) // self.accumulate)
        except TypeError:
            return None

    @property
    def traces(self) -> int:
        """How often the training step was traced; 0 where it is not compiled."""
        return self.stepper.traces

    def running_metrics(self) -> dict[str, Any]:
        """The metrics of this epoch so far, of what this process has seen."""
        return self.stepper.measured_here()

    def _call(self, moment: str, *args: Any) -> None:
        for one in self.callbacks:
            getattr(one, moment)(self, *args)

    def _loader(self, data: Any, size: int, shuffle: bool) -> Any:
        if isinstance(data, DataLoader):
            return data
        backend = self.stepper.home.backend.name
        numbered = hasattr(data, "__getitem__") and hasattr(data, "__len__")
        return DataLoader(data, size, shuffle=shuffle and numbered, backend=backend)
