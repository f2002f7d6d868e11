"""RNN, GRU and LSTM: by an engine's own loop where it has all that is asked, else step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.errors import UnsupportedOpError
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.graph.executors.operators.slicing import beside
from ember_ml.nn.recurrence import recurrent
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

Function = Callable[[Tensor], Tensor]
# From the products with the input at a step, and the states, to the next states.
Cell = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]

# Which of activation_alpha and activation_beta a function takes, with their defaults.
_TAKES: dict[str, tuple[float | None, float | None]] = {
    "relu": (None, None),
    "tanh": (None, None),
    "sigmoid": (None, None),
    "softsign": (None, None),
    "softplus": (None, None),
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
}


def _functions(names: Any, defaults: list[str], alphas: Any, betas: Any, count: int) -> list[Any]:
    """The activations of all directions, with their numbers in the order of their names."""
    chosen = list(names) if names else defaults * count
    alpha, beta = list(alphas or []), list(betas or [])
    found = []
    for name in chosen:
        takes = _TAKES.get(name.lower())
        if takes is None:
            raise UnsupportedOpError(f"recurrent operators have no activation '{name}'")
        a = (alpha.pop(0) if alpha else takes[0]) if takes[0] is not None else 0.0
        b = (beta.pop(0) if beta else takes[1]) if takes[1] is not None else 0.0
        found.append(_function(name.lower(), float(a or 0.0), float(b or 0.0)))
    return found


def _function(name: str, a: float, b: float) -> Function:
    made: dict[str, Function] = {
        "relu": ops.relu,
        "tanh": ops.tanh,
        "sigmoid": ops.sigmoid,
        "softsign": ops.softsign,
        "softplus": ops.softplus,
        "affine": lambda x: ops.add(ops.multiply(x, a), b),
        "leakyrelu": lambda x: ops.leaky_relu(x, a),
        "thresholdedrelu": lambda x: ops.where(ops.greater_equal(x, a), x, 0),
        "scaledtanh": lambda x: ops.multiply(ops.tanh(ops.multiply(x, b)), a),
        "hardsigmoid": lambda x: ops.clip(ops.add(ops.multiply(x, a), b), 0, 1),
        "elu": lambda x: ops.elu(x, a),
    }
    return made[name]


def _clipped(clip: float | None) -> Function:
    return (lambda x: x) if clip is None else (lambda x: ops.clip(x, -clip, clip))


def _run(
    x: Tensor,
    states: list[Tensor | None],
    lengths: np.ndarray[Any, Any] | None,
    hidden: int,
    direction: str,
    layout: int,
    weights: Tensor,
    cells: list[Cell],
) -> tuple[Tensor, ...]:
    """All directions over all steps: every output [steps, directions, batch, hidden], last states.

    `cells` take the products of the input with `weights`, which are made for all steps at once.
    """
    if layout:
        x = ops.permute_dims(x, (1, 0, 2))
        states = [None if s is None else ops.permute_dims(s, (1, 0, 2)) for s in states]
    steps, batch = x.shape[:2]
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    every: list[Tensor] = []
    last: list[tuple[Tensor, ...]] = []
    for number, back in enumerate(backwards):
        zero = beside(x, np.zeros((batch, hidden), x.dtype.numpy))
        now = tuple(zero if s is None else s[number] for s in states)
        products = ops.matmul(x, ops.matrix_transpose(weights[number]))
        seen: list[Any] = [None] * steps
        for step in reversed(range(steps)) if back else range(steps):
            new = cells[number](products[step], now)
            seen[step] = new[0]
            if lengths is not None:
                alive = beside(x, (step < lengths)[:, None])
                new = tuple(ops.where(alive, n, o) for n, o in zip(new, now, strict=True))
                seen[step] = ops.where(alive, seen[step], 0)
            now = new
        every.append(ops.stack(seen, axis=0))
        last.append(now)
    results = [ops.stack(every, axis=1)]
    results += [ops.stack([d[i] for d in last], axis=0) for i in range(len(states))]
    if layout:
        results[0] = ops.permute_dims(results[0], (2, 0, 1, 3))
        results[1:] = [ops.permute_dims(s, (1, 0, 2)) for s in results[1:]]
    return tuple(results)


# The blocks of ONNX's gates in the order of ours.
_ORDERS = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2), "tanh": (0,), "relu": (0,)}


def _by_kernel(
    kind: str,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    lengths: np.ndarray[Any, Any] | None,
    states: list[Tensor | None],
    direction: str,
    layout: int,
) -> tuple[Tensor, ...]:
    """The same as `_run`, by the kernel of ember_ml.nn's own recurrent layers."""
    if layout:
        x = ops.permute_dims(x, (1, 0, 2))
        states = [None if s is None else ops.permute_dims(s, (1, 0, 2)) for s in states]
    steps, batch = x.shape[:2]
    hidden = r.shape[-1]
    shape = (w.shape[0], batch, hidden)
    zero = beside(x, np.zeros(shape, x.dtype.numpy))
    begin = [zero if s is None else s for s in states]
    alive = None if lengths is None else np.arange(steps)[:, None] < lengths
    back = direction == "reverse"
    if back:  # the same as forwards over what is turned around
        x = ops.flip(x, axis=0)
        alive = None if alive is None else alive[::-1].copy()
    order = _ORDERS[kind]
    weights: list[list[Tensor | None]] = []
    for number in range(shape[0]):
        biases: list[Tensor | None] = [None, None]
        if b is not None:
            half = b.shape[1] // 2
            biases = [_ordered(b[number][:half], order), _ordered(b[number][half:], order)]
        own = [_ordered(w[number], order), _ordered(r[number], order)]
        weights.append([*own, *biases, None])
    out, h, c = recurrent(
        "Graph", kind, x, begin[0], begin[1] if len(begin) > 1 else None,
        None if alive is None else beside(x, alive), weights,
    )  # fmt: skip
    if back:
        out = ops.flip(out, axis=0)
    out = ops.reshape(out, (steps, batch, shape[0], hidden))
    results = [ops.permute_dims(out, (1, 0, 2, 3) if layout else (0, 2, 1, 3)), h]
    if c is not None:
        results.append(c)
    if layout:
        results[1:] = [ops.permute_dims(s, (1, 0, 2)) for s in results[1:]]
    return tuple(results)


def _ordered(x: Tensor, order: tuple[int, ...]) -> Tensor:
    if len(order) == 1:
        return x
    size = x.shape[0] // len(order)
    return ops.concat([x[i * size : (i + 1) * size] for i in order], axis=0)


def _usual(names: Any, defaults: list[str], alphas: Any, betas: Any, clip: float | None) -> bool:
    """Whether the activations are those of the kernel, without clipping."""
    if alphas or betas or clip is not None:
        return False
    given = [name.lower() for name in names or defaults]
    usual = [name.lower() for name in defaults]
    return given == usual * (len(given) // len(usual))


def _bias(b: Tensor | None, number: int, size: int) -> tuple[Tensor | None, Tensor | None]:
    if b is None:
        return None, None
    own = b[number]
    return own[:size], own[size:]


def _plus(x: Tensor, y: Tensor | None) -> Tensor:
    return x if y is None else ops.add(x, y)


def _gates(x: Tensor, count: int, hidden: int) -> list[Tensor]:
    return [x[:, i * hidden : (i + 1) * hidden] for i in range(count)]


@operator("RNN", 7, without=("layout",))
@operator("RNN", 14, 22)
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Host | None = None,
    initial_h: Tensor | None = None,
    *,
    activations: Any = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    for kind in ("tanh", "relu"):
        if _usual(activations or ["tanh"], [kind], activation_alpha, activation_beta, clip):
            return _by_kernel(kind, x, w, r, b, sequence_lens, [initial_h], direction, layout)
    hidden = r.shape[-1]
    count = w.shape[0]
    functions = _functions(activations, ["Tanh"], activation_alpha, activation_beta, count)
    limit = _clipped(clip)

    def cell(number: int) -> Cell:
        f = functions[number]
        own, other = _bias(b, number, hidden)
        total = None if own is None or other is None else ops.add(own, other)
        recurrence = ops.matrix_transpose(r[number])

        def step(product: Tensor, now: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            made = ops.add(product, ops.matmul(now[0], recurrence))
            return (f(limit(_plus(made, total))),)

        return step

    cells = [cell(i) for i in range(count)]
    return _run(x, [initial_h], sequence_lens, hidden, direction, layout, w, cells)


@operator("GRU", 7, without=("layout",))
@operator("GRU", 14, 22)
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Host | None = None,
    initial_h: Tensor | None = None,
    *,
    activations: Any = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:
    """Gates are in the order update, reset, hidden."""
    usual = ["Sigmoid", "Tanh"]
    if linear_before_reset and _usual(activations, usual, activation_alpha, activation_beta, clip):
        return _by_kernel("gru", x, w, r, b, sequence_lens, [initial_h], direction, layout)
    hidden = r.shape[-1]
    count = w.shape[0]
    functions = _functions(activations, usual, activation_alpha, activation_beta, count)
    limit = _clipped(clip)

    def cell(number: int) -> Cell:
        f, g = functions[2 * number : 2 * number + 2]
        own, other = _bias(b, number, 3 * hidden)
        both = None if own is None or other is None else ops.add(own, other)
        gates = ops.matrix_transpose(r[number][: 2 * hidden])
        candidate = ops.matrix_transpose(r[number][2 * hidden :])
        near = None if both is None else both[: 2 * hidden]
        own_h = None if own is None else own[2 * hidden :]
        other_h = None if other is None else other[2 * hidden :]

        def step(product: Tensor, now: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            h = now[0]
            made = ops.add(product[:, : 2 * hidden], ops.matmul(h, gates))
            z, reset = _gates(f(limit(_plus(made, near))), 2, hidden)
            if linear_before_reset:
                back = ops.multiply(reset, _plus(ops.matmul(h, candidate), other_h))
            else:
                back = _plus(ops.matmul(ops.multiply(reset, h), candidate), other_h)
            new = g(limit(_plus(ops.add(product[:, 2 * hidden :], back), own_h)))
            return (ops.add(new, ops.multiply(z, ops.subtract(h, new))),)

        return step

    cells = [cell(i) for i in range(count)]
    return _run(x, [initial_h], sequence_lens, hidden, direction, layout, w, cells)


@operator("LSTM", 7, without=("layout",))
@operator("LSTM", 14, 22)
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Host | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activations: Any = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    """Gates are in the order input, output, forget, cell; peepholes are input, output, forget."""
    usual = ["Sigmoid", "Tanh", "Tanh"]
    plain = p is None and not input_forget
    if plain and _usual(activations, usual, activation_alpha, activation_beta, clip):
        states = [initial_h, initial_c]
        return _by_kernel("lstm", x, w, r, b, sequence_lens, states, direction, layout)
    hidden = r.shape[-1]
    count = w.shape[0]
    functions = _functions(activations, usual, activation_alpha, activation_beta, count)
    limit = _clipped(clip)

    def cell(number: int) -> Cell:
        f, g, h_of = functions[3 * number : 3 * number + 3]
        own, other = _bias(b, number, 4 * hidden)
        total = None if own is None or other is None else ops.add(own, other)
        recurrence = ops.matrix_transpose(r[number])
        peep = None if p is None else [p[number][i * hidden : (i + 1) * hidden] for i in range(3)]

        def step(product: Tensor, now: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            h, c = now
            made = _plus(ops.add(product, ops.matmul(h, recurrence)), total)
            i, o, forget, fresh = _gates(made, 4, hidden)
            if peep is not None:
                i = ops.add(i, ops.multiply(peep[0], c))
                forget = ops.add(forget, ops.multiply(peep[2], c))
            i = f(limit(i))
            kept = ops.subtract(1, i) if input_forget else f(limit(forget))
            new = ops.add(ops.multiply(kept, c), ops.multiply(i, g(limit(fresh))))
            if peep is not None:
                o = ops.add(o, ops.multiply(peep[1], new))
            return ops.multiply(f(limit(o)), h_of(new)), new

        return step

    cells = [cell(i) for i in range(count)]
    return _run(x, [initial_h, initial_c], sequence_lens, hidden, direction, layout, w, cells)
