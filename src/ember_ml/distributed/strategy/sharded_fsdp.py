"""Modules on torch, divided by its own FSDP2 (`torch.distributed.fsdp.fully_shard`).

FSDP2 divides the parameters of torch modules by rows, gathers those of a module when it is called
(and again for its gradient), and hands each rank the sum of its rows of the gradients. Each module
of ours with parameters of its own has a torch module beside it, a unit, with nothing but these; a
call of our module goes through the unit. Two things differ from models of torch:

- Layers of ours read weights of others, as attention does those of its projections. What is read
  while its own module is not running is gathered by hand, and stays until the gradient is known.
- FSDP2 needs `backward()`, which fills `.grad`: see `FullySharded.value_and_grad`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ember_ml.autodiff import runs, tape
from ember_ml.backend.contract import NativeArray
from ember_ml.distributed.communicator import Communicator
from ember_ml.distributed.engines import gloo
from ember_ml.distributed.strategy.sharded_modules import (
    Engine,
    Layouts,
    Scope,
    _own,
    scope,
)
from ember_ml.errors import DomainError
from ember_ml.nn.module import Module
from ember_ml.tensor import roles
from ember_ml.tensor.core import Tensor, fill

__all__ = ["FullySharded"]


class _Unit(torch.nn.Module):
    """The parameters of one of our modules; `run` is what our module does with its arguments."""

    def __init__(self, natives: list[NativeArray]) -> None:
        super().__init__()
        for place, native in enumerate(natives):
            # FSDP2 takes no numbers without an axis.
            shaped = native.detach().reshape(1) if native.ndim == 0 else native.detach()
            self.register_parameter(
                f"p{place}", torch.nn.Parameter(shaped, requires_grad=native.requires_grad)
            )
        # True where others read its parameters, or have them too: then calls do not go through it,
        # and its gradients are summed when all is done.
        self.is_read = False

    def forward(self, run: Callable[[tuple[Any, ...]], Any], *natives: Any) -> Any:
        return run(natives)


class _Root(torch.nn.Module):
    """All units; what runs in a call of it may call them."""

    def __init__(self, units: list[_Unit]) -> None:
        super().__init__()
        self.units = torch.nn.ModuleList(units)

    def forward(self, run: Callable[[], Any]) -> Any:
        return run()


class _Holder:
    """Where a parameter of ours is: in which unit, under which name, and with which shape."""

    __slots__ = ("name", "shape", "unit")

    def __init__(self, unit: _Unit, name: str, shape: tuple[int, ...]) -> None:
        self.unit = unit
        self.name = name
        self.shape = shape

    @property
    def native(self) -> Any:
        """The parameter as it is now: a DTensor, or where it is gathered, a tensor."""
        return self.unit._parameters[self.name]


class FullySharded(Engine):
    """A model on torch whose parameters FSDP2 divides; `parts` are those of this rank, by ids."""

    def __init__(self, model: Module, communicator: Communicator) -> None:
        self.communicator = communicator
        self.parts: dict[int, Tensor] = {}
        self._holders: dict[int, _Holder] = {}
        # By the ids of modules: the unit that their calls go through.
        self.units: dict[int, _Unit] = {}
        self._tensors: list[Tensor] = []
        self._build(model)

    def _build(self, model: Module) -> None:
        shared = _shared(model)
        units: list[_Unit] = []
        device = "cpu"
        for one in model.modules():
            groups: dict[Any, list[Tensor]] = {}
            for _, x in _own(one):
                if roles.is_parameter(x) and id(x) not in self._holders:
                    # A group of FSDP2 has one dtype; what several modules have is on its own.
                    key = (x._spec, id(x) if id(x) in shared else 0)
                    groups.setdefault(key, []).append(x)
                    self._holders[id(x)] = None  # type: ignore[assignment]  # taken; set below
            for (spec, alone), tensors in groups.items():
                unit = _Unit([x.native for x in tensors])
                unit.is_read = bool(alone) or id(one) in self.units
                if not unit.is_read:
                    self.units[id(one)] = unit
                units.append(unit)
                device = spec.device
                for place, x in enumerate(tensors):
                    self._holders[id(x)] = _Holder(unit, f"p{place}", x.shape)
                    self._tensors.append(x)
        mesh = init_device_mesh(torch.device(device).type, (self.communicator.world_size,))
        gloo.MESHES.append(mesh)
        for unit in units:
            fully_shard(unit, mesh=mesh)
            # Gradients are those of a share of the batch each: they are summed.
            unit.set_gradient_divide_factor(1.0)  # type: ignore[operator]  # of FSDPModule
            unit.set_force_sum_reduction_for_comms(True)  # type: ignore[operator]  # as above
        self.root = _Root(units)
        fully_shard(self.root, mesh=mesh)
        for x in self._tensors:
            local = self._holders[id(x)].native.to_local().detach()
            self.parts[id(x)] = fill(local, x._spec)

    # --- Running ------------------------------------------------------------------------------

    def within(self, function: Callable[[], Any]) -> Any:
        """Call a function where tensors are whole; gradients are taken by `value_and_grad`."""
        with tape.no_grad():
            return self._run(function)

    def _run(self, function: Callable[[], Any]) -> Any:
        found: list[Any] = []

        def run() -> Any:
            with scope(_FullScope(self)):
                found.append(function())
            return list(_natives(found[0]))

        self._close()
        try:
            self.root(run)
        except BaseException:
            self.root.reset_iter_state()  # type: ignore[operator]  # of FSDPModule
            raise
        if not tape.is_grad_enabled():
            self._close()
        return found[0]

    def _close(self) -> None:
        """Let go of what was gathered by hand: parts may change after a call."""
        for unit in self.root.units:
            if not isinstance(unit.p0, DTensor):
                unit.reshard()  # type: ignore[operator]  # of FSDPModule

    def value_and_grad(
        self, function: Callable[[], tuple[Tensor, Any]], trained: list[Tensor]
    ) -> tuple[Tensor, Any, list[Tensor | None]]:
        """A number, what comes with it, and the parts of its gradients, summed over ranks."""
        for x in trained:
            if not self._holders[id(x)].native.requires_grad:
                raise DomainError(
                    "ShardedDataParallelStrategy on torch trains what was not frozen when the run "
                    "began; unfreeze before fit, or in another fit"
                )
        with tape.enable_grad():
            value, aux = self._run(function)
        with scope(_FullScope(self)):  # a part may be computed again
            value.native.backward()
        found = {}
        for key, holder in self._holders.items():
            found[key], holder.native.grad = holder.native.grad, None
        grads: list[Tensor | None] = []
        for x in trained:
            g = found[id(x)]
            grads.append(None if g is None else fill(g.to_local().detach(), x._spec))
        return value.detach(), runs.separated(aux, ()), grads

    def whole(self, x: Tensor, original: Tensor) -> Tensor:
        """The whole tensor of a parameter; it is gathered by hand where that is not done."""
        holder = self._holders[id(original)]
        if isinstance(holder.native, DTensor):
            holder.unit.is_read = True
            holder.unit.unshard()  # type: ignore[operator]  # of FSDPModule
        native = holder.native
        if native.shape != holder.shape:
            native = native.reshape(holder.shape)
        made = runs.made(native, original._spec)
        return made if x.dtype == original.dtype else made.astype(x.dtype)


class _FullScope(Scope):
    """Where FSDP2 gathers."""

    def __init__(self, engine: FullySharded) -> None:
        super().__init__()
        self._engine = engine

    def prepare(self, module: Any) -> None:
        """Nothing: units are gathered one by one."""

    def of(self, module: Any) -> dict[str, Tensor]:
        layouts: Layouts = module.__dict__["_layouts"]
        return {
            name: self._engine.whole(x, layouts.originals[name])
            for name, x in _own(module)
            if name in layouts.named
        }

    def run(
        self, module: Any, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
    ) -> Any:
        unit = module.__dict__["_layouts"].unit
        if unit is None or unit.is_read:
            return function(*args, **kwargs)
        natives: list[Any] = []
        for value in (args, kwargs):
            natives += [x.native for x in _tensors(value) if x.requires_grad]
        found: list[Any] = []

        def run(given: tuple[Any, ...]) -> Any:
            new = iter(given)
            found.append(function(*_with(args, new), **_with(kwargs, new)))
            return list(_natives(found[0]))

        unit(run, *natives)
        if not _is_plain(found[0]):
            # FSDP2 must see the results to know when their gradients come.
            unit.is_read = True
            unit.unshard()
        return found[0]


# --- Trees of arguments and results ---------------------------------------------------------------


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


def _natives(value: Any) -> Iterator[NativeArray]:
    for x in _tensors(value):
        if isinstance(x.native, torch.Tensor):
            yield x.native


def _with(value: Any, natives: Iterator[Any]) -> Any:
    """The same with other arrays in the tensors that need gradients."""
    if isinstance(value, Tensor):
        return runs.made(next(natives), value._spec) if value.requires_grad else value
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([_with(item, natives) for item in value])
    if kind is dict:
        return {key: _with(item, natives) for key, item in value.items()}
    for x in _tensors(value):  # of a class of its own: they stay as they are
        if x.requires_grad:
            next(natives)
    return value


def _is_plain(value: Any) -> bool:
    """True where all tensors in a result are found."""
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(item) for item in value.values())
    return value is None or isinstance(value, Tensor | bool | int | float | str)


def _shared(model: Module) -> set[int]:
    """The ids of parameters that several modules have."""
    seen: set[int] = set()
    found: set[int] = set()
    for one in model.modules():
        own = {id(x) for _, x in _own(one)}
        found |= own & seen
        seen |= own
    return found
