"""Registry: things by their paths."""

from __future__ import annotations

import difflib
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, TypeVar

from ember_ml.errors import DomainError, DTypeError, FormatError, UnknownKeyError
from ember_ml.nn.config import class_of
from ember_ml.registry import configs, files
from ember_ml.registry.listing import Entry, Listing

__all__ = ["Registry"]

T = TypeVar("T")

_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


class Registry:
    """Classes and functions by paths such as `models/transformer`.

    A class may be a config, which has a method `create(backend_context)` that makes something of
    it; a Module; or any other class. `group` names the entry points of other packages, which are
    looked at when a path is not known, and when all are listed. `modules` tells which module
    registers a path, for what is imported only when it is asked for.

    >>> from ember_ml.registry import Registry
    >>> mine = Registry("mine")
    >>> @mine.register("filters/smooth")
    ... class Smooth:
    ...     def __init__(self, width=3):
    ...         self.width = width
    >>> mine.create("filters/smooth", width=5).width
    5
    >>> mine.names("filters/")
    ('filters/smooth',)
    """

    def __init__(
        self,
        name: str = "registry",
        *,
        group: str | None = None,
        modules: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.group = group
        self._modules = dict(modules or {})
        self._found: dict[str, Any] = {}
        self._loaded_points: set[str] = set()
        # Importing a module registers what it holds, in the same thread.
        self._lock = threading.RLock()

    # --- Registering ------------------------------------------------------------------------

    def register(self, path: str, /) -> Callable[[T], T]:
        """Give a class or a function a path; it stays as it is.

        A path that is taken is refused, unless the class is the same one defined anew, as when a
        cell of a notebook runs again.

        >>> from ember_ml.registry import Registry
        >>> mine = Registry()
        >>> @mine.register("models/transformer")
        ... class TransformerConfig:
        ...     def __init__(self, hidden_size):
        ...         self.hidden_size = hidden_size
        ...
        ...     def create(self, backend_context=None):
        ...         return f"a transformer of width {self.hidden_size}"
        >>> mine.create("models/transformer", hidden_size=8)
        'a transformer of width 8'
        """
        given: Any = path  # @register without a path gives the class here
        if not isinstance(given, str) or not _PATH.fullmatch(given):
            raise DomainError(
                f"{self.name}.register got the path {path!r}; paths are names of letters, digits "
                f"and _.- with / between, such as 'models/mine'; write @register('models/mine')"
            )

        def add(item: T) -> T:
            if not callable(item):
                raise DTypeError(
                    f"{self.name}.register({path!r}) takes a class or a function, "
                    f"not {type(item).__name__}"
                )
            with self._lock:
                owner = self._owner(path)
                # A module that will register the path is named without a class.
                place = _place(item)
                if owner is not None and owner not in (place, place.partition(":")[0]):
                    raise self._taken(path, owner)
                self._found[path] = item
            return item

        return add

    def _owner(self, path: str) -> str | None:
        """Who has a path: `module:class`, or the module that will register it."""
        there = self._found.get(path)
        return self._modules.get(path) if there is None else _place(there)

    def _taken(self, path: str, owner: str) -> DomainError:
        return DomainError(
            f"{self.name}: the path {path!r} belongs to {owner}; take another path, or call "
            f"remove({path!r}) first"
        )

    def remove(self, path: str) -> None:
        """Forget a path."""
        with self._lock:
            self.get(path)
            del self._found[path]
            self._modules.pop(path, None)

    # --- Looking up -------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        """The class or function of a path; UnknownKeyError tells what is near.

        >>> from ember_ml import registry
        >>> registry.get("models/mlp").__name__
        'MLPConfig'
        """
        with self._lock:
            found = self._found.get(path)
            if found is None and path in self._modules:
                import_module(self._modules[path])
                found = self._found.get(path)
            if found is None:
                self._load_points(path)
                found = self._found.get(path)
            if found is None:
                raise UnknownKeyError(self._unknown(path))
        return found

    def _unknown(self, path: Any) -> str:
        names = self.names()
        if not names:
            return f"{self.name} has no {path!r}; nothing is registered in it"
        near = difflib.get_close_matches(str(path), names, n=3, cutoff=0.6)
        if not near:  # the last part may be right, and the first one forgotten
            last = str(path).rpartition("/")[2].lower()
            near = [name for name in names if name.rpartition("/")[2].lower() == last][:3]
        said = f"did you mean {' or '.join(map(repr, near))}?" if near else ""
        shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        return f"{self.name} has no {path!r}; {said or f'it has {shown}'}"

    def __getitem__(self, path: str) -> Any:
        return self.get(path)

    def __contains__(self, path: object) -> bool:
        return path in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """The paths that begin with a prefix, sorted; entry points are loaded.

        >>> from ember_ml import registry
        >>> registry.names("processors/")
        ('processors/default', 'processors/inhibition', 'processors/memory')
        """
        with self._lock:
            self._load_points(None)
            known = {*self._found, *self._modules}
        return tuple(sorted(name for name in known if name.startswith(prefix)))

    def name_of(self, item: Any) -> str:
        """The path of a class, or of the class of an object.

        A class that is registered twice has the first of its paths.
        """
        found = self._name_of(item)
        if found is None:
            kind = item if isinstance(item, type) else type(item)
            raise UnknownKeyError(
                f"{self.name} has no path for {kind.__name__}; "
                f"give it one with @register('kind/name')"
            )
        return found

    def _name_of(self, item: Any) -> str | None:
        kind = item if isinstance(item, type) else type(item)
        with self._lock:
            for path, there in self._found.items():
                if there is kind or there is item:
                    return path
            # A class of a notebook that was defined anew since this object was made.
            for path, there in self._found.items():
                if isinstance(there, type) and _place(there) == _place(kind):
                    return path
        return None

    def listing(self, prefix: str = "") -> Listing:
        """What is registered, as a table that prints; everything of the prefix is imported."""
        entries = []
        for path in self.names(prefix):
            item = self.get(path)
            entries.append(Entry.of(path, item))
        return Listing(self.name if not prefix else f"{self.name}: {prefix}", tuple(entries))

    def __repr__(self) -> str:
        return f"Registry({self.name!r}, {len({*self._found, *self._modules})} paths)"

    def __rich__(self) -> Any:
        return self.listing().__rich__()

    # --- Entry points -----------------------------------------------------------------------

    def _load_points(self, path: str | None) -> None:
        """Load the entry point of a path, or all of them where none has that name."""
        if self.group is None:
            return
        from importlib.metadata import entry_points

        points = [p for p in entry_points(group=self.group) if p.name not in self._loaded_points]
        named = [point for point in points if point.name == path]
        for point in named or points:
            self._loaded_points.add(point.name)
            try:
                item = point.load()
                # A module registers by itself; a class alone has the name of its entry point.
                if callable(item) and point.name not in self._found:
                    if self._name_of(item) is None:
                        self.register(point.name)(item)
                elif callable(item) and self._found[point.name] is not item:
                    raise self._taken(point.name, _place(self._found[point.name]))
            except Exception as error:  # another package's fault must not take ours down
                warnings.warn(
                    f"{self.name}: the entry point {point.name!r} ({point.value}) does not load: "
                    f"{type(error).__name__}: {error}",
                    RuntimeWarning,
                    stacklevel=4,
                )

    # --- Making -----------------------------------------------------------------------------

    def create(self, path: str, /, *args: Any, backend_context: Any = None, **options: Any) -> Any:
        """What a path makes: a config's `create`, an object of a class, a function's result.

        `backend_context` is a backend's name, or a context such as `em.use_backend("torch")`, for
        the backend that it is made on; the current one where it is None.

        >>> from ember_ml import registry
        >>> model = registry.create("models/mlp", in_features=2, out_features=1)
        >>> model(ops.ones((3, 2))).shape
        (3, 1)
        """
        item = self.get(path)
        configs.require_options(item, path, args, options)
        if isinstance(item, type) and callable(getattr(item, "create", None)):
            return item(*args, **options).create(backend_context)
        with configs.on(backend_context):
            return item(*args, **options)

    # --- Configs as data --------------------------------------------------------------------

    def to_dict(self, item: Any) -> dict[str, Any]:
        """A config, or a model of a registered class, as JSON has it.

        >>> from ember_ml import registry
        >>> data = registry.to_dict(registry.get("models/mlp")(in_features=4, out_features=2))
        >>> data["type"], data["config"]["in_features"]
        ('models/mlp', 4)
        """
        return {"type": self.name_of(item), "config": configs.options_of(item, self._encoded)}

    def _encoded(self, value: Any) -> dict[str, Any] | None:
        return None if self._name_of(value) is None else self.to_dict(value)

    def from_dict(self, data: Mapping[str, Any]) -> Any:
        """The config, or the model, that a dict tells."""
        given: Any = data  # what files hold is not what types say
        if not isinstance(given, Mapping) or not isinstance(given.get("type"), str):
            raise FormatError(
                f"{self.name}.from_dict takes a dict with a 'type', such as 'models/mlp', and a "
                f"'config' of options, not {data!r:.200}"
            )
        rest = sorted(set(data) - {"type", "config"})
        if rest:
            raise FormatError(
                f"{self.name}.from_dict got {', '.join(map(repr, rest))} beside 'type' and "
                f"'config'; options belong in 'config'"
            )
        options = data.get("config") or {}
        if not isinstance(options, Mapping):
            raise FormatError(f"{self.name}.from_dict: 'config' is a dict, not {options!r:.200}")
        return configs.make(self.get(data["type"]), data["type"], options, self._decoded)

    def _decoded(self, value: Mapping[str, Any]) -> Any:
        """The object of a dict within a config; None where it tells none of this registry."""
        kind = value.get("type")
        # Modules have paths of Python in configs, with a colon: see nn/config.py.
        if set(value) == {"type", "config"} and isinstance(kind, str) and ":" not in kind:
            return self.from_dict(value)
        return None

    def save(self, path: str | os.PathLike[str], item: Any) -> None:
        """Write a config to a file: .json, .toml or .yaml; the file is replaced at once.

        >>> import os, tempfile
        >>> from ember_ml import registry
        >>> file = os.path.join(tempfile.mkdtemp(), "model.toml")
        >>> registry.save(file, registry.get("models/mlp")(in_features=4, out_features=2))
        >>> registry.load(file).in_features
        4
        """
        data = self.to_dict(item)
        files.write(os.fspath(path), data, self._defaults)

    def _defaults(self, kind: str) -> Mapping[str, Any]:
        return configs.defaults_of(class_of(kind) if ":" in kind else self.get(kind))

    def load(self, path: str | os.PathLike[str]) -> Any:
        """The config that a file holds."""
        text = os.fspath(path)
        data = files.read(text)
        try:
            return self.from_dict(data)
        except (FormatError, DomainError, UnknownKeyError) as error:
            raise type(error)(f"'{text}': {error}") from error


def _place(item: Any) -> str:
    return f"{getattr(item, '__module__', '?')}:{getattr(item, '__qualname__', repr(item))}"
