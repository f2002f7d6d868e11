"""Random numbers in loops, branches and batches: a new one for each draw, the same everywhere."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.errors import TraceError
from ember_ml.ops import random


def draw() -> Tensor:
    return random.uniform(())


def rows(x: Tensor) -> Tensor:
    return ops.stack([x, x + 1, x + 2])


LOOPS: dict[str, Callable[[Tensor], Any]] = {
    "scan": lambda x: ops.scan(lambda c, _: (c + draw(), draw()), x, None, length=3),
    "scan, reverse": lambda x: ops.scan(lambda c, r: (c, draw() * r), x, rows(x), reverse=True),
    "scan, no steps": lambda x: ops.scan(lambda c, _: (c, draw()), x, None, length=0),
    "scan in scan": lambda x: ops.scan(
        lambda c, _: (c, ops.scan(lambda d, _: (d, draw()), c, None, length=2)[1] + draw()),
        x,
        None,
        length=2,
    ),
    "fori_loop": lambda x: ops.fori_loop(0, 3, lambda i, c: c * 10 + draw(), x),
    "map_fn": lambda x: ops.map_fn(lambda r: r + draw(), rows(x)),
    "dropout": lambda x: ops.scan(
        lambda c, _: (c, ops.dropout(ops.ones((8,)), 0.5, training=True)), x, None, length=3
    ),
    "vmap": lambda x: ops.vmap(lambda r: r + draw())(rows(x)),
    "vmap of scan": lambda x: ops.vmap(
        lambda r: ops.scan(lambda c, _: (c, draw()), r, None, length=2)[1]
    )(rows(x)),
    "scan of vmap": lambda x: ops.scan(
        lambda c, _: (c, ops.vmap(lambda r: r + draw())(rows(c))), x, None, length=2
    ),
    "own scope": lambda x: ops.scan(lambda c, _: (c, _scoped()), x, None, length=2),
    "jit": lambda x: ops.scan(lambda c, _: (c, em.jit(draw)()), x, None, length=2),
}
BRANCHES: dict[str, Callable[[Tensor], Any]] = {
    "cond": lambda x: ops.cond(x > 0, draw, lambda: draw() + 5),
    "cond, uneven": lambda x: ops.cond(x > 2, draw, lambda: draw() + draw() * 10),
    "switch": lambda x: ops.switch(
        ops.astype(x, "int64"), [draw, lambda: draw() + draw() * 10, draw]
    ),
    "cond in scan": lambda x: ops.scan(
        lambda c, _: (c + 1, ops.cond(c > 1.5, draw, lambda: draw() + draw() * 10)),
        x,
        None,
        length=3,
    ),
    "cond in cond": lambda x: ops.cond(
        x > 0, lambda: draw() + ops.cond(x > 2, draw, lambda: draw() + draw() * 10), draw
    ),
    "vmap of cond": lambda x: ops.vmap(
        lambda r: ops.cond(r > 1.5, draw, lambda: draw() + draw() * 10)
    )(rows(x)),
    "vmap of checkpoint": lambda x: ops.vmap(em.checkpoint(_uneven))(rows(x)),
    "gradient of checkpoint": lambda x: em.value_and_grad(
        lambda w: em.checkpoint(_uneven)(w) * draw()
    )(x),
}
WHILES: dict[str, Callable[[Tensor], Any]] = {
    "while_loop": lambda x: ops.while_loop(lambda c: c < 5, lambda c: c + draw() + 0.5, x),
    "drawn condition": lambda x: ops.while_loop(
        lambda c: c < 5 + draw(), lambda c: c + draw() + 0.5, x
    ),
    "fori_loop": lambda x: ops.fori_loop(
        0, ops.astype(x * 3, "int64"), lambda i, c: c * 10 + draw(), x
    ),
    "no steps": lambda x: ops.while_loop(lambda c: c < 0, lambda c: c + draw(), x),
    "cond within": lambda x: ops.while_loop(
        lambda c: c < 5,
        lambda c: c + 0.5 + ops.cond(c > 2, draw, lambda: draw() + draw()),
        x,
    ),
    "while in scan": lambda x: ops.scan(
        lambda c, _: (c, ops.while_loop(lambda c: c < 3, lambda c: c + draw(), c)),
        x,
        None,
        length=3,
    ),
}


def _uneven(x: Tensor) -> Tensor:
    return ops.cond(x > 0.5, lambda: x * draw(), lambda: x + draw() * draw())


def _scoped() -> Tensor:
    with random.traced(random.key(4)):
        return draw() + draw()


def values(function: Callable[[Tensor], Any], compiled: bool) -> list[Any]:
    """The results of two calls, each with draws before and after."""

    def around(x: Tensor) -> Any:
        return draw(), function(x), draw()

    called = em.jit(around) if compiled else around
    with random.use_seed(1):
        found = [em.tree.leaves(called(ops.asarray(1.0))) for _ in range(2)]
    return [leaf.numpy() for one in found for leaf in one]


def assert_as_on_numpy(function: Callable[[Tensor], Any], compiled: bool) -> None:
    with em.use_backend("numpy"):
        wanted = values(function, compiled)
    for got, expected in zip(values(function, compiled), wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_draw_as_if_they_ran_step_by_step(backend: str, name: str, compiled: bool) -> None:
    assert_as_on_numpy(LOOPS[name], compiled)


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
@pytest.mark.parametrize("name", BRANCHES)
def test_branches_count_the_draws_of_the_one_that_is_taken(
    backend: str, name: str, compiled: bool
) -> None:
    assert_as_on_numpy(BRANCHES[name], compiled)


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
@pytest.mark.parametrize("name", WHILES)
def test_loops_of_unknown_length_draw_as_well(backend: str, name: str, compiled: bool) -> None:
    if backend == "mlx" and compiled:
        with pytest.raises(em.UnsupportedOpError, match="cannot read its condition"):
            values(WHILES[name], compiled)
        return
    assert_as_on_numpy(WHILES[name], compiled)


def test_a_body_that_catches_every_error_draws_all_the_same(backend: str) -> None:
    def caught() -> Tensor:
        try:
            return draw()
        except Exception:
            return ops.asarray(-1.0)

    def steps(x: Tensor) -> Tensor:
        drawn: Tensor = ops.scan(lambda c, _: (c, caught() * x), x, None, length=3)[1]
        return drawn

    w = ops.asarray(1.0).requires_grad_()

    @em.jit(state=w)
    def slope(x: Tensor) -> Tensor:
        total = ops.sum(steps(w * x))
        total.backward()
        return total

    with random.use_seed(1):
        drawn, total = em.jit(steps)(ops.asarray(1.0)).numpy(), slope(ops.asarray(1.0)).item()
    assert min(drawn) > 0
    assert len(set(drawn)) == 3
    assert total > 0
    assert w.grad.item() == pytest.approx(total)


def test_a_scope_of_a_key_goes_on_after_branches_in_batches_and_checkpoints(backend: str) -> None:
    def numbers() -> list[Any]:
        with random.traced(random.key(2)):
            batch = ops.vmap(_uneven)(ops.asarray([0.0, 1.0, 2.0]))
            found = [batch, draw(), em.grad(em.checkpoint(_uneven))(ops.asarray(2.0)), draw()]
        return [x.numpy() for x in found]

    with em.use_backend("numpy"):
        wanted = numbers()
    for got, expected in zip(numbers(), wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_each_step_has_a_number_of_its_own(backend: str) -> None:
    def steps(x: Tensor) -> Tensor:
        drawn: Tensor = ops.scan(lambda c, _: (c, draw()), x, None, length=50)[1]
        return drawn

    key = random.key(3)
    with random.traced(key):
        drawn = em.jit(steps)(ops.asarray(0.0)).tolist()
    assert len(set(drawn)) == 50
    # The k-th draw of a stream is that of its key and the number k.
    with random.traced(key):
        one_by_one = em.jit(lambda: [draw() for _ in range(50)])()
    assert drawn == [x.item() for x in one_by_one]


def test_generators_that_are_state_go_on_through_loops(backend: str) -> None:
    def both() -> list[Any]:
        a, b = random.Generator(5), random.Generator(6)

        def body(c: Tensor, _: Any) -> Any:
            return c, [random.uniform((), generator=g) for g in (a, None, b, a)]

        jitted = em.jit(lambda x: ops.scan(body, x, None, length=3)[1], state=[a, b])
        with random.use_seed(2):
            calls = [[t.tolist() for t in jitted(ops.asarray(0.0))] for _ in range(2)]
        return [calls, a.counter, b.counter]

    with em.use_backend("numpy"):
        wanted = both()
    got = both()
    assert got == wanted
    assert len({x for call in got[0] for column in call for x in column}) == 24


def dropped(w: Tensor) -> tuple[Tensor, Tensor]:
    def body(total: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = ops.dropout(w * x, 0.5, training=True)
        return total + ops.sum(kept), kept

    total, kept = ops.scan(body, ops.asarray(0.0), ops.ones((4, 6)))
    return total, kept


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpoint"])
def test_gradients_go_through_the_masks_of_the_steps(backend: str, checkpointed: bool) -> None:
    function = em.checkpoint(dropped) if checkpointed else dropped
    step = em.jit(em.value_and_grad(function, has_aux=True))
    with random.use_seed(3):
        (total, kept), slope = step(ops.ones((6,)))
        (_, others), _ = step(ops.ones((6,)))
    assert slope.tolist() == kept.numpy().sum(0).tolist()
    assert total.item() == kept.numpy().sum()
    assert len({str(row) for row in kept.tolist() + others.tolist()}) > 6
    with em.use_backend("numpy"), random.use_seed(3):
        (_, expected), _ = step(ops.ones((6,)))
    assert kept.tolist() == expected.tolist()


@pytest.mark.parametrize("nested", [False, True], ids=["one", "nested"])
def test_branches_on_the_tape_count_the_one_that_is_taken(backend: str, nested: bool) -> None:
    def inner(w: Tensor) -> Tensor:
        return ops.cond(w > 1, lambda: w * draw(), lambda: w + draw() + draw()) if nested else w

    def function(w: Tensor) -> tuple[Tensor, Tensor]:
        got = ops.cond(w > 2, lambda: w * draw(), lambda: inner(w) * (draw() + draw()))
        return got, draw()

    step = em.jit(em.value_and_grad(function, has_aux=True))
    found = []
    for name in ("numpy", backend):
        with em.use_backend(name), random.use_seed(3):
            found.append(em.tree.leaves(step(ops.asarray(1.5))))
    for got, expected in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6)


def test_long_loops_that_an_engine_runs_draw_anew(backend: str) -> None:
    def steps() -> list[float]:
        found: list[float] = ops.scan(lambda c, _: (c, draw()), 0.0, None, length=1100)[1].tolist()
        return found

    with random.use_seed(1):
        drawn = steps()
        assert random.get_state()["counter"] == 1100
    assert len(set(drawn)) == 1100
    generator = random.Generator(1)
    assert drawn[-1] == random.uniform((), generator=generator.jump(1099)).item()


def test_examples_of_a_batch_draw_the_same_numbers(backend: str) -> None:
    with random.use_seed(1):
        first, second = draw().item(), draw().item()
    with random.use_seed(1):
        batched = ops.vmap(lambda x: x * 0 + draw())(ops.ones((3,)))
        after = draw().item()
    assert batched.tolist() == [first] * 3
    assert after == second
    # Also where the function reads a value, so that the examples are run one by one.
    with random.use_seed(1):
        batched = ops.vmap(lambda x: draw() if x.item() > 0 else x)(ops.ones((3,)))
        after = draw().item()
    assert batched.tolist() == [first] * 3
    assert after == second
    with random.use_seed(1):
        keys = random.split(random.key(0), 3)
        apart = ops.vmap(lambda key: random.uniform((), generator=key))(keys)
    assert len(set(apart.tolist())) == 3


def test_a_generator_in_a_loop_of_unknown_length_is_refused() -> None:
    import jax

    def function(x: Any) -> Any:
        return ops.while_loop(lambda c: c < 5, lambda c: c + draw(), ops.asarray(x)).native

    with em.use_backend("jax"), pytest.raises(TraceError, match=r"while_loop.*em\.jit.*key"):
        jax.jit(function)(ops.asarray(1.0).native)
    # Of a key they are tensors.
    with em.use_backend("jax"), random.traced(random.key(1)):
        assert float(jax.jit(function)(ops.asarray(1.0).native)) > 5
