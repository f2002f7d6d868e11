"""jit: arguments, results, traces and what they depend on."""

from __future__ import annotations

import threading
from collections import namedtuple
from functools import partial
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.errors import BackendMismatchError, DomainError, ShapeError, TraceError

COMPILED = ("torch", "jax", "mlx")
Pair = namedtuple("Pair", "left right")


def same(a: Any, b: Any) -> None:
    """Two trees of the same tensors: class, dtype, shape and values."""
    first, one = em.tree.flatten(a)
    second, other = em.tree.flatten(b)
    assert one == other
    for x, y in zip(first, second, strict=True):
        if not isinstance(x, Tensor):
            assert x == y
            continue
        assert type(x) is Tensor
        assert (x.dtype, x.shape, x.backend, x.device) == (y.dtype, y.shape, y.backend, y.device)
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6, atol=1e-7)


# --- Arguments and results ------------------------------------------------------------------


def test_trees_go_in_and_come_out(backend: str) -> None:
    def function(params: Any, pair: Any, *, scale: Any, name: str = "y") -> Any:
        y = pair.left @ params["w"] + params["b"][0] * scale
        return {name: y, "pair": Pair(ops.sum(y), [y > 0, None]), "n": 3, "text": "kept"}

    params = {"w": ops.ones((4, 3)), "b": [ops.arange(3, dtype="float32"), None]}
    pair = Pair(ops.full((2, 4), 0.5), None)
    jitted = em.jit(function)
    for _ in range(2):
        same(
            jitted(params, pair, scale=ops.asarray(2.0)),
            function(params, pair, scale=ops.asarray(2.0)),
        )
    same(jitted(params, pair, scale=2.0, name="z"), function(params, pair, scale=2.0, name="z"))
    assert jitted.traces == 2


def test_every_way_of_writing_it(backend: str) -> None:
    @em.jit
    def plain(x: Tensor) -> Tensor:
        """Its text."""
        return x + 1

    @em.jit(static_argnums=1)
    def with_options(x: Tensor, n: int) -> Tensor:
        return x * n

    class Model:
        def __init__(self) -> None:
            self.w = ops.asarray([2.0, 3.0])

        @em.jit
        def __call__(self, x: Tensor) -> Tensor:
            return self.w * x

        @em.jit(static_argnames="n")
        def power(self, x: Tensor, n: int = 2) -> Tensor:
            return x**n

    x = ops.asarray([1.0, 2.0])
    model = Model()
    assert (plain.__name__, plain.__doc__) == ("plain", "Its text.")
    assert plain(x).tolist() == [2.0, 3.0]
    assert with_options(x, 3).tolist() == [3.0, 6.0]
    assert em.jit(lambda x: -x)(x).tolist() == [-1.0, -2.0]
    assert em.jit(partial(ops.add, x))(x).tolist() == [2.0, 4.0]
    assert em.jit(ops.add)(x, x).tolist() == [2.0, 4.0]
    assert model(x).tolist() == [2.0, 6.0]
    assert em.jit(model.power)(x).tolist() == [1.0, 4.0]
    assert model.power(x, n=3).tolist() == [1.0, 8.0]
    assert model.power.traces == 1
    assert em.jit(model)(x).tolist() == [2.0, 6.0]


def test_arrays_are_traced(backend: str) -> None:
    jitted = em.jit(lambda x, y: x * 2 + y)
    a = np.array([1.0, 2.0], np.float32)
    first = jitted(a, ops.ones(2))
    assert isinstance(first, Tensor)
    assert first.backend == backend
    assert first.tolist() == [3.0, 5.0]
    assert jitted(a + 1, ops.ones(2)).tolist() == [5.0, 7.0]
    assert jitted.traces == 1
    native = ops.ones(2).native  # which keeps its backend
    if backend != "numpy":
        with em.use_backend("numpy"):
            out = jitted(native, native)
        assert (out.backend, out.tolist()) == (backend, [3.0, 3.0])


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int32", "uint8", "bool", "complex64"]
)
def test_numbers_are_weak(backend: str, dtype: str) -> None:
    x = ops.asarray([1, 0, 1], dtype=dtype)

    def function(x: Tensor, n: Any, named: Any = None) -> Any:
        return x + n, n - x, x * named  # apart: MLX builds a kernel for each chain of ops

    numbers = (1, True, 0.5, np.float32(0.5), np.int64(1))
    for n in numbers if backend != "mlx" else numbers[::2]:
        try:
            expected = function(x, n, named=n)
        except em.EmberError as error:
            with pytest.raises(type(error)):
                em.jit(function)(x, n, named=n)
        else:
            same(em.jit(function)(x, n, named=n), expected)


def test_static_values_are_told_apart(backend: str) -> None:
    jitted = em.jit(lambda x, n: ops.copysign(x, n))
    x = ops.ones(1)
    for n in (1, 1.0, True, 0.0, -0.0, float("nan"), float("nan")):
        same(jitted(x, n), jitted.__wrapped__(x, n))
    assert jitted.traces == 6


def test_results_may_be_what_was_given(backend: str) -> None:
    x = ops.asarray([1.0, 2.0])
    jitted = em.jit(lambda x: (x, x, x[:1], x.reshape(2, 1)))
    first, second, part, column = jitted(x)
    for made in (first, second, part, column):
        assert type(made) is Tensor
        assert not made.shares_memory(x)
    first += 1.0
    part += 5.0
    assert x.tolist() == [1.0, 2.0]
    assert jitted(x)[0].tolist() == [1.0, 2.0]


def test_constants_come_out_anew(backend: str) -> None:
    jitted = em.jit(lambda: {"ones": ops.ones(2), "none": None})
    first = jitted()["ones"]
    first += 1.0
    assert jitted()["ones"].tolist() == [1.0, 1.0]
    assert jitted.traces == 1


def test_empty_and_scalar_tensors(backend: str) -> None:
    def function(x: Tensor) -> Any:
        return ops.sum(x), x * 2, x.T

    for shape in ((0, 3), (2, 0), (1, 1)):
        same(em.jit(function)(ops.ones(shape)), function(ops.ones(shape)))
    same(em.jit(lambda x: x + 1)(ops.asarray(1)), ops.asarray(2))


def test_views_are_arguments(backend: str) -> None:
    x = ops.reshape(ops.arange(12, dtype="float32"), (3, 4))

    def function(x: Tensor) -> Any:
        return ops.reshape(x, (-1,)) * 2, x @ x.T

    jitted = em.jit(function)
    for view in (x[1:], x[:, ::2], x.T, x[:, ::-1], x.slice((0, 2))):
        same(jitted(view), function(view))


# --- Traces ---------------------------------------------------------------------------------


def test_a_trace_for_each_kind_of_call(backend: str) -> None:
    seen: list[Any] = []

    def function(x: Any, flag: bool = False) -> Any:
        seen.append(flag)
        return em.tree.map(lambda t: t + 1, x)

    jitted = em.jit(function)
    calls = [
        (ops.ones(2),),
        (ops.ones(3),),
        (ops.ones(2, dtype="int64"),),
        ([ops.ones(2)],),
        ((ops.ones(2),),),
        ({"a": ops.ones(2)},),
        ({"b": ops.ones(2)},),
        (ops.ones(2), True),
    ]
    for _ in range(2):
        for call in calls:
            same(jitted(*call), function(*call))
    assert jitted.traces == len(calls)
    info = jitted.cache_info()
    assert (info.hits, info.misses, info.currsize, info.maxsize) == (8, 8, 8, 64)
    if backend != "numpy":
        assert len(seen) == 3 * len(calls)
    jitted.clear_cache()
    assert jitted.cache_info().currsize == 0
    jitted(ops.ones(2))
    assert jitted.traces == len(calls) + 1


def test_the_cache_is_bounded_and_says_so(backend: str) -> None:
    jitted = em.jit(lambda x, n: x * n, cache_size=2)
    x = ops.ones(1)
    jitted(x, 1), jitted(x, 2), jitted(x, 1)
    with pytest.warns(RuntimeWarning, match=r"traced 3 times.*as tensors"):
        jitted(x, 3)
    assert jitted(x, 1).item() == 1.0  # the one that was used longest ago has gone
    assert (jitted.traces, jitted.cache_info().currsize) == (3, 2)
    jitted(x, 2)
    assert jitted.traces == 4


def test_a_function_for_every_backend() -> None:
    jitted = em.jit(lambda x: x + ops.ones(2))
    for name in ("numpy", "torch", "jax", "mlx", "numpy"):
        with em.use_backend(name):
            out = jitted(ops.ones(2))
            assert (out.backend, out.tolist()) == (name, [2.0, 2.0])
    assert jitted.traces == 4


def test_static_arguments(backend: str) -> None:
    class Config:
        def __init__(self, n: int) -> None:
            self.n = n

        def __hash__(self) -> int:
            return self.n

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Config) and other.n == self.n

    def function(x: Tensor, shape: tuple[int, ...], mode: str = "a") -> Tensor:
        y = ops.reshape(x, shape)
        return -y if mode == "a" else y

    jitted = em.jit(function, static_argnums=(1,), static_argnames=["mode"])
    x = ops.arange(4, dtype="float32")
    assert jitted(x, (2, 2)).shape == (2, 2)
    assert jitted(x, shape=(2, 2)).shape == (2, 2)
    assert jitted(x, (4, 1), mode="b").tolist() == [[0.0], [1.0], [2.0], [3.0]]
    assert jitted(x, (4, 1), "b").shape == (4, 1)
    with pytest.raises(TraceError, match=r"got list as static args\[1\], which has no hash"):
        jitted(x, [2, 2])
    with pytest.raises(TraceError, match=r"set at args\[1\]\['k'\]"):
        em.jit(lambda x, options: x)(x, {"k": {1, 2}})
    by_value = em.jit(lambda x, config: x * config.n)
    assert by_value(x, Config(2)).tolist() == by_value(x, Config(2)).tolist()
    assert by_value.traces == 1
    with pytest.raises(DomainError, match="static_argnums 3"):
        em.jit(function, static_argnums=3)
    with pytest.raises(DomainError, match="static_argnames 'other'"):
        em.jit(function, static_argnames="other")


def test_mistakes_of_jit_itself(backend: str) -> None:
    with pytest.raises(TraceError, match="takes a function, not int"):
        em.jit(3)  # type: ignore[type-var]  # what is tested
    with pytest.raises(DomainError, match="cache_size"):
        em.jit(lambda x: x, cache_size=0)
    if backend == "torch":
        with pytest.raises(DomainError, match="graph, inductor"):
            em.jit(lambda x: x, compiler="other")(ops.ones(1))


def test_two_backends_in_one_call() -> None:
    x = ops.ones(1)
    with em.use_backend("jax"):
        y = ops.ones(1)
    with pytest.raises(BackendMismatchError, match="numpy"):
        em.jit(lambda x, y: x)(x, y)
    with pytest.raises(BackendMismatchError, match="a state of 'jax'"):
        em.jit(lambda x: x, state=[y])(x)


def test_errors_of_ops_are_theirs(backend: str) -> None:
    jitted = em.jit(lambda x, y: x @ y)
    with pytest.raises(ShapeError, match="matmul"):
        jitted(ops.ones((2, 3)), ops.ones((2, 3)))
    assert jitted(ops.ones((2, 3)), ops.ones((3, 2))).shape == (2, 2)


# --- One within another ----------------------------------------------------------------------


def test_jit_in_jit(backend: str) -> None:
    inner = em.jit(lambda x: ops.exp(x) * 2)
    outer = em.jit(lambda x: inner(x) + inner(x * 2))
    x = ops.asarray([0.5, 1.0])
    same(outer(x), ops.exp(x) * 2 + ops.exp(x * 2) * 2)


def test_a_function_that_calls_itself(backend: str) -> None:
    @em.jit
    def power(x: Tensor, n: int) -> Tensor:
        return x if n == 1 else x * power(x, n - 1)

    assert power(ops.asarray(2.0), 5).item() == 32.0

    @em.jit
    def endless(x: Tensor) -> Tensor:
        return endless(x + 1)

    with pytest.raises((TraceError, RecursionError)):
        endless(ops.asarray(2.0))


def test_vmap_and_jit(backend: str) -> None:
    x = ops.reshape(ops.arange(6, dtype="float32"), (3, 2))
    w = ops.asarray([1.0, 2.0])

    def dot(x: Tensor, w: Tensor) -> Tensor:
        return ops.sum(x * w)

    expected = [2.0, 8.0, 14.0]
    for _ in range(2):
        assert em.jit(ops.vmap(dot, in_axes=(0, None)))(x, w).tolist() == expected
        assert ops.vmap(em.jit(dot), in_axes=(0, None))(x, w).tolist() == expected


def test_control_flow_inside(backend: str) -> None:
    def function(x: Tensor, n: Tensor) -> Any:
        y = ops.cond(ops.sum(x) > 0, lambda x: x * 2, lambda x: -x, x)
        total, rows = ops.scan(lambda c, row: (c + row, c * row), ops.zeros(()), x)
        z = ops.fori_loop(0, 3, lambda i, z: z + x, x)
        return y, total, rows, z, ops.switch(n, [lambda x: x, lambda x: x * x], x)

    jitted = em.jit(function)
    x, n = ops.asarray([1.0, 2.0, 3.0]), ops.asarray(1)
    same(jitted(x, n), function(x, n))
    same(jitted(-x, n * 0), function(-x, n * 0))
    assert jitted.traces == 1
    if backend == "mlx":  # which has no loop of unknown length
        return
    halve = em.jit(lambda x: ops.while_loop(lambda x: ops.sum(x) > 1, lambda x: x / 2, x))
    assert halve(ops.asarray([8.0])).tolist() == [1.0]
    assert halve(ops.asarray([5.0])).tolist() == [0.625]


def test_several_threads(backend: str) -> None:
    jitted = em.jit(lambda x, n: x * n)
    found: list[Any] = []

    def work(n: int) -> None:
        with em.use_backend(backend):
            for size in (1, 2, 3):
                found.append((n * size, sum(jitted(ops.ones(size), n).tolist())))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert all(a == b for a, b in found)


@pytest.mark.parametrize("backend", COMPILED)
def test_what_is_compiled_is_not_called_again(backend: str) -> None:
    calls: list[int] = []

    def function(x: Tensor) -> Tensor:
        calls.append(1)
        return x + 1

    with em.use_backend(backend):
        jitted = em.jit(function)
        for _ in range(3):
            jitted(ops.ones(2))
    assert len(calls) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, by its own modules
def test_inductor() -> None:
    def loss(params: Any, x: Tensor) -> Tensor:
        return ops.sum(ops.tanh(x @ params["w"]) ** 2)

    with em.use_backend("torch"):
        w = ops.full((3, 2), 0.25)

        @em.jit(state=w, compiler="inductor")
        def step(x: Tensor) -> Tensor:
            nonlocal w
            value, g = em.value_and_grad(loss)({"w": w}, x)
            w -= 0.1 * g["w"]
            return value

        mine = ops.full((3, 2), 0.25)
        x = ops.ones((4, 3))
        for _ in range(2):
            value, g = em.value_and_grad(loss)({"w": mine}, x)
            mine -= 0.1 * g["w"]
            same(step(x), value)
            same(w, mine)
