"""ONNX's own node tests: what they are, which are not run, and how near results have to be.

The onnx package makes them when a module of its `case.node` folder is imported; each is imported
only when a test asks for it.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="ONNX's node tests come with the onnx package")

from onnx import numpy_helper  # noqa: E402
from onnx.backend.test.case import node as node_tests  # noqa: E402

__all__ = ["MODULES", "NOT_RUN", "arrays", "cases_of", "reason_not_to_run", "tolerance"]

# A module for each operator. Those of the domain ai.onnx.ml are in a folder beside.
MODULES = tuple(
    sorted(
        m.name
        for m in pkgutil.iter_modules(node_tests.__path__)
        if not m.ispkg and m.name[0] != "_"
    )
)

# --- What is not run ----------------------------------------------------------------------------

_STRINGS = "strings: the ops executor computes with numbers"
_SEQUENCES = "sequences and optionals are no tensors"
_TRAINING = "ai.onnx.preview.training: optimisers are ember_ml.training's"
_OLD = "of an opset below 13, where its operators had another form"
_RANDOM = (
    "random: the expected values are NumPy's draws; test_operators_interpreter checks their laws"
)

# By operator.
_OPERATORS = {
    "ImageDecoder": "decoding of image files is no tensor operation",
    "RegexFullMatch": _STRINGS,
    "StringConcat": _STRINGS,
    "StringNormalizer": _STRINGS,
    "StringSplit": _STRINGS,
    "TfIdfVectorizer": "counts of n-grams are for ONNX Runtime",
    "Optional": _SEQUENCES,
    "OptionalGetElement": _SEQUENCES,
    "OptionalHasElement": _SEQUENCES,
    "SequenceAt": _SEQUENCES,
    "SequenceConstruct": _SEQUENCES,
    "SequenceEmpty": _SEQUENCES,
    "SequenceInsert": _SEQUENCES,
    "SequenceLength": _SEQUENCES,
    "SequenceMap": _SEQUENCES,
    "SplitToSequence": _SEQUENCES,
    "ConcatFromSequence": _SEQUENCES,
    "Adagrad": _TRAINING,
    "Adam": _TRAINING,
    "Momentum": _TRAINING,
    "FlexAttention": "ai.onnx.preview: it may still change",
    "CausalConvWithState": "of opset 27; its expansion into older operators is run",
    "LinearAttention": "of opset 27; its expansion into older operators is run",
}

# By name.
NOT_RUN = {
    "test_scan_sum": _OLD,
    "test_bernoulli": _RANDOM,
    "test_bernoulli_expanded": _RANDOM,
    "test_bernoulli_double": _RANDOM,
    "test_bernoulli_double_expanded": _RANDOM,
    "test_bernoulli_seed": _RANDOM,
    "test_bernoulli_seed_expanded": _RANDOM,
    "test_training_dropout": _RANDOM,
    "test_training_dropout_mask": _RANDOM,
    "test_training_dropout_default": _RANDOM,
    "test_training_dropout_default_mask": _RANDOM,
    # The text divides by length_resized - 1, which is whole, as does ONNX Runtime (see
    # test_operators_versions); these two by the product of length and scale before rounding.
    "test_resize_downsample_scales_linear_align_corners": "against the operator's text",
    "test_resize_downsample_scales_cubic_align_corners": "against the operator's text",
}


def reason_not_to_run(case: Any) -> str | None:
    """Why a node test is not run; None where it is."""
    if case.name in NOT_RUN:
        return NOT_RUN[case.name]
    for name in _operators(case.model.graph):
        if name in _OPERATORS:
            return _OPERATORS[name]
    for info in (*case.model.graph.input, *case.model.graph.output):
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            return _SEQUENCES
        reason = _type_reason(info.type.tensor_type.elem_type)
        if reason:
            return reason
    for node in case.model.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "output_dtype") and _type_reason(attribute.i):
                return _type_reason(attribute.i)
            if attribute.HasField("t") and _type_reason(attribute.t.data_type):
                return _type_reason(attribute.t.data_type)
    return None


def _operators(graph: Any) -> set[str]:
    found = set()
    for node in graph.node:
        found.add(node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _operators(attribute.g)
    return found


def _type_reason(number: int) -> str | None:
    name = onnx.TensorProto.DataType.Name(number)
    if name == "STRING":
        return _STRINGS
    if name.startswith(("FLOAT8", "FLOAT6", "FLOAT4", "INT2", "UINT2")) and name != "FLOAT":
        return f"no backend of ember_ml has {name.lower()}"
    return None


# --- Running ------------------------------------------------------------------------------------


@cache
def cases_of(module: str) -> tuple[Any, ...]:
    """The node tests of a module."""
    made = node_tests._NodeTestCases
    before = len(made)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they divide by zero on purpose
        importlib.import_module(f"{node_tests.__name__}.{module}")
    return tuple(made[before:])


def arrays(given: Any) -> list[Any]:
    """Values of a data set as NumPy arrays."""
    return [
        numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x)
        for x in given
    ]


def tolerance(case: Any, want: Any) -> tuple[float, float]:
    """How far a result may be off: relative, absolute."""
    rtol, atol = case.rtol, case.atol
    operators = _operators(case.model.graph)
    if "attention" in case.name and want.dtype.name in ("float16", "bfloat16"):
        # Expected values that were computed in 16 bits are off by two units in the last place
        # themselves; float64 shows ours to be the nearer ones.
        return (2**-9 if want.dtype.name == "float16" else 2**-6), 2**-10
    if operators & {"DFT", "STFT"} and want.size:
        # Terms cancel to zero up to the rounding of the largest.
        return rtol, 1e-6 * float(np.abs(want).max())
    return rtol, atol
