"""Run benchmarks, each on each engine in a process of its own, and gather what they find."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

import ember_ml as em
from ember_ml.bench import machine
from ember_ml.bench.catalog import ENGINES, Benchmark, chosen
from ember_ml.bench.records import Record, Run
from ember_ml.errors import FormatError, UnknownBackendError, UnknownKeyError

__all__ = ["ONE_THREAD", "Task", "environment", "plan", "run", "run_tasks"]

# A measure that says nothing for so long has come to a halt.
SILENCE = 900.0

Listener = Callable[[str], None]

# Two threads on a busy machine spend their time waiting for each other, as CPU time.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


def environment(backend: str) -> dict[str, str]:
    """What a worker inherits: one thread, and Keras on the same engine."""
    found = os.environ | ONE_THREAD
    if backend in ("numpy", "torch", "jax"):
        found["KERAS_BACKEND"] = backend
    return found


@dataclass(frozen=True)
class Task:
    """A benchmark on an engine."""

    benchmark: str
    backend: str
    groups: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)  # beyond what all workers have

    @property
    def title(self) -> str:
        """For people."""
        where = f"{self.benchmark} on {self.backend}" if self.backend else self.benchmark
        return " ".join((where, *(f"{name}={value}" for name, value in self.variables.items())))


def plan(
    names: Sequence[str] = (), backends: Sequence[str] = (), only: Sequence[str] = ()
) -> tuple[list[Task], list[Record]]:
    """What will run, and what cannot since it is not installed.

    Without names it is everything; benchmarks that belong to no engine are then left out where
    engines were asked for.
    """
    for name in backends:
        if name not in ENGINES:
            raise UnknownBackendError(
                f"ember bench measures the engines {', '.join(ENGINES)}; '{name}' is none of them"
            )
    benchmarks = chosen(names)
    known = {group for one in benchmarks for group in one.groups}
    for group in only:
        if group not in known:
            raise UnknownKeyError(
                f"no group is called '{group}'; there are: {', '.join(sorted(known))}"
            )
    installed = em.available_backends()
    wanted = list(dict.fromkeys(backends or ENGINES))
    tasks: list[Task] = []
    missing: set[str] = set()
    for one in benchmarks:
        engines = [name for name in wanted if name in one.backends] if one.backends else [""]
        if not one.backends and backends and not names:
            continue
        for name in engines:
            groups = _groups(one, name, only)
            if name and name not in installed:
                missing.add(name)
            else:
                tasks += _tasks(one, name, groups)
    # One row for an engine, not one for each benchmark that would have used it.
    absent = [
        Record("engines", "installed", name, name, left_out=f"pip install 'ember-ml[{name}]'")
        for name in wanted
        if name in missing
    ]
    return tasks, absent


def _groups(one: Benchmark, backend: str, only: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in one.groups_of(backend) if not only or name in only)


def _tasks(one: Benchmark, backend: str, groups: Sequence[str]) -> Iterator[Task]:
    """A process for the groups, and one for each that needs an environment of its own."""
    if plain := tuple(name for name in groups if name not in one.variables):
        yield Task(one.name, backend, plain)
    for name in groups:
        if name in one.variables and (variables := one.variables[name]()):
            yield Task(one.name, backend, (name,), variables)


def run(
    names: Sequence[str] = (),
    *,
    backends: Sequence[str] = (),
    only: Sequence[str] = (),
    quick: bool = False,
    rounds: int | None = None,
) -> Run:
    """Run benchmarks and return what they found; `ember bench` is this with a progress bar.

    A benchmark that fails is a record with its error.
    """
    tasks, records = plan(names, backends, only)
    about = machine.describe()
    for _, found in run_tasks(tasks, quick=quick, rounds=rounds):
        records += found
    return Run(about, tuple(records), quick)


def run_tasks(
    tasks: Sequence[Task],
    *,
    quick: bool = False,
    rounds: int | None = None,
    listen: Listener = lambda at: None,
    silence: float = SILENCE,
) -> Iterator[tuple[Task, list[Record]]]:
    """Each task in turn with its records; `listen` is told what is measured at the moment."""
    for task in tasks:
        yield task, _run_one(task, quick, rounds, listen, silence)


def _run_one(
    task: Task, quick: bool, rounds: int | None, listen: Listener, silence: float
) -> list[Record]:
    given = {
        "benchmark": task.benchmark,
        "backend": task.backend,
        "groups": task.groups,
        "quick": quick,
        "rounds": rounds,
    }
    command = [sys.executable, "-m", "ember_ml.bench.worker", json.dumps(given)]
    records: list[Record] = []
    done, at, reason = False, "start", ""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**environment(task.backend), **task.variables},
            # A group of its own: what a benchmark starts ends with it.
            start_new_session=os.name == "posix",
        )
        try:
            for message in _messages(process.stdout, silence):
                if message is None:
                    reason = f"no sign of life for {silence:g} s at '{at}'"
                    break
                if "at" in message:
                    at = message["at"]
                    listen(at)
                elif "record" in message:
                    records.append(_record(message["record"], task, at))
                else:
                    done = True
        finally:
            if not done:
                _end(process)
            status = process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if not done:
            reason = reason or _last_words(errors, status, at)
            records.append(Record(task.benchmark, "", at, task.backend, error=reason))
    return records


def _record(data: Any, task: Task, at: str) -> Record:
    """A record; one that holds no number, as where raw took no time, is a failure of its own."""
    try:
        return Record.from_json(data)
    except FormatError as error:
        return Record(task.benchmark, "", at, task.backend, error=str(error))


def _messages(stream: IO[str] | None, silence: float) -> Iterator[dict[str, Any] | None]:
    """What a worker says; None where it says nothing for too long."""
    assert stream is not None
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=silence)
        except queue.Empty:
            yield None
            return
        if not line:
            return
        yield json.loads(line)


def _end(process: subprocess.Popen[str]) -> None:
    """End a worker, and what it started."""
    if process.poll() is not None:
        return
    if os.name == "posix":
        import signal

        with suppress(ProcessLookupError):  # it may have ended meanwhile
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _last_words(errors: IO[str], status: int, at: str) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip()]
    last = lines[-1] if lines else "it said nothing"
    return f"its process ended with status {status} at '{at}': {last[:300]}"
