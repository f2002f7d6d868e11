"""EarlyStopping: an end when nothing gets better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ember_ml.errors import DomainError
from ember_ml.training.callbacks.base import Best, Callback, Logs

if TYPE_CHECKING:
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["EarlyStopping"]


class EarlyStopping(Callback):
    """Stop when a value has not improved for more than `patience` epochs.

    `mode` is "min", "max", or "auto", which takes accuracies and the like for values that grow.
    `min_delta` is what counts as better. With `restore_best`, the model gets the weights of the
    best epoch when the run ends.

    >>> from ember_ml import nn, training
    >>> model = nn.Linear(2, 1)
    >>> stopping = training.EarlyStopping("loss", patience=1, min_delta=1e9)
    >>> trainer = training.Trainer(model, training.SGD(model, 0.1), "mse", callbacks=[stopping])
    >>> history = trainer.fit((ops.ones((4, 2)), ops.ones((4, 1))), epochs=9, verbose=0)
    >>> len(history["loss"]), history.stopped
    (3, 'loss has not improved for 2 epochs')
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 3,
        *,
        mode: str = "auto",
        min_delta: float = 0.0,
        restore_best: bool = False,
    ) -> None:
        if patience < 0:
            raise DomainError(f"EarlyStopping got patience={patience}; it is not negative")
        self.best = Best("EarlyStopping", monitor, mode, min_delta)
        self.patience = patience
        self.restore_best = restore_best
        self.waited = 0
        self._weights: dict[str, Any] | None = None
        self._resumed = False

    def on_fit_begin(self, trainer: Trainer) -> None:
        """Begin anew, unless a checkpoint was loaded."""
        if not self._resumed:
            self.best.value, self.waited, self._weights = None, 0, None
        self._resumed = False

    def on_epoch_end(self, trainer: Trainer, logs: Logs) -> None:
        """Look whether the epoch was better."""
        if self.best.improves(self.best.of(logs)):
            self.waited = 0
            if self.restore_best:
                kept = trainer.model.state_dict()
                self._weights = {name: x.copy() for name, x in kept.items()}
            return
        self.waited += 1
        if self.waited > self.patience:
            epochs = "1 epoch" if self.waited == 1 else f"{self.waited} epochs"
            trainer.stop(f"{self.best.monitor} has not improved for {epochs}")

    def on_fit_end(self, trainer: Trainer) -> None:
        """Give the model its best weights."""
        if self._weights is not None and trainer.interrupted is False:
            trainer.model.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """The best value, its weights, and how long ago it was."""
        return {"best": self.best.value, "waited": self.waited, "weights": self._weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.best.value, self.waited = state["best"], int(state["waited"])
        self._weights = state["weights"]
        self._resumed = True
