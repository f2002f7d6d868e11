"""The commands of the guide to several machines, in the environments that they are for."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ember_ml.cli.app import app
from ember_ml.distributed.launching import agent
from ember_ml.distributed.launching.addresses import Endpoint

GUIDE = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text(encoding="utf-8")
# What these systems set by themselves in the first and in the second of two nodes.
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_LOCALID": "0",
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command up to the moment in which processes would start; gives what was asked for."""
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "EMBER_LAUNCH"):
        monkeypatch.delenv(name, raising=False)
    found: list[agent.Options] = []

    class Asked:
        def __init__(self, options: agent.Options, screen: Any) -> None:
            found.append(options)

        def run(self) -> int:
            return 0

    monkeypatch.setattr(agent, "Agent", Asked)

    def ask(command: list[str], environment: dict[str, str]) -> agent.Options:
        assert command[0] == "ember"
        made = CliRunner().invoke(app, command[1:], env=environment)
        assert made.exit_code == 0, (made.output, made.exception)
        return found.pop()

    return ask


def test_slurm(asked: Any) -> None:
    (script,) = blocks("bash")
    options = dict(re.findall(r"#SBATCH --([a-z-]+)=(\S+)", script))
    assert (options["nodes"], options["ntasks-per-node"]) == ("2", "1")
    (line,) = [one for one in script.splitlines() if one.startswith("srun ")]
    command = shlex.split(line)
    command = command[command.index("ember") :]
    for node in range(2):
        own = {"SLURM_PROCID": str(node), "SLURM_NODEID": str(node)}
        found = asked(command, {**SLURM, **own})
        assert (found.nnodes, found.node_rank, found.processes) == (2, node, 8)
        assert found.processes == int(options["gpus-per-node"])
        assert found.master is not None
        assert found.master.host == "gpu07"
        assert found.backend == "torch"
        assert found.max_restarts == 3


def test_kubernetes(asked: Any) -> None:
    (text,) = blocks("yaml")
    service, job = yaml.safe_load_all(text)
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    # A pod of an indexed job is <job>-<index>.<subdomain>, by a headless service of that name.
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 2
    (container,) = pod["containers"]
    mounted = {one["name"] for one in container["volumeMounts"]}
    assert mounted == {one["name"] for one in pod["volumes"]}
    for index in range(2):
        environment = {"JOB_COMPLETION_INDEX": str(index), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        found = asked(container["command"], environment)
        assert (found.nnodes, found.node_rank) == (spec["completions"], index)
        first = f"{job['metadata']['name']}-0.{pod['subdomain']}"
        assert found.master == Endpoint(first, 29400)
        assert found.processes == container["resources"]["limits"]["nvidia.com/gpu"]


def test_by_hand(asked: Any) -> None:
    lines = [line for block in blocks("console") for line in block.splitlines()]
    nodes = [line.partition("$ ")[2] for line in lines if line.startswith("node")]
    for node, line in enumerate(nodes):
        found = asked(shlex.split(line), {})
        assert (found.nnodes, found.node_rank) == (2, node)
        assert found.master == Endpoint("10.0.0.1", 29400)
    alone = [line.removeprefix("$ ") for line in lines if line.startswith("$ ember launch")]
    assert len(nodes) == len(alone) == 2
    for line in alone:
        found = asked(shlex.split(line, comments=True), {})
        assert (found.nnodes, found.processes) == (1, 4)
