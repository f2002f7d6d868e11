"""What goes wrong between engines when nobody looks: each of it is handled, or an error by name."""

from __future__ import annotations

import array as arrays
import gc
import subprocess
import sys
import warnings
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np
import pytest
import torch

import ember_ml as em
from ember_ml import dtypes, ops
from ember_ml.backend import selection

ENGINES = ("numpy", "torch", "jax", "mlx")


def aligned(size: int, dtype: str = "float32") -> Any:
    """A NumPy array of zeros at a multiple of 64 bytes."""
    kind = dtypes.to_dtype(dtype).numpy
    raw = np.zeros(size * kind.itemsize + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][: size * kind.itemsize].view(kind)


class Exporter:
    """An object of a third party that has nothing but DLPack."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __dlpack__(self, **options: Any) -> Any:
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class OldExporter(Exporter):
    """One that knows only the first DLPack, without options."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]  # as it was then
        return self.held.__dlpack__()


class Arrayish:
    """An object of a third party with `__array__`, which shares or refuses."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False and dtype not in (None, self.held.dtype):
            raise ValueError("a copy is needed")
        return np.array(self.held, dtype=dtype, copy=copy)


# --- Strides --------------------------------------------------------------------------------


def test_torch_is_never_given_a_negative_stride() -> None:
    """It would end the process, and with it this test."""
    backwards = np.arange(6.0)[::-1]
    wanted = backwards.tolist()
    flipped = mx.arange(6).astype(mx.float32)[::-1]
    mx.eval(flipped)
    with em.use_backend("torch"):
        for x in (
            ops.asarray(backwards),
            em.from_numpy(backwards),
            ops.from_dlpack(backwards),
            ops.from_dlpack(Exporter(backwards)),
            ops.asarray(Exporter(backwards)),
            em.from_mlx(flipped, backend="torch"),
            em.from_numpy(backwards, backend="numpy").to_backend("torch"),
        ):
            assert (x.backend, x.tolist()) == ("torch", wanted)
    for name in ENGINES:
        x = ops.flip(em.from_numpy(np.arange(6.0), backend=name))
        assert torch.from_dlpack(x).tolist() == wanted
        assert x.to_torch().tolist() == wanted
    for refused in (
        lambda: em.from_numpy(backwards, backend="torch", copy=False),
        lambda: em.from_mlx(flipped, backend="torch", copy=False),
        lambda: em.from_numpy(backwards, backend="numpy").__dlpack__(copy=False),
        lambda: em.from_mlx(flipped).__dlpack__(copy=False),
    ):
        with pytest.raises(em.CopyError):
            refused()


def test_fortran_order_is_shared_where_it_can_be() -> None:
    square = aligned(16).reshape(4, 4)
    square[...] = np.arange(16).reshape(4, 4)
    for name in ("numpy", "torch", "jax"):
        x = em.from_numpy(square.T, backend=name, copy=False)
        assert x.tolist() == square.T.tolist()
        assert (x @ x).tolist() == (square.T @ square.T).tolist()
        assert np.shares_memory(x.numpy(), square)
        square[0, 1] += 1
        assert x[1, 0].item() == square[0, 1]
    cube = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    y = em.from_torch(cube, backend="jax", copy=False)
    assert y.native.unsafe_buffer_pointer() == cube.data_ptr()
    assert y.tolist() == cube.tolist()
    half = torch.ones(4, 6).bfloat16().T
    assert em.from_torch(half, backend="jax", copy=False).to_torch(copy=False).data_ptr() == (
        half.data_ptr()
    )


def test_gaps_and_odd_addresses_are_copied_for_jax() -> None:
    for array in (aligned(16)[::2], aligned(16)[1:], aligned(16).reshape(4, 4)[:, :2]):
        array[...] = 3
        x = em.from_numpy(array, backend="jax")
        assert not np.shares_memory(x.numpy(), array)
        assert x.tolist() == array.tolist()
        with pytest.raises(em.CopyError, match="64-byte aligned"):
            em.from_numpy(array, backend="jax", copy=False)


def test_no_elements_and_no_axes() -> None:
    for name in ENGINES:
        for array in (np.zeros((0, 3), np.float32), np.zeros((3, 0)), aligned(1).reshape(())):
            x = em.from_numpy(array, backend=name)
            assert (x.shape, x.dtype) == (array.shape, array.dtype.name)
            for other in ENGINES:
                moved = x.to_backend(other)
                assert (moved.shape, moved.tolist()) == (array.shape, array.tolist())
                if not array.size:  # nothing lies anywhere, so nothing must be copied
                    assert x.to_backend(other, copy=False).shape == array.shape
        scalar = em.from_numpy(np.array(2.5), backend=name)
        assert (scalar.shape, scalar.item()) == ((), 2.5)


def test_broadcast_memory(backend: str) -> None:
    spread = np.broadcast_to(np.float32(3), (2, 3))
    assert em.from_numpy(spread).tolist() == [[3.0] * 3] * 2
    x = em.from_numpy(spread, copy=True)
    x[0, 0] = 1.0
    assert x.tolist() == [[1.0, 3.0, 3.0], [3.0] * 3]
    assert spread.tolist() == [[3.0] * 3] * 2


# --- Whose memory ---------------------------------------------------------------------------


def test_read_only_arrays_bring_no_warning(backend: str) -> None:
    fixed = np.frombuffer(np.arange(4.0, dtype="f4").tobytes(), "f4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = em.from_numpy(fixed)
    x += 1
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert fixed.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_map_of_a_read_only_file_can_be_computed_with(backend: str, tmp_path: Any) -> None:
    path = tmp_path / "values"
    np.arange(4.0, dtype="f4").tofile(path)
    mapped = np.memmap(path, "f4", mode="r")  # a write to it would end the process
    x = em.from_numpy(mapped)
    x[0] = 9.0
    x *= 2
    assert x.tolist() == [18.0, 2.0, 4.0, 6.0]
    assert np.fromfile(path, "f4").tolist() == [0.0, 1.0, 2.0, 3.0]


def test_an_op_does_not_see_later_writes_to_its_operands(backend: str) -> None:
    """JAX computes later: the array of an operand must be its own by then."""
    array = aligned(700 * 700).reshape(700, 700)
    big = ops.ones((700, 700))
    busy = big
    for _ in range(6):
        busy = (busy @ big) * 0
    got = ops.add(busy, array)
    array[...] = 1
    assert not ops.any(got).item()


@pytest.mark.parametrize("dtype", ["int32", "bfloat16"])
def test_views_of_mlx_outlive_item_assignment(dtype: str) -> None:
    """The buffer of an mx.array is reused or freed once the object holds another array."""
    raw = mx.arange(8).astype(getattr(mx, dtype))
    mx.eval(raw)
    held = em.from_mlx(raw)
    seen, lent = held.numpy(), held.to_backend("torch")
    raw[0] = 100
    raw += 1
    mx.eval(raw)
    del raw, held
    gc.collect()
    mx.clear_cache()
    mx.eval([mx.full(8, 7) for _ in range(20)])
    assert seen.astype("f4").tolist() == lent.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_donation_leaves_lent_memory_alone() -> None:
    """A jitted update whose operand is donated writes in place only where nobody else looks."""
    update = jax.jit(lambda x: x.at[0].set(5.0), donate_argnums=0)
    source = aligned(64)
    for lend in (
        lambda: (jnp.zeros(64, "float32"), "numpy"),
        lambda: (jnp.zeros(64, "float32"), "torch"),
    ):
        raw, target = lend()
        seen = em.from_jax(raw, backend=target)
        assert update(raw)[0] == 5.0
        assert seen.tolist() == [0.0] * 64
    for taken in (source, torch.zeros(64)):
        x = ops.asarray(taken).to_backend("jax")
        assert update(x.native)[0] == 5.0
        assert taken.tolist() == [0.0] * 64


MAKE = {
    "numpy": lambda: aligned(64) + np.float32(0),
    "torch": lambda: torch.zeros(64),
    "jax": lambda: jnp.zeros(64, "float32"),
    "mlx": lambda: mx.zeros(64),
}


@pytest.mark.parametrize("target", ENGINES)
@pytest.mark.parametrize("source", ENGINES)
def test_the_source_may_go(source: str, target: str) -> None:
    raw = MAKE[source]() if source != "numpy" else aligned(64)
    mx.eval(raw) if source == "mlx" else None
    kept = em.ops.asarray(raw).to_backend(target)
    alias = kept.numpy()
    gone = weakref.ref(raw)
    shared = target != "mlx" and kept.native is not raw and source != target
    del raw
    gc.collect()
    if source == "mlx" and shared:
        assert gone() is None  # the capsule keeps the memory, not the object
    for _ in range(30):  # whoever frees memory too early sees it overwritten
        junk = [np.full(64, 9, "f4"), torch.full((64,), 9.0), jnp.full(64, 9.0), mx.full(64, 9.0)]
        mx.eval(junk[-1])
    assert alias.tolist() == kept.tolist() == [0.0] * 64
    del kept
    gc.collect()
    junk = [np.full(64, 9, "f4"), torch.full((64,), 9.0), jnp.full(64, 9.0), mx.full(64, 9.0)]
    mx.eval(junk[-1])
    assert alias.tolist() == [0.0] * 64
    del alias
    gc.collect()
    assert gone() is None  # and nothing is kept for ever


# --- Values and dtypes ----------------------------------------------------------------------


def test_byte_order(backend: str) -> None:
    for dtype in (">f8", ">i4", ">u2", ">c8"):
        swapped = np.arange(4).astype(dtype)
        for copy in (None, True):
            x = em.from_numpy(swapped, copy=copy)
            assert x.tolist() == swapped.tolist()
            assert x.dtype == swapped.dtype.newbyteorder("=").name
        with pytest.raises(em.CopyError, match="byte order"):
            em.from_numpy(swapped, copy=False)


def test_subclasses(backend: str) -> None:
    matrix = np.arange(4.0).reshape(2, 2).view(np.matrix)
    x = em.from_numpy(matrix)
    assert (x * x).tolist() == [[0.0, 1.0], [4.0, 9.0]]  # no longer a product of matrices
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for take in (em.from_numpy, ops.asarray, ops.from_dlpack, lambda a: ops.ones(2) + a):
        with pytest.raises(em.DTypeError, match=r"mask.*filled"):
            take(masked)
    assert em.from_numpy(masked.filled(0)).tolist() == [1.0, 0.0]


def test_objects_of_third_parties(backend: str) -> None:
    values = aligned(3, "float64")
    values[...] = [1.0, 2.0, 3.0]
    for thing in (
        Exporter(values), OldExporter(values), Arrayish(values), memoryview(values),
        arrays.array("d", [1.0, 2.0, 3.0]), Exporter(torch.from_numpy(values)),
    ):  # fmt: skip
        for copy in (None, True):
            x = ops.asarray(thing, copy=copy)
            assert (x.backend, x.dtype, x.tolist()) == (backend, "float64", [1.0, 2.0, 3.0])
    for thing in (Exporter(values), OldExporter(values)):
        assert ops.from_dlpack(thing).tolist() == [1.0, 2.0, 3.0]
    for thing in (bytearray(b"\x01\x02"), memoryview(b"\x01\x02")):
        x = ops.asarray(thing)
        assert (x.dtype, x.tolist()) == ("uint8", [1, 2])
    for thing in ("12", b"12"):
        with pytest.raises(em.DTypeError, match="12"):
            ops.asarray(thing)


@pytest.mark.parametrize("wrap", [Exporter, OldExporter, Arrayish, memoryview])
def test_third_parties_share_memory(backend: str, wrap: Any) -> None:
    values = aligned(16, "float64")
    thing = wrap(values)
    takes = [ops.asarray] if wrap in (Arrayish, memoryview) else [ops.asarray, ops.from_dlpack]
    for take in takes:
        if backend == "mlx":
            with pytest.raises(em.CopyError):
                take(thing, copy=False)
            continue
        x = take(thing, copy=False)
        assert np.shares_memory(x.numpy(), values)
        own = take(thing, copy=True)
        values += 1
        assert x.tolist() == values.tolist()
        assert own.tolist() == (values - 1).tolist()
    with pytest.raises(em.CopyError):
        ops.asarray(thing, dtype="float32", copy=False)


def test_an_exporter_that_cannot_say_so_is_not_written(backend: str) -> None:
    values = aligned(4)
    x = ops.from_dlpack(OldExporter(values))
    x += 1
    assert x.tolist() == [1.0] * 4
    assert not values.any()


def test_bfloat16_through_dlpack(backend: str) -> None:
    half = torch.tensor([1.5, -2.0, float("nan")]).bfloat16()
    for take in (ops.from_dlpack, ops.asarray):
        x = take(Exporter(half))
        assert (x.backend, x.dtype) == (backend, "bfloat16")
        assert x.numpy().tobytes() == half.view(torch.int16).numpy().tobytes()
    for out in (torch.from_dlpack(x), torch.from_dlpack(x.__dlpack__())):
        assert out.dtype is torch.bfloat16
        assert out[:2].tolist() == [1.5, -2.0]
    if backend != "mlx":
        assert em.from_numpy(x.numpy(copy=True)).to_torch(copy=False).dtype is torch.bfloat16
    with pytest.raises((RuntimeError, BufferError)):
        np.from_dlpack(half)  # why ours goes another way


def test_dtypes_that_nobody_here_has(backend: str) -> None:
    eight = torch.ones(3).to(torch.float8_e4m3fn)
    for take in (lambda: ops.from_dlpack(Exporter(eight)), lambda: ops.asarray(eight)):
        with pytest.raises(em.DTypeError, match="cast it first"):
            take()


def test_values_that_are_not_there_yet() -> None:
    seen: list[type] = []

    def step(x: Any) -> Any:
        inside = em.from_jax(x)
        assert inside.backend == "jax"
        for leave in (
            lambda: inside.numpy(),
            lambda: inside.to_backend("torch"),
            lambda: inside.to_torch(copy=True),
            lambda: em.from_jax(x, backend="numpy"),
            lambda: np.asarray(inside),
        ):
            with pytest.raises(em.UnsupportedOpError, match="traces"):
                leave()
            seen.append(type(x))
        return (inside * 2).native

    assert jax.jit(step)(jnp.ones(2)).tolist() == [2.0, 2.0]
    assert len(seen) == 5

    def compiled(x: Any) -> Any:
        with pytest.raises(em.UnsupportedOpError, match="traces"):
            em.from_mlx(x).to_backend("numpy")
        return x

    mx.vmap(compiled)(mx.ones(2))


def test_lazy_signs_of_torch() -> None:
    lazy = torch.conj(torch.tensor([1 + 2j]))
    x = em.from_torch(lazy)
    assert x.numpy().tolist() == x.to_backend("jax").tolist() == [1 - 2j]
    for refused in (
        lambda: x.numpy(copy=False),
        lambda: x.to_backend("numpy", copy=False),
        lambda: x.__dlpack__(copy=False),
    ):
        with pytest.raises(em.CopyError, match="copy"):
            refused()


# --- copy=False has one error ---------------------------------------------------------------


def test_one_error(backend: str) -> None:
    assert issubclass(em.CopyError, ValueError)  # as the standard has it for asarray
    assert issubclass(em.CopyError, BufferError)  # and for from_dlpack
    assert issubclass(em.CopyError, em.DomainError)
    x = ops.ones(3)
    for refused in (
        lambda: ops.asarray([1, 2], copy=False),
        lambda: ops.asarray((1.0,), copy=False),
        lambda: ops.asarray(1.0, copy=False),
        lambda: ops.asarray(np.float32(1), copy=False),
        lambda: ops.asarray(range(3), copy=False),
        lambda: ops.asarray([x, x], copy=False),
        lambda: ops.asarray(x, dtype="int32", copy=False),
        lambda: ops.asarray(np.ones(3, "f4"), dtype="float64", copy=False),
        lambda: x.to_backend("jax" if backend == "mlx" else "mlx", copy=False),
    ):
        with pytest.raises(em.EmberError) as caught:
            refused()
        assert type(caught.value) is em.CopyError


# --- Other devices, as far as a machine without any can tell --------------------------------


def test_gpus_hand_over_without_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    jax_engine, torch_engine = selection.load("jax"), selection.load("torch")
    spec = torch_engine.spec(em.float32, "cuda:0")
    calls: list[str] = []

    def from_dlpack(source: Any, copy: bool | None) -> Any:
        calls.append("dlpack")
        return torch.from_dlpack(source)

    monkeypatch.setattr(jax_engine, "dlpack_device", lambda native: (2, 0))
    monkeypatch.setattr(torch_engine, "from_dlpack", from_dlpack)
    monkeypatch.setattr(torch_engine, "to_device", lambda native, device: native)
    monkeypatch.setattr(torch_engine, "device_of", lambda native: "cuda:0")
    raw = jnp.ones(3)
    made = torch_engine.from_backend(raw, jax_engine, spec, False)
    assert calls == ["dlpack"]
    assert made.data_ptr() == raw.unsafe_buffer_pointer()
    assert torch_engine.is_borrowed(made)
    monkeypatch.setattr(torch_engine, "device_of", lambda native: "cuda:1")
    with pytest.raises(em.CopyError, match="cuda:0"):
        torch_engine.from_backend(raw, jax_engine, spec, False)


def test_objects_on_other_devices_come_by_dlpack(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu(Exporter):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __array__(self) -> Any:
            raise TypeError("this would have to pass through the host")

    engine = selection.load("torch")
    monkeypatch.setattr(engine, "from_dlpack", lambda source, copy: torch.from_dlpack(source.held))
    with em.use_backend("torch"):
        x = ops.asarray(OnGpu(torch.ones(3)))
    assert (x.backend, x.tolist()) == ("torch", [1.0] * 3)
    for take in (ops.asarray, ops.from_dlpack):
        with em.use_backend("numpy"), pytest.raises(em.DeviceError, match="CPU first"):
            take(OnGpu(torch.ones(3)))


def test_constants_of_a_compiled_function() -> None:
    large, turned = aligned(1 << 17), aligned(64).reshape(8, 8).T
    for array in (aligned(16), aligned(17)[1:], large, turned, np.ones(1 << 17, "f4")):

        def add(x: Any, array: Any = array) -> Any:
            with em.use_backend("jax"):
                return (em.from_jax(x) + ops.asarray(array)).native

        got = jax.jit(add)(1.0)
        assert got.shape == array.shape
        np.testing.assert_array_equal(np.asarray(got), array + 1)


def test_no_engine_is_imported_for_another() -> None:
    program = (
        "import sys, numpy as np, ember_ml as em;"
        "x = em.from_numpy(np.ones(3), backend='numpy'); x.numpy(copy=True); em.ops.from_dlpack(x);"
        "print([m for m in ('torch', 'jax', 'mlx') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert out.stdout.strip() == "[]"
