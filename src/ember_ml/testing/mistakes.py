"""Mistakes that users make, each with the one error it gets on every backend."""

from __future__ import annotations

from typing import Any, Final

from ember_ml.errors import (
    AxisError,
    CopyError,
    DeviceError,
    DomainError,
    DTypeError,
    IntegerDivisionError,
    LinAlgError,
    OutOfBoundsError,
    ShapeError,
)
from ember_ml.testing import (
    cases_control,
    cases_decompositions,
    cases_everyday,
    cases_losses,
    cases_network,
    cases_random,
    cases_signal,
    cases_stats,
)
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES"]


def _set(xp: Any, key: Any, value: Any, *, dtype: str = "float32") -> None:
    x = xp.zeros((2, 3), dtype=dtype)
    x[key] = value


def _in_place(xp: Any, x: Any, y: Any) -> None:
    x = xp.asarray(x)
    x += xp.asarray(y)


def _not_finite(name: str) -> Mistake:
    def run(xp: Any) -> Any:
        return getattr(xp.linalg, name)(xp.full((2, 2), float("nan")))

    facts = ("finite",) if name == "cholesky" else ()
    return Mistake(f"{name}-nan", LinAlgError, run, facts)


def _infinite(name: str) -> Mistake:
    """An op that is built on singular values, whose error names it and not what it is built on."""

    def run(xp: Any) -> Any:
        x = xp.full((2, 2), float("inf"))
        named = getattr(xp.linalg, name)
        if name == "lstsq":
            return named(x, xp.ones((2,)))
        return named(x, ord=2) if name == "matrix_norm" else named(x)

    return Mistake(f"{name}-infinite", LinAlgError, run, (f"ops.linalg.{name} ",))


def _no_points(name: str) -> Mistake:
    def run(xp: Any) -> Any:
        return getattr(xp.fft, name)(xp.zeros((2, 0)))

    return Mistake(f"{name}-of-nothing", ShapeError, run, (f"ops.fft.{name} got", "(2, 0)"))


def _one_point(name: str) -> Mistake:
    def run(xp: Any) -> Any:
        return getattr(xp.fft, name)(xp.ones((2, 1)))

    return Mistake(f"{name}-of-one", ShapeError, run, (f"ops.fft.{name} got", "(2, 1)"))


_STANDARD: Final = (
    # Shapes
    Mistake(
        "add-shapes",
        ShapeError,
        lambda xp: xp.add(xp.ones((2, 3)), xp.ones((4,))),
        ("ops.add", "float32[2, 3]", "float32[4]"),
    ),
    Mistake(
        "maximum-shapes",
        ShapeError,
        lambda xp: xp.maximum(xp.ones((2,)), xp.ones((3,))),
        ("ops.maximum", "[2]", "[3]"),
    ),
    Mistake(
        "where-shapes",
        ShapeError,
        lambda xp: xp.where(xp.ones((2,)) > 0, xp.ones((3,)), xp.ones((3,))),
        ("ops.where",),
    ),
    Mistake(
        "matmul-shapes",
        ShapeError,
        lambda xp: xp.matmul(xp.ones((2, 3)), xp.ones((2, 3))),
        ("ops.matmul", "[2, 3]"),
    ),
    Mistake(
        "add-beyond-dtype",
        DomainError,
        lambda xp: xp.asarray([1], dtype="uint8") + -1,
        ("ops.add: -1 is out of the range of uint8",),
    ),
    Mistake(
        "add-beyond-dtype-first",
        DomainError,
        lambda xp: 300 + xp.asarray([1], dtype="uint8"),
        ("ops.add: 300 is out of the range of uint8",),
    ),
    Mistake(
        "clip-beyond-dtype",
        DomainError,
        lambda xp: xp.clip(xp.asarray([1], dtype="uint8"), -1, 2),
        ("ops.clip",),
    ),
    *map(_infinite, ("matrix_rank", "cond", "lstsq", "matrix_norm")),
    Mistake("matmul-0d", ShapeError, lambda xp: xp.matmul(xp.ones(()), xp.ones((2, 2)))),
    Mistake("matmul-number", ShapeError, lambda xp: xp.matmul(xp.ones((2, 2)), 2.0)),
    Mistake(
        "matmul-stacks", ShapeError, lambda xp: xp.matmul(xp.ones((2, 2, 2)), xp.ones((3, 2, 2)))
    ),
    Mistake(
        "reshape-size",
        ShapeError,
        lambda xp: xp.reshape(xp.ones((2, 3)), (4, 2)),
        ("ops.reshape", "(4, 2)", "(2, 3)"),
    ),
    Mistake("reshape-two-gaps", ShapeError, lambda xp: xp.reshape(xp.ones((4,)), (-1, -1))),
    Mistake("negative-shape", ShapeError, lambda xp: xp.zeros((2, -3)), ("ops.zeros", "-3")),
    Mistake(
        "concat-shapes",
        ShapeError,
        lambda xp: xp.concat([xp.ones((2, 3)), xp.ones((2, 4))]),
        ("ops.concat", "(2, 3)", "(2, 4)"),
    ),
    Mistake("concat-nothing", ShapeError, lambda xp: xp.concat([])),
    Mistake("stack-shapes", ShapeError, lambda xp: xp.stack([xp.ones((2,)), xp.ones((3,))])),
    Mistake("broadcast-to", ShapeError, lambda xp: xp.broadcast_to(xp.ones((3,)), (2, 2))),
    Mistake("squeeze-length", ShapeError, lambda xp: xp.squeeze(xp.ones((2, 3)), 0)),
    Mistake("ragged-list", ShapeError, lambda xp: xp.asarray([[1, 2], [3]]), ("ragged",)),
    Mistake("max-of-nothing", ShapeError, lambda xp: xp.max(xp.zeros((0,))), ("ops.max",)),
    Mistake("min-of-nothing", ShapeError, lambda xp: xp.min(xp.zeros((0, 2)), axis=0)),
    Mistake("argmax-of-nothing", ShapeError, lambda xp: xp.argmax(xp.zeros((0,)))),
    Mistake("truth-of-many", ShapeError, lambda xp: bool(xp.ones((2,))), ("any", "all")),
    Mistake("float-of-many", ShapeError, lambda xp: float(xp.ones((2,)))),
    Mistake("item-of-many", ShapeError, lambda xp: xp.ones((2,)).item()),
    Mistake("len-of-0d", ShapeError, lambda xp: len(xp.ones(()))),
    Mistake("iter-of-0d", ShapeError, lambda xp: list(xp.ones(()))),
    Mistake("T-of-three", ShapeError, lambda xp: xp.ones((2, 2, 2)).T),
    Mistake("inv-not-square", ShapeError, lambda xp: xp.linalg.inv(xp.ones((2, 3)))),
    Mistake("det-vector", ShapeError, lambda xp: xp.linalg.det(xp.ones((3,)))),
    Mistake("solve-shapes", ShapeError, lambda xp: xp.linalg.solve(xp.ones((2, 2)), xp.ones((3,)))),
    Mistake(
        "tensordot-shapes",
        ShapeError,
        lambda xp: xp.tensordot(xp.ones((2, 3)), xp.ones((2, 3)), axes=1),
    ),
    Mistake("vecdot-shapes", ShapeError, lambda xp: xp.vecdot(xp.ones((2,)), xp.ones((3,)))),
    Mistake("mask-shape", OutOfBoundsError, lambda xp: xp.ones((3,))[xp.asarray([True, False])]),
    Mistake("set-shape", ShapeError, lambda xp: _set(xp, 0, xp.ones((2,)))),
    Mistake("in-place-shape", ShapeError, lambda xp: _in_place(xp, [1.0], [1.0, 2.0])),
    *map(
        _no_points,
        (
            "fft",
            "ifft",
            "rfft",
            "irfft",
            "hfft",
            "ihfft",
            "fftn",
            "ifftn",
            "rfftn",
            "irfftn",
            "fft2",
            "ifft2",
            "rfft2",
            "irfft2",
        ),
    ),
    *map(_one_point, ("irfft", "hfft", "irfftn", "irfft2")),
    # Axes
    Mistake(
        "sum-axis", AxisError, lambda xp: xp.sum(xp.ones((2, 3)), axis=2), ("ops.sum", "axis 2")
    ),
    Mistake("max-axis", AxisError, lambda xp: xp.max(xp.ones((2, 3)), axis=-3)),
    *(
        Mistake(f"{op}-of-nothing-{axis}", AxisError, run, (f"axis {axis}",))
        for op in ("max", "min", "amax", "amin", "nanmax", "nanmin")
        for axis in ((0, 0), (0, 2))
        for run in [lambda xp, op=op, axis=axis: getattr(xp, op)(xp.zeros((0,)), axis=axis)]
    ),
    Mistake("mean-twice", AxisError, lambda xp: xp.mean(xp.ones((2, 3)), axis=(0, 0))),
    Mistake("all-axis-0d", AxisError, lambda xp: xp.all(xp.ones(()), axis=0), ("ops.all", "0-d")),
    Mistake("argmax-axis", AxisError, lambda xp: xp.argmax(xp.ones((2,)), axis=1)),
    Mistake("sort-axis", AxisError, lambda xp: xp.sort(xp.ones((2,)), axis=1)),
    Mistake("concat-axis", AxisError, lambda xp: xp.concat([xp.ones((2,))], axis=1)),
    Mistake("expand-axis", AxisError, lambda xp: xp.expand_dims(xp.ones((2,)), axis=5)),
    Mistake("permute-twice", AxisError, lambda xp: xp.permute_dims(xp.ones((2, 3)), (0, 0))),
    Mistake("flip-axis", AxisError, lambda xp: xp.flip(xp.ones((2,)), axis=1)),
    Mistake("roll-axis", AxisError, lambda xp: xp.roll(xp.ones((2,)), 1, axis=1)),
    Mistake("fft-axis", AxisError, lambda xp: xp.fft.fft(xp.ones((4,)), axis=1)),
    # Indices
    Mistake(
        "index-beyond",
        OutOfBoundsError,
        lambda xp: xp.ones((2, 3))[2],
        ("index 2", "axis 0", "(2, 3)"),
    ),
    Mistake("index-before", OutOfBoundsError, lambda xp: xp.ones((2, 3))[0, -4]),
    Mistake("too-many-indices", OutOfBoundsError, lambda xp: xp.ones((2,))[0, 0]),
    Mistake("two-ellipses", OutOfBoundsError, lambda xp: xp.ones((2, 3))[..., ...]),
    Mistake("index-array-beyond", OutOfBoundsError, lambda xp: xp.ones((3,))[xp.asarray([0, 3])]),
    Mistake("set-beyond", OutOfBoundsError, lambda xp: _set(xp, 2, 0.0)),
    Mistake("set-array-beyond", OutOfBoundsError, lambda xp: _set(xp, xp.asarray([5]), 0.0)),
    Mistake(
        "take-beyond",
        OutOfBoundsError,
        lambda xp: xp.take(xp.ones((3,)), xp.asarray([3])),
        ("ops.take", "index 3"),
    ),
    Mistake("take-before", OutOfBoundsError, lambda xp: xp.take(xp.ones((3,)), xp.asarray([-4]))),
    Mistake(
        "take-along-beyond",
        OutOfBoundsError,
        lambda xp: xp.take_along_axis(xp.ones((3,)), xp.asarray([3])),
    ),
    # Dtypes
    Mistake(
        "float16-with-float32",
        DTypeError,
        lambda xp: xp.matmul(xp.ones((2, 2)), xp.ones((2, 2), dtype="float16")),
        ("ops.matmul", "float32", "float16", "astype"),
    ),
    Mistake(
        "bfloat16-with-float16",
        DTypeError,
        lambda xp: xp.ones(2, dtype="bfloat16") + xp.ones(2, dtype="float16"),
    ),
    Mistake(
        "uint64-with-int64",
        DTypeError,
        lambda xp: xp.ones(2, dtype="uint64") + xp.ones(2, dtype="int64"),
        ("uint64", "int64"),
    ),
    Mistake("subtract-bools", DTypeError, lambda xp: xp.subtract(True, xp.asarray([True]))),
    Mistake("negative-bool", DTypeError, lambda xp: -xp.asarray([True])),
    Mistake("invert-float", DTypeError, lambda xp: ~xp.ones(2), ("ops.bitwise_invert", "float32")),
    Mistake("shift-float", DTypeError, lambda xp: xp.ones(2) << 1),
    Mistake("less-complex", DTypeError, lambda xp: xp.asarray([1j]) < xp.asarray([2j])),
    Mistake("sort-complex", DTypeError, lambda xp: xp.sort(xp.asarray([1j]))),
    Mistake("floor-complex", DTypeError, lambda xp: xp.floor(xp.asarray([1j]))),
    Mistake(
        "cholesky-float16",
        DTypeError,
        lambda xp: xp.linalg.cholesky(xp.ones((1, 1), dtype="float16")),
    ),
    Mistake("float-of-complex", DTypeError, lambda xp: float(xp.asarray(1j))),
    Mistake("complex-to-float", DTypeError, lambda xp: xp.astype(xp.asarray([1j]), "float32")),
    Mistake("float-index", DTypeError, lambda xp: xp.ones((2,))[1.0]),
    Mistake("float-index-array", DTypeError, lambda xp: xp.ones((2,))[xp.asarray([0.0])]),
    Mistake("take-float", DTypeError, lambda xp: xp.take(xp.ones((2,)), xp.asarray([0.0]))),
    Mistake("index-of-float", DTypeError, lambda xp: [1, 2][xp.ones(())]),
    Mistake("unknown-dtype", DTypeError, lambda xp: xp.zeros(2, dtype="float8"), ("float8",)),
    Mistake("strings", DTypeError, lambda xp: xp.asarray(["a"])),
    Mistake("objects", DTypeError, lambda xp: xp.asarray([object()])),
    Mistake("add-none", DTypeError, lambda xp: xp.add(xp.ones(2), None)),
    Mistake("set-float-in-int", DTypeError, lambda xp: _set(xp, 0, 1.5, dtype="int32")),
    Mistake(
        "set-float64-in-float32",
        DTypeError,
        lambda xp: _set(xp, 0, xp.ones((3,), dtype="float64")),
        ("float64", "float32"),
    ),
    Mistake("in-place-dtype", DTypeError, lambda xp: _in_place(xp, [1], [1.5])),
    Mistake("finfo-int", DTypeError, lambda xp: xp.finfo("int8")),
    Mistake("iinfo-float", DTypeError, lambda xp: xp.iinfo("float32")),
    Mistake("axis-float", DTypeError, lambda xp: xp.sort(xp.ones(2), axis=0.5)),
    # Values
    Mistake(
        "floor-divide-zero",
        IntegerDivisionError,
        lambda xp: xp.asarray([1, 2]) // xp.asarray([1, 0]),
        ("floor_divide",),
    ),
    Mistake("remainder-zero", IntegerDivisionError, lambda xp: xp.asarray([1, 2]) % 0),
    Mistake("negative-power", DomainError, lambda xp: xp.asarray([2]) ** xp.asarray([-1])),
    Mistake(
        "scalar-range", DomainError, lambda xp: xp.ones(2, dtype="uint8") + 300, ("300", "uint8")
    ),
    Mistake("list-range", DomainError, lambda xp: xp.asarray([300], dtype="uint8")),
    Mistake("full-range", DomainError, lambda xp: xp.full((2,), -1, dtype="uint8")),
    Mistake("arange-infinite", DomainError, lambda xp: xp.arange(0, float("inf")), ("ops.arange",)),
    Mistake("arange-nan", DomainError, lambda xp: xp.arange(float("nan")), ("ops.arange", "nan")),
    Mistake("eye-diagonal", DTypeError, lambda xp: xp.eye(3, k=1.5), ("ops.eye", "1.5")),
    Mistake("arange-step", DomainError, lambda xp: xp.arange(0, 3, 0)),
    Mistake("linspace-count", DomainError, lambda xp: xp.linspace(0, 1, -1)),
    Mistake("repeat-negative", DomainError, lambda xp: xp.repeat(xp.ones(2), -1)),
    Mistake(
        "searchsorted-side", DomainError, lambda xp: xp.searchsorted(xp.ones(2), 1.0, side="up")
    ),
    Mistake("norm-name", DomainError, lambda xp: xp.linalg.matrix_norm(xp.ones((2, 2)), ord="max")),
    *(
        Mistake(f"vector-norm-{ord}", error, run, ("ops.linalg.vector_norm", repr(ord)))
        for ord, error in (("fro", DomainError), ("a", DomainError), ([1], DTypeError))
        for run in [lambda xp, ord=ord: xp.linalg.vector_norm(xp.ones(2), ord=ord)]
    ),
    Mistake("fft-axes-number", DTypeError, lambda xp: xp.fft.fftn(xp.ones((2, 2)), axes=1)),
    Mistake("fft-s-number", DTypeError, lambda xp: xp.fft.fft2(xp.ones((2, 2)), s=1)),
    Mistake("fft2-vector", AxisError, lambda xp: xp.fft.fft2(xp.ones(2)), ("ops.fft.fft2",)),
    Mistake(
        "rfft2-complex",
        DTypeError,
        lambda xp: xp.fft.rfft2(xp.ones((2, 2), dtype="complex64")),
        ("ops.fft.rfft2",),
    ),
    Mistake("fftfreq-spacing", DTypeError, lambda xp: xp.fft.fftfreq(4, d="a"), ("fft.fftfreq",)),
    Mistake("fft-norm", DomainError, lambda xp: xp.fft.fft(xp.ones(2), norm="none")),
    Mistake("asarray-no-copy", CopyError, lambda xp: xp.asarray([1, 2], copy=False)),
    # Linear algebra
    Mistake("inv-singular", LinAlgError, lambda xp: xp.linalg.inv(xp.ones((2, 2)))),
    Mistake(
        "solve-singular", LinAlgError, lambda xp: xp.linalg.solve(xp.ones((2, 2)), xp.ones((2,)))
    ),
    Mistake(
        "cholesky-indefinite",
        LinAlgError,
        lambda xp: xp.linalg.cholesky(xp.asarray([[1.0, 2.0], [2.0, 1.0]])),
        ("ops.linalg.cholesky got a matrix that is not positive definite",),
    ),
    *map(_not_finite, ("cholesky", "eig", "eigh", "eigvals", "eigvalsh", "svd", "svdvals")),
    # Devices
    Mistake("no-device", DeviceError, lambda xp: xp.zeros(2, device="quantum:7"), ("quantum:7",)),
    Mistake("no-device-move", DeviceError, lambda xp: xp.zeros(2).to_device("cpu:99")),
)

MISTAKES: Final[tuple[Mistake, ...]] = (
    *_STANDARD,
    *cases_stats.MISTAKES,
    *cases_decompositions.MISTAKES,
    *cases_everyday.MISTAKES,
    *cases_network.MISTAKES,
    *cases_signal.MISTAKES,
    *cases_losses.MISTAKES,
    *cases_random.MISTAKES,
    *cases_control.MISTAKES,
)
