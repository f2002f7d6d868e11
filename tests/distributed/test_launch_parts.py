"""The parts of the launcher, each by itself and in this process."""

from __future__ import annotations

import io
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from ember_ml.distributed import World
from ember_ml.distributed.launching import beats, mpi, report
from ember_ml.distributed.launching.addresses import (
    Endpoint,
    Ports,
    interface_of,
    plain_address,
    resolved,
)
from ember_ml.distributed.launching.control import Listener, Peer, connect
from ember_ml.distributed.launching.environment import surroundings
from ember_ml.distributed.launching.output import LONGEST, Relay, Screen, printable
from ember_ml.distributed.launching.ranks import RankState, cause_of, signal_name
from ember_ml.distributed.launching.worker import follows
from ember_ml.distributed.world import free_ports
from ember_ml.errors import BackendUnavailableError, CommunicationError, DomainError

# --- What surrounds a process ---------------------------------------------------------------------

SLURM = {
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "gpu[08-09]",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_JOB_ID": "41",
    "SLURM_STEP_ID": "2",
}
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node-0",
    "MASTER_PORT": "4000",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
KUBERNETES = {"JOB_COMPLETION_INDEX": "1", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "NNODES": "2"}


@pytest.mark.parametrize(
    ("given", "kind", "rank", "size", "local", "host"),
    [
        (TORCHRUN, "torchrun", 3, 4, (1, 2), ("node-0", 4000)),
        ({**TORCHRUN, "EMBER_LAUNCH": "1"}, "ember", 3, 4, (1, 2), ("node-0", 4000)),
        (SLURM, "slurm", 3, 4, (1, 2), ("gpu08", None)),
        (OPEN_MPI, "mpi", 2, 3, (0, 1), ("127.0.0.1", 0)),
        (MPICH, "mpi", 1, 2, (1, 2), ("127.0.0.1", 0)),
    ],
)
def test_a_process_with_a_rank_keeps_it(
    given: Mapping[str, str],
    kind: str,
    rank: int,
    size: int,
    local: tuple[int, int],
    host: tuple[str, int | None],
) -> None:
    world = surroundings(given).world
    assert world is not None
    assert (world.launcher, world.rank, world.size) == (kind, rank, size)
    assert (world.local_rank, world.local_size) == local
    assert world.host == host[0]
    assert host[1] in (None, world.port)
    if not world.port:
        return  # MPI is asked later
    # What a program in this process would read.
    read = World.of_environment(world.environment())
    assert (read.rank, read.size, read.host, read.port) == (rank, size, world.host, world.port)


def test_one_task_for_each_node_is_a_launcher_with_ranks_of_its_own() -> None:
    given = {**SLURM, "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    given |= {"SLURM_PROCID": "1", "SLURM_LOCALID": "0"}
    found = surroundings(given, processes=8)
    assert found.world is None
    assert (found.kind, found.nnodes, found.node_rank) == ("slurm", 2, 1)
    rank = surroundings(given).world
    assert rank is not None  # without -n, each task is a rank
    assert found.master == Endpoint("gpu08", rank.port)
    assert (rank.rank, rank.size, rank.host) == (1, 2, "gpu08")
    kubeflow = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "m", "MASTER_PORT": "23456"}
    found = surroundings(kubeflow, processes=4)
    assert (found.nnodes, found.node_rank, found.master) == (2, 1, Endpoint("m", 23456))


def test_an_indexed_job_of_kubernetes_finds_its_first_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: "train-1.ring.default.svc.cluster.local")
    found = surroundings(KUBERNETES, processes=4)
    assert (found.kind, found.nnodes, found.node_rank) == ("kubernetes", 2, 1)
    assert found.master == Endpoint("train-0.ring.default.svc.cluster.local", 29400)
    given = surroundings({**KUBERNETES, "MASTER_ADDR": "a", "MASTER_PORT": "5"})
    assert given.master == Endpoint("a", 5)


def test_surroundings_that_say_nothing() -> None:
    nothing = surroundings({})
    assert (nothing.kind, nothing.world, nothing.nnodes) == ("", None, None)
    # A batch script is on its first node and in no step; a step of one task is alone as well.
    for given in (
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"},
        {**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {**MPICH, "PMI_SIZE": "1", "PMI_RANK": "0"},
    ):
        assert surroundings(given).world is None


def test_surroundings_that_contradict_what_is_asked() -> None:
    with pytest.raises(DomainError, match=r"got -n 4, and torchrun has started 2 processes"):
        surroundings(TORCHRUN, processes=4)
    with pytest.raises(DomainError, match="RANK='x'"):
        surroundings({**TORCHRUN, "RANK": "x"})
    with pytest.raises(DomainError, match="JOB_COMPLETION_INDEX is 'x'"):
        surroundings({"JOB_COMPLETION_INDEX": "x"})
    assert surroundings(TORCHRUN, processes=2).world is not None


# --- Addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.1:4000", "10.0.0.1", 4000),
        ("node-0", "node-0", 29400),
        ("[::1]:80", "::1", 80),
        ("::1", "::1", 29400),
    ],
)
def test_endpoints(text: str, host: str, port: int) -> None:
    assert Endpoint.parse(text) == Endpoint(host, port)


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:b", "a:0", "a:70000", "a b:1", "a:1:2", "a/b"])
def test_endpoints_that_are_none(text: str) -> None:
    if text == "a:":
        assert Endpoint.parse(text) == Endpoint("a", 29400)
        return
    with pytest.raises(DomainError, match="host:port"):
        Endpoint.parse(text)


def test_ports_and_interfaces_of_this_machine() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert interface_of("127.0.0.1") in ("lo", "lo0")
    assert interface_of("203.0.113.77") is None


def test_a_host_of_both_kinds_is_reached_by_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    # Many systems have ::1 first for their own name, and MLX's ring speaks IPv4 alone.
    six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 4000, 0, 0))
    four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 4000))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [six, four])
    assert resolved(Endpoint("node", 4000)) == (socket.AF_INET, ("127.0.0.1", 4000))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [six])
    assert resolved(Endpoint("node", 4000)) == (socket.AF_INET6, ("::1", 4000, 0, 0))
    assert plain_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_address("fe80::1%eth0") == "fe80::1%eth0"


def test_the_name_of_node_0_may_become_known_late(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    known = socket.getaddrinfo

    def late(host: str, *args: Any, **options: Any) -> Any:
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", late)
    listener = Listener(Endpoint("train-0.train", free_ports(1)[0]), 60.0)
    listener.close()
    assert asked == ["train-0.train"] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not share ports so")
def test_ports_that_are_held_are_for_those_who_know_them() -> None:
    ports = Ports(4)
    try:
        assert len(set(ports.numbers)) == 4
        for number in ports.numbers:
            # As engines listen; nobody else is given the port, and who does not share it has none.
            with socket.create_server(("127.0.0.1", number)) as server:
                socket.create_connection(server.getsockname()).close()
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", number))
    finally:
        ports.close()


# --- Launchers among themselves -------------------------------------------------------------------


def test_messages_between_launchers() -> None:
    (port,) = free_ports(1)
    master = Endpoint("127.0.0.1", port)
    listener = Listener(master)
    try:
        ours = connect(master, 5.0, lambda: None)
        stranger = socket.create_connection(master)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        ours.send("hello", node=1, text="é" * 100_000)
        arrivals = _until(listener.arrivals)
        assert [hello["node"] for _, hello in arrivals] == [1]
        theirs = arrivals[0][0]
        assert len(arrivals[0][1]["text"]) == 100_000
        theirs.send("start", ports=[1, 2])
        assert _until(ours.receive) == [{"kind": "start", "ports": [1, 2]}]
        ours.beat(10.0, lambda: {"ranks": []})
        ours.beat(10.0, lambda: {"ranks": []})  # not due yet
        assert _until(theirs.receive) == [{"kind": "beat", "ranks": []}]
        # A stranger is sent away, and nobody else is disturbed.
        stranger.settimeout(5.0)
        _until(lambda: listener.arrivals() or not listener._strangers)
        assert stranger.recv(10) == b""
        stranger.close()
        ours.close()
        _until(lambda: theirs.receive() or theirs.closed)
        assert theirs.closed == "it closed the connection"
        theirs.close()
    finally:
        listener.close()


def test_a_port_in_use_and_a_launcher_that_is_not_there() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        master = Endpoint("127.0.0.1", held.getsockname()[1])
        with pytest.raises(CommunicationError, match=r"cannot listen at --master .*in use"):
            Listener(master)
    with pytest.raises(CommunicationError, match=r"found no launcher of node 0 .* within 0\.3 s"):
        connect(master, 0.3, lambda: None)
    with pytest.raises(DomainError, match="is not known here"):
        Listener(Endpoint("no.such.host.invalid", 4000))


def test_lines_that_no_launcher_sends_close_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        for text in (b"[1]\n", b"{}\n", b"nonsense\n", b'{"kind": 3}\n'):
            with socket.create_connection(server.getsockname()) as theirs:
                peer = Peer(server.accept()[0])
                theirs.sendall(text)
                assert _until(lambda peer=peer: peer.receive() or peer.closed)
                peer.close()


# --- Whose fault ----------------------------------------------------------------------------------


def test_the_cause_is_not_the_one_that_lost_its_peer() -> None:
    lost = RankState(0, code=1, ending="exit", error="CommunicationError: gone", follows=True)
    aborted = RankState(1, ending="signal", code=int(signal.SIGABRT))
    killed = RankState(2, ending="signal", code=int(signal.SIGKILL))
    raised = RankState(3, code=1, error="ValueError: bad")
    asked = RankState(4, ending="signal", code=int(signal.SIGTERM), asked=True)
    assert cause_of([lost, aborted, killed, raised]) is killed
    assert cause_of([lost, aborted]) is aborted
    assert cause_of([lost]) is lost
    assert cause_of([]) is None
    assert not asked.failed
    assert [one.exit_code for one in (lost, aborted, killed, raised)] == [1, 134, 137, 1]
    assert RankState.of_json({**killed.to_json(), "news": 1}) == killed
    assert signal_name(250) == "signal 250"


def test_errors_that_say_that_another_rank_is_gone() -> None:
    assert follows(CommunicationError("rank 1 is gone"))
    assert follows(BrokenPipeError())
    assert follows(RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer"))
    later = KeyError("state")
    later.__cause__ = ConnectionResetError("gone")
    assert follows(later)
    assert not follows(ValueError("bad data"))
    assert not follows(RuntimeError("shapes do not fit"))


def test_the_report_names_rank_place_and_error() -> None:
    out = io.StringIO()
    states = [
        RankState(0, "a", 10, "signal", 15, asked=True, step=7, where="train.py:3 in main"),
        RankState(1, "b [x]", 11, "exit", 1, step=6, where="train.py:9", error="ValueError: :b: x"),
    ]
    states[1].lines = ["Traceback", "ValueError: :b: \x1b[2Jx"]
    report.show(Screen(out, out), states[1], states, seconds=3.0, attempt=1)
    text = " ".join(out.getvalue().replace("│", " ").split())
    assert "the job failed after 3.0 s (attempt 2)" in text
    assert "rank 1 (host b [x], pid 11) raised ValueError: :b: x at step 6 in train.py:9" in text
    assert "Traceback ValueError: :b: x" in text
    assert "0 a 10 ended by the launcher because of it 7 train.py:3 in main" in text
    assert "\x1b[2J" not in out.getvalue()


def test_numpy_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    there: set[str] = set()
    monkeypatch.setattr(mpi, "find_spec", lambda name: name if name in there else None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert mpi.is_needed("numpy")
    assert not mpi.is_needed("mlx")
    with pytest.raises(BackendUnavailableError, match="pip install mpi4py mpich"):
        mpi.require(1)
    there.add("mpi4py")
    with pytest.raises(BackendUnavailableError, match="mpiexec is not installed"):
        mpi.require(1)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    mpi.require(1)
    with pytest.raises(DomainError, match="mpiexec -n 8 -hosts a,b ember launch"):
        mpi.require(2)
    there.add("torch")
    assert not mpi.is_needed("numpy")


# --- Output ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"\n\nx\n", ["", "", "x"]),
        (b"10%\r20%\r100%\n", ["100%"]),
        (b"\xff\x00\x07\n", ["\\xff\\x00\\x07"]),
        ("é✓\n".encode(), ["é✓"]),
        (b"\x1b[2J\x1b]0;title\x07\x1b[1;5Hx\x1b[K\n", ["x"]),
        (
            b"\x1b[31mred\nmore\x1b[0m\nplain\n",
            [
                "\x1b[31mred\x1b[0m",
                "\x1b[31mmore\x1b[0m\x1b[0m",
                "plain",
            ],
        ),
        (b"x" * (LONGEST + 5) + b"\n", ["x" * LONGEST, "xxxxx"]),
        (b"y" * (2 * LONGEST + 1), ["y" * LONGEST, "y" * LONGEST, "y"]),
        (b"", []),
    ],
)
def test_what_a_rank_writes_is_shown_by_lines(written: bytes, shown: list[str]) -> None:
    assert _relayed([written]) == shown


def test_lines_that_come_in_parts() -> None:
    assert _relayed([b"ab", b"c\r", b"\nd", "é".encode()[:1], "é".encode()[1:] + b"\n"]) == [
        "abc",
        "dé",
    ]


def test_nothing_moves_the_cursor() -> None:
    text = "".join(chr(code) for code in range(0x250)) + "\x1b[31m\x1b[?25l\x1bc\x1b"
    assert "\x1b[31m" in printable(text)
    assert printable(text).replace("\x1b[31m", "").count("\x1b") == 0
    assert "\n" not in printable(text)


def _relayed(parts: list[bytes]) -> list[str]:
    out = io.StringIO()
    reading, writing = os.pipe()
    relay = Relay(Screen(out, out), "out", 3, os.fdopen(reading, "rb", buffering=0))
    for part in parts:
        os.write(writing, part) if len(part) < 60_000 else _written(writing, part)
        time.sleep(0.02 if len(parts) > 1 else 0)
    os.close(writing)
    relay.join(10.0)
    lines = out.getvalue().split("\n")
    assert lines.pop() == ""
    assert all(line.startswith("[rank 3] ") for line in lines)
    return [line.removeprefix("[rank 3] ") for line in lines]


def _written(writing: int, part: bytes) -> None:
    while part:
        part = part[os.write(writing, part) :]


# --- Beats ----------------------------------------------------------------------------------------


def test_a_beat_tells_step_and_place() -> None:
    ours, theirs = socket.socketpair()
    channel = beats.Channel(theirs, 0.05)
    thread = threading.Thread(target=channel._run, daemon=True)
    channel.step = 12
    thread.start()
    ours.settimeout(10.0)
    text = ours.recv(65_536).decode().splitlines()[0]
    assert '"kind": "beat"' in text
    assert '"step": 12' in text
    assert "test_launch_parts.py:" in text
    theirs.close()  # its own end: the thread ends, and the process does not
    thread.join(5.0)
    assert not thread.is_alive()
    ours.close()


def test_a_note_in_a_process_that_was_not_launched_is_nothing() -> None:
    beats.note(step=1, epoch=0)
    assert beats._channel is None


def _until(what: Any, limit: float = 10.0) -> Any:
    end = time.monotonic() + limit
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found
