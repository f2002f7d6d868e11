"""Reading matrices and systems of equations as users give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.autodiff.tape import recorded
from ember_ml.errors import LinAlgError, ShapeError
from ember_ml.ops import dispatch, elementwise, manipulation
from ember_ml.ops.axes import broadcast
from ember_ml.ops.explain import explain
from ember_ml.tensor import convert, views
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.typing import TensorLike

__all__ = [
    "adjoint",
    "constant",
    "identity_of",
    "matrix_of",
    "pair",
    "permutation_of",
    "require_nonzero",
    "square_of",
    "system_of",
]


def matrix_of(name: str, x: TensorLike) -> Tensor:
    """A tensor that is a matrix or a stack of matrices."""
    tensor = convert.to_tensor(x)
    if tensor.ndim < 2:
        raise ShapeError(f"ops.{name} takes matrices, not shape {tensor.shape}")
    return tensor


def square_of(name: str, x: TensorLike) -> Tensor:
    """A tensor that is a square matrix or a stack of them."""
    tensor = matrix_of(name, x)
    if tensor.shape[-1] != tensor.shape[-2]:
        raise ShapeError(f"ops.{name} takes square matrices, not shape {tensor.shape}")
    return tensor


def system_of(
    name: str, x1: TensorLike, x2: TensorLike, *, square: bool = True
) -> tuple[Tensor, Tensor, bool]:
    """Matrices, right sides as columns in the same dtype, and whether they were one vector."""
    home = dispatch.home_of(name, (x1, x2))
    a = (square_of if square else matrix_of)(name, convert.to_tensor(x1, home))
    b = convert.to_tensor(x2, home)
    vector = b.ndim == 1
    if not b.ndim or b.shape[0 if vector else -2] != a.shape[-2]:
        raise ShapeError(f"ops.{name} got shapes {a.shape} and {b.shape}, which do not fit")
    broadcast(name, [a.shape[:-2], b.shape[:-2]])
    left, right = (dispatch.lifted(name, x) for x in dispatch.aligned(name, a, b))
    return left, manipulation.expand_dims(right, -1) if vector else right, vector


def pair(name: str, a: Tensor, b: Tensor, *options: Any) -> Tensor:
    """Run a kernel on matrices and right sides that `system_of` gave."""
    spec = a._spec
    kernel, result = spec.backend.entry(spec, name)
    try:
        native = kernel(a.native, b.native, *options)
    except Exception as error:
        # The shapes fit: what is left is a matter of the matrices.
        raise explain(name, error, (a,)) from error
    if type(a) is GradTensor or type(b) is GradTensor:
        return recorded(name, native, result, (a, b), options)
    return fill(native, result)


def require_nonzero(name: str, values: Tensor) -> None:
    """Raise LinAlgError where a number by which is divided is zero; not while tracing."""
    if not values.size or not values._spec.backend.checks_values(values.native):
        return
    if bool(dispatch.reduce("any", elementwise.equal(values, 0), None, False)):
        raise LinAlgError(f"ops.{name} got a singular matrix: a zero on its diagonal")


def constant(array: np.ndarray[Any, Any], like: Tensor) -> Tensor:
    """A NumPy array as a tensor on the backend and device of another."""
    spec = like._spec.with_dtype(dtypes.to_dtype(array.dtype))
    return fill(spec.backend.from_numpy(array, spec), spec)


def identity_of(x: Tensor) -> Tensor:
    """The identity matrix that fits beside square matrices."""
    return constant(np.eye(x.shape[-1], dtype=x.dtype.numpy), x)


def adjoint(x: Tensor) -> Tensor:
    """The transpose, conjugated where numbers are complex."""
    turned = views.rearranged("matrix_transpose", x)
    return elementwise.conj(turned) if x.dtype.is_complex else turned


def permutation_of(pivots: Tensor, rows: int) -> Tensor:
    """The order of rows that exchanging row i with row pivots[i], one i after the other, gives."""
    spec = pivots._spec
    kernel, _ = spec.backend.entry(spec, "linalg.permutation_of_pivots")
    return fill(kernel(pivots.native, rows), spec)
