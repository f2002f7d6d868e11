"""Recurrent networks against their definitions: every direction, layout, and option."""

from itertools import product

import numpy as np
import pytest

from ember_ml.webnn import ML, MLGraphBuilder, MLTypeError
from tests.webnn import references, wpt
from tests.webnn.calls import compute

executors = pytest.mark.parametrize("executor", wpt.EXECUTORS)
STEPS, BATCH, FEATURES, SIZE = 3, 2, 4, 5
DIRECTIONS = ("forward", "backward", "both")


def drawn(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).uniform(-1, 1, shape).astype(np.float32)


def close(made, expected):
    assert made.dtype == np.float32
    assert made.shape == expected.shape
    # A few units in the last place of the greatest, over three steps.
    tolerance = 2e-6 * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(made, expected, rtol=0, atol=tolerance)


def over_steps(cell, x, direction, states):
    """All hidden states, and the last of every state, for a cell of one direction each."""
    backward = {"forward": [False], "backward": [True], "both": [False, True]}[direction]
    everything, lasts = [], []
    for number, back in enumerate(backward):
        state = [one[number].astype(np.float64) for one in states]
        order = range(len(x))
        hidden = [None] * len(x)
        for step in reversed(order) if back else order:
            made = cell(number, x[step].astype(np.float64), *state)
            state = list(made) if isinstance(made, tuple) else [made]
            hidden[step] = state[0]
        everything.append(np.stack(hidden))
        lasts.append(state)
    return np.stack(everything, 1), [np.stack(one) for one in zip(*lasts, strict=True)]


@executors
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layout", ["zrn", "rzn"])
def test_gru(executor, layout, direction):
    count = 2 if direction == "both" else 1
    x = drawn(STEPS, BATCH, FEATURES)
    w, r = drawn(count, 3 * SIZE, FEATURES), drawn(count, 3 * SIZE, SIZE)
    b, rb = drawn(count, 3 * SIZE), drawn(count, 3 * SIZE, seed=1)
    h = drawn(count, BATCH, SIZE)
    for after, functions in product((True, False), (None, ("tanh", "relu"))):

        def cell(number, step, state, after=after, functions=functions):
            weights = w[number], r[number], state, b[number], rb[number]
            names = functions or ("sigmoid", "tanh")
            return references.gru_cell(step, *weights, layout, after, names)

        sequence, (last,) = over_steps(cell, x, direction, [h])
        how = {"direction": direction, "layout": layout, "reset_after": after}
        how |= {"activations": functions, "bias": b, "recurrent_bias": rb}
        how |= {"initial_hidden_state": h, "return_sequence": True}
        made = compute(executor, "gru", x, w, r, STEPS, SIZE, **how)
        close(made[0], last)
        close(made[1], sequence)


@executors
def test_gru_without_options(executor):
    x, w, r = drawn(1, BATCH, FEATURES), drawn(1, 3 * SIZE, FEATURES), drawn(1, 3 * SIZE, SIZE)
    none = np.zeros(3 * SIZE)
    expected = references.gru_cell(x[0], w[0], r[0], np.zeros((BATCH, SIZE)), none, none)
    (made,) = compute(executor, "gru", x, w, r, 1, SIZE)
    close(made, expected[None])
    # One of two biases: the other is 0.
    rb = drawn(1, 3 * SIZE)
    expected = references.gru_cell(x[0], w[0], r[0], np.zeros((BATCH, SIZE)), none, rb[0])
    (made,) = compute(executor, "gru", x, w, r, 1, SIZE, recurrent_bias=rb)
    close(made, expected[None])
    h = drawn(BATCH, SIZE)
    expected = references.gru_cell(x[0], w[0], r[0], h, none, rb[0], "rzn", False)
    how = {"recurrent_bias": rb[0], "layout": "rzn", "reset_after": False}
    close(compute(executor, "gru_cell", x[0], w[0], r[0], h, SIZE, **how), expected)


@executors
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layout", ["iofg", "ifgo"])
@pytest.mark.parametrize("peepholes", [False, True])
def test_lstm(executor, layout, direction, peepholes):
    count = 2 if direction == "both" else 1
    x = drawn(STEPS, BATCH, FEATURES)
    w, r = drawn(count, 4 * SIZE, FEATURES), drawn(count, 4 * SIZE, SIZE)
    b, rb = drawn(count, 4 * SIZE), drawn(count, 4 * SIZE, seed=1)
    p = drawn(count, 3 * SIZE) * peepholes
    h, c = drawn(count, BATCH, SIZE), drawn(count, BATCH, SIZE, seed=1)
    for functions in (None, ("sigmoid", "relu", "tanh")):

        def cell(number, step, hidden, state, functions=functions):
            weights = w[number], r[number], hidden, state, b[number], rb[number], p[number]
            names = functions or ("sigmoid", "tanh", "tanh")
            return references.lstm_cell(step, *weights, layout, names)

        sequence, (last, last_cell) = over_steps(cell, x, direction, [h, c])
        how = {"direction": direction, "layout": layout, "activations": functions, "bias": b}
        how |= {"recurrent_bias": rb, "initial_hidden_state": h, "initial_cell_state": c}
        how |= {"peephole_weight": p if peepholes else None, "return_sequence": True}
        made = compute(executor, "lstm", x, w, r, STEPS, SIZE, **how)
        for one, expected in zip(made, (last, last_cell, sequence), strict=True):
            close(one, expected)


@executors
def test_lstm_cell(executor):
    x, w, r = drawn(BATCH, FEATURES), drawn(4 * SIZE, FEATURES), drawn(4 * SIZE, SIZE)
    h, c, p = drawn(BATCH, SIZE), drawn(BATCH, SIZE, seed=1), drawn(3 * SIZE)
    none = np.zeros(4 * SIZE)
    for layout, peeps in product(("iofg", "ifgo"), (None, p)):
        weights = w, r, h, c, none, none, 0 * p if peeps is None else p
        expected = references.lstm_cell(x, *weights, layout)
        how = {"layout": layout, "peephole_weight": peeps}
        made = compute(executor, "lstm_cell", x, w, r, h, c, SIZE, **how)
        for one, value in zip(made, expected, strict=True):
            close(one, value)
    halves = [one.astype(np.float16) for one in (x, w, r, h, c)]
    wide = [one.astype(np.float64) for one in halves]
    expected = references.lstm_cell(*wide, none, none, p.astype(np.float16).astype(np.float64))
    made = compute(executor, "lstm_cell", *halves, SIZE, peephole_weight=p.astype(np.float16))
    for one, value in zip(made, expected, strict=True):
        assert one.dtype == np.float16
        np.testing.assert_allclose(one, value, rtol=0, atol=1e-3)


def test_what_does_not_fit_is_refused():
    builder = MLGraphBuilder(ML().create_context())

    def given(*shape, data_type="float32"):
        name = f"x{len(builder._graph._names)}"
        return builder.input(name, {"data_type": data_type, "shape": shape})

    x, w, r = given(3, 2, 4), given(1, 15, 4), given(1, 15, 5)
    for wrong, text in (
        (lambda: builder.gru(x, w, r, 2, 5), "3 steps"),
        (lambda: builder.gru(x, w, r, 3, 0), "out of range"),
        (lambda: builder.gru(x, w, r, 3, 4), "\\[1, 12, 4\\] is needed"),
        (lambda: builder.gru(x, w, r, 3, 5, direction="both"), "\\[2, 15, 4\\] is needed"),
        (lambda: builder.gru(x, w, r, 3, 5, activations=["tanh"]), "2 entries"),
        (lambda: builder.gru(x, w, r, 3, 5, activations=["tanh", "gelu"]), "'gelu' is none"),
        (lambda: builder.gru(x, w, r, 3, 5, layout="nrz"), "one of zrn, rzn"),
        (lambda: builder.gru(x, w, r, 3, 5, bias=given(15)), "takes 2 axes"),
        (
            lambda: builder.gru(x, w, r, 3, 5, bias=given(1, 15, data_type="float16")),
            "bias is float16",
        ),
        (lambda: builder.lstm(x, w, r, 3, 5, label="mine"), "\\[mine\\] lstm: weight"),
    ):
        with pytest.raises(MLTypeError, match=text):
            wrong()
