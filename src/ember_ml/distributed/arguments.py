"""What a communicator takes besides tensors: ops, ranks, axes, and what JSON can say."""

from __future__ import annotations

import json
import operator
from typing import Any

from ember_ml.distributed.headers import REDUCTIONS
from ember_ml.dtypes import DType
from ember_ml.errors import AxisError, DomainError, DTypeError
from ember_ml.tensor.core import Tensor

__all__ = ["axis_of", "json_of", "peer_of", "rank_of", "require_op"]


def require_op(call: str, op: str, dtype: DType) -> None:
    """An error where a dtype has no such reduction."""
    if op not in REDUCTIONS:
        raise DomainError(
            f"Communicator.{call} got op={op!r}; it is one of {', '.join(REDUCTIONS)}"
        )
    if dtype.kind == "bool" and op not in ("max", "min"):
        raise DTypeError(
            f"Communicator.{call}(op={op!r}) got bool; take op='max' for any, 'min' for all"
        )
    if op == "mean" and not dtype.is_inexact:
        raise DTypeError(f"Communicator.{call}(op='mean') takes floats, not {dtype}")
    if op in ("max", "min") and dtype.is_complex:
        raise DTypeError(f"Communicator.{call}(op={op!r}) takes real numbers, not {dtype}")


def rank_of(call: str, name: str, rank: Any, size: int) -> int:
    """One of the ranks, as an int."""
    try:
        found = operator.index(rank)
    except TypeError:
        raise DomainError(
            f"Communicator.{call} got {name}={rank!r}; a rank is an integer"
        ) from None
    if not 0 <= found < size:
        raise DomainError(f"Communicator.{call} got {name}={found}; ranks go from 0 to {size - 1}")
    return found


def peer_of(call: str, name: str, rank: Any, own: int, size: int) -> int:
    """One of the other ranks."""
    found = rank_of(call, name, rank, size)
    if found == own:
        raise DomainError(
            f"Communicator.{call} got {name}={found}, which is this rank; it takes another one"
        )
    return found


def axis_of(call: str, axis: Any, x: Tensor) -> int:
    """An axis of a tensor, counted from the first."""
    try:
        found = operator.index(axis)
    except TypeError:
        raise AxisError(f"Communicator.{call} got axis={axis!r}; an axis is an integer") from None
    if not -x.ndim <= found < x.ndim:
        raise AxisError(f"Communicator.{call} got axis={found} for shape {x.shape}")
    return found % x.ndim


def json_of(call: str, value: Any) -> bytes:
    """A value as JSON."""
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DTypeError(
            f"Communicator.{call} takes what JSON can say: None, bool, numbers, text, and lists "
            f"and dicts of them; {error}"
        ) from None
