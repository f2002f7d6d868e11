"""Functions with a loop over which parameters are differentiated, for test_scan_on_tape.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ember_ml as em
from ember_ml import Tensor, nn, ops

STEPS = 7


class Net(nn.Module):
    """Two parameters, and a buffer."""

    def __init__(self) -> None:
        self.w = nn.Parameter(ops.asarray([0.5, -0.3], dtype="float64"))
        self.v = nn.Parameter(ops.asarray([[0.4, 0.1], [-0.2, 0.7]], dtype="float64"))
        self.seen = nn.Buffer(ops.zeros((2,), dtype="float64"))


def rows_of(steps: int = STEPS) -> Tensor:
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


def near(found: Any, expected: Any) -> None:
    first, one = em.tree.flatten(found)
    second, other = em.tree.flatten(expected)
    assert one == other
    for a, b in zip(first, second, strict=True):
        assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)


# --- Values and gradients -----------------------------------------------------------------------

# Each takes the net, rows, and a scan to use, and gives a loss.
Case = Callable[[Any, Tensor, Scan], Tensor]


def tanh_with(net: Any) -> Callable[[Any, Any], Any]:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        c = ops.tanh(c @ net.v + x * net.w)
        return c, c * net.w

    return step


def zeros() -> Tensor:
    return ops.zeros((2,), dtype="float64")


def captured_leaves(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    last, ys = scan(tanh_with(net), zeros(), rows)
    return ops.sum(last) + ops.sum(ys * ys)


def carry_and_rows(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    last, ys = scan(lambda c, x: (ops.sin(c) * x, c * x), net.w, rows @ net.v)
    return ops.sum(last) + ops.sum(ys)


def results_of_ops(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    w, v = ops.exp(net.w), net.v.T
    last, _ = scan(lambda c, x: (ops.tanh(c @ v) + w * x, c), net.w * 2, rows)
    return ops.sum(last)


def containers(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    init = {"h": (zeros(), [net.w]), "none": None}
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
    last, ys = scan(tanh_with(net), zeros(), rows)
    _, zs = scan(tanh_with(net), last, ys)
    return ops.sum(zs * zs)


def within_another(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        last, ys = ops.scan(lambda d, y: (ops.sin(d * net.w + y), d), c, ops.stack([x, c, x]))
        return last, ops.sum(ys * net.v[0])

    last, ys = scan(step, zeros(), rows)
    return ops.sum(last) + ops.sum(ys)


def returned_as_they_are(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    last, ys = scan(lambda c, x: (net.w, (c, net.v, x)), zeros(), rows)
    return ops.sum(last * last) + sum(ops.sum(y * y) for y in ys)


def cut_off(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    """Constants within the body, and the same tensor as a constant from outside."""
    outside = net.w.detach()

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        fixed = em.stop_gradient(c) + net.w.detach()
        return c * net.w + x * outside + fixed, c.detach() * net.v[0]

    last, ys = scan(step, zeros(), rows)
    return ops.sum(last) + ops.sum(ys)


def with_its_own_gradient(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    @em.custom_gradient
    def clipped(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        return x * 1.0, lambda g: ops.clip(g, -0.1, 0.1)

    last, _ = scan(lambda c, x: (clipped(ops.tanh(c @ net.v)) + x * net.w, None), zeros(), rows)
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

    last, ys = scan(step, zeros(), rows)
    return ops.sum(last) + ops.sum(ys)


def backwards(net: Any, rows: Tensor, scan: Scan) -> Tensor:
    last, ys = scan(tanh_with(net), zeros(), rows, reverse=True, unroll=2)
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


def gradients_of(case: Case, net: Any, bodies: list[Calls]) -> Callable[[Tensor], Any]:
    def run(rows: Tensor) -> Any:
        # What a case has no use for has zeros here; which those are is compared elsewhere.
        differentiated = em.value_and_grad(case, allow_unused=True)
        loss, grads = differentiated(net, rows, Scan(bodies))
        return loss, list(grads.parameters())

    return run


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
