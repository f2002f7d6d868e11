"""Keys as NumPy reads them, where torch reads them otherwise.

torch has no negative steps; it takes integers out before it looks at index arrays, where NumPy
counts them among the arrays; and it looks through an ellipsis that stands for no axis.
"""

from __future__ import annotations

from typing import Any

import torch

from ember_ml.backend.torch.unsigned import as_signed

__all__ = ["get", "put", "turned"]

_ALL = slice(None)


def get(x: torch.Tensor, key: tuple[Any, ...]) -> torch.Tensor:
    """`x[key]`."""
    if _agreed(key):
        return x[key]
    view, turned, chosen = _split(x, key)
    work = _turn(view, turned)
    if _has_unread(chosen):
        found: torch.Tensor = torch.ops.aten.index.Tensor(work, _indices(chosen))
        return found
    return work[chosen]


def put(x: torch.Tensor, key: tuple[Any, ...], value: torch.Tensor) -> None:
    """`x[key] = value`."""
    if value.requires_grad and any(map(_is_integers, key)):
        value = _staying(x, key, value)
    if _agreed(key):
        x[key] = value
        return
    view, turned, chosen = _split(x, key)
    work = _turn(view, turned)
    if _has_unread(chosen):
        torch.ops.aten.index_put_.default(work, _indices(chosen), value)
    else:
        work[chosen] = value
    if not turned:
        return
    view.copy_(_turn(work, turned))


def _is_integers(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dtype is not torch.bool


def _staying(x: torch.Tensor, key: tuple[Any, ...], value: torch.Tensor) -> torch.Tensor:
    """A value whose gradient, where a key names a place twice, goes to the element that stays."""
    places = torch.zeros(x.shape, dtype=torch.int64, device=x.device)
    shape = get(places, key).shape
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value[0]
    numbers = torch.arange(1, shape.numel() + 1, device=x.device).reshape(shape)
    put(places, key, numbers)
    return torch.where(get(places, key) == numbers, value, value.detach())


def _has_unread(chosen: Any) -> bool:
    """True for a 0-d index, which is there only while it is traced: torch would read its value."""
    return isinstance(chosen, tuple) and any(
        isinstance(item, torch.Tensor) and not item.ndim for item in chosen
    )


def _indices(chosen: tuple[Any, ...]) -> list[torch.Tensor | None]:
    return [item if isinstance(item, torch.Tensor) else None for item in chosen]


def _turn(x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    return turned(x, axes) if axes else x


def turned(x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    """`x` with some axes in reverse order; torch lacks that for most unsigned integers."""
    signed: torch.Tensor = as_signed(x)
    # A view in another dtype, be it the same, has no gradient.
    return x.flip(axes) if signed is x else signed.flip(axes).view(x.dtype)


def _agreed(key: tuple[Any, ...]) -> bool:
    """True where torch reads the key as NumPy does."""
    arrays = others = 0
    for item in key:
        if isinstance(item, torch.Tensor):
            if not item.ndim:
                return False
            arrays += 1
        elif isinstance(item, slice):
            if item.step is not None and item.step < 0:
                return False
        elif item is not None:
            others += 1
    return not (arrays and others)


def _split(x: torch.Tensor, key: tuple[Any, ...]) -> tuple[torch.Tensor, list[int], Any]:
    """A view of `x` by the slices of a key, its axes to be turned, and the rest of the key."""
    arrays = [place for place, item in enumerate(key) if isinstance(item, torch.Tensor)]
    if arrays:  # integers count as arrays beside arrays
        arrays = [p for p, item in enumerate(key) if isinstance(item, int | torch.Tensor)]
    apart = bool(arrays) and arrays[-1] - arrays[0] >= len(arrays)
    basic: list[Any] = []
    turned: list[int] = []
    chosen: list[Any] = []
    for place, item in enumerate(key):
        if item is Ellipsis:
            whole = [_ALL] * (x.ndim - _axes(key))
            basic += whole
            chosen += whole
        elif place in arrays:
            basic += [None] if _is_truth(item) else [_ALL] * _span(item)
            chosen.append(_index(item, x))
        elif isinstance(item, slice):
            side = x.shape[sum(b is not None for b in basic)]
            if item.step is not None and item.step < 0:
                turned.append(sum(not isinstance(b, int) for b in basic))
            basic.append(_forward(item, side))
            chosen.append(_ALL)
        else:
            basic.append(item)
            if item is None:
                chosen.append(_ALL)
    return _gathered(x[tuple(basic)], turned, chosen, apart)


def _gathered(
    view: torch.Tensor, turned: list[int], chosen: list[Any], apart: bool
) -> tuple[torch.Tensor, list[int], Any]:
    """The same choice with the index arrays in front, where NumPy puts their axes there."""
    if not apart:
        return view, turned, tuple(chosen) or ...
    first: list[int] = []
    axis = 0
    for item in chosen:
        span = _span(item) if isinstance(item, torch.Tensor) else 1
        if isinstance(item, torch.Tensor):
            first += range(axis, axis + span)
        axis += span
    order = first + [i for i in range(view.ndim) if i not in first]
    arrays = tuple(item for item in chosen if isinstance(item, torch.Tensor))
    return view.permute(order), [order.index(i) for i in turned], arrays


def _axes(key: tuple[Any, ...]) -> int:
    return sum(_span(item) for item in key if item is not None and item is not Ellipsis)


def _span(item: Any) -> int:
    """How many axes an item of a key takes."""
    return item.ndim if isinstance(item, torch.Tensor) and item.dtype is torch.bool else 1


def _is_truth(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and not item.ndim and item.dtype is torch.bool


def _index(item: Any, x: torch.Tensor) -> torch.Tensor:
    if _is_truth(item):
        # A lone truth value chooses all or nothing of an axis of length one that it adds.
        return torch.arange(int(item), device=x.device)
    return torch.as_tensor(item, device=x.device)


def _forward(item: slice, side: int) -> slice:
    """The slice of the same elements with a positive step."""
    start, stop, step = item.indices(side)
    if step > 0:
        return item
    count = len(range(start, stop, step))
    return slice(start + (count - 1) * step, start + 1, -step) if count else slice(0, 0)
