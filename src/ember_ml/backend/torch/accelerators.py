"""Devices of torch other than the CPU: CUDA (and ROCm), Metal, Intel."""

from __future__ import annotations

import os
from typing import Any, Final

import torch

__all__ = ["clear_cache", "memory_info", "names", "reset_peak_memory", "synchronize"]

# Who starts several processes on a machine numbers them by one of these: `ember launch` and
# torchrun, Open MPI, MPICH and Intel's, Slurm.
_LOCAL_RANKS: Final = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
)


def names() -> tuple[str, ...]:
    """The devices of this machine, the one for new tensors first: "cuda:0", "mps", "cpu".

    Of several processes on a machine, each has a GPU of its own for that, by its number there.
    """
    found: list[str] = []
    if torch.cuda.is_available():
        found += _own_first([f"cuda:{i}" for i in range(torch.cuda.device_count())])
    if torch.backends.mps.is_available():
        found.append("mps")
    if torch.xpu.is_available():
        found += _own_first([f"xpu:{i}" for i in range(torch.xpu.device_count())])
    return (*found, "cpu")


def _own_first(devices: list[str]) -> list[str]:
    text = next((os.environ[name] for name in _LOCAL_RANKS if os.environ.get(name)), "0")
    # What is no number is told by who joins the others, with the variable's name.
    own = int(text) % len(devices) if text.isdecimal() and devices else 0
    return devices[own : own + 1] + devices[:own] + devices[own + 1 :]


def synchronize(device: str) -> None:
    """Wait until all work queued on `device` is done."""
    if device == "mps":
        torch.mps.synchronize()
    elif device != "cpu":
        _module(device).synchronize(device)


def memory_info(device: str) -> dict[str, int]:
    """Bytes on an accelerator, as torch's allocator counts them."""
    if device == "mps":
        return {
            "allocated": torch.mps.current_allocated_memory(),
            "reserved": torch.mps.driver_allocated_memory(),
            "total": torch.mps.recommended_max_memory(),
        }
    module = _module(device)
    return {
        "allocated": module.memory_allocated(device),
        "reserved": module.memory_reserved(device),
        "peak": module.max_memory_allocated(device),
        "total": module.get_device_properties(device).total_memory,
    }


def reset_peak_memory(device: str) -> bool:
    """Let the peak begin anew; Metal keeps none."""
    if device == "mps":
        return False
    _module(device).reset_peak_memory_stats(device)
    return True


def clear_cache(device: str) -> None:
    """Give back what the allocator holds in reserve."""
    (torch.mps if device == "mps" else _module(device)).empty_cache()


def _module(device: str) -> Any:
    return torch.xpu if device.startswith("xpu") else torch.cuda
