"""Objects in files: which classes `em.save` takes and `em.load` makes again, by their names.

A file holds a name and a state, which is a tree. The name is looked up in a table of classes that
this process knows, so that a file chooses among them and brings no code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar, cast

from ember_ml.errors import DomainError, DTypeError, FormatError

__all__ = ["Savable", "class_of", "name_of", "restore", "savable", "state_of"]


class Savable(Protocol):
    """What `em.save` asks of an object: its state as a tree, and a way back."""

    def state_dict(self) -> dict[str, Any]:
        """The state: tensors, numbers, strings and other savable objects, in dicts and lists."""
        ...

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Any:
        """An object of that state; an exception where the state cannot be one of this class."""
        ...


Kind = TypeVar("Kind", bound=type[Savable])

# The package's own classes: imported when a file names one, never with the package.
_PACKAGED: Final = {
    "nn.features.MaxAbsScale": "ember_ml.nn.features.scaling:MaxAbsScale",
    "nn.features.MinMaxScale": "ember_ml.nn.features.scaling:MinMaxScale",
    "nn.features.Normalize": "ember_ml.nn.features.normalize:Normalize",
    "nn.features.PCA": "ember_ml.nn.features.pca:PCA",
    "nn.features.RobustScale": "ember_ml.nn.features.scaling:RobustScale",
    "nn.features.Standardize": "ember_ml.nn.features.standardize:Standardize",
    "features.ColumnFeatureExtractor": "ember_ml.features.columns:ColumnFeatureExtractor",
    "features.Pipeline": "ember_ml.features.base:Pipeline",
    "features.TemporalStrideFeatures": "ember_ml.features.windows:TemporalStrideFeatures",
    "features.TimeSeriesFeatures": "ember_ml.features.time_series:TimeSeriesFeatures",
    "features.WindowFeatures": "ember_ml.features.windows:WindowFeatures",
}
# Modules are known by their place: each class of them enters a table of its own, see nn/config.py.
_MODULE: Final = "nn.Module "
_NAMES: Final = {place: name for name, place in _PACKAGED.items()}

_registered: dict[str, type[Savable]] = {}


def savable(name: str) -> Callable[[Kind], Kind]:
    """Have `em.save` and `em.load` take objects of a class, under a name that files will hold.

    The class has `state_dict()` and `from_state(state)`. Whoever loads such a file needs to have
    imported the class.

    >>> @em.io.savable("doctest.Scale")
    ... class Scale:
    ...     def __init__(self, factor):
    ...         self.factor = factor
    ...
    ...     def state_dict(self):
    ...         return {"factor": self.factor}
    ...
    ...     @classmethod
    ...     def from_state(cls, state):
    ...         return cls(state["factor"])
    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "scale.safetensors")
    >>> em.save(path, {"scale": Scale(ops.asarray([2.0, 3.0]))})
    >>> em.load(path)["scale"].factor.tolist()
    [2.0, 3.0]
    """

    def register(kind: Kind) -> Kind:
        for method in ("state_dict", "from_state"):
            if not callable(getattr(kind, method, None)):
                raise DTypeError(f"em.io.savable({name!r}): {kind.__name__} has no {method}")
        there = _registered.get(name)
        # A notebook's cell defines its class anew each time that it runs.
        if name in _PACKAGED or (there is not None and _place(there) != _place(kind)):
            owner = _PACKAGED.get(name) or _place(there)
            raise DomainError(f"em.io.savable: the name {name!r} belongs to {owner}")
        _registered[name] = kind
        return kind

    return register


def _place(kind: Any) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def name_of(kind: type) -> str | None:
    """The name under which objects of a class are saved; None where the class is not known."""
    for name, registered in _registered.items():
        if registered is kind:
            return name
    if getattr(kind, "_is_module", False):
        return f"{_MODULE}{_place(kind)}"
    return _NAMES.get(_place(kind))


def state_of(instance: Any) -> dict[str, Any]:
    """What is saved of an object; where it is more than its state dict, the object says so."""
    get = getattr(instance, "__save_state__", None) or instance.state_dict
    return dict(get())


def class_of(name: str) -> type[Savable]:
    """The class of a name in a file; FormatError where no class has it."""
    found = _registered.get(name)
    if found is not None:
        return found
    if name.startswith(_MODULE):
        from ember_ml.nn import config

        return cast("type[Savable]", config.class_of(name.removeprefix(_MODULE)))
    place = _PACKAGED.get(name)
    if place is None:
        raise FormatError(
            f"an object {name!r} is of no class that is known here; import the module that "
            f"registers it with em.io.savable({name!r}), or take its tensors by `keys`"
        )
    module, _, kind = place.partition(":")
    loaded: type[Savable] = getattr(import_module(module), kind)
    return loaded


def restore(kind: type[Savable], name: str, state: Any) -> Any:
    """The object of a state that a file holds; FormatError where it is none of its class."""
    if not isinstance(state, dict):
        raise FormatError(f"an object {name!r} has a state that is no dict")
    try:
        return kind.from_state(state)
    except FormatError:
        raise
    except Exception as error:  # a state of any shape may come here
        raise FormatError(
            f"an object {name!r} has a state that {kind.__name__} does not take: "
            f"{type(error).__name__}: {error}"
        ) from error
