"""Mixed precision: weights in float32, and the work in half of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ember_ml import dtypes, ops, tree
from ember_ml.autodiff import tape
from ember_ml.dtypes import DTypeLike
from ember_ml.errors import DomainError, FormatError
from ember_ml.nn import members
from ember_ml.nn.module import Module
from ember_ml.tensor import roles
from ember_ml.tensor.core import Tensor
from ember_ml.training import clipping
from ember_ml.training.optimizers.applying import write
from ember_ml.training.optimizers.base import Optimizer

__all__ = ["LossScaler", "MixedPrecision"]

_HALF: Final = (dtypes.float16, dtypes.bfloat16)


class LossScaler:
    """A factor for losses, so that gradients in float16 do not become zero on the way.

    Gradients are divided by it before they are used. Where one of them is infinite or NaN, the
    update is left out and the factor shrinks by `backoff_factor`; after `growth_interval` good
    updates in a row it grows by `growth_factor`.

    >>> from ember_ml import nn
    >>> from ember_ml.training import SGD, LossScaler
    >>> w = nn.Parameter([1.0])
    >>> opt, scaler = SGD([w], lr=0.5), LossScaler(1024.0)
    >>> scaler.scale((w * w).sum()).backward()
    >>> scaler.step(opt), w.tolist()
    (True, [0.0])
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        if not init_scale > 0:
            raise DomainError(f"LossScaler got init_scale={init_scale}; it is a positive number")
        if not growth_factor > 1:
            raise DomainError(f"LossScaler got growth_factor={growth_factor}; it is larger than 1")
        if not 0 < backoff_factor < 1:
            raise DomainError(
                f"LossScaler got backoff_factor={backoff_factor}; it is between 0 and 1"
            )
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        # Good updates since the factor was changed.
        self.good = 0
        # A tensor, so that compiled functions see it change.
        self._factor = ops.asarray(float(init_scale), dtype="float32")

    @property
    def factor(self) -> float:
        """The factor of now."""
        return float(self._factor)

    def scale(self, loss: Tensor) -> Tensor:
        """A loss times the factor, in float32 at least."""
        if loss.dtype in _HALF:
            loss = ops.astype(loss, "float32")
        factor = self._beside(loss)
        return loss * ops.astype(factor, loss.dtype, copy=False)

    def _beside(self, x: Tensor) -> Tensor:
        factor = self._factor
        if factor.backend == x.backend and factor.device == x.device:
            return factor
        if x._spec.backend.is_traced(x.native):
            raise DomainError(
                f"LossScaler has its factor on '{factor.backend}' and compiles for "
                f"'{x.backend}'; call scaler.to('{x.backend}') first"
            )
        self.to(x.backend, x.device)
        return self._factor

    def to(self, backend: str, device: str | None = None) -> LossScaler:
        """Keep the factor on another backend or device; gives itself."""
        self._factor = self._factor.to(backend=backend, device=device)
        return self

    def unscale(self, grads: Any) -> Any:
        """Gradients divided by the factor; those that a model or parameters carry, in place."""
        found, carried = clipping.tensors("LossScaler.unscale", grads)
        if not found:
            return grads
        with tape.no_grad():
            inverse = 1.0 / self._beside(found[0])
            made = [g * ops.astype(inverse, g.dtype, copy=False) for g in found]
        if not carried:
            return clipping.rebuilt(grads, made)
        clipping.put(found, made)
        return grads

    def step(self, optimizer: Optimizer, *, unscaled: bool = False) -> bool:
        """Update by what parameters carry, unless it is not finite; True where it was.

        `unscaled` says that `unscale` was called before, as for clipping.
        """
        params = [x for group in optimizer.param_groups for x in group["params"]]
        if not unscaled:
            self.unscale(params)
        is_good = _is_finite([x.grad for x in params if x.grad is not None])
        if is_good:
            optimizer.step()
        self.adjust(is_good)
        return is_good

    def update(
        self, optimizer: Optimizer, model: Any, grads: Any, *, unscaled: bool = False
    ) -> bool:
        """Update a model by gradients of a scaled loss, unless they are not finite."""
        if not unscaled:
            grads = self.unscale(grads)
        is_good = _is_finite(clipping.tensors("LossScaler.update", grads)[0])
        if is_good:
            optimizer.update(model, grads)
        self.adjust(is_good)
        return is_good

    def adjust(self, is_good: bool) -> None:
        """Let the factor shrink after gradients that were not finite, or grow when it is time."""
        self.good = self.good + 1 if is_good else 0
        if not is_good:
            self._change(self.backoff_factor)
        elif self.good >= self.growth_interval:
            # The factor itself stays finite.
            if self.factor * self.growth_factor < 3e38:
                self._change(self.growth_factor)
            self.good = 0

    def _change(self, by: float) -> None:
        write(self._factor, self._factor * by)

    def state_dict(self) -> dict[str, Any]:
        """The factor and the count of good updates."""
        return {"factor": self.factor, "good": self.good}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if "factor" not in state or "good" not in state:
            raise FormatError("LossScaler.load_state_dict takes 'factor' and 'good'")
        write(self._factor, ops.zeros_like(self._factor) + float(state["factor"]))
        self.good = int(state["good"])


class MixedPrecision:
    """Train with float32 weights and computations in `dtype`, float16 or bfloat16.

    `policy.cast(model)`, within the loss function, is the model with half-precision copies of its
    weights: gradients reach the weights themselves, in float32. float16 has a small range, so its
    losses are scaled; bfloat16 has that of float32 and needs none.

    >>> from ember_ml import nn
    >>> from ember_ml.training import SGD, LossScaler, MixedPrecision
    >>> policy = MixedPrecision("float16", LossScaler(256.0))
    >>> model = nn.Linear(2, 1)
    >>> opt = SGD(model, lr=0.1)
    >>> def loss_fn(model, x):
    ...     y = policy.cast(model)(policy.cast(x))
    ...     return policy.scale(ops.mean(ops.astype(y, "float32") ** 2))
    >>> loss, grads = em.value_and_grad(loss_fn)(model, ops.ones((4, 2)))
    >>> grads.weight.dtype, policy.update(opt, model, grads)
    (ember_ml.float32, True)
    """

    def __init__(
        self, dtype: DTypeLike = "float16", scaler: LossScaler | bool | None = None
    ) -> None:
        self.dtype = dtypes.to_dtype(dtype)
        if self.dtype not in _HALF:
            raise DomainError(
                f"MixedPrecision got dtype {self.dtype}; it is 'float16' or 'bfloat16'"
            )
        if scaler is None:
            scaler = self.dtype == dtypes.float16
        self.scaler = (LossScaler() if scaler else None) if isinstance(scaler, bool) else scaler

    def cast(self, x: Any) -> Any:
        """Floats in half precision: of a tensor, of a tree of tensors, or of a model.

        Of a model this is a copy for one call, whose weights are made of those of the model. See
        `casting` for models that keep statistics.
        """
        if isinstance(x, Module):
            return members.copied(x, self._half)
        if isinstance(x, Tensor):
            return self._half(x)
        return tree.map(lambda leaf: self._half(leaf) if isinstance(leaf, Tensor) else leaf, x)

    @contextmanager
    def casting(self, model: Module) -> Iterator[Module]:
        """A block with the cast model, at whose end buffers that were set go to the model.

        >>> from ember_ml import nn
        >>> from ember_ml.training import MixedPrecision
        >>> with MixedPrecision("bfloat16").casting(nn.Linear(2, 1)) as half:
        ...     half.weight.dtype
        ember_ml.bfloat16
        """
        half = self.cast(model)
        before = [dict(one.__dict__) for one in half.modules()]
        yield half
        for one, other, known in zip(model.modules(), half.modules(), before, strict=True):
            for name, value in other.__dict__.items():
                old = one.__dict__.get(name)
                if value is known.get(name) or not isinstance(value, Tensor):
                    continue
                if isinstance(old, Tensor) and not roles.is_parameter(old):
                    setattr(one, name, ops.astype(value, old.dtype, copy=False))

    def _half(self, x: Tensor) -> Tensor:
        if not x.dtype.is_floating or x.dtype == self.dtype:
            return x
        return roles.same(ops.astype(x, self.dtype), x)

    def scale(self, loss: Tensor) -> Tensor:
        """A loss as gradients are to be taken of: times the factor of the scaler."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def unscale(self, grads: Any) -> Any:
        """Gradients, or a loss, without the factor."""
        return grads if self.scaler is None else self.scaler.unscale(grads)

    def step(self, optimizer: Optimizer, *, unscaled: bool = False) -> bool:
        """Update by what parameters carry; False where it was left out: see LossScaler."""
        if self.scaler is not None:
            return self.scaler.step(optimizer, unscaled=unscaled)
        optimizer.step()
        return True

    def update(
        self, optimizer: Optimizer, model: Any, grads: Any, *, unscaled: bool = False
    ) -> bool:
        """Update a model by gradients; False where it was left out: see LossScaler."""
        if self.scaler is not None:
            return self.scaler.update(optimizer, model, grads, unscaled=unscaled)
        optimizer.update(model, grads)
        return True

    def state_dict(self) -> dict[str, Any]:
        """The state of the scaler."""
        return {} if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if self.scaler is not None:
            self.scaler.load_state_dict(state)


def _is_finite(grads: list[Tensor]) -> bool:
    """True where all gradients are finite; one value is read for all of them."""
    if not grads:
        return True
    with tape.no_grad():
        return bool(ops.all(ops.stack([ops.all(ops.isfinite(g)) for g in grads])))
