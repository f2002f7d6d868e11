"""A scan whose gradients our tape records, within em.jit: one step for JAX, as many as ever else.

What is compiled is compared with the same function as it is, whose steps are recorded one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import Tensor, nn, ops
from ember_ml.autodiff import engine_calls, tape
from ember_ml.errors import GradientError
from ember_ml.nn.modules.batch_normalization import BatchNorm1d

STEPS = 7
# How often a body is looked at in one trace, at most, where its steps are not run one by one.
LOOKS = 4


class Net(nn.Module):
    """Two parameters, and a buffer."""

    def __init__(self) -> None:
        self.w = nn.Parameter(ops.asarray([0.5, -0.3], dtype="float64"))
        self.v = nn.Parameter(ops.asarray([[0.4, 0.1], [-0.2, 0.7]], dtype="float64"))
        self.seen = nn.Buffer(ops.zeros((2,), dtype="float64"))


def _rows(steps: int = STEPS) -> Tensor:
    return ops.asarray(np.linspace(-1.0, 1.0, 2 * steps).reshape(steps, 2))


class Calls:
    """How often the body of a scan was called; it holds no body, whose tensors would stay."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def body(carry: Any, x: Any) -> Any:
            self.count += 1
            return function(carry, x)

        return body


class Scan:
    """ops.scan, which counts the calls of bodies."""

    def __init__(self, bodies: list[Calls]) -> None:
        self.bodies = bodies

    def __call__(self, fn: Any, *args: Any, **options: Any) -> Any:
        calls = self.counted()
        return ops.scan(calls.of(fn), *args, **options)

    def counted(self) -> Calls:
        self.bodies.append(Calls())
        return self.bodies[-1]


def _near(found: Any, expected: Any) -> None:
    first, one = em.tree.flatten(found)
    second, other = em.tree.flatten(expected)
    assert one == other
    for a, b in zip(first, second, strict=True):
        assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)


# --- Values and gradients -----------------------------------------------------------------------

# Each takes the net, rows, and a scan to use, and gives a loss.
Case = Callable[[Any, Tensor, Scan], Tensor]


def _tanh(net: Any) -> Callable[[Any, Any], Any]:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        c = ops.tanh(c @ net.v + x * net.w)
        return c, c * net.w

    return step


def _zeros() -> Tensor:
    return ops.zeros((2,), dtype="float64")


def captured_leaves(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    last, ys = scan(_tanh(net), _zeros(), rows)
    return ops.sum(last) + ops.sum(ys * ys)


def carry_and_rows(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    last, ys = scan(lambda c, x: (ops.sin(c) * x, c * x), net.w, rows @ net.v)
    return ops.sum(last) + ops.sum(ys)


def results_of_ops(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    w, v = ops.exp(net.w), net.v.T
    last, _ = scan(lambda c, x: (ops.tanh(c @ v) + w * x, c), net.w * 2, rows)
    return ops.sum(last)


def containers(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    init = {"h": (_zeros(), [net.w]), "none": None}
    xs = {"a": rows, "b": (rows @ net.v,)}

    def step(c: Any, x: Any) -> tuple[Any, Any]:
        h, (w,) = c["h"]
        h = ops.tanh(h + x["a"] * w + x["b"][0])
        return {"h": (h, [w * 0.9]), "none": None}, (h, {"sum": ops.sum(h)})

    last, (hs, more) = scan(step, init, xs)
    return ops.sum(last["h"][1][0]) + ops.sum(hs[2]) + ops.sum(more["sum"] ** 2)


def whole_numbers(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    def step(c: Any, x: Any) -> tuple[Any, Any]:
        i, h, flag = c
        h = ops.where(flag, h * net.w + x["row"], h - x["row"] * x["n"])
        return (i + 1, h, ops.logical_not(flag)), (i, ops.argmax(h), h)

    xs = {"row": rows, "n": ops.arange(STEPS)}
    (i, h, _), (counts, places, hs) = scan(step, (0, net.v[0], True), xs)
    return ops.sum(h) * i + ops.sum(hs[:, 0] * counts) + ops.sum(places)


def unused_results(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    _, ys = scan(lambda c, x: (c * net.w, (ops.sum(x * net.v), c * c)), net.w, rows)
    return ops.sum(ys[0]) + ops.sum(net.w)


def no_result_with_a_gradient(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    count, places = scan(lambda c, x: (c + 1, ops.argmax(x * net.w)), 0, rows @ net.v)
    return ops.sum(net.w * count) + ops.sum(places)


def two_in_a_row(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    last, ys = scan(_tanh(net), _zeros(), rows)
    _, zs = scan(_tanh(net), last, ys)
    return ops.sum(zs * zs)


def within_another(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        last, ys = ops.scan(lambda d, y: (ops.sin(d * net.w + y), d), c, ops.stack([x, c, x]))
        return last, ops.sum(ys * net.v[0])

    last, ys = scan(step, _zeros(), rows)
    return ops.sum(last) + ops.sum(ys)


def returned_as_they_are(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    last, ys = scan(lambda c, x: (net.w, (c, net.v, x)), _zeros(), rows)
    return ops.sum(last * last) + sum(ops.sum(y * y) for y in ys)


def cut_off(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    """Constants within the body, and the same tensor as a constant from outside."""
    outside = net.w.detach()

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        fixed = em.stop_gradient(c) + net.w.detach()
        return c * net.w + x * outside + fixed, c.detach() * net.v[0]

    last, ys = scan(step, _zeros(), rows)
    return ops.sum(last) + ops.sum(ys)


def with_its_own_gradient(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    @em.custom_gradient
    def clipped(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        return x * 1.0, lambda g: ops.clip(g, -0.1, 0.1)

    last, _ = scan(lambda c, x: (clipped(ops.tanh(c @ net.v)) + x * net.w, None), _zeros(), rows)
    return ops.sum(last)


def a_gradient_in_the_body(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    """Steps along a gradient, whose length is learned."""

    def slope(c: Tensor, x: Tensor) -> Tensor:
        return em.grad(lambda c: ops.sum((c @ net.v - x) ** 2))(c)

    last, _ = scan(lambda c, x: (c - 0.1 * net.w * slope(c, x), None), net.w, rows)
    return ops.sum(last * last)


def of_the_net_in_the_body(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, None]:
        loss, grads = em.value_and_grad(lambda net: ops.sum(net.w * net.v[0]) ** 2)(net)
        return c * net.w + x * grads.w + loss, None

    last, _ = scan(step, net.v[0], rows)
    return ops.sum(last)


def checkpointed(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    layer = em.checkpoint(lambda c, w: ops.tanh(c * w) @ net.v)
    last, _ = scan(lambda c, x: (layer(c, net.w) + x, None), rows[0], rows)
    return ops.sum(last)


def compiled_in_the_body(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    layer = em.jit(lambda c, w: ops.tanh(c * w))
    last, _ = scan(lambda c, x: (layer(c, net.w) + x, None), rows[0], rows)
    return ops.sum(last)


def branching(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        c = ops.cond(ops.sum(x) > 0, lambda c: c * net.w, lambda c: ops.sin(c) + net.v[0], c)
        return c, ops.vmap(lambda one: one * net.w[0])(c)

    last, ys = scan(step, rows[0], rows)
    return ops.sum(last) + ops.sum(ys)


def views_of_parameters(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    row, turned = net.v[0], net.v.T

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        c = ops.tanh(c * row + x @ turned) + net.v.T[1] * net.w[::-1]
        return c, c[0]

    last, ys = scan(step, _zeros(), rows)
    return ops.sum(last) + ops.sum(ys)


def backwards(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    last, ys = scan(_tanh(net), _zeros(), rows, reverse=True, unroll=2)
    return ops.sum(last) + ops.sum(ys[0])


def of_a_length(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    last, ys = scan(lambda c, _: (ops.sin(c * net.w), ops.sum(c @ net.v)), rows[0], length=STEPS)
    return ops.sum(last) + ops.sum(ys)


def by_map_fn(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    body = scan.counted().of(lambda _, x: ops.tanh(x @ net.v))
    found = ops.map_fn(lambda x: body(None, x), rows * net.w)
    return ops.sum(found * found)


def by_fori_loop(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    body = scan.counted().of(lambda i, c: {"h": ops.sin(c["h"] * net.w + i), "v": c["v"]})
    last = ops.fori_loop(2, 2 + STEPS, body, {"h": rows[0], "v": net.v})
    return ops.sum(last["h"]) + ops.sum(last["v"] ** 2)


def complex_numbers(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    turn = ops.exp(ops.astype(net.w, "complex128") * 1j)
    last, ys = scan(lambda c, x: (c * turn + x, c * c), ops.astype(net.v[0], "complex128"), rows)
    return ops.sum(ops.abs(last) ** 2) + ops.sum(ops.imag(ys))


ONE_STEP: list[Case] = [
    captured_leaves,
    carry_and_rows,
    results_of_ops,
    containers,
    whole_numbers,
    unused_results,
    no_result_with_a_gradient,
    two_in_a_row,
    within_another,
    returned_as_they_are,
    cut_off,
    with_its_own_gradient,
    a_gradient_in_the_body,
    of_the_net_in_the_body,
    checkpointed,
    compiled_in_the_body,
    branching,
    views_of_parameters,
    backwards,
    of_a_length,
    by_map_fn,
    by_fori_loop,
    complex_numbers,
]


def _gradients(case: Case, net: Any, bodies: list[Calls]) -> Callable[[Tensor], Any]:
    def run(rows: Tensor) -> Any:
        # What a case has no use for has zeros here; which those are is compared elsewhere.
        differentiated = em.value_and_grad(case, allow_unused=True)
        loss, grads = differentiated(net, rows, Scan(bodies))
        return loss, list(grads.parameters())

    return run


@pytest.mark.parametrize("case", ONE_STEP, ids=lambda case: case.__name__)
@pytest.mark.parametrize("backend", ["jax"])
def test_gradients_are_those_of_single_steps(backend: str, case: Case) -> None:
    with em.use_backend(backend):
        net, bodies = Net(), list[Calls]()
        rows = _rows()
        expected = _gradients(case, net, bodies)(rows)
        assert all(body.count >= STEPS for body in bodies)
        bodies.clear()
        compiled = em.jit(_gradients(case, net, bodies), state=[net])
        for _ in range(2):
            _near(compiled(rows), expected)
        assert bodies, "it was traced"
        assert max(body.count for body in bodies) <= LOOKS


@pytest.mark.parametrize("backend", ["numpy", "torch", "mlx"])
def test_other_engines_do_as_ever(backend: str) -> None:
    with em.use_backend(backend):
        net = Net()
        expected = _gradients(captured_leaves, net, [])(_rows(3))
        _near(em.jit(_gradients(captured_leaves, net, []), state=[net])(_rows(3)), expected)


# --- What goes step by step as before -----------------------------------------------------------


def drawing(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        c = ops.tanh(c * net.w + ops.random.normal((2,), dtype="float64"))
        return c, c

    _, ys = scan(step, net.v[0], rows)
    return ops.sum(ys * ys)


def partly_recorded(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, None]:
        with em.no_grad():
            scale = c * net.w
        return c * net.w + scale * x, None

    last, _ = scan(step, net.v[0], rows)
    return ops.sum(last)


def writing_in_place(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, None]:
        net.seen += x
        return c * net.w + net.seen, None

    last, _ = scan(step, net.v[0], rows)
    return ops.sum(last)


def putting_another(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, None]:
        net.seen = net.seen * 0.5 + x
        return c * net.w + net.seen, None

    last, _ = scan(step, net.v[0], rows)
    return ops.sum(last)


STEP_BY_STEP: list[Case] = [
    drawing,
    partly_recorded,
    writing_in_place,
    putting_another,
]


@pytest.mark.parametrize("case", STEP_BY_STEP, ids=lambda case: case.__name__)
def test_bodies_that_are_run_for_each_step(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were no other way."""
    with em.use_backend("jax"):
        results = []
        for stages in (False, True):
            monkeypatch.setattr(type(_rows()._spec.backend.gradients), "stages", stages)
            ops.random.set_seed(3)
            net, bodies = Net(), list[Calls]()
            compiled = em.jit(_gradients(case, net, bodies), state=[net])
            results.append((compiled(_rows()), compiled(_rows()), net.seen))
            assert max(body.count for body in bodies) >= STEPS
        _near(results[1], results[0])


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
        rows = _rows(3)
        expected = em.tree.map(lambda x: x.detach(), _of_second_order(w, rows))
        compiled = em.jit(
            lambda w, rows: em.tree.map(lambda x: x.detach(), _of_second_order(w, rows))
        )
        assert not pulled
        _near(compiled(w, rows), expected)
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

        expected = penalty(_rows(3))
        _near(em.jit(penalty, state=[net])(_rows(3)), expected)


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

        assert ops.max(ops.abs(em.jit(twice, state=[net])(_rows(3)))).item() < 1e-12


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
            _near(compiled(_rows()), step(eager, _rows(), Scan([])))
            _near([net.w.grad, net.v.grad], [eager.w.grad, eager.v.grad])
        assert max(body.count for body in bodies) <= LOOKS


class Normed(nn.Module):
    """A scan after a batch normalization, which writes to its buffers."""

    def __init__(self) -> None:
        self.norm = BatchNorm1d(2).to(dtype="float64")
        self.net = Net()

    def forward(self, rows: Tensor) -> Tensor:
        last, ys = ops.scan(_tanh(self.net), _zeros(), self.norm(rows))
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
            _near(compiled(_rows()), step(eager, _rows()))
            _near(list(net.state_dict().values()), list(eager.state_dict().values()))
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
            run(_rows(3))
        for which in (0, 3):
            for run in (em.jit(through(which), state=[net]), through(which)):
                with pytest.raises(GradientError, match="does not depend on"):
                    run(_rows(3))


# --- The program --------------------------------------------------------------------------------


def _length_of_program(steps: int, monkeypatch: pytest.MonkeyPatch) -> int:
    import jax

    lengths: list[int] = []
    make = jax.make_jaxpr

    def made(function: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            program = make(function)(*args)
            lengths.append(len(str(program).splitlines()))
            return program

        return run

    with monkeypatch.context() as patch:
        patch.setattr(jax, "make_jaxpr", made)
        net = Net()
        em.jit(_gradients(captured_leaves, net, []), state=[net])(_rows(steps))
    return lengths[-1]  # the last is of the whole


def test_the_program_does_not_grow_with_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    with em.use_backend("jax"):
        assert _length_of_program(4, monkeypatch) == _length_of_program(40, monkeypatch)


def test_nothing_is_kept_of_a_trace() -> None:
    import jax

    with em.use_backend("jax"):
        net = Net()
        compiled = em.jit(_gradients(captured_leaves, net, []), state=[net])
        with jax.checking_leaks():
            compiled(_rows())
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
                compiled(_rows())
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
        loss, _ = _gradients(captured_leaves, Net(), [])(_rows())
        assert loss.shape == ()
