"""Recurrent networks: whole sequences, and single steps."""

from __future__ import annotations

from collections.abc import Sequence

from ember_ml.webnn.builder.base import BuilderBase, Options
from ember_ml.webnn.builder.cells import Network
from ember_ml.webnn.operand import MLOperand

__all__ = ["Recurrent"]


class Recurrent(BuilderBase):
    """gru, gru_cell, lstm, lstm_cell."""

    def gru(
        self,
        input: MLOperand,
        weight: MLOperand,
        recurrent_weight: MLOperand,
        steps: int,
        hidden_size: int,
        options: Options = None,
        *,
        bias: MLOperand | None = None,
        recurrent_bias: MLOperand | None = None,
        initial_hidden_state: MLOperand | None = None,
        reset_after: bool = True,
        return_sequence: bool = False,
        direction: str = "forward",
        layout: str = "zrn",
        activations: Sequence[str] | None = None,
        label: str = "",
    ) -> list[MLOperand]:
        """A GRU over a sequence: its last state and, with `return_sequence`, those of all steps.

        (steps, batch, n), (d, 3 h, n), (d, 3 h, h) -> (d, batch, h), (steps, d, batch, h)
        where d is 2 for the direction "both". `layout` is the order of the gates: update (z),
        reset (r), new (n).
        """
        call = self._call(
            "gru",
            options,
            bias=bias,
            recurrent_bias=recurrent_bias,
            initial_hidden_state=initial_hidden_state,
            reset_after=reset_after,
            return_sequence=return_sequence,
            direction=direction,
            layout=layout,
            activations=activations,
            label=label,
        )
        net = Network(call, input, hidden_size, ("zrn", "rzn"), steps)
        weights = net.weights(weight, recurrent_weight)
        state = net.optional("initial_hidden_state", net.state_shape)
        sequence, last = net.gru(weights, state)
        made = [net.result(last)]
        return [*made, net.sequence(sequence)] if call["return_sequence"] else made

    def gru_cell(
        self,
        input: MLOperand,
        weight: MLOperand,
        recurrent_weight: MLOperand,
        hidden_state: MLOperand,
        hidden_size: int,
        options: Options = None,
        *,
        bias: MLOperand | None = None,
        recurrent_bias: MLOperand | None = None,
        reset_after: bool = True,
        layout: str = "zrn",
        activations: Sequence[str] | None = None,
        label: str = "",
    ) -> MLOperand:
        """One step of a GRU.

        (batch, n), (3 h, n), (3 h, h), (batch, h) -> (batch, h)
        """
        call = self._call(
            "gru_cell",
            options,
            bias=bias,
            recurrent_bias=recurrent_bias,
            reset_after=reset_after,
            layout=layout,
            activations=activations,
            label=label,
        )
        net = Network(call, input, hidden_size, ("zrn", "rzn"))
        weights = net.weights(weight, recurrent_weight)
        state = net.part("hidden_state", hidden_state, net.state_shape)
        return net.result(net.gru(weights, state)[1])

    def lstm(
        self,
        input: MLOperand,
        weight: MLOperand,
        recurrent_weight: MLOperand,
        steps: int,
        hidden_size: int,
        options: Options = None,
        *,
        bias: MLOperand | None = None,
        recurrent_bias: MLOperand | None = None,
        peephole_weight: MLOperand | None = None,
        initial_hidden_state: MLOperand | None = None,
        initial_cell_state: MLOperand | None = None,
        return_sequence: bool = False,
        direction: str = "forward",
        layout: str = "iofg",
        activations: Sequence[str] | None = None,
        label: str = "",
    ) -> list[MLOperand]:
        """An LSTM over a sequence: its last hidden and cell states, and those of all steps.

        (steps, batch, n), (d, 4 h, n), (d, 4 h, h) ->
        (d, batch, h), (d, batch, h), and with `return_sequence` (steps, d, batch, h)
        where d is 2 for the direction "both". `layout` is the order of the gates: input (i),
        output (o), forget (f), cell (g).
        """
        call = self._call(
            "lstm",
            options,
            bias=bias,
            recurrent_bias=recurrent_bias,
            peephole_weight=peephole_weight,
            initial_hidden_state=initial_hidden_state,
            initial_cell_state=initial_cell_state,
            return_sequence=return_sequence,
            direction=direction,
            layout=layout,
            activations=activations,
            label=label,
        )
        net = Network(call, input, hidden_size, ("iofg", "ifgo"), steps)
        weights = net.weights(weight, recurrent_weight)
        hidden = net.optional("initial_hidden_state", net.state_shape)
        cell = net.optional("initial_cell_state", net.state_shape)
        sequence, last, last_cell = net.lstm(weights, hidden, cell)
        made = [net.result(last), net.result(last_cell)]
        return [*made, net.sequence(sequence)] if call["return_sequence"] else made

    def lstm_cell(
        self,
        input: MLOperand,
        weight: MLOperand,
        recurrent_weight: MLOperand,
        hidden_state: MLOperand,
        cell_state: MLOperand,
        hidden_size: int,
        options: Options = None,
        *,
        bias: MLOperand | None = None,
        recurrent_bias: MLOperand | None = None,
        peephole_weight: MLOperand | None = None,
        layout: str = "iofg",
        activations: Sequence[str] | None = None,
        label: str = "",
    ) -> list[MLOperand]:
        """One step of an LSTM: the hidden and the cell state.

        (batch, n), (4 h, n), (4 h, h), (batch, h), (batch, h) -> (batch, h), (batch, h)
        """
        call = self._call(
            "lstm_cell",
            options,
            bias=bias,
            recurrent_bias=recurrent_bias,
            peephole_weight=peephole_weight,
            layout=layout,
            activations=activations,
            label=label,
        )
        net = Network(call, input, hidden_size, ("iofg", "ifgo"))
        weights = net.weights(weight, recurrent_weight)
        hidden = net.part("hidden_state", hidden_state, net.state_shape)
        cell = net.part("cell_state", cell_state, net.state_shape)
        _, last, last_cell = net.lstm(weights, hidden, cell)
        return [net.result(last), net.result(last_cell)]
