"""Which data types and how many axes each op takes and gives, as the specification says.

`MLContext.op_support_limits` tells them to users, and the builder checks operands by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ember_ml.webnn.descriptors import DATA_TYPES, MAX_BYTES, MAX_RANK

__all__ = ["ANY", "FLOATS", "LIMITS", "OperandLimits", "support_limits"]

Types = tuple[str, ...]


class OperandLimits(NamedTuple):
    """The data types of an operand, and the least and the greatest number of its axes."""

    data_types: Types
    min_rank: int
    max_rank: int


def _of(data_types: Types, least: int, most: int = MAX_RANK) -> OperandLimits:
    return OperandLimits(data_types, least, most)


def _each(
    ops: str, operands: Mapping[str, OperandLimits]
) -> dict[str, Mapping[str, OperandLimits]]:
    return dict.fromkeys(ops.split(), operands)


ANY: Final[Types] = tuple(t for t in DATA_TYPES if not t.endswith("int4"))
BYTE: Final[Types] = ("uint8",)
FLOATS: Final[Types] = ("float32", "float16")
COUNTS: Final[Types] = ("int32", "int64")
INDICES: Final[Types] = ("int32", "uint32", "int64")
BYTES_AND_FLOATS: Final[Types] = ("float32", "float16", "int8", "uint8")
QUANTIZED: Final[Types] = ("int32", "uint32", "int8", "uint8", "int4", "uint4")
SIGNED: Final[Types] = ("float32", "float16", "int32", "int64", "int8")
NUMBERS: Final[Types] = ("float32", "float16", "int32", "uint32", "int64", "uint64")

LIMITS: Final[dict[str, Mapping[str, OperandLimits]]] = {
    **_each("arg_min arg_max", {"input": _of(ANY, 1), "output": _of(COUNTS, 0)}),
    "batch_normalization": {
        "input": _of(FLOATS, 1),
        "mean": _of(FLOATS, 1, 1),
        "variance": _of(FLOATS, 1, 1),
        "scale": _of(FLOATS, 1, 1),
        "bias": _of(FLOATS, 1, 1),
        "output": _of(FLOATS, 1),
    },
    **_each(
        "cast clamp identity expand pad reduce_max reduce_min reshape reverse slice tile transpose",
        {"input": _of(ANY, 0), "output": _of(ANY, 0)},
    ),
    "concat": {"inputs": _of(ANY, 1), "output": _of(ANY, 1)},
    **_each(
        "conv2d conv_transpose2d",
        {
            "input": _of(FLOATS, 4, 4),
            "filter": _of(FLOATS, 4, 4),
            "bias": _of(FLOATS, 1, 1),
            "output": _of(FLOATS, 4, 4),
        },
    ),
    "cumulative_sum": {"input": _of(NUMBERS, 1), "output": _of(NUMBERS, 1)},
    **_each(
        "add sub mul div max min pow", {"a": _of(ANY, 0), "b": _of(ANY, 0), "output": _of(ANY, 0)}
    ),
    **_each(
        "equal not_equal greater greater_or_equal lesser lesser_or_equal",
        {"a": _of(ANY, 0), "b": _of(ANY, 0), "output": _of(BYTE, 0)},
    ),
    "logical_not": {"a": _of(BYTE, 0), "output": _of(BYTE, 0)},
    **_each(
        "logical_and logical_or logical_xor",
        {"a": _of(BYTE, 0), "b": _of(BYTE, 0), "output": _of(BYTE, 0)},
    ),
    **_each("is_nan is_infinite", {"a": _of(FLOATS, 0), "output": _of(BYTE, 0)}),
    **_each("abs neg sign relu", {"input": _of(SIGNED, 0), "output": _of(SIGNED, 0)}),
    **_each(
        "ceil cos erf exp floor log reciprocal round_even sin sqrt tan elu "
        "gelu hard_sigmoid hard_swish leaky_relu linear reduce_l2 "
        "reduce_log_sum reduce_log_sum_exp reduce_mean sigmoid softplus softsign tanh",
        {"input": _of(FLOATS, 0), "output": _of(FLOATS, 0)},
    ),
    "dequantize_linear": {
        "input": _of(QUANTIZED, 0),
        "scale": _of(FLOATS, 0),
        "zero_point": _of(QUANTIZED, 0),
        "output": _of(FLOATS, 0),
    },
    "quantize_linear": {
        "input": _of(FLOATS, 0),
        "scale": _of(FLOATS, 0),
        "zero_point": _of(QUANTIZED, 0),
        "output": _of(QUANTIZED, 0),
    },
    "gather": {"input": _of(ANY, 1), "indices": _of(INDICES, 0), "output": _of(ANY, 1)},
    "gather_elements": {"input": _of(ANY, 1), "indices": _of(INDICES, 1), "output": _of(ANY, 1)},
    "gather_nd": {"input": _of(ANY, 1), "indices": _of(INDICES, 1), "output": _of(ANY, 0)},
    "gemm": {
        "a": _of(FLOATS, 2, 2),
        "b": _of(FLOATS, 2, 2),
        "c": _of(FLOATS, 0, 2),
        "output": _of(FLOATS, 2, 2),
    },
    "gru": {
        "input": _of(FLOATS, 3, 3),
        "weight": _of(FLOATS, 3, 3),
        "recurrent_weight": _of(FLOATS, 3, 3),
        "bias": _of(FLOATS, 2, 2),
        "recurrent_bias": _of(FLOATS, 2, 2),
        "initial_hidden_state": _of(FLOATS, 3, 3),
        "output0": _of(FLOATS, 3, 3),
        "output1": _of(FLOATS, 4, 4),
    },
    "gru_cell": {
        "input": _of(FLOATS, 2, 2),
        "weight": _of(FLOATS, 2, 2),
        "recurrent_weight": _of(FLOATS, 2, 2),
        "hidden_state": _of(FLOATS, 2, 2),
        "bias": _of(FLOATS, 1, 1),
        "recurrent_bias": _of(FLOATS, 1, 1),
        "output": _of(FLOATS, 2, 2),
    },
    "instance_normalization": {
        "input": _of(FLOATS, 4, 4),
        "scale": _of(FLOATS, 1, 1),
        "bias": _of(FLOATS, 1, 1),
        "output": _of(FLOATS, 4, 4),
    },
    "layer_normalization": {
        "input": _of(FLOATS, 0),
        "scale": _of(FLOATS, 0),
        "bias": _of(FLOATS, 0),
        "output": _of(FLOATS, 0),
    },
    "lstm": {
        "input": _of(FLOATS, 3, 3),
        "weight": _of(FLOATS, 3, 3),
        "recurrent_weight": _of(FLOATS, 3, 3),
        "bias": _of(FLOATS, 2, 2),
        "recurrent_bias": _of(FLOATS, 2, 2),
        "peephole_weight": _of(FLOATS, 2, 2),
        "initial_hidden_state": _of(FLOATS, 3, 3),
        "initial_cell_state": _of(FLOATS, 3, 3),
        "output0": _of(FLOATS, 3, 3),
        "output1": _of(FLOATS, 3, 3),
        "output2": _of(FLOATS, 4, 4),
    },
    "lstm_cell": {
        "input": _of(FLOATS, 2, 2),
        "weight": _of(FLOATS, 2, 2),
        "recurrent_weight": _of(FLOATS, 2, 2),
        "hidden_state": _of(FLOATS, 2, 2),
        "cell_state": _of(FLOATS, 2, 2),
        "bias": _of(FLOATS, 1, 1),
        "recurrent_bias": _of(FLOATS, 1, 1),
        "peephole_weight": _of(FLOATS, 1, 1),
        "output0": _of(FLOATS, 2, 2),
        "output1": _of(FLOATS, 2, 2),
    },
    "matmul": {"a": _of(FLOATS, 2), "b": _of(FLOATS, 2), "output": _of(FLOATS, 2)},
    **_each("average_pool2d l2_pool2d", {"input": _of(FLOATS, 4, 4), "output": _of(FLOATS, 4, 4)}),
    "max_pool2d": {"input": _of(ANY, 4, 4), "output": _of(ANY, 4, 4)},
    "prelu": {"input": _of(SIGNED, 0), "slope": _of(SIGNED, 0), "output": _of(SIGNED, 0)},
    **_each(
        "reduce_l1 reduce_sum reduce_sum_square reduce_product",
        {"input": _of(NUMBERS, 0), "output": _of(NUMBERS, 0)},
    ),
    "resample2d": {"input": _of(BYTES_AND_FLOATS, 4, 4), "output": _of(BYTES_AND_FLOATS, 4, 4)},
    "scatter_elements": {
        "input": _of(ANY, 1),
        "indices": _of(INDICES, 1),
        "updates": _of(ANY, 1),
        "output": _of(ANY, 1),
    },
    "scatter_nd": {
        "input": _of(ANY, 1),
        "indices": _of(INDICES, 1),
        "updates": _of(ANY, 0),
        "output": _of(ANY, 1),
    },
    "softmax": {"input": _of(FLOATS, 1), "output": _of(FLOATS, 1)},
    "split": {"input": _of(ANY, 1), "outputs": _of(ANY, 1)},
    "triangular": {"input": _of(ANY, 2), "output": _of(ANY, 2)},
    "where": {
        "condition": _of(BYTE, 0),
        "true_value": _of(ANY, 0),
        "false_value": _of(ANY, 0),
        "output": _of(ANY, 0),
    },
}


def support_limits(held: Types) -> dict[str, Any]:
    """The limits as `MLContext.op_support_limits` tells them, for an engine that holds some types.

    >>> support_limits(("float32",))["gemm"]["c"]
    {'data_types': ['float32'], 'rank_range': {'min': 0, 'max': 2}}
    """

    def told(limits: OperandLimits) -> dict[str, Any]:
        types = [name for name in limits.data_types if name in held]
        return {
            "data_types": types,
            "rank_range": {"min": limits.min_rank, "max": limits.max_rank},
        }

    anything = _of(tuple(DATA_TYPES), 0)
    found: dict[str, Any] = {
        "preferred_input_layout": "nchw",
        "max_tensor_byte_length": MAX_BYTES,
        "input": told(anything),
        "constant": told(anything),
        "output": told(anything),
    }
    for op in sorted(LIMITS):
        found[op] = {name: told(limits) for name, limits in LIMITS[op].items()}
    return found
