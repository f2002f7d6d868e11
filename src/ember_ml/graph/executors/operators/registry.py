"""Which function gives an ONNX operator its meaning, by domain, name and version.

An operator is a function of tensors: its inputs come by position (None where one is left out),
its attributes by keyword. What it asks for is read from its signature:

    @operator("Reshape", 14, 19, 21, 23, 24, 25)
    def reshape(x: Tensor, shape: Host, *, allowzero: int = 0) -> Tensor:

An input that is annotated `Host` comes as a NumPy array: sizes, axes and the like, which are
needed before anything can be computed. Keywords beside attributes: `outputs` is how many outputs
the node has, `given` and `made` are the element types of its inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from ember_ml.errors import UnsupportedOpError
from ember_ml.graph.text import plain
from ember_ml.tensor.core import Tensor

__all__ = ["NEWEST", "OPERATORS", "Host", "Operator", "Tensors", "controls", "find", "operator"]

# The newest version of ONNX's own operator set whose operators are known here.
NEWEST: Final = 28

Host = np.ndarray[Any, Any]
Tensors = tuple[Tensor | None, ...]
F = TypeVar("F", bound=Callable[..., Any])

_VARIADIC: Final = 0x04
_ASKED: Final = ("outputs", "given", "made")


class Operator:
    """A function, the versions of an operator that it is the meaning of, and what it asks for."""

    __slots__ = ("_attributes", "_kinds", "_required", "asks", "controls", "domain", "function",
                 "host", "least", "most", "name", "versions")  # fmt: skip

    def __init__(
        self,
        domain: str,
        name: str,
        versions: tuple[int, ...],
        function: Callable[..., Any],
        *,
        controls: bool,
        without: tuple[str, ...] = (),
    ) -> None:
        self.domain = domain
        self.name = name
        self.versions = versions
        self.function = function
        # Whether it runs graphs: it is called with what can run them first.
        self.controls = controls
        code = function.__code__
        first = 1 if controls else 0
        places = code.co_varnames[first : code.co_argcount]
        written = function.__annotations__
        self.host = tuple(i for i, x in enumerate(places) if str(written[x]).startswith("Host"))
        # How many inputs there must be, and may be.
        self.least = len(places) - len(function.__defaults__ or ())
        self.most = None if code.co_flags & _VARIADIC else len(places)
        named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        self.asks = tuple(x for x in named if x in _ASKED)
        self._attributes = frozenset(named) - frozenset((*_ASKED, *without))
        self._kinds = {x: str(written[x]) for x in self._attributes}
        self._required = self._attributes - frozenset(function.__kwdefaults__ or ())

    def bound(
        self, attributes: Mapping[str, Any], asked: Mapping[str, Any], where: str
    ) -> Callable[..., Any]:
        """The function with a node's attributes in it."""
        for name in attributes:
            if name not in self._attributes:
                raise UnsupportedOpError(
                    f"{where} has the attribute '{name}', which the ops executor does not know; "
                    f"it knows {', '.join(sorted(self._attributes)) or 'none'}"
                )
            if not _is(attributes[name], self._kinds[name]):
                raise UnsupportedOpError(
                    f"{where}: its attribute '{name}' is of type {self._kinds[name]}, "
                    f"not {attributes[name]!r}"
                )
        for name in sorted(self._required - attributes.keys()):
            raise UnsupportedOpError(f"{where} lacks the attribute '{name}'")
        options = {**attributes, **{name: asked[name] for name in self.asks}}
        return partial(self.function, **options) if options else self.function


# What a value has to be for an attribute that is annotated so; whole numbers pass for others.
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "list[int]": (list, tuple),
}


def _is(value: Any, annotation: str) -> bool:
    kind = annotation.removesuffix(" | None")
    if kind == "Block":
        return type(value).__name__ == kind  # defined by those who import this
    return kind not in _KINDS or isinstance(value, _KINDS[kind])


# By domain and name, the newest version first.
OPERATORS: Final[dict[tuple[str, str], list[Operator]]] = {}


def operator(
    name: str, *versions: int, domain: str = "", without: tuple[str, ...] = ()
) -> Callable[[F], F]:
    """Register a function as the meaning of some versions of an operator.

    `without` are attributes that those versions do not have yet.
    """
    return _registering(name, versions, domain, controls=False, without=without)


def controls(name: str, *versions: int) -> Callable[[F], F]:
    """Register a function that runs graphs: a branch or a loop."""
    return _registering(name, versions, "", controls=True)


def _registering(
    name: str,
    versions: tuple[int, ...],
    domain: str,
    *,
    controls: bool,
    without: tuple[str, ...] = (),
) -> Callable[[F], F]:
    def register(function: F) -> F:
        known = OPERATORS.setdefault((domain, name), [])
        made = Operator(domain, name, versions, function, controls=controls, without=without)
        known.append(made)
        known.sort(key=lambda one: -one.versions[0])
        return function

    return register


def find(domain: str, name: str, opset: int | None, where: str) -> Operator:
    """The operator that a node means, or an error that names the node (`where`)."""
    known = OPERATORS.get((domain, name))
    called = plain(f"{domain}.{name}" if domain else name)
    if known is None:
        raise UnsupportedOpError(
            f"{where}: the ops executor has no operator {called} (opset {opset}); "
            f"run the graph on ONNX Runtime"
        )
    if opset is None:
        raise UnsupportedOpError(f"{where}: the graph names no version of the opset '{domain}'")
    if not domain and opset > NEWEST:
        raise UnsupportedOpError(
            f"{where}: opset {opset} is newer than {NEWEST}, the newest that the ops executor "
            f"knows; run the graph on ONNX Runtime"
        )
    for one in known:
        if any(version <= opset for version in one.versions):
            return one
    oldest = known[-1].versions[0]
    raise UnsupportedOpError(
        f"{where}: the ops executor knows {called} from opset {oldest} on, not of opset {opset}; "
        f"run the graph on ONNX Runtime, or convert it with onnx.version_converter"
    )
