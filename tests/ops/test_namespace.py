"""`x.__array_namespace__()`: ops bound to the backend of x."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.ops.registry import REGISTRY


def test_creation_lands_beside_x(backend: str) -> None:
    x = ops.ones(3)
    xp = x.__array_namespace__()
    with em.use_backend("numpy"):
        made = (
            xp.zeros(2), xp.ones(2), xp.full(2, 1.0), xp.empty(2), xp.arange(3), xp.eye(2),
            xp.linspace(0, 1, 3), xp.asarray([1, 2]), xp.asarray(np.ones(2)), xp.fft.fftfreq(4),
            xp.from_dlpack(np.ones(2)),
        )  # fmt: skip
        assert em.get_backend() == "numpy"
    assert {t.backend for t in made} == {backend}


def test_it_is_a_view_of_ops(backend: str) -> None:
    xp = ops.ones(3).__array_namespace__()
    assert xp is ops.zeros(1).__array_namespace__()
    assert xp.__name__ == f"ember_ml.ops.{backend}"
    assert xp.add is ops.add
    assert xp.linalg.solve is ops.linalg.solve
    assert xp.float32 is ops.float32
    assert xp.pi == ops.pi
    assert xp.__array_api_version__ == "2025.12"
    assert inspect.signature(xp.zeros) == inspect.signature(ops.zeros)
    assert set(dir(ops)) <= set(dir(xp))
    assert pickle.loads(pickle.dumps(xp)) is xp
    assert backend in repr(xp)
    with pytest.raises(AttributeError):
        xp.nonsense  # noqa: B018 - the look-up is the test


def test_a_mask_decides_where_two_numbers_live(backend: str) -> None:
    mask = ops.asarray([True, False])
    with em.use_backend("numpy"):
        chosen = ops.where(mask, 1.0, 0.0)
    assert chosen.backend == backend
    assert chosen.tolist() == [1.0, 0.0]
    assert ops.where(mask, 1, 0.5).dtype is em.float32


def test_versions() -> None:
    x = ops.ones(1)
    for version in ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12", None):
        assert x.__array_namespace__(api_version=version) is not None
    with pytest.raises(ValueError, match=r"2031\.12"):
        x.__array_namespace__(api_version="2031.12")


def test_info(backend: str) -> None:
    info = ops.ones(1).__array_namespace__().__array_namespace_info__()
    assert info.default_device() in info.devices()
    assert isinstance(info.devices(), tuple)
    assert info.default_dtypes()["real floating"] is em.float32
    assert info.default_dtypes()["integral"] is em.int64
    assert info.capabilities()["boolean indexing"] is True
    floats = info.dtypes(kind="real floating")
    assert set(floats) == {"float32", "float64"}
    assert set(info.dtypes(kind=("bool", "unsigned integer"))) == {
        "bool", "uint8", "uint16", "uint32", "uint64",
    }  # fmt: skip
    assert ("complex128" in info.dtypes()) == (backend != "mlx")
    for dtype in info.dtypes().values():
        assert ops.ones(1, dtype=dtype).dtype is dtype


def test_the_registry_returns_functions_untouched() -> None:
    for name, op in REGISTRY.items():
        space = ops
        for part in name.split("."):
            space = getattr(space, part)
        assert space is op.function
        assert space.__doc__
        assert ">>>" in space.__doc__
