"""grad and value_and_grad: arguments, trees, mistakes, nesting; the same on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import ember_ml as em
from ember_ml import ops
from ember_ml.autodiff.rules import table
from ember_ml.autodiff.runs import NESTING
from ember_ml.autodiff.tape import RULES
from ember_ml.backend import selection

BACKENDS = ("numpy", "torch", "jax", "mlx")


def near(got: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(got.numpy(), np.asarray(wanted), rtol=tolerance, atol=tolerance)


def wide(*values: float) -> em.Tensor:
    return ops.asarray(list(values), dtype=em.float64)


# --- Arguments ------------------------------------------------------------------------------


def test_value_and_gradient_have_the_dtype_and_backend_of_the_input(backend: str) -> None:
    for dtype in (em.float32, em.float64):
        x = ops.asarray([1.0, 2.0], dtype=dtype)
        value, g = em.value_and_grad(lambda x: ops.sum(x * x))(x)
        assert value.item() == 5
        assert (g.tolist(), g.dtype, g.shape, g.backend) == ([2, 4], dtype, (2,), backend)
        assert type(g) is em.Tensor
        assert not g.requires_grad
        assert not value.requires_grad


def test_argnums_choose_arguments_and_their_order(backend: str) -> None:
    x, y, z = wide(1, 2), wide(3, 4), wide(5, 6)

    def fn(x: Any, y: Any, *, z: Any) -> Any:
        return ops.sum(x * y * z)

    near(em.grad(fn)(x, y, z=z), [15, 24])
    near(em.grad(fn, argnums=-1)(x, y, z=z), [5, 12])
    both = em.grad(fn, argnums=(1, 0))(x, y, z=z)
    assert isinstance(both, tuple)
    near(both[0], [5, 12])
    near(both[1], [15, 24])
    (one,) = em.grad(fn, argnums=[0])(x, y, z=z)
    near(one, [15, 24])


class Layer(NamedTuple):
    w: Any
    b: Any


def test_trees_keep_their_containers(backend: str) -> None:
    layer = Layer(wide(1, 2), {"z": [wide(3)], "a": (None, wide(4, 5))})

    def fn(layer: Layer) -> Any:
        return ops.sum(layer.w * layer.b["a"][1]) + ops.sum(layer.b["z"][0] * 2.0)

    g = em.grad(fn)(layer)
    assert isinstance(g, Layer)
    assert list(g.b) == ["z", "a"]
    assert g.b["a"][0] is None
    near(g.w, [4, 5])
    near(g.b["z"][0], [2])
    near(g.b["a"][1], [1, 2])
    assert em.grad(lambda empty: 1.5 * ops.sum(wide(1)))({}) == {}


def test_numbers_arrays_and_lists_of_numbers_are_inputs(backend: str) -> None:
    assert em.grad(lambda x: x * x)(3.0).item() == 6
    g = em.grad(lambda x: ops.sum(x * x))(np.array([1.0, 2.0]))
    assert (g.tolist(), g.dtype, g.backend) == ([2, 4], em.float64, backend)
    both = em.grad(lambda p: p[0] * p[1])([2.0, 5.0])
    assert [b.item() for b in both] == [5, 2]
    native = ops.asarray([1.0, 2.0]).native
    assert em.grad(lambda x: ops.sum(x * x))(native).tolist() == [2, 4]


def test_dtypes_may_differ(backend: str) -> None:
    x, y = ops.asarray([1.0, 2.0], dtype=em.float32), wide(3, 4)
    a, b = em.grad(lambda x, y: ops.sum(x * y), argnums=(0, 1))(x, y)
    assert (a.dtype, b.dtype) == (em.float32, em.float64)
    near(a, [3, 4])
    near(b, [1, 2])


def test_aux_comes_back_as_it_is(backend: str) -> None:
    x = wide(1, 2)

    def fn(x: Any) -> Any:
        y = x * x
        return ops.sum(y), {"y": y, "n": 3, "native": y.native, "none": None}

    (value, aux), g = em.value_and_grad(fn, has_aux=True)(x)
    assert value.item() == 5
    assert aux["n"] == 3
    assert aux["none"] is None
    near(aux["y"], [1, 4])
    assert type(aux["y"]) is em.Tensor
    np.testing.assert_array_equal(ops.asarray(aux["native"]).detach().numpy(), [1, 4])
    only, aux = em.grad(fn, has_aux=True)(x)
    near(only, [2, 4])
    near(g, [2, 4])


def test_options_are_true_as_python_tells_it(backend: str) -> None:
    x = wide(1, 2)
    for yes, no in ((1, 0), (np.True_, np.False_)):
        options: Any = {"has_aux": yes, "allow_unused": no}
        (value, aux), g = em.value_and_grad(lambda x: (ops.sum(x * x), 7), **options)(x)
        assert (value.item(), aux, g.tolist()) == (5, 7, [2, 4])
        options = {"has_aux": no, "allow_unused": yes}
        assert em.grad(lambda x: ops.sum(ops.ones(2)), **options)(x).tolist() == [0, 0]
    x.requires_grad_()
    loss = ops.sum(x * x)
    options = {"retain_graph": 1, "create_graph": 0}
    loss.backward(**options)
    loss.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4, 8]


def test_gradients_have_memory_of_their_own(backend: str) -> None:
    x, y = wide(1, 2), wide(3, 4)
    a, b = em.grad(lambda x, y: ops.sum(x + y), argnums=(0, 1))(x, y)
    a += 5
    assert b.tolist() == [1, 1]
    assert a.tolist() == [6, 6]
    one = em.grad(lambda x: x)(ops.asarray(2.0))
    one += 1
    assert em.grad(lambda x: x)(ops.asarray(2.0)).item() == 1


def test_the_gradient_of_one_number_is_not_that_of_the_result(backend: str) -> None:
    x, seed = wide(2).requires_grad_(), ops.asarray(1.0, dtype=em.float64)
    ops.reshape(x, ()).backward()
    ops.reshape(x, ()).backward(seed)
    x.grad *= 5
    assert (x.grad.tolist(), seed.item()) == ([10], 1)
    assert em.grad(lambda x: ops.sum(x * 1.0))(wide(1, 2)).tolist() == [1, 1]


# --- Mistakes -------------------------------------------------------------------------------


def sums(x: Any) -> Any:
    return ops.sum(x)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: em.grad(sums)(ops.asarray([1, 2])), em.DTypeError, r"int64 at args\[0\]"),
        (lambda: em.grad(sums)({"a": [True]}), em.DTypeError, r"bool at args\[0\]\['a'\]\[0\]"),
        (lambda: em.grad(sums)("abc"), em.DTypeError, r"str at args\[0\]"),
        (lambda: em.grad(lambda x: x)(wide(1, 2)), em.ShapeError, r"not shape \(2,\)"),
        (lambda: em.grad(lambda x: (x, 1))(wide(1)), em.ShapeError, "has_aux=True"),
        (lambda: em.grad(sums, has_aux=True)(wide(1)), em.ShapeError, "gives \\(result, aux\\)"),
        (lambda: em.grad(lambda x: sums(x) * 1j)(ops.ones(1)), em.DTypeError, "complex64"),
        (lambda: em.grad(lambda x: 3)(wide(1)), em.DTypeError, "int64"),
        (lambda: em.grad(sums, argnums=1)(wide(1)), em.DomainError, "argnums 1 for a call with 1"),
        (lambda: em.grad(sums, argnums=-2)(wide(1)), em.DomainError, "argnums -2"),
        (lambda: em.grad(sums, argnums=(0, -1))(wide(1)), em.DomainError, "twice"),
        (lambda: em.grad(sums, argnums=())(wide(1)), em.DomainError, "no argnums"),
        (lambda: em.grad(sums, argnums="x")(wide(1)), em.DTypeError, "'x'"),
        (lambda: em.grad(lambda x: 3.0)(wide(1)), em.GradientError, r"depend on args\[0\] by"),
        (
            lambda: em.grad(lambda p: sums(p["a"]))({"a": wide(1), "b": [wide(2)]}),
            em.GradientError,
            r"depend on args\[0\]\['b'\]\[0\]",
        ),
        (
            lambda: em.grad(lambda x, y: sums(y) + sums(em.stop_gradient(x)), (0, 1))(
                wide(1), wide(1)
            ),
            em.GradientError,
            r"depend on args\[0\] by",
        ),
        (
            lambda: em.grad(lambda x: sums(ops.astype(x > 1, em.float64)))(wide(1)),
            em.GradientError,
            "does not depend",
        ),
        (
            lambda: em.grad(lambda x: sums(ops.where(x > 1, 1.0, 2.0)))(wide(1)),
            em.GradientError,
            "does not depend",
        ),
        (
            lambda: em.grad(lambda x: ops.astype(ops.argmax(x), em.float64))(wide(1)),
            em.GradientError,
            "does not depend",
        ),
    ],
)
def test_mistakes_are_named(backend: str, make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_result_of_another_backend_is_refused(backend: str) -> None:
    other = "torch" if backend == "numpy" else "numpy"
    far = ops.asarray(1.0).to_backend(other)
    with pytest.raises(em.BackendMismatchError, match=backend):
        em.grad(lambda x: far)(ops.asarray(1.0))


def test_unused_inputs_may_be_allowed(backend: str) -> None:
    x, y = wide(1, 2), ops.asarray([[3.0]], dtype=em.float32)
    a, b = em.grad(lambda x, y: ops.sum(x * x), argnums=(0, 1), allow_unused=True)(x, y)
    near(a, [2, 4])
    assert (b.tolist(), b.dtype, b.backend) == ([[0]], em.float32, backend)
    c, d = em.grad(lambda x, y: 3.0, argnums=(0, 1), allow_unused=True)(x, y)
    assert (c.tolist(), d.tolist()) == ([0, 0], [[0]])


def test_an_unused_input_beside_a_result_that_keeps_its_gradient(backend: str) -> None:
    factor = wide(1).requires_grad_()  # so that engines do not transform the function

    def fn(x: Any, y: Any) -> Any:
        kept = x * 2 * factor
        kept.retain_grad()
        return ops.sum(kept)

    x, y = em.grad(fn, argnums=(0, 1), allow_unused=True)(wide(1, 2), wide(3, 4))
    assert (x.tolist(), y.tolist()) == ([2, 2], [0, 0])
    with pytest.raises(em.GradientError, match=r"does not depend on args\[1\]"):
        em.grad(fn, argnums=(0, 1))(wide(1, 2), wide(3, 4))


def test_a_record_from_outside_is_not_used_up(backend: str) -> None:
    w = ops.asarray(3.0, dtype=em.float64).requires_grad_()
    loss = w * w
    with em.no_grad():
        value, g = em.value_and_grad(lambda x: loss, allow_unused=True)(wide(1, 2))
    assert (value.item(), g.tolist()) == (9, [0, 0])
    loss.backward()
    assert w.grad is not None
    assert w.grad.item() == 6


def test_an_op_of_steps_has_a_gradient_of_zeros(backend: str) -> None:
    for op in (ops.floor, ops.ceil, ops.round, ops.trunc, ops.sign, ops.imag):
        assert em.grad(lambda x, op=op: ops.sum(op(x)))(wide(1.5, -2.25)).tolist() == [0, 0]
    for op in (ops.copysign, ops.nextafter):
        g = em.grad(lambda y, op=op: ops.sum(op(wide(1, 2), y)))(wide(1.5, -2.25))
        assert g.tolist() == [0, 0], op
        near(em.jvp(lambda y, op=op: op(wide(1, 2), y), (wide(1, 2),), (wide(1, 1),))[1], [0, 0])


def test_an_empty_input_is_no_mistake(backend: str) -> None:
    empty = ops.zeros((0, 2), dtype=em.float64)
    a, b = em.grad(lambda p: ops.sum(p[0]))([wide(1, 2), empty])
    near(a, [1, 1])
    assert (b.shape, b.dtype) == ((0, 2), em.float64)
    assert em.grad(lambda x: ops.sum(x * x))(empty).shape == (0, 2)


@pytest.fixture
def without_gradient(backend: str) -> Iterator[str]:
    """`nextafter` as an op that has no gradient."""
    name = "nextafter"
    rule = RULES.get(name)
    listed = table.NO_GRADIENT.get(name)
    engine = selection.load(backend)
    engine.gradients.prepare()
    table.no_gradient(name, "it steps from number to number")
    engine.resettle([name])
    yield backend
    table.NO_GRADIENT.pop(name)
    if listed is not None:
        table.NO_GRADIENT[name] = listed
    del RULES[name]
    if rule is not None:
        RULES[name] = rule
    engine.resettle([name])


def test_an_op_without_gradient_says_so(without_gradient: str) -> None:
    text = "ops.nextafter has no gradient: it steps from number to number"
    x = wide(1, 2)

    def through(x: Any) -> Any:
        return ops.sum(ops.nextafter(x, x + 1.0))

    with pytest.raises(em.GradientError, match=text):
        em.grad(through)(x)
    with pytest.raises(em.GradientError, match=text):
        em.vjp(through, x)[1](1.0)
    with pytest.raises(em.GradientError, match=text):
        em.jvp(through, (x,), (x,))
    with pytest.raises(em.GradientError, match=text):
        em.jacobian(lambda x: ops.nextafter(x, x))(x)
    watched = em.Tensor(x, requires_grad=True)
    with pytest.raises(em.GradientError, match=text):
        through(watched).backward()
    # Its values, and what does not ask for its gradient, are as before.
    near(ops.nextafter(x, x + 1.0), np.nextafter([1, 2], 3))
    near(em.grad(lambda x: ops.sum(x * em.stop_gradient(ops.nextafter(x, x))))(x), [1, 2])
    g, aux = em.grad(lambda x: (ops.sum(x), ops.nextafter(x, x)), has_aux=True)(x)
    near(g, [1, 1])
    near(aux, [1, 2])


# --- One within the other -------------------------------------------------------------------


def test_gradients_of_gradients(backend: str) -> None:
    x = ops.asarray(2.0, dtype=em.float64)
    order = em.grad(lambda x: x * x * x * x)
    for wanted in (32, 48, 48, 24):
        near(order(x), wanted)
        order = em.grad(order)
    with pytest.raises(em.GradientError, match="does not depend"):
        em.grad(em.grad(lambda x: 3.0 * x))(x)


def test_inner_and_outer_derivatives_are_told_apart(backend: str) -> None:
    x = ops.asarray(2.0, dtype=em.float64)
    near(em.grad(lambda x: x * em.grad(lambda y: x + y)(1.0 * x))(x), 1)
    near(em.grad(lambda x: x * em.grad(lambda y: x * y * y)(x))(x), 3 * 2 * 2 * 2)
    near(em.grad(lambda x: x * em.stop_gradient(em.grad(lambda y: y * y)(x)))(x), 4)
    # The same input by two names: only that of the inner function counts within it.
    near(em.grad(lambda x: em.grad(lambda y: x * x * y)(x))(x), 4)


def test_tensors_from_outside_stay_connected(backend: str) -> None:
    w = em.Tensor(wide(2, 3), requires_grad=True)
    x = wide(1, 2)
    g = em.grad(lambda x: ops.sum(x * x * w))(x)
    assert g.requires_grad
    ops.sum(g * g).backward()
    assert w.grad is not None
    near(w.grad, [8 * 1 * 2, 8 * 4 * 3])  # of (2 x w)^2
    with em.no_grad():
        g = em.grad(lambda x: ops.sum(x * x * w))(x)
    assert not g.requires_grad
    near(g, [4, 12])


def test_an_input_that_needs_gradients_stays_connected(backend: str) -> None:
    x = em.Tensor(wide(2, 3), requires_grad=True)
    value, g = em.value_and_grad(lambda x: ops.sum(x * x * x))(x)
    ops.sum(g).backward()
    assert x.grad is not None
    near(x.grad, [12, 18])
    assert value.requires_grad


def test_what_an_inner_function_hands_out_stays_connected(backend: str) -> None:
    def fn(x: Any) -> Any:
        _g, aux = em.grad(lambda y: (ops.sum(y * y), x * x), has_aux=True)(x)
        return ops.sum(aux)

    near(em.grad(fn)(wide(3)), [6])


def test_recording_goes_on_within_no_grad(backend: str) -> None:
    with em.no_grad():
        near(em.grad(lambda x: ops.sum(x * x))(wide(1, 2)), [2, 4])
        assert not em.is_grad_enabled()

    @em.no_grad()
    def frozen(x: Any) -> Any:
        return x * x

    watched = em.Tensor(wide(1), requires_grad=True)
    assert not frozen(watched).requires_grad
    assert em.is_grad_enabled()


def test_detach_cuts(backend: str) -> None:
    near(em.grad(lambda x: ops.sum(x * x.detach()))(wide(3, 4)), [3, 4])


def test_gradients_in_loops_branches_and_batches(backend: str) -> None:
    x = wide(1, 2, 3)
    each = ops.vmap(em.grad(lambda x: x * x * x))(x)
    near(each, [3, 12, 27])
    assert NESTING.get() == (0, False)

    def walk(start: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            slope = em.grad(lambda c: c * c * row)(carry)
            return carry + slope, slope

        last, slopes = ops.scan(step, start, x)
        return last + ops.sum(slopes)

    near(em.grad(walk)(ops.asarray(1.0, dtype=em.float64)), _walk_slope(), 1e-5)
    branch = em.grad(
        lambda x: ops.cond(x > 0, lambda x: em.grad(lambda y: y * y * y)(x), lambda x: x, x)
    )
    near(branch(ops.asarray(2.0, dtype=em.float64)), 12)
    near(branch(ops.asarray(-2.0, dtype=em.float64)), 1)


def _walk_slope() -> float:
    """Each step multiplies the carry by 1 + 2 row."""
    carry, slopes = 1.0, 0.0
    for row in (1.0, 2.0, 3.0):
        slopes += 2 * carry * row
        carry += 2 * carry * row
    return carry + slopes


# --- Under the engines' own compilers -------------------------------------------------------


def through(native: Any) -> Any:
    x = ops.asarray(native)
    value, g = em.value_and_grad(lambda x: ops.sum(ops.tanh(x) * x))(x)
    return (value * g).native


def test_under_the_compilers_of_the_engines(backend: str) -> None:
    x = ops.asarray([0.5, 1.5], dtype=em.float32)
    wanted = ops.asarray(through(x.native)).numpy()
    if backend == "jax":
        import jax

        got = jax.jit(through)(x.native)
        twice = jax.jit(jax.grad(lambda n: through(n).sum()))(x.native)
        np.testing.assert_allclose(twice, jax.grad(lambda n: through(n).sum())(x.native), 1e-5)
    elif backend == "mlx":
        import mlx.core as mx

        got = mx.compile(through)(x.native)
    elif backend == "torch":
        from torch.fx.experimental.proxy_tensor import make_fx

        got = make_fx(through)(x.native)(x.native)
    else:
        got = through(x.native)
    np.testing.assert_allclose(ops.asarray(got).numpy(), wanted, rtol=1e-6)


# --- Complex numbers ------------------------------------------------------------------------


def test_complex_gradients_are_those_of_torch(backend: str) -> None:
    z = ops.asarray(np.array([1 + 2j, 3 - 1j], "complex64"))
    g = em.grad(lambda z: ops.sum(ops.real(z * z * (3 + 1j))))(z)
    near(g, np.conj(2 * z.numpy() * (3 + 1j)), 1e-5)
    near(em.grad(lambda z: ops.sum(ops.real(z * ops.conj(z))))(z), 2 * z.numpy(), 1e-5)
    near(em.grad(lambda z: ops.sum(ops.imag(z)))(z), [1j, 1j])
    x = ops.asarray([1.0, 2.0], dtype=em.float32)
    real = em.grad(lambda x: ops.sum(ops.imag(x * z)))(x)
    assert real.dtype is em.float32
    near(real, [2, -1])


# --- Properties -----------------------------------------------------------------------------

arrays = hnp.arrays(np.float64, 3, elements=st.floats(-2, 2, width=16))


def smooth(x: Any) -> Any:
    return ops.sum(ops.tanh(x) * x + ops.exp(x * 0.5))


@pytest.mark.parametrize("name", BACKENDS)
@settings(max_examples=15, deadline=None)
@given(arrays, st.floats(-3, 3, width=16), st.floats(-3, 3, width=16))
def test_gradients_are_linear(name: str, values: Any, a: float, b: float) -> None:
    with em.use_backend(name):
        x = ops.asarray(values)
        first = em.grad(smooth)(x)
        second = em.grad(lambda x: ops.sum(x * x * x))(x)
        both = em.grad(lambda x: a * smooth(x) + b * ops.sum(x * x * x))(x)
        near(both, (a * first + b * second).numpy(), 1e-9)


@pytest.mark.parametrize("name", BACKENDS)
@settings(max_examples=15, deadline=None)
@given(arrays)
def test_the_chain_rule(name: str, values: Any) -> None:
    with em.use_backend(name):
        x = ops.asarray(values)
        inner = ops.tanh(x)
        outer = em.grad(smooth)(inner)
        whole = em.grad(lambda x: smooth(ops.tanh(x)))(x)
        near(whole, (outer * (1 - inner * inner)).numpy(), 1e-9)
