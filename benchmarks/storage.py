"""What storage costs: views, clones and writes by size, files against the safetensors library.

    python benchmarks/storage.py                      all measures, a table
    python benchmarks/storage.py --only load --json out.json

Both sides of a measure run in one process, in shuffled rounds; times are CPU time of the process,
and the ratio is of medians. `MEASURES` lists the functions that make the measures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measuring import Measure, Results, installed, machine, missed, show, taken

MEGABYTE = 1 << 20
SIZE = 512 * MEGABYTE


# --- Files ----------------------------------------------------------------------------------


def tensors(count: int) -> dict[str, Any]:
    import torch

    return {f"layers.{i}.weight": torch.randn(SIZE // 4 // count) for i in range(count)}


def loading(place: Path) -> Iterator[Measure]:
    """Memory maps of 512 MB; a program that reads the values pays for that alike."""
    import safetensors.torch

    import ember_ml as em

    for count, limit in ((64, 1.5), (1, None), (1000, None)):
        path = place / f"load-{count}.safetensors"
        safetensors.torch.save_file(tensors(count), path)

        def raw(path: Path = path) -> Any:
            return safetensors.torch.load_file(path)

        def ours(path: Path = path) -> Any:
            return em.load(path, backend="torch")

        yield Measure(f"load 512 MB, {count} tensors", raw, ours, limit)
        if count == 64:
            yield Measure(
                "load 512 MB and read it all",
                lambda: [float(x.sum()) for x in raw().values()],
                lambda: [float(x.native.sum()) for x in ours().values()],
                rounds=7,
            )
        path.unlink()


def saving(place: Path) -> Iterator[Measure]:
    """512 MB in files; ours is on disk before it takes the place of the old one."""
    import safetensors.torch

    import ember_ml as em

    for count in (64, 1000):
        natives = tensors(count)
        tree = {name: em.ops.asarray(native) for name, native in natives.items()}
        theirs, mine = place / "theirs.safetensors", place / "mine.safetensors"
        yield Measure(
            f"save 512 MB, {count} tensors",
            lambda natives=natives, path=theirs: safetensors.torch.save_file(natives, path),
            lambda tree=tree, path=mine: em.save(path, tree),
            1.1,
            rounds=9,
        )
        theirs.unlink()
        mine.unlink()


# --- Views and clones -----------------------------------------------------------------------


def views(place: Path) -> Iterator[Measure]:
    """The same view of 16 B and of 64 MB: what it costs must not grow with the size."""
    import ember_ml as em

    kinds: dict[str, Callable[[Any], Any]] = {
        "clone": lambda x: x.clone(),
        "x[1:3]": lambda x: x[1:3],
        "reshape": lambda x: x.reshape(2, -1),
        "select": lambda x: x.select(0, 1),
        "flip": lambda x: x.flip(),
        "slice_mut": lambda x: x.slice_mut((1, 3)),
    }
    for backend in installed():
        with em.use_backend(backend):
            small, large = em.ops.zeros((4,)), em.ops.zeros((16 * MEGABYTE,))
        for name, view in kinds.items():
            yield Measure(
                f"{backend} {name}, 64 MB over 16 B",
                lambda view=view, x=small: view(x),
                lambda view=view, x=large: view(x),
                1.2,
            )


def native_views(place: Path) -> Iterator[Measure]:
    """Ours and the engine's own view: at most two microseconds more; a clone takes under one."""
    import ember_ml as em

    kinds: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "x[1:3]": (lambda n: n[1:3], lambda x: x[1:3]),
        "select": (lambda n: n[:, 1], lambda x: x.select(1, 1)),
        "narrow": (lambda n: n[:, 1:4], lambda x: x.narrow(1, 1, 3)),
        "T": (lambda n: n.T, lambda x: x.T),
        "permute": (lambda n: n.T, lambda x: x.permute(1, 0)),
        "reshape": (lambda n: n.reshape(2048, 8192), lambda x: x.reshape(2048, 8192)),
        "view": (lambda n: n.reshape(2048, 8192), lambda x: x.view(2048, 8192)),
        "slice": (lambda n: n[1:3], lambda x: x.slice((1, 3))),
        "slice_mut": (lambda n: n[1:3, 4], lambda x: x.slice_mut((1, 3), 4)),
        "flip": (lambda n: n[::-1, ::-1], lambda x: x.flip()),
    }
    for backend in installed():
        with em.use_backend(backend):
            x = em.ops.zeros((4096, 4096))
        native = x.native
        for name, (raw, ours) in kinds.items():
            if name == "flip" and backend == "torch":
                raw = kinds["T"][0]  # torch has no view that runs backwards
            yield Measure(
                f"{backend} {name} over the engine's",
                lambda view=raw, n=native: view(n),
                lambda view=ours, x=x: view(x),
                extra=2e-6,
            )
        yield Measure(f"{backend} clone", lambda: None, lambda x=x: x.clone(), extra=1e-6)


def parallel(place: Path) -> Iterator[Measure]:
    """Chunks in a row and on a pool of threads, with a function that releases the GIL."""
    import ember_ml as em

    with em.use_backend("numpy"):
        x = em.ops.linspace(0.0, 1.0, 1 << 22)

    def work(part: Any) -> Any:
        return em.ops.sum(em.ops.sin(em.ops.exp(part)))

    if (os.cpu_count() or 1) > 1:
        yield Measure(
            "par_iter over 2 chunks, beside one after the other",
            lambda: [work(part) for part in (x[: 1 << 21], x[1 << 21 :])],
            lambda: list(x.par_iter(chunks=2, workers=2).map(work)),
            wall=0.75,
        )


def writes(place: Path) -> Iterator[Measure]:
    """Two elements through a view of 64 MB that nobody else holds, beside two of 16 B."""
    import ember_ml as em

    for backend in installed():
        with em.use_backend(backend):
            small, large = em.ops.zeros((4,)), em.ops.zeros((16 * MEGABYTE,))
        parts = small[:], large[1000:2000]
        for part in parts:
            part[1:3] = 1.0
        yield Measure(
            f"{backend} write of 2 elements, 64 MB beside 16 B",
            lambda x=parts[0]: x.__setitem__(slice(1, 3), 2.0),
            lambda x=parts[1]: x.__setitem__(slice(1, 3), 2.0),
            most=50e-6,
        )


def iteration(place: Path) -> Iterator[Measure]:
    """All elements as Python numbers, and those of a memoryview."""
    import numpy as np

    import ember_ml as em

    host = np.arange(1 << 17, dtype=np.float64)
    for backend in installed():
        with em.use_backend(backend):
            x = em.ops.asarray(host)
        yield Measure(
            f"{backend} iter() over a memoryview",
            lambda: sum(memoryview(host)),
            lambda x=x: sum(x.iter()),
            2.0,
        )


# Functions that are given a directory, and make measures one after another.
MEASURES: dict[str, Callable[[Path], Iterator[Measure]]] = {
    "views": views,
    "native": native_views,
    "write": writes,
    "iter": iteration,
    "parallel": parallel,
    "load": loading,
    "save": saving,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=list(MEASURES))
    parser.add_argument("--rounds", type=int, help="instead of each measure's own number")
    parser.add_argument("--json", help="write all numbers here")
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed")
    options = parser.parse_args()
    results: Results = {}
    with tempfile.TemporaryDirectory() as directory:
        for name in options.only or MEASURES:
            for measure in MEASURES[name](Path(directory)):
                print(f"  {measure.name}", file=sys.stderr)
                results[measure.name] = taken(measure, options.rounds)
    show(results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "measures": results}, file, indent=1)
    if options.check and missed(results):
        sys.exit(f"beyond their bars: {', '.join(missed(results))}")


if __name__ == "__main__":
    main()
