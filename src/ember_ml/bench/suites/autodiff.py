"""A step of training, loss and gradients of a network, beside the engine used raw.

Raw is what users of the engine write: torch.autograd.grad, a jitted jax.value_and_grad,
mx.value_and_grad, and for NumPy a backward pass written by hand for this very network; beside it,
where it is installed, HIPS autograd. Each must agree with ours before it is timed.
"""

from __future__ import annotations

import importlib
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ember_ml.backend.numpy import blas
from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.records import Bar, Record
from ember_ml.bench.suites.engines import peers
from ember_ml.bench.timing import Measure, Program, finish

__all__ = ["BENCHMARK"]

SIZES: dict[str, tuple[tuple[int, ...], int]] = {
    "mlp": ((784, 512, 512, 10), 64),
    "tiny mlp": ((8, 16, 16, 4), 8),
}
LIMITS = {
    "numpy": {"mlp": 1.1, "tiny mlp": 1.4},
    "torch": {"mlp": 1.05, "tiny mlp": 1.35},
    "jax": {"mlp": 1.02},
    "mlx": {"mlp": 1.02},
}
FASTER_THAN_AUTOGRAD = 3.0


def network(name: str) -> tuple[list[Any], Any, Any]:
    """Weights and biases, a batch, and the class of each row."""
    sides, batch = SIZES[name]
    generator = np.random.default_rng(0)
    parameters = []
    for rows, columns in itertools.pairwise(sides):
        scale = np.sqrt(2 / rows)
        parameters.append((generator.standard_normal((rows, columns)) * scale).astype(np.float32))
        parameters.append(np.zeros(columns, np.float32))
    x = generator.standard_normal((batch, sides[0])).astype(np.float32)
    return parameters, x, generator.integers(0, sides[-1], batch)


# --- By hand --------------------------------------------------------------------------------


def by_hand(parameters: list[Any], x: Any, labels: Any) -> tuple[Any, list[Any]]:
    """Forward and backward in NumPy, as one writes it for three layers."""
    w1, b1, w2, b2, w3, b3 = parameters
    h1 = np.maximum(x @ w1 + b1, 0)
    h2 = np.maximum(h1 @ w2 + b2, 0)
    logits = h2 @ w3 + b3
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    total = exponents.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = (np.log(total[:, 0]) - shifted[rows, labels]).mean()
    g = exponents / total
    g[rows, labels] -= 1
    g /= np.float32(len(labels))
    g2 = (g @ w3.T) * (h2 > 0)
    g1 = (g2 @ w2.T) * (h1 > 0)
    grads = [x.T @ g1, g1.sum(axis=0), h1.T @ g2, g2.sum(axis=0), h2.T @ g, g.sum(axis=0)]
    return loss, grads


def autograd_step(parameters: list[Any], x: Any, labels: Any) -> Program:
    """The same by HIPS autograd."""
    anp: Any = importlib.import_module("autograd.numpy")
    value_and_grad = importlib.import_module("autograd").value_and_grad
    rows = np.arange(len(labels))

    def loss(p: list[Any]) -> Any:
        h = anp.maximum(anp.dot(x, p[0]) + p[1], 0)
        h = anp.maximum(anp.dot(h, p[2]) + p[3], 0)
        logits = anp.dot(h, p[4]) + p[5]
        shifted = logits - anp.max(logits, axis=1, keepdims=True)
        return anp.mean(anp.log(anp.sum(anp.exp(shifted), axis=1)) - shifted[rows, labels])

    step = value_and_grad(loss)
    return lambda: step(parameters)


def products_alone(parameters: list[Any], x: Any, labels: Any) -> Program:
    """The matrix products of a step and nothing else: what no way through it can do without."""
    w1, b1, w2, b2, w3, b3 = parameters
    h1 = np.maximum(x @ w1 + b1, 0)
    h2 = np.maximum(h1 @ w2 + b2, 0)
    g = h2 @ w3 + b3
    g2 = g @ w3.T
    g1 = g2 @ w2.T

    def run() -> Any:
        back = (g @ w3.T, g2 @ w2.T, x.T @ g1, h1.T @ g2, h2.T @ g)
        return (x @ w1, h1 @ w2, h2 @ w3), back

    return run


# --- Raw engines ----------------------------------------------------------------------------


def raw(backend: str, parameters: list[Any], x: Any, labels: Any) -> Program:
    """A step as users of the engine write it."""
    if backend == "numpy":
        return lambda: by_hand(parameters, x, labels)
    if backend == "torch":
        import torch
        from torch.nn.functional import cross_entropy, relu

        weights = [torch.from_numpy(p).requires_grad_() for p in parameters]
        data, target = torch.from_numpy(x), torch.from_numpy(labels)

        def torch_step() -> Any:
            w1, b1, w2, b2, w3, b3 = weights
            h = relu(data @ w1 + b1)
            h = relu(h @ w2 + b2)
            loss = cross_entropy(h @ w3 + b3, target)
            return loss, torch.autograd.grad(loss, weights)

        return torch_step
    if backend == "jax":
        import jax
        import jax.numpy as jnp

        arrays = [jnp.asarray(p) for p in parameters]
        rows, classes = jnp.asarray(x), jnp.asarray(labels)

        def jax_loss(p: list[Any], data: Any, target: Any) -> Any:
            h = jax.nn.relu(data @ p[0] + p[1])
            h = jax.nn.relu(h @ p[2] + p[3])
            scores = jax.nn.log_softmax(h @ p[4] + p[5])
            return -jnp.mean(jnp.take_along_axis(scores, target[:, None], axis=1))

        step = jax.jit(jax.value_and_grad(jax_loss))
        return lambda: jax.block_until_ready(step(arrays, rows, classes))
    import mlx.core as mx

    losses: Any = importlib.import_module("mlx.nn").losses

    values = [mx.array(p) for p in parameters]
    inputs, wanted = mx.array(x), mx.array(labels)

    def mlx_loss(p: list[Any]) -> Any:
        h = mx.maximum(inputs @ p[0] + p[1], 0)
        h = mx.maximum(h @ p[2] + p[3], 0)
        return losses.cross_entropy(h @ p[4] + p[5], wanted, reduction="mean")

    mlx_step = mx.value_and_grad(mlx_loss)

    def run() -> Any:
        loss, grads = mlx_step(values)
        mx.eval(loss, grads)
        return loss, grads

    return run


# --- Ours -----------------------------------------------------------------------------------


def ours(backend: str, parameters: list[Any], x: Any, labels: Any) -> Program:
    """The same step in ember_ml."""
    import ember_ml as em
    from ember_ml import ops

    weights = [ops.asarray(p, copy=True) for p in parameters]
    data, target = ops.asarray(x, copy=True), ops.asarray(labels, copy=True)

    def loss(p: list[Any], data: Any, target: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = p
        h = ops.relu(data @ w1 + b1)
        h = ops.relu(h @ w2 + b2)
        return ops.losses.cross_entropy(h @ w3 + b3, target)

    step = em.value_and_grad(loss)
    if backend == "jax":
        step = em.jit(step)

    def run() -> Any:
        value, grads = step(weights, data, target)
        if backend in ("jax", "mlx"):
            finish((value, *grads))
        return value, grads

    return run


def agree(first: Any, second: Any) -> None:
    """Raise where two steps give other numbers: then their times mean nothing."""
    for a, b in zip((first[0], *first[1]), (second[0], *second[1]), strict=True):
        a, b = (np.asarray(getattr(one, "native", one).tolist()) for one in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


RAW = {
    "numpy": "a backward pass by hand",
    "torch": "torch.autograd.grad",
    "jax": "jitted jax.value_and_grad",
    "mlx": "mx.value_and_grad",
}


def steps(setting: Setting, name: str, more: str = "") -> Iterator[Measure]:
    """A step of a network; `more` ends the names of its measures."""
    backend = setting.backend
    given = network(name)
    theirs, mine = raw(backend, *given), ours(backend, *given)
    agree(theirs(), mine())
    limit = LIMITS[backend].get(name)
    makers = {"HIPS autograd": lambda: autograd_step(*given)} if backend == "numpy" else {}
    others, notes = peers(makers)
    sides, batch = SIZES[name]
    about = f"{'-'.join(map(str, sides))}, batch {batch}"
    notes = "; ".join(one for one in (about, notes) if one)
    yield Measure(f"{name} step{more}", theirs, mine, limit, RAW[backend], others, 25, notes=notes)
    for library, other in others.items() if name == "mlp" else ():
        limit = 1 / FASTER_THAN_AUTOGRAD
        floor = {"products alone": products_alone(*given)}
        title = f"{name} step, {library}{more}"
        yield Measure(title, other, mine, limit, library, floor, notes=about)


# --- A program of its own ---------------------------------------------------------------------

ALONE = "mlp in programs of their own"
CALLS = 100


def by_itself(library: str) -> None:
    """Print the CPU seconds of a step, the median of many, in a program that does nothing else."""
    given = network("mlp")
    step = ours("numpy", *given) if library == "ember_ml" else autograd_step(*given)
    # As many calls before, in which the program gets its memory.
    times = [_spent(step) for _ in range(2 * CALLS)][CALLS:]
    sys.stdout.write(f"{statistics.median(times)}\n")


def _spent(step: Program) -> float:
    began = time.process_time()
    step()
    return time.process_time() - began


def alone(setting: Setting) -> Iterator[Record]:
    """The step as a user's program has it: what else ran in it changes how memory is kept."""
    importlib.import_module("autograd")  # its absence is told by the worker
    spent: dict[str, list[float]] = {"ember_ml": [], "HIPS autograd": []}
    for _ in range(setting.rounds_of(5)):
        for library, times in spent.items():
            command = f"from {__name__} import by_itself; by_itself({library!r})"
            variables = {**os.environ, "EMBER_ML_BACKEND": "numpy"}
            done = subprocess.run(
                [sys.executable, "-c", command], capture_output=True, text=True, env=variables
            )
            if done.returncode:
                raise RuntimeError(f"{library}: {done.stderr.strip().splitlines()[-1:]}")
            times.append(float(done.stdout))
    medians = {library: statistics.median(times) for library, times in spent.items()}
    yield Record(
        "autodiff",
        ALONE,
        "mlp step, HIPS autograd, programs of their own",
        setting.backend,
        ours=medians["ember_ml"],
        raw=medians["HIPS autograd"],
        against="HIPS autograd",
        bar=Bar("ratio", 1 / FASTER_THAN_AUTOGRAD),
        notes=f"784-512-512-10, batch 64; medians of {setting.rounds_of(5)} programs each",
    )


AVX512 = "mlp with AVX-512"


def better_kernels() -> Mapping[str, str]:
    """What makes OpenBLAS take all of the processor, where it does not by itself."""
    better = blas.faster_kernels()
    return {"OPENBLAS_CORETYPE": better} if better else {}


BENCHMARK = Benchmark(
    "autodiff",
    "Loss and gradients of a network, beside the engine used raw.",
    {
        "mlp": lambda setting: steps(setting, "mlp"),
        "tiny mlp": lambda setting: steps(setting, "tiny mlp"),
        AVX512: lambda setting: steps(setting, "mlp", ", AVX-512"),
        ALONE: alone,
    },
    only={AVX512: ("numpy",), ALONE: ("numpy",)},
    variables={AVX512: better_kernels},
)
