"""Recurrent networks as mixers of tokens."""

from __future__ import annotations

from typing import Any

from ember_ml import ops
from ember_ml.backend.selection import use_backend
from ember_ml.errors import DomainError
from ember_ml.nn.layers.base import RecurrentMixingLayer
from ember_ml.nn.layers.recurrences import last, linear_recurrence
from ember_ml.nn.module import Module
from ember_ml.nn.modules.linear import Linear
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["RNNMixer"]

_CELLS = ("min_gru", "gru", "lstm", "rnn")


class RNNMixer(RecurrentMixingLayer):
    """A recurrent network between inputs and a linear map.

    With `cell="min_gru"`, `h_t = (1 - z_t) h_(t-1) + z_t c_t`, where the gate `z = σ(gate(x))` and
    the candidate `c = candidate(x)` depend on the token alone, so all steps are computed at once.
    "gru", "lstm" and "rnn" are `nn.GRU`, `nn.LSTM` and `nn.RNN`. Masked tokens leave the state as
    it is.

    Shapes: x and y `(batch, length, hidden_size)`; the network has `state_size` channels, as many
    unless it is given.

    >>> from ember_ml.nn.layers import sequence_mixing
    >>> layer = sequence_mixing.RNNMixer(8)
    >>> y, state = layer(ops.ones((2, 5, 8)), return_state=True)
    >>> y.shape, state.shape
    ((2, 5, 8), (2, 8))
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        cell: str = "min_gru",
        state_size: int | None = None,
        num_layers: int = 1,
        bias: bool = True,
    ) -> None:
        if cell not in _CELLS:
            raise DomainError(f"RNNMixer got cell={cell!r}; there are {', '.join(_CELLS)}")
        if cell == "min_gru" and num_layers != 1:
            raise DomainError("RNNMixer(cell='min_gru') has one layer; put mixers in a row")
        inner = hidden_size if state_size is None else state_size
        self.hidden_size = hidden_size
        self.state_size = inner
        self.cell = cell
        self.num_layers = num_layers
        self.gate_proj = self.candidate_proj = self.network = None
        if cell == "min_gru":
            self.gate_proj = Linear(hidden_size, inner, bias)
            self.candidate_proj = Linear(hidden_size, inner, bias)
        else:
            self.network = _network(cell, hidden_size, inner, num_layers, bias)
        self.out_proj = Linear(inner, hidden_size, bias)

    def forward(
        self,
        x: TensorLike,
        mask: TensorLike | None = None,
        *,
        state: Any = None,
        return_state: bool = False,
    ) -> Any:
        """See the class."""
        given = self.input(x)
        factors = None if mask is None else self.factors(given, mask)
        if factors is not None:
            given = given * factors
        if self.network is None:
            hidden, after = self._gated(given, factors, state)
        elif factors is None:
            hidden, after = self.network(given, state)
        else:
            hidden, after = self.network(given, state, mask=factors[..., 0] != 0)
        y = self.out_proj(hidden)
        return (y, after) if return_state else y

    def _gated(
        self, x: Tensor, factors: Tensor | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        assert self.gate_proj is not None  # the cell is min_gru
        assert self.candidate_proj is not None  # likewise
        gate = ops.sigmoid(self.gate_proj(x))
        if factors is not None:
            gate = gate * factors[..., :1]
        hidden = linear_recurrence(1.0 - gate, gate * self.candidate_proj(x), state)
        if not hidden.shape[1]:
            return hidden, self.initial_state(x.shape[0]) if state is None else state
        return hidden, last(hidden)

    def initial_state(self, batch: int) -> Any:
        """Zeros."""
        weight = self.out_proj.weight
        shape: tuple[int, ...] = (batch, self.state_size)
        if self.cell != "min_gru":
            shape = (self.num_layers, *shape)
        with use_backend(weight.backend):
            zeros = ops.zeros(shape, dtype=weight.dtype, device=weight.device)
            return (zeros, zeros.copy()) if self.cell == "lstm" else zeros


def _network(cell: str, size: int, inner: int, layers: int, bias: bool) -> Module:
    from ember_ml.nn.modules.recurrent import GRU, LSTM, RNN

    kinds: dict[str, Any] = {"gru": GRU, "lstm": LSTM, "rnn": RNN}
    made: Module = kinds[cell](size, inner, num_layers=layers, bias=bias, batch_first=True)
    return made
