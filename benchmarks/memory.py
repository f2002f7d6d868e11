"""Peak memory of a 64-layer network with and without checkpoints, on each backend.

    python benchmarks/memory.py                       all backends, a table
    python benchmarks/memory.py --only torch --plot memory.svg --check

Every run has a process of its own, which takes the loss and the gradients of the network once
small, so that all is loaded, and once large. The peak is what `em.memory.track` says: bytes that
the engine counts (MLX), that Python traces (NumPy), else resident memory, each less what was there
before. The gradients of all runs of a backend must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import installed, machine

LAYERS, WIDTH, BATCH = 64, 128, 4096
# What one layer hands to the next.
ACTIVATION = 4 * WIDTH * BATCH
# The peak with checkpoints, over that without: what we hold ourselves to.
BAR = 0.5

# How the network is run, on which backends, and whether there is a bar.
WAYS: dict[str, tuple[tuple[str, ...], bool]] = {
    "eager": (("numpy", "torch", "jax", "mlx"), True),
    "backward": (("numpy", "torch", "jax", "mlx"), True),
    "jit, scan": (("jax",), True),
    "jit, one after the other": (("jax",), False),
}
KINDS = ("kept", "checkpoint", "segments")

Results = dict[str, dict[str, Any]]


# --- One run --------------------------------------------------------------------------------


def layer(h: Any, w: Any) -> Any:
    """A layer with four values on its way."""
    from ember_ml import ops

    return h + ops.tanh(h @ w) * ops.sin(h)


def network(way: str, kind: str) -> Callable[[Any, Any], Any]:
    """The loss of the network for stacked weights and a batch."""
    import ember_ml as em
    from ember_ml import ops
    from ember_ml.autodiff import checkpoint_sequence

    step = em.checkpoint(layer) if kind == "checkpoint" else layer

    def scanned(weights: Any, x: Any) -> Any:
        if kind == "segments":
            rows = ops.reshape(weights, (8, LAYERS // 8, WIDTH, WIDTH))

            def segment(h: Any, some: Any) -> Any:
                return ops.scan(lambda h, w: (layer(h, w), None), h, some)[0]

            inner = em.checkpoint(segment)
            last, _ = ops.scan(lambda h, some: (inner(h, some), None), x, rows)
        else:
            last, _ = ops.scan(lambda h, w: (step(h, w), None), x, weights)
        return ops.mean(last * last)

    def in_a_row(weights: Any, x: Any) -> Any:
        steps = [lambda h, w=w: step(h, w) for w in ops.unstack(weights)]
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
    if way.startswith("jit"):
        import jax

        program = jax.jit(lambda w, x: run(ops.asarray(w), ops.asarray(x)).native)
        compiled = program.lower(weights.native, x.native).compile()

        def step(weights: Any, x: Any) -> Any:
            return ops.asarray(compiled(weights.native, x.native))
    else:
        step = run
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
    command = [sys.executable, __file__, "--worker", backend, way, kind, str(path)]
    # glibc's malloc takes blocks that were freed into a heap of its own, of which little goes back
    # to the system. With this, each array has pages of its own, and they are what is resident.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
    return found


# --- All runs -------------------------------------------------------------------------------


def measure(backend: str, way: str, has_bar: bool, place: Path) -> dict[str, Any]:
    """All kinds of one way, whose gradients must agree."""
    import numpy as np

    found: dict[str, Any] = {"bar": BAR if has_bar else None}
    first = None
    for kind in KINDS:
        path = place / f"{kind}.npy"
        found[kind] = in_a_process(backend, way, kind, path)
        grads = np.load(path)
        if first is None:
            first = grads
        scale = float(np.abs(first).max())
        difference = float(np.abs(grads - first).max()) / scale
        if not difference < 1e-5:
            sys.exit(f"{backend}, {way}: gradients of '{kind}' differ by {difference:.2g}")
        found[kind]["difference"] = difference
    found["missed"] = has_bar and found["checkpoint"]["peak"] > BAR * found["kept"]["peak"]
    return found


def show(results: Results) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("backend", "way", "counter")
    for column in ("kept MB", "checkpoint MB", "ratio", "segments MB", "ratio", "bar", "CPU time"):
        table.add_column(column, justify="right")
    for name, found in results.items():
        backend, _, way = name.partition(": ")
        peaks = {kind: found[kind]["peak"] for kind in KINDS}
        mark = "red" if found["missed"] else "default"
        ratio = peaks["checkpoint"] / peaks["kept"]
        table.add_row(
            backend,
            way,
            found["kept"]["counter"],
            f"{peaks['kept'] / 1e6:.0f}",
            f"{peaks['checkpoint'] / 1e6:.0f}",
            f"[{mark}]{ratio:.2f}[/{mark}]",
            f"{peaks['segments'] / 1e6:.0f}",
            f"{peaks['segments'] / peaks['kept']:.2f}",
            "" if found["bar"] is None else f"{found['bar']:g}",
            f"{found['checkpoint']['seconds'] / found['kept']['seconds']:.2f}",
        )
    Console(width=120).print(table)


def plot(results: Results, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(9, 0.55 * len(results) + 1.6))
    colours = dict(zip(KINDS, ("0.6", "#00798c", "#edae49"), strict=True))
    height = 0.8 / len(KINDS)
    for offset, kind in enumerate(KINDS):
        places = [i + offset * height for i in range(len(results))]
        peaks = [found[kind]["peak"] / 1e6 for found in results.values()]
        axis.barh(places, peaks, height, label=kind, color=colours[kind])
    axis.set_yticks([i + height for i in range(len(results))], list(results))
    axis.invert_yaxis()
    axis.set_xlabel(f"peak MB, {LAYERS} layers, {ACTIVATION / 1e6:.1f} MB between two")
    axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="only these backends")
    parser.add_argument("--json", help="write all numbers here")
    parser.add_argument("--plot", help="draw the peaks here (SVG or PNG)")
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measured(*options.worker)))
        return
    chosen = options.only or installed()
    results: Results = {}
    with tempfile.TemporaryDirectory() as directory:
        for way, (backends, has_bar) in WAYS.items():
            for backend in backends:
                if backend in chosen:
                    name = f"{backend}: {way}"
                    print(f"  {name}", file=sys.stderr)
                    results[name] = measure(backend, way, has_bar, Path(directory))
    show(results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "measures": results}, file, indent=1)
    if options.plot:
        plot(results, options.plot)
    missed = [name for name, found in results.items() if found["missed"]]
    if options.check and missed:
        sys.exit(f"beyond their bars: {', '.join(missed)}")


if __name__ == "__main__":
    main()
