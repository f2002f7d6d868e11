"""Neural networks over ops, and the tensor module under the name that models use."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ember_ml.nn import tensor

if _TYPE_CHECKING:
    from ember_ml.nn import features, modules

__all__ = ["features", "modules", "tensor"]


def __getattr__(name: str) -> _Any:
    if name in ("features", "modules"):  # imported by those who use it
        from importlib import import_module

        return import_module(f"ember_ml.nn.{name}")
    raise AttributeError(f"module 'ember_ml.nn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
