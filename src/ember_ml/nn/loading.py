"""Values from a state dict into a module: all of them, or none and one report of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ember_ml.autodiff import tape
from ember_ml.errors import DTypeError, ShapeError
from ember_ml.nn import members, moving
from ember_ml.tensor import convert, roles
from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    from ember_ml.nn.module import Module

__all__ = ["LoadReport", "adopt", "kept", "load", "write"]


class LoadReport(NamedTuple):
    """Names that a state dict lacked, and names that the module does not have."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


_KEPT = (roles.PARAMETER, roles.FROZEN, roles.BUFFER)


def kept(module: Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """What is saved of a module."""
    for name, x in members.tensors(module, prefix):
        if roles.role_of(x) in _KEPT:
            yield name, x


def load(module: Module, state: Mapping[str, Any], strict: bool) -> LoadReport:
    """See Module.load_state_dict."""
    if not isinstance(state, Mapping):
        raise DTypeError(
            f"load_state_dict takes a dict of tensors by name, not {type(state).__name__}"
        )
    _size_lazy(module, state)
    there = dict(kept(module))
    aliases = _aliases(module, there)
    missing = tuple(
        name for name in there if not any(other in state for other in (name, *aliases[name]))
    )
    names = {other: name for name in there for other in (name, *aliases[name])}
    unexpected = tuple(name for name in state if name not in names)
    values: dict[str, Tensor] = {}
    wrong: list[tuple[str, str, str]] = []
    for name, given in state.items():
        own = names.get(name)
        if own is None:
            continue
        target = there[own]
        try:
            value = _read(given, target)
        except (DTypeError, ShapeError) as error:
            wrong.append((name, str(target.shape), str(error)))
            continue
        if value.shape != target.shape:
            wrong.append((name, str(target.shape), str(value.shape)))
        else:
            values[own] = value
    if wrong or (strict and (missing or unexpected)):
        raise ShapeError(_report(module, missing, unexpected, wrong, strict))
    for name, value in values.items():
        write(there[name], value)
    return LoadReport(missing, unexpected)


def _size_lazy(module: Module, state: Mapping[str, Any]) -> None:
    """Give layers that wait for their sizes those of the values that are to be loaded."""
    for name, one in module.named_modules():
        if one.is_lazy:
            dotted = f"{name}." if name else ""
            one.size_from(
                {
                    key.removeprefix(dotted): tuple(getattr(value, "shape", ()))
                    for key, value in state.items()
                    if key.startswith(dotted)
                }
            )


def _aliases(module: Module, there: dict[str, Tensor]) -> dict[str, list[str]]:
    """Other names of tensors that a module has in several places, as files may have them."""
    first = {id(x): name for name, x in there.items()}
    found: dict[str, list[str]] = {name: [] for name in there}
    for path, one in _all_paths(module, ""):
        for name, value in members._members(one):
            if isinstance(value, Tensor) and id(value) in first:
                full = f"{path}.{name}" if path else name
                if full != first[id(value)]:
                    found[first[id(value)]].append(full)
    return found


def _all_paths(module: Module, path: str, depth: int = 0) -> Iterator[tuple[str, Module]]:
    yield path, module
    if depth > 64:
        return
    for name, value in members._members(module):
        if not isinstance(value, Tensor):
            yield from _all_paths(value, f"{path}.{name}" if path else name, depth + 1)


def _read(given: Any, target: Tensor) -> Tensor:
    x = given if isinstance(given, Tensor) else convert.to_tensor(given, target._spec.backend)
    x = x.detach()
    if x.dtype.is_complex and not target.dtype.is_complex:
        raise DTypeError(f"{x.dtype} values for {target.dtype}")
    if x._spec is target._spec:
        return x
    if x.backend != target.backend and target.dtype.itemsize <= x.dtype.itemsize:
        x = x.astype(target.dtype, copy=False)  # the new backend may lack the dtype of the file
    return x.to(backend=target.backend, device=target.device, dtype=target.dtype)


def write(target: Tensor, value: Tensor) -> None:
    """Put values into a tensor, which stays the same object in the same memory."""
    with tape.no_grad():
        target[...] = value


def adopt(module: Module, state: Mapping[str, Any]) -> None:
    """Load a file's values, whose backend, device and dtype the module takes over."""
    for name, x in kept(module):
        given = state.get(name)
        if isinstance(given, Tensor) and given._spec is not x._spec and given.shape == x.shape:
            moving.become(x, given.detach())
    others = [pair for pair in members.tensors(module) if roles.role_of(pair[1]) not in _KEPT]
    homes = [x for x in state.values() if isinstance(x, Tensor)]
    if homes and others:
        moving.move(others, None, homes[0].backend, homes[0].device, None)
    load(module, state, strict=True)


def _report(
    module: Module,
    missing: tuple[str, ...],
    unexpected: tuple[str, ...],
    wrong: list[tuple[str, str, str]],
    strict: bool,
) -> str:
    lines = [f"{type(module).__name__}.load_state_dict: nothing was loaded"]
    if wrong:
        width = max(len(name) for name, _, _ in wrong)
        lines.append(f"{len(wrong)} of another shape or kind:")
        lines += [f"  {name:<{width}}  {own} here, {other} given" for name, own, other in wrong]
    if strict and missing:
        lines.append(f"{len(missing)} missing:")
        lines += [f"  {name}" for name in missing]
    if strict and unexpected:
        lines.append(f"{len(unexpected)} that the module does not have:")
        lines += [f"  {name}" for name in unexpected]
    if strict and (missing or unexpected) and not wrong:
        lines.append("strict=False loads the rest")
    return "\n".join(lines)
