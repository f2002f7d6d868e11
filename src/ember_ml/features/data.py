"""What feature extractors are given, as tensors: pandas objects, arrays, lists, tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.backend.contract import Backend
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "check_finite",
    "column_names",
    "floats",
    "is_frame",
    "is_series",
    "matrix",
    "pandas_array",
]


def _is_pandas(value: object, kind: str) -> bool:
    # By name, since pandas is imported only by those who have a data frame.
    return any(
        base.__name__ == kind and base.__module__.partition(".")[0] == "pandas"
        for base in type(value).__mro__
    )


def is_frame(value: object) -> bool:
    """True for a pandas DataFrame."""
    return _is_pandas(value, "DataFrame")


def is_series(value: object) -> bool:
    """True for a pandas Series."""
    return _is_pandas(value, "Series")


def column_names(value: Any) -> list[str] | None:
    """The names of the columns of a pandas object, where all of them are texts."""
    if is_frame(value):
        found = list(value.columns)
    elif is_series(value):
        found = [value.name]
    else:
        return None
    return found if found and all(isinstance(name, str) for name in found) else None


def floats(who: str, x: TensorLike, home: Backend | None = None) -> Tensor:
    """Data as a tensor of a real floating dtype; integers and truth values in the default one.

    What has no backend goes to `home`, or to the current one.
    """
    if is_frame(x) or is_series(x):
        x = pandas_array(who, x)
    tensor = convert.to_tensor(x, home)
    if tensor.dtype.is_complex:
        raise DTypeError(f"{who} takes real numbers, not {tensor.dtype}")
    return tensor if tensor.dtype.is_floating else convert.cast(tensor, dtypes.default_float)


def matrix(who: str, x: TensorLike, home: Backend | None = None) -> Tensor:
    """Data as a matrix with a row for each sample; a pandas Series is one column."""
    tensor = floats(who, x, home)
    if is_series(x):
        tensor = tensor[:, None]
    if tensor.ndim != 2:
        raise ShapeError(
            f"{who} takes a matrix (samples, features), not shape {tensor.shape}; "
            f"one feature is x[:, None], one sample x[None, :]"
        )
    return tensor


def pandas_array(who: str, x: Any) -> np.ndarray[Any, Any]:
    """A pandas object of numbers as an array; DTypeError names columns that hold none."""
    array: np.ndarray[Any, Any] = x.to_numpy()
    if array.dtype.kind in "biuf":
        return array
    # Nullable columns, or truth values beside numbers: pandas gives them as objects.
    series = [x] if is_series(x) else [x.iloc[:, i] for i in range(x.shape[1])]
    other = [str(s.name) for s in series if getattr(s.dtype, "kind", "O") not in "biuf"]
    if other:
        raise DTypeError(
            f"{who} takes numbers, and the columns {', '.join(map(repr, other))} hold none; "
            f"features.ColumnFeatureExtractor makes numbers of them"
        )
    return np.asarray(x.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan))


def check_finite(who: str, x: Tensor, *, nan: bool = False) -> bool:
    """True where all values are finite; DomainError where one is not, but NaN where `nan` is."""
    from ember_ml import ops

    finite = ops.isfinite(x)
    if bool(ops.all(finite).item()):
        return True
    wrong = ops.isinf(x) if nan else ops.logical_not(finite)
    count = int(ops.count_nonzero(wrong).item())
    if count:
        what = "infinite" if nan else "NaN or infinite"
        raise DomainError(f"{who} got {count} of {x.size} values that are {what}")
    return False
