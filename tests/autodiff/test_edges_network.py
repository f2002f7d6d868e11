"""Gradients of the parts of networks where engines differ by themselves: ties, zeros, nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import autodiff, ops
from ember_ml.errors import GradientError
from ember_ml.tensor.core import Tensor

pytestmark = pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "mlx"])


def _both(function: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """The gradients of the sum of what a function gives, by both ways, which must agree."""
    tensors = [ops.asarray(a, copy=True) for a in arrays]
    places = tuple(range(len(arrays)))
    by_function = autodiff.grad(lambda *xs: ops.sum(function(*xs)), argnums=places)(*tensors)
    needed = [Tensor(t, requires_grad=True) for t in tensors]
    ops.sum(function(*needed)).backward()
    for g, x in zip(by_function, needed, strict=True):
        assert x.grad is not None
        assert g.dtype is x.dtype
        assert g.shape == x.shape
        np.testing.assert_allclose(g.numpy(), x.grad.numpy(), rtol=1e-6, atol=1e-7)
    return [g.numpy() for g in by_function]


_TIED = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 0.0]).reshape(1, 1, 7)


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (lambda x: ops.max_pool1d(x, 3, 1), [1, 0, 0, 3, 1, 0, 0]),
        (lambda x: ops.max_pool1d(x, 3, 1, 0, 2), [0, 0, 0, 1, 2, 0, 0]),
        (lambda x: ops.max_pool1d(x, 3, 1, return_indices=True)[0], [1, 0, 0, 3, 1, 0, 0]),
        (lambda x: ops.adaptive_max_pool1d(x, 3), [1, 0, 0, 1, 1, 0, 0]),
    ],
)
def test_the_first_of_several_largest_has_the_gradient(
    backend: str, pool: Any, expected: list[int]
) -> None:
    """As in torch."""
    with em.use_backend(backend):
        (g,) = _both(pool, _TIED)
    np.testing.assert_array_equal(g.ravel(), expected)


def test_equal_values_over_two_axes(backend: str) -> None:
    """The first is the first row by row."""
    with em.use_backend(backend):
        (g,) = _both(lambda x: ops.max_pool2d(x, 3, 1, 1), np.zeros((1, 1, 4, 4)))
        (parts,) = _both(lambda x: ops.adaptive_max_pool2d(x, (2, 3)), np.zeros((1, 1, 4, 4)))
    expected = [[4, 2, 2, 0], [2, 1, 1, 0], [2, 1, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(g[0, 0], expected)
    assert parts[0, 0].tolist() == [[1, 1, 1, 0], [0] * 4, [1, 1, 1, 0], [0] * 4]


def test_nan_does_not_lose_a_window(backend: str) -> None:
    """Each window hands its gradient on, also where a value is NaN."""
    x = np.array([[[1.0, np.nan, 2.0, 3.0]]])
    with em.use_backend(backend):
        g = autodiff.grad(lambda x: ops.sum(ops.max_pool1d(x, 2)[..., 1:]))(ops.asarray(x))
    np.testing.assert_array_equal(g.numpy(), [[[0, 0, 0, 1]]])


def test_a_query_that_sees_nothing(backend: str) -> None:
    """Its result is zero, and so are its gradients: no NaN."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 3, 4)) for _ in range(3))
    mask = np.array([[True, False, True], [False] * 3, [True] * 3])
    with em.use_backend(backend):

        def attend(q: Any, k: Any, v: Any) -> Any:
            return ops.scaled_dot_product_attention(q, k, v, ops.asarray(mask))

        gq, gk, gv = _both(attend, q, k, v)

        def added(q: Any, k: Any, v: Any) -> Any:
            numbers = np.where(mask, 0.0, -np.inf)
            return ops.scaled_dot_product_attention(q, k, v, ops.asarray(numbers))

        again = _both(added, q, k, v)
    assert not gq[:, 1].any()
    for g, other in zip((gq, gk, gv), again, strict=True):
        assert np.isfinite(g).all()
        np.testing.assert_allclose(g, other, atol=1e-12)


def test_attention_twice(backend: str) -> None:
    """Second derivatives, for which torch takes another kernel; recorded, it cannot know before."""
    x = np.random.default_rng(3).normal(size=(1, 2, 3, 4))

    def slope(x: Any) -> Any:
        def inner(x: Any) -> Any:
            return ops.sum(ops.scaled_dot_product_attention(x, x, x, is_causal=True) ** 3)

        return ops.sum(autodiff.grad(inner)(x) ** 2)

    with em.use_backend("numpy"):
        expected = autodiff.grad(slope)(ops.asarray(x)).numpy()
    with em.use_backend(backend):
        found = autodiff.grad(slope)(ops.asarray(x))
        if backend == "torch":
            given = em.Tensor(x, requires_grad=True)
            attended = ops.scaled_dot_product_attention(given, given, given, is_causal=True)
            with pytest.raises(GradientError, match=r"ops\.scaled_dot_product_attention.*MATH"):
                ops.sum(attended**3).backward(create_graph=True)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-8)


def test_constant_rows(backend: str) -> None:
    """A variance of zero is kept from the root by eps."""
    x = np.full((2, 4), 3.0)
    with em.use_backend(backend):
        for norm in (ops.layer_norm, lambda x: ops.batch_norm(x, None, None, training=True)[0]):
            (g,) = _both(lambda x, norm=norm: norm(x) * ops.arange(4, dtype="float64"), x)
            assert np.isfinite(g).all()


def test_a_vector_of_zeros(backend: str) -> None:
    """Its norm has no slope: as if it were divided by eps alone."""
    with em.use_backend(backend):
        (g,) = _both(lambda x: ops.normalize(x, eps=0.5), np.zeros((1, 3)))
    np.testing.assert_allclose(g, np.full((1, 3), 2.0))


def test_running_values_have_no_gradient(backend: str) -> None:
    """In training, nothing depends on the running values that were given, nor they on the batch."""
    rng = np.random.default_rng(1)
    x, weight = rng.normal(size=(4, 2)), rng.normal(size=2)
    with em.use_backend(backend):
        zero, one = ops.zeros(2, dtype="float64"), ops.ones(2, dtype="float64")

        def train(x: Any, w: Any) -> Any:
            y, mean, variance = ops.batch_norm(x, zero, one, w, training=True)
            return ops.sum(y * y * y) + ops.sum(mean) + ops.sum(variance)

        def alone(x: Any, w: Any) -> Any:
            return ops.sum(ops.batch_norm(x, zero, one, w, training=True)[0] ** 3)

        tensors = ops.asarray(x), ops.asarray(weight)
        got = autodiff.grad(train, argnums=(0, 1))(*tensors)
        wanted = autodiff.grad(alone, argnums=(0, 1))(*tensors)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy(), atol=1e-10)


@pytest.mark.parametrize("shape", [(0, 2, 6), (2, 0, 6)])
def test_nothing(backend: str, shape: tuple[int, ...]) -> None:
    """Gradients of empty batches are empty, and those of weights are zeros."""
    with em.use_backend(backend):
        x = np.zeros(shape)
        for op in (
            lambda x: ops.max_pool1d(x, 2),
            lambda x: ops.avg_pool1d(x, 2),
            lambda x: ops.adaptive_max_pool1d(x, 4),
            lambda x: ops.resize(x, 9, method="linear"),
            ops.layer_norm,
        ):
            (g,) = _both(op, x)
            assert g.shape == shape
        if shape[1]:
            gx, gw, gb = _both(ops.conv1d, x, np.ones((3, 2, 2)), np.ones(3))
            assert gx.shape == shape
            assert not gw.any()
            assert not gb.any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["conv", "layer_norm", "attention"])
def test_half_precision(backend: str, dtype: str, name: str) -> None:
    """Gradients keep a 16-bit dtype, and are computed in float32 on the way."""
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(2, 4, 6)), rng.normal(size=(4, 2, 3) if name == "conv" else (6,))
    factors = rng.uniform(0.5, 1.5, (2, 4, 6))

    def loss(x: Any, w: Any) -> Any:
        if name == "conv":
            y = ops.conv1d(x, w, groups=2, padding=1)
        elif name == "layer_norm":
            y = ops.layer_norm(x, None, w)
        else:
            y = ops.scaled_dot_product_attention(x * w, x, x, is_causal=True)
        return ops.sum(y * ops.asarray(factors, dtype=y.dtype))

    with em.use_backend(backend):
        exact = autodiff.grad(loss, argnums=(0, 1))(ops.asarray(x), ops.asarray(w))
        given = [ops.astype(ops.asarray(a, dtype="float32"), dtype) for a in (x, w)]
        found = autodiff.grad(loss, argnums=(0, 1))(*given)
        needed = [Tensor(t, requires_grad=True) for t in given]
        loss(*needed).backward()
        error = 0.004 if dtype == "float16" else 0.03
        for e, f, n in zip(exact, found, needed, strict=True):
            assert n.grad is not None
            for one in (f, n.grad):
                assert one.dtype == dtype
                got = ops.astype(one, "float32").numpy()
                np.testing.assert_allclose(got, e.numpy(), atol=error * np.abs(e.numpy()).max())


# --- Losses and draws -------------------------------------------------------------------------


def test_impossible_classes_count_for_nothing(backend: str) -> None:
    """A logit of -inf whose target is zero gives no NaN."""
    logits = np.array([[0.5, -np.inf, 1.0]])
    truth = np.array([[0.25, 0.0, 0.75]])
    with em.use_backend(backend):
        (g,) = _both(lambda x: ops.losses.cross_entropy(x, ops.asarray(truth)), logits)
        (hard,) = _both(lambda x: ops.losses.cross_entropy(x, ops.asarray([2])), logits)
    chances = np.exp(logits - 1.0) / np.exp(logits - 1.0).sum()
    np.testing.assert_allclose(g, chances - truth, atol=1e-12)
    np.testing.assert_allclose(hard, chances - [[0, 0, 1]], atol=1e-12)


def test_ignored_classes_have_no_gradient(backend: str) -> None:
    """Nor do they count in the mean."""
    logits = np.array([[0.5, -0.5], [1.0, 2.0], [0.25, 0.0]])
    with em.use_backend(backend):
        classes = ops.asarray([0, -100, 1])
        (g,) = _both(lambda x: ops.losses.cross_entropy(x, classes), logits)
    assert not g[1].any()
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(g[[0, 2]], (chances - [[1, 0], [0, 0], [0, 1]])[[0, 2]] / 2)


def test_a_sequence_that_cannot_be(backend: str) -> None:
    """zero_infinity makes the loss of a target that is too long zero, and its gradient."""
    logs = np.log(np.full((2, 2, 3), 1 / 3))
    with em.use_backend(backend):

        def loss(x: Any) -> Any:
            return ops.losses.ctc(x, [[1, 2, 1], [1, 1, 1]], [2, 2], [3, 1], zero_infinity=True)

        (g,) = _both(loss, logs)
    assert np.isfinite(g).all()
    assert not g[:, 0].any()
    assert g[:, 1].any()


@pytest.mark.parametrize("name", ["normal", "laplace", "gumbel", "uniform", "truncated_normal"])
@pytest.mark.parametrize("keyed", [False, True])
def test_draws_follow_their_parameters(backend: str, name: str, keyed: bool) -> None:
    """They are drawn without parameters, then moved and stretched."""
    low, width = np.array([0.5, -1.0]), np.array([1.0, 2.0])
    draw = getattr(ops.random, name)
    with em.use_backend(backend):

        def sample(a: Any, b: Any) -> Any:
            scope = ops.random.traced(ops.random.key(3)) if keyed else ops.random.use_seed(3)
            with scope:
                return draw((3, 2), a, a + b if name == "uniform" else b)

        ga, gb = _both(sample, low, width)
        drawn = sample(ops.asarray(low), ops.asarray(width)).numpy()
    np.testing.assert_allclose(ga, [3.0, 3.0])
    np.testing.assert_allclose(gb, ((drawn - low) / width).sum(0), rtol=1e-6)


def test_exponential_draws_follow_their_scale(backend: str) -> None:
    """As those of a location and a scale do."""
    with em.use_backend(backend):

        def sample(scale: Any) -> Any:
            with ops.random.use_seed(3):
                return ops.random.exponential((3, 2), scale)

        scale = np.array([1.0, 2.0])
        (g,) = _both(sample, scale)
        drawn = sample(ops.asarray(scale)).numpy()
    np.testing.assert_allclose(g, (drawn / [1.0, 2.0]).sum(0), rtol=1e-6)


@pytest.mark.parametrize("name", ["shuffle", "permutation"])
def test_a_shuffle_hands_gradients_back(backend: str, name: str) -> None:
    """To the places that the elements came from."""
    x = np.arange(5.0)
    with em.use_backend(backend):

        def moved(x: Any) -> Any:
            with ops.random.use_seed(4):
                return getattr(ops.random, name)(x) * ops.arange(5, dtype="float64")

        (g,) = _both(moved, x)
        with ops.random.use_seed(4):
            order = getattr(ops.random, name)(ops.asarray(x)).numpy().astype(int)
    assert g[order].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gamma", {}),
        ("beta", {}),
        ("poisson", {"dtype": "float64"}),
        ("bernoulli", {"dtype": "float64"}),
        ("binomial", {"dtype": "float64"}),
    ],
)
def test_draws_without_gradients_say_so(backend: str, name: str, options: dict[str, Any]) -> None:
    """And tell the way out, which works."""
    draw = getattr(ops.random, name)

    def sample(p: Any) -> Any:
        given = (3, p) if name == "binomial" else (p,)
        return ops.sum(draw((2,), *given, **options) * p)

    with em.use_backend(backend):
        p = ops.asarray([0.25, 0.5])
        with pytest.raises(GradientError, match=rf"ops\.random\.{name} has no gradient.*detach"):
            autodiff.grad(sample)(p)
        needed = Tensor(p, requires_grad=True)
        with pytest.raises(GradientError, match=rf"ops\.random\.{name} has no gradient.*detach"):
            sample(needed).backward()
        with em.no_grad():
            assert sample(needed).shape == ()
        given = (3, needed.detach()) if name == "binomial" else (needed.detach(),)
        drawn = draw((2,), *given, **options)
        ops.sum(drawn * needed).backward()
        assert needed.grad is not None
        np.testing.assert_allclose(needed.grad.numpy(), drawn.numpy(), rtol=1e-6)


def test_whole_numbers_take_any_parameter(backend: str) -> None:
    """Integers have no gradient, so that a draw of them is a constant."""
    with em.use_backend(backend):

        def sample(rate: Any) -> Any:
            with ops.random.use_seed(5):
                return rate * ops.random.poisson((3,), rate)

        (g,) = _both(sample, np.array([1.0, 2.0, 3.0]))
        with ops.random.use_seed(5):
            drawn = ops.random.poisson((3,), ops.asarray([1.0, 2.0, 3.0])).numpy()
    np.testing.assert_allclose(g, drawn)


def test_relu_chooses(backend: str) -> None:
    """An infinite gradient of what relu cut off is not NaN: it is none."""
    by_division = em.grad(lambda x: ops.sum(1.0 / ops.relu(x)))
    by_root = em.grad(lambda x: ops.sum(ops.sqrt(ops.relu(x))))
    assert by_division(ops.asarray([0.0, 1.0, -2.0])).tolist() == [0.0, -1.0, 0.0]
    assert by_root(ops.asarray([-1.0, 4.0])).tolist() == [0.0, 0.25]
    at_nan = em.grad(lambda x: ops.sum(ops.relu(x) * 3.0))(ops.asarray([float("nan"), 1.0]))
    assert at_nan.tolist() == [3.0, 3.0]
    twice = em.grad(lambda x: ops.sum(em.grad(lambda y: ops.sum(ops.relu(y) ** 3.0))(x)))
    np.testing.assert_allclose(twice(ops.asarray([-1.0, 2.0])).numpy(), [0.0, 12.0])
