"""A data parallel step on two processes beside the engine's own, and what sums of ranks cost.

    python benchmarks/distributed.py                     a table
    python benchmarks/distributed.py --backend torch --check --json out.json
    python benchmarks/distributed.py --only sums --plot docs/assets/scaling.svg
    python benchmarks/distributed.py --measured out.json --plot docs/assets/scaling.svg

Raw is DistributedDataParallel with torch.nn on torch, and a jitted step with a psum under shard_map
on JAX; NumPy and MLX have none, and are shown beside one process with the whole batch. Both
sides run in the same two processes, on one thread each, in the same shuffled rounds; what counts is
wall time, since waiting for the other rank is what is measured. Before that, both sides must agree
with a run of one process on the whole batch, after 20 steps.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import ONE_THREAD, installed, machine, missed, show

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.distributed import initialize
from ember_ml.distributed.scaling import Link, StepModel, fitted_link
from ember_ml.distributed.strategy import DataParallelStrategy

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
        loss.backward()
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
        sys.exit(f"{backend}: after {STEPS} steps, weights differ from those of one process: {far}")
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
                spent = (time.process_time() - cpu) / 5, (time.perf_counter() - wall) / 5
                times[name].append(spent)
    result: dict[str, Any] = {"apart": apart}
    for name, spent in times.items():
        result[name] = statistics.median(cpu for cpu, _ in spent)
        result[f"{name}_wall"] = statistics.median(wall for _, wall in spent)
    ratio = result["ours_wall"] / result["raw_wall"]
    barred = backend in RAW
    return {
        **result,
        "ratio": result["ours"] / result["raw"],
        "bar": f"{LIMIT:g} of wall time" if barred else "",
        "missed": barred and ratio > LIMIT,
    }


def measured_sums(backend: str, rounds: int) -> dict[str, Any]:
    """Seconds of sums of some sizes, as gradients are summed."""
    communicator = initialize(backend)
    found = []
    for count in COUNTS:
        spent = []
        for _ in range(rounds + 1):
            x = ops.ones((count // 4,))
            communicator.barrier()
            began = time.perf_counter()
            for native in communicator.start_sum([x.native]).wait():
                communicator._backend.finish(native)
            spent.append(time.perf_counter() - began)
        found.append(statistics.median(spent[1:]))
    link = fitted_link(COUNTS, found, communicator.world_size)
    return {
        "seconds": dict(zip(map(str, COUNTS), found, strict=True)),
        "latency": link.latency,
        "bandwidth": link.bandwidth,
    }


def work(backend: str, only: list[str], rounds: int, path: str) -> None:
    """What `ember launch` runs in each process."""
    em.set_backend(backend)
    if backend == "torch":
        import torch

        torch.set_num_threads(1)
    found: dict[str, Any] = {}
    if "steps" in only:
        found["step"] = measured_step(backend, rounds)
    if "sums" in only:
        found["sums"] = measured_sums(backend, rounds)
    if initialize(backend).rank == 0:
        Path(path).write_text(json.dumps(found), encoding="utf-8")


# --- The plot -----------------------------------------------------------------------------------


# Data sheets, not measurements: what such networks promise.
NOMINAL = {
    "25 Gb/s Ethernet": Link(20e-6, 25e9 / 8),
    "100 Gb/s Ethernet": Link(10e-6, 100e9 / 8),
    "400 Gb/s InfiniBand": Link(3e-6, 400e9 / 8),
}
# Gradients go in float32, those of 16 bits too. Ten million and a second of two passes, as on CPUs;
# and 650 million with half a second, as on GPUs.
SMALL = StepModel(0.35, 0.65, [1e6, 25e6, 14e6])
LARGE = StepModel(0.15, 0.35, [1e6, *[25e6] * 104])


def plot(path: str, measured: dict[str, Link]) -> None:
    """How the speed of a rank falls with their number, by the model of distributed.scaling."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "ember_ml"
    from matplotlib import pyplot

    ranks = [2**i for i in range(11)]
    panels = [
        ("10 million weights, 1 s a step\nlinks measured on loopback", SMALL, measured),
        ("650 million weights, 0.5 s a step\nlinks by their data sheets", LARGE, NOMINAL),
    ]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), sharey=True)
    for place, (title, step, links) in zip(axes, panels, strict=True):
        for name, link in links.items():
            speeds = [100 * step.efficiency(n, link) for n in ranks]
            place.plot(ranks, speeds, marker="o", markersize=3, label=name)
        place.set_title(title, fontsize=9)
        place.set_xscale("log", base=2)
        place.set_xticks(ranks[::2], [str(n) for n in ranks[::2]])
        place.set_ylim(0, 105)
        place.set_xlabel("ranks, each with the same batch")
        place.grid(alpha=0.3)
        place.legend(fontsize=8)
    axes[0].set_ylabel("speed of a rank, % of one alone")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


# --- The command line ---------------------------------------------------------------------------


def launched(backend: str, options: argparse.Namespace, directory: str) -> dict[str, Any]:
    path = Path(directory) / f"{backend}.json"
    command = [sys.executable, "-m", "ember_ml.launch", "-n", str(options.n), "--backend", backend]
    command += [__file__, "--worker", str(path), "--backend", backend]
    command += ["--rounds", str(options.rounds)]
    for only in options.only or ():
        command += ["--only", only]
    subprocess.run(command, check=True, env=os.environ | ONE_THREAD, stdout=sys.stderr)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Measure, show, and draw."""
    groups = ["steps", "sums"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", action="append", choices=["numpy", "torch", "jax", "mlx"])
    parser.add_argument("--only", action="append", choices=groups)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-n", type=int, default=2, help="how many processes")
    parser.add_argument("--json", help="write all numbers here")
    parser.add_argument("--plot", help="draw the model of scaling here, from what was measured")
    parser.add_argument("--measured", help="take the numbers that --json wrote, and measure none")
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.backend[0], options.only or groups, options.rounds, options.worker)
        return
    found: dict[str, Any] = {}
    if options.measured:
        found = json.loads(Path(options.measured).read_text(encoding="utf-8"))["found"]
    else:
        with tempfile.TemporaryDirectory() as directory:
            for backend in options.backend or installed():
                found[backend] = launched(backend, options, directory)
    steps = {f"{name} step": one["step"] for name, one in found.items() if "step" in one}
    if steps:
        show(steps)
    for name, one in found.items():
        if "sums" in one:
            sums = one["sums"]
            big = max(map(int, sums["seconds"]))
            print(
                f"{name}: {sums['latency'] * 1e6:.0f} us a message, "
                f"{sums['bandwidth'] / 1e9:.2f} GB/s; "
                f"{big >> 20} MiB in {sums['seconds'][str(big)] * 1e3:.0f} ms"
            )
    if options.plot:
        measured = {
            name: Link(one["sums"]["latency"], one["sums"]["bandwidth"])
            for name, one in found.items()
            if "sums" in one
        }
        plot(options.plot, measured)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "found": found}, file, indent=1)
    if options.check and missed(steps):
        sys.exit(f"beyond their bars: {', '.join(missed(steps))}")


if __name__ == "__main__":
    main()
