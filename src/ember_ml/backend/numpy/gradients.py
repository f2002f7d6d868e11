"""Gradients on NumPy: the tape of autodiff/tape.py, and whose memory its results are in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ember_ml.backend.gradients import Gradients
from ember_ml.tensor.core import fill

__all__ = ["NumpyGradients"]


class NumpyGradients(Gradients):
    """NumPy has no differentiation of its own."""

    def apart(self, grads: list[Any], seeds: Iterable[Any]) -> list[Any]:
        taken = {id(_owner(seed.native)) for seed in seeds}
        for place, g in enumerate(grads):
            if g is None:
                continue
            native = g.native
            if native.base is None:
                owner = id(native)
                if owner not in taken:
                    taken.add(owner)
                    continue
            else:
                owner = id(_owner(native))
                # What is broadcast has many elements in one place; it cannot be written to.
                if owner not in taken and native.flags.writeable and 0 not in native.strides:
                    taken.add(owner)
                    continue
            grads[place] = fill(np.array(native, copy=True, order="C"), g._spec)
        return grads


def _owner(array: Any) -> Any:
    base = array.base
    while base is not None:  # which may be no array in the end: a buffer, a file
        array, base = base, getattr(base, "base", None)
    return array
