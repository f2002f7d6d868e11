"""What every docstring example finds: `em`, `ops` and `tensor`, on the NumPy backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.nn import tensor


@pytest.fixture(autouse=True)
def example_names(doctest_namespace: dict[str, Any]) -> Iterator[None]:
    """Names for the examples of one docstring, in a scope of their own."""
    doctest_namespace.update(em=em, ops=ops, tensor=tensor)
    with em.use_backend("numpy"):
        yield
