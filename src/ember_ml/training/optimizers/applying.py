"""How an update runs: by a kernel, by a compiled program, or by its formula as it stands.

The formula of an optimizer is written over ops, for one parameter. Where an engine has a kernel of
the optimizer's name, it updates all parameters of a kind at once, in place. Where an engine
compiles, the formulas of all parameters become one program, which takes the memory of the old
values for the new ones. Within em.jit, the formula is a part of what is traced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ember_ml import dtypes
from ember_ml.autodiff import tape
from ember_ml.backend.compiling import Plan, tracing
from ember_ml.backend.contract import NativeArray, Spec
from ember_ml.tensor import convert, homes, writing
from ember_ml.tensor.core import Tensor, fill
from ember_ml.tensor.storage import Storage

__all__ = ["Formula", "Slot", "fitting", "run", "write"]

# Takes a parameter, its gradient, its state, which it changes, and the rate; gives the parameter.
Formula = Callable[[Tensor, Tensor, dict[str, Tensor], Tensor], Tensor]

_COUNTED: Final = getattr(sys, "_is_gil_enabled", lambda: True)()
# Who holds an array that belongs to a tensor alone: see autodiff/compiling/trace.py.
_OWN_REFERENCES: Final = 3
_HALF: Final = frozenset((dtypes.float16, dtypes.bfloat16))


class Slot:
    """A parameter of an optimizer, with its name and what is remembered for it."""

    __slots__ = ("name", "param", "spec", "state")

    def __init__(self, name: str, param: Tensor) -> None:
        self.name = name
        self.param = param
        self.state: dict[str, Tensor] | None = None
        # That of the parameter when its state was made; it may have moved since.
        self.spec: Spec | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self.name, self.param, self.state)


def _remade(name: str, param: Tensor, state: dict[str, Tensor] | None) -> Slot:
    made = Slot(name, param)
    made.state = state
    return made


def fitting(spec: Spec) -> Spec:
    """The spec in which an update is computed: float32 for halves, which would lose it."""
    return spec.with_dtype(dtypes.float32) if spec.dtype in _HALF else spec


def run(
    slots: Sequence[Slot],
    grads: Sequence[Tensor],
    rate: float | Tensor,
    formula: Formula,
    options: Mapping[str, Any],
    kernel: str,
    programs: dict[Any, Any],
) -> None:
    """Update parameters that have one spec."""
    spec = slots[0].param._spec
    backend = spec.backend
    traced = tracing() and (
        isinstance(rate, Tensor)
        or any(
            backend.is_traced(s.param.native) or backend.is_traced(g.native)
            for s, g in zip(slots, grads, strict=True)
        )
    )
    found = backend.overrides.get(kernel) if fitting(spec) is spec else None
    if (
        found is not None
        and (not traced or getattr(found, "traces", False))
        and _by_kernel(slots, grads, rate, options, spec.bound, kernel)
    ):
        return
    if _compiles(spec) and not tracing():
        _compiled(slots, grads, rate, formula, options, programs)
    else:
        _as_it_stands(slots, grads, rate, formula)


def _compiles(spec: Spec) -> bool:
    """True where a program is quicker than the ops one by one.

    On the CPU, MLX takes seconds to build the kernels of a program, which are slower then.
    """
    backend = spec.backend
    if not backend.compiler.traces or backend.mutable:
        return False
    return backend.compiler.donates or not spec.device.startswith("cpu")


# --- The formula --------------------------------------------------------------------------------


def _applied(
    p: Tensor, g: Tensor, state: dict[str, Tensor], rate: Tensor, formula: Formula
) -> tuple[Tensor, dict[str, Tensor]]:
    """The formula in the dtype that fits; gives the new parameter and the new state."""
    spec, new = p._spec, dict(state)
    wide = fitting(spec)
    if wide is spec:
        return formula(p, g, new, rate), new
    made = formula(p.astype(wide.dtype), g.astype(wide.dtype), new, rate)
    return made.astype(spec.dtype), new


def _as_it_stands(
    slots: Sequence[Slot], grads: Sequence[Tensor], rate: float | Tensor, formula: Formula
) -> None:
    wide = fitting(slots[0].param._spec)
    if not isinstance(rate, Tensor):
        rate = fill(wide.scalar(rate), wide)
    elif rate._spec is not wide:
        rate = convert.cast(rate, wide.dtype)
    with tape.no_grad():
        for slot, g in zip(slots, grads, strict=True):
            state = slot.state or {}
            p, new = _applied(_plain(slot.param), _plain(g), state, rate, formula)
            write(slot.param, p)
            for key, value in new.items():
                write(state[key], value)


def _plain(x: Tensor) -> Tensor:
    return fill(x._spec.backend.detach(x.native), x._spec)


def write(x: Tensor, value: Tensor) -> None:
    """Write a value of the same spec and shape over a tensor, which stays the same object."""
    writing.require_same(x, value)
    storage = writing.writable_storage(x)
    with x._spec.backend.recording(False), storage.lock:
        writing.assign(x, value)


# --- Kernels ------------------------------------------------------------------------------------


def _by_kernel(
    slots: Sequence[Slot],
    grads: Sequence[Tensor],
    rate: float | Tensor,
    options: Mapping[str, Any],
    kernels: Any,
    kernel: str,
) -> bool:
    """Hand all arrays to the kernel, which writes them in place; False where it cannot."""
    if isinstance(rate, Tensor):
        rate = rate.native
    copies: list[tuple[Tensor, NativeArray]] = []
    params = [_writable(slot.param, copies) for slot in slots]
    keys = list(slots[0].state or ())
    states = {key: [_writable(slot.state[key], copies) for slot in slots] for key in keys}  # type: ignore[index]  # made before
    done = getattr(kernels, kernel)(params, [g.native for g in grads], states, rate, options)
    if done is False:
        return False
    for x, native in copies:
        write(x, fill(native, x._spec))
    return True


def _writable(x: Tensor, copies: list[tuple[Tensor, NativeArray]]) -> NativeArray:
    """The array of a tensor for writing in place; a copy of it where others must not see that."""
    home = homes.home_of(x)
    if home is None:
        if not x._spec.backend.is_borrowed(x.native):
            return x.native
    elif type(home) is Storage and not home.is_borrowed:
        with home.lock:
            home.prepare()
            home.version += 1
        return x.native
    native = x._spec.backend.copy(x._spec.backend.detach(x.native))
    copies.append((x, native))
    return native


# --- Programs -----------------------------------------------------------------------------------


def _compiled(
    slots: Sequence[Slot],
    grads: Sequence[Tensor],
    rate: float | Tensor,
    formula: Formula,
    options: Mapping[str, Any],
    programs: dict[Any, Any],
) -> None:
    """Run the formulas of all parameters as one program of the engine."""
    spec = slots[0].param._spec
    backend, wide = spec.backend, fitting(spec)
    written: list[Tensor] = [slot.param for slot in slots]
    for slot in slots:
        written += (slot.state or {}).values()
    natives = [x.native for x in written]
    natives += [g.native for g in grads]
    natives.append(_rate(float(rate), wide, programs))
    key = (spec, tuple(options.items()), tuple([slot.name for slot in slots]))
    program = programs.get(key)
    if program is None:
        plan = Plan(donated=lambda: range(len(written)))
        body = _body(slots, formula, wide)
        program = programs[key] = backend.compiler.compile(body, natives, plan)
    if backend.compiler.donates:
        for place, x in enumerate(written):
            if not _is_own(x, natives, place):
                natives[place] = backend.copy(natives[place])
    made = program(*natives)
    del natives
    for x, native in zip(written, made, strict=True):
        if homes.home_of(x) is None:
            x.native = native
        else:
            write(x, fill(native, x._spec))


def _rate(rate: float, spec: Spec, programs: dict[Any, Any]) -> NativeArray:
    """A rate as an array, kept while it stays the same.

    The constants of a spec will not do: one that is an input as well is an error of MLX.
    """
    known, native = programs.get(spec, (None, None))
    if known != rate:
        native = spec.backend.full((), rate, spec)
        programs[spec] = (rate, native)
    return native


def _is_own(x: Tensor, natives: list[NativeArray], place: int) -> bool:
    """True where nobody else holds the array of a tensor, so that its memory may be given up."""
    known = _OWN_REFERENCES
    home = homes.home_of(x)
    if type(home) is Storage:
        known += len(home.aliases())
    elif home is not None:
        return False
    return _COUNTED and sys.getrefcount(natives[place]) == known


def _body(slots: Sequence[Slot], formula: Formula, wide: Spec) -> Callable[..., list[NativeArray]]:
    """The update of all parameters as a function of native arrays."""
    specs = [slot.param._spec for slot in slots]
    keys = [[(key, x._spec) for key, x in (slot.state or {}).items()] for slot in slots]

    def body(*natives: NativeArray) -> list[NativeArray]:
        given = iter(natives)
        params = [fill(next(given), spec) for spec in specs]
        states = [{key: fill(next(given), spec) for key, spec in one} for one in keys]
        grads = [fill(next(given), spec) for spec in specs]
        rate = fill(next(given), wide)
        made: list[NativeArray] = []
        after: list[NativeArray] = []
        with tape.no_grad():
            for p, g, state in zip(params, grads, states, strict=True):
                new, kept = _applied(p, g, state, rate, formula)
                made.append(new.native)
                after += [kept[key].native for key in state]
        return made + after

    return body
