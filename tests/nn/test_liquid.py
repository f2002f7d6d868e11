"""Liquid cells against their equations, written once more here over NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.nn import wirings

Array = np.ndarray[Any, Any]
BATCH, FEATURES, UNITS, STEPS = 2, 3, 4, 3
WIRING = wirings.NCP(3, 2, 2, 2, 1, 2, 1, seed=5)


def draws(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def numbers(module: nn.Module) -> dict[str, Array]:
    return {n: x.detach().numpy() for n, x in module.state_dict().items()}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.log1p(np.exp(x))


def double(make: Any) -> Any:
    ops.random.set_seed(3)
    return make().to(dtype="float64")


# --- LTC ------------------------------------------------------------------------------------------


def ltc_slope(p: dict[str, Array], x: Array, v: Array) -> Array:
    """dv/dt by the equation, neuron by neuron and synapse by synapse."""
    x = x * p["input_w"] + p["input_b"]
    cm, gleak = softplus(p["cm"]), softplus(p["gleak"])
    out = np.empty_like(v)
    for b in range(len(v)):
        for i in range(v.shape[1]):
            current = gleak[i] * (p["vleak"][i] - v[b, i])
            for prefix, sources in (("", v[b]), ("sensory_", x[b])):
                for j, value in enumerate(sources):
                    if not p[prefix + "mask"][j, i]:
                        continue
                    opened = sigmoid(p[prefix + "sigma"][j, i] * (value - p[prefix + "mu"][j, i]))
                    conductance = softplus(p[prefix + "w"][j, i]) * opened
                    current += conductance * (p[prefix + "erev"][j, i] - v[b, i])
            out[b, i] = current / cm[i]
    return out


def ltc_semi_implicit(p: dict[str, Array], x: Array, v: Array, part: float) -> Array:
    """The fused step: (cm/Δ v + Σ g E) / (cm/Δ + Σ g), with what was open before."""
    x = x * p["input_w"] + p["input_b"]
    cm, gleak = softplus(p["cm"]) / part, softplus(p["gleak"])
    top, bottom = cm * v + gleak * p["vleak"], cm + gleak + np.zeros_like(v)
    for prefix, sources in (("", v), ("sensory_", x)):
        opened = sigmoid((sources[:, :, None] - p[prefix + "mu"]) * p[prefix + "sigma"])
        g = opened * softplus(p[prefix + "w"]) * p[prefix + "mask"]
        top, bottom = top + (g * p[prefix + "erev"]).sum(1), bottom + g.sum(1)
    return top / bottom


def ltc_fine(p: dict[str, Array], x: Array, v: Array, span: float, parts: int) -> Array:
    """The equation integrated in many small steps of order four."""
    d = span / parts
    for _ in range(parts):
        k1 = ltc_slope(p, x, v)
        k2 = ltc_slope(p, x, v + d / 2 * k1)
        k3 = ltc_slope(p, x, v + d / 2 * k2)
        k4 = ltc_slope(p, x, v + d * k3)
        v = v + d / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return v


def test_ltc_step_is_the_fused_solver(backend: str) -> None:
    cell = double(lambda: nn.LTCCell(FEATURES, WIRING, epsilon=0.0))
    p = numbers(cell)
    x, v = draws(BATCH, FEATURES), draws(BATCH, WIRING.units, seed=2)
    spans = np.array([0.3, 1.7])
    expected = v
    for _ in range(6):
        expected = ltc_semi_implicit(p, x, expected, spans[:, None] / 6)  # type: ignore[arg-type]  # one for each
    with em.no_grad():
        out, state = cell(ops.asarray(x), ops.asarray(v), ops.asarray(spans))
    assert (out.shape, state.shape) == ((BATCH, 2), (BATCH, WIRING.units))
    np.testing.assert_allclose(state.numpy(), expected, rtol=1e-12, atol=1e-13)
    mapped = expected[:, :2] * p["output_w"] + p["output_b"]
    np.testing.assert_allclose(out.numpy(), mapped, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("solver", "order"), [("semi_implicit", 1), ("explicit", 1), ("runge_kutta", 4)]
)
def test_ltc_solvers_converge_to_the_equation(solver: str, order: int) -> None:
    """Twice the unfolds, an error that is smaller by two to the order."""
    x, v = draws(BATCH, FEATURES), draws(BATCH, UNITS, seed=2)
    errors = []
    for unfolds in (16, 32):
        cell = double(lambda n=unfolds: nn.LTCCell(FEATURES, UNITS, solver=solver, ode_unfolds=n))
        expected = ltc_fine(numbers(cell), x, v, 0.5, 200)
        with em.no_grad():
            got = cell(ops.asarray(x), ops.asarray(v), 0.5)[1].numpy()
        errors.append(abs(got - expected).max())
    assert errors[1] < {1: 5e-2, 4: 1e-5}[order]
    assert errors[0] / errors[1] == pytest.approx(2**order, rel=0.25)


def test_ltc_explicit_and_runge_kutta_steps(backend: str) -> None:
    x, v = draws(BATCH, FEATURES), draws(BATCH, UNITS, seed=2)
    cell = double(lambda: nn.LTCCell(FEATURES, UNITS, solver="explicit", ode_unfolds=2))
    p = numbers(cell)
    expected = v + 0.1 * ltc_slope(p, x, v)
    expected = expected + 0.1 * ltc_slope(p, x, expected)
    with em.no_grad():
        got = cell(ops.asarray(x), ops.asarray(v), 0.2)[1].numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
        cell.solver = "runge_kutta"
        got = cell(ops.asarray(x), ops.asarray(v), 0.2)[1].numpy()
    np.testing.assert_allclose(got, ltc_fine(p, x, v, 0.2, 2), rtol=1e-12, atol=1e-13)


def test_a_constant_input_leads_to_a_fixed_point() -> None:
    """There dv/dt is zero, and every potential lies between the reversal potentials."""
    cell = double(lambda: nn.LTC(FEATURES, UNITS, return_sequences=False))
    x = np.repeat(draws(BATCH, 1, FEATURES), 200, axis=1)
    with em.no_grad():
        _, state = cell(ops.asarray(x))
    v = state.numpy()
    p = {n.removeprefix("cell."): a for n, a in numbers(cell).items()}
    np.testing.assert_allclose(ltc_slope(p, x[:, 0], v), 0, atol=1e-6)
    assert abs(v).max() <= 1


def test_semi_implicit_steps_are_stable_for_any_span(backend: str) -> None:
    cell = double(lambda: nn.LTCCell(FEATURES, UNITS))
    x, v = draws(BATCH, FEATURES), draws(BATCH, UNITS)
    with em.no_grad():
        far = cell(ops.asarray(x), ops.asarray(v), 1e6)[1].numpy()
        still = cell(ops.asarray(x), ops.asarray(v), 0.0)[1].numpy()
    assert abs(far).max() <= 1
    np.testing.assert_allclose(still, v, rtol=1e-6)  # in no time, nothing changes


@pytest.mark.parametrize("mapping", ["affine", "linear", None])
def test_ltc_mappings(mapping: str | None) -> None:
    cell = nn.LTCCell(FEATURES, UNITS, input_mapping=mapping, output_mapping=mapping)
    names = {n for n, _ in cell.named_parameters() if n.startswith(("input_", "output_"))}
    expected = {"affine": "wb", "linear": "w", None: ""}[mapping]
    assert names == {f"{side}_{n}" for side in ("input", "output") for n in expected}


# --- CfC ------------------------------------------------------------------------------------------


def cfc_group(p: dict[str, Array], prefix: str, mode: str, z: Array, h: Array, t: Array) -> Array:
    z = np.concatenate([z, h], -1)
    layer = 0
    while f"{prefix}backbone.{layer}.weight" in p:
        name = f"{prefix}backbone.{layer}."
        z = 1.7159 * np.tanh(2 / 3 * (z @ p[name + "weight"].T + p[name + "bias"]))
        layer += 1

    def head(name: str, masked: bool = False) -> Array:
        weight = p[f"{prefix}{name}.weight"]
        if masked and prefix + "mask" in p:
            weight = weight * p[prefix + "mask"]
        out: Array = z @ weight.T + p[f"{prefix}{name}.bias"]
        return out

    f = head("ff1", True)
    if mode == "pure":
        a = p[prefix + "a"]
        fall: Array = -a * np.exp(-t * (abs(p[prefix + "w_tau"]) + abs(f))) * f + a
        return fall
    s = sigmoid(head("time_a") * t + head("time_b"))
    first, second = np.tanh(f), np.tanh(head("ff2", True))
    mixed: Array = first + s * second if mode == "no_gate" else first * (1 - s) + s * second
    return mixed


@pytest.mark.parametrize("mode", ["default", "pure", "no_gate"])
def test_cfc_step(mode: str, backend: str) -> None:
    cell = double(
        lambda: nn.CfCCell(FEATURES, UNITS, mode=mode, backbone_units=4, backbone_layers=2)
    )
    x, h, t = draws(BATCH, FEATURES), draws(BATCH, UNITS, seed=2), np.array([0.2, 3.0])
    if mode == "pure":
        with em.no_grad():
            cell.groups[0].w_tau += 0.5
    expected = cfc_group(numbers(cell), "groups.0.", mode, x, h, t[:, None])
    with em.no_grad():
        out, state = cell(ops.asarray(x), ops.asarray(h), ops.asarray(t))
    np.testing.assert_allclose(state.numpy(), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(out.numpy(), state.numpy())


@pytest.mark.parametrize("mode", ["default", "pure"])
def test_wired_cfc_step(mode: str) -> None:
    """From the inputs through inter and command to motor neurons, each with the next."""
    cell = double(lambda: nn.CfCCell(FEATURES, WIRING, mode=mode))
    p = numbers(cell)
    x, h = draws(BATCH, FEATURES), draws(BATCH, WIRING.units, seed=2)
    z, parts = x, []
    for place, (_, group) in enumerate(WIRING.layers):
        own = h[:, group.start : group.stop]
        z = cfc_group(p, f"groups.{place}.", mode, z, own, np.array(0.7))
        parts.append(z)
    expected = np.concatenate(parts[::-1], -1)
    with em.no_grad():
        out, state = cell(ops.asarray(x), ops.asarray(h), 0.7)
    np.testing.assert_allclose(state.numpy(), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(out.numpy(), state.numpy()[:, :2])
    # The masks are the wiring.
    sensory = abs(WIRING.sensory_adjacency(FEATURES))[:, 4:]
    np.testing.assert_array_equal(p["groups.0.mask"][:, :FEATURES], sensory.T)


def test_backbone_dropout_is_drawn_for_each_step_and_only_in_training() -> None:
    ops.random.set_seed(3)
    layer = nn.CfC(FEATURES, UNITS, backbone_units=8, backbone_dropout=0.5)
    x = ops.asarray(draws(BATCH, STEPS, FEATURES).astype("float32"))
    with em.no_grad():
        ops.random.set_seed(1)
        first = layer(x)[0].numpy()
        other = layer(x)[0].numpy()
        ops.random.set_seed(1)
        again = layer(x)[0].numpy()
        layer.eval()
        quiet = layer(x)[0].numpy()
        np.testing.assert_array_equal(layer(x)[0].numpy(), quiet)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (first != quiet).any()


# --- Synapses that are not there ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["LTC", "CfC"])
def test_masked_synapses_carry_no_gradient(kind: str) -> None:
    model = getattr(nn, kind)(FEATURES, WIRING)
    x = ops.asarray(draws(BATCH, STEPS, FEATURES).astype("float32"))
    out, state = model(x)
    (ops.sum(out**2) + ops.sum(state)).backward()
    masks = {n: a != 0 for n, a in numbers(model).items() if n.endswith("mask")}
    assert masks
    seen = 0
    for name, mask in masks.items():
        prefix = name.removesuffix("mask")
        for short in ("w", "sigma", "mu", "erev", "ff1.weight", "ff2.weight"):
            p = dict(model.named_parameters()).get(prefix + short)
            if p is not None and p.shape == mask.shape:
                g = p.grad.numpy()
                assert not g[~mask].any()
                assert g[mask].any()
                seen += 1
    assert seen == (8 if kind == "LTC" else 6)


def test_an_input_that_is_not_connected_changes_nothing() -> None:
    wiring = wirings.Custom([[0, 1], [0, 0]], [[1, 0], [0, 0]], outputs=1)
    x = draws(1, 5, 2).astype("float32")
    changed = x.copy()
    changed[..., 1] += 3.0
    for make in (nn.LTC, nn.CfC):
        model: Any = make(2, wiring)
        if make is nn.CfC:  # time gates hear everything: see the class
            with em.no_grad():
                for head in (model.cell.groups[0].time_a, model.cell.groups[0].time_b):
                    head.weight *= 0.0
        with em.no_grad():
            a, b = model(ops.asarray(x))[0].numpy(), model(ops.asarray(changed))[0].numpy()
        np.testing.assert_array_equal(a, b)


# --- Sequences ------------------------------------------------------------------------------------

LAYERS: dict[str, Any] = {
    "LTC": lambda **more: nn.LTC(FEATURES, WIRING, ode_unfolds=2, **more),
    "CfC": lambda **more: nn.CfC(FEATURES, UNITS, backbone_units=4, **more),
    "mixed": lambda **more: nn.CfC(FEATURES, UNITS, backbone_units=4, mixed_memory=True, **more),
}
every = pytest.mark.parametrize("name", LAYERS)


def as_list(state: Any) -> list[Array]:
    return [s.detach().numpy() for s in (state if isinstance(state, tuple) else (state,))]


@every
def test_a_sequence_is_its_steps(name: str) -> None:
    """With irregular time spans, in both layouts, and the last output alone."""
    model = double(LAYERS[name])
    x, spans = draws(BATCH, STEPS, FEATURES), np.random.default_rng(4).random((BATCH, STEPS)) * 2
    h = c = None
    outs = []
    with em.no_grad():
        for t in range(STEPS):
            step = ops.asarray(x[:, t])
            if name == "mixed":
                h, c = model.memory(step, None if h is None else (h, c))
            out, h = model.cell(step, h, ops.asarray(spans[:, t]))
            outs.append(out.numpy())
        got, state = model(ops.asarray(x), timespans=ops.asarray(spans))
        turned = double(lambda: LAYERS[name](batch_first=False))
        swapped, _ = turned(
            ops.asarray(np.ascontiguousarray(x.transpose(1, 0, 2))),
            timespans=ops.asarray(np.ascontiguousarray(spans.T)),
        )
        last = double(lambda: LAYERS[name](return_sequences=False))
        end, _ = last(ops.asarray(x), timespans=ops.asarray(spans[..., None]))
    expected = np.stack(outs, 1)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(swapped.numpy(), expected.transpose(1, 0, 2), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(end.numpy(), expected[:, -1], rtol=1e-12, atol=1e-14)
    assert h is not None
    np.testing.assert_allclose(as_list(state)[0], h.numpy(), rtol=1e-12, atol=1e-14)


@every
def test_state_carried_over_chunks_is_one_run(name: str) -> None:
    model = double(LAYERS[name])
    x = ops.asarray(draws(BATCH, 5, FEATURES))
    with em.no_grad():
        whole, last = model(x, timespans=0.4)
        first, state = model(x[:, :2], timespans=0.4)
        second, state = model(x[:, 2:], state, timespans=0.4)
    joined = np.concatenate([first.numpy(), second.numpy()], 1)
    np.testing.assert_allclose(joined, whole.numpy(), rtol=1e-13, atol=1e-15)
    for a, b in zip(as_list(state), as_list(last), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)


@every
@pytest.mark.parametrize("sequences", [True, False], ids=["all", "last"])
def test_padding(name: str, sequences: bool, backend: str) -> None:
    model = double(lambda: LAYERS[name](return_sequences=sequences))
    x = draws(BATCH, STEPS, FEATURES)
    lengths = [3, 1]
    spoilt = x.copy()
    spoilt[1, 1:] = np.nan
    run = em.jit(lambda x, mask: model(x, mask=mask)) if backend == "jax" else None
    mask = np.arange(STEPS) < np.array(lengths)[:, None]
    with em.no_grad():
        if run is None:
            out, state = model(ops.asarray(spoilt), lengths=lengths)
        else:  # op by op, each would be compiled
            out, state = run(ops.asarray(spoilt), ops.asarray(mask))
    with em.use_backend("numpy"), em.no_grad():
        model.to(backend="numpy")
        short, last = model(ops.asarray(x[1:, :1]))
        whole, _ = model(ops.asarray(x[:1]))
    got = out.numpy()
    if sequences:
        np.testing.assert_allclose(got[1:, :1], short.numpy(), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(got[:1], whole.numpy(), rtol=1e-10, atol=1e-12)
        assert not got[1, 1:].any()
    else:
        np.testing.assert_allclose(got[1:], short.numpy(), rtol=1e-10, atol=1e-12)
    for a, b in zip(as_list(state), as_list(last), strict=True):
        np.testing.assert_allclose(a[1:], b, rtol=1e-10, atol=1e-12)


@every
def test_gradients_by_differences(name: str) -> None:
    """Of each parameter along one direction, by central differences in float64."""
    model = double(LAYERS[name])
    x = ops.asarray(draws(BATCH, STEPS, FEATURES))

    def loss(model: Any) -> Any:
        out, state = model(x, timespans=0.5)
        return ops.sum(out**2) + sum((s**3).sum() for s in _tensors(state))

    grads = em.grad(loss)(model)
    rng = np.random.default_rng(0)
    for n, p in model.named_parameters():
        direction = ops.asarray(rng.standard_normal(p.shape))
        with em.no_grad():
            p += 1e-5 * direction
            above = loss(model).item()
            p -= 2e-5 * direction
            below = loss(model).item()
            p += 1e-5 * direction
        expected = (above - below) / 2e-5
        got = ops.sum(grads.get_parameter(n) * direction).item()
        assert got == pytest.approx(expected, rel=1e-6, abs=1e-8), n


def _tensors(state: Any) -> tuple[Any, ...]:
    return state if isinstance(state, tuple) else (state,)


def test_tape_of_a_sequence(backend: str) -> None:
    """`backward` op by op, over two steps, against that of NumPy."""
    grads = {}
    for name in ("numpy", backend):
        with em.use_backend(name):
            ops.random.set_seed(3)
            model = nn.CfC(2, 2, backbone_units=2)
            x = ops.asarray(draws(2, 2, 2).astype("float32"))
            ops.sum(model(x)[0] ** 2).backward()
            grads[name] = {n: p.grad.numpy() for n, p in model.named_parameters()}
    for n, g in grads[backend].items():
        np.testing.assert_allclose(g, grads["numpy"][n], rtol=1e-5, atol=1e-6)


def test_descent_by_hand_learns_a_sine(backend: str) -> None:
    """Plain steps against the gradient make the error smaller."""
    ops.random.set_seed(2)
    model = nn.CfC(1, 6, 1, backbone_units=8)
    t = np.linspace(0, 3, 8, dtype="float32")
    x, y = ops.asarray(t[None, :, None]), ops.asarray(0.8 * np.sin(t)[None, :, None])

    @em.jit(state=model)
    def step() -> Any:
        loss, grads = em.value_and_grad(lambda m: ops.mean((m(x)[0] - y) ** 2))(model)
        with em.no_grad():
            for p, g in zip(model.parameters(), grads.parameters(), strict=True):
                p -= 0.3 * g
        return loss

    losses = [step().item() for _ in range(16)]
    assert losses[-1] < 0.7 * losses[0]
