"""What is installed here, what is current and why, and how to get the rest."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import ember_ml as em
from ember_ml import compiled
from ember_ml.backend.numpy import blas
from ember_ml.backend.selection import ENVIRONMENT_VARIABLE, backend_file
from ember_ml.errors import BackendUnavailableError

__all__ = [
    "backends_table",
    "core",
    "current_backend",
    "engines_table",
    "install_commands",
    "installed_version",
    "system_table",
]

# Extras of this package that bring an engine, in the order in which `ember compare` offers them.
ENGINES = ("torch", "jax", "mlx")


def installed_version(distribution: str) -> str:
    """The version of an installed distribution; empty where there is none of that name."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def current_backend() -> tuple[str, str]:
    """The backend that a new program would get, and why.

    A choice that cannot be honoured raises the error that such a program would meet.
    """
    name = em.get_backend()
    if os.environ.get(ENVIRONMENT_VARIABLE, "").strip():
        return name, f"set by the environment variable {ENVIRONMENT_VARIABLE}"
    path = backend_file()
    if path.is_file() and path.read_text(encoding="utf-8").strip():
        return name, f"set in the file {path}"
    return name, "the best engine found on this machine"


def install_commands() -> dict[str, str]:
    """The pip command for each engine that is missing here and exists for this platform."""
    missing = [name for name in ENGINES if name not in em.available_backends()]
    if sys.platform not in ("darwin", "linux") and "mlx" in missing:
        missing.remove("mlx")  # it has no wheels elsewhere
    return {name: f"{_pip()} install 'ember-ml[{name}]'" for name in missing}


def _pip() -> str:
    """How to call the pip of this environment from the user's shell."""
    prefix = Path(sys.prefix)
    if sys.prefix == sys.base_prefix or os.environ.get("VIRTUAL_ENV") == sys.prefix:
        return "pip"
    scripts = prefix / ("Scripts" if os.name == "nt" else "bin")
    if not (scripts / "pip").exists():
        return "pip"
    here = Path.cwd()
    pip = scripts / "pip"
    return shlex.quote(str(pip.relative_to(here) if pip.is_relative_to(here) else pip))


def core() -> str:
    """Whether the core runs compiled, and why not where it does not."""
    if compiled.is_compiled():
        older = compiled.stale()
        return "compiled" + (f", from older sources ({', '.join(older)})" if older else "")
    if compiled.PURE:
        return "interpreted, by EMBER_ML_PURE"
    return "interpreted, as no extension modules were built"


def system_table() -> Table:
    """Versions of the library, of Python and of the machine, and the current backend."""
    grid = Table(show_header=False, box=None, pad_edge=False)
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    name, reason = current_backend()
    grid.add_row("ember_ml", em.__version__)
    grid.add_row("core", core())
    grid.add_row("Python", f"{platform.python_version()} ({platform.python_implementation()})")
    grid.add_row("platform", platform.platform())
    if found := blas.kernels():
        grid.add_row("OpenBLAS", f"NumPy's has the kernels for {found}")
    if better := blas.faster_kernels():
        hint = f"OPENBLAS_CORETYPE={better} uses this processor's AVX-512: quicker float32 products"
        grid.add_row("", hint)
    grid.add_row("backend", f"{name}, {reason}")
    grid.add_row("device", em.get_device())
    return grid


def engines_table(console: Console) -> Table:
    """Every known backend with its version and devices; loads those that are installed."""
    grid = Table()
    grid.add_column("backend", style="bold")
    grid.add_column("version")
    grid.add_column("devices", overflow="fold")
    installed = em.available_backends()
    with console.status("") as spinner:
        for name in em.backend.known_backends():
            if name not in installed:
                grid.add_row(name, "[dim]not installed[/dim]", "")
                continue
            spinner.update(f"loading {name}")
            try:
                devices = ", ".join(em.get_available_devices(name))
            except BackendUnavailableError as error:
                devices = f"[red]{escape(str(error))}[/red]"
            grid.add_row(name, installed_version(name), devices)
    return grid


def backends_table() -> Table:
    """Every known backend, whether it is installed, and which one is the default."""
    grid = Table()
    grid.add_column("backend", style="bold")
    grid.add_column("version")
    grid.add_column("default")
    installed = em.available_backends()
    current, reason = current_backend()
    for name in em.backend.known_backends():
        if name in installed:
            version = installed_version(name)
        else:
            version = "[dim]not installed[/dim]"
        grid.add_row(name, version, reason if name == current else "")
    return grid
