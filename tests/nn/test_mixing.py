"""Mixers of channels and tokens: what all of them keep, and the form that each must equal."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.errors import DomainError, ShapeError
from ember_ml.nn import layers
from ember_ml.nn.layers import base, blocks, channel_mixing, sequence_mixing

Array = np.ndarray[Any, Any]
SIZE, LENGTH, BATCH = 8, 5, 2
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=bool)

# How each is made, and whether it takes one mask of tokens as its second argument.
CASES: dict[str, Callable[[], nn.Module]] = {
    "Layer": base.Layer,
    "ChannelMixingLayer": base.ChannelMixingLayer,
    "SequenceMixingLayer": base.SequenceMixingLayer,
    "MLP": lambda: channel_mixing.MLP(SIZE),
    "MLP-relu": lambda: channel_mixing.MLP(SIZE, 12, activation="relu", bias=False, out_size=3),
    "GatedMLP": lambda: channel_mixing.GatedMLP(SIZE, 16),
    "GatedMLP-geglu": lambda: channel_mixing.GatedMLP(SIZE, 16, activation="geglu", bias=True),
    "MixtureOfExperts": lambda: channel_mixing.MixtureOfExperts(SIZE, 12, num_experts=4),
    "MixtureOfExperts-capacity": lambda: channel_mixing.MixtureOfExperts(
        SIZE, 12, num_experts=4, capacity_factor=1.0
    ),
    "Attention": lambda: sequence_mixing.Attention(SIZE),
    "Attention-rotary": lambda: sequence_mixing.Attention(
        SIZE, 4, num_kv_heads=2, causal=True, rotary=True, qk_norm=True
    ),
    "LinearAttention": lambda: sequence_mixing.LinearAttention(SIZE, 2, chunk_size=2),
    "LinearAttention-both": lambda: sequence_mixing.LinearAttention(SIZE, 2, causal=False),
    "StateSpaceMixer": lambda: sequence_mixing.StateSpaceMixer(SIZE, 4),
    "StateSpaceMixer-diagonal": lambda: sequence_mixing.StateSpaceMixer(SIZE, 4, kind="diagonal"),
    "StateSpaceMixer-scan": lambda: sequence_mixing.StateSpaceMixer(
        SIZE, 4, kind="diagonal", mode="scan"
    ),
    "LongConvolution": lambda: sequence_mixing.LongConvolution(SIZE, max_length=16),
    "RNNMixer": lambda: sequence_mixing.RNNMixer(SIZE, state_size=6),
    "RNNMixer-lstm": lambda: sequence_mixing.RNNMixer(SIZE, cell="lstm"),
    "PreNormResidual": lambda: blocks.PreNormResidual(SIZE, channel_mixing.MLP(SIZE, 12)),
    "TransformerEncoderBlock": lambda: blocks.TransformerEncoderBlock(SIZE, 2, 12),
    "TransformerDecoderBlock": lambda: _Decoder(
        blocks.TransformerDecoderBlock(SIZE, 2, 12, norm="rms", gated=True, activation="silu")
    ),
    "HybridBlock": lambda: blocks.HybridBlock(SIZE, "rnn", "gated_mlp", norm_first=False),
    "TransformerEncoder": lambda: blocks.TransformerEncoder(2, SIZE, 2, 12, norm="rms"),
    "TransformerDecoder": lambda: _Decoder(
        blocks.TransformerDecoder(1, SIZE, 2, 12, cross_attention=False)
    ),
    "MultiHeadAttention": lambda: _Pairs(nn.MultiHeadAttention(SIZE, 2, kdim=SIZE, vdim=SIZE)),
}


class _Decoder(nn.Module):
    """A decoder whose mask is the second argument."""

    def __init__(self, inner: nn.Module) -> None:
        self.inner = inner

    def forward(self, x: Any, mask: Any = None) -> Any:
        has_memory = getattr(self.inner, "cross_attention", None) is not None
        return self.inner(x, ops.flip(x, axis=1) if has_memory else None, mask=mask)


class _Pairs(_Decoder):
    """Attention whose mask of tokens has the axis of queries."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        return self.inner(x, mask=None if mask is None else ops.expand_dims(mask, axis=1))


def test_every_layer_has_a_case() -> None:
    there = {name for name in layers.__all__ if isinstance(getattr(layers, name), type)}
    tested = {name.partition("-")[0] for name in CASES} | {"RecurrentMixingLayer"}
    assert there - tested == set()


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def weights_of(name: str) -> dict[str, Array]:
    """Weights that are the same for a case everywhere, none of them zero."""
    model = CASES[name]()
    rng = np.random.default_rng(1)
    return {
        key: value.numpy() + 0.1 * rng.standard_normal(value.shape).astype(np.float32)
        for key, value in model.state_dict().items()
    }


def made(name: str, dtype: str = "float32") -> nn.Module:
    model = CASES[name]()
    model.load_state_dict(_weights(name))
    return model.to(dtype=dtype) if next(model.parameters(), None) is not None else model


@lru_cache
def _weights(name: str) -> dict[str, Array]:
    with em.use_backend("numpy"):
        return weights_of(name)


# The ops of these are those of the others as well; each op takes JAX a program of its own.
EAGER_ON_JAX = ("GatedMLP", "RNNMixer")


@lru_cache
def reference(name: str, masked: bool) -> tuple[Array, dict[str, Array]]:
    """Result and gradients in float64, by torch's autograd."""
    with em.use_backend("torch"):
        model = made(name, "float64")
        x = ops.asarray(drawn(BATCH, LENGTH, SIZE).astype(np.float64))
        mask = ops.asarray(MASK) if masked else None
        y = model(x, mask)
        if not list(model.parameters()):
            return y.numpy(), {}
        ops.sum(y * y).backward()
        grads = {key: p.grad.numpy() for key, p in model.named_parameters() if p.grad is not None}
        return y.detach().numpy(), grads


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, backend: str) -> None:
    model = made(name)
    x, mask = ops.asarray(drawn(BATCH, LENGTH, SIZE)), ops.asarray(MASK)
    whole, masked = reference(name, False)[0], reference(name, True)[0]
    expected = reference(name, True)[1]

    def loss(m: nn.Module, x: Any, mask: Any) -> Any:
        y = m(x, mask)
        return ops.sum(y * y), y

    def everything(m: nn.Module, x: Any, mask: Any) -> Any:
        if not expected:
            return m(x), m(x, mask), None
        (_, y), grads = em.value_and_grad(loss, has_aux=True)(m, x, mask)
        return m(x), y, dict(grads.named_parameters())

    # One program: JAX compiles what is called op by op anew for each op.
    plain, hidden, found = em.jit(everything)(model, x, mask)
    assert plain.dtype == hidden.dtype == "float32"
    assert plain.shape == hidden.shape == whole.shape
    np.testing.assert_allclose(plain.detach().numpy(), whole, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(hidden.detach().numpy(), masked, rtol=2e-5, atol=2e-5)
    for key, wanted in expected.items():
        close(found[key].detach().numpy(), wanted, f"{name} {key}")
    if backend == "jax" and name not in EAGER_ON_JAX:
        return
    with em.no_grad():
        eager = model(x, mask)
    np.testing.assert_allclose(eager.numpy(), masked, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", ["numpy", "mlx"])
def test_gradients_by_backward(name: str, engine: str) -> None:
    """On the record of our own; torch's is the reference, and JAX's ops have the same rules."""
    with em.use_backend(engine):
        model = made(name)
        y = model(ops.asarray(drawn(BATCH, LENGTH, SIZE)), ops.asarray(MASK))
        expected = reference(name, True)[1]
        if not expected:
            return
        ops.sum(y * y).backward()
        for key, p in model.named_parameters():
            if key in expected:
                close(p.grad.numpy(), expected[key], f"{name} {key}")


def close(found: Array, wanted: Array, what: str) -> None:
    room = 2e-5 * max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=room, err_msg=what)


@pytest.mark.parametrize("name", CASES)
def test_kept_copied_and_moved(name: str, tmp_path: Path) -> None:
    with em.use_backend("numpy"):
        model = made(name)
        x = ops.asarray(drawn(BATCH, LENGTH, SIZE))
        with em.no_grad():
            y = model(x).numpy()
            config = json.loads(json.dumps(model.get_config()))
            again = type(model).from_config(config)
            assert again.get_config() == config
            again.load_state_dict(model.state_dict())
            np.testing.assert_array_equal(again(x).numpy(), y)
            np.testing.assert_array_equal(copy.deepcopy(model)(x).numpy(), y)
            if list(model.parameters()):
                em.save(tmp_path / "model", model)
                np.testing.assert_array_equal(em.load(tmp_path / "model")(x).numpy(), y)
                model.to(backend="torch")
            moved = model(x.to(backend="torch"))
            assert moved.backend == "torch"
            np.testing.assert_allclose(moved.numpy(), y, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", [name for name in CASES if "Decoder" not in name])
def test_empty_batch(name: str) -> None:
    with em.use_backend("numpy"):
        out = made(name)(ops.zeros((0, LENGTH, SIZE)))
        assert out.shape[:2] == (0, LENGTH)


@pytest.mark.parametrize("name", ["GatedMLP", "Attention", "LongConvolution"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(name: str, dtype: str, backend: str) -> None:
    model = made(name, dtype)
    x = ops.asarray(drawn(BATCH, LENGTH, SIZE)).astype(dtype)
    y = (em.jit(lambda m, x: m(x)) if backend == "jax" else lambda m, x: m(x))(model, x).detach()
    assert y.dtype == dtype
    wanted = reference(name, False)[0]
    np.testing.assert_allclose(
        y.astype("float32").numpy(), wanted, atol=0.01 if dtype == "float16" else 0.08
    )


@pytest.mark.parametrize(
    "name", [name for name in CASES if name not in ("Layer", "ChannelMixingLayer")]
)
def test_wrong_sizes_are_told_by_the_layer(name: str) -> None:
    with em.use_backend("numpy"):
        model = CASES[name]()
        wrong = ops.ones((2, 3, SIZE + 1)) if name != "SequenceMixingLayer" else ops.ones((2, 3))
        with pytest.raises(ShapeError, match=r"got (a query of )?shape"):
            model(wrong)


# --- Masks ----------------------------------------------------------------------------------


RECURRENT = [name for name in CASES if name.startswith(("LinearAttention", "State", "RNN"))]
MIXERS = [*RECURRENT, "Attention", "Attention-rotary", "LongConvolution", "TransformerEncoder"]


@pytest.mark.parametrize("name", MIXERS)
def test_padding_behind_changes_nothing(name: str) -> None:
    with em.use_backend("numpy"):
        model = made(name)
        x = drawn(1, LENGTH, SIZE)
        with em.no_grad():
            short = model(ops.asarray(x[:, :3])).numpy()
            mask = ops.asarray([[True, True, True, False, False]])
            np.testing.assert_allclose(model(x, mask).numpy()[:, :3], short, atol=2e-6)


@pytest.mark.parametrize("name", ["LinearAttention", "RNNMixer", "RNNMixer-lstm", "Attention"])
def test_masked_tokens_are_as_if_they_were_not_there(name: str) -> None:
    with em.use_backend("numpy"):
        model = made(name)
        x = drawn(1, LENGTH, SIZE)
        with em.no_grad():
            kept = [0, 2, 4]
            short = model(ops.asarray(x[:, kept])).numpy()
            mask = ops.asarray([[1, 0, 1, 0, 1]])
            np.testing.assert_allclose(model(x, mask).numpy()[:, kept], short, atol=2e-6)


def test_masks_of_other_shapes(backend: str) -> None:
    layer = base.SequenceMixingLayer()
    x = ops.ones((2, 3, 2))
    by_tokens = layer(x, [[1, 0, 1], [1, 1, 0]])
    assert by_tokens.dtype == "float32"
    assert by_tokens[:, :, 0].tolist() == [[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    assert layer(x, ops.asarray([0.5, 2.0]))[0, 0].tolist() == [0.5, 2.0]
    assert layer(x, ops.ones((2, 3, 1), dtype="bool")).tolist() == x.tolist()
    with pytest.raises(ShapeError, match="mask of shape"):
        layer(x, ops.ones((2, 4)))


# --- State ----------------------------------------------------------------------------------


STATEFUL = [name for name in RECURRENT if "both" not in name]


@pytest.mark.parametrize("name", STATEFUL)
def test_steps_equal_the_sequence(name: str, backend: str) -> None:
    model = made(name)
    x = drawn(BATCH, LENGTH, SIZE)
    wanted = reference(name, False)[0]
    step = em.jit(lambda m, x, state: m.step(x, state))
    with em.no_grad():
        state = model.initial_state(BATCH)
        found = []
        for i in range(LENGTH):
            y, state = step(model, ops.asarray(x[:, i].copy()), state)
            found.append(y.detach().numpy())
        np.testing.assert_allclose(np.stack(found, axis=1), wanted, rtol=2e-5, atol=2e-5)
        assert step.traces == 1
        last, again = em.jit(lambda m, x: m(x, return_state=True))(model, ops.asarray(x))
        np.testing.assert_allclose(last.detach().numpy(), wanted, rtol=2e-5, atol=2e-5)
        for one, other in zip(em.tree.leaves(state), em.tree.leaves(again), strict=True):
            np.testing.assert_allclose(
                one.detach().numpy(), other.detach().numpy(), rtol=2e-5, atol=2e-5
            )


@pytest.mark.parametrize("name", STATEFUL)
@settings(max_examples=5, deadline=None)
@given(cut=st.integers(0, LENGTH))
def test_two_parts_equal_the_whole(name: str, cut: int) -> None:
    wanted = reference(name, False)[0]  # which takes gradients
    with em.use_backend("numpy"), em.no_grad():
        model = made(name)
        x = drawn(BATCH, LENGTH, SIZE)
        first, state = model(x[:, :cut], return_state=True)
        second = model(x[:, cut:], state=state)
        whole = ops.concat([first, second], axis=1).numpy()
        np.testing.assert_allclose(whole, wanted, rtol=2e-5, atol=2e-5)


# --- What each computes ---------------------------------------------------------------------


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def test_gated_mlp_is_its_formula() -> None:
    w = _weights("GatedMLP")
    x = drawn(BATCH, LENGTH, SIZE).astype(np.float64)
    wanted = (silu(x @ w["gate_proj.weight"].T) * (x @ w["up_proj.weight"].T)) @ w[
        "down_proj.weight"
    ].T
    np.testing.assert_allclose(reference("GatedMLP", False)[0], wanted, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 64])
def test_linear_attention_equals_its_quadratic_form(causal: bool, chunk: int) -> None:
    with em.use_backend("numpy"), em.no_grad():
        layer = sequence_mixing.LinearAttention(SIZE, 2, causal=causal, chunk_size=chunk, eps=0.0)
        layer.load_state_dict(_weights("LinearAttention"))
        layer.to(dtype="float64")
        x = drawn(BATCH, LENGTH, SIZE).astype(np.float64)

        def heads(linear: nn.Linear) -> Array:
            made = linear(ops.asarray(x)).numpy().reshape(BATCH, LENGTH, 2, 4)
            return made.transpose(0, 2, 1, 3)

        phi = [np.where(t > 0, t + 1, np.exp(t)) for t in map(heads, (layer.q_proj, layer.k_proj))]
        weights = phi[0] @ phi[1].swapaxes(-1, -2)
        if causal:
            weights = np.tril(weights)
        mixed = weights / weights.sum(-1, keepdims=True) @ heads(layer.v_proj)
        wanted = layer.out_proj(mixed.transpose(0, 2, 1, 3).reshape(x.shape)).numpy()
        np.testing.assert_allclose(layer(x).numpy(), wanted, rtol=1e-10, atol=1e-12)


def test_diagonal_state_space_is_a_convolution_and_a_recurrence() -> None:
    w = {key: value.astype(np.float64) for key, value in _weights("StateSpaceMixer-scan").items()}
    x = drawn(BATCH, LENGTH, SIZE).astype(np.float64)
    rate = -np.exp(w["A_log"])
    turn = np.exp(w["log_step"])[:, None] * rate
    entry = np.expm1(turn) / rate * w["B"]
    h = np.zeros((BATCH, SIZE, 4))
    found = []
    for t in range(LENGTH):
        h = np.exp(turn) * h + entry * x[:, t, :, None]
        found.append((w["C"] * h).sum(-1) + w["D"] * x[:, t])
    with em.use_backend("numpy"), em.no_grad():
        gelu = ops.gelu(ops.asarray(np.stack(found, axis=1))).numpy()
    wanted = gelu @ w["out_proj.weight"].T + w["out_proj.bias"]
    np.testing.assert_allclose(reference("StateSpaceMixer-scan", False)[0], wanted, atol=1e-10)
    with em.use_backend("numpy"), em.no_grad():
        layer = sequence_mixing.StateSpaceMixer(SIZE, 4, kind="diagonal", mode="convolution")
        layer.load_state_dict(_weights("StateSpaceMixer-scan"))
        layer.to(dtype="float64")
        np.testing.assert_allclose(layer(x).numpy(), wanted, atol=1e-10)


def test_selective_state_space_is_its_recurrence() -> None:
    w = {key: value.astype(np.float64) for key, value in _weights("StateSpaceMixer").items()}
    x = drawn(BATCH, LENGTH, SIZE).astype(np.float64)
    u, gate = np.split(x @ w["in_proj.weight"].T, 2, axis=-1)
    padded = np.concatenate([np.zeros((BATCH, 3, 16)), u], axis=1)
    u = silu(
        w["conv_bias"] + sum(padded[:, i : i + LENGTH] * w["conv_weight"][:, i] for i in range(4))
    )
    made = u @ w["x_proj.weight"].T
    step = np.log1p(np.exp(made[..., :1] @ w["dt_proj.weight"].T + w["dt_proj.bias"]))
    h = np.zeros((BATCH, 16, 4))
    found = []
    for t in range(LENGTH):
        decay = np.exp(step[:, t, :, None] * -np.exp(w["A_log"]))
        h = decay * h + (step * u)[:, t, :, None] * made[:, t, None, 1:5]
        found.append((h * made[:, t, None, 5:]).sum(-1) + w["D"] * u[:, t])
    wanted = (np.stack(found, axis=1) * silu(gate)) @ w["out_proj.weight"].T
    np.testing.assert_allclose(reference("StateSpaceMixer", False)[0], wanted, atol=1e-10)


def test_long_convolution_is_the_sum_over_distances() -> None:
    with em.use_backend("numpy"), em.no_grad():
        layer = made("LongConvolution", "float64")
        x = drawn(BATCH, LENGTH, SIZE).astype(np.float64)
        v, gate = np.split(layer.in_proj(x).numpy(), 2, axis=-1)
        kernel = layer.kernel(LENGTH).numpy()
        mixed = np.stack(
            [
                sum(kernel[t - s] * v[:, s] for s in range(t + 1)) + layer.skip.numpy() * v[:, t]
                for t in range(LENGTH)
            ],
            axis=1,
        )
        wanted = layer.out_proj(silu(gate) * mixed).numpy()
        np.testing.assert_allclose(layer(x).numpy(), wanted, atol=1e-10)
        rates = np.exp(layer.log_rate.numpy())
        assert (np.abs(layer.kernel(200).numpy()[-1]) <= np.exp(-rates * 199) * 1e3).all()


def test_min_gru_is_its_recurrence() -> None:
    w = {key: value.astype(np.float64) for key, value in _weights("RNNMixer").items()}
    x = drawn(BATCH, LENGTH, SIZE).astype(np.float64)
    z = 1 / (1 + np.exp(-(x @ w["gate_proj.weight"].T + w["gate_proj.bias"])))
    c = x @ w["candidate_proj.weight"].T + w["candidate_proj.bias"]
    h, found = np.zeros((BATCH, 6)), []
    for t in range(LENGTH):
        h = (1 - z[:, t]) * h + z[:, t] * c[:, t]
        found.append(h)
    wanted = np.stack(found, axis=1) @ w["out_proj.weight"].T + w["out_proj.bias"]
    np.testing.assert_allclose(reference("RNNMixer", False)[0], wanted, atol=1e-12)


# --- Experts --------------------------------------------------------------------------------


def test_experts_one_token_at_a_time() -> None:
    w = {key: value.astype(np.float64) for key, value in _weights("MixtureOfExperts").items()}
    x = drawn(BATCH, LENGTH, SIZE).astype(np.float64).reshape(-1, SIZE)
    shares = softmax(x @ w["router.weight"].T)
    wanted = np.zeros_like(x)
    for t, token in enumerate(x):
        best = np.argsort(-shares[t])[:2]
        for e in best:
            inner = silu(w["gate"][e] @ token) * (w["up"][e] @ token)
            wanted[t] += shares[t, e] / shares[t, best].sum() * (w["down"][e] @ inner)
    found = reference("MixtureOfExperts", False)[0].reshape(-1, SIZE)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_experts_with_room_for_all_are_those_without_a_limit(backend: str) -> None:
    layer = channel_mixing.MixtureOfExperts(SIZE, 12, num_experts=4, capacity_factor=2.0)
    layer.load_state_dict(_weights("MixtureOfExperts"))
    with em.no_grad():
        y, loss = em.jit(lambda m, x: m(x, return_loss=True))(
            layer, ops.asarray(drawn(BATCH, LENGTH, SIZE))
        )
    np.testing.assert_allclose(
        y.detach().numpy(), reference("MixtureOfExperts", False)[0], rtol=2e-5, atol=2e-5
    )
    assert 0.9 < loss.item() < 4.0


def test_experts_leave_out_what_exceeds_their_room() -> None:
    with em.use_backend("numpy"), em.no_grad():
        layer = channel_mixing.MixtureOfExperts(2, 4, num_experts=2, top_k=1, capacity_factor=1.0)
        layer.router.weight[...] = [[5.0, 0.0], [-5.0, 0.0]]  # every token goes to the first
        y, loss = layer(ops.ones((4, 2)), return_loss=True)
        assert (np.abs(y.numpy()).sum(-1) > 0).tolist() == [True, True, False, False]
        assert abs(loss.item() - 2.0) < 1e-3  # the worst load of two experts
        y, loss = layer(ops.ones((1, 4, 2)), mask=[[0, 0, 1, 1]], return_loss=True)
        assert (np.abs(y.numpy()[0]).sum(-1) > 0).tolist() == [False, False, True, True]
        assert abs(loss.item() - 2.0) < 1e-3


def test_experts_refuse_what_cannot_be() -> None:
    with pytest.raises(DomainError, match="top_k=3 of num_experts=2"):
        channel_mixing.MixtureOfExperts(4, num_experts=2, top_k=3)
    with pytest.raises(DomainError, match="capacity_factor"):
        channel_mixing.MixtureOfExperts(4, capacity_factor=0.0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sequence_mixing.LinearAttention(8, 3), "share the channels"),
        (lambda: sequence_mixing.LinearAttention(8, feature_map="cos"), "feature_map='cos'"),
        (lambda: sequence_mixing.LinearAttention(8, chunk_size=0), "chunk_size=0"),
        (lambda: sequence_mixing.StateSpaceMixer(8, kind="dense"), "kind='dense'"),
        (lambda: sequence_mixing.StateSpaceMixer(8, mode="fft"), "mode='fft'"),
        (lambda: sequence_mixing.StateSpaceMixer(8, mode="convolution"), "no convolution"),
        (lambda: sequence_mixing.StateSpaceMixer(8, 0), "state_size=0"),
        (lambda: sequence_mixing.StateSpaceMixer(8).kernel(3), "no kernel"),
        (lambda: sequence_mixing.LongConvolution(8, max_length=0), "max_length=0"),
        (lambda: sequence_mixing.RNNMixer(8, cell="qrnn"), "cell='qrnn'"),
        (lambda: sequence_mixing.RNNMixer(8, num_layers=2), "one layer"),
        (lambda: channel_mixing.MLP(8, dropout=1.5), "dropout=1.5"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(DomainError, match=said):
        make()


def test_dropout_of_an_mlp_is_in_training_only(backend: str) -> None:
    ops.random.set_seed(3)
    layer = channel_mixing.MLP(SIZE, 64, dropout=0.5)
    x = ops.ones((1, SIZE))
    with em.no_grad():
        assert layer(x).tolist() != layer(x).tolist()
        layer.eval()
        assert layer(x).tolist() == layer(x).tolist()


def test_attention_takes_one_kind_of_mask() -> None:
    with em.use_backend("numpy"), em.no_grad():
        layer = sequence_mixing.Attention(SIZE)
        x = ops.ones((1, 2, SIZE))
        with pytest.raises(DomainError, match="attention_mask alone"):
            layer(x, [[1, 1]], attention_mask=[[True, True]])
