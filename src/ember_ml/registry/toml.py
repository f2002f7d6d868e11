"""TOML of what configs hold; Python itself only reads it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from ember_ml.errors import FormatError

__all__ = ["dumps"]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def dumps(data: Mapping[str, Any]) -> str:
    """A dict as TOML: strings, numbers, truth values, lists and dicts of these.

    >>> print(dumps({"name": "a", "sizes": [1, 2], "inner": {"on": True}}), end="")
    name = "a"
    sizes = [1, 2]
    <BLANKLINE>
    [inner]
    on = true
    """
    lines: list[str] = []
    _table(data, (), lines)
    return "\n".join(lines) + "\n"


def _table(data: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    below = {key: value for key, value in data.items() if isinstance(value, Mapping)}
    if path and (len(below) < len(data) or not data):
        if lines:
            lines.append("")
        lines.append(f"[{'.'.join(map(_key, path))}]")
    for key, value in data.items():
        if key not in below:
            lines.append(f"{_key(key)} = {_value(value, '.'.join((*path, key)))}")
    for key, value in below.items():
        _table(value, (*path, key), lines)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, which asks for one more character to be escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return repr(float(value)) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item, where) for item in value)}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(k)} = {_value(v, where)}" for k, v in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    raise FormatError(f"TOML has no place for {value!r} ({where}); save to .json or .yaml instead")
