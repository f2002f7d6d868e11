"""Tensors and their dtypes in one place: `from ember_ml.nn import tensor`."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ember_ml.dtypes import (
    DType,
    EmberDType,
    bfloat16,
    bool,
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
from ember_ml.ops.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from ember_ml.ops.data_types import astype, cast
from ember_ml.ops.interchange import from_jax, from_mlx, from_numpy, from_torch
from ember_ml.ops.manipulation import (
    broadcast_to,
    concat,
    concatenate,
    expand_dims,
    permute_dims,
    reshape,
    squeeze,
    stack,
    tile,
    transpose,
)
from ember_ml.tensor.convert import to_tensor as _to_tensor
from ember_ml.tensor.core import EmberTensor, Tensor
from ember_ml.typing import TensorLike

if TYPE_CHECKING:
    from ember_ml.markers import D
    from ember_ml.ops.lookup import one_hot
    from ember_ml.ops.padding import pad
    from ember_ml.ops.random import bernoulli as random_bernoulli
    from ember_ml.ops.random import get_seed, set_seed
    from ember_ml.ops.random import normal as random_normal
    from ember_ml.ops.random import permutation as random_permutation
    from ember_ml.ops.random import uniform as random_uniform
    from ember_ml.ops.scattering import scatter
    from ember_ml.ops.stacking import hstack, split, vstack
    from ember_ml.ops.updates import gather
    from ember_ml.tensor.typed import DTypeOf

__all__ = [
    "DType",
    "EmberDType",
    "EmberTensor",
    "Tensor",
    "arange",
    "array",
    "asarray",
    "astype",
    "bfloat16",
    "bool",
    "broadcast_to",
    "cast",
    "complex64",
    "complex128",
    "concat",
    "concatenate",
    "convert_to_tensor",
    "empty",
    "empty_like",
    "expand_dims",
    "eye",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_dtype_str",
    "from_jax",
    "from_mlx",
    "from_numpy",
    "from_torch",
    "full",
    "full_like",
    "gather",
    "get_dtype",
    "get_seed",
    "hstack",
    "int8",
    "int16",
    "int32",
    "int64",
    "item",
    "linspace",
    "meshgrid",
    "one_hot",
    "ones",
    "ones_like",
    "pad",
    "permute_dims",
    "random_bernoulli",
    "random_normal",
    "random_permutation",
    "random_uniform",
    "reshape",
    "scatter",
    "set_seed",
    "shape",
    "split",
    "squeeze",
    "stack",
    "tile",
    "to_dtype_str",
    "to_numpy",
    "transpose",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "vstack",
    "zeros",
    "zeros_like",
]


def convert_to_tensor(
    data: TensorLike,
    dtype: DTypeOf[D] = None,
    device: str | None = None,
    requires_grad: Any = False,
) -> Tensor[D]:
    """A tensor of anything; a tensor that needs no change is given back as it is.

    >>> convert_to_tensor([[1.0, 2.0]]).shape
    (1, 2)
    """
    if not requires_grad:
        return asarray(data, dtype=dtype, device=device)
    return Tensor(data, dtype=dtype, device=device, requires_grad=True)


def array(
    data: TensorLike,
    dtype: DTypeOf[D] = None,
    device: str | None = None,
    requires_grad: Any = False,
) -> Tensor[D]:
    """A tensor with memory of its own.

    >>> array([1, 2], dtype=int32).dtype
    ember_ml.int32
    """
    made = asarray(data, dtype=dtype, device=device, copy=True)
    return Tensor(made, requires_grad=True) if requires_grad else made


def to_numpy(x: TensorLike, *, copy: Any = None) -> Any:
    """The values as a NumPy array; `copy` as in `Tensor.numpy`."""
    return _to_tensor(x).numpy(copy=copy)


def shape(x: TensorLike) -> tuple[int, ...]:
    """The length of each axis."""
    return _to_tensor(x).shape


def item(x: TensorLike) -> Any:
    """The value of a tensor with one element."""
    return _to_tensor(x).item()


# What is loaded when it is first used, with its name in ops.
_LATER = {
    "gather": "gather",
    "get_seed": "random.get_seed",
    "hstack": "hstack",
    "one_hot": "one_hot",
    "pad": "pad",
    "random_bernoulli": "random.bernoulli",
    "random_normal": "random.normal",
    "random_permutation": "random.permutation",
    "random_uniform": "random.uniform",
    "scatter": "scatter",
    "set_seed": "random.set_seed",
    "split": "split",
    "vstack": "vstack",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module 'ember_ml.nn.tensor' has no attribute {name!r}")
        from ember_ml import ops

        found = globals()[name] = attrgetter(_LATER[name])(ops)
        return found
