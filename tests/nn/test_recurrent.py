"""RNN, LSTM and GRU against torch.nn with the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import nn, ops

STEPS, BATCH, FEATURES, UNITS = 4, 3, 2, 5
LENGTHS = [4, 1, 3]

# Several options at once; what stacks layers is the same for all, and tried with one.
LAYERS: dict[str, dict[str, Any]] = {
    "RNN": {"bidirectional": True},
    "GRU": {"num_layers": 2, "bidirectional": True},
    "LSTM": {"bidirectional": True, "bias": False},
    "LSTM proj": {"proj_size": 3, "batch_first": True},
    "RNN relu": {"nonlinearity": "relu"},
}
every = pytest.mark.parametrize("name", LAYERS)


def twins(name: str, dtype: str = "float64") -> tuple[Any, Any]:
    """A layer and torch's own with the same weights."""
    torch.manual_seed(0)
    kind = name.split()[0]
    other = getattr(torch.nn, kind)(FEATURES, UNITS, **LAYERS[name]).to(getattr(torch, dtype))
    layer = getattr(nn, kind)(FEATURES, UNITS, **LAYERS[name]).to(dtype=dtype)
    layer.load_state_dict({n: p.numpy() for n, p in other.state_dict().items()})
    return layer, other


def draws(*shape: int, seed: int = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape)


def flat(results: Any) -> list[Any]:
    out, state = results
    return [out, *(state if isinstance(state, tuple) else (state,))]


def close(ours: Any, theirs: Any, tolerance: float = 1e-12) -> None:
    expected = theirs.detach().numpy()
    got = ours.detach().numpy()
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def loss_of(results: list[Any], sine: Any) -> Any:
    """A number in which every element of every result has another part."""
    total = 0.0
    for place, y in enumerate(results):
        total = total + sine(y * (place + 1)).sum()
    return total


def states(name: str, layer: Any) -> list[np.ndarray[Any, Any]]:
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    h = draws(count, BATCH, LAYERS[name].get("proj_size") or UNITS, seed=2)
    c = draws(count, BATCH, UNITS, seed=3)
    return [h, c] if name.startswith("LSTM") else [h]


@every
def test_names_and_shapes_are_those_of_torch(name: str) -> None:
    layer, other = twins(name)
    ours = {n: p.shape for n, p in layer.named_parameters()}
    assert list(ours.items()) == [(n, tuple(p.shape)) for n, p in other.named_parameters()]
    bound = 1 / np.sqrt(UNITS)
    fresh = getattr(nn, name.split()[0])(FEATURES, UNITS, **LAYERS[name])
    values = np.concatenate([p.detach().numpy().ravel() for p in fresh.parameters()])
    assert 0.9 * bound < abs(values).max() <= bound


# JAX takes seconds to compile each: of those that share its kernel, it has some.
_WAYS = [
    (backend, padded, name)
    for backend in ("numpy", "torch", "jax", "mlx")
    for padded in (False, True)
    for name in LAYERS
    if backend != "jax" or padded == (name not in ("LSTM proj", "RNN relu"))
]


@pytest.mark.parametrize(
    ("backend", "padded", "name"),
    _WAYS,
    ids=[f"{b}-{'padded' if p else 'whole'}-{n}" for b, p, n in _WAYS],
    indirect=["backend"],
)
def test_results_and_gradients_with_initial_states(name: str, padded: bool, backend: str) -> None:
    layer, other = twins(name)
    x, begin = draws(STEPS, BATCH, FEATURES), states(name, layer)
    if layer.batch_first:
        x = np.ascontiguousarray(x.transpose(1, 0, 2))
    given = torch.tensor(x, requires_grad=True)
    tensors = [torch.tensor(s, requires_grad=True) for s in begin]
    state: Any = tuple(tensors) if len(tensors) == 2 else tensors[0]
    if padded:
        rnn = torch.nn.utils.rnn
        packed = rnn.pack_padded_sequence(
            given, torch.tensor(LENGTHS), batch_first=layer.batch_first, enforce_sorted=False
        )
        out, last = other(packed, state)
        out = rnn.pad_packed_sequence(out, batch_first=layer.batch_first)[0]
        theirs = flat((out, last))
    else:
        theirs = flat(other(given, state))
    loss_of(theirs, torch.sin).backward()

    def run(layer: Any, x: Any, begin: list[Any]) -> Any:
        state = tuple(begin) if len(begin) == 2 else begin[0]
        ours = flat(layer(x, state, lengths=LENGTHS if padded else None))
        return loss_of(ours, ops.sin), ours

    args = (layer, ops.asarray(x), [ops.asarray(s) for s in begin])
    gradients = em.value_and_grad(run, (0, 1, 2), has_aux=True)
    if backend == "jax":  # op by op, it would compile each
        gradients = em.jit(gradients)
    (_, ours), (by, by_x, by_states) = gradients(*args)
    for y, z in zip(ours, theirs, strict=True):
        close(y, z)
    for n, p in other.named_parameters():
        close(by.get_parameter(n), p.grad)
    close(by_x, given.grad)
    for g, t in zip(by_states, tensors, strict=True):
        close(g, t.grad)
    if backend == "jax" and name != "LSTM":
        return  # the rule of the tape is the same for all, and takes seconds to compile
    run(*args)[0].backward()
    for n, p in other.named_parameters():
        close(layer.get_parameter(n).grad, p.grad)


@every
def test_a_mask_of_first_steps_is_lengths(name: str, backend: str) -> None:
    layer, _ = twins(name)
    x = draws(STEPS, BATCH, FEATURES)
    mask = np.arange(STEPS)[:, None] < np.array(LENGTHS)
    if layer.batch_first:
        x, mask = np.ascontiguousarray(x.transpose(1, 0, 2)), np.ascontiguousarray(mask.T)
    spoilt = np.where(mask[..., None], x, np.nan)  # padding may hold anything
    with em.no_grad():
        expected = flat(layer(ops.asarray(x), lengths=LENGTHS))
        got = flat(layer(ops.asarray(spoilt), mask=ops.asarray(mask)))
    for y, z in zip(got, expected, strict=True):
        np.testing.assert_array_equal(y.numpy(), z.numpy())
    assert not expected[0].numpy()[~mask].any()


def test_masked_steps_anywhere_are_passed_over(backend: str) -> None:
    """As though they were not there: the output of the rest is that of the shorter sequence."""
    layer, _ = twins("GRU")
    x = draws(5, 1, FEATURES)
    mask = np.array([True, False, True, True, False])
    with em.no_grad():
        out, h = layer(ops.asarray(x), mask=ops.asarray(mask[:, None]))
        short, last = layer(ops.asarray(x[mask]))
    np.testing.assert_allclose(out.numpy()[mask], short.numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(h.numpy(), last.numpy(), rtol=1e-12, atol=1e-14)
    assert not out.numpy()[~mask].any()


def test_padded_places_have_no_gradient(backend: str) -> None:
    layer, _ = twins("LSTM")
    x = draws(STEPS, BATCH, FEATURES)
    mask = np.arange(STEPS)[:, None] < np.array(LENGTHS)
    x[~mask] = np.nan
    slope = em.grad(lambda x: ops.sum(layer(x, lengths=LENGTHS)[0]))
    g = (em.jit(slope) if backend == "jax" else slope)(ops.asarray(x)).numpy()
    assert np.isfinite(g).all()
    assert not g[~mask].any()
    assert g[mask].all()


def test_sequences_of_no_steps_keep_their_state(backend: str) -> None:
    layer, _ = twins("GRU")
    begin = draws(4, BATCH, UNITS)
    with em.no_grad():
        x = ops.asarray(draws(STEPS, BATCH, FEATURES))
        out, h = layer(x, ops.asarray(begin), lengths=[0, 4, 0])
        none, same = layer(x[:0], ops.asarray(begin))
    np.testing.assert_array_equal(h.numpy()[:, ::2], begin[:, ::2])
    assert not out.numpy()[:, ::2].any()
    assert none.shape == (0, BATCH, 2 * UNITS)
    np.testing.assert_array_equal(same.numpy(), begin)


@pytest.mark.parametrize("name", ["RNNCell", "GRUCell", "LSTMCell"])
def test_cells(name: str, backend: str) -> None:
    torch.manual_seed(0)
    other = getattr(torch.nn, name)(FEATURES, UNITS).double()
    cell = getattr(nn, name)(FEATURES, UNITS).to(dtype="float64")
    cell.load_state_dict({n: p.numpy() for n, p in other.state_dict().items()})
    x, h, c = draws(BATCH, FEATURES), draws(BATCH, UNITS), draws(BATCH, UNITS, seed=2)
    pair = name == "LSTMCell"
    theirs = other(torch.tensor(x), (torch.tensor(h), torch.tensor(c)) if pair else torch.tensor(h))
    begin = (ops.asarray(h), ops.asarray(c)) if pair else ops.asarray(h)
    ours = cell(ops.asarray(x), begin)
    for y, z in zip(ours if pair else [ours], theirs if pair else [theirs], strict=True):
        close(y, z)
    loss_of(list(theirs) if pair else [theirs], torch.sin).backward()
    loss_of(list(ours) if pair else [ours], ops.sin).backward()
    for n, p in other.named_parameters():
        close(cell.get_parameter(n).grad, p.grad)


def test_second_derivatives(backend: str) -> None:
    """Of the gradient by x: where a kernel is fused, its steps are gone through one by one."""
    layer, other = twins("RNN relu" if backend == "jax" else "GRU")  # JAX compiles it for long
    x = draws(STEPS, BATCH, FEATURES)
    given = torch.tensor(x, requires_grad=True)
    (slope,) = torch.autograd.grad((other(given)[0] ** 2).sum(), given, create_graph=True)
    (slope**2).sum().backward()

    def bend(layer: Any) -> Any:
        slope = em.grad(lambda x: ops.sum(layer(x)[0] ** 2))(ops.asarray(x))
        return ops.sum(slope**2)

    grads = em.grad(bend)(layer)
    for n, p in other.named_parameters():
        expected = np.zeros(tuple(p.shape)) if p.grad is None else p.grad.numpy()
        np.testing.assert_allclose(grads.get_parameter(n).numpy(), expected, rtol=1e-9, atol=1e-10)


def test_dropout_is_between_layers_and_in_training(backend: str) -> None:
    ops.random.set_seed(5)
    layer = nn.GRU(FEATURES, UNITS, num_layers=2, dropout=0.5)
    x = ops.asarray(draws(STEPS, BATCH, FEATURES).astype("float32"))
    with em.no_grad():
        ops.random.set_seed(7)
        first = layer(x)[0].numpy()
        ops.random.set_seed(7)
        again = layer(x)[0].numpy()
        quiet = layer.eval()(x)[0].numpy()
        assert np.array_equal(quiet, layer(x)[0].numpy())
        whole = nn.GRU(FEATURES, UNITS, num_layers=2)
        whole.load_state_dict(layer.state_dict())
        assert np.array_equal(whole(x)[0].numpy(), quiet)
        gone = nn.GRU(FEATURES, UNITS, num_layers=2, dropout=1.0)
        ops.random.set_seed(7)
        nothing = gone(x)[0]
    assert np.array_equal(first, again)
    assert not np.array_equal(first, quiet)
    assert np.isfinite(nothing.numpy()).all()
    with em.use_backend("numpy"), em.no_grad():  # the same elements are dropped everywhere
        twin = layer.train().to(backend="numpy")
        ops.random.set_seed(7)
        expected = twin(x.to(backend="numpy"))[0].numpy()
    np.testing.assert_allclose(first, expected, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 6),
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
    st.sampled_from(["tanh", "relu", "gru", "lstm"]),
    st.booleans(),
)
def test_cutting_a_sequence_and_going_on_changes_nothing(
    cut: int, lengths: list[int], kind: str, as_tape: bool
) -> None:
    """State carried over from one part to the next, with lengths counted on, is one long run."""
    layer: Any = (
        nn.RNN(2, 3, nonlinearity=kind)
        if kind in ("tanh", "relu")
        else {"gru": nn.GRU, "lstm": nn.LSTM}[kind](2, 3)
    )
    x = ops.asarray(draws(6, len(lengths), 2).astype("float32"))
    counts = np.array(lengths)
    whole, last = layer(x, lengths=lengths)
    first, state = layer(x[:cut], lengths=np.minimum(counts, cut).tolist())
    second, state = layer(x[cut:], state, lengths=np.maximum(counts - cut, 0).tolist())
    joined = ops.concat([first, second])
    np.testing.assert_allclose(joined.detach().numpy(), whole.detach().numpy(), atol=1e-6)
    for a, b in zip(flat((whole, state)), flat((whole, last)), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-6)
    if as_tape and counts.any():  # the gradients of both ways as well
        ops.sum(joined**2).backward()
        parts = {n: p.grad.numpy() for n, p in layer.named_parameters()}
        layer.zero_grad()
        ops.sum(whole**2).backward()
        for n, p in layer.named_parameters():
            np.testing.assert_allclose(parts[n], p.grad.numpy(), atol=1e-5)


def test_writing_to_an_output_before_backward_is_noticed() -> None:
    layer = nn.GRU(2, 3)
    out, _ = layer(ops.ones((4, 1, 2)))
    loss = ops.sum(out)
    with em.no_grad():
        out[0] = 5.0
    with pytest.raises(em.GradientError, match="written to"):
        loss.backward()


def test_vmap_over_layers(backend: str) -> None:
    layer, _ = twins("RNN relu")
    x = ops.asarray(draws(2, STEPS, BATCH, FEATURES))
    with em.no_grad():
        batch = ops.vmap(lambda x: layer(x)[0])(x).numpy()
        single = np.stack([layer(x[i])[0].numpy() for i in range(2)])
    np.testing.assert_allclose(batch, single, rtol=1e-12, atol=1e-14)


MISTAKES: dict[str, tuple[Any, Any, str]] = {
    "size": (lambda: nn.LSTM(2, 0), em.DomainError, "hidden_size=0"),
    "layers": (lambda: nn.GRU(2, 3, num_layers=0), em.DomainError, "num_layers=0"),
    "dropout": (lambda: nn.GRU(2, 3, dropout=2), em.DomainError, "dropout=2"),
    "proj": (lambda: nn.LSTM(2, 3, proj_size=3), em.DomainError, "proj_size=3"),
    "nonlinearity": (lambda: nn.RNN(2, 3, nonlinearity="sin"), em.DomainError, "'sin'"),
    "cell": (lambda: nn.RNNCell(2, 3, nonlinearity="sin"), em.DomainError, "'sin'"),
    "state": (
        lambda: nn.GRU(2, 3)(ops.ones((4, 1, 2)), ops.ones((1, 2, 3))),
        em.ShapeError,
        r"initial h of shape \(1, 2, 3\).*must be \(1, 1, 3\)",
    ),
    "single state": (
        lambda: nn.GRU(2, 3)(ops.ones((4, 2)), ops.ones((1, 1, 3))),
        em.ShapeError,
        r"without a batch; it must be \(1, 3\)",
    ),
    "pair": (
        lambda: nn.LSTM(2, 3)(ops.ones((4, 1, 2)), ops.ones((1, 1, 3))),
        em.DTypeError,
        r"it takes \(h, c\)",
    ),
    "both": (
        lambda: nn.GRU(2, 3)(ops.ones((4, 1, 2)), lengths=[1], mask=ops.ones((4, 1), dtype="bool")),
        em.DomainError,
        "one of them",
    ),
    "mask shape": (
        lambda: nn.GRU(2, 3)(ops.ones((4, 1, 2)), mask=ops.ones((1, 4), dtype="bool")),
        em.ShapeError,
        r"must be \(4, 1\)",
    ),
    "mask dtype": (
        lambda: nn.GRU(2, 3)(ops.ones((4, 1, 2)), mask=ops.ones((4, 1))),
        em.DTypeError,
        "of bool",
    ),
    "lengths shape": (
        lambda: nn.GRU(2, 3)(ops.ones((4, 1, 2)), lengths=[1, 2]),
        em.ShapeError,
        "one for each sequence",
    ),
    "lengths dtype": (
        lambda: nn.GRU(2, 3)(ops.ones((4, 1, 2)), lengths=[1.0]),
        em.DTypeError,
        "integers",
    ),
    "lengths": (
        lambda: nn.GRU(2, 3)(ops.ones((4, 1, 2)), lengths=[5]),
        em.DomainError,
        "0 to 4",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str, backend: str) -> None:
    call, error, text = MISTAKES[name]
    with pytest.raises(error, match=text):
        call()
