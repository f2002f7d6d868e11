"""Models, each with a config, by the paths `models/...` of the registry."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any
from typing import Final as _Final

if _TYPE_CHECKING:
    from ember_ml.models.autoencoder import *
    from ember_ml.models.base import *
    from ember_ml.models.cnn import *
    from ember_ml.models.decoder import *
    from ember_ml.models.encoder import *
    from ember_ml.models.forecaster import *
    from ember_ml.models.mlp import *
    from ember_ml.models.pretrained import *
    from ember_ml.models.processors import *
    from ember_ml.models.rbm import *
    from ember_ml.models.resnet import *

# Which module has which name: each imports no more than it needs.
_BY_MODULE: _Final = {
    "autoencoder": "Autoencoder AutoencoderConfig",
    "base": "ConfigModel",
    "cnn": "CNN CNNConfig",
    "decoder": "Decoder DecoderConfig",
    "encoder": "Encoder EncoderConfig",
    "forecaster": "RNNForecaster RNNForecasterConfig",
    "mlp": "MLP MLPConfig",
    "pretrained": "LoadedReport from_pretrained save_pretrained",
    "processors": "Inhibition Memory Processor SpecializedProcessor",
    "rbm": "RBM RBMConfig",
    "resnet": "ResNet ResNetConfig",
}
_NAMES: _Final = {name: module for module, names in _BY_MODULE.items() for name in names.split()}

__all__: list[str] = []
__all__ += sorted(_NAMES)


def __getattr__(name: str) -> _Any:
    from importlib import import_module

    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'ember_ml.models' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"ember_ml.models.{module}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
