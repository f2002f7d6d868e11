"""Blocks against torch's transformer layers, decoding by blocks, and nn.Model."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.errors import DomainError, NotFittedError
from ember_ml.nn import Model, tensor
from ember_ml.nn.layers import blocks, channel_mixing, sequence_mixing

Array = np.ndarray[Any, Any]
SIZE, HEADS, INNER, BATCH, LENGTH = 8, 2, 12, 2, 4
PADDING = np.array([[True, True, True, False], [True, True, True, True]])


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


class Twin(NamedTuple):
    """A layer of torch: its weights, its result, and gradients of the sum of squares."""

    state: dict[str, Array]
    result: Array
    grads: dict[str, Array]


@lru_cache
def twin(kind: str, norm_first: bool, activation: str) -> Twin:
    import torch

    torch.manual_seed(0)
    options: dict[str, Any] = {
        "dim_feedforward": INNER,
        "dropout": 0.0,
        "activation": activation,
        "batch_first": True,
        "norm_first": norm_first,
    }
    x = torch.from_numpy(drawn(BATCH, LENGTH, SIZE)).double()
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    if kind.startswith("encoder"):
        made: Any = torch.nn.TransformerEncoderLayer(SIZE, HEADS, **options)
        if kind == "encoders":
            made = torch.nn.TransformerEncoder(
                made, 2, torch.nn.LayerNorm(SIZE), enable_nested_tensor=False
            )
    else:
        made = torch.nn.TransformerDecoderLayer(SIZE, HEADS, **options)
    made = made.double()
    for p in made.parameters():  # norms that do something
        p.data += 0.1 * torch.randn_like(p)
    if kind.startswith("encoder"):
        y = made(x, src_key_padding_mask=torch.from_numpy(~PADDING))
    else:
        memory = torch.from_numpy(drawn(BATCH, 3, SIZE, seed=1)).double()
        y = made(x, memory, tgt_mask=later)
    (y * y).sum().backward()
    state = {name: value.float().numpy().copy() for name, value in made.state_dict().items()}
    grads = {name: p.grad.numpy() for name, p in made.named_parameters()}
    return Twin(state, y.detach().numpy(), grads)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("kind", ["encoder", "encoders", "decoder"])
def test_blocks_are_those_of_torch(kind: str, norm_first: bool, backend: str) -> None:
    activation = "relu" if norm_first else "gelu"
    expected = twin(kind, norm_first, activation)
    options: dict[str, Any] = {"norm_first": norm_first, "activation": activation}
    if kind == "encoder":
        model: nn.Module = blocks.TransformerEncoderBlock(SIZE, HEADS, INNER, **options)
    elif kind == "encoders":
        model = blocks.TransformerEncoder(2, SIZE, HEADS, INNER, final_norm=True, **options)
    else:
        model = blocks.TransformerDecoderBlock(SIZE, HEADS, INNER, **options)
    model.load_state_dict(blocks.from_torch_state(expected.state))
    given = (drawn(BATCH, LENGTH, SIZE), PADDING)
    if kind == "decoder":
        given = (drawn(BATCH, LENGTH, SIZE), drawn(BATCH, 3, SIZE, seed=1))

    def loss(m: nn.Module, x: Any, other: Any) -> Any:
        y = m(x, other)
        return ops.sum(y * y), y

    (_, y), grads = em.jit(em.value_and_grad(loss, has_aux=True))(
        model, *(ops.asarray(one) for one in given)
    )
    found, wanted = y.detach().numpy(), expected.result
    if kind != "decoder":  # rows of padding see others, and nobody reads them
        assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
    slopes = blocks.from_torch_state(expected.grads)
    for name, p in grads.named_parameters():
        room = 2e-5 * max(1.0, float(np.abs(slopes[name]).max()))
        np.testing.assert_allclose(p.detach().numpy(), slopes[name], rtol=2e-4, atol=room)


# --- Decoding -------------------------------------------------------------------------------


def test_decoding_with_a_memory_equals_the_whole(backend: str) -> None:
    model = blocks.TransformerDecoder(2, SIZE, HEADS, INNER, norm="rms", rotary=True).eval()
    x, memory = drawn(BATCH, LENGTH, SIZE), ops.asarray(drawn(BATCH, 3, SIZE, seed=1))
    with em.no_grad():
        wanted = em.jit(lambda m, x, memory: m(x, memory))(model, ops.asarray(x), memory)
        kept = model.remember(memory)
        caches = model.make_caches(BATCH, LENGTH)

        @em.jit(state=[model, caches])
        def step(token: Any, kept: Any) -> Any:
            with em.no_grad():
                return model(token, kept, caches=caches)

        found = [step(ops.asarray(x[:, i : i + 1].copy()), kept) for i in range(LENGTH)]
    assert step.traces == 1
    assert [cache.length for cache in caches] == [LENGTH, LENGTH]
    np.testing.assert_allclose(
        np.concatenate([y.detach().numpy() for y in found], axis=1),
        wanted.detach().numpy(),
        rtol=2e-5,
        atol=2e-5,
    )


def test_an_encoder_with_a_causal_mask_decodes() -> None:
    with em.use_backend("torch"), em.no_grad():
        model = blocks.TransformerEncoder(2, SIZE, HEADS, INNER, causal=True).eval()
        x = drawn(BATCH, LENGTH, SIZE)
        caches = model.make_caches(BATCH, LENGTH)
        found = [model(x[:, i : i + 1], caches=caches) for i in range(LENGTH)]
        np.testing.assert_allclose(
            ops.concat(found, axis=1).numpy(), model(x).numpy(), rtol=2e-5, atol=2e-5
        )


def test_a_decoder_without_memory_refuses_one() -> None:
    block = blocks.TransformerDecoderBlock(SIZE, HEADS, cross_attention=False)
    with pytest.raises(DomainError, match="got a memory"):
        block(ops.ones((1, 2, SIZE)), ops.ones((1, 2, SIZE)))
    with pytest.raises(DomainError, match="takes no memory"):
        block.remember(ops.ones((1, 2, SIZE)))


# --- Choices --------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", blocks._MIXERS)
@pytest.mark.parametrize("norm_first", [True, False])
def test_hybrid_blocks_of_names_and_of_modules(sequence: str, norm_first: bool) -> None:
    with em.use_backend("numpy"), em.no_grad():
        named = blocks.HybridBlock(SIZE, sequence, "gated_mlp", norm="rms", norm_first=norm_first)
        made = blocks.HybridBlock(
            SIZE,
            blocks._MIXERS[sequence](SIZE),
            channel_mixing.GatedMLP(SIZE),
            norm="rms",
            norm_first=norm_first,
        )
        made.load_state_dict(named.state_dict())
        x = drawn(BATCH, LENGTH, SIZE)
        y = named(x, PADDING)
        np.testing.assert_array_equal(made(x, PADDING).numpy(), y.numpy())
        if hasattr(named.sequence_mixer, "initial_state"):
            again, state = named(x, PADDING, return_state=True)
            np.testing.assert_allclose(again.numpy(), y.numpy(), rtol=1e-5, atol=1e-6)
            assert named(x[:, :1], state=state).shape == (BATCH, 1, SIZE)


def test_choices_that_are_not_there() -> None:
    with pytest.raises(DomainError, match="mixer 'fourier'; there are attention"):
        blocks.HybridBlock(SIZE, "fourier")
    with pytest.raises(DomainError, match="made already"):
        blocks.HybridBlock(SIZE, nn.Identity(), sequence_options={"causal": True})
    with pytest.raises(DomainError, match="norm='batch'"):
        blocks.TransformerEncoderBlock(SIZE, norm="batch")


def test_dropout_of_blocks(backend: str) -> None:
    block = blocks.PreNormResidual(SIZE, nn.Identity(), dropout=0.5)
    x = ops.asarray(drawn(4, SIZE))
    with em.no_grad():
        ops.random.set_seed(1)
        added = (block(x) - x).numpy()
        plain = (block.eval()(x) - x).numpy()
    dropped = np.abs(added) < 1e-6
    assert dropped.any()
    assert not dropped.all()
    np.testing.assert_allclose(added[~dropped], 2 * plain[~dropped], atol=1e-5)


# --- nn.Model -------------------------------------------------------------------------------


class ModelConfig(NamedTuple):
    """As in the plan that this comes from."""

    hidden_size: int


class HybridModel(Model):
    """Model combining different layer types."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        config = ModelConfig(hidden_size)
        self.channel_mixer = channel_mixing.MLP(config.hidden_size)
        self.sequence_mixer = sequence_mixing.Attention(config.hidden_size)

    def forward(self, x: Any) -> Any:
        x = tensor.convert_to_tensor(x)
        x = self.channel_mixer(x)
        return self.sequence_mixer(x)


def test_hybrid_model(backend: str, tmp_path: Path) -> None:
    model = HybridModel(SIZE)
    x = drawn(5, LENGTH, SIZE)
    model.train()
    y = model.predict(x, batch_size=2)
    assert (y.shape, y.backend, y.requires_grad) == ((5, LENGTH, SIZE), backend, False)
    assert model.training
    np.testing.assert_allclose(y.numpy(), model.predict(x, None).numpy(), rtol=1e-5, atol=1e-6)
    model.save(tmp_path / "hybrid")
    again = HybridModel.load(tmp_path / "hybrid")
    np.testing.assert_allclose(again.predict(x, 2).numpy(), y.numpy(), rtol=1e-6, atol=1e-7)


def test_predict_takes_trees(backend: str) -> None:
    class Both(Model):
        def __init__(self) -> None:
            self.layer = nn.Linear(2, 2)
            self.dropout = nn.Dropout(0.5)

        def forward(self, x: Any, shift: Any) -> Any:
            return {"y": self.dropout(self.layer(x)) + shift, "x": x}

    model = Both()
    x, shift = drawn(3, 2), drawn(3, 2, seed=1)
    by_place, by_name = model.predict((x, shift), 2), model.predict({"x": x, "shift": shift}, 2)
    assert by_place["y"].tolist() == by_name["y"].tolist()
    np.testing.assert_array_equal(by_place["x"].numpy(), x)
    with pytest.raises(DomainError, match="as many"):
        model.predict((x, shift[:2]))
    with pytest.raises(DomainError, match="batch_size=0"):
        model.predict((x, shift), 0)
    assert model.predict((x[:0], shift[:0]))["y"].shape == (0, 2)


def test_a_model_that_is_not_compiled(tmp_path: Path) -> None:
    model = HybridModel(SIZE)
    with pytest.raises(NotFittedError, match="compile"):
        model.fit([])
    with pytest.raises(NotFittedError, match="compile"):
        model.evaluate([])
    em.save(tmp_path / "other", nn.Linear(2, 2))
    with pytest.raises(DomainError, match="found Linear"):
        HybridModel.load(tmp_path / "other")


def test_state_dict_after_a_compiled_step_has_the_new_weights(backend: str) -> None:
    layer = nn.Linear(2, 1)
    before = layer.state_dict()["weight"].numpy().copy()

    @em.jit(state=layer)
    def step(x: Any) -> Any:
        with em.no_grad():
            for p in layer.parameters():
                p += 1.0
        return layer(x)

    y = step(ops.ones(2))
    kept = layer.state_dict()
    np.testing.assert_allclose(kept["weight"].numpy(), before + 1.0, rtol=1e-6)
    wanted = kept["weight"].numpy().sum() + kept["bias"].numpy()
    np.testing.assert_allclose(y.detach().numpy(), wanted, rtol=1e-5)
