"""A mixture of experts: each token is computed by those few that a router chooses for it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.errors import DomainError
from ember_ml.nn.initializers import UniformFan
from ember_ml.nn.layers.base import ChannelMixingLayer
from ember_ml.nn.modules.linear import Linear
from ember_ml.nn.parameter import Parameter
from ember_ml.ops.activations import get_activation
from ember_ml.ops.fitting import beside
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["MixtureOfExperts"]


class MixtureOfExperts(ChannelMixingLayer):
    """`Σ p_e · expert_e(x)` over the `top_k` experts that the router finds likeliest for a token.

    Shapes: x and y `(..., hidden_size)`. An expert is a gated MLP of `intermediate_size` channels;
    its weights are a row of `gate`, `up` `(experts, intermediate, hidden)` and `down` `(experts,
    hidden, intermediate)`. The probabilities of the chosen ones add up to 1 with `normalize`.

    Without `capacity_factor` every expert computes every token, and weights of 0 leave out the
    others. With it, an expert takes at most `capacity_factor · top_k · tokens / experts` tokens, in
    their order, and computes no more; what exceeds it passes as zeros, for a residual to carry.

    `layer(x, return_loss=True)` gives the load-balancing loss as well: `experts · Σ f_e P_e`, where
    f is the share of choices that fell on an expert and P its mean probability. It is 1 where the
    load is even, and more where it is not.

    >>> from ember_ml.nn.layers import channel_mixing
    >>> layer = channel_mixing.MixtureOfExperts(8, 16, num_experts=4, top_k=2)
    >>> y, loss = layer(ops.ones((2, 3, 8)), return_loss=True)
    >>> y.shape, loss.shape
    ((2, 3, 8), ())
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int | None = None,
        *,
        num_experts: int = 8,
        top_k: int = 2,
        activation: str = "silu",
        capacity_factor: float | None = None,
        normalize: bool = True,
    ) -> None:
        if not 1 <= top_k <= num_experts:
            raise DomainError(
                f"MixtureOfExperts got top_k={top_k} of num_experts={num_experts}; a token goes to "
                f"one expert at least and to each once"
            )
        if capacity_factor is not None and not capacity_factor > 0:
            raise DomainError(
                f"MixtureOfExperts got capacity_factor={capacity_factor}; it must be positive"
            )
        inner = 4 * hidden_size if intermediate_size is None else intermediate_size
        self.hidden_size = hidden_size
        self.num_experts = num_experts
        self.top_k = top_k
        self.capacity_factor = capacity_factor
        self.normalize = normalize
        self._function = get_activation(activation)
        self.router = Linear(hidden_size, num_experts, False)
        wide, narrow = UniformFan(hidden_size), UniformFan(inner)
        self.gate = Parameter(wide((num_experts, inner, hidden_size)))
        self.up = Parameter(wide((num_experts, inner, hidden_size)))
        self.down = Parameter(narrow((num_experts, hidden_size, inner)))

    def forward(
        self, x: TensorLike, mask: TensorLike | None = None, *, return_loss: bool = False
    ) -> Any:
        """See the class. Masked tokens give zeros and count for neither capacity nor loss."""
        given = self.masked(self.input(x), mask)
        tokens = ops.reshape(given, (-1, self.hidden_size))
        real: Tensor | None = None
        if mask is not None:
            real = ops.any(ops.broadcast_to(self.factors(given, mask), given.shape) != 0, axis=-1)
            real = ops.astype(ops.reshape(real, (-1, 1)), tokens.dtype)
        shares = ops.softmax(self.router(tokens), axis=-1)
        chosen, weights = self._chosen(shares, real)
        y = self._computed(tokens, chosen, weights)
        y = ops.reshape(y, given.shape)
        if not return_loss:
            return y
        return y, self._loss(shares, chosen, real)

    def _chosen(self, shares: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """For each choice and token which expert, one-hot, and each expert's weight."""
        best, places = ops.topk(shares, self.top_k)
        if self.normalize:
            best = best / ops.sum(best, axis=-1, keepdims=True)
        chosen = ops.one_hot(places, self.num_experts, dtype=shares.dtype)
        if real is not None:
            chosen = chosen * ops.expand_dims(real, axis=-1)
        return chosen, ops.sum(chosen * ops.expand_dims(best, axis=-1), axis=1)

    def _computed(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        count = tokens.shape[0]
        if self.capacity_factor is None:
            inner = self._function(ops.einsum("th,eih->eti", tokens, self.gate))
            inner = inner * ops.einsum("th,eih->eti", tokens, self.up)
            return ops.einsum("eti,ehi,te->th", inner, self.down, weights)
        room = max(1, math.ceil(self.capacity_factor * self.top_k * count / self.num_experts))
        taken = ops.sum(chosen, axis=1)
        # The place of a token in the row of its expert; beyond the last one, it has none.
        place = ops.astype(ops.cumulative_sum(taken, axis=0) - taken, "int64")
        slots = ops.expand_dims(place, axis=-1) == beside(place, np.arange(room))
        slots = ops.astype(slots, tokens.dtype)
        slots = slots * ops.expand_dims(taken, axis=-1)
        rows = ops.einsum("tec,th->ech", slots, tokens)
        inner = self._function(ops.einsum("ech,eih->eci", rows, self.gate))
        inner = inner * ops.einsum("ech,eih->eci", rows, self.up)
        made = ops.einsum("eci,ehi->ech", inner, self.down)
        return ops.einsum("tec,te,ech->th", slots, weights, made)

    def _loss(self, shares: Tensor, chosen: Tensor, real: Tensor | None) -> Tensor:
        taken = ops.sum(chosen, axis=1) / self.top_k
        if real is None:
            often, likely = ops.mean(taken, axis=0), ops.mean(shares, axis=0)
        else:
            total = ops.maximum(ops.sum(real), 1.0)
            often = ops.sum(taken, axis=0) / total
            likely = ops.sum(shares * real, axis=0) / total
        return self.num_experts * ops.sum(often * likely)
