"""The process in which a benchmark runs on an engine: a line of JSON for each thing that happens.

python -m ember_ml.bench.worker '{"benchmark": "overhead", "backend": "numpy", ...}'
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from ember_ml.bench.catalog import Benchmark, Setting, benchmark
from ember_ml.bench.records import Record
from ember_ml.bench.timing import Measure, medians

__all__ = ["main", "measured"]


def measured(measure: Measure, setting: Setting, benchmark: str, group: str) -> Record:
    """Time a measure. A peer that fails is left out with its reason; ours and raw must not."""
    programs = {"raw": measure.raw, "ours": measure.ours}
    notes = [measure.notes] if measure.notes else []
    for name, program in measure.peers.items():
        try:
            program()
        except Exception as error:
            notes.append(f"{name} left out: {_first_line(error)}")
        else:
            programs[name] = program
    batch = measure.batch / 4 if setting.quick else measure.batch
    found = medians(programs, setting.rounds_of(measure.rounds), batch, measure.wait)
    (raw, raw_wall), (ours, ours_wall) = found.pop("raw"), found.pop("ours")
    return Record(
        benchmark,
        group,
        measure.name,
        setting.backend,
        ours=ours,
        raw=raw,
        against=measure.against,
        bar=measure.limit,
        notes="; ".join(notes),
        peers={name: cpu for name, (cpu, _) in found.items()},
        ours_wall=ours_wall,
        raw_wall=raw_wall,
        size=measure.size,
    )


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _records(
    chosen: Benchmark, groups: Iterable[str], setting: Setting, say: Any
) -> Iterable[Record]:
    """What groups find, one after the other; one that fails does not end the others."""
    for group in groups:
        at = ""
        try:
            for one in chosen.groups[group](setting):
                at = one.name
                say({"at": at})
                if isinstance(one, Record):
                    yield dataclasses.replace(one, benchmark=chosen.name, group=group)
                else:
                    yield measured(one, setting, chosen.name, group)
        except ModuleNotFoundError as error:
            # Not ImportError: a package that is there and does not load is a failure.
            missing = (error.name or str(error)).partition(".")[0]
            reason = f"needs {missing}, which is not installed"
            yield Record(chosen.name, group, at or group, setting.backend, left_out=reason)
        except Exception as error:
            import traceback

            traceback.print_exc()
            yield Record(chosen.name, group, at or group, setting.backend, error=_first_line(error))


def _ready(backend: str) -> None:
    """The engine, on one thread."""
    import ember_ml as em

    em.set_backend(backend)  # before anything else of JAX: it switches 64-bit types on
    if backend == "torch":
        import torch

        torch.set_num_threads(1)


def main(task: dict[str, Any], out: TextIO) -> None:
    """Run a task, and say what happens, line by line."""

    def say(what: dict[str, Any]) -> None:
        out.write(json.dumps(what) + "\n")
        out.flush()

    chosen, backend = benchmark(task["benchmark"]), task["backend"]
    if backend:
        _ready(backend)
    with tempfile.TemporaryDirectory(prefix="ember-bench-") as directory:
        setting = Setting(backend, Path(directory), task.get("quick", False), task.get("rounds"))
        for record in _records(chosen, task["groups"], setting, say):
            say({"record": record.to_json()})
    say({"done": True})


if __name__ == "__main__":
    # Engines print where they like: what they say goes to stderr, records to the real stdout.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stdout:
        os.dup2(2, 1)
        main(json.loads(sys.argv[1]), stdout)
