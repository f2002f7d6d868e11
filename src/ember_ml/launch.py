"""`python -m ember_ml.launch`: the same as `ember launch`.

python -m ember_ml.launch -n 2 train.py --epochs 3
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command; typer and rich load here, never with the library."""
    from ember_ml.cli.launch import alone

    alone()


if __name__ == "__main__":
    main()
