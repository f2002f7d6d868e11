"""Every public name has an entry in the reference, and signatures read well."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

import ember_ml
from ember_ml import backend, distributed, dtypes, errors, io, testing, tree, typing

NAMES = Path(__file__).resolve().parents[2] / "exported_names.txt"


@pytest.fixture(scope="module")
def inventory(site: Path) -> dict[str, str]:
    """Names of the reference with their places, as other projects read them from objects.inv."""
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    found = {}
    for line in zlib.decompress(packed).decode("utf-8").splitlines():
        name, _, _, place, _ = line.split(" ", 4)
        found[name] = place.replace("$", name)
    return found


def test_every_exported_name_has_an_entry(inventory: dict[str, str]) -> None:
    names = {f"ember_ml.{name}" for name in NAMES.read_text(encoding="utf-8").split()}
    assert len(names) > 1000
    assert names - set(inventory) == set()


@pytest.mark.parametrize(
    "module", [ember_ml, backend, distributed, dtypes, errors, io, testing, tree, typing]
)
def test_names_of_other_modules(inventory: dict[str, str], module: object) -> None:
    names = {f"{module.__name__}.{name}" for name in module.__all__}  # type: ignore[attr-defined]
    assert names - set(inventory) == set()


def test_entries_are_on_pages(site: Path, inventory: dict[str, str]) -> None:
    """What the inventory points to is there: a heading of that id on that page."""
    ids: dict[str, str] = {}
    for name in ("ember_ml.ops.add", "ember_ml.nn.modules.Linear", "ember_ml.Tensor.to_backend"):
        page, _, anchor = inventory[name].partition("#")
        text = ids.setdefault(page, (site / page / "index.html").read_text(encoding="utf-8"))
        assert f'id="{anchor}"' in text


def test_one_object_has_one_entry(inventory: dict[str, str]) -> None:
    places = {inventory[f"ember_ml.{name}"] for name in ("nn.Linear", "nn.modules.Linear")}
    assert places == {"reference/linear-and-embedding/#ember_ml.nn.Linear"}
    assert inventory["ember_ml.EmberTensor"].endswith("#ember_ml.Tensor")


def test_markers_of_types_are_left_out(site: Path) -> None:
    for page in (site / "reference").glob("*/index.html"):
        text = page.read_text(encoding="utf-8")
        assert "LikeFloat" not in text, page.parent.name
        assert "<blockquote>" not in text, page.parent.name  # an example that is no code
