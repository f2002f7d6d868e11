"""What launchers say in the environment, and what is made of it."""

from __future__ import annotations

import pytest

from ember_ml.distributed import World
from ember_ml.distributed.environments import hosts_of, tasks_of
from ember_ml.errors import DomainError

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29511",
}
SLURM = {
    "SLURM_JOB_ID": "1234",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "5",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NODELIST": "gpu[01-03]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
}
INDEXED = {
    "JOB_COMPLETION_INDEX": "2",
    "WORLD_SIZE": "3",
    "MASTER_ADDR": "train-0.train",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
}


def read(given: dict[str, str]) -> World:
    return World.of_environment(given)


# --- Who is known ----------------------------------------------------------------------------


def test_nothing_is_a_process_alone() -> None:
    assert read({}) == World()
    assert read({"MASTER_ADDR": "node0", "PATH": "/bin"}) == World()


def test_a_world_is_what_its_environment_says() -> None:
    for world in (
        World(),
        World(1, 2, 1, 2, "10.0.0.1", 1234, ("10.0.0.1:5", "10.0.0.1:6"), 3),
    ):
        found = read(world.environment())
        assert found.launcher == "ember"
        assert found.environment() == world.environment()


def test_torchrun() -> None:
    assert read(TORCHRUN) == World(3, 4, 1, 2, "node0", 29511, launcher="torchrun")
    again = {**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2"}
    assert read(again).attempt == 2
    assert not read(TORCHRUN).is_local
    assert World(1, 2, 1, 2).is_local


def test_open_mpi() -> None:
    given = {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    }
    assert read(given) == World(3, 4, 1, 2, launcher="mpi")
    told = {**given, "MASTER_ADDR": "node0", "MASTER_PORT": "7"}
    assert read(told) == World(3, 4, 1, 2, "node0", 7, launcher="mpi")


def test_mpich_and_intel() -> None:
    given = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    assert read(given) == World(1, 2, 1, 2, launcher="mpi")
    assert read({"PMI_RANK": "1", "PMI_SIZE": "2"}) == World(1, 2, launcher="mpi")
    assert read({"PMI_RANK": "0", "PMI_SIZE": "1"}) == World(launcher="mpi")


def test_slurm() -> None:
    world = read(SLURM)
    assert (world.rank, world.size, world.local_rank, world.local_size) == (3, 5, 1, 2)
    assert (world.host, world.launcher) == ("gpu01", "slurm")
    # The same on every rank, another for another job, and none that systems give away.
    assert 20000 <= world.port < 30000
    assert world.port == read({**SLURM, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}).port
    assert world.port != read({**SLURM, "SLURM_JOB_ID": "1235"}).port
    assert [one.partition(":")[0] for one in world.ring] == [
        "gpu01",
        "gpu01",
        "gpu02",
        "gpu02",
        "gpu03",
    ]
    assert len(set(world.ring)) == 5
    assert read({**SLURM, "SLURM_NODEID": "2", "SLURM_LOCALID": "0"}).local_size == 1
    said = read({**SLURM, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "7"})
    assert (said.host, said.port) == ("10.0.0.1", 7)
    assert read({**SLURM, "SLURM_DISTRIBUTION": "cyclic"}).ring == ()


def test_slurm_with_less_said() -> None:
    given = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"}
    world = read({**given, "SLURM_JOB_NODELIST": "gpu7"})
    assert (world.rank, world.size, world.local_rank, world.local_size) == (1, 2, 1, 2)
    assert world.host == "gpu7"


def test_slurm_with_one_task() -> None:
    one = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "gpu7"}
    assert read(one) == World(launcher="slurm")
    assert read({"SLURM_PROCID": "0"}) == World()
    # A script of sbatch, in an allocation of four, is no task of a step.
    script = {"SLURM_JOB_ID": "9", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
    assert read(script) == World()
    # As is a shell of `srun --pty` in it.
    shell = {**script, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    assert read(shell) == World(launcher="slurm")


def test_slurm_and_mpi_together() -> None:
    # srun --mpi=pmi2: both count the same, and Slurm knows the nodes.
    both = {**SLURM, "PMI_RANK": "3", "PMI_SIZE": "5"}
    assert read(both).launcher == "slurm"
    # mpiexec in a job of Slurm: srun started one process for each node.
    nodes = {**SLURM, "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3", "SLURM_LOCALID": "0"}
    found = read({**nodes, "PMI_RANK": "5", "PMI_SIZE": "6"})
    assert (found.rank, found.size, found.launcher) == (5, 6, "mpi")
    # And `ember launch` in each of them is above both.
    assert read({**both, **World(1, 2, 1, 2, port=5).environment()}).launcher == "ember"


def test_kubernetes() -> None:
    assert read(INDEXED) == World(2, 3, 0, 1, "train-0.train", 29500, launcher="kubernetes")
    assert read({**INDEXED, "MASTER_PORT": "7"}).port == 7
    job = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "job-master-0",
        "MASTER_PORT": "23456",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    }
    assert read(job) == World(1, 2, 0, 1, "job-master-0", 23456, launcher="kubernetes")
    # Pods that know nothing of each other.
    assert read({"JOB_COMPLETION_INDEX": "4"}) == World()


# --- What makes no sense ---------------------------------------------------------------------


def without(given: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in given.items() if name not in names}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"RANK": "0"}, r"has RANK without WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, r"has WORLD_SIZE without RANK"),
        (without(TORCHRUN, "MASTER_PORT"), r"without MASTER_PORT"),
        (without(TORCHRUN, "MASTER_ADDR", "MASTER_PORT"), r"without MASTER_ADDR and MASTER_PORT"),
        ({**TORCHRUN, "MASTER_ADDR": ""}, r"without MASTER_ADDR"),
        (without(TORCHRUN, "LOCAL_RANK"), r"without LOCAL_RANK"),
        ({**TORCHRUN, "RANK": "x"}, r"RANK='x', which is to be an integer"),
        ({**TORCHRUN, "RANK": ""}, r"RANK='', which is to be an integer"),
        ({**TORCHRUN, "RANK": "4"}, r"RANK=4 and WORLD_SIZE=4"),
        ({**TORCHRUN, "RANK": "-1"}, r"RANK=-1 and WORLD_SIZE=4"),
        ({**TORCHRUN, "LOCAL_RANK": "2"}, r"LOCAL_RANK=2 and LOCAL_WORLD_SIZE=2"),
        ({**TORCHRUN, "MASTER_PORT": "70000"}, r"MASTER_PORT=70000, which is no port"),
        ({**TORCHRUN, "MASTER_PORT": "http"}, r"MASTER_PORT='http'"),
        ({**TORCHRUN, "EMBER_RING": "{"}, r"JSON list of addresses"),
        ({**TORCHRUN, "EMBER_RING": "[1]"}, r"JSON list of addresses"),
        ({**TORCHRUN, "EMBER_RING": '["a:1"]'}, r"each of 4 ranks, and got 1"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, r"without OMPI_COMM_WORLD_SIZE"),
        ({"PMI_SIZE": "2"}, r"without PMI_RANK"),
        ({"SLURM_PROCID": "1", "SLURM_STEP_ID": "0"}, r"without SLURM_NTASKS"),
        (without(SLURM, "SLURM_STEP_NODELIST"), r"without SLURM_STEP_NODELIST"),
        ({**SLURM, "SLURM_STEP_NODELIST": "gpu[1-"}, r"not 'gpu\[1-'"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "two"}, r"not 'two'"),
        (without(INDEXED, "WORLD_SIZE"), r"without WORLD_SIZE"),
        (without(INDEXED, "MASTER_ADDR"), r"without MASTER_ADDR"),
        ({**INDEXED, "JOB_COMPLETION_INDEX": "3"}, r"JOB_COMPLETION_INDEX=3 and WORLD_SIZE=3"),
    ],
)
def test_half_set_or_broken(given: dict[str, str], text: str) -> None:
    with pytest.raises(DomainError, match=text):
        read(given)


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 2, "size": 2},
        {"rank": -1},
        {"size": 0},
        {"local_rank": 1},
        {"port": 70000},
        {"size": 2, "ring": ("a:1",)},
    ],
)
def test_worlds_that_cannot_be(options: dict[str, object]) -> None:
    with pytest.raises(DomainError):
        World(**options)  # type: ignore[arg-type]


# --- Slurm's short forms ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu7", ["gpu7"]),
        ("a,b-1", ["a", "b-1"]),
        ("gpu[01-03,7]", ["gpu01", "gpu02", "gpu03", "gpu7"]),
        ("gpu[098-101]", ["gpu098", "gpu099", "gpu100", "gpu101"]),
        ("a[1-2],login,b[5]", ["a1", "a2", "login", "b5"]),
        ("r[1-2]n[1-2].x", ["r1n1.x", "r1n2.x", "r2n1.x", "r2n2.x"]),
    ],
)
def test_hosts(text: str, hosts: list[str]) -> None:
    assert hosts_of(text) == hosts


@pytest.mark.parametrize("text", ["", "gpu[", "gpu]", "gpu[]", "gpu[a-b]", "gpu[3-1]", "g[1,]"])
def test_no_hosts(text: str) -> None:
    with pytest.raises(DomainError, match="a list of Slurm's nodes"):
        hosts_of(text)


def test_tasks() -> None:
    assert tasks_of("2(x3),1") == [2, 2, 2, 1]
    assert tasks_of("4") == [4]
    for text in ("", "2(x)", "x", "2,,1"):
        with pytest.raises(DomainError, match="tasks of each node"):
            tasks_of(text)
