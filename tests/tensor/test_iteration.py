"""Elements one after another, and pieces on several threads."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.nn import tensor

DTYPES = [d for d in em.dtypes.ALL if d.name != "complex128"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_iter_gives_python_numbers(backend: str, dtype: em.DType) -> None:
    values = [0, 1, 1, 0, 1, 1]
    x = ops.asarray(values, dtype=dtype).reshape(2, 3)
    got = list(x.iter())
    kind = (
        bool
        if dtype.name == "bool"
        else complex
        if dtype.is_complex
        else (float if dtype.is_floating else int)
    )
    assert got == values
    assert {type(v) for v in got} == {kind}
    assert list(x[:, ::-2].T.iter()) == [1, 1, 0, 0]


def test_iter_of_nothing_of_one_and_of_views(backend: str) -> None:
    assert list(tensor.zeros((0, 3)).iter()) == []
    assert list(tensor.array(5).iter()) == [5]
    x = tensor.arange(12).reshape(3, 4)
    assert list(x[::-1, 1::2].iter()) == [9, 11, 5, 7, 1, 3]
    assert list(x.broadcast_to((2, 3, 4)).iter()) == list(range(12)) * 2
    assert list(tensor.array([1.5, 2.5], requires_grad=True).iter()) == [1.5, 2.5]


def test_iter_sees_the_values_of_its_beginning(backend: str) -> None:
    x = tensor.arange(4)
    part = x[2:]
    seen = []
    for value in x.iter():
        seen.append(value)
        part[:] = 100
    assert seen == [0, 1, 2, 3]
    assert x.tolist() == [0, 1, 100, 100]


def test_iter_mut_assigns_elements(backend: str) -> None:
    x = tensor.arange(6).reshape(2, 3)
    for element in x[:, ::-1].iter_mut():
        element.value = element.value * 10
    assert x.tolist() == [[0, 10, 20], [30, 40, 50]]
    for i, element in enumerate(x.T.iter_mut()):
        if i == 1:
            element.set(-1)
        if i == 3:
            break  # what was assigned is written all the same
        assert repr(element).startswith("Element(")
    assert x.tolist() == [[0, 10, 20], [-1, 40, 50]]
    assert x.storage.version == 2


def test_iter_mut_leaves_what_others_wrote(backend: str) -> None:
    x = tensor.arange(4)
    for i, element in enumerate(x.iter_mut()):
        if i == 0:
            x[3] = 70
            element.value = 5
    assert x.tolist() == [5, 1, 2, 70]


def test_iter_mut_takes_what_fits(backend: str) -> None:
    x = tensor.arange(2)

    def halve() -> None:
        for element in x.iter_mut():
            element.value = 0.5

    with pytest.raises(em.DomainError, match="float32"):
        halve()
    assert x.tolist() == [0, 1]
    y = tensor.zeros(2)
    for element in y.iter_mut():
        element.value = 3
    assert y.tolist() == [3.0, 3.0]
    with pytest.raises(em.ReadOnlyError):
        y.slice((0, 1)).iter_mut()
    with pytest.raises(em.ReadOnlyError):
        tensor.array([1.0], requires_grad=True).iter_mut()


def test_par_iter_keeps_order_and_writes_through(backend: str) -> None:
    x = tensor.arange(24).reshape(6, 4)
    part = x[::2, ::-1]
    pieces = part.par_iter(chunks=2)
    assert [p.shape for p in pieces] == [(1, 4), (2, 4)]
    assert [t.item() for t in pieces.map(lambda p: p.sum())] == [6, 108]
    assert pieces.map(ops.sum).reduce(ops.add).item() == 114
    assert part.par_iter(chunks=3).reduce(ops.add).tolist() == [[33, 30, 27, 24]]

    def clear(piece: em.Tensor) -> None:
        piece[:, 0] = 0

    part.par_iter(chunks=3).for_each(clear)
    assert x[:, 3].tolist() == [0, 7, 0, 15, 0, 23]
    assert part.par_iter(chunks=2, axis=1).map(lambda p: p.shape).collect() == [(3, 2), (3, 2)]


def test_par_iter_of_nothing_and_of_one(backend: str) -> None:
    assert tensor.zeros((0, 3)).par_iter().map(ops.sum).collect() == []
    with pytest.raises(em.DomainError, match="nothing"):
        tensor.zeros(0).par_iter().reduce(ops.add)
    assert tensor.array(4.0).par_iter().map(float).collect() == [4.0]
    assert len(tensor.zeros(3).par_iter(chunks=100)) == 3
    with pytest.raises(em.DomainError, match="chunk"):
        tensor.zeros(3).par_iter(chunks=0)


def test_par_iter_raises_what_a_thread_raised(backend: str) -> None:
    def work(piece: em.Tensor) -> int:
        if piece[0].item() == 2:
            raise KeyError("two")
        return 1

    with pytest.raises(KeyError, match="two"):
        tensor.arange(8).par_iter(chunks=4).map(work)


def test_par_iter_runs_in_the_context_of_the_caller(backend: str) -> None:
    made = tensor.arange(4).par_iter(chunks=4, workers=2).map(lambda p: tensor.ones(1).backend)
    assert made.collect() == [backend] * 4


def test_par_iter_runs_pieces_side_by_side() -> None:
    """Two threads are inside the work at once, which releases Python's lock; no clock is asked."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one core cannot show that two work")
    x = ops.asarray(np.random.default_rng(0).standard_normal((2, 600, 600)))
    inside = 0
    most = 0
    lock = threading.Lock()

    def work(piece: em.Tensor) -> Any:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            np.linalg.svd(piece.numpy()[0, :200, :200])
        with lock:
            inside -= 1
        return threading.get_ident()

    threads = x.par_iter(chunks=2, workers=2).map(work).collect()
    assert most == 2
    assert len(set(threads)) == 2
