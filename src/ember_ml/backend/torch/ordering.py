"""Statistics that go by order on torch: selection, which is quicker than sorting."""

from __future__ import annotations

from typing import Final

import torch

from ember_ml.backend.contract import Kernel
from ember_ml.backend.torch.kernels import argsort
from ember_ml.backend.torch.tracing import is_traced

__all__ = ["OVERRIDES"]

Tensor = torch.Tensor

# Each place costs a selection; a sort costs about five of them.
_FEW: Final = 3
# Below this many values, or where a good part of them is asked for, sorting is the short way.
_SHORT: Final = 256


def quantiles_at(
    x: Tensor, low: tuple[int, ...], high: tuple[int, ...], weight: tuple[float, ...]
) -> Tensor:
    places = sorted({*low, *high, x.shape[-1] - 1})
    found = _selected(x, places)
    a, b = (found[..., [places.index(k) for k in one]] for one in (low, high))
    share = torch.tensor(weight, dtype=x.dtype, device=x.device)
    out = torch.where(a == b, a, a * (1 - share) + b * share)
    last = found[..., -1:]
    return torch.where(torch.isnan(last), last, out)


def _selected(x: Tensor, places: list[int]) -> Tensor:
    """The values that sorting the last axis, NaN behind all, would bring to some places."""
    if len(places) > _FEW:
        index = torch.tensor(places, device=x.device)
        return torch.sort(x, dim=-1).values.index_select(-1, index)
    last = x.shape[-1] - 1
    found = [
        torch.amax(x, -1) if k == last else torch.kthvalue(x, k + 1, dim=-1).values for k in places
    ]
    return torch.stack(found, dim=-1)


def topk_indices(x: Tensor, k: int, largest: bool) -> tuple[Tensor, ...]:
    side = x.shape[-1]
    if x.dtype is torch.bool:
        x = x.to(torch.uint8)
    if side < _SHORT or 4 * k > side or not k or is_traced(x):
        return (argsort(x, -1, largest, True)[..., :k],)
    # torch.topk leaves open which of equal values it takes, and in which order.
    best, index = torch.topk(x, k + 1, dim=-1, largest=largest)
    limit = best[..., k - 1 : k]
    clear = (limit != best[..., k:]) & ~(torch.isnan(limit) & torch.isnan(best[..., k:]))
    if x.is_cpu and bool(clear.all()):
        index = torch.sort(index[..., :k], dim=-1).values
    else:
        index = _first_of_equals(x, limit, k, largest)
    order = argsort(torch.gather(x, -1, index), -1, largest, True)
    return (torch.gather(index, -1, order),)


def _first_of_equals(x: Tensor, limit: Tensor, k: int, largest: bool) -> Tensor:
    """The indices of what comes before a limit, and the first of those that equal it."""
    chosen = x > limit if largest else x < limit
    ties = x == limit
    if x.is_floating_point():  # NaN counts as the largest
        nan, limit_nan = torch.isnan(x), torch.isnan(limit)
        chosen |= nan & ~limit_nan if largest else ~nan & limit_nan
        ties |= nan & limit_nan
    missing = k - chosen.sum(-1, keepdim=True)
    chosen |= ties & (ties.cumsum(-1) <= missing)
    return torch.nonzero(chosen, as_tuple=True)[-1].reshape(*x.shape[:-1], k)


def running_maximum(x: Tensor, axis: int) -> Tensor:
    return torch.cummax(x, axis).values


def bin_sum(index: Tensor, weights: Tensor | None, length: int) -> Tensor:
    """How often each of 0 to length - 1 stands in `index`, or the sum of the weights there."""
    values = torch.ones_like(index) if weights is None else weights
    return values.new_zeros(length).index_add(0, index, values)


OVERRIDES: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel for kernel in (quantiles_at, topk_indices, running_maximum, bin_sum)
}
