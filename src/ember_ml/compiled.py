"""The compiled core: which files it is made of, and whether they run compiled.

The files of MODULES are typed Python like all others. Where a C compiler is there when a wheel is
built, mypyc makes extension modules of them, which lie beside the sources and are what Python
imports; where there is none, the sources run as they are. There is no second implementation.

`EMBER_ML_PURE=1` in the environment takes the sources although extension modules are there.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_options: bool) -> Any:
        """What mypyc reads and Python passes over; the real one is a package of its own."""
        return lambda cls: cls


__all__ = ["MODULES", "PURE", "is_compiled", "modules", "mypyc_attr", "show_sources", "stale"]

# In the order in which they build on each other.
MODULES: Final = (
    "ember_ml.structure",
    "ember_ml.backend.pairs",
    "ember_ml.backend.writes",
    "ember_ml.backend.spec",
    "ember_ml.tensor.cell",
    "ember_ml.autodiff.nodes",
    "ember_ml.ops.dispatch",
    "ember_ml.tensor.layout",
    "ember_ml.tensor.homes",
    "ember_ml.tensor.views",
    "ember_ml.autodiff.walk",
    "ember_ml.backend.numpy.products",
    "ember_ml.backend.numpy.losses",
    "ember_ml.autodiff.rules.quick",
    "ember_ml.ops.loss_rows",
    "ember_ml.autodiff.backward",
    "ember_ml.autodiff.calls",
    "ember_ml.autodiff.runs",
    "ember_ml.autodiff.pulling",
    "ember_ml.backend.mlx.summation",
)
# Set before the first import of ember_ml; what is imported stays as it is.
PURE: Final = os.environ.get("EMBER_ML_PURE", "") not in ("", "0")


def _source_of(name: str) -> str:
    return os.path.join(os.path.dirname(__file__), *name.split(".")[1:]) + ".py"


class _Sources:
    """A finder that gives the sources of the core, where Python would take extension modules."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The source file of a module of the core; None for all other modules."""
        if name not in MODULES:
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, _source_of(name))


if PURE and not any(finder is _Sources for finder in sys.meta_path):
    sys.meta_path.insert(0, _Sources)


class _Reader:
    """What the traceback of a compiled module asks for the lines of its source."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, name: str) -> str | None:
        """The text of the source; None where it is not there."""
        try:
            with open(self._source, encoding="utf-8") as file:
                return file.read()
        except OSError:
            return None


def show_sources() -> None:
    """Let tracebacks show lines of the core, which extension modules do not tell."""
    for name, compiled in modules().items():
        if compiled:
            vars(sys.modules[name])["__loader__"] = _Reader(_source_of(name))


def stale() -> list[str]:
    """The modules of the core that run compiled from older sources than lie beside them."""
    found = []
    for name, compiled in modules().items():
        source, made = _source_of(name), str(sys.modules[name].__file__)
        if (
            compiled
            and os.path.exists(source)
            and os.stat(source).st_mtime > os.stat(made).st_mtime
        ):
            found.append(name)
    return found


def modules() -> dict[str, bool]:
    """The modules of the core that are imported, and whether each is compiled."""
    found = {name: sys.modules.get(name) for name in MODULES}
    return {
        name: not str(module.__file__).endswith(".py")
        for name, module in found.items()
        if module is not None
    }


def is_compiled() -> bool:
    """True where the core runs compiled, in all its parts.

    >>> from ember_ml import compiled
    >>> compiled.is_compiled() in (True, False)
    True
    """
    import ember_ml.ops  # noqa: F401 - imports the core

    return all(modules().values())
