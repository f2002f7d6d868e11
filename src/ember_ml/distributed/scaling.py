"""How a data parallel step grows with the number of ranks: bytes, time of a ring, overlap.

Every rank sends each byte of the gradients about twice around a ring, whatever their number, and
waits for 2 (n - 1) messages. Buckets of gradients go while the backward pass makes the next ones:
what is not done when it ends is the price of being many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ember_ml.errors import DomainError

__all__ = ["Link", "StepModel", "fitted_link"]


@dataclass(frozen=True, slots=True)
class Link:
    """What one message costs between two ranks: seconds, and bytes per second.

    >>> from ember_ml.distributed.scaling import Link
    >>> ethernet = Link(latency=25e-6, bandwidth=1.25e9)
    >>> round(ethernet.all_reduce(100e6, ranks=8), 4)
    0.1404
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not (self.latency >= 0 and self.bandwidth > 0):
            raise DomainError(
                f"Link got latency={self.latency} and bandwidth={self.bandwidth}; "
                f"the first is not negative, the second is greater than 0"
            )

    def all_reduce(self, count: float, ranks: int) -> float:
        """Seconds for a sum of so many bytes over a ring of ranks."""
        if ranks < 1:
            raise DomainError(f"Link.all_reduce got ranks={ranks}; it is at least 1")
        turns = 2 * (ranks - 1)
        return turns * (self.latency + count / ranks / self.bandwidth)

    @staticmethod
    def sent(count: float, ranks: int) -> float:
        """Bytes that each rank sends for a sum of `count` bytes."""
        return 2 * (ranks - 1) / ranks * count


@dataclass(frozen=True, slots=True)
class StepModel:
    """A data parallel step: seconds of its passes on one rank, and the bytes of its buckets.

    `buckets` come in the order in which the backward pass fills them; each takes its share of
    the pass. The batch of a rank stays the same, so that the whole batch grows with the ranks.

    >>> from ember_ml.distributed.scaling import Link, StepModel
    >>> step = StepModel(forward=0.05, backward=0.10, buckets=[25e6] * 4)
    >>> fast, slow = Link(5e-6, 12.5e9), Link(25e-6, 1.25e9)
    >>> round(step.efficiency(64, fast), 3), round(step.efficiency(64, slow), 3)
    (0.97, 0.612)
    """

    forward: float
    backward: float
    buckets: Sequence[float]

    def seconds(self, ranks: int, link: Link) -> float:
        """How long a step takes on so many ranks."""
        total = sum(self.buckets)
        ready = self.forward
        free = 0.0  # when the link has nothing left to do
        for count in self.buckets:
            ready += self.backward * count / total
            free = max(ready, free) + link.all_reduce(count, ranks)
        return max(free, self.forward + self.backward) if ranks > 1 else ready

    def efficiency(self, ranks: int, link: Link) -> float:
        """The speed of a rank among so many, as a share of its speed alone."""
        return (self.forward + self.backward) / self.seconds(ranks, link)

    def exposed(self, ranks: int, link: Link) -> float:
        """Seconds of a step in which a rank only waits for the others."""
        return self.seconds(ranks, link) - self.forward - self.backward


def fitted_link(counts: Sequence[float], seconds: Sequence[float], ranks: int) -> Link:
    """The link for which sums of so many bytes take so long: by least squares of relative errors.

    >>> from ember_ml.distributed.scaling import Link, fitted_link
    >>> link = Link(1e-4, 1e9)
    >>> sizes = [1e3, 1e5, 1e7]
    >>> found = fitted_link(sizes, [link.all_reduce(n, 3) for n in sizes], ranks=3)
    >>> round(found.latency, 9), round(found.bandwidth)
    (0.0001, 1000000000)
    """
    if ranks < 2 or len(counts) < 2 or len(counts) != len(seconds):
        raise DomainError(
            f"fitted_link got {len(counts)} sizes, {len(seconds)} times and {ranks} ranks; it "
            f"takes at least 2 of each, and a time for each size"
        )
    turns = 2.0 * (ranks - 1)
    taken = np.asarray(seconds, np.float64)
    columns = np.stack([np.full(len(taken), turns), turns / ranks * np.asarray(counts)], axis=1)
    (latency, per_byte), *_ = np.linalg.lstsq(columns / taken[:, None], np.ones(len(taken)), None)
    if per_byte <= 0:
        raise DomainError("fitted_link got times that do not grow with the size")
    return Link(max(float(latency), 0.0), 1.0 / float(per_byte))
