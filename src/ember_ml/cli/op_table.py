"""`ember ops`: every op, which backends run it, and whether it goes into an ONNX file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fnmatch import fnmatch

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import ember_ml as em
from ember_ml.backend import selection
from ember_ml.errors import EmberError, UnknownKeyError
from ember_ml.ops.registry import REGISTRY, Op

__all__ = ["exports", "names", "show"]


def names(pattern: str) -> list[str]:
    """The ops whose name holds a text, or fits a pattern with * and ?."""
    wild = pattern if any(x in pattern for x in "*?[") else f"*{pattern}*"
    found = [name for name in sorted(REGISTRY) if fnmatch(name, wild)]
    if not found:
        raise UnknownKeyError(f"no op is called '{pattern}'; `ember ops` lists all of them")
    return found


def show(console: Console, pattern: str, backends: Sequence[str]) -> None:
    """Print the table."""
    from rich.progress import track

    found = names(pattern)
    shown = list(backends) or em.available_backends()
    with console.status("") as spinner:
        for name in shown:
            spinner.update(f"loading {name}")
            selection.load(name)
    table = Table(box=box.SQUARE)
    table.add_column("op", style="bold")
    for name in (*shown, "ONNX"):
        table.add_column(name, justify="center")
    totals = dict.fromkeys([*shown, "ONNX"], 0)
    for op in track(found, description="trying", console=console, transient=True):
        record = REGISTRY[op]
        cells = {name: _cell(record, name) for name in shown} | {"ONNX": exports(op)}
        for name, cell in cells.items():
            totals[name] += cell not in ("no", "-")
        table.add_row(op, *cells.values())
    console.print(table)
    said = ", ".join(f"{name} {count}" for name, count in totals.items())
    console.print(f"{len(found)} ops; {said}", highlight=False)
    console.print(
        "A number is that of the dtypes which run there, of those that the op takes. ONNX: traced "
        "here by em.export on the op's own test case, in float32 where it takes that."
    )


def _cell(op: Op, backend: str) -> str:
    """How many of an op's dtypes run on a backend; the conformance tests run every one."""
    from ember_ml.testing import support

    taken = [d for d in em.dtypes.ALL if support.result_of(op, d) is not None]
    running = [d for d in taken if support.runs_on(op, d, backend)]
    if len(running) == len(taken):
        return "yes"
    return f"{len(running)} of {len(taken)}" if running else "no"


def exports(op: str) -> str:
    """Whether an op's own test case can be traced: "yes", "no", or "-" where nothing flows in."""
    from ember_ml.testing.cases import CASES

    case = next((x for x in CASES if x.op == op and x.dtypes), None)
    if case is None:
        return "-"
    dtype = em.dtypes.float32 if em.dtypes.float32 in case.dtypes else case.dtypes[0]
    inputs = next(iter(case.inputs(dtype)), ())
    if not inputs:
        return "-"
    with selection.use_backend("numpy"), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            em.export(lambda *xs: case.run(em.ops, *xs), *map(em.ops.asarray, inputs))
        except EmberError:
            return "no"
    return "yes"
