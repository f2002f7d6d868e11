"""Layers by chapter; each is in `ember_ml.nn` as well."""

from typing import TYPE_CHECKING

from ember_ml.nn.index import NAMES as _NAMES
from ember_ml.nn.modules import activations as activations
from ember_ml.nn.modules.activation_layers import *
from ember_ml.nn.modules.arranging import *
from ember_ml.nn.modules.attention import *
from ember_ml.nn.modules.batch_normalization import *
from ember_ml.nn.modules.containers import *
from ember_ml.nn.modules.convolution import *
from ember_ml.nn.modules.dropout import *
from ember_ml.nn.modules.embedding import *
from ember_ml.nn.modules.linear import *
from ember_ml.nn.modules.liquid import *
from ember_ml.nn.modules.normalization import *
from ember_ml.nn.modules.pooling import *
from ember_ml.nn.modules.recurrent import *

if not TYPE_CHECKING:  # type checkers read the star imports, and no list that is computed
    __all__ = ["activations"]
    __all__ += [name for name, module in _NAMES.items() if module.startswith("modules.")]
