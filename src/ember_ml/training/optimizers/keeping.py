"""The state of an optimizer in a file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ember_ml.errors import DomainError, FormatError, ShapeError, UnknownKeyError
from ember_ml.nn import config
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.training.optimizers import applying
from ember_ml.training.schedules import Schedule

if TYPE_CHECKING:
    from ember_ml.training.optimizers.base import Optimizer

__all__ = ["load", "state_of"]

_SCHEDULE: Final = "schedule"


def state_of(optimizer: Optimizer) -> dict[str, Any]:
    """See Optimizer.state_dict."""
    groups = []
    for place, group in enumerate(optimizer.param_groups):
        options = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in optimizer._options(place).items()
        }
        groups.append({"names": list(group["names"]), "lr": _kept(group["lr"]), **options})
    state = {
        slot.name: {key: x.detach() for key, x in slot.state.items()}
        for slots in optimizer._slots
        for slot in slots
        if slot.state
    }
    return {"steps": optimizer.steps, "param_groups": groups, "state": state}


def _kept(lr: Any) -> Any:
    if not isinstance(lr, Schedule):
        return lr
    return {_SCHEDULE: config.encode(lr, "lr"), "state": lr.state_dict()}


def load(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """See Optimizer.load_state_dict."""
    where = f"{type(optimizer).__name__}.load_state_dict"
    missing = [key for key in ("steps", "param_groups", "state") if key not in state]
    if missing:
        raise FormatError(f"{where} got a state without {missing[0]!r}")
    groups = list(state["param_groups"])
    if len(groups) != len(optimizer.param_groups):
        raise DomainError(
            f"{where} got {len(groups)} groups of parameters for {len(optimizer.param_groups)}"
        )
    found = []
    for group, mine, slots in zip(groups, optimizer.param_groups, optimizer._slots, strict=True):
        if list(group["names"]) != list(mine["names"]):
            other = sorted({*group["names"]} ^ {*mine["names"]})
            said = (
                f"only one of both has {', '.join(other[:5])}" if other else "their order differs"
            )
            raise UnknownKeyError(f"{where} got a state of other parameters: {said}")
        options = {key: v for key, v in group.items() if key not in ("names", "lr")}
        for key, value in options.items():
            if key not in mine:
                raise UnknownKeyError(f"{where} got the option {key!r}, which it does not have")
            if isinstance(mine[key], tuple):
                options[key] = tuple(value)
        found.append((mine, options, group["lr"], slots))
    optimizer._ready()
    values: list[tuple[Tensor, Tensor]] = []
    for _, options, _, slots in found:
        for slot in slots:
            values += _fitted(optimizer, slot, state["state"].get(slot.name), options, where)
    for mine, options, lr, _ in found:
        mine.update(options)
        mine["lr"] = _restored(mine["lr"], lr)
    for x, value in values:
        applying.write(x, value)
    optimizer._known, optimizer._is_told = int(state["steps"]), False


def _fitted(
    optimizer: Optimizer, slot: Any, given: Any, options: Mapping[str, Any], where: str
) -> list[tuple[Tensor, Tensor]]:
    """The tensors of a parameter's state with their new values."""
    if not given:
        return []
    if slot.state is None or set(slot.state) != set(given):
        # The options of the file may remember other things than those of now.
        slot.state = None
        optimizer._fit_with(slot, options)
    mine = slot.state
    if set(mine) != set(given):
        other = ", ".join(sorted(set(mine) ^ set(given)))
        raise UnknownKeyError(f"{where}: of '{slot.name}', only one of both has {other}")
    found = []
    for key, x in mine.items():
        value = convert.to_tensor(given[key])
        if value.shape != x.shape:
            raise ShapeError(
                f"{where}: {key} of '{slot.name}' has shape {value.shape}, and not {x.shape}"
            )
        spec = x._spec
        moved = value.detach().to(backend=spec.backend.name, device=spec.device, dtype=spec.dtype)
        found.append((x, moved))
    return found


def _restored(mine: Any, kept: Any) -> Any:
    """The rate that a state was kept with: the schedule of now, where it is of the same kind."""
    if not isinstance(kept, Mapping):
        return kept
    if not isinstance(mine, Schedule) or config.encode(mine, "lr") != kept[_SCHEDULE]:
        mine = config.decode(kept[_SCHEDULE])
    mine.load_state_dict(kept["state"])
    return mine
