"""What storage costs: views, clones and writes by size, files against the safetensors library."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.records import Bar
from ember_ml.bench.timing import Measure

__all__ = ["BENCHMARK"]

MEGABYTE = 1 << 20


# --- Files ----------------------------------------------------------------------------------


def _file_size(setting: Setting) -> int:
    return (32 if setting.quick else 512) * MEGABYTE


def _tensors(size: int, count: int) -> dict[str, Any]:
    import torch

    return {f"layers.{i}.weight": torch.randn(size // 4 // count) for i in range(count)}


def loading(setting: Setting) -> Iterator[Measure]:
    """Memory maps; a program that reads the values pays for that alike."""
    import safetensors.torch

    import ember_ml as em

    size = _file_size(setting)
    megabytes = size // MEGABYTE
    for count, limit in ((64, 1.5), (1, None), (1000, None)):
        path = setting.place / f"load-{count}.safetensors"
        safetensors.torch.save_file(_tensors(size, count), path)

        def raw(path: Path = path) -> Any:
            return safetensors.torch.load_file(path)

        def ours(path: Path = path) -> Any:
            return em.load(path, backend="torch")

        yield Measure(
            f"load {megabytes} MB, {count} tensor{'s' if count > 1 else ''}",
            raw,
            ours,
            limit,
            "safetensors.torch",
        )
        if count == 64:
            yield Measure(
                f"load {megabytes} MB and read it all",
                lambda raw=raw: [float(x.sum()) for x in raw().values()],  # type: ignore[misc]  # bound in the loop
                lambda ours=ours: [float(x.native.sum()) for x in ours().values()],  # type: ignore[misc]  # the same
                against="safetensors.torch",
                rounds=7,
            )
        path.unlink()


def saving(setting: Setting) -> Iterator[Measure]:
    """Ours is on disk before it takes the place of the old file."""
    import safetensors.torch

    import ember_ml as em

    size = _file_size(setting)
    for count in (64, 1000):
        natives = _tensors(size, count)
        tree = {name: em.ops.asarray(native) for name, native in natives.items()}
        theirs, mine = setting.place / "theirs.safetensors", setting.place / "mine.safetensors"
        yield Measure(
            f"save {size // MEGABYTE} MB, {count} tensors",
            lambda natives=natives, path=theirs: safetensors.torch.save_file(natives, path),  # type: ignore[misc]  # bound in the loop
            lambda tree=tree, path=mine: em.save(path, tree),  # type: ignore[misc]  # the same
            1.1,
            "safetensors.torch",
            rounds=9,
        )
        theirs.unlink()
        mine.unlink()


# --- Views and clones -----------------------------------------------------------------------


def views(setting: Setting) -> Iterator[Measure]:
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
    small, large = em.ops.zeros((4,)), em.ops.zeros((16 * MEGABYTE,))
    for name, view in kinds.items():
        yield Measure(
            f"{name}, 64 MB over 16 B",
            lambda view=view: view(small),  # type: ignore[misc]  # bound in the loop
            lambda view=view: view(large),  # type: ignore[misc]  # the same
            1.2,
            "ours at 16 B",
        )


def native_views(setting: Setting) -> Iterator[Measure]:
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
    x = em.ops.zeros((4096, 4096))
    native = x.native
    for name, (raw, ours) in kinds.items():
        notes = "the engine's own view of 64 MB"
        if name == "flip" and setting.backend == "torch":
            raw = kinds["T"][0]
            notes = "beside the engine's transpose: torch has no view that runs backwards"
        yield Measure(
            name,
            lambda view=raw: view(native),  # type: ignore[misc]  # bound in the loop
            lambda view=ours: view(x),  # type: ignore[misc]  # the same
            Bar("extra", 2e-6),
            setting.backend,
            notes=notes,
        )
    # Raw is an empty function: the bar is what a clone takes by itself.
    yield Measure("clone", lambda: None, lambda: x.clone(), Bar("extra", 1e-6), "nothing")


def parallel(setting: Setting) -> Iterator[Measure]:
    """Chunks in a row and on a pool of threads, with a function that releases the GIL."""
    import ember_ml as em

    x = em.ops.linspace(0.0, 1.0, 1 << 22)

    def work(part: Any) -> Any:
        return em.ops.sum(em.ops.sin(em.ops.exp(part)))

    if (os.cpu_count() or 1) > 1:
        yield Measure(
            "par_iter over 2 chunks",
            lambda: [work(part) for part in (x[: 1 << 21], x[1 << 21 :])],
            lambda: list(x.par_iter(chunks=2, workers=2).map(work)),
            Bar("wall", 0.75),
            "one chunk after the other",
        )


def writes(setting: Setting) -> Iterator[Measure]:
    """Two elements through a view of 64 MB that nobody else holds, beside two of 16 B."""
    import ember_ml as em

    small, large = em.ops.zeros((4,)), em.ops.zeros((16 * MEGABYTE,))
    parts = small[:], large[1000:2000]
    for part in parts:
        part[1:3] = 1.0
    yield Measure(
        "write of 2 elements, 64 MB over 16 B",
        lambda: parts[0].__setitem__(slice(1, 3), 2.0),
        lambda: parts[1].__setitem__(slice(1, 3), 2.0),
        Bar("most", 50e-6),
        "ours at 16 B",
    )


def iteration(setting: Setting) -> Iterator[Measure]:
    """All elements as Python numbers, and those of a memoryview."""
    import numpy as np

    import ember_ml as em

    host = np.arange(1 << 17, dtype=np.float64)
    x = em.ops.asarray(host)
    yield Measure(
        "iter()",
        lambda: sum(memoryview(host)),  # type: ignore[arg-type]  # of numbers, by its format
        lambda: sum(x.iter()),
        2.0,
        "memoryview",
    )


BENCHMARK = Benchmark(
    "storage",
    "What storage costs: views, clones and writes by size, files against safetensors.",
    {
        "views": views,
        "native": native_views,
        "write": writes,
        "iter": iteration,
        "parallel": parallel,
        "load": loading,
        "save": saving,
    },
    only={"parallel": ("numpy",), "load": ("torch",), "save": ("torch",)},
)
