"""Checks that read values: where they run is the user's choice."""

from __future__ import annotations

import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.backend import checks


def test_scope() -> None:
    assert checks.mode() == "cpu"
    with em.use_checks("none"):
        assert checks.mode() == "none"
        with em.use_checks("all"):
            assert checks.mode() == "all"
    assert checks.mode() == "cpu"
    with pytest.raises(em.DomainError, match="sometimes"):
        em.use_checks("sometimes")


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(checks.ENVIRONMENT_VARIABLE, "all")
    assert checks.mode() == "all"
    monkeypatch.setenv(checks.ENVIRONMENT_VARIABLE, "wrong")
    with pytest.raises(em.DomainError, match="wrong"):
        checks.mode()


@pytest.mark.parametrize("name", ["jax", "mlx"])
def test_engines_that_do_not_notice(name: str) -> None:
    with em.use_backend(name):
        x, far = ops.ones(3), ops.asarray([7])
        with pytest.raises(em.OutOfBoundsError):
            ops.take(x, far)
        with em.use_checks("none"):
            assert ops.take(x, far).shape == (1,)
