"""One tensor and neural-network API on NumPy, PyTorch, JAX and MLX."""

from ember_ml import backend, dtypes, errors, typing
from ember_ml.backend import (
    auto_select_backend,
    available_backends,
    get_backend,
    get_backend_module,
    register_backend,
    set_backend,
    use_backend,
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
    DeviceError,
    DomainError,
    DTypeError,
    EmberError,
    IntegerDivisionError,
    LinAlgError,
    OutOfBoundsError,
    ShapeError,
    UnknownBackendError,
    UnsupportedOpError,
)
from ember_ml.tensor import EmberTensor, Tensor

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

__version__ = "0.1.0"
