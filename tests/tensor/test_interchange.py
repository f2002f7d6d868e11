"""Arrays in and out of every engine: which memory is shared, shown by addresses and by writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import dtypes, ops
from ember_ml.backend import selection
from ember_ml.nn import tensor

ENGINES = ("numpy", "torch", "jax", "mlx")
# The table of docs/interchange.md. "aligned": shared where memory begins at a multiple of 64.
MOVES = {
    ("numpy", "torch"): "shared",
    ("numpy", "jax"): "aligned",
    ("numpy", "mlx"): "copied",
    ("torch", "numpy"): "shared",
    ("torch", "jax"): "aligned",
    ("torch", "mlx"): "copied",
    ("jax", "numpy"): "shared",
    ("jax", "torch"): "shared",
    ("jax", "mlx"): "copied",
    ("mlx", "numpy"): "shared",
    ("mlx", "torch"): "shared",
    ("mlx", "jax"): "aligned",
}
# Engines whose arrays never change: what they lend must not be written.
FIXED = ("jax", "mlx")


def have(engine: str, dtype: em.DType) -> bool:
    return selection.load(engine).supports(dtype, "cpu")


def aligned(shape: tuple[int, ...], dtype: em.DType, offset: int = 0) -> Any:
    """A NumPy array of zeros that begins `offset` bytes after a multiple of 64."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size].view(dtype.numpy).reshape(shape)


def some_values(dtype: em.DType, shape: tuple[int, ...] = (4, 3)) -> Any:
    """Values with many different bits, among them NaN with a payload."""
    array = aligned(shape, dtype)
    random = np.random.default_rng(7)
    if dtype is dtypes.bool:
        array[...] = random.random(shape) < 0.5
    else:
        array.view(np.uint8)[...] = random.integers(0, 256, array.view(np.uint8).shape)
    return array


def native(engine: str, array: Any) -> Any:
    """An array that the engine itself has made, by its own functions alone."""
    half = array.dtype == dtypes.bfloat16.numpy
    if engine == "numpy":
        return array
    if engine == "torch":
        bits = torch.from_numpy(array.view(np.int16) if half else array).clone()
        return bits.view(torch.bfloat16) if half else bits
    if engine == "jax":
        selection.load("jax")  # switches 64 bits on
        return jnp.array(array)
    unsigned = array.view(f"u{array.itemsize}") if array.dtype.kind != "c" else array
    made = mx.array(unsigned) if array.dtype != np.bool_ else mx.array(array)
    if array.dtype.kind not in "cb":
        made = made.view(getattr(mx, dtypes.to_dtype(array.dtype).name))
    mx.eval(made)
    return made


def address(x: Any) -> int:
    """Where a native array begins, as its engine tells."""
    if isinstance(x, np.ndarray):
        return int(x.__array_interface__["data"][0])
    if isinstance(x, jax.Array):
        return int(x.unsafe_buffer_pointer())
    return int((x if isinstance(x, torch.Tensor) else torch.from_dlpack(x)).data_ptr())


def bits(x: em.Tensor) -> bytes:
    return x.numpy().tobytes()


def enter(engine: str, array: Any, **options: Any) -> em.Tensor:
    made: em.Tensor = getattr(em, f"from_{engine}")(array, **options)
    return made


def shares(source: str, target: str, where: int) -> bool:
    rule = MOVES[source, target]
    return rule == "shared" or (rule == "aligned" and where % 64 == 0)


PAIRS = pytest.mark.parametrize(("source", "target"), list(MOVES), ids="-".join)
DTYPES = pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)


# --- The table ------------------------------------------------------------------------------


@PAIRS
@DTYPES
def test_every_pair_and_dtype(source: str, target: str, dtype: em.DType) -> None:
    if not have(source, dtype):
        return
    array = some_values(dtype)
    raw = native(source, array)
    with em.use_backend(source):
        x = enter(source, raw)
    assert x.native is raw
    if not have(target, dtype):
        with pytest.raises(em.DTypeError, match=dtype.name):
            x.to_backend(target)
        return
    y = x.to_backend(target)
    assert (y.backend, y.dtype, y.shape) == (target, dtype, (4, 3))
    assert bits(y) == array.tobytes()
    shared = shares(source, target, address(raw))
    assert (address(y.native) == address(raw)) is shared

    own = x.to_backend(target, copy=True)
    assert bits(own) == array.tobytes()
    assert address(own.native) != address(raw)
    if shared:
        assert address(x.to_backend(target, copy=False).native) == address(raw)
        assert address(enter(source, raw, backend=target, copy=False).native) == address(raw)
    else:
        with pytest.raises(em.CopyError, match="copy"):
            x.to_backend(target, copy=False)
        with pytest.raises(em.CopyError, match="copy"):
            enter(source, raw, backend=target, copy=False)
    entered = enter(source, raw, backend=target)
    assert (entered.backend, bits(entered)) == (target, array.tobytes())
    assert (address(entered.native) == address(raw)) is shared


def test_the_page_has_the_same_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "interchange.md"
    rows = re.findall(
        r"^\| (\w+) \| (\w+) \| (shared|aligned|copied) \|", page.read_text("utf-8"), re.MULTILINE
    )
    assert {(source, target): memory for source, target, memory in rows} == MOVES


@pytest.mark.parametrize("engine", ENGINES)
@DTYPES
def test_an_engine_with_itself(engine: str, dtype: em.DType) -> None:
    if not have(engine, dtype):
        return
    raw = native(engine, some_values(dtype))
    x = enter(engine, raw, backend=engine)
    assert x.to_backend(engine) is x.to_backend(engine, copy=False) is x
    for own in (x.to_backend(engine, copy=True), enter(engine, raw, backend=engine, copy=True)):
        assert address(own.native) != address(raw)
        assert bits(own) == bits(x)
    with em.use_backend(engine):
        for same in (ops.asarray(raw, copy=False), ops.from_dlpack(raw, copy=False)):
            assert (same.backend, same.dtype) == (engine, dtype)
            assert address(same.native) == address(raw)
        for own in (ops.asarray(raw, copy=True), ops.from_dlpack(raw, copy=True)):
            assert address(own.native) != address(raw)
            assert bits(own) == bits(x)


@pytest.mark.parametrize("engine", ENGINES)
@DTYPES
def test_out_to_numpy(engine: str, dtype: em.DType) -> None:
    if not have(engine, dtype):
        return
    array = some_values(dtype)
    raw = native(engine, array)
    x = enter(engine, raw, backend=engine)
    for out in (x.numpy(), x.to_numpy(copy=False), tensor.to_numpy(x), np.asarray(x)):
        assert (out.dtype, address(out)) == (dtype.numpy, address(raw))
        assert out.tobytes() == array.tobytes()
        assert out.flags.writeable is (engine not in FIXED)
    for out in (x.numpy(copy=True), np.array(x, copy=True)):
        assert address(out) != address(raw)
        assert out.tobytes() == array.tobytes()
        assert out.flags.writeable
    assert address(np.asarray(x, copy=False)) == address(raw)


def test_names_are_where_users_look() -> None:
    for name in ("from_numpy", "from_torch", "from_jax", "from_mlx"):
        assert getattr(em, name) is getattr(ops, name) is getattr(tensor, name)


def test_defaults(backend: str) -> None:
    assert em.from_numpy(np.ones(3)).backend == backend
    assert em.from_torch(torch.ones(3)).backend == "torch"
    assert em.from_jax(jnp.ones(3)).backend == "jax"
    assert em.from_mlx(mx.ones(3)).backend == "mlx"
    x = em.from_torch(torch.ones(3), backend=backend, device="cpu")
    assert (x.backend, x.device, x.dtype, x.tolist()) == (backend, "cpu", "float32", [1.0] * 3)
    xp = x.__array_namespace__()
    with em.use_backend("numpy"):
        assert xp.from_numpy(np.ones(3)).backend == backend


@pytest.mark.parametrize("engine", ENGINES)
def test_other_arrays_are_refused_by_name(engine: str) -> None:
    wrong = [1.0, 2.0] if engine == "numpy" else np.ones(3)
    with pytest.raises(em.DTypeError, match=f"ops.from_{engine} takes an array of '{engine}'"):
        enter(engine, wrong)
    with pytest.raises(em.DeviceError, match="quantum"):
        enter(engine, native(engine, np.ones(3)), device="quantum")


# --- Writes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint16", "bool", "complex128"])
@pytest.mark.parametrize(("source", "target"), [("numpy", "torch"), ("torch", "numpy")])
def test_numpy_and_torch_see_each_others_writes(source: str, target: str, dtype: str) -> None:
    kind = dtypes.to_dtype(dtype)
    raw = native(source, aligned((4, 3), kind))
    x = enter(source, raw, backend=source)
    y = x.to_backend(target)
    raw[0, 0] = 1
    assert y[0, 0].item() == 1
    y[1, 1] = True if dtype == "bool" else 1
    assert raw[1, 1] == 1
    view = y[2]
    view[...] = True if dtype == "bool" else 1
    assert (x[2].numpy() == np.ones(3, kind.numpy)).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint16", "bool", "complex128"])
@pytest.mark.parametrize("source", ["numpy", "torch"])
def test_jax_sees_writes_to_what_it_was_lent(source: str, dtype: str) -> None:
    raw = native(source, aligned((4, 3), dtypes.to_dtype(dtype)))
    y = enter(source, raw, backend="jax", copy=False)
    own = enter(source, raw, backend="jax", copy=True)
    raw[0, 0] = 1
    assert y.numpy()[0, 0] == 1
    assert own.numpy()[0, 0] == 0
    y += y  # functional, on memory of its own
    assert raw[0, 0] == 1


def read_only(dtype: em.DType) -> Any:
    array = aligned((4, 3), dtype)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint16", "bool", "complex64"])
@pytest.mark.parametrize("target", ["numpy", "torch"])
@pytest.mark.parametrize("source", ["numpy", *FIXED])
def test_lent_memory_is_never_written(source: str, target: str, dtype: str) -> None:
    kind = dtypes.to_dtype(dtype)
    raw = read_only(kind) if source == "numpy" else native(source, aligned((4, 3), kind))
    one = True if dtype == "bool" else 1

    def write_all(y: em.Tensor) -> None:
        y[...] = one

    def write_in_place(y: em.Tensor) -> None:
        if dtype == "bool":
            y ^= True
        else:
            y += 1
        assert y.numpy().all()

    def write_a_view(y: em.Tensor) -> None:
        y[1:, ::2][...] = one

    def write_its_views_view(y: em.Tensor) -> None:
        row = y.reshape((12,))[3:]
        row[1:5] = one

    def write_an_element(y: em.Tensor) -> None:
        y[0, 0] = one
        assert y[0, 0].item() == 1

    for write in (
        write_all, write_in_place, write_a_view, write_its_views_view, write_an_element,
    ):  # fmt: skip
        y = enter(source, raw, backend=target, copy=False)
        assert address(y.native) == address(raw)
        assert y._spec.backend.is_borrowed(y.native)
        assert y._spec.backend.is_borrowed(y[1:].native)
        assert not y._spec.backend.is_borrowed(y.copy().native)
        assert not y.numpy().flags.writeable
        write(y)
        assert not enter(source, raw, backend=source).numpy().any()


def test_a_write_copies_once() -> None:
    y = em.from_jax(jnp.zeros(4), backend="torch")
    y[0] = 5.0
    mine = address(y.native)
    y[1] = 6.0
    y += 1
    assert address(y.native) == mine
    assert y.tolist() == [6.0, 7.0, 1.0, 1.0]
    assert y.numpy().flags.writeable


@pytest.mark.parametrize("source", FIXED)
def test_what_is_lent_stays_lent_on_the_way_on(source: str) -> None:
    raw = native(source, np.zeros(4, np.float32))
    y = enter(source, raw, backend="torch")
    for z in (y.to_backend("numpy"), y.to_backend("numpy").to_backend("torch")):
        assert address(z.native) == address(raw)
        z += 1
        assert np.asarray(raw).tolist() == [0.0] * 4
    again = np.from_dlpack(y)
    assert (address(again), again.flags.writeable) == (address(raw), False)
    # Before its version 1.0, DLPack cannot say that memory is read-only.
    old = y.__dlpack__()
    assert torch.from_dlpack(old).data_ptr() != address(raw)
    with pytest.raises(em.CopyError):
        y.__dlpack__(copy=False)


# --- Native arrays out ----------------------------------------------------------------------


@pytest.mark.parametrize("source", ENGINES)
def test_out_to_engines(source: str) -> None:
    raw = native(source, aligned((4,), dtypes.float32))
    x = enter(source, raw, backend=source)
    outs = {"torch": x.to_torch, "jax": x.to_jax, "mlx": x.to_mlx}
    types = {"torch": torch.Tensor, "jax": jax.Array, "mlx": mx.array}
    for target, out in outs.items():
        got = out()
        assert isinstance(got, types[target])
        assert np.asarray(got).tolist() == [0.0] * 4
        if target == source:
            assert got is raw
            assert address(out(copy=True)) != address(raw)
            continue
        # torch could write to what others keep fixed: it gets a copy unless it is told to share.
        guarded = target == "torch" and source in FIXED
        shared = shares(source, target, address(raw))
        assert (address(got) == address(raw)) is (shared and not guarded)
        assert address(out(copy=True)) != address(raw)
        if shared:
            assert address(out(copy=False)) == address(raw)
        else:
            with pytest.raises(em.CopyError):
                out(copy=False)
    out = x.to_torch()
    out += 1
    assert x.tolist() == [0.0 if source in FIXED else 1.0] * 4


def test_gradients_begin_anew_elsewhere() -> None:
    leaf = torch.ones(3, requires_grad=True)
    kept = em.from_torch(leaf * 2)
    assert kept.requires_grad
    assert kept.native.grad_fn is not None
    for target in ("numpy", "jax", "mlx"):
        moved = em.from_torch(leaf * 2, backend=target)
        assert (moved.requires_grad, moved.tolist()) == (True, [2.0] * 3)
    x = em.Tensor([1.0, 2.0], requires_grad=True)
    moved = x.to_torch()
    assert moved.requires_grad
    assert moved.is_leaf
    with pytest.raises(BufferError, match="grad"):
        leaf.__dlpack__()  # torch's own rule; ours is to hand out the values
    assert np.from_dlpack(em.from_torch(leaf)).tolist() == [1.0] * 3


# --- There and back -------------------------------------------------------------------------

SHAPES = [(), (1,), (0,), (2, 3), (3, 0, 2), (1, 4)]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_there_and_back_is_the_identity(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(dtypes.ALL))
    shape = data.draw(st.sampled_from(SHAPES))
    size = int(np.prod(shape)) * dtype.itemsize
    raw = data.draw(st.binary(min_size=size, max_size=size))
    if dtype is dtypes.bool:
        raw = bytes(byte % 2 for byte in raw)
    array = np.frombuffer(raw, dtype.numpy).reshape(shape)
    if data.draw(st.booleans()):
        array = array.copy()
    if data.draw(st.booleans()):
        array = array.T
    way = data.draw(st.lists(st.sampled_from(ENGINES), min_size=1, max_size=4))
    x = em.from_numpy(array, backend="numpy")
    for target in way:
        if not have(target, dtype):
            continue
        copy = data.draw(st.sampled_from([None, True]))
        x = x.to_backend(target, copy=copy)
        assert (x.backend, x.dtype, x.shape) == (target, dtype, array.shape)
    assert bits(x) == array.tobytes()
    assert bits(x.to_backend("numpy")) == array.tobytes()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["float32", "int16", "bfloat16", "complex64"]),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 2, -1, -2])), min_size=2, max_size=2),
    st.permutations([0, 1]),
    st.booleans(),
)
def test_any_layout_comes_over(
    dtype: str, cuts: list[tuple[int, int]], order: list[int], locked: bool
) -> None:
    kind = dtypes.to_dtype(dtype)
    base = some_values(kind, (4, 4))
    array = base[tuple(slice(start, None, step) for start, step in cuts)].transpose(order)
    array.flags.writeable = not locked
    for target in ENGINES:
        x = em.from_numpy(array, backend=target)
        assert (x.shape, x.dtype, bits(x)) == (array.shape, kind, array.tobytes())
        for onward in ENGINES:
            assert bits(x.to_backend(onward)) == array.tobytes()
        try:
            shared = em.from_numpy(array, backend=target, copy=False)
        except em.CopyError:
            continue
        assert bits(shared) == array.tobytes()
        if array.size:
            assert address(shared.native) == address(array)
