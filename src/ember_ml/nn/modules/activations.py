"""The activations of `ember_ml.ops`, under the name that networks look for them.

>>> from ember_ml.nn.modules.activations import get_activation, relu
>>> relu([-1.0, 2.0]).tolist()
[0.0, 2.0]
"""

from ember_ml.ops import activations
from ember_ml.ops.activations import *  # noqa: F403 - an index of the same names
from ember_ml.ops.activations import identity
from ember_ml.ops.elementwise import tanh

__all__ = ["identity", "linear", "tanh"]
__all__ += activations.__all__

linear = identity
