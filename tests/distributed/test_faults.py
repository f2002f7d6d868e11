"""Ranks that are killed and stopped: jobs go on from their checkpoints, or report and end.

A round or two of each engine; EMBER_FAULT_ROUNDS=20, or scripts/fault-rounds, for all of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.distributed import faults

ROUNDS = int(os.environ.get("EMBER_FAULT_ROUNDS", "1"))


@pytest.mark.parametrize("engine", faults.ENGINES)
def test_jobs_survive_or_report(engine: str, tmp_path: Path) -> None:
    wanted = faults.undisturbed(engine, tmp_path / "undisturbed")
    # Engines begin with different rounds, so that both signals come where rounds are few.
    first = faults.ENGINES.index(engine)
    done = [
        faults.run_round(engine, number, tmp_path / str(number), wanted)
        for number in range(first, first + ROUNDS)
    ]
    faults.tell(faults.table(done))
    for one in done:
        assert not one.problems, f"{one.plan}: {one.problems}\n{one.output[-8000:]}"


def test_plans_are_the_same_each_time() -> None:
    plans = [faults.plan_of(engine, n) for engine in faults.ENGINES for n in range(20)]
    assert plans == [faults.plan_of(engine, n) for engine in faults.ENGINES for n in range(20)]
    struck = [fault["signal"] for plan in plans for fault in plan]
    assert struck.count("SIGKILL") > 30
    assert struck.count("SIGSTOP") > 30
    assert {fault["rank"] for plan in plans for fault in plan} == {0, 1}
    assert sum(len(plan) > faults.RESTARTS for plan in plans) == 8
