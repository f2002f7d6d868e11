"""Cells with a state of their own time, and the loop over a sequence of steps."""

from __future__ import annotations

from typing import Any

from ember_ml import dtypes, ops
from ember_ml.backend.selection import use_backend
from ember_ml.devices import use_device
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.nn.module import Module
from ember_ml.nn.modules.recurrent import LSTMCell
from ember_ml.nn.sequences import steps_that_count, zeros_beside
from ember_ml.nn.wirings import Wiring
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["LiquidCell", "LiquidSequence"]


class LiquidCell(Module):
    """One step of a liquid network: from an input, a state and a time span to the next state."""

    input_size: int | None
    units: int
    # How many of the units are read.
    outputs: int

    def _said(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def _size(self, units: int | Wiring) -> Wiring | None:
        """Take the number of units, or a wiring, which has it."""
        if isinstance(units, Wiring):
            self.units, self.outputs = units.units, units.outputs
            return units
        if not isinstance(units, int) or isinstance(units, bool) or units < 1:
            raise DomainError(
                f"{type(self).__name__} got units={units!r}; it is a number from 1, or a wiring"
            )
        self.units = self.outputs = units
        return None

    def create(self, input_size: int) -> None:
        """Make the parameters for inputs of a size."""
        raise NotImplementedError

    # --- The parts of a step, as the loop over a sequence calls them ------------------------

    def prepared(self) -> Any:
        """What is the same for all steps: a tree of tensors."""
        raise NotImplementedError

    def driven(self, prepared: Any, x: Tensor) -> Any:
        """What depends on the inputs alone, of all steps at once: a tree of tensors."""
        raise NotImplementedError

    def stepped(self, prepared: Any, driven: Any, state: Tensor, span: Any) -> Tensor:
        """The next state."""
        raise NotImplementedError

    def read_out(self, state: Tensor) -> Tensor:
        """The outputs of a state, `(..., outputs)`."""
        return state if self.outputs == self.units else state[..., : self.outputs]

    # --- Calling ----------------------------------------------------------------------------

    def settle(self, x: TensorLike) -> Tensor:
        """The input as a tensor, of floats; the first one gives a cell that waits its size."""
        if self.is_lazy:
            first = convert.to_tensor(x)
            if not first.shape:
                raise ShapeError(f"{self._said()} got shape (); it takes a last axis of features")
            with use_backend(first.backend), use_device(first.device):
                self.create(first.shape[-1])
            if first.dtype.is_floating:
                self.to(dtype=first.dtype)
        like = next(self.parameters())
        found = x if isinstance(x, Tensor) else convert.to_tensor(x, like._spec.backend)
        if not found.dtype.is_floating:
            return convert.cast(found, like.dtype)
        return convert.cast(found, dtypes.common([found.dtype, like.dtype], self._said()))

    def forward(
        self,
        x: TensorLike,
        state: TensorLike | None = None,
        timespans: TensorLike | float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """See the class."""
        x = self.settle(x)
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{self._said()} got shape {x.shape}; it takes (batch, {self.input_size}), or "
                f"({self.input_size},)"
            )
        shape = (*x.shape[:-1], self.units)
        if state is None:
            h = zeros_beside(x, shape)
        else:
            h = convert.to_tensor(state, x._spec.backend)
            if h.shape != shape:
                raise ShapeError(
                    f"{self._said()} got a state of shape {h.shape} for an input of shape "
                    f"{x.shape}; it must be {shape}"
                )
        span = spans(self._said(), timespans, x)
        prepared = self.prepared()
        h = self.stepped(prepared, self.driven(prepared, x), h, span)
        return self.read_out(h), h


def spans(who: str, timespans: Any, x: Tensor) -> Any:
    """Time spans as they multiply states: a number, or a tensor with a last axis of one."""
    if isinstance(timespans, int | float) and not isinstance(timespans, bool):
        if timespans < 0:
            raise DomainError(f"{who} got timespans={timespans}; time does not run backward")
        return float(timespans)
    # Clocks are often float64; a state keeps its dtype.
    given = convert.cast(convert.to_tensor(timespans, x._spec.backend), x.dtype)
    if given.shape == ():
        return given
    if given.shape == (*x.shape[:-1], 1):
        return given
    if given.shape != x.shape[:-1]:
        raise ShapeError(
            f"{who} got timespans of shape {given.shape} for an input of shape {x.shape}; they "
            f"must be {x.shape[:-1]}, or one number"
        )
    return ops.expand_dims(given, axis=-1)


class LiquidSequence(Module):
    """A liquid cell over the steps of a sequence."""

    def _configure(
        self, cell: LiquidCell, return_sequences: bool, batch_first: bool, mixed_memory: bool
    ) -> None:
        self.cell = cell
        self.return_sequences = return_sequences
        self.batch_first = batch_first
        # A long short-term memory that hands its hidden state on to the cell.
        self.memory = LSTMCell(cell.input_size, cell.units) if mixed_memory else None

    @property
    def units(self) -> int:
        """The size of the state."""
        return self.cell.units

    @property
    def input_size(self) -> int | None:
        """The size of the inputs; None before the first one where it was not given."""
        return self.cell.input_size

    def _said(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def read_out(self, state: Tensor) -> Tensor:
        """The outputs of a state."""
        return self.cell.read_out(state)

    def forward(
        self,
        x: TensorLike,
        state: Any = None,
        *,
        timespans: TensorLike | float = 1.0,
        lengths: TensorLike | None = None,
        mask: TensorLike | None = None,
    ) -> tuple[Tensor, Any]:
        """See the class."""
        x = self.cell.settle(x)
        if x.ndim not in (2, 3) or x.shape[-1] != self.cell.input_size:
            size = self.cell.input_size
            raise ShapeError(
                f"{self._said()} got shape {x.shape}; it takes "
                f"{'(batch, steps, ' if self.batch_first else '(steps, batch, '}{size}), or "
                f"(steps, {size}) without a batch"
            )
        counted = steps_that_count(self._said(), x, lengths, mask, self.batch_first)
        span = spans(self._said(), timespans, x)
        if counted is not None:
            counted = ops.expand_dims(counted, axis=-1)
            x = ops.where(counted, x, 0.0)  # NaN at padded places must reach no gradient
        turned = self.batch_first and x.ndim == 3
        if turned:
            x, counted, span = (_steps_first(value) for value in (x, counted, span))
        first = self._first(state, x)
        states, last = self._loop(x, first, span, counted)
        if not self.return_sequences:
            return self.read_out(last[0]), (last if self.memory is not None else last[0])
        out = self.read_out(states)
        if counted is not None:
            out = ops.where(counted, out, 0.0)
        if turned:
            out = ops.permute_dims(out, (1, 0, 2))
        return out, (last if self.memory is not None else last[0])

    def _loop(
        self, x: Tensor, first: tuple[Tensor, ...], span: Any, counted: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The states of all steps, and the last one."""
        cell, memory = self.cell, self.memory
        prepared = cell.prepared()
        rows: dict[str, Any] = {"driven": cell.driven(prepared, x)}
        if memory is not None:
            rows["x"] = memory._read(x)  # not within the loop: it may wait for its size
        if counted is not None:
            rows["counted"] = counted
        if isinstance(span, Tensor) and span.ndim:
            rows["span"] = span

        def step(state: tuple[Tensor, ...], row: dict[str, Any]) -> Any:
            h = state[0]
            new: tuple[Tensor, ...] = ()
            if memory is not None:
                h, c = memory(row["x"], state)
                new = (c,)
            h = cell.stepped(prepared, row["driven"], h, row.get("span", span))
            new = (h, *new)
            if counted is not None:
                new = tuple(
                    ops.where(row["counted"], a, b) for a, b in zip(new, state, strict=True)
                )
            return new, new[0]

        last, states = ops.scan(step, first, rows)
        return states, last

    def _first(self, state: Any, x: Tensor) -> tuple[Tensor, ...]:
        """The state to begin with, checked."""
        shape = (*x.shape[1:-1], self.cell.units)
        count = 1 if self.memory is None else 2
        if state is None:
            return tuple(zeros_beside(x, shape) for _ in range(count))
        given = state if self.memory is not None else (state,)
        if not isinstance(given, tuple | list) or len(given) != count:
            raise DTypeError(
                f"{self._said()} got {type(state).__name__} for its state; with a mixed memory it "
                f"takes (h, c)"
            )
        found = tuple(convert.to_tensor(one, x._spec.backend) for one in given)
        for one in found:
            if one.shape != shape:
                raise ShapeError(
                    f"{self._said()} got a state of shape {one.shape}; it must be {shape}"
                )
        return found


def _steps_first(value: Any) -> Any:
    if not isinstance(value, Tensor) or not value.ndim:
        return value
    return ops.permute_dims(value, (1, 0, 2))
