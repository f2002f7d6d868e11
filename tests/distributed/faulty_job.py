"""A small training job, ranks of which are killed or stopped as a plan says: see faults.py.

    ember launch -n 2 --max-restarts 2 faulty_job.py FOLDER PLAN

PLAN is JSON: one fault for each attempt, {"rank", "step", "signal", "place", "delay"}. In the place
"step", `delay` is seconds after the step has begun, so that signals come anywhere; in "save", the
signal comes when half of the next checkpoint of this rank is written, and in "end", when its shard
is there and the index is not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

import ember_ml as em
from ember_ml import distributed, nn, training
from ember_ml.distributed.strategy import DataParallelStrategy
from ember_ml.io import joint
from ember_ml.ops import random

STEPS = 24
EVERY = 4


class Fault(training.Callback):
    """Sends this process a signal, if it is the one that a plan names."""

    def __init__(self, folder: Path, plan: list[dict[str, Any]]) -> None:
        world = distributed.World.of_environment()
        self.folder, self.attempt = folder, world.attempt
        self.fault = plan[world.attempt] if world.attempt < len(plan) else None
        if self.fault is not None and self.fault["rank"] != world.rank:
            self.fault = None

    def on_step_begin(self, trainer: Any) -> None:
        if self.fault is None or trainer.step + 1 < self.fault["step"]:
            return
        number, fault = getattr(signal, self.fault["signal"]), self.fault
        self.fault = None
        mark = self.folder / f"fault-{self.attempt}"

        def strike() -> None:
            mark.write_text(f"step {trainer.step}")
            os.kill(os.getpid(), number)

        if fault["place"] == "step":
            # A thread's time: the program may be anywhere when it comes.
            threading.Timer(fault["delay"], strike).start()
        elif fault["place"] == "save":
            joint.safetensors.write = _struck_after(joint.safetensors.write, strike)
        else:
            joint._Saving.write = _struck_after(joint._Saving.write, strike)  # type: ignore[method-assign]


def _struck_after(function: Any, strike: Any) -> Any:
    def run(*args: Any) -> Any:
        found = function(*args)
        strike()
        return found

    return run


def main(folder: Path, plan: list[dict[str, Any]]) -> None:
    strategy = DataParallelStrategy()
    # Six batches an epoch; the last of six rows, but compilers would make a step for it as well.
    rows = 46 if em.get_backend() in ("numpy", "torch") else 48
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 6)).astype("float32")
    y = rng.integers(0, 3, rows)
    with random.use_seed(1):
        model = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)
        )
    trainer = training.Trainer(
        model,
        training.AdamW(model, lr=training.CosineSchedule(1e-2, STEPS)),
        "cross_entropy",
        metrics=["accuracy"],
        callbacks=[
            training.Checkpoint(folder / "kept", every_steps=EVERY, keep=3),
            Fault(folder, plan),
        ],
        seed=3,
        strategy=strategy,
    )
    data = training.DataLoader((x, y), 8, shuffle=True, seed=5)
    history = trainer.fit(data, STEPS // 6, verbose=0)
    if strategy.is_main:
        em.save(
            folder / "result.safetensors",
            {"weights": model.state_dict(), "loss": list(history["loss"]), "step": trainer.step},
        )
    distributed.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
