"""Programs without markers: nothing asks for them, and nothing is refused for their absence."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any, assert_type

import numpy as np

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.nn import tensor
from ember_ml.typing import Bool, Cpu, Float32, Numeric, Rank2, Shape, ShapeLike, TensorLike

Matrix = Tensor[Float32, Cpu, Rank2]


def scale(x: Tensor, by: Numeric = 2) -> Tensor:
    return x * by


def reshaped(x: TensorLike, shape: ShapeLike) -> Tensor:
    return ops.reshape(x, shape)


def sides(x: Tensor) -> Shape:
    return x.shape


def operators(x: Tensor, array: np.ndarray[Any, Any], anything: Any) -> None:
    assert_type(x + x, Tensor)
    assert_type(x + 1, Tensor)
    assert_type(x + array, Tensor)
    assert_type(x + [1, 2], Tensor)
    assert_type(x / 2, Tensor)
    assert_type(x @ x, Tensor)
    assert_type(x @ array, Tensor)
    assert_type(x > array, Tensor[Bool])
    assert_type(-x, Tensor)
    x += array
    x @= x
    x = x + anything
    x = anything @ x


def methods(x: Tensor, axis: int | None, several: tuple[int, ...], keep: bool) -> None:
    assert_type(x.T, Tensor[Any, Any, Rank2])
    assert_type(x[0], Tensor)
    assert_type(x[0, :, None], Tensor)
    assert_type(x[x > 0], Tensor)
    assert_type(x[np.arange(3)], Tensor)
    assert_type(x.select(0, 1), Tensor)
    assert_type(x.sum(axis=0), Tensor)
    assert_type(x.sum(axis, keepdims=keep), Tensor)
    assert_type(x.mean(several), Tensor)
    assert_type(x.var(axis=0, correction=1, keepdims=keep), Tensor)
    assert_type(x.reshape(2, -1), Tensor[Any, Any, Rank2])
    assert_type(x.reshape(x.shape), Tensor)
    assert_type(x.reshape([2, 3]), Tensor)
    assert_type(x.astype("int8"), Tensor)
    assert_type(x.astype(np.float32), Tensor)
    assert_type(x.to("cpu").to(em.float64).numpy(), np.ndarray[Any, Any])
    x[0] = array_of(x)
    x[1:] = 0
    for row in x:
        assert_type(row, Tensor)
    first, *_ = x
    assert_type(first, Tensor)
    if x.sum() > 0 and x.all():
        x = x.copy()


def array_of(x: Tensor) -> np.ndarray[Any, Any]:
    return np.asarray(x)


def functions(x: Tensor, array: np.ndarray[Any, Any]) -> None:
    assert_type(ops.add(x, array), Tensor)
    assert_type(ops.add(array, x), Tensor)
    assert_type(ops.add([1], [2]), Tensor)
    assert_type(ops.exp(array), Tensor)
    assert_type(ops.exp(1.0), Tensor)
    assert_type(ops.where(x > 0, x, 0), Tensor)
    assert_type(ops.where(array, 1, [0]), Tensor)
    assert_type(ops.matmul(x, array), Tensor)
    assert_type(ops.concat([x, array]), Tensor)
    assert_type(ops.stack([x, x]), Tensor)
    assert_type(ops.stack(list(x)), Tensor)
    assert_type(ops.sum(x, axis=(0, 1)), Tensor)
    assert_type(ops.linalg.inv(x), Tensor)
    assert_type(ops.full((2,), 1.0), Tensor)
    assert_type(ops.asarray(array, dtype="float32"), Tensor)
    assert_type(tensor.convert_to_tensor([1, 2], requires_grad=True), Tensor)


def as_values(xs: Iterable[Tensor]) -> list[Tensor]:
    """Methods as functions, as in NumPy."""
    return [*map(Tensor.exp, xs), *map(Tensor.sum, xs), *map(ops.exp, xs), *map(ops.sum, xs)]


def builtins(xs: list[Tensor]) -> None:
    """Functions of Python that ask for operators."""
    total = sum(xs)
    assert total is not None
    assert_type(max(xs), Tensor)
    assert_type(sorted(xs), list[Tensor])
    assert_type(abs(xs[0]), Tensor)
    assert_type(list(xs[0]), list[Tensor])
    assert_type(functools.reduce(operator.add, xs), Tensor)
    both = [x + y for x, y in zip(xs[0], xs[1], strict=True)]
    assert_type(both, list[Tensor])
    mask = (xs[0] > 0) * 0.5
    mask += np.ones(3)
    assert_type(dict(enumerate(xs[0])), dict[int, Tensor])


def dtypes() -> None:
    for dtype in (em.float32, em.float64, em.int8):
        x = ops.zeros((2,), dtype=dtype)
        assert x.dtype == dtype
        assert (x + x).shape == (2,)
        assert ops.multiply(x, x).shape == (2,)
        assert (x @ x > 0).shape == ()
    for one in (em.float16, em.bfloat16, em.uint64):
        for shape in ((2,), (2, 2)):
            y = ops.ones(shape, dtype=one)
            y += 1
            assert (y / y - y).shape == shape
    chosen: em.DType = em.float16
    assert_type(ops.ones(3, dtype=chosen).dtype, em.DType)


def mixed(plain: Tensor, marked: Matrix) -> Matrix:
    """A plain tensor goes wherever a marked one is asked for, and back."""
    assert_type(plain @ marked, Tensor)
    scale(marked)
    back: Tensor = marked
    marked = plain
    return marked + back


class Model:
    """A class of a user that holds tensors."""

    def __init__(self) -> None:
        self.weight = ops.zeros((3, 3))
        self.bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        out = x @ self.weight.T
        return out if self.bias is None else out + self.bias


def narrowed(value: object) -> Tensor:
    if isinstance(value, Tensor):
        return value + 1
    return ops.asarray(value)
