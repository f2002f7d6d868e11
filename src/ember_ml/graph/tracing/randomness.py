"""Draws within an exported function: each run would give the numbers of the export."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ember_ml.errors import TraceError
from ember_ml.graph.tracing.lines import user_line
from ember_ml.ops.random import seeding

__all__ = ["stream_states", "without_draws"]


class _Refused(dict[int, Any]):
    """The streams of generators, of which a graph has none."""

    def get(self, key: int, default: Any = None) -> Any:
        raise TraceError(_text())


def _text() -> str:
    return (
        "em.export: random numbers of a generator or a seed would be the same in every run of the "
        "graph; give the function a key, as ops.random.normal(shape, generator=key) with "
        f"key = ops.random.key(0), or draw outside{user_line()}"
    )


def _refuse() -> Any:
    raise TraceError(_text())


@contextmanager
def without_draws(name: str) -> Iterator[None]:
    """A block in which only draws by an explicit key are allowed."""
    token = seeding._current.set(seeding.CallStream(_refuse, _Refused()))
    try:
        yield
    finally:
        seeding._current.reset(token)


def stream_states(values: Iterable[Any]) -> bytes:
    """How far Python's and NumPy's streams of random numbers are, with those among some values."""
    kinds = (random.Random, np.random.Generator, np.random.RandomState)
    own = [x for x in values if isinstance(x, kinds) and not isinstance(x, random.SystemRandom)]
    return pickle.dumps((random.getstate(), np.random.get_state(), own))
