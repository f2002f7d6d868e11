"""What every communicator does: cases that run on each engine, in each of its processes.

A case is a function of a communicator. Ranks know what the others came with, since inputs are
made of their numbers; what is expected is computed by NumPy. One job runs all cases of an engine.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import ember_ml as em
from ember_ml import distributed, dtypes, errors, ops
from ember_ml.distributed import Communicator
from ember_ml.tensor.core import Tensor

Case = Callable[[Communicator], None]
CASES: Final[dict[str, Case]] = {}
# Seconds after which a collective gives up, so that a case that fails does not take long.
TIMEOUT = 60.0


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


# Those that have a meaning for a process that is alone.
ALONE: Final = (
    "all_reduce_of_every_dtype",
    "every_shape",
    "views",
    "what_is_taken",
    "results_are_memory_of_their_own",
    "all_gather_of_every_dtype",
    "all_gather_along_axes",
    "reduce_scatter_of_every_dtype",
    "reduce_scatter_along_axes",
    "many_calls_in_a_row",
    "gradients_of_sums",
    "gradients_of_the_rest",
    "second_derivatives",
    "gradients_that_are_not_there",
    "mistakes_of_all_ranks",
    "objects",
    "sums_that_are_started",
    "a_barrier_waits",
)


def run_all(names: Sequence[str] = ()) -> dict[str, str]:
    """What went wrong in each case, "" for nothing; and by what the ranks talked."""
    comm = distributed.initialize(timeout=TIMEOUT)
    found = {}
    for name in names or CASES:
        try:
            CASES[name](comm)
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
    return {"transport": comm.transport, **found}


def same(found: Tensor, expected: Any, dtype: Any = None) -> None:
    """Dtype, shape and values are the same, NaN included."""
    wanted = np.asarray(expected)
    name = dtypes.to_dtype(wanted.dtype if dtype is None else dtype).name
    assert isinstance(found, Tensor)
    assert found.dtype.name == name, f"{found.dtype} is not {name}"
    assert found.shape == wanted.shape, f"{found.shape} is not {wanted.shape}"
    # bfloat16 has no comparison of NaN in NumPy
    wide = np.float32 if name == "bfloat16" else wanted.dtype
    np.testing.assert_array_equal(found.numpy().astype(wide), wanted.astype(wide))


def has(comm: Communicator) -> list[dtypes.DType]:
    """The dtypes of a backend."""
    return [d for d in dtypes.ALL if comm._backend.supports(d, em.get_device())]


def values_of(rank: int, dtype: dtypes.DType) -> np.ndarray[Any, Any]:
    """Numbers of a rank that every dtype holds, with its extremes for integers: sums wrap."""
    if dtype.kind == "bool":
        return np.asarray([True, False, rank == 0, rank > 0, rank == 1])
    plain = np.asarray([rank + 1, 3 - rank, 0, 2, rank % 2], np.int64)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        ends = np.asarray([info.max, info.min], dtype.numpy)
        return np.concatenate([plain.astype(dtype.numpy), ends])
    if dtype.is_complex:
        return (plain + 1j * plain[::-1] * (rank + 1)).astype(dtype.numpy)
    return (plain * 0.5 - rank).astype(dtype.numpy)


def reduced(parts: Sequence[np.ndarray[Any, Any]], op: str) -> np.ndarray[Any, Any]:
    """NumPy's reduction, in the dtype of the parts; integers wrap."""
    stacked = np.stack(parts)
    dtype = stacked.dtype
    if dtype.kind == "b":
        return stacked.any(0) if op == "max" else stacked.all(0)
    wide = stacked if dtype.kind in "iuc" else stacked.astype(np.float64)
    with np.errstate(over="ignore"):
        if op == "mean":
            return (wide.sum(0) / len(parts)).astype(dtype)
        function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op]
        return function.reduce(wide, axis=0, dtype=wide.dtype).astype(dtype)


def ops_of(dtype: dtypes.DType) -> list[str]:
    if dtype.kind == "bool":
        return ["max", "min"]
    if dtype.is_complex:
        return ["sum", "mean", "prod"]
    return ["sum", "max", "min", "prod", *(["mean"] if dtype.is_inexact else [])]


def raised(function: Callable[[], Any]) -> str:
    """The name of the class of the error that a call raises."""
    try:
        function()
    except Exception as error:
        return type(error).__name__
    return ""


# --- Values ----------------------------------------------------------------------------------


@case
def who_is_who(comm: Communicator) -> None:
    assert 0 <= comm.rank < comm.world_size
    assert comm.world.size == comm.world_size
    assert f"rank {comm.rank} of {comm.world_size}" in repr(comm)
    assert comm.all_gather(comm.rank).tolist() == list(range(comm.world_size))
    assert distributed.initialize() is comm
    assert distributed.is_initialized()
    assert distributed.get_communicator() is comm


@case
def all_reduce_of_every_dtype(comm: Communicator) -> None:
    for dtype in has(comm):
        parts = [values_of(rank, dtype) for rank in range(comm.world_size)]
        x = ops.asarray(parts[comm.rank], dtype=dtype)
        for op in ops_of(dtype):
            found = comm.all_reduce(x, op)
            if op == "mean":  # a third is rounded as the engine divides
                wanted = reduced(parts, op)
                assert found.dtype is dtype
                wide = np.complex128 if dtype.is_complex else np.float64
                given = found.numpy().astype(wide)
                eps = ops.finfo(dtype).eps
                np.testing.assert_allclose(given, wanted.astype(wide), rtol=2 * eps)
            else:
                same(found, reduced(parts, op), dtype)
        same(x, parts[comm.rank], dtype)


@case
def half_precision_is_rounded_once(comm: Communicator) -> None:
    # 2048 + 1 is 2048 in float16, and 256 + 1 is 256 in bfloat16.
    for dtype, big in ((dtypes.float16, 2048.0), (dtypes.bfloat16, 256.0)):
        own = ops.full((3,), big if comm.rank == 0 else 1.0, dtype=dtype)
        wanted = ops.full((3,), big + comm.world_size - 1, dtype=dtypes.float32).astype(dtype)
        same(comm.all_reduce(own), wanted.numpy(), dtype)
    large = ops.full((2,), 60000.0, dtype=dtypes.float16)
    same(comm.all_reduce(large, "mean"), np.full(2, 60000.0, np.float16))
    assert np.isposinf(comm.all_reduce(large).numpy()).all()


@case
def nan_is_nan_on_every_rank(comm: Communicator) -> None:
    n = comm.world_size
    for dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16):
        # Each rank in turn has the NaN; at the end there are infinities.
        own = np.zeros(n + 3)
        own[comm.rank] = np.nan
        own[n:] = np.inf, -np.inf, np.inf if comm.rank == 0 else -np.inf
        x = ops.asarray(own.astype(np.float32)).astype(dtype)
        for op, last in (("max", [np.inf, -np.inf, np.inf]), ("min", [np.inf, -np.inf, -np.inf])):
            same(comm.all_reduce(x, op), np.asarray([np.nan] * n + last, dtype.numpy), dtype)
        total = np.asarray([np.nan] * n + [np.inf, -np.inf, np.nan], dtype.numpy)
        same(comm.all_reduce(x, "sum"), total, dtype)
        same(comm.all_reduce(x, "mean"), total, dtype)


SHAPES: Final = ((), (1,), (0,), (2, 0, 3), (3, 1, 2), (1,) * 16)


@case
def every_shape(comm: Communicator) -> None:
    n = comm.world_size
    for shape in SHAPES:
        x = ops.full(shape, float(comm.rank + 1))
        for op, value in (("sum", n * (n + 1) / 2), ("mean", (n + 1) / 2), ("max", n), ("min", 1)):
            same(comm.all_reduce(x, op), np.full(shape, value, np.float32))
        same(comm.broadcast(x, n - 1), np.full(shape, n, np.float32))
        if shape:
            wanted = np.concatenate([np.full(shape, r + 1, np.float32) for r in range(n)])
        else:
            wanted = np.arange(1, n + 1, dtype=np.float32)
        same(comm.all_gather(x), wanted)
    same(comm.all_gather(ops.asarray(True), axis=-1), np.ones(n, bool))


@case
def views(comm: Communicator) -> None:
    n = comm.world_size
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    for cut in (
        lambda a: a.T,
        lambda a: a[::2, 1::3],
        lambda a: a[:, 2],
        lambda a: a[1:3],
        lambda a: a[::-1, ::-2],
        lambda a: a[:0],
    ):
        x, wanted = cut(ops.asarray(base) * (comm.rank + 1)), cut(base)
        same(comm.all_reduce(x), wanted * (n * (n + 1) / 2))
        same(comm.all_reduce(x, "max"), np.maximum(wanted, wanted * n))
        same(comm.broadcast(x, n - 1), wanted * n)
        same(comm.all_gather(x), np.concatenate([wanted * (r + 1) for r in range(n)]))
    turned = np.array([1 + 2j, 3 - 1j], np.complex64)
    x = ops.conj(ops.asarray(turned) * (comm.rank + 1))
    if comm.backend == "torch":  # its conj and imag only note what is to be done
        x = (ops.asarray(turned) * (comm.rank + 1)).native.conj()
        same(comm.broadcast(x.imag, n - 1), -n * turned.imag)
    same(comm.all_reduce(x), n * (n + 1) / 2 * turned.conj())
    same(comm.broadcast(x, n - 1), n * turned.conj())
    same(comm.all_gather(x), np.concatenate([(r + 1) * turned.conj() for r in range(n)]))
    wide = ops.broadcast_to(ops.asarray([1.0, 2.0]), (3, 2))
    same(comm.all_reduce(wide), np.broadcast_to(np.float32([n, 2 * n]), (3, 2)))


@case
def what_is_taken(comm: Communicator) -> None:
    n = comm.world_size
    same(comm.all_reduce(2), np.asarray(2 * n))
    same(comm.all_reduce([1.5, 2.0]), np.float32([1.5 * n, 2 * n]))
    fixed = np.ones(3, np.float32)
    fixed.flags.writeable = False
    same(comm.all_reduce(fixed), np.full(3, n, np.float32))
    same(comm.all_reduce(ops.ones((2,)).native), np.full(2, n, np.float32))
    assert comm.all_reduce(ops.ones((2,))).backend == comm.backend
    assert comm.all_reduce(ops.ones((2,))).device == ops.ones((2,)).device


@case
def results_are_memory_of_their_own(comm: Communicator) -> None:
    n = comm.world_size
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "sum": comm.all_reduce,
        "max": lambda x: comm.all_reduce(x, "max"),
        "mean": lambda x: comm.all_reduce(x, "mean"),
        "broadcast": lambda x: comm.broadcast(x, 0),
        "all_gather": comm.all_gather,
        "all_gather along 1": lambda x: comm.all_gather(x, axis=1),
        "reduce_scatter": comm.reduce_scatter,
        "reduce_scatter along 1": lambda x: comm.reduce_scatter(x, axis=1),
    }
    for name, call in calls.items():
        for x in (ops.ones((n, n)), ops.ones((n, n), dtype="int64")):
            if name == "mean" and x.dtype.is_integer:
                continue
            found = call(x)
            kept = found.numpy(copy=True)
            same(x, np.ones((n, n), x.dtype.numpy))
            x[...] = 7
            same(found, kept)
            found[...] = 9
            same(x, np.full((n, n), 7, x.dtype.numpy))


@case
def broadcast_of_every_dtype_from_every_rank(comm: Communicator) -> None:
    # JAX compiles a program for each dtype and root: one root for each dtype, all for one.
    roots = [(dtype, i % comm.world_size) for i, dtype in enumerate(has(comm))]
    for dtype, root in (*roots, *((dtypes.float32, root) for root in range(comm.world_size))):
        x = ops.asarray(values_of(comm.rank, dtype), dtype=dtype)
        same(comm.broadcast(x, root), values_of(root, dtype), dtype)
    special = ops.asarray([-0.0, np.nan, np.inf, -np.inf, 1e-45])
    given = special if comm.rank == 1 else ops.zeros((5,))
    found = comm.broadcast(given, root=1)
    same(found, special.numpy())
    assert np.signbit(found.numpy()[0])


@case
def all_gather_of_every_dtype(comm: Communicator) -> None:
    for dtype in has(comm):
        parts = [values_of(rank, dtype) for rank in range(comm.world_size)]
        found = comm.all_gather(ops.asarray(parts[comm.rank], dtype=dtype))
        same(found, np.concatenate(parts), dtype)


@case
def all_gather_along_axes(comm: Communicator) -> None:
    parts = [np.arange(24.0).reshape(2, 3, 4) + 100 * rank for rank in range(comm.world_size)]
    x = ops.asarray(parts[comm.rank])
    for axis in (0, 1, 2, -1, -2, -3):
        same(comm.all_gather(x, axis), np.concatenate(parts, axis))
    empty = ops.zeros((2, 0, 3))
    for axis in (0, 1, -1):
        same(comm.all_gather(empty, axis), np.concatenate([empty.numpy()] * len(parts), axis))


@case
def reduce_scatter_of_every_dtype(comm: Communicator) -> None:
    n = comm.world_size
    for dtype in has(comm):
        parts = [np.resize(values_of(rank, dtype), (2 * n, 3)) for rank in range(n)]
        x = ops.asarray(parts[comm.rank], dtype=dtype)
        # It reduces as all_reduce does; all ops for some.
        some = dtype.name in ("bool", "uint16", "int64", "float32", "bfloat16", "complex64")
        for op in ops_of(dtype) if some else ["sum"]:
            if op != "mean":
                own = reduced(parts, op)[2 * comm.rank : 2 * comm.rank + 2]
                same(comm.reduce_scatter(x, op), own, dtype)


@case
def reduce_scatter_along_axes(comm: Communicator) -> None:
    n = comm.world_size
    base = np.arange(2.0 * n * 3 * n).reshape(2, n, 3 * n)
    x = ops.asarray(base * (comm.rank + 1))
    total = base * (n * (n + 1) / 2)
    for axis in (1, 2, -1, -2):
        wanted = np.split(total, n, axis)[comm.rank]
        same(comm.reduce_scatter(x, axis=axis), wanted)
        np.testing.assert_allclose(
            comm.reduce_scatter(x, "mean", axis).numpy(), wanted / n, rtol=1e-14
        )
    same(comm.reduce_scatter(x, "max", 1), np.split(base * n, n, 1)[comm.rank])
    same(comm.reduce_scatter(ops.zeros((0, 3))), np.zeros((0, 3), np.float32))
    same(comm.reduce_scatter(ops.zeros((n, 0))), np.zeros((1, 0), np.float32))


@case
def many_calls_in_a_row(comm: Communicator) -> None:
    drawn = np.random.default_rng(5)
    n = comm.world_size
    for _ in range(40):
        shape = ((), (3,), (2, 3), (4, 1, 2))[drawn.integers(0, 4)]
        parts = drawn.integers(-9, 9, (n, *shape)).astype(np.float32)
        x = ops.asarray(parts[comm.rank])
        kind = drawn.integers(0, 3)
        if kind == 0:
            op = ("sum", "max", "min", "prod")[drawn.integers(0, 4)]
            same(comm.all_reduce(x, op), reduced(list(parts), op))
        elif kind == 1:
            root = int(drawn.integers(0, n))
            same(comm.broadcast(x, root), parts[root])
        else:
            same(comm.all_gather(x), np.concatenate(np.atleast_2d(parts) if shape else parts[None]))


# --- Gradients -------------------------------------------------------------------------------


def _weights(n: int) -> float:
    return n * (n + 1) / 2


@case
def gradients_of_sums(comm: Communicator) -> None:
    n, weight = comm.world_size, comm.rank + 1.0
    own = np.asarray([1.0, -2.0, 0.5]) * (comm.rank + 1)
    total = np.asarray([1.0, -2.0, 0.5]) * _weights(n)
    for op, share in (("sum", 1.0), ("mean", 1 / n)):

        def loss(x: Tensor, op: str = op) -> Tensor:
            return ops.sum(comm.all_reduce(x, op) ** 2) * weight

        wanted = 2 * total * share * share * _weights(n)
        np.testing.assert_allclose(em.grad(loss)(ops.asarray(own)).numpy(), wanted, rtol=1e-12)
        leaf = em.Tensor(own, requires_grad=True)
        loss(leaf).backward()
        np.testing.assert_allclose(leaf.grad.numpy(), wanted, rtol=1e-12)


@case
def gradients_of_the_rest(comm: Communicator) -> None:
    n, rank, weight = comm.world_size, comm.rank, comm.rank + 1.0
    x = ops.asarray(np.arange(2.0 * n * n).reshape(2, n, n) + rank)
    everyone = [np.arange(2.0 * n * n).reshape(2, n, n) + r for r in range(n)]

    def gradient(function: Callable[[Tensor], Tensor]) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = em.grad(lambda x: ops.sum(function(x) ** 2) * weight)(
            x
        ).numpy()
        return found

    root = n - 1
    wanted = 2 * everyone[root] * _weights(n) if rank == root else np.zeros(x.shape)
    np.testing.assert_allclose(gradient(lambda x: comm.broadcast(x, root)), wanted, rtol=1e-12)
    wanted = 2 * everyone[rank] * _weights(n)
    for axis in (0, 1, -1):
        np.testing.assert_allclose(
            gradient(lambda x, axis=axis: comm.all_gather(x, axis)), wanted, rtol=1e-12
        )
    # Part r of the sum is squared by rank r, with its weight.
    total = sum(everyone)
    factors = np.arange(1.0, n + 1)
    for axis in (1, 2):
        by_axis = factors.reshape((1, n, 1) if axis == 1 else (1, 1, n))
        for op, share in (("sum", 1.0), ("mean", 1 / n)):
            found = gradient(lambda x, op=op, axis=axis: comm.reduce_scatter(x, op, axis))
            np.testing.assert_allclose(found, 2 * total * share**2 * by_axis, rtol=1e-12)
    single = em.grad(lambda x: ops.sum(comm.all_gather(x) ** 2) * weight)
    np.testing.assert_allclose(
        single(ops.asarray(rank + 1.0)).numpy(), 2 * (rank + 1.0) * _weights(n), rtol=1e-6
    )


@case
def second_derivatives(comm: Communicator) -> None:
    n = comm.world_size
    base = np.asarray([1.0, 2.0])

    def loss(x: Tensor) -> Tensor:
        return ops.sum(comm.all_reduce(x) ** 3)

    x = ops.asarray(base * (comm.rank + 1))
    total = base * _weights(n)
    # The gradient is 3 n y^2 on each rank, and its sum over all ranks is differentiated again.
    found = em.grad(lambda x: ops.sum(em.grad(loss)(x)))(x)
    np.testing.assert_allclose(found.numpy(), 6 * n * n * total, rtol=1e-12)

    def gathered(x: Tensor) -> Tensor:
        return ops.sum(comm.all_gather(x) ** 3)

    found = em.grad(lambda x: ops.sum(em.grad(gathered)(x)))(x)
    np.testing.assert_allclose(found.numpy(), 6 * n * x.numpy(), rtol=1e-12)


@case
def gradients_that_are_not_there(comm: Communicator) -> None:
    x = ops.asarray([1.0, 2.0])
    for op in ("max", "min", "prod"):
        assert raised(lambda op=op: em.grad(lambda x: ops.sum(comm.all_reduce(x, op)))(x)) == (
            "GradientError"
        )
    # Without a gradient asked for, there is nothing to refuse.
    with em.no_grad():
        same(comm.all_reduce(em.Tensor([1.0], requires_grad=True), "max"), np.float32([1.0]))


# --- Mistakes --------------------------------------------------------------------------------


def _mistakes(comm: Communicator) -> dict[str, tuple[Callable[[], Any], Callable[[], Any], str]]:
    """What most ranks do, what the last one does instead, and what all of them raise."""
    x = ops.ones((comm.world_size, 2))
    # One that the environment does not choose.
    other = x.to_backend("mlx" if comm.backend == "numpy" else "numpy")

    def usual() -> Tensor:
        return comm.all_reduce(x)

    return {
        "shape": (usual, lambda: comm.all_reduce(ops.ones((3,))), "ShapeError"),
        "empty": (usual, lambda: comm.all_reduce(ops.ones((0, 2))), "ShapeError"),
        "axes": (usual, lambda: comm.all_reduce(1.0), "ShapeError"),
        "dtype": (usual, lambda: comm.all_reduce(x.astype("int32")), "DTypeError"),
        "op": (usual, lambda: comm.all_reduce(x, "max"), "DomainError"),
        "unknown op": (usual, lambda: comm.all_reduce(x, "median"), "DomainError"),
        "bool sum": (usual, lambda: comm.all_reduce(ops.ones((2,), dtype="bool")), "DTypeError"),
        "call": (usual, lambda: comm.all_gather(x), "DomainError"),
        "barrier": (usual, comm.barrier, "DomainError"),
        "text": (usual, lambda: comm.all_reduce("text"), "DTypeError"),
        "backend": (usual, lambda: comm.all_reduce(other), "BackendMismatchError"),
        "root": (lambda: comm.broadcast(x, 0), lambda: comm.broadcast(x, 1), "DomainError"),
        "no root": (lambda: comm.broadcast(x, 0), lambda: comm.broadcast(x, -1), "DomainError"),
        "odd root": (lambda: comm.broadcast(x, 0), lambda: comm.broadcast(x, 0.5), "DomainError"),
        "axis": (lambda: comm.all_gather(x), lambda: comm.all_gather(x, 1), "DomainError"),
        "no axis": (lambda: comm.all_gather(x), lambda: comm.all_gather(x, 7), "AxisError"),
        "odd axis": (lambda: comm.all_gather(x), lambda: comm.all_gather(x, "a"), "AxisError"),
        "parts": (
            lambda: comm.reduce_scatter(x),
            lambda: comm.reduce_scatter(ops.ones((comm.world_size + 1, 2))),
            "ShapeError",
        ),
        "scattered number": (
            lambda: comm.reduce_scatter(x),
            lambda: comm.reduce_scatter(1.0),
            "ShapeError",
        ),
        "object": (
            lambda: comm.all_gather_object(1),
            lambda: comm.all_gather_object({1, 2}),
            "DTypeError",
        ),
        "object's root": (
            lambda: comm.broadcast_object(1),
            lambda: comm.broadcast_object(1, root=9),
            "DomainError",
        ),
        "object and tensor": (usual, lambda: comm.broadcast_object(1), "DomainError"),
    }


@case
def a_mistake_of_one_rank_is_told_on_all(comm: Communicator) -> None:
    n = comm.world_size
    for name, (usual, wrong, kind) in _mistakes(comm).items():
        found = raised(wrong if comm.rank == n - 1 else usual)
        assert found == kind, f"{name}: {found or 'nothing'} was raised, not {kind}"
        same(comm.all_reduce(ops.ones((2,))), np.full(2, n, np.float32))  # the job goes on


@case
def mistakes_say_who_did_what(comm: Communicator) -> None:
    last = comm.world_size - 1
    own = ops.ones((2,)) if comm.rank < last else ops.ones((3,))
    try:
        comm.all_reduce(own)
        text = ""
    except errors.ShapeError as error:
        text = str(error)
    assert "rank 0: all_reduce(float32 (2,), op='sum')" in text, text
    assert f"rank {last}: all_reduce(float32 (3,), op='sum')" in text, text
    try:
        comm.broadcast(own, root=0 if comm.rank < last else 12)
        text = ""
    except errors.DomainError as error:
        text = str(error)
    assert f"root=12; ranks go from 0 to {last}" in text, text
    assert (f"(on rank {last})" in text) == (comm.rank < last), text


@case
def mistakes_of_all_ranks(comm: Communicator) -> None:
    x = ops.ones((2,))
    for function, kind in (
        (lambda: comm.all_reduce(x, "avg"), "DomainError"),
        (lambda: comm.all_reduce(x.astype("bool")), "DTypeError"),
        (lambda: comm.all_reduce(x.astype("int64"), "mean"), "DTypeError"),
        (lambda: comm.all_reduce(x.astype("complex64"), "max"), "DTypeError"),
        (lambda: comm.broadcast(x, comm.world_size), "DomainError"),
        (lambda: comm.all_gather(x, 1), "AxisError"),
        (lambda: comm.reduce_scatter(x, axis=-2), "AxisError"),
        *(
            [(lambda: comm.reduce_scatter(ops.ones((comm.world_size * 2 + 1,))), "ShapeError")]
            if comm.world_size > 1
            else []
        ),
        (lambda: comm.reduce_scatter(3.0), "ShapeError"),
    ):
        assert raised(function) == kind
    same(comm.all_reduce(x), np.full(2, comm.world_size, np.float32))


@case
def gradients_on_one_rank_only(comm: Communicator) -> None:
    if comm.backend not in ("numpy", "torch"):
        return  # a transform is asked for by the program, which is the same on all ranks
    x = em.Tensor([1.0], requires_grad=comm.rank == 0)
    assert raised(lambda: comm.all_reduce(x)) == "DomainError"


# --- Between two ranks -----------------------------------------------------------------------


@case
def tensors_around_the_ring(comm: Communicator) -> None:
    n, rank = comm.world_size, comm.rank
    after, before = (rank + 1) % n, (rank - 1) % n

    def around(x: Tensor) -> Tensor:
        # One begins to receive: it works also where senders wait for who receives.
        if rank == 0:
            comm.send(x, after)
            return comm.recv(before)
        found = comm.recv(before)
        comm.send(x, after)
        return found

    for dtype in has(comm):
        x = ops.asarray(values_of(rank, dtype), dtype=dtype)
        same(around(x), values_of(before, dtype), dtype)
    for shape in (*SHAPES, (1000, 1001)):
        same(around(ops.full(shape, float(rank))), np.full(shape, before, np.float32))
    x = ops.asarray(np.arange(12.0).reshape(3, 4) + rank)
    same(around(x.T[::2]), (np.arange(12.0).reshape(3, 4) + before).T[::2])


@case
def messages_come_in_order(comm: Communicator) -> None:
    if comm.rank == 0:
        for number in range(20):
            x = ops.full((number % 4,), number)
            comm.send(x, 1)
            x[...] = -1  # it has been sent
    elif comm.rank == 1:
        for number in range(20):
            same(comm.recv(0), np.full(number % 4, number))
    comm.barrier()


@case
def two_ranks_send_to_each_other_first(comm: Communicator) -> None:
    if comm.rank < 2:
        other = 1 - comm.rank
        for shape in ((3,), (500_000,)):
            comm.send(ops.full(shape, float(comm.rank)), other)
            same(comm.recv(other), np.full(shape, other, np.float32))
    comm.barrier()


@case
def messages_between_collectives(comm: Communicator) -> None:
    if comm.rank == 0:
        comm.send([1.0, 2.0], comm.world_size - 1)
    same(comm.all_reduce(1), np.asarray(comm.world_size))
    if comm.rank == comm.world_size - 1:
        same(comm.recv(0), np.float32([1.0, 2.0]))
    comm.barrier()


@case
def wrong_peers(comm: Communicator) -> None:
    for peer in (comm.rank, comm.world_size, -1, "one"):
        assert raised(lambda peer=peer: comm.send([1.0], peer)) == "DomainError"
        assert raised(lambda peer=peer: comm.recv(peer)) == "DomainError"
    comm.barrier()


# --- The rest --------------------------------------------------------------------------------


@case
def objects(comm: Communicator) -> None:
    n = comm.world_size
    value = {"rank": comm.rank, "text": "é" * 700 * comm.rank, "rest": [None, True, 1.5, (1, 2)]}
    wanted = [
        {"rank": r, "text": "é" * 700 * r, "rest": [None, True, 1.5, [1, 2]]} for r in range(n)
    ]
    assert comm.all_gather_object(value) == wanted
    for root in range(n):
        # Only what the root has must be JSON.
        given = value if comm.rank == root else {1, 2}
        assert comm.broadcast_object(given, root) == wanted[root]
    assert comm.all_gather_object(None) == [None] * n
    assert comm.broadcast_object(2**80) == 2**80
    assert np.isnan(comm.broadcast_object(float("nan")))


@case
def sums_that_are_started(comm: Communicator) -> None:
    n = comm.world_size
    for dtype in (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16):
        if dtype not in has(comm):
            continue
        shapes = ((5,), (2, 3), (0,), (), (100_000,))
        given = [ops.full(shape, float(comm.rank + 1), dtype=dtype) for shape in shapes]
        pending = comm.start_sum([x.native for x in given])
        for native, shape in zip(pending.wait(), shapes, strict=True):
            found = ops.asarray(native)
            same(found, np.full(shape, n * (n + 1) / 2, dtype.numpy), dtype)
    first = comm.start_sum([ops.ones((3,)).native])
    second = comm.start_sum([ops.full((2,), 2.0).native])
    same(ops.asarray(second.wait()[0]), np.full(2, 2 * n, np.float32))
    same(ops.asarray(first.wait()[0]), np.full(3, n, np.float32))
    assert comm.start_sum([]).wait() == []


@case
def a_barrier_waits(comm: Communicator) -> None:
    if comm.rank == 0:
        time.sleep(0.3)
    # The clock of one machine: nobody leaves before the last one has come.
    came = time.monotonic()
    comm.barrier()
    left = time.monotonic()
    assert left >= max(comm.all_gather_object(came))
