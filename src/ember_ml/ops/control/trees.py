"""Between the trees of tensors that users' functions take and the native arrays of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ember_ml import dtypes, tree
from ember_ml.autodiff.tape import is_grad_enabled, recorded, recorded_many
from ember_ml.backend.contract import Backend, NativeArray, Spec
from ember_ml.errors import BackendMismatchError, DTypeError, EmberError, ShapeError
from ember_ml.ops import dispatch, manipulation
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill, fill_grad
from ember_ml.tree import Structure, Tree

__all__ = [
    "Branch",
    "Carry",
    "Rows",
    "Taped",
    "backend_of",
    "has_tensors",
    "is_taped",
    "owned",
    "predicate",
    "rows_of",
    "tensor_of",
    "tensors_of",
    "wrapped",
    "zeros",
]

_SCALARS = (bool, int, float, complex)


class Taped(Exception):
    """A function that an engine was to run closes over tensors that our tape records."""


def backend_of(name: str, *trees: Tree) -> Backend:
    """The one backend of the tensors in some trees, or the current one."""
    return dispatch.home_of(name, tuple(tree.leaves(trees)))


def has_tensors(*trees: Tree) -> bool:
    """True where trees hold tensors or native arrays, which have a backend."""
    return any(
        isinstance(leaf, Tensor) or convert.backend_of(leaf) is not None
        for leaf in tree.leaves(trees)
    )


def tensors_of(
    name: str, given: Tree, backend: Backend, root: str
) -> tuple[list[Tensor], Structure]:
    """A tree's leaves as tensors of a backend, and its structure."""
    found, structure = tree.flatten(given)
    for leaf in found:
        if type(leaf) is not Tensor or leaf._spec.backend is not backend:
            break
    else:
        return found, structure
    return [_tensor(name, leaf, backend, structure, i, root) for i, leaf in enumerate(found)], (
        structure
    )


def _tensor(
    name: str, leaf: Any, backend: Backend, structure: Structure, place: int, root: str
) -> Tensor:
    if isinstance(leaf, Tensor) and leaf._spec.backend is backend:
        return leaf
    try:
        return tensor_of(name, leaf, backend)
    except EmberError as error:
        path = tree.paths(structure, root)[place]
        raise type(error)(f"ops.{name} at {path}: {error}") from None


def tensor_of(name: str, value: Any, backend: Backend) -> Tensor:
    """A value as a tensor of a backend; BackendMismatchError where it is one of another."""
    tensor = convert.to_tensor(value, backend)
    home = tensor._spec.backend
    if home is not backend:
        raise BackendMismatchError(
            f"ops.{name} runs on backend '{backend.name}' and met a tensor of '{home.name}'; "
            f"move it with .to_backend('{backend.name}')"
        )
    return tensor


def wrapped(natives: Sequence[NativeArray], like_these: Sequence[Tensor]) -> list[Tensor]:
    """Native arrays as tensors of the specs of others; torch tells which need gradients."""
    return [made(native, t._spec) for t, native in zip(like_these, natives, strict=True)]


def made(native: NativeArray, spec: Spec) -> Tensor:
    """A tensor around what an engine gave: it needs gradients where the engine records some."""
    needed = spec.backend.records and native.requires_grad
    return (fill_grad if needed else fill)(native, spec)


def part(x: Tensor, native: NativeArray, key: tuple[Any, ...]) -> Tensor:
    """What an engine gave for `x[key]` as a tensor, with its record where `x` needs gradients."""
    if type(x) is GradTensor:
        return recorded("getitem", native, x._spec, (x,), (key,))
    return fill(native, x._spec)


def rows_of(x: Tensor) -> Sequence[Tensor]:
    """The tensors along the first axis: one step on the tape, however many there are."""
    spec = x._spec
    natives = spec.backend.control.rows(x.native)
    if type(x) is GradTensor:
        return recorded_many("rows", [(native, spec) for native in natives], (x,))
    return [made(native, spec) for native in natives]


def is_taped(*groups: Sequence[Tensor]) -> bool:
    """True where some tensors are recorded on our tape: an engine's own loop would lose that.

    What a function closes over shows itself only in its results.
    """
    return (
        any(
            type(t) is GradTensor and not t._spec.backend.records for group in groups for t in group
        )
        and is_grad_enabled()
    )


def predicate(name: str, value: Any, backend: Backend) -> bool | NativeArray:
    """A condition as True or False, or as a 0-d native array of bool that cannot be read."""
    if isinstance(value, _SCALARS):
        return bool(value)
    tensor = tensor_of(name, value, backend)
    if tensor.ndim:
        raise ShapeError(
            f"ops.{name} takes a condition of one value, not of shape {tensor.shape}; "
            f"use ops.all or ops.any"
        )
    native = convert.cast(tensor, dtypes.bool).native
    known = backend.control.number(native)
    return native if known is None else bool(known)


def owned(result: Tensor, given: Sequence[Tensor]) -> Tensor:
    """A result whose memory is not that of what was given: writing to it changes nothing else."""
    backend, native = result._spec.backend, result.native
    if not backend.mutable or backend.is_traced(native):
        return result
    if any(backend.shares_memory(native, t.native) for t in given):
        return result.copy()
    return result


def zeros(shape: tuple[int, ...], spec: Spec) -> Tensor:
    """A tensor that stands for elements that are not there."""
    return fill(spec.backend.full(shape, 0, spec), spec)


def _said(tensor: Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"


class Carry:
    """What goes round in a loop: a tree whose structure, dtypes and shapes stay."""

    def __init__(self, name: str, init: Tree, backend: Backend, root: str = "carry") -> None:
        self.name = name
        self.backend = backend
        self.first, self.structure = tensors_of(name, init, backend, root)
        self._facts = [(t._spec, t.shape) for t in self.first]
        self._root = root

    def tree(self, tensors: Sequence[Tensor]) -> Tree:
        """Tensors in their places."""
        return tree.unflatten(self.structure, tensors)

    def accept(self, result: Tree, who: str) -> list[Tensor]:
        """The tensors of a new carry; an error names the place where it is not like the first."""
        found, structure = tree.flatten(result)
        if structure != self.structure:
            tree.require_same(
                self.structure,
                structure,
                f"ops.{self.name}",
                ("the carry", f"what {who} gives"),
                self._root,
            )
        out: list[Tensor] = []
        for place, leaf in enumerate(found):
            spec, shape = self._facts[place]
            if not isinstance(leaf, Tensor):
                leaf = self._converted(leaf, spec, place)
            if leaf._spec is not spec or leaf.shape != shape:
                self._refuse(leaf, place, who)
            out.append(leaf)
        return out

    def _converted(self, leaf: Any, spec: Spec, place: int) -> Tensor:
        if type(leaf) in spec.weak:  # a Python number takes the dtype of the carry
            return fill(self.backend.full((), leaf, spec), spec)
        return _tensor(self.name, leaf, self.backend, self.structure, place, self._root)

    def _refuse(self, leaf: Tensor, place: int, who: str) -> None:
        first = self.first[place]
        path = tree.paths(self.structure, self._root)[place]
        dispatch.home_of(self.name, (first, leaf))
        dispatch.same_device(self.name, first.device, leaf.device)
        text = f"ops.{self.name}: {path} is {_said(first)} at first, and {who} gives {_said(leaf)}"
        if leaf.dtype is not first.dtype:
            raise DTypeError(
                f"{text}; a carry keeps its dtype: cast one, as with .astype('{first.dtype}')"
            )
        raise ShapeError(f"{text}; a carry keeps its shape")

    def wrapped(self, natives: Sequence[NativeArray], results: Sequence[Tensor]) -> list[Tensor]:
        """Native arrays as the tensors of a carry; they need gradients where `results` do."""
        return wrapped(natives, self.first)


class Branch:
    """A function of trees as one of native arrays, which remembers what it gave."""

    def __init__(
        self,
        name: str,
        who: str,
        function: Callable[..., Tree],
        operands: Sequence[Tensor],
        structure: Structure,
        backend: Backend | None,
    ) -> None:
        self.name = name
        self.who = who
        self.ran = False
        self.results: list[Tensor] = []
        self.structure = tree.LEAF
        self._function = function
        self._operands = operands
        self._given = structure
        self._backend = backend
        self._model: Branch | None = None

    def like(self, model: Branch) -> Branch:
        """The same branch, whose results must be as those of another one."""
        self._model = model
        return self

    def call(self, tensors: Sequence[Tensor]) -> Tree:
        """The results on tensors, as a tree of tensors."""
        self.run(tensors)
        return tree.unflatten(self.structure, self.results)

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The results on tensors, flat."""
        result = self._function(*tree.unflatten(self._given, tensors))
        # Without tensors that are given, those that come back decide.
        backend = self._backend or backend_of(self.name, result)
        self.results, self.structure = tensors_of(self.name, result, backend, "result")
        self.ran = True
        if self._model is not None and self._model.ran:
            self._compare(self._model)
        return self.results

    def __call__(self, *natives: NativeArray) -> list[NativeArray]:
        return [t.native for t in self.run(wrapped(natives, self._operands))]

    def _compare(self, model: Branch) -> None:
        what = (model.who, self.who)
        tree.require_same(model.structure, self.structure, f"ops.{self.name}", what, "result")
        for place, (a, b) in enumerate(zip(model.results, self.results, strict=True)):
            if a.dtype is b.dtype and a.shape == b.shape:
                continue
            path = tree.paths(self.structure, "result")[place]
            error = ShapeError if a.dtype is b.dtype else DTypeError
            raise error(
                f"ops.{self.name}: {path} is {_said(a)} from {model.who} and {_said(b)} from "
                f"{self.who}; branches give the same dtypes and shapes"
            )


class Rows:
    """Results of the steps of a loop, stacked along a new first axis."""

    def __init__(self, name: str, count: int, backend: Backend, reverse: bool = False) -> None:
        self._name = name
        self._count = count
        self._backend = backend
        self._reverse = reverse
        self._structure: Structure | None = None
        self._columns: list[_Column] = []

    def add(self, result: Tree) -> None:
        """Take the results of the next step."""
        self.add_flat(*tensors_of(self._name, result, self._backend, "result"))

    def add_flat(self, tensors: Sequence[Tensor], structure: Structure) -> None:
        """Take the results of the next step, which are tensors."""
        if self._structure is None:
            self._structure = structure
            self._columns = [_Column(t, self._count, self._reverse) for t in tensors]
        elif structure is not self._structure:
            what = ("one step", "another")
            tree.require_same(self._structure, structure, f"ops.{self._name}", what, "result")
        for place, (column, tensor) in enumerate(zip(self._columns, tensors, strict=True)):
            first = column.first
            if tensor._spec is not first._spec or tensor.shape != first.shape:
                path = tree.paths(structure, "result")[place]
                error = ShapeError if tensor.dtype is first.dtype else DTypeError
                raise error(
                    f"ops.{self._name}: {path} of fn is {_said(first)} in one step and "
                    f"{_said(tensor)} in another; results that are stacked must be alike"
                )
            column.add(tensor)

    def columns(self) -> list[Tensor]:
        """The stacked results, flat; for no steps, `add` was given a stand-in."""
        return [column.stacked() for column in self._columns]

    def stacked(self) -> Tree:
        """The stacked results."""
        return tree.unflatten(self._structure or tree.structure(None), self.columns())


class _Column:
    """One leaf of all rows: written into memory made once, or a list where gradients flow."""

    def __init__(self, first: Tensor, count: int, reverse: bool) -> None:
        self.first = first
        self._count = count
        self._reverse = reverse
        self._rows: list[Tensor] = []
        self._made = 0
        backend = first._spec.backend
        writes = backend.mutable and self._is_plain(first)
        self._memory = backend.empty((count, *first.shape), first._spec) if writes else None

    def _is_plain(self, row: Tensor) -> bool:
        return type(row) is not GradTensor and not row._spec.backend.is_traced(row.native)

    def add(self, row: Tensor) -> None:
        if self._made == self._count:
            return  # a stand-in, where there are no steps
        if self._memory is not None:
            if self._is_plain(row):
                self._memory[self._place(self._made)] = row.native
                self._made += 1
                return
            # Gradients or a trace came up on the way: what is there already goes with the rest.
            spec, memory = self.first._spec, self._memory
            self._rows = [fill(memory[self._place(i), ...], spec) for i in range(self._made)]
            self._memory = None
        self._rows.append(row)
        self._made += 1

    def _place(self, step: int) -> int:
        return self._count - 1 - step if self._reverse else step

    def stacked(self) -> Tensor:
        if self._memory is not None:
            return fill(self._memory, self.first._spec)
        if not self._rows:
            return zeros((0, *self.first.shape), self.first._spec)
        return manipulation.stack(self._rows[::-1] if self._reverse else self._rows)
