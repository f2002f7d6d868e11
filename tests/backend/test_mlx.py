"""What only MLX does: lazy arrays, shared memory, streams of threads, traps of its functions."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.backend import selection

mx = pytest.importorskip("mlx.core")

FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")


@pytest.fixture(autouse=True)
def _on_mlx() -> Iterator[None]:
    with em.use_backend("mlx"):
        yield


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


# --- Memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, *SIGNED, "bool", "uint64", "complex64"])
def test_numpy_sees_the_memory_of_mlx_and_cannot_write(dtype: str) -> None:
    x = ops.asarray([1, 0, 2], dtype=dtype)
    first, second = x.numpy(), x.numpy()
    assert _address(first) == _address(second)
    assert not first.flags.writeable
    assert first.dtype == x.dtype.numpy


def test_numpy_arrays_are_copied() -> None:
    source = np.array([1.0, 2.0])
    x = ops.asarray(source)
    source[0] = 9
    assert x.tolist() == [1.0, 2.0]
    with pytest.raises(em.DomainError, match="copy=False"):
        ops.asarray(source, copy=False)


def test_float64_keeps_its_bits() -> None:
    exact = np.array([1 + 2.0**-50, 0.1, -1e300])
    assert ops.asarray(exact).dtype is em.float64
    assert (ops.asarray(exact).numpy() == exact).all()
    assert (ops.from_dlpack(exact).numpy() == exact).all()
    assert (em.Tensor(exact).to_backend("numpy").numpy() == exact).all()


def test_integers_keep_their_bits() -> None:
    values = np.array([2**64 - 1, 2**53 + 1], dtype=np.uint64)
    assert ops.asarray(values).tolist() == values.tolist()
    assert (ops.asarray(values) + 0).tolist() == values.tolist()
    assert ops.full((2,), 2**64 - 1, dtype="uint64").tolist() == [2**64 - 1] * 2


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3)[::-1, ::2],
        np.arange(6.0).reshape(2, 3).T,
        np.broadcast_to(np.float64(3), (2, 2)),
        np.frombuffer(np.arange(3.0).tobytes()),
        np.array(7.0),
        np.zeros((0, 3)),
    ],
    ids=["reversed", "transposed", "broadcast", "read-only", "0-d", "empty"],
)
def test_any_layout_comes_over(array: np.ndarray[Any, Any]) -> None:
    x = ops.asarray(array)
    assert x.shape == array.shape
    assert (x.numpy() == array).all()


def test_empty_arrays_of_numpy_reduce_to_the_neutral_element() -> None:
    # MLX itself reads beyond them, because their strides are zero.
    x = ops.asarray(np.zeros((0, 3, 4), np.float32))
    assert ops.prod(x).item() == 1
    assert ops.all(x).item() is True


def test_dlpack_exports_share_and_copies_do_not() -> None:
    x = ops.asarray([1.0, 2.0, 3.0])
    assert _address(np.from_dlpack(x)) == _address(x.numpy())
    assert _address(np.from_dlpack(x, copy=True)) != _address(x.numpy())
    # Importers end the process on negative strides.
    assert np.from_dlpack(ops.flip(x)).tolist() == [3.0, 2.0, 1.0]
    with pytest.raises(BufferError):
        ops.flip(x).__dlpack__(copy=False)
    with pytest.raises(BufferError):
        ops.from_dlpack(np.arange(3.0), copy=False)


def test_bfloat16_comes_through_dlpack() -> None:
    torch = pytest.importorskip("torch")
    half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    assert ops.from_dlpack(_Foreign(half)).dtype is em.bfloat16
    assert ops.from_dlpack(_Foreign(half)).tolist() == [1.5, -2.0]


class _Foreign:
    """An array of a library that ember_ml does not know."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_pickles_keep_dtype_and_backend() -> None:
    for dtype in FLOATS:
        back = pickle.loads(pickle.dumps(ops.asarray([1.5, -0.0], dtype=dtype)))
        assert (back.backend, back.dtype.name) == ("mlx", dtype)
        assert np.signbit(back.numpy()).tolist() == [False, True]


# --- Writes ---------------------------------------------------------------------------------


def test_a_write_changes_no_other_array() -> None:
    native = mx.array([1.0, 2.0, 3.0])
    x, y = ops.asarray(native), ops.asarray(native)
    seen = x.numpy()
    x[0] = 9.0
    y[ops.asarray([1, 1])] = 5.0
    assert native.tolist() == seen.tolist() == [1.0, 2.0, 3.0]
    assert x.tolist() == [9.0, 2.0, 3.0]
    assert y.tolist() == [1.0, 5.0, 3.0]
    x += 1.0
    assert native.tolist() == [1.0, 2.0, 3.0]


def test_an_empty_ellipsis_parts_the_arrays_of_a_key() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    index = np.array([[0, 1], [2, 3]])
    for key in ((0, ..., index), (slice(None), 1, ..., index), (slice(None), 1, index)):
        assert ops.asarray(array)[key].tolist() == array[key].tolist()


def test_masks_of_no_axes() -> None:
    x = ops.asarray(5.0)
    assert x[True].tolist() == [5.0]
    assert x[False].shape == (0,)
    x[x > 1] = 0.0
    assert x.item() == 0.0


# --- Values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", SIGNED)
def test_the_smallest_integer_by_minus_one(dtype: str) -> None:
    # The processor ends the process on it.
    low = ops.iinfo(dtype).min
    x = ops.asarray([low, 7], dtype=dtype)
    assert (x // -1).tolist() == [low, -7]
    assert (x % -1).tolist() == [0, 0]
    with pytest.raises(em.IntegerDivisionError):
        _ = x // 0


def test_float64_functions_are_as_exact_as_float64() -> None:
    # MLX computes these three in float32.
    values = np.linspace(-700, 700, 1001)
    x = ops.asarray(values)
    np.testing.assert_allclose(ops.exp(x).numpy(), np.exp(values), rtol=1e-13)
    np.testing.assert_allclose(ops.sin(x).numpy(), np.sin(values), rtol=0, atol=1e-15)
    np.testing.assert_allclose(ops.cos(x).numpy(), np.cos(values), rtol=0, atol=1e-15)


def test_integer_products_are_exact() -> None:
    big = 2**53 + 1
    assert (ops.asarray([[big, 0], [0, big]]) @ ops.asarray([1, 3])).tolist() == [big, 3 * big]


def test_indices_are_int64() -> None:
    x = ops.asarray([3.0, 1.0])
    for found in (ops.argmax(x), ops.argmin(x), ops.argsort(x), ops.searchsorted(x[1:], x)):
        assert found.dtype is em.int64
    assert ops.count_nonzero(x).dtype is em.int64


@pytest.mark.parametrize("dtype", FLOATS)
def test_signs_of_zero_and_nan(dtype: str) -> None:
    x = ops.asarray([0.0, -0.0, float("nan")], dtype=dtype)
    assert np.signbit(ops.sin(x).numpy())[:2].tolist() == [False, True]
    assert ops.signbit(x)[:2].tolist() == [False, True]
    assert np.isnan(ops.sign(x).numpy()[2])
    tiny = ops.nextafter(x[:2], ops.ones_like(x[:2])).numpy()
    assert (tiny > 0).all()
    assert (ops.nextafter(ops.asarray(tiny), x[:1]).numpy() == 0).all()


def test_complex128_does_not_exist() -> None:
    with pytest.raises(em.DTypeError, match="complex128"):
        ops.zeros((2,), dtype="complex128")
    with pytest.raises(em.DTypeError, match="complex128"):
        ops.fft.rfft(ops.asarray([1.0, 2.0], dtype="float64"))
    assert "complex128" not in ops.__array_namespace_info__().dtypes()


def test_bad_matrices_raise() -> None:
    # mx.linalg would end the process.
    with pytest.raises(em.LinAlgError):
        ops.linalg.inv(ops.zeros((2, 2)))
    with pytest.raises(em.LinAlgError):
        ops.linalg.cholesky(ops.zeros((2, 2)))
    with pytest.raises(em.LinAlgError):
        ops.linalg.eig(ops.full((2, 2), float("nan")))
    assert ops.linalg.inv(ops.zeros((0, 0))).shape == (0, 0)


# --- Devices and threads --------------------------------------------------------------------


def test_devices() -> None:
    assert "cpu" in em.get_available_devices()
    assert ops.zeros((1,)).to_device("cpu").device == "cpu"
    with pytest.raises(em.DeviceError):
        ops.zeros((1,), device="cuda:7")
    em.synchronize()
    info = em.memory_info()
    assert info["allocated"] <= info["reserved"]
    assert info["peak"] >= 0 < info["total"]


def test_float64_lives_on_the_cpu_only() -> None:
    backend = selection.load("mlx")
    assert backend.supports(em.float64, "cpu")
    assert not backend.supports(em.float64, "gpu")
    assert backend.supports(em.float32, "gpu")


def _in_thread(function: Any) -> Any:
    out: list[Any] = []

    def run() -> None:
        try:
            out.append(function())
        except Exception as error:
            out.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return out[0]


def test_new_tensors_are_for_every_thread() -> None:
    x, y, z = ops.asarray([1.0, 2.0]), ops.ones((2,)), ops.zeros((0,))
    assert _in_thread(lambda: (x + y).tolist()) == [2.0, 3.0]
    assert _in_thread(lambda: (z + 1).tolist()) == []
    assert _in_thread(lambda: ops.full((2,), 3.0)).tolist() == [3.0, 3.0]


def test_lazy_tensors_belong_to_their_thread() -> None:
    lazy = ops.asarray([1.0, 2.0]) + 1
    error = _in_thread(lazy.tolist)
    assert isinstance(error, em.UnsupportedOpError)
    assert "thread" in str(error)
    assert lazy.tolist() == [2.0, 3.0]
    assert _in_thread(lazy.tolist) == [2.0, 3.0]


# --- Transforms -----------------------------------------------------------------------------


def test_compile_traces_through_ops() -> None:
    x = mx.array([[1.0, 2.0], [3.0, 4.0]])

    def function(native: Any) -> Any:
        t = ops.asarray(native)
        return (ops.tanh(t @ t.T) * 3.5 + t[ops.asarray([1, 0])]).native

    np.testing.assert_allclose(mx.compile(function)(x), function(x), rtol=1e-6)
    # Scalars that were first seen while tracing are ordinary ones afterwards.
    assert (ops.asarray(x) * 3.5)[0, 0].item() == 3.5


def test_traced_arrays_have_no_values() -> None:
    backend = selection.load("mlx")
    seen: list[bool] = []

    def function(native: Any) -> Any:
        seen.append(backend.is_traced(native))
        return native.sum()

    x = mx.array([1.0, 2.0])
    mx.compile(function)(x)
    mx.grad(function)(x)
    assert seen == [True, False]
    for read in (ops.unique_values, lambda t: t[t > 1], lambda t: t.tolist()):
        with pytest.raises(em.UnsupportedOpError):
            mx.compile(lambda native, read=read: read(ops.asarray(native)))(x)


def test_integers_are_multiplied_while_tracing() -> None:
    x = mx.array([[1, 2], [3, 4]])
    traced = mx.compile(lambda a: (ops.asarray(a) @ ops.asarray(a)).native)(x)
    assert traced.tolist() == [[7, 10], [15, 22]]


@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "solve"])
def test_gradients_of_hosted_kernels(name: str) -> None:
    matrix = np.array([[4.0, 1.0], [0.5, 3.0]])
    right = np.array([[1.0], [2.0]])

    def loss(native: Any) -> Any:
        op = getattr(ops.linalg, name)
        out = op(native, ops.asarray(right)) if name == "solve" else op(native)
        return ops.sum((out[1] if name == "slogdet" else out) ** 2).native

    found = np.asarray(mx.grad(loss)(mx.array(matrix, dtype=mx.float64)))
    step = 1e-6
    for place in np.ndindex(2, 2):
        sides = []
        for sign in (1, -1):
            moved = matrix.copy()
            moved[place] += sign * step
            sides.append(loss(mx.array(moved, dtype=mx.float64)).item())
        assert found[place] == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-6, abs=1e-8)


def test_a_missing_gradient_is_an_error_not_zero() -> None:
    x = mx.array([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(em.UnsupportedOpError, match="gradient"):
        mx.jvp(lambda a: ops.sum(ops.linalg.qr(a).R).native, [x], [x])


def test_float64_gradients_are_float64() -> None:
    values = np.linspace(-3, 3, 7)
    x = mx.array(values, dtype=mx.float64)
    for name, wanted in (
        ("sin", np.cos(values)),
        ("cos", -np.sin(values)),
        ("exp", np.exp(values)),
    ):
        found = mx.grad(lambda a, name=name: ops.sum(getattr(ops, name)(a)).native)(x)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-13)


def test_reductions_of_empty_picks_end() -> None:
    """MLX loops without end in what is empty and permuted; in a process, since nothing stops it."""
    program = (
        "import ember_ml as em; from ember_ml import ops; em.set_backend('mlx')\n"
        "x = ops.zeros((2, 2, 2, 3), dtype='uint16')\n"
        "for _ in range(50): assert ops.linalg.trace(x, offset=-5)[1, 0].item() == 0"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
