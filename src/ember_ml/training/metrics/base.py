"""Metric: sums over batches on the device, and one number of them when it is asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.autodiff import tape
from ember_ml.backend.selection import use_backend
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, ShapeError
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["FunctionMetric", "Mean", "Metric", "Sums", "floating", "given", "mask_of"]

Self = TypeVar("Self", bound="Metric")
# What a batch adds to a metric, by name.
Sums = dict[str, Tensor]
# What single precision lost of a sum, beside the sum: see Metric.merge.
_REST: Final = "_rest"


class Metric:
    """A measure of predictions, gathered batch by batch.

    `update(predictions, targets)` adds a batch, `compute()` gives the value of all batches since
    `reset()`, and calling the metric gives that of one batch alone. Nothing is read from the
    device before `compute`. The value of no samples at all is NaN.

    A metric of your own has `sums`, which gives what a batch adds, and `value`, which makes a
    number of the sums:

    >>> from ember_ml import training
    >>> class WithinOne(training.Metric):
    ...     def sums(self, predictions, targets, mask):
    ...         close = ops.abs(predictions - targets) <= 1.0
    ...         return {"close": ops.sum(close), "count": ops.asarray(close.size)}
    ...
    ...     def value(self, sums):
    ...         return sums["close"] / sums["count"]
    >>> metric = WithinOne()
    >>> metric.update(ops.asarray([1.0, 2.0]), ops.asarray([1.5, 5.0]))
    >>> metric.update(ops.asarray([1.0, 2.0]), ops.asarray([1.5, 2.0]))
    >>> metric.compute(), metric.name
    (0.75, 'withinone')
    """

    # True where the sums have fixed shapes, so that compiled functions can add to them.
    traceable: ClassVar[bool] = True
    # What is there before the first batch, where shapes are known: dtypes by name.
    starts: ClassVar[Mapping[str, DType]] = {}

    def __init__(self, name: str | None = None) -> None:
        self.name = type(self).__name__.lower() if name is None else name
        self._totals: Sums = {}
        self.reset()

    # --- What a metric says -------------------------------------------------------------------

    def sums(self, predictions: Tensor, targets: Any, mask: Tensor | None) -> Sums:
        """What a batch adds."""
        raise NotImplementedError(f"{type(self).__name__} has no method sums")

    def value(self, sums: Mapping[str, Any]) -> Any:
        """The value of sums, which are numbers or arrays of NumPy."""
        raise NotImplementedError(f"{type(self).__name__} has no method value")

    # --- Use ------------------------------------------------------------------------------------

    def update(self, predictions: Any, targets: Any = None, mask: Any = None) -> None:
        """Add a batch; samples count where `mask` is true."""
        found = given(predictions)
        with tape.no_grad(), use_backend(found.backend):
            about = None if targets is None else given(targets, found)
            masked = None if mask is None else given(mask, found)
            self.merge(self.sums(found, about, masked))

    def merge(self, batch: Sums) -> None:
        """Add the sums of a batch; of floats, what rounding takes away is kept beside them."""
        totals = self._totals
        for name, x in batch.items():
            old = totals.get(name)
            if old is not None and old.backend != x.backend:
                old = old.to_backend(x.backend)
            if not x.dtype.is_floating:
                totals[name] = x if old is None else old + x
                continue
            rest = totals.get(name + _REST)
            if old is None or rest is None:
                totals[name], totals[name + _REST] = x, ops.zeros_like(x)
                continue
            if rest.backend != x.backend:
                rest = rest.to_backend(x.backend)
            total = old + x
            part = total - old
            totals[name] = total
            totals[name + _REST] = rest + ((old - (total - part)) + (x - part))

    def join(self, state: Mapping[str, Any]) -> None:
        """Add what another metric of this kind has gathered, as its `state_dict` tells it.

        >>> from ember_ml import training
        >>> one, other = training.Mean("loss"), training.Mean("loss")
        >>> one.update(2.0), other.update(4.0)
        (None, None)
        >>> one.join(other.state_dict())
        >>> one.compute()
        3.0
        """
        found = {name: convert.to_tensor(x) for name, x in state.items()}
        sums = {name: x for name, x in found.items() if not name.endswith(_REST)}
        if not sums:
            return
        self.merge(sums)
        for name in sums:
            if name + _REST in found and name + _REST in self._totals:
                own = self._totals[name + _REST]
                rest = convert.to_tensor(found[name + _REST], own._spec.backend)
                self._totals[name + _REST] = own + rest

    def compute(self) -> Any:
        """The value of all batches since `reset`: a number, or a list of them; NaN of none."""
        sums = self.gathered()
        return _plain(self.value(sums)) if sums else float("nan")

    def gathered(self) -> dict[str, Any]:
        """The sums so far, read from the device: integers as they are, floats in float64."""
        found: dict[str, Any] = {}
        for name, x in self._totals.items():
            if name.endswith(_REST):
                continue
            array = x.numpy()
            if x.dtype.is_floating:
                rest = self._totals[name + _REST].numpy()
                array = array.astype(np.float64) + rest.astype(np.float64)
            found[name] = array.item() if array.ndim == 0 else array
        return found

    def reset(self) -> None:
        """Forget all batches; sums begin on the current backend."""
        known = {name: (x.shape, x.dtype) for name, x in self._totals.items()}
        for name, dtype in self.starts.items():
            known.setdefault(name, ((), dtype))
            if dtype.is_floating:
                known.setdefault(name + _REST, ((), dtype))
        self._totals = {
            name: ops.zeros(shape, dtype=dtype) for name, (shape, dtype) in known.items()
        }

    def __call__(self, predictions: Any, targets: Any = None, mask: Any = None) -> Any:
        """The value of one batch, beside what has been gathered."""
        other = copy.copy(self)
        other._totals = {}
        other.reset()
        other.update(predictions, targets, mask)
        return other.compute()

    # --- Keeping ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The sums so far."""
        return dict(self._totals)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the sums of a state."""
        self._totals = {name: convert.to_tensor(x) for name, x in state.items()}

    def __jit_state__(self) -> dict[str, Any]:
        return {"_totals": self._totals}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


class Mean(Metric):
    """The mean of numbers: of a loss over batches, weighted by their sizes.

    >>> from ember_ml import training
    >>> mean = training.Mean("loss")
    >>> mean.update(2.0, weights=1)
    >>> mean.update(5.0, weights=2)
    >>> mean.compute()
    4.0
    """

    starts: ClassVar[Mapping[str, DType]] = {"total": dtypes.float32, "count": dtypes.float32}

    def update(
        self, predictions: Any, targets: Any = None, mask: Any = None, *, weights: Any = None
    ) -> None:
        """Add numbers; each counts as much as its weight, which is 1 where none is given."""
        x = floating(given(predictions))
        with tape.no_grad(), use_backend(x.backend):
            share = ops.ones_like(x)
            for one in (weights, mask):
                if one is not None:
                    share = share * given(one, x).astype(x.dtype)
            kept = ops.where(share == 0.0, ops.zeros_like(x), x)
            self.merge({"total": ops.sum(kept * share), "count": ops.sum(share)})

    def value(self, sums: Mapping[str, Any]) -> Any:
        """The weighted sum by the sum of weights."""
        return divided(sums["total"], sums["count"])


class FunctionMetric(Mean):
    """The mean of a function of predictions and targets, weighted by the samples of a batch."""

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self.function = function
        super().__init__(name or getattr(function, "__name__", "metric"))

    def update(
        self, predictions: Any, targets: Any = None, mask: Any = None, *, weights: Any = None
    ) -> None:
        """Add the function's value of a batch."""
        if mask is not None:
            raise DomainError(f"the metric '{self.name}' is a function, and takes no mask")
        size = given(predictions).shape[:1]
        with tape.no_grad():
            value = ops.asarray(self.function(predictions, targets))
        super().update(value, weights=float(size[0] if size else 1))


# --- What metrics share ---------------------------------------------------------------------------


def given(x: TensorLike | Any, beside: Tensor | None = None) -> Tensor:
    """Data as a tensor without gradients, on the backend of another one."""
    found = convert.to_tensor(x, None if beside is None else beside._spec.backend)
    return found.detach() if found.requires_grad else found


def floating(x: Tensor) -> Tensor:
    """A tensor in a dtype in which to add: at least float32."""
    if not x.dtype.is_floating or x.dtype.bits < 32:
        return x.astype(dtypes.float32)
    return x


def mask_of(name: str, mask: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """A mask as truth values of a shape."""
    if mask is None:
        return None
    if mask.shape != shape:
        raise ShapeError(f"{name} got a mask of shape {mask.shape} for targets of shape {shape}")
    return mask if mask.dtype == dtypes.bool else mask != 0


def divided(total: Any, count: Any) -> float:
    """A quotient of Python's numbers; NaN where nothing was counted."""
    return float(total) / float(count) if count else float("nan")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [float(one) for one in value]
    return float(value)
