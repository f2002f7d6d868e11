"""Attention, conv2d, layer_norm and gelu beside the raw call of each engine.

    python benchmarks/ops_network.py                    all installed backends, a table
    python benchmarks/ops_network.py --backend torch --json out.json

Raw call and ours run in one process, in shuffled rounds; times are CPU time of the process, and
the ratio is of medians. Where an engine has no such function, raw is what its users write: NumPy's
windows and matmul, jitted jax.numpy.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 15
BAR = 1.1
SHAPES = {
    "attention": ((8, 8, 256, 64),) * 3,
    "conv2d": ((8, 32, 56, 56), (64, 32, 3, 3)),
    "layer_norm": ((32, 512, 768), (768,), (768,)),
    "gelu": ((32, 512, 768),),
}

Program = Callable[[], Any]


def host_arrays() -> dict[str, list[Any]]:
    import numpy as np

    generator = np.random.default_rng(0)
    return {
        name: [generator.standard_normal(shape).astype("float32") for shape in shapes]
        for name, shapes in SHAPES.items()
    }


def numpy_programs(v: dict[str, list[Any]]) -> dict[str, Program]:
    import numpy as np
    from numpy.lib.stride_tricks import sliding_window_view

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v

    def conv2d(x: Any, w: Any) -> Any:
        seen = sliding_window_view(x, w.shape[2:], (2, 3))
        return np.moveaxis(np.tensordot(seen, w, ((1, 4, 5), (1, 2, 3))), -1, 1)

    def layer_norm(x: Any, w: Any, b: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        spread = np.square(centred).mean(-1, keepdims=True)
        return centred / np.sqrt(spread + np.float32(1e-5)) * w + b

    return {
        "attention": lambda: attention(*v["attention"]),
        "conv2d": lambda: conv2d(*v["conv2d"]),
        "layer_norm": lambda: layer_norm(*v["layer_norm"]),
    }


def torch_programs(v: dict[str, list[Any]]) -> dict[str, Program]:
    from torch.nn import functional as F

    x, w, b = v["layer_norm"]
    return {
        "attention": lambda: F.scaled_dot_product_attention(*v["attention"]),
        "conv2d": lambda: F.conv2d(*v["conv2d"]),
        "layer_norm": lambda: F.layer_norm(x, (768,), w, b),
        "gelu": lambda: F.gelu(v["gelu"][0]),
    }


def jax_programs(v: dict[str, list[Any]]) -> dict[str, Program]:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def layer_norm(x: Any, w: Any, b: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        spread = jnp.square(centred).mean(-1, keepdims=True)
        return centred / jnp.sqrt(spread + 1e-5) * w + b

    # Its own layout: (samples, length, heads, features).
    turned = [jnp.array(a.swapaxes(1, 2)) for a in v["attention"]]
    attend = jax.jit(jax.nn.dot_product_attention)
    convolve = jax.jit(lambda x, w: jax.lax.conv(x, w, (1, 1), "VALID"))
    gelu = jax.jit(lambda x: jax.nn.gelu(x, approximate=False))
    return {
        "attention": lambda: attend(*turned),
        "conv2d": lambda: convolve(*v["conv2d"]),
        "layer_norm": lambda: layer_norm(*v["layer_norm"]),
        "gelu": lambda: gelu(v["gelu"][0]),
    }


def mlx_programs(v: dict[str, list[Any]]) -> dict[str, Program]:
    import mlx.core as mx

    x, w = v["conv2d"]
    images, windows = mx.contiguous(mx.moveaxis(x, 1, -1)), mx.contiguous(mx.moveaxis(w, 1, -1))
    mx.eval(images, windows)
    scale = 1 / math.sqrt(64)
    return {
        "attention": lambda: mx.fast.scaled_dot_product_attention(*v["attention"], scale=scale),
        "conv2d": lambda: mx.conv2d(images, windows),
        "layer_norm": lambda: mx.fast.layer_norm(*v["layer_norm"], 1e-5),
    }


RAW = {
    "numpy": numpy_programs,
    "torch": torch_programs,
    "jax": jax_programs,
    "mlx": mlx_programs,
}


def ember_programs(v: dict[str, list[Any]]) -> dict[str, Program]:
    from ember_ml import ops

    t = {name: [ops.asarray(a) for a in arrays] for name, arrays in v.items()}
    x, w, b = t["layer_norm"]
    return {
        "attention": lambda: ops.scaled_dot_product_attention(*t["attention"]),
        "conv2d": lambda: ops.conv2d(*t["conv2d"]),
        "layer_norm": lambda: ops.layer_norm(x, (768,), w, b),
        "gelu": lambda: ops.gelu(t["gelu"][0]),
    }


def natives(backend: str) -> dict[str, list[Any]]:
    arrays = host_arrays()
    if backend == "torch":
        import torch

        torch.set_num_threads(1)
        return {k: [torch.from_numpy(a) for a in v] for k, v in arrays.items()}
    if backend == "jax":
        import jax.numpy as jnp

        return {k: [jnp.asarray(a) for a in v] for k, v in arrays.items()}
    if backend == "mlx":
        import mlx.core as mx

        return {k: [mx.array(a) for a in v] for k, v in arrays.items()}
    return arrays


def finish(result: Any) -> None:
    """Wait for engines that compute later."""
    native = getattr(result, "native", result)
    wait = getattr(native, "block_until_ready", None)
    if wait is not None:
        wait()
    elif type(native).__module__ == "mlx.core":
        import mlx.core as mx

        mx.eval(native)


def once(program: Program) -> float:
    started = time.process_time()
    finish(program())
    return time.process_time() - started


def measure(backend: str, rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """CPU milliseconds by program, raw and ours: medians over shuffled rounds."""
    import ember_ml as em

    em.set_backend(backend)  # before anything else of JAX: it switches 64-bit types on
    v = natives(backend)
    raw, ours = RAW[backend](v), ember_programs(v)
    programs = {(name, "raw"): program for name, program in raw.items()}
    programs |= {(name, "ember_ml"): ours[name] for name in raw}
    times: dict[tuple[str, str], list[float]] = {key: [] for key in programs}
    for program in programs.values():
        once(program)
    order = list(programs)
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        random.shuffle(order)
        for key in order:
            times[key].append(once(programs[key]))
    gc.enable()
    result: dict[str, dict[str, float]] = {}
    for (name, library), spent in times.items():
        result.setdefault(name, {})[library] = statistics.median(spent) * 1e3
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", action="append", help="only these backends")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", help="write all numbers here")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(options.worker, options.rounds)))
        return
    from rich.console import Console
    from rich.table import Table

    from ember_ml import available_backends

    results = {}
    for backend in options.backend or available_backends():
        command = [sys.executable, __file__, "--worker", backend, "--rounds", str(options.rounds)]
        # One thread each: on a busy machine, CPU time of several is mostly that of waiting.
        one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment = os.environ | one | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
        out = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment
        ).stdout
        results[backend] = json.loads(out.splitlines()[-1])
    table = Table(title=f"Parts of networks: CPU time as a multiple of the raw call's (bar {BAR})")
    for column in ("backend", "program", "raw ms", "ember_ml", ""):
        table.add_column(column, justify="left" if column in ("backend", "program") else "right")
    for backend, programs in results.items():
        for name, spent in programs.items():
            ratio = spent["ember_ml"] / spent["raw"]
            verdict = "[green]met" if ratio <= BAR else "[red]missed"
            table.add_row(backend, name, f"{spent['raw']:.2f}", f"{ratio:.2f}", verdict)
    Console().print(table)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
