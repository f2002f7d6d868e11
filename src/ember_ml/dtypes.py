"""Dtypes as singletons, their kinds, and the one promotion law of every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ember_ml.errors import DTypeError
from ember_ml.markers import D_co, MarkedDType

if TYPE_CHECKING:
    from ember_ml import markers

__all__ = [
    "ALL",
    "DType",
    "DTypeLike",
    "EmberDType",
    "bfloat16",
    "bool",
    "can_promote",
    "common",
    "complex64",
    "complex128",
    "default_complex",
    "default_float",
    "default_int",
    "finfo_object",
    "float16",
    "float32",
    "float64",
    "from_dtype_str",
    "get_dtype",
    "iinfo_object",
    "int8",
    "int16",
    "int32",
    "int64",
    "promote",
    "scalar_dtype",
    "to_dtype",
    "to_dtype_str",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

_bool = bool


class DType(MarkedDType[D_co]):
    """The element type of a tensor: one object per type, equal to its own name.

    >>> float32 == "float32", float32 is to_dtype("float32"), float32.itemsize
    (True, True, 4)
    """

    __slots__ = ("_hash", "_numpy", "bits", "itemsize", "kind", "name")

    def __init__(self, name: str, kind: str, bits: int, numpy: np.dtype[Any] | None) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.bits: Final = bits
        self.itemsize: Final = max(bits // 8, 1)
        self._numpy = numpy
        self._hash: Final = hash(name)

    def __repr__(self) -> str:
        return f"ember_ml.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> _bool:
        return self is other or (isinstance(other, str) and other == self.name)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return to_dtype, (self.name,)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of the same values."""
        if self._numpy is None:
            self._numpy = _bfloat16_numpy()
        return self._numpy

    @property
    def is_floating(self) -> _bool:
        """True for real floating dtypes."""
        return self.kind == "real floating"

    @property
    def is_inexact(self) -> _bool:
        """True for real and complex floating dtypes: those that have gradients."""
        return self.kind in _INEXACT

    @property
    def is_complex(self) -> _bool:
        """True for complex dtypes."""
        return self.kind == "complex floating"

    @property
    def is_integer(self) -> _bool:
        """True for signed and unsigned integers; bool is not one."""
        return self.kind in ("signed integer", "unsigned integer")

    @property
    def is_signed(self) -> _bool:
        """True where negative values exist."""
        return self.kind not in ("bool", "unsigned integer")


EmberDType = DType
# What users may write where a dtype is asked for: a DType, a name, a NumPy or engine dtype, a
# Python scalar type, or a callable that gives any of these. Engine dtypes have no common type.
DTypeLike = Any


def _bfloat16_numpy() -> np.dtype[Any]:
    # ml_dtypes costs a fifth of our import, and most programs never see bfloat16 in NumPy.
    import ml_dtypes

    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    _BY_NUMPY[found] = bfloat16
    return found


def _make(name: str, kind: str, bits: int) -> DType:
    return DType(name, kind, bits, None if name == "bfloat16" else np.dtype(name))


bool: DType[markers.Bool] = _make("bool", "bool", 8)
int8: DType[markers.Int8] = _make("int8", "signed integer", 8)
int16: DType[markers.Int16] = _make("int16", "signed integer", 16)
int32: DType[markers.Int32] = _make("int32", "signed integer", 32)
int64: DType[markers.Int64] = _make("int64", "signed integer", 64)
uint8: DType[markers.UInt8] = _make("uint8", "unsigned integer", 8)
uint16: DType[markers.UInt16] = _make("uint16", "unsigned integer", 16)
uint32: DType[markers.UInt32] = _make("uint32", "unsigned integer", 32)
uint64: DType[markers.UInt64] = _make("uint64", "unsigned integer", 64)
float16: DType[markers.Float16] = _make("float16", "real floating", 16)
bfloat16: DType[markers.BFloat16] = _make("bfloat16", "real floating", 16)
float32: DType[markers.Float32] = _make("float32", "real floating", 32)
float64: DType[markers.Float64] = _make("float64", "real floating", 64)
complex64: DType[markers.Complex64] = _make("complex64", "complex floating", 64)
complex128: DType[markers.Complex128] = _make("complex128", "complex floating", 128)

ALL: Final = (
    bool,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
    complex64,
    complex128,
)

default_float: Final = float32
default_int: Final = int64
default_complex: Final = complex64

_BY_NAME: Final[dict[str, DType]] = {d.name: d for d in ALL}
_BY_NUMPY: Final[dict[np.dtype[Any], DType]] = {d._numpy: d for d in ALL if d._numpy is not None}
# As in NumPy and PyTorch, the Python types name the widest dtype of their kind.
_BY_TYPE: Final[dict[type, DType]] = {
    _bool: bool,
    int: int64,
    float: float64,
    complex: complex128,
}
_INEXACT: Final = ("real floating", "complex floating")
_REAL_OF: Final = {complex64: float32, complex128: float64}
_COMPLEX_OF: Final = {float32: complex64, float64: complex128}


def real_of(dtype: DType) -> DType:
    """The dtype of the parts of a complex dtype; real dtypes are their own."""
    return _REAL_OF.get(dtype, dtype)


def complex_of(dtype: DType) -> DType:
    """The complex dtype whose parts have this real dtype."""
    if dtype.is_complex:
        return dtype
    found = _COMPLEX_OF.get(dtype)
    if found is None:
        raise DTypeError(f"no complex dtype has {dtype} parts; cast to float32 or float64 first")
    return found


# --- Reading what users write ---------------------------------------------------------------


def to_dtype(dtype: DTypeLike) -> DType:
    """The DType for a DType, a name, a NumPy or engine dtype, a Python type or a callable.

    >>> to_dtype("int8"), to_dtype(np.float32), to_dtype(lambda: "bool")
    (ember_ml.int8, ember_ml.float32, ember_ml.bool)
    """
    if type(dtype) is DType:
        return dtype
    if isinstance(dtype, str):
        found = _BY_NAME.get(dtype) or _BY_NAME.get(dtype.rpartition(".")[2])
    elif isinstance(dtype, np.dtype):
        found = _of_numpy(dtype)
    elif isinstance(dtype, type):
        found = _BY_TYPE.get(dtype) or _from_scalar_type(dtype)
    else:
        # torch.float32 and mlx.core.float32 print with their module before the name.
        found = _BY_NAME.get(str(dtype).rpartition(".")[2])
        if found is None and callable(dtype):
            return to_dtype(dtype())
    if found is None:
        raise DTypeError(f"{dtype!r} is no dtype of ember_ml; it has {', '.join(_BY_NAME)}")
    return found


def _of_numpy(dtype: np.dtype[Any]) -> DType | None:
    found = _BY_NUMPY.get(dtype)
    if found is not None:
        return found
    if dtype.name == "bfloat16":  # NumPy makes the name anew each time, in Python
        return bfloat16
    return _BY_NUMPY.get(dtype.newbyteorder("="))


def _from_scalar_type(scalar_type: type) -> DType | None:
    try:
        return _of_numpy(np.dtype(scalar_type))
    except TypeError:
        return None


def get_dtype(dtype: DTypeLike) -> DType:
    """The DType of a tensor, an array or anything `to_dtype` reads.

    >>> get_dtype(np.zeros(2, "int16"))
    ember_ml.int16
    """
    of_array = getattr(dtype, "dtype", None)
    # np.float32 has a `dtype` as well: a descriptor of its instances.
    if of_array is not None and not isinstance(dtype, type | np.dtype):
        return to_dtype(of_array)
    return to_dtype(dtype)


def to_dtype_str(dtype: DTypeLike) -> str:
    """The name of a dtype.

    >>> to_dtype_str(np.float64)
    'float64'
    """
    return get_dtype(dtype).name


def from_dtype_str(name: str) -> DType:
    """The DType of a name.

    >>> from_dtype_str("bfloat16")
    ember_ml.bfloat16
    """
    return to_dtype(name)


# --- Promotion ------------------------------------------------------------------------------

_KIND_RANK: Final = {
    "bool": 0,
    "unsigned integer": 1,
    "signed integer": 1,
    "real floating": 2,
    "complex floating": 3,
}
_HALF: Final = (float16, bfloat16)
_SIGNED_OF_BITS: Final = {8: int8, 16: int16, 32: int32, 64: int64}


def _promote_pair(a: DType, b: DType) -> DType | None:
    if a is b:
        return a
    rank_a, rank_b = _KIND_RANK[a.kind], _KIND_RANK[b.kind]
    if rank_a > rank_b:
        a, b, rank_a, rank_b = b, a, rank_b, rank_a
    if rank_a < 2 and rank_a < rank_b:
        return b  # bool with anything, an integer with a float: the other dtype
    if rank_a == 1:
        if a.kind == b.kind:
            return a if a.bits > b.bits else b
        signed, unsigned = (a, b) if a.is_signed else (b, a)
        if signed.bits > unsigned.bits:
            return signed
        return _SIGNED_OF_BITS.get(unsigned.bits * 2)  # None: no integer holds uint64 and int64
    if a in _HALF or b in _HALF:
        return None  # float16 and bfloat16 meet no other float unasked
    if rank_a == rank_b:
        return a if a.bits > b.bits else b
    return complex128 if a is float64 else b


_PROMOTED: Final[dict[tuple[DType, DType], DType]] = {
    (a, b): found for a in ALL for b in ALL if (found := _promote_pair(a, b)) is not None
}


def can_promote(a: DType, b: DType) -> _bool:
    """True where the two dtypes have a common one."""
    return (a, b) in _PROMOTED


def promote(a: DType, b: DType, op: str = "result_type") -> DType:
    """The dtype of `op(a, b)` by the array API's table, the same on every backend.

    >>> promote(int8, uint8), promote(int64, float16), promote(float32, complex64)
    (ember_ml.int16, ember_ml.float16, ember_ml.complex64)
    """
    found = _PROMOTED.get((a, b))
    if found is None:
        raise DTypeError(
            f"ops.{op} got dtypes {a} and {b}, which have no common dtype; "
            f"cast one of them with .astype(...)"
        )
    return found


def common(dtypes: list[DType], op: str = "result_type") -> DType:
    """The dtype to which all the given ones promote."""
    # Float kinds are joined last: int8 with uint64 and float32 is float32, in any order.
    ordered = sorted(dtypes, key=lambda d: -_KIND_RANK[d.kind])
    found = ordered[0]
    for dtype in ordered[1:]:
        found = promote(found, dtype, op)
    return found


def scalar_dtype(value: object, dtype: DType, op: str = "result_type") -> DType:
    """The dtype of a tensor of `dtype` with a Python scalar: scalars are weak.

    >>> scalar_dtype(2.5, float16), scalar_dtype(2.5, int8), scalar_dtype(1j, float64)
    (ember_ml.float16, ember_ml.float32, ember_ml.complex128)
    """
    kind = dtype.kind
    if isinstance(value, _bool):
        return dtype
    if isinstance(value, int):
        return default_int if kind == "bool" else dtype
    if isinstance(value, float):
        return dtype if kind in ("real floating", "complex floating") else default_float
    if isinstance(value, complex):
        if kind == "complex floating":
            return dtype
        return complex_of(dtype) if kind == "real floating" else default_complex
    raise DTypeError(f"ops.{op} got {value!r} of type {type(value).__name__}, which is no number")


def dtype_of_scalar(value: object) -> DType:
    """The dtype that a lone Python scalar gets.

    >>> dtype_of_scalar(1), dtype_of_scalar(1.0)
    (ember_ml.int64, ember_ml.float32)
    """
    if isinstance(value, _bool):
        return bool
    if isinstance(value, int):
        return default_int
    return default_float if isinstance(value, float) else default_complex


# --- Limits ---------------------------------------------------------------------------------


class finfo_object(NamedTuple):
    """Machine limits of a floating dtype, as Python floats."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class iinfo_object(NamedTuple):
    """Machine limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def _bfloat16_limits() -> Any:
    import ml_dtypes

    limits: Any = ml_dtypes.finfo
    return limits(bfloat16.numpy)


def float_limits(dtype: DType) -> finfo_object:
    """The limits of a real or complex floating dtype."""
    if not (dtype.is_floating or dtype.is_complex):
        raise DTypeError(f"ops.finfo takes a floating dtype, not {dtype}; use ops.iinfo")
    real = real_of(dtype)
    info = _bfloat16_limits() if real is bfloat16 else np.finfo(real.numpy)
    return finfo_object(
        int(info.bits),
        float(info.eps),
        float(info.max),
        float(info.min),
        float(info.smallest_normal),
        real,
    )


def integer_limits(dtype: DType) -> iinfo_object:
    """The limits of an integer dtype."""
    if not dtype.is_integer:
        raise DTypeError(f"ops.iinfo takes an integer dtype, not {dtype}; use ops.finfo")
    info = np.iinfo(dtype.numpy)
    return iinfo_object(int(info.bits), int(info.max), int(info.min), dtype)


def fits(value: int, dtype: DType) -> _bool:
    """True where a Python integer is a value of the integer dtype.

    >>> fits(255, uint8), fits(-1, uint8)
    (True, False)
    """
    if dtype.kind == "unsigned integer":
        return 0 <= value < 1 << dtype.bits
    return -(1 << dtype.bits - 1) <= value < 1 << dtype.bits - 1
