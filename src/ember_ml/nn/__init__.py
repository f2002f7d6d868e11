"""Neural networks over ops, and the tensor module under the name that models use."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ember_ml.nn import tensor
from ember_ml.nn.index import NAMES as _NAMES
from ember_ml.nn.index import PACKAGES as _PACKAGES

if _TYPE_CHECKING:
    from ember_ml.nn import features as features
    from ember_ml.nn import initializers as initializers
    from ember_ml.nn import losses as losses
    from ember_ml.nn import modules as modules
    from ember_ml.nn.module import Module as Module
    from ember_ml.nn.module import watching as watching
    from ember_ml.nn.modules import *
    from ember_ml.nn.parameter import Buffer as Buffer
    from ember_ml.nn.parameter import Parameter as Parameter

__all__ = ["tensor"]
__all__ += sorted((*_NAMES, *_PACKAGES))


def __getattr__(name: str) -> _Any:
    """What users ask for is imported then: `import ember_ml` stays small."""
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"ember_ml.nn.{name}")
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'ember_ml.nn' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"ember_ml.nn.{module}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
