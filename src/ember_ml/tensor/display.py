"""How tensors show themselves: in a terminal, in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ember_ml.tensor import roles

if TYPE_CHECKING:
    from ember_ml.tensor.core import Tensor

__all__ = ["html", "text", "values"]


def values(x: Tensor, prefix: str = "") -> str:
    """The values alone, shortened as NumPy does."""
    if x._spec.backend.is_traced(x.native):
        return "<traced>"
    array = x.numpy()
    if x.dtype == "bfloat16":
        array = array.astype(np.float32)
    return np.array2string(array, separator=", ", prefix=prefix)


def text(x: Tensor) -> str:
    """Values, shape, dtype, backend and device."""
    grad = ", requires_grad=True" if x.requires_grad else ""
    name = roles.NAMES.get(roles.role_of(x), "tensor")
    return (
        f"{name}({values(x, f'{name}(')}, shape={x.shape}, dtype={x.dtype}, "
        f"backend='{x.backend}', device='{x.device}'{grad})"
    )


def html(x: Tensor) -> str:
    """A table for notebooks: facts above the values."""
    from html import escape  # its table of entities is not worth loading before it is needed

    facts = {"shape": x.shape, "dtype": x.dtype, "backend": x.backend, "device": x.device}
    if x.requires_grad:
        facts["requires_grad"] = True
    head = "".join(f"<th>{name}</th>" for name in facts)
    row = "".join(f"<td>{escape(str(fact))}</td>" for fact in facts.values())
    return (
        f"<table><tr>{head}</tr><tr>{row}</tr></table>"
        f"<pre style='margin:0'>{escape(values(x))}</pre>"
    )
