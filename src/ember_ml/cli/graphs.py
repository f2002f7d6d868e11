"""`ember run`, `ember inspect` and `ember export`: graphs and files at the command line."""

from __future__ import annotations

import importlib
import os
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature as signature_of
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

import ember_ml as em
from ember_ml import dtypes
from ember_ml.errors import DomainError, FormatError, UnknownKeyError
from ember_ml.graph import types
from ember_ml.graph.showing import shape_text, shown, size_text, tables, value_text

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph, Value

__all__ = ["Example", "example", "export", "inspect", "run"]

Array = np.ndarray[Any, Any]

_VALUES_SHOWN = 4
_ANY_SIZE = 2  # of an axis that has a name, in the example that is traced


# --- Running --------------------------------------------------------------------------------


def run(
    console: Console,
    path: Path,
    given: Sequence[str],
    output: Path | None,
    backend: str | None,
    *,
    cast: bool,
    repeat: int,
) -> None:
    """Run a model on arrays in files, and show what comes out."""
    if output is not None and output.suffix not in (".npz", ".npy"):
        raise FormatError(f"--output takes a file that ends in .npz or .npy, not '{output}'")
    with console.status(f"loading {escape(path.name)}"):
        graph = em.load_onnx(path)
    feeds = _feeds(graph, given, cast)
    with console.status("making it ready"):
        start = time.perf_counter()
        program = graph.program(backend)
        ready = time.perf_counter() - start
    seconds = []
    results: dict[str, Array] = {}
    with console.status(f"running on {escape(program.executor)}"):
        for _ in range(repeat):
            start = time.perf_counter()
            results = {name: _array(value) for name, value in program.run(feeds).items()}
            seconds.append(time.perf_counter() - start)
    console.print(_results_table(graph, results))
    console.print(
        f"{shown(graph.name)} on {_who(program)}: ready in {_time(ready)}, {_runs(seconds)}"
    )
    if output is not None:
        _save(console, output, results)


def _who(program: Any) -> str:
    providers = getattr(program, "providers", None)
    return f"{program.executor} ({', '.join(providers)})" if providers else str(program.executor)


def _runs(seconds: list[float]) -> str:
    if len(seconds) == 1:
        return f"run in {_time(seconds[0])}"
    best, mean = min(seconds), sum(seconds) / len(seconds)
    return f"{len(seconds)} runs, the best {_time(best)}, {_time(mean)} on average"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):  # micro
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"  # micro


def _feeds(graph: Graph, given: Sequence[str], cast: bool) -> dict[str, Array]:
    named: dict[str, Array] = {}
    free: list[tuple[str, Array]] = []
    names = {x.name: x for x in graph.inputs}
    for text in given:
        name, sign, file = text.partition("=")
        if sign and name not in names and Path(text).exists():
            name, sign, file = "", "", text  # a path with the sign in it
        arrays = _read(Path(file if sign else text))
        if isinstance(arrays, dict):
            named.update(arrays)
        elif sign:
            named[name] = arrays
        else:
            free.append((text, arrays))
    left = [name for name in names if name not in named]
    for (_, array), name in zip(free, left, strict=False):
        named[name] = array
    if len(free) > len(left):
        raise UnknownKeyError(
            f"there is no input for '{free[len(left)][0]}': the graph takes "
            f"{', '.join(value_name(x) for x in graph.inputs) or 'none'}"
        )
    if cast:
        return {
            name: array.astype(types.numpy_dtype(names[name].dtype)) if name in names else array
            for name, array in named.items()
        }
    return named


def value_name(value: Value) -> str:
    """An input as people are told of it."""
    return f"{value.name} ({value_text(value)})"


def _read(path: Path) -> Array | dict[str, Array]:
    """The array of an .npy file, or those of an .npz file by name."""
    try:
        with path.open("rb") as file:  # which NumPy leaves open where an archive is cut off
            found = np.load(file, allow_pickle=False)  # a pickle could do anything
            if isinstance(found, np.ndarray):
                return found
            with found:
                return {name: found[name] for name in found.files}
    except OSError as error:
        raise FormatError(f"'{path}' cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise FormatError(f"'{path}' holds no NumPy array: {error}") from error


def _array(value: Any) -> Array:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _results_table(graph: Graph, results: dict[str, Array]) -> Table:
    table = Table(box=box.SQUARE)
    for heading in ("output", "type", "shape"):
        table.add_column(heading, overflow="fold")
    for heading in ("min", "mean", "max"):
        table.add_column(heading, justify="right")
    table.add_column("first values", overflow="fold")
    for value in graph.outputs:
        array = results[value.name]
        shape = escape(shape_text(array.shape))
        first = ", ".join(_shown(x) for x in array.reshape(-1)[:_VALUES_SHOWN])
        more = ", ..." if array.size > _VALUES_SHOWN else ""
        table.add_row(
            shown(value.name),
            types.name_of(array.dtype),
            shape,
            *_statistics(array),
            shown(first + more),
        )
    return table


def _statistics(array: Array) -> tuple[str, str, str]:
    if not array.size or array.dtype == object or array.dtype.kind == "c":
        return "", "", ""
    wide = array.astype(np.float64)
    low, high = (array.min(), array.max()) if array.dtype.kind in "iu" else (wide.min(), wide.max())
    with np.errstate(all="ignore"):
        return _shown(low), _shown(wide.mean()), _shown(high)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if np.asarray(value).dtype.kind in "iu":
        return str(int(value))
    return f"{complex(value):.5g}" if np.iscomplexobj(value) else f"{float(value):.5g}"


def _save(console: Console, path: Path, results: dict[str, Array]) -> None:
    from ember_ml.io.atomic import replacing

    wide = {"bfloat16": np.float32, "int4": np.int8, "uint4": np.uint8}
    kept: dict[str, Any] = {}
    for name, array in results.items():
        dtype = types.name_of(array.dtype)
        kept[name] = array.astype(wide[dtype]) if dtype in wide else array
        if dtype in wide:  # NumPy's files have no such type, and would hold nameless bytes
            console.print(f"{shown(name)} is {dtype}, and saved as {np.dtype(wide[dtype])}")
        if array.dtype == object:
            kept[name] = array.astype(str)
    if path.suffix == ".npy" and len(kept) != 1:
        raise FormatError(f"'{path}' holds one array, and {len(kept)} came out; save as .npz")
    with replacing(str(path)) as file:
        if path.suffix == ".npy":
            np.save(file, next(iter(kept.values())))
        else:
            _write_npz(file, kept)
    console.print(f"saved {escape(str(path))}", soft_wrap=True)


def _write_npz(file: Any, arrays: dict[str, Array]) -> None:
    """What np.savez writes; an output may be called 'file', which np.savez takes for its own."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)


# --- Looking --------------------------------------------------------------------------------


def inspect(console: Console, path: Path, drawing: Path | None, *, nodes: bool) -> None:
    """Show what a file holds."""
    if path.suffix == ".onnx":
        with console.status(f"loading {escape(path.name)}"):
            graph = em.load_onnx(path)
        console.print(f"{escape(str(path))}: {size_text(path.stat().st_size)}", soft_wrap=True)
        for part in tables(graph):
            console.print(part)
        if nodes:
            console.print(_nodes_table(graph))
        if drawing is not None:
            with console.status("drawing"):
                graph.draw(drawing)
            console.print(f"drawn to {escape(str(drawing))}", soft_wrap=True)
        return
    if drawing is not None or nodes:
        raise DomainError(f"'{path}' is no graph: --draw and --nodes are for .onnx files")
    for table in _tensors_tables(path):
        console.print(table)


def _nodes_table(graph: Graph) -> Table:
    table = Table(title="nodes", box=box.SQUARE, title_justify="left")
    for heading in ("operator", "name", "inputs", "outputs"):
        table.add_column(heading, overflow="fold")
    for node in graph.nodes:
        given = ", ".join("-" if x is None else x.name for x in node.inputs)
        made = ", ".join(f"{x.name} ({value_text(x)})" for x in node.outputs)
        table.add_row(*map(shown, (node.op, node.label, given, made)))
    return table


def _tensors_tables(path: Path) -> Iterator[RenderableType]:
    with em.io.open_file(path, backend="numpy") as file:
        infos = {name: file.info(name) for name in file}
        metadata = file.metadata
    total = sum(info.nbytes for info in infos.values())
    count = sum(prod(info.shape) for info in infos.values())
    table = Table(
        title=f"{escape(path.name)}: {len(infos):,} tensors",
        box=box.SQUARE,
        title_justify="left",
        caption=f"{count:,} numbers, {size_text(total)}",
        caption_justify="left",
    )
    table.add_column("name", overflow="fold")
    table.add_column("type")
    table.add_column("shape")
    table.add_column("size", justify="right")
    for name, info in infos.items():
        shape = escape(shape_text(info.shape))
        table.add_row(shown(name), str(info.dtype), shape, size_text(info.nbytes))
    yield table
    if metadata:
        table = Table(title="metadata", box=box.SQUARE, title_justify="left", show_header=False)
        table.add_column()
        table.add_column(overflow="fold")
        for key, text in metadata.items():
            table.add_row(shown(key), shown(text))
        yield table


# --- Exporting ------------------------------------------------------------------------------


class Example(NamedTuple):
    """An argument to trace with: --shape x:batch,3:float32."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def axes(self) -> dict[int, str]:
        """The axes whose sizes have names."""
        return {axis: d for axis, d in enumerate(self.shape) if isinstance(d, str)}


def example(text: str) -> Example:
    """Parse an example: [name:]sizes[:dtype], sizes as 1x3x224 or batch,3,224.

    >>> example("x:batch,3:int64")
    Example(name='x', shape=('batch', 3), dtype='int64')
    """
    parts = text.split(":")
    sizes = [_sizes(part) for part in parts]
    at = next((i for i, found in enumerate(sizes) if found is not None), None)
    if at is None or at > 1 or len(parts) - at > 2:
        raise DomainError(
            f"--shape '{text}' is not understood; write name:1x3x224x224, with names for sizes "
            "that vary and a dtype at the end as in x:batch,3:float32"
        )
    found = sizes[at]
    assert found is not None
    dtype = dtypes.to_dtype(parts[at + 1]).name if len(parts) > at + 1 else "float32"
    return Example(parts[0] if at else "", found, dtype)


def _sizes(text: str) -> tuple[int | str, ...] | None:
    """Sizes, at least one of them a number or all with commas; None where it is something else."""
    if text in ("scalar", "()"):
        return ()
    parts = [x.strip() for x in (text.split(",") if "," in text else text.split("x"))]
    if not all(parts) or not ("," in text or any(x.isdigit() for x in parts)):
        return None
    if not all(x.isdigit() or x.isidentifier() for x in parts):
        return None
    return tuple(int(x) if x.isdigit() else x for x in parts)


def export(
    console: Console, target: str, output: Path, shapes: Sequence[str], *, external: bool | None
) -> None:
    """Trace a model or a function, and write it as an ONNX file."""
    if output.suffix != ".onnx":
        raise FormatError(f"--output takes a file that ends in .onnx, not '{output}'")
    examples = [example(text) for text in shapes]
    with console.status(f"loading {escape(target)}"):
        function = _target(target)
    tensors = [_filled(one) for one in examples]
    names = [one.name for one in examples]
    if any(names) and not all(names):
        raise DomainError("--shape: name all of the inputs, or none")
    _require_examples(target, function, len(examples))
    options: dict[str, Any] = {"input_names": names} if any(names) else {}
    axes = {one.name or place: one.axes() for place, one in enumerate(examples) if one.axes()}
    if axes:
        options["dynamic_axes"] = axes
    with console.status("tracing"):
        graph = em.export(function, *tensors, **options)
    with console.status(f"saving {escape(output.name)}"):
        graph.save(output, external_data=external)
    for part in tables(graph):
        console.print(part)
    console.print(
        f"saved {escape(str(output))}, {size_text(output.stat().st_size)}", soft_wrap=True
    )


def _require_examples(target: str, function: Any, count: int) -> None:
    """Raise where there are too few shapes for a function, or too many."""
    takes = getattr(function, "forward", function)
    try:
        signature = signature_of(takes)
    except (TypeError, ValueError):  # of builtins
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        raise DomainError(
            f"'{target}' takes {signature}, and {count} --shape came: {error}"
        ) from error


def _filled(one: Example) -> Any:
    shape = tuple(_ANY_SIZE if isinstance(d, str) else d for d in one.shape)
    kind = dtypes.to_dtype(one.dtype)
    if not kind.is_floating:
        return em.ops.zeros(shape, dtype=kind)  # an index that every table has
    values = np.random.default_rng(0).standard_normal(shape)
    return em.ops.asarray(values.astype(kind.numpy))


def _target(text: str) -> Any:
    """What to export: a saved model, or something in a module."""
    if os.path.exists(text):
        found = em.load(text)
        if not callable(found):
            raise DomainError(
                f"'{text}' holds {type(found).__name__}, no model; save the model itself: "
                "em.save(path, model)"
            )
        return found
    module, sign, name = text.partition(":")
    if not sign:
        raise DomainError(f"there is no file '{text}'; a model in a module is module:name")
    with _here_first():
        try:
            found = importlib.import_module(module)
        except ImportError as error:
            raise DomainError(f"the module '{module}' cannot be imported: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise UnknownKeyError(f"'{module}' has no '{name}'")
        found = getattr(found, part)
    if isinstance(found, type):
        try:
            found = found()
        except TypeError as error:
            raise DomainError(
                f"'{text}' is a class that needs arguments; name a model ({error})"
            ) from error
    if not callable(found):
        raise DomainError(f"'{text}' is {type(found).__name__}, no function and no model")
    return found


@contextmanager
def _here_first() -> Iterator[None]:
    """Modules of the current folder can be imported, as with `python -m`."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
