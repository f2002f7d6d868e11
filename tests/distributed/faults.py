"""Rounds of faults: a launched job whose ranks are killed and stopped, and what came of it.

    python -m tests.distributed.faults --rounds 20

Each round draws a plan by its number: which ranks get SIGKILL or SIGSTOP, and where. Either
the job goes on from its newest checkpoint and ends with the weights of a run that nobody disturbed,
or, where there are more faults than restarts, it says which rank failed, and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.distributed.jobs import PACKAGE

JOB = Path(__file__).with_name("faulty_job.py")
ENGINES = ("numpy", "torch", "jax", "mlx")
RANKS = 2
RESTARTS = 2
STEPS = 24
# Of one job, with its restarts; two shared cores may be slow.
LIMIT = 300.0
TOLERANCE = 1e-6
_MARK = "EMBER_FAULT_JOB"
_INHERITED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "EMBER_LAUNCH", "EMBER_ATTEMPT")


@dataclass
class Round:
    """What came of a job."""

    engine: str
    number: int
    plan: list[dict[str, Any]]
    code: int | None = None
    seconds: float = 0.0
    # The largest difference of a weight from the undisturbed run; None where it has not ended well.
    error: float | None = None
    faults: int = 0
    # Of how many the launcher's report names the rank and the signal first.
    named: int = 0
    checkpoints: int = 0
    problems: list[str] = field(default_factory=list)
    output: str = ""

    @property
    def is_reported(self) -> bool:
        """Ended with a report, as it has to where restarts do not suffice."""
        return self.code not in (0, None)


def plan_of(engine: str, number: int, steps: int = STEPS) -> list[dict[str, Any]]:
    """The faults of a round, one for each attempt; always the same for the same round."""
    rng = random.Random(f"{engine} {number}")
    # One round in ten has more faults than the launcher starts again.
    count = RESTARTS + 1 if number % 10 == 9 else rng.choice((1, 1, 2))
    places = random.Random(f"{engine} {number} places")
    kinds = ["SIGKILL", "SIGSTOP"] if number % 2 == 0 else ["SIGSTOP", "SIGKILL"]
    return [
        {
            "rank": rng.randrange(RANKS),
            "step": rng.randrange(1, steps - 1),
            "signal": kinds[0] if i == 0 else rng.choice(kinds),
            "place": places.choice(("step", "step", "save", "end")),
            "delay": rng.choice((0.0, rng.random() * 0.05)),
        }
        for i in range(count)
    ]


def run_job(
    engine: str, folder: Path, plan: list[dict[str, Any]], limit: float = LIMIT
) -> tuple[int | None, str, list[str]]:
    """The exit code, the output, and what is wrong: that it does not end, or leaves processes."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    base = {key: value for key, value in os.environ.items() if key not in _INHERITED}
    paths = [PACKAGE, base.get("PYTHONPATH", "")]
    base |= {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "OMP_NUM_THREADS": "1",
        # Attempts run the same programs; with two cores, JAX compiles for most of a job.
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        _MARK: mark,
    }
    command = [sys.executable, "-m", "ember_ml.launch", "-n", str(RANKS)]
    command += ["--max-restarts", str(RESTARTS), "--backend", engine]
    command += [str(JOB), str(folder), json.dumps(plan)]
    log = folder / "output.txt"
    problems = []
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env=base,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            problems.append(f"the job did not end within {limit:g} s")
        left = _left(mark)
        if code is not None and left:
            time.sleep(1.0)  # a process that was killed is gone soon, not at once
            left = _left(mark)
            if left:
                problems.append(f"{len(left)} processes were left: {sorted(left.values())}")
        for pid in left:
            _kill(pid)
        if process.poll() is None:
            process.kill()
            process.wait()
    return code, log.read_text(errors="replace"), problems


def _left(mark: str) -> dict[int, str]:
    """The processes of a job that are alive, by what its environment says."""
    wanted = f"{_MARK}={mark}".encode()
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                command = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ")
                if command:  # it is no zombie
                    found[int(name)] = command.decode(errors="replace")[:200]
        except OSError:
            continue
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def weights_of(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """What a job has learned."""
    import ember_ml as em

    found = em.load(folder / "result.safetensors", backend="numpy")
    assert found["step"] == STEPS
    return {name: np.asarray(x.numpy()) for name, x in found["weights"].items()}


def undisturbed(engine: str, folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The weights of a run without faults."""
    code, output, problems = run_job(engine, folder, [])
    if code != 0 or problems:
        raise AssertionError(f"a run without faults ended with {code}, {problems}:\n{output}")
    return weights_of(folder)


def run_round(
    engine: str, number: int, folder: Path, wanted: dict[str, np.ndarray[Any, Any]]
) -> Round:
    """A job with the faults of a round, and what is wrong with its end."""
    plan = plan_of(engine, number)
    found = Round(engine, number, plan)
    began = time.monotonic()
    found.code, found.output, problems = run_job(engine, folder, plan)
    found.seconds = time.monotonic() - began
    found.problems += problems
    found.faults = len(list(folder.glob("fault-*")))
    found.named = sum(_is_named(fault, found.output) for fault in plan[: found.faults])
    found.checkpoints = _looked_at(folder / "kept", found)
    if found.code == 0:
        weights = weights_of(folder)
        if weights.keys() != wanted.keys():
            found.problems.append("it has other weights than the undisturbed run")
        found.error = max(float(np.abs(weights[n] - wanted[n]).max()) for n in wanted)
        if not found.error <= TOLERANCE:
            found.problems.append(f"its weights differ by {found.error:.2e}")
        if not found.faults:  # an attempt that has no step left may have none
            found.problems.append("no fault came")
    elif found.code is not None:
        if found.named < found.faults:
            found.problems.append("it does not say which rank failed")
        if len(plan) <= RESTARTS:
            found.problems.append(f"it ended with {found.code}, with restarts left")
    return found


def _is_named(fault: dict[str, Any], output: str) -> bool:
    """Whether a report begins with the rank that was struck, and how; its lines are in a frame."""
    text = re.sub(r"[\s│]+", " ", output)
    how = {"SIGKILL": "killed by SIGKILL", "SIGSTOP": "stopped by SIGSTOP"}[fault["signal"]]
    return re.search(rf"rank {fault['rank']} \(host [^)]*\) was {how}", text) is not None


def _looked_at(folder: Path, found: Round) -> int:
    """How many checkpoints are there; each has to load."""
    import ember_ml as em
    from ember_ml.training import checkpointing

    paths = checkpointing.listed(folder)
    for path in paths:
        try:
            state = em.load(path, backend="numpy")
            values = [np.asarray(x.numpy()) for x in state["model"].values()]
            assert all(np.isfinite(x).all() for x in values)
            assert json.loads(state["progress"])["step"] == int(Path(path).name[5:13])
        except Exception as error:
            found.problems.append(f"the checkpoint {Path(path).name} is torn: {error}")
    if found.code == 0 and folder.is_dir():
        # Saves after the last fault have cleared what was left of the ones before.
        left = [Path(path).name for path in checkpointing.unfinished(str(folder))]
        if left:
            found.problems.append(f"{left} were left unfinished")
    return len(paths)


def table(rounds: list[Round]) -> str:
    """What came of all rounds, by engine."""
    heads = ("engine", "rounds", "SIGKILL", "SIGSTOP", "of these while saving")
    heads = (
        *heads,
        "resumed, same weights",
        "reported, ended",
        "failed",
        "rank named first",
        "largest difference",
        "mean s",
    )
    rows = []
    for engine in dict.fromkeys(one.engine for one in rounds):
        mine = [one for one in rounds if one.engine == engine]
        faults = [fault for one in mine for fault in one.plan[: one.faults]]
        struck = [fault["signal"] for fault in faults]
        good = [one for one in mine if not one.problems]
        errors = [one.error for one in mine if one.error is not None]
        rows.append(
            (
                engine,
                len(mine),
                struck.count("SIGKILL"),
                struck.count("SIGSTOP"),
                sum(fault["place"] != "step" for fault in faults),
                sum(one.code == 0 for one in good),
                sum(one.is_reported for one in good),
                len(mine) - len(good),
                f"{sum(one.named for one in mine)} of {len(struck)}",
                f"{max(errors):.1e}" if errors else "-",
                f"{sum(one.seconds for one in mine) / len(mine):.1f}",
            )
        )
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def tell(text: str) -> None:
    """Print, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(given: list[str] | None = None) -> int:
    """Run rounds on engines, and print the table; 1 where one failed."""
    parser = argparse.ArgumentParser(prog="scripts/fault-rounds", description=__doc__)
    rounds = int(os.environ.get("EMBER_FAULT_ROUNDS", "20"))
    parser.add_argument("--rounds", type=int, default=rounds, help="of each engine")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("engines", nargs="*", default=ENGINES)
    asked = parser.parse_args(given)
    done: list[Round] = []
    for engine in asked.engines:
        with tempfile.TemporaryDirectory(prefix="ember-faults-") as place:
            try:
                wanted = undisturbed(engine, Path(place, "undisturbed"))
            except AssertionError as error:
                done.append(Round(engine, -1, [], problems=["no undisturbed run"]))
                tell(f"{engine}: {error}")
                continue
            for number in range(asked.first, asked.first + asked.rounds):
                one = run_round(engine, number, Path(place, str(number)), wanted)
                done.append(one)
                struck = ", ".join(
                    f"{fault['signal']} of rank {fault['rank']} in {fault['place']} {fault['step']}"
                    for fault in one.plan
                )
                struck += f" ({one.named} of {one.faults} named first)"
                said = "; ".join(one.problems) or ("resumed" if one.code == 0 else "reported")
                tell(f"{engine} {number}: {struck}: {said}, {one.seconds:.1f} s")
                if one.problems:
                    tell(one.output[-8000:])
    tell(table(done))
    return int(any(one.problems for one in done))


if __name__ == "__main__":
    sys.exit(main())
