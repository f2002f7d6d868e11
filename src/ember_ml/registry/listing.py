"""What a registry holds, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Entry", "Listing"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a registry."""

    path: str
    item: Any
    # "config", "module", "class" or "function".
    kind: str
    meaning: str

    @classmethod
    def of(cls, path: str, item: Any) -> Entry:
        """The entry of what is registered."""
        if not isinstance(item, type):
            kind = "function"
        elif getattr(item, "_is_module", False):
            kind = "module"
        elif callable(getattr(item, "create", None)):
            kind = "config"
        else:
            kind = "class"
        doc = (getattr(item, "__doc__", None) or "").strip()
        # What a dataclass writes by itself is its signature, and no meaning.
        meaning = "" if doc.startswith(f"{getattr(item, '__name__', '?')}(") else doc
        return cls(path, item, kind, meaning.partition("\n")[0])


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries in a row; printed, they are a table."""

    title: str
    entries: tuple[Entry, ...]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self.title, box=box.SQUARE, title_justify="left")
        for heading in ("path", "kind", "class", "meaning"):
            table.add_column(heading, no_wrap=heading == "path")
        for entry in self.entries:
            name = getattr(entry.item, "__name__", repr(entry.item))
            # Text: brackets in a docstring are no markup.
            cells = (entry.path, entry.kind, name, entry.meaning)
            table.add_row(*(Text(cell) for cell in cells))
        return table

    def __str__(self) -> str:
        from rich.console import Console

        out = StringIO()
        Console(file=out, width=110, color_system=None).print(self)
        return out.getvalue().rstrip("\n")

    __repr__ = __str__
