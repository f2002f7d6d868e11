"""A call that is to be differentiated: its arguments apart, and what came of it together again.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ember_ml import tree
from ember_ml.backend.contract import Backend, Spec
from ember_ml.backend.gradients import NESTING
from ember_ml.errors import BackendMismatchError, DomainError, DTypeError, GradientError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.structure import LEAF, Structure, apart, together
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.tensor.roles import PARAMETER

# isort: split
from ember_ml.tensor.cell import Cell  # after core, which sets `blank`

__all__ = ["Call", "Outcome", "fitted", "require_unit", "unused"]

# Constants, which compiled code holds at hand.
_PLAIN: Final[Any] = Tensor
_GRAD: Final[Any] = GradTensor
_NUMBERS: Final = (bool, int, float, complex)
_GRADIENTS: Final = frozenset(("grad", "value_and_grad"))


class Call:
    """A function with its arguments; those by which it is differentiated as a list of tensors."""

    __slots__ = (
        "_args",
        "_function",
        "_kwargs",
        "backend",
        "connected",
        "name",
        "owned",
        "place",
        "places",
        "structure",
        "tensors",
    )

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        argnums: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.name = name
        self._function = function
        self._args = args
        self._kwargs = kwargs
        # One argument stands for itself, several come as a tuple.
        if type(argnums) is int and 0 <= argnums < len(args):
            self.place: int | None = argnums
            self.places: tuple[int, ...] = (argnums,)
            chosen: Any = args[argnums]
        else:
            single, self.places = _places(name, argnums, len(args))
            self.place = self.places[0] if single else None
            chosen = tuple([args[i] for i in self.places])
            if single:
                (chosen,) = chosen
        found, self.structure = apart(chosen)
        # True where an input needs gradients by itself: then so does what comes of the call.
        self.connected = False
        # True where all inputs are parameters: they are leaves already, and the function gets the
        # very modules that hold them, so that whatever else it does to these is seen.
        self.owned = False
        home: Backend | None = None
        for leaf in found:
            if type(leaf) is not _PLAIN:
                if type(leaf) is not _GRAD:
                    break
                self.connected = True
            cell: Cell = leaf
            spec = cell._spec
            if spec.backend is not home:
                if home is not None:
                    break
                home = spec.backend
            if not spec.inexact:
                break
        else:
            if home is not None:
                self.backend: Backend = home
                self.tensors: list[Tensor] = found
                if self.connected and not NESTING.get()[0] and all(map(_is_owned, found)):
                    self.connected = False
                    self.owned = name in _GRADIENTS
                    if not self.owned:  # by aliases, as of any other tensors
                        self.tensors = [x.detach() for x in found]
                return
        self.backend = dispatch.home_of(name, tuple(found))
        self.tensors = [self._read(place, leaf) for place, leaf in enumerate(found)]
        self.connected = any(type(t) is GradTensor for t in self.tensors)

    def _read(self, place: int, leaf: Any) -> Tensor:
        known = isinstance(leaf, (Tensor, *_NUMBERS)) or convert.backend_of(leaf) is not None
        if not known and not hasattr(leaf, "__array__"):
            raise DTypeError(
                f"{self.name} got {type(leaf).__name__} at {self.path(place)}; "
                f"it differentiates by tensors and numbers"
            )
        tensor = convert.to_tensor(leaf, self.backend)
        if not tensor.dtype.is_inexact:
            raise DTypeError(
                f"{self.name} got {tensor.dtype} at {self.path(place)}; "
                f"gradients are of floats: cast it with .astype('float32')"
            )
        return tensor

    def path(self, place: int) -> str:
        """Where a tensor stands among the arguments, as it would be written."""
        if self.place is not None:
            return tree.paths(self.structure, f"args[{self.place}]")[place]
        paths: list[str] = []
        for argument, below in zip(self.places, self.structure.children, strict=True):
            paths += tree.paths(below, f"args[{argument}]")
        return paths[place]

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """What the function gives for these tensors in place of its own."""
        if self.owned:
            return self._function(*self._args, **self._kwargs)
        chosen = together(self.structure, tensors)
        args = self._args
        if self.place is not None:
            if len(args) == 1:
                return self._function(chosen, **self._kwargs)
            chosen = (chosen,)
        given = list(args)
        for place, value in zip(self.places, chosen, strict=True):
            given[place] = value
        return self._function(*given, **self._kwargs)

    def tree(self, leaves: Sequence[Any]) -> Any:
        """Something for each tensor, in the shape of the arguments."""
        return together(self.structure, leaves)

    def loss(self, result: Any, has_aux: Any) -> tuple[Tensor, Any]:
        """A result as the number to be differentiated and what else came."""
        aux = None
        if has_aux:
            result, aux = self.pair(result)
        if isinstance(result, Tensor):
            value = result
        elif isinstance(result, _NUMBERS) or hasattr(result, "__array__") or _is_native(result):
            value = convert.to_tensor(result, self.backend)
        else:
            hint = "; give has_aux=True for (loss, aux)" if isinstance(result, tuple) else ""
            raise ShapeError(
                f"{self.name} takes a function that gives one number, "
                f"not {type(result).__name__}{hint}"
            )
        if value.native.shape:
            raise ShapeError(
                f"{self.name} takes a function that gives one number, not shape {value.shape}; "
                f"reduce it with ops.sum or ops.mean, or use em.jacobian"
            )
        spec: Spec = value._spec
        if not spec.floating:
            raise DTypeError(
                f"{self.name} takes a function that gives a real float, not {value.dtype}"
            )
        self._require_home(spec)
        return value, aux

    def pair(self, result: Any) -> tuple[Any, Any]:
        """The result of a function with has_aux apart."""
        if not isinstance(result, tuple) or len(result) != 2:
            raise ShapeError(
                f"{self.name}(has_aux=True) takes a function that gives (result, aux), "
                f"not {type(result).__name__}"
            )
        return result

    def results(self, result: Any, *, real: bool = False) -> tuple[list[Tensor], Structure]:
        """A result as tensors of floats, and the tree of them."""
        found, structure = apart(result)
        tensors = []
        for place, leaf in enumerate(found):
            x = leaf if isinstance(leaf, Tensor) else convert.to_tensor(leaf, self.backend)
            wanted = "real floats" if real else "floats"
            if not (x.dtype.is_floating if real else x.dtype.is_inexact):
                where = tree.paths(structure, "the result")[place]
                raise DTypeError(
                    f"{self.name} takes a function that gives {wanted}, not {x.dtype} at {where}; "
                    f"hand other results on with has_aux=True"
                )
            self._require_home(x._spec)
            tensors.append(x)
        return tensors, structure

    def _require_home(self, spec: Spec) -> None:
        if spec.backend is not self.backend:
            raise BackendMismatchError(
                f"{self.name} takes a function that gives tensors of the backend of its "
                f"inputs, '{self.backend.name}', not '{spec.backend.name}'"
            )


def unused(name: str, path: str) -> GradientError:
    """The error about an input on which nothing depends."""
    return GradientError(
        f"{name}: the result does not depend on {path} by ops that have gradients; "
        f"give allow_unused=True for zeros"
    )


def require_unit(tensors: Sequence[Tensor], name: str) -> None:
    """Raise where a derivative that is a matrix is asked for complex numbers."""
    for x in tensors:
        if x.dtype.is_complex:
            raise DTypeError(
                f"{name} takes real floats, not {x.dtype}: functions of complex numbers have "
                f"two derivatives; use em.vjp or em.jvp"
            )


def fitted(
    name: str, what: str, given: Any, structure: Structure, like: Sequence[Tensor]
) -> list[Tensor]:
    """A tree of tensors that is to be like others in structure, shape and dtype."""
    found, second = apart(given)
    if second != structure:
        tree.require_same(structure, second, name, ("the function", what))
    made = []
    for place, (leaf, x) in enumerate(zip(found, like, strict=True)):
        spec = x._spec
        if type(leaf) is Tensor and leaf._spec is spec and leaf.shape == x.shape:
            made.append(leaf)
            continue
        tensor = convert.to_tensor(leaf, spec.backend)
        where = tree.paths(structure, what)[place]
        if tensor._spec.backend is not spec.backend:
            raise BackendMismatchError(
                f"{name} got {where} of backend '{tensor.backend}' for '{spec.backend.name}'"
            )
        if tensor.shape != x.shape:
            raise ShapeError(f"{name} got {where} of shape {tensor.shape} for {x.shape}")
        if tensor.dtype.is_complex and not spec.dtype.is_complex:
            raise DTypeError(f"{name} got {where} of {tensor.dtype} for {spec.dtype}")
        made.append(convert.cast(tensor, spec.dtype))
    return made


def _is_owned(x: Tensor) -> bool:
    return getattr(x, "_role", None) == PARAMETER and type(x) is GradTensor and x.is_leaf


def _is_native(value: Any) -> bool:
    return convert.backend_of(value) is not None


def _places(name: str, argnums: Any, count: int) -> tuple[bool, tuple[int, ...]]:
    single = isinstance(argnums, int)
    given = (argnums,) if single else argnums
    if not isinstance(given, tuple | list) or not all(
        isinstance(one, int) and not isinstance(one, bool) for one in given
    ):
        raise DTypeError(f"{name} takes argnums as an int or a tuple of ints, not {argnums!r}")
    if not given:
        raise DomainError(f"{name} got no argnums: nothing to differentiate by")
    for one in given:
        if not -count <= one < count:
            raise DomainError(
                f"{name} got argnums {one} for a call with {count} positional arguments"
            )
    places = tuple([one % count for one in given])
    if len(set(places)) != len(places):
        raise DomainError(f"{name} got argnums {given}, which name one argument twice")
    return single, places


class Outcome:
    """Any tree of results as native arrays, and the way back to the tree."""

    __slots__ = ("_leaves", "_specs", "_structure", "connected")

    def __init__(self) -> None:
        self._leaves: list[Any] = []
        self._structure: Structure = LEAF
        self._specs: list[Any] = []
        # True where a tensor is on our tape: one that the function did not get as an argument.
        self.connected = False

    def natives(self, result: Any, backend: Backend) -> list[Any]:
        """The arrays of one backend in a tree; the rest is remembered."""
        self._leaves, self._structure = apart(result)
        self._specs = []
        found = []
        for leaf in self._leaves:
            spec: Any = None
            if isinstance(leaf, Tensor):
                self.connected = self.connected or type(leaf) is GradTensor
                if leaf._spec.backend is backend:
                    spec = leaf._spec
                    found.append(leaf.native)
            elif convert.backend_of(leaf) is backend:
                spec = backend
                found.append(leaf)
            self._specs.append(spec)
        return found

    def tree(self, natives: Sequence[Any]) -> Any:
        """The tree with other native arrays."""
        given = iter(natives)
        leaves = []
        for leaf, spec in zip(self._leaves, self._specs, strict=True):
            if spec is None:
                leaves.append(leaf)
            elif isinstance(spec, Backend):
                leaves.append(next(given))
            else:
                leaves.append(fill(next(given), spec))
        return together(self._structure, leaves)
