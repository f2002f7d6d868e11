"""Configs: what something is made of, as an object, as a dict and as a file."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from ember_ml.backend.selection import use_backend
from ember_ml.errors import DomainError, DTypeError, FormatError
from ember_ml.nn import config as nn_config

__all__ = ["Config", "defaults_of", "make", "on", "options_of", "require_options"]

Self = TypeVar("Self", bound="Config")


def on(backend_context: Any) -> AbstractContextManager[Any]:
    """The scope that a backend context means: None, a backend's name, or a context manager.

    >>> from ember_ml import registry
    >>> with registry.on("numpy"):
    ...     em.get_backend()
    'numpy'
    """
    if backend_context is None:
        return nullcontext()
    if isinstance(backend_context, str):
        return use_backend(backend_context)
    if hasattr(backend_context, "__enter__") and hasattr(backend_context, "__exit__"):
        scope: AbstractContextManager[Any] = backend_context
        return scope
    raise DTypeError(
        f"a backend context is None, a backend's name or a context such as "
        f"em.use_backend('torch'), not {type(backend_context).__name__}"
    )


class Config:
    """What a model is made of; a subclass is a dataclass with a method `build`.

    >>> from dataclasses import dataclass
    >>> from ember_ml import nn
    >>> from ember_ml.registry import Config, Registry
    >>> mine = Registry("mine")
    >>> @mine.register("models/line")
    ... @dataclass(frozen=True)
    ... class LineConfig(Config):
    ...     width: int = 2
    ...
    ...     def build(self):
    ...         return nn.Linear(self.width, 1)
    >>> LineConfig(width=3).create("numpy").weight.shape
    (1, 3)
    >>> LineConfig.from_dict(LineConfig(width=3).to_dict())
    LineConfig(width=3)
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        nn_config.known(cls)  # configs of modules may hold one

    def build(self) -> Any:
        """What the config makes, on the current backend."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it makes")

    def create(self, backend_context: Any = None) -> Any:
        """What the config makes, on a backend: a name, or a context such as em.use_backend(...)."""
        with on(backend_context):
            return self.build()

    def to_dict(self) -> dict[str, Any]:
        """The options, as JSON has them."""
        from ember_ml.registry.own import default

        return options_of(self, default._encoded)

    @classmethod
    def from_dict(cls: type[Self], options: Mapping[str, Any]) -> Self:
        """A config of these options; those that are not told have their defaults."""
        from ember_ml.registry.own import default

        made: Self = make(cls, cls.__name__, options, default._decoded)
        return made

    # The names that configs of modules use.
    def get_config(self) -> dict[str, Any]:
        """The same as `to_dict`."""
        return self.to_dict()

    @classmethod
    def from_config(cls: type[Self], config: Mapping[str, Any], /) -> Self:
        """The same as `from_dict`."""
        return cls.from_dict(config)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the config to a .json, .toml or .yaml file; its class must be registered."""
        from ember_ml.registry.own import default

        default.save(path, self)

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        """The config of a file; FormatError where it is of another class."""
        from ember_ml.registry.own import default

        found = default.load(path)
        if not isinstance(found, cls):
            raise FormatError(
                f"'{os.fspath(path)}' holds {type(found).__name__}, not {cls.__name__}"
            )
        return found


# --- From objects -------------------------------------------------------------------------------

Encoder = Callable[[Any], dict[str, Any] | None]
Decoder = Callable[[Mapping[str, Any]], Any]


def options_of(item: Any, encoder: Encoder) -> dict[str, Any]:
    """The options of a config as JSON has them: of its fields, or of its constructor."""
    kind = type(item)
    if getattr(kind, "_is_module", False):
        found: dict[str, Any] = item.get_config()
        return found
    given: dict[str, Any]
    if dataclasses.is_dataclass(item):
        given = {f.name: getattr(item, f.name) for f in dataclasses.fields(item) if f.init}
    elif callable(getattr(item, "get_config", None)) and not isinstance(item, Config):
        given = item.get_config()
    else:
        given = _attributes(item)
    return {
        name: _encode(value, f"{kind.__name__}({name})", encoder) for name, value in given.items()
    }


def _attributes(item: Any) -> dict[str, Any]:
    kind = type(item)
    found: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if not hasattr(item, name):
            raise DTypeError(
                f"{kind.__name__} takes {name!r} and keeps no attribute of that name, so its "
                f"config is not known; set self.{name}, or write get_config and from_config"
            )
        found[name] = getattr(item, name)
    return found


def _encode(value: Any, where: str, encoder: Encoder) -> Any:
    if isinstance(value, list | tuple):
        return [_encode(item, where, encoder) for item in value]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise DTypeError(f"the config of {where} has a dict whose keys are not all strings")
        return {key: _encode(item, where, encoder) for key, item in value.items()}
    known = None if isinstance(value, bool | int | float | str | None) else encoder(value)
    return nn_config.encode(value, where) if known is None else known


def defaults_of(kind: type) -> dict[str, Any]:
    """The defaults of a class, by name."""
    try:
        parameters = inspect.signature(kind).parameters
    except (TypeError, ValueError):  # a class without a signature
        return {}
    return {n: p.default for n, p in parameters.items() if p.default is not p.empty}


# --- To objects ---------------------------------------------------------------------------------


def make(cls: Any, path: str, options: Mapping[str, Any], decoder: Decoder) -> Any:
    """The object of a class and its options."""
    if getattr(cls, "_is_module", False):
        return cls.from_config(dict(options))
    given = {name: _decode(value, decoder) for name, value in options.items()}
    if not dataclasses.is_dataclass(cls) and callable(getattr(cls, "from_config", None)):
        return cls.from_config(given)
    hints = _hints(cls)
    given = {name: _shaped(value, hints.get(name)) for name, value in given.items()}
    require_options(cls, path, (), given)
    made: Any = cls  # is_dataclass tells checkers that it is an instance
    return made(**given)


def _decode(value: Any, decoder: Decoder) -> Any:
    if isinstance(value, list):
        return [_decode(item, decoder) for item in value]
    if not isinstance(value, Mapping):
        return value
    known = decoder(value)
    if known is not None:
        return known
    plain = nn_config.decode(value)
    return (
        plain if not isinstance(plain, dict) else {k: _decode(v, decoder) for k, v in value.items()}
    )


def _hints(item: Any) -> dict[str, Any]:
    target = item if dataclasses.is_dataclass(item) else getattr(item, "__init__", None)
    try:
        return typing.get_type_hints(target)
    except Exception:  # an annotation of names that are not here: nothing is known then
        return {}


def _shaped(value: Any, hint: Any) -> Any:
    """A value of a file in the type that an annotation asks for, where the format has no such."""
    choices = typing.get_args(hint) if _is_union(hint) else (hint,)
    if isinstance(value, list):
        rows = [c for c in choices if typing.get_origin(c) is tuple or c is tuple]
        if rows and not any(typing.get_origin(c) is list or c is list for c in choices):
            inner = typing.get_args(rows[0])
            one = inner[0] if inner else None
            return tuple(_shaped(v, one) for v in value)
    if isinstance(value, str) and float in choices and str not in choices:
        try:
            return float(value)  # YAML 1.1 takes 1e-5, which has no dot, for a text
        except ValueError:
            return value
    return value


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def require_options(
    item: Any, path: str, args: tuple[Any, ...], options: Mapping[str, Any]
) -> None:
    """Raise DomainError where options do not fit; it tells which there are."""
    try:
        signature = inspect.signature(item)
    except (TypeError, ValueError):  # a class without a signature tells by itself
        return
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        names = [n for n, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD]
        unknown = [name for name in options if name not in names]
        if not unknown:
            raise DomainError(f"{path}: {error}; its options are {', '.join(names)}") from None
        near = difflib.get_close_matches(unknown[0], names, n=2, cutoff=0.6)
        said = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise DomainError(
            f"{path} has no option {unknown[0]!r}; {said}its options are {', '.join(names)}"
        ) from None
