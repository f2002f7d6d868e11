"""What tests of ops share: ways to run a program as each compiler traces it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.backend import selection

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def _jax_has_64_bits() -> None:
    """Loading the backend switches 64-bit types on, for tests that begin with JAX itself."""
    selection.load("jax")


def _natively(program: Program) -> Program:
    def run(*natives: Any) -> Any:
        return [t.native for t in em.tree.leaves(program(*map(ops.asarray, natives)))]

    return run


def _jax(program: Program, *arrays: Any) -> Any:
    import jax

    return jax.jit(_natively(program))(*arrays)


def _mlx(program: Program, *arrays: Any) -> Any:
    import mlx.core as mx

    return mx.compile(_natively(program))(*map(mx.array, arrays))


def _torch(program: Program, *arrays: Any) -> Any:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    tensors = [torch.from_numpy(np.asarray(a)) for a in arrays]
    # Traced on other values than it is run on: what is baked in would be seen.
    other = [torch.full_like(t, 1) for t in tensors]
    return make_fx(_natively(program))(*other)(*tensors)


TRACERS: dict[str, Program] = {"jax": _jax, "mlx": _mlx, "torch": _torch}


def _run(name: str, program: Program, *arrays: Any) -> list[Any]:
    return [np.asarray(found).tolist() for found in TRACERS[name](program, *arrays)]


@pytest.fixture
def trace() -> Program:
    """Run a program of tensors on a backend as its compiler traces it; the results as lists."""
    return _run


@pytest.fixture(params=sorted(TRACERS))
def traced(request: pytest.FixtureRequest) -> Iterator[Program]:
    """The same on each backend that has a compiler, in turn."""
    with em.use_backend(request.param):
        yield lambda program, *arrays: _run(request.param, program, *arrays)
