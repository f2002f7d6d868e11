"""One suite of what communicators do, on every engine with 2 and 3 processes."""

from __future__ import annotations

import functools

import pytest

from tests.distributed import jobs, semantics

# Backend, by what it talks, and whether mpiexec starts the processes.
ENGINES = {
    "torch": ("torch", "gloo", False),
    "numpy": ("numpy", "gloo", False),
    "numpy-mpi": ("numpy", "mpi", True),
}


@functools.cache
def _found(engine: str, n: int) -> list[jobs.Outcome]:
    """What all cases gave on each rank: one job runs them all."""
    backend, _, mpi = ENGINES[engine]
    return jobs.run(semantics.run_all, n, backend, mpi=mpi, limit=300)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", semantics.CASES)
def test_semantics(engine: str, n: int, case: str) -> None:
    for outcome in _found(engine, n):
        assert outcome.value["transport"] == ENGINES[engine][1]
        wrong = outcome.value[case]
        assert not wrong, f"on rank {outcome.rank} of {n}:\n{wrong}"
