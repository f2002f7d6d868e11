"""The activations of `ember_ml.ops`, under the name that networks look for them, and as modules.

>>> from ember_ml.nn.modules.activations import ReLU, get_activation, relu
>>> relu([-1.0, 2.0]).tolist(), ReLU()([-1.0, 2.0]).tolist()
([0.0, 2.0], [0.0, 2.0])
"""

from ember_ml.nn.modules import activation_layers
from ember_ml.nn.modules.activation_layers import *  # noqa: F403 - an index of the same names
from ember_ml.ops import activations
from ember_ml.ops.activations import *  # noqa: F403 - an index of the same names
from ember_ml.ops.activations import identity
from ember_ml.ops.elementwise import tanh

__all__ = ["identity", "linear", "tanh"]
__all__ += activations.__all__
__all__ += activation_layers.__all__

linear = identity
