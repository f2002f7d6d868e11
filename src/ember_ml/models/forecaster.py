"""RNNForecaster: what comes next in a series, by a recurrent network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ember_ml import nn, ops
from ember_ml.autodiff.tape import no_grad
from ember_ml.errors import DomainError, ShapeError
from ember_ml.models.base import ConfigModel
from ember_ml.registry import Config, register
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["RNNForecaster", "RNNForecasterConfig"]

_CELLS: Final = ("gru", "lstm", "rnn")


@register("models/forecaster")
@dataclass(frozen=True, kw_only=True)
class RNNForecasterConfig(Config):
    """A recurrent network that forecasts a series some steps ahead."""

    features: int = 1
    # How many of the features are forecast; None: all. They are the first ones.
    targets: int | None = None
    horizon: int = 1
    hidden_size: int = 64
    num_layers: int = 1
    # "gru", "lstm" or "rnn".
    cell: str = "gru"
    dropout: float = 0.0
    # The network tells how far the series moves from its last value.
    residual: bool = True

    def build(self) -> RNNForecaster:
        """The model, on the current backend."""
        return RNNForecaster(self)


class RNNForecaster(ConfigModel[RNNForecasterConfig]):
    """A recurrent network over the past, and a linear layer from its last state to the future.

    Shapes: x `(batch, steps, features)`, the result `(batch, horizon, targets)`.

    >>> from ember_ml.models import RNNForecaster
    >>> model = RNNForecaster(features=2, horizon=3, hidden_size=8)
    >>> model(ops.ones((4, 10, 2))).shape, model.forecast(ops.ones((4, 10, 2)), 7).shape
    ((4, 3, 2), (4, 7, 2))
    """

    config_class = RNNForecasterConfig

    def __init__(self, config: RNNForecasterConfig | None = None, /, **options: Any) -> None:
        super().__init__(config, **options)
        c = self.config
        if c.cell not in _CELLS:
            raise DomainError(f"RNNForecaster got cell={c.cell!r}; it is one of {_CELLS}")
        self.targets = c.features if c.targets is None else c.targets
        if not 1 <= self.targets <= c.features:
            raise DomainError(
                f"RNNForecaster got targets={c.targets} of features={c.features}; "
                f"targets are the first of the features"
            )
        kind = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}[c.cell]
        self.rnn = kind(
            c.features, c.hidden_size, c.num_layers, batch_first=True, dropout=c.dropout
        )
        self.head = nn.Linear(c.hidden_size, c.horizon * self.targets)

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        c = self.config
        series = convert.to_tensor(x, self.head.weight._spec.backend)
        if series.ndim != 3 or series.shape[2] != c.features or not series.shape[1]:
            raise ShapeError(
                f"RNNForecaster(features={c.features}) got shape {series.shape}; it takes "
                f"(batch, steps, {c.features}), with one step or more"
            )
        out, _ = self.rnn(series)
        steps = ops.reshape(self.head(out[:, -1]), (series.shape[0], c.horizon, self.targets))
        return steps + series[:, -1:, : self.targets] if c.residual else steps

    def forecast(self, x: TensorLike, steps: int) -> Tensor:
        """A forecast of any length: each is read as the past of the next; nothing is recorded.

        All features must be forecast. The result is `(batch, steps, features)`.
        """
        if self.targets != self.config.features:
            raise DomainError(
                f"forecast needs all {self.config.features} features, and "
                f"RNNForecaster(targets={self.targets}) forecasts {self.targets}"
            )
        if steps < 1:
            raise DomainError(f"forecast got steps={steps}; it is 1 or more")
        with no_grad():
            series = convert.to_tensor(x, self.head.weight._spec.backend)
            found: list[Tensor] = []
            while len(found) * self.config.horizon < steps:
                ahead = self(series)
                found.append(ahead)
                # As many steps as before: an engine that compiles for a shape does so once.
                series = ops.concat([series, ahead], axis=1)[:, -series.shape[1] :]
            return ops.concat(found, axis=1)[:, :steps]
