"""What `import ember_ml` costs, beside other libraries: CPU time of fresh processes."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.records import Bar, Record

__all__ = ["BENCHMARK"]

# What we hold ourselves to: CPU seconds beyond `import numpy`.
LIMIT = 0.05
ROUNDS = 15
PEERS = {"keras": "numpy", "torch": "", "jax": "", "mlx.core": "", "autoray": "", "autograd": ""}


def environment(keras: str = "") -> dict[str, str]:
    """As installed packages are: compiled once. The first run compiles and is not counted."""
    found = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    # Keras loads its engine with itself: NumPy is the smallest.
    return found | {"KERAS_BACKEND": keras} if keras else found


def seconds(statement: str, variables: Mapping[str, str]) -> float:
    """CPU seconds that a statement takes in a new process, which has started already."""
    program = (
        "import time\n"
        "started = time.process_time()\n"
        f"{statement}\n"
        "print(time.process_time() - started)"
    )
    out = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=dict(variables),
    )
    if out.returncode:
        raise RuntimeError(f"'{statement}' failed: {out.stderr.strip().splitlines()[-1:]}")
    return float(out.stdout.split()[-1])


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def imports(setting: Setting) -> Iterator[Record]:
    """`import ember_ml` beside `import numpy`, which is a part of it, and the peers."""
    given = {"numpy": ("import numpy", environment())}
    given["ember_ml"] = ("import ember_ml", environment())
    for module, keras in PEERS.items():
        if _is_there(module):
            given[module] = (f"import {module}", environment(keras))
    spent: dict[str, list[float]] = {name: [] for name in given}
    order = list(given)
    for turn in range(setting.rounds_of(ROUNDS) + 1):
        random.shuffle(order)
        for name in order:
            found = seconds(*given[name])
            if turn:
                spent[name].append(found)
    medians = {name: statistics.median(one) for name, one in spent.items()}
    yield Record(
        "imports",
        "import",
        "import ember_ml",
        ours=medians.pop("ember_ml"),
        raw=medians.pop("numpy"),
        against="import numpy",
        bar=Bar("extra", LIMIT),
        peers=medians,
        notes="fresh processes, bytecode written before; keras on NumPy",
    )


BENCHMARK = Benchmark(
    "imports", "What `import ember_ml` costs, beside other libraries.", {"import": imports}, ()
)
