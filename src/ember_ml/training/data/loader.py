"""DataLoader: batches of any data, in an order that a seed decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np

from ember_ml.backend import selection
from ember_ml.dtypes import DTypeLike
from ember_ml.errors import DomainError, DTypeError
from ember_ml.training.data.datasets import TensorDataset
from ember_ml.training.data.rows import Rows, collate, placed
from ember_ml.training.data.workers import Ahead

__all__ = ["DataLoader", "Part"]

Collate = Callable[[list[Any]], Any]
_STATE: Final = ("seed", "epoch", "position")


@dataclass(frozen=True, slots=True)
class Part:
    """What one of several processes has of a batch of `total` samples: `rows` of them.

    A process for which none is left has the first one as a stand-in, and `rows` is 0.
    """

    batch: Any
    rows: int
    total: int


class DataLoader:
    """Batches of tensors on a backend, from almost anything that holds samples.

    `data` is a tensor, an array or a data frame, or a tuple or dict of them, whose rows are the
    samples; a list of samples, or what has `__len__` and `__getitem__`, such as a dataset of
    torch; or an iterable of samples, which is gone through anew in each epoch. Samples are
    numbers, arrays, or tuples and dicts of them; `collate` makes a batch of a list of samples.

    `shuffle` gives an order that depends on `seed` and the epoch alone; without a seed, one is
    drawn from `ops.random`. So do random numbers which samples or `collate` draw, with the number
    of the batch. `num_workers` threads make batches ahead, up to `prefetch` each; their number
    changes nothing in what comes. `dtype` is for floats of the batches.

    >>> from ember_ml import training
    >>> loader = training.DataLoader((ops.arange(5), ops.ones((5, 2))), batch_size=2)
    >>> [(x.tolist(), y.shape) for x, y in loader]
    [([0, 1], (2, 2)), ([2, 3], (2, 2)), ([4], (1, 2))]
    """

    def __init__(
        self,
        data: Any,
        batch_size: int = 32,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        drop_last: bool = False,
        num_workers: int = 0,
        prefetch: int = 2,
        collate: Collate | None = None,
        sampler: Iterable[int] | None = None,
        backend: str | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        self.data = data
        self.batch_size = _at_least("batch_size", batch_size, 1)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.num_workers = _at_least("num_workers", num_workers, 0)
        self.prefetch = _at_least("prefetch", prefetch, 1)
        self.collate = collate
        self.sampler = sampler
        self.backend = backend
        self.dtype = dtype
        if backend is not None:
            selection.load(backend)  # an unknown one is told here
        self._rows = data.rows if isinstance(data, TensorDataset) else None
        if self._rows is None:
            self._rows = Rows.of("DataLoader", data)
        self._has_numbers = self._rows is not None or (
            hasattr(data, "__getitem__") and hasattr(data, "__len__")
        )
        if not self._has_numbers:
            self._require_iterable()
        if sampler is not None and shuffle:
            raise DomainError("DataLoader takes a sampler or shuffle=True; a sampler has the order")
        self.seed = _drawn_seed() if seed is None else int(seed)
        self.epoch = 0
        self.position = 0
        # True where the next loop goes on at `position`, and does not begin an epoch.
        self._resumes = False
        self._began = False

    def _require_iterable(self) -> None:
        if isinstance(self.data, Mapping | str) or not isinstance(self.data, Iterable):
            raise DTypeError(
                f"DataLoader takes tensors, arrays, frames, tuples and dicts of these, datasets "
                f"and iterables of samples, not {type(self.data).__name__}"
            )
        if self.shuffle or self.sampler is not None:
            raise DomainError(
                "DataLoader cannot shuffle an iterable, whose samples come as they come; "
                "give list(data), or shuffle where it is made"
            )

    # --- How much there is ------------------------------------------------------------------

    @property
    def samples(self) -> int | None:
        """How many samples an epoch has; None where that is not known."""
        counted: Any = self.data if self.sampler is None else self.sampler
        if self.sampler is None and self._rows is not None:
            return self._rows.count
        return len(counted) if hasattr(counted, "__len__") else None

    def __len__(self) -> int:
        count = self.samples
        if count is None:
            raise TypeError("this DataLoader has no length: its data is an iterable without one")
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    # --- State ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, int]:
        """Where the loader is: its seed, the epoch, and how many of its batches have come.

        >>> from ember_ml import training
        >>> loader = training.DataLoader(range(6), batch_size=2, seed=1)
        >>> batches = iter(loader)
        >>> _ = next(batches), next(batches)
        >>> loader.state_dict()
        {'seed': 1, 'epoch': 0, 'position': 2}
        """
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next loop go on from a state: it gets the batches that were left."""
        if set(state) != set(_STATE):
            raise DomainError(f"the state of a DataLoader has {', '.join(_STATE)}, not {state!r}")
        self.seed, self.epoch, self.position = (int(state[name]) for name in _STATE)
        self._resumes = True

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop be the epoch of a number, from its beginning."""
        self.epoch, self.position, self._resumes = int(epoch), 0, True

    def place(self) -> tuple[int, int, bool]:
        """Where a loop over it is, for `go_back`."""
        return self.epoch, self.position, self._began

    def go_back(self, place: tuple[int, int, bool]) -> None:
        """Count as if the batches since a place had not been taken."""
        self.epoch, self.position, self._began = place

    # --- Going through it -------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return self._batches(None)

    def parts(self, number: int, count: int) -> Iterator[Part]:
        """The same batches for `count` processes: of each, the part that has a number.

        Samples of other parts are not read, where samples have numbers. All processes go through
        the same batches; states and lengths are those of whole batches.

        >>> from ember_ml import training
        >>> loader = training.DataLoader(ops.arange(5), batch_size=3)
        >>> [(part.batch.tolist(), part.rows, part.total) for part in loader.parts(0, 2)]
        [([0, 1], 2, 3), ([3], 1, 2)]
        """
        if not 0 <= number < count:
            raise DomainError(f"DataLoader.parts got number {number} of {count} parts")
        return self._batches((number, count))

    def _batches(self, part: tuple[int, int] | None) -> Iterator[Any]:
        if not self._resumes:
            if self._began:  # a loop that was left early
                self.epoch += 1
            self.position = 0
        self._resumes = False
        self._began = True
        return _Batches(self, part)

    def _order(self) -> Iterable[int]:
        """The numbers of the samples of this epoch, in their order."""
        if self.sampler is not None:
            set_epoch = getattr(self.sampler, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(self.epoch)
            return self.sampler
        count = self.samples or 0
        if not self.shuffle:
            return range(count)
        from ember_ml.ops import random

        generator = random.Generator(self.seed).jump(self.epoch)
        with selection.use_backend("numpy"):
            order: np.ndarray[Any, Any] = random.permutation(count, generator=generator).numpy()
        return order

    def _groups(self) -> Iterator[Any]:
        """What each batch is made of: numbers of samples, or samples themselves."""
        by_number = self._has_numbers
        source: Any = self._order() if by_number else self.data
        size = self.batch_size
        if isinstance(source, range | np.ndarray):
            for start in range(self.position * size, len(source), size):
                yield source[start : start + size]
            return
        samples = iter(source)
        for _ in islice(samples, self.position * size):
            pass
        while group := list(islice(samples, size)):
            yield group

    def _makers(
        self, part: tuple[int, int] | None
    ) -> tuple[Callable[[], Any], Callable[[int, Any], Any]]:
        """How to take what the next batch is made of, and how to make the batch of it."""
        from ember_ml.ops import random

        groups = self._groups()
        backend = self.backend or selection.current().name
        read = self._reader()
        size, drop = self.batch_size, self.drop_last
        seed, epoch, dtype = self.seed, self.epoch, self.dtype
        seeded = self._rows is None  # code of users may draw

        def take() -> Any:
            group = next(groups)
            if drop and len(group) < size:
                raise StopIteration
            return group

        def make(number: int, group: Any) -> Any:
            if not seeded:
                return placed(read(group), backend, dtype)
            words = [seed, epoch, number] if part is None else [seed, epoch, number, *part]
            with random.use_seed(_batch_seed(*words)), selection.use_backend(backend):
                return placed(read(group), backend, dtype)

        if part is None:
            return take, make

        def make_part(number: int, group: Any) -> Part:
            start, stop = part_of(len(group), *part)
            # Where no row is left, the first one stands in: models need not take empty batches.
            chosen = group[start:stop] if stop > start else group[:1]
            return Part(make(number, chosen), stop - start, len(group))

        return take, make_part

    def _reader(self) -> Callable[[Any], Any]:
        if self._rows is not None:
            rows = self._rows.reader()
            own = self.collate
            if own is None:
                return lambda group: rows(np.asarray(group, dtype=np.int64))
            at = self._rows.at
            return lambda group: own([at(int(number)) for number in group])
        join = self.collate or collate
        data = self.data
        if not self._has_numbers:
            return join
        several = getattr(data, "__getitems__", None)  # torch's datasets may have it
        if several is not None:
            return lambda group: join(list(several([int(number) for number in group])))
        return lambda group: join([data[int(number)] for number in group])

    def __repr__(self) -> str:
        count = self.samples
        size = "samples of unknown number" if count is None else f"{count} samples"
        return f"DataLoader({size}, batch_size={self.batch_size}, shuffle={self.shuffle})"


class _Batches(Iterator[Any]):
    """One way through the batches of a loader, which is told how far it has come."""

    def __init__(self, loader: DataLoader, part: tuple[int, int] | None) -> None:
        self._loader = loader
        take, make = loader._makers(part)
        first = loader.position
        self._source: Iterator[Any]
        if loader.num_workers:
            self._source = Ahead(take, make, first, loader.num_workers, loader.prefetch)
        else:
            self._source = _one_by_one(take, make, first)

    def __next__(self) -> Any:
        loader = self._loader
        try:
            batch = next(self._source)
        except StopIteration:
            if loader._began:
                loader.epoch += 1
                loader.position = 0
                loader._began = False
            raise
        loader.position += 1
        return batch

    def close(self) -> None:
        """Let go of what makes the batches, before the last of them has come."""
        self._source.close()  # type: ignore[attr-defined]  # generators and Ahead have it

    def __del__(self) -> None:
        source = getattr(self, "_source", None)
        if isinstance(source, Ahead):
            source._finalizer()


def _one_by_one(
    take: Callable[[], Any], make: Callable[[int, Any], Any], number: int
) -> Iterator[Any]:
    while True:
        try:
            group = take()
        except StopIteration:
            return
        yield make(number, group)
        number += 1


def _at_least(name: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise DomainError(f"DataLoader got {name}={value!r}; it is an integer from {least} on")
    return value


def _drawn_seed() -> int:
    from ember_ml.ops import random

    with selection.use_backend("numpy"):
        return int(random.randint(0, 2**62, ()).item())


def part_of(rows: int, number: int, count: int) -> tuple[int, int]:
    """Where a part of some rows begins and ends; the first ones have one more if need be."""
    size, more = divmod(rows, count)
    start = number * size + min(number, more)
    return start, start + size + (number < more)


def _batch_seed(*numbers: int) -> int:
    """A seed of one batch, far from those that people write down."""
    words = np.random.SeedSequence(numbers).generate_state(2, np.uint64)
    return int(words[0]) | int(words[1]) << 64
