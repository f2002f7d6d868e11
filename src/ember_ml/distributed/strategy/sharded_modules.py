"""Modules whose parameters are parts: where a module runs, it finds whole tensors.

A model whose parameters are divided stays the same object, with the same parameters in it, which
hold the part of this rank; optimizers, trees and compiled functions see those. Its modules take a
class that reads attributes another way. Within a scope, which each call of a module opens, an
attribute is the whole tensor: it is gathered when it is first read, with the others of its module,
and let go when the call ends. It does not matter who reads it: layers look at the weights of
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from ember_ml import tree
from ember_ml.distributed.communicator import Communicator
from ember_ml.distributed.strategy.sharded_layout import Layout, gathered, plain
from ember_ml.errors import ShapeError
from ember_ml.nn import loading, members, moving
from ember_ml.nn import module as modules
from ember_ml.nn.module import Module
from ember_ml.tensor import convert, roles
from ember_ml.tensor.core import Tensor

__all__ = [
    "Engine",
    "Layouts",
    "Scope",
    "ShardedModule",
    "engine_of",
    "layouts_of",
    "located",
    "scope",
    "shard",
    "unshard",
    "wholes",
    "within",
]

_LAYOUTS: Final = "_layouts"
# Engines whose programs are put in order by themselves.
_LAZY: Final = ("jax", "mlx")
_SCOPE: Final[ContextVar[Scope | None]] = ContextVar("ember_ml gathering", default=None)
_CLASSES: Final[dict[tuple[type, frozenset[str]], type]] = {}


class Layouts:
    """How the tensors of one module are divided, by the names that they have in it."""

    __slots__ = ("communicator", "engine", "named", "originals", "unit")

    def __init__(
        self, communicator: Communicator, originals: dict[str, Tensor], named: dict[str, Layout]
    ) -> None:
        self.communicator = communicator
        # The parameters themselves: copies of a module have others, of other dtypes perhaps.
        self.originals = originals
        self.named = named
        # Who gathers, and what it has for this module, where that is not a Scope.
        self.engine: Engine | None = None
        self.unit: Any = None


class Engine:
    """What gathers in another way than a Scope: see sharded_fsdp.py."""

    def value_and_grad(
        self, function: Callable[[], tuple[Tensor, Any]], trained: list[Tensor]
    ) -> tuple[Tensor, Any, list[Tensor | None]]:
        """A number, what comes with it, and the parts of its gradients, summed over ranks.

        None stands for the gradient of what the number does not depend on.
        """
        raise NotImplementedError

    def within(self, function: Callable[[], Any]) -> Any:
        """Call a function where tensors are whole."""
        raise NotImplementedError


# --- Scopes -------------------------------------------------------------------------------------


class Scope:
    """Where tensors are whole: what is gathered, and until when it is held.

    `seen` is told of tensors that are gathered, and `gone` of those that are let go: see
    sharded_keeping.py.
    """

    def __init__(self) -> None:
        # By the id of a module: itself, and its tensors by name.
        self._held: dict[int, tuple[Any, dict[str, Tensor]]] = {}
        # The modules whose calls run, from outside to inside, and what ends with each.
        self._calls: list[tuple[int, list[int]]] = [(0, [])]
        self._times: dict[int, int] = {}
        self.seen: Callable[[list[Tensor], list[Tensor], list[Layout], Communicator], None] = _skip
        self.gone: Callable[[list[Tensor]], None] = _skip

    def of(self, module: Any) -> dict[str, Tensor]:
        """The whole tensors of a module, by the names that they have in it."""
        key = id(module)
        found = self._held.get(key)
        if found is None:
            times = self._times[key] = self._times.get(key, 0) + 1
            found = self._held[key] = (module, self._gather(module))
            # What is called again and again, as the cell of a recurrent layer, stays.
            place = 0 if times > 1 else self._place(key)
            self._calls[place][1].append(key)
        return found[1]

    def _place(self, key: int) -> int:
        for place in range(len(self._calls) - 1, -1, -1):
            if self._calls[place][0] == key:
                return place
        return len(self._calls) - 1

    def _gather(self, module: Any) -> dict[str, Tensor]:
        layouts: Layouts = module.__dict__[_LAYOUTS]
        groups: dict[Any, list[tuple[str, Tensor, Layout]]] = {}
        for name, x in _own(module):
            layout = layouts.named.get(name)
            if layout is not None:
                frozen = roles.role_of(x) == roles.FROZEN
                groups.setdefault((x._spec, frozen), []).append((name, x, layout))
        found: dict[str, Tensor] = {}
        for group in groups.values():
            parts, plans = [x for _, x, _ in group], [layout for _, _, layout in group]
            made = gathered(layouts.communicator, parts, plans)
            self.seen(made, parts, plans, layouts.communicator)
            found.update({name: one for (name, _, _), one in zip(group, made, strict=True)})
        return found

    def prepare(self, module: Any) -> None:
        """Gather all now, where programs decide themselves when it is needed and until when.

        In a loop or a branch that is traced, it would be a part of that.
        """
        if _is_lazy(module):
            for one in module.modules():
                if _LAYOUTS in one.__dict__:
                    self._held[id(one)] = (one, self._gather(one))

    def run(
        self, module: Any, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
    ) -> Any:
        """Call a module by what its class would do."""
        with self.call(module):
            return function(*args, **kwargs)

    @contextmanager
    def call(self, module: Any) -> Iterator[None]:
        """A call of a module: what was gathered for it is let go at the end."""
        self._calls.append((id(module), []))
        try:
            yield
        finally:
            for key in self._calls.pop()[1]:
                self.gone(list(self._held.pop(key)[1].values()))

    def close(self) -> None:
        """Let go of all that is held."""
        for _, tensors in self._held.values():
            self.gone(list(tensors.values()))
        self._held.clear()


def _is_lazy(module: Any) -> bool:
    layouts: Layouts | None = module.__dict__.get(_LAYOUTS)
    return layouts is not None and layouts.communicator.backend in _LAZY


def _skip(*_: Any) -> None:
    """Nobody wants to know."""


def within(module: Module, function: Callable[[], Any]) -> Any:
    """Call a function where the attributes of a module are whole tensors."""
    layouts: Layouts = module.__dict__[_LAYOUTS]
    if layouts.engine is not None:
        return layouts.engine.within(function)
    with scope() as made:
        made.prepare(module)
        return function()


@contextmanager
def scope(made: Scope | None = None) -> Iterator[Scope]:
    """A block in which the attributes of sharded modules are whole tensors.

    Every rank must open it and read the same attributes in it, in the same order.
    """
    made = Scope() if made is None else made
    token = _SCOPE.set(made)
    try:
        yield made
    finally:
        _SCOPE.reset(token)
        made.close()


# --- Modules ------------------------------------------------------------------------------------


class _Whole:
    """An attribute with parts in it: within a scope, the whole tensors are found."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        try:
            value = instance.__dict__[self._name]
        except KeyError:
            raise AttributeError(
                f"{type(instance).__name__} has no attribute {self._name!r}"
            ) from None
        found = _SCOPE.get()
        if found is None:
            return value
        return _replaced(self._prefix(instance), value, found.of(instance))

    def _prefix(self, instance: Any) -> str | None:
        return None if self._name == instance._unnamed else self._name

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self._name] = value

    def __delete__(self, instance: Any) -> None:
        del instance.__dict__[self._name]


def _replaced(name: str | None, value: Any, whole: Mapping[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return whole.get(name or "", value)
    dotted = "" if name is None else f"{name}."
    if isinstance(value, list | tuple):
        return type(value)(
            [_replaced(f"{dotted}{place}", item, whole) for place, item in enumerate(value)]
        )
    if isinstance(value, dict):
        return {key: _replaced(f"{dotted}{key}", item, whole) for key, item in value.items()}
    return value


class ShardedModule(Module):
    """What a module of a divided model is besides its own class."""

    # A call is more than its `forward`, which containers must not shorten.
    _hooks = ()

    # Not super(): the new class has the name of the old one, and files are to find that.
    def __init_subclass__(cls, **kwargs: Any) -> None:
        tree.register(cls, modules._flatten, modules._unflatten, modules._step)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = _SCOPE.get()
        if found is None:
            return within(self, lambda: self(*args, **kwargs))
        return found.run(self, super().__call__, args, kwargs)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Every parameter with its name: whole within a scope, the parts of this rank outside."""
        found = _SCOPE.get()
        if found is None:
            yield from super().named_parameters(prefix)
            return
        for name, owner, local, x in located(self, prefix):
            if roles.is_parameter(x):
                yield name, _whole_of(found, owner, local, x)

    def trainable_parameters(self) -> Iterator[Tensor]:
        """The parameters that are trained: whole within a scope, parts outside."""
        found = _SCOPE.get()
        for _, owner, local, x in located(self):
            if roles.role_of(x) == roles.PARAMETER:
                yield x if found is None else _whole_of(found, owner, local, x)

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """Whole parameters and persistent buffers by name; every rank must ask for them."""
        parts = super().state_dict(prefix)
        layouts = {name: plan for name, plan in self._plans(prefix).items() if name in parts}
        return {**parts, **wholes({name: parts[name] for name in layouts}, layouts)}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> loading.LoadReport:
        """Write whole values, of which each rank takes its parts."""
        plans = self._plans("", aliases=True)
        given: dict[str, Any] = {}
        for name, value in state.items():
            if name not in plans:
                given[name] = value
                continue
            layout, communicator = plans[name]
            x = value if isinstance(value, Tensor) else convert.to_tensor(value)
            if x.shape != layout.shape:
                raise ShapeError(
                    f"{type(self).__name__}.load_state_dict: nothing was loaded; '{name}' is "
                    f"{layout.shape} here, {x.shape} given"
                )
            given[name] = layout.part(plain(x), communicator.rank)
        return super().load_state_dict(given, strict)

    def part_state(self) -> dict[str, Tensor]:
        """The parts of this rank and persistent buffers by name."""
        return super().state_dict()

    def load_part_state(self, state: Mapping[str, Any]) -> None:
        """Write what `part_state` gave."""
        super().load_state_dict(state)

    def _plans(self, prefix: str, aliases: bool = False) -> dict[str, tuple[Layout, Communicator]]:
        found = {}
        for name, owner, local, _ in located(self, prefix, aliases=aliases):
            layouts: Layouts | None = owner.__dict__.get(_LAYOUTS)
            if layouts is not None and local in layouts.named:
                found[name] = (layouts.named[local], layouts.communicator)
        return found


def _whole_of(found: Scope, owner: Any, local: str, x: Tensor) -> Tensor:
    return found.of(owner).get(local, x) if _LAYOUTS in owner.__dict__ else x


def _own(module: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a module holds itself, with their names in it."""
    for name, value in members._members(module):
        if isinstance(value, Tensor):
            yield name, value


def located(
    module: Module, prefix: str = "", *, aliases: bool = False
) -> Iterator[tuple[str, Module, str, Tensor]]:
    """Every tensor with its name, whose it is, and its name there; once, but for `aliases`."""
    seen: set[int] = set()
    paths = loading._all_paths(module, prefix) if aliases else members.modules(module, prefix)
    for path, owner in paths:
        for local, x in _own(owner):
            if aliases or id(x) not in seen:
                seen.add(id(x))
                yield (f"{path}.{local}" if path else local), owner, local, x


def wholes(
    parts: Mapping[str, Tensor], plans: Mapping[str, tuple[Layout, Communicator]]
) -> dict[str, Tensor]:
    """Whole tensors of parts, by name; one after the other, on every rank."""
    return {
        name: gathered(plans[name][1], [plain(part)], [plans[name][0]])[0]
        for name, part in parts.items()
    }


# --- Dividing a model ---------------------------------------------------------------------------


def shard(model: Module, communicator: Communicator) -> dict[int, Layout]:
    """Let the parameters of a model hold the parts of this rank; gives layouts by their ids."""
    found: dict[int, Layout] = {}
    engine = _engine(model, communicator)
    for one in list(model.modules()):
        own = {name: x for name, x in _own(one) if roles.is_parameter(x)}
        for x in own.values():
            if id(x) not in found:
                found[id(x)] = Layout(x.shape, communicator.world_size, engine is not None)
                if engine is not None:
                    moving.become(x, engine.parts[id(x)])
                else:
                    moving.become(x, found[id(x)].part(plain(x), communicator.rank))
        named = {name: found[id(x)] for name, x in own.items()}
        layouts = one.__dict__[_LAYOUTS] = Layouts(communicator, own, named)
        if engine is not None:
            layouts.engine, layouts.unit = engine, engine.units.get(id(one))
        one.__class__ = _class_of(type(one), _attributes(one, named))
    return found


def _engine(model: Module, communicator: Communicator) -> Any:
    if communicator.transport not in ("gloo", "nccl") or communicator.backend != "torch":
        return None
    from ember_ml.distributed.strategy.sharded_fsdp import FullySharded

    return FullySharded(model, communicator)


def unshard(model: Module) -> None:
    """Let the parameters of a divided model be whole again, on every rank."""
    known: set[int] = set()
    for one in list(model.modules()):
        layouts: Layouts | None = one.__dict__.pop(_LAYOUTS, None)
        if layouts is None:
            continue
        for name, x in _own(one):
            if name in layouts.named and id(x) not in known:
                known.add(id(x))
                whole = gathered(layouts.communicator, [plain(x)], [layouts.named[name]])[0]
                moving.become(x, whole)
        one.__class__ = type(one).__mro__[2]  # after ShardedModule comes what it was


def engine_of(model: Module) -> Engine | None:
    """Who gathers for a divided model, where that is not a Scope."""
    layouts: Layouts = model.__dict__[_LAYOUTS]
    return layouts.engine


def layouts_of(model: Any) -> dict[str, Layout]:
    """How the parameters of a divided model are divided, by name."""
    return {name: layout for name, (layout, _) in model._plans("").items()}


def _attributes(module: Module, named: Mapping[str, Layout]) -> frozenset[str]:
    """The attributes in which there are parts."""
    found = set()
    for name, value in module.__dict__.items():
        prefix = None if name == module._unnamed else name
        inner = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value)
            if isinstance(value, list | tuple)
            else ()
        )
        held = (
            [str(key) for key, _ in inner]
            if prefix is None
            else [prefix, *(one for one in named if one.startswith(f"{prefix}."))]
        )
        if any(one in named for one in held):
            found.add(name)
    return frozenset(found)


def _class_of(cls: type, attributes: frozenset[str]) -> type:
    key = (cls, attributes)
    found = _CLASSES.get(key)
    if found is None:
        body: dict[str, Any] = {name: _Whole(name) for name in attributes}
        body |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        found = _CLASSES[key] = type(cls.__name__, (ShardedModule, cls), body)
    return found
