"""track and MemoryManager: what is counted, by whom, in one thread and in several."""

from __future__ import annotations

import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.memory import MemoryManager, Reading, counters, track
from ember_ml.memory.tracking import readable

MEGABYTE = 1_000_000
# Who counts on machines without an accelerator.
COUNTERS = {"numpy": "tracemalloc", "torch": "resident", "jax": "resident", "mlx": "engine"}


def _use(megabytes: int) -> None:
    x = ops.full((megabytes, MEGABYTE // 4), 1.5, dtype="float32") + 1.0
    assert x[0, 0].item() == 2.5  # MLX computes now


def test_peak_and_current(backend: str) -> None:
    _use(1)  # what is loaded once is not counted
    with track() as m:
        assert m.allocated_before <= m.peak
        _use(40)
        held = ops.full((20, MEGABYTE // 4), 1.5, dtype="float32") + 1.0
        assert held[0, 0].item() == 2.5
        now = m.current
    assert m.counter == COUNTERS[backend] or m.counter == "resident, sampled"
    # Resident memory is counted in pages, and the system counts late: a tenth of slack.
    assert 36 * MEGABYTE <= m.added <= 150 * MEGABYTE
    assert m.peak >= now
    if m.counter != "resident":
        assert m.current - m.allocated_before == pytest.approx(20 * MEGABYTE, rel=0.05)
        assert now == pytest.approx(m.current, rel=0.05)
    assert m.added == m.peak - m.allocated_before
    assert held.shape == (20, MEGABYTE // 4)


def test_exact_peaks() -> None:
    """The counters that see arrays alone see them to the byte, but for small change."""
    # NumPy has the array and the one that is 1 more; MLX writes the one over the other.
    for name, arrays in (("numpy", 2), ("mlx", 1)):
        with em.use_backend(name):
            _use(1)
            with track() as m:
                _use(30)
            assert m.added == pytest.approx(arrays * 30 * MEGABYTE, rel=0.01)


def test_blocks_one_within_the_other(backend: str) -> None:
    with track() as outer:
        _use(60)
        with track() as inner:
            _use(10)
        _use(1)
    assert outer.added >= 54 * MEGABYTE
    assert inner.added < 50 * MEGABYTE
    assert outer.peak >= inner.peak


def test_blocks_in_several_threads(backend: str) -> None:
    """Each has its own peak, though the process has one."""
    went_down = threading.Event()
    found: list[Reading] = []

    def work() -> None:
        with track(backend) as m:
            went_down.wait(30)
        found.append(m.reading())

    thread = threading.Thread(target=work)
    with track() as whole:
        thread.start()
        _use(50)
        with track() as late:
            pass
        went_down.set()
        thread.join()
    assert found
    assert whole.added >= 45 * MEGABYTE
    assert late.added < 40 * MEGABYTE


def test_all_backends_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    for name in COUNTERS:
        with em.use_backend(name):
            ops.zeros(1)
    with track("mlx") as m:
        pass
    assert {one.backend for one in m.readings} >= set(COUNTERS)
    assert m.reading().backend == "mlx"
    assert m.reading("numpy").counter == "tracemalloc"
    with pytest.raises(em.EmberError, match="nothing was tracked for elsewhere"):
        m.reading("elsewhere")
    Console(width=100).print(m)
    printed = capsys.readouterr().out
    for word in ("numpy", "torch", "jax", "mlx", "tracemalloc", "peak", "added"):
        assert word in printed


def test_tracing_of_the_user_goes_on() -> None:
    assert not tracemalloc.is_tracing()
    with track("numpy"):
        assert tracemalloc.is_tracing()
    assert not tracemalloc.is_tracing()
    tracemalloc.start()
    with track("numpy"):
        pass
    assert tracemalloc.is_tracing()
    tracemalloc.stop()


def test_where_the_system_has_no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the memory is looked at now and then, and the reading says so."""
    monkeypatch.setattr(counters, "_reset_high_water", lambda: False)
    monkeypatch.setattr(counters, "_COUNTERS", {})
    with em.use_backend("torch"):
        with track() as m:
            x = ops.full((60, MEGABYTE // 4), 1.5) + 1.0
            time.sleep(0.1)
            del x
        sampler = [t for t in threading.enumerate() if t.name.endswith("(_sample)")]
        assert m.counter == "resident, sampled"
        assert m.added >= 54 * MEGABYTE
    for thread in sampler:
        thread.join(5)
        assert not thread.is_alive()


def test_mistakes() -> None:
    m = track()
    with pytest.raises(em.EmberError, match=r"with em\.memory\.track"):
        _ = m.peak
    with m:
        pass
    with pytest.raises(em.EmberError, match="tracks one block"), m:
        pass
    with pytest.raises(em.DeviceError), track("numpy", "cuda:7"):
        pass


# --- The manager ----------------------------------------------------------------------------


def test_manager(backend: str) -> None:
    manager = MemoryManager()
    _use(50)
    assert 0 < manager.current() <= manager.peak()
    high = manager.peak()
    with manager.track() as m:
        _use(1)
    assert manager.peak() >= high  # a block takes nothing from it
    manager.reset_peak()
    low = manager.peak()
    _use(100)
    assert manager.peak() >= low + 80 * MEGABYTE
    reading = manager.reading()
    assert reading.backend == backend
    assert reading.counter == ("engine" if backend == "mlx" else "resident")
    assert manager.current(backend, "cpu") > 0
    assert m.peak > 0


def test_manager_reads_all(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    manager = MemoryManager()
    assert {"numpy"} <= {one.backend for one in manager.readings()}
    Console(width=100).print(manager)
    assert "resident" in capsys.readouterr().out


def test_clear_cache() -> None:
    import mlx.core as mx

    with em.use_backend("mlx"):
        _use(50)
    manager = MemoryManager()
    assert mx.get_cache_memory() > 0
    manager.clear_cache("mlx")
    assert mx.get_cache_memory() == 0
    manager.clear_cache()


def test_manager_checkpoints_and_offloads(backend: str, tmp_path: Path) -> None:
    manager = MemoryManager()
    x = ops.asarray([1.0, 2.0])
    assert manager.checkpoint(ops.exp)(x).tolist() == ops.exp(x).tolist()
    assert manager.checkpoint_function(ops.exp, x).tolist() == ops.exp(x).tolist()
    with manager.offload(to_disk=tmp_path):
        found = em.grad(lambda x: ops.sum(manager.checkpoint_function(ops.exp, x)))(x)
    np.testing.assert_allclose(found.numpy(), np.exp([1.0, 2.0]), rtol=1e-6)


def test_names_of_the_seed(backend: str) -> None:
    from ember_ml.memory import manager

    class Mine:
        def checkpoint(self, fn: object, *args: object) -> object:
            return manager.checkpoint_function(fn, *[ops.asarray(arg) for arg in args])

    def loss(w: em.Tensor) -> em.Tensor:
        out = manager.GradientCheckpointing().checkpoint(ops.multiply, w, [2.0, 3.0])
        return ops.sum(out)

    assert em.grad(loss)(ops.asarray([1.0, 1.0])).tolist() == [2.0, 3.0]
    assert Mine().checkpoint(ops.exp, [0.0]).tolist() == [1.0]
    both = manager.GradientCheckpointing().checkpoint(
        lambda parts, none: parts["a"][0] * 2.0, {"a": [ops.asarray(3.0)]}, None
    )
    assert both.item() == 6.0


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (-2_500_000, "-2.5 MB"), (10**16, "10000.0 TB")],
)
def test_readable(count: int, text: str) -> None:
    assert readable(count) == text
