"""The registry that a program shares, and what ember_ml has in it."""

from __future__ import annotations

from typing import Final

from ember_ml.registry.names import Registry

__all__ = ["default"]

_MODELS: Final = {
    "autoencoder": "autoencoder",
    "cnn": "cnn",
    "decoder": "decoder",
    "encoder": "encoder",
    "forecaster": "forecaster",
    "mlp": "mlp",
    "rbm": "rbm",
    "resnet18": "resnet",
}
_PROCESSORS: Final = ("default", "inhibition", "memory")

default: Final = Registry(
    "ember_ml.registry",
    group="ember_ml.registry",
    # Each module registers its names when it is imported, which is when one is asked for.
    modules={
        **{f"models/{name}": f"ember_ml.models.{module}" for name, module in _MODELS.items()},
        **{f"processors/{role}": "ember_ml.models.processors" for role in _PROCESSORS},
    },
)
