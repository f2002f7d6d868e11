"""What users call: the array API standard 2025.12, and more, on every backend.

Ops follow their tensors: the backend of the inputs computes. The current backend decides only
for inputs that have none, such as lists and numbers.
"""

from math import e, inf, nan, pi

from ember_ml.backend.selection import get_backend, set_backend, use_backend
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
from ember_ml.dtypes import (
    bfloat16,
    bool,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ember_ml.ops import (
    creation,
    data_types,
    elementwise,
    fft,
    indexing,
    interchange,
    linearalg,
    manipulation,
    reduction,
    searching,
)
from ember_ml.ops import linearalg as linalg
from ember_ml.ops.creation import *
from ember_ml.ops.data_types import *
from ember_ml.ops.elementwise import *
from ember_ml.ops.indexing import *
from ember_ml.ops.info import __array_namespace_info__
from ember_ml.ops.interchange import *
from ember_ml.ops.linearalg import matmul, matrix_transpose, tensordot, vecdot
from ember_ml.ops.manipulation import *
from ember_ml.ops.reduction import *
from ember_ml.ops.searching import *

__all__ = [
    "__array_api_version__",
    "__array_namespace_info__",
    "bfloat16",
    "bool",
    "complex64",
    "complex128",
    "e",
    "fft",
    "float16",
    "float32",
    "float64",
    "get_available_devices",
    "get_backend",
    "get_device",
    "get_device_of_tensor",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "linalg",
    "linearalg",
    "matmul",
    "matrix_transpose",
    "memory_info",
    "memory_usage",
    "nan",
    "newaxis",
    "pi",
    "set_backend",
    "set_device",
    "synchronize",
    "tensordot",
    "to_device",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "use_backend",
    "use_device",
    "vecdot",
]
__all__ += creation.__all__
__all__ += data_types.__all__
__all__ += elementwise.__all__
__all__ += indexing.__all__
__all__ += interchange.__all__
__all__ += manipulation.__all__
__all__ += reduction.__all__
__all__ += searching.__all__

__array_api_version__ = "2025.12"
newaxis = None
