"""What tests share: the backends, and a clean choice of backend before each test."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import ember_ml as em
from ember_ml import compiled
from ember_ml.backend import selection

# What a shell starts in the background ignores Ctrl-C, and so would all that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if compiled.stale():
    pytest.exit(f"compiled from older sources: {', '.join(compiled.stale())}; run `make build`", 4)

BACKENDS = ("numpy", "torch", "jax", "mlx")
# JAX keeps every program that it compiles, and these tests make tens of thousands of small ones.
TESTS_BETWEEN_CLEARINGS = 1000
_tests_run = 0


def pytest_collection_finish() -> None:
    """Tens of thousands of tests stay until the end: Python need not look for cycles in them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test under each backend in turn."""
    with em.use_backend(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def _fresh_selection(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """No test sees the choice of another, nor the user's own file and environment.

    Random numbers begin anew as well: what a test draws without a seed is the same in every run.
    """
    monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp() / "home"))
    monkeypatch.delenv(selection.ENVIRONMENT_VARIABLE, raising=False)
    _share_contexts()
    token = selection._chosen.set(None)
    kept = selection._default
    selection._default = selection.load("numpy")
    em.ops.random.set_seed(0)
    yield
    selection._default = kept
    selection._chosen.reset(token)
    _forget_programs()


def _share_contexts() -> None:
    """Let JAX write the programs of a thread within one context of MLIR.

    It makes one for each, which takes a sixth of the time of a small program that is compiled, and
    two fifths of one that is kept on disk.
    """
    mlir = sys.modules.get("jax._src.interpreters.mlir")
    make = getattr(mlir, "make_ir_context", None)
    if make is None or hasattr(make, "held"):
        return
    held = threading.local()

    def one() -> Any:
        found = getattr(held, "context", None)
        if found is None:
            found = held.context = make()
        return found

    one.held = held  # type: ignore[attr-defined]  # the mark of what is done
    mlir.make_ir_context = one  # type: ignore[union-attr]  # it is there: it has the function


def _forget_programs() -> None:
    global _tests_run
    _tests_run += 1
    if _tests_run % TESTS_BETWEEN_CLEARINGS == 0 and "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
