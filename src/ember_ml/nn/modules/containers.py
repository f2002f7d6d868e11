"""Modules that hold others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ember_ml.errors import DTypeError, OutOfBoundsError, UnknownKeyError
from ember_ml.nn.module import WATCHED, Module

__all__ = ["ModuleDict", "ModuleList", "Residual", "Sequential"]


def _require_module(owner: str, value: Any) -> Module:
    if not isinstance(value, Module):
        hint = "; write nn.Lambda(fn) for a function" if callable(value) else ""
        raise DTypeError(f"{owner} takes modules, not {type(value).__name__}{hint}")
    return value


class _Row(Module):
    """Modules in a row, by their places."""

    _unnamed = "_row"
    _row: list[Module]

    def _set(self, modules: Iterable[Any]) -> None:
        found = [_require_module(type(self).__name__, one) for one in modules]
        self._row = found
        # A config tells the modules that are here now.
        self.__dict__["_arguments"] = (self._given(found), {})

    def _given(self, row: list[Module]) -> tuple[Any, ...]:
        """The arguments that make a container of these modules."""
        return (row,)

    def __len__(self) -> int:
        return len(self._row)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._row)

    def __getitem__(self, place: int | slice) -> Any:
        row = list(self._row)
        if isinstance(place, slice):
            made = type(self)()
            made._set(row[place])
            return made
        try:
            return row[place]
        except IndexError:
            raise OutOfBoundsError(
                f"{type(self).__name__} has {len(row)} modules, and none at {place}"
            ) from None

    def __setitem__(self, place: int, module: Module) -> None:
        row = list(self._row)
        row[place] = module
        self._set(row)

    def __delitem__(self, place: int | slice) -> None:
        row = list(self._row)
        del row[place]
        self._set(row)

    def append(self, module: Module) -> _Row:
        """Add a module at the end; gives itself."""
        self._set([*self._row, module])
        return self

    def extend(self, modules: Iterable[Module]) -> _Row:
        """Add modules at the end; gives itself."""
        self._set([*self._row, *modules])
        return self

    def insert(self, place: int, module: Module) -> None:
        """Add a module before a place."""
        row = list(self._row)
        row.insert(place, module)
        self._set(row)

    def extra_repr(self) -> str:
        """Nothing: the modules are told by themselves."""
        return ""


class Sequential(_Row):
    """Modules one after the other.

    >>> from ember_ml import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> model(ops.ones((3, 4))).shape, len(model), model[0].out_features
    ((3, 2), 3, 8)
    """

    def __init__(self, *modules: Module) -> None:
        if len(modules) == 1 and isinstance(modules[0], list | tuple):
            modules = tuple(modules[0])
        self._set(modules)

    def _given(self, row: list[Module]) -> tuple[Any, ...]:
        return tuple(row)

    def forward(self, x: Any, /) -> Any:
        """See the class."""
        if WATCHED.hooks:
            for step in self._row:
                x = step(x)
            return x
        for step in self._row:
            # Without hooks a call is its `forward`; the way through it is half of what a small
            # layer costs beyond its kernel.
            x = step.forward(x) if step._hooks is None else step(x)
        return x


class ModuleList(_Row):
    """A list of modules; a plain list as an attribute does as well.

    >>> from ember_ml import nn
    >>> layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    >>> len(layers.append(nn.ReLU()))
    4
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._set(modules)


class ModuleDict(Module):
    """A dict of modules; a plain dict as an attribute does as well.

    >>> from ember_ml import nn
    >>> heads = nn.ModuleDict({"mean": nn.Linear(4, 1), "spread": nn.Linear(4, 1)})
    >>> list(heads), heads["mean"].out_features
    (['mean', 'spread'], 1)
    """

    _unnamed = "_own"

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self._own: dict[str, Module] = {}
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Set several modules."""
        for name, module in modules.items():
            self[name] = module

    def __setitem__(self, name: Any, module: Module) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise DTypeError(f"ModuleDict takes names without dots, not {name!r}")
        self._own[name] = _require_module("ModuleDict", module)
        self.__dict__["_arguments"] = ((dict(self._own),), {})

    def __getitem__(self, name: str) -> Module:
        try:
            return self._own[name]
        except KeyError:
            raise UnknownKeyError(f"ModuleDict has no {name!r}; it has {list(self._own)}") from None

    def __delitem__(self, name: str) -> None:
        self[name]
        del self._own[name]
        self.__dict__["_arguments"] = ((dict(self._own),), {})

    def __contains__(self, name: object) -> bool:
        return name in self._own

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._own.keys()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._own.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return self._own.items()

    def extra_repr(self) -> str:
        """Nothing: the modules are told by themselves."""
        return ""


class Residual(Module):
    """`x + module(x)`.

    >>> from ember_ml import nn
    >>> nn.Residual(nn.Identity())(ops.ones(2)).tolist()
    [2.0, 2.0]
    """

    def __init__(self, module: Module) -> None:
        self.module = _require_module("Residual", module)

    def forward(self, x: Any, /, *args: Any, **kwargs: Any) -> Any:
        """See the class."""
        return x + self.module(x, *args, **kwargs)
