"""Mistakes that both type checkers must report: each on a line that ends with `# error`."""

from __future__ import annotations

from typing import TypeVar

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.typing import (
    BFloat16,
    Bool,
    Cpu,
    Cuda,
    Float16,
    Float32,
    Float64,
    Int64,
    Mps,
    Rank0,
    Rank1,
    Rank2,
    Rank3,
    RankMarker,
    UInt64,
)

Scalar = Tensor[Float32, Cpu, Rank0]
Vector = Tensor[Float32, Cpu, Rank1]
Matrix = Tensor[Float32, Cpu, Rank2]
Cube = Tensor[Float32, Cpu, Rank3]
OnCuda = Tensor[Float32, Cuda, Rank2]
OnMps = Tensor[Float32, Mps, Rank2]
Half = Tensor[Float16, Cpu, Rank2]
Double = Tensor[Float64, Cpu, Rank2]
Indices = Tensor[Int64, Cpu, Rank2]

R = TypeVar("R", bound=RankMarker)


def product(x: Matrix, y: Matrix) -> Matrix:
    return ops.matmul(x, y)


def two_devices(m: Matrix, c: OnCuda, p: OnMps) -> None:
    m + c  # error
    c - m  # error
    m @ c  # error
    m < c  # error
    c == m  # error
    c * p  # error
    m += c  # error
    m[0] = c[0]  # error
    ops.add(m, c)  # error
    ops.divide(c, m)  # error
    ops.matmul(m, c)  # error
    ops.less(m, c)  # error
    ops.maximum(c, p)  # error
    ops.where(m > 0, c, c)  # error
    m.clip(c, 1)  # error
    product(m, c)  # error
    product(m, m.to_device("cuda"))  # error
    product(m, c.to("cuda:1"))  # error
    product(m, c.to("cpu"))
    kept: OnCuda = m  # error
    moved: OnCuda = m.to("cuda")


def two_dtypes(m: Matrix, h: Half, d: Double, b: Tensor[BFloat16, Cpu, Rank2]) -> None:
    m + h  # error
    h * m  # error
    h / b  # error
    h @ m  # error
    m == h  # error
    h += m  # error
    m += d  # error
    h[0] = m[0]  # error
    ops.add(m, h)  # error
    ops.multiply(h, d)  # error
    ops.matmul(h, m)  # error
    ops.equal(m, h)  # error
    ops.hypot(m, h)  # error
    ops.where(m > 0, m, h)  # error
    product(m, h)  # error
    product(m, m.astype(em.float16))  # error
    product(m, h.astype(em.float32))
    product(m, ops.zeros((2, 2), dtype=em.float16))  # error
    product(m, ops.zeros((2, 2), dtype=em.float32))
    made: Half = ops.zeros((2, 2))  # error
    h + ops.ones((2,))  # error
    product(m, d)  # error
    product(m, m * 1j)  # error
    wide: Matrix = m + d  # error
    narrow: Matrix = ops.add(m, d)  # error


def integers(i: Indices, u: Tensor[UInt64, Cpu, Rank2], b: Tensor[Bool, Cpu, Rank2]) -> None:
    i + u  # error
    i += 0.5  # error
    b += 1  # error
    whole: Indices = i / 2  # error
    mean: Tensor[Int64, Cpu, Rank0] = i.mean()  # error
    more: Indices = ops.exp(i)  # error
    truth: Indices = i > 0  # error


def wrong_ranks(s: Scalar, v: Vector, m: Matrix, c: Cube) -> None:
    product(m, v)  # error
    product(c, m)  # error
    product(m, m[0])  # error
    product(c[0], m[None])  # error
    product(m, m.sum(axis=0))  # error
    product(m, m.select(0, 1))  # error
    product(m, c.select(0, 1))
    product(m, c.narrow(0, 1, 2))  # error
    product(m, ops.zeros((2, 2, 2)))  # error
    product(m, m @ v)  # error
    v.T  # error
    c.T  # error
    v.mT  # error
    s.select(0, 0)  # error
    s[0]  # error
    s.sum(axis=0)  # error
    s @ m  # error
    m @ s  # error
    ops.matmul(s, m)  # error
    for _ in s:  # error
        pass
    lower: Vector = c[0]  # error
    higher: Cube = m[0]  # error
    same: Vector = m[1:3]  # error
    total: Vector = m.sum()  # error
    over_one: Scalar = ops.sum(m, axis=0)  # error
    kept: Vector = m.mean(axis=0, keepdims=True)  # error
    raised: Matrix = m + c  # error
    flat: Matrix = m.flatten()  # error
    reshaped: Matrix = m.reshape(2, 3, 4)  # error
    stacked = ops.stack([m, m])
    product(m, stacked)  # error
    v += m  # error


def returned(x: Matrix) -> Vector:
    return x  # error


def summed(x: Cube) -> Vector:
    return x.sum(axis=0)  # error


def moved(x: Matrix) -> Matrix:
    return x.to_device("cuda:0")  # error


def any_rank(x: Tensor[Float32, Cpu, R]) -> Tensor[Float32, Cpu, R]:
    x.select(0, 0)  # error
    return x.sum()  # error


def markers_out_of_place(x: Tensor[Cpu, Float32, Rank2]) -> None:  # error
    pass


def four_markers(x: Tensor[Float32, Cpu, Rank2, Rank2]) -> None:  # error
    pass


def arguments(m: Matrix) -> None:
    m.select(0)  # error
    m.select("rows", 1)  # error
    m.sum(axes=0)  # error
    m.mean(dtype=em.float32)  # error
    m.to_device(0)  # error
