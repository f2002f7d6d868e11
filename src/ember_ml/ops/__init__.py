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
    activations,
    affine,
    arithmetic,
    arranging,
    attention,
    bits,
    calculus,
    contraction,
    control,
    convolution,
    counting,
    creation,
    data_types,
    dropping,
    elementwise,
    fft,
    indexing,
    interchange,
    linearalg,
    lookup,
    losses,
    manipulation,
    nan_reductions,
    normalization,
    padding,
    pooling,
    products,
    quantiles,
    random,
    reduce_names,
    reduction,
    resizing,
    scattering,
    searching,
    signal,
    special,
    stacking,
    statistics,
    stats,
    updates,
)
from ember_ml.ops import linearalg as linalg
from ember_ml.ops.activations import *
from ember_ml.ops.affine import *
from ember_ml.ops.arithmetic import *
from ember_ml.ops.arranging import *
from ember_ml.ops.attention import *
from ember_ml.ops.bits import *
from ember_ml.ops.calculus import *
from ember_ml.ops.contraction import *
from ember_ml.ops.control import *
from ember_ml.ops.convolution import *
from ember_ml.ops.counting import *
from ember_ml.ops.creation import *
from ember_ml.ops.data_types import *
from ember_ml.ops.dropping import *
from ember_ml.ops.elementwise import *
from ember_ml.ops.indexing import *
from ember_ml.ops.info import __array_namespace_info__
from ember_ml.ops.interchange import *
from ember_ml.ops.linearalg import (
    cross,
    diag,
    diagonal,
    kron,
    matmul,
    matrix_transpose,
    tensordot,
    trace,
    vecdot,
)
from ember_ml.ops.lookup import *
from ember_ml.ops.manipulation import *
from ember_ml.ops.nan_reductions import *
from ember_ml.ops.normalization import *
from ember_ml.ops.padding import *
from ember_ml.ops.pooling import *
from ember_ml.ops.products import *
from ember_ml.ops.quantiles import *
from ember_ml.ops.reduce_names import *
from ember_ml.ops.reduction import *
from ember_ml.ops.resizing import *
from ember_ml.ops.scattering import *
from ember_ml.ops.searching import *
from ember_ml.ops.signal import *
from ember_ml.ops.special import *
from ember_ml.ops.stacking import *
from ember_ml.ops.statistics import *
from ember_ml.ops.updates import *

__all__ = [
    "__array_api_version__",
    "__array_namespace_info__",
    "bfloat16",
    "bool",
    "complex64",
    "complex128",
    "cross",
    "diag",
    "diagonal",
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
    "kron",
    "linalg",
    "linearalg",
    "losses",
    "matmul",
    "matrix_transpose",
    "memory_info",
    "memory_usage",
    "nan",
    "newaxis",
    "pi",
    "random",
    "set_backend",
    "set_device",
    "signal",
    "stats",
    "synchronize",
    "tensordot",
    "to_device",
    "trace",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "use_backend",
    "use_device",
    "vecdot",
]
__all__ += activations.__all__
__all__ += affine.__all__
__all__ += arithmetic.__all__
__all__ += arranging.__all__
__all__ += attention.__all__
__all__ += bits.__all__
__all__ += calculus.__all__
__all__ += contraction.__all__
__all__ += control.__all__
__all__ += convolution.__all__
__all__ += counting.__all__
__all__ += creation.__all__
__all__ += data_types.__all__
__all__ += dropping.__all__
__all__ += elementwise.__all__
__all__ += indexing.__all__
__all__ += interchange.__all__
__all__ += lookup.__all__
__all__ += manipulation.__all__
__all__ += nan_reductions.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += pooling.__all__
__all__ += products.__all__
__all__ += quantiles.__all__
__all__ += reduce_names.__all__
__all__ += reduction.__all__
__all__ += resizing.__all__
__all__ += scattering.__all__
__all__ += searching.__all__
__all__ += signal.__all__
__all__ += special.__all__
__all__ += stacking.__all__
__all__ += statistics.__all__
__all__ += updates.__all__

__array_api_version__ = "2025.12"
newaxis = None
