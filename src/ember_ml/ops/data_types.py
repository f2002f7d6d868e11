"""Functions about dtypes: casting, promotion, limits, kinds."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from ember_ml import dtypes
from ember_ml.dtypes import DType, finfo_object, iinfo_object
from ember_ml.errors import DTypeError
from ember_ml.ops import typed
from ember_ml.ops.registry import op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import DTypeLike, TensorLike

if TYPE_CHECKING:
    from ember_ml.markers import D, R, V
    from ember_ml.tensor.typed import DTypeOf, Like

__all__ = ["astype", "can_cast", "cast", "finfo", "iinfo", "isdtype", "result_type"]

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("signed integer",),
    "unsigned integer": ("unsigned integer",),
    "integral": ("signed integer", "unsigned integer"),
    "real floating": ("real floating",),
    "complex floating": ("complex floating",),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}


@op()
@typed.casting
def astype(
    x: TensorLike, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None
) -> Tensor:
    """`x` in another dtype; `copy=False` gives `x` itself where it has it already.

    >>> astype([1.7, -1.7], "int32").tolist()
    [1, -1]
    """
    tensor = convert.to_tensor(x)
    wanted = dtypes.to_dtype(dtype)
    if tensor.dtype is wanted:
        out = tensor.copy() if copy else tensor
    else:
        out = convert.cast(tensor, wanted)
    return out if device is None else convert.to_device(out, device)


def cast(x: Like[Any, V, R], dtype: DTypeOf[D]) -> Tensor[D, V, R]:
    """`x` in another dtype; `x` itself where it has it already.

    >>> cast(255.0, "float16").dtype
    ember_ml.float16
    """
    return astype(x, dtype, copy=False)


def can_cast(from_: TensorLike, to: DTypeLike, /) -> builtins.bool:
    """True where the promotion law leads from one dtype to the other.

    >>> can_cast("int8", "int16"), can_cast("float32", "int64")
    (True, False)
    """
    source, target = dtypes.get_dtype(from_), dtypes.to_dtype(to)
    return dtypes.can_promote(source, target) and dtypes.promote(source, target) is target


def finfo(type: TensorLike, /) -> finfo_object:
    """Limits of a floating dtype.

    >>> finfo("float32").eps
    1.1920928955078125e-07
    """
    return dtypes.float_limits(dtypes.get_dtype(type))


def iinfo(type: TensorLike, /) -> iinfo_object:
    """Limits of an integer dtype.

    >>> iinfo("uint8").max
    255
    """
    return dtypes.integer_limits(dtypes.get_dtype(type))


def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> builtins.bool:
    """True where a dtype is of a kind, is another dtype, or either of several.

    >>> isdtype("int8", "integral"), isdtype("int8", ("bool", "real floating"))
    (True, False)
    """
    found = dtypes.to_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, one) for one in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return found.kind in _KINDS[kind]
    try:
        return found is dtypes.to_dtype(kind)
    except DTypeError:
        raise DTypeError(
            f"ops.isdtype takes a dtype or one of {', '.join(_KINDS)}, not {kind!r}"
        ) from None


def result_type(*arrays_and_dtypes: TensorLike) -> DType:
    """The dtype to which tensors, dtypes and weak Python scalars promote together.

    >>> result_type("int8", "uint8"), result_type("float32", 1)
    (ember_ml.int16, ember_ml.float32)
    """
    strong: list[DType] = []
    weak: list[object] = []
    for value in arrays_and_dtypes:
        if isinstance(value, builtins.bool | int | float | complex):
            weak.append(value)
        else:
            strong.append(dtypes.get_dtype(value))
    if not strong:
        if not weak:
            raise DTypeError("ops.result_type takes at least one tensor, dtype or number")
        strong = [dtypes.dtype_of_scalar(value) for value in weak]
    found = dtypes.common(strong)
    for value in weak:
        found = dtypes.scalar_dtype(value, found)
    return found
