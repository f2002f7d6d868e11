"""What a move between engines costs, small and large, shared and copied.

    python benchmarks/interchange.py                  all installed backends, a table
    python benchmarks/interchange.py --json out.json

Times are medians of wall time of `x.to_backend(target)`, with the address of the result compared
with that of the source: a move that shares memory takes the same time at any size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ember_ml as em

SIZES = {"16 B": 4, "64 MB": 16 * 2**20}
SECONDS_PER_CELL = 0.3
# A shared move may take this much longer at 64 MB than at 16 B: what both cost is noise and calls.
LIMIT = 2.0


def address(x: Any) -> int:
    if isinstance(x, np.ndarray):
        return int(x.__array_interface__["data"][0])
    if hasattr(x, "unsafe_buffer_pointer"):
        return int(x.unsafe_buffer_pointer())
    if hasattr(x, "data_ptr"):
        return int(x.data_ptr())
    return int(em.from_mlx(x).numpy().__array_interface__["data"][0])


def made(backend: str, count: int) -> em.Tensor:
    with em.use_backend(backend):
        x = em.ops.ones((count,), dtype="float32")
    em.synchronize()
    return x


def median(run: Callable[[], em.Tensor]) -> float:
    """Microseconds; JAX and MLX are made to finish."""

    def once() -> float:
        began = time.perf_counter()
        native = run().native
        if hasattr(native, "block_until_ready"):
            native.block_until_ready()
        return time.perf_counter() - began

    once()
    spent: list[float] = []
    while sum(spent) < SECONDS_PER_CELL and len(spent) < 2000:
        spent.append(once())
    return statistics.median(spent) * 1e6


def measure(source: str, target: str) -> dict[str, Any]:
    row: dict[str, Any] = {"from": source, "to": target}
    for size, count in SIZES.items():
        x = made(source, count)
        y = x.to_backend(target)
        row[f"{size} shared"] = address(x.native) == address(y.native)
        del y
        row[size] = median(lambda x=x: x.to_backend(target))
        row[f"{size} copy=True"] = median(lambda x=x: x.to_backend(target, copy=True))
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the numbers to this file")
    options = parser.parse_args()
    backends = [b for b in ("numpy", "torch", "jax", "mlx") if b in em.available_backends()]
    rows = [measure(a, b) for a in backends for b in backends if a != b]
    print(
        "| from | to | 16 B, us | 64 MB, us | memory at 64 MB | copy=True 16 B | copy=True 64 MB |"
    )
    print("|---|---|---|---|---|---|---|")
    failed = []
    for row in rows:
        shared = row["64 MB shared"]
        print(
            f"| {row['from']} | {row['to']} | {row['16 B']:,.1f} | {row['64 MB']:,.1f} | "
            f"{'shared' if shared else 'copied'} | {row['16 B copy=True']:,.1f} | "
            f"{row['64 MB copy=True']:,.0f} |"
        )
        if shared and row["64 MB"] > LIMIT * row["16 B"] + 5:
            failed.append(f"{row['from']} to {row['to']}: {row['64 MB']:.1f} us at 64 MB")
    for line in failed:
        print("a shared move that depends on size:", line)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
