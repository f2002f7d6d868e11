"""Which dtypes ONNX Runtime's CPU kernels take, and in which one an operator runs for others.

The table was found by trying each operator with each dtype on ONNX Runtime 1.31; operators that
are not in it take every dtype.
"""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from ember_ml.errors import UnsupportedOpError
from ember_ml.graph.tracing.lines import user_line

__all__ = ["of", "takes"]

_FLOATS: Final = frozenset(("float16", "float32", "float64"))
_SHORT: Final = frozenset(("float16", "float32"))
_INTEGERS: Final = frozenset(
    ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
)
_SUMS: Final = _FLOATS | {"int32", "int64"}
_ORDERED: Final = _SUMS | {"int8", "uint8", "uint32", "uint64"}
_EXTREMES: Final = _SUMS | {"int8", "uint8"}

_TAKES: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(
        ("Floor", "Ceil", "Round", "Sqrt", "Exp", "Log", "Sin", "Cos", "Tanh", "Reciprocal",
         "Sigmoid", "Softmax", "LogSoftmax", "Gemm", "LayerNormalization"),
        _FLOATS,
    ),
    **dict.fromkeys(
        ("Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Erf", "Elu",
         "Selu", "Celu", "Softplus", "Softsign", "Gelu", "Mish", "HardSwish", "HardSigmoid",
         "PRelu", "LeakyRelu", "Conv", "ConvTranspose", "AveragePool", "GlobalAveragePool",
         "GlobalMaxPool", "LSTM", "GRU", "RNN", "InstanceNormalization", "BatchNormalization"),
        _SHORT,
    ),
    "Abs": _FLOATS | _INTEGERS,
    "Neg": _FLOATS | {"int8", "int16", "int32", "int64"},
    "Sign": frozenset(("float32", "float64")) | _INTEGERS,  # of float16 it is 0 at NaN
    "Relu": _FLOATS | {"int8", "int32"},
    **dict.fromkeys(("IsNaN", "IsInf"), _FLOATS | {"bfloat16"}),
    **dict.fromkeys(("Not", "And", "Or", "Xor"), frozenset(("bool",))),
    **dict.fromkeys(("BitwiseNot", "BitwiseAnd", "BitwiseOr", "BitwiseXor"), _INTEGERS),
    "BitShift": frozenset(("uint8", "uint32", "uint64")),
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div", "Mod", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"),
        _FLOATS | _INTEGERS,
    ),
    "Equal": _FLOATS | _INTEGERS | {"bool"},
    "Pow": _SUMS,
    **dict.fromkeys(("Max", "Min", "Clip"), _ORDERED),
    "MatMul": _SUMS | {"uint32", "uint64"},
    "Where": _EXTREMES | {"uint32"},
    **dict.fromkeys(
        ("ReduceSum", "ReduceProd", "ReduceMean", "ReduceLogSumExp", "ReduceSumSquare",
         "ReduceL1", "ReduceL2", "CumSum", "Einsum"),
        _SUMS,
    ),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _EXTREMES | {"bool"}),
    **dict.fromkeys(("ArgMax", "ArgMin"), _EXTREMES),
    "TopK": _EXTREMES | {"int16"},
    **dict.fromkeys(("Expand", "Tile"), _FLOATS | _INTEGERS | {"bool"}),
    "Trilu": _SUMS | {"bool"},
    "Pad": _ORDERED | {"bool"},
    "MaxPool": _FLOATS | {"int8", "uint8"},
    "Resize": frozenset(("float32", "int32", "int8", "uint8")),
    "NonZero": frozenset(("bool", "int32", "int64", "uint8", "float32")),
    # Sums of 16-bit floats would be rounded at each step.
    **dict.fromkeys(
        ("ScatterElements+", "ScatterND+"), frozenset(("float32", "float64", "int32", "int64"))
    ),
}  # fmt: skip

# What holds every value of a dtype, the first that an operator takes; uint64 by its bits.
_WIDER: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("uint8", "int32", "int64"),
    "int8": ("int32", "int64"),
    "uint8": ("int32", "int64", "uint32"),
    "int16": ("int32", "int64"),
    "uint16": ("int32", "int64", "uint32"),
    "int32": ("int64",),
    "uint32": ("int64", "uint64"),
    "uint64": ("int64",),
    "float16": ("float32",),
    "bfloat16": ("float32",),
}
_NAMES: Final = {np.dtype(ml_dtypes.bfloat16): "bfloat16"}
_DTYPES: Final = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}


def takes(op: str, dtype: np.dtype[Any]) -> bool:
    """True where an operator has a kernel for a dtype."""
    found = _TAKES.get(op)
    return found is None or _NAMES.get(dtype, dtype.name) in found


def of(op: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which an operator runs for operands of a dtype."""
    if dtype.kind == "c":
        raise UnsupportedOpError(
            f"em.export: graphs of ONNX Runtime have no complex numbers, and {op} of {dtype} came "
            f"up{user_line()}; split real and imaginary parts, or leave that part out"
        )
    if takes(op, dtype):
        return dtype
    name = _NAMES.get(dtype, dtype.name)
    for wider in _WIDER.get(name, ()):
        if wider in _TAKES[op]:
            return _DTYPES.get(wider) or np.dtype(wider)
    raise UnsupportedOpError(
        f"em.export: ONNX Runtime has no {op} for {name}, nor for a dtype that holds it"
        f"{user_line()}; cast first, as with .astype('float32')"
    )
