"""State spaces as mixers of tokens: linear recurrences with a state for each channel."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ember_ml import ops
from ember_ml.backend.selection import use_backend
from ember_ml.errors import DomainError
from ember_ml.nn.layers.base import RecurrentMixingLayer
from ember_ml.nn.layers.long_convolution import causal_convolution
from ember_ml.nn.layers.recurrences import last, linear_recurrence
from ember_ml.nn.modules.linear import Linear
from ember_ml.nn.parameter import Parameter
from ember_ml.ops.fitting import beside
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["StateSpaceMixer", "StateSpaceState"]


class StateSpaceState(NamedTuple):
    """The state of each channel, and the tokens that the next short convolution will see."""

    hidden: Tensor
    window: Tensor


class StateSpaceMixer(RecurrentMixingLayer):
    """`h_t = exp(Δ A) h_(t-1) + B̄ x_t`, `y_t = C h_t + D x_t`, with `state_size` numbers a channel.

    Shapes: x and y `(batch, length, hidden_size)`; A is diagonal and negative.

    `kind="diagonal"` (as in S4D) has one Δ, A, B and C for each channel, the same at every step,
    with `B̄ = (exp(Δ A) - 1) / A · B`; then a gelu and a linear map. Such a mixer is a convolution,
    too: `mode="convolution"` computes it by FFT, `mode="scan"` step by step with
    `ops.associative_scan`, "auto" by FFT. With a state it is always a scan. A masked token adds
    nothing.

    `kind="selective"` (as in Mamba) makes Δ, B and C of the token, with `B̄ = Δ B`, after a short
    causal convolution, and multiplies by a gate. A masked token leaves the state as it is.

    >>> from ember_ml.nn.layers import sequence_mixing
    >>> sequence_mixing.StateSpaceMixer(8, 4)(ops.ones((2, 5, 8))).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        hidden_size: int,
        state_size: int = 16,
        *,
        kind: str = "selective",
        mode: str = "auto",
        expand: int = 2,
        kernel_size: int = 4,
        step_rank: int | None = None,
        step_range: tuple[float, float] = (0.001, 0.1),
    ) -> None:
        if kind not in ("selective", "diagonal"):
            raise DomainError(f"StateSpaceMixer got kind={kind!r}; it is 'selective' or 'diagonal'")
        if mode not in ("auto", "scan", "convolution"):
            raise DomainError(
                f"StateSpaceMixer got mode={mode!r}; it is 'auto', 'scan' or 'convolution'"
            )
        if kind == "selective" and mode == "convolution":
            raise DomainError("StateSpaceMixer(kind='selective') is no convolution; use 'scan'")
        low, high = step_range
        if state_size < 1 or expand < 1 or kernel_size < 1 or not 0 < low <= high:
            raise DomainError(
                f"StateSpaceMixer got state_size={state_size}, expand={expand}, "
                f"kernel_size={kernel_size}, step_range={step_range}; sizes are 1 or more, steps "
                f"positive"
            )
        self.hidden_size = hidden_size
        self.state_size = state_size
        self.kind = kind
        self.mode = mode
        channels = expand * hidden_size if kind == "selective" else hidden_size
        self.channels = channels
        rates = np.log(np.arange(1, state_size + 1, dtype=np.float32))
        steps = np.exp(np.linspace(math.log(low), math.log(high), channels))
        if kind == "selective":
            self.kernel_size = kernel_size
            self.step_rank = -(-hidden_size // 16) if step_rank is None else step_rank
            self.in_proj = Linear(hidden_size, 2 * channels, False)
            edge = 1 / math.sqrt(kernel_size)
            self.conv_weight = Parameter(ops.random.uniform((channels, kernel_size), -edge, edge))
            self.conv_bias = Parameter(ops.random.uniform((channels,), -edge, edge))
            self.x_proj = Linear(channels, self.step_rank + 2 * state_size, False)
            self.dt_proj = Linear(self.step_rank, channels)
            # The softplus of the bias is the step that a channel begins with.
            self.dt_proj.bias = Parameter(np.log(np.expm1(steps)).astype(np.float32))
        else:
            self.log_step = Parameter(np.log(steps).astype(np.float32))
            self.B = Parameter(ops.ones((channels, state_size)))
            self.C = Parameter(ops.random.normal((channels, state_size)))
        self.A_log = Parameter(np.broadcast_to(rates, (channels, state_size)).copy())
        self.D = Parameter(ops.ones(channels))
        self.out_proj = Linear(channels, hidden_size, kind == "diagonal")

    def forward(
        self,
        x: TensorLike,
        mask: TensorLike | None = None,
        *,
        state: StateSpaceState | None = None,
        return_state: bool = False,
    ) -> Any:
        """See the class."""
        given = self.input(x)
        factors = None if mask is None else self.factors(given, mask)
        if factors is not None:
            given = given * factors
        if self.kind == "selective":
            both: tuple[Tensor, StateSpaceState | None] = self._selective(given, factors, state)
        else:
            both = self._diagonal(given, state, return_state)
        return both if return_state else both[0]

    # --- The same at every step -------------------------------------------------------------

    def _discrete(self) -> tuple[Tensor, Tensor]:
        """`Δ A` and `B̄`, `(channels, state_size)`."""
        rate = -ops.exp(self.A_log)
        turn = ops.expand_dims(ops.exp(self.log_step), axis=-1) * rate
        return turn, ops.expm1(turn) / rate * self.B

    def kernel(self, length: int) -> Tensor:
        """`Σ C exp(Δ A)^t B̄` of a diagonal mixer: its convolution, `(length, channels)`."""
        if self.kind != "diagonal":
            raise DomainError(
                "StateSpaceMixer(kind='selective') has no kernel: it is no convolution"
            )
        turn, entry = self._discrete()
        times = beside(turn, np.arange(length, dtype=np.float32)[:, None, None]).astype(turn.dtype)
        return ops.sum(self.C * entry * ops.exp(turn * times), axis=-1)

    def _diagonal(
        self, x: Tensor, state: StateSpaceState | None, return_state: bool
    ) -> tuple[Tensor, StateSpaceState | None]:
        batch, length, _ = x.shape
        after: StateSpaceState | None = None
        if self.mode == "scan" or state is not None or return_state:
            turn, entry = self._discrete()
            added = ops.expand_dims(x, axis=-1) * entry
            decay = ops.broadcast_to(ops.exp(turn), added.shape)
            hidden = linear_recurrence(decay, added, None if state is None else state.hidden)
            y = ops.sum(self.C * hidden, axis=-1)
            if return_state:
                first = self.initial_state(batch) if state is None else state
                after = StateSpaceState(last(hidden), first.window) if length else first
        else:
            y = causal_convolution(x, self.kernel(length))
        return self.out_proj(ops.gelu(y + self.D * x)), after

    # --- By the token -----------------------------------------------------------------------

    def _selective(
        self, x: Tensor, factors: Tensor | None, state: StateSpaceState | None
    ) -> tuple[Tensor, StateSpaceState]:
        batch, length, _ = x.shape
        first = self.initial_state(batch) if state is None else state
        u, gate = ops.split(self.in_proj(x), 2, axis=-1)
        seen = ops.concat([first.window, u], axis=1)
        u = self.conv_bias + sum(
            seen[:, i : i + length] * self.conv_weight[:, i] for i in range(self.kernel_size)
        )
        u = ops.silu(u)
        size = self.state_size
        made = self.x_proj(u)
        rank = self.step_rank
        step = ops.softplus(self.dt_proj(made[..., :rank]))
        if factors is not None:
            step = step * factors[..., :1]
        entry = ops.expand_dims(made[..., rank : rank + size], axis=-2)
        leave = ops.expand_dims(made[..., rank + size :], axis=-2)
        turn = ops.expand_dims(step, axis=-1)
        decay = ops.exp(turn * -ops.exp(self.A_log))
        hidden = linear_recurrence(decay, ops.expand_dims(step * u, axis=-1) * entry, first.hidden)
        y = (ops.sum(leave * hidden, axis=-1) + self.D * u) * ops.silu(gate)
        after = first
        if length:
            after = StateSpaceState(last(hidden), self._window(seen))
        return self.out_proj(y), after

    def _window(self, seen: Tensor) -> Tensor:
        """The last tokens that a next one sees, in memory of their own: see `last`."""
        count = seen.shape[1]
        return ops.take(seen, beside(seen, np.arange(count - self.kernel_size + 1, count)), axis=1)

    def initial_state(self, batch: int) -> StateSpaceState:
        """Zeros."""
        weight = self.out_proj.weight
        width = self.kernel_size - 1 if self.kind == "selective" else 0
        with use_backend(weight.backend):
            return StateSpaceState(
                ops.zeros(
                    (batch, self.channels, self.state_size),
                    dtype=weight.dtype,
                    device=weight.device,
                ),
                ops.zeros((batch, width, self.channels), dtype=weight.dtype, device=weight.device),
            )
