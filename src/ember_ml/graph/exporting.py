"""export: a function over ops, or a model, as a graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

import numpy as np

from ember_ml import dtypes, tree
from ember_ml.autodiff.compiling import hooks
from ember_ml.autodiff.tape import no_grad, set_grad_enabled
from ember_ml.backend import selection
from ember_ml.backend.compiling import under_trace
from ember_ml.errors import (
    DomainError,
    EmberError,
    GradientError,
    ShapeError,
    TraceError,
    UnknownKeyError,
    UnsupportedOpError,
)
from ember_ml.graph import types
from ember_ml.graph.core import Graph
from ember_ml.graph.tracing import guarding
from ember_ml.graph.tracing.arguments import argument_names, axes_of, name_of, require_names
from ember_ml.graph.tracing.backend import graph_backend, ratio_operand
from ember_ml.graph.tracing.installing import (
    host,
    installed,
    modules_in,
    named_tensors,
    owners_in,
    scope_of,
    unchanged,
)
from ember_ml.graph.tracing.lines import is_foreign, place_of, text_of, user_line
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.randomness import stream_states, without_draws
from ember_ml.graph.tracing.sizes import Name, Ratio, Size, noted
from ember_ml.graph.tracing.trace import Trace, cast, size_operand, tracing
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill, require_grad

__all__ = ["export"]

DynamicAxes = Mapping[Any, Any] | Sequence[Any] | None
# Whose classes have no code of a user.
_KNOWN: Final = frozenset(("builtins", "ember_ml", "numpy", "torch", "jax", "jaxlib", "mlx"))
# How often a function that draws random numbers is called again.
_DRAWS: Final = 8
# Tensors that stand for operands are seen by other threads: one trace at a time.
_LOCK: Final = threading.RLock()


class _Input(NamedTuple):
    """One tensor among the examples."""

    name: str
    example: np.ndarray[Any, Any]
    # The tensor of a module, which holds the operand while the function runs; None for others.
    holder: Tensor | None
    needs_grad: bool
    # Names of sizes by axis.
    sizes: dict[int, str]


def export(
    function: Callable[..., Any],
    /,
    *examples: Any,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_axes: DynamicAxes = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    name: str | None = None,
    train: bool = False,
) -> Graph:
    """A function over ops, or a model, as a graph that ONNX Runtime and every backend can run.

    It is called with examples of its arguments, whose shapes and dtypes count, and whose values do
    not; `kwargs` holds those that are given by name. Tensors in them become inputs, by the names of
    the arguments; those of a module among them too. What else the function uses, such as the
    parameters of the model, becomes constants.

    `dynamic_axes` names sizes that may differ from run to run: `{"x": {0: "batch"}}`. Modules are
    exported in eval mode, unless `train` is given. Nothing of the model or of what the function
    closes over is left changed.

    >>> from ember_ml import nn
    >>> graph = export(nn.Linear(3, 2), ops.ones((4, 3)), dynamic_axes={"x": {0: "batch"}})
    >>> graph.inputs[0].shape, [node.op for node in graph.nodes]
    (('batch', 3), ['Gemm', 'Identity'])
    """
    if not callable(function):
        raise TraceError(f"em.export takes a function or a model, not {type(function).__name__}")
    for word, given in (("input_names", input_names), ("output_names", output_names)):
        require_names(word, given)
    made = _Export(function, examples, kwargs or {}, input_names, output_names, name, train)
    with _LOCK:
        return made.run(dynamic_axes)


class _Sealed:
    """A module, or another object that tells its tensors, among the examples: one leaf."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner


def _sealed(value: Any) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        return value
    if type(value) is dict:
        return {key: _sealed(child) for key, child in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_sealed(child) for child in value)
    return _Sealed(value) if hooks.of(type(value)) is not None else value


class _Export:
    def __init__(
        self,
        function: Callable[..., Any],
        examples: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        input_names: Sequence[str] | None,
        output_names: Sequence[str] | None,
        name: str | None,
        train: bool,
    ) -> None:
        self._function = function
        self._is_module = bool(getattr(function, "_is_module", False))
        self._name = name or name_of(function)
        self._train = train
        self._output_names = output_names
        self._leaves: list[Any] = []
        self._keywords = list(kwargs)
        self._arguments = [*argument_names(function, len(examples)), *self._keywords]
        self._inputs: list[_Input] = []
        self._structure: Any = None
        # What tensors around the function hold, copied once for all traces.
        self._captured: dict[int, tuple[Tensor, np.ndarray[Any, Any]]] = {}
        self._gather((*examples, *kwargs.values()), input_names)

    # --- Inputs -------------------------------------------------------------------------------

    def _gather(self, examples: tuple[Any, ...], input_names: Sequence[str] | None) -> None:
        self._leaves, self._structure = tree.flatten([_sealed(one) for one in examples])
        paths = tree.paths(self._structure, "")
        seen: set[int] = set()
        for leaf, path in zip(self._leaves, paths, strict=True):
            label = self._label(path)
            if isinstance(leaf, Tensor):
                if leaf._spec.backend is graph_backend() and not leaf.native.known:
                    raise TraceError(
                        f"em.export: the example '{label}' is a traced tensor of another export, "
                        f"which has no values; give ops.zeros of its shape{user_line()}"
                    )
                self._add(label, host(leaf), None, leaf.requires_grad)
            elif isinstance(leaf, np.ndarray):
                self._add(label, leaf, None, False)
            elif convert.backend_of(leaf) is not None:
                wrapped = convert.to_tensor(leaf)
                self._add(label, host(wrapped), None, wrapped.requires_grad)
            elif isinstance(leaf, _Sealed):
                for inner, x in named_tensors(leaf.owner, label, seen):
                    self._add(inner, host(x), x, x.requires_grad)
        if input_names is not None:
            if len(input_names) != len(self._inputs):
                raise DomainError(
                    f"em.export got {len(input_names)} input_names for {len(self._inputs)} inputs: "
                    f"{', '.join(one.name for one in self._inputs)}"
                )
            self._inputs = [
                one._replace(name=given)
                for one, given in zip(self._inputs, input_names, strict=True)
            ]

    def _add(
        self, name: str, array: np.ndarray[Any, Any], holder: Tensor | None, grad: bool
    ) -> None:
        array = types.native(array)
        types.name_of(array.dtype)
        if array.dtype.kind == "c":
            raise UnsupportedOpError(
                f"em.export: the input '{name}' is {array.dtype}, and graphs of ONNX Runtime have "
                f"no complex numbers to take; give its real and imaginary parts"
            )
        self._inputs.append(_Input(name, array, holder, grad, {}))

    def _label(self, path: str) -> str:
        """`[0]['w'][1]` as `params.w.1`."""
        place, *rest = _parts(path)
        return ".".join([self._arguments[int(place)], *rest])

    # --- Sizes --------------------------------------------------------------------------------

    def _name_axes(self, dynamic_axes: DynamicAxes) -> dict[str, int]:
        """Write the names of sizes to the inputs; gives the example's size of each."""
        if dynamic_axes is None:
            return {}
        if isinstance(dynamic_axes, str) or not isinstance(dynamic_axes, Mapping | Sequence):
            raise DomainError(
                f"em.export: dynamic_axes is {dynamic_axes!r}; give {{input: {{axis: 'size'}}}}"
            )
        pairs = (
            dynamic_axes.items()
            if isinstance(dynamic_axes, Mapping)
            else [(i, one) for i, one in enumerate(dynamic_axes) if one is not None]
        )
        known = {one.name: one for one in self._inputs}
        sizes: dict[str, int] = {}
        for key, axes in pairs:
            if isinstance(key, int) and 0 <= key < len(self._inputs):
                one = self._inputs[key]
            elif key in known:
                one = known[key]
            else:
                raise UnknownKeyError(
                    f"em.export: dynamic_axes names the input {key!r}; there are "
                    f"{', '.join(known) or 'none'}"
                )
            for axis, size in axes_of(one.name, axes):
                ndim = one.example.ndim
                if not -ndim <= axis < ndim:
                    raise ShapeError(
                        f"em.export: dynamic_axes names axis {axis} of '{one.name}', "
                        f"whose example has shape {one.example.shape}"
                    )
                side = one.example.shape[axis % ndim]
                if sizes.setdefault(size, side) != side:
                    raise ShapeError(
                        f"em.export: the size '{size}' is {sizes[size]} in one example and {side} "
                        f"in that of '{one.name}'; give examples in which it is the same"
                    )
                one.sizes[axis % ndim] = size
        return sizes

    # --- Tracing ------------------------------------------------------------------------------

    def run(self, dynamic_axes: DynamicAxes) -> Graph:
        examples = self._name_axes(dynamic_axes)
        if not examples:
            before = self._streams()
            trace = self._trace({})
            if before != self._streams() or not self._is_librarys(trace):
                self._check_again(trace, {}, before)
            return trace.graph
        # A size of one broadcasts, and one of zero is no example.
        first = {name: side if side > 1 else 3 for name, side in examples.items()}
        before = self._streams()
        with noted() as computed:
            trace = self._trace(first)
        errors: list[EmberError] = []
        agreed: list[dict[str, int]] = []
        for sizes in guarding.other_sizes(first):
            if len(agreed) == guarding.ENOUGH:
                break
            try:
                second = self._trace(sizes)
            except EmberError as error:
                errors.append(error)
                continue
            try:
                guarding.require_same(trace, second, first, sizes)
            except TraceError:
                self._check_again(trace, first, before)  # it may be no matter of sizes
                raise
            agreed.append(sizes)
        if agreed:
            self._check_larger(trace, first, guarding.telling_sizes(computed, first, agreed))
            if before != self._streams():
                self._check_again(trace, first, before)
            self._check_smallest(trace, dict.fromkeys(first, 1))
            return trace.graph
        raise TraceError(
            f"em.export: {self._name} runs with the sizes {first} alone, so they cannot be "
            f"dynamic_axes; with others: {errors[0]}"
        ) from errors[0]

    def _streams(self) -> bytes:
        return stream_states(value for _, value in scope_of(self._function))

    def _is_librarys(self, trace: Trace) -> bool:
        """True where no code of a user came up: a model of the library does the same each time."""
        owners = [*owners_in(self._function), *self._leaves]
        known = all(type(one).__module__.partition(".")[0] in _KNOWN for one in owners)
        return self._is_module and known and not any(map(is_foreign, trace.places.values()))

    def _check_again(self, trace: Trace, sizes: dict[str, int], before: bytes) -> None:
        """Call the function again, several times where it draws: two draws may be the same."""
        for _ in range(_DRAWS if before != self._streams() else 1):
            try:
                second = self._trace(sizes)
            except Exception as error:
                raise TraceError(
                    f"em.export: {self._name} is called twice, to find what would be kept of one "
                    f"call; the second gave {type(error).__name__}: {error}"
                ) from error
            guarding.require_repeated(trace, second)

    def _check_larger(
        self, trace: Trace, first: dict[str, int], sizes: dict[str, int] | None
    ) -> None:
        if sizes is None:
            return
        try:
            larger = self._trace(sizes)
        except Exception:  # the function, whatever it raises, does not take such sizes
            return
        guarding.require_same(trace, larger, first, sizes)

    def _check_smallest(self, trace: Trace, ones: dict[str, int]) -> None:
        try:
            small = self._trace(ones)
        except Exception:  # the function, whatever it raises, does not take such sizes
            return
        guarding.require_results(trace, small, ones)

    def _trace(self, sizes: dict[str, int]) -> Trace:
        try:
            # What is recorded without need costs memory, and loops that cannot be recorded.
            return self._traced(sizes, recording=False)
        except GradientError:
            if self._is_module:
                raise
        return self._traced(sizes, recording=True)

    def _traced(self, sizes: dict[str, int], recording: bool) -> Trace:
        backend = graph_backend()
        trace = Trace(self._name)
        holders: list[tuple[Tensor, Operand]] = []
        tensors: dict[int, Operand] = {}
        given: list[Operand] = []
        for one in self._inputs:
            operand = _operand(trace, one, sizes)
            given.append(operand)
            if one.holder is not None:
                holders.append((one.holder, operand))
                tensors[id(one.holder)] = operand
        scope = list(scope_of(self._function))
        if self._is_module:
            scope = [("", self._function)]
        seen = set(tensors)
        owners: list[Any] = []
        for label, value in scope:
            owners += owners_in(value)
            for path, x in named_tensors(value, label, seen):
                if x._spec.backend is backend:
                    continue
                if id(x) not in self._captured:
                    self._captured[id(x)] = (x, np.array(host(x)))
                operand = Operand(self._captured[id(x)][1])
                operand.value = trace.constant(operand.shadow, path.lstrip(".") or "captured")
                holders.append((x, operand))
        for leaf in self._leaves:
            owners += owners_in(leaf.owner if isinstance(leaf, _Sealed) else leaf)
        every = {id(owner): owner for owner in owners}
        with ExitStack() as stack:
            stack.enter_context(unchanged(list(every.values())))
            if self._is_module and not self._train:
                for module in modules_in(list(every.values())):
                    module.__dict__["training"] = False
            stack.enter_context(tracing(trace))
            stack.enter_context(installed(holders, backend))
            stack.enter_context(under_trace())
            stack.enter_context(selection.use_backend(backend.name))
            stack.enter_context(without_draws(self._name))
            stack.enter_context(set_grad_enabled(True) if recording else no_grad())
            stack.enter_context(np.errstate(all="ignore"))
            args = self._call(given, recording)
            count = len(args) - len(self._keywords)
            named = dict(zip(self._keywords, args[count:], strict=True))
            with _at_the_users_line():
                result = self._function(*args[:count], **named)
            self._finish(trace, result)
        return trace

    def _call(self, given: list[Operand], recording: bool) -> list[Any]:
        """The arguments, with operands in place of tensors."""
        backend = graph_backend()
        waiting = iter(
            [(one, x) for one, x in zip(self._inputs, given, strict=True) if one.holder is None]
        )
        leaves = []
        for leaf in self._leaves:
            data = isinstance(leaf, Tensor | np.ndarray) or convert.backend_of(leaf) is not None
            if not data:
                leaves.append(leaf.owner if isinstance(leaf, _Sealed) else leaf)
                continue
            one, operand = next(waiting)
            tensor = fill(operand, backend.spec_of(operand))
            leaves.append(require_grad(tensor) if one.needs_grad and recording else tensor)
        found: list[Any] = tree.unflatten(self._structure, leaves)  # the owners stay themselves
        return found

    # --- Results ------------------------------------------------------------------------------

    def _finish(self, trace: Trace, result: Any) -> None:
        backend = graph_backend()
        leaves, structure = tree.flatten(_sealed(result))
        named: list[tuple[str, Any]] = []
        for leaf, path in zip(leaves, tree.paths(structure, ""), strict=True):
            label = ".".join(_parts(path))
            if isinstance(leaf, _Sealed):
                named += list(named_tensors(leaf.owner, label))
            else:
                named.append((label, leaf))
        whole = len(named) == 1 and structure == tree.LEAF
        names = ["output" if whole else _output_name(label) for label, _ in named]
        if self._output_names is not None:
            if len(self._output_names) != len(named):
                raise DomainError(
                    f"em.export got {len(self._output_names)} output_names for "
                    f"{len(named)} results: {', '.join(names) or 'none'}"
                )
            names = list(self._output_names)
        if not named:
            raise TraceError(
                f"em.export: {self._name} gives no tensors, so there is no graph of it"
            )
        for name, (_, leaf) in zip(names, named, strict=True):
            x = _of_sizes(leaf)
            native = convert.to_tensor(leaf, backend).native if x is None else x
            trace.results.append(native.shape)
            trace.graph.output(_free(trace.graph, name), trace.value(native))
        _prune(trace.graph)
        guarding.require_own(trace)


def _of_sizes(result: Any) -> Operand | None:
    """A result that was computed of sizes, as numbers of its kind are; None for others."""
    if type(result) is Size:
        return size_operand(result)
    if type(result) is Ratio:
        return cast(ratio_operand(result), dtypes.float32)
    return None


@contextmanager
def _at_the_users_line() -> Iterator[None]:
    """A block whose errors name the line of the function; those of the library do not all."""
    try:
        yield
    except EmberError as error:
        where = place_of(error.__traceback__)
        text = error.args[0] if error.args else ""
        if where is not None and isinstance(text, str) and f"{where[0]}:{where[1]}" not in text:
            error.args = (text + text_of(where), *error.args[1:])
        raise


def _free(graph: Graph, name: str) -> str:
    """A name for an output: what a training step makes of an input is called new."""
    if any(x.name == name for x in graph.inputs):
        name = f"new.{name}"
    if name in graph._names:  # of a value in between, which nobody asks for by name
        values = [x for node in graph.nodes for x in node.outputs] + graph.constants()
        for value in values:
            if value.name == name:
                value.name = graph.fresh(f"{name}.value")
                graph._names.discard(name)
    return name


def _prune(graph: Graph) -> None:
    graph.prune()
    for node in graph.nodes:
        for body in node.subgraphs():
            _prune(body)
    graph.prune()


def _parts(path: str) -> list[str]:
    """The keys of a path in a tree: `[0]['w'].bias` as 0, w, bias."""
    parts = path.replace("][", "]|[").replace(".", "|").split("|")
    return [part.strip("[]'\"") for part in parts if part]


def _output_name(label: str) -> str:
    return f"output_{label}" if label[:1].isdigit() else label or "output"


def _operand(trace: Trace, one: _Input, sizes: dict[str, int]) -> Operand:
    array = one.example
    shape: list[int] = list(array.shape)
    for axis, name in one.sizes.items():
        side = sizes[name]
        if array.shape[axis] != side:
            array = _of_length(array, axis, side)
        shape[axis] = Size.named(Name.of(name, trace.mark), side)
    dims = tuple(one.sizes.get(axis, side) for axis, side in enumerate(array.shape))
    value = trace.graph.input(one.name, types.name_of(array.dtype), dims)
    for axis, name in one.sizes.items():
        trace.named.setdefault(name, (value, axis))
    trace.examples[one.name] = array
    return Operand(array, tuple(shape), value)


def _of_length(array: np.ndarray[Any, Any], axis: int, side: int) -> np.ndarray[Any, Any]:
    """An example of another length, of the same values over and over."""
    if not array.shape[axis]:
        return np.zeros([side if i == axis else n for i, n in enumerate(array.shape)], array.dtype)
    made: np.ndarray[Any, Any] = np.take(array, np.arange(side) % array.shape[axis], axis=axis)
    return made
