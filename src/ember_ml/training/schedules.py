"""Schedules: rates that follow the number of updates."""

from __future__ import annotations

from typing import Any

from ember_ml.tensor.core import Tensor

__all__ = ["Rate", "Schedule"]


class Schedule:
    def __call__(self, step: int) -> float:
        raise NotImplementedError

    def traced(self, step: Tensor, numbers: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def numbers(self) -> list[float]:
        return []

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        pass


Rate = float | Schedule
