"""Wirings: which synapses there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml.nn import wirings

ALL: dict[str, Any] = {
    "FullyConnected": lambda seed: wirings.FullyConnected(5, 2, seed=seed),
    "Random": lambda seed: wirings.Random(8, 3, sparsity=0.6, seed=seed),
    "NCP": lambda seed: wirings.NCP(5, 4, 2, 3, 2, 3, 2, seed=seed),
    "AutoNCP": lambda seed: wirings.AutoNCP(12, 2, 0.5, seed=seed),
}
every = pytest.mark.parametrize("name", ALL)

NCP7 = [[0, 0, 0, 0, 0], [-1, 0, 0, 0, 0], [1, 0, 1, 0, 0], [0, -1, -1, 0, 0], [0, 0, 1, 0, 0]]
SENSORY7 = [[0, 0, 0, 0, 1], [0, 0, 0, 1, 0]]


@every
def test_signs_and_shapes(name: str) -> None:
    wiring = ALL[name](3)
    inner, sensory = wiring.adjacency, wiring.sensory_adjacency(4)
    assert inner.shape == (wiring.units, wiring.units)
    assert sensory.shape == (4, wiring.units)
    for matrix in (inner, sensory):
        assert matrix.dtype == np.int8
        assert set(np.unique(matrix)) <= {-1, 0, 1}
    assert {-1, 1} <= set(np.unique(inner))
    count = np.count_nonzero(inner) + np.count_nonzero(sensory)
    assert wiring.synapse_count(4) == count
    kinds = [wiring.kind_of(i) for i in range(wiring.units)]
    assert kinds[: wiring.outputs] == ["motor"] * wiring.outputs
    assert "motor" not in kinds[wiring.outputs :]
    assert sorted(i for _, group in wiring.layers for i in group) == list(range(wiring.units))


@every
def test_a_seed_decides(name: str) -> None:
    first, same, other = ALL[name](3), ALL[name](3), ALL[name](4)
    assert first == same
    assert hash(first) == hash(same)
    assert first != other
    np.testing.assert_array_equal(first.adjacency, same.adjacency)
    np.testing.assert_array_equal(first.sensory_adjacency(4), same.sensory_adjacency(4))
    assert (first.adjacency != other.adjacency).any()
    # How many inputs there are changes nothing among the neurons.
    first.sensory_adjacency(9)
    np.testing.assert_array_equal(first.adjacency, same.adjacency)


def test_these_are_the_synapses_of_a_seed() -> None:
    """Written down, so that a change of the draws, which would rewire models, is seen."""
    found = wirings.NCP(2, 2, 1, 1, 1, 1, 1, seed=7)
    assert found.adjacency.tolist() == NCP7
    assert found.sensory_adjacency(2).tolist() == SENSORY7


@every
def test_configs(name: str) -> None:
    wiring = ALL[name](3)
    again = type(wiring).from_config(json.loads(json.dumps(wiring.get_config())))
    assert again == wiring
    assert repr(again) == repr(wiring)
    np.testing.assert_array_equal(again.adjacency, wiring.adjacency)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_neural_circuit_policies(data: st.DataObject) -> None:
    """What the paper says of them: who is connected with whom, and that nobody is left out."""
    inter, command, motor, inputs = (data.draw(st.integers(1, 7)) for _ in range(4))
    sensory_fanout = data.draw(st.integers(1, inter))
    inter_fanout = data.draw(st.integers(1, command))
    recurrent = data.draw(st.integers(0, command**2))
    motor_fanin = data.draw(st.integers(1, command))
    wiring = wirings.NCP(
        inter,
        command,
        motor,
        sensory_fanout,
        inter_fanout,
        recurrent,
        motor_fanin,
        seed=data.draw(st.integers(0, 99)),
    )
    inner, sensory = wiring.adjacency != 0, wiring.sensory_adjacency(inputs) != 0
    m, c, i = (slice(0, motor), slice(motor, motor + command), slice(motor + command, None))
    assert not sensory[:, : motor + command].any()
    assert not inner[i, i].any()
    assert not inner[i, m].any()
    assert not inner[m].any()
    assert not inner[c, i].any()
    assert inner[c, c].sum() == recurrent
    assert (sensory.sum(1) >= sensory_fanout).all()
    assert (inner[i, c].sum(1) >= inter_fanout).all()
    assert (inner[c, m].sum(0) >= motor_fanin).all()
    assert sensory[:, i].any(0).all()  # every inter neuron hears an input
    assert inner[i, c].any(0).all()  # every command neuron hears an inter neuron
    assert inner[c, m].any(1).all()  # every command neuron is heard


@given(st.integers(1, 12), st.floats(0, 0.99), st.integers(0, 9))
def test_random_wirings_have_as_many_synapses_as_said(
    units: int, sparsity: float, seed: int
) -> None:
    wiring = wirings.Random(units, sparsity=sparsity, seed=seed)
    assert wiring.synapse_count() == round(units * units * (1 - sparsity))


def test_no_self_connections() -> None:
    wiring = wirings.FullyConnected(4, self_connections=False)
    assert not np.diag(wiring.adjacency).any()
    assert wiring.synapse_count() == 12


def test_custom() -> None:
    wiring = wirings.Custom([[0, 1], [-1, 0]], [[1, 0], [0, 1]], outputs=1)
    assert wiring.adjacency.tolist() == [[0, 1], [-1, 0]]
    assert wiring.sensory_adjacency(2).tolist() == [[1, 0], [0, 1]]
    assert wirings.Custom.from_config(wiring.get_config()) == wiring
    with pytest.raises(em.ShapeError, match="2 inputs, not 3"):
        wiring.sensory_adjacency(3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: wirings.FullyConnected(0), "units=0"),
        (lambda: wirings.FullyConnected(3, 4), "outputs=4"),
        (lambda: wirings.Random(3, sparsity=1.0), "sparsity=1.0"),
        (lambda: wirings.Random(3, seed=-1), "seed=-1"),
        (lambda: wirings.AutoNCP(4, 2), "three units more"),
        (lambda: wirings.NCP(2, 2, 1, 3, 1, 1, 1), "sensory_fanout=3 for 2 inter neurons"),
        (lambda: wirings.NCP(2, 2, 1, 1, 1, 5, 1), "recurrent_command_synapses=5"),
        (lambda: wirings.NCP(2, 2, 1, 1, 1, 1, 3), "motor_fanin=3"),
        (lambda: wirings.Custom([[2]], [[1]]), "-1, 0 and 1"),
        (lambda: wirings.FullyConnected(3).kind_of(3), "no 3"),
        (lambda: wirings.FullyConnected(3).sensory_adjacency(0), "inputs=0"),
    ],
)
def test_mistakes(make: Any, text: str) -> None:
    with pytest.raises(em.DomainError, match=text):
        make()


def test_matrices_that_do_not_fit() -> None:
    with pytest.raises(em.ShapeError, match=r"\(1, 2\)"):
        wirings.Custom([[0, 1]], [[1, 0]])


@pytest.mark.parametrize("name", ["NCP", "FullyConnected"])
def test_pictures(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "wiring.png"
    wiring = ALL[name](1)
    figure = wiring.draw(3, str(path), title="drawn")
    assert path.read_bytes().startswith(b"\x89PNG")
    (axes,) = figure.axes
    assert axes.get_title() == "drawn"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[0] == "sensory (3)"
    assert labels[-1] == f"motor ({wiring.outputs})"
