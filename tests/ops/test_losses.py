"""Losses against torch in float64, their gradients, and what the conformance kit cannot say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import ops
from ember_ml.ops import losses

Loss = Callable[..., Any]
RNG = np.random.default_rng(7)
N, C, K = 6, 5, 3
REDUCTIONS = ("mean", "sum", "none")


def close(got: Any, wanted: Any) -> None:
    values = got.numpy() if isinstance(got, em.Tensor) else got
    np.testing.assert_allclose(values, np.asarray(wanted), rtol=1e-12, atol=1e-13)


# --- The oracle -----------------------------------------------------------------------------------

A, B = RNG.standard_normal((2, N, C))
POSITIVE = RNG.uniform(0.1, 3, (N, C))
PROBABILITIES = RNG.uniform(0.05, 0.95, (N, C))
TRUTH = (RNG.random((N, C)) < 0.5).astype(float)
SIDES = 2 * TRUTH - 1
WEIGHTS = RNG.uniform(0.5, 2, C)
CLASSES = np.array([0, 4, 2, 2, 1, 3])
SOME = np.array([0, -100, 2, 2, -100, 3])
VOLUME = RNG.standard_normal((N, C, K))
PLACES = RNG.integers(0, C, (N, K))
SOFT = RNG.dirichlet(np.ones(C), N)
SOFT_VOLUME = np.moveaxis(RNG.dirichlet(np.ones(C), (N, K)), -1, 1)

# name, our arguments, their arguments, our options, their function and options
ORACLE: dict[str, tuple[Loss, Loss, tuple[Any, ...], dict[str, Any], dict[str, Any]]] = {
    "mse": (losses.mse, F.mse_loss, (A, B), {}, {}),
    "mae": (losses.mae, F.l1_loss, (A, B), {}, {}),
    "huber": (losses.huber, F.huber_loss, (A, B), {"delta": 0.4}, {"delta": 0.4}),
    "smooth_l1": (losses.smooth_l1, F.smooth_l1_loss, (A, B), {"beta": 0.4}, {"beta": 0.4}),
    "smooth_l1-0": (losses.smooth_l1, F.smooth_l1_loss, (A, B), {"beta": 0.0}, {"beta": 0.0}),
    "bce": (losses.binary_crossentropy, F.binary_cross_entropy, (PROBABILITIES, TRUTH), {}, {}),
    "bce-logits": (
        losses.binary_crossentropy, F.binary_cross_entropy_with_logits, (A, TRUTH),
        {"from_logits": True, "weight": POSITIVE, "pos_weight": WEIGHTS},
        {"weight": torch.from_numpy(POSITIVE), "pos_weight": torch.from_numpy(WEIGHTS)},
    ),
    "cross_entropy": (losses.cross_entropy, F.cross_entropy, (A, CLASSES), {}, {}),
    "cross_entropy-weights": (
        losses.cross_entropy, F.cross_entropy, (A, SOME),
        {"weight": WEIGHTS, "label_smoothing": 0.1},
        {"weight": torch.from_numpy(WEIGHTS), "label_smoothing": 0.1},
    ),
    "cross_entropy-smoothed": (
        losses.cross_entropy, F.cross_entropy, (VOLUME, PLACES),
        {"label_smoothing": 0.3}, {"label_smoothing": 0.3},
    ),
    "cross_entropy-soft": (
        losses.cross_entropy, F.cross_entropy, (A, SOFT),
        {"weight": WEIGHTS, "label_smoothing": 0.1},
        {"weight": torch.from_numpy(WEIGHTS), "label_smoothing": 0.1},
    ),
    "cross_entropy-soft-volume": (
        losses.cross_entropy, F.cross_entropy, (VOLUME, SOFT_VOLUME), {}, {},
    ),
    "cross_entropy-one": (losses.cross_entropy, F.cross_entropy, (A[0], np.array(2)), {}, {}),
    "sparse": (
        losses.sparse_categorical_crossentropy, F.cross_entropy, (VOLUME, PLACES),
        {"from_logits": True, "axis": 1, "weight": WEIGHTS}, {"weight": torch.from_numpy(WEIGHTS)},
    ),
    "categorical": (
        losses.categorical_crossentropy, F.cross_entropy, (A, SOFT), {"from_logits": True}, {},
    ),
    "nll": (
        losses.nll, F.nll_loss, (np.log(SOFT), SOME), {"weight": WEIGHTS},
        {"weight": torch.from_numpy(WEIGHTS)},
    ),
    "kl_div": (losses.kl_div, F.kl_div, (A, np.where(TRUTH, SOFT, 0.0)), {}, {}),
    "kl_div-log": (losses.kl_div, F.kl_div, (A, B), {"log_target": True}, {"log_target": True}),
    "poisson": (losses.poisson_nll, F.poisson_nll_loss, (A, 4 * POSITIVE), {"full": True},
                {"full": True}),
    "poisson-rate": (losses.poisson_nll, F.poisson_nll_loss, (POSITIVE, POSITIVE),
                     {"log_input": False}, {"log_input": False}),
    "gaussian": (losses.gaussian_nll, F.gaussian_nll_loss, (A, B, POSITIVE - 0.1), {"full": True},
                 {"full": True}),
    "margin_ranking": (losses.margin_ranking, F.margin_ranking_loss, (A, B, SIDES),
                       {"margin": 0.2}, {"margin": 0.2}),
    "triplet": (losses.triplet, F.triplet_margin_loss, (A, B, POSITIVE), {}, {}),
    "triplet-swap": (losses.triplet, F.triplet_margin_loss, (A, B, POSITIVE),
                     {"p": 3.0, "swap": True, "margin": 2.0},
                     {"p": 3.0, "swap": True, "margin": 2.0}),
}  # fmt: skip


# torch announces that its "mean" will become "batchmean".
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ORACLE)
def test_torch_agrees(backend: str, name: str, reduction: str) -> None:
    ours, theirs, arrays, options, native = ORACLE[name]
    wanted = theirs(*map(torch.from_numpy, map(np.asarray, arrays)), **native, reduction=reduction)
    got = ours(*map(ops.asarray, arrays), **options, reduction=reduction)
    assert got.dtype is em.float64
    assert got.backend == backend
    close(got, wanted)


def test_batchmean(backend: str) -> None:
    wanted = F.kl_div(torch.from_numpy(A), torch.from_numpy(SOFT), reduction="batchmean")
    close(losses.kl_div(ops.asarray(A), ops.asarray(SOFT), reduction="batchmean"), wanted)


def test_cosine_agrees(backend: str) -> None:
    a, b = A.copy(), B.copy()
    a[0] = 0.0
    wanted = F.cosine_similarity(torch.from_numpy(a), torch.from_numpy(b), dim=0)
    close(losses.cosine_similarity(ops.asarray(a), ops.asarray(b), axis=0), wanted)
    rows = F.cosine_similarity(torch.from_numpy(a), torch.from_numpy(b))
    close(losses.cosine(ops.asarray(a), ops.asarray(b)), 1 - rows.mean())


@pytest.mark.parametrize("gamma", [0.0, 2.0])
def test_focal_is_its_formula(backend: str, gamma: float) -> None:
    right = np.where(TRUTH == 1, PROBABILITIES, 1 - PROBABILITIES)
    share = np.where(TRUTH == 1, 0.3, 0.7)
    wanted = -share * (1 - right) ** gamma * np.log(right)
    options: dict[str, Any] = {"gamma": gamma, "alpha": 0.3, "reduction": "none"}
    close(losses.focal(ops.asarray(PROBABILITIES), ops.asarray(TRUTH), **options), wanted)
    logits = np.log(PROBABILITIES / (1 - PROBABILITIES))
    got = losses.focal(ops.asarray(logits), ops.asarray(TRUTH), from_logits=True, **options)
    close(got, wanted)


def test_probabilities_and_logits_agree(backend: str) -> None:
    logits = ops.asarray(A)
    chances = np.exp(A) / np.exp(A).sum(-1, keepdims=True)
    for targets, loss in (
        (SOFT, losses.categorical_crossentropy),
        (CLASSES, losses.sparse_categorical_crossentropy),
    ):
        one = loss(logits, ops.asarray(targets), from_logits=True, label_smoothing=0.2)
        two = loss(ops.asarray(chances), ops.asarray(targets), label_smoothing=0.2)
        close(one, two.numpy())


# --- Gradients ------------------------------------------------------------------------------------

FLOWING = [name for name in ORACLE if name != "smooth_l1-0"]


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
@pytest.mark.parametrize("name", FLOWING)
def test_gradients_are_torch_s(name: str) -> None:
    ours, theirs, arrays, options, native = ORACLE[name]
    rest = [torch.from_numpy(np.asarray(a)) for a in arrays[1:]]
    leaf = torch.from_numpy(np.asarray(arrays[0])).requires_grad_()
    (wanted,) = torch.autograd.grad(theirs(leaf, *rest, **native), leaf)
    mine = leaf.detach().clone().requires_grad_()
    (got,) = torch.autograd.grad(ours(mine, *rest, **options).native, mine)
    close(got.numpy(), wanted)

    def value(x: Any) -> Any:
        return ours(x, *map(jnp.asarray, arrays[1:]), **options).native

    close(jax.jit(jax.grad(value))(jnp.asarray(arrays[0])), wanted)


@pytest.mark.parametrize("loss", [losses.cross_entropy, losses.nll])
def test_a_masked_place_has_no_gradient(loss: Loss) -> None:
    x = torch.from_numpy(A).clone().requires_grad_()
    loss(x, SOME).native.backward()
    assert x.grad is not None
    assert not x.grad[SOME == -100].any()
    assert x.grad[SOME != -100].any()


# --- Extremes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_logits(backend: str, dtype: str) -> None:
    x = ops.asarray([[1e4, -1e4], [-1e4, 1e4]], dtype=dtype)
    close(losses.cross_entropy(x, [0, 0], reduction="none"), [0.0, 2e4])
    targets = ops.asarray([[1.0, 1.0], [0.0, 0.0]], dtype=dtype)
    got = losses.binary_crossentropy(x, targets, from_logits=True, reduction="none")
    close(got, [[0.0, 1e4], [0.0, 1e4]])
    far = ops.asarray([1e4, -3e4], dtype=dtype)
    wanted = np.array([1e4, 3e4]) - np.log(2)
    np.testing.assert_allclose(
        losses.log_cosh(far, 0.0, reduction="none").numpy(), wanted, rtol=1e-6
    )


def test_small_errors_keep_their_log_cosh(backend: str) -> None:
    got = losses.log_cosh(ops.asarray([1e-4], dtype="float32"), [0.0]).item()
    assert got == pytest.approx(5e-9, rel=1e-5)


def test_impossible_classes_count_for_nothing(backend: str) -> None:
    x = ops.asarray([[0.0, float("-inf"), 0.0]])
    targets = ops.asarray([[0.5, 0.0, 0.5]])
    got = losses.categorical_crossentropy(x, targets, from_logits=True).item()
    assert got == pytest.approx(np.log(2))


def test_probabilities_of_zero_are_cut(backend: str) -> None:
    got = losses.binary_crossentropy(ops.asarray([0.0, 1.0]), [1.0, 0.0], reduction="none")
    np.testing.assert_allclose(got.numpy(), -np.log(1e-7), rtol=2e-2)  # 1 - 1e-7 in float32
    got = losses.categorical_crossentropy(ops.asarray([[0.0, 1.0]]), [[1.0, 0.0]])
    np.testing.assert_allclose(got.numpy(), -np.log(1e-7), rtol=1e-6)


def test_the_mean_of_nothing_is_nan(backend: str) -> None:
    empty = ops.zeros((0, 3))
    assert np.isnan(losses.mse(empty, empty).item())
    none = ops.zeros((0,), dtype="int64")
    assert np.isnan(losses.cross_entropy(empty, none).item())
    assert losses.cross_entropy(empty, none, reduction="sum").item() == 0
    assert np.isnan(losses.cross_entropy(ops.zeros((1, 3)), [-100]).item())


def test_two_backends() -> None:
    here, there = ops.ones(2), ops.ones(2).to_backend("torch")
    for loss in (losses.mse, losses.cosine, losses.kl_div, losses.binary_crossentropy):
        with pytest.raises(em.errors.BackendMismatchError, match=loss.__name__):
            loss(here, there)
    with pytest.raises(em.errors.BackendMismatchError, match="cross_entropy"):
        losses.cross_entropy(ops.ones((2, 2)), there.astype("int64"))


def test_aliases() -> None:
    assert losses.mean_squared_error is losses.mse
    assert losses.mean_absolute_error is losses.mae
    assert not hasattr(ops, "mse")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 30.0, 1000.0]))
def test_cross_entropy_is_at_least_the_entropy(seed: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    truth = generator.dirichlet(np.ones(4), 3)
    logits = scale * generator.standard_normal((3, 4))
    with em.use_backend("numpy"):
        cross = losses.cross_entropy(logits, truth, reduction="none").numpy()
    assert (cross >= -np.sum(truth * np.log(truth), -1) - 1e-9).all()


# --- CTC ------------------------------------------------------------------------------------------

T, BATCH, LETTERS, S = 12, 4, 6, 5
SPOKEN = RNG.standard_normal((T, BATCH, LETTERS))
SPOKEN -= np.log(np.exp(SPOKEN).sum(-1, keepdims=True))
WRITTEN = RNG.integers(1, LETTERS, (BATCH, S))
WRITTEN[0, :2] = 3  # a repeat needs a blank between
FRAMES = np.array([12, 9, 5, 12])
SIZES = np.array([5, 3, 5, 0])


def their_ctc(reduction: str, *, zero: bool = False) -> torch.Tensor:
    return F.ctc_loss(
        torch.from_numpy(SPOKEN), torch.from_numpy(WRITTEN), torch.from_numpy(FRAMES),
        torch.from_numpy(SIZES), reduction=reduction, zero_infinity=zero,
    )  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_ctc(backend: str, reduction: str) -> None:
    got = losses.ctc(ops.asarray(SPOKEN), WRITTEN, FRAMES, SIZES, reduction=reduction)
    close(got, their_ctc(reduction))


def test_ctc_of_sequences_one_after_another(backend: str) -> None:
    flat = np.concatenate([row[:size] for row, size in zip(WRITTEN, SIZES, strict=True)])
    got = losses.ctc(ops.asarray(SPOKEN), flat.tolist(), FRAMES.tolist(), SIZES.tolist())
    close(got, their_ctc("mean"))


def test_ctc_ignores_what_is_behind_a_sequence(backend: str) -> None:
    padded = np.where(np.arange(S) < SIZES[:, None], WRITTEN, -1)
    close(losses.ctc(ops.asarray(SPOKEN), padded, FRAMES, SIZES), their_ctc("mean"))


def test_ctc_of_one_sequence(backend: str) -> None:
    got = losses.ctc(ops.asarray(SPOKEN[:, 0]), WRITTEN[0], [12], [5], reduction="none")
    assert got.shape == ()
    close(got, their_ctc("none")[0])


def test_ctc_that_is_impossible(backend: str) -> None:
    args = (WRITTEN, [4, 4, 4, 0], [5, 2, 2, 0])
    got = losses.ctc(ops.asarray(SPOKEN), *args, reduction="none").numpy()
    assert np.isinf(got[0])
    assert np.isfinite(got[1:]).all()
    assert got[3] == 0
    close(losses.ctc(ops.asarray(SPOKEN), *args, reduction="none", zero_infinity=True),
          np.where(np.isinf(got), 0, got))  # fmt: skip


def test_ctc_takes_probabilities_of_zero(backend: str) -> None:
    certain = np.full((3, 1, 3), -np.inf)
    certain[:, :, 0] = 0.0
    assert losses.ctc(ops.asarray(certain), [[1]], [3], [0], reduction="sum").item() == 0
    assert losses.ctc(ops.asarray(certain), [[1]], [3], [1], reduction="sum").item() == np.inf


def test_ctc_gradients() -> None:
    raw = torch.from_numpy(SPOKEN).clone().requires_grad_()
    args = tuple(map(torch.from_numpy, (WRITTEN, FRAMES, SIZES)))
    loss = F.ctc_loss(torch.log_softmax(raw, -1), *args, zero_infinity=True)
    (wanted,) = torch.autograd.grad(loss, raw)
    ours = losses.ctc(torch.log_softmax(raw, -1), *args, zero_infinity=True)
    (got,) = torch.autograd.grad(ours.native, raw)
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), atol=1e-12)

    @jax.jit
    @jax.grad
    def slope(x: Any, targets: Any, frames: Any, sizes: Any) -> Any:
        logs = jax.nn.log_softmax(x, -1)
        return losses.ctc(logs, targets, frames, sizes, zero_infinity=True).native

    traced = slope(*map(jnp.asarray, (SPOKEN, WRITTEN, FRAMES, SIZES)))
    np.testing.assert_allclose(traced, wanted.numpy(), atol=1e-12)


def slopes(logs: np.ndarray[Any, Any], frames: Any, sizes: Any, labels: Any = WRITTEN) -> Any:
    """The gradient of the summed loss, by central differences of torch's own loss in float64."""

    def value(x: np.ndarray[Any, Any]) -> float:
        given = (torch.from_numpy(np.asarray(one)) for one in (x, labels, frames, sizes))
        return F.ctc_loss(*given, reduction="sum", zero_infinity=True).item()  # type: ignore[arg-type]  # of fixed length

    found, step = np.zeros_like(logs), 1e-6
    for place in np.ndindex(logs.shape):
        moved = logs.copy()
        moved[place] += step
        above = value(moved)
        moved[place] -= 2 * step
        found[place] = (above - value(moved)) / (2 * step)
    return found


def test_ctc_of_labels_that_are_blanks(backend: str) -> None:
    """What is heard in the last frame can only be the blank; torch's gradient forgets a part."""
    logs = ops.asarray(SPOKEN[:4, :1])

    def loss(x: em.Tensor) -> em.Tensor:
        return losses.ctc(x, [[4, 3, 0]], [4], [3], reduction="sum")

    found = em.grad(loss)(logs).numpy()
    np.testing.assert_allclose(found.sum(-1), -1, atol=1e-12)
    np.testing.assert_allclose(found[-1, 0], [-1, 0, 0, 0, 0, 0], atol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 40.0, -40.0])
def test_ctc_gradients_by_logarithms_as_they_are(backend: str, shift: float) -> None:
    """Also by some that are not normalised: torch's own loss takes them for what they are not."""
    wanted = slopes(SPOKEN, FRAMES, SIZES)
    logs = ops.asarray(SPOKEN + shift)

    def loss(x: em.Tensor) -> em.Tensor:
        return losses.ctc(x, WRITTEN, FRAMES, SIZES, reduction="sum", zero_infinity=True)

    np.testing.assert_allclose(em.grad(loss)(logs).numpy(), wanted, atol=1e-7)
    leaf = em.Tensor(SPOKEN + shift, requires_grad=True)
    loss(leaf).backward()
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad.numpy(), wanted, atol=1e-7)


def test_ctc_of_a_long_sequence_keeps_its_digits(backend: str) -> None:
    """In float32, logarithms of hundreds have few digits left for the parts of a place."""
    draw = np.random.default_rng(5)
    logs = draw.standard_normal((300, 2, 12))
    labels, frames, sizes = draw.integers(1, 12, (2, 40)), [300, 260], [40, 25]

    def loss(x: em.Tensor) -> em.Tensor:
        return losses.ctc(ops.log_softmax(x, axis=-1), labels, frames, sizes, reduction="sum")

    exact = em.grad(loss)(ops.asarray(logs, dtype=em.float64)).numpy()
    got = em.grad(loss)(ops.asarray(logs, dtype=em.float32)).numpy()
    assert np.abs(exact).max() > 0.5
    np.testing.assert_allclose(got, exact, atol=1e-5)


def test_ctc_is_differentiated_twice(backend: str) -> None:
    logs, labels = SPOKEN[:4, :1], [[1, 2]]

    def loss(x: em.Tensor) -> em.Tensor:
        return losses.ctc(x, labels, [4], [2], reduction="sum")

    got = em.hessian(loss)(ops.asarray(logs)).numpy()
    step, wanted = 1e-5, np.zeros_like(got)
    for place in np.ndindex(logs.shape):
        moved = np.zeros_like(logs)
        moved[place] = step
        above, below = (em.grad(loss)(ops.asarray(logs + way * moved)).numpy() for way in (1, -1))
        wanted[(..., *place)] = (above - below) / (2 * step)
    assert np.abs(wanted).max() > 0.05
    np.testing.assert_allclose(got, wanted, atol=1e-8)


def test_ctc_is_differentiated_twice_by_torch_itself() -> None:
    raw = torch.from_numpy(SPOKEN[:4, :1]).clone().requires_grad_()
    loss = losses.ctc(raw, [[1, 2]], [4], [2], reduction="sum").native
    (once,) = torch.autograd.grad(loss, raw, create_graph=True)
    (twice,) = torch.autograd.grad(once[1, 0, 1], raw)

    def ours(x: em.Tensor) -> em.Tensor:
        return losses.ctc(x, [[1, 2]], [4], [2], reduction="sum")

    with em.use_backend("numpy"):
        wanted = em.hessian(ours)(ops.asarray(SPOKEN[:4, :1])).numpy()[1, 0, 1]
    np.testing.assert_allclose(twice.numpy(), wanted, atol=1e-12)


def test_ctc_without_frames_labels_or_sequences(backend: str) -> None:
    logs = ops.asarray(SPOKEN)
    sizes = [0, 3, 0, 0]
    got = losses.ctc(logs, WRITTEN, [0, 0, 5, 1], sizes, reduction="none").numpy()
    np.testing.assert_allclose(got[:2], [0, np.inf])
    # Nothing but blanks.
    np.testing.assert_allclose(got[2:], [-SPOKEN[:5, 2, 0].sum(), -SPOKEN[0, 3, 0]])

    def loss(x: em.Tensor) -> em.Tensor:
        return losses.ctc(x, WRITTEN, [0, 0, 5, 1], sizes, reduction="sum", zero_infinity=True)

    wanted = np.zeros_like(SPOKEN)
    wanted[:5, 2, 0] = wanted[0, 3, 0] = -1
    np.testing.assert_allclose(em.grad(loss)(logs).numpy(), wanted, atol=1e-12)
    none = losses.ctc(logs[:, :0], np.zeros((0, 3), int), [], [], reduction="none")
    assert none.shape == (0,)
    assert none.dtype == em.float64
    blanks = losses.ctc(logs, np.zeros((4, 0), int), FRAMES, [0, 0, 0, 0], reduction="none")
    wanted = [-SPOKEN[:end, i, 0].sum() for i, end in enumerate(FRAMES)]
    np.testing.assert_allclose(blanks.numpy(), wanted)


def test_a_compiled_ctc_is_no_longer_for_more_frames() -> None:
    """JAX took minutes to compile a step of its own for each of a hundred frames."""

    def program(frames: int) -> str:
        def loss(x: Any) -> Any:
            return losses.ctc(x, [[1, 2]], [frames], [2], reduction="sum").native

        return str(jax.make_jaxpr(jax.grad(loss))(jnp.asarray(SPOKEN[:frames, :1])))

    assert program(12).count("= exp ") == program(5).count("= exp ") > 0


def test_ctc_cannot_tell_traced_sequences_apart() -> None:
    def loss(sizes: Any) -> Any:
        return losses.ctc(jnp.asarray(SPOKEN), jnp.ones(13, int), FRAMES, sizes).native

    with pytest.raises(em.errors.UnsupportedOpError, match="longest"):
        jax.jit(loss)(jnp.asarray(SIZES))


def test_ctc_is_a_distribution_over_texts(backend: str) -> None:
    """The probabilities of all texts that fit into two frames add up to one."""
    texts = [[], [1], [2], [1, 2], [2, 1]]  # [1, 1] needs a blank between
    logs = ops.asarray(np.log(RNG.dirichlet(np.ones(3), (2, 1))))
    total = sum(
        np.exp(-losses.ctc(logs, [text], [2], [len(text)], reduction="sum").item())
        for text in texts
    )
    assert total == pytest.approx(1, abs=1e-12)


# --- Rows of scores and a class for each, in one step ---------------------------------------------

ROWS = {"small": (6, 5), "1 row": (1, 3), "1 class": (4, 1), "long": (3, 5000), "many": (5000, 3)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_scores(rows: str, reduction: str, dtype: str, backend: str) -> None:
    generator = np.random.default_rng(3)
    scores = (generator.standard_normal(ROWS[rows]) * 4).astype(dtype)
    classes = generator.integers(0, ROWS[rows][1], len(scores))
    x, target = ops.asarray(scores), ops.asarray(classes)
    want = torch.from_numpy(scores.astype("float64")).requires_grad_()
    wanted = F.cross_entropy(want, torch.from_numpy(classes), reduction=reduction)
    wanted.sum().backward()
    close_to = (
        {"rtol": 1e-6, "atol": 2e-6} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-13}
    )
    for of_what in (x, x[::-1][::-1], ops.asarray(np.asfortranarray(scores))):
        got = losses.cross_entropy(of_what, target, reduction=reduction)
        assert (got.dtype, got.shape) == (dtype, tuple(wanted.shape))
        np.testing.assert_allclose(got.numpy(), wanted.detach().numpy(), **close_to)

    def loss(x: em.Tensor) -> em.Tensor:
        # Times three, since a gradient of one is a case by itself.
        return 3.0 * ops.sum(losses.cross_entropy(x, target, reduction=reduction))

    np.testing.assert_allclose(
        em.grad(loss)(x).numpy(), 3.0 * want.grad.numpy(), rtol=1e-5, atol=1e-6
    )
    leaf = ops.asarray(scores).requires_grad_()
    losses.cross_entropy(leaf, target, reduction=reduction).sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), want.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mistake", [-1, 5, 7])
def test_rows_of_scores_with_a_class_that_is_none(mistake: int, backend: str) -> None:
    x = ops.asarray(A.astype("float32"))
    with pytest.raises(em.OutOfBoundsError, match=f"class {mistake} "):
        losses.cross_entropy(x, ops.asarray([0, 1, mistake, 2, 3, 4]))


@pytest.mark.parametrize("reduction", ["average", "", 3, None])
def test_rows_of_scores_with_a_reduction_that_is_none(reduction: Any, backend: str) -> None:
    with pytest.raises(em.DomainError, match="reduction"):
        losses.cross_entropy(
            ops.asarray(A.astype("float32")), ops.asarray(CLASSES), reduction=reduction
        )


@pytest.mark.parametrize("ignored", [-100, 2])
def test_rows_of_scores_that_are_ignored(ignored: int, backend: str) -> None:
    """Also where the classes cannot be looked at, in a compiled function."""
    classes = np.where(CLASSES == 2, ignored, CLASSES)
    x, target = ops.asarray(A.astype("float32")), ops.asarray(classes)
    for reduction in REDUCTIONS:
        wanted = F.cross_entropy(
            torch.from_numpy(A),
            torch.from_numpy(classes),
            reduction=reduction,
            ignore_index=ignored,
        )

        def loss(x: em.Tensor, target: em.Tensor, how: str = reduction) -> em.Tensor:
            return losses.cross_entropy(x, target, ignore_index=ignored, reduction=how)

        for got in (loss(x, target), em.jit(loss)(x, target)):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-6, atol=1e-6)
