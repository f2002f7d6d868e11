"""The restricted Boltzmann machine: energies, gradients, chance, and training on digits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import models, ops
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops.random import Generator


def machine(visible: int = 5, hidden: int = 3, seed: int = 0) -> tuple[models.RBM, Any, Any, Any]:
    """A machine and its weights, drawn on the host."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(hidden, visible)).astype(np.float32)
    a, b = rng.normal(size=visible).astype(np.float32), rng.normal(size=hidden).astype(np.float32)
    rbm = models.RBM(visible=visible, hidden=hidden)
    rbm.load_state_dict({"weight": w, "visible_bias": a, "hidden_bias": b})
    return rbm, w.astype(np.float64), a.astype(np.float64), b.astype(np.float64)


def rows(count: int, size: int = 5, seed: int = 1) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(seed).random((count, size)) > 0.5).astype(np.float32)


def free_energy(v: Any, w: Any, a: Any, b: Any) -> Any:
    """By definition: -log of the sum over all hidden units of exp(-E)."""
    total = 0.0
    for h in itertools.product((0.0, 1.0), repeat=len(b)):
        total = total + np.exp(v @ a + np.asarray(h) @ b + v @ w.T @ np.asarray(h))
    return -np.log(total)


def test_free_energy_is_the_sum_over_hidden_units(backend: str) -> None:
    rbm, w, a, b = machine()
    v = rows(4)
    found = rbm.free_energy(v).detach()
    assert (found.shape, found.dtype.name, found.backend) == ((4,), "float32", backend)
    np.testing.assert_allclose(found.numpy(), free_energy(v, w, a, b), rtol=1e-5)
    h = rows(4, 3)
    expected = -(v @ a) - h @ b - np.sum((v @ w.T) * h, axis=1)
    np.testing.assert_allclose(rbm.energy(v, h).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_probabilities(backend: str) -> None:
    rbm, w, a, b = machine()
    v, h = rows(4), rows(4, 3)

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    def close(found: em.Tensor, expected: Any) -> None:
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-6)

    close(rbm.hidden_probabilities(v), sigmoid(v @ w.T + b))
    close(rbm(v), sigmoid(v @ w.T + b))
    close(rbm.visible_probabilities(h), sigmoid(h @ w + a))
    there = sigmoid(sigmoid(v @ w.T + b) @ w + a)
    close(rbm.reconstruct(v), there)
    assert rbm.reconstruction_error(v).item() == pytest.approx(np.mean((v - there) ** 2), rel=1e-5)


def test_scikit_learn_agrees() -> None:
    sk = pytest.importorskip("sklearn.neural_network")
    rbm, w, a, b = machine()
    twin = sk.BernoulliRBM(n_components=3)
    twin.components_, twin.intercept_visible_, twin.intercept_hidden_ = w, a, b
    v = rows(6).astype(np.float64)
    np.testing.assert_allclose(
        rbm.free_energy(v.astype(np.float32)).detach().numpy(), twin._free_energy(v), rtol=1e-5
    )
    np.testing.assert_allclose(
        rbm(v.astype(np.float32)).detach().numpy(), twin.transform(v), rtol=1e-5, atol=1e-7
    )


def test_gradients_against_finite_differences(backend: str) -> None:
    rbm, w, a, b = machine(3, 2)
    v = rows(4, 3)
    _, grads = em.value_and_grad(lambda m: ops.sum(m.free_energy(v)))(rbm)
    values = {"weight": w, "visible_bias": a, "hidden_bias": b}
    step = 1e-6
    for name, value in values.items():
        expected = np.zeros_like(value)
        for place in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = {**values, name: value.copy()}
                moved[name][place] += sign * step
                parts = (moved["weight"], moved["visible_bias"], moved["hidden_bias"])
                ends.append(free_energy(v.astype(np.float64), *parts).sum())
            expected[place] = (ends[0] - ends[1]) / (2 * step)
        found = dict(grads.named_parameters())[name].numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_contrastive_divergence_is_the_rule_of_hinton(backend: str) -> None:
    """Its gradient: what units do together by the model less by the data."""
    rbm, w, _, b = machine()
    v = rows(4)
    _, grads = em.value_and_grad(
        lambda m: m.contrastive_divergence(v, steps=2, generator=Generator(5))
    )(rbm)
    model = rbm.gibbs(v, 2, generator=Generator(5)).numpy()

    def together(x: Any) -> Any:
        return (1 / (1 + np.exp(-(x @ w.T + b)))).T @ x / len(x)

    np.testing.assert_allclose(
        grads.weight.numpy(), together(model) - together(v), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        grads.visible_bias.numpy(), model.mean(0) - v.mean(0), rtol=1e-4, atol=1e-6
    )


def test_draws_are_the_same_on_every_backend() -> None:
    found = []
    for name in ("numpy", "torch", "jax", "mlx"):
        with em.use_backend(name):
            rbm, *_ = machine()
            found.append(rbm.sample(6, steps=3, generator=Generator(2)))
            assert (found[-1].backend, found[-1].shape) == (name, (6, 5))
            assert set(np.unique(found[-1].numpy())) <= {0.0, 1.0}
    for other in found[1:]:
        np.testing.assert_array_equal(other.numpy(), found[0].numpy())


def test_samples_follow_the_model() -> None:
    """Of a machine of two and two units, all probabilities are known."""
    with em.use_backend("numpy"):
        rbm, w, a, b = machine(2, 2, seed=3)
        drawn = rbm.sample(20000, steps=30, generator=Generator(0)).numpy()
    every = np.asarray(list(itertools.product((0.0, 1.0), repeat=2)))
    weights = np.exp(-free_energy(every, w, a, b))
    shares = [np.mean(np.all(drawn == v, axis=1)) for v in every]
    # Four deviations of a share of 20,000 draws.
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=4 * np.sqrt(0.25 / 20000))


def test_training_on_digits(backend: str) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    images = (datasets.load_digits().data[:192] / 16 > 0.5).astype(np.float32)
    ops.random.set_seed(0)
    rbm = models.RBM(visible=64, hidden=24)
    before = rbm.reconstruction_error(images).item()
    errors = rbm.fit(images, epochs=3, batch_size=32, lr=0.2, generator=Generator(1))
    assert len(errors) == 3
    assert before == pytest.approx(0.25, abs=0.005)  # it begins with no idea
    assert errors[-1] < errors[0] < before
    assert errors[-1] < 0.13


def test_mistakes() -> None:
    with em.use_backend("numpy"):
        rbm = models.RBM(visible=4, hidden=2)
        with pytest.raises(DomainError, match="steps=0"):
            rbm.gibbs(rows(2, 4), 0)
        with pytest.raises(DomainError, match="batch_size=5 for 2 rows"):
            rbm.fit(rows(2, 4), batch_size=5)
        with pytest.raises(ShapeError, match=r"hidden=2\) got hidden units of shape \(2, 3\)"):
            rbm.visible_probabilities(rows(2, 3))
        assert rbm(np.ones((1, 4), int)).dtype.name == "float32"
