"""Wirings: which neurons of a liquid network are connected, and with which sign.

A wiring is drawn from a seed, so that the same arguments give the same network on every backend.
Matrices are of -1, 0 and 1, with a row for the neuron that a synapse comes from and a column for
the one that it goes to. The first `outputs` neurons are the motor neurons.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from ember_ml.errors import DomainError, ShapeError
from ember_ml.nn import config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NCP", "AutoNCP", "Custom", "FullyConnected", "Random", "Wiring"]

Self = TypeVar("Self", bound="Wiring")
Matrix = np.ndarray[Any, np.dtype[np.int8]]

_COLOURS: Final = {
    "sensory": "#4c9f70",
    "inter": "#4f77aa",
    "command": "#8a63a8",
    "motor": "#d1793b",
}


class Wiring(config.Configured):
    """What wirings have in common; subclasses draw the synapses.

    `units` counts the neurons without the inputs, `outputs` the motor neurons among them.
    """

    units: int
    outputs: int
    seed: int

    def _set(self, units: int, outputs: int | None, seed: int) -> None:
        self.units = _number(self, "units", units)
        self.outputs = units if outputs is None else _number(self, "outputs", outputs)
        self.seed = _number(self, "seed", seed, 0)
        if self.outputs > self.units:
            raise DomainError(
                f"{type(self).__name__} got outputs={outputs} and units={units}; the outputs are "
                f"some of the units"
            )

    # --- Synapses ---------------------------------------------------------------------------

    @property
    def adjacency(self) -> Matrix:
        """The signs of the synapses among the neurons, `(units, units)`."""
        return self._inner(_Draws(self.seed, 0))

    def sensory_adjacency(self, inputs: int) -> Matrix:
        """The signs of the synapses from this many inputs, `(inputs, units)`."""
        return self._sensory(_number(self, "inputs", inputs), _Draws(self.seed, 1))

    def _inner(self, draws: _Draws) -> Matrix:
        raise NotImplementedError(f"{type(self).__name__} does not say what its synapses are")

    def _sensory(self, inputs: int, draws: _Draws) -> Matrix:
        raise NotImplementedError(f"{type(self).__name__} does not say what its synapses are")

    @property
    def layers(self) -> tuple[tuple[str, range], ...]:
        """The neurons in groups, from the inputs to the outputs, with the kind of each group."""
        return (("motor", range(self.units)),)

    def kind_of(self, neuron: int) -> str:
        """'inter', 'command' or 'motor'."""
        if not 0 <= neuron < self.units:
            raise DomainError(
                f"{type(self).__name__} has the neurons 0 to {self.units - 1}, and no {neuron}"
            )
        if neuron < self.outputs:
            return "motor"
        found = next(kind for kind, group in self.layers if neuron in group)
        return "inter" if found == "motor" else found

    def synapse_count(self, inputs: int | None = None) -> int:
        """How many synapses there are among neurons; with `inputs`, those from them as well."""
        count = np.count_nonzero(self.adjacency)
        if inputs is not None:
            count += np.count_nonzero(self.sensory_adjacency(inputs))
        return int(count)

    def draw(self, inputs: int, path: str | None = None, *, title: str | None = None) -> Figure:
        """A picture of the network, saved as a PNG where there is a path; needs matplotlib.

        Inputs are on the left and motor neurons on the right. Solid lines excite, dashed ones
        inhibit, and rings are synapses of a neuron with itself.
        """
        return _draw(self, _number(self, "inputs", inputs), path, title)


class FullyConnected(Wiring):
    """Every neuron with every other one and with every input.

    >>> from ember_ml.nn import wirings
    >>> wiring = wirings.FullyConnected(4, outputs=2)
    >>> wiring.synapse_count(inputs=3), wiring.kind_of(0), wiring.kind_of(3)
    (28, 'motor', 'inter')
    """

    def __init__(
        self, units: int, outputs: int | None = None, seed: int = 0, self_connections: bool = True
    ) -> None:
        self._set(units, outputs, seed)
        self.self_connections = self_connections

    def _inner(self, draws: _Draws) -> Matrix:
        found = draws.signs((self.units, self.units))
        if not self.self_connections:
            np.fill_diagonal(found, 0)
        return found

    def _sensory(self, inputs: int, draws: _Draws) -> Matrix:
        return draws.signs((inputs, self.units))


class Random(Wiring):
    """Synapses drawn at random; a share of `sparsity` of all that could be is left out.

    >>> from ember_ml.nn import wirings
    >>> wirings.Random(10, sparsity=0.75).synapse_count()
    25
    """

    def __init__(
        self, units: int, outputs: int | None = None, sparsity: float = 0.5, seed: int = 0
    ) -> None:
        self._set(units, outputs, seed)
        self.sparsity = _share(self, sparsity)

    def _inner(self, draws: _Draws) -> Matrix:
        return self._some(self.units, draws)

    def _sensory(self, inputs: int, draws: _Draws) -> Matrix:
        return self._some(inputs, draws)

    def _some(self, rows: int, draws: _Draws) -> Matrix:
        count = round(rows * self.units * (1 - self.sparsity))
        kept = np.zeros(rows * self.units, np.int8)
        kept[draws.some(rows * self.units, count)] = 1
        return draws.signs((rows, self.units)) * kept.reshape(rows, self.units)


class Custom(Wiring):
    """A wiring by its matrices: rows of -1, 0 and 1.

    >>> from ember_ml.nn import wirings
    >>> wirings.Custom([[0, 1], [-1, 0]], [[1, 0]], outputs=1).synapse_count(inputs=1)
    3
    """

    def __init__(
        self,
        adjacency: list[list[int]],
        sensory_adjacency: list[list[int]],
        outputs: int | None = None,
    ) -> None:
        self._matrix = self._checked("adjacency", adjacency)
        self._inputs = self._checked("sensory_adjacency", sensory_adjacency)
        units = self._matrix.shape[1]
        if self._matrix.shape[0] != units or self._inputs.shape[1] != units:
            raise ShapeError(
                f"Custom got adjacency of shape {self._matrix.shape} and sensory_adjacency of "
                f"shape {self._inputs.shape}; they must be (units, units) and (inputs, units)"
            )
        self._set(units, outputs, 0)

    def _checked(self, name: str, rows: Any) -> Matrix:
        found = np.asarray(rows)
        if found.ndim != 2 or not np.isin(found, (-1, 0, 1)).all():
            raise DomainError(f"Custom takes rows of -1, 0 and 1 as {name}")
        return found.astype(np.int8)

    def _inner(self, draws: _Draws) -> Matrix:
        return self._matrix.copy()

    def _sensory(self, inputs: int, draws: _Draws) -> Matrix:
        if inputs != len(self._inputs):
            raise ShapeError(f"Custom has synapses from {len(self._inputs)} inputs, not {inputs}")
        return self._inputs.copy()


class NCP(Wiring):
    """A neural circuit policy: inputs, inter, command and motor neurons, sparsely connected.

    Each input has `sensory_fanout` synapses to inter neurons, each inter neuron `inter_fanout` to
    command neurons; there are `recurrent_command_synapses` among command neurons, and each motor
    neuron is reached by `motor_fanin` of them. A neuron that would be left out, that nothing
    reaches or that reaches nothing, gets as many synapses as its neighbours have on average.
    (Lechner et al., Neural circuit policies enabling auditable autonomy, 2020.)

    >>> from ember_ml.nn import wirings
    >>> wiring = wirings.NCP(
    ...     6, 4, 2, sensory_fanout=3, inter_fanout=2, recurrent_command_synapses=3, motor_fanin=2
    ... )
    >>> wiring.units, [(kind, len(group)) for kind, group in wiring.layers]
    (12, [('inter', 6), ('command', 4), ('motor', 2)])
    """

    def __init__(
        self,
        inter_neurons: int,
        command_neurons: int,
        motor_neurons: int,
        sensory_fanout: int,
        inter_fanout: int,
        recurrent_command_synapses: int,
        motor_fanin: int,
        seed: int = 0,
    ) -> None:
        self._arrange(
            inter_neurons,
            command_neurons,
            motor_neurons,
            sensory_fanout,
            inter_fanout,
            recurrent_command_synapses,
            motor_fanin,
            seed,
        )

    def _arrange(
        self,
        inter: int,
        command: int,
        motor: int,
        sensory_fanout: int,
        inter_fanout: int,
        recurrent: int,
        motor_fanin: int,
        seed: int,
    ) -> None:
        self.inter_neurons = _number(self, "inter_neurons", inter)
        self.command_neurons = _number(self, "command_neurons", command)
        self.motor_neurons = _number(self, "motor_neurons", motor)
        self._set(inter + command + motor, motor, seed)
        self.sensory_fanout = self._few("sensory_fanout", sensory_fanout, 1, inter, "inter")
        self.inter_fanout = self._few("inter_fanout", inter_fanout, 1, command, "command")
        self.motor_fanin = self._few("motor_fanin", motor_fanin, 1, command, "command")
        self.recurrent_command_synapses = self._few(
            "recurrent_command_synapses", recurrent, 0, command * command, "pairs of command"
        )

    def _few(self, name: str, value: int, low: int, high: int, of: str) -> int:
        if not low <= _number(self, name, value, low) <= high:
            raise DomainError(
                f"{type(self).__name__} got {name}={value} for {high} {of} neurons; it must be "
                f"{low} to {high}"
            )
        return value

    @property
    def layers(self) -> tuple[tuple[str, range], ...]:
        """The neurons in groups, from the inputs to the outputs, with the kind of each group."""
        first = self.motor_neurons + self.command_neurons
        return (
            ("inter", range(first, self.units)),
            ("command", range(self.motor_neurons, first)),
            ("motor", range(self.motor_neurons)),
        )

    def _inner(self, draws: _Draws) -> Matrix:
        found = np.zeros((self.units, self.units), np.int8)
        inter, command, motor = (list(group) for _, group in self.layers)
        _spread(found, inter, command, self.inter_fanout, draws)
        pairs = draws.some(len(command) ** 2, self.recurrent_command_synapses)
        signs = draws.signs((len(pairs),))
        for pair, sign in zip(pairs, signs, strict=True):
            found[command[pair // len(command)], command[pair % len(command)]] = sign
        # Motor neurons choose whom they hear, so this goes the other way round.
        backward = np.zeros_like(found)
        _spread(backward, motor, command, self.motor_fanin, draws)
        return found + backward.T

    def _sensory(self, inputs: int, draws: _Draws) -> Matrix:
        found = np.zeros((inputs, self.units), np.int8)
        _spread(found, list(range(inputs)), list(self.layers[0][1]), self.sensory_fanout, draws)
        return found


class AutoNCP(NCP):
    """An `NCP` whose numbers follow from the units, the outputs and how sparse it is to be.

    Of the units that are no motor neurons, three fifths are inter and two fifths command neurons.

    >>> from ember_ml.nn import wirings
    >>> wiring = wirings.AutoNCP(20, outputs=2, sparsity=0.5)
    >>> wiring.inter_neurons, wiring.command_neurons, wiring.sensory_fanout, wiring.motor_fanin
    (10, 8, 5, 4)
    """

    def __init__(self, units: int, outputs: int, sparsity: float = 0.5, seed: int = 0) -> None:
        self.sparsity = _share(self, sparsity)
        if _number(self, "units", units) < _number(self, "outputs", outputs) + 3:
            raise DomainError(
                f"AutoNCP got units={units} and outputs={outputs}; there must be three units more, "
                f"for inter and command neurons"
            )
        density = 1 - sparsity
        command = math.ceil(0.4 * (units - outputs))
        inter = units - outputs - command
        self._arrange(
            inter,
            command,
            outputs,
            max(int(inter * density), 1),
            max(int(command * density), 1),
            max(int(command * density * 2), 1),
            max(int(command * density), 1),
            seed,
        )


# --- Drawing synapses -----------------------------------------------------------------------------


class _Draws:
    """Random numbers of one matrix: none depends on how many the other one took."""

    def __init__(self, seed: int, stream: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(key=[seed, stream]))

    def signs(self, shape: tuple[int, ...]) -> Matrix:
        """-1 and 1, as often."""
        return np.where(self._generator.random(shape) < 0.5, -1, 1).astype(np.int8)

    def some(self, size: int, count: int) -> list[int]:
        """Some of the first integers, each at most once."""
        order = np.argsort(self._generator.random(size), kind="stable")
        return [int(i) for i in order[:count]]


def _spread(
    into: Matrix, sources: list[int], targets: list[int], fanout: int, draws: _Draws
) -> None:
    """Connect each source with some targets, and targets that were left out with some sources."""
    for source in sources:
        chosen = draws.some(len(targets), fanout)
        for place, sign in zip(chosen, draws.signs((len(chosen),)), strict=True):
            into[source, targets[place]] = sign
    mean = max(round(len(sources) * fanout / len(targets)), 1)
    for target in targets:
        if into[:, target].any():
            continue
        chosen = draws.some(len(sources), min(mean, len(sources)))
        for place, sign in zip(chosen, draws.signs((len(chosen),)), strict=True):
            into[sources[place], target] = sign


def _number(wiring: Wiring, name: str, value: Any, low: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise DomainError(
            f"{type(wiring).__name__} got {name}={value!r}; it is a number from {low}"
        )
    return value


def _share(wiring: Wiring, sparsity: Any) -> float:
    if not 0 <= sparsity < 1:
        raise DomainError(
            f"{type(wiring).__name__} got sparsity={sparsity}; it is the share of synapses that "
            f"are left out, from 0 to below 1"
        )
    return float(sparsity)


# --- Pictures -------------------------------------------------------------------------------------


def _draw(wiring: Wiring, inputs: int, path: str | None, title: str | None) -> Figure:
    from matplotlib.figure import Figure

    sensory, inner = wiring.sensory_adjacency(inputs), wiring.adjacency
    columns = [("sensory", [-1 - i for i in range(inputs)])]
    for kind, group in wiring.layers:
        hidden = [i for i in group if wiring.kind_of(i) != "motor"]
        if hidden and kind == "motor":
            columns.append(("inter", hidden))
        columns.append((kind, [i for i in group if i not in hidden] or hidden))
    places: dict[int, tuple[float, float]] = {}
    tallest = max(len(column) for _, column in columns)
    for x, (_, column) in enumerate(columns):
        for row, neuron in enumerate(column):
            places[neuron] = (float(x), (row - (len(column) - 1) / 2) * -1.0)
    figure = Figure(figsize=(2.6 * len(columns), max(0.42 * tallest, 2.5)), layout="constrained")
    axes = figure.subplots()
    edges = [(-1 - s, t, sensory[s, t]) for s, t in np.argwhere(sensory)]
    edges += [(s, t, inner[s, t]) for s, t in np.argwhere(inner)]
    for source, target, sign in edges:
        (x1, y1), (x2, y2) = places[int(source)], places[int(target)]
        style: dict[str, Any] = {
            "color": "#444444",
            "alpha": 0.45,
            "lw": 0.8,
            "ls": "-" if sign > 0 else "--",
        }
        if source == target:
            axes.plot(x1, y1 + 0.32, marker="o", ms=9, mfc="none", mec="#444444", alpha=0.45)
        elif x1 == x2:
            bend = {"connectionstyle": "arc3,rad=0.35", "arrowstyle": "->", **style}
            axes.annotate("", (x2, y2), (x1, y1), arrowprops=bend)
        else:
            axes.plot((x1, x2), (y1, y2), zorder=1, **style)
    for kind, column in columns:
        xs, ys = [places[i][0] for i in column], [places[i][1] for i in column]
        label = f"{kind} ({len(column)})"
        axes.scatter(xs, ys, s=90, color=_COLOURS[kind], edgecolor="white", zorder=2, label=label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=len(columns), frameon=False)
    axes.set_axis_off()
    axes.set_title(title or f"{type(wiring).__name__}: {wiring.synapse_count(inputs)} synapses")
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure
