"""Layers by chapter; each is in `ember_ml.nn` as well."""

from ember_ml.nn.modules import activations as activations
from ember_ml.nn.modules.activation_layers import *
from ember_ml.nn.modules.arranging import *
from ember_ml.nn.modules.attention import *
from ember_ml.nn.modules.containers import *
from ember_ml.nn.modules.convolution import *
from ember_ml.nn.modules.dropout import *
from ember_ml.nn.modules.embedding import *
from ember_ml.nn.modules.linear import *
from ember_ml.nn.modules.normalization import *
from ember_ml.nn.modules.pooling import *
from ember_ml.nn.modules.recurrent import *
