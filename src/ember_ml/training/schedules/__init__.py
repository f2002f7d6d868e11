"""Schedules: rates that follow the number of updates, or a metric."""

from ember_ml.training.schedules.base import Rate, Schedule
from ember_ml.training.schedules.curves import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    LinearSchedule,
    OneCycleSchedule,
    StepSchedule,
)
from ember_ml.training.schedules.joined import ChainSchedule, WarmupSchedule
from ember_ml.training.schedules.plateau import PlateauSchedule

__all__ = [
    "ChainSchedule",
    "ConstantSchedule",
    "CosineSchedule",
    "ExponentialSchedule",
    "LinearSchedule",
    "OneCycleSchedule",
    "PlateauSchedule",
    "Rate",
    "Schedule",
    "StepSchedule",
    "WarmupSchedule",
]
