"""What is torch's own: shared memory, its traps, unsigned integers, gradients, tracing."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ember_ml as em
from ember_ml import dtypes, ops
from ember_ml.backend import selection
from ember_ml.errors import (
    DeviceError,
    DomainError,
    DTypeError,
    IntegerDivisionError,
    LinAlgError,
    ReadOnlyError,
    ShapeError,
)
from ember_ml.tensor import Tensor

torch = pytest.importorskip("torch")

UNSIGNED = ("uint16", "uint32", "uint64")


@pytest.fixture(autouse=True)
def _torch() -> Iterator[None]:
    with em.use_backend("torch"):
        yield


@pytest.fixture
def engine() -> Any:
    return selection.load("torch")


def values(x: Tensor) -> Any:
    assert isinstance(x.native, torch.Tensor)
    assert str(x.native.dtype) == f"torch.{x.dtype}"
    return x.tolist()


# --- Memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [d.name for d in dtypes.ALL])
def test_numpy_memory_is_shared_both_ways(dtype: str) -> None:
    array = np.ones((2, 3), dtypes.to_dtype(dtype).numpy)
    x = ops.asarray(array)
    assert x.dtype == dtype
    assert x.numpy().dtype == array.dtype
    assert np.shares_memory(x.numpy(), array)
    assert np.shares_memory(ops.asarray(array.T, copy=False).numpy(), array)
    assert not np.shares_memory(ops.asarray(array, copy=True).numpy(), array)


def test_memory_that_torch_cannot_take_is_copied() -> None:
    base = np.arange(6.0, dtype="float32")
    packed = np.zeros(3, dtype=[("flag", "i1"), ("value", "f4")])["value"]
    odd = np.zeros(13, np.uint8)[1:].view(np.float32)
    for array in (base[::-1], packed, odd):
        x = ops.asarray(array)
        assert values(x) == array.tolist()
        assert not np.shares_memory(x.numpy(), array)
        with pytest.raises(DomainError):
            ops.asarray(array, copy=False)


def test_long_long_is_int64() -> None:
    array = np.arange(3, dtype=np.longlong)
    x = ops.asarray(array)
    assert x.dtype is dtypes.int64
    assert np.shares_memory(x.numpy(), array)


def test_bfloat16_survives_numpy_and_pickle() -> None:
    array = np.array([1.0, 2.5, -3.0], ml_dtypes.bfloat16)
    x = ops.asarray(array)
    assert x.native.dtype is torch.bfloat16
    again = pickle.loads(pickle.dumps(x))
    assert again.native.dtype is torch.bfloat16
    assert values(again) == [1.0, 2.5, -3.0]


def test_dlpack_of_a_negative_stride_does_not_end_the_process() -> None:
    array = np.arange(3.0)
    assert values(ops.from_dlpack(array[::-1])) == [2.0, 1.0, 0.0]
    assert np.shares_memory(ops.from_dlpack(array).numpy(), array)
    with pytest.raises(DomainError):
        ops.from_dlpack(array[::-1], copy=False)


def test_dlpack_leaves_gradients_and_lazy_signs_behind() -> None:
    assert np.from_dlpack(Tensor([1.0], requires_grad=True)).tolist() == [1.0]
    lazy = torch.conj(torch.tensor([1 + 2j]))
    assert np.from_dlpack(ops.asarray(lazy)).tolist() == [1 - 2j]
    assert ops.asarray(lazy).numpy().tolist() == [1 - 2j]
    assert ops.asarray(lazy.imag).numpy().tolist() == [-2.0]
    x = ops.asarray([1.0])
    assert torch.from_dlpack(x).data_ptr() == x.native.data_ptr()


def test_views_write_through_and_overlaps_are_safe() -> None:
    x = ops.asarray([1, 2, 3, 4])
    view = x[1:3]
    view += 10
    assert values(x) == [1, 12, 13, 4]
    x[1:] = x[:-1]
    assert values(x) == [1, 1, 12, 13]
    x[::-1] = x
    assert values(x) == [13, 12, 1, 1]


def test_broadcast_tensors_are_not_written() -> None:
    x = ops.broadcast_to(ops.asarray([1.0, 2.0]), (3, 2))
    with pytest.raises(ReadOnlyError, match="copy"):
        x[0] = 5.0
    with pytest.raises(ReadOnlyError, match="copy"):
        x += 1
    x.copy()[0] = 5.0
    empty = ops.asarray(np.zeros((4, 0)))  # its strides are zero as well
    empty[0] = 5.0


def test_shares_memory_is_told_by_addresses(engine: Any) -> None:
    x = ops.zeros((4, 4)).native
    assert engine.shares_memory(x, x[1:])
    assert not engine.shares_memory(x[:2], x[2:])
    assert not engine.shares_memory(x, x.clone())


# --- Unsigned integers ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_arithmetic_and_order(dtype: str) -> None:
    top = int(ops.iinfo(dtype).max)
    x = ops.asarray([top, 0, 3], dtype=dtype)
    y = ops.asarray([1, 2, 3], dtype=dtype)
    assert values(x + y) == [0, 2, 6]
    assert values(y - x) == [2, 2, 0]
    assert values(x * y) == [top, 0, 9]
    assert values(x // y) == [top, 0, 1]
    assert values(x % y) == [0, 0, 0]
    assert values(x >> 1) == [top >> 1, 0, 1]
    assert values(x > y) == [True, False, False]
    assert values(ops.max(x)) == top
    assert values(ops.sort(x)) == [0, 3, top]
    assert values(ops.argsort(x, descending=True)) == [0, 2, 1]
    assert values(ops.maximum(x, y)) == [top, 2, 3]
    assert values(ops.searchsorted(ops.sort(x), y)) == [1, 1, 1]
    assert values(ops.unique_all(x).values) == [0, 3, top]
    assert values(ops.matmul(y, y)) == 14
    assert ops.sum(y).dtype is dtypes.uint64


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_indexing(dtype: str) -> None:
    x = ops.reshape(ops.arange(6, dtype=dtype), (2, 3))
    assert values(x[::-1, ::-1]) == [[5, 4, 3], [2, 1, 0]]
    x[ops.asarray([0, 1]), ops.asarray([2, 0])] = 9
    x[x == 9] = 7
    assert values(x) == [[0, 1, 7], [7, 4, 5]]


# --- Keys -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        np.s_[::-1],
        np.s_[::-2, 1, ::-1],
        np.s_[5:0:-2, None, ..., -1],
        np.s_[0, :, [0, 2]],
        np.s_[[0, 2], :, 0],
        np.s_[:, 0, [0, 2]],
        np.s_[:, [0, 1], ..., [0, 1]],
        np.s_[::-1, [0, 2]],
        np.s_[[0, 2], ::-1, 1],
        np.s_[True],
        np.s_[False, 0],
        np.s_[None, [True, False, True, True], ::-1, 0],
    ],
    ids=str,
)
def test_keys_mean_what_numpy_means(key: Any) -> None:
    base = np.arange(36).reshape(4, 3, 3)
    x = ops.asarray(base, copy=True)
    assert values(x[key]) == base[key].tolist()
    expected = base.copy()
    expected[key] = np.arange(base[key].size).reshape(base[key].shape)
    x[key] = np.arange(base[key].size).reshape(base[key].shape)
    assert values(x) == expected.tolist()


# --- Values ---------------------------------------------------------------------------------


def test_reductions_over_no_axes_leave_values() -> None:
    x = ops.asarray([[1.0, 2.0]])
    assert values(ops.sum(x, axis=())) == [[1.0, 2.0]]
    assert values(ops.max(x, axis=())) == [[1.0, 2.0]]
    assert values(ops.all(ops.asarray([2, 0], dtype="uint8"), axis=())) == [True, False]


def test_variance_without_degrees_of_freedom_does_not_warn() -> None:
    assert np.isnan(ops.var(ops.asarray([1.0]), correction=1).item())
    assert ops.var(ops.zeros((2, 0)), axis=0).shape == (0,)


def test_complex_infinities_are_not_lost() -> None:
    x = ops.asarray([complex(0, np.inf), 0j])
    assert values(x + x)[0] == complex(0, np.inf)
    assert values(x - 1)[0] == complex(-1, np.inf)
    assert values(ops.pow(x, 0j)) == [1, 1]
    assert values(ops.conj(ops.asarray([1 + 2j]))) == [1 - 2j]


def test_nan_and_infinity_in_real_ops() -> None:
    inf, nan = np.inf, np.nan
    assert np.isnan(ops.sign(ops.asarray([nan])).item())
    assert values(ops.floor_divide(ops.asarray([inf, -inf]), 2.0)) == [inf, -inf]
    assert str(values(ops.floor_divide(ops.asarray([1.0]), -inf))) == "[-0.0]"
    assert str(values(ops.remainder(ops.asarray([-0.0]), 1.0))) == "[0.0]"
    row = ops.asarray([1.0, inf, nan, nan])
    assert values(ops.searchsorted(row, ops.asarray([inf, nan]))) == [1, 2]
    assert values(ops.searchsorted(row, ops.asarray([inf, nan]), side="right")) == [2, 4]


def test_values_beyond_a_dtype_become_infinite() -> None:
    assert values(ops.full((1,), 1e6, dtype="float16")) == [np.inf]
    assert values(ops.full((1,), 10**30, dtype="float64")) == [1e30]


def test_solve_takes_a_matrix_beside_a_stack() -> None:
    stack = ops.asarray([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]])
    right = ops.asarray([[2.0, 4.0], [8.0, 4.0]])
    out = ops.linalg.solve(stack, right)
    assert values(out) == [[[1.0, 2.0], [2.0, 1.0]], [[2.0, 4.0], [8.0, 4.0]]]


def test_fft_of_nothing() -> None:
    assert ops.fft.fft(ops.zeros((3, 0)), axis=0).shape == (3, 0)
    assert ops.fft.rfft(ops.zeros((0, 4))).shape == (0, 3)


# --- Errors ---------------------------------------------------------------------------------


def test_checks_that_torch_leaves_out() -> None:
    with pytest.raises(IntegerDivisionError):
        ops.asarray([1, 2]) // 0
    with pytest.raises(DomainError):
        ops.asarray([2]) ** ops.asarray([-1])
    with pytest.raises(ShapeError):
        ops.max(ops.zeros((0, 2)), axis=0)
    with pytest.raises(em.errors.AxisError):
        ops.sum(ops.asarray(1.0), axis=0)
    for factorise in (ops.linalg.eig, ops.linalg.eigvals, ops.linalg.svd, ops.linalg.eigvalsh):
        with pytest.raises(LinAlgError):
            factorise(ops.full((2, 2), float("nan")))


def test_dtypes_of_torch_that_are_not_ours() -> None:
    with pytest.raises(DTypeError, match="float8"):
        ops.asarray(torch.ones(2, dtype=torch.float8_e4m3fn))


# --- Gradients and tracing ------------------------------------------------------------------


def test_requires_grad_gives_a_leaf() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    assert w.native.is_leaf
    assert w.native.requires_grad
    assert not w.detach().native.requires_grad
    (grad,) = torch.autograd.grad(ops.sum(w * w).native, w.native)
    assert grad.tolist() == [2.0, 4.0]


def test_writes_are_differentiable() -> None:
    v = Tensor([1.0, 2.0], requires_grad=True)
    u = v * 1
    u[0] = 5.0
    u += v
    (grad,) = torch.autograd.grad(ops.sum(u * u).native, v.native)
    assert grad.tolist() == [12.0, 16.0]


def test_parameters_are_taken_as_they_are() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    x = ops.asarray(weight)
    assert x.requires_grad
    assert (x + 1).native.requires_grad
    with torch.no_grad():
        x += 1
    assert weight.tolist() == [2.0, 2.0]


def test_scalars_made_in_inference_mode_can_be_used_later() -> None:
    with torch.inference_mode():
        ops.ones(2) * 123.25
    v = Tensor([1.0], requires_grad=True)
    (grad,) = torch.autograd.grad(ops.sum(v * 123.25).native, v.native)
    assert grad.tolist() == [123.25]


def test_floor_divide_has_the_derivative_zero() -> None:
    v = Tensor([3.0], requires_grad=True)
    (grad,) = torch.autograd.grad(ops.sum(v // 2).native, v.native)
    assert grad.tolist() == [0.0]


def _traced(seen: list[bool]) -> Any:
    engine = selection.load("torch")

    def function(native: Any) -> Any:
        x = ops.asarray(native)
        seen.append(engine.is_traced(x.native))
        y = ops.sort(x) + x[::-1] * 2.0
        return ops.where(y > 1, y // 0.5, ops.take(y, [0, 0, 1])).native

    return function


def test_make_fx_records_values_that_are_not_there() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    seen: list[bool] = []
    x = torch.tensor([1.0, 3.0, 2.0])
    graph = make_fx(_traced(seen))(x)
    assert torch.equal(graph(x * 3), _traced(seen)(x * 3))
    assert seen == [True, False]


def test_a_traced_number_is_an_index() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(native: Any, index: Any) -> Any:
        x, i = ops.asarray(native).copy(), ops.asarray(index)
        x[::-1][:, i] = x[i, ::-1] * 2
        x[i, 0] = 9
        return x.native

    x = torch.arange(9).reshape(3, 3)
    graph = make_fx(function)(x, torch.tensor(0))
    for i in (0, 1, 2, -1):
        wanted = x.numpy().copy()
        wanted[::-1][:, i] = wanted[i, ::-1] * 2
        wanted[i, 0] = 9
        assert graph(x, torch.tensor(i)).tolist() == wanted.tolist()


def test_transforms_of_functions_are_traced() -> None:
    seen: list[bool] = []
    assert torch.func.vmap(_traced(seen))(torch.ones(2, 3)).shape == (2, 3)
    assert seen == [True]


def test_fake_tensors_are_traced(engine: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        x = ops.asarray(mode.from_tensor(torch.ones(3)))
        assert engine.is_traced(x.native)
        assert ops.add(x, x).shape == (3,)


# --- Devices --------------------------------------------------------------------------------


def test_devices_have_canonical_names() -> None:
    x = ops.ones(2)
    assert "cpu" in em.get_available_devices()
    assert x.to_device("cpu:0").device == "cpu"
    for missing in ("tpu", "meta", "cpu:1", "cuda:99"):
        with pytest.raises(DeviceError, match=missing):
            x.to_device(missing)


def test_metal_has_no_double_precision(engine: Any) -> None:
    assert engine.supports(dtypes.float32, "mps")
    assert not engine.supports(dtypes.float64, "mps")
    assert not engine.supports(dtypes.complex128, "mps")


def test_memory_and_synchronisation_on_the_cpu() -> None:
    with em.use_device("cpu"):
        em.synchronize()
        assert em.memory_info()["allocated"] > 0


def test_accelerators_come_before_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from ember_ml.backend import torch as module

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    engine = module.TorchBackend(module)
    assert engine.devices()[:3] == ("cuda:0", "cuda:1", "mps")
    assert engine.devices()[-1] == "cpu"
    assert engine.default_device() == "cuda:0"
    assert engine.canonical_device("cuda") == engine.canonical_device("gpu") == "cuda:0"
    assert engine.canonical_device("mps:0") == "mps"
    with pytest.raises(DeviceError):
        engine.canonical_device("cuda:2")


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({"LOCAL_RANK": "2", "SLURM_LOCALID": "0"}, "cuda:2"),  # ember launch in a job of Slurm
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1"}, "cuda:1"),
        ({"SLURM_LOCALID": "3"}, "cuda:3"),
        ({"LOCAL_RANK": "5"}, "cuda:1"),  # more processes than GPUs
        ({"LOCAL_RANK": "x"}, "cuda:0"),
        ({}, "cuda:0"),
    ],
)
def test_each_process_of_a_machine_has_a_gpu_of_its_own(
    given: dict[str, str], own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ember_ml.backend import torch as module

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    engine = module.TorchBackend(module)
    assert engine.default_device() == engine.canonical_device("cuda") == own
    assert sorted(engine.devices()) == ["cpu", "cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert engine.canonical_device("cuda:0") == "cuda:0"
