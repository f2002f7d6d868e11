"""The tables of docs/MIGRATION.md: every name exists, and engines raise what is said of them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "MIGRATION.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")
NAME = re.compile(r"(?<![\w.])((?:np|torch|jnp|jax|mx|keras|ops|em|tensor|x)(?:\.\w+)+)")
MODULES = {
    "np": "numpy",
    "torch": "torch",
    "jax": "jax",
    "jnp": "jax.numpy",
    "mx": "mlx.core",
    "keras": "keras",
    "ops": "ember_ml.ops",
    "em": "ember_ml",
    "tensor": "ember_ml.nn.tensor",
}


def rows(section: str) -> list[list[str]]:
    """The cells of the tables of a section."""
    _, _, rest = TEXT.partition(f"\n## {section}\n")
    assert rest, f"no section '{section}'"
    lines = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells[1:] if not row[0].startswith("---")]


def sections() -> list[str]:
    return re.findall(r"^## (From .+)$", TEXT, re.MULTILINE)


def names(cell: str) -> Iterator[str]:
    for code in CODE.findall(cell):
        yield from NAME.findall(code)


def is_missing(name: str) -> bool:
    """Whether the package of a name is not installed here."""
    module = MODULES.get(name.partition(".")[0], "numpy")
    return importlib.util.find_spec(module.partition(".")[0]) is None


def resolve(name: str, x: type) -> object:
    head, *rest = name.split(".")
    found: Any = x if head == "x" else importlib.import_module(MODULES[head])
    for part in rest:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("section", sections())
def test_names_exist(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "numpy")
    table = rows(section)
    assert len(table) > 8
    for theirs, ours in table:
        for name in names(theirs):
            if not is_missing(name):
                x = importlib.import_module("jax").Array if section == "From JAX" else np.ndarray
                resolve(name, x)
        for name in names(ours):
            resolve(name, em.Tensor)
        assert list(names(theirs)), theirs


def test_every_engine_has_a_section() -> None:
    assert sections() == [
        "From NumPy",
        "From PyTorch",
        "From JAX",
        "From MLX",
        "From Keras ops",
    ]


# --- Errors ---------------------------------------------------------------------------------


def inverse(xp: Any) -> Any:
    options = {"stream": xp.cpu} if xp.__name__ == "mlx.core" else {}
    return np.asarray(xp.linalg.inv(xp.zeros((2, 2)), **options))


MISTAKES: list[Callable[[Any], Any]] = [
    lambda xp: xp.ones((2, 3)) @ xp.ones((2, 3)),
    lambda xp: xp.sum(xp.ones((3,)), axis=2),
    lambda xp: xp.ones((3,))[7],
    lambda xp: xp.ones((3,)) & xp.ones((3,)),
    inverse,
]


@pytest.mark.parametrize(
    ("column", "module"), [(1, "numpy"), (2, "torch"), (3, "jax.numpy"), (4, "mlx.core")]
)
def test_errors_of_engines(column: int, module: str) -> None:
    xp = pytest.importorskip(module)
    for row, mistake in zip(rows("Errors"), MISTAKES, strict=False):
        said = row[column].strip("`")
        if said == "none or RuntimeError":  # MLX's LU tells, or not, with the build of its LAPACK
            with contextlib.suppress(RuntimeError):
                mistake(xp)
            continue
        if said == "none":
            mistake(xp)
            continue
        with pytest.raises(np.linalg.LinAlgError if said == "LinAlgError" else eval(said)):
            mistake(xp)


def test_errors_here(backend: str) -> None:
    xp: Any = em.ops
    for row, mistake in zip(rows("Errors"), MISTAKES, strict=False):
        ours, *built_ins = [resolve_error(name) for name in CODE.findall(row[5])]
        with pytest.raises(ours) as caught:
            mistake(xp)
        assert type(caught.value) is ours
        assert all(issubclass(ours, one) for one in built_ins)
    assert len(rows("Errors")) == len(MISTAKES) + 1  # devices differ by machine


def resolve_error(name: str) -> Any:
    if name.startswith("em."):
        return getattr(em, name[3:])
    return np.linalg.LinAlgError if name.endswith("LinAlgError") else eval(name)
