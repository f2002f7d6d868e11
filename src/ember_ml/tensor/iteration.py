"""The elements of a tensor one after another, and pieces of them on several threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from itertools import chain, islice, pairwise, repeat
from typing import Any, Final, Generic, TypeVar

import numpy as np

from ember_ml.errors import DomainError, ReadOnlyError
from ember_ml.ops.axes import axis_of
from ember_ml.tensor import writing
from ember_ml.tensor.core import Tensor

__all__ = ["Element", "ParallelIterator", "elements", "mutable_elements", "parallel"]

T = TypeVar("T")
R = TypeVar("R")

# Formats whose elements a memoryview turns into Python numbers.
_PLAIN: Final = frozenset("?bBhHiIlLqQfd")
_AT_ONCE: Final = 4096


def elements(x: Tensor) -> Iterator[Any]:
    """The elements as Python numbers; what is written meanwhile is not seen."""
    # A clone costs nothing unless somebody writes, and keeps the values of now.
    frozen = x.detach() if x.requires_grad else x.clone()
    flat = frozen._host().reshape(-1)
    if flat.dtype.char in _PLAIN:
        plain: Any = np.ascontiguousarray(flat)  # a buffer, though not by NumPy's annotations
        return _held(frozen, iter(memoryview(plain)))
    pieces = (flat[i : i + _AT_ONCE].tolist() for i in range(0, flat.size, _AT_ONCE))
    return _held(frozen, chain.from_iterable(pieces))


def _held(owner: Tensor, values: Iterator[Any]) -> Iterator[Any]:
    # chain steps through `values` in C; what follows is empty, and keeps the clone alive.
    return chain(values, islice(repeat(owner), 0))


class Element:
    """One element of a tensor that is iterated with `iter_mut`: read and assign its `value`."""

    __slots__ = ("_changed", "_place", "_values")

    def __init__(self, values: list[Any], changed: bytearray, place: int) -> None:
        self._values = values
        self._changed = changed
        self._place = place

    @property
    def value(self) -> Any:
        """The element as a Python number."""
        return self._values[self._place]

    @value.setter
    def value(self, number: Any) -> None:
        self._values[self._place] = number
        self._changed[self._place] = 1

    def set(self, number: Any) -> None:
        """Assign a number."""
        self.value = number

    def __repr__(self) -> str:
        return f"Element({self.value!r})"


def mutable_elements(x: Tensor) -> Iterator[Element]:
    """The elements to be assigned; they are written when the iteration ends, however it ends."""
    if x.requires_grad:
        raise ReadOnlyError("a tensor that needs gradients cannot be written element by element")
    writing.writable_storage(x)
    return _mutable_elements(x)


def _mutable_elements(x: Tensor) -> Iterator[Element]:
    values = list(elements(x))
    changed = bytearray(len(values))
    try:
        for place in range(len(values)):
            yield Element(values, changed, place)
    finally:
        _write_back(x, values, changed)


def _write_back(x: Tensor, values: list[Any], changed: bytearray) -> None:
    """Write the elements that were assigned, and only those: others may have been since."""
    from ember_ml.tensor import convert

    places = np.flatnonzero(np.frombuffer(changed, dtype=np.uint8))
    if not places.size:
        return
    chosen = values if places.size == len(values) else [values[i] for i in places]
    for number in chosen:
        if not isinstance(number, bool | int | float | complex):
            chosen = [n.item() if hasattr(n, "item") else n for n in chosen]
            break
    made = convert.asarray(chosen, dtype=None, backend=x._spec.backend, device=x.device)
    if made.dtype.kind != x.dtype.kind and not _fits(made, x):
        raise DomainError(
            f"Tensor.iter_mut got values of {made.dtype} for the elements of a {x.dtype} tensor"
        )
    made = convert.asarray(chosen, dtype=x.dtype, backend=x._spec.backend, device=x.device)
    if places.size == len(values):
        x[...] = made.reshape(x.shape)
    else:
        x[np.unravel_index(places, x.shape)] = made


def _fits(made: Tensor, x: Tensor) -> bool:
    order = ("bool", "unsigned integer", "signed integer", "real floating", "complex floating")
    kinds = order.index(made.dtype.kind), order.index(x.dtype.kind)
    return kinds[0] <= kinds[1] or (made.dtype.is_integer and x.dtype.is_integer)


# --- Several threads ----------------------------------------------------------------------------


class ParallelIterator(Generic[T]):
    """Items on which several threads work; results come in the order of the items.

    Threads run side by side where the work releases Python's lock, as the engines' own functions
    do. Each runs in a copy of the caller's context, so that `use_backend` and its like hold there.
    """

    def __init__(self, items: Sequence[T], workers: int) -> None:
        self._items = items
        self._workers = workers

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> T:
        return self._items[index]

    def map(self, fn: Callable[[T], R]) -> ParallelIterator[R]:
        """The results of `fn` for all items; its exception, where one fails."""
        if len(self._items) <= 1 or self._workers <= 1:
            return ParallelIterator([fn(item) for item in self._items], self._workers)
        # Here, because it brings logging and queues: a quarter of the import of this library.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(self._workers, len(self._items))) as pool:
            futures = [
                pool.submit(copy_context().run, lambda item: _finished(fn(item)), item)
                for item in self._items
            ]
            try:
                return ParallelIterator([future.result() for future in futures], self._workers)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def for_each(self, fn: Callable[[T], object]) -> None:
        """Run `fn` for all items; its exception, where one fails."""
        self.map(fn)

    def reduce(self, fn: Callable[[T, T], T]) -> T:
        """The items combined by an associative `fn(a, b)`, neighbours first, in order."""
        if not self._items:
            raise DomainError("reduce got nothing to combine; the tensor has no elements")
        items: ParallelIterator[T] = self
        while len(items) > 1:
            pairs = [
                (items[i], items[i + 1]) if i + 1 < len(items) else (items[i],)
                for i in range(0, len(items), 2)
            ]
            items = ParallelIterator(pairs, self._workers).map(
                lambda pair: fn(*pair) if len(pair) == 2 else pair[0]
            )
        return items[0]

    def collect(self) -> list[T]:
        """The items as a list."""
        return list(self._items)


def parallel(
    x: Tensor, chunks: int | None, axis: int, workers: int | None
) -> ParallelIterator[Tensor]:
    """Views of a tensor along an axis for several threads."""
    threads = workers or os.cpu_count() or 1
    count = threads if chunks is None else chunks
    if count < 1:
        raise DomainError(f"Tensor.par_iter takes at least one chunk, got {chunks}")
    x._spec.backend.finish(x.native)  # a lazy array can be computed in this thread alone
    if not x.ndim:
        return ParallelIterator([x], threads)
    place = axis_of("par_iter", axis, x.ndim)
    side = x.shape[place]
    parts = min(count, side)
    bounds = [side * i // parts for i in range(parts + 1)] if parts else []
    before = (slice(None),) * place
    return ParallelIterator([x[(*before, slice(*ends))] for ends in pairwise(bounds)], threads)


def _finished(result: R) -> R:
    """A result computed in the thread that made it: MLX can do it nowhere else."""
    if isinstance(result, Tensor):
        result._spec.backend.finish(result.native)
    elif isinstance(result, list | tuple):
        for one in result:
            _finished(one)
    return result
