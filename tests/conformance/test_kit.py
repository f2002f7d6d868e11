"""The kit finds what is wrong: a backend with faults of each kind fails it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest

import ember_ml as em
from ember_ml import dtypes
from ember_ml.backend import selection
from ember_ml.backend.numpy import NumpyBackend
from ember_ml.testing import CASES, check


class Faulty(NumpyBackend):
    """NumPy with some kernels that lie."""

    name = "faulty"
    overrides = {  # noqa: RUF012 - a constant, as in every backend
        **NumpyBackend.overrides,
        "exp": lambda x: np.exp(x) * (1 + 1e-4),
        "multiply": lambda x, y: np.multiply(x, y).astype(np.float64),
        "reshape": lambda x, shape: np.reshape(x, shape)[None],
        "negative": lambda x: np.negative(x, out=x) if x.ndim else np.negative(x),
    }


@pytest.fixture
def faulty() -> Iterator[str]:
    em.register_backend("faulty", lambda: Faulty(sys.modules[__name__]))
    yield "faulty"
    selection._loaders.pop("faulty")
    selection._loaded.pop("faulty", None)


@pytest.mark.parametrize(
    ("op", "text"),
    [
        ("exp", "Not equal"),
        ("multiply", "holds float64"),
        ("reshape", "shape"),
        ("negative", "changed its input"),
    ],
)
def test_faults_are_found(faulty: str, op: str, text: str) -> None:
    case = next(c for c in CASES if c.op == op)
    with pytest.raises(AssertionError, match=text):
        check(case, faulty, dtypes.float32)


def test_a_good_backend_passes(faulty: str) -> None:
    for op in ("add", "sin", "sum", "take", "linalg.inv"):
        check(next(c for c in CASES if c.op == op), faulty, dtypes.float32)
