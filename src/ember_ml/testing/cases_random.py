"""Random numbers: each op draws from a known stream, and the reference draws from it as well.

References use NumPy's Philox by itself, and Threefry on Python's integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import (
    AxisError,
    BackendMismatchError,
    DomainError,
    DTypeError,
    ShapeError,
    UnsupportedOpError,
)
from ember_ml.testing.case import Array, Case, Inputs, accepted, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES", "RANDOM"]

_SEED: Final = 0x1234_5678_9ABC_DEF1
_FLOATS: Final = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
_INTEGERS: Final = tuple(d for d in dtypes.ALL if d.is_integer)
_SHAPES: Final = ((2, 3), (), (0, 2), (7,))


def _draws(call: int = 0) -> Any:
    return np.random.Generator(np.random.Philox(key=_SEED, counter=[0, 0, call, 0]))


def _run_dtype(dtype: DType) -> Any:
    return np.float64 if dtype is dtypes.float64 else np.float32


def _made(
    op: str,
    draw: Callable[..., Any],
    reference: Callable[..., Any],
    over: tuple[DType, ...] = _FLOATS,
    label: str = "",
    ulps: float = 0,
) -> tuple[Case, ...]:
    """Cases of an op that makes tensors, for several shapes from one generator."""

    def case(dtype: DType) -> Case:
        def run(xp: Any) -> Any:
            generator = xp.random.Generator(_SEED)
            function = getattr(xp.random, op)
            return tuple(draw(function, s, dtype=dtype, generator=generator) for s in _SHAPES)

        def expect() -> Any:
            drawn = (
                np.asarray(reference(_draws(i), s, _run_dtype(dtype)))
                for i, s in enumerate(_SHAPES)
            )
            return tuple(a.astype(dtype.numpy).astype(_wide(dtype)) for a in drawn)

        return Case(f"random.{op}", run, expect, _nothing, (dtype,), ulps=ulps, label=label)

    return tuple(case(dtype) for dtype in over)


def _wide(dtype: DType) -> Any:
    if dtype.is_complex:
        return np.complex128
    return np.float64 if dtype.is_floating else dtype.numpy


def _nothing(dtype: DType) -> list[Inputs]:
    return [()]


def _uniform(draws: Any, shape: Any, dtype: Any) -> Array:
    values: Array = draws.random(shape, dtype=dtype)
    return values


def _normal(draws: Any, shape: Any, dtype: Any) -> Array:
    values: Array = draws.standard_normal(shape, dtype=dtype)
    return values


def _truncated(draws: Any, shape: Any, dtype: Any) -> Array:
    values = np.asarray(draws.standard_normal(shape, dtype=dtype)).reshape(-1)
    while (outside := np.abs(values) > 1).any():
        values[outside] = draws.standard_normal(int(outside.sum()), dtype=dtype)
    return values.reshape(shape)


def _complex(draws: Any, shape: Any, dtype: Any) -> Array:
    pairs = draws.standard_normal((*shape, 2)) * np.sqrt(0.5)
    return np.asarray(pairs[..., 0] + 1j * pairs[..., 1])


_CREATED: Final = (
    *_made("uniform", lambda f, s, **o: f(s, **o), _uniform),
    *_made("uniform", lambda f, s, **o: f(s, -2, 6.5, **o),
           lambda g, s, d: _uniform(g, s, d) * d(8.5) + d(-2), label="range"),
    *_made("normal", lambda f, s, **o: f(s, 3.0, 0.5, **o),
           lambda g, s, d: _normal(g, s, d) * d(0.5) + d(3)),
    *_made("normal", lambda f, s, **o: f(s, **o), _complex, (dtypes.complex128,), "complex", 4),
    *_made("truncated_normal", lambda f, s, **o: f(s, 1.0, 2.0, -1, 1, **o),
           lambda g, s, d: _truncated(g, s, d) * d(2) + d(1)),
    *_made("exponential", lambda f, s, **o: f(s, 0.25, **o),
           lambda g, s, d: g.standard_exponential(s, dtype=d) * d(0.25)),
    *_made("gumbel", lambda f, s, **o: f(s, **o), lambda g, s, d: np.asarray(g.gumbel(size=s), d)),
    *_made("laplace", lambda f, s, **o: f(s, **o), lambda g, s, d: np.asarray(
        g.laplace(size=s), d)),
    *_made("gamma", lambda f, s, **o: f(s, 2.5, 3.0, **o), lambda g, s, d: g.gamma(2.5, 3.0, s)),
    *_made("beta", lambda f, s, **o: f(s, 2.0, 3.0, **o), lambda g, s, d: g.beta(2.0, 3.0, s)),
    *_made("bernoulli", lambda f, s, **o: f(s, 0.4, **o), lambda g, s, d: g.random(s) < 0.4,
           dtypes.ALL),
    *_made("binomial", lambda f, s, **o: f(s, 20, 0.4, **o),
           lambda g, s, d: g.binomial(20, 0.4, s), (*_INTEGERS, *_FLOATS)),
    *_made("poisson", lambda f, s, **o: f(s, 3.5, **o), lambda g, s, d: g.poisson(3.5, s),
           (*_INTEGERS, *_FLOATS)),
)  # fmt: skip


# --- Integers of a range -------------------------------------------------------------------------


def _randint(dtype: DType) -> Case:
    low, high = (-100, 100) if dtype.is_signed else (3, 1 << dtype.bits)

    def run(xp: Any) -> Any:
        generator = xp.random.Generator(_SEED)
        return tuple(
            xp.random.randint(low, high, s, dtype=dtype, generator=generator) for s in _SHAPES
        )

    def expect() -> Any:
        return tuple(
            np.asarray(_draws(i).integers(low, high, s, dtype=dtype.numpy))
            for i, s in enumerate(_SHAPES)
        )

    return Case("random.randint", run, expect, _nothing, (dtype,))


# --- Orders and classes --------------------------------------------------------------------------


def _ordered(x: Array) -> Array:
    order: Array = _draws().permutation(x.shape[0])
    return x[order]


def _permuted(x: Array) -> tuple[Array, Array, Array]:
    rows = np.stack([x, x])
    return _draws(0).permutation(6), _ordered_by(x, 1), rows[:, _draws(2).permutation(x.size)]


def _ordered_by(x: Array, call: int) -> Array:
    order: Array = _draws(call).permutation(x.shape[0])
    return x[order]


def _permutation(xp: Any, x: Any) -> Any:
    generator = xp.random.Generator(_SEED)
    return (
        xp.random.permutation(6, generator=generator),
        xp.random.permutation(x, generator=generator),
        xp.random.permutation(xp.stack([x, x]), axis=1, generator=generator),
    )


def _logits(dtype: DType) -> list[Inputs]:
    return [(sample(f"logits{s}", s, dtype, 0, 2),) for s in ((3,), (2, 3), (0, 3))]


def _categories(x: Array) -> Array:
    weights = np.exp(np.asarray(x, np.float64))
    total = np.cumsum(weights, axis=-1) / weights.sum(axis=-1, keepdims=True)
    levels = _draws().random(x.shape[:-1])
    return np.asarray((total[..., :-1] <= levels[..., None]).sum(axis=-1))


def _weights(dtype: DType) -> list[Inputs]:
    return [
        (sample(f"weights{s}", s, dtype, 1, 3) | True if dtype is dtypes.bool
         else sample(f"weights{s}", s, dtype, 1, 3),)
        for s in ((4,), (2, 4))
    ]  # fmt: skip


def _race(x: Array) -> Array:
    times = _draws().standard_exponential(x.shape) / np.asarray(x, np.float64)
    return np.argsort(times, axis=-1)[..., :3]


def _replaced(x: Array) -> Array:
    draws = _draws()
    rows = np.asarray(x, np.float64).reshape(-1, x.shape[-1])
    picked = [
        np.searchsorted(np.cumsum(row) / row.sum(), draws.random(5), side="right") for row in rows
    ]
    return np.array(picked).reshape(*x.shape[:-1], 5)


def _chosen(xp: Any, x: Any) -> Any:
    generator = xp.random.Generator(_SEED)
    return (
        xp.random.choice(x, (2, 2), generator=generator),
        xp.random.choice(x, 3, replace=False, generator=generator),
        xp.random.choice(x, (), generator=generator),
        xp.random.choice(x, (5,), p=xp.asarray([0.25, 0.5, 0.0, 0.25]), generator=generator),
    )


def _choices(x: Array) -> Any:
    levels = np.searchsorted([0.25, 0.75, 0.75, 1.0], _draws(3).random(5), side="right")
    return (
        x[_draws(0).integers(0, 4, 4)].reshape(2, 2),
        x[_draws(1).permutation(4)[:3]],
        x[_draws(2).integers(0, 4, 1)].reshape(()),
        x[levels],
    )


def _seeded(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda xp, *tensors: run(xp, *tensors, generator=xp.random.Generator(_SEED))


def _index(dtype: DType) -> DType:
    return dtypes.int64


def _four(dtype: DType) -> list[Inputs]:
    return [(sample("choice", (4,), dtype, 0, 100),)]


_ORDERS: Final = (
    *map(_randint, _INTEGERS),
    Case("random.shuffle", _seeded(lambda xp, x, **o: xp.random.shuffle(x, **o)), _ordered,
         lambda d: [(sample("shuffle", s, d, 0, 9),) for s in ((5,), (4, 2), (0, 2))], dtypes.ALL),
    Case("random.permutation", _permutation, _permuted,
         lambda d: [(sample("permutation", (4,), d, 0, 9),)], (dtypes.int64,)),
    Case("random.choice", _chosen, _choices, _four, dtypes.ALL),
    Case("random.categorical", _seeded(lambda xp, x, **o: xp.random.categorical(x, **o)),
         _categories, _logits, accepted("random.categorical"), _index),
    Case("random.categorical",
         _seeded(lambda xp, x, **o: xp.random.categorical(xp.matrix_transpose(x), axis=0, **o)),
         _categories, lambda d: [(sample("logits", (2, 3), d, 0, 2),)], (dtypes.float32,), _index,
         label="axis"),
    Case("random.multinomial", _seeded(lambda xp, x, **o: xp.random.multinomial(x, 3, **o)),
         _race, _weights, accepted("random.multinomial"), _index),
    Case("random.multinomial", _seeded(lambda xp, x, **o: xp.random.multinomial(x, 5, True, **o)),
         _replaced, _weights, accepted("random.multinomial"), _index, label="replacement"),
)  # fmt: skip


# --- Keys ----------------------------------------------------------------------------------------


def _threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry2x32-20 as its paper states it."""
    word = (1 << 32) - 1
    schedule = (*key, 0x1BD11BDA ^ key[0] ^ key[1])
    a, b = (counter[0] + key[0]) & word, (counter[1] + key[1]) & word
    for turn in range(20):
        by = (13, 15, 26, 6, 17, 29, 16, 24)[turn % 8]
        a = (a + b) & word
        b = (((b << by) | (b >> (32 - by))) & word) ^ a
        if turn % 4 == 3:
            step = turn // 4 + 1
            a = (a + schedule[step % 3]) & word
            b = (b + schedule[(step + 1) % 3] + step) & word
    return a, b


def _words(count: int, stream: int) -> Array:
    pairs = [_threefry(_KEY, (i, stream)) for i in range((count + 1) // 2)]
    return np.array([a for a, _ in pairs] + [b for _, b in pairs], np.uint64)[:count]


_KEY: Final = (_SEED >> 32, _SEED & 0xFFFFFFFF)
_KEY_CASES: Final = ((1, 7), (0xFFFFFFFF, 0x80000000), _KEY)


def _keys(dtype: DType) -> list[Inputs]:
    if dtype is not dtypes.uint32:
        return [(np.ones(2).astype(dtype.numpy),)]
    return [(np.array(key, np.uint32),) for key in _KEY_CASES]


def _of_key(key: Array, numbers: list[int], stream: int) -> Array:
    words = (int(key[0]), int(key[1]))
    return np.array([_threefry(words, (n, stream)) for n in numbers])


def _by_key(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda xp: run(xp, xp.random.key(_SEED))


def _box_muller() -> Array:
    radius = np.sqrt(-2 * np.log((_words(4, 0) + 0.5) * 2.0**-32))
    angle = 2 * np.pi * (_words(4, 1) >> 8) * 2.0**-24
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:7]


_KEYED: Final = (
    Case("random.key", lambda xp: xp.random.key(_SEED), lambda: np.array(_KEY), _nothing,
         (dtypes.uint32,)),
    Case("random.split", lambda xp, k: xp.random.split(k, 3),
         lambda k: _of_key(k, [0, 1, 2], 0xFFFFFFFF), _keys, (dtypes.uint32,)),
    Case("random.fold_in", lambda xp, k: xp.random.fold_in(k, 0xFFFFFFF0),
         lambda k: _of_key(k, [0xFFFFFFF0], 0xFFFFFFFE)[0], _keys, (dtypes.uint32,)),
    Case("random.uniform", _by_key(lambda xp, k: xp.random.uniform((7,), generator=k)),
         lambda: (_words(7, 0) >> 8) * 2.0**-24, _nothing, (dtypes.float32,), label="key", ulps=0),
    Case("random.uniform",
         _by_key(lambda xp, k: xp.random.uniform((7,), dtype="float64", generator=k)),
         lambda: ((_words(7, 0) >> 5) * 2.0**26 + (_words(7, 1) >> 6)) * 2.0**-53, _nothing,
         (dtypes.float64,), label="key", ulps=0),
    # Logarithms near one lose what float32 numbers near one do not have.
    Case("random.normal", _by_key(lambda xp, k: xp.random.normal((7,), generator=k)), _box_muller,
         _nothing, (dtypes.float32,), label="key", ulps=16),
    Case("random.randint", _by_key(lambda xp, k: xp.random.randint(-3, 1000, 7, generator=k)),
         lambda: _upper(7, 1003) - 3, _nothing, (dtypes.int64,), label="key"),
    Case("random.permutation", _by_key(lambda xp, k: xp.random.permutation(7, generator=k)),
         lambda: np.argsort((_words(7, 0) & 0x7FFFFFFF) << 31 | _words(7, 1) & 0x7FFFFFFF),
         _nothing, (dtypes.int64,), label="key"),
)  # fmt: skip


def _upper(count: int, width: int) -> Array:
    low, high = ((_words(count, s) & 0x7FFFFFFF).tolist() for s in (0, 1))
    return np.array([(b << 31 | a) * width >> 62 for a, b in zip(low, high, strict=True)])


RANDOM: Final[tuple[Case, ...]] = (*_CREATED, *_ORDERS, *_KEYED)


# --- Mistakes ------------------------------------------------------------------------------------


def _elsewhere(xp: Any) -> Any:
    """A parameter of one backend and a key of another."""
    from ember_ml.backend import selection

    other = "torch" if xp.get_backend() != "torch" else "numpy"
    with selection.use_backend(other):
        mean = xp.zeros(3)
    return xp.random.normal(mean=mean, generator=xp.random.key(0))


MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake("uniform-bounds", DomainError, lambda xp: xp.random.uniform(2, 1.0, 1.0),
            ("random.uniform", "low=1.0")),
    Mistake("uniform-infinite", DomainError, lambda xp: xp.random.uniform(2, 0, float("inf"))),
    Mistake("uniform-tensor-bounds", DomainError,
            lambda xp: xp.random.uniform(low=xp.asarray([0.0, 3.0]), high=2.0),
            ("random.uniform", "high - low")),
    Mistake("uniform-dtype", DTypeError, lambda xp: xp.random.uniform(2, dtype="int32"),
            ("random.uniform", "int32")),
    Mistake("uniform-shape", ShapeError, lambda xp: xp.random.uniform((2, -1)), ("(2, -1)",)),
    Mistake("normal-std", DomainError, lambda xp: xp.random.normal(2, 0.0, -1.0),
            ("random.normal", "std=-1.0")),
    Mistake("normal-nan", DomainError, lambda xp: xp.random.normal(2, std=float("nan"))),
    Mistake("normal-tensor-std", DomainError,
            lambda xp: xp.random.normal(std=xp.asarray([1.0, -1.0])), ("random.normal", "std")),
    Mistake("normal-larger", ShapeError,
            lambda xp: xp.random.normal((3,), xp.zeros((2, 3))), ("(3,)", "(2, 3)")),
    Mistake("normal-shapes", ShapeError,
            lambda xp: xp.random.normal(None, xp.zeros((2,)), xp.ones((3,))), ("(2,)", "(3,)")),
    Mistake("normal-complex", DTypeError, lambda xp: xp.random.normal(2, 1j)),
    Mistake("truncated-empty", DomainError, lambda xp: xp.random.truncated_normal(2, 0, 1, 2, 1),
            ("lower=2", "upper=1")),
    Mistake("truncated-far", DomainError,
            lambda xp: xp.random.truncated_normal(2, 0, 1, 50, 60), ("probability",)),
    Mistake("truncated-bound", DTypeError,
            lambda xp: xp.random.truncated_normal(2, 0, 1, xp.zeros(2))),
    Mistake("exponential-scale", DomainError, lambda xp: xp.random.exponential(2, -1.0)),
    Mistake("gumbel-scale", DomainError, lambda xp: xp.random.gumbel(2, 0.0, -1.0)),
    Mistake("laplace-loc", DomainError, lambda xp: xp.random.laplace(2, float("inf"))),
    Mistake("gamma-zero", DomainError, lambda xp: xp.random.gamma(2, 0.0), ("concentration=0.0",)),
    Mistake("beta-negative", DomainError, lambda xp: xp.random.beta(2, 1.0, -1.0), ("b=-1.0",)),
    Mistake("bernoulli-p", DomainError, lambda xp: xp.random.bernoulli(2, 1.5),
            ("random.bernoulli", "p=1.5")),
    Mistake("bernoulli-tensor-p", DomainError,
            lambda xp: xp.random.bernoulli(p=xp.asarray([0.5, -0.1]))),
    Mistake("binomial-n", DomainError, lambda xp: xp.random.binomial(2, -1, 0.5), ("n=-1",)),
    Mistake("binomial-p", DomainError, lambda xp: xp.random.binomial(2, 4, 2.0)),
    Mistake("binomial-range", DomainError,
            lambda xp: xp.random.binomial(2, 1000, 1.0, dtype="int8"), ("1000", "int8")),
    Mistake("poisson-rate", DomainError, lambda xp: xp.random.poisson(2, -1.0), ("rate=-1.0",)),
    Mistake("poisson-key-rate", DomainError,
            lambda xp: xp.random.poisson(2, -1.0, generator=xp.random.key(0)), ("rate=-1.0",)),
    Mistake("poisson-key-range", DomainError,
            lambda xp: xp.random.poisson(2, 1e6, dtype="int8", generator=xp.random.key(0)),
            ("random.poisson", "int8")),
    Mistake("randint-bounds", DomainError, lambda xp: xp.random.randint(3, 3, (2,)), ("3, 3",)),
    Mistake("randint-range", DomainError,
            lambda xp: xp.random.randint(0, 300, (2,), dtype="uint8"), ("300", "uint8")),
    Mistake("randint-float", DTypeError, lambda xp: xp.random.randint(0, 2.5, (2,)), ("2.5",)),
    Mistake("randint-dtype", DTypeError, lambda xp: xp.random.randint(3, dtype="float32")),
    Mistake("permutation-negative", DomainError, lambda xp: xp.random.permutation(-1), ("-1",)),
    Mistake("shuffle-0d", ShapeError, lambda xp: xp.random.shuffle(xp.asarray(1.0))),
    Mistake("shuffle-axis", AxisError, lambda xp: xp.random.shuffle(xp.ones((2, 2)), 2)),
    Mistake("choice-too-many", DomainError,
            lambda xp: xp.random.choice(3, (4,), replace=False), ("4", "3")),
    Mistake("choice-of-nothing", DomainError, lambda xp: xp.random.choice(0, (1,))),
    Mistake("choice-p-sum", DomainError, lambda xp: xp.random.choice(2, 1, p=[0.5, 0.25]),
            ("0.75",)),
    Mistake("choice-p-shape", ShapeError, lambda xp: xp.random.choice(3, 1, p=[0.5, 0.5])),
    Mistake("categorical-0d", ShapeError, lambda xp: xp.random.categorical(xp.asarray(1.0))),
    Mistake("categorical-nan", DomainError,
            lambda xp: xp.random.categorical([0.0, float("nan")]), ("random.categorical",)),
    Mistake("categorical-impossible", DomainError,
            lambda xp: xp.random.categorical([-float("inf")] * 2)),
    Mistake("categorical-shape", ShapeError,
            lambda xp: xp.random.categorical(xp.zeros((4, 3)), (3,)), ("(3,)", "(4,)")),
    Mistake("multinomial-negative", DomainError,
            lambda xp: xp.random.multinomial([1.0, -1.0], 1)),
    Mistake("multinomial-too-many", DomainError,
            lambda xp: xp.random.multinomial([1.0, 1.0], 3), ("3", "2")),
    Mistake("multinomial-too-few", DomainError,
            lambda xp: xp.random.multinomial([1.0, 0.0], 2)),
    Mistake("key-shape", ShapeError,
            lambda xp: xp.random.split(xp.zeros(3, dtype="uint32")), ("(3,)",)),
    Mistake("key-dtype", DTypeError,
            lambda xp: xp.random.normal(2, generator=xp.zeros(2)), ("random.normal", "float32")),
    Mistake("key-native", UnsupportedOpError,
            lambda xp: xp.random.normal(2, generator=xp.random.key(0), native=True)),
    Mistake("key-backend", BackendMismatchError, _elsewhere, ("random.normal",)),
    Mistake("seed-negative", DomainError, lambda xp: xp.random.Generator(-1), ("-1",)),
    Mistake("seed-float", DTypeError, lambda xp: xp.random.set_seed(1.5), ("1.5",)),
)  # fmt: skip
