"""Collectives inside of em.jit, and what becomes of a peer that dies or of a group that is left."""

from __future__ import annotations

import functools
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import distributed, errors, nn, ops, training
from ember_ml.distributed.strategy import ShardedDataParallelStrategy
from tests.distributed import jobs

ENGINES = ("torch", "jax", "mlx")
N = 2
# A number of each rank's own. On JAX, one of them is such that XLA leaves a product with it out,
# and would order collectives differently; on MLX ranks must trace the same graph.
WEIGHTS = {"torch": (1.0, 3.0), "jax": (1.0, 3.0), "mlx": (1.5, 2.5)}


def _input(rank: int) -> np.ndarray[Any, Any]:
    return np.arange(6, dtype=np.float32).reshape(2, 3) + rank


def inside() -> dict[str, Any]:
    """What compiled functions with collectives give, beside what the same gives outside."""
    comm = distributed.initialize()
    rank, weight = comm.rank, WEIGHTS[comm.backend][comm.rank]
    x = ops.asarray(_input(rank))
    found: dict[str, Any] = {}

    def calls(x: Any) -> dict[str, Any]:
        return {
            "sum": comm.all_reduce(x),
            "mean": comm.all_reduce(x, "mean"),
            "max": comm.all_reduce(x, "max"),
            "prod": comm.all_reduce(x, "prod"),
            "broadcast": comm.broadcast(x, 1),
            "gather": comm.all_gather(x, axis=1),
            "scatter": comm.reduce_scatter(x),
            "of a constant": comm.all_reduce(ops.ones((2,)) * (rank + 1)),
            "integers": comm.all_reduce(ops.astype(x, "int32"), "max"),
        }

    found["outside"] = calls(x)
    run = em.jit(calls)
    for key in ("inside", "again"):
        found[key] = run(x)

    def part(x: Any) -> Any:
        return (
            ops.sum(comm.all_reduce(x * x)) * weight
            + ops.sum(comm.broadcast(x, 0)) * weight
            + ops.sum(comm.all_gather(x) ** 2)
        )

    def loss(x: Any) -> Any:
        return part(x) + ops.sum(comm.reduce_scatter(x * x * weight))

    found["gradient"] = em.grad(loss)(x)
    found["gradient inside"] = em.jit(em.grad(loss))(x)
    found["gradient of inside"] = em.grad(em.jit(loss))(x)
    leaf = ops.asarray(_input(rank)).requires_grad_()
    em.jit(part)(leaf).backward()
    found["backward"] = leaf.grad

    # A step of training: state is written to, and its memory is given up to the call.
    w = ops.asarray(np.full((3,), 2.0, np.float32))

    def step(x: Any) -> Any:
        value, g = em.value_and_grad(lambda w: ops.mean((x @ w - 1) ** 2))(w)
        w[...] = w - 0.01 * comm.all_reduce(g, "mean")
        return comm.all_reduce(value, "mean")

    compiled = em.jit(step, state=w)
    losses = [compiled(x).item() for _ in range(5)]
    found["losses"], found["w"] = np.asarray(losses), w

    # Programs without collectives are as they were.
    found["alone"] = em.jit(lambda x: x * 2 + rank)(x)
    pending = comm.start_sum([x.native, (x * 2).native])
    found["started"] = [np.asarray(comm._backend.to_numpy(one)) for one in pending.wait()]
    return found


@functools.cache
def _found(engine: str) -> list[jobs.Outcome]:
    return jobs.run(inside, N, engine, limit=300)


@pytest.mark.parametrize("engine", ENGINES)
def test_inside_is_as_outside(engine: str) -> None:
    parts = [_input(rank) for rank in range(N)]
    for one in _found(engine):
        value = one.value
        wanted = {
            "sum": parts[0] + parts[1],
            "mean": (parts[0] + parts[1]) / 2,
            "max": np.maximum(*parts),
            "prod": parts[0] * parts[1],
            "broadcast": parts[1],
            "gather": np.concatenate(parts, 1),
            "scatter": (parts[0] + parts[1])[one.rank : one.rank + 1],
            "of a constant": np.full(2, 3.0, np.float32),
            "integers": np.maximum(*parts).astype(np.int32),
        }
        for key in ("outside", "inside", "again"):
            for name, array in wanted.items():
                assert value[key][name].dtype == array.dtype, (key, name)
                np.testing.assert_array_equal(value[key][name], array, err_msg=f"{key} {name}")
        np.testing.assert_array_equal(value["alone"], parts[one.rank] * 2 + one.rank)
        np.testing.assert_array_equal(value["started"][0], wanted["sum"])
        np.testing.assert_array_equal(value["started"][1], wanted["sum"] * 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_are_those_of_the_sum_of_all_losses(engine: str) -> None:
    weights = WEIGHTS[engine]
    total = sum(weights)
    for one in _found(engine):
        x = _input(one.rank)
        # Of x * x by all ranks with their weights, of what all gather, and of each own weight.
        part = 2 * x * total + 4 * x + (total if one.rank == 0 else 0)
        np.testing.assert_allclose(one.value["backward"], part, rtol=1e-6)
        wanted = part + 2 * x * weights[one.rank]
        for key in ("gradient", "gradient inside", "gradient of inside"):
            np.testing.assert_allclose(one.value[key], wanted, rtol=1e-6, err_msg=key)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_of_training(engine: str) -> None:
    w = np.full(3, 2.0)
    x = np.concatenate([_input(rank) for rank in range(N)]).astype(np.float64)
    losses = []
    for _ in range(5):
        error = x @ w - 1
        losses.append(np.mean(error**2))
        w = w - 0.01 * 2 * x.T @ error / len(x)
    for one in _found(engine):
        np.testing.assert_allclose(one.value["losses"], losses, rtol=1e-4)
        np.testing.assert_allclose(one.value["w"], w, rtol=1e-4)


def a_peer_dies() -> dict[str, Any]:
    comm = distributed.initialize(timeout=60)
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        while True:
            comm.all_reduce(ops.ones((1000,)))
    except errors.CommunicationError as error:
        return {"seconds": time.monotonic() - start, "text": str(error)}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_peer_that_dies_is_an_error_and_the_process_ends(engine: str) -> None:
    found = jobs.run(a_peer_dies, N, engine, limit=150, grace=90, check=False, abandoned=[1])
    assert found[0].value is not None, found[0].output
    assert "gone" in found[0].value["text"]
    assert found[0].value["seconds"] < 60


def threads_left() -> list[str]:
    """The names of gloo's threads once the group is left."""
    comm = distributed.initialize()
    em.jit(comm.all_reduce)(ops.ones((3,)))
    distributed.shutdown()
    return gloo_threads()


def gloo_threads() -> list[str]:
    tasks = os.listdir("/proc/self/task")
    names = [Path(f"/proc/self/task/{one}/comm").read_text().strip() for one in tasks]
    return [name for name in names if "gloo" in name]


def threads_left_by_fsdp() -> list[str]:
    """The same where torch's FSDP2 has divided a model over the group: its caches hold meshes."""
    strategy = ShardedDataParallelStrategy()
    model = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 2))
    optimizer = training.AdamW(model, lr=0.01)
    trainer = training.Trainer(model, optimizer, "mse", strategy=strategy)
    trainer.fit((np.ones((8, 3), np.float32), np.ones((8, 2), np.float32)), 1, batch_size=4)
    distributed.shutdown()
    return gloo_threads()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted on Linux")
def test_no_thread_of_gloo_outlives_the_group() -> None:
    # One that lets go of a tensor while Python ends makes the process end by SIGABRT.
    for job in (threads_left, threads_left_by_fsdp):
        assert [one.value for one in jobs.run(job, 2, "torch")] == [[], []], job
