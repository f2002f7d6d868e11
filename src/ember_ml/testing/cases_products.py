"""Products, Einstein's notation, and bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES", "PRODUCTS"]

_ONCE: Final = (dtypes.float32,)
_SOME: Final = (dtypes.bool, dtypes.int8, dtypes.uint32, dtypes.float16, dtypes.complex64)


def _of(*shapes: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [
        tuple(sample(f"factor{i}{s}", s, dtype, -3, 3) for i, s in enumerate(shapes))
    ]


def _count(x: Array) -> Array:
    """Truth values count as integers."""
    return x.astype(np.int64) if x.dtype == bool else x


def _product(
    name: str,
    *shapes: tuple[int, ...],
    label: str = "",
    over: tuple[DType, ...] | None = None,
) -> Case:
    reference = getattr(np, name)
    return Case(
        name,
        lambda xp, a, b: getattr(xp, name)(a, b),
        lambda a, b: reference(_count(a), _count(b)),
        _of(*shapes),
        accepted(name) if over is None else over,
        law(name),
        ulps=64,
        label=label,
    )


_NAMED: Final = (
    _product("dot", (2, 3), (3, 2)),
    _product("dot", (3,), (3,), label="vectors", over=_ONCE),
    _product("dot", (2, 2, 3), (4, 3, 2), label="stacks", over=_ONCE),
    _product("dot", (2, 2, 3), (3,), label="stack-vector", over=_ONCE),
    _product("dot", (), (2, 3), label="0d", over=_ONCE),
    _product("dot", (2, 0), (0, 3), label="empty", over=_ONCE),
    _product("inner", (2, 3), (4, 3)),
    _product("inner", (3,), (3,), label="vectors", over=_ONCE),
    _product("inner", (2, 3), (), label="0d", over=_ONCE),
    _product("outer", (2, 2), (3,)),
    _product("outer", (), (0,), label="empty", over=_ONCE),
    _product("vdot", (2, 3), (2, 3)),
    _product("vdot", (0,), (0,), label="empty", over=_ONCE),
    _product("matvec", (2, 2, 3), (3,)),
    _product("matvec", (2, 3), (4, 3), label="stack", over=_ONCE),
    _product("vecmat", (2, 3), (3, 2)),
    _product("vecmat", (4, 3), (4, 3, 2), label="stack", over=_ONCE),
)


def _einsum(text: str, *shapes: tuple[int, ...], over: tuple[DType, ...] = _ONCE) -> Case:
    def expect(*arrays: Array) -> Any:
        counted = [_count(x) for x in arrays]
        return np.einsum(text, *counted, dtype=counted[0].dtype, casting="unsafe")

    return Case("einsum", lambda xp, *xs: xp.einsum(text, *xs), expect, _of(*shapes), over,
                law("einsum"), ulps=64, label=text)  # fmt: skip


_NOTATION: Final = (
    _einsum("ij,jk->ik", (2, 3), (3, 4), over=accepted("einsum")),
    _einsum("ij,jk", (2, 3), (3, 4)),
    _einsum("ba", (2, 3)),
    _einsum("ii", (3, 3), over=_SOME),
    _einsum("ii->i", (3, 3), over=_SOME),
    _einsum("iij,jii->ij", (2, 2, 3), (3, 2, 2)),
    _einsum("iii", (2, 2, 2)),
    _einsum("ij->", (2, 3), over=_SOME),
    _einsum("ij->ji", (2, 3)),
    _einsum("i,j->ij", (2,), (3,), over=_SOME),
    _einsum("i,i->i", (3,), (3,)),
    _einsum("i,i", (3,), (3,)),
    _einsum("bij,bjk->bik", (2, 2, 3), (2, 3, 2), over=_SOME),
    _einsum("...ij,...jk->...ik", (2, 1, 2, 3), (4, 3, 2), over=_SOME),
    _einsum("...,...", (2, 3), (3,)),
    _einsum("i...->...", (2, 3, 4)),
    _einsum("...i,i...j", (2, 3), (3, 2, 4)),
    _einsum(" i j , j -> i ", (2, 3), (3,)),
    _einsum("ij,jk,kl,lm->im", (2, 3), (3, 4), (4, 2), (2, 3), over=_SOME),
    _einsum("i,i,i->", (3,), (3,), (3,)),
    _einsum("ij,j->", (2, 3), (3,)),
    _einsum("ab,cd->bd", (2, 3), (2, 4)),
    _einsum("ij,ij->ij", (2, 3), (2, 1)),
    _einsum("ij,jk->ik", (2, 1), (3, 2)),
    _einsum(",i->i", (), (3,)),
    _einsum("ij,jk->ik", (2, 0), (0, 3)),
    _einsum("->", ()),
    Case("einsum", lambda xp, a, b: xp.einsum(a, [0, 1], b, [1, 2]),
         lambda a, b: np.einsum("ij,jk", a, b), _of((2, 3), (3, 2)), _ONCE, label="lists"),
    Case("einsum", lambda xp, a, b: xp.einsum(a, [0, ..., 5], b, [5, 7], [7, ...]),
         lambda a, b: np.einsum("a...b,bc->c...", a, b), _of((2, 3, 2), (2, 3)), _ONCE,
         label="lists-and-result"),
)  # fmt: skip


# --- Bits -------------------------------------------------------------------------------------

_INTEGERS: Final = tuple(d for d in dtypes.ALL if d.is_integer)


def _bits(dtype: DType) -> list[Inputs]:
    """Numbers with all kinds of bits, the limits among them."""
    limits = np.iinfo(dtype.numpy)
    generator = np.random.default_rng(5)
    values = generator.integers(limits.min, limits.max, 6, dtype.numpy, endpoint=True)
    values[:4] = (0, 1, limits.max, limits.min)
    return [(values,), (values[2:3].reshape(()),), (values[:0],)]


def _each(function: Callable[[int, int], int]) -> Callable[[Array], Array]:
    """A reference that works on the bits of each integer as a Python number without sign."""

    def expect(x: Array) -> Array:
        width = 8 * x.itemsize
        unsigned = np.dtype(f"u{x.itemsize}")
        flat = [function(int(n), width) % (1 << width) for n in x.reshape(-1).view(unsigned)]
        return np.array(flat, dtype=unsigned).view(x.dtype).reshape(x.shape)

    return expect


def _turned(n: int, width: int, by: int) -> int:
    by %= width
    return (n << by | n >> (width - by)) & ((1 << width) - 1)


def _bit(op: str, run: Callable[..., Any], function: Callable[[int, int], int],
         label: str = "") -> Case:  # fmt: skip
    return Case(op, run, _each(function), _bits, _INTEGERS, label=label)


_BITS: Final = (
    _bit("popcount", lambda xp, x: xp.popcount(x), lambda n, width: n.bit_count()),
    _bit("popcount", lambda xp, x: xp.bit_count(x), lambda n, width: n.bit_count(), "other-name"),
    _bit("count_leading_zeros", lambda xp, x: xp.count_leading_zeros(x),
         lambda n, width: width - n.bit_length()),
    _bit("count_trailing_zeros", lambda xp, x: xp.count_trailing_zeros(x),
         lambda n, width: (n & -n).bit_length() - 1 if n else width),
    *(
        _bit("rotate_left", lambda xp, x, by=by: xp.rotate_left(x, by),
             lambda n, width, by=by: _turned(n, width, by), str(by))
        for by in (0, 3, 7, 67, -1)
    ),
    _bit("rotate_right", lambda xp, x: xp.rotate_right(x, 3), lambda n, width: _turned(n, width, -3)),
    _bit("rotate_right", lambda xp, x: xp.rotate_right(x, 0), lambda n, width: n, "still"),
    _bit("get_bit", lambda xp, x: xp.get_bit(x, 7), lambda n, width: n >> 7 & 1),
    _bit("set_bit", lambda xp, x: xp.set_bit(x, 7), lambda n, width: n | 128),
    _bit("set_bit", lambda xp, x: xp.set_bit(x, 0, 0), lambda n, width: n & ~1, "to-zero"),
    _bit("set_bit", lambda xp, x: xp.set_bit(x, 0, xp.asarray(True)), lambda n, width: n | 1,
         "to-tensor"),
    _bit("clear_bit", lambda xp, x: xp.clear_bit(x, 7), lambda n, width: n & ~128),
    _bit("toggle_bit", lambda xp, x: xp.toggle_bit(x, 7), lambda n, width: n ^ 128),
    Case("toggle_bit", lambda xp, x: xp.toggle_bit(x, xp.asarray([[0], [3]], dtype="int8")),
         lambda x: x ^ np.array([[1], [8]]), lambda dtype: _bits(dtype)[:1], (dtypes.int64,),
         label="broadcast"),
    Case("rotate_left", lambda xp, x: xp.rotate_left(x, xp.asarray([0, 8, 1, 2, 3, 4])),
         lambda x: np.array([_turned(int(n), 8, by) for n, by in zip(
             x, (0, 8, 1, 2, 3, 4), strict=True)]), lambda dtype: _bits(dtype)[:1],
         (dtypes.uint8,), label="each"),
)  # fmt: skip

PRODUCTS: Final[tuple[Case, ...]] = (*_NAMED, *_NOTATION, *_BITS)

MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake("dot-shapes", ShapeError, lambda xp: xp.dot(xp.ones((2, 3)), xp.ones((2, 3)))),
    Mistake("dot-stack-shapes", ShapeError, lambda xp: xp.dot(xp.ones((2, 2, 3)), xp.ones(2))),
    Mistake("inner-shapes", ShapeError, lambda xp: xp.inner(xp.ones(3), xp.ones((2, 2)))),
    Mistake("vdot-sizes", ShapeError, lambda xp: xp.vdot(xp.ones(3), xp.ones(2))),
    Mistake("matvec-vector", ShapeError, lambda xp: xp.matvec(xp.ones(3), xp.ones(3))),
    Mistake("vecmat-shapes", ShapeError, lambda xp: xp.vecmat(xp.ones(3), xp.ones((2, 3)))),
    Mistake("einsum-lengths", ShapeError,
            lambda xp: xp.einsum("ij,jk", xp.ones((2, 3)), xp.ones((2, 3))),
            ("'ij,jk'", "(2, 3)", "'j'", "lengths 3 and 2")),
    Mistake("einsum-axes", ShapeError, lambda xp: xp.einsum("ij", xp.ones(3)), ("'ij'", "(3,)")),
    Mistake("einsum-dots", ShapeError,
            lambda xp: xp.einsum("...i,...i", xp.ones((2, 3)), xp.ones((4, 3)))),
    Mistake("einsum-diagonal", ShapeError, lambda xp: xp.einsum("ii", xp.ones((2, 3)))),
    Mistake("einsum-operands", DomainError, lambda xp: xp.einsum("ij,jk", xp.ones((2, 3)))),
    Mistake("einsum-none", DomainError, lambda xp: xp.einsum("ij")),
    Mistake("einsum-unknown", DomainError, lambda xp: xp.einsum("ij->ik", xp.ones((2, 3))),
            ("'k'",)),
    Mistake("einsum-twice", DomainError, lambda xp: xp.einsum("ij->ii", xp.ones((2, 2)))),
    Mistake("einsum-sign", DomainError, lambda xp: xp.einsum("i1", xp.ones((2, 2))), ("'1'",)),
    Mistake("einsum-dot", DomainError, lambda xp: xp.einsum("i..", xp.ones((2, 2)))),
    Mistake("einsum-lost-dots", DomainError, lambda xp: xp.einsum("...i->i", xp.ones((2, 2)))),
    Mistake("einsum-labels", DomainError, lambda xp: xp.einsum(xp.ones(2), [99])),
    Mistake("bit-beyond", DomainError, lambda xp: xp.get_bit(xp.ones(2, dtype="uint8"), 8),
            ("uint8", "0 to 7")),
    Mistake("bit-negative", DomainError, lambda xp: xp.set_bit(xp.ones(2, dtype="int32"), -1)),
    Mistake("bit-float-position", DTypeError,
            lambda xp: xp.toggle_bit(xp.ones(2, dtype="int32"), 1.0)),
    Mistake("rotate-float", DTypeError, lambda xp: xp.rotate_left(xp.ones(2), 1)),
)  # fmt: skip
