"""How cost grows with size: add, matmul and sum from 4 elements to a million, ours over raw.

What we add to a call is a constant: it is seen where arrays are small and is gone where they are
large. A curve that stays above 1 at the right would mean that we copy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.suites.engines import namespace, native
from ember_ml.bench.timing import Measure, finish

__all__ = ["BENCHMARK"]

# Squares, so that matmul has a matrix of each size.
SIZES = (4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1_000_000)
# MLX's wheel for Linux has a plain BLAS, and a product of such matrices takes seconds.
LARGEST_MATMUL = {"mlx": 65536}


def curve(setting: Setting, op: str) -> Iterator[Measure]:
    """One op at all sizes."""
    from ember_ml import ops

    backend = setting.backend
    raw, ours = getattr(namespace(backend), op), getattr(ops, op)
    generator = np.random.default_rng(0)
    for size in SIZES[::3] if setting.quick else SIZES:
        if op == "matmul" and size > LARGEST_MATMUL.get(backend, size):
            continue
        side = math.isqrt(size)
        shape = (side, side) if op == "matmul" else (size,)
        count = 1 if op == "sum" else 2
        given = [
            native(backend, generator.standard_normal(shape).astype(np.float32))
            for _ in range(count)
        ]
        tensors = [ops.asarray(one) for one in given]
        yield Measure(
            f"{op} of {size:,}",
            lambda given=given: finish(raw(*given)),  # type: ignore[misc]  # bound in the loop
            lambda tensors=tensors: finish(ours(*tensors)),  # type: ignore[misc]  # the same
            against=namespace(backend).__name__,
            rounds=9 if op == "matmul" and size > 100_000 else 25,
            batch=0.004,
            size=size,
            notes=f"{side} x {side} by {side} x {side}" if op == "matmul" else "",
        )


BENCHMARK = Benchmark(
    "growth",
    "How the cost of add, matmul and sum grows with the size, ours over raw.",
    {
        "add": lambda setting: curve(setting, "add"),
        "matmul": lambda setting: curve(setting, "matmul"),
        "sum": lambda setting: curve(setting, "sum"),
    },
)
