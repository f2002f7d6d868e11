"""Configs: how a module was made, as JSON, and modules made again from it.

A config is a dict of the arguments of the constructor. In it, a module, an initializer or another
object of a class that is known here is `{"type": name, "config": {...}}`, and a function of
`ember_ml.ops` is `{"op": name}`. A file chooses among classes that this process has imported, or
that ember_ml has itself; it brings no code.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, TypeVar

from ember_ml import dtypes
from ember_ml.errors import DomainError, DTypeError, FormatError

__all__ = [
    "Configured",
    "arguments",
    "class_of",
    "config_of",
    "decode",
    "encode",
    "known",
    "make",
    "name_of",
]

C = TypeVar("C", bound="Configured")

_PLAIN: Final = (bool, int, float, str, type(None))
# Classes by the names that configs hold. Each subclass of Module and of Initializer is here.
_CLASSES: Final[dict[str, type]] = {}


def known(cls: type) -> None:
    """Let configs name a class; one that is defined anew takes the place of the old one."""
    _CLASSES[name_of(cls)] = cls


def name_of(cls: type) -> str:
    """The name of a class in configs."""
    return f"{cls.__module__}:{cls.__qualname__}"


def class_of(name: str) -> type:
    """The class of a name in a config."""
    found = _CLASSES.get(name)
    if found is None and name.startswith("ember_ml."):
        with suppress(ImportError):
            import_module(name.partition(":")[0])
        found = _CLASSES.get(name)
    if found is None:
        raise FormatError(
            f"a config names the class {name!r}, which is not known here; import the module that "
            f"defines it first"
        )
    return found


# --- Of an object -------------------------------------------------------------------------------


def arguments(instance: Any) -> dict[str, Any]:
    """The arguments that an object was made with, by name, defaults included."""
    args, kwargs = instance._arguments
    signature = inspect.signature(type(instance).__init__)
    bound = signature.bind(instance, *args, **kwargs)
    bound.apply_defaults()
    found: dict[str, Any] = {}
    for place, (name, value) in enumerate(bound.arguments.items()):
        if not place:  # self
            continue
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        else:
            found[name] = value
    return found


def config_of(instance: Any) -> dict[str, Any]:
    """The arguments that an object was made with, as JSON has them."""
    where = type(instance).__name__
    return {name: encode(v, f"{where}({name})") for name, v in arguments(instance).items()}


def make(cls: type, config: Mapping[str, Any]) -> Any:
    """An object of a class and a config."""
    given = {name: decode(value) for name, value in config.items()}
    positional: list[Any] = []
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL and name in given:
            positional = list(given.pop(name))
    try:
        inspect.signature(cls).bind(*positional, **given)
    except TypeError as error:
        raise DomainError(f"{cls.__name__}.from_config: {error}") from None
    return cls(*positional, **given)


class Configured:
    """An object that is told by the arguments of its constructor: its config, repr and equality."""

    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = object.__new__(cls)
        made._arguments = (args, kwargs)
        return made

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known(cls)

    def get_config(self) -> dict[str, Any]:
        """The arguments that it was made with, as JSON has them."""
        return config_of(self)

    @classmethod
    def from_config(cls: type[C], config: Mapping[str, Any], /) -> C:
        """A new one of the same arguments."""
        made: C = make(cls, config)
        return made

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in arguments(self).items())
        return f"{type(self).__name__}({said})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Configured) or type(self) is not type(other):
            return False
        return self.get_config() == other.get_config()

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))


# --- Values -------------------------------------------------------------------------------------


def encode(value: Any, where: str) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dtypes.DType):
        return {"dtype": value.name}
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple):
        return [encode(item, where) for item in value]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise DTypeError(f"the config of {where} has a dict whose keys are not all strings")
        return {key: encode(item, where) for key, item in value.items()}
    kind = type(value)
    if _CLASSES.get(name_of(kind)) is kind:
        return {"type": name_of(kind), "config": value.get_config()}
    if isinstance(value, type) and _CLASSES.get(name_of(value)) is value:
        return {"class": name_of(value)}
    if callable(value) and _op_name(value) is not None:
        return {"op": _op_name(value)}
    raise DTypeError(
        f"the config of {where} holds {kind.__name__}, which has no place in a file; give names, "
        f"numbers, modules, initializers or functions of ember_ml.ops, or override get_config"
    )


def _op_name(value: Any) -> str | None:
    import ember_ml.ops as ops

    name = getattr(value, "__name__", None)
    return name if name and getattr(ops, name, None) is value else None


def decode(value: Any) -> Any:
    """A value of JSON as it was given."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    keys = set(value)
    if keys == {"type", "config"} and isinstance(value["type"], str):
        cls: Any = class_of(value["type"])
        return cls.from_config(value["config"])
    if keys == {"class"} and isinstance(value["class"], str):
        return class_of(value["class"])
    if keys == {"op"}:
        import ember_ml.ops as ops

        found = getattr(ops, str(value["op"]), None)
        if not callable(found):
            raise FormatError(f"a config names the function {value['op']!r}, not one of ops")
        return found
    if keys == {"dtype"}:
        return dtypes.to_dtype(value["dtype"])
    return {key: decode(item) for key, item in value.items()}
