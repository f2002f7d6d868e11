"""The fixed set of calls whose instructions scripts/instructions counts; run by it under callgrind.

    python benchmarks/instructions.py --environment     what decides counts, as JSON
    python benchmarks/instructions.py --measure         all calls between markers

Each call has an interval of its own between two markers; the standard output names the intervals
in their order. Run by itself, nothing is counted.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import ember_ml as em
from ember_ml import compiled, nn, ops, training

__all__ = ["CALLS", "WARM_UP", "Case", "cases", "environment", "measure"]

# Python settles on its quickest bytecode within some calls, and first calls fill caches of ours.
WARM_UP = 24
CALLS = 40


class Case(NamedTuple):
    """One of our calls, and the same in NumPy where there is one."""

    name: str
    ours: Callable[[], Any]
    raw: Callable[[], Any] | None = None


# --- The calls ------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """The fixed set; records of it are comparable only while sizes and programs stay."""
    draw = np.random.default_rng(0)
    a = draw.standard_normal((4, 4)).astype(np.float32)
    b = draw.standard_normal((4, 4)).astype(np.float32)
    x, y = em.Tensor(a), em.Tensor(b)
    written, target = a.copy(), em.Tensor(a)
    rows = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]

    def write() -> Any:
        target[1:3] = 0.0
        return target

    def raw_write() -> Any:
        written[1:3] = 0.0
        return written

    yield Case("em.Tensor(list)", lambda: em.Tensor(rows), lambda: np.array(rows, np.float32))
    yield Case("x[1:3]", lambda: x[1:3], lambda: a[1:3])
    yield Case("x[0]", lambda: x[0], lambda: a[0])
    yield Case("x[1:3] = 0.0", write, raw_write)
    yield Case("ops.sum(x, axis=0)", lambda: ops.sum(x, axis=0), lambda: np.sum(a, axis=0))
    yield Case("ops.sum(x)", lambda: ops.sum(x), lambda: np.sum(a))
    yield Case("x + 1.0", lambda: x + 1.0, lambda: a + 1.0)
    yield Case("2.0 * x", lambda: 2.0 * x, lambda: 2.0 * a)
    yield Case("ops.add(x, y)", lambda: ops.add(x, y), lambda: np.add(a, b))
    yield Case("x + y", lambda: x + y, lambda: a + b)
    yield Case("x @ y", lambda: x @ y, lambda: a @ b)
    yield Case("x.reshape(2, 8)", lambda: x.reshape(2, 8), lambda: a.reshape(2, 8))
    yield Case("ops.tanh(x)", lambda: ops.tanh(x), lambda: np.tanh(a))
    yield from _network(draw)
    yield from _cache(draw)


def _network(draw: np.random.Generator) -> Iterator[Case]:
    """A module of Linear, Tanh, Linear: its call, its gradients, a step of AdamW."""
    shapes: tuple[tuple[int, ...], ...] = ((16, 8), (16,), (4, 16), (4,))
    weights = [(draw.standard_normal(shape) * 0.3).astype(np.float32) for shape in shapes]
    data = draw.standard_normal((8, 8)).astype(np.float32)

    def network() -> nn.Sequential:
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        names = ("0.weight", "0.bias", "2.weight", "2.bias")
        model.load_state_dict(dict(zip(names, weights, strict=True)))
        return model

    model, frozen = network(), network().freeze()
    x = em.Tensor(data)

    def forward() -> Any:
        w1, b1, w2, b2 = weights
        return np.tanh(data @ w1.T + b1) @ w2.T + b2

    def gradients() -> Any:
        w1, b1, w2, b2 = weights
        h = np.tanh(data @ w1.T + b1)
        out = h @ w2.T + b2
        g = out * np.float32(2 / out.size)
        gh = (g @ w2) * (1 - h * h)
        return np.mean(out * out), [gh.T @ data, gh.sum(axis=0), g.T @ h, g.sum(axis=0)]

    graded = em.value_and_grad(lambda m: ops.mean(ops.square(m(x))))
    yield Case("module(x)", lambda: frozen(x), forward)
    yield Case("em.value_and_grad", lambda: graded(model), gradients)
    yield _adamw(network(), graded(model)[1], [w.copy() for w in weights], gradients()[1])


def _adamw(model: nn.Sequential, grads: Any, weights: list[Any], given: list[Any]) -> Case:
    """A step of AdamW with given gradients, and the same by hand."""
    rate, beta1, beta2, eps, decay = 1e-3, 0.9, 0.999, 1e-8, 1e-2
    optimizer = training.AdamW(model, lr=rate, betas=(beta1, beta2), eps=eps, weight_decay=decay)
    means = [np.zeros_like(w) for w in weights]
    squares = [np.zeros_like(w) for w in weights]
    count = itertools.count(1)

    def step() -> Any:
        optimizer.update(model, grads)
        return model

    def by_hand() -> Any:
        t = next(count)
        size, root = rate / (1 - beta1**t), (1 - beta2**t) ** 0.5
        for w, g, m, v in zip(weights, given, means, squares, strict=True):
            w *= 1 - rate * decay
            m += (g - m) * (1 - beta1)
            v += (g * g - v) * (1 - beta2)
            w -= size * m / (np.sqrt(v) / root + eps)
        return weights

    return Case("AdamW.update", step, by_hand)


def _cache(draw: np.random.Generator) -> Iterator[Case]:
    """One token more in a KVCache, which is what every step of generation does in every layer."""
    length = 2 * (WARM_UP + CALLS)
    new = draw.standard_normal((1, 2, 1, 4)).astype(np.float32)
    token = em.Tensor(new)
    cache = nn.KVCache(1, 2, 4, max_length=length)
    keys, values = (np.zeros((1, 2, length, 4), np.float32) for _ in range(2))
    count = itertools.count()

    def raw_update() -> Any:
        at = next(count)
        keys[:, :, at : at + 1] = new
        values[:, :, at : at + 1] = new
        return keys[:, :, : at + 1], values[:, :, : at + 1]

    yield Case("KVCache.update", lambda: cache.update(token, token), raw_update)


def _arrays(value: Any) -> list[Any]:
    """The numbers of a result, whatever holds them."""
    if isinstance(value, em.Tensor):
        return [value.numpy()]
    if isinstance(value, nn.Module):
        value = list(value.parameters())
    elif not isinstance(value, list | tuple):
        return [np.asarray(value)]
    return [array for one in value for array in _arrays(one)]


def _agree(case: Case) -> None:
    """Raise where ours and raw compute different things: their counts say nothing then."""
    if case.raw is None:
        return
    ours, raw = _arrays(case.ours()), _arrays(case.raw())
    if len(ours) != len(raw):
        raise AssertionError(f"{case.name}: {len(ours)} arrays, and {len(raw)} in NumPy")
    for left, right in zip(ours, raw, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6, err_msg=case.name)


# --- The measuring --------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """What decides how many instructions a call takes, beside our own source."""
    umath: Any = np._core._multiarray_umath  # type: ignore[attr-defined]  # nothing public tells
    simd = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]
    return {
        "core": "compiled" if compiled.is_compiled() else "interpreted",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "python build": ", ".join((*platform.python_build(), platform.python_compiler())),
        "numpy": np.__version__,
        "architecture": platform.machine(),
        "instruction sets of numpy": " ".join((*umath.__cpu_baseline__, *simd)),
        "libc": " ".join(platform.libc_ver()),
    }


def _interval(function: Callable[[], Any]) -> None:
    for _ in range(WARM_UP):
        function()
    gc.collect()
    calls = range(CALLS)
    # callgrind writes a dump whenever it sees this function of the C library, which nothing else
    # here calls.
    os.getppid()
    for _ in calls:
        function()
    os.getppid()


def measure() -> Iterator[tuple[str, str]]:
    """Run all calls between markers; gives each interval's call and side when it is over."""
    gc.disable()
    # What the loop and a call of a function cost by themselves, to be taken off all others.
    _interval(lambda: None)
    yield "", "nothing"
    for case in cases():
        _agree(case)
        _interval(case.ours)
        yield case.name, "ours"
        if case.raw is not None:
            _interval(case.raw)
            yield case.name, "raw"


def main() -> None:
    """Tell the environment, or run the calls."""
    if sys.argv[1:] == ["--environment"]:
        if stale := compiled.stale():
            sys.exit(f"compiled from older sources: {', '.join(stale)}; `make build` compiles them")
        print(json.dumps(environment()))
    elif sys.argv[1:] == ["--measure"]:
        print(json.dumps({"calls": CALLS, "intervals": list(measure())}))
    else:
        sys.exit("benchmarks/instructions.py takes --environment or --measure")


if __name__ == "__main__":
    main()
