"""Programs with markers that type checkers accept, and what they infer of them."""

from __future__ import annotations

from typing import Any, TypeVar, assert_type

import numpy as np

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.nn import tensor
from ember_ml.typing import (
    AnyRank,
    BFloat16,
    Bool,
    Complex64,
    Complex128,
    Cpu,
    Cuda,
    DeviceMarker,
    DTypeMarker,
    Float16,
    Float32,
    Float64,
    Gpu,
    Int8,
    Int16,
    Int32,
    Int64,
    Mps,
    Rank0,
    Rank1,
    Rank2,
    Rank3,
    Rank4,
    RankMarker,
    UInt8,
    UInt64,
)

Scalar = Tensor[Float32, Cpu, Rank0]
Vector = Tensor[Float32, Cpu, Rank1]
Matrix = Tensor[Float32, Cpu, Rank2]
Cube = Tensor[Float32, Cpu, Rank3]

D = TypeVar("D", bound=DTypeMarker)
V = TypeVar("V", bound=DeviceMarker)
R = TypeVar("R", bound=RankMarker)


# --- Functions with bodies ------------------------------------------------------------------


def linear(x: Matrix, weight: Matrix, bias: Vector) -> Matrix:
    return x @ weight.T + bias


def predict(x: Matrix, weight: Matrix, bias: Vector) -> Tensor[Int64, Cpu, Rank1]:
    return linear(x, weight, bias).argmax(axis=1)


def normalise(x: Matrix) -> Matrix:
    centred = x - x.mean(axis=0)
    return centred / (x.std(axis=0) + 1e-6)


def row_norms(x: Matrix) -> Vector:
    return (x * x).sum(axis=1).sqrt()


def loss(x: Matrix, y: Matrix) -> Scalar:
    return ops.mean(ops.square(ops.subtract(x, y)))


def softmax(x: Tensor[D, V, R]) -> Tensor[D, V, R]:
    """Any dtype, device and rank, and the same of the result."""
    shifted = x - x.max(axis=-1, keepdims=True)
    exponents = shifted.exp()
    return exponents / exponents.sum(axis=-1, keepdims=True)


def on_gpu(x: Tensor[Float32, Cpu, R]) -> Tensor[Float16, Cuda, R]:
    return x.to("cuda:0").astype(em.float16)


def first_rows(batch: Cube) -> Matrix:
    return batch.select(1, 0)


def trace(x: Matrix) -> Tensor[Float32, Cpu, Rank0]:
    return (x * ops.eye(3)).sum()


def sum_of_rows(x: Matrix) -> Vector:
    total = ops.zeros((3,))
    for row in x:
        assert_type(row, Vector)
        total = total + row
    return total


# --- Operators ------------------------------------------------------------------------------


def arithmetic(s: Scalar, v: Vector, m: Matrix, c: Cube) -> None:
    assert_type(m + m, Matrix)
    assert_type(m - v, Matrix)
    assert_type(v - m, Matrix)
    assert_type(s * c, Cube)
    assert_type(c * s, Cube)
    assert_type(m // v, Matrix)
    assert_type(v % m, Matrix)
    assert_type(m**2, Matrix)
    assert_type(m / v, Matrix)
    assert_type(v / m, Matrix)
    assert_type(-m, Matrix)
    assert_type(+m, Matrix)
    assert_type(abs(m), Matrix)
    assert_type(round(m), Matrix)
    assert_type(1 + m, Matrix)
    assert_type(m * 0.5, Matrix)
    assert_type(2.0 / m, Matrix)
    assert_type(True * m, Matrix)
    m += v
    m *= 2.0
    m /= s
    assert_type(m, Matrix)


def promotion(
    b: Tensor[Bool, Cpu, Rank1],
    i8: Tensor[Int8, Cpu, Rank1],
    u8: Tensor[UInt8, Cpu, Rank1],
    i16: Tensor[Int16, Cpu, Rank1],
    i64: Tensor[Int64, Cpu, Rank1],
    u64: Tensor[UInt64, Cpu, Rank1],
    f16: Tensor[Float16, Cpu, Rank1],
    bf16: Tensor[BFloat16, Cpu, Rank1],
    f32: Tensor[Float32, Cpu, Rank1],
    f64: Tensor[Float64, Cpu, Rank1],
    c64: Tensor[Complex64, Cpu, Rank1],
) -> None:
    assert_type(i8 + i16, Tensor[Int16, Cpu, Rank1])
    assert_type(u8 + i16, Tensor[Int16, Cpu, Rank1])
    assert_type(u8 + u64, Tensor[UInt64, Cpu, Rank1])
    assert_type(b * i8, Tensor[Int8, Cpu, Rank1])
    assert_type(i64 + f16, Tensor[Float16, Cpu, Rank1])
    assert_type(bf16 - u64, Tensor[BFloat16, Cpu, Rank1])
    assert_type(f32 + f64, Tensor[Float64, Cpu, Rank1])
    assert_type(f64 + f32, Tensor[Float64, Cpu, Rank1])
    assert_type(f32 * c64, Tensor[Complex64, Cpu, Rank1])
    assert_type(i64 / i64, Tensor[Float32, Cpu, Rank1])
    assert_type(i64 / 2, Tensor[Float32, Cpu, Rank1])
    assert_type(f64 / i8, Tensor[Float64, Cpu, Rank1])
    # Python scalars are weak.
    assert_type(f16 * 2.5, Tensor[Float16, Cpu, Rank1])
    assert_type(i8 + 1, Tensor[Int8, Cpu, Rank1])
    assert_type(i8 + 0.5, Tensor[Float32, Cpu, Rank1])
    assert_type(b + 1, Tensor[Int64, Cpu, Rank1])
    assert_type(b & True, Tensor[Bool, Cpu, Rank1])
    assert_type(f64 * 1j, Tensor[Complex128, Cpu, Rank1])
    assert_type(i8 * 1j, Tensor[Complex64, Cpu, Rank1])
    f64 += f32
    assert_type(c64.real, Tensor[Float32, Cpu, Rank1])
    assert_type(abs(c64), Tensor[Float32, Cpu, Rank1])
    assert_type(i16.imag, Tensor[Int16, Cpu, Rank1])


def comparison(v: Vector, m: Matrix, d: Tensor[Float64, Cpu, Rank2]) -> None:
    assert_type(m > v, Tensor[Bool, Cpu, Rank2])
    assert_type(v > m, Tensor[Bool, Cpu, Rank2])
    assert_type(v == m, Tensor[Bool, Cpu, Rank2])
    assert_type(m != d, Tensor[Bool, Cpu, Rank2])
    assert_type(m <= 0, Tensor[Bool, Cpu, Rank2])
    assert_type((m > 0) & (d > 0), Tensor[Bool, Cpu, Rank2])


def products(v: Vector, m: Matrix, c: Cube, d: Tensor[Float64, Cpu, Rank2]) -> None:
    assert_type(m @ m, Matrix)
    assert_type(m @ v, Vector)
    assert_type(v @ m, Vector)
    assert_type(v @ v, Scalar)
    assert_type(c @ m, Cube)
    assert_type(m @ c, Cube)
    assert_type(c @ v, Matrix)
    assert_type(m @ d, Tensor[Float64, Cpu, Rank2])
    assert_type(m.matmul(v), Vector)
    assert_type(ops.matmul(m, m), Matrix)
    assert_type(ops.matmul(m, v), Vector)
    assert_type(ops.matmul(v, c), Matrix)
    assert_type(ops.matmul(v, v), Scalar)
    assert_type(ops.matmul(m, c), Cube)
    assert_type(ops.matmul(d, m), Tensor[Float64, Cpu, Rank2])


# --- Indexing and shape ---------------------------------------------------------------------


def indexing(v: Vector, m: Matrix, c: Cube, mask: Tensor[Bool, Cpu, Rank2]) -> None:
    assert_type(c[0], Matrix)
    assert_type(c[0][0], Vector)
    assert_type(v[-1], Scalar)
    assert_type(m[1:3], Matrix)
    assert_type(m[...], Matrix)
    assert_type(m[:, 1:], Matrix)
    assert_type(m[:, 0], Vector)
    assert_type(m[0, ...], Vector)
    assert_type(c[0, 0], Vector)
    assert_type(m[None], Cube)
    assert_type(v[:, None], Matrix)
    assert_type(c[:, 0, :], Tensor[Float32, Cpu, AnyRank])
    assert_type(m[mask], Tensor[Float32, Cpu, AnyRank])
    assert_type(m[[0, 1]], Tensor[Float32, Cpu, AnyRank])
    assert_type(m.select(0, 1), Vector)
    assert_type(m.clone(), Matrix)
    assert_type(m.alias(), Matrix)
    assert_type(m.flip(0), Matrix)
    assert_type(m.permute(1, 0), Matrix)
    assert_type(m.narrow(0, 0, 1), Matrix)
    assert_type(m.slice(0).dtype, em.DType[Float32])
    assert_type(m.narrow(1, 0, 2), Matrix)
    m[0] = v
    m[:, 0] = 1.0
    m[0, 0] = 1


def shapes(v: Vector, m: Matrix) -> None:
    assert_type(m.T, Matrix)
    assert_type(m.mT, Matrix)
    assert_type(m.transpose(), Matrix)
    assert_type(m.swapaxes(0, 1), Matrix)
    assert_type(m.flatten(), Vector)
    assert_type(m.reshape(-1), Vector)
    assert_type(m.reshape(1, 3, -1), Cube)
    assert_type(m.reshape((1, 3, 1, 3)), Tensor[Float32, Cpu, Rank4])
    assert_type(m.expand_dims(0), Cube)
    assert_type(m[:1].squeeze(0), Vector)
    assert_type(m.squeeze(), Tensor[Float32, Cpu, AnyRank])
    assert_type(m.copy(), Matrix)
    assert_type(m.detach(), Matrix)
    assert_type(m.sort(), Matrix)
    assert_type(m.argsort(), Tensor[Int64, Cpu, Rank2])
    assert_type(m.clip(0, v), Matrix)
    assert_type(ops.flip(m), Matrix)
    assert_type(ops.permute_dims(m, (1, 0)), Matrix)
    assert_type(ops.concat([m, m], axis=1), Matrix)
    assert_type(ops.stack([v, v]), Matrix)


def reductions(s: Scalar, m: Matrix, i: Tensor[Int32, Cuda, Rank3], axes: tuple[int, ...]) -> None:
    assert_type(m.sum(), Scalar)
    assert_type(m.sum(axis=0), Vector)
    assert_type(m.max(1), Vector)
    assert_type(m.mean(axis=0, keepdims=True), Matrix)
    assert_type(m.mean(axis=(0, 1)), Tensor[Float32, Cpu, AnyRank])
    assert_type(m.min(axes), Tensor[Float32, Cpu, AnyRank])
    assert_type(i.sum(), Tensor[Int64, Cuda, Rank0])
    assert_type(i.mean(axis=2), Tensor[Float32, Cuda, Rank2])
    assert_type(i.var(correction=1), Tensor[Float32, Cuda, Rank0])
    assert_type(i.prod(dtype=em.float64), Tensor[Float64, Cuda, AnyRank])
    assert_type(m.any(axis=0), Tensor[Bool, Cpu, Rank1])
    assert_type(m.argmax(axis=0), Tensor[Int64, Cpu, Rank1])
    assert_type(s.sum(), Scalar)
    assert_type(m.cumulative_sum(axis=0), Matrix)
    assert_type(ops.sum(m), Scalar)
    assert_type(ops.sum(m, axis=0), Vector)
    assert_type(ops.mean(i, axis=0), Tensor[Float32, Cuda, Rank2])
    assert_type(ops.max(m, axis=0, keepdims=True), Matrix)
    assert_type(ops.std(m, axis=0, correction=1), Vector)
    assert_type(ops.all(m), Tensor[Bool, Cpu, Rank0])
    assert_type(ops.argmax(m, axis=0), Tensor[Int64, Cpu, Rank1])
    assert_type(ops.sum(i, dtype=em.float32), Tensor[Float32, Cuda, AnyRank])


# --- Ops ------------------------------------------------------------------------------------


def functions(
    v: Vector, m: Matrix, i: Tensor[Int64, Cpu, Rank2], d: Tensor[Float64, Cpu, Rank1]
) -> None:
    assert_type(ops.exp(m), Matrix)
    assert_type(ops.exp(i), Tensor[Float32, Cpu, Rank2])
    assert_type(i.exp(), Tensor[Float32, Cpu, Rank2])
    assert_type(ops.isnan(m), Tensor[Bool, Cpu, Rank2])
    assert_type(ops.abs(m), Matrix)
    assert_type(ops.add(m, v), Matrix)
    assert_type(ops.add(v, m), Matrix)
    assert_type(ops.multiply(v, d), Tensor[Float64, Cpu, Rank1])
    assert_type(ops.add(m, 1), Matrix)
    assert_type(ops.add(1, i), Tensor[Int64, Cpu, Rank2])
    assert_type(ops.multiply(i, 0.5), Tensor[Float32, Cpu, Rank2])
    assert_type(ops.divide(i, i), Tensor[Float32, Cpu, Rank2])
    assert_type(ops.divide(m, i), Matrix)
    assert_type(ops.less(v, m), Tensor[Bool, Cpu, Rank2])
    assert_type(ops.logical_and(m > 0, m < 1), Tensor[Bool, Cpu, Rank2])
    assert_type(ops.where(m > 0, m, v), Tensor[Float32, Cpu, AnyRank])
    assert_type(ops.clip(m, 0, 1), Matrix)
    assert_type(ops.zeros_like(m), Matrix)
    assert_type(ops.zeros_like(m, dtype=em.int8), Tensor[Int8, Cpu, Rank2])
    # Arrays and lists say nothing of their dtype and rank.
    assert_type(ops.add(m, [1.0, 2.0, 3.0]), Tensor[Any, Cpu, AnyRank])
    assert_type(m + np.ones(3), Tensor[Any, Cpu, AnyRank])


def creation() -> None:
    assert_type(ops.zeros((2, 3)), Tensor[Float32, Any, Rank2])
    assert_type(ops.ones(3), Tensor[Float32, Any, Rank1])
    assert_type(ops.zeros((), dtype=em.int8), Tensor[Int8, Any, Rank0])
    assert_type(ops.zeros((2, 3), dtype="int8"), Tensor)
    assert_type(tensor.zeros((1, 2, 3), dtype=tensor.float16), Tensor[Float16, Any, Rank3])
    assert_type(ops.eye(3, dtype=em.float64), Tensor[Float64, Any, Rank2])
    assert_type(tensor.array([1.0], dtype=tensor.float16), Tensor[Float16])
    assert_type(ops.asarray([1.0]), Tensor)
    assert_type(Tensor([1.0]), Tensor)
    made: Matrix = Tensor([[1.0]])
    assert_type(made.dtype, em.DType[Float32])


# --- Moving ---------------------------------------------------------------------------------


def moving(m: Matrix, name: str) -> None:
    assert_type(m.to_device("cuda"), Tensor[Float32, Cuda, Rank2])
    assert_type(m.to_device("cuda:1"), Tensor[Float32, Cuda, Rank2])
    assert_type(m.to_device("mps"), Tensor[Float32, Mps, Rank2])
    assert_type(m.to_device("gpu"), Tensor[Float32, Gpu, Rank2])
    assert_type(m.to_device(name), Tensor[Float32, Any, Rank2])
    assert_type(m.to("cuda:0"), Tensor[Float32, Cuda, Rank2])
    assert_type(m.to("cuda:0").to("cpu"), Matrix)
    assert_type(m.to(em.float16), Tensor[Float16, Cpu, Rank2])
    assert_type(m.to("float16"), Tensor[Any, Any, Rank2])
    assert_type(m.to_backend("torch"), Tensor[Float32, Any, Rank2])
    assert_type(m.astype(tensor.float16), Tensor[Float16, Cpu, Rank2])
    assert_type(m.cast(em.bfloat16), Tensor[BFloat16, Cpu, Rank2])
    assert_type(m.astype("float16"), Tensor[Any, Cpu, Rank2])
    assert_type(m.astype(m.astype(em.int8).dtype), Tensor[Int8, Cpu, Rank2])
    assert_type(ops.astype(m, em.complex64), Tensor[Complex64, Cpu, Rank2])


def gpus(g: Tensor[Float32, Gpu, Rank1], c: Tensor[Float32, Cuda, Rank1]) -> None:
    assert_type(g + c, Tensor[Float32, Gpu, Rank1])
    assert_type(c + g, Tensor[Float32, Gpu, Rank1])


def open_places(x: Tensor[Float32], y: Tensor[Float32, Cpu], m: Matrix) -> Matrix:
    """Markers that are left out fit everything."""
    assert_type(x, Tensor[Float32, Any, Any])
    assert_type(y, Tensor[Float32, Cpu, Any])
    x = m
    y = m
    return x + y
