"""MultiHeadAttention and KVCache: against torch, and step by step against the whole."""

from __future__ import annotations

import copy
import pickle
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.errors import (
    DomainError,
    DTypeError,
    GradientError,
    OutOfBoundsError,
    ShapeError,
)

Array = np.ndarray[Any, Any]
SIZE, HEADS, BATCH, LENGTH = 8, 2, 3, 5


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@lru_cache
def weights(kdim: int = SIZE, vdim: int = SIZE) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    found = {}
    for part, inner in (("q", SIZE), ("k", kdim), ("v", vdim), ("out", SIZE)):
        found[f"{part}_proj.weight"] = rng.normal(0, 0.5, (SIZE, inner)).astype(np.float32)
        found[f"{part}_proj.bias"] = rng.normal(0, 0.5, SIZE).astype(np.float32)
    return found


def ours(**options: Any) -> nn.MultiHeadAttention:
    layer = nn.MultiHeadAttention(SIZE, HEADS, **options)
    layer.load_state_dict(weights(options.get("kdim", SIZE), options.get("vdim", SIZE)))
    return layer.eval()


def theirs(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    padding: Array | None = None,
) -> tuple[Array, dict[str, Array]]:
    """The result of torch.nn.MultiheadAttention and gradients of the sum of its squares."""
    import torch

    w = weights(key.shape[-1], value.shape[-1])
    twin = torch.nn.MultiheadAttention(
        SIZE, HEADS, batch_first=True, kdim=key.shape[-1], vdim=value.shape[-1]
    ).double()
    joined = key.shape[-1] == SIZE == value.shape[-1]
    state = {
        "in_proj_bias": np.concatenate([w[f"{p}_proj.bias"] for p in "qkv"]),
        "out_proj.weight": w["out_proj.weight"],
        "out_proj.bias": w["out_proj.bias"],
    }
    if joined:
        state["in_proj_weight"] = np.concatenate([w[f"{p}_proj.weight"] for p in "qkv"])
    else:
        state |= {f"{p}_proj_weight": w[f"{p}_proj.weight"] for p in "qkv"}
    twin.load_state_dict({name: torch.from_numpy(a).double() for name, a in state.items()})
    y, _ = twin(
        *(torch.from_numpy(a).double() for a in (query, key, value)),
        attn_mask=None if mask is None else torch.from_numpy(mask),
        key_padding_mask=None if padding is None else torch.from_numpy(padding),
        need_weights=False,
    )
    (y * y).sum().backward()
    grads = {name: p.grad.numpy() for name, p in twin.named_parameters() if p.grad is not None}
    if joined:
        for place, part in enumerate("qkv"):
            rows = slice(place * SIZE, (place + 1) * SIZE)
            grads[f"{part}_proj.weight"] = grads["in_proj_weight"][rows]
    return y.detach().numpy(), grads


def close(x: Any, wanted: Array, atol: float = 1e-5) -> None:
    found = x.detach().numpy()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=atol)


# --- Against torch --------------------------------------------------------------------------


def test_self_attention_and_its_gradients(backend: str) -> None:
    x = drawn(BATCH, LENGTH, SIZE)
    wanted, grads = theirs(x, x, x)
    layer = ours()
    y = layer(x)
    assert y.dtype == "float32"
    assert y.backend == backend
    close(y, wanted)
    ops.sum(y * y).backward()
    for part in ("q", "k", "v", "out"):
        name = f"{part}_proj.weight"
        np.testing.assert_allclose(
            layer.get_parameter(name).grad.numpy(), grads[name], rtol=1e-4, atol=2e-4
        )
    _, found = em.jit(em.value_and_grad(lambda m, x: ops.sum(m(x) ** 2)))(layer, ops.asarray(x))
    np.testing.assert_allclose(
        found.q_proj.weight.numpy(), grads["q_proj.weight"], rtol=1e-4, atol=2e-4
    )


def test_cross_attention_of_other_sizes(backend: str) -> None:
    query, key, value = drawn(BATCH, 2, SIZE), drawn(BATCH, LENGTH, 6), drawn(BATCH, LENGTH, 4)
    layer = ours(kdim=6, vdim=4)
    wanted = theirs(query, key, value)[0]
    close(layer(query, key, value), wanted)
    memory = layer.remember(key, value)
    close(layer(query, cache=memory), wanted)
    close(em.jit(lambda m, q, kv: m(q, cache=kv))(layer, ops.asarray(query), memory), wanted)


@lru_cache
def masked(kind: str) -> tuple[Array, Array]:
    """A mask of a kind, and what torch makes of it."""
    x = drawn(BATCH, LENGTH, SIZE)
    rng = np.random.default_rng(3)
    if kind == "padding":
        mask = np.arange(LENGTH) < np.array([2, 5, 3])[:, None]
        return mask, theirs(x, x, x, padding=~mask)[0]
    if kind == "pairs":
        mask = rng.random((LENGTH, LENGTH)) < 0.6
        mask |= np.eye(LENGTH, dtype=bool)
        return mask, theirs(x, x, x, ~mask)[0]
    if kind == "added":
        mask = rng.normal(size=(LENGTH, LENGTH))
        return mask.astype(np.float32), theirs(x, x, x, mask)[0]
    mask = rng.random((BATCH, HEADS, LENGTH, LENGTH)) < 0.6
    mask |= np.eye(LENGTH, dtype=bool)
    if kind == "batched":
        mask = np.repeat(mask[:, :1], HEADS, axis=1)
    twin = theirs(x, x, x, ~mask.reshape(-1, LENGTH, LENGTH))[0]
    return (mask[:, 0] if kind == "batched" else mask), twin


@pytest.mark.parametrize("kind", ["padding", "pairs", "added", "batched", "heads"])
def test_masks(kind: str, backend: str) -> None:
    mask, wanted = masked(kind)
    x = ops.asarray(drawn(BATCH, LENGTH, SIZE))
    with em.no_grad():
        close(ours()(x, mask=ops.asarray(mask)), wanted)
    close(ours()(x, mask=mask), wanted)  # with gradients, by the other way


def test_causal(backend: str) -> None:
    x = drawn(BATCH, LENGTH, SIZE)
    wanted = theirs(x, x, x, ~np.tri(LENGTH, dtype=bool))[0]
    close(ours(causal=True)(x), wanted)
    close(ours()(x, is_causal=True), wanted)
    close(ours(causal=True)(x, is_causal=False), theirs(x, x, x)[0])


def test_a_query_that_sees_nothing_gives_the_bias(backend: str) -> None:
    mask = np.ones((BATCH, LENGTH, LENGTH), dtype=bool)
    mask[1, 2] = False
    y = ours()(drawn(BATCH, LENGTH, SIZE), mask=mask).detach().numpy()
    np.testing.assert_allclose(y[1, 2], weights()["out_proj.bias"], atol=1e-6)


def test_grouped_heads_are_repeated_heads(backend: str) -> None:
    x = drawn(BATCH, LENGTH, SIZE)
    layer = nn.MultiHeadAttention(SIZE, 4, num_kv_heads=2).eval()
    full = nn.MultiHeadAttention(SIZE, 4).eval()
    state = {name: value.numpy() for name, value in layer.state_dict().items()}
    for part in "kv":
        for kind in ("weight", "bias"):
            old = state[f"{part}_proj.{kind}"]
            heads = old.reshape(2, 2, *old.shape[1:])
            state[f"{part}_proj.{kind}"] = np.repeat(heads, 2, axis=0).reshape(-1, *old.shape[1:])
    full.load_state_dict(state)
    with em.no_grad():
        close(layer(x), full(x).numpy())


def test_rotary_is_that_of_llama(backend: str) -> None:
    x = drawn(1, LENGTH, SIZE)
    w = {name: value.astype(np.float64) for name, value in weights().items()}
    places = np.array([3, 4, 5, 9, 10])

    def heads(part: str) -> Array:
        made = x.astype(np.float64) @ w[f"{part}_proj.weight"].T + w[f"{part}_proj.bias"]
        return made.reshape(1, LENGTH, HEADS, 4).transpose(0, 2, 1, 3)

    angle = places[:, None] * 10000.0 ** (-np.arange(0, 4, 2) / 4)
    cosine, sine = (np.concatenate([f(angle)] * 2, axis=-1) for f in (np.cos, np.sin))

    def turned(t: Array) -> Array:
        half = np.concatenate([-t[..., 2:], t[..., :2]], axis=-1)  # rotate_half
        return t * cosine + half * sine

    scores = turned(heads("q")) @ turned(heads("k")).swapaxes(-1, -2) / 2
    share = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = share / share.sum(-1, keepdims=True) @ heads("v")
    out = mixed.transpose(0, 2, 1, 3).reshape(1, LENGTH, SIZE)
    wanted = out @ w["out_proj.weight"].T + w["out_proj.bias"]
    layer = ours(rotary=True)
    close(layer(x, positions=places), wanted)
    close(layer(x, positions=places[None]), wanted)


def test_rotary_depends_on_distances_only() -> None:
    with em.use_backend("numpy"), em.no_grad():
        layer, x = ours(rotary=True, rope_dims=2), drawn(1, LENGTH, SIZE)
        close(layer(x, positions=np.arange(LENGTH) + 100), layer(x).numpy())


def test_qk_norm_scales_heads() -> None:
    with em.use_backend("numpy"), em.no_grad():
        layer = nn.MultiHeadAttention(SIZE, HEADS, qk_norm=True, bias=False)
        assert "q_norm.weight" in layer.state_dict()
        x = drawn(1, LENGTH, SIZE)
        before = layer(x).numpy()
        layer.q_proj.weight *= 5.0  # the length of queries is normalised away
        close(layer(x), before)


# --- Dropout --------------------------------------------------------------------------------


def test_dropout_is_in_training_only(backend: str) -> None:
    x = drawn(1, LENGTH, SIZE)
    layer = ours(dropout=0.5, causal=True)
    with em.no_grad():
        wanted = layer(x)
        close(layer(x), wanted.numpy())
        layer.train()
        ops.random.set_seed(0)
        first, second = layer(x).numpy(), layer(x).numpy()
        assert not np.allclose(first, second)
        ops.random.set_seed(0)
        close(layer(x), first)
        layer.dropout = 1e-9  # what is left is attention as it is, by the explicit form
        close(layer(x), wanted.numpy(), atol=2e-6)
        mask = np.ones((1, LENGTH, LENGTH), dtype=bool)
        mask[0, 2] = False
        np.testing.assert_allclose(
            layer(x, mask=mask).numpy()[0, 2], weights()["out_proj.bias"], atol=1e-6
        )


def test_dropout_keeps_the_mean() -> None:
    with em.use_backend("numpy"), em.no_grad():
        layer = ours(dropout=0.3).train()
        x = drawn(1, LENGTH, SIZE)
        mean = np.mean([layer(x).numpy() for _ in range(3000)], axis=0)
        np.testing.assert_allclose(mean, layer.eval()(x).numpy(), atol=0.05)


# --- Decoding -------------------------------------------------------------------------------


def decoder() -> nn.MultiHeadAttention:
    layer = nn.MultiHeadAttention(SIZE, 4, num_kv_heads=2, causal=True, rotary=True)
    rng = np.random.default_rng(5)
    layer.load_state_dict(
        {
            name: rng.normal(0, 0.5, x.shape).astype(np.float32)
            for name, x in layer.state_dict().items()
        }
    )
    return layer.eval()


@lru_cache
def whole(rows: int = 2) -> Array:
    with em.use_backend("numpy"), em.no_grad():
        found: Array = (
            decoder().to(dtype="float64")(drawn(rows, LENGTH, SIZE).astype(np.float64)).numpy()
        )
        return found


def test_steps_equal_the_whole(backend: str) -> None:
    layer, x = decoder(), drawn(2, LENGTH, SIZE)
    cache = layer.make_cache(2, 8)
    assert (cache.keys.backend, cache.shape) == (backend, (2, 2, 8, 2))
    with em.no_grad():
        found = [layer(x[:, :2], cache=cache)]
        found += [layer(x[:, i : i + 1], cache=cache) for i in range(2, LENGTH)]
    assert cache.length == len(cache) == LENGTH
    close(ops.concat(found, axis=1), whole())


def test_one_trace_serves_all_steps(backend: str) -> None:
    layer, x = decoder(), ops.asarray(drawn(2, LENGTH, SIZE))
    cache = layer.make_cache(2, 8)

    @em.jit(state=[layer, cache])
    def step(token: Any) -> Any:
        with em.no_grad():
            return layer(token, cache=cache)

    with em.no_grad():
        found = [step(x[:, i : i + 1]) for i in range(LENGTH)]
        close(ops.concat(found, axis=1), whole())
        assert step.traces == 1
        # Compiled and eager steps take turns.
        cache.truncate(2)
        found[2:] = [layer(x[:, 2:4], cache=cache), step(x[:, 4:])]
    assert (cache.length, step.traces) == (LENGTH, 1)
    close(ops.concat(found, axis=1), whole())


def test_chunks_behind_others_are_causal(backend: str) -> None:
    layer, x = decoder(), drawn(2, LENGTH, SIZE)
    cache = layer.make_cache(2, LENGTH)
    with em.no_grad():
        found = [layer(x[:, :1], cache=cache), layer(x[:, 1:4], cache=cache)]
        found.append(layer(x[:, 4:], cache=cache))
    close(ops.concat(found, axis=1), whole())


def test_masks_with_a_cache(backend: str) -> None:
    """The first row has two tokens of padding before it."""
    layer, x = ours(causal=True), drawn(2, LENGTH, SIZE)
    seen = np.ones((2, 8), dtype=bool)
    seen[0, :2] = False
    with em.no_grad():
        wanted = layer(x, mask=seen[:, None, :LENGTH]).numpy()
        cache = layer.make_cache(2, 8)
        found = [layer(x[:, :3], mask=seen[:, :3], cache=cache)]
        found.append(layer(x[:, 3:4], mask=seen, cache=cache))
        added = np.where(seen, 0.0, -np.inf).astype(np.float32)
        found.append(layer(x[:, 4:], mask=added[:, :5], cache=cache))
    both = ops.concat(found, axis=1).numpy()
    np.testing.assert_allclose(both[:, 2:], wanted[:, 2:], rtol=1e-5, atol=1e-5)


def test_beams_are_reordered(backend: str) -> None:
    layer, x = decoder(), drawn(2, LENGTH, SIZE)
    cache = layer.make_cache(2, LENGTH)
    with em.no_grad():
        layer(x[:, :4], cache=cache)
        cache.reorder([1, 1])
        y = layer(x[[1, 1], 4:], cache=cache)
    close(y, whole()[[1, 1], 4:])


def test_cache_is_kept_moved_and_used_again(backend: str) -> None:
    layer, x = decoder(), drawn(2, LENGTH, SIZE)
    cache = layer.make_cache(2, LENGTH)
    with em.no_grad():
        layer(x[:, :4], cache=cache)
        twin = copy.deepcopy(cache)
        assert pickle.loads(pickle.dumps(cache)).length == 4
        close(layer(x[:, 4:], cache=cache), whole()[:, 4:])
        close(layer(x[:, 4:], cache=twin), whole()[:, 4:])
        twin.to(backend="numpy", dtype="float64").truncate(4)
        assert (twin.keys.backend, twin.keys.dtype, twin.length) == ("numpy", "float64", 4)
        cache.reset()
        assert cache.length == 0
        close(layer(x, cache=cache), whole())
    assert "length=5" in repr(cache)


def test_update_gives_what_is_there(backend: str) -> None:
    cache = nn.KVCache(1, 1, 2, 4)
    k = drawn(1, 1, 3, 2)
    keys, values = cache.update(ops.asarray(k), ops.asarray(2 * k))
    assert keys.shape == values.shape == (1, 1, 3, 2)
    np.testing.assert_array_equal(keys.numpy(), k)
    np.testing.assert_array_equal(values.numpy(), 2 * k)
    assert cache.mask(2).tolist() == [[True, True, False, False], [True, True, True, False]]
    assert cache.mask(2, causal=False).tolist() == [[True, True, True, False]]


# --- Mistakes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_heads": 3}, "share embed_dim evenly"),
        ({"num_heads": 0}, "share embed_dim evenly"),
        ({"num_heads": 4, "num_kv_heads": 3}, "num_kv_heads=3"),
        ({"num_heads": 2, "dropout": 1.0}, "dropout=1.0"),
        ({"num_heads": 8, "rotary": True}, "rope_dims=1"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DomainError, match=said):
        nn.MultiHeadAttention(SIZE, **options)


def test_wrong_inputs_are_told_by_the_layer(backend: str) -> None:
    layer, x = ours(), ops.ones((2, 2, SIZE))
    said = r"MultiHeadAttention\(embed_dim=8, num_heads=2\) got a "
    with pytest.raises(ShapeError, match=said + r"query of shape \(2, 8\)"):
        layer(x[0])
    with pytest.raises(ShapeError, match=said + r"key of shape \(2, 2, 7\)"):
        layer(x, ops.ones((2, 2, 7)))
    with pytest.raises(ShapeError, match="a value for each key"):
        layer(x, x, ops.ones((2, 3, SIZE)))
    with pytest.raises(ShapeError, match=r"mask\[:, None\] for the first"):
        layer(x, mask=ops.ones((2, 2), dtype="bool"))
    with pytest.raises(DTypeError, match="mask of"):
        layer(x, mask=ops.ones((2, 1, 2), dtype="int64"))
    with pytest.raises(ShapeError, match="mask"):
        layer(x, mask=ops.ones((2, 3, 3), dtype="bool"))
    with pytest.raises(ShapeError, match="positions of shape"):
        ours(rotary=True)(x, positions=[1, 2, 3])


def test_mistakes_with_a_cache(backend: str) -> None:
    layer, x = ours(causal=True), ops.ones((2, 3, SIZE))
    cache = layer.make_cache(2, 2)
    with pytest.raises(GradientError, match="no_grad"):
        layer(x, cache=cache)
    with em.no_grad():
        with pytest.raises(OutOfBoundsError, match=r"max_length=2\) holds 0 tokens and got 3"):
            layer(x, cache=cache)
        with pytest.raises(ShapeError, match="KVCache of shape"):
            layer(ops.ones((1, 1, SIZE)), cache=cache)
        with pytest.raises(OutOfBoundsError, match="cannot be cut"):
            cache.truncate(1)
        other = nn.KVCache(2, HEADS, 4, 2, backend="numpy" if backend != "numpy" else "torch")
        with pytest.raises(DomainError, match="move it by"):
            layer(x[:, :1], cache=other)
    with pytest.raises(DomainError, match="max_length=0"):
        nn.KVCache(1, 1, 1, 0)
