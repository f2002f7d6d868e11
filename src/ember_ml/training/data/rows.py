"""Trees of tensors and arrays whose first axis counts samples, and batches of their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ember_ml import ops, tree
from ember_ml.backend.selection import use_backend
from ember_ml.dtypes import DTypeLike, get_dtype
from ember_ml.errors import DTypeError, ShapeError
from ember_ml.features.data import is_frame, is_series, pandas_array
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.training.computing import compute_now

__all__ = ["Rows", "collate", "host", "placed"]

Array = np.ndarray[Any, Any]


class Rows:
    """Tensors of one length in a tree; a batch is the same tree with some of their rows."""

    def __init__(self, who: str, data: Any) -> None:
        leaves, self.structure = tree.flatten(data)
        self.columns = [_column(who, leaf) for leaf in leaves]
        self.tensors = all(isinstance(one, Tensor) for one in self.columns)
        if not self.columns:
            raise ShapeError(f"{who} got {type(data).__name__} without any tensor in it")
        named = list(zip(tree.paths(self.structure, "data"), self.columns, strict=True))
        for path, one in named:
            if one.ndim == 0:
                raise ShapeError(f"{who} got a single number at {path}; samples are rows")
        self.count = int(self.columns[0].shape[0])
        if any(one.shape[0] != self.count for one in self.columns):
            told = ", ".join(f"{path}: {one.shape[0]}" for path, one in named)
            raise ShapeError(f"{who} got tensors of different lengths ({told}); rows are samples")

    @classmethod
    def of(cls, who: str, data: Any) -> Rows | None:
        """The rows of tensors, arrays, frames, and tuples or dicts of these; None for others."""
        leaves = tree.leaves(data)
        # A list of arrays is one of samples: those of torch's datasets come like this.
        if isinstance(data, list) or not leaves or not all(map(_is_table, leaves)):
            return None
        return cls(who, data)

    def at(self, index: Any) -> Any:
        """The sample of a number."""
        return tree.unflatten(self.structure, [column[index] for column in self.columns])

    def taken(self, indices: Array) -> Any:
        """Some rows, as tensors of the same backends and as arrays."""
        return tree.unflatten(
            self.structure,
            [
                ops.take(one, indices, axis=0) if isinstance(one, Tensor) else one[indices]
                for one in self.columns
            ],
        )

    def reader(self) -> Callable[[Array], Any]:
        """A function from numbers of rows to a batch: arrays, and tensors of accelerators.

        Memory of the host is read by NumPy, whatever engine it belongs to: taking rows is quick
        there and lets other threads run.
        """
        columns = [
            host(one) if isinstance(one, Tensor) and one.device.startswith("cpu") else one
            for one in self.columns
        ]

        def read(indices: Array) -> Any:
            return tree.unflatten(
                self.structure,
                [
                    ops.take(one, indices, axis=0) if isinstance(one, Tensor) else one[indices]
                    for one in columns
                ],
            )

        return read


def _is_table(leaf: Any) -> bool:
    return (
        isinstance(leaf, Tensor | np.ndarray)
        or convert.backend_of(leaf) is not None
        or is_frame(leaf)
        or is_series(leaf)
    )


def _column(who: str, leaf: Any) -> Tensor | Array:
    if is_frame(leaf) or is_series(leaf):
        return pandas_array(who, leaf)
    if isinstance(leaf, list | range):
        leaf = np.asarray(leaf)
    if isinstance(leaf, np.ndarray):
        if leaf.dtype.kind in "OUSMm":
            raise DTypeError(
                f"{who} takes arrays of numbers, not of dtype {leaf.dtype}; give a list of samples "
                f"for texts and other objects"
            )
        return leaf
    found = convert.to_tensor(leaf)
    return found.detach() if found.requires_grad else found


def host(x: Tensor) -> Array:
    """A tensor as an array in host memory, without a copy where that can be."""
    return np.asarray(x.detach().numpy() if x.requires_grad else x.numpy())


def collate(samples: list[Any]) -> Any:
    """Samples of one structure as a batch: numbers and arrays are stacked, others are listed."""
    first, structure = tree.flatten(samples[0])
    columns: list[list[Any]] = [[leaf] for leaf in first]
    for number, sample in enumerate(samples[1:], 1):
        leaves, other = tree.flatten(sample)
        if other != structure:
            raise ShapeError(
                f"DataLoader got samples of different structures: {samples[0]!r:.80} and, as "
                f"number {number} of the batch, {sample!r:.80}; give a function as collate="
            )
        for column, leaf in zip(columns, leaves, strict=True):
            column.append(leaf)
    return tree.unflatten(structure, [_stacked(column) for column in columns])


def _stacked(column: list[Any]) -> Any:
    first = column[0]
    if isinstance(first, bool | int | float | complex):
        made = np.asarray(column)
        # Python's floats are of the default dtype, as everywhere.
        return made.astype(np.float32) if made.dtype == np.float64 else made
    if isinstance(first, np.generic):
        return np.asarray(column)
    if not _is_table(first):
        return column
    arrays = [
        one if isinstance(one, np.ndarray) else host(convert.to_tensor(one)) for one in column
    ]
    try:
        return np.stack(arrays)
    except ValueError:
        shapes = sorted({one.shape for one in arrays})
        raise ShapeError(
            f"DataLoader got samples of the shapes {', '.join(map(str, shapes[:4]))}, which make "
            f"no batch; give a function as collate= that pads them"
        ) from None


def placed(batch: Any, backend: str, dtype: DTypeLike = None) -> Any:
    """A batch with its arrays as tensors of a backend; floats in `dtype` where one is given."""
    wanted = None if dtype is None else get_dtype(dtype)

    def place(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            made = leaf if leaf.backend == backend else leaf.to_backend(backend)
        elif isinstance(leaf, np.ndarray | np.generic):
            if wanted is not None and leaf.dtype.kind == "f":
                leaf = leaf.astype(wanted.numpy)
            return ops.asarray(leaf)
        elif _is_table(leaf):
            made = convert.to_tensor(leaf)
            made = made if made.backend == backend else made.to_backend(backend)
        else:
            return leaf
        if wanted is not None and made.dtype.is_floating:
            made = made.astype(wanted)
        compute_now([made])  # perhaps in a thread, and read in another one
        return made

    with use_backend(backend):
        return tree.map(place, batch)
