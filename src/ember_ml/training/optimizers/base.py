"""Optimizer: what all optimizers have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

from ember_ml import dtypes
from ember_ml.backend.compiling import tracing
from ember_ml.backend.contract import Spec
from ember_ml.errors import BackendMismatchError, DomainError, DTypeError, ShapeError, TraceError
from ember_ml.tensor import roles
from ember_ml.tensor.core import Tensor, fill
from ember_ml.training.optimizers import applying, grouping, keeping
from ember_ml.training.optimizers.applying import Slot
from ember_ml.training.schedules import Rate, Schedule

__all__ = ["Optimizer", "require"]

# Of a group: what is no option of the formula.
_OWN: Final = frozenset(("params", "names", "lr"))


class Optimizer:
    """What writes new values to parameters, by their gradients.

    `parameters` is a Module, parameters, (name, parameter) pairs, or dicts `{"params": ...}` with
    options of their own for some of them. Rates are numbers or schedules; `opt.lr = ...` sets
    that of all groups.

    There are two ways to give it gradients. After `loss.backward()`: `opt.step()` and
    `opt.zero_grad()`. With `loss, grads = em.value_and_grad(fn)(model)`: `opt.update(model,
    grads)`. Both write the parameters in place and can be part of a compiled function,
    `em.jit(fn, state=[model, opt])`.

    A subclass says what it remembers for a parameter, in `_remembered`, and how a parameter
    changes, in `_formula`, over ops.
    """

    # The name of the kernel that engines may have for it: see backend/*/updating.py.
    _kernel: ClassVar[str] = ""

    def __init__(self, parameters: Any, lr: Rate, **options: Any) -> None:
        _require_rate(self, lr)
        self.defaults: dict[str, Any] = {"lr": lr, **options}
        # One dict for each group: "params", "names", "lr" and the options of the formula.
        self.param_groups: list[dict[str, Any]] = []
        self._slots: list[list[Slot]] = []
        # How many updates were made: a tensor for compiled functions, which may have written to
        # it where the number is None, and a number for all others, which the tensor may not yet
        # have been told.
        self._count: Tensor | None = None
        self._known: int | None = 0
        self._is_told = False
        # The numbers behind rates, as tensors for compiled functions, and as they were told last.
        self._rates: list[Tensor] = []
        self._told: list[float] = []
        # What engines have compiled, by the kinds of what is updated.
        self._programs: dict[Any, Any] = {}
        for group in grouping.groups(type(self).__name__, parameters):
            self._add(group)

    # --- For subclasses -----------------------------------------------------------------------

    def _remembered(self, p: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
        """What is remembered for a parameter: names with a shape, or with (shape, first value)."""
        return {}

    def _formula(
        self,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:
        """The new value of a parameter; the new state is set in `state`."""
        raise NotImplementedError

    def _check(self, options: Mapping[str, Any]) -> None:
        """Raise where an option is out of its range."""

    # --- Groups -------------------------------------------------------------------------------

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Train more parameters, `{"params": ...}`, with options of their own where given.

        >>> from ember_ml import nn
        >>> from ember_ml.training import SGD
        >>> opt = SGD(nn.Linear(2, 1), lr=0.1)
        >>> opt.add_param_group({"params": nn.Linear(1, 1), "lr": 0.01})
        >>> [group["lr"] for group in opt.param_groups]
        [0.1, 0.01]
        """
        count = sum(len(slots) for slots in self._slots)
        named = grouping.named(type(self).__name__, group["params"], count)
        self._add({**group, "params": named})

    def _add(self, group: dict[str, Any]) -> None:
        where = type(self).__name__
        named = group.pop("params")
        unknown = [key for key in group if key not in self.defaults and key != "name"]
        if unknown:
            raise DomainError(
                f"{where} got a group with the option {unknown[0]!r}; it has "
                f"{', '.join(self.defaults)}"
            )
        options = {**self.defaults, **group}
        _require_rate(self, options["lr"])
        self._check(options)
        have = {id(slot.param): slot.name for slots in self._slots for slot in slots}
        taken = set(have.values())
        slots = []
        for name, x in named:
            if id(x) in have:
                raise DomainError(f"{where} got the parameter '{name}' twice")
            have[id(x)] = name
            slots.append(Slot(_unused(name, taken), x))
            self._require_backend(slots[0] if not self._slots else self._slots[0][0], slots[-1])
        made = {"params": [x for _, x in named], "names": [slot.name for slot in slots], **options}
        for slot in slots:
            if roles.role_of(slot.param) != roles.FROZEN:
                self._fit_with(slot, made)
        self.param_groups.append(made)
        self._slots.append(slots)

    def _require_backend(self, first: Slot, slot: Slot) -> None:
        one, other = first.param.backend, slot.param.backend
        if one != other:
            raise BackendMismatchError(
                f"{type(self).__name__} got '{first.name}' on '{one}' and '{slot.name}' on "
                f"'{other}'; move one of them with .to(backend='{one}')"
            )

    def _options(self, place: int) -> dict[str, Any]:
        return {key: v for key, v in self.param_groups[place].items() if key not in _OWN}

    # --- The state ----------------------------------------------------------------------------

    def _ready(self) -> None:
        """See that the state is there, and where the parameters are."""
        for place, slots in enumerate(self._slots):
            for slot in slots:
                x = slot.param
                if slot.spec is not x._spec and roles.role_of(x) != roles.FROZEN:
                    self._fit(slot, place)

    def _fit(self, slot: Slot, place: int) -> None:
        """Make the state of a parameter, or move it to where the parameter is."""
        if slot.state is None:
            self._fit_with(slot, self.param_groups[place])
        else:
            spec = applying.fitting(slot.param._spec)
            for key, value in slot.state.items():
                kind = spec.with_dtype(dtypes.float32) if key == "step" else spec
                slot.state[key] = _moved(value, kind)
        slot.spec = slot.param._spec

    def _fit_with(self, slot: Slot, options: Mapping[str, Any]) -> None:
        """Make the state of a parameter by the options of its group."""
        spec = applying.fitting(slot.param._spec)
        slot.state = {}
        for key, wanted in self._remembered(slot.param, options).items():
            kind = spec.with_dtype(dtypes.float32) if key == "step" else spec
            shape, value = wanted if wanted and isinstance(wanted[0], tuple) else (wanted, 0)
            slot.state[key] = fill(kind.backend.full(tuple(shape), value, kind), kind)
        slot.spec = slot.param._spec

    # --- Updates ------------------------------------------------------------------------------

    def step(self) -> None:
        """Update every parameter that has a gradient of `backward()`.

        >>> from ember_ml import nn
        >>> from ember_ml.training import SGD
        >>> w = nn.Parameter([1.0, 2.0])
        >>> opt = SGD([w], lr=0.5)
        >>> (w * w).sum().backward()
        >>> opt.step()
        >>> w.tolist()
        [0.0, 0.0]
        """
        self._update({id(x): x.grad for group in self.param_groups for x in group["params"]})

    def zero_grad(self) -> None:
        """Forget the gradients that `backward()` has added up."""
        for group in self.param_groups:
            for x in group["params"]:
                x.grad = None

    def update(self, model: Any, grads: Any) -> None:
        """Update the parameters of a model by gradients as `em.value_and_grad` gives them.

        `grads` is of the same tree as the model, or a dict by name, or a list. None stands for
        no gradient.

        >>> from ember_ml import nn
        >>> from ember_ml.training import SGD
        >>> model = nn.Linear(2, 1)
        >>> before = model.bias.item()
        >>> opt = SGD(model, lr=1.0)
        >>> loss, grads = em.value_and_grad(lambda m: ops.sum(m(ops.ones((1, 2)))))(model)
        >>> opt.update(model, grads)
        >>> round(before - model.bias.item(), 5)
        1.0
        """
        pairs = grouping.gradients(type(self).__name__, model, grads)
        given = {id(x): g for x, g in pairs}
        mine = {id(slot.param) for slots in self._slots for slot in slots}
        if pairs and not mine.intersection(given):
            raise DomainError(
                f"{type(self).__name__}.update got a model with none of the parameters that the "
                f"optimizer was made with; make it with this model"
            )
        self._update(given)

    def _update(self, grads: Mapping[int, Any]) -> None:
        self._ready()
        for place, slots in enumerate(self._slots):
            found: dict[Spec, tuple[list[Slot], list[Tensor]]] = {}
            for slot in slots:
                g = grads.get(id(slot.param))
                if g is None or slot.state is None or roles.role_of(slot.param) == roles.FROZEN:
                    continue
                self._require_gradient(slot, g)
                bucket = found.setdefault(slot.param._spec, ([], []))
                bucket[0].append(slot)
                bucket[1].append(g)
            if not found:
                continue
            rate = self._rate_of(place)
            options = self._options(place)
            formula = partial(self._run, options=options)
            for chosen, values in found.values():
                applying.run(chosen, values, rate, formula, options, self._kernel, self._programs)
        if tracing():
            applying.write(self._counted(), self._counted() + 1)
        else:
            self._known, self._is_told = self.steps + 1, False

    def _run(
        self,
        p: Tensor,
        g: Tensor,
        state: dict[str, Tensor],
        lr: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:
        return self._formula(p, -g if options.get("maximize") else g, state, lr, options)

    def _require_gradient(self, slot: Slot, g: Any) -> None:
        x = slot.param
        if isinstance(g, Tensor) and g._spec is x._spec and g.native.shape == x.native.shape:
            return
        where = f"{type(self).__name__} got a gradient of '{slot.name}'"
        if not isinstance(g, Tensor):
            raise DTypeError(f"{where} that is {type(g).__name__}, not a tensor")
        if g.shape != x.shape:
            raise ShapeError(f"{where} of shape {g.shape}; the parameter has {x.shape}")
        if g.backend != x.backend:
            raise BackendMismatchError(
                f"{where} on '{g.backend}', and the parameter is on '{x.backend}'; move one of "
                f"them with .to(backend=...)"
            )
        raise DTypeError(
            f"{where} of {g.dtype} on '{g.device}'; the parameter is {x.dtype} on '{x.device}'"
        )

    # --- Rates and counts ---------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """How many updates were made."""
        if self._known is not None:
            return self._known
        found = int(self._counted())
        if not tracing():
            self._known = found
        return found

    def _counted(self) -> Tensor:
        """The count for compiled functions."""
        if self._count is None:
            raise TraceError(
                f"{type(self).__name__} is used in a compiled function that has it not in its "
                f"state; write em.jit(fn, state=[model, opt])"
            )
        return self._count

    def _tell(self) -> None:
        """Let compiled functions know of the count and of the rates."""
        spec = self._slots[0][0].param._spec.with_dtype(dtypes.int64)
        if self._count is None:
            self._count, self._is_told = fill(spec.backend.full((), 0, spec), spec), False
        elif self._count._spec is not spec:
            self._count, self._is_told = _moved(self._count, spec), self._known is None
        if self._known is not None:
            if not self._is_told:
                native = spec.backend.full((), self._known, spec)
                applying.write(self._count, fill(native, spec))
            self._known, self._is_told = None, True
        place = 0
        for slots, group in zip(self._slots, self.param_groups, strict=True):
            wide = applying.fitting(slots[0].param._spec)
            for number in _numbers(group["lr"]):
                self._tell_rate(place, number, wide)
                place += 1
        del self._rates[place:], self._told[place:]

    def _tell_rate(self, place: int, number: float, spec: Spec) -> None:
        known = place < len(self._rates) and self._rates[place]._spec is spec
        if known and self._told[place] == number:
            return
        # Not spec.scalar: a constant that is an input as well is an error of MLX.
        made = fill(spec.backend.full((), number, spec), spec)
        if known:
            applying.write(self._rates[place], made)
        else:
            self._rates[place : place + 1] = [made]
        self._told[place : place + 1] = [number]

    @property
    def lr(self) -> float:
        """The rate of the next update, of the first group; a schedule is asked for it.

        Setting it, to a number or a schedule, sets it for all groups.
        """
        lr = self.param_groups[0]["lr"]
        return float(lr(self.steps) if isinstance(lr, Schedule) else lr)

    @lr.setter
    def lr(self, value: Rate) -> None:
        _require_rate(self, value)
        for group in self.param_groups:
            group["lr"] = value

    def _rate_of(self, place: int) -> float | Tensor:
        """The rate of a group: a number, or within a compiled function a tensor."""
        lr = self.param_groups[place]["lr"]
        spec = self._slots[place][0].param._spec
        if not tracing() or not spec.backend.compiler.traces:
            return float(lr(self.steps) if isinstance(lr, Schedule) else lr)
        first = sum(len(_numbers(group["lr"])) for group in self.param_groups[:place])
        numbers = self._rates[first : first + len(_numbers(lr))]
        if not isinstance(lr, Schedule):
            return numbers[0]
        return lr.traced(self._counted().astype(applying.fitting(spec).dtype), numbers)

    # --- Compiled functions -------------------------------------------------------------------

    def __jit_state__(self) -> dict[str, Any]:
        if not tracing():
            self._ready()
            self._tell()
        return {
            "params": [group["params"] for group in self.param_groups],
            "state": [[slot.state for slot in slots] for slots in self._slots],
            "count": self._count,
            "rates": self._rates,
            "options": [
                (
                    tuple(self._options(place).items()),
                    group["lr"] if isinstance(group["lr"], Schedule) else None,
                )
                for place, group in enumerate(self.param_groups)
            ],
        }

    # --- Keeping ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on: `steps`, the options of groups, the state by parameter name.

        The tensors share the memory of the optimizer; `em.save` keeps all of it.
        """
        return keeping.state_of(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave; the parameters must have the same names and shapes."""
        keeping.load(self, state)

    def __repr__(self) -> str:
        shown = [f"lr={self.param_groups[0]['lr']}"]
        shown += [f"{key}={value}" for key, value in self._options(0).items()]
        count = sum(len(slots) for slots in self._slots)
        groups = f" in {len(self._slots)} groups" if len(self._slots) > 1 else ""
        return f"{type(self).__name__}({', '.join(shown)}; {count} parameters{groups})"


def require(name: str, option: str, value: Any, good: bool, wanted: str) -> None:
    """Raise where an option of an optimizer is out of its range."""
    if not good:
        raise DomainError(f"{name} got {option}={value}; it takes {wanted}")


def _require_rate(optimizer: Optimizer, lr: Any) -> None:
    if isinstance(lr, Schedule):
        return
    where = type(optimizer).__name__
    if isinstance(lr, bool) or not isinstance(lr, int | float):
        raise DTypeError(f"{where} takes lr as a number or a Schedule, not {type(lr).__name__}")
    require(where, "lr", lr, math.isfinite(lr) and lr >= 0, "a finite number that is not negative")


def _numbers(lr: Rate) -> list[float]:
    """The numbers behind a rate that may change from outside."""
    return lr.numbers() if isinstance(lr, Schedule) else [float(lr)]


def _moved(x: Tensor, spec: Spec) -> Tensor:
    if x._spec is spec:
        return x
    return x.detach().to(backend=spec.backend.name, device=spec.device, dtype=spec.dtype)


def _unused(name: str, taken: set[str]) -> str:
    """A name that no other parameter of the optimizer has."""
    made, count = name, 1
    while made in taken:
        count += 1
        made = f"{name}#{count}"
    taken.add(made)
    return made
