"""Module: what networks are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeVar

from ember_ml import tree
from ember_ml.autodiff import imperative, tape
from ember_ml.dtypes import DTypeLike
from ember_ml.errors import DomainError, UnknownKeyError
from ember_ml.nn import config, loading, members, moving, showing
from ember_ml.nn.parameter import Buffer, Parameter
from ember_ml.ops.random.generator import Generator
from ember_ml.tensor import roles
from ember_ml.tensor.core import GradTensor, Tensor

__all__ = ["WATCHED", "Hook", "Module", "require_built", "watching"]

Self = TypeVar("Self", bound="Module")
# What is called with a module, its arguments and its result; another result may come of it.
Hook = Callable[["Module", tuple[Any, ...], Any], Any]

_STATIC: Final = (bool, int, float, str, type(None))


class _Watched:
    """Those who look at every call of a module: see `watching`."""

    __slots__ = ("hooks",)

    def __init__(self) -> None:
        self.hooks: tuple[Hook, ...] = ()


WATCHED: Final = _Watched()
# In the place of an argument that was not given.
_NOTHING: Final = object()


class Module:
    """A function with parameters: a layer, or a network of layers.

    A subclass sets parameters and other modules as attributes, also in lists and dicts, and has a
    method `forward`. Nothing is to be called first in `__init__`.

    >>> from ember_ml import nn
    >>> class Scale(nn.Module):
    ...     def __init__(self, size):
    ...         self.factor = nn.Parameter(ops.ones(size))
    ...
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> scale = Scale(3)
    >>> scale(ops.ones(3)).tolist(), scale.num_parameters()
    ([1.0, 1.0, 1.0], 3)

    A module is a tree: its leaves are the parameters that are trained, so `em.value_and_grad(fn)`
    takes it as an argument and gives the gradients as a module of the same shape. It tells
    `em.jit` its state, and files its config.
    """

    training: bool = True
    # True while a layer waits for the sizes of its first input.
    is_lazy: bool = False
    _is_module: ClassVar[bool] = True
    # The attribute of a container whose items have no more than their place or key for a name.
    _unnamed: ClassVar[str] = ""
    # None where a call is a call of `forward` and nothing else, which containers may shorten.
    _hooks: tuple[Hook, ...] | None = None
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = object.__new__(cls)
        made.__dict__["_arguments"] = (args, kwargs)  # what get_config tells
        return made

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__call__" in cls.__dict__:  # it does something more
            cls._hooks = ()
        config.known(cls)
        tree.register(cls, _flatten, _unflatten, _step)

    # --- Calling ----------------------------------------------------------------------------

    def __call__(self, x: Any = _NOTHING, /, *args: Any, **kwargs: Any) -> Any:
        if self._hooks is not None or WATCHED.hooks:
            return self._hooked(() if x is _NOTHING else (x, *args), kwargs)
        if x is _NOTHING:
            return self.forward(**kwargs)
        # Most calls have one argument: with a name of its own, it is handed on without a tuple
        # and a dict, which cost more than the rest of this.
        return self.forward(x, *args, **kwargs) if args or kwargs else self.forward(x)

    # Subclasses name their own arguments; type checkers would demand these of them otherwise.
    forward: Callable[..., Any]

    def _hooked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = self.forward(*args, **kwargs)
        for hook in (*(self._hooks or ()), *WATCHED.hooks):
            other = hook(self, args, result)
            if other is not None:
                result = other
        return result

    def register_forward_hook(self, hook: Hook) -> Callable[[], None]:
        """Have `hook(module, args, result)` called after each call; gives what removes it.

        Where the hook gives something, it takes the place of the result.

        >>> from ember_ml import nn
        >>> shapes = []
        >>> layer = nn.Linear(3, 2)
        >>> remove = layer.register_forward_hook(lambda m, args, y: shapes.append(y.shape))
        >>> _ = layer(ops.ones((4, 3)))
        >>> remove()
        >>> _ = layer(ops.ones((5, 3)))
        >>> shapes
        [(4, 2)]
        """
        self.__dict__["_hooks"] = (*(self._hooks or ()), hook)

        def remove() -> None:
            left = tuple(one for one in self._hooks or () if one is not hook)
            if left:
                self.__dict__["_hooks"] = left
            else:
                self.__dict__.pop("_hooks", None)

        return remove

    def build(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Give layers that wait for it the sizes of these inputs, by one call without gradients.

        Random numbers and running statistics are as before.

        >>> from ember_ml import nn
        >>> nn.Sequential(nn.Linear(None, 8), nn.ReLU(), nn.Linear(None, 2)).build(
        ...     ops.ones((1, 5))
        ... ).num_parameters()
        66
        """
        modes = [(one, one.training) for one in self.modules()]
        self.eval()
        try:
            with tape.no_grad():
                self(*args, **kwargs)
        finally:
            for one, mode in modes:
                one.training = mode
        return self

    def size_from(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Give a layer that waits the sizes of parameters that are to be loaded, by their names."""

    # --- What it holds ----------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and roles.role_of(value) is None:
            old = self.__dict__.get(name)
            if isinstance(old, Tensor) and (role := roles.role_of(old)) is not None:
                # Another tensor in the place of a parameter is one as well.
                value = _in_role(value, role)
        object.__setattr__(self, name, value)

    def register_parameter(self, name: str, value: Any) -> None:
        """Set a parameter under a name; None where there is none, as of a layer without bias."""
        _require_name(self, name)
        setattr(self, name, value if value is None else Parameter(value))

    def register_buffer(self, name: str, value: Any, persistent: bool = True) -> None:
        """Set a tensor that is kept and not trained; `persistent` ones are saved."""
        _require_name(self, name)
        setattr(self, name, value if value is None else Buffer(value, persistent=persistent))

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Every parameter with its name, frozen ones included; one that is shared comes once.

        >>> from ember_ml import nn
        >>> [name for name, _ in nn.Sequential(nn.Linear(2, 3), nn.Tanh()).named_parameters()]
        ['0.weight', '0.bias']
        """
        for name, x in members.tensors(self, prefix):
            if roles.is_parameter(x):
                yield name, x

    def parameters(self) -> Iterator[Tensor]:
        """Every parameter, frozen ones included."""
        for _, x in self.named_parameters():
            yield x

    def trainable_parameters(self) -> Iterator[Tensor]:
        """The parameters that are trained."""
        for _, x in members.tensors(self):
            if roles.role_of(x) == roles.PARAMETER:
                yield x

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Every buffer with its name."""
        for name, x in members.tensors(self, prefix):
            if isinstance(x, Buffer):
                yield name, x

    def buffers(self) -> Iterator[Tensor]:
        """Every buffer."""
        for _, x in self.named_buffers():
            yield x

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules right below, with their names."""
        return members.children(self)

    def children(self) -> Iterator[Module]:
        """The modules right below."""
        for _, one in members.children(self):
            yield one

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all in it, with their names; its own is empty."""
        return members.modules(self, prefix)

    def modules(self) -> Iterator[Module]:
        """This module and all in it."""
        for _, one in members.modules(self):
            yield one

    def get_submodule(self, name: str) -> Module:
        """The module of a name, such as `layers.0`."""
        found: Module = _named(self, "module", name, dict(self.named_modules()))
        return found

    def get_parameter(self, name: str) -> Tensor:
        """The parameter of a name, such as `layers.0.weight`."""
        found: Tensor = _named(self, "parameter", name, dict(self.named_parameters()))
        return found

    def num_parameters(self, trainable_only: bool = False) -> int:
        """How many numbers the parameters have."""
        found = self.trainable_parameters() if trainable_only else self.parameters()
        return sum(x.size for x in found)

    def apply(self: Self, function: Callable[[Module], Any]) -> Self:
        """Call a function with every module in this one and then with itself; gives itself."""
        for one in reversed(list(self.modules())):
            function(one)
        return self

    # --- Modes ------------------------------------------------------------------------------

    def train(self: Self, mode: bool = True) -> Self:
        """Let every module in it be as in training: dropout drops, statistics run."""
        for one in self.modules():
            one.training = mode
        return self

    def eval(self: Self) -> Self:
        """Let every module in it be as in use: nothing is random, statistics stand still."""
        return self.train(False)

    def freeze(self: Self) -> Self:
        """Train none of its parameters until `unfreeze`."""
        return self.requires_grad_(False)

    def unfreeze(self: Self) -> Self:
        """Train all of its parameters."""
        return self.requires_grad_(True)

    def requires_grad_(self: Self, mode: bool = True) -> Self:
        """Let all parameters need gradients, or none."""
        for x in self.parameters():
            imperative.require(x, mode)
        return self

    def zero_grad(self) -> None:
        """Forget the gradients that `backward` added up."""
        for x in self.parameters():
            x.grad = None

    # --- Moving and keeping -----------------------------------------------------------------

    def to(
        self: Self,
        target: DTypeLike = None,
        *,
        backend: str | None = None,
        device: str | None = None,
        dtype: DTypeLike = None,
    ) -> Self:
        """Move every tensor of the module to another backend, device or dtype; gives itself.

        `target` is a device or a dtype. The tensors stay the same objects, so an optimizer that
        holds them goes on. A dtype is for floats: integers keep theirs. Where one tensor cannot
        be moved, none is.

        >>> from ember_ml import nn
        >>> layer = nn.Linear(3, 2).to(backend="numpy", dtype="float64")
        >>> layer(ops.ones((1, 3), dtype="float64")).dtype
        ember_ml.float64
        """
        moving.move(list(members.tensors(self)), target, backend, device, dtype)
        return self

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """Parameters and persistent buffers by name; the tensors share the module's memory."""
        return {
            name: x.detach() if type(x) is GradTensor else x
            for name, x in loading.kept(self, prefix)
        }

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> loading.LoadReport:
        """Write values to the parameters and buffers of these names, from any backend.

        With `strict`, names must be the same; without, what is missing stays, what is unknown is
        left out, and both are told by the report. Shapes must fit. Where something does not,
        one error lists all of it, and nothing is written.

        >>> from ember_ml import nn
        >>> a, b = nn.Linear(2, 1), nn.Linear(2, 1)
        >>> b.load_state_dict(a.state_dict())
        LoadReport(missing=(), unexpected=())
        """
        return loading.load(self, state, strict)

    def get_config(self) -> dict[str, Any]:
        """The arguments that the module was made with, as JSON has them.

        >>> from ember_ml import nn
        >>> nn.Linear(3, 2).get_config()["out_features"]
        2
        """
        return config.config_of(self)

    @classmethod
    def from_config(cls: type[Self], config_: Mapping[str, Any], /) -> Self:
        """A new module of the same arguments."""
        made: Self = config.make(cls, config_)
        return made

    def __save_state__(self) -> dict[str, Any]:
        """What a file holds: see io/objects.py."""
        return {"__config__": self.get_config(), **self.state_dict()}

    @classmethod
    def from_state(cls: type[Self], state: Mapping[str, Any]) -> Self:
        """A module as `em.save` has kept it."""
        weights = dict(state)
        made = cls.from_config(weights.pop("__config__"))
        loading.adopt(made, weights)
        return made

    # --- em.jit -----------------------------------------------------------------------------

    def __jit_state__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"training": self.training}
        for name, value in self.__dict__.items():
            if name in members.HIDDEN:
                continue
            if isinstance(value, (Tensor, *_STATIC, Generator)) or _holds(value):
                state[name] = value
        return state

    # --- Showing ----------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands in the parentheses of a layer."""
        return showing.arguments_text(self)

    def __repr__(self) -> str:
        return showing.text(self)

    def summary(self, *args: Any, **kwargs: Any) -> showing.Summary:
        """A table of the modules and their parameters; with example inputs, of shapes as well.

        >>> from ember_ml import nn
        >>> nn.Sequential(nn.Linear(4, 8), nn.ReLU()).summary(ops.ones((2, 4))).rows[1].output
        '(2, 8)'
        """
        return showing.summarize(self, args, kwargs)


def _in_role(value: Tensor, role: str) -> Tensor:
    if role == roles.PARAMETER and type(value) is Tensor:
        backend = value._spec.backend
        if not backend.is_traced(value.native) and value._spec.inexact:
            return Parameter(value)
    value._role = role
    return value


def _require_name(module: Module, name: Any) -> None:
    if not isinstance(name, str) or not name or "." in name:
        raise DomainError(
            f"{type(module).__name__} got the name {name!r} for a tensor; "
            f"it is the name of an attribute, without dots"
        )


def _named(module: Module, kind: str, name: str, there: dict[str, Any]) -> Any:
    try:
        return there[name]
    except KeyError:
        raise UnknownKeyError(
            f"{type(module).__name__} has no {kind} {name!r}; it has {showing.listed(there)}"
        ) from None


def _holds(value: Any) -> bool:
    """True where a value is a module, or a container with tensors or modules in it."""
    if getattr(value, "_is_module", False):
        return True
    if isinstance(value, list | tuple):
        return any(isinstance(item, (Tensor, *_STATIC)) or _holds(item) for item in value)
    if type(value) is dict:
        return any(isinstance(v, (Tensor, *_STATIC)) or _holds(v) for v in value.values())
    return False


@contextmanager
def watching(hook: Hook) -> Iterator[None]:
    """A scope in which `hook(module, args, result)` is called after every call of any module.

    >>> from ember_ml import nn
    >>> names = []
    >>> with nn.watching(lambda module, args, result: names.append(type(module).__name__)):
    ...     _ = nn.Sequential(nn.Linear(2, 2), nn.ReLU())(ops.ones((1, 2)))
    >>> names
    ['Linear', 'ReLU', 'Sequential']
    """
    before = WATCHED.hooks
    WATCHED.hooks = (*before, hook)
    try:
        yield
    finally:
        WATCHED.hooks = before


# --- As a tree ----------------------------------------------------------------------------------


class _Skeleton:
    """A module without the parameters that are trained."""

    __slots__ = ("module", "names", "tensors")

    def __init__(self, module: Module, names: tuple[str, ...], tensors: list[Tensor]) -> None:
        self.module = module
        self.names = names
        self.tensors = tensors

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Skeleton) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)


def require_built(module: Module, what: str) -> None:
    """Raise where a layer still waits for its sizes, and so has no parameters to be found."""
    for name, one in members.modules(module):
        if one.is_lazy:
            where = f" '{name}'" if name else ""
            raise DomainError(
                f"{what} got a model whose layer{where} {type(one).__name__}({one.extra_repr()}) "
                f"has no parameters yet; call model.build(x) with an example input first"
            )


def _flatten(module: Module) -> tuple[list[Tensor], _Skeleton]:
    names: list[str] = []
    found: list[Tensor] = []
    held, waits = members.listed(module)
    if waits:
        require_built(module, "a tree of parameters")
    for name, x in held:
        if roles.role_of(x) == roles.PARAMETER:
            names.append(name)
            found.append(x)
    return found, _Skeleton(module, tuple(names), found)


def _unflatten(skeleton: _Skeleton, leaves: list[Any]) -> Module:
    new = {id(old): leaf for old, leaf in zip(skeleton.tensors, leaves, strict=True)}
    for leaf in leaves:
        if isinstance(leaf, Tensor) and roles.role_of(leaf) is None:
            leaf._role = roles.PARAMETER
    return members.copied(skeleton.module, lambda x: new.get(id(x), x))


def _step(skeleton: _Skeleton, place: int) -> str:
    return f".{skeleton.names[place]}"


tree.register(Module, _flatten, _unflatten, _step)
