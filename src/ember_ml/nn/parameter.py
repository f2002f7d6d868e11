"""Parameter and Buffer: the tensors that belong to a module.

Both are marks on plain tensors (see tensor/roles.py), so ops treat them as any other tensor, at the
same speed. `isinstance(x, Parameter)` asks for the mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ember_ml.autodiff import imperative
from ember_ml.dtypes import DTypeLike
from ember_ml.tensor import roles
from ember_ml.tensor.core import Tensor

__all__ = ["Buffer", "Parameter"]


class _Marked(type):
    """The class of classes whose instances are told by a mark."""

    roles: tuple[str, ...]

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor) and roles.role_of(x) in cls.roles


def _marked(data: Any, dtype: DTypeLike, device: str | None, role: str, grad: bool) -> Tensor:
    made = Tensor(data, dtype=dtype, device=device)
    if type(made) is not Tensor:  # a view for reading or writing: a module owns its tensors
        made = made.copy()
    made._role = role
    return imperative.require(made, True) if grad else made


class Parameter(Tensor, metaclass=_Marked):
    """A tensor that a module trains; as an attribute of a module, it is found by itself.

    Memory is shared with `data` where it is a tensor. `requires_grad=False` makes a parameter that
    is saved and loaded with the others and not trained.

    >>> from ember_ml.nn import Parameter
    >>> w = Parameter([1.0, 2.0])
    >>> w.requires_grad, isinstance(w, Parameter), isinstance(w * 2, Parameter)
    (True, True, False)
    """

    __slots__ = ()
    roles = (roles.PARAMETER, roles.FROZEN)

    if not TYPE_CHECKING:  # the class that type checkers see is made as any other

        def __new__(
            cls,
            data: Any = None,
            *,
            dtype: DTypeLike = None,
            device: str | None = None,
            requires_grad: bool = True,
        ) -> Tensor:
            role = roles.PARAMETER if requires_grad else roles.FROZEN
            return _marked(data, dtype, device, role, requires_grad)

    else:

        def __new__(
            cls,
            data: Any = None,
            *,
            dtype: DTypeLike = None,
            device: str | None = None,
            requires_grad: bool = True,
        ) -> Parameter:
            return object.__new__(cls)


class Buffer(Tensor, metaclass=_Marked):
    """A tensor that a module keeps and does not train, such as a running mean.

    It is saved and loaded with the parameters unless `persistent=False`.

    >>> from ember_ml.nn import Buffer
    >>> Buffer([0.0]).requires_grad
    False
    """

    __slots__ = ()
    roles = (roles.BUFFER, roles.TRANSIENT)

    if not TYPE_CHECKING:

        def __new__(
            cls,
            data: Any = None,
            *,
            dtype: DTypeLike = None,
            device: str | None = None,
            persistent: bool = True,
        ) -> Tensor:
            role = roles.BUFFER if persistent else roles.TRANSIENT
            return _marked(data, dtype, device, role, False)

    else:

        def __new__(
            cls,
            data: Any = None,
            *,
            dtype: DTypeLike = None,
            device: str | None = None,
            persistent: bool = True,
        ) -> Buffer:
            return object.__new__(cls)
