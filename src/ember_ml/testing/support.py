"""The table of ops, dtypes and backends: what each op gives for each dtype, and where it runs.

The rows follow from the registry and from the dtypes of the backends. The conformance kit shows
them to be true: it runs every cell, and asserts DTypeError for every cell that is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from ember_ml import dtypes
from ember_ml.backend import selection
from ember_ml.dtypes import DType
from ember_ml.errors import DTypeError
from ember_ml.ops.registry import REGISTRY, Op

__all__ = ["markdown", "result_of", "runs_on"]


def result_of(op: Op, dtype: DType) -> DType | None:
    """The dtype that an op gives for operands of `dtype`; None where it refuses them."""
    try:
        return op.result_dtype(op.run_dtype(dtype))
    except DTypeError:
        return None


def runs_on(op: Op, dtype: DType, backend: str) -> bool:
    """True where an op takes `dtype` on the default device of a backend."""
    engine = selection.load(backend)
    result = result_of(op, dtype)
    device = engine.default_device()
    return result is not None and all(
        engine.supports(d, device) for d in (dtype, op.run_dtype(dtype), result)
    )


def markdown(backends: Sequence[str]) -> str:
    """The table as a page of the documentation."""
    letters = {name: name[0].upper() for name in backends}
    legend = ", ".join(f"{letter} {name}" for name, letter in letters.items())
    lines = [
        "---",
        "hide: [navigation, toc]",  # the table needs the width
        "---",
        "# Ops, dtypes and backends",
        "",
        f"Letters are backends: {legend}. A dot is a dtype that the op refuses with `DTypeError`.",
        "A name after an arrow is the dtype of the result where it is another one. The table is",
        "generated from the registry; the conformance tests run every cell.",
        "",
        '<div class="dense" markdown>',
        "",
        "| op | " + " | ".join(d.name for d in dtypes.ALL) + " |",
        "|---|" + "---|" * len(dtypes.ALL),
    ]
    for name, op in sorted(REGISTRY.items()):
        if op.creates:
            continue
        cells = [_cell(op, dtype, letters) for dtype in dtypes.ALL]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "</div>"]) + "\n"


def _cell(op: Op, dtype: DType, letters: dict[str, str]) -> str:
    result = result_of(op, dtype)
    if result is None:
        return "·"
    where = "".join(letter for name, letter in letters.items() if runs_on(op, dtype, name))
    return where if result is dtype else f"{where} → {result.name}"
