"""What is JAX's own: aligned memory, immutable arrays, tracing, zeros and infinities, devices."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import devices, dtypes, ops
from ember_ml.backend import selection
from ember_ml.errors import (
    DeviceError,
    DomainError,
    IntegerDivisionError,
    LinAlgError,
    OutOfBoundsError,
    ShapeError,
    UnsupportedOpError,
)
from ember_ml.tensor import Tensor

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
hosting = pytest.importorskip("ember_ml.backend.jax.hosting")

NAMES = [d.name for d in dtypes.ALL]


@pytest.fixture(autouse=True)
def _jax() -> Iterator[None]:
    with em.use_backend("jax"):
        yield


@pytest.fixture
def engine() -> Any:
    return selection.load("jax")


def aligned(size: int, dtype: str = "float32", offset: int = 0) -> Any:
    """A NumPy array of zeros that begins `offset` bytes after a multiple of 64."""
    kind = dtypes.to_dtype(dtype).numpy
    raw = np.zeros(size * kind.itemsize + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size * kind.itemsize].view(kind)


# --- Memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NAMES)
def test_aligned_numpy_memory_is_shared(dtype: str) -> None:
    array = aligned(8, dtype)
    shared, own = ops.asarray(array), ops.asarray(array, copy=True)
    array[...] = 1
    assert shared.dtype == dtype
    assert ops.all(shared).item()
    assert not ops.any(own).item()
    assert np.shares_memory(ops.asarray(array, copy=False).numpy(), array)


def test_read_only_and_permuted_memory_is_shared() -> None:
    fixed = aligned(8)
    fixed.flags.writeable = False
    for array in (fixed, aligned(16).reshape(4, 4).T, aligned(24).reshape(2, 3, 4).swapaxes(0, 1)):
        assert np.shares_memory(ops.asarray(array, copy=False).numpy(), array)
        assert (ops.asarray(array) + 1).tolist() == (array + 1).tolist()


def test_other_numpy_memory_is_copied() -> None:
    for array in (aligned(8, offset=4), aligned(8)[::2], aligned(16)[::-1]):
        assert not np.shares_memory(ops.asarray(array).numpy(), array)
        with pytest.raises(DomainError, match="aligned"):
            ops.asarray(array, copy=False)


def test_numpy_is_a_read_only_view() -> None:
    x = ops.asarray([1.0, 2.0])
    assert not x.numpy().flags.writeable
    assert x.numpy().ctypes.data == x.native.unsafe_buffer_pointer()


def test_writes_leave_other_holders_alone() -> None:
    array = aligned(4)
    x = ops.asarray(array)
    same = x.native
    x[0] = 5.0
    x += 1
    assert x.tolist() == [6.0, 1.0, 1.0, 1.0]
    assert array.tolist() == np.asarray(same).tolist() == [0.0] * 4


@pytest.mark.parametrize("dtype", NAMES)
def test_pickle_and_copy_keep_dtype(dtype: str) -> None:
    x = ops.ones((2, 3), dtype=dtype)
    for y in (pickle.loads(pickle.dumps(x)), x.copy(), ops.positive(x) if dtype != "bool" else x):
        assert (y.backend, y.dtype, y.tolist()) == ("jax", x.dtype, x.tolist())


def test_dlpack_of_any_version() -> None:
    x = ops.asarray([1.0, 2.0])
    for version in (None, (0, 1), (0, 8), (1, 0)):
        assert x.__dlpack__(max_version=version) is not None
    assert x.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(x).tolist() == [1.0, 2.0]
    assert ops.from_dlpack(np.arange(6)[::2]).tolist() == [0, 2, 4]


# --- Dtypes ---------------------------------------------------------------------------------


def test_64_bits_stay() -> None:
    assert ops.asarray(np.float64(1.0)).native.dtype == np.float64
    assert ops.asarray([2**40]).native.dtype == np.int64
    assert ops.asarray(2**63, dtype="uint64").item() == 2**63
    assert ops.searchsorted(ops.asarray([1, 2]), ops.asarray([2])).native.dtype == np.int64
    assert ops.argmax(ops.asarray([1, 2])).native.dtype == np.int64


def test_large_constants() -> None:
    for dtype in NAMES:
        x = ops.full((40, 40), 1, dtype=dtype)
        assert x.native.dtype == dtypes.to_dtype(dtype).numpy
        assert ops.all(x).item()


def test_integers_are_not_rounded_in_floating_point() -> None:
    x = ops.asarray([2**53 + 1])
    for op in (ops.floor, ops.ceil, ops.trunc, ops.round):
        assert op(x).tolist() == [2**53 + 1]


# --- Values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_signed_zeros_and_infinities(dtype: str) -> None:
    x = ops.asarray([-0.0, math.inf, -1.0], dtype=dtype)
    quotient = ops.floor_divide(x, ops.asarray([1.0, -2.0, math.inf], dtype=dtype))
    assert quotient.tolist() == [0.0, -math.inf, 0.0]
    assert ops.signbit(quotient).tolist() == [True, True, True]
    rest = ops.remainder(ops.asarray([0.0, -0.0], dtype=dtype), ops.asarray([-1, 1], dtype=dtype))
    assert ops.signbit(rest).tolist() == [True, False]
    assert not ops.signbit(ops.sign(x))[0].item()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        ("sqrt", complex(-4, -0.0), complex(0, -2)),
        ("log", complex(math.inf, math.nan), complex(math.inf, math.nan)),
        ("exp", complex(-math.inf, math.inf), 0j),
        ("sinh", complex(0, math.inf), complex(0, math.nan)),
        ("tanh", complex(math.inf, 1), 1 + 0j),
        ("atanh", complex(math.nan, 1), complex(math.nan, math.nan)),
        ("acosh", complex(-2, -0.0), complex(1.3169578969248166, -math.pi)),
        ("asin", complex(2, -0.0), complex(math.pi / 2, -1.3169578969248166)),
        ("sign", complex(1, -math.inf), -1j),
    ],
)
def test_complex_rim(dtype: str, name: str, argument: complex, expected: complex) -> None:
    found = getattr(ops, name)(ops.asarray(argument, dtype=dtype)).item()
    np.testing.assert_allclose(
        [found.real, found.imag], [expected.real, expected.imag], rtol=1e-6, atol=1e-6
    )


def test_complex_functions_are_exact_near_zero() -> None:
    x = ops.asarray([1e-5 + 3e-5j], dtype="complex64")
    for name in ("sin", "sinh", "tan", "expm1"):
        exact = getattr(np, name)(x.numpy().astype("complex128"))
        np.testing.assert_allclose(getattr(ops, name)(x).numpy(), exact, rtol=1e-5)


def test_variance_with_more_correction_than_values() -> None:
    assert ops.var([1.0, 3.0], correction=5).item() == math.inf
    assert ops.var(ops.asarray([300.0, -300.0], dtype="float16")).item() == math.inf
    assert ops.var(ops.asarray([200.0, -200.0], dtype="float16")).item() == 40000.0


# --- Indexing -------------------------------------------------------------------------------


def test_masks_without_axes() -> None:
    x = ops.asarray([[1.0, 2.0]])
    mask = ops.asarray(True)
    assert x[None, mask].shape == (1, 1, 1, 2)
    assert x[..., ops.asarray(False)].shape == (1, 2, 0)
    x[mask] = 3.0
    assert x.tolist() == [[3.0, 3.0]]


def test_values_with_leading_axes_fit() -> None:
    x = ops.zeros((2, 3))
    x[0] = ops.ones((1, 1, 3))
    assert x.tolist() == [[1.0] * 3, [0.0] * 3]
    with pytest.raises(ShapeError):
        x[2:] = ops.ones((5, 7))


def test_indices_beyond_the_axis_do_not_clamp() -> None:
    x = ops.arange(3)
    for index in ([3], [-4]):
        with pytest.raises(OutOfBoundsError):
            x[index]
        with pytest.raises(OutOfBoundsError):
            ops.take(x, index)
        with pytest.raises(OutOfBoundsError):
            x[index] = 1


# --- Errors ---------------------------------------------------------------------------------


def test_integers() -> None:
    x = ops.asarray([1, 2])
    for divide in (ops.floor_divide, ops.remainder):
        with pytest.raises(IntegerDivisionError):
            divide(x, 0)
    with pytest.raises(DomainError):
        ops.pow(x, -1)
    with em.use_checks("none"):
        ops.floor_divide(x, 0)


@pytest.mark.parametrize(
    ("name", "matrix"),
    [
        ("inv", [[1.0, 1.0], [1.0, 1.0]]),
        ("inv", [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]),
        ("cholesky", [[1.0, 0.0], [0.0, -1.0]]),
        ("svd", [[math.nan, 0.0], [0.0, 1.0]]),
        ("eig", [[math.inf, 0.0], [0.0, 1.0]]),
    ],
)
def test_matrices_that_cannot_be_factorised(name: str, matrix: list[Any]) -> None:
    with pytest.raises(LinAlgError):
        getattr(ops.linalg, name)(matrix)


def test_overflow_is_no_singularity() -> None:
    assert ops.linalg.solve([[1e-30, 0.0], [0.0, 1.0]], [1e30, 1.0]).tolist() == [math.inf, 1.0]


def test_factorisations_read_one_triangle() -> None:
    x = ops.asarray([[4.0, 99.0], [2.0, 5.0]])
    assert ops.linalg.cholesky(x).tolist() == [[2.0, 0.0], [1.0, 2.0]]
    assert ops.linalg.cholesky(x.T, upper=True).tolist() == [[2.0, 1.0], [0.0, 2.0]]
    np.testing.assert_allclose(ops.linalg.eigvalsh(x).numpy(), np.linalg.eigvalsh(x.numpy()))


# --- Tracing --------------------------------------------------------------------------------


def test_ops_run_under_jit(engine: Any) -> None:
    def function(native: Any) -> Any:
        x = ops.asarray(native)
        assert engine.is_traced(x.native)
        assert x.device == "cpu"
        whole = ops.astype(x, "int64") // 2 + ops.full((3,), 7)
        return ops.sum(ops.tanh(x) * 2.0 + whole + ops.floor_divide(x, 2.0)).native

    given = jnp.asarray([1.0, 2.0, 3.0])
    assert jax.jit(function)(given).dtype == np.float64
    # Scalars that were met under jit are kept, and hold no tracer.
    assert (Tensor(given) * 2.0).tolist() == [2.0, 4.0, 6.0]


def test_what_jit_cannot_know() -> None:
    given = jnp.asarray([1.0, 0.0])
    for function in (
        lambda a: ops.asarray(a)[ops.asarray(a) > 0].native,
        lambda a: ops.unique_values(ops.asarray(a)).native,
        lambda a: ops.nonzero(ops.asarray(a))[0].native,
    ):
        with pytest.raises(UnsupportedOpError, match="jit"):
            jax.jit(function)(given)

    def write(a: Any) -> Any:
        x = ops.asarray(a)
        x[0] = 1.0
        return x.native

    assert jax.jit(write)(given).tolist() == [1.0, 0.0]
    assert given.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("name", ["sin", "sinh", "tan", "tanh", "exp", "expm1", "atan", "asinh"])
def test_gradients_pass_through_repairs(name: str) -> None:
    def function(a: Any) -> Any:
        return ops.real(getattr(ops, name)(ops.asarray(a + 0j))).native

    def plain(a: Any) -> Any:
        return getattr(jnp, name)(a)

    for at in (0.0, 0.5, -2.0):
        np.testing.assert_allclose(jax.grad(function)(at), jax.grad(plain)(at), rtol=1e-6)
        # Holomorphic functions have one derivative, along the imaginary axis too.
        _, turned = jax.jvp(lambda z: getattr(ops, name)(ops.asarray(z)).native, (at + 0j,), (1j,))
        np.testing.assert_allclose(turned, 1j * jax.grad(plain)(at), rtol=1e-6, atol=1e-12)


# --- Devices --------------------------------------------------------------------------------


def test_devices_of_this_machine() -> None:
    x = ops.asarray([1.0])
    assert devices.get_available_devices("jax")[0] == x.device
    assert x.to_device("cpu:0").device == "cpu"
    for name in ("cpu:99", "tpu:99", "nothing"):
        with pytest.raises(DeviceError, match=name):
            x.to_device(name)
    devices.synchronize()
    assert devices.memory_info()["allocated"] > 0


_SEVERAL = """
import jax
import torch

import ember_ml as em
from ember_ml import devices, ops

em.set_backend("jax")
assert devices.get_available_devices() == ("cpu", "cpu:1")
with devices.use_device("cpu:1"):
    x = ops.asarray([1.0, 2.0])
    for y in (x, x + 1, ops.add(1, 2), ops.zeros((2000,)), ops.arange(3)):
        assert y.device == str(y.native.device) == "cpu:1", y
    lent = torch.zeros(16)
    y = em.from_torch(lent, backend="jax", copy=False)
    assert (y.device, y.native.unsafe_buffer_pointer()) == ("cpu:1", lent.data_ptr())
y = em.from_torch(lent, backend="jax", device="cpu:1", copy=False)
assert (y.device, y.native.unsafe_buffer_pointer()) == ("cpu:1", lent.data_ptr())
mesh = jax.sharding.Mesh(jax.devices(), ("x",))
spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
z = em.from_jax(jax.device_put(jax.numpy.arange(4.0), spread))
assert z.numpy().tolist() == z.to_backend("torch").tolist() == [0.0, 1.0, 2.0, 3.0]
try:
    z.numpy(copy=False)
except em.CopyError:
    pass
else:
    raise AssertionError("an array over two devices is in no one place")
try:
    x + ops.asarray([1.0, 2.0])
except em.DeviceError:
    print((x.to_device("cpu") + ops.asarray([1.0, 2.0])).tolist())
"""


def test_several_devices() -> None:
    environment = dict(os.environ, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    run = subprocess.run(
        [sys.executable, "-c", _SEVERAL], env=environment, capture_output=True, text=True
    )
    assert run.stdout.strip() == "[2.0, 4.0]", run.stderr


def test_the_backend_may_be_loaded_within_a_trace() -> None:
    program = """
import jax, jax.numpy as jnp
from ember_ml import ops
double = jax.jit(lambda v: ops.multiply(v, 2.0).native)
assert double(jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]
x = ops.asarray(jnp.ones(2))
assert x.device == "cpu" and type(x.native) is type(jnp.ones(2)), type(x.native)
assert (x + 1.0).tolist() == [2.0, 2.0]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_arrays_bound_to_their_device_and_others_take_two_programs_at_most(engine: Any) -> None:
    bound = engine.spec(dtypes.float32)
    free = jnp.ones((3,), jnp.float32) * 2
    held = jax.device_put(np.full((3,), 2.0, np.float32), jax.devices()[0])
    assert (free.committed, held.committed) == (False, True)
    x, y = ops.asarray(free), ops.asarray(held)
    assert (x._spec, y._spec) == (bound, bound)
    step = em.jit(lambda a, b, c: a * b + c)
    step(x, x, x)
    compiled: list[str] = []

    def note(event: str, *_: Any, **__: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        for given in itertools.product((x, y), repeat=3):
            assert step(*given).tolist() == [6.0, 6.0, 6.0]
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert len(compiled) == 1


@pytest.mark.parametrize("size", [4, 1 << 18])
def test_arrays_of_any_size_are_of_one_kind(size: int) -> None:
    made = [ops.asarray(aligned(size)), ops.asarray(np.ones(size), copy=True), ops.ones(size)]
    assert [x.native.committed for x in made] == [False] * 3


# --- Small matrix products, which are loops of their own (backend/jax/products.py) -------------

SHAPES = [
    (2, 2, 2), (3, 7, 3), (4, 4, 4), (2, 8, 4), (8, 4, 8), (8, 8, 8), (8, 9, 8),
    (1, 8, 8), (8, 8, 1), (9, 8, 8), (4, 0, 4), (0, 8, 8), (16, 2, 16),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "int32"])
def test_small_products(shape: tuple[int, int, int], dtype: str) -> None:
    rows, inner, columns = shape
    generator = np.random.default_rng(rows * inner * columns)
    a = np.round(generator.standard_normal((rows, inner)) * 4)
    b = np.round(generator.standard_normal((inner, columns)) * 4)
    # Whole numbers this small have exact products and sums in every dtype.
    want = (a @ b).astype(dtype)
    given = ops.asarray(a.astype(dtype)), ops.asarray(b.astype(dtype))
    for product in (ops.matmul(*given), em.jit(ops.matmul)(*given)):
        assert product.dtype.name == dtype
        assert product.shape == (rows, columns)
        np.testing.assert_array_equal(product.numpy(), want)


@pytest.mark.parametrize("wrt", [0, 1, (0, 1)])
def test_gradients_of_small_products(wrt: int | tuple[int, int]) -> None:
    generator = np.random.default_rng(0)
    a, b = (jnp.asarray(generator.standard_normal((6, 6))) for _ in range(2))
    kernel = ops.asarray(a)._spec.kernel("matmul")

    def loss(product: Any) -> Any:
        return lambda x, y: jnp.sum(jnp.sin(product(x, y)))

    for transform in (jax.grad, jax.hessian, lambda f, n: jax.jit(jax.jacfwd(jax.grad(f, n), n))):
        got, want = (transform(loss(one), wrt)(a, b) for one in (kernel, jnp.matmul))
        for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_batches_of_small_products_are_products(axes: tuple[int | None, int | None]) -> None:
    generator = np.random.default_rng(1)
    many = jnp.asarray(generator.standard_normal((5, 8, 8)))
    given = [many if axis == 0 else many[2] for axis in axes]
    kernel = ops.asarray(many[0])._spec.kernel("matmul")
    batched = jax.vmap(kernel, axes)
    np.testing.assert_allclose(batched(*given), np.matmul(*given), rtol=1e-12, atol=1e-12)
    # A loop would take several times as long as the one large product.
    assert "dot_general" in str(jax.make_jaxpr(batched)(*given))
    assert "dot_general" not in str(jax.make_jaxpr(kernel)(many[0], many[1]))


def test_small_products_keep_what_is_not_finite() -> None:
    a = np.ones((4, 4), dtype=np.float32)
    a[0, 1], a[1, 2], a[2, 3] = np.inf, np.nan, -np.inf
    b = np.ones((4, 4), dtype=np.float32)
    b[1, 0] = 0.0
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(ops.matmul(ops.asarray(a), ops.asarray(b)).numpy(), a @ b)


@pytest.mark.parametrize("shapes", [((4, 4), (5, 4)), ((4, 4), ()), ((4, 8), (4, 8))])
def test_small_products_that_do_not_fit(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ShapeError, match="matmul"):
        ops.matmul(ops.ones(shapes[0]), ops.ones(shapes[1]))


@pytest.mark.parametrize("shortcut", [True, False])
def test_arrays_of_numpy_are_as_jax_makes_them_and_compile_nothing(
    monkeypatch: pytest.MonkeyPatch, shortcut: bool
) -> None:
    if not shortcut:
        monkeypatch.setattr(hosting, "_PUT", None)
    else:
        assert hosting._PUT is not None
    compiled: list[str] = []

    def note(event: str, duration: float, **_: Any) -> None:
        compiled.append(event)

    given = [
        np.ones(shape, dtypes.to_dtype(name).numpy)
        for name in NAMES
        for shape in [(), (0,), (3,), (2, 0, 3), (5, 7 + shortcut), (9, 600)]
    ]
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        made = [ops.asarray(array, copy=True).native for array in given]
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert not compiled
    for array, native in zip(given, made, strict=True):
        theirs = jnp.array(array)
        assert type(native) is type(theirs)
        assert (
            (native.dtype, native.shape)
            == (theirs.dtype, theirs.shape)
            == (array.dtype, array.shape)
        )
        assert native.committed == theirs.committed
        assert native.sharding == theirs.sharding
        array += np.ones((), array.dtype)  # not its memory
        assert np.asarray(native).tolist() == np.ones(array.shape, array.dtype).tolist()


def test_arrays_of_numpy_need_no_program_of_their_own() -> None:
    traces = 0

    @jax.jit
    def program(x: Any) -> Any:
        nonlocal traces
        traces += 1
        return x + 1

    for x in (
        jnp.ones(3),
        ops.asarray(np.ones(3)).native,
        ops.asarray([1.0, 1.0, 1.0], dtype="float64").native,
    ):
        program(x)
    assert traces == 1
    assert program._cache_size() == 1


# --- Scatter --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("aggr", ["add", "mul", "max", "min"])
def test_large_scatters_are_those_of_the_program(aggr: str, dtype: str) -> None:
    """NumPy's loop takes the values in the order of XLA's: the same bits, as an array of JAX."""
    generator = np.random.default_rng(3)
    values = ops.asarray(generator.integers(-3, 4, 100_000), dtype=dtype)
    if dtype.startswith("float"):
        values = values / 7
    indices = ops.asarray(generator.integers(-40, 40, 100_000))  # negative ones from the end
    got = ops.scatter(values, indices, 41, aggr)
    traced = jax.jit(lambda v, i: ops.scatter(v, i, 41, aggr).native)(values.native, indices.native)
    assert type(got.native) is type(traced)
    assert (got.dtype.name, got.shape, got.device) == (dtype, (41,), "cpu")
    np.testing.assert_array_equal(got.numpy(), np.asarray(traced))


def test_large_scatters_tell_of_indices_out_of_range() -> None:
    values, indices = ops.ones((100_000,)), np.zeros(100_000, np.int64)
    for wrong in (9, -10):
        indices[777] = wrong
        with pytest.raises(OutOfBoundsError, match=rf"scatter_add got index {wrong} for 9 places"):
            ops.scatter(values, ops.asarray(indices), 9)
    with em.use_checks("none"):  # nothing is read: JAX leaves them out
        assert ops.scatter(values, ops.asarray(indices), 9).numpy()[0] == 99_999


def test_large_scatters_have_gradients() -> None:
    indices = ops.arange(100_000) % 5
    weights = ops.arange(5, dtype="float32")
    grad = em.grad(lambda v: ops.sum(ops.scatter(v, indices, 5) * weights))(ops.ones((100_000,)))
    np.testing.assert_array_equal(grad.numpy(), np.arange(100_000, dtype=np.float32) % 5)


# --- Keys with arrays -------------------------------------------------------------------------

KEYS = {
    "integers": lambda i, mask: i,
    "integers of the second axis": lambda i, mask: (slice(None), i),
    "pairs": lambda i, mask: (i, i[::-1]),
    "a number between": lambda i, mask: (i, slice(1, None), 0),
    "an ellipsis and a new axis": lambda i, mask: (..., None, i),
    "a mask": lambda i, mask: mask,
    "a mask of one axis": lambda i, mask: mask[:, 0, 0],
    "nothing": lambda i, mask: i[:0],
    "a truth": lambda i, mask: np.array(True),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("name", KEYS)
def test_keys_with_arrays_compile_nothing(name: str, dtype: str) -> None:
    """They are read on the host, with the values and the kind of array that a program gives."""
    host = (np.arange(64) % 5).reshape(4, 4, 4).astype(dtypes.to_dtype(dtype).numpy)
    i, mask = np.array([2, -1, 0]), (np.arange(64) % 3 == 0).reshape(4, 4, 4)
    key = KEYS[name](i, mask)
    parts = key if isinstance(key, tuple) else (key,)
    given = tuple(ops.asarray(k) if isinstance(k, np.ndarray) and k.ndim else k for k in parts)
    x = ops.asarray(host, copy=True)
    compiled: list[str] = []

    def note(event: str, duration: float, **_: Any) -> None:
        compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        got = x[given]
        x[given] = dtype == "bool" or 1
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert not compiled
    assert type(got.native) is type(ops.ones((1,)).native)
    assert (got.dtype.name, got.device) == (dtype, "cpu")
    expected = host[parts]
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got.numpy(), expected)
    written = host.copy()
    written[parts] = 1
    np.testing.assert_array_equal(x.numpy(), written)


def test_what_was_read_or_written_by_a_key_shares_no_memory() -> None:
    x = ops.asarray(np.arange(6.0), copy=True)
    before = x.native
    got = x[ops.asarray([0, 1])]
    x[ops.asarray([0, 1])] = 9.0
    assert np.asarray(before).tolist() == [0, 1, 2, 3, 4, 5]
    assert (got.tolist(), x.tolist()[:3]) == ([0.0, 1.0], [9.0, 9.0, 2.0])


def test_keys_with_arrays_in_traces_and_gradients() -> None:
    i = ops.asarray([2, 0, 2])
    x = ops.asarray([1.0, 2.0, 3.0])
    assert em.jit(lambda x, i: x[i])(x, i).tolist() == [3.0, 1.0, 3.0]
    assert em.grad(lambda x: ops.sum(x[i] * x[i]))(x).tolist() == [2.0, 0.0, 12.0]
    assert em.grad(lambda x: ops.sum(x[x > 1.5]))(x).tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("key", "value"),
    [([0, 1], [1.0, 2.0, 3.0]), ([True, False, True], [1.0, 2.0, 3.0]), ([], [1.0, 2.0])],
)
def test_values_that_do_not_fit_a_key(key: list[Any], value: list[float]) -> None:
    x = ops.zeros((3,))
    with pytest.raises(ShapeError, match=r"x\[key\] = value got a value of shape"):
        x[key] = ops.asarray(value)
    assert x.tolist() == [0.0, 0.0, 0.0]
