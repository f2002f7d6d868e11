"""A scan whose gradients our tape records, within em.jit: one step for JAX, as many as ever else.

What is compiled is compared with the same function as it is, whose steps are recorded one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ember_ml as em
from ember_ml import Tensor, nn, ops
from ember_ml.autodiff import engine_calls, tape
from ember_ml.errors import GradientError
from ember_ml.nn.modules.batch_normalization import BatchNorm1d
from tests.autodiff.scan_cases import (
    ONE_STEP,
    STEP_BY_STEP,
    STEPS,
    Calls,
    Case,
    Net,
    Scan,
    captured_leaves,
    gradients_of,
    near,
    rows_of,
    tanh_with,
    zeros,
)

# How often a body is looked at in one trace, at most, where its steps are not run one by one.
LOOKS = 4


@pytest.mark.parametrize("case", ONE_STEP, ids=lambda case: case.__name__)
@pytest.mark.parametrize("backend", ["jax"])
def test_gradients_are_those_of_single_steps(backend: str, case: Case) -> None:
    with em.use_backend(backend):
        net, bodies = Net(), list[Calls]()
        rows = rows_of()
        expected = gradients_of(case, net, bodies)(rows)
        assert all(body.count >= STEPS for body in bodies)
        bodies.clear()
        compiled = em.jit(gradients_of(case, net, bodies), state=[net])
        for _ in range(2):
            near(compiled(rows), expected)
        assert bodies, "it was traced"
        assert max(body.count for body in bodies) <= LOOKS


@pytest.mark.parametrize("backend", ["numpy", "torch", "mlx"])
def test_other_engines_do_as_ever(backend: str) -> None:
    with em.use_backend(backend):
        net = Net()
        expected = gradients_of(captured_leaves, net, [])(rows_of(3))
        near(em.jit(gradients_of(captured_leaves, net, []), state=[net])(rows_of(3)), expected)


@pytest.mark.parametrize("case", STEP_BY_STEP, ids=lambda case: case.__name__)
def test_bodies_that_are_run_for_each_step(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were no other way."""
    with em.use_backend("jax"):
        results = []
        for stages in (False, True):
            monkeypatch.setattr(type(rows_of()._spec.backend.gradients), "stages", stages)
            ops.random.set_seed(3)
            net, bodies = Net(), list[Calls]()
            compiled = em.jit(gradients_of(case, net, bodies), state=[net])
            results.append((compiled(rows_of()), compiled(rows_of()), net.seen))
            assert max(body.count for body in bodies) >= STEPS
        near(results[1], results[0])


# --- Derivatives of derivatives -----------------------------------------------------------------


def _curve(w: Tensor, rows: Tensor) -> Tensor:
    last, ys = ops.scan(lambda c, x: (ops.tanh(c * w) + x * w, c * w), w * 2, rows)
    return ops.sum(last * last) + ops.sum(ops.sin(ys))


def _of_second_order(w: Tensor, rows: Tensor) -> dict[str, Any]:
    direction = ops.asarray([1.0, -2.0], dtype="float64")

    def slope(w: Tensor) -> Tensor:
        return em.grad(_curve)(w, rows)

    def curvature(w: Tensor) -> Tensor:
        return em.grad(lambda w: ops.sum(slope(w) * direction))(w)

    return {
        "grad of grad": curvature(w),
        "third": em.grad(lambda w: ops.sum(curvature(w) * direction))(w),
        "hvp": em.hvp(lambda w: _curve(w, rows), (w,), (direction,)),
        "by the rows": em.grad(lambda rows: ops.sum(em.grad(_curve)(w, rows) * direction))(rows),
    }


def test_derivatives_of_all_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    pulled: list[int] = []
    pullback = engine_calls._Stage.pullback

    def noted(stage: Any, wanted: Any, given: Any) -> Any:
        pulled.append(len(given))
        return pullback(stage, wanted, given)

    monkeypatch.setattr(engine_calls._Stage, "pullback", noted)
    with em.use_backend("jax"):
        w = Tensor(ops.asarray([0.5, -0.3], dtype="float64"), requires_grad=True)
        rows = rows_of(3)
        expected = em.tree.map(lambda x: x.detach(), _of_second_order(w, rows))
        compiled = em.jit(
            lambda w, rows: em.tree.map(lambda x: x.detach(), _of_second_order(w, rows))
        )
        assert not pulled
        near(compiled(w, rows), expected)
        assert pulled, "the pull is a call of its own where it is differentiated"


def test_backward_that_can_be_differentiated() -> None:
    with em.use_backend("jax"):
        net = Net()

        def penalty(rows: Tensor) -> list[Tensor | None]:
            net.zero_grad()
            captured_leaves(net, rows, Scan([])).backward(create_graph=True)
            w, v = net.w.grad, net.v.grad
            net.zero_grad()
            (ops.sum(w * w) + ops.sum(v * v)).backward()
            found = [x.grad.copy() for x in (net.w, net.v)]
            net.zero_grad()
            return found

        expected = penalty(rows_of(3))
        near(em.jit(penalty, state=[net])(rows_of(3)), expected)


# --- As a part of compiled training -------------------------------------------------------------


def test_a_record_that_is_kept() -> None:
    with em.use_backend("jax"):
        net = Net()

        def twice(rows: Tensor) -> Tensor:
            net.zero_grad()
            loss = captured_leaves(net, rows, Scan([]))
            loss.backward(retain_graph=True)
            once = net.w.grad.copy()
            loss.backward()
            return net.w.grad - 2 * once

        assert ops.max(ops.abs(em.jit(twice, state=[net])(rows_of(3)))).item() < 1e-12


def test_backward_within_a_compiled_function() -> None:
    with em.use_backend("jax"):
        eager, net = Net(), Net()
        bodies: list[Calls] = []

        def step(net: Any, rows: Tensor, scan: Scan) -> Tensor:
            loss = captured_leaves(net, rows, scan)
            loss.backward()
            return loss.detach()

        compiled = em.jit(lambda rows: step(net, rows, Scan(bodies)), state=[net])
        for _ in range(2):  # gradients add up
            near(compiled(rows_of()), step(eager, rows_of(), Scan([])))
            near([net.w.grad, net.v.grad], [eager.w.grad, eager.v.grad])
        assert max(body.count for body in bodies) <= LOOKS


class Normed(nn.Module):
    """A scan after a batch normalization, which writes to its buffers."""

    def __init__(self) -> None:
        self.norm = BatchNorm1d(2).to(dtype="float64")
        self.net = Net()

    def forward(self, rows: Tensor) -> Tensor:
        last, ys = ops.scan(tanh_with(self.net), zeros(), self.norm(rows))
        return ops.sum(last) + ops.sum(ys)


def test_buffers_that_are_written_outside() -> None:
    with em.use_backend("jax"):
        ops.random.set_seed(0)
        eager, net = Normed(), Normed()

        def step(net: Any, rows: Tensor) -> Any:
            loss, grads = em.value_and_grad(lambda net: net(rows))(net)
            for p, g in zip(net.parameters(), grads.parameters(), strict=True):
                with em.no_grad():
                    p -= 0.1 * g
            return loss

        compiled = em.jit(lambda rows: step(net, rows), state=[net])
        for _ in range(3):
            near(compiled(rows_of()), step(eager, rows_of()))
            near(list(net.state_dict().values()), list(eager.state_dict().values()))
        assert compiled.traces == 1


def test_what_a_result_does_not_depend_on() -> None:
    """The one step knows it of each result, as single steps do."""
    with em.use_backend("jax"):
        net = Net()

        def through(which: int) -> Callable[[Tensor], Any]:
            def loss(net: Any, rows: Tensor) -> Tensor:
                # `v` reaches the second carry alone, and the first step is too late for `w`.
                def step(c: Any, x: Tensor) -> Any:
                    return (x * 1.0, c[1] + ops.sum(net.v)), (c[0], c[1])

                last, ys = ops.scan(step, (net.w, ops.asarray(0.0, dtype="float64")), rows)
                results = [last[0], last[1], ys[0], ys[1]]
                assert [x.requires_grad for x in results] == [False, True, True, True]
                return ops.sum(results[which] * 1.0) + 0.0 * ops.sum(net.w if which == 1 else net.v)

            return lambda rows: em.value_and_grad(loss)(net, rows)[0]

        for run in (em.jit(through(2), state=[net]), through(2)):
            run(rows_of(3))
        for which in (0, 3):
            for run in (em.jit(through(which), state=[net]), through(which)):
                with pytest.raises(GradientError, match="does not depend on"):
                    run(rows_of(3))


# --- The program --------------------------------------------------------------------------------


def _length_of_program(steps: int, monkeypatch: pytest.MonkeyPatch) -> int:
    import jax

    lengths: list[int] = []
    make = jax.make_jaxpr

    def made(function: Any, **options: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            program = make(function, **options)(*args)
            lengths.append(len(str(program).splitlines()))
            return program

        return run

    with monkeypatch.context() as patch:
        patch.setattr(jax, "make_jaxpr", made)
        net = Net()
        em.jit(gradients_of(captured_leaves, net, []), state=[net])(rows_of(steps))
    return lengths[-1]  # the last is of the whole


def test_the_program_does_not_grow_with_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    with em.use_backend("jax"):
        assert _length_of_program(4, monkeypatch) == _length_of_program(40, monkeypatch)


def test_nothing_is_kept_of_a_trace() -> None:
    import jax

    with em.use_backend("jax"):
        net = Net()
        compiled = em.jit(gradients_of(captured_leaves, net, []), state=[net])
        with jax.checking_leaks():
            compiled(rows_of())
        assert all(isinstance(x.native, jax.Array) and x.numpy().size for x in net.parameters())
        assert tape.CAPTURED.get() is None


def test_an_error_in_the_body_leaves_all_as_it_was() -> None:
    with em.use_backend("jax"):
        net = Net()
        natives = [x.native for x in net.parameters()]
        fail_at = 0

        def run(rows: Tensor) -> Any:
            made = net.w * 2.0
            calls = Calls()

            def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
                c = c * made * net.w + x
                if calls.count > fail_at:
                    raise RuntimeError(f"after {fail_at} calls")
                return c, c

            def loss(net: Any) -> Tensor:
                return ops.sum(ops.scan(calls.of(step), net.v[0], rows)[0])

            return em.value_and_grad(loss)(net)[0]

        # In the first look, and in the staging; then in the steps one by one.
        for fail_at in (0, 1):  # noqa: B007 - the function reads it
            compiled = em.jit(run, state=[net])
            with pytest.raises(RuntimeError):
                compiled(rows_of())
            for x, native in zip(net.parameters(), natives, strict=True):
                assert x.native is native
                assert x.requires_grad
                assert isinstance(x, nn.Parameter)


def test_it_is_for_compiled_functions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that have values are recorded one by one."""

    def refuse(*args: Any) -> Any:
        raise AssertionError("staged")

    with em.use_backend("jax"):
        monkeypatch.setattr(engine_calls, "_staged", refuse)
        loss, _ = gradients_of(captured_leaves, Net(), [])(rows_of())
        assert loss.shape == ()
