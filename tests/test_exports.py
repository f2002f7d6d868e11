"""The public names, and what importing them costs."""

from __future__ import annotations

import importlib
import json
import pkgutil
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import ember_ml
from ember_ml import ops
from ember_ml.nn import tensor

PUBLIC = [
    "AxisError",
    "BackendMismatchError",
    "BackendUnavailableError",
    "CommunicationError",
    "CopyError",
    "DType",
    "DTypeError",
    "DeviceError",
    "DomainError",
    "EmberDType",
    "EmberError",
    "EmberTensor",
    "FormatError",
    "GradientError",
    "GradientTape",
    "Graph",
    "IntegerDivisionError",
    "LinAlgError",
    "NaNLossError",
    "NotFittedError",
    "OutOfBoundsError",
    "ReadOnlyError",
    "ShapeError",
    "Storage",
    "Tensor",
    "TensorView",
    "TensorViewMut",
    "TraceError",
    "UnknownBackendError",
    "UnknownKeyError",
    "UnsupportedOpError",
    "__version__",
    "auto_select_backend",
    "autodiff",
    "available_backends",
    "backend",
    "bfloat16",
    "checkpoint",
    "complex128",
    "complex64",
    "custom_gradient",
    "distributed",
    "dtypes",
    "enable_grad",
    "errors",
    "export",
    "features",
    "float16",
    "float32",
    "float64",
    "from_dtype_str",
    "from_jax",
    "from_mlx",
    "from_numpy",
    "from_torch",
    "get_available_devices",
    "get_backend",
    "get_backend_module",
    "get_device",
    "get_device_of_tensor",
    "get_dtype",
    "grad",
    "graph",
    "hessian",
    "hvp",
    "int16",
    "int32",
    "int64",
    "int8",
    "io",
    "is_grad_enabled",
    "jacobian",
    "jit",
    "jvp",
    "load",
    "load_onnx",
    "memory",
    "memory_info",
    "memory_usage",
    "models",
    "nn",
    "no_grad",
    "ops",
    "register_backend",
    "registry",
    "save",
    "set_backend",
    "set_device",
    "set_grad_enabled",
    "stop_gradient",
    "synchronize",
    "to_device",
    "to_dtype_str",
    "training",
    "tree",
    "typing",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "use_backend",
    "use_checks",
    "use_device",
    "value_and_grad",
    "vjp",
    "webnn",
]

# The array API standard 2025.12: main functions, then its extensions.
MAIN = [
    "abs",
    "acos",
    "acosh",
    "add",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asarray",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "can_cast",
    "ceil",
    "clip",
    "concat",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "divide",
    "empty",
    "empty_like",
    "equal",
    "exp",
    "expand_dims",
    "expm1",
    "eye",
    "finfo",
    "flip",
    "floor",
    "floor_divide",
    "from_dlpack",
    "full",
    "full_like",
    "greater",
    "greater_equal",
    "hypot",
    "iinfo",
    "imag",
    "isdtype",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "matrix_transpose",
    "max",
    "maximum",
    "mean",
    "meshgrid",
    "min",
    "minimum",
    "moveaxis",
    "multiply",
    "negative",
    "nextafter",
    "nonzero",
    "not_equal",
    "ones",
    "ones_like",
    "permute_dims",
    "positive",
    "pow",
    "prod",
    "real",
    "reciprocal",
    "remainder",
    "repeat",
    "reshape",
    "result_type",
    "roll",
    "round",
    "searchsorted",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sort",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "tril",
    "triu",
    "trunc",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unstack",
    "var",
    "vecdot",
    "where",
    "zeros",
    "zeros_like",
    "__array_namespace_info__",
]
LINALG = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
FFT = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]
TYPING = [
    "AnyDType",
    "AnyDevice",
    "AnyRank",
    "Axis",
    "BFloat16",
    "Bool",
    "Complex128",
    "Complex64",
    "Cpu",
    "Cuda",
    "DTypeLike",
    "DTypeMarker",
    "DeviceMarker",
    "Float16",
    "Float32",
    "Float64",
    "Gpu",
    "Int16",
    "Int32",
    "Int64",
    "Int8",
    "Mps",
    "NativeArray",
    "Numeric",
    "Rank0",
    "Rank1",
    "Rank2",
    "Rank3",
    "Rank4",
    "Rank5",
    "Rank6",
    "Rank7",
    "Rank8",
    "RankMarker",
    "Shape",
    "ShapeLike",
    "TensorLike",
    "Tpu",
    "UInt16",
    "UInt32",
    "UInt64",
    "UInt8",
    "Xpu",
]


def test_public_names() -> None:
    assert sorted(ember_ml.__all__) == sorted(PUBLIC)
    assert sorted(ember_ml.typing.__all__) == sorted(TYPING)


def test_names_of_ops() -> None:
    """The whole list: a name that comes or goes is a change that users see."""
    script = Path(__file__).parent.parent / "scripts" / "exported-names"
    kept = Path(__file__).with_name("exported_names.txt").read_text(encoding="utf-8")
    found = runpy.run_path(str(script))["exported"]()
    assert kept.split() == found, "run scripts/exported-names once the change is meant"


def test_every_public_name_is_there_from_the_start() -> None:
    """In a fresh process, in which nothing else has loaded what is loaded when used."""
    program = (
        "import ember_ml as em\n"
        "for module in (em, em.ops, em.nn, em.nn.tensor, em.nn.modules, em.training, em.models):\n"
        "    for name in module.__all__:\n"
        "        getattr(module, name)\n"
        "em.tree.leaves, em.ops.random.normal, em.ops.losses.mse, em.ops.stats.median\n"
    )
    for line in ("import ember_ml as em; em.tree.leaves", "from ember_ml import tree", program):
        subprocess.run([sys.executable, "-c", line], check=True)


def test_ops_are_at_hand() -> None:
    """Python keeps what it finds in a module at hand, unless the module may make names up."""
    assert "__getattr__" not in vars(ops)
    assert [name for name in ops.__all__ if name not in vars(ops)] == []
    assert [name for name in ops.__all__ if ops.__all__.count(name) > 1] == []
    with pytest.raises(AttributeError, match="has no attribute 'spam'"):
        _ = ops.spam  # type: ignore[attr-defined]  # that is the point


def test_what_is_found_once_is_kept() -> None:
    """A name of autodiff is looked for at its first use, not at every step of a loop."""
    from ember_ml import autodiff

    for name in autodiff.__all__:
        found = getattr(autodiff, name)
        if name in ember_ml.__all__:
            assert getattr(ember_ml, name) is vars(ember_ml)[name] is found


def test_every_listed_name_exists_in_every_module() -> None:
    for info in pkgutil.walk_packages(ember_ml.__path__, "ember_ml."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{info.name} lists {name} and has none"


def test_the_standard_is_complete() -> None:
    assert (len(LINALG), len(FFT)) == (25, 14)
    assert [name for name in MAIN if not hasattr(ops, name)] == []
    assert [name for name in LINALG if not hasattr(ops.linalg, name)] == []
    assert [name for name in FFT if not hasattr(ops.fft, name)] == []
    assert ops.linalg is ops.linearalg


def test_names_of_the_tensor_module() -> None:
    for name in [
        "Tensor",
        "EmberTensor",
        "convert_to_tensor",
        "array",
        "zeros",
        "float32",
        "DType",
        "to_dtype_str",
    ]:
        assert hasattr(tensor, name)
    assert tensor.EmberTensor is tensor.Tensor is ember_ml.Tensor


def test_names_of_the_features() -> None:
    from ember_ml.nn import features

    for name in ["pca", "standardize_features", "normalize_features", "one_hot", "scatter"]:
        assert callable(getattr(features, name))
    assert ember_ml.nn.features is features
    assert (features.one_hot, features.scatter) == (ops.one_hot, ops.scatter)
    assert ember_ml.features.base.FeatureExtractor is ember_ml.features.FeatureExtractor
    assert issubclass(features.PCA, ember_ml.features.FeatureExtractor)


def test_import_loads_no_optional_package() -> None:
    program = "import sys, json, ember_ml; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(out.stdout)}
    optional = {"torch", "jax", "jaxlib", "mlx", "onnx", "onnxruntime", "matplotlib", "scipy"}
    optional |= {"pandas", "sklearn"}
    late = {"rich", "typer", "safetensors", "asyncio", "hypothesis", "pytest", "array_api_compat"}
    assert loaded & (optional | late | {"ml_dtypes"}) == set()
    assert "ember_ml.io" not in json.loads(out.stdout)  # em.save and em.load bring it
    assert "ember_ml.features" not in json.loads(out.stdout)
    assert {"features", "io", "load", "save"} <= set(dir(ember_ml))


def test_features_load_neither_pandas_nor_files() -> None:
    program = (
        "import sys; from ember_ml import features; from ember_ml.nn import features as nn;"
        "nn.pca().fit_transform([[1.0], [2.0]]);"
        "features.ColumnFeatureExtractor().fit_transform({'a': [1, 2]});"
        "print(*(name in sys.modules for name in ('pandas', 'rich', 'ember_ml.io', 'scipy')))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert out.stdout.split() == ["False"] * 4


def test_a_backend_loads_only_itself() -> None:
    program = (
        "import sys; import ember_ml as em; em.set_backend('numpy'); em.ops.ones(3).sum();"
        "print('torch' in sys.modules, 'jax' in sys.modules, 'mlx' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert out.stdout.split() == ["False", "False", "False"]
