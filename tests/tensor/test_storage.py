"""Memory under threads: no update is lost, and nobody sees half of a write."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml.nn import tensor
from ember_ml.tensor import writing

THREADS = 64
# More elements than NumPy copies without letting other threads run.
SIZE = 4096


def run(work: Callable[[int], None], count: int = THREADS) -> None:
    """Run `work` in many threads that begin together; their exceptions are raised here."""
    start = threading.Barrier(count)
    errors: list[BaseException] = []

    def body(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]


def test_writes_to_places_of_one_tensor_are_all_kept(backend: str) -> None:
    x = tensor.zeros(THREADS, dtype="int64")
    parts = [x[i : i + 1] for i in range(THREADS)]

    def work(number: int) -> None:
        for step in range(5):
            if step % 2:
                x[number] = step
            else:
                parts[number][0] = step

    run(work)
    assert x.tolist() == [4] * THREADS
    assert x.storage.version == 5 * THREADS


def test_additions_in_place_are_all_kept(backend: str) -> None:
    x = tensor.zeros(8, dtype="int64")
    half = x[4:]

    def work(number: int) -> None:
        target = half if number % 2 else x
        for _ in range(4):
            target += 1

    run(work)
    whole = THREADS // 2 * 4
    assert x.tolist() == [whole] * 4 + [2 * whole] * 4


@pytest.mark.parametrize("opened", [False, True])
def test_readers_and_clones_see_whole_writes(
    backend: str, opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if opened:  # as large tensors are on engines without writes
        monkeypatch.setattr(writing, "_SMALL", 0)
    x = tensor.zeros(SIZE, dtype="int64")
    window = x[:]
    window[:] = 0

    def work(number: int) -> None:
        for step in range(3):
            if number % 4 == 0:
                window[:] = number * 10 + step
            elif number % 4 == 1:
                clone = x.clone()
                seen = clone.numpy()
                assert (seen == seen[0]).all()
                value = int(seen[0])  # once the clone has moved, the array is the original's
                clone[0] = -1
                assert (clone[1:].numpy() == value).all()
            elif number % 4 == 2:
                values = x.tolist()
                assert values == [values[0]] * SIZE
            else:
                copy = x.copy().numpy()
                assert (copy == copy[0]).all()

    run(work)
    end = x.numpy()
    assert (end == end[0]).all()
    assert end[0] != -1


def test_a_storage_begins_once(backend: str) -> None:
    x = tensor.zeros(4)
    found: list[Any] = []
    run(lambda _: found.append(x.storage))
    assert len(found) == THREADS
    assert all(storage is found[0] for storage in found)


def test_plain_results_have_no_storage(backend: str) -> None:
    x = tensor.zeros(4) + 1.0
    assert getattr(x, "_home", None) is None
    assert x.storage.version == 0
    assert x.storage.size == 4
    assert x.storage.nbytes == 16
    assert "float32" in repr(x.storage)


def test_views_keep_memory_and_nothing_else(backend: str) -> None:
    x = tensor.zeros(100)
    part = x[10:20][2:4]
    part[:] = 3.0
    storage = weakref.ref(part.storage)
    del x
    gc.collect()
    assert part.tolist() == [3.0, 3.0]
    chain = part
    for _ in range(3000):  # a view of a view of a view holds the first alone
        chain = chain[:]
    assert chain.tolist() == [3.0, 3.0]
    del part, chain
    gc.collect()
    assert storage() is None


def test_clones_that_are_gone_cost_nothing(backend: str) -> None:
    x = tensor.zeros(4)
    for _ in range(100):
        x.clone()
    native = x.native
    x[0] = 1.0
    if backend in ("numpy", "torch"):
        assert x.native is native  # written in place: nobody else looked


def test_views_and_clones_of_64_mb_allocate_next_to_nothing(backend: str) -> None:
    x = tensor.zeros((4096, 4096))
    makers: list[Callable[[], em.Tensor]] = [
        x.clone, lambda: x[1:3], lambda: x[:, ::-2], lambda: x.T, lambda: x.reshape(-1), x.flip,
        lambda: x.select(0, 5), lambda: x.narrow(1, 5, 9), lambda: x.slice_mut((1, 9)),
        lambda: x.broadcast_to((2, 4096, 4096)), lambda: x.view(16, -1), lambda: x.permute(1, 0),
    ]  # fmt: skip
    for make in makers:
        make()
    gc.collect()
    native = x.native
    for make in makers:
        tracemalloc.start()
        made = make()
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 1024
        assert peak < 4096
        assert x.native is native
        assert made.storage is x.storage or made.storage.is_borrowed or backend in ("jax", "mlx")


def test_memory_of_the_host_is_written_once_it_is_ours(backend: str) -> None:
    host = np.zeros(4, dtype=np.float32)
    x = em.ops.asarray(host, copy=True)
    y = x.clone()
    x += 1.0
    assert host.tolist() == [0.0] * 4
    assert y.tolist() == [0.0] * 4
    assert x.tolist() == [1.0] * 4
