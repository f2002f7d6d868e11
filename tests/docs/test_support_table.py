"""The support table of the documentation is the one that the registry gives."""

from __future__ import annotations

from pathlib import Path

from ember_ml.testing.support import markdown

PAGE = Path(__file__).parents[2] / "docs" / "support.md"


def test_the_page_is_current() -> None:
    wanted = markdown(("numpy", "torch", "jax", "mlx"))
    assert PAGE.read_text(encoding="utf-8") == wanted, "run scripts/support-table"
