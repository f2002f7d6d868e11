"""A data parallel step on two processes beside the engine's own, and what sums of ranks cost.

Raw is DistributedDataParallel with torch.nn on torch, and a jitted step with a psum under shard_map
on JAX; NumPy and MLX have none, and are shown beside one process with the whole batch. Both
sides run in the same two processes, on one thread each, in the same shuffled rounds; what counts is
wall time, since waiting for the other rank is what is measured. Before that, both sides must agree
with a run of one process on the whole batch, after 20 steps.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.records import Bar, Record
from ember_ml.distributed import initialize
from ember_ml.distributed.strategy import DataParallelStrategy

__all__ = ["BENCHMARK", "COUNTS"]

LIMIT = 1.1
SIZES = (784, 1024, 1024, 10)
BATCH = 256
STEPS = 20
RATE, MOMENTUM = 0.05, 0.9
# Sums of these bytes give the constants of the link.
COUNTS = (1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 25)
Step = Callable[[], Any]


def batch() -> tuple[Any, Any]:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((BATCH, SIZES[0])).astype(np.float32)
    return x, draw.integers(0, SIZES[-1], BATCH)


def own_rows(rank: int, size: int) -> list[Any]:
    """The part of a rank; ranks divide the batch."""
    count = BATCH // size
    return [part[rank * count : (rank + 1) * count].copy() for part in batch()]


def weights() -> list[Any]:
    """A matrix and a vector for each layer, as nn.Linear has them: outputs by inputs."""
    draw = np.random.default_rng(1)
    found = []
    for n, m in itertools.pairwise(SIZES):
        found += [(draw.standard_normal((m, n)) / n**0.5).astype(np.float32)]
        found += [np.zeros(m, np.float32)]
    return found


# --- Ours ---------------------------------------------------------------------------------------


class Ours:
    """A Trainer's step, on one process or on all of them."""

    def __init__(self, strategy: Any = None) -> None:
        layers: list[Any] = []
        for n, m in itertools.pairwise(SIZES):
            layers += [nn.Linear(n, m), nn.ReLU()]
        self.model = nn.Sequential(*layers[:-1])
        with em.no_grad():
            for parameter, value in zip(self.model.parameters(), weights(), strict=True):
                parameter[...] = ops.asarray(value)
        optimizer = training.SGD(self.model, lr=RATE, momentum=MOMENTUM)
        self.trainer = training.Trainer(
            self.model, optimizer, "cross_entropy", strategy=strategy, check_finite=False
        )

    def fit(self, steps: int) -> None:
        """So many steps on the same batch."""
        self.trainer.fit(batch(), steps, batch_size=BATCH, shuffle=False, verbose=0)

    def values(self) -> list[Any]:
        """What has been learned."""
        return [x.numpy() for x in self.model.parameters()]

    def step(self) -> Step:
        """A step on this rank's part of the batch, with which the trainer has begun."""
        self.fit(1)
        strategy, loader = self.trainer.strategy, self.trainer.loader
        if strategy is not None:
            loader = loader.parts(strategy.communicator.rank, strategy.num_devices)
        part = next(iter(loader))
        return lambda: self.trainer.stepper.train([part])


# --- The engines' own ---------------------------------------------------------------------------


def raw_torch(rank: int, size: int) -> tuple[Step, Callable[[], list[Any]]]:
    import torch

    layers: list[Any] = []
    for n, m in itertools.pairwise(SIZES):
        layers += [torch.nn.Linear(n, m), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights(), strict=True):
            parameter.copy_(torch.from_numpy(value))
    parallel = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    x, y = (torch.from_numpy(part) for part in own_rows(rank, size))

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(parallel(x), y)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        optimizer.step()
        return float(loss.detach())

    return step, lambda: [p.detach().numpy().copy() for p in model.parameters()]


def raw_jax(rank: int, size: int) -> tuple[Step, Callable[[], list[Any]]]:
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    first = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([first[i] for i in range(size)]), ("ranks",))
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("ranks"))

    def loss_of(values: list[Any], x: Any, y: Any) -> Any:
        for i in range(0, len(values), 2):
            x = x @ values[i].T + values[i + 1]
            if i + 2 < len(values):
                x = jnp.maximum(x, 0)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1)
        return -chosen.mean()

    def update(values: list[Any], speeds: list[Any], x: Any, y: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(values, x, y)
        loss, slopes = jax.lax.pmean((loss, slopes), "ranks")
        speeds = [MOMENTUM * v + g for v, g in zip(speeds, slopes, strict=True)]
        return [w - RATE * v for w, v in zip(values, speeds, strict=True)], speeds, loss

    spread = jax.shard_map(
        update,
        mesh=mesh,
        in_specs=(P(), P(), P("ranks"), P("ranks")),
        out_specs=P(),
        check_vma=False,
    )
    run = jax.jit(spread, donate_argnums=(0, 1))
    state = [[jax.device_put(jnp.asarray(w), whole) for w in weights()]]
    state += [[jax.device_put(jnp.zeros_like(w), whole) for w in weights()]]
    own = [jax.make_array_from_process_local_data(split, part) for part in own_rows(rank, size)]

    def step() -> float:
        *state[:], loss = run(*state, *own)
        return float(loss)

    return step, lambda: [np.asarray(w) for w in state[0]]


def raw_alone(rank: int, size: int) -> tuple[Step, None]:
    """A step of our own on one process, with the whole batch."""
    alone = Ours()
    return alone.step(), None


AGAINST = {"torch": "DistributedDataParallel", "jax": "a jitted step under shard_map"}
RAW: dict[str, Callable[[int, int], tuple[Step, Any]]] = {"torch": raw_torch, "jax": raw_jax}


# --- In each of the processes -------------------------------------------------------------------


def farthest(found: list[Any], expected: list[Any]) -> float:
    """The largest difference."""
    return max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))


def measured_step(backend: str, rounds: int) -> dict[str, Any]:
    """Seconds of a step of both sides, once both have learned the same as one process."""
    communicator = initialize(backend)
    rank, size = communicator.rank, communicator.world_size
    alone, ours = Ours(), Ours(DataParallelStrategy())
    alone.fit(STEPS)
    ours.fit(STEPS)
    apart = {"ours": farthest(ours.values(), alone.values())}
    raw, learned = RAW.get(backend, raw_alone)(rank, size)
    if learned is not None:
        for _ in range(STEPS):
            raw()
        apart["raw"] = farthest(alone.values(), learned())
    far = {name: value for name, value in apart.items() if not value < 1e-5}
    if far:
        raise AssertionError(
            f"after {STEPS} steps, weights differ from those of one process: {far}"
        )
    steps = {"raw": raw, "ours": ours.step()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    order = list(steps)
    shuffled = random.Random(0)  # ranks take the same turns
    for turn in range(rounds + 1):
        shuffled.shuffle(order)
        for name in order:
            communicator.barrier()
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(5):
                steps[name]()
            if turn:  # the first one compiles
                found = (time.process_time() - cpu) / 5, (time.perf_counter() - wall) / 5
                times[name].append(found)
    result: dict[str, Any] = {"apart": apart}
    for name, spent in times.items():
        result[name] = statistics.median(cpu for cpu, _ in spent)
        result[f"{name}_wall"] = statistics.median(wall for _, wall in spent)
    return result


def measured_sums(backend: str, rounds: int) -> dict[str, float]:
    """Seconds of sums of some bytes, as gradients are summed."""
    communicator = initialize(backend)
    found = {}
    for count in COUNTS:
        spent = []
        for _ in range(rounds + 1):
            x = ops.ones((count // 4,))
            communicator.barrier()
            began = time.perf_counter()
            for native in communicator.start_sum([x.native]).wait():
                communicator._backend.finish(native)
            spent.append(time.perf_counter() - began)
        found[str(count)] = statistics.median(spent[1:])
    return found


def work(backend: str, what: str, rounds: int, path: str) -> None:
    """What `ember launch` runs in each process."""
    em.set_backend(backend)
    if backend == "torch":
        import torch

        torch.set_num_threads(1)
    found = (measured_step if what == "step" else measured_sums)(backend, rounds)
    if initialize(backend).rank == 0:
        Path(path).write_text(json.dumps(found), encoding="utf-8")


# --- The records --------------------------------------------------------------------------------


def _launched(setting: Setting, what: str) -> dict[str, Any]:
    """What two processes find, in which this module is the program."""
    path = setting.place / f"{what}.json"
    command = [sys.executable, "-m", "ember_ml.launch", "-n", "2", "--backend", setting.backend]
    command += ["--module", "ember_ml.bench.suites.distributed", setting.backend, what]
    command += [str(setting.rounds_of(15)), str(path)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def steps(setting: Setting) -> Iterator[Record]:
    """A step of both sides on two processes."""
    backend = setting.backend
    found = _launched(setting, "step")
    apart = found.pop("apart")
    yield Record(
        "distributed",
        "steps",
        "data parallel step",
        backend,
        **found,
        against=AGAINST.get(backend, "one process with the whole batch"),
        bar=Bar("wall", LIMIT) if backend in RAW else None,
        notes=f"2 processes; weights after {STEPS} steps within {max(apart.values()):.1g} of one's",
    )


def sums(setting: Setting) -> Iterator[Record]:
    """Sums over two processes; there is no raw beside them: they are the constants of the link."""
    for count, seconds in _launched(setting, "sums").items():
        yield Record(
            "distributed",
            "sums",
            f"sum of {int(count) >> 10:,} KiB",
            setting.backend,
            ours=seconds,
            ours_wall=seconds,
            size=int(count),
            notes="wall time",
        )


BENCHMARK = Benchmark(
    "distributed",
    "A data parallel step on two processes beside the engine's own, and sums of ranks.",
    {"steps": steps, "sums": sums},
)

if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
