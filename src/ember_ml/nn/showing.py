"""Modules as text: the tree of a repr, the table of a summary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from ember_ml.nn import config, members
from ember_ml.tensor import roles
from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    from rich.table import Table

    from ember_ml.nn.module import Module

__all__ = ["Row", "Summary", "arguments_text", "listed", "summarize", "text"]


def listed(names: Iterable[str], limit: int = 8) -> str:
    """Some names for a message."""
    found = [name or "''" for name in names]
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return (", ".join(found[:limit]) + more) or "none"


def arguments_text(module: Any) -> str:
    """The arguments of a layer that say something: those that are not the default."""
    import inspect

    try:
        given = config.arguments(module)
    except TypeError:  # it was made without its constructor
        return ""
    parameters = inspect.signature(type(module).__init__).parameters
    said = []
    for name, value in given.items():
        parameter = parameters.get(name)
        default = inspect.Parameter.empty if parameter is None else parameter.default
        if isinstance(value, Tensor) or _is_module(value) or _is_default(value, default):
            continue
        if parameter is not None and parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            continue
        shown = value.__name__ if callable(value) and hasattr(value, "__name__") else repr(value)
        said.append(f"{name}={shown}" if len(shown) <= 60 else f"{name}={shown[:57]}...")
    return ", ".join(said)


def _is_module(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(_is_module(item) for item in value)
    if isinstance(value, dict):
        return bool(value) and all(_is_module(item) for item in value.values())
    return getattr(value, "_is_module", False) is True


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def text(module: Module) -> str:
    """The tree of a module."""
    name = type(module).__name__
    extra = module.extra_repr()
    below = [f"({child}): {text(one)}" for child, one in members.children(module)]
    if not below:
        return f"{name}({extra})"
    inner = "\n".join("  " + line for part in below for line in part.split("\n"))
    return f"{name}({extra}\n{inner}\n)" if extra else f"{name}(\n{inner}\n)"


# --- The table ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """A module in a summary."""

    # Its name in the module that holds it; that of the model itself is empty.
    name: str
    kind: str
    depth: int
    # Parameters of the module itself, without those of the modules in it.
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    parameters: int
    trainable: int
    # Of its results, where the model was run.
    output: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What a model is made of; printed, it is a table."""

    title: str
    rows: tuple[Row, ...]
    parameters: int
    trainable: int
    nbytes: int

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table

        table = Table(title=self.title, box=box.SQUARE, title_justify="left", caption=self._total())
        shown = any(row.output for row in self.rows)
        for heading in ("module", "kind", *(("output",) if shown else ()), "shapes", "parameters"):
            table.add_column(heading, justify="right" if heading == "parameters" else "left")
        for row in self.rows:
            shapes = ", ".join(f"{name} {'x'.join(map(str, s)) or '()'}" for name, s in row.shapes)
            count = f"{row.parameters:,}" if row.shapes else ""
            if row.trainable < row.parameters:
                count += " frozen" if not row.trainable else f" ({row.trainable:,} trained)"
            name = "  " * row.depth + (row.name or "·")
            table.add_row(name, row.kind, *((row.output,) if shown else ()), shapes, count)
        return table

    def _total(self) -> str:
        frozen = self.parameters - self.trainable
        also = f", {frozen:,} frozen" if frozen else ""
        return f"{self.parameters:,} parameters{also}, {_bytes(self.nbytes)}"

    def __str__(self) -> str:
        from rich.console import Console

        out = StringIO()
        Console(file=out, width=110, color_system=None).print(self)
        return out.getvalue().rstrip("\n")

    __repr__ = __str__


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError  # the loop returns


def summarize(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Summary:
    """See Module.summary."""
    outputs: dict[int, str] = {}
    if args or kwargs:
        from ember_ml.nn.module import watching

        def note(one: Module, given: tuple[Any, ...], result: Any) -> None:
            outputs[id(one)] = _shape_text(result)

        with watching(note):
            module.build(*args, **kwargs)
    owned = _by_owner(module)
    rows = []
    above: list[str] = []  # the names of the modules that hold this one, from the outside in
    for name, one in module.named_modules():
        while above and above[-1] and not name.startswith(f"{above[-1]}."):
            above.pop()
        holder = f"{above[-1]}." if above and above[-1] else ""
        own = owned[name]
        trained = sum(x.size for _, x in own if roles.role_of(x) == roles.PARAMETER)
        rows.append(
            Row(
                name.removeprefix(holder),
                type(one).__name__,
                len(above),
                tuple((path, x.shape) for path, x in own),
                sum(x.size for _, x in own),
                trained,
                outputs.get(id(one), ""),
            )
        )
        above.append(name)
    return Summary(
        type(module).__name__,
        tuple(rows),
        module.num_parameters(),
        module.num_parameters(trainable_only=True),
        sum(x.nbytes for x in module.parameters()),
    )


def _by_owner(module: Module) -> dict[str, list[tuple[str, Tensor]]]:
    """The parameters of each module by itself; one that is shared is where it is found first."""
    found: dict[str, list[tuple[str, Tensor]]] = {name: [] for name, _ in module.named_modules()}
    for name, x in module.named_parameters():
        owner = name
        while owner not in found:
            owner = owner.rpartition(".")[0]
        found[owner].append((name[len(owner) :].lstrip("."), x))
    return found


def _shape_text(result: Any) -> str:
    from ember_ml import tree

    shapes = [str(x.shape) for x in tree.leaves(result) if isinstance(x, Tensor)]
    return ", ".join(shapes[:2]) + (", ..." if len(shapes) > 2 else "")
