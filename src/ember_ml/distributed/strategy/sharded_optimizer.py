"""Optimizers of divided parameters: what they remember is divided as the parameters are.

An optimizer whose formula treats every number by itself runs on parts as it stands. Muon, LAMB and
Adafactor look at a whole matrix: they are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ember_ml.distributed.communicator import Communicator
from ember_ml.distributed.strategy.sharded_layout import Layout, gathered, plain
from ember_ml.errors import DTypeError, ShapeError
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.training.optimizers import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Lion,
    Optimizer,
    RMSprop,
)

__all__ = ["ShardedOptimizer", "require_elementwise", "shard_optimizer", "unshard_optimizer"]

_ELEMENTWISE: Final = (SGD, Adam, Lion, Adagrad, RMSprop, Adadelta)
_DIVIDED: Final = "_divided"
_CLASSES: Final[dict[type, type]] = {}


class Divided:
    """How the parameters of an optimizer are divided, by the names that it has for them."""

    __slots__ = ("communicator", "named")

    def __init__(self, communicator: Communicator, named: dict[str, Layout]) -> None:
        self.communicator = communicator
        self.named = named

    def parts(self, name: str, state: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The parts of this rank of what is remembered for a parameter."""
        layout = self.named.get(name)
        if layout is None:
            return dict(state)
        found: dict[str, Any] = {}
        for key, value in state.items():
            if key == "step":
                found[key] = value
                continue
            x = value if isinstance(value, Tensor) else convert.to_tensor(value)
            if x.shape != layout.shape:
                raise ShapeError(
                    f"{where}: {key} of '{name}' has shape {x.shape}, and not {layout.shape}"
                )
            found[key] = layout.part(x.detach(), self.communicator.rank)
        return found

    def wholes(self, name: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is remembered for a parameter, whole, on every rank."""
        layout = self.named.get(name)
        keys = [key for key in state if key != "step"] if layout is not None else []
        if not keys or layout is None:
            return dict(state)
        parts = [plain(state[key]) for key in keys]
        made = gathered(self.communicator, parts, [layout] * len(parts))
        return {**state, **dict(zip(keys, made, strict=True))}


class ShardedOptimizer(Optimizer):
    """What an optimizer of divided parameters is besides its own class."""

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on, with whole tensors; every rank must ask for it."""
        state = super().state_dict()
        divided: Divided = self.__dict__[_DIVIDED]
        whole = {name: divided.wholes(name, one) for name, one in state["state"].items()}
        return {**state, "state": whole}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave, of which each rank takes its parts."""
        divided: Divided = self.__dict__[_DIVIDED]
        where = f"{type(self).__name__}.load_state_dict"
        if isinstance(state.get("state"), Mapping):
            parts = {
                name: divided.parts(name, one, where) if one else one
                for name, one in state["state"].items()
            }
            state = {**state, "state": parts}
        super().load_state_dict(state)

    def part_state(self) -> dict[str, Any]:
        """What is needed to go on, with the parts of this rank."""
        return super().state_dict()

    def load_part_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `part_state` gave."""
        super().load_state_dict(state)

    def __getstate__(self) -> dict[str, Any]:
        return {key: v for key, v in super().__getstate__().items() if key != _DIVIDED}


def require_elementwise(optimizer: Any) -> None:
    """Raise where an update needs more than the part of a parameter that a rank has."""
    kind = type(optimizer)
    if not isinstance(optimizer, Optimizer):
        raise DTypeError(
            f"ShardedDataParallelStrategy takes an optimizer of ember_ml.training, not "
            f"{kind.__name__}, of which it does not know what it remembers"
        )
    if any(kind._formula is one._formula for one in _ELEMENTWISE):
        return
    names = ", ".join(one.__name__ for one in (SGD, Adam, *_ELEMENTWISE[2:]))
    raise DTypeError(
        f"ShardedDataParallelStrategy got {kind.__name__}, whose update needs whole tensors, "
        f"and ranks keep parts; it takes {names} and AdamW. DataParallelStrategy takes all"
    )


def shard_optimizer(
    optimizer: Optimizer, layouts: Mapping[int, Layout], communicator: Communicator
) -> None:
    """Let an optimizer remember the parts of this rank; layouts are by the ids of parameters."""
    named = {
        slot.name: layouts[id(slot.param)]
        for slots in optimizer._slots
        for slot in slots
        if id(slot.param) in layouts
    }
    divided = Divided(communicator, named)
    for slots in optimizer._slots:
        for slot in slots:
            if slot.state:
                slot.state = divided.parts(slot.name, slot.state, type(optimizer).__name__)
    optimizer._programs = {}
    optimizer.__dict__[_DIVIDED] = divided
    optimizer.__class__ = _class_of(type(optimizer))


def unshard_optimizer(optimizer: Optimizer) -> None:
    """Let what an optimizer remembers be whole again, on every rank."""
    divided: Divided | None = optimizer.__dict__.pop(_DIVIDED, None)
    if divided is None:
        return
    for slots in optimizer._slots:
        for slot in slots:
            if slot.state:
                slot.state = divided.wholes(slot.name, slot.state)
    optimizer._programs = {}
    optimizer.__class__ = type(optimizer).__mro__[2]  # after ShardedOptimizer, what it was


def _class_of(cls: type) -> type:
    found = _CLASSES.get(cls)
    if found is None:
        body = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        found = _CLASSES[cls] = type(cls.__name__, (ShardedOptimizer, cls), body)
    return found
