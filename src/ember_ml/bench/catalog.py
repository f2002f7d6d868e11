"""Which benchmarks there are, and what each of them is made of.

The measurements are part of the package and not of the checkout's benchmarks/ folder, so that
`ember bench` works wherever the wheel is installed: what an op costs is a question about the user's
own machine. The programs in benchmarks/ run one of them each.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ember_ml.bench.records import Record
from ember_ml.bench.timing import Measure
from ember_ml.errors import UnknownKeyError

__all__ = ["BENCHMARKS", "ENGINES", "Benchmark", "Setting", "benchmark", "chosen"]

ENGINES = ("numpy", "torch", "jax", "mlx")

# In the order in which they run; each is a module of ember_ml.bench.suites.
BENCHMARKS = (
    "overhead",
    "growth",
    "imports",
    "nn",
    "autodiff",
    "ops",
    "storage",
    "interchange",
    "webnn",
    "memory",
    "distributed",
)


@dataclass(frozen=True)
class Setting:
    """What a group of measures is told."""

    backend: str
    place: Path  # a directory for its files
    quick: bool = False
    rounds: int | None = None  # instead of each measure's own number

    def rounds_of(self, usual: int) -> int:
        """How many rounds a measure takes that usually takes so many."""
        return self.rounds or (min(usual, 5) if self.quick else usual)


Group = Callable[[Setting], Iterable[Measure | Record]]


@dataclass(frozen=True)
class Benchmark:
    """Groups of measures; each engine has a process of its own."""

    name: str
    about: str
    groups: Mapping[str, Group]
    backends: Sequence[str] = ENGINES  # empty where no engine is chosen
    # Groups that only some engines have: the others are not a gap.
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Groups that need variables of the environment, and hence a process of their own; a group that
    # has none to set has nothing to measure on this machine.
    variables: Mapping[str, Callable[[], Mapping[str, str]]] = field(default_factory=dict)

    def groups_of(self, backend: str) -> list[str]:
        """The groups that an engine has."""
        return [one for one in self.groups if backend in self.only.get(one, (backend,))]


def benchmark(name: str) -> Benchmark:
    """The benchmark of a name."""
    if name not in BENCHMARKS:
        raise UnknownKeyError(
            f"no benchmark is called '{name}'; there are: {', '.join(BENCHMARKS)}"
        )
    found = importlib.import_module(f"ember_ml.bench.suites.{name}").BENCHMARK
    assert isinstance(found, Benchmark)
    return found


def chosen(names: Sequence[str]) -> list[Benchmark]:
    """The benchmarks of some names, or all of them, in their order."""
    return [benchmark(name) for name in dict.fromkeys(names or BENCHMARKS)]
