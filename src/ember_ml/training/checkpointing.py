"""What a checkpoint of a training run holds, and how a run goes on from one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from ember_ml.errors import DomainError, FormatError
from ember_ml.ops import random
from ember_ml.training.callbacks.checkpoint import latest
from ember_ml.training.history import History

if TYPE_CHECKING:
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["content", "find", "restore"]

_KIND: Final = "ember_ml training checkpoint 1"


def content(trainer: Trainer) -> dict[str, Any]:
    """All that a run needs to go on bit by bit, as a tree that `em.save` takes."""
    loader = trainer.loader
    return {
        "kind": _KIND,
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "precision": None if trainer.precision is None else trainer.precision.state_dict(),
        "metrics": {one.name: one.state_dict() for one in trainer.metrics},
        "callbacks": [
            {"class": type(one).__name__, "state": one.state_dict()} for one in trainer.callbacks
        ],
        # Seeds have more bits than numbers in files are sure to keep.
        "random": json.dumps(random.get_state()),
        "loader": json.dumps(loader.state_dict()) if hasattr(loader, "state_dict") else "",
        "progress": json.dumps(trainer.progress_state()),
        "history": json.dumps(trainer.history.to_dict()),
    }


def find(path: str | os.PathLike[str]) -> str:
    """The file of a path: itself, or the newest checkpoint in a directory."""
    text = os.fspath(path)
    if not os.path.isdir(text):
        if not os.path.exists(text):
            raise FileNotFoundError(f"there is no checkpoint '{text}' to resume from")
        return text
    found = latest(text)
    if found is None:
        raise FileNotFoundError(f"there is no checkpoint step-*.safetensors in '{text}'")
    return found


def restore(trainer: Trainer, path: str) -> None:
    """Let a trainer be where it was when a checkpoint was written."""
    from ember_ml import io

    state = io.load(path)
    if not isinstance(state, dict) or state.get("kind") != _KIND:
        raise FormatError(
            f"'{path}' is no checkpoint of a training run; weights alone are loaded by "
            f"model.load_state_dict"
        )
    trainer.model.load_state_dict(state["model"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    if trainer.precision is not None and state["precision"] is not None:
        trainer.precision.load_state_dict(state["precision"])
    for one in trainer.metrics:
        kept = state["metrics"].get(one.name)
        if kept is None:
            raise DomainError(f"the checkpoint '{path}' has no metric '{one.name}'")
        one.load_state_dict(kept)
    _restore_callbacks(trainer, state["callbacks"])
    if state["loader"] and hasattr(trainer.loader, "load_state_dict"):
        trainer.loader.load_state_dict(json.loads(state["loader"]))
    trainer.history = History.from_dict(json.loads(state["history"]))
    trainer.load_progress_state(json.loads(state["progress"]))
    random.set_state(json.loads(state["random"]))


def _restore_callbacks(trainer: Trainer, kept: list[dict[str, Any]]) -> None:
    """Give callbacks their states by class and order; those that are new begin anew."""
    left = list(kept)
    for one in trainer.callbacks:
        for place, found in enumerate(left):
            if found["class"] == type(one).__name__:
                one.load_state_dict(found["state"])
                del left[place]
                break
