"""`ember launch` with ranks that end well, crash, stop, ignore signals, print; without engines."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.distributed.launches import Launch, signal_to

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are found in /proc, which Linux alone has"
)

# What each rank does is its first argument; it writes its number to a file when it is at work, and
# its launcher has been told of that.
SCRIPT = """
import os, signal, subprocess, sys, time
from pathlib import Path

from ember_ml.distributed.launching import beats

rank, what = int(os.environ["RANK"]), sys.argv[1]


def mark():
    Path(f"{what}-{rank}.part").write_text(str(os.getpid()))
    Path(f"{what}-{rank}.part").rename(f"{what}-{rank}.pid")


def begin():
    tell = beats._channel.tell

    def telling(kind, **about):
        tell(kind, **about)
        if about.get("where", "").endswith(" in work"):
            mark()

    beats._channel.tell = telling


def work(steps=2000):
    for step in range(steps):
        beats.note(step=step, epoch=step // 100)
        time.sleep(0.02)


def main():
    if what == "well":
        print("ran", rank, os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"], sys.argv[2:])
        print("backend", os.environ["EMBER_ML_BACKEND"], __name__)
    elif what == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "600"])
        begin()
        while True:
            work()
    elif what == "raise":
        work(5)
        if rank == 1:
            mark()
            raise ValueError("the data is bad")
        while not Path("raise-1.pid").exists():
            time.sleep(0.01)
        raise ConnectionResetError("a peer is gone")
    elif what == "code":
        if rank == 1:
            sys.exit(7)
        work()
    elif what == "again":
        attempt = os.environ["EMBER_ATTEMPT"]
        print("attempt", attempt, "port", os.environ["MASTER_PORT"])
        if attempt == "0" and rank == 1:
            os._exit(5)
        if attempt == "1" and rank == 0:
            os.abort()
    elif what == "saves":
        came = []
        signal.signal(signal.SIGINT, lambda *given: came.append(1))
        begin()
        while not came:
            work(1)
        time.sleep(0.5 * rank)  # a rank that has ended does not hurry the others
        print("saved")
        sys.exit(rank == 0 and sys.argv[2:] == ["coded"])
    elif what == "ends":
        begin()
        work()
    elif what == "stays":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        begin()
        while True:
            work()
    elif what == "prints":
        for number in range(300):
            sys.stdout.write(str(rank) * 70 + chr(10))
        sys.stdout.buffer.write(bytes(range(256)) + b"|" + bytes([10]))
        sys.stdout.write("x" * 100_000 + chr(10) + "half a line")


main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("launch")
    (path / "job.py").write_text(SCRIPT)
    return path


def pid_of(folder: Path, what: str, rank: int) -> int | None:
    path = folder / f"{what}-{rank}.pid"
    return int(path.read_text()) if path.exists() else None


def at_work(folder: Path, what: str, count: int) -> bool:
    return all(pid_of(folder, what, rank) for rank in range(count))


def test_ranks_know_their_place_and_all_ending_well_is_0(folder: Path) -> None:
    with (
        Launch(["-n", 2, "--backend", "numpy", "job.py", "well", "--lr", "3"], folder) as one,
        Launch(["-n", 2, "-b", "torch", "-m", "job", "well", "-n", "3"], folder) as other,
    ):
        assert one.wait() == 0, one.told()
        assert other.wait() == 0, other.told()
    assert sorted(one.out.splitlines()) == [
        "[rank 0] backend numpy __main__",
        "[rank 0] ran 0 2 0 ['--lr', '3']",
        "[rank 1] backend numpy __main__",
        "[rank 1] ran 1 2 1 ['--lr', '3']",
    ]
    assert "[rank 1] ran 1 2 1 ['-n', '3']" in other.out.splitlines()
    assert "[rank 0] backend torch __main__" in other.out.splitlines()
    assert one.err == ""


def test_a_rank_that_is_killed_ends_those_that_ignore_signals_too(folder: Path) -> None:
    with Launch(["-n", 3, "--grace", 0.5, "job.py", "deaf"], folder) as job:
        job.until(lambda: at_work(folder, "deaf", 3))
        pid = pid_of(folder, "deaf", 1)
        assert pid is not None
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        assert job.wait() == 128 + 9, job.told()
        assert time.monotonic() - began < 15
        job.assert_no_orphans()
    assert f"rank 1 (host {os.uname().nodename}, pid {pid}) was killed by SIGKILL at" in _flat(job)
    assert re.search(r"at step \d+", _flat(job)), job.told()
    assert re.search(r"job\.py:\d+ in work", _flat(job)), job.told()
    assert _flat(job).count("ended by the launcher") == 2


def test_a_stop_is_forgiven_when_it_is_short_and_ends_the_job_when_it_is_long(
    folder: Path,
) -> None:
    for path in folder.glob("deaf-*"):
        path.unlink()
    with Launch(["-n", 2, "--grace", 0.5, "--heartbeat", 4, "job.py", "deaf"], folder) as job:
        job.until(lambda: at_work(folder, "deaf", 2))
        pid = pid_of(folder, "deaf", 0)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(pid, signal.SIGCONT)
        time.sleep(4.5)
        assert job.process.poll() is None, job.told()
        began = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        assert job.wait() == 128 + signal.SIGSTOP, job.told()
        assert 3.8 < time.monotonic() - began < 9
        job.assert_no_orphans()
    assert f"rank 0 (host {os.uname().nodename}, pid {pid}) was stopped by SIGSTOP" in _flat(job)


def test_the_cause_is_the_first_real_failure(folder: Path) -> None:
    with (
        Launch(["-n", 2, "job.py", "raise"], folder) as raising,
        Launch(["-n", 2, "job.py", "code"], folder) as coded,
    ):
        assert raising.wait() == 1, raising.told()
        assert coded.wait() == 7, coded.told()
        raising.assert_no_orphans()
    assert "raised ValueError: the data is bad at step 4" in _flat(raising)
    assert re.search(r"in job\.py:\d+ in main", _flat(raising)), raising.told()
    assert "[rank 1] ValueError: the data is bad" in raising.err.splitlines()
    # The traceback is that of the program alone.
    assert "runpy" not in raising.err
    assert "worker.py" not in raising.err
    assert "rank 1" in _flat(coded)
    assert "ended with exit code 7" in _flat(coded)


def test_a_job_is_started_again_on_fresh_ports(folder: Path) -> None:
    with Launch(["-n", 2, "--max-restarts", 2, "job.py", "again"], folder) as job:
        assert job.wait() == 0, job.told()
    lines = sorted(set(re.findall(r"attempt (\d) port (\d+)", job.out)))
    assert [attempt for attempt, _ in lines] == ["0", "1", "2"]
    assert len({port for _, port in lines}) == 3
    assert "starting again: attempt 2, restart 1 of at most 2" in job.err
    assert "ended with exit code 5" in _flat(job)
    assert "killed by SIGABRT" in _flat(job)


def test_a_signal_reaches_all_ranks_and_a_second_one_kills(folder: Path, tmp_path: Path) -> None:
    coded_in = tmp_path
    (coded_in / "job.py").write_text(SCRIPT)
    with (
        Launch(["-n", 2, "job.py", "saves"], folder) as saving,
        Launch(["-n", 2, "job.py", "ends"], folder) as ending,
        Launch(["-n", 2, "job.py", "stays"], folder) as staying,
        Launch(["-n", 2, "--grace", 0.1, "job.py", "saves", "coded"], coded_in) as coded,
    ):
        coded.until(lambda: at_work(coded_in, "saves", 2))
        coded.send(signal.SIGINT)
        assert coded.wait() == 128 + signal.SIGINT, coded.told()
        assert sorted(coded.out.splitlines()) == ["[rank 0] saved", "[rank 1] saved"]
        saving.until(lambda: at_work(folder, "saves", 2))
        saving.send(signal.SIGTERM)
        assert saving.wait() == 0, saving.told()
        assert sorted(saving.out.splitlines()) == ["[rank 0] saved", "[rank 1] saved"]
        ending.until(lambda: at_work(folder, "ends", 2))
        ending.send(signal.SIGINT)
        assert ending.wait() == 128 + signal.SIGINT, ending.told()
        assert "[launch] ended by SIGINT" in ending.err
        assert "the job failed" not in ending.err
        staying.until(lambda: at_work(folder, "stays", 2))
        staying.send(signal.SIGINT)
        time.sleep(1.0)
        assert staying.process.poll() is None
        staying.send(signal.SIGINT)
        assert staying.wait() == 128 + signal.SIGINT, staying.told()
        staying.assert_no_orphans()


def test_nothing_is_left_of_a_launcher_that_is_killed(folder: Path) -> None:
    for path in folder.glob("deaf-*"):
        path.unlink()
    with Launch(["-n", 2, "job.py", "deaf"], folder) as job:
        job.until(lambda: at_work(folder, "deaf", 2))
        pid = pid_of(folder, "deaf", 0)
        assert pid is not None
        signal_to(pid, signal.SIGSTOP)  # neither can this one do anything about it
        job.send(signal.SIGKILL)
        job.wait()
        job.assert_no_orphans()


def test_output_comes_in_whole_lines(folder: Path) -> None:
    with Launch(["-n", 2, "job.py", "prints"], folder) as job:
        assert job.wait() == 0, job.told()
    lines = job.out.split("\n")
    for rank in range(2):
        assert lines.count(f"[rank {rank}] " + str(rank) * 70) == 300
        assert lines.count(f"[rank {rank}] half a line") == 1
        long = [line for line in lines if line.startswith(f"[rank {rank}] xx")]
        assert sum(line.count("x") for line in long) == 100_000
    assert lines.pop() == ""
    assert all(line.startswith("[rank ") for line in lines)
    assert set(job.out) - {"\n", "\t"} == {one for one in job.out if one.isprintable()}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-n", "2", "nowhere.py"], "there is no script nowhere.py"),
        (["-m", "no_such_module"], "there is no such module"),
        (["-n", "0", "job.py"], "-n 0"),
        (["--nnodes", "2", "job.py"], "--master host:port"),
        (["--nnodes", "2", "--master", "a:b:c:0x", "job.py"], "got --master"),
        (["--nnodes", "2", "--node-rank", "2", "--master", "a:1", "job.py"], "--node-rank 2"),
        (["--backend", "abacus", "job.py"], "--backend abacus"),
        (["--heartbeat", "0", "job.py"], "--heartbeat 0"),
        ([], "needs a script"),
    ],
)
def test_mistakes_have_one_clear_error(
    arguments: list[str],
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from ember_ml.cli.app import app

    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        app(["launch", *arguments])
    assert ended.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith("error:")
    assert said in told


def _flat(job: Launch) -> str:
    """A report without its frame, on one line."""
    return " ".join(job.err.replace("│", " ").split())
