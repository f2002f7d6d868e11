"""RBM: a restricted Boltzmann machine of binary units, trained by contrastive divergence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ember_ml import nn, ops
from ember_ml.autodiff import stop_gradient, value_and_grad
from ember_ml.autodiff.tape import no_grad
from ember_ml.backend.selection import use_backend
from ember_ml.errors import DomainError, ShapeError
from ember_ml.models.base import ConfigModel
from ember_ml.ops.random.generator import Generator
from ember_ml.registry import Config, register
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["RBM", "RBMConfig"]


@register("models/rbm")
@dataclass(frozen=True, kw_only=True)
class RBMConfig(Config):
    """A restricted Boltzmann machine: binary units that are seen, and units that are not."""

    visible: int = 64
    hidden: int = 32
    # The deviation that weights begin with.
    init_std: float = 0.01

    def build(self) -> RBM:
        """The model, on the current backend."""
        return RBM(self)


class RBM(ConfigModel[RBMConfig]):
    """Units v and h in {0, 1} with the energy `E(v, h) = -v·a - h·b - h·W v`.

    Summed over h, the free energy is `F(v) = -v·a - Σ softplus(W v + b)`, and `p(v) ∝ exp(-F(v))`.
    Shapes: v `(batch, visible)`, h `(batch, hidden)`, W `(hidden, visible)`. Called with v, it
    gives the probabilities of h, so it is a layer of features as well.

    >>> from ember_ml.models import RBM
    >>> rbm = RBM(visible=6, hidden=3)
    >>> rbm(ops.ones((2, 6))).shape, rbm.free_energy(ops.ones((2, 6))).shape
    ((2, 3), (2,))
    """

    config_class = RBMConfig

    def __init__(self, config: RBMConfig | None = None, /, **options: Any) -> None:
        super().__init__(config, **options)
        c = self.config
        normal = nn.initializers.Normal(std=c.init_std)
        self.weight = nn.Parameter(normal((c.hidden, c.visible)))
        self.visible_bias = nn.Parameter(ops.zeros(c.visible))
        self.hidden_bias = nn.Parameter(ops.zeros(c.hidden))

    # --- Energies and probabilities -----------------------------------------------------------

    def _units(self, x: TensorLike, kind: str) -> Tensor:
        given = convert.to_tensor(x, self.weight._spec.backend)
        count: int = getattr(self.config, kind)
        if given.ndim != 2 or given.shape[1] != count:
            raise ShapeError(
                f"RBM({kind}={count}) got {kind} units of shape {given.shape}; it takes "
                f"(batch, {count})"
            )
        return given if given.dtype.is_floating else given.astype(self.weight.dtype)

    def energy(self, visible: TensorLike, hidden: TensorLike) -> Tensor:
        """`E(v, h)` of each row."""
        v, h = self._units(visible, "visible"), self._units(hidden, "hidden")
        both = ops.sum(ops.linear(v, self.weight) * h, axis=1)
        return -(v @ self.visible_bias) - (h @ self.hidden_bias) - both

    def free_energy(self, visible: TensorLike) -> Tensor:
        """`F(v)` of each row: the lower, the more probable."""
        v = self._units(visible, "visible")
        inner = ops.softplus(ops.linear(v, self.weight, self.hidden_bias))
        return -(v @ self.visible_bias) - ops.sum(inner, axis=1)

    def hidden_probabilities(self, visible: TensorLike) -> Tensor:
        """`p(h = 1 | v) = σ(W v + b)`."""
        v = self._units(visible, "visible")
        return ops.sigmoid(ops.linear(v, self.weight, self.hidden_bias))

    def visible_probabilities(self, hidden: TensorLike) -> Tensor:
        """`p(v = 1 | h) = σ(Wᵀ h + a)`."""
        h = self._units(hidden, "hidden")
        return ops.sigmoid(h @ self.weight + self.visible_bias)

    def forward(self, visible: TensorLike) -> Tensor:
        """The same as `hidden_probabilities`."""
        return self.hidden_probabilities(visible)

    def reconstruct(self, visible: TensorLike) -> Tensor:
        """The probabilities of v after a step to h and back, without chance."""
        return self.visible_probabilities(self.hidden_probabilities(visible))

    def reconstruction_error(self, visible: TensorLike) -> Tensor:
        """The mean square of what `reconstruct` misses."""
        v = self._units(visible, "visible")
        with no_grad():
            missed = v - self.reconstruct(v)
            return ops.mean(missed * missed)

    # --- Chance -------------------------------------------------------------------------------

    def _drawn(self, probabilities: Tensor, generator: Generator | None) -> Tensor:
        """Units that are 1 with these probabilities."""
        with use_backend(probabilities.backend):
            draws = ops.random.uniform(
                probabilities.shape, device=probabilities.device, generator=generator
            )
        return (draws.astype(probabilities.dtype) < probabilities).astype(probabilities.dtype)

    def gibbs(
        self, visible: TensorLike, steps: int = 1, *, generator: Generator | None = None
    ) -> Tensor:
        """v after `steps` draws of h by v and of v by h."""
        if steps < 1:
            raise DomainError(f"RBM.gibbs got steps={steps}; it is 1 or more")
        with no_grad():
            v = self._units(visible, "visible")
            for _ in range(steps):
                h = self._drawn(self.hidden_probabilities(v), generator)
                v = self._drawn(self.visible_probabilities(h), generator)
        return v

    def sample(self, count: int, steps: int = 100, *, generator: Generator | None = None) -> Tensor:
        """`count` rows of v that the machine makes up, by `steps` of Gibbs sampling from noise."""
        half = ops.full_like(self.weight.detach()[0], 0.5)
        noise = self._drawn(ops.broadcast_to(half, (count, self.config.visible)), generator)
        return self.gibbs(noise, steps, generator=generator)

    # --- Training -----------------------------------------------------------------------------

    def contrastive_divergence(
        self, visible: TensorLike, steps: int = 1, *, generator: Generator | None = None
    ) -> Tensor:
        """A loss whose gradient is that of CD-k: mean F of the data less mean F of `gibbs`.

        Any optimizer can follow it. Its value tells little of how good the machine is; look at
        `reconstruction_error`.

        >>> from ember_ml.models import RBM
        >>> rbm = RBM(visible=4, hidden=2)
        >>> loss, grads = em.value_and_grad(
        ...     lambda m: m.contrastive_divergence(ops.ones((3, 4)), steps=2)
        ... )(rbm)
        >>> grads.weight.shape
        (2, 4)
        """
        v = self._units(visible, "visible")
        model = stop_gradient(self.gibbs(v, steps, generator=generator))
        return ops.mean(self.free_energy(v)) - ops.mean(self.free_energy(model))

    def fit(
        self,
        data: TensorLike,
        epochs: int = 10,
        *,
        lr: float = 0.1,
        batch_size: int = 32,
        steps: int = 1,
        generator: Generator | None = None,
    ) -> list[float]:
        """Train by plain steps of CD-k; gives the reconstruction error after each epoch.

        The order of the rows and all draws come from `generator`. A rest of fewer rows than
        `batch_size` waits for the next epoch's order.
        """
        rows = self._units(data, "visible")
        count = rows.shape[0]
        if not 1 <= batch_size <= count:
            raise DomainError(f"RBM.fit got batch_size={batch_size} for {count} rows")
        errors = []
        for _ in range(epochs):
            with use_backend(rows.backend):
                order = ops.random.permutation(count, generator=generator)
            for start in range(0, count - batch_size + 1, batch_size):
                batch = ops.take(rows, order[start : start + batch_size], axis=0)
                self._descend(batch, lr, steps, generator)
            errors.append(float(self.reconstruction_error(rows).item()))
        return errors

    def _descend(self, batch: Tensor, lr: float, steps: int, generator: Generator | None) -> None:
        _, grads = value_and_grad(
            lambda model: model.contrastive_divergence(batch, steps, generator=generator)
        )(self)
        with no_grad():
            for own, grad in zip(self.parameters(), grads.parameters(), strict=True):
                own -= lr * grad
