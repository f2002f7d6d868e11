"""The losses of `ember_ml.ops.losses`, under the name that training looks for them."""

from ember_ml.ops.losses import *  # noqa: F403 - an index of the same names
from ember_ml.ops.losses import __all__ as _names

__all__ = list(_names)
