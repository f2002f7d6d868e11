"""Which line of the user's code is being traced."""

from __future__ import annotations

import linecache
import sys
from pathlib import PurePath
from types import TracebackType
from typing import Any, Final

__all__ = ["STOP", "brief_line", "is_foreign", "place", "place_of", "text_of", "user_line"]

_LIBRARY: Final = __name__.partition(".")[0]
# The module whose frames end a search: beyond it is who called for the trace.
STOP: Final = "ember_ml.graph.exporting"
_ROOT: Final = PurePath(__file__).parents[2]
# Where models of the library have code that reads like a user's.
_MODELS: Final = ("ember_ml.nn.", "ember_ml.models.")


def _frame() -> Any:
    """The innermost frame outside of the library; within a model of its own, that of the model."""
    frame: Any = sys._getframe(1)
    model = None
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name == STOP:
            break
        if name.partition(".")[0] != _LIBRARY and not name.startswith(("contextlib", "functools")):
            return frame
        if model is None and name.startswith(_MODELS):
            model = frame
        frame = frame.f_back
    return model


def place() -> tuple[str, int] | None:
    """The file and line of the user's code; None where there is none."""
    frame = _frame()
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def place_of(traceback: TracebackType | None) -> tuple[str, int] | None:
    """The innermost line outside of the library on the way to an error."""
    found = None
    while traceback is not None:
        name = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in (_LIBRARY, "contextlib", "functools", "numpy"):
            found = (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def is_foreign(where: tuple[str, int] | None) -> bool:
    """True for a place outside of the library."""
    return where is not None and not PurePath(where[0]).is_relative_to(_ROOT)


def text_of(where: tuple[str, int] | None) -> str:
    """A place for a message, as " at file:line: `text`"."""
    if where is None:
        return ""
    text = linecache.getline(*where).strip()
    return f" at {where[0]}:{where[1]}" + (f": `{text}`" if text else "")


def user_line() -> str:
    """Where the user's code is now, for a message; empty where there is none."""
    return text_of(place())


def brief_line(where: tuple[str, int] | None) -> str:
    """A place for a node of a graph, without the folder."""
    return "" if where is None else f"{PurePath(where[0]).name}:{where[1]}"
