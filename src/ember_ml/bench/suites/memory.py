"""Peak memory of a 64-layer network with and without checkpoints, on each engine.

Every run has a process of its own, which takes the loss and the gradients of the network once
small, so that all is loaded, and once large. The peak is what `em.memory.track` says: bytes that
the engine counts (MLX), that Python traces (NumPy), else resident memory, each less what was there
before. The gradients of all runs of a backend must be the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.records import Bar, Record

__all__ = ["BENCHMARK"]

LAYERS, WIDTH, BATCH = 64, 128, 4096
# The peak with checkpoints, over that without: what we hold ourselves to.
BAR = 0.5

# Whether a way to run the network has a bar: XLA sees that layers are computed twice in a program
# of one after the other, and computes them once.
WAYS = {"eager": True, "backward": True, "jit, scan": True, "jit, in a row": False}
KINDS = ("kept", "checkpoint", "segments")


# --- One run --------------------------------------------------------------------------------


def layer(h: Any, w: Any) -> Any:
    """A layer with four values on its way."""
    from ember_ml import ops

    return h + ops.tanh(h @ w) * ops.sin(h)


def _swapped(step: Callable[[Any, Any], Any], w: Any, h: Any) -> Any:
    return step(h, w)


def network(way: str, kind: str) -> Callable[[Any, Any], Any]:
    """The loss of the network for stacked weights and a batch."""
    import ember_ml as em
    from ember_ml import ops
    from ember_ml.autodiff import checkpoint_sequence
    from ember_ml.ops.control.scanning import scan

    step = em.checkpoint(layer) if kind == "checkpoint" else layer

    def scanned(weights: Any, x: Any) -> Any:
        if kind == "segments":
            rows = ops.reshape(weights, (8, LAYERS // 8, WIDTH, WIDTH))

            def segment(h: Any, some: Any) -> Any:
                return scan(lambda h, w: (layer(h, w), None), h, some)[0]

            inner = em.checkpoint(segment)
            last, _ = scan(lambda h, some: (inner(h, some), None), x, rows)
        else:
            last, _ = scan(lambda h, w: (step(h, w), None), x, weights)
        return ops.mean(last * last)

    def in_a_row(weights: Any, x: Any) -> Any:
        steps = [partial(_swapped, step, w) for w in ops.unstack(weights)]
        if kind == "segments":
            last = checkpoint_sequence(steps)(x)
        else:
            last = x
            for one in steps:
                last = one(last)
        return ops.mean(last * last)

    return scanned if way == "jit, scan" else in_a_row


def gradients(way: str, kind: str) -> Callable[[Any, Any], Any]:
    """A function that gives the gradient of the weights."""
    import ember_ml as em
    from ember_ml.nn import tensor

    loss = network(way, kind)
    if way != "backward":
        return em.grad(loss)

    def run(weights: Any, x: Any) -> Any:
        leaf = tensor.array(weights, requires_grad=True)
        loss(leaf, x).backward()
        return leaf.grad

    return run


def measured(backend: str, way: str, kind: str, path: str) -> dict[str, Any]:
    """Peak and time of one run, in this process."""
    import numpy as np

    import ember_ml as em
    from ember_ml import ops

    em.set_backend(backend)
    random = np.random.default_rng(0)
    weights = ops.asarray(
        (random.standard_normal((LAYERS, WIDTH, WIDTH)) / WIDTH).astype(np.float32)
    )
    x = ops.asarray(random.standard_normal((BATCH, WIDTH)).astype(np.float32))
    run = gradients(way, kind)
    step: Callable[[Any, Any], Any] = run
    if way.startswith("jit"):
        import jax

        program = jax.jit(lambda w, x: run(ops.asarray(w), ops.asarray(x)).native)
        compiled = program.lower(weights.native, x.native).compile()

        def program_step(weights: Any, x: Any) -> Any:
            return ops.asarray(compiled(weights.native, x.native))

        step = program_step
    else:
        run(weights, x[:8]).numpy()
    with em.memory.track() as m:
        began = time.process_time()
        found = step(weights, x)
        # Reading it waits for engines that compute later.
        found = found.numpy()
        spent = time.process_time() - began
    np.save(path, found)
    return {"peak": m.added, "seconds": spent, "counter": m.counter}


def in_a_process(backend: str, way: str, kind: str, path: Path) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "ember_ml.bench.suites.memory", backend, way, kind, str(path)]
    # glibc's malloc takes blocks that were freed into a heap of its own, of which little goes back
    # to the system. With this, each array has pages of its own, and they are what is resident.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
    return found


# --- All runs -------------------------------------------------------------------------------


def peaks(setting: Setting, way: str) -> Iterator[Record]:
    """All kinds of one way, whose gradients must agree."""
    import numpy as np

    found: dict[str, dict[str, Any]] = {}
    first = None
    for kind in KINDS:
        path = setting.place / f"{kind}.npy"
        found[kind] = in_a_process(setting.backend, way, kind, path)
        grads = np.load(path)
        if first is None:
            first = grads
        difference = float(np.abs(grads - first).max()) / float(np.abs(first).max())
        if not difference < 1e-5:
            raise AssertionError(f"{way}: gradients of '{kind}' differ by {difference:.2g}")
    kept, once, parts = (found[kind] for kind in KINDS)
    yield Record(
        "memory",
        way,
        way,
        setting.backend,
        ours=once["peak"],
        raw=kept["peak"],
        unit="B",
        against="every value kept",
        bar=Bar("ratio", BAR) if WAYS[way] else None,
        peers={"8 segments": parts["peak"]},
        notes=f"counted by {kept['counter']}; each layer a checkpoint takes "
        f"{once['seconds'] / kept['seconds']:.2f} of the CPU time",
    )


BENCHMARK = Benchmark(
    "memory",
    "Peak memory of a 64-layer network with each layer a checkpoint, and without.",
    {
        "eager": lambda setting: peaks(setting, "eager"),
        "backward": lambda setting: peaks(setting, "backward"),
        "jit, scan": lambda setting: peaks(setting, "jit, scan"),
        "jit, in a row": lambda setting: peaks(setting, "jit, in a row"),
    },
    only={"jit, scan": ("jax",), "jit, in a row": ("jax",)},
)

if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured(*sys.argv[1:])) + "\n")
