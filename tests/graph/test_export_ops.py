"""Every op of the registry, exported and run on ONNX Runtime, against NumPy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import ember_ml as em
from ember_ml import dtypes, ops
from ember_ml.errors import EmberError, TraceError, UnsupportedOpError
from ember_ml.graph import Graph, export
from ember_ml.ops.registry import REGISTRY
from ember_ml.testing.case import Case
from ember_ml.testing.cases import CASES

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

# Why an op, or one case of it, has no graph; the text of its error has the words.
_SHAPES: Final = "depends on"
_COMPLEX: Final = "complex numbers"
_FACTORS: Final = "factorisations"
_READS: Final = "was read"
_DRAWS: Final = "random numbers"
# Arithmetic of keys, which draws nothing.
_KEYS: Final = ("random.key", "random.split", "random.fold_in")
CANNOT: Final[dict[str, str]] = {
    # As many results as the values have it.
    **dict.fromkeys(
        ("nonzero", "argwhere", "flatnonzero", "unique_values", "unique_counts", "unique_inverse",
         "unique_all", "bincount"),
        _SHAPES,
    ),
    "one_hot-open": "give num_classes",
    # They take values out of the engine.
    "from_numpy": _READS,
    "full-tensor": _READS,
    # ONNX has no access to the bits of a float.
    "nextafter": "no form in ONNX",
    # Complex numbers live within a graph, but not at its ends.
    **dict.fromkeys(
        ("fft.fft", "fft.ifft", "fft.rfft", "fft.ihfft", "fft.fftn", "fft.ifftn", "fft.irfftn",
         "fft.rfftn", "fft.fft2", "fft.ifft2", "fft.irfft2", "fft.rfft2", "fft.hfft", "stft",
         "istft", "hilbert", "astype-complex64", "astype-complex128"),
        _COMPLEX,
    ),
    **dict.fromkeys(
        ("linalg.svd", "linalg.svdvals", "linalg.eigh", "linalg.eigvalsh", "linalg.eig",
         "linalg.eigvals", "linalg.pinv", "linalg.matrix_rank", "linalg.lstsq", "linalg.expm",
         "linalg.cond", "linalg.matrix_norm-nuc", "linalg.matrix_norm-2", "linalg.matrix_norm--2",
         "linalg.norm-matrix-nuc", "linalg.norm-matrix-2", "linalg.norm-matrix--2",
         "linalg.norm-axes-keepdims"),
        _FACTORS,
    ),
    # Without a key, every run of the graph would give the numbers of the export.
    **{name: _DRAWS for name in REGISTRY if name.startswith("random.") and name not in _KEYS},
    "dropout": _DRAWS,
    "alpha_dropout": _DRAWS,
}  # fmt: skip


def _dtype(case: Case) -> dtypes.DType:
    for dtype in (dtypes.float32, dtypes.int64):
        if dtype in case.dtypes:
            return dtype
    return case.dtypes[0]


def _reason(case: Case) -> str | None:
    return CANNOT.get(case.id) or CANNOT.get(case.op)


def test_every_op_has_a_case() -> None:
    assert {case.op for case in CASES} == set(REGISTRY)


def _exported(case: Case, inputs: tuple[Any, ...]) -> Graph | EmberError:
    given = [ops.asarray(array, copy=True) for array in inputs]
    try:
        return export(lambda *xs: case.run(ops, *xs), *given)
    except (TraceError, UnsupportedOpError) as error:
        return error


def _check(case: Case, dtype: dtypes.DType) -> None:
    inputs = case.inputs(dtype)[0]
    with em.use_backend("numpy"), np.errstate(all="ignore"):
        found = case.run(ops, *[ops.asarray(array, copy=True) for array in inputs])
        wanted = [x.numpy() for x in (found if isinstance(found, tuple) else (found,))]
        graph = _exported(case, inputs)
        if isinstance(graph, EmberError):
            reason = _reason(case)
            assert reason is not None, f"{case.id} on {dtype}: {graph}"
            assert reason in str(graph)
            return
        feeds = {x.name: array for x, array in zip(graph.inputs, inputs, strict=True)}
        got = list(graph.run(feeds).values())
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        _compare(one, other, f"{case.id} on {dtype}")


def _compare(got: Any, wanted: Any, where: str) -> None:
    assert got.dtype == wanted.dtype, where
    assert got.shape == wanted.shape, where
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(got, wanted, where)
        return
    scale = {2: 4e-3, 4: 1e-5, 8: 1e-10}[wanted.dtype.itemsize]
    np.testing.assert_allclose(got, wanted, rtol=scale, atol=scale, err_msg=where)


@pytest.mark.parametrize("key", CANNOT)
def test_no_reason_is_stale(key: str) -> None:
    """What is said to have no graph has none: one case at least is refused."""
    cases = [case for case in CASES if key in (case.id, case.op)]
    with em.use_backend("numpy"), np.errstate(all="ignore"):
        found = (_exported(case, case.inputs(_dtype(case))[0]) for case in cases)
        assert any(isinstance(one, EmberError) for one in found)


# Casts around operators that ONNX Runtime has for other dtypes.
_BASIC: Final = (
    "add", "subtract", "multiply", "divide", "negative", "abs", "sign", "pow", "remainder",
    "floor_divide", "maximum", "minimum", "equal", "less", "where", "clip", "sum", "prod", "max",
    "min", "mean", "argmax", "all", "cumulative_sum", "sort", "argsort", "concat", "tile", "pad",
    "take", "tril", "matmul", "bitwise_right_shift", "bitwise_left_shift", "bitwise_and",
    "scatter_add", "scatter_max", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh",
    "atanh", "erf", "expm1", "log1p", "gelu", "softplus", "softmax", "conv2d", "max_pool2d",
    "avg_pool2d", "layer_norm", "batch_norm", "atan2",
)  # fmt: skip
_OTHERS: Final = (dtypes.float64, dtypes.float16, dtypes.uint8, dtypes.uint64, dtypes.bool)
_FIRST: Final = {case.op: case for case in reversed(CASES) if case.op in _BASIC}
_RUNS: Final = [(c, d) for c in _FIRST.values() for d in _OTHERS if d in c.dtypes]


@pytest.mark.parametrize(("case", "dtype"), _RUNS, ids=[f"{c.id}-{d}" for c, d in _RUNS])
def test_dtype(case: Case, dtype: dtypes.DType) -> None:
    _check(case, dtype)


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_case(case: Case) -> None:
    """The graph gives the values, dtype and shape of NumPy, or the reason is known."""
    _check(case, _dtype(case))
