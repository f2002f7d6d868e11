"""The machine that a benchmark ran on, as far as it matters for the numbers."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import ember_ml as em
from ember_ml import compiled
from ember_ml.backend.numpy import blas

__all__ = ["describe", "summary", "versions_text"]

# Distributions whose versions are kept, where they are installed.
ENGINES = ("numpy", "torch", "jax", "mlx", "onnxruntime")
PEERS = ("keras", "array-api-compat", "autoray", "autograd", "pywebnn", "safetensors", "scipy")


def processor() -> str:
    """The name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model") and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine()


def describe() -> dict[str, Any]:
    """CPU, cores, kernels of the BLAS, versions, load and date, for the JSON of a run."""
    versions = {}
    for name in (*ENGINES, *PEERS):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "blas": blas.kernels(),
        "python": platform.python_version(),
        "ember_ml": em.__version__,
        "compiled": compiled.is_compiled(),
        "versions": versions,
        "load": [round(one, 2) for one in os.getloadavg()] if hasattr(os, "getloadavg") else [],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def summary(machine: Mapping[str, Any]) -> str:
    """One line for people, of what `describe` found.

    >>> summary({"cpu": "A1", "cores": 2, "python": "3.11.7", "load": [0.5, 3.0], "compiled": True})
    'A1, 2 cores, Python 3.11.7, load average 0.5 to 3.0, compiled core'
    """
    parts = [str(machine.get("cpu") or machine.get("architecture") or "an unknown machine")]
    cores = machine.get("cores")
    if cores:
        parts.append(f"{cores} core" + ("s" if cores != 1 else ""))
    if machine.get("blas"):
        parts.append(f"NumPy's OpenBLAS as for {machine['blas']}")
    if machine.get("python"):
        parts.append(f"Python {machine['python']}")
    # The 1-minute averages at the start and, where they were taken, between benchmarks.
    loads = [float(one) for one in (machine.get("loads") or machine.get("load") or ())]
    if loads:
        low, high = f"{min(loads):.1f}", f"{max(loads):.1f}"
        parts.append(f"load average {low}" + (f" to {high}" if low != high else ""))
    if "compiled" in machine:
        parts.append("compiled core" if machine["compiled"] else "core not compiled")
    if machine.get("parts"):
        parts.append(f"measured in {machine['parts']} parts")
    return ", ".join(parts)


def versions_text(machine: Mapping[str, Any]) -> str:
    """The versions in one line."""
    found = {"ember_ml": machine.get("ember_ml", ""), **machine.get("versions", {})}
    return ", ".join(f"{name} {version}" for name, version in found.items() if version)
