"""Liquid time-constant networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ember_ml import ops
from ember_ml.errors import DomainError
from ember_ml.nn.modules.liquid.sequence import LiquidCell, LiquidSequence
from ember_ml.nn.parameter import Buffer, Parameter
from ember_ml.nn.wirings import FullyConnected, Wiring
from ember_ml.tensor.core import Tensor

__all__ = ["LTC", "LTCCell"]

_MAPPINGS: Final = ("affine", "linear", None)
# Where parameters begin, uniformly between two bounds.
_BEGIN: Final = {
    "gleak": (0.001, 1.0),
    "vleak": (-0.2, 0.2),
    "cm": (0.4, 0.6),
    "w": (0.001, 1.0),
    "sigma": (3.0, 8.0),
    "mu": (0.3, 0.8),
}
# Conductances and capacities, which are positive: parameters hold log(exp(v) - 1) of them.
_POSITIVE: Final = ("gleak", "cm", "w")


class _Prepared(NamedTuple):
    """The parameters of a cell as its equation has them."""

    cm: Tensor
    gleak: Tensor
    leak: Tensor
    w: Tensor
    we: Tensor


class LTCCell(LiquidCell):
    """One step of neurons whose time constants depend on what reaches them.

    Neuron i with the potential v_i follows the differential equation

        cm_i dv_i/dt = gleak_i (vleak_i - v_i) + Σ_j w_ji σ(sigma_ji (v_j - mu_ji)) (erev_ji - v_i)

    over the neurons and inputs j that the wiring connects to it. Each step solves it over its time
    span in `ode_unfolds` parts. `solver` is 'semi_implicit', which is stable for any step, or
    'explicit' (Euler) or 'runge_kutta' (of order four). `gleak`, `cm` and `w` are positive: they
    are the softplus of the parameters. `erev` begins as the signs of the wiring. Inputs and
    outputs are scaled and shifted by 'affine' mappings, scaled by 'linear' ones, or neither.
    (Hasani et al., Liquid time-constant networks, 2021.)

    Shapes: x `(batch, input_size)` or `(input_size,)`; state `(batch, units)`; timespans `(batch,)`
    or a number. It gives `(output, state)`; the output is of the motor neurons.

    >>> from ember_ml import nn
    >>> from ember_ml.nn import wirings
    >>> cell = nn.LTCCell(3, wirings.AutoNCP(10, outputs=2))
    >>> out, v = cell(ops.ones((4, 3)), timespans=0.5)
    >>> out.shape, v.shape
    ((4, 2), (4, 10))
    """

    def __init__(
        self,
        input_size: int | None,
        units: int | Wiring,
        *,
        solver: str = "semi_implicit",
        ode_unfolds: int = 6,
        input_mapping: str | None = "affine",
        output_mapping: str | None = "affine",
        epsilon: float = 1e-8,
    ) -> None:
        wiring = self._size(units)
        self.wiring = wiring or FullyConnected(self.units)
        if solver not in _SOLVERS:
            raise DomainError(f"LTCCell got solver={solver!r}; it is one of {list(_SOLVERS)}")
        if type(ode_unfolds) is not int or ode_unfolds < 1:
            raise DomainError(f"LTCCell got ode_unfolds={ode_unfolds!r}; it is a number from 1")
        for name, value in (("input_mapping", input_mapping), ("output_mapping", output_mapping)):
            if value not in _MAPPINGS:
                raise DomainError(f"LTCCell got {name}={value!r}; it is one of {list(_MAPPINGS)}")
        self.solver = solver
        self.ode_unfolds = ode_unfolds
        self.input_mapping = input_mapping
        self.output_mapping = output_mapping
        self.epsilon = epsilon
        self.input_size = input_size
        self.is_lazy = input_size is None
        if input_size is not None:
            self.create(input_size)

    def create(self, input_size: int) -> None:
        """Make the parameters for inputs of a size."""
        self.input_size = input_size
        inner, sensory = self.wiring.adjacency, self.wiring.sensory_adjacency(input_size)
        for name in ("gleak", "vleak", "cm"):
            setattr(self, name, _begin(name, (self.units,)))
        for prefix, signs in (("", inner), ("sensory_", sensory)):
            for name in ("w", "sigma", "mu"):
                setattr(self, prefix + name, _begin(name, signs.shape))
            setattr(self, prefix + "erev", Parameter(ops.asarray(signs, dtype="float32")))
            setattr(self, prefix + "mask", Buffer(ops.asarray(abs(signs), dtype="float32")))
        for prefix, mapping, size in (
            ("input_", self.input_mapping, input_size),
            ("output_", self.output_mapping, self.outputs),
        ):
            if mapping is not None:
                setattr(self, prefix + "w", Parameter(ops.ones(size)))
            if mapping == "affine":
                setattr(self, prefix + "b", Parameter(ops.zeros(size)))
        self.is_lazy = False

    def size_from(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take the size of a weight that is to be loaded."""
        if len(shapes.get("sensory_w", ())) == 2:
            self.create(shapes["sensory_w"][0])

    gleak: Tensor
    vleak: Tensor
    cm: Tensor
    w: Tensor
    sigma: Tensor
    mu: Tensor
    erev: Tensor
    mask: Tensor
    sensory_w: Tensor
    sensory_sigma: Tensor
    sensory_mu: Tensor
    sensory_erev: Tensor
    sensory_mask: Tensor

    def prepared(self) -> _Prepared:
        """The parameters as the equation has them."""
        gleak = ops.softplus(self.gleak)
        w = ops.softplus(self.w) * self.mask
        return _Prepared(ops.softplus(self.cm), gleak, gleak * self.vleak, w, w * self.erev)

    def driven(self, prepared: _Prepared, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the inputs and the leak do: the currents at v = 0, and the conductances."""
        x = _mapped(self, "input_", x)
        w = ops.softplus(self.sensory_w) * self.sensory_mask
        currents, conductances = _synapses(
            x, self.sensory_sigma, self.sensory_mu, w, w * self.sensory_erev
        )
        return currents + prepared.leak, conductances + prepared.gleak

    def stepped(self, prepared: _Prepared, driven: Any, state: Tensor, span: Any) -> Tensor:
        """The potentials after a time span."""
        part = span / self.ode_unfolds

        def flows(v: Tensor) -> tuple[Tensor, Tensor]:
            currents, conductances = _synapses(v, self.sigma, self.mu, prepared.w, prepared.we)
            return currents + driven[0], conductances + driven[1]

        solve = _SOLVERS[self.solver]
        for _ in range(self.ode_unfolds):
            state = solve(flows, prepared.cm, state, part, self.epsilon)
        return state

    def read_out(self, state: Tensor) -> Tensor:
        """The potentials of the motor neurons, mapped."""
        return _mapped(self, "output_", super().read_out(state))


def _begin(name: str, shape: tuple[int, ...]) -> Tensor:
    value = ops.random.uniform(shape, *_BEGIN[name])
    return Parameter(ops.log(ops.expm1(value)) if name in _POSITIVE else value)


def _mapped(cell: LTCCell, prefix: str, x: Tensor) -> Tensor:
    scale, shift = getattr(cell, prefix + "w", None), getattr(cell, prefix + "b", None)
    if scale is not None:
        x = x * scale
    return x if shift is None else x + shift


def _synapses(v: Tensor, sigma: Tensor, mu: Tensor, w: Tensor, we: Tensor) -> tuple[Tensor, Tensor]:
    """Currents at a potential of zero, and conductances, that reach each neuron."""
    active = ops.sigmoid((ops.expand_dims(v, axis=-1) - mu) * sigma)
    return ops.sum(active * we, axis=-2), ops.sum(active * w, axis=-2)


# --- Solvers --------------------------------------------------------------------------------------

Flows = Callable[[Tensor], tuple[Tensor, Tensor]]


def _semi_implicit(flows: Flows, cm: Tensor, v: Tensor, part: Tensor, epsilon: float) -> Tensor:
    """Activations of the old potentials, and the linear rest solved for the new ones.

    Written with the part as a factor, so that a time span of zero changes nothing.
    """
    currents, conductances = flows(v)
    return (cm * v + part * currents) / (cm + part * conductances + epsilon)


def _explicit(flows: Flows, cm: Tensor, v: Tensor, part: Tensor, epsilon: float) -> Tensor:
    return v + part * _slope(flows, cm, v)


def _runge_kutta(flows: Flows, cm: Tensor, v: Tensor, part: Tensor, epsilon: float) -> Tensor:
    k1 = _slope(flows, cm, v)
    k2 = _slope(flows, cm, v + part * 0.5 * k1)
    k3 = _slope(flows, cm, v + part * 0.5 * k2)
    k4 = _slope(flows, cm, v + part * k3)
    return v + part / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def _slope(flows: Flows, cm: Tensor, v: Tensor) -> Tensor:
    currents, conductances = flows(v)
    return (currents - conductances * v) / cm


_SOLVERS: Final[dict[str, Callable[..., Tensor]]] = {
    "semi_implicit": _semi_implicit,
    "explicit": _explicit,
    "runge_kutta": _runge_kutta,
}


class LTC(LiquidSequence):
    """Liquid time-constant neurons over a sequence: an `LTCCell` at each step.

    `units` is their number, each connected with all, or a wiring. Shapes: x `(batch, steps,
    input_size)`, `(steps, batch, input_size)` with `batch_first=False`, or `(steps, input_size)`;
    state `(batch, units)`; `timespans` is a number, or one for each step, in the layout of x.
    It gives `(outputs, state)`: the outputs of all steps, or of the last one with
    `return_sequences=False`. `lengths` and `mask` are as for `nn.RNN`. With `mixed_memory`, an
    LSTM hands its hidden state on to the neurons, and the state is `(h, c)`.

    >>> from ember_ml import nn
    >>> from ember_ml.nn import wirings
    >>> ltc = nn.LTC(3, wirings.AutoNCP(10, outputs=2))
    >>> out, v = ltc(ops.ones((4, 5, 3)), timespans=0.1)
    >>> out.shape, v.shape
    ((4, 5, 2), (4, 10))
    """

    def __init__(
        self,
        input_size: int | None,
        units: int | Wiring,
        *,
        return_sequences: bool = True,
        batch_first: bool = True,
        mixed_memory: bool = False,
        solver: str = "semi_implicit",
        ode_unfolds: int = 6,
        input_mapping: str | None = "affine",
        output_mapping: str | None = "affine",
        epsilon: float = 1e-8,
    ) -> None:
        cell = LTCCell(
            input_size,
            units,
            solver=solver,
            ode_unfolds=ode_unfolds,
            input_mapping=input_mapping,
            output_mapping=output_mapping,
            epsilon=epsilon,
        )
        self._configure(cell, return_sequences, batch_first, mixed_memory)
