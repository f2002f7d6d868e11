"""em.load: from files to tensors on any backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import numpy as np

from ember_ml import devices, dtypes
from ember_ml.backend import selection
from ember_ml.backend.contract import Backend, Spec
from ember_ml.errors import (
    BackendUnavailableError,
    DeviceError,
    DomainError,
    DTypeError,
    FormatError,
    UnknownBackendError,
    UnknownKeyError,
)
from ember_ml.io.formats import open_source, path_text
from ember_ml.io.objects import class_of, restore
from ember_ml.io.parts import Range
from ember_ml.io.progress import ByteProgress
from ember_ml.io.shards import IndexChanged
from ember_ml.io.source import Source, TensorInfo
from ember_ml.io.tree import METADATA_KEY, Leaf, Tree, build, leaves, names, prune
from ember_ml.tensor import Tensor
from ember_ml.tensor.core import fill, require_grad

__all__ = ["Keys", "TensorFile", "TensorInfo", "Wanted", "load", "load_parts", "open_file"]

# Names, or the beginnings of names up to a dot, or a function that tells which to load.
Keys = str | Iterable[str] | Callable[[str], bool] | None

# The range that is wanted of a tensor of a name and a shape; None for all of it.
Wanted = Callable[[str, tuple[int, ...]], Range | None]

_ATTEMPTS = 10
_NAMES_SHOWN = 12


def load(
    path: str | os.PathLike[str],
    *,
    backend: str | None = None,
    device: str | None = None,
    mmap: bool = True,
    keys: Keys = None,
) -> Any:
    """The tree of tensors and objects that a file holds; no code of the file runs.

    Tensors saved by `em.save` come back on the backend and device they were on, those of other
    programs on the current ones; `backend` and `device` decide for all. With `mmap`, values are
    read when they are touched, where the engine can share memory; writing to them never changes
    the file. `keys` picks tensors by name, by the first parts of names, or by a function.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> em.save(path, {"layer": {"w": ops.ones(3), "b": ops.zeros(1)}, "step": 7})
    >>> em.load(path)["step"], em.load(path, backend="numpy")["layer"]["w"].tolist()
    (7, [1.0, 1.0, 1.0])
    >>> list(em.load(path, keys="layer.b")["layer"])
    ['b']
    """
    text = path_text(path, "em.load")
    return _loaded(text, _Home(text, backend, device), mmap, keys)


def load_parts(path: str, wanted: Wanted, *, backend: str | None = None) -> Any:
    """As `load`, but of tensors of which a rank wants a range, only that: see parts.py."""
    return _loaded(path, _Home(path, backend, None, wanted), True, None)


def _loaded(text: str, home: _Home, mmap: bool, keys: Keys) -> Tree:
    for _ in range(_ATTEMPTS):
        source = open_source(text, mmap)
        try:
            return _load(source, home, keys)
        except IndexChanged:  # a save came between: what is there now is complete
            continue
        finally:
            source.close()
    raise _replaced(text)


def _replaced(path: str) -> FormatError:
    return FormatError(f"'{path}' is replaced faster than it can be read")


def _load(source: Source, home: _Home, keys: Keys) -> Tree:
    tree = source.tree()
    if keys is not None:
        tree = prune(tree, _wanted(keys, list(names(tree)), source.path))
    needed = list(dict.fromkeys(leaf.name for leaf in leaves(tree)))
    source.prepare(needed)
    total = sum(source.info(name).nbytes for name in needed)
    with ByteProgress(f"loading {os.path.basename(source.path)}", total) as progress:
        return build(
            tree,
            lambda leaf: home.tensor(leaf, source, progress),
            lambda name: _maker(name, source.path),
        )


def _maker(name: str, path: str) -> Callable[[Tree], object]:
    """What makes an object of its state; errors tell the file."""
    try:
        kind = class_of(name)
    except FormatError as error:
        raise FormatError(f"'{path}': {error}") from None

    def make(state: Tree) -> object:
        try:
            return restore(kind, name, state)
        except FormatError as error:
            raise FormatError(f"'{path}': {error}") from error.__cause__

    return make


def _wanted(keys: Keys, there: list[str], path: str) -> Callable[[str], bool]:
    if callable(keys):
        return keys
    picked = {keys} if isinstance(keys, str) else set(keys or ())
    known = {part for name in there for part in _parts(name)}
    for key in picked:
        if not isinstance(key, str):
            raise UnknownKeyError(f"em.load got the key {key!r}; keys are names, as strings")
        if key not in known and key.rstrip(".") not in known:
            raise UnknownKeyError(f"'{path}' holds no {key!r}; {_listed(there)}")
    picked |= {key.rstrip(".") for key in picked if key not in known}

    def wanted(name: str) -> bool:
        return any(part in picked for part in _parts(name))

    return wanted


def _parts(name: str) -> Iterator[str]:
    """A name and its beginnings up to each dot: "a.b.c", "a.b", "a"."""
    yield name
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _listed(there: list[str]) -> str:
    more = f" and {len(there) - _NAMES_SHOWN} more" if len(there) > _NAMES_SHOWN else ""
    return f"it has {', '.join(map(repr, there[:_NAMES_SHOWN])) or 'nothing'}{more}"


class _Home:
    """Where loaded tensors go: what the caller chose, else what the file recorded."""

    def __init__(
        self, path: str, backend: str | None, device: str | None, wanted: Wanted | None = None
    ) -> None:
        self._path = path
        self._wanted = wanted
        self._backend = None if backend is None else selection.load(backend)
        self._device = device
        # By NumPy's dtypes: to ask one for its name takes longer than to map its array.
        self._specs: dict[tuple[str | None, str | None, np.dtype[Any]], Spec] = {}

    def tensor(self, leaf: Leaf, source: Source, progress: ByteProgress) -> Tensor:
        """The tensor of a leaf."""
        array = self._array(leaf, source, progress)
        if leaf.dtype is not None:
            array = _paired(array, leaf, source.path)
        spec = self._spec(leaf, array.dtype)
        made = fill(spec.backend.from_numpy(array, spec), spec)
        if not leaf.requires_grad:
            return made
        if not (spec.dtype.is_floating or spec.dtype.is_complex):
            raise FormatError(f"'{source.path}': {leaf.name!r} is {spec.dtype} and needs gradients")
        return require_grad(made)

    def _array(self, leaf: Leaf, source: Source, progress: ByteProgress) -> np.ndarray[Any, Any]:
        if self._wanted is None:
            return source.array(leaf.name, progress)
        shape = source.info(leaf.name).shape
        pairs = leaf.dtype is not None  # of complex128
        asked = self._wanted(leaf.name, shape[:-1] if pairs else shape)
        if asked is None:
            return source.array(leaf.name, progress)
        if asked.axis is None and pairs:
            found = source.part(leaf.name, Range(None, 2 * asked.start, 2 * asked.stop), progress)
            return found.reshape(-1, 2)
        return source.part(leaf.name, asked, progress)

    def _spec(self, leaf: Leaf, dtype: np.dtype[Any]) -> Spec:
        key = (leaf.backend, leaf.device, dtype)
        found = self._specs.get(key)
        if found is None:
            backend = self._backend or self._recorded_backend(leaf)
            device = self._place(leaf, backend)
            try:
                found = self._specs[key] = backend.spec(dtypes.to_dtype(dtype), device)
            except DTypeError as error:
                raise DTypeError(f"'{self._path}': tensor {leaf.name!r}: {error}") from None
        return found

    def _recorded_backend(self, leaf: Leaf) -> Backend:
        if leaf.backend is None:
            return selection.current()
        try:
            return selection.load(leaf.backend)
        except (BackendUnavailableError, UnknownBackendError) as error:
            raise type(error)(
                f"'{self._path}' was saved on backend {leaf.backend!r}, which is not here; choose "
                f'another: em.load(..., backend="numpy") ({error})'
            ) from error

    def _place(self, leaf: Leaf, backend: Backend) -> str:
        if self._device is not None:
            return backend.canonical_device(self._device)
        if self._backend is not None or leaf.device is None:
            return devices.current_device(backend)
        try:
            return backend.canonical_device(leaf.device)
        except DeviceError as error:
            raise DeviceError(
                f"'{self._path}' was saved on device {leaf.device!r}; choose another: "
                f'em.load(..., device="{devices.current_device(backend)}") ({error})'
            ) from error


def _paired(array: np.ndarray[Any, Any], leaf: Leaf, path: str) -> np.ndarray[Any, Any]:
    """The complex128 array that is stored as pairs of float64."""
    if array.dtype != np.float64 or not array.ndim or array.shape[-1] != 2:
        raise FormatError(f"'{path}': {leaf.name!r} is no complex128 as pairs of float64")
    return np.ascontiguousarray(array).view(np.complex128).reshape(array.shape[:-1])


# --- One by one -----------------------------------------------------------------------------


def open_file(
    path: str | os.PathLike[str],
    *,
    backend: str | None = None,
    device: str | None = None,
    mmap: bool = True,
) -> TensorFile:
    """An open file as a mapping from names to tensors, each loaded when it is asked for.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> em.save(path, {"w": ops.ones((2, 3))}, metadata={"author": "me"})
    >>> with em.io.open_file(path) as file:
    ...     list(file), file.info("w"), file["w"].shape, file.metadata["author"]
    (['w'], TensorInfo(dtype='float32', shape=(2, 3), nbytes=24), (2, 3), 'me')
    """
    text = path_text(path, "em.io.open_file")
    for _ in range(_ATTEMPTS):
        source = open_source(text, mmap, "em.io.open_file")
        try:
            source.prepare(source.names())
            return TensorFile(text, source, backend, device)
        except IndexChanged:
            source.close()
        except BaseException:
            source.close()
            raise
    raise _replaced(text)


class TensorFile(Mapping[str, Tensor]):
    """The tensors of a file by name; see open_file."""

    def __init__(self, path: str, source: Source, backend: str | None, device: str | None) -> None:
        self._source = source
        self._closed = False
        self._home = _Home(path, backend, device)
        try:
            found = {leaf.name: leaf for leaf in leaves(source.tree())}
        except FormatError:  # of a tree that another program made wrong; the tensors are sound
            found = {}
        self._leaves = {name: found.get(name, Leaf(name)) for name in source.names()}

    @property
    def metadata(self) -> dict[str, str]:
        """The texts that were saved beside the tensors."""
        return {k: v for k, v in self._source.metadata.items() if k != METADATA_KEY}

    def info(self, name: str) -> TensorInfo:
        """Dtype, shape and bytes of a tensor as the file stores it; nothing of it is read."""
        return self._source.info(self._leaf(name).name)

    def _leaf(self, name: str) -> Leaf:
        found = self._leaves.get(name)
        if found is None:
            raise UnknownKeyError(
                f"'{self._source.path}' holds no {name!r}; {_listed(list(self._leaves))}"
            )
        return found

    def __getitem__(self, name: str) -> Tensor:
        leaf = self._leaf(name)
        if self._closed:
            raise DomainError(f"'{self._source.path}' is closed; open it again for {name!r}")
        total = self._source.info(name).nbytes
        with ByteProgress(f"loading {name}", total) as progress:
            return self._home.tensor(leaf, self._source, progress)

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)

    def close(self) -> None:
        """Close the file; tensors that were taken stay valid."""
        self._closed = True
        self._source.close()

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
