"""What layers over sequences share: inputs of shape `(batch, length, hidden_size)`, and masks."""

from __future__ import annotations

from typing import Any

from ember_ml import ops
from ember_ml.errors import ShapeError
from ember_ml.nn.module import Module
from ember_ml.nn.modules.inputs import refused
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["ChannelMixingLayer", "Layer", "RecurrentMixingLayer", "SequenceMixingLayer"]


class Layer(Module):
    """A module whose inputs are multiplied by a mask, where one is given.

    A mask has the shape `(batch, length)`, or one that broadcasts to that of the inputs: 1 or True
    for tokens that count, 0 or False for padding.

    >>> from ember_ml.nn import layers
    >>> layers.Layer()(ops.ones((1, 2, 2)), mask=[[True, False]]).tolist()
    [[[1.0, 1.0], [0.0, 0.0]]]
    """

    # The size of the last axis of inputs, where a layer has one.
    hidden_size: int

    def forward(self, x: TensorLike, mask: TensorLike | None = None) -> Tensor:
        """The inputs times the mask; layers do more."""
        return self.masked(self.input(x), mask)

    def input(self, x: Any) -> Tensor:
        """An input as a tensor beside the parameters, of `hidden_size` where the layer has one."""
        if not isinstance(x, Tensor):
            first = next(self.parameters(), None)
            x = convert.to_tensor(x, None if first is None else first._spec.backend)
        size = self.__dict__.get("hidden_size")
        if size is not None and x.shape[-1:] != (size,):
            raise refused(self, x, f"its last axis must be {size}")
        return x  # type: ignore[no-any-return]  # a Tensor, as was asked

    def masked(self, x: Tensor, mask: TensorLike | None) -> Tensor:
        """An input times a mask."""
        return x if mask is None else ops.multiply(x, self.factors(x, mask))

    def factors(self, x: Tensor, mask: TensorLike) -> Tensor:
        """A mask in the dtype of an input, with an axis for its channels."""
        given = convert.to_tensor(mask, x._spec.backend)
        if given.shape == x.shape[:-1]:
            given = ops.expand_dims(given, axis=-1)
        elif given.ndim > x.ndim or any(
            n not in (1, m) for n, m in zip(given.shape[::-1], x.shape[::-1], strict=False)
        ):
            raise ShapeError(
                f"{type(self).__name__} got a mask of shape {given.shape} for inputs of shape "
                f"{x.shape}; it takes {x.shape[:-1]}, or a shape that broadcasts to that of inputs"
            )
        return convert.cast(given, x.dtype)


class ChannelMixingLayer(Layer):
    """A layer that mixes the channels of each token, and no tokens: `(..., hidden_size)`.

    >>> from ember_ml.nn import layers
    >>> class Swap(layers.ChannelMixingLayer):
    ...     def forward(self, x, mask=None):
    ...         return ops.flip(super().forward(x, mask), axis=-1)
    >>> Swap()([[1.0, 2.0]]).tolist()
    [[2.0, 1.0]]
    """


class SequenceMixingLayer(Layer):
    """A layer that mixes the tokens of a sequence: `(batch, length, hidden_size)`.

    >>> from ember_ml.nn import layers
    >>> class Sums(layers.SequenceMixingLayer):
    ...     def forward(self, x, mask=None):
    ...         return ops.cumulative_sum(super().forward(x, mask), axis=1)
    >>> Sums()([[[1.0], [2.0], [3.0]]], mask=[[1, 0, 1]]).tolist()
    [[[1.0], [1.0], [4.0]]]
    """

    def input(self, x: Any) -> Tensor:
        """An input as a tensor of three axes."""
        tensor = super().input(x)
        if tensor.ndim != 3:
            raise refused(self, tensor, "it takes (batch, length, hidden_size)")
        return tensor


class RecurrentMixingLayer(SequenceMixingLayer):
    """A layer that goes on from a state: `y, state = layer(x, state=state, return_state=True)`.

    `initial_state(batch)` is the state before the first token, a tree of tensors; `step(x, state)`
    takes one token `(batch, hidden_size)` and gives its result and the next state. Both can be
    compiled.
    """

    def initial_state(self, batch: int) -> Any:
        """The state before the first token."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it begins")

    def step(self, x: TensorLike, state: Any) -> tuple[Tensor, Any]:
        """One token of each sequence: its result, and the state after it."""
        token = convert.to_tensor(x)
        y, after = self(ops.expand_dims(token, axis=1), state=state, return_state=True)
        return y[:, 0], after
