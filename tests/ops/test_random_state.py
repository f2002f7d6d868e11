"""Random state: seeds in threads and tasks, generators, keys under compilers."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.nn import tensor
from ember_ml.ops.random import Generator, seeding

random: Any = ops.random
N = 40_000


# --- Seeds, threads and tasks --------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _own_seed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No test sees or moves the seed of another."""
    monkeypatch.setattr(seeding, "_default", seeding._default)
    with random.use_seed(987):
        yield


def test_set_seed_begins_again(backend: str) -> None:
    assert tensor.set_seed is random.set_seed
    tensor.set_seed(3)
    assert tensor.get_seed() == random.get_seed() == 3
    first = [tensor.random_normal((2, 2)).tolist(), tensor.random_uniform((2,)).tolist()]
    tensor.set_seed(3)
    again = [tensor.random_normal((2, 2)).tolist(), tensor.random_uniform((2,)).tolist()]
    assert first == again
    assert tensor.random_bernoulli((4,), p=1.0).tolist() == [True] * 4
    assert sorted(tensor.random_permutation(5).tolist()) == list(range(5))


def test_a_draw_does_not_depend_on_the_size_of_those_before() -> None:
    a, b = Generator(1), Generator(1)
    random.normal((3,), generator=a)
    random.uniform((1000,), generator=b)
    assert random.normal((4,), generator=a).tolist() == random.normal((4,), generator=b).tolist()


def test_use_seed_is_scoped() -> None:
    random.set_seed(1)
    before = random.normal((2,)).tolist()
    with random.use_seed(2):
        inner = random.normal((2,)).tolist()
        with random.use_seed(2):
            assert random.normal((2,)).tolist() == inner
        assert random.normal((2,)).tolist() != inner
    after = random.normal((2,)).tolist()
    random.set_seed(1)
    assert [random.normal((2,)).tolist(), random.normal((2,)).tolist()] == [before, after]

    @random.use_seed(2)
    def decorated() -> Any:
        return random.normal((2,)).tolist()

    assert decorated() == decorated() == inner


def test_state_of_the_scope() -> None:
    state = random.get_state()
    first = random.normal((3,)).tolist()
    random.set_state(json.loads(json.dumps(state)))
    assert random.normal((3,)).tolist() == first


def test_threads_have_numbers_of_their_own() -> None:
    random.set_seed(5)
    ready = threading.Barrier(8)

    def draw() -> list[float]:
        ready.wait()
        return [random.uniform(dtype="float64").item() for _ in range(200)]

    with ThreadPoolExecutor(8) as pool:
        drawn = [f.result() for f in [pool.submit(draw) for _ in range(8)]]
    drawn.append([random.uniform(dtype="float64").item() for _ in range(200)])
    assert len({x for row in drawn for x in row}) == 9 * 200
    random.set_seed(5)
    # Threads did not move this one's counter.
    assert [random.uniform(dtype="float64").item() for _ in range(200)] == drawn[-1]


def test_a_generator_that_threads_share_repeats_nothing() -> None:
    generator = Generator(5)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            futures = [
                pool.submit(lambda: [generator.next_call()[1] for _ in range(2000)])
                for _ in range(8)
            ]
            calls = [n for f in futures for n in f.result()]
    finally:
        sys.setswitchinterval(0.005)
    assert sorted(calls) == list(range(16_000))


def _at_once(backend: str, program: Any) -> list[Any]:
    """What two threads get from a program, whose draws wait for those of the other thread."""
    both = threading.Barrier(2)

    def wait() -> None:
        both.wait(30)

    def run(_: int) -> Any:
        with em.use_backend(backend):
            return program(wait)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2)))


def test_threads_that_share_a_generator_in_batches_repeat_nothing(backend: str) -> None:
    generator = Generator(5)

    def program(wait: Any) -> list[float]:
        def one(x: Any) -> Any:
            first = random.uniform((), dtype="float64", generator=generator)
            wait()
            second = random.uniform((), dtype="float64", generator=generator)
            wait()
            return x + ops.stack([first, second])

        found: list[float] = ops.vmap(one)(ops.zeros((1, 2), dtype="float64")).tolist()[0]
        return found

    drawn = [number for numbers in _at_once(backend, program) for number in numbers]
    assert len(set(drawn)) == 4
    assert generator.counter == 4
    alone = Generator(5)
    assert sorted(drawn) == sorted(
        random.uniform((), dtype="float64", generator=alone).item() for _ in range(4)
    )


def test_examples_draw_the_same_while_other_threads_draw(backend: str) -> None:
    generator = Generator(5)
    other = Generator(7)

    def one(x: Any) -> Any:
        drawn = [random.uniform((), generator=generator)]
        generator.jump(0)
        with ThreadPoolExecutor(1) as pool:  # a thread with no part in the batch
            pool.submit(generator.next_call).result()
        drawn.append(random.uniform((), generator=generator))
        other.split(3)
        return x + ops.stack(drawn)

    rows = ops.vmap(one)(ops.zeros((3, 2))).tolist()
    assert rows[0] == rows[1] == rows[2]
    assert rows[0][0] != rows[0][1]
    assert other.get_state()["children"] == 3


def test_a_loop_whose_condition_draws_shares_its_generator(backend: str) -> None:
    generator = Generator(5)

    def program(wait: Any) -> float:
        drawn: list[float] = []

        def goes_on(carry: Any) -> bool:
            drawn.append(random.uniform((), generator=generator).item())
            wait()
            return len(drawn) < 2

        ops.while_loop(goes_on, lambda carry: carry + 1.0, ops.zeros(()))
        return tuple(drawn)

    first, second = _at_once(backend, program)
    assert len({*first, *second}) == 4
    assert generator.counter == 4


def test_a_checkpoint_draws_again_what_it_drew_beside_other_threads(backend: str) -> None:
    generator = Generator(5)
    drawn: list[float] = []

    def noisy(x: Any) -> Any:
        first = random.uniform((), generator=generator)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(generator.next_call).result()
        second = random.uniform((), generator=generator)
        drawn.append(second.item())
        return x * first * second

    x = ops.asarray(1.0).requires_grad_()
    y = em.checkpoint(noisy)(x)
    y.backward()
    assert len(drawn) == 2
    assert drawn[0] == drawn[1]
    assert x.grad.item() == pytest.approx(y.item())


def test_tasks_have_numbers_of_their_own() -> None:
    async def draw() -> list[float]:
        out = []
        for _ in range(20):
            out.append(random.uniform(dtype="float64").item())
            await asyncio.sleep(0)
        return out

    async def seeded() -> float:
        random.set_seed(77)
        await asyncio.sleep(0)
        return random.normal().item()

    async def main() -> Any:
        own = random.get_seed()
        several = await asyncio.gather(*(draw() for _ in range(5)))
        inner = await asyncio.gather(seeded(), seeded(), asyncio.to_thread(random.get_seed))
        assert random.get_seed() == own
        return several, inner

    def run() -> Any:
        with random.use_seed(4):
            return asyncio.run(main())

    several, inner = run()
    assert len({x for row in several for x in row}) == 100
    assert inner[0] == inner[1]
    # Tasks split off in the order of their first draws, which the loop keeps.
    assert run()[0] == several


def test_seeds_of_the_system_differ() -> None:
    program = (
        "import os, ember_ml as em; from ember_ml.ops import random\n"
        "em.set_backend('numpy'); own = random.get_seed(); assert own == random.get_seed()\n"
        "again = random.Generator(own)\n"
        "first = random.normal((2,)).tolist()\n"
        "assert first == random.normal((2,), generator=again).tolist()\n"
        "read, write = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.write(write, str(random.get_seed()).encode()); os._exit(0)\n"
        "print(own, os.read(read, 100).decode())\n"
    )
    seeds = []
    for _ in range(2):
        out = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        seeds += out.stdout.split()
    assert len(set(seeds)) == 4


# --- Generators ----------------------------------------------------------------------------------


def test_split_gives_independent_generators() -> None:
    parent = Generator(1)
    children = parent.split(3)
    assert parent.counter == 0
    rows = [random.normal((N,), generator=g).numpy() for g in (parent, *children)]
    correlation = np.corrcoef(rows) - np.eye(4)
    assert np.abs(correlation).max() < 5 / np.sqrt(N)
    more = parent.split(2)
    assert len({g.seed for g in (parent, *children, *more)}) == 6
    again = Generator(1).split(5)
    assert [g.seed for g in again] == [g.seed for g in (*children, *more)]
    assert all(2**127 <= g.seed < 2**128 for g in again)


def test_generators_save_and_restore(backend: str) -> None:
    generator = Generator(2)
    random.normal((3,), generator=generator)
    generator.split(1)
    state = json.loads(json.dumps(generator.get_state()))
    assert state == {"seed": 2, "counter": 1, "children": 1}
    copies = [pickle.loads(pickle.dumps(generator)), Generator(0)]
    copies[1].state = state
    expected = random.normal((3,), generator=generator).tolist()
    child = generator.split(1)[0].seed
    for copy in copies:
        assert random.normal((3,), generator=copy).tolist() == expected
        assert copy.split(1)[0].seed == child
        assert copy.state == generator.state
    with pytest.raises(em.DomainError, match="counter"):
        generator.set_state({"seed": 1})
    assert repr(Generator(7).jump(2)) == "Generator(seed=7, counter=2)"


def test_jump_passes_over_draws() -> None:
    a, b = Generator(3), Generator(3)
    for _ in range(4):
        random.normal((2,), generator=a)
    assert b.jump(4) is b
    assert random.normal((2,), generator=a).tolist() == random.normal((2,), generator=b).tolist()


def test_generators_know_no_backend() -> None:
    generator = Generator(3)
    drawn = []
    for name in ("numpy", "torch", "jax", "mlx"):
        with em.use_backend(name):
            drawn.append(random.normal((2,), generator=generator).tolist())
    assert generator.counter == 4
    again = Generator(3)
    assert drawn == [random.normal((2,), generator=again).tolist() for _ in range(4)]


# --- Keys and tracing ----------------------------------------------------------------------------


def test_keys_split_and_fold() -> None:
    key = random.key(2**40 + 3)
    assert key.tolist() == [256, 3]
    keys = random.split(key, 4)
    assert keys.shape == (4, 2)
    assert random.split(key, 2).tolist() == keys[:2].tolist()
    folded = [random.fold_in(key, i).tolist() for i in range(4)]
    traced = [random.fold_in(key, ops.asarray(i)).tolist() for i in range(4)]
    assert folded == traced
    assert len({tuple(k) for k in [*keys.tolist(), *folded, key.tolist()]}) == 9
    a, b = (random.normal((N,), generator=k).numpy() for k in keys[:2])
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(N)


def several(key: Any) -> list[Any]:
    """Draws from a native key: one by one, and by call number in a scope."""
    first, second = random.split(key)
    out = [random.normal((3,), generator=first)]
    with random.traced(second):
        out += [
            random.uniform((2,), -1.0, 1.0),
            random.randint(0, 10, (4,)),
            random.permutation(5),
        ]
    return [x.native for x in out]


def everything(key: Any) -> list[Any]:
    with random.traced(key):
        out = [
            random.uniform((2,), dtype="float16"),
            random.normal(mean=ops.asarray([1.0, 2.0]), std=0.1),
            random.truncated_normal((3,)),
            random.exponential((2,)),
            random.gumbel((2,)),
            random.laplace((2,)),
            random.bernoulli((4,), 0.4),
            random.randint(0, 2**40, (2,)),
            random.shuffle(ops.asarray([1.0, 2.0, 3.0])),
            random.categorical([0.0, 1.0, 2.0], (3,)),
            random.multinomial([0.2, 0.3, 0.5], 2),
            random.choice(5, (2,), False),
        ]
    return several(key) + [x.native for x in out]


@pytest.mark.parametrize("engine", ["torch", "jax", "mlx"])
def test_compiled_functions_draw_what_eager_ones_do(engine: str) -> None:
    import jax
    import mlx.core as mx
    from torch.fx.experimental.proxy_tensor import make_fx

    compilers: dict[str, Any] = {
        "jax": lambda f, key: jax.jit(f),
        "mlx": lambda f, key: mx.compile(f),
        "torch": lambda f, key: make_fx(f)(key),
    }
    # Others take long: MLX runs a C++ compiler, make_fx records each of some thousand steps.
    function = everything if engine == "jax" else several
    with em.use_backend("numpy"):
        wanted = {seed: function(random.key(seed).native) for seed in (5, 6)}
    with em.use_backend(engine):
        compiled = compilers[engine](function, random.key(5).native)
        for seed, expected in wanted.items():
            got = compiled(random.key(seed).native)
            for x, y in zip(got, expected, strict=True):
                values = ops.asarray(x).numpy()
                assert values.dtype == y.dtype
                if y.dtype.kind == "f":
                    np.testing.assert_allclose(values, y, rtol=1e-6, atol=1e-6)
                else:
                    np.testing.assert_array_equal(values, y)


def test_a_scope_of_a_key_gives_each_draw_its_own(backend: str) -> None:
    with random.traced(random.key(1)):
        a, b = random.normal((4,)), random.normal((4,))
        with random.use_seed(3):
            inner = random.normal((4,)).tolist()
        with pytest.raises(em.UnsupportedOpError):
            random.get_seed()
    assert a.tolist() != b.tolist()
    assert inner == random.normal((4,), generator=Generator(3)).tolist()
    assert a.tolist() == random.normal((4,), generator=random.fold_in(random.key(1), 0)).tolist()


def test_values_that_are_traced_are_asked_for_by_name() -> None:
    import jax

    def draw(rate: Any) -> Any:
        return random.poisson(rate=ops.asarray(rate), generator=Generator(0)).native

    with em.use_backend("jax"), pytest.raises(em.UnsupportedOpError, match=r"random\.poisson"):
        jax.jit(draw)(ops.asarray([1.0]).native)


def test_gradients_pass_through_locations_and_scales() -> None:
    import jax
    import torch

    with em.use_backend("torch"):
        mean, std = (em.Tensor(v, requires_grad=True) for v in ([1.0, 2.0], [0.5, 0.25]))
        x = random.normal(None, mean, std, generator=Generator(0))
        noise = random.normal((2,), generator=Generator(0)).numpy()
        by_mean, by_std = torch.autograd.grad(x.native.sum(), [mean.native, std.native])
        np.testing.assert_allclose(by_mean.numpy(), [1, 1])
        np.testing.assert_allclose(by_std.numpy(), noise)

    def total(mean: Any, std: Any) -> Any:
        x = random.normal(None, ops.asarray(mean), ops.asarray(std), generator=Generator(0))
        return x.native.sum()

    with em.use_backend("jax"):
        values = (ops.asarray([1.0, 2.0]).native, ops.asarray([0.5, 0.25]).native)
        by_mean, by_std = jax.grad(total, (0, 1))(*values)
        np.testing.assert_allclose(by_mean, [1, 1])
        np.testing.assert_allclose(by_std, noise)


def test_import_leaves_numpy_random_alone() -> None:
    """It takes longer to import than all of ember_ml, and few programs need it."""
    program = "import sys, ember_ml; print('numpy.random' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert out.stdout.split() == ["False"]
