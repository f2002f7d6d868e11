"""checkpoint: the same results and gradients, and less kept on the way to them."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.autodiff import checkpoint, checkpoint_sequence, grad, value_and_grad
from ember_ml.backend.mlx import checkpointing as mlx_checkpointing
from ember_ml.nn import tensor

X = np.array([[0.1, -0.2, 0.3], [0.4, 0.5, -0.6]])
W = np.array([[0.5, 0.1, 0.2], [-0.2, 0.3, 0.1], [0.4, -0.3, 0.6]])

Function = Callable[..., Any]


def _array(value: np.ndarray, requires_grad: bool = False) -> em.Tensor:
    return tensor.array(value, dtype="float64", requires_grad=requires_grad)


def _layer(h: em.Tensor, w: em.Tensor) -> em.Tensor:
    return ops.tanh(h @ w) * h


def _functional(loss: Function, *values: np.ndarray) -> list[np.ndarray]:
    found = grad(loss, argnums=tuple(range(len(values))))(*map(_array, values))
    return [g.numpy(copy=True) for g in found]


def _imperative(loss: Function, *values: np.ndarray) -> list[np.ndarray]:
    leaves = [_array(value, requires_grad=True) for value in values]
    loss(*leaves).backward()
    return [leaf.grad.numpy(copy=True) for leaf in leaves]


@pytest.fixture(params=[_functional, _imperative], ids=["grad", "backward"])
def gradients(request: pytest.FixtureRequest) -> Any:
    """Both ways to gradients."""
    return request.param


def _agree(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


# --- Gradients ------------------------------------------------------------------------------


def test_arguments(backend: str, gradients: Any) -> None:
    step = checkpoint(_layer)
    found = gradients(lambda x, w: ops.sum(step(step(x, w), w)), X, W)
    _agree(found, gradients(lambda x, w: ops.sum(_layer(_layer(x, w), w)), X, W))


def test_results_are_those_of_the_function(backend: str) -> None:
    x, w = _array(X), _array(W)
    np.testing.assert_array_equal(checkpoint(_layer)(x, w).numpy(), _layer(x, w).numpy())
    value, _ = value_and_grad(lambda w: ops.sum(checkpoint(_layer)(x, w)))(w)
    assert value.item() == ops.sum(_layer(x, w)).item()


def test_closed_over(backend: str, gradients: Any) -> None:
    """Tensors that are no arguments, and one that is both."""

    def loss(w: em.Tensor) -> em.Tensor:
        wide = w * 2.0
        h = checkpoint(lambda h: _layer(h, w) + h @ wide)(_array(X))
        return ops.sum(checkpoint(lambda v: _layer(h, w) @ v)(w))

    def plain(w: em.Tensor) -> em.Tensor:
        h = _layer(_array(X), w) + _array(X) @ (w * 2.0)
        return ops.sum(_layer(h, w) @ w)

    _agree(gradients(loss, W), gradients(plain, W))


def test_nothing_but_closed_over(backend: str, gradients: Any) -> None:
    def loss(w: em.Tensor) -> em.Tensor:
        return ops.sum(checkpoint(lambda: ops.exp(w))())

    _agree(gradients(loss, W), [np.exp(W)])


def test_closed_over_by_ops_of_no_argument(backend: str, gradients: Any) -> None:
    """Values that depend on closed-over tensors alone, by casts, keys, constants and rows."""

    def inner(h: em.Tensor, w: em.Tensor) -> em.Tensor:
        first, rest = w[0], w[1:].astype("float32").astype("float64")
        return h * first + ops.sum(ops.exp(rest)) * 2.0 + ops.concat([h, w])[1] + ops.ones((3,))

    def loss(w: em.Tensor) -> em.Tensor:
        return ops.sum(checkpoint(lambda h: inner(h, w))(_array(X)))

    found = gradients(loss, W)
    expected = gradients(lambda w: ops.sum(inner(_array(X), w)), W)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)  # float32 on the way


def test_one_tensor_in_two_places(backend: str, gradients: Any) -> None:
    _agree(gradients(lambda w: ops.sum(checkpoint(ops.multiply)(w, w)), W), [2 * W])


def test_same_tensor_as_argument_and_closed_over(backend: str, gradients: Any) -> None:
    _agree(gradients(lambda w: ops.sum(checkpoint(lambda v: v * w)(w)), W), [2 * W])


class _Pair(NamedTuple):
    left: Any
    right: Any


def test_trees_and_keywords(backend: str, gradients: Any) -> None:
    def function(parts: dict[str, Any], scale: float, *, pair: _Pair, name: str) -> Any:
        assert name == "x"
        h = _layer(parts["x"][0], parts["w"]) * scale
        return {"h": h, "sum": (ops.sum(h), pair.left), "name": name, "none": None}

    def loss(wrapped: Function, x: em.Tensor, w: em.Tensor) -> em.Tensor:
        out = wrapped({"x": [x], "w": w}, 3.0, pair=_Pair(w, None), name="x")
        assert out["name"] == "x"
        assert out["none"] is None
        return out["sum"][0] + ops.sum(out["h"] * out["h"]) + ops.sum(out["sum"][1])

    found = gradients(lambda x, w: loss(checkpoint(function), x, w), X, W)
    _agree(found, gradients(lambda x, w: loss(function, x, w), X, W))


def test_integer_arguments_and_results(backend: str, gradients: Any) -> None:
    places = ops.asarray([2, 0])

    def pick(w: em.Tensor, places: em.Tensor) -> tuple[em.Tensor, em.Tensor]:
        return ops.take(w, places, axis=0), places + 1

    def loss(w: em.Tensor) -> em.Tensor:
        rows, more = checkpoint(pick)(w, places)
        assert more.dtype == "int64"
        assert more.tolist() == [3, 1]
        return ops.sum(rows * rows)

    expected = np.where([[True], [False], [True]], 2 * W, 0.0)
    _agree(gradients(loss, W), [expected])


def test_results_that_are_not_used(backend: str, gradients: Any) -> None:
    def loss(w: em.Tensor) -> em.Tensor:
        first, _, third = checkpoint(lambda w: (ops.exp(w), ops.sin(w), w))(w)
        return ops.sum(first) + ops.sum(third)

    _agree(gradients(loss, W), [np.exp(W) + 1])


def test_argument_whose_gradient_is_not_asked_for(backend: str) -> None:
    """One result depends on nothing else."""
    x = _array(X, requires_grad=True) * 1.0

    def loss(w: em.Tensor) -> em.Tensor:
        first, second = checkpoint(lambda x, w: (ops.exp(x), ops.exp(w)))(x, w)
        return ops.sum(first) * ops.sum(second)

    found = grad(loss)(_array(W)).numpy()
    np.testing.assert_allclose(found, np.exp(X).sum() * np.exp(W), rtol=1e-12)


def test_argument_that_is_not_used(backend: str) -> None:
    def loss(x: em.Tensor, w: em.Tensor) -> em.Tensor:
        return ops.sum(checkpoint(lambda x, w: ops.exp(w))(x, w))

    found = grad(loss, argnums=(0, 1), allow_unused=True)(_array(X), _array(W))
    assert not found[0].numpy().any()
    np.testing.assert_allclose(found[1].numpy(), np.exp(W))


def test_nested(backend: str, gradients: Any) -> None:
    def inner(h: em.Tensor, w: em.Tensor) -> em.Tensor:
        deep = checkpoint(lambda h: _layer(h, w))
        return deep(checkpoint(_layer)(h, w) * 0.5)

    def loss(x: em.Tensor, w: em.Tensor) -> em.Tensor:
        return ops.sum(checkpoint(lambda x: checkpoint(inner)(x, w) + inner(x, w))(x))

    def plain(x: em.Tensor, w: em.Tensor) -> em.Tensor:
        return ops.sum(2.0 * _layer(_layer(x, w) * 0.5, w))

    _agree(gradients(loss, X, W), gradients(plain, X, W))


def test_nested_under_transforms() -> None:
    """The inner one is one as well: it runs once more for each time that the outer one runs."""
    import jax

    calls: list[int] = []

    def inner(w: em.Tensor) -> em.Tensor:
        calls.append(1)
        return ops.sin(ops.exp(w))

    def outer(w: em.Tensor) -> em.Tensor:
        return ops.cos(checkpoint(inner)(ops.exp(w)))

    with em.use_backend("jax"):
        text = str(jax.make_jaxpr(lambda w: checkpoint(outer)(ops.asarray(w)).native)(W))
        assert text.count("prevent_cse") == 2
    with em.use_backend("mlx"):
        calls.clear()
        found = grad(lambda w: ops.sum(checkpoint(outer)(w)))(_array(W)).numpy()
        # It is looked at and run, each time that the outer one is looked at, run, and run again;
        # for the last of these its own gradient runs it once more.
        assert len(calls) == 7
    with em.use_backend("numpy"):
        expected = grad(lambda w: ops.sum(outer(w)))(_array(W)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_second_derivatives(backend: str) -> None:
    def twice(step: Function) -> np.ndarray:
        def loss(w: em.Tensor) -> em.Tensor:
            return ops.sum(step(step(_array(X), w), w))

        def slope(w: em.Tensor) -> em.Tensor:
            g = grad(loss)(w)
            return ops.sum(g * g)

        return grad(slope)(_array(W)).numpy()

    expected = twice(_layer)
    np.testing.assert_allclose(twice(checkpoint(_layer)), expected, rtol=1e-11)
    closed = twice(lambda x, w: checkpoint(lambda x: checkpoint(_layer)(x, w))(x))
    np.testing.assert_allclose(closed, expected, rtol=1e-11)


@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")  # torch's, about its cycles
def test_second_derivatives_by_backward(backend: str) -> None:
    def twice(step: Function) -> np.ndarray:
        w = _array(W, requires_grad=True)
        ops.sum(step(step(_array(X), w), w)).backward(create_graph=True)
        first, w.grad = w.grad, None
        ops.sum(first * first).backward()
        return w.grad.numpy(copy=True)

    expected = twice(_layer)
    np.testing.assert_allclose(twice(checkpoint(_layer)), expected, rtol=1e-11)
    closed = twice(lambda x, w: checkpoint(lambda x: _layer(x, w) * 1.0)(x))
    np.testing.assert_allclose(closed, expected, rtol=1e-11)


def test_complex(backend: str) -> None:
    if backend == "mlx":  # has complex64 alone
        z = ops.asarray([1.0 + 2.0j, -0.5j], dtype="complex64")
    else:
        z = ops.asarray([1.0 + 2.0j, -0.5j], dtype="complex128")

    def loss(step: Function) -> Function:
        return lambda z: ops.sum(ops.real(step(z) * 2.0))

    expected = grad(loss(lambda z: ops.exp(z) * z))(z).numpy()
    found = grad(loss(checkpoint(lambda z: ops.exp(z) * z)))(z)
    assert found.dtype == z.dtype
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_narrow_dtypes(backend: str, dtype: str) -> None:
    w = ops.asarray(W.tolist(), dtype=dtype)
    found = grad(lambda w: ops.sum(checkpoint(lambda w: ops.tanh(w) * w)(w)))(w)
    assert found.dtype == dtype
    expected = grad(lambda w: ops.sum(ops.tanh(w) * w))(w)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_empty(backend: str, gradients: Any) -> None:
    _agree(gradients(lambda x: ops.sum(checkpoint(ops.exp)(x)), X[:0]), [X[:0]])


# --- Random numbers -------------------------------------------------------------------------


def _dropped(h: em.Tensor, **options: Any) -> em.Tensor:
    return h * ops.random.uniform(h.shape, dtype="float64", **options) * h


def test_random_numbers_are_the_same_again(backend: str, gradients: Any) -> None:
    """The gradient belongs to the numbers of the value, and the next draw to the one after."""

    def loss(step: Function) -> Function:
        return lambda x: ops.sum(step(step(x)))

    ops.random.set_seed(5)
    expected = gradients(loss(_dropped), X)
    after = ops.random.uniform().item()
    ops.random.set_seed(5)
    _agree(gradients(loss(checkpoint(_dropped)), X), expected)
    assert ops.random.uniform().item() == after
    ops.random.set_seed(5)
    _agree(gradients(loss(checkpoint(lambda x: checkpoint(_dropped)(x))), X), expected)
    assert ops.random.uniform().item() == after


def test_random_numbers_of_a_generator(backend: str, gradients: Any) -> None:
    made = [ops.random.Generator(3) for _ in range(2)]
    expected = gradients(lambda x: ops.sum(_dropped(x, generator=made[0])), X)
    _agree(gradients(lambda x: ops.sum(checkpoint(_dropped)(x, generator=made[1])), X), expected)
    assert made[0].counter == made[1].counter == 1


def test_random_numbers_of_children_and_keys(backend: str, gradients: Any) -> None:
    source = ops.random.Generator(3)

    def split(h: em.Tensor) -> em.Tensor:
        return _dropped(h, generator=source.split(1)[0])

    state = source.get_state()
    expected = gradients(lambda x: ops.sum(split(x)), X)
    source.set_state(state)
    _agree(gradients(lambda x: ops.sum(checkpoint(split)(x)), X), expected)
    assert source.get_state()["children"] == 1

    key = ops.random.key(1)

    def keyed(step: Function) -> Function:
        def loss(x: em.Tensor) -> em.Tensor:
            with ops.random.traced(key):
                return ops.sum(step(step(x)))

        return loss

    _agree(gradients(keyed(checkpoint(_dropped)), X), gradients(keyed(_dropped), X))


def test_random_numbers_in_another_thread(backend: str) -> None:
    ops.random.set_seed(5)
    (expected,) = _imperative(lambda x: ops.sum(_dropped(x)), X)
    ops.random.set_seed(5)
    x = _array(X, requires_grad=True)
    loss = ops.sum(checkpoint(_dropped)(x))
    found: list[np.ndarray] = []

    def work() -> None:
        loss.backward()
        found.append(x.grad.numpy(copy=True))  # here, since MLX computes where work began

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    _agree(found, [expected])


def test_run_again_in_the_context_of_the_first_run(backend: str) -> None:
    """The current backend of a block that has ended is current again."""
    x = _array(X, requires_grad=True)
    seen: list[str] = []

    def function(h: em.Tensor) -> em.Tensor:
        seen.append(em.get_backend())
        return h * ops.asarray(2.0, dtype="float64")

    with em.use_backend(backend):
        loss = ops.sum(checkpoint(function)(x))
    with em.use_backend("numpy"):
        loss.backward()
    assert seen == [backend, backend]
    _agree([x.grad.numpy()], [np.full_like(X, 2.0)])


def test_tasks(backend: str) -> None:
    """Each task has its own draws."""

    async def one(seed: int) -> np.ndarray:
        ops.random.set_seed(seed)
        x = _array(X, requires_grad=True)
        loss = ops.sum(checkpoint(_dropped)(x))
        await asyncio.sleep(0)
        loss.backward()
        return x.grad.numpy(copy=True)

    async def both() -> list[np.ndarray]:
        return list(await asyncio.gather(one(1), one(2)))

    found = asyncio.run(both())
    for seed, g in zip((1, 2), found, strict=True):
        ops.random.set_seed(seed)
        _agree([g], _imperative(lambda x: ops.sum(_dropped(x)), X))


# --- Forms ----------------------------------------------------------------------------------


def test_decorator_and_method(backend: str) -> None:
    @checkpoint
    def square(x: em.Tensor) -> em.Tensor:
        """Its words."""
        return x * x

    class Model:
        def __init__(self) -> None:
            self.w = _array(W)

        @checkpoint(offload=True)
        def __call__(self, x: em.Tensor) -> em.Tensor:
            return x @ self.w

    assert square.__name__ == "square"
    assert square.__doc__ == "Its words."
    model = Model()
    assert grad(lambda x: ops.sum(square(x)))(_array(X)).tolist() == (2 * X).tolist()
    found = grad(lambda x: ops.sum(checkpoint(model)(x)))(_array(X))
    np.testing.assert_allclose(found.numpy(), np.ones_like(X) @ W.T)
    assert not hasattr(checkpoint(model), "w")


@pytest.mark.parametrize("segments", [None, 1, 2, 5])
def test_sequence(backend: str, gradients: Any, segments: int | None) -> None:
    def run(row: Function) -> Function:
        return lambda x, w: ops.sum(row([lambda h: _layer(h, w)] * 5)(x))

    def plain(steps: list[Function]) -> Function:
        def go(h: em.Tensor) -> em.Tensor:
            for step in steps:
                h = step(h)
            return h

        return go

    found = gradients(run(lambda steps: checkpoint_sequence(steps, segments)), X, W)
    _agree(found, gradients(run(plain), X, W))


def test_mistakes(backend: str) -> None:
    with pytest.raises(em.DTypeError, match="checkpoint takes a function"):
        checkpoint([ops.exp])  # type: ignore[arg-type]  # the mistake
    with pytest.raises(em.DTypeError, match="takes functions, not int"):
        checkpoint_sequence([3])  # type: ignore[list-item]  # the mistake
    with pytest.raises(em.DomainError, match="no functions"):
        checkpoint_sequence([])
    with pytest.raises(em.DomainError, match="from 1 to 2"):
        checkpoint_sequence([ops.exp, ops.log], segments=3)
    with pytest.raises(em.ShapeError, match="matmul"):
        checkpoint(ops.matmul)(_array(X), _array(X))
    with pytest.raises(NotADirectoryError, match="create it first"):
        checkpoint(ops.exp, to_disk="/no/such/place")


def test_without_gradients_it_is_a_call(backend: str) -> None:
    calls: list[em.Tensor] = []

    def function(x: em.Tensor) -> em.Tensor:
        calls.append(x)
        return x * 2.0

    out = checkpoint(function)(_array(X))
    assert not out.requires_grad
    with em.no_grad():
        out = checkpoint(function)(_array(X, requires_grad=True))
    assert not out.requires_grad
    assert len(calls) == 2


def test_backward_twice(backend: str) -> None:
    w = _array(W, requires_grad=True)
    loss = ops.sum(checkpoint(lambda w: ops.exp(w))(w))
    loss.backward(retain_graph=True)
    loss.backward()
    _agree([w.grad.numpy()], [2 * np.exp(W)])
    with pytest.raises(RuntimeError):
        loss.backward()


def test_under_vmap(backend: str) -> None:
    """A batch of gradients, and a gradient of a batch."""
    step = checkpoint(lambda x: ops.sum(ops.sin(x) * x))
    rows = ops.vmap(grad(step))(_array(X))
    np.testing.assert_allclose(rows.numpy(), np.cos(X) * X + np.sin(X), rtol=1e-12)
    # Not against the rows: MLX's batches of float64 are a little off, also without checkpoints.
    whole = _functional(lambda x: ops.sum(ops.vmap(step)(x)), X)
    _agree(whole, _functional(lambda x: ops.sum(ops.vmap(lambda x: ops.sum(ops.sin(x) * x))(x)), X))
    np.testing.assert_allclose(whole[0], rows.numpy(), rtol=1e-6)
    _agree(_imperative(lambda x: ops.sum(ops.vmap(step)(x)), X), [rows.numpy()])


@pytest.mark.parametrize("around", [True, False], ids=["jit of grad", "grad of jit"])
def test_under_jit(backend: str, around: bool) -> None:
    def loss(w: em.Tensor) -> em.Tensor:
        inner = checkpoint(lambda h: _layer(checkpoint(_layer)(h, w), w))
        return ops.sum(inner(_array(X)))

    run = em.jit(grad(loss)) if around else grad(em.jit(loss))
    (expected,) = _functional(lambda w: ops.sum(_layer(_layer(_array(X), w), w)), W)
    for _ in range(2):
        np.testing.assert_allclose(run(_array(W)).numpy(), expected, rtol=1e-12)


def test_compiled_by_jax() -> None:
    import jax

    def step(w: Any) -> Any:
        def body(h: em.Tensor, w: em.Tensor) -> tuple[em.Tensor, None]:
            return checkpoint(_layer)(h, w), None

        def loss(w: em.Tensor) -> em.Tensor:
            return ops.sum(ops.scan(body, _array(X), w)[0])

        return grad(loss)(ops.asarray(w)).native

    with em.use_backend("jax"):
        stacked = np.stack([W, W.T])
        found = jax.jit(step)(stacked)
        expected = _functional(
            lambda a, b: ops.sum(_layer(_layer(_array(X), a), b)), stacked[0], stacked[1]
        )
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-12)


def test_compiled_by_mlx_and_traced_by_torch() -> None:
    import mlx.core as mx
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    def step(w: Any) -> Any:
        held = ops.asarray(w)
        return grad(lambda v: ops.sum(checkpoint(lambda h: _layer(h, v))(_array(X))))(held).native

    with em.use_backend("numpy"):
        (expected,) = _functional(lambda w: ops.sum(_layer(_array(X), w)), W)
    with em.use_backend("mlx"), mx.stream(mx.cpu):
        found = mx.compile(step)(mx.array(W, dtype=mx.float64))
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)
    with em.use_backend("torch"):
        traced = make_fx(step)(torch.from_numpy(W))
        np.testing.assert_allclose(traced(torch.from_numpy(W)).numpy(), expected, rtol=1e-12)


# --- What changes in between ----------------------------------------------------------------


def test_argument_written_to(backend: str) -> None:
    x = _array(X)
    w = _array(W, requires_grad=True)
    loss = ops.sum(checkpoint(ops.matmul)(x, w))
    x[0] = 9.0
    if backend in ("jax", "mlx"):  # arrays do not change: the record has the old ones
        loss.backward()
        _agree([w.grad.numpy()], [X.T @ np.ones_like(X)])
    else:
        with pytest.raises(RuntimeError):
            loss.backward()


def test_closed_over_tensor_written_to() -> None:
    with em.use_backend("numpy"):
        x = _array(X)
        w = _array(W, requires_grad=True)
        loss = ops.sum(checkpoint(lambda w: x @ w)(w))
        x[0] = 9.0
        with pytest.raises(em.GradientError, match="was written to"):
            loss.backward()


def test_result_may_be_written_to() -> None:
    with em.use_backend("numpy"):
        w = _array(W, requires_grad=True)
        out = checkpoint(ops.exp)(w)
        loss = ops.sum(out)
        out.detach().native[...] = 0.0
        loss.backward()
        _agree([w.grad.numpy()], [np.exp(W)])


def test_function_that_changes_its_mind(backend: str) -> None:
    turns: list[int] = []

    def fickle(w: em.Tensor) -> Any:
        turns.append(1)
        return ops.exp(ops.exp(w)) if len(turns) == 1 else ops.exp(w).detach()

    if backend == "torch":
        match = "different number of tensors"
    else:
        match = "something else when it ran again"
    w = _array(W, requires_grad=True)
    loss = ops.sum(checkpoint(fickle)(w))
    with pytest.raises(RuntimeError, match=match):
        loss.backward()


def test_mlx_notices_that_other_tensors_are_used() -> None:
    turns: list[int] = []

    def loss(w: em.Tensor) -> em.Tensor:
        def fickle(x: em.Tensor) -> em.Tensor:
            turns.append(1)
            return x @ w if len(turns) > 1 else x * 2.0

        return ops.sum(checkpoint(fickle)(_array(X)))

    with em.use_backend("mlx"), pytest.raises(em.GradientError, match="did other things"):
        grad(loss)(_array(W))
    assert mlx_checkpointing._HERE.watch is None
    spec = _array(W).to_backend("mlx")._spec
    assert type(spec.kernels) is dict
    assert type(spec.whole) is dict


def test_error_in_the_function_leaves_nothing_behind(backend: str) -> None:
    def broken(x: em.Tensor) -> em.Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        grad(lambda x: checkpoint(broken)(x))(_array(X))
    test_arguments(backend, _functional)


# --- What is kept ---------------------------------------------------------------------------


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What goes must go by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_values_on_the_way_are_freed_at_once(backend: str) -> None:
    """Nothing that was computed inside lives on, in no cycle either."""
    inside: list[weakref.ref[Any]] = []

    def function(h: em.Tensor, w: em.Tensor) -> em.Tensor:
        middle = ops.exp(h @ w)
        inside.append(weakref.ref(middle.native))
        return ops.tanh(middle)

    x, w = _array(X), _array(W, requires_grad=True)
    out = checkpoint(function)(checkpoint(function)(x, w), w)
    if backend == "mlx":
        import mlx.core as mx

        mx.eval(out.native)
    assert [ref() for ref in inside] == [None, None]
    ops.sum(out).backward()
    assert [ref() for ref in inside] == [None] * 4


@pytest.mark.usefixtures("no_collector")
def test_arguments_and_function_are_freed_by_backward(backend: str) -> None:
    class Holder:
        def __call__(self, h: em.Tensor) -> em.Tensor:
            return ops.exp(h)

    holder, w = Holder(), _array(W, requires_grad=True)
    middle = w * 2.0
    kept = weakref.ref(middle.native)
    function = weakref.ref(holder)
    out = checkpoint(holder)(middle)
    del middle, holder
    if backend != "mlx":  # whose arrays are objects of Python as long as Python has them
        assert kept() is not None
    assert function() is not None
    loss = ops.sum(out)
    loss.backward()
    if backend == "torch":
        del out, loss  # torch keeps the record as long as its results
    assert kept() is None
    assert function() is None
    _agree([w.grad.numpy()], [2 * np.exp(2 * W)])


@pytest.mark.usefixtures("no_collector")
def test_a_result_that_is_dropped_frees_everything(backend: str) -> None:
    class Holder:
        def __call__(self, h: em.Tensor) -> em.Tensor:
            return ops.exp(h)

    holder, w = Holder(), _array(W, requires_grad=True)
    function = weakref.ref(holder)
    out = checkpoint(holder)(w * 2.0)
    del holder, out
    assert function() is None


@pytest.mark.parametrize("power", [2.0, 3.0, 4.0])
def test_second_derivatives_of_powers(power: float, backend: str) -> None:
    """The exponent is a number: that its own slope is NaN below zero is nobody's business."""
    cubed = checkpoint(lambda x: x**power)
    slope = grad(lambda x: ops.sum(cubed(x)))
    found = grad(lambda x: ops.sum(slope(x)))(ops.asarray([-1.5, 2.0]))
    wanted = power * (power - 1) * np.array([-1.5, 2.0]) ** (power - 2)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)
