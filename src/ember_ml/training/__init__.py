"""Training: optimizers, schedules, metrics, data and the loop over it."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any
from typing import Final as _Final

if _TYPE_CHECKING:
    from ember_ml.training import losses

# Which module has which name: each imports no more than it needs.
_BY_MODULE: _Final = {
    "optimizers": (
        "Adadelta Adafactor Adagrad Adam AdamW LAMB Lion Muon Optimizer RMSprop SGD get_optimizer"
    ),
    "schedules": (
        "ChainSchedule ConstantSchedule CosineSchedule ExponentialSchedule LinearSchedule "
        "OneCycleSchedule PlateauSchedule Schedule StepSchedule WarmupSchedule"
    ),
    "clipping": "clip_grad_norm clip_grad_value global_norm",
    "accumulation": "Accumulator",
    "precision": "LossScaler MixedPrecision",
    "metrics": (
        "AUC Accuracy F1 MAE MSE Mean Metric Perplexity Precision R2 Recall TopKAccuracy get_metric"
    ),
    "data": "DataLoader Dataset TensorDataset random_split",
    "callbacks": (
        "CSVLogger Callback Checkpoint EarlyStopping JSONLogger ProgressBar TensorBoardLogger"
    ),
    "history": "History",
    "trainer": "NaNLossError Trainer",
}
_NAMES: _Final = {name: module for module, names in _BY_MODULE.items() for name in names.split()}

__all__ = ["losses"]
__all__ += sorted(_NAMES)


def __getattr__(name: str) -> _Any:
    from importlib import import_module

    if name == "losses":
        return import_module("ember_ml.training.losses")
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'ember_ml.training' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"ember_ml.training.{module}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
