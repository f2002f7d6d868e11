"""What a tensor is to a network: a mark on the tensor itself, which its class does not tell.

Ops ask for the class of a tensor at every call, so parameters have none of their own. The mark
goes with a tensor through pickles and deep copies; results of ops have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from ember_ml.tensor.core import Tensor

    T = TypeVar("T", bound=Tensor)

__all__ = [
    "BUFFER",
    "FROZEN",
    "NAMES",
    "PARAMETER",
    "TRANSIENT",
    "freeze",
    "is_parameter",
    "role_of",
    "same",
    "thaw",
]

PARAMETER: Final = "parameter"
# A parameter that is not trained, by requires_grad_(False).
FROZEN: Final = "frozen"
BUFFER: Final = "buffer"
# A buffer that is in no file.
TRANSIENT: Final = "transient"

# How tensors of a role are shown.
NAMES: Final[dict[str | None, str]] = {
    PARAMETER: "Parameter",
    FROZEN: "Parameter",
    BUFFER: "Buffer",
    TRANSIENT: "Buffer",
}


def role_of(x: Tensor) -> str | None:
    """The role of a tensor; None where it has none."""
    return getattr(x, "_role", None)


def is_parameter(x: Tensor) -> bool:
    """True for parameters, trained or frozen."""
    return getattr(x, "_role", None) in (PARAMETER, FROZEN)


def same(made: T, x: Tensor) -> T:
    """Give a tensor the role of another one."""
    role = getattr(x, "_role", None)
    if role is not None:
        made._role = role
    return made


def freeze(x: Tensor) -> None:
    """Note that a parameter is trained no longer."""
    if getattr(x, "_role", None) == PARAMETER:
        x._role = FROZEN


def thaw(x: Tensor) -> None:
    """Note that a parameter is trained again."""
    if getattr(x, "_role", None) == FROZEN:
        x._role = PARAMETER
