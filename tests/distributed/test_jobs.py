"""The harness itself: values, errors, time limits, and no processes left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.distributed import jobs


def _values(scale: float) -> dict[str, Any]:
    rank = int(os.environ["RANK"])
    return {
        "rank": rank,
        "nan": float("nan"),
        "array": np.arange(3, dtype=np.float32) * scale,
        "rest": [np.asarray(1.5, ml_dtypes.bfloat16), np.zeros((0, 2), np.uint16), None, "text"],
    }


def _stuck() -> None:
    if os.environ["RANK"] == "1":
        sys.stdout.write("one is here\n")
        # A child in the same group, which must go with it. What it says at its end would come
        # between the letters of ours.
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)", "marked-child"],
            stderr=subprocess.DEVNULL,
        )
        time.sleep(600)


def _failing() -> None:
    if os.environ["RANK"] == "0":
        raise KeyError("lost")
    os.kill(os.getpid(), signal.SIGKILL)


def test_values_come_back_from_each_rank() -> None:
    found = jobs.run(_values, 2, "numpy", [2.0])
    assert [one.value["rank"] for one in found] == [0, 1]
    for one in found:
        assert one.code == 0
        assert np.isnan(one.value["nan"])
        np.testing.assert_array_equal(one.value["array"], np.asarray([0, 2, 4], np.float32))
        assert one.value["rest"][0].dtype == ml_dtypes.bfloat16
        assert one.value["rest"][0].shape == ()
        assert one.value["rest"][1].shape == (0, 2)
        assert one.value["rest"][2:] == [None, "text"]


def test_errors_and_signals_are_told() -> None:
    first, second = jobs.run(_failing, 2, check=False)
    assert first.error == "KeyError"
    assert "lost" in first.trace
    assert second.code == -signal.SIGKILL
    with pytest.raises(jobs.JobFailed, match="KeyError"):
        jobs.run(_failing, 2)


def test_a_job_that_does_not_end_is_killed_and_shown() -> None:
    start = time.monotonic()
    shown = r"within 4 s(?s:.*)one is here(?s:.*)in _stuck"
    with jobs.Job(_stuck, 2) as job:
        pids = job.pids
        with pytest.raises(jobs.JobFailed, match=shown):
            job.wait(limit=4)
    assert time.monotonic() - start < 30
    told = subprocess.run(
        ["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    alive = {int(line.split()[0]) for line in told.splitlines() if " Z" not in line}
    assert not alive & set(pids)
