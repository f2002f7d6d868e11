"""Bits of integers: counting, turning round, reading and writing single ones.

Signed integers are taken as the bits of their two's complement. The bitwise operators of the
standard (bitwise_and and its kin) are in elementwise.
"""

from __future__ import annotations

from typing import Any

from ember_ml import dtypes
from ember_ml.errors import DomainError, DTypeError
from ember_ml.ops import dispatch, elementwise, searching
from ember_ml.ops.elementwise import bitwise_invert as bitwise_not  # torch's name for it
from ember_ml.ops.registry import INTEGRAL, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__: list[str] = [
    "bit_count",
    "bitwise_not",
    "clear_bit",
    "count_leading_zeros",
    "count_trailing_zeros",
    "get_bit",
    "popcount",
    "rotate_left",
    "rotate_right",
    "set_bit",
    "toggle_bit",
]


@op(accepts=INTEGRAL, standard=False)
def popcount(x: TensorLike, /) -> Tensor:
    """How many bits are 1, in the dtype of `x`.

    >>> popcount([0, 7, 255]).tolist()
    [0, 3, 8]
    >>> popcount(-1).item()
    64
    """
    return dispatch.unary("popcount", x)


bit_count = popcount


@op(accepts=INTEGRAL, standard=False)
def count_leading_zeros(x: TensorLike, /) -> Tensor:
    """How many bits are 0 before the highest 1, in the dtype of `x`; all of them for zero.

    >>> count_leading_zeros([1, 0, -1]).tolist()
    [63, 64, 0]
    """
    tensor = dispatch.lifted("count_leading_zeros", x)
    shift = 1
    while shift < tensor.dtype.bits:
        # The highest 1 is spread to all places below it; a sign fills in ones anyway.
        shifted = elementwise.bitwise_right_shift(tensor, shift)
        tensor = elementwise.bitwise_or(tensor, shifted)
        shift *= 2
    return popcount(elementwise.bitwise_invert(tensor))


@op(accepts=INTEGRAL, standard=False)
def count_trailing_zeros(x: TensorLike, /) -> Tensor:
    """How many bits are 0 behind the lowest 1, in the dtype of `x`; all of them for zero.

    >>> count_trailing_zeros([8, 1, 0]).tolist()
    [3, 0, 64]
    """
    tensor = dispatch.lifted("count_trailing_zeros", x)
    # The bits below the lowest 1, and only those, are 1 both in x - 1 and in the inverse of x.
    below = elementwise.subtract(tensor, 1)
    return popcount(elementwise.bitwise_and(below, elementwise.bitwise_invert(tensor)))


@op(accepts=INTEGRAL, standard=False)
def rotate_left(x: TensorLike, shift: TensorLike, /) -> Tensor:
    """Bits moved to the left; those that fall off come in at the right.

    Shifts are taken modulo the width of the dtype, so negative ones rotate to the right.

    >>> rotate_left(ops.asarray([129], dtype="uint8"), 1).tolist()
    [3]
    """
    return _rotated("rotate_left", x, shift, left=True)


@op(accepts=INTEGRAL, standard=False)
def rotate_right(x: TensorLike, shift: TensorLike, /) -> Tensor:
    """Bits moved to the right; those that fall off come in at the left.

    >>> rotate_right(ops.asarray([3], dtype="uint8"), 1).tolist()
    [129]
    """
    return _rotated("rotate_right", x, shift, left=False)


def _rotated(name: str, x: TensorLike, shift: TensorLike, *, left: bool) -> Tensor:
    tensor, by = _with_places(name, x, shift)
    bits = tensor.dtype.bits
    by = elementwise.remainder(by, bits)
    if not left:
        by = elementwise.remainder(elementwise.subtract(bits, by), bits)
    by = convert.cast(by, tensor.dtype)
    # A shift by all bits has no meaning in most engines, so zero goes its own way.
    still = elementwise.equal(by, 0)
    back = searching.where(still, 0, elementwise.subtract(bits, by))
    high = elementwise.bitwise_left_shift(tensor, by)
    ones = elementwise.bitwise_invert(elementwise.bitwise_xor(tensor, tensor))
    # Of signed integers, a shift to the right brings in copies of the sign.
    lowest = elementwise.bitwise_invert(elementwise.bitwise_left_shift(ones, by))
    low = elementwise.bitwise_and(elementwise.bitwise_right_shift(tensor, back), lowest)
    return searching.where(still, tensor, elementwise.bitwise_or(high, low))


@op(accepts=INTEGRAL, standard=False)
def get_bit(x: TensorLike, position: TensorLike, /) -> Tensor:
    """The bit at a position, counted from the lowest: 0 or 1 in the dtype of `x`.

    >>> get_bit([5, 6], 0).tolist()
    [1, 0]
    """
    tensor, by = _with_positions("get_bit", x, position)
    return elementwise.bitwise_and(elementwise.bitwise_right_shift(tensor, by), 1)


@op(accepts=INTEGRAL, standard=False)
def set_bit(x: TensorLike, position: TensorLike, /, value: TensorLike = 1) -> Tensor:
    """`x` with the bit at a position set to 1, or to a `value` of 0 or 1.

    >>> set_bit([4, 5], 0).tolist(), set_bit([4, 5], 0, 0).tolist()
    ([5, 5], [4, 4])
    """
    tensor, by = _with_positions("set_bit", x, position)
    mask = _mask(tensor, by)
    on = elementwise.bitwise_or(tensor, mask)
    if isinstance(value, int):
        return on if value else _cleared(tensor, mask)
    return searching.where(value, on, _cleared(tensor, mask))


@op(accepts=INTEGRAL, standard=False)
def clear_bit(x: TensorLike, position: TensorLike, /) -> Tensor:
    """`x` with the bit at a position set to 0.

    >>> clear_bit([5, 4], 0).tolist()
    [4, 4]
    """
    tensor, by = _with_positions("clear_bit", x, position)
    return _cleared(tensor, _mask(tensor, by))


@op(accepts=INTEGRAL, standard=False)
def toggle_bit(x: TensorLike, position: TensorLike, /) -> Tensor:
    """`x` with the bit at a position turned round.

    >>> toggle_bit([5, 4], 0).tolist()
    [4, 5]
    """
    tensor, by = _with_positions("toggle_bit", x, position)
    return elementwise.bitwise_xor(tensor, _mask(tensor, by))


def _mask(x: Tensor, by: Tensor) -> Tensor:
    one = convert.asarray(1, x.dtype, x.device, None, x._spec.backend)
    return elementwise.bitwise_left_shift(one, by)


def _cleared(x: Tensor, mask: Tensor) -> Tensor:
    return elementwise.bitwise_and(x, elementwise.bitwise_invert(mask))


def _with_places(name: str, x: TensorLike, shift: TensorLike) -> tuple[Tensor, Tensor]:
    """Integers, and shifts for them as int64: a shift of -1 has no uint8."""
    home = dispatch.home_of(name, (x, shift))
    tensor = dispatch.lifted(name, convert.to_tensor(x, home))
    by: Any = convert.to_tensor(shift, home)
    if not by.dtype.is_integer:
        raise DTypeError(f"ops.{name} takes integer positions, not {by.dtype}")
    dispatch.same_device(name, tensor.device, by.device)
    return tensor, convert.cast(by, dtypes.int64)


def _with_positions(name: str, x: TensorLike, position: TensorLike) -> tuple[Tensor, Tensor]:
    tensor, by = _with_places(name, x, position)
    bits = tensor.dtype.bits
    if by.size and by._spec.backend.checks_values(by.native):
        host = by.numpy()
        if int(host.min()) < 0 or int(host.max()) >= bits:
            raise DomainError(
                f"ops.{name} got positions {int(host.min())} to {int(host.max())}; "
                f"{tensor.dtype} has bits 0 to {bits - 1}"
            )
    return tensor, convert.cast(by, tensor.dtype)
