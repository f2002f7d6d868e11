"""Initializers: the values that parameters begin with, the same on every backend for a seed.

An initializer is called with a shape. It draws from `generator`, or from the stream of
`em.ops.random.set_seed`. Shapes are as PyTorch lays weights out: `(out, in, *kernel)`.

>>> from ember_ml import nn
>>> nn.initializers.get("he_normal")
HeNormal(mode='fan_in', nonlinearity='relu', negative_slope=0.0)
>>> nn.Linear(3, 2, weight_init="orthogonal", bias_init="zeros").bias.tolist()
[0.0, 0.0]
"""

from ember_ml.nn.initializers import base, hosted, naming, plain, scaled
from ember_ml.nn.initializers.base import *
from ember_ml.nn.initializers.hosted import *
from ember_ml.nn.initializers.naming import *
from ember_ml.nn.initializers.plain import *
from ember_ml.nn.initializers.scaled import *

__all__: list[str] = []
__all__ += base.__all__
__all__ += hosted.__all__
__all__ += naming.__all__
__all__ += plain.__all__
__all__ += scaled.__all__
