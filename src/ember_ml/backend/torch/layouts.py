"""Reading and writing parts of tensors by layout; torch has no negative strides."""

from __future__ import annotations

import torch

from ember_ml.backend.torch.indexing import turned
from ember_ml.backend.torch.unsigned import as_signed
from ember_ml.tensor.layout import Layout, plan_of

__all__ = ["read", "write"]


def read(root: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The elements of `root` that a layout names: a view, where no axis runs backwards."""
    if not layout.size:
        return root.new_empty(layout.shape)
    found = _view(root, layout)
    if found is None:
        indices = torch.from_numpy(layout.indices()).to(root.device)
        return root.reshape(-1)[indices]
    view, axes = found
    return turned(view, axes) if axes else view


def write(root: torch.Tensor, layout: Layout, value: torch.Tensor) -> None:
    """Write a value, which broadcasts, to the elements of `root` that a layout names."""
    value = as_signed(value).broadcast_to(layout.shape)
    found = _view(root, layout)
    if found is None:
        places = torch.from_numpy(layout.indices().reshape(-1)).to(root.device)
        index = torch.unravel_index(places, root.shape)
        as_signed(root).index_put_(index, value.reshape(-1))
        return
    view, axes = found
    # A value that lies in the same memory would be overwritten while it is read.
    as_signed(view).copy_(value.flip(axes) if axes else value.clone())


def _view(root: torch.Tensor, layout: Layout) -> tuple[torch.Tensor, list[int]] | None:
    """A view of the elements in ascending order, and the axes along which they are to descend."""
    if root.is_contiguous():
        axes = [axis for axis, stride in enumerate(layout.strides) if stride < 0]
        low = layout.offset + sum((layout.shape[axis] - 1) * layout.strides[axis] for axis in axes)
        strides = [abs(stride) for stride in layout.strides]
        return root.as_strided(layout.shape, strides, root.storage_offset() + low), axes
    found = plan_of(tuple(root.shape), layout)
    if found is None or found[0].root != tuple(root.shape):
        return None
    plan, starts = found
    part = root[plan.key(starts)].permute(plan.permutation)
    axes = []
    kept = iter(plan.order)
    for axis, side in enumerate(plan.core):
        if side != 1 and next(kept) in plan.turned:
            axes.append(axis)
    return part.reshape(plan.core).expand(plan.shape), axes
