"""Pickles and copies keep dtype, device, backend and requires_grad, and say where they cannot."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import dtypes, ops
from ember_ml.backend import selection
from ember_ml.tensor.core import GradTensor, new


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(backend: str, protocol: int) -> None:
    x = ops.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    tree = {"x": x, "view": x.T[1:], "half": x.astype("bfloat16"), "scalar": x[0, 0]}
    with em.use_backend("numpy"):
        again = pickle.loads(pickle.dumps(tree, protocol=protocol))
    for name, y in again.items():
        wanted = tree[name]
        assert type(y) is em.Tensor
        assert (y.backend, y.device, y.dtype, y.shape, y.requires_grad) == (
            backend,
            wanted.device,
            wanted.dtype,
            wanted.shape,
            False,
        )
        assert y.tolist() == wanted.tolist()


def test_state(backend: str) -> None:
    x = ops.asarray([[1.0, 2.0], [3.0, 4.0]])
    state = x.T.__getstate__()
    assert {k: v for k, v in state.items() if k != "data"} == {
        "shape": (2, 2),
        "dtype": "float32",
        "device": "cpu",
        "backend": backend,
        "requires_grad": False,
    }
    y = new(em.Tensor)
    y.__setstate__(state)
    assert (y.backend, y.dtype, y.tolist()) == (backend, "float32", [[1.0, 3.0], [2.0, 4.0]])
    y[0, 0] = 9.0  # memory of its own
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_tensors_that_need_gradients(backend: str) -> None:
    x = em.Tensor([1.0, 2.0], requires_grad=True)
    y = (x * 2.0).sum()
    for again in (
        pickle.loads(pickle.dumps([x, y])),
        copy.deepcopy([x, y]),
    ):
        assert [type(z) for z in again] == [GradTensor, GradTensor]
        assert [z.tolist() for z in again] == [[1.0, 2.0], 6.0]
        if backend == "torch":  # leaves of their own
            assert all(z.native.is_leaf and z.native.requires_grad for z in again)
    assert type(copy.copy(x)) is GradTensor
    with pytest.raises(em.DomainError, match="requires_grad=True"):
        new(em.Tensor).__setstate__(x.__getstate__())


def test_what_is_shared_in_a_tree_stays_shared() -> None:
    x = ops.ones(2)
    for again in (pickle.loads(pickle.dumps([x, x])), copy.deepcopy([x, x])):
        assert again[0] is again[1]
        assert again[0] is not x


def test_values_can_travel_beside_the_pickle(backend: str) -> None:
    """Protocol 5, as multiprocessing libraries use it: the pickle itself stays small."""
    x = ops.zeros((1000, 100))
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    assert len(pickled) < 1000
    assert sum(len(b.raw()) for b in buffers) == x.nbytes
    copied = [bytes(b.raw()) for b in buffers]
    y = pickle.loads(pickled, buffers=copied)
    assert (y.backend, y.shape) == (backend, x.shape)
    y[0, 0] = 1.0  # the buffers are read-only
    assert copied == [bytes(x.nbytes)]


def test_pickling_asks_for_no_backend(tmp_path: Path) -> None:
    """A process that unpickles a NumPy tensor loads no other engine, whatever would be current."""
    path = tmp_path / "x.pickle"
    with em.use_backend("numpy"):
        path.write_bytes(pickle.dumps(ops.ones(3)))
    program = (
        "import pickle, sys; x = pickle.load(open(sys.argv[1], 'rb'));"
        "print(x.backend, x.tolist(), 'torch' in sys.modules, 'rich' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.split() == ["numpy", "[1.0,", "1.0,", "1.0]", "False", "False"]


@pytest.fixture
def without_mlx(monkeypatch: pytest.MonkeyPatch) -> bytes:
    with em.use_backend("mlx"):
        pickled = pickle.dumps({"x": ops.asarray([1.5, 2.5], dtype="bfloat16")})
    monkeypatch.setitem(selection._BUILT_IN, "mlx", "mlx_that_is_missing")
    monkeypatch.delitem(selection._loaded, "mlx")
    return pickled


def test_a_backend_that_is_missing(without_mlx: bytes) -> None:
    with pytest.raises(em.BackendUnavailableError) as caught:
        pickle.loads(without_mlx)
    for said in ("pickled on backend 'mlx'", 'unpickle_to("numpy")', 'load(path, backend="numpy")'):
        assert said in str(caught.value)
    for name in ("numpy", "torch", "jax"):
        with em.io.unpickle_to(name):
            x = pickle.loads(without_mlx)["x"]
        assert (x.backend, x.dtype, x.tolist()) == (name, em.bfloat16, [1.5, 2.5])
    with pytest.raises(em.BackendUnavailableError):
        pickle.loads(without_mlx)

    @em.io.unpickle_to("numpy")
    def load() -> Any:
        return pickle.loads(without_mlx)["x"].backend

    assert load() == "numpy"


def test_an_unknown_backend_or_device() -> None:
    state = ops.ones(2).__getstate__()
    for change, error, said in (
        ({"backend": "mynum"}, em.UnknownBackendError, "'mynum'"),
        ({"device": "cuda:7"}, em.DeviceError, "device 'cuda:7' of backend 'numpy'"),
    ):
        with pytest.raises(error, match=rf"{said}.*unpickle_to"):
            new(em.Tensor).__setstate__({**state, **change})
        x = new(em.Tensor)
        with em.io.unpickle_to("numpy"):
            x.__setstate__({**state, **change})
        assert (x.device, x.tolist()) == ("cpu", [1.0, 1.0])


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype_to_another_backend(dtype: em.DType) -> None:
    count = 8 * dtype.itemsize
    raw = np.random.default_rng(1).bytes(count)
    array = np.frombuffer(raw, dtype.numpy)
    if dtype is dtypes.bool:
        array = np.frombuffer(raw, np.uint8) > 100
    pickled = pickle.dumps(ops.asarray(array))
    for name in ("torch", "jax", "mlx"):
        with em.io.unpickle_to(name):
            if name == "mlx" and dtype is dtypes.complex128:
                with pytest.raises(em.DTypeError, match="complex128"):
                    pickle.loads(pickled)
                continue
            x = pickle.loads(pickled)
        assert (x.backend, x.dtype, x.numpy().tobytes()) == (name, dtype, array.tobytes())


def test_a_state_does_not_replace_shared_memory(backend: str) -> None:
    x = ops.asarray([1.0, 2.0, 3.0])
    view = x.slice((1, 3))
    state = ops.asarray([7.0, 8.0]).__getstate__()
    for one in (x, view, view.clone()):
        with pytest.raises(em.DomainError, match="unpickle it as a whole"):
            one.__setstate__(state)
    assert x.tolist() == [1.0, 2.0, 3.0]
    assert view.tolist() == [2.0, 3.0]
