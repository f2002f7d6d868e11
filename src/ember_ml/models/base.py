"""Models that are made of a config."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from ember_ml.errors import DTypeError
from ember_ml.nn.module import Module
from ember_ml.registry.configs import Config, require_options

__all__ = ["ConfigModel"]

C = TypeVar("C", bound=Config)
Self = TypeVar("Self", bound="ConfigModel[Any]")


class ConfigModel(Module, Generic[C]):
    """A model with a config: `MLP(MLPConfig(...))`, or `MLP(...)` with the same options.

    A subclass names the class of its configs and makes its layers in `__init__`, after
    `super().__init__`, which sets `self.config`.

    >>> from ember_ml.models import MLP, MLPConfig
    >>> a = MLP(in_features=3, out_features=2)
    >>> b = MLP(MLPConfig(in_features=3, out_features=2))
    >>> a.config == b.config
    True
    """

    config_class: ClassVar[type[Any]]
    config: C

    def __init__(self, config: C | None = None, /, **options: Any) -> None:
        kind = self.config_class
        if config is None:
            require_options(kind, type(self).__name__, (), options)
            self.config = kind(**options)
            return
        if not isinstance(config, kind) or options:
            raise DTypeError(
                f"{type(self).__name__} takes a {kind.__name__} or its options by name, "
                f"not {type(config).__name__}{' and options' if options else ''}"
            )
        self.config = config

    def get_config(self) -> dict[str, Any]:
        """The options that the model was made with, as JSON has them."""
        return self.config.to_dict()

    @classmethod
    def from_config(cls: type[Self], config_: Mapping[str, Any], /) -> Self:
        """A new model of the same options."""
        return cls(cls.config_class.from_dict(config_))

    def extra_repr(self) -> str:
        """The options that are not the default."""
        said = []
        for field in dataclasses.fields(self.config):  # type: ignore[arg-type]  # configs of models are dataclasses
            value = getattr(self.config, field.name)
            if value != field.default:
                said.append(f"{field.name}={value!r}")
        return ", ".join(said)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json and model.safetensors to a folder: see models.save_pretrained."""
        from ember_ml.models.pretrained import save_pretrained

        save_pretrained(self, folder)
