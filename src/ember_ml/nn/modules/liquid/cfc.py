"""Closed-form continuous-time networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ember_ml import ops
from ember_ml.errors import DomainError
from ember_ml.nn.module import Module
from ember_ml.nn.modules.linear import Linear
from ember_ml.nn.modules.liquid.sequence import LiquidCell, LiquidSequence
from ember_ml.nn.parameter import Buffer, Parameter
from ember_ml.nn.wirings import Wiring
from ember_ml.ops.activations import get_activation
from ember_ml.tensor.core import Tensor

__all__ = ["CfC", "CfCCell"]

_HEADS: Final = {
    "default": ("ff1", "ff2", "time_a", "time_b"),
    "no_gate": ("ff1", "ff2", "time_a", "time_b"),
    "pure": ("ff1",),
}


class _Group(Module):
    """Units that are updated at once: of all inputs by a backbone, or of some by a mask."""

    def __init__(
        self,
        features: int,
        size: int,
        mode: str,
        backbone: tuple[int, int],
        activation: str,
        mask: np.ndarray[Any, Any] | None,
    ) -> None:
        width, depth = backbone
        self.features = features
        self.size = size
        self.mode = mode
        self._activation = get_activation(activation)
        inner = features + size
        self.backbone = [Linear(width if i else inner, width) for i in range(depth)]
        for name in _HEADS[mode]:
            setattr(self, name, Linear(width if depth else inner, size))
        if mode == "pure":
            self.w_tau = Parameter(ops.zeros(size))
            self.a = Parameter(ops.ones(size))
        self.mask = None if mask is None else Buffer(ops.asarray(mask, dtype="float32"))

    a: Tensor
    w_tau: Tensor

    def extra_repr(self) -> str:
        """The sizes."""
        return f"features={self.features}, size={self.size}"

    def prepared(self) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        """Weights and biases one after the other, and that of the first by the state."""
        heads = [getattr(self, name) for name in _HEADS[self.mode]]
        weights = [head.weight for head in heads]
        if self.mask is not None:
            # Synapses that are not there; when something happens is left to all.
            weights[:2] = [weight * self.mask for weight in weights[:2]]
        joined = (
            (ops.concat(weights), ops.concat([head.bias for head in heads]))
            if len(heads) > 1
            else (weights[0], heads[0].bias)
        )
        maps: list[Any] = [(one.weight, one.bias) for one in self.backbone]
        maps.append(joined)
        weight, bias = maps[0]
        maps[0] = (weight[:, : self.features], bias)
        return maps, weight[:, self.features :]

    def driven(self, prepared: Any, x: Tensor) -> Tensor:
        """What the inputs give to the first map, of all steps at once."""
        return ops.linear(x, *prepared[0][0])

    def stepped(
        self, prepared: Any, driven: Tensor, kept: list[Tensor], state: Tensor, span: Any
    ) -> Tensor:
        """The next state; `kept` are the factors of dropout."""
        maps, inner = prepared
        z = driven + ops.linear(state, inner)
        for place, (weight, bias) in enumerate(maps[1:]):
            z = self._activation(z)
            if kept:
                z = z * kept[place]
            z = ops.linear(z, weight, bias)
        if self.mode == "pure":
            fall = ops.exp(-span * (ops.abs(self.w_tau) + ops.abs(z)))
            return self.a - self.a * fall * z
        size = self.size
        both = ops.tanh(z[..., : 2 * size])
        first, second = both[..., :size], both[..., size:]
        gate = ops.sigmoid(z[..., 2 * size : 3 * size] * span + z[..., 3 * size :])
        if self.mode == "no_gate":
            return first + gate * second
        return first + gate * (second - first)


class CfCCell(LiquidCell):
    """One step of a closed-form continuous-time network.

    From z = backbone([x, h]), in the mode 'default', over the time span t:

        h' = (1 - s) tanh(W1 z + b1) + s tanh(W2 z + b2),  s = σ((Wa z + ba) t + Wb z + bb)

    In the mode 'no_gate', h' is `tanh(...) + s tanh(...)`. In 'pure' it is the solution of the
    equation of liquid neurons for a constant input, with f = W1 z + b1:

        h' = A - A exp(-t (|w_tau| + |f|)) f

    The backbone is `backbone_layers` linear maps with an activation, 0 for none. With a wiring
    there is none: inter neurons see the inputs and each other, command neurons see inter neurons,
    motor neurons see command neurons, as far as the wiring connects them. (Hasani et al.,
    Closed-form continuous-time neural networks, 2022.)

    Shapes: x `(batch, input_size)` or `(input_size,)`; state `(batch, units)`; timespans `(batch,)`
    or a number. It gives `(output, state)`; with a wiring, the output is of the motor neurons.

    >>> from ember_ml import nn
    >>> out, h = nn.CfCCell(3, 8)(ops.ones((4, 3)), timespans=0.5)
    >>> out.shape, h.shape
    ((4, 8), (4, 8))
    """

    def __init__(
        self,
        input_size: int | None,
        units: int | Wiring,
        *,
        mode: str = "default",
        backbone_units: int | None = None,
        backbone_layers: int | None = None,
        backbone_activation: str = "lecun_tanh",
        backbone_dropout: float = 0.0,
    ) -> None:
        self.wiring = self._size(units)
        if mode not in _HEADS:
            raise DomainError(f"CfCCell got mode={mode!r}; it is one of {list(_HEADS)}")
        given = backbone_units is not None or backbone_layers is not None or backbone_dropout
        if self.wiring is not None and given:
            raise DomainError(
                "CfCCell got a wiring and a backbone; with a wiring, the synapses take its place"
            )
        self._backbone = (
            128 if backbone_units is None else backbone_units,
            1 if backbone_layers is None else backbone_layers,
        )
        if self.wiring is not None:
            self._backbone = (1, 0)
        if self._backbone[0] < 1 or self._backbone[1] < 0:
            raise DomainError(
                f"CfCCell got backbone_units={backbone_units} and "
                f"backbone_layers={backbone_layers}; they are numbers from 1 and from 0"
            )
        if not 0 <= backbone_dropout < 1:
            raise DomainError(
                f"CfCCell got backbone_dropout={backbone_dropout}; it is a probability below 1"
            )
        self.mode = mode
        self.backbone_activation = backbone_activation
        self.backbone_dropout = float(backbone_dropout)
        get_activation(backbone_activation)
        self.input_size = input_size
        self.is_lazy = input_size is None
        self.groups: list[_Group] = []
        self._places: list[slice] = []
        if input_size is not None:
            self.create(input_size)

    def create(self, input_size: int) -> None:
        """Make the parameters for inputs of a size."""
        self.input_size = input_size
        kind = (self.mode, self._backbone, self.backbone_activation)
        if self.wiring is None:
            self.groups = [_Group(input_size, self.units, *kind, None)]
            self._places = [slice(0, self.units)]
        else:
            self.groups, self._places = [], []
            inner, before = self.wiring.adjacency, None
            for _, group in self.wiring.layers:
                own = slice(group.start, group.stop)
                above = (
                    self.wiring.sensory_adjacency(input_size) if before is None else inner[before]
                )
                signs = np.concatenate((above[:, own], inner[own, own]))
                made = _Group(len(above), len(group), *kind, abs(signs).T)
                self.groups.append(made)
                self._places.append(own)
                before = own
        self.is_lazy = False

    def size_from(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take the size of a weight that is to be loaded."""
        first = "groups.0.backbone.0.weight" if self._backbone[1] else "groups.0.ff1.weight"
        if len(shapes.get(first, ())) == 2:
            own = self.units if self.wiring is None else len(self.wiring.layers[0][1])
            self.create(shapes[first][1] - own)

    def prepared(self) -> list[Any]:
        """The weights of all groups."""
        return [group.prepared() for group in self.groups]

    def driven(self, prepared: Any, x: Tensor) -> dict[str, Any]:
        """What the inputs give to the first group, and the factors of dropout."""
        found: dict[str, Any] = {"x": self.groups[0].driven(prepared[0], x), "kept": []}
        if self.backbone_dropout and self.training and self._backbone[1]:
            ones = ops.ones_like(found["x"])  # as wide as the backbone
            found["kept"] = [
                ops.dropout(ones, self.backbone_dropout) for _ in range(self._backbone[1])
            ]
        return found

    def stepped(self, prepared: Any, driven: Any, state: Tensor, span: Any) -> Tensor:
        """The next state, group by group from the inputs to the outputs."""
        if len(self.groups) == 1:
            return self.groups[0].stepped(prepared[0], driven["x"], driven["kept"], state, span)
        parts: list[Tensor] = []
        for group, ready, own in zip(self.groups, prepared, self._places, strict=True):
            given = driven["x"] if not parts else group.driven(ready, parts[-1])
            parts.append(group.stepped(ready, given, [], state[..., own], span))
        return ops.concat(parts[::-1], axis=-1)  # motor neurons come first


class CfC(LiquidSequence):
    """A closed-form continuous-time network over a sequence: a `CfCCell` at each step.

    `units` is the size of the state, or a wiring. Shapes: x `(batch, steps, input_size)`, `(steps,
    batch, input_size)` with `batch_first=False`, or `(steps, input_size)`; state `(batch, units)`;
    `timespans` is a number, or one for each step, in the layout of x. It gives `(outputs, state)`:
    the outputs of all steps, or of the last one with `return_sequences=False`. With `proj_size`
    they go through a linear map. `lengths` and `mask` are as for `nn.RNN`. With `mixed_memory`, an
    LSTM hands its hidden state on to the cell, and the state is `(h, c)`.

    >>> from ember_ml import nn
    >>> out, h = nn.CfC(3, 8, proj_size=2)(ops.ones((4, 5, 3)))
    >>> out.shape, h.shape
    ((4, 5, 2), (4, 8))
    """

    def __init__(
        self,
        input_size: int | None,
        units: int | Wiring,
        proj_size: int | None = None,
        *,
        return_sequences: bool = True,
        batch_first: bool = True,
        mixed_memory: bool = False,
        mode: str = "default",
        backbone_units: int | None = None,
        backbone_layers: int | None = None,
        backbone_activation: str = "lecun_tanh",
        backbone_dropout: float = 0.0,
    ) -> None:
        cell = CfCCell(
            input_size,
            units,
            mode=mode,
            backbone_units=backbone_units,
            backbone_layers=backbone_layers,
            backbone_activation=backbone_activation,
            backbone_dropout=backbone_dropout,
        )
        self._configure(cell, return_sequences, batch_first, mixed_memory)
        self.proj = None if proj_size is None else Linear(cell.outputs, proj_size)

    def read_out(self, state: Tensor) -> Tensor:
        """The outputs of a state."""
        out = self.cell.read_out(state)
        found: Tensor = out if self.proj is None else self.proj(out)
        return found
