"""A call that is to be differentiated: its arguments apart, and what came of it together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ember_ml import tree
from ember_ml.backend.contract import Backend
from ember_ml.errors import DTypeError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.tree import Structure

__all__ = ["Call"]

_NUMBERS = bool | int | float | complex


class Call:
    """A function with its arguments; those by which it is differentiated as a list of tensors."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        argnums: int | Sequence[int],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.name = name
        self.single = isinstance(argnums, int)
        self.places = [_place(name, one, len(args)) for one in _as_tuple(argnums)]
        self._function = function
        self._args = list(args)
        self._kwargs = kwargs
        chosen = [args[place] for place in self.places]
        found, self.structure = tree.flatten(chosen)
        if len(found) == 1 and type(found[0]) is Tensor:
            self.backend: Backend = found[0]._spec.backend
        else:
            self.backend = dispatch.home_of(name, tuple(found))
        self.tensors = [
            leaf
            if isinstance(leaf, Tensor) and leaf._spec.dtype.is_inexact
            else self._read(place, leaf)
            for place, leaf in enumerate(found)
        ]

    def _read(self, place: int, leaf: Any) -> Tensor:
        known = isinstance(leaf, Tensor | _NUMBERS) or convert.backend_of(leaf) is not None
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
        paths: list[str] = []
        for argument, below in zip(self.places, self.structure.children, strict=True):
            paths += tree.paths(below, f"args[{argument}]")
        return paths[place]

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """What the function gives for these tensors in place of its own."""
        chosen = tree.unflatten(self.structure, tensors)
        args = self._args.copy()
        for place, value in zip(self.places, chosen, strict=True):
            args[place] = value
        return self._function(*args, **self._kwargs)

    def tree(self, leaves: Sequence[Any]) -> Any:
        """Something for each tensor, in the shape of the arguments."""
        found = tree.unflatten(self.structure, leaves)
        return found[0] if self.single else tuple(found)

    def loss(self, result: Any, has_aux: bool) -> tuple[Tensor, Any]:
        """A result as the number to be differentiated and what else came."""
        aux = None
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise ShapeError(
                    f"{self.name}(has_aux=True) takes a function that gives (loss, aux), "
                    f"not {type(result).__name__}"
                )
            result, aux = result
        value = result if isinstance(result, Tensor) else convert.to_tensor(result, self.backend)
        if value.shape != ():
            raise ShapeError(
                f"{self.name} takes a function that gives one number, not shape {value.shape}; "
                f"reduce it with ops.sum or ops.mean, or use em.jacobian"
            )
        if not value.dtype.is_floating:
            raise DTypeError(
                f"{self.name} takes a function that gives a real float, not {value.dtype}"
            )
        return value, aux


def _as_tuple(argnums: int | Sequence[int]) -> tuple[int, ...]:
    return (argnums,) if isinstance(argnums, int) else tuple(argnums)


def _place(name: str, argnum: int, count: int) -> int:
    if not -count <= argnum < count:
        raise ShapeError(f"{name} got argnums {argnum} for a call with {count} arguments")
    return argnum % count


class Outcome:
    """Any tree of results as native arrays, and the way back to the tree."""

    def __init__(self) -> None:
        self._leaves: list[Any] = []
        self._structure: Structure | None = None
        self._specs: list[Any] = []

    def natives(self, result: Any) -> list[Any]:
        """The native arrays of the tensors of a tree; the rest is remembered."""
        self._leaves, self._structure = tree.flatten(result)
        tensors = [leaf for leaf in self._leaves if isinstance(leaf, Tensor)]
        self._specs = [t._spec for t in tensors]
        return [t.native for t in tensors]

    def tree(self, natives: Sequence[Any]) -> Any:
        """The tree with other native arrays."""
        from ember_ml.tensor.core import fill

        given = iter(zip(natives, self._specs, strict=True))
        leaves = [fill(*next(given)) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        assert self._structure is not None, "natives() comes first"
        return tree.unflatten(self._structure, leaves)
