"""Operators in the forms of older opsets, and of ONNX Runtime's own domain.

ONNX's node tests have each operator only in its newest form, so these are ours. What comes out is
compared with ONNX Runtime, or with onnx's reference evaluator where that has no such kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ember_ml.graph import types

__all__ = ["CASES", "VersionCase", "expected", "model_of"]


@dataclass
class VersionCase:
    """One node: what it is given, and what it gives."""

    op: str
    opset: int
    label: str
    inputs: tuple[Any, ...]
    # Which inputs are initialisers; the others are fed.
    known: tuple[int, ...] = ()
    outputs: tuple[str, ...] = ("float32",)
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    oracle: str = "onnxruntime"
    rtol: float = 1e-5
    atol: float = 1e-6

    @property
    def id(self) -> str:
        return f"{self.op}-{self.opset}-{self.label}"


def model_of(case: VersionCase) -> onnx.ModelProto:
    """The case as a model."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    made = [f"y{i}" if dtype else "" for i, dtype in enumerate(case.outputs)]
    node = helper.make_node(case.op, names, made, name="it", domain=case.domain, **case.attributes)
    fed, initial = [], []
    for i, (name, array) in enumerate(zip(names, case.inputs, strict=True)):
        if array is None:
            continue
        if i in case.known:
            initial.append(numpy_helper.from_array(np.asarray(array), name))
        else:
            number = types.number_of(types.name_of(array.dtype))
            fed.append(helper.make_tensor_value_info(name, number, array.shape))
    outputs = [
        helper.make_tensor_value_info(name, types.number_of(dtype), None)
        for name, dtype in zip(made, case.outputs, strict=True)
        if dtype
    ]
    graph = helper.make_graph([node], "case", fed, outputs, initial)
    opsets = [helper.make_opsetid("", case.opset)]
    if case.domain:
        opsets.append(helper.make_opsetid(case.domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feeds_of(case: VersionCase) -> dict[str, Any]:
    return {
        f"x{i}": np.asarray(x)
        for i, x in enumerate(case.inputs)
        if x is not None and i not in case.known
    }


def expected(case: VersionCase) -> list[Any]:
    """What another implementation gives."""
    model = model_of(case)
    if case.oracle == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, feeds_of(case))  # type: ignore[no-any-return]  # arrays
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, feeds_of(case))  # type: ignore[return-value]  # arrays


_rng = np.random.default_rng(7)


def _f(*shape: int) -> Any:
    return _rng.standard_normal(shape).astype(np.float32)


def _i(*values: int) -> Any:
    return np.array(values, np.int64)


_X = _f(2, 3, 4)
_IMAGE = _f(1, 2, 5, 6)
_MS = "com.microsoft"


def _reductions() -> Iterator[VersionCase]:
    positive = np.abs(_X) + 0.1
    for name in ("Mean", "Prod", "Max", "Min", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"):
        yield VersionCase(
            f"Reduce{name}", 13, "axes", (positive,), attributes={"axes": [-1, 0], "keepdims": 0}
        )
        yield VersionCase(f"Reduce{name}", 13, "all", (positive,))
        yield VersionCase(
            f"Reduce{name}", 18, "axes", (positive, _i(1)), (1,), attributes={"keepdims": 1}
        )
    yield VersionCase(
        "ReduceSum", 13, "none", (_X, _i()), (1,), attributes={"noop_with_empty_axes": 1}
    )
    yield VersionCase("ReduceSum", 13, "fed", (_X, _i(-2)))
    whole = np.array([[-1, -2, 5], [7, 8, 9]], np.int32)
    yield VersionCase("ReduceMean", 13, "integers", (whole,), (), ("int32",), {"axes": [1]})
    yield VersionCase("ReduceSum", 13, "integers", (whole, _i(0)), (1,), ("int32",))
    yield VersionCase("ReduceMax", 18, "uint8", (whole.astype(np.uint8), _i(0)), (1,), ("uint8",))


def _shaping() -> Iterator[VersionCase]:
    yield VersionCase("Squeeze", 13, "axes", (_f(1, 3, 1), _i(-1)), (1,))
    yield VersionCase("Squeeze", 13, "all", (_f(1, 3, 1),))
    yield VersionCase("Unsqueeze", 13, "axes", (_X, _i(-1, 0)), (1,))
    yield VersionCase("Split", 13, "even", (_X,), (), ("float32",) * 3, {"axis": 1})
    yield VersionCase("Split", 13, "sizes", (_X, _i(1, 3)), (1,), ("float32",) * 2, {"axis": -1})
    yield VersionCase(
        "Split",
        18,
        "uneven",
        (_X,),
        (),
        ("float32",) * 3,
        {"axis": 2, "num_outputs": 3},
        oracle="reference",
    )
    yield VersionCase("Reshape", 13, "zero", (_X, _i(0, -1)), (1,))
    yield VersionCase("Reshape", 14, "zero", (_X, _i(0, 2, -1)), (1,))
    yield VersionCase(
        "Reshape", 14, "allowzero", (_f(0, 3), _i(3, 0, 2)), (1,), attributes={"allowzero": 1}
    )
    yield VersionCase("Slice", 13, "back", (_X, _i(-1), _i(-100), _i(1), _i(-2)), (1, 2, 3, 4))
    yield VersionCase("Slice", 13, "beyond", (_X, _i(-9, 1), _i(99, 99)), (1, 2))
    yield VersionCase("Slice", 13, "nothing", (_X, _i(3), _i(1), _i(2)), (1, 2, 3))
    yield VersionCase("Pad", 13, "less", (_X, _i(0, -1, 1, 0, 2, -1), np.float32(7)), (1, 2))
    yield VersionCase(
        "Pad", 13, "reflect", (_X, _i(0, 1, 2, 1, 0, 3)), (1,), attributes={"mode": "reflect"}
    )
    yield VersionCase(
        "Pad", 13, "edge", (_X, _i(0, 0, 1, 0, 2, 0)), (1,), attributes={"mode": "edge"}
    )
    yield VersionCase("Pad", 18, "axes", (_X, _i(1, 2), None, _i(-1)), (1, 3))
    yield VersionCase(
        "Pad", 19, "wrap", (_X, _i(0, 1, 1, 0, 0, 2)), (1,), attributes={"mode": "wrap"}
    )
    yield VersionCase("Expand", 13, "both", (_f(3, 1), _i(2, 1, 4)), (1,))
    yield VersionCase(
        "Cast",
        13,
        "truth",
        (np.array([0.0, -0.5, np.nan], np.float32),),
        (),
        ("bool",),
        {"to": TensorProto.BOOL},
    )
    yield VersionCase(
        "Cast",
        13,
        "half",
        (np.array([1, 70000, -3], np.int64),),
        (),
        ("float16",),
        {"to": TensorProto.FLOAT16},
    )
    yield VersionCase(
        "Cast",
        13,
        "whole",
        (np.array([1.9, -1.9, 0.5], np.float32),),
        (),
        ("int32",),
        {"to": TensorProto.INT32},
    )
    yield VersionCase("CastLike", 15, "double", (_X, np.zeros(1)), (), ("float64",))
    yield VersionCase("Shape", 15, "part", (_X,), (), ("int64",), {"start": -2, "end": 9})
    yield VersionCase("ConstantOfShape", 9, "default", (_i(2, 3),), (0,))
    yield VersionCase("EyeLike", 13, "dtype", (_f(3, 4),), (), ("int64",), {"k": 1, "dtype": 7})
    yield VersionCase(
        "DepthToSpace", 13, "CRD", (_f(1, 8, 2, 3),), attributes={"blocksize": 2, "mode": "CRD"}
    )
    yield VersionCase("SpaceToDepth", 13, "two", (_f(1, 2, 4, 6),), attributes={"blocksize": 2})


def _numbers() -> Iterator[VersionCase]:
    a = np.array([7, -7, 7, -7, 0], np.int32)
    b = np.array([2, 2, -2, -2, 3], np.int32)
    yield VersionCase("Div", 13, "integers", (a, b), (), ("int32",))
    yield VersionCase("Mod", 13, "integers", (a, b), (), ("int32",))
    yield VersionCase("Mod", 13, "fmod", (a, b), (), ("int32",), {"fmod": 1})
    yield VersionCase("Mod", 13, "float", (_X, _X[::-1].copy()), attributes={"fmod": 1})
    yield VersionCase("Pow", 13, "float-int", (np.abs(_X), np.array([2, 3, 0, 1], np.int64)))
    yield VersionCase(
        "Pow",
        13,
        "int-float",
        (np.array([2, 3], np.int32), np.array([2.0, 3.0], np.float32)),
        (),
        ("int32",),
    )
    yield VersionCase("Clip", 13, "upper", (_X, None, np.float32(0.5)), (2,))
    yield VersionCase("Clip", 13, "crossed", (_X, np.float32(1), np.float32(-1)), (1, 2))
    yield VersionCase("Relu", 14, "integers", (a,), (), ("int32",))
    yield VersionCase(
        "CumSum", 11, "back", (a, np.int32(0)), (1,), ("int32",), {"exclusive": 1, "reverse": 1}
    )
    yield VersionCase("Einsum", 12, "trace", (_f(3, 3),), attributes={"equation": "ii"})
    yield VersionCase(
        "Gemm",
        13,
        "all",
        (_f(3, 2), _f(4, 3), _f(4)),
        attributes={"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
    )
    yield VersionCase(
        "BitShift",
        11,
        "left",
        (np.array([1, 200], np.uint8), np.array([3, 1], np.uint8)),
        (),
        ("uint8",),
        {"direction": "LEFT"},
    )
    yield VersionCase(
        "Max", 13, "nan", (np.array([np.nan, 1], np.float32), np.array([0, np.nan], np.float32))
    )
    yield VersionCase(
        "Equal", 13, "bool", (np.array([True, False]), np.array([True])), (), ("bool",)
    )
    yield VersionCase(
        "Range", 11, "float", (np.float32(1), np.float32(4.1), np.float32(0.5)), (0, 1, 2)
    )
    yield VersionCase("Range", 11, "down", (np.int64(9), np.int64(2), np.int64(-3)), (), ("int64",))
    yield VersionCase("Softmax", 13, "axis", (_X,), attributes={"axis": 1})
    yield VersionCase("PRelu", 9, "slope", (_X, _f(3, 1)))
    yield VersionCase("PRelu", 9, "integers", (a, b), (), ("int32",), oracle="reference")


def _places() -> Iterator[VersionCase]:
    yield VersionCase(
        "Gather", 13, "negative", (_X, _i(-1, 0).reshape(1, 2)), attributes={"axis": 1}
    )
    yield VersionCase("Gather", 13, "scalar", (_X, np.int64(-2)), attributes={"axis": 2})
    yield VersionCase(
        "GatherND", 13, "batch", (_X, _i(0, -1).reshape(2, 1)), attributes={"batch_dims": 1}
    )
    yield VersionCase(
        "GatherElements", 13, "negative", (_f(3, 3), _i(-1, 0, 2, 1, 1, -3).reshape(2, 3))
    )
    yield VersionCase(
        "ScatterElements",
        13,
        "axis",
        (_f(3, 4), _i(1, -1, 0).reshape(3, 1), _f(3, 1)),
        attributes={"axis": 1},
    )
    for reduction, opset in (("add", 16), ("mul", 16), ("max", 18), ("min", 18)):
        yield VersionCase(
            "ScatterElements",
            opset,
            reduction,
            (_f(3, 4), _i(1, 1, 0, 2).reshape(1, 4), _f(1, 4)),
            attributes={"reduction": reduction},
        )
        yield VersionCase(
            "ScatterND",
            opset,
            reduction,
            (_f(4, 3), _i(1, 1, 0).reshape(3, 1), _f(3, 3)),
            attributes={"reduction": reduction},
        )
    yield VersionCase("ScatterND", 13, "points", (_f(4, 3), _i(1, 2, -1, 0).reshape(2, 2), _f(2)))
    yield VersionCase(
        "OneHot",
        11,
        "beyond",
        (_i(-1, 5, 1), np.int64(3), np.array([9, 2], np.float32)),
        (1, 2),
        attributes={"axis": 0},
    )
    yield VersionCase(
        "TopK",
        11,
        "equal",
        (np.array([[3, 1, 3, 2, 3]], np.float32), _i(3)),
        (1,),
        ("float32", "int64"),
    )
    yield VersionCase(
        "TopK", 11, "smallest", (_X, _i(2)), (1,), ("float32", "int64"), {"largest": 0, "axis": 1}
    )
    yield VersionCase("Compress", 11, "flat", (_f(3, 2), np.array([False, True, True])))
    yield VersionCase(
        "NonZero", 13, "grid", (np.array([[0, 3], [5, 0]], np.int32),), (), ("int64",)
    )
    yield VersionCase(
        "Unique",
        11,
        "rows",
        (np.array([[1, 2], [3, 0], [1, 2]], np.float32),),
        (),
        ("float32", "int64", "int64", "int64"),
        {"axis": 0},
    )
    yield VersionCase("Trilu", 14, "lower", (_f(3, 4), np.int64(-1)), (1,), attributes={"upper": 0})
    yield VersionCase(
        "ReverseSequence",
        10,
        "batch",
        (_f(4, 3), _i(1, 4, 2)),
        attributes={"time_axis": 0, "batch_axis": 1},
    )
    yield VersionCase(
        "ArgMax",
        13,
        "last",
        (np.array([[1, 3, 3]], np.float32),),
        (),
        ("int64",),
        {"axis": 1, "select_last_index": 1},
    )


def _eleven() -> Iterator[VersionCase]:
    """Forms that ended with opset 12."""
    yield VersionCase("ReduceSum", 11, "axes", (_X,), attributes={"axes": [1], "keepdims": 0})
    yield VersionCase("Squeeze", 11, "axes", (_f(1, 3, 1),), attributes={"axes": [-1]})
    yield VersionCase("Squeeze", 11, "all", (_f(1, 3, 1),))
    yield VersionCase("Unsqueeze", 11, "axes", (_X,), attributes={"axes": [0, -1]})
    yield VersionCase("Split", 11, "even", (_X,), (), ("float32",) * 2, {"axis": 2})
    yield VersionCase(
        "Split", 11, "sizes", (_X,), (), ("float32",) * 2, {"axis": 2, "split": [1, 3]}
    )
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        yield VersionCase(name, 11, "rows", (_X,))
        yield VersionCase(name, 11, "all", (_X,), attributes={"axis": 0})
    yield VersionCase("Dropout", 10, "ratio", (_X,), attributes={"ratio": 0.7})
    yield VersionCase("ArgMax", 11, "axis", (_X,), (), ("int64",), {"axis": 1, "keepdims": 0})
    yield VersionCase("GatherND", 11, "points", (_X, _i(0, -1).reshape(1, 2)))
    yield VersionCase(
        "Resize",
        11,
        "sizes",
        (_f(1, 1, 3, 4), np.zeros(0, np.float32), np.zeros(0, np.float32), _i(1, 1, 6, 2)),
        (1, 2, 3),
        attributes={"mode": "linear"},
    )
    yield VersionCase(
        "QuantizeLinear", 10, "all", (_X, np.float32(0.1), np.uint8(9)), (), ("uint8",)
    )


CASES: tuple[VersionCase, ...] = (*_reductions(), *_shaping(), *_numbers(), *_places(), *_eleven())
