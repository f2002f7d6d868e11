"""RNN, LSTM and GRU, over sequences and as cells of one step.

Parameters have PyTorch's names, shapes and first values, so that its state dicts load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ember_ml import ops
from ember_ml.backend.selection import use_backend
from ember_ml.devices import use_device
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.nn.initializers import UniformFan
from ember_ml.nn.module import Module
from ember_ml.nn.parameter import Parameter
from ember_ml.nn.recurrence import recurrent
from ember_ml.nn.sequences import dropped, steps_that_count, zeros_beside
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

# How many rows of weights a kind has for each unit.
_GATES: Final = {"tanh": 1, "relu": 1, "lstm": 4, "gru": 3}


class _Weighted(Module):
    """What layers and cells share: sizes, and weights under PyTorch's names."""

    input_size: int | None
    hidden_size: int
    kind: str
    use_bias: bool

    def _said(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def _require_size(self, name: str, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DomainError(f"{type(self).__name__} got {name}={value!r}; it is a number from 1")

    def _set(self, suffix: str, features: int, state: int, projected: int) -> None:
        """Make the weights of one layer in one direction."""
        init = UniformFan(self.hidden_size)
        rows = _GATES[self.kind] * self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, features),
            "weight_hh": (rows, state),
        }
        if self.use_bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if projected:
            shapes["weight_hr"] = (projected, self.hidden_size)
        for name, shape in shapes.items():
            setattr(self, name + suffix, Parameter(init(shape)))

    def _weights(self, suffix: str) -> list[Tensor | None]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return [getattr(self, name + suffix, None) for name in names]

    def _create(self, input_size: int) -> None:
        raise NotImplementedError

    def _read(self, x: TensorLike) -> Tensor:
        """The input as a tensor; the first one gives a layer that waits its size."""
        if self.is_lazy:
            first = convert.to_tensor(x)
            if not first.shape:
                raise ShapeError(f"{self._said()} got shape (); it takes a last axis of features")
            with use_backend(first.backend), use_device(first.device):
                self._create(first.shape[-1])
            if first.dtype.is_floating:
                self.to(dtype=first.dtype)
            return first
        if isinstance(x, Tensor):
            return x
        like = next(self.parameters())
        found = convert.to_tensor(x, like._spec.backend)
        return found if found.dtype.is_floating else convert.cast(found, like.dtype)

    def _like(self, state: Any, x: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
        """An initial state, checked; zeros where there is none."""
        if state is None:
            return zeros_beside(x, shape)
        found = convert.to_tensor(state, x._spec.backend)
        if found.shape != shape:
            raise ShapeError(
                f"{self._said()} got an initial {name} of shape {found.shape} for an input of "
                f"shape {x.shape}; it must be {shape}"
            )
        return found


class _Layers(_Weighted):
    """Layers over sequences."""

    def _configure(
        self,
        kind: str,
        input_size: int | None,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        proj_size: int = 0,
    ) -> None:
        self.kind = kind
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.use_bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        for name in ("hidden_size", "num_layers"):
            self._require_size(name, getattr(self, name))
        if not 0 <= self.dropout <= 1:
            raise DomainError(
                f"{type(self).__name__} got dropout={dropout}; it is a probability, 0 to 1"
            )
        if not 0 <= proj_size < hidden_size:
            raise DomainError(
                f"{type(self).__name__} got proj_size={proj_size} for hidden_size={hidden_size}; "
                f"it must be smaller, or 0 for none"
            )
        self.is_lazy = input_size is None
        if input_size is not None:
            self._create(input_size)

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _out(self) -> int:
        """The size of the hidden state, which is also the output of one direction."""
        return self.proj_size or self.hidden_size

    def _create(self, input_size: int) -> None:
        self._require_size("input_size", input_size)
        self.input_size = input_size
        for layer in range(self.num_layers):
            features = input_size if layer == 0 else self._out * self._directions
            for suffix in self._suffixes(layer):
                self._set(suffix, features, self._out, self.proj_size)
        self.is_lazy = False

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self._directions]

    def size_from(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take the size of a weight that is to be loaded."""
        if len(shapes.get("weight_ih_l0", ())) == 2:
            self._create(shapes["weight_ih_l0"][1])

    def _run(
        self,
        x: TensorLike,
        state: Sequence[Any],
        lengths: TensorLike | None,
        mask: TensorLike | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The outputs and the last states, laid out as the caller has them."""
        x = self._read(x)
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{self._said()} got shape {x.shape}; it takes "
                f"{'(batch, steps, ' if self.batch_first else '(steps, batch, '}"
                f"{self.input_size}), or (steps, {self.input_size}) without a batch"
            )
        counted = steps_that_count(self._said(), x, lengths, mask, self.batch_first)
        single = x.ndim == 2
        if single:
            x = ops.expand_dims(x, axis=1)
            counted = None if counted is None else ops.expand_dims(counted, axis=1)
        elif self.batch_first:
            x = ops.permute_dims(x, (1, 0, 2))
            counted = None if counted is None else ops.permute_dims(counted, (1, 0))
        if counted is not None:
            # What stands at padded places, NaN as well, must not reach a gradient.
            x = ops.where(ops.expand_dims(counted, axis=-1), x, 0.0)
        h0, c0 = self._states(state, x, single)
        out, h, c = self._stacked(x, h0, c0, counted)
        if single:
            return (
                ops.squeeze(out, axis=1),
                ops.squeeze(h, axis=1),
                None if c is None else ops.squeeze(c, axis=1),
            )
        return (ops.permute_dims(out, (1, 0, 2)) if self.batch_first else out), h, c

    def _stacked(
        self, x: Tensor, h0: Tensor, c0: Tensor | None, counted: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        if not x.shape[0]:  # no steps
            out = zeros_beside(x, (0, x.shape[1], self._out * self._directions))
            return out, h0, c0
        hs, cs = [], []
        size = self._directions
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = dropped(x, self.dropout)
            own = slice(layer * size, (layer + 1) * size)
            whole = self.num_layers == 1
            x, h, c = recurrent(
                type(self).__name__,
                self.kind,
                x,
                h0 if whole else h0[own],
                c0 if whole or c0 is None else c0[own],
                counted,
                [self._weights(suffix) for suffix in self._suffixes(layer)],
            )
            hs.append(h)
            cs.append(c)
        if len(hs) == 1:
            return x, hs[0], cs[0]
        last = None if cs[0] is None else ops.concat([c for c in cs if c is not None])
        return x, ops.concat(hs), last

    def _states(
        self, state: Sequence[Any], x: Tensor, single: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The initial states, checked and with a batch."""
        count = self.num_layers * self._directions
        found = []
        for name, given, size in zip("hc", state, (self._out, self.hidden_size), strict=False):
            if given is not None and single:
                given = convert.to_tensor(given, x._spec.backend)
                if given.shape != (count, size):
                    raise ShapeError(
                        f"{self._said()} got an initial {name} of shape {given.shape} for an "
                        f"input without a batch; it must be {(count, size)}"
                    )
                given = ops.expand_dims(given, axis=1)
            found.append(self._like(given, x, (count, x.shape[1], size), name))
        return found[0], found[1] if len(found) == 2 else None


class RNN(_Layers):
    """`h_t = tanh(x_t W_ihᵀ + b_ih + h_(t-1) W_hhᵀ + b_hh)` over a sequence, or relu for tanh.

    Shapes: x `(steps, batch, input_size)`, with `batch_first` `(batch, steps, input_size)`, or
    `(steps, input_size)`; state `(layers * directions, batch, hidden_size)`. It gives the outputs,
    `(steps, batch, directions * hidden_size)`, and the last state.

    `lengths`, one for each sequence, or `mask`, True where a step counts, in the layout of x, say
    what is padding: such steps leave the state as it is and give zeros, as packed sequences of
    PyTorch do. `dropout` is between layers, in training. All weights begin uniform within
    ±1/√hidden_size.

    >>> from ember_ml import nn
    >>> out, h = nn.RNN(3, 5)(ops.ones((7, 2, 3)))
    >>> out.shape, h.shape
    ((7, 2, 5), (1, 2, 5))
    """

    def __init__(
        self,
        input_size: int | None,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        _require_nonlinearity("RNN", nonlinearity)
        self.nonlinearity = nonlinearity
        self._configure(
            nonlinearity,
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
        )

    def forward(
        self,
        x: TensorLike,
        state: TensorLike | None = None,
        *,
        lengths: TensorLike | None = None,
        mask: TensorLike | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See the class."""
        out, h, _ = self._run(x, (state,), lengths, mask)
        return out, h


class GRU(_Layers):
    """Gated recurrent units over a sequence.

        r = σ(x W_irᵀ + b_ir + h W_hrᵀ + b_hr)
        z = σ(x W_izᵀ + b_iz + h W_hzᵀ + b_hz)
        n = tanh(x W_inᵀ + b_in + r (h W_hnᵀ + b_hn))
        h = (1 - z) n + z h

    Shapes, `lengths`, `mask` and the first weights are those of `RNN`; the rows of the weights are
    those of r, z and n.

    >>> from ember_ml import nn
    >>> gru = nn.GRU(3, 5, bidirectional=True, batch_first=True)
    >>> out, h = gru(ops.ones((2, 7, 3)), lengths=[7, 4])
    >>> out.shape, h.shape, out[1, 4:].any().item()
    ((2, 7, 10), (2, 2, 5), False)
    """

    def __init__(
        self,
        input_size: int | None,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        self._configure(
            "gru", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )

    def forward(
        self,
        x: TensorLike,
        state: TensorLike | None = None,
        *,
        lengths: TensorLike | None = None,
        mask: TensorLike | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See the class."""
        out, h, _ = self._run(x, (state,), lengths, mask)
        return out, h


class LSTM(_Layers):
    """Long short-term memory over a sequence.

        i, f, g, o = x W_ihᵀ + b_ih + h W_hhᵀ + b_hh, in four parts
        c = σ(f) c + σ(i) tanh(g)
        h = σ(o) tanh(c)

    Shapes, `lengths`, `mask` and the first weights are those of `RNN`. The state is `(h, c)`. With
    `proj_size`, h is `σ(o) tanh(c) W_hrᵀ`, of that size.

    >>> from ember_ml import nn
    >>> out, (h, c) = nn.LSTM(3, 5, num_layers=2)(ops.ones((7, 2, 3)))
    >>> out.shape, h.shape, c.shape
    ((7, 2, 5), (2, 2, 5), (2, 2, 5))
    """

    def __init__(
        self,
        input_size: int | None,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
    ) -> None:
        self._configure(
            "lstm",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
        )

    def forward(
        self,
        x: TensorLike,
        state: tuple[TensorLike, TensorLike] | None = None,
        *,
        lengths: TensorLike | None = None,
        mask: TensorLike | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """See the class."""
        out, h, c = self._run(x, _pair(self, state), lengths, mask)
        assert c is not None, "an LSTM has cells"
        return out, (h, c)


def _require_nonlinearity(owner: str, nonlinearity: Any) -> None:
    if nonlinearity not in ("tanh", "relu"):
        raise DomainError(f"{owner} got nonlinearity={nonlinearity!r}; it is 'tanh' or 'relu'")


def _pair(layer: _Weighted, state: Any) -> Sequence[Any]:
    if state is None:
        return (None, None)
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise DTypeError(
            f"{layer._said()} got {type(state).__name__} for its state; it takes (h, c)"
        )
    return state


# --- Cells ----------------------------------------------------------------------------------------


class _Cell(_Weighted):
    """One step."""

    def _configure(self, kind: str, input_size: int | None, hidden_size: int, bias: bool) -> None:
        self.kind = kind
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.use_bias = bias
        self._require_size("hidden_size", hidden_size)
        self.is_lazy = input_size is None
        if input_size is not None:
            self._create(input_size)

    def _create(self, input_size: int) -> None:
        self._require_size("input_size", input_size)
        self.input_size = input_size
        self._set("", input_size, self.hidden_size, 0)
        self.is_lazy = False

    def size_from(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take the size of a weight that is to be loaded."""
        if len(shapes.get("weight_ih", ())) == 2:
            self._create(shapes["weight_ih"][1])

    def _run(self, x: TensorLike, state: Sequence[Any]) -> tuple[Tensor, Tensor | None]:
        x = self._read(x)
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{self._said()} got shape {x.shape}; it takes (batch, {self.input_size}), or "
                f"({self.input_size},)"
            )
        shape = (*x.shape[:-1], self.hidden_size)
        states = [self._like(s, x, shape, name) for name, s in zip("hc", state, strict=False)]
        rows = math.prod(shape[:-1])
        as_layer = [ops.reshape(s, (1, rows, self.hidden_size)) for s in states]
        out, _, c = recurrent(
            type(self).__name__,
            self.kind,
            ops.reshape(x, (1, rows, x.shape[-1])),
            as_layer[0],
            as_layer[1] if len(as_layer) == 2 else None,
            None,
            [self._weights("")],
        )
        return ops.reshape(out, shape), None if c is None else ops.reshape(c, shape)


class RNNCell(_Cell):
    """One step of an `RNN`: `h' = tanh(x W_ihᵀ + b_ih + h W_hhᵀ + b_hh)`, or relu for tanh.

    Shapes: x `(batch, input_size)` or `(input_size,)`, h and h' `(batch, hidden_size)`.

    >>> from ember_ml import nn
    >>> nn.RNNCell(3, 5)(ops.ones((2, 3))).shape
    (2, 5)
    """

    def __init__(
        self,
        input_size: int | None,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
    ) -> None:
        _require_nonlinearity("RNNCell", nonlinearity)
        self.nonlinearity = nonlinearity
        self._configure(nonlinearity, input_size, hidden_size, bias)

    def forward(self, x: TensorLike, state: TensorLike | None = None) -> Tensor:
        """See the class."""
        return self._run(x, (state,))[0]


class GRUCell(_Cell):
    """One step of a `GRU`.

    Shapes: x `(batch, input_size)` or `(input_size,)`, h and h' `(batch, hidden_size)`.

    >>> from ember_ml import nn
    >>> nn.GRUCell(3, 5)(ops.ones((2, 3))).shape
    (2, 5)
    """

    def __init__(self, input_size: int | None, hidden_size: int, bias: bool = True) -> None:
        self._configure("gru", input_size, hidden_size, bias)

    def forward(self, x: TensorLike, state: TensorLike | None = None) -> Tensor:
        """See the class."""
        return self._run(x, (state,))[0]


class LSTMCell(_Cell):
    """One step of an `LSTM`: from x and `(h, c)` to `(h', c')`.

    Shapes: x `(batch, input_size)` or `(input_size,)`, h and c `(batch, hidden_size)`.

    >>> from ember_ml import nn
    >>> h, c = nn.LSTMCell(3, 5)(ops.ones((2, 3)))
    >>> h.shape, c.shape
    ((2, 5), (2, 5))
    """

    def __init__(self, input_size: int | None, hidden_size: int, bias: bool = True) -> None:
        self._configure("lstm", input_size, hidden_size, bias)

    def forward(
        self, x: TensorLike, state: tuple[TensorLike, TensorLike] | None = None
    ) -> tuple[Tensor, Tensor]:
        """See the class."""
        h, c = self._run(x, _pair(self, state))
        assert c is not None, "an LSTM has cells"
        return h, c
