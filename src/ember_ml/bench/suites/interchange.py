"""What a move between engines costs, small and large, shared and copied.

The address of the result is compared with that of the source: a move that shares memory takes the
same time at any size.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.records import Bar, Record
from ember_ml.bench.suites.engines import installed_targets

__all__ = ["BENCHMARK"]

SMALL, LARGE = 4, 16 * 2**20  # elements of float32: 16 B and 64 MB
SECONDS_PER_CELL = 0.3
# A shared move may take this much longer at 64 MB than at 16 B, and 5 us: what both cost is noise
# and calls.
LIMIT, SLACK = 2.0, 5e-6


def _address(x: Any) -> int:
    import ember_ml as em

    if isinstance(x, np.ndarray):
        return int(x.__array_interface__["data"][0])
    if hasattr(x, "unsafe_buffer_pointer"):
        return int(x.unsafe_buffer_pointer())
    if hasattr(x, "data_ptr"):
        return int(x.data_ptr())
    return int(em.from_mlx(x).numpy().__array_interface__["data"][0])


def _median(run: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """CPU and wall seconds; JAX is made to finish."""

    def once() -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        native = run().native
        if hasattr(native, "block_until_ready"):
            native.block_until_ready()
        return time.process_time() - cpu, time.perf_counter() - wall

    once()
    spent: list[tuple[float, float]] = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds and len(spent) < 2000:
        spent.append(once())
    spent = spent or [once()]
    return statistics.median(cpu for cpu, _ in spent), statistics.median(wall for _, wall in spent)


def moves(setting: Setting) -> Iterator[Record]:
    """`x.to_backend(target)` for each other engine: 64 MB beside 16 B."""
    import ember_ml as em

    seconds = SECONDS_PER_CELL / 6 if setting.quick else SECONDS_PER_CELL
    for target in installed_targets():
        if target == setting.backend:
            continue
        small, large = (em.ops.ones((count,), dtype="float32") for count in (SMALL, LARGE))
        em.synchronize()
        moved = large.to_backend(target)
        shared = _address(large.native) == _address(moved.native)
        del moved
        # Not in turns as elsewhere: between two calls, 64 MB would leave no cache to the 16 B.
        raw, raw_wall = _median(lambda x=small, to=target: x.to_backend(to), seconds)  # type: ignore[misc]  # bound in the loop
        ours, ours_wall = _median(lambda x=large, to=target: x.to_backend(to), seconds)  # type: ignore[misc]  # the same
        copied, _ = _median(lambda x=large, to=target: x.to_backend(to, copy=True), seconds)  # type: ignore[misc]  # the same
        yield Record(
            "interchange",
            "moves",
            f"to {target}",
            setting.backend,
            ours=ours,
            raw=raw,
            against="the same move of 16 B",
            bar=Bar("most", LIMIT * raw + SLACK) if shared else None,
            notes="memory is shared" if shared else "memory is copied",
            peers={"64 MB with copy=True": copied},
            ours_wall=ours_wall,
            raw_wall=raw_wall,
            size=4 * LARGE,
        )


BENCHMARK = Benchmark(
    "interchange",
    "What a move between engines costs, small and large, shared and copied.",
    {"moves": moves},
)
