"""Checkpoints under MLX's transforms, with the arrays that a function closes over.

mx.checkpoint differentiates a function by its arguments alone: what the function uses besides has
a gradient of zero, without a word. So the function is run once to find those arrays (MLX is lazy:
nothing is computed), and then with each replaced by one more argument. An array is known by what
happens to it: one that a kernel is given, and that is neither an argument nor the result of a
kernel in the function, comes from elsewhere. They are numbered as they come up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import mlx.core as mx

from ember_ml.backend import contract
from ember_ml.backend.pairs import NUMBERS
from ember_ml.backend.spec import CLOSED, Settled
from ember_ml.errors import GradientError

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend, Kernel, NativeArray, Spec
    from ember_ml.backend.gradients import Function, Natives

__all__ = ["checkpoint"]

_INEXACT: Final = frozenset((mx.float16, mx.bfloat16, mx.float32, mx.float64, mx.complex64))


class _Watch:
    """Sees the operands of every kernel in a function."""

    def __init__(self, backend: Backend, given: Natives, instead: Natives | None) -> None:
        self._backend = backend
        # Arrays are kept with their ids, since an id is given again after its object has gone.
        self._known = {id(native): native for native in given}
        self._instead = None if instead is None else list(instead)
        self.found: list[NativeArray] = []

    def use(self, value: Any) -> Any:
        """An operand, or what stands for it."""
        if type(value) is list or type(value) is tuple:
            return type(value)([self.use(one) for one in value])
        if type(value) is not mx.array or id(value) in self._known or value.dtype not in _INEXACT:
            return value
        if not value.ndim and self._backend.is_number(value):
            return value  # by which nobody differentiates; the slope of an exponent may be NaN
        place = len(self.found)
        self.found.append(value)
        if self._instead is None:
            return value
        stands = self._instead[place] if place < len(self._instead) else None
        if stands is None or stands.shape != value.shape or stands.dtype != value.dtype:
            raise GradientError(_CHANGED)
        value = stands
        self._known[id(value)] = value
        return value

    def made(self, value: Any) -> None:
        """Note a result."""
        if type(value) is mx.array:
            self._known[id(value)] = value
        elif isinstance(value, list | tuple):
            for one in value:
                self.made(one)

    def require_all(self) -> None:
        """Raise where the function came to an end before it had used what it did before."""
        if self._instead is not None and len(self.found) != len(self._instead):
            raise GradientError(_CHANGED)


_CHANGED: Final = (
    "checkpoint: the function did other things when it ran again for its gradient; "
    "it must depend on its arguments alone"
)


class _Watching(threading.local):
    """Who watches in this thread; not in a context, since functions run again in an earlier one."""

    watch: _Watch | None = None


_HERE: Final = _Watching()
_LOCK: Final = threading.RLock()


def _seen(kernel: Kernel) -> Kernel:
    """A kernel whose operands are seen, wherever someone watches."""

    def run(*args: Any, **options: Any) -> NativeArray:
        watch = _HERE.watch
        if watch is None:
            return kernel(*args, **options)
        named = {name: watch.use(option) for name, option in options.items()}
        out = kernel(*[watch.use(value) for value in args], **named)
        watch.made(out)
        return out

    return run


class _Watched(dict[str, Any]):
    """The settled kernels of a spec while someone watches; others get them as they are."""

    def __init__(self, spec: Spec, plain: dict[str, Any], whole: bool) -> None:
        super().__init__()
        self._spec = spec
        self._whole = whole
        self.plain = plain
        self.pairs = spec.pairs
        self.users = 1

    def __getitem__(self, name: str) -> Any:
        found: Any = self.plain.get(name)
        if found is None:
            spec = self._spec
            found = kernel, result = contract._settle(spec, name)
            if self._whole:
                found = Settled(spec.backend.whole.get(kernel, kernel), result)
            self.plain[name] = found
        if _HERE.watch is None:
            return found
        if self._whole:
            return Settled(_seen(found.kernel), found.result)
        return _seen(found[0]), found[1]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]

    def __setitem__(self, name: str, entry: Any) -> None:
        self.plain[name] = entry

    def pop(self, name: str, default: Any = None) -> Any:
        if name in NUMBERS:
            self.pairs[NUMBERS[name]] = None
        return self.plain.pop(name, default)


@contextmanager
def _watched(backend: Backend, watch: _Watch) -> Iterator[_Watch]:
    """A block in which the operands of all kernels are seen."""
    swapped: list[tuple[Spec, _Watched, _Watched]] = []
    with _LOCK:
        for dtype in backend.native_dtypes:
            for device in backend.devices():
                if not backend.supports(dtype, device):
                    continue
                spec = backend.spec(dtype, device)
                for field in ("kernels", "whole"):
                    have = getattr(spec, field)
                    if type(have) is _Watched:
                        have.users += 1
                    else:
                        setattr(spec, field, _Watched(spec, have, field == "whole"))
                spec.pairs = CLOSED  # by name, then
                swapped.append((spec, spec.kernels, spec.whole))  # type: ignore[arg-type]  # as just set
    outer, _HERE.watch = _HERE.watch, watch
    try:
        yield watch
        watch.require_all()
    finally:
        _HERE.watch = outer
        with _LOCK:
            for spec, kernels, whole in swapped:
                for field, table in (("kernels", kernels), ("whole", whole)):
                    table.users -= 1
                    if not table.users:
                        setattr(spec, field, table.plain)
                if not kernels.users:
                    spec.pairs = kernels.pairs


def checkpoint(backend: Backend, function: Function, natives: Natives) -> list[Any]:
    """What a function gives, which is run again for its gradient instead of kept."""
    outer = _HERE.watch
    if outer is not None:
        natives = outer.use(list(natives))
    count = len(natives)

    def seen(given: Sequence[Any], instead: Natives | None) -> tuple[list[Any], list[Any]]:
        with _watched(backend, _Watch(backend, given, instead)) as watch:
            outs = [watch.use(out) for out in function(given)]
        return outs, watch.found

    # Other objects, since the function may also close over what it is given.
    captured = seen([mx.reshape(native, native.shape) for native in natives], None)[1]
    if outer is not None:
        captured = outer.use(captured)

    def run(*given: Any) -> list[Any]:
        # MLX would differentiate by integers, too, and refuses it where they are indices.
        own = [n if n.dtype in _INEXACT else mx.stop_gradient(n) for n in given[:count]]
        return seen(own, given[count:])[0]

    outs = _ordered(run, [*natives, *captured])
    if outer is not None:
        outer.made(outs)
    return outs


def _ordered(run: Callable[..., list[Any]], natives: list[Any]) -> list[Any]:
    """mx.checkpoint, but for the order in which MLX computes, on which it depends what it keeps.

    The function runs again only when the gradient has come to it, and the gradient goes on only
    when those of weights are done, which would else wait, with what they need, to be added up at
    the end. This keeps a third less. Scalars are mostly constants: theirs may wait.
    """
    if not natives:
        return run()

    @mx.custom_function
    def kept(given: list[Any]) -> list[Any]:
        return run(*given)

    @kept.vjp
    def back(primals: list[Any], cotangents: list[Any], outputs: list[Any]) -> list[Any]:
        grads = mx.vjp(run, mx.depends(primals, cotangents), cotangents)[1]
        together = [g for g in grads if g.ndim]
        return mx.depends(grads, together) if together else grads

    outs: Any = kept(natives)
    return list(outs)
