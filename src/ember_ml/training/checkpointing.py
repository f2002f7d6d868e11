"""What a checkpoint of a training run holds, and how a run goes on from one.

Under a strategy of several ranks, all of them write it together, each its share, and it appears at
once (io/joint.py); it loads on any number of ranks. A strategy whose ranks have parts of tensors
says what is kept and what each rank wants, by three methods:

- `checkpoint_state(trainer)`: the states of the model and the optimizer, with `Part`s in them;
- `wanted(name, shape)`: the range of a tensor that this rank loads, None for all (io/parts.py);
- `load_checkpoint_state(trainer, state)`: what it does with what was loaded.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ember_ml.errors import DomainError, FormatError, UnknownKeyError
from ember_ml.io.joint import Peers, appears, is_there, save_jointly, together
from ember_ml.io.shards import INDEX
from ember_ml.ops import random
from ember_ml.training.history import History

if TYPE_CHECKING:
    from ember_ml.distributed.communicator import Communicator
    from ember_ml.training.trainer.trainer import Trainer

__all__ = [
    "agreed",
    "content",
    "find",
    "latest",
    "listed",
    "load_plain_state",
    "newest",
    "newest_of_job",
    "plain_state",
    "ranks_of",
    "restore",
    "save",
    "unfinished",
]

_KIND: Final = "ember_ml training checkpoint 1"
# Set by `ember launch`, the same in all attempts of a job.
_JOB: Final = "EMBER_JOB"
# A file of one process, or a directory of several.
_NAME: Final = re.compile(r"step-(\d{8,})(\.safetensors)?")


def content(trainer: Trainer) -> dict[str, Any]:
    """All that a run needs to go on bit by bit, as a tree that `em.save` takes."""
    loader = trainer.loader
    strategy = trainer.strategy
    state = plain_state(trainer) if strategy is None else strategy.checkpoint_state(trainer)
    return {
        "kind": _KIND,
        "job": os.environ.get(_JOB, ""),
        "model": state["model"],
        "optimizer": state["optimizer"],
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


def plain_state(trainer: Trainer) -> dict[str, Any]:
    """The states of the model and the optimizer, where every rank has all of them."""
    return {"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}


def load_plain_state(trainer: Trainer, state: Mapping[str, Any]) -> None:
    """Give the model and the optimizer what `plain_state` had."""
    trainer.model.load_state_dict(state["model"])
    trainer.optimizer.load_state_dict(state["optimizer"])


# --- Files ---------------------------------------------------------------------------------


def listed(directory: str | os.PathLike[str]) -> list[str]:
    """The checkpoints in a directory, the newest last."""
    folder = os.fspath(directory)
    if not os.path.isdir(folder):
        return []
    found = [
        (int(m[1]), os.path.getmtime(path), path)
        for name in os.listdir(folder)
        if (m := _NAME.fullmatch(name)) and _is_whole(path := os.path.join(folder, name))
    ]
    return [path for _, _, path in sorted(found)]


def _is_whole(path: str) -> bool:
    """False for a directory in which a save was killed, or is going on."""
    return is_there(path) if os.path.isdir(path) else path.endswith(".safetensors")


def latest(directory: str | os.PathLike[str]) -> str | None:
    """The newest checkpoint in a directory; None where there is none."""
    found = listed(directory)
    return found[-1] if found else None


def unfinished(directory: str) -> list[str]:
    """The directories of checkpoints that are not there: a save was killed, or goes on."""
    there = [os.path.join(directory, n) for n in os.listdir(directory) if _NAME.fullmatch(n)]
    return [path for path in there if os.path.isdir(path) and not is_there(path)]


# --- Ranks ----------------------------------------------------------------------------------


class _Ranks:
    """The ranks of a strategy, as those that write a checkpoint together."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self.rank = communicator.rank
        self.size = communicator.world_size

    def exchange(self, text: str) -> list[str]:
        # Here, as strategies import what trains.
        from ember_ml.distributed.strategy.exchange import gather_bytes

        own = text.encode("utf-8", "backslashreplace")
        return [one.decode("utf-8") for one in gather_bytes(self.communicator, own)]


def ranks_of(trainer: Trainer) -> Peers | None:
    """The ranks of a run; None where it is one process."""
    strategy = trainer.strategy
    if strategy is None or strategy.communicator.world_size == 1:
        return None
    return _Ranks(strategy.communicator)


# --- Saving ---------------------------------------------------------------------------------


def save(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    """Save a run; it appears whole or not at all. All ranks call it."""
    from ember_ml import io

    trainer.stepper.fold()
    ranks = ranks_of(trainer)
    if ranks is None:
        io.save(path, content(trainer))
    else:
        save_jointly(path, content(trainer), ranks, of_first=("metrics",))


# --- Going on -------------------------------------------------------------------------------


def find(path: str | os.PathLike[str], trainer: Trainer | None = None) -> str:
    """The checkpoint of a path: itself, or the newest one in a directory; the one of rank 0."""
    text = os.fspath(path)
    found = agreed(trainer, f"finding the checkpoint '{text}'", lambda: _find(text))
    assert found is not None  # else an error was raised
    return found


def newest(directory: str, trainer: Trainer) -> str | None:
    """The newest checkpoint in a directory, as rank 0 sees it; None where there is none."""
    return agreed(trainer, f"looking for checkpoints in '{directory}'", lambda: latest(directory))


def newest_of_job(directory: str, trainer: Trainer) -> str | None:
    """The newest checkpoint that this job has written, in whichever attempt.

    A directory may hold those of runs before, from which a job that began anew does not go on.
    """
    job = os.environ.get(_JOB)

    def look() -> str | None:
        for path in reversed(listed(directory)):
            if not job or _job_of(path) == job:
                return path
        return None

    return agreed(trainer, f"looking for checkpoints in '{directory}'", look)


def _job_of(path: str) -> str:
    from ember_ml import io

    try:
        return str(io.load(path, keys="job")["job"])
    except (UnknownKeyError, FormatError, OSError):  # of before, or of others
        return ""


def agreed(trainer: Trainer | None, what: str, look: Callable[[], str | None]) -> str | None:
    """What rank 0 finds, on all ranks, which must be able to see it."""
    ranks = None if trainer is None else ranks_of(trainer)
    if ranks is None:
        return look()
    found = together(ranks, what, lambda: look() if ranks.rank == 0 else None)
    found = json.loads(ranks.exchange(json.dumps(found))[0])
    if found is not None:
        together(ranks, what, lambda: _require_seen(str(found)))
    return None if found is None else str(found)


def _require_seen(path: str) -> None:
    if appears(path) or appears(path + INDEX):
        return
    raise FileNotFoundError(
        f"host {socket.gethostname()} does not see the checkpoint '{path}' that rank 0 goes on "
        f"from; checkpoints lie on a file system that all hosts share, by the same path"
    )


def _find(text: str) -> str:
    if not os.path.isdir(text):
        if not os.path.exists(text) and not os.path.exists(text + INDEX):
            raise FileNotFoundError(f"there is no checkpoint '{text}' to resume from")
        return text
    if is_there(text):
        return text
    found = latest(text)
    if found is None:
        raise FileNotFoundError(
            f"there is no checkpoint step-*.safetensors, and no whole one step-*/, in '{text}'"
        )
    return found


def restore(trainer: Trainer, path: str) -> None:
    """Let a trainer be where it was when a checkpoint was written; all ranks call it."""
    ranks = ranks_of(trainer)
    if ranks is None:
        _restore(trainer, path)
    else:
        together(ranks, f"going on from '{path}'", lambda: _restore(trainer, path))


def _restore(trainer: Trainer, path: str) -> None:
    from ember_ml import io
    from ember_ml.io.loading import load_parts

    strategy = trainer.strategy
    state = io.load(path) if strategy is None else load_parts(path, strategy.wanted)
    if not isinstance(state, dict) or state.get("kind") != _KIND:
        raise FormatError(
            f"'{path}' is no checkpoint of a training run; weights alone are loaded by "
            f"model.load_state_dict"
        )
    if strategy is None:
        load_plain_state(trainer, state)
    else:
        strategy.load_checkpoint_state(trainer, state)
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
