"""The `ember` command: what is installed here, and one program on every backend."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the `ember` command; typer and rich load here, never with the library."""
    from ember_ml.cli.app import app

    app()
