"""Devices: names, scopes, moves, memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import ember_ml as em
from ember_ml import ops


def test_the_cpu_is_there(backend: str) -> None:
    assert "cpu" in em.get_available_devices()
    assert em.get_available_devices(backend) == em.get_available_devices()
    assert em.get_device() in em.get_available_devices()
    x = ops.ones(3, device="cpu")
    assert em.get_device(x) == em.get_device_of_tensor(x) == x.device == "cpu"
    assert em.get_device_of_tensor(x.native) == "cpu"
    assert em.to_device(x, "cpu:0").device == "cpu"
    assert ops.to_device([1.0], "cpu").device == "cpu"


@pytest.mark.parametrize("name", ["cuda:7", "mps:3", "tpu:9", "quantum", "cpu:64", ""])
def test_a_device_that_is_not_there_is_an_error(backend: str, name: str) -> None:
    calls = (
        lambda: em.set_device(name),
        lambda: em.use_device(name).__enter__(),
        lambda: ops.zeros(2, device=name or "?"),
        lambda: ops.zeros(2).to_device(name),
        lambda: em.synchronize(name or "?"),
        lambda: em.memory_info(name or "?"),
    )
    for call in calls:
        with pytest.raises(em.DeviceError, match=backend):
            call()
    assert em.get_device() == "cpu"


def test_scope(backend: str) -> None:
    with em.use_device("cpu"):
        assert em.get_device() == "cpu"
        assert ops.get_device() == "cpu"

    @em.use_device("cpu")
    def inside() -> str:
        return em.get_device()

    assert inside() == "cpu"
    em.set_device("cpu")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(em.get_device).result() == "cpu"


def test_memory(backend: str) -> None:
    kept = ops.ones((1 << 20,))
    em.synchronize()
    info = em.memory_info("cpu")
    assert all(isinstance(v, int) and v >= 0 for v in info.values())
    assert em.memory_usage("cpu") >= kept.nbytes
    assert em.memory_usage() == em.memory_info()["allocated"] or em.memory_usage() > 0
