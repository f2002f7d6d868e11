"""DataLoader: what goes in, what comes out, in which order, and what is left of the threads."""

from __future__ import annotations

import gc
import threading
import time
import traceback
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import ops, training
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.ops import random
from ember_ml.training import DataLoader, TensorDataset, random_split

X = np.arange(20, dtype="float32").reshape(10, 2)
Y = np.arange(10)


def numbers(loader: Any) -> list[list[int]]:
    """The samples of each batch, told by their second column."""
    return [ops.reshape(batch[1], (-1,)).tolist() for batch in loader]


class Samples:
    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return X[index], int(Y[index])


class TorchSamples(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return torch.from_numpy(X)[index], int(Y[index])


def samples() -> Any:
    yield from zip(X, Y.tolist(), strict=True)


SOURCES: dict[str, Any] = {
    "tensors": lambda: (ops.asarray(X), ops.asarray(Y)),
    "tensors of torch": lambda: (torch.from_numpy(X), torch.from_numpy(Y)),
    "arrays": lambda: (X, Y),
    "TensorDataset": lambda: TensorDataset(ops.asarray(X), Y),
    "a list of samples": lambda: [(x, y) for x, y in zip(X, Y, strict=True)],
    "samples by number": Samples,
    "a dataset of torch": TorchSamples,
    "torch's own TensorDataset": lambda: torch.utils.data.TensorDataset(
        torch.from_numpy(X), torch.from_numpy(Y)
    ),
    "an iterable": lambda: list_like(),
    "frames": lambda: (pd.DataFrame(X), pd.Series(Y)),
    "Subset": lambda: random_split(Samples(), [10], seed=0)[0],
}


class list_like:
    """An iterable without a length."""

    def __iter__(self) -> Any:
        return samples()


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("workers", [0, 2])
def test_sources(name: str, workers: int, backend: str) -> None:
    loader = DataLoader(SOURCES[name](), batch_size=4, num_workers=workers)
    found = list(loader)
    assert [batch[0].shape for batch in found] == [(4, 2), (4, 2), (2, 2)]
    for x, y in found:
        assert (x.backend, y.backend) == (backend, backend)
        assert (x.dtype, y.dtype) == (em.float32, em.int64)
        assert ops.allclose(x[:, 0], 2.0 * y.astype("float32"))
    if name != "Subset":
        assert [y.tolist() for _, y in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert numbers(loader) == [y.tolist() for _, y in found]  # a second epoch


def test_trees_and_single_tensors(backend: str) -> None:
    loader = DataLoader({"x": X, "more": (Y, ops.asarray(Y))}, batch_size=5)
    first = next(iter(loader))
    assert (first["x"].shape, first["more"][1].tolist()) == ((5, 2), [0, 1, 2, 3, 4])
    assert [batch.tolist() for batch in DataLoader(ops.asarray(Y), batch_size=6)] == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9],
    ]
    assert [b.tolist() for b in DataLoader(range(3), batch_size=2)] == [[0, 1], [2]]
    texts = DataLoader([{"text": "a", "n": 1.5}, {"text": "b", "n": 2.5}], batch_size=2)
    (batch,) = texts
    assert (batch["text"], batch["n"].tolist()) == (["a", "b"], [1.5, 2.5])
    assert batch["n"].dtype == em.float32


def test_backend_and_dtype() -> None:
    wide = X.astype("float64")
    with em.use_backend("numpy"):
        x, y = next(iter(DataLoader((wide, Y), backend="torch", dtype="float32")))
        assert (x.backend, x.dtype, y.dtype) == ("torch", em.float32, em.int64)
        (z,) = next(iter(DataLoader((ops.asarray(wide),), backend="jax")))
        assert (z.backend, z.dtype) == ("jax", em.float64)
    with pytest.raises(em.UnknownBackendError):
        DataLoader(X, backend="nomenclature")


def test_tensors_with_gradients_and_later_writes(backend: str) -> None:
    x = em.nn.Parameter(ops.asarray(X))
    assert not next(iter(DataLoader(x))).requires_grad
    plain = ops.asarray(X.copy())
    loader = DataLoader(plain, batch_size=10)
    plain[0, 0] = 7.0
    assert next(iter(loader))[0, 0].item() == 7.0


# --- Order ------------------------------------------------------------------------------------

ORDER = [[0, 7, 8, 6], [9, 5, 1, 3], [2, 4]]


def test_the_order_is_the_same_everywhere(backend: str) -> None:
    epochs = {}
    for workers in (0, 1, 3):
        loader = DataLoader(Samples(), 4, shuffle=True, seed=5, num_workers=workers)
        epochs[workers] = [numbers(loader), numbers(loader)]
    assert epochs[0] == epochs[1] == epochs[3]
    assert epochs[0][0] != epochs[0][1]
    assert sorted(y for batch in epochs[0][0] for y in batch) == list(range(10))
    with em.use_backend("numpy"):
        assert numbers(DataLoader((X, Y), 4, shuffle=True, seed=5)) == epochs[0][0]


def test_the_order_of_a_seed_does_not_change() -> None:
    assert numbers(DataLoader((X, Y), 4, shuffle=True, seed=0)) == ORDER


def test_a_loader_without_a_seed_follows_that_of_ops() -> None:
    with random.use_seed(3):
        first = numbers(DataLoader((X, Y), 4, shuffle=True))
    with random.use_seed(3):
        assert numbers(DataLoader((X, Y), 4, shuffle=True)) == first


def test_draws_of_samples_do_not_depend_on_workers(backend: str) -> None:
    class Noisy(Samples):
        def __getitem__(self, index: int) -> Any:
            return random.normal((2,)), index

    def drawn(workers: int) -> list[Any]:
        loader = DataLoader(Noisy(), 4, seed=1, num_workers=workers)
        return [[x.tolist() for x, _ in loader] for _ in range(2)]

    with random.use_seed(0):
        before = random.get_state()
        first = drawn(0)
        assert random.get_state() == before
    assert first == drawn(2)
    assert first[0] != first[1]


def test_drop_last_sampler_and_length() -> None:
    assert numbers(DataLoader((X, Y), 4, drop_last=True)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(DataLoader((X, Y), 4, drop_last=True)) == 2
    assert len(DataLoader((X, Y), 4)) == 3
    backwards = DataLoader((X, Y), 4, sampler=range(9, -1, -2))
    assert (numbers(backwards), len(backwards)) == ([[9, 7, 5, 3], [1]], 2)
    with pytest.raises(TypeError, match="no length"):
        len(DataLoader(list_like()))
    iterable = DataLoader(list_like(), 4, drop_last=True, num_workers=2)
    assert numbers(iterable) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_collate(backend: str) -> None:
    def padded(rows: list[Any]) -> np.ndarray:
        width = max(map(len, rows))
        return np.array([[*row, *[0] * (width - len(row))] for row in rows])

    (batch,) = DataLoader([[1], [1, 2, 3], [4, 5]], 3, collate=padded)
    assert batch.tolist() == [[1, 0, 0], [1, 2, 3], [4, 5, 0]]
    pairs = DataLoader((X, Y), 5, collate=lambda rows: np.array([int(y) for _, y in rows]))
    assert next(iter(pairs)).tolist() == [0, 1, 2, 3, 4]


def test_lazy_batches_of_threads_can_be_read(backend: str) -> None:
    loader = DataLoader(
        Samples(), 5, collate=lambda rows: ops.ones(3) * 2.0, num_workers=2, dtype="float16"
    )
    assert [b.tolist() for b in loader] == [[2.0, 2.0, 2.0]] * 2


# --- State ------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 7), st.integers(0, 2), st.sampled_from(["rows", "samples", "iterable"]))
def test_a_loader_goes_on_where_it_was(taken: int, workers: int, kind: str) -> None:
    def made(workers: int) -> DataLoader:
        if kind == "iterable":
            return DataLoader(list_like(), 3, seed=2, num_workers=workers)
        data: Any = (X, Y) if kind == "rows" else Samples()
        return DataLoader(data, 3, shuffle=True, seed=2, num_workers=workers)

    whole = made(0)
    wanted = [*numbers(whole), *numbers(whole)]
    first = made(workers)
    passed, left = divmod(taken, 4)  # epochs of 4 batches
    for _ in range(passed):
        list(first)
    batches = iter(first)
    for _ in range(left):
        next(batches)
    state = first.state_dict()
    batches.close()
    second = made(0)
    second.seed = 99
    second.load_state_dict(state)
    rest = numbers(second)
    assert rest == wanted[taken : 4 * (passed + 1)]
    if not passed:
        assert numbers(second) == wanted[4:]


def test_a_loop_that_is_left_begins_the_next_epoch() -> None:
    whole = DataLoader((X, Y), 4, shuffle=True, seed=0)
    wanted = [numbers(whole), numbers(whole)]
    loader = DataLoader((X, Y), 4, shuffle=True, seed=0)
    for _ in loader:
        break
    assert loader.state_dict() == {"seed": 0, "epoch": 0, "position": 1}
    assert numbers(loader) == wanted[1]
    loader.set_epoch(0)
    assert numbers(loader) == wanted[0]
    with pytest.raises(DomainError, match="seed, epoch, position"):
        loader.load_state_dict({"epoch": 1})


# --- Threads ----------------------------------------------------------------------------------


def threads() -> int:
    return sum(one.name.startswith("ember_ml loader") for one in threading.enumerate())


def wait_for_none() -> None:
    end = time.monotonic() + 5
    while threads() and time.monotonic() < end:
        time.sleep(0.005)
    assert threads() == 0


def test_no_thread_is_left() -> None:
    loader = DataLoader(Samples(), 1, num_workers=3, prefetch=1)
    list(loader)
    wait_for_none()
    for _ in loader:
        assert threads() == 3
        break
    wait_for_none()
    batches = iter(loader)
    next(batches)
    batches.close()
    assert threads() == 0  # close waits
    kept = iter(loader)
    next(kept)
    del kept
    gc.collect()
    wait_for_none()


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_come_to_the_consumer(workers: int) -> None:
    class Broken(Samples):
        def __getitem__(self, index: int) -> Any:
            return self.fails() if index == 5 else super().__getitem__(index)

        def fails(self) -> Any:
            raise OSError("sample 5 is not readable")

    found = []
    with pytest.raises(OSError, match="sample 5") as caught:
        found.extend(y.tolist() for _, y in DataLoader(Broken(), 2, num_workers=workers))
    assert found == [[0, 1], [2, 3]]
    assert "in fails" in "".join(traceback.format_tb(caught.value.__traceback__))
    wait_for_none()

    def broken() -> Any:
        yield 1
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        list(DataLoader(broken(), 1, num_workers=workers))
    wait_for_none()


def test_only_so_many_batches_are_made_ahead() -> None:
    asked: list[int] = []

    class Counted(Samples):
        def __getitem__(self, index: int) -> Any:
            asked.append(index)
            return index

    batches = iter(DataLoader(Counted(), 1, num_workers=2, prefetch=2))
    next(batches)
    time.sleep(0.05)
    assert len(asked) <= 1 + 4
    batches.close()


def test_workers_work_at_once() -> None:
    meeting = threading.Barrier(3, timeout=5)

    class Meeting(Samples):
        def __getitem__(self, index: int) -> Any:
            meeting.wait()
            return index

    assert [b.item() for b in DataLoader(Meeting(), 1, sampler=range(6), num_workers=3)] == [
        *range(6)
    ]


# --- Splits, mistakes ---------------------------------------------------------------------------


def test_random_split(backend: str) -> None:
    train, test = random_split((ops.asarray(X), Y), [7, 3], seed=0)
    assert (train[0].shape, test[1].shape) == ((7, 2), (3,))
    assert train[0].backend == backend
    assert sorted([*train[1].tolist(), *test[1].tolist()]) == list(range(10))
    assert (train[0][:, 0].numpy() == 2 * train[1]).all()
    parts = random_split(TensorDataset(X, Y), [0.5, 0.3, 0.2], seed=0)
    assert [len(one) for one in parts] == [5, 3, 2]
    again = random_split(TensorDataset(X, Y), [0.5, 0.3, 0.2], seed=0)
    assert [int(one[1]) for one in parts[0]] == [int(one[1]) for one in again[0]]
    for wrong in ([5, 6], [0.5, 0.6], [-1, 11]):
        with pytest.raises(DomainError, match="random_split got"):
            random_split(Samples(), wrong)


def test_mistakes() -> None:
    with pytest.raises(ShapeError, match=r"different lengths \(data\[0\]: 10, data\[1\]: 9\)"):
        DataLoader((X, Y[:9]))
    with pytest.raises(ShapeError, match="single number"):
        DataLoader(np.array(3.0))
    with pytest.raises(DTypeError, match="<U1"):
        DataLoader(np.array(["a", "b"]))
    with pytest.raises(DTypeError, match="not int"):
        DataLoader(3)
    with pytest.raises(DomainError, match="cannot shuffle an iterable"):
        DataLoader(list_like(), shuffle=True)
    with pytest.raises(DomainError, match="sampler or shuffle"):
        DataLoader((X, Y), shuffle=True, sampler=[1])
    for option in ({"batch_size": 0}, {"num_workers": -1}, {"prefetch": 0}, {"batch_size": 2.5}):
        with pytest.raises(DomainError, match=next(iter(option))):
            DataLoader(X, **option)
    with pytest.raises(ShapeError, match="collate="):
        list(DataLoader([np.ones(2), np.ones(3)], 2))
    with pytest.raises(ShapeError, match="different structures"):
        list(DataLoader([(1, 2), 3], 2))
    with pytest.raises(DTypeError, match="columns 'name'"):
        DataLoader(pd.DataFrame({"name": ["a"], "n": [1]}))
    assert isinstance(Samples(), training.Dataset)
