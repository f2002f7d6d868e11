"""What an op costs beyond the raw call: ratios on every engine, with peers beside.

MLX is lazy: what is measured there is the building of its graph.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.suites.engines import namespace, native, peers
from ember_ml.bench.timing import Measure, Program
from ember_ml.compiled import is_compiled

__all__ = ["BENCHMARK"]

ROUNDS = 41
SECONDS_PER_BATCH = 0.004
LIMITS = {
    "numpy": {"add": 1.7, "matmul": 1.7, "sum": 1.7, "mlp": 1.3},
    "torch": {"add": 1.2, "matmul": 1.2, "sum": 1.2, "mlp": 1.15},
    "jax": {"add": 1.05, "matmul": 1.05, "sum": 1.05},
    "mlx": {"add": 1.5, "matmul": 1.5, "sum": 1.5},
}
# What the compiled core is held to beyond that.
COMPILED = {
    "numpy": {"x + y": 1.25, "add": 1.4},
    "torch": {"x + y": 1.1, "add": 1.15},
    "jax": {"x + y": 1.02, "add": 1.03},
    "mlx": {"x + y": 1.25, "add": 1.35},
}
ABOUT = {
    "x + y": "4 float32 values, by the operator",
    "add": "4 float32 values",
    "matmul": "two 4x4 matrices",
    "sum": "4 float32 values",
    "mlp": "64-128-10 with a batch of 32, written with ops",
}

Arrays = dict[str, Any]
Programs = dict[str, Program]


def host_arrays() -> Arrays:
    """Small arrays, and the weights of the MLP."""
    generator = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "a": (4,), "b": (4,), "m": (4, 4), "n": (4, 4), "x": (32, 64),
        "w1": (64, 128), "b1": (128,), "w2": (128, 10), "b2": (10,),
    }  # fmt: skip
    return {k: generator.standard_normal(s).astype(np.float32) for k, s in shapes.items()}


def programs(v: Arrays, add: Any, matmul: Any, total: Any, maximum: Any, zero: Any) -> Programs:
    """The programs of a library's functions, and its operator."""
    a, b, m, n = (v[k] for k in "abmn")
    x, w1, b1, w2, b2 = (v[k] for k in ("x", "w1", "b1", "w2", "b2"))
    return {
        "x + y": lambda: a + b,
        "add": lambda: add(a, b),
        "matmul": lambda: matmul(m, n),
        "sum": lambda: total(a),
        "mlp": lambda: add(matmul(maximum(add(matmul(x, w1), b1), zero), w2), b2),
    }


# Python looks a function up in its module at every call, on both sides: so do these.
def raw_programs(backend: str, v: Arrays) -> Programs:
    """The engine's own functions."""
    xp = namespace(backend)
    found = programs(
        v, xp.add, xp.matmul, xp.sum, getattr(xp, "clamp_min", None) or xp.maximum, 0.0
    )
    a, b, m, n = (v[k] for k in "abmn")
    return {
        **found,
        "add": lambda: xp.add(a, b),
        "matmul": lambda: xp.matmul(m, n),
        "sum": lambda: xp.sum(a),
    }


def our_programs(v: Arrays) -> Programs:
    """The same in ember_ml."""
    from ember_ml import ops

    t = {k: ops.asarray(x) for k, x in v.items()}
    found = programs(t, ops.add, ops.matmul, ops.sum, ops.maximum, 0.0)
    a, b, m, n = (t[k] for k in "abmn")
    return {
        **found,
        "add": lambda: ops.add(a, b),
        "matmul": lambda: ops.matmul(m, n),
        "sum": lambda: ops.sum(a),
    }


def compat_programs(v: Arrays) -> Programs:
    """array-api-compat, its namespace held."""
    xp = importlib.import_module("array_api_compat").array_namespace(v["a"])
    zero = xp.asarray(0.0, dtype=xp.float32)
    return programs(v, xp.add, xp.matmul, xp.sum, xp.maximum, zero)


def autoray_programs(v: Arrays) -> Programs:
    """autoray's `do`."""
    do = importlib.import_module("autoray").do

    def op(name: str) -> Callable[..., Any]:
        return lambda *args: do(name, *args)

    zero = v["x"][0, 0] * 0
    found = programs(v, op("add"), op("matmul"), op("sum"), op("maximum"), zero)
    a, b, m, n = (v[k] for k in "abmn")
    return {
        **found,
        "add": lambda: do("add", a, b),
        "matmul": lambda: do("matmul", m, n),
        "sum": lambda: do("sum", a),
    }


def keras_programs(v: Arrays) -> Programs:
    """keras.ops on the same engine, which the process was started with."""
    ops = importlib.import_module("keras").ops
    return programs(v, ops.add, ops.matmul, ops.sum, ops.maximum, 0.0)


def calls(setting: Setting) -> Iterator[Measure]:
    """One operator, one call of three ops, and a small network."""
    backend = setting.backend
    v = {k: native(backend, x) for k, x in host_arrays().items()}
    makers: dict[str, Callable[[], Programs]] = {
        "array-api-compat": lambda: compat_programs(v),
        "autoray": lambda: autoray_programs(v),
        "keras.ops": lambda: keras_programs(v),
    }
    if backend == "mlx":
        del makers["keras.ops"]  # it has no such backend
    others, notes = peers(makers)
    theirs, ours = raw_programs(backend, v), our_programs(v)
    limits = {**LIMITS[backend], **(COMPILED[backend] if is_compiled() else {})}
    for name, about in ABOUT.items():
        yield Measure(
            name,
            theirs[name],
            ours[name],
            limits.get(name),
            against=namespace(backend).__name__,
            # Libraries of functions have no arrays of their own: their operator is the raw one.
            peers={library: found[name] for library, found in others.items() if name != "x + y"},
            rounds=ROUNDS,
            batch=SECONDS_PER_BATCH,
            wait=True,
            notes="; ".join(one for one in (about, notes) if one),
        )


BENCHMARK = Benchmark(
    "overhead", "What an op costs beyond the raw call, with other libraries beside.", {"ops": calls}
)
