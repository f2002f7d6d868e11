"""One tensor and neural-network API on NumPy, PyTorch, JAX and MLX."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ember_ml import compiled  # the first: it decides in which form the core is imported

# isort: split
from ember_ml import backend, dtypes, errors, typing
from ember_ml.backend import (
    auto_select_backend,
    available_backends,
    get_backend,
    get_backend_module,
    register_backend,
    set_backend,
    use_backend,
    use_checks,
)
from ember_ml.dtypes import (
    DType,
    EmberDType,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    from_dtype_str,
    get_dtype,
    int8,
    int16,
    int32,
    int64,
    to_dtype_str,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ember_ml.errors import (
    AxisError,
    BackendMismatchError,
    BackendUnavailableError,
    CommunicationError,
    CopyError,
    DeviceError,
    DomainError,
    DTypeError,
    EmberError,
    FormatError,
    GradientError,
    IntegerDivisionError,
    LinAlgError,
    NaNLossError,
    NotFittedError,
    OutOfBoundsError,
    ReadOnlyError,
    ShapeError,
    TraceError,
    UnknownBackendError,
    UnknownKeyError,
    UnsupportedOpError,
)
from ember_ml.tensor import EmberTensor, Storage, Tensor, TensorView, TensorViewMut

from ember_ml import nn, ops  # isort: skip  # ops are written over Tensor
from ember_ml.devices import (
    get_available_devices,
    get_device,
    get_device_of_tensor,
    memory_info,
    memory_usage,
    set_device,
    synchronize,
    to_device,
    use_device,
)
from ember_ml.ops import from_jax, from_mlx, from_numpy, from_torch

if _TYPE_CHECKING:
    from ember_ml import (
        autodiff,
        distributed,
        features,
        graph,
        io,
        memory,
        models,
        registry,
        training,
        tree,
        webnn,
    )
    from ember_ml.autodiff import (
        GradientTape,
        checkpoint,
        custom_gradient,
        enable_grad,
        grad,
        hessian,
        hvp,
        is_grad_enabled,
        jacobian,
        jit,
        jvp,
        no_grad,
        set_grad_enabled,
        stop_gradient,
        value_and_grad,
        vjp,
    )
    from ember_ml.graph import Graph, export, load_onnx
    from ember_ml.io import load, save

compiled.show_sources()

__version__ = "0.1.0"

__all__ = [
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
    "complex64",
    "complex128",
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
    "int8",
    "int16",
    "int32",
    "int64",
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
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "use_backend",
    "use_checks",
    "use_device",
    "value_and_grad",
    "vjp",
    "webnn",
]


_LATER = frozenset(
    "autodiff distributed features graph memory models registry training tree webnn".split()
)


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        from importlib import import_module

        return import_module(f"ember_ml.{name}")
    if name in ("Graph", "export", "load_onnx"):
        from ember_ml import graph as graphs

        return getattr(graphs, name)
    # Files need modules that would double the cost of our import.
    if name in ("io", "load", "save"):
        from importlib import import_module

        files = import_module("ember_ml.io")
        globals().update(io=files, load=files.load, save=files.save)
        return globals()[name]
    if name in __all__:  # what is left is of autodiff
        from ember_ml import autodiff as gradients

        # Kept: who writes em.no_grad() at every step comes here once.
        found = globals()[name] = getattr(gradients, name)
        return found
    raise AttributeError(f"module 'ember_ml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
