"""Configs in files: JSON, TOML and YAML, told by the suffix."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from ember_ml.errors import FormatError
from ember_ml.registry import toml

__all__ = ["read", "write"]


def _yaml() -> Any:
    try:
        return import_module("yaml")  # it publishes no types
    except ImportError as error:
        raise FormatError(
            "YAML needs the package pyyaml: pip install 'ember-ml[yaml]'; JSON and TOML need none"
        ) from error


def _write_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _write_yaml(data: Mapping[str, Any]) -> str:
    text: str = _yaml().safe_dump(data, sort_keys=False, allow_unicode=True)
    return text


def _read_toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _read_yaml(text: str) -> Any:
    yaml = _yaml()
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error) from error


_WRITERS: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    ".json": _write_json,
    ".toml": toml.dumps,
    ".yaml": _write_yaml,
    ".yml": _write_yaml,
}
_READERS: Final[dict[str, Callable[[str], Any]]] = {
    ".json": json.loads,
    ".toml": _read_toml,
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
}


def _suffix(path: str) -> str:
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in _WRITERS:
        raise FormatError(
            f"'{path}' is no file of a config; its suffix is one of {', '.join(_WRITERS)}"
        )
    return suffix


def write(path: str, data: dict[str, Any], defaults: Callable[[str], Mapping[str, Any]]) -> None:
    """Write a config; a kill at any moment leaves the old file or the new one."""
    from ember_ml.io.atomic import replacing

    suffix = _suffix(path)
    if suffix == ".toml":
        data = _without_none(data, defaults)
    text = _WRITERS[suffix](data)
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def _without_none(data: Any, defaults: Callable[[str], Mapping[str, Any]]) -> Any:
    """The data without options that are None by default: TOML has no null."""
    if isinstance(data, list):
        return [_without_none(item, defaults) for item in data]
    if not isinstance(data, dict):
        return data
    inner = {key: _without_none(value, defaults) for key, value in data.items()}
    if set(data) == {"type", "config"} and isinstance(data["config"], dict):
        usual = defaults(data["type"])
        inner["config"] = {
            name: value
            for name, value in inner["config"].items()
            if value is not None or usual.get(name, ...) is not None
        }
    return inner


def read(path: str) -> dict[str, Any]:
    """The data of a file."""
    suffix = _suffix(path)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        found = _READERS[suffix](text)
    except FormatError:
        raise
    except ValueError as error:  # each reader has its own kind of it
        raise FormatError(f"'{path}' is not {suffix[1:].upper()}: {error}") from error
    if not isinstance(found, dict):
        raise FormatError(f"'{path}' holds {type(found).__name__}, not the names of a config")
    return found
