"""jit: a function compiled by the engine of its tensors."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import update_wrapper
from types import MethodType
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload
from weakref import WeakKeyDictionary

from ember_ml.autodiff import tape
from ember_ml.autodiff.compiling import captured, plain
from ember_ml.autodiff.compiling.arguments import Arguments, require_hashable
from ember_ml.autodiff.compiling.captured import Reference
from ember_ml.autodiff.compiling.hooks import register_state
from ember_ml.autodiff.compiling.state import State
from ember_ml.autodiff.compiling.trace import Call, Trace
from ember_ml.backend import selection
from ember_ml.backend.compiling import READ, tracing
from ember_ml.backend.contract import Backend
from ember_ml.errors import BackendMismatchError, DomainError, EmberError, TraceError
from ember_ml.tensor.core import GradTensor

__all__ = ["CacheInfo", "Jitted", "jit", "register_state"]

F = TypeVar("F", bound=Callable[..., Any])

_CACHE_SIZE: Final = 64
_NEW: Final = object()
# Tracing puts what is traced in place of arrays that other threads see: one at a time.
_LOCK: Final = threading.RLock()


class CacheInfo(NamedTuple):
    """How a compiled function has been used: see `Jitted.cache_info`."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


class Jitted(Generic[F]):
    """A function that is traced and compiled for each kind of arguments: see `jit`."""

    def __init__(
        self,
        function: F,
        state: Any,
        static_argnums: tuple[int, ...],
        static_argnames: tuple[str, ...],
        cache_size: int,
        compiler: str | None,
    ) -> None:
        update_wrapper(self, function)
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)
        self._trees: list[Any] = [] if state is None else [state]
        self._static = _static(function, static_argnums, static_argnames)
        self._size = cache_size
        self._compiler = compiler
        self._cache: OrderedDict[Any, Trace | None] = OrderedDict()
        self._references: list[Reference] | None = None
        self._of_objects: WeakKeyDictionary[Any, list[Reference]] = WeakKeyDictionary()
        self._hits = 0
        self._warned = False
        self._lock = threading.RLock()
        # How often the function has been traced.
        self.traces = 0

    def __repr__(self) -> str:
        return f"<em.jit of {self._name}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing():
            return self._function(*args, **kwargs)  # a part of what is traced
        key: list[Any] = [selection.current(), tape.is_grad_enabled()]
        given = Arguments(key)
        static = self._static
        if static:
            self._gather(given, args, kwargs)
        else:
            for value in args:
                given.gather(value)
            if kwargs:
                key += kwargs
                for value in kwargs.values():
                    given.gather(value)
        if not (self._trees or given.objects):
            if not (self._references or given.raw or given.statics) and given.tensors:
                # Nothing but tensors: the way of most calls.
                compiler = given.tensors[0]._spec.backend.compiler
                if compiler.strided:
                    key += [x.native.stride() for x in given.tensors]
                trace = self._known(key)
                if trace is not None and trace.is_simple and not compiler.inlines():
                    self._hits += 1
                    try:
                        return trace.run_simply(given.tensors)
                    except Exception as error:
                        raise _explained(self._name, error, trace.backend) from error
                if compiler.strided:
                    del key[-len(given.tensors) :]
            return self._call(given, State(key), args, kwargs)
        with self._lock:  # two calls at once would each write what the other has not read
            return self._call(given, State(key), args, kwargs)

    def _known(self, key: list[Any]) -> Trace | None:
        """The trace of a key, where there is one; it is then the one that was used last."""
        try:
            found = self._cache.get(tuple(key))
        except TypeError:  # the long way says which value has no hash
            return None
        if found is not None and len(self._cache) > 1:
            self._cache.move_to_end(tuple(key))
        return found

    def _gather(self, given: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        static = self._static
        for place, value in enumerate(args):
            if place in static:
                require_hashable(self._name, f"args[{place}]", value)
                given.static(value)
            else:
                given.gather(value)
        given.key += kwargs
        for name, value in kwargs.items():
            if name in static:
                require_hashable(self._name, f"argument '{name}'", value)
                given.static(value)
            else:
                given.gather(value)

    def _call(
        self, given: Arguments, state: State, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        trees = [*self._trees, *given.objects] if given.objects else self._trees
        for one in trees:
            state.gather(one)
        names: list[Reference] = []
        raw = bool(given.raw)
        home = given.settle(state.backend())
        references = self._references
        if references is None:
            references = self._references = captured.find(self._function)
        if references or given.statics:
            self._close(references, given.statics, state, home, names)
        for root in state.roots:
            if root.spec.backend is not home:
                raise BackendMismatchError(
                    f"em.jit({self._name}) got tensors of backend '{home.name}' and a state of "
                    f"'{root.spec.backend.name}'; move one of them with .to_backend('{home.name}')"
                )
        compiler = home.compiler
        if compiler.traces and compiler.inlines():
            return self._function(*args, **kwargs)
        if compiler.strided:
            given.key += [x.native.stride() for x in given.tensors]
        key = tuple(given.key)
        call = Call(home, given, state, trees, names, args, kwargs)
        try:
            trace = self._cache.get(key, _NEW)
        except TypeError:
            raise _unhashable(self._name, args, kwargs) from None
        if trace is _NEW:
            return self._first(key, call, raw)
        self._hits += 1
        if len(self._cache) > 1:
            self._cache.move_to_end(key)
        if not isinstance(trace, Trace):
            return plain.run(self._function, self._name, call, self._static, raw)
        try:
            return trace.run(call)
        except Exception as error:
            raise _explained(self._name, error, home) from error

    def _first(self, key: Any, call: Call, raw: bool) -> Any:
        """A call of a new kind."""
        self.traces += 1
        if not call.backend.compiler.traces:
            out = plain.run(self._function, self._name, call, self._static, raw)
            self._keep(key, None)
            return out
        compiler = self._chosen(call.backend)
        with _LOCK:
            trace = Trace(self._function, self._name, call, self._static, compiler)
            try:
                out = trace.run(call)
            except Exception as error:
                raise _explained(self._name, error, call.backend) from error
        self._keep(key, trace)
        self._references = captured.find(self._function)
        return out

    def _chosen(self, backend: Backend) -> str | None:
        choices = backend.compiler.compilers
        if self._compiler is not None and choices and self._compiler not in choices:
            raise DomainError(
                f"em.jit(compiler={self._compiler!r}) is none of the '{backend.name}' backend; "
                f"it has {', '.join(choices)}"
            )
        return self._compiler or (choices[0] if choices else None)

    def _keep(self, key: Any, trace: Trace | None) -> None:
        self._cache[key] = trace
        if len(self._cache) <= self._size:
            return
        self._cache.popitem(last=False)
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"em.jit({self._name}) has been traced {self.traces} times, and forgets the first; "
                f"each new shape, dtype, structure and Python number means another trace: give "
                f"numbers that change as tensors, pad what grows, or raise cache_size",
                RuntimeWarning,
                stacklevel=4,
            )

    def _close(
        self,
        references: list[Reference],
        statics: list[Any],
        state: State,
        home: Backend,
        names: list[Reference],
    ) -> None:
        """Take what the function closes over as inputs that are only read."""
        if statics:
            references = list(references)
            for one in statics:
                references += self._inside(one)
        for label, get in references:
            try:
                value = get()
            except (ValueError, KeyError):
                continue
            for x in captured.tensors_in(value):
                if x._spec.backend is not home or state.knows(x):
                    continue
                if type(x) is GradTensor and not x.is_leaf:
                    continue
                count = len(state.roots)
                state.root(x)
                names += [(label, get)] * (len(state.roots) - count)

    def _inside(self, value: Any) -> list[Reference]:
        try:
            found = self._of_objects.get(value)
            if found is None:
                found = self._of_objects[value] = captured.find(value)
        except TypeError:  # neither hashed nor referred to weakly
            return captured.find(value)
        return found

    # --- What it has done ---------------------------------------------------------------------

    def cache_info(self) -> CacheInfo:
        """Calls that were served by an earlier trace, those that were not, and traces kept."""
        return CacheInfo(self._hits, self.traces, self._size, len(self._cache))

    def clear_cache(self) -> None:
        """Forget all traces."""
        self._cache.clear()
        self._references = None
        self._of_objects.clear()


@overload
def jit(
    fn: F,
    *,
    state: Any = None,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    cache_size: int = _CACHE_SIZE,
    compiler: str | None = None,
) -> Jitted[F]: ...
@overload
def jit(
    *,
    state: Any = None,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    cache_size: int = _CACHE_SIZE,
    compiler: str | None = None,
) -> Callable[[F], Jitted[F]]: ...
def jit(
    fn: Any = None,
    *,
    state: Any = None,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    cache_size: int = _CACHE_SIZE,
    compiler: str | None = None,
) -> Any:
    """A function that is traced once for each kind of arguments, and compiled by its engine.

    Arguments and results are trees. Tensors and arrays in them are traced; all else, Python
    numbers included, is static: another value means another trace. `state` is a tree of tensors,
    or an object that tells its own (see `autodiff.register_state`), which the function may change:
    in place, or by other tensors in its dicts, lists and attributes. `compiler` chooses where an
    engine has several: "graph" or "inductor" on torch. At most `cache_size` traces are kept.

    >>> w = ops.asarray([1.0, 2.0])
    >>> @jit(state=w)
    ... def step(x):
    ...     global w
    ...     loss, g = em.value_and_grad(lambda w: ops.sum((w - x) * (w - x)))(w)
    ...     w -= 0.5 * g
    ...     return loss
    >>> step(ops.zeros(2)).item(), w.tolist()
    (5.0, [0.0, 0.0])
    """
    size = int(cache_size)
    if size < 1:
        raise DomainError(f"em.jit takes a cache_size of at least 1, not {cache_size}")
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)

    def make(function: Any) -> Jitted[Any]:
        if not callable(function):
            raise TraceError(f"em.jit takes a function, not {type(function).__name__}")
        return Jitted(function, state, numbers, names, size, compiler)

    return make if fn is None else make(fn)


def _static(
    function: Any, numbers: tuple[int, ...], names: tuple[str, ...]
) -> frozenset[int | str]:
    """Places and names of static arguments; one that can be given both ways has both."""
    chosen: set[int | str] = {*names}
    if not numbers and not names:
        return frozenset()
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function of C's
        parameters = []
    places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters) or not parameters
    for number in numbers:
        place = number + len(places) if number < 0 else number
        if not 0 <= place < len(places) and not (open_ended and number >= 0):
            raise DomainError(
                f"em.jit got static_argnums {number} for a function of {len(places)} arguments"
            )
        chosen.add(place)
        if place < len(places):
            chosen.add(places[place])
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters) or not parameters
    for name in names:
        if name in places:
            chosen.add(places.index(name))
        elif not takes_any and name not in [p.name for p in parameters]:
            raise DomainError(f"em.jit got static_argnames {name!r}, which is no argument")
    return frozenset(chosen)


def _unhashable(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TraceError:
    """The error of a value among the arguments that has no hash."""
    from ember_ml import tree

    labelled = [(f"args[{place}]", value) for place, value in enumerate(args)]
    labelled += [(f"argument '{key}'", value) for key, value in kwargs.items()]
    for path, value in labelled:
        leaves, structure = tree.flatten(value)
        for leaf, at in zip(leaves, tree.paths(structure, path), strict=True):
            try:
                hash(leaf)
            except TypeError:
                return TraceError(
                    f"em.jit({name}) got {type(leaf).__name__} at {at}, which is no tensor and "
                    f"has no hash to tell it from others; give a tensor, or a tuple of values"
                )
    return TraceError(f"em.jit({name}) got a state with a value that has no hash")


def _explained(name: str, error: Exception, backend: Backend) -> Exception:
    """The error of what went wrong in a trace."""
    if isinstance(error, RecursionError):
        return TraceError(
            f"em.jit({name}) calls itself without end while it is traced, where no value can be "
            f"read that would end it; use ops.while_loop or ops.scan"
        )
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TraceError):
            return error if isinstance(error, EmberError) else cause
        if backend.compiler.is_complaint(cause):
            return TraceError(f"em.jit({name}): {READ}")
        cause = cause.__cause__
    return error
