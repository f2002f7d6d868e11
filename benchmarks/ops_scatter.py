"""Scatter-add against the quickest raw way of each engine, by turns in one process.

    python benchmarks/ops_scatter.py

A million float32 values go into ten thousand places, each time with the same indices.
`measure` gives the rows for other scripts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ember_ml as em
from ember_ml import ops

VALUES, PLACES, ROUNDS = 1_000_000, 10_000, 41


def _raw(backend: str, values: Any, indices: Any) -> dict[str, Callable[[], Any]]:
    """The ways in which users of an engine would add values at indices."""
    if backend == "numpy":

        def at() -> Any:
            out = np.zeros(PLACES, np.float32)
            np.add.at(out, indices, values)
            return out

        return {
            "np.add.at": at,
            "np.bincount": lambda: np.bincount(indices, values, PLACES).astype(np.float32),
        }
    if backend == "torch":
        import torch

        return {
            "scatter_add_": lambda: torch.zeros(PLACES).scatter_add_(0, indices, values),
            "index_add_": lambda: torch.zeros(PLACES).index_add_(0, indices, values),
        }
    if backend == "jax":
        import jax
        import jax.numpy as jnp

        add = jax.jit(lambda v, i: jnp.zeros(PLACES, v.dtype).at[i].add(v))
        segments = jax.jit(lambda v, i: jax.ops.segment_sum(v, i, PLACES))
        return {
            "jit .at[].add": lambda: add(values, indices).block_until_ready(),
            "jit segment_sum": lambda: segments(values, indices).block_until_ready(),
        }
    import mlx.core as mx

    def mlx_add() -> Any:
        out = mx.zeros(PLACES).at[indices].add(values)
        mx.eval(out)
        return out

    return {".at[].add": mlx_add}


def _ours(backend: str, values: em.Tensor, indices: em.Tensor) -> Callable[[], Any]:
    def run() -> Any:
        out = ops.scatter(values, indices, PLACES, "add")
        out._spec.backend.finish(out.native)
        if backend == "jax":
            out.native.block_until_ready()
        return out.native

    return run


def _by_turns(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least milliseconds of each; they take turns in any order, to meet the same noise."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in random.sample(list(runs.items()), len(runs)):
            began = time.perf_counter()
            run()
            best[name] = min(best[name], (time.perf_counter() - began) * 1e3)
    return best


def measure(rounds: int = ROUNDS) -> list[tuple[str, str, float, float]]:
    """Rows of (backend, the quickest raw way, its milliseconds, ours)."""
    generator = np.random.default_rng(0)
    host = generator.random(VALUES, dtype=np.float32)
    places = generator.integers(0, PLACES, VALUES)
    exact = np.bincount(places, host, PLACES)
    rows = []
    for backend in ("numpy", "torch", "jax", "mlx"):
        with em.use_backend(backend):
            values, indices = ops.asarray(host, copy=True), ops.asarray(places, copy=True)
            runs = {"": _ours(backend, values, indices)}
            runs |= _raw(backend, values.native, indices.native)
            for name, run in runs.items():
                error = np.abs(np.asarray(run()) - exact).max()
                assert error < 1e-3, f"{backend} {name}: {error}"
            best = _by_turns(runs, rounds)
            ours = best.pop("")
            quickest = min(best, key=best.__getitem__)
            rows.append((backend, quickest, best[quickest], ours))
    return rows


def main() -> None:
    print(f"scatter-add of {VALUES:,} float32 values into {PLACES:,} places, least of {ROUNDS}")
    for backend, name, raw, ours in measure():
        print(
            f"{backend:6} {name:16} {raw:8.2f} ms   ops.scatter {ours:8.2f} ms   {ours / raw:.2f}x"
        )


if __name__ == "__main__":
    main()
