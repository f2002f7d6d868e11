"""Registry: see the branch that builds it."""

__all__: list[str] = []
