"""Statistics of a whole batch, where a process has a part of it only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from ember_ml.tensor.core import Tensor

__all__ = ["WHOLE", "WholeBatch", "whole_batch"]


class WholeBatch(Protocol):
    """Who has the other parts of a batch."""

    # False where the rows of this process stand in for none, and do not count.
    counts: bool

    def gather(self, x: Tensor, /) -> Tensor:
        """The vectors of all processes, as rows; gradients go through."""
        ...


WHOLE: Final[ContextVar[WholeBatch | None]] = ContextVar("ember_ml whole batch", default=None)


@contextmanager
def whole_batch(whole: WholeBatch | None) -> Iterator[None]:
    """A block in which layers take the statistics of a whole batch."""
    token = WHOLE.set(whole)
    try:
        yield
    finally:
        WHOLE.reset(token)
