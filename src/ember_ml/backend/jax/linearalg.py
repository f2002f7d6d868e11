"""Where JAX's factorisations differ from the standard."""

from __future__ import annotations

from typing import Final

import jax
import jax.numpy as jnp

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.errors import LinAlgError

__all__ = ["OVERRIDES"]
OVERRIDES: Final[dict[str, Kernel]] = {}
