"""What an op costs beyond the raw call: ratios on every backend, with peers beside.

    python benchmarks/overhead.py                     all installed backends, a table
    python benchmarks/overhead.py --json out.json --plot docs/assets/overhead.svg

Raw call and ours run in one process, in shuffled rounds; times are CPU time of the process, and
the ratio is of medians. Each backend has a process of its own, so that Keras, where installed,
can be on it as well.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 41
SECONDS_PER_BATCH = 0.004
LIMITS = {
    "numpy": {"add": 1.7, "matmul": 1.7, "sum": 1.7, "mlp": 1.3},
    "torch": {"add": 1.2, "matmul": 1.2, "sum": 1.2, "mlp": 1.15},
    "jax": {"add": 1.05, "matmul": 1.05, "sum": 1.05},
    "mlx": {"add": 1.5, "matmul": 1.5, "sum": 1.5},
}
IMPORT_LIMIT = 0.05

Program = Callable[[], Any]


# --- The programs ---------------------------------------------------------------------------


def host_arrays() -> dict[str, Any]:
    import numpy as np

    generator = np.random.default_rng(0)

    def make(*shape: int) -> Any:
        return generator.standard_normal(shape).astype("float32")

    return {
        "a": make(4), "b": make(4), "m": make(4, 4), "n": make(4, 4), "x": make(32, 64),
        "w1": make(64, 128), "b1": make(128), "w2": make(128, 10), "b2": make(10),
    }  # fmt: skip


def natives(backend: str) -> dict[str, Any]:
    arrays = host_arrays()
    if backend == "torch":
        import torch

        torch.set_num_threads(1)
        return {k: torch.from_numpy(v) for k, v in arrays.items()}
    if backend == "jax":
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        return {k: jnp.asarray(v) for k, v in arrays.items()}
    if backend == "mlx":
        import mlx.core as mx

        return {k: mx.array(v) for k, v in arrays.items()}
    return arrays


def mlp(v: dict[str, Any], matmul: Any, add: Any, maximum: Any, zero: Any) -> Program:
    x, w1, b1, w2, b2 = (v[k] for k in ("x", "w1", "b1", "w2", "b2"))
    return lambda: add(matmul(maximum(add(matmul(x, w1), b1), zero), w2), b2)


def raw_programs(backend: str) -> dict[str, Program]:
    v = natives(backend)
    a, b, m, n = (v[k] for k in "abmn")
    if backend == "numpy":
        import numpy as np

        return {
            "add": lambda: np.add(a, b),
            "matmul": lambda: np.matmul(m, n),
            "sum": lambda: np.sum(a),
            "mlp": mlp(v, np.matmul, np.add, np.maximum, 0.0),
        }
    if backend == "torch":
        import torch

        return {
            "add": lambda: torch.add(a, b),
            "matmul": lambda: torch.matmul(m, n),
            "sum": lambda: torch.sum(a),
            "mlp": mlp(v, torch.matmul, torch.add, torch.clamp_min, 0.0),
        }
    if backend == "jax":
        import jax.numpy as jnp

        return {
            "add": lambda: jnp.add(a, b),
            "matmul": lambda: jnp.matmul(m, n),
            "sum": lambda: jnp.sum(a),
            "mlp": mlp(v, jnp.matmul, jnp.add, jnp.maximum, 0.0),
        }
    import mlx.core as mx

    return {
        "add": lambda: mx.add(a, b),
        "matmul": lambda: mx.matmul(m, n),
        "sum": lambda: mx.sum(a),
        "mlp": mlp(v, mx.matmul, mx.add, mx.maximum, 0.0),
    }


def ember_programs(backend: str) -> dict[str, Program]:
    import ember_ml as em
    from ember_ml import ops

    em.set_backend(backend)
    v = {k: ops.asarray(x) for k, x in natives(backend).items()}
    a, b, m, n = (v[k] for k in "abmn")
    return {
        "add": lambda: ops.add(a, b),
        "matmul": lambda: ops.matmul(m, n),
        "sum": lambda: ops.sum(a),
        "mlp": mlp(v, ops.matmul, ops.add, ops.maximum, 0.0),
    }


def compat_programs(backend: str) -> dict[str, Program]:
    import array_api_compat

    v = natives(backend)
    a, b, m, n = (v[k] for k in "abmn")
    xp = array_api_compat.array_namespace(a)
    zero = xp.asarray(0.0, dtype=xp.float32)
    return {
        "add": lambda: xp.add(a, b),
        "matmul": lambda: xp.matmul(m, n),
        "sum": lambda: xp.sum(a),
        "mlp": mlp(v, xp.matmul, xp.add, xp.maximum, zero),
    }


def autoray_programs(backend: str) -> dict[str, Program]:
    from autoray import do

    v = natives(backend)
    a, b, m, n = (v[k] for k in "abmn")

    def op(name: str) -> Callable[..., Any]:
        return lambda *args: do(name, *args)

    zero = v["x"][0, 0] * 0
    return {
        "add": lambda: do("add", a, b),
        "matmul": lambda: do("matmul", m, n),
        "sum": lambda: do("sum", a),
        "mlp": mlp(v, op("matmul"), op("add"), op("maximum"), zero),
    }


def keras_programs(backend: str) -> dict[str, Program]:
    if backend == "mlx":
        raise ImportError("Keras has no MLX backend")
    os.environ["KERAS_BACKEND"] = backend
    from keras import ops

    v = natives(backend)
    a, b, m, n = (v[k] for k in "abmn")
    return {
        "add": lambda: ops.add(a, b),
        "matmul": lambda: ops.matmul(m, n),
        "sum": lambda: ops.sum(a),
        "mlp": mlp(v, ops.matmul, ops.add, ops.maximum, 0.0),
    }


LIBRARIES = {
    "raw": raw_programs,
    "ember_ml": ember_programs,
    "array-api-compat": compat_programs,
    "autoray": autoray_programs,
    "keras.ops": keras_programs,
}


# --- Measuring ------------------------------------------------------------------------------


def finish(result: Any) -> None:
    """Wait for engines that compute later."""
    native = getattr(result, "native", result)
    wait = getattr(native, "block_until_ready", None)
    if wait is not None:
        wait()


def batch_size(program: Program) -> int:
    count = 1
    while True:
        started = time.process_time()
        for _ in range(count):
            out = program()
        finish(out)
        spent = time.process_time() - started
        if spent > SECONDS_PER_BATCH / 4:
            return max(1, int(count * SECONDS_PER_BATCH / spent))
        count *= 4


def once(program: Program, count: int) -> float:
    started = time.process_time()
    for _ in range(count):
        out = program()
    finish(out)
    return (time.process_time() - started) / count * 1e9


def measure(backend: str, rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Nanoseconds per call, by program and library: medians over shuffled rounds."""
    programs: dict[tuple[str, str], Program] = {}
    for library, make in LIBRARIES.items():
        try:
            for name, program in make(backend).items():
                finish(program())
                programs[name, library] = program
        except (ImportError, TypeError, ValueError) as error:
            if library in ("raw", "ember_ml"):
                raise
            print(f"  {library} on {backend}: left out, {error}", file=sys.stderr)
    counts = {key: batch_size(program) for key, program in programs.items()}
    times: dict[tuple[str, str], list[float]] = {key: [] for key in programs}
    order = list(programs)
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        random.shuffle(order)
        for key in order:
            times[key].append(once(programs[key], counts[key]))
    gc.enable()
    result: dict[str, dict[str, float]] = {}
    for (name, library), spent in times.items():
        result.setdefault(name, {})[library] = statistics.median(spent)
    return result


def import_seconds(module: str, rounds: int = 15) -> float:
    """CPU seconds of `import module` beyond `import numpy`, the median of fresh processes."""
    program = (
        "import time, numpy\n"
        "started = time.process_time()\n"
        f"import {module}\n"
        "print(time.process_time() - started)"
    )
    # As installed packages are: compiled once. The first run compiles and is not counted.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    spent = [
        float(
            subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                text=True,
                check=True,
                env=environment,
            ).stdout
        )
        for _ in range(rounds + 1)
    ]
    return statistics.median(spent[1:])


# --- Showing --------------------------------------------------------------------------------


def show(results: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    libraries = [name for name in LIBRARIES if name != "raw"]
    table = Table(title="Cost of a call as a multiple of the raw library's")
    for column in ("backend", "program", "raw ns", *libraries, "bar", ""):
        table.add_column(column, justify="left" if column in ("backend", "program") else "right")
    for backend, programs in results["backends"].items():
        for name, times in programs.items():
            raw = times["raw"]
            limit = LIMITS.get(backend, {}).get(name)
            ratio = times["ember_ml"] / raw
            verdict = "" if limit is None else "[green]met" if ratio <= limit else "[red]missed"
            cells = [f"{times[lib] / raw:.2f}" if lib in times else "-" for lib in libraries]
            bar = "" if limit is None else f"{limit:.2f}"
            table.add_row(backend, name, f"{raw:,.0f}", *cells, bar, verdict)
    console = Console()
    console.print(table)
    spent = results["import_seconds"]
    console.print(f"import ember_ml: {spent:.3f} s of CPU beyond numpy (bar {IMPORT_LIMIT})")


def markdown(results: dict[str, Any]) -> str:
    libraries = [name for name in LIBRARIES if name != "raw"]
    head = ["backend", "program", "raw ns", *libraries, "bar"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for backend, programs in results["backends"].items():
        for name, times in programs.items():
            raw = times["raw"]
            cells = [f"{times[lib] / raw:.2f}" if lib in times else "-" for lib in libraries]
            limit = LIMITS.get(backend, {}).get(name)
            lines.append(
                f"| {backend} | {name} | {raw:,.0f} | {' | '.join(cells)} "
                f"| {'' if limit is None else limit} |"
            )
    return "\n".join(lines)


def plot(results: dict[str, Any], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    backends = list(results["backends"])
    figure, axes = pyplot.subplots(1, len(backends), figsize=(4 * len(backends), 3.6), sharey=True)
    colours = dict(zip(LIBRARIES, ("0.6", "#d1495b", "#00798c", "#edae49", "#30638e"), strict=True))
    for axis, backend in zip(axes, backends, strict=True):
        programs = results["backends"][backend]
        libraries = [lib for lib in LIBRARIES if lib != "raw"]
        width = 0.8 / len(libraries)
        for offset, library in enumerate(libraries):
            places = [i + offset * width for i, name in enumerate(programs)]
            ratios = [t.get(library, 0) / t["raw"] for t in programs.values()]
            axis.bar(places, ratios, width, label=library, color=colours[library])
        axis.axhline(1, color="0.3", linewidth=0.8)
        axis.set_yscale("log")
        axis.set_title(backend)
        axis.set_xticks([i + 0.3 for i in range(len(programs))], list(programs))
    axes[0].set_ylabel("cost of a call, raw library = 1")
    axes[0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", action="append", help="only these backends")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", help="write all numbers here")
    parser.add_argument("--markdown", help="write the table for the documentation here")
    parser.add_argument("--plot", help="draw the ratios here (SVG or PNG)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(options.worker, options.rounds)))
        return
    from rich.progress import track

    from ember_ml import available_backends

    chosen = options.backend or available_backends()
    measured = {}
    for backend in track(chosen, description="measuring"):
        out = subprocess.run(
            [sys.executable, __file__, "--worker", backend, "--rounds", str(options.rounds)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        measured[backend] = json.loads(out.stdout.splitlines()[-1])
    results = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}",
        "backends": measured,
        "import_seconds": import_seconds("ember_ml"),
    }
    show(results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(markdown(results) + "\n")
    if options.plot:
        plot(results, options.plot)


if __name__ == "__main__":
    main()
