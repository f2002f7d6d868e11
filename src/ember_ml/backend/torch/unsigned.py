"""uint16, uint32 and uint64, for which torch has storage but few kernels.

Their bits read as signed integers of the same width give the right sums, products and equalities;
with the top bit flipped, the right order too. Both are views or one pass, and work on any device.
What is left (division, powers, shifts to the right) runs on NumPy in host memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ember_ml import dtypes
from ember_ml.backend.contract import Kernel
from ember_ml.dtypes import DType

if TYPE_CHECKING:
    from ember_ml.backend.torch import TorchBackend

__all__ = ["SIGNED", "as_signed", "kernel"]

SIGNED: Final[dict[DType, DType]] = {
    dtypes.uint16: dtypes.int16,
    dtypes.uint32: dtypes.int32,
    dtypes.uint64: dtypes.int64,
}
_SIGNED_NATIVE: Final[dict[torch.dtype, torch.dtype]] = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}
_TOP_BIT: Final = {
    torch.int16: torch.iinfo(torch.int16).min,
    torch.int32: torch.iinfo(torch.int32).min,
    torch.int64: torch.iinfo(torch.int64).min,
}

# The same bits come out, whatever the sign is taken to be.
_BY_BITS: Final = frozenset(
    "add bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_xor broadcast_to concat "
    "contract popcount "
    "cumulative_prod cumulative_sum flip matmul matrix_transpose multiply negative permute_dims "
    "positive prod repeat reshape roll scatter_add scatter_mul square stack subtract sum take "
    "take_along_axis tile tril triu where".split()
)
# What comes out are truth values or counts.
_BY_EQUALITY: Final = frozenset(
    "all any count_nonzero equal isin not_equal nonzero isfinite isinf isnan".split()
)
_BY_ORDER: Final = frozenset("clip max maximum min minimum sort".split())
_BY_ORDER_TOLD: Final = frozenset(
    "argmax argmin argsort greater greater_equal less less_equal searchsorted".split()
)
_UNCHANGED: Final = frozenset("abs ceil conj floor real round trunc".split())


def as_signed(x: Any) -> Any:
    """The same memory, read as signed integers; other dtypes as they are."""
    signed = _SIGNED_NATIVE.get(x.dtype)
    return x if signed is None else x.view(signed)


def kernel(backend: TorchBackend, name: str, dtype: DType) -> Kernel:
    """The kernel that runs an op on unsigned integers."""
    if name in _UNCHANGED:
        return torch.clone
    if name == "unique_all":
        return _unique_all(backend.kernel(name, SIGNED[dtype]))
    if name in ("scatter_max", "scatter_min"):
        return _scatter_extreme(backend.kernel(name, SIGNED[dtype]))
    for family, turned, back in (
        (_BY_BITS, False, True),
        (_BY_EQUALITY, False, False),
        (_BY_ORDER, True, True),
        (_BY_ORDER_TOLD, True, False),
    ):
        if name in family:
            native = backend.native_dtypes[dtype] if back else None
            return _through_signed(backend.kernel(name, SIGNED[dtype]), turned, native)
    return backend.hosted(name, dtype)


def _through_signed(run: Kernel, turned: bool, back: torch.dtype | None) -> Kernel:
    change = _turned if turned else as_signed

    def kernel(*args: Any, **named: Any) -> Any:
        out = run(*[_each(change, arg) for arg in args], **named)
        if back is None:
            return out
        return (_turn(out) if turned else out).view(back)

    return kernel


def _each(change: Kernel, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    return [_each(change, one) for one in value] if isinstance(value, list) else value


def _turned(x: torch.Tensor) -> torch.Tensor:
    """Signed integers in the order of the unsigned ones; other dtypes as they are."""
    return _turn(as_signed(x)) if x.dtype in _SIGNED_NATIVE else x


def _turn(x: torch.Tensor) -> torch.Tensor:
    return torch.bitwise_xor(x, _TOP_BIT[x.dtype])


def _scatter_extreme(run: Kernel) -> Kernel:
    def kernel(x: torch.Tensor, *options: Any) -> torch.Tensor:
        values = _turned(x)
        # Places without a value hold zero once they are turned back.
        return _turn(run(values, *options, _TOP_BIT[values.dtype])).view(x.dtype)

    return kernel


def _unique_all(run: Kernel) -> Kernel:
    def kernel(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, *rest = run(_turned(x))
        return (_turn(values).view(x.dtype), *rest)

    return kernel
