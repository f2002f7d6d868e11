"""Tensor: what users hold. A native array with its spec, and the methods people expect of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from ember_ml.backend import selection
from ember_ml.backend.contract import NativeArray
from ember_ml.dtypes import DType, DTypeLike
from ember_ml.errors import CopyError, DTypeError, GradientError, ShapeError
from ember_ml.markers import D, Marked, R, V
from ember_ml.tensor import cell, typed
from ember_ml.tensor.cell import CLASSES, fill, fill_grad
from ember_ml.tensor.sharing import Sharing

if TYPE_CHECKING:

    class Cell:
        """Type checkers see its fields and operators in Operators, with the rules of markers."""

    from ember_ml.markers import Into, Matrices, Parts, Rank2, Unmarked
    from ember_ml.tensor.typed import DTypeOf, E
else:
    # The first base, since compiled code asks of every operand whether it is one.
    from ember_ml.tensor.cell import Cell

__all__ = ["EmberTensor", "GradTensor", "Tensor", "blank", "blank_grad", "fill", "fill_grad", "new"]

_DLPACK_CPU = (1, 0)


class Tensor(Cell, Sharing[D, V, R]):
    """An n-dimensional array of one dtype, on one device, of one backend.

    `data` is a number, a nested list, a NumPy array, a native array of any engine or a tensor.
    Without `dtype`, Python floats give float32 and Python integers int64 on every backend.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x.shape, x.dtype, (x @ x.T).tolist()
    ((2, 2), ember_ml.float32, [[5.0, 11.0], [11.0, 25.0]])
    """

    __slots__ = ("__weakref__",)
    # NumPy's arrays and scalars leave `array + tensor` to the tensor.
    __array_priority__ = 1000

    def __new__(
        cls,
        data: object = None,
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Tensor[D, V, R]:
        made = convert.asarray(() if data is None else data, dtype=dtype, device=device)
        if not requires_grad:
            if isinstance(made, GradTensor):
                return made.detach()
            # The caller gets an object of its own, also where `data` was a tensor already.
            return aliases.alias(made) if made is data else made
        if made is data and type(made) is not GradTensor:
            made = aliases.alias(made)  # memory is shared, as without gradients
            return imperative.require(made if type(made) is Tensor else made.copy(), True)
        return require_grad(made)

    # --- What it is -------------------------------------------------------------------------

    @property
    def dtype(self) -> DType[D]:
        """The element type."""
        return self._spec.dtype

    @property
    def device(self) -> str:
        """The name of the device that holds the values, such as "cpu" or "cuda:0"."""
        return self._spec.device

    @property
    def backend(self) -> str:
        """The name of the backend that computes, such as "torch"."""
        return self._spec.backend.name

    @property
    def requires_grad(self) -> bool:
        """True where operations on this tensor are to be differentiated."""
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return tuple(self.native.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.native.ndim  # type: ignore[no-any-return]  # engines are untyped here

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for side in self.native.shape:
            count *= side
        return count

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._spec.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self._spec.dtype.itemsize

    @property
    def T(self: Tensor[Any, Any, Rank2]) -> Tensor[D, V, Rank2]:
        """The transpose of a matrix; more axes take `mT` or `ops.permute_dims`."""
        if self.ndim != 2:
            raise ShapeError(
                f"Tensor.T takes a matrix, not shape {self.shape}; "
                f"use .mT for stacks of matrices or ops.permute_dims"
            )
        return views.rearranged("matrix_transpose", self)

    @property
    def mT(self: Marked[Any, Any, Matrices]) -> Tensor[D, V, R]:
        """The transpose of the last two axes."""
        return views.rearranged("matrix_transpose", ops.linalg.matrix_of("matrix_transpose", self))

    @property
    def real(self: Marked[Parts[E]]) -> Tensor[E, V, R]:
        """The real part."""
        return ops.real(self)

    @property
    def imag(self: Marked[Parts[E]]) -> Tensor[E, V, R]:
        """The imaginary part."""
        return ops.imag(self)

    # --- Leaving ----------------------------------------------------------------------------

    def to_backend_tensor(self) -> NativeArray:
        """The native array of the engine; the same object as `native`."""
        return self.native

    def numpy(self, *, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The values as a NumPy array, without a copy where memory allows.

        It is read-only where writing would change an array that never changes, as those of JAX.
        `copy=True` gives memory of its own, `copy=False` raises CopyError where none is shared.

        >>> Tensor([1.0, 2.0]).numpy(copy=True)
        array([1., 2.], dtype=float32)
        """
        return self._spec.backend.to_numpy(self.native, copy)

    to_numpy = numpy

    def to_torch(self, *, copy: bool | None = None) -> NativeArray:
        """The values as a torch.Tensor; `copy` as in `numpy`.

        torch has no read-only memory, so what must not be written is copied unless `copy=False`.
        """
        return interchange.native_of(self, "torch", copy)

    def to_jax(self, *, copy: bool | None = None) -> NativeArray:
        """The values as a jax.Array; `copy` as in `numpy`."""
        return interchange.native_of(self, "jax", copy)

    def to_mlx(self, *, copy: bool | None = None) -> NativeArray:
        """The values as an mlx.core.array; `copy` as in `numpy`, and MLX copies others' memory."""
        return interchange.native_of(self, "mlx", copy)

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; a 0-d tensor gives the number.

        >>> Tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        if getattr(self, "_home", None) is None:
            return self._host().tolist()
        with homes.storage_of(self).lock:  # no half of a write is seen
            return self._host().tolist()

    def item(self) -> Any:
        """The value of a tensor with one element, as a Python number."""
        if self.size != 1:
            raise ShapeError(f"Tensor.item() takes one element, not shape {self.shape}")
        return self._host().item()

    def _host(self) -> np.ndarray[Any, Any]:
        """The values in a NumPy dtype whose scalars are Python numbers."""
        array = self._spec.backend.to_numpy(self.native)
        return array.astype(np.float32) if self._spec.dtype is dtypes.bfloat16 else array

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        shared = self.numpy(copy=False if copy is False else None)
        return np.array(shared, dtype=dtype, copy=copy)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """`ember_ml.ops` bound to the backend of this tensor."""
        return namespace.of(self._spec.backend, api_version)

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        backend = self._spec.backend
        if dl_device is not None:
            target = (int(dl_device[0]), int(dl_device[1]))
            if target != backend.dlpack_device(self.native):
                if target != _DLPACK_CPU:
                    raise BufferError(f"a {self.device} tensor can be exported there or to the CPU")
                if copy is False:
                    raise CopyError(f"a {self.device} tensor reaches the CPU only by a copy")
                return self.to_device("cpu").__dlpack__(max_version=max_version)
        return backend.to_dlpack(
            self.native, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self, /) -> tuple[int, int]:
        return self._spec.backend.dlpack_device(self.native)

    # --- Moving -----------------------------------------------------------------------------

    def astype(self, dtype: DTypeOf[E], /, *, copy: bool = True) -> Tensor[E, V, R]:
        """The values in another dtype."""
        return ops.astype(self, dtype, copy=copy)

    cast = astype

    def to_backend(self, name: str, *, copy: bool | None = None) -> Tensor[D, Any, R]:
        """The tensor on another backend; no copy where the engines can share memory.

        `copy=True` never shares, `copy=False` raises CopyError instead of copying.
        """
        return convert.to_backend(self, selection.load(name), copy)

    @typed.moving
    def to_device(self, device: str, /, *, stream: Any = None) -> Tensor:
        """The tensor on another device of its backend."""
        return convert.to_device(self, device)

    @typed.to
    def to(
        self,
        target: DTypeLike = None,
        *,
        backend: str | None = None,
        device: str | None = None,
        dtype: DTypeLike = None,
    ) -> Tensor:
        """The tensor with another backend, device or dtype; `target` is a device or a dtype."""
        if target is not None:
            try:
                dtype = dtypes.to_dtype(target)
            except DTypeError:
                if not isinstance(target, str):
                    raise
                device = target
        moved: Tensor = self
        if backend is not None:
            moved = convert.to_backend(self, selection.load(backend), None, device)
        elif device is not None:
            moved = moved.to_device(device)
        return moved if dtype is None else moved.astype(dtype, copy=False)

    def copy(self) -> Tensor[D, V, R]:
        """A tensor with memory of its own."""
        if getattr(self, "_home", None) is None:
            native = self._spec.backend.copy(self.native)
            if type(self) is GradTensor:
                return tape.recorded("copy", native, self._spec, (self,))
            return fill(native, self._spec)
        with homes.storage_of(self).lock:  # no half of a write is copied
            native = self._spec.backend.copy(self.native)
            if type(self) is GradTensor:
                return tape.recorded("copy", native, self._spec, (self,))
            return fill(native, self._spec)

    @property
    def grad(self) -> Tensor | None:
        """None: a tensor that needs no gradients has none."""
        return None

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            raise GradientError("a tensor that needs no gradients has none; use requires_grad_()")

    @property
    def is_leaf(self) -> bool:
        """True: gradients begin and end here."""
        return True

    def backward(
        self,
        gradient: Any = None,
        *,
        retain_graph: bool = False,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Raise GradientError: nothing was recorded on the way to this tensor."""
        raise GradientError(
            "backward() got a tensor that does not depend on one with requires_grad=True, "
            "or was made within em.no_grad()"
        )

    def requires_grad_(self, mode: bool = True) -> Tensor[D, V, R]:
        """Let this tensor need gradients from now on, or no longer; gives the tensor itself.

        >>> x = Tensor([1.0, 2.0]).requires_grad_()
        >>> x.requires_grad, x.requires_grad_(False).requires_grad
        (True, False)
        """
        return imperative.require(self, mode)

    def retain_grad(self) -> None:
        """Raise GradientError: a tensor that needs no gradients has none to keep."""
        raise GradientError("retain_grad() takes a tensor that needs gradients")

    def detach(self) -> Tensor[D, V, R]:
        """The same memory, cut off from gradients."""
        return aliases.detached(self)

    # --- Python's conversions ---------------------------------------------------------------

    def __bool__(self, /) -> bool:
        return bool(self._one("bool"))

    def __int__(self, /) -> int:
        return int(self._one("int"))

    def __float__(self, /) -> float:
        return float(self._one("float"))

    def __complex__(self, /) -> complex:
        return complex(self._one("complex"))

    def __index__(self, /) -> int:
        if not self._spec.dtype.is_integer:
            raise DTypeError(f"only integer tensors can be an index, not {self.dtype}")
        return int(self._one("index"))

    def _one(self, wanted: str) -> Any:
        if self.size != 1:
            hint = "; use ops.any or ops.all" if wanted == "bool" else ""
            raise ShapeError(f"{wanted}() takes a tensor of one element, not {self.shape}{hint}")
        value = self._host().item()
        if isinstance(value, complex) and wanted in ("int", "float"):
            raise DTypeError(f"{wanted}() takes a real tensor, not {self.dtype}; use .real")
        return value

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("len() of a 0-d tensor: it has no axis; use .item()")
        length: Any = self.shape[0]
        # A length that varies from run to run of an exported graph is no plain number.
        return length if type(length) is int else length.counted()

    @typed.rows
    def __iter__(self) -> Iterator[Tensor]:
        """The tensors along the first axis."""
        if not self.shape:
            raise ShapeError("a 0-d tensor cannot be iterated: it has no axis; use .item()")
        return (indexing.get(self, i) for i in range(self.shape[0]))

    def __contains__(self, value: object) -> bool:
        return bool(ops.any(ops.equal(self, value)))

    def __hash__(self) -> int:
        # Equality is element-wise, so a tensor is its own key, as in PyTorch.
        return id(self)

    def __copy__(self) -> Tensor[D, V, R]:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor[D, V, R]:
        return roles.same(self.copy(), self)

    def __getstate__(self) -> dict[str, Any]:
        """Values, shape, dtype, device, backend and requires_grad, as a pickle keeps them."""
        return pickling.state_of(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        pickling.revive(self, state)

    def __reduce__(self) -> tuple[Any, ...]:
        # Not through __new__, which reads user input and asks for the current backend.
        return pickling.empty, (self.requires_grad,), self.__getstate__()

    # --- Indexing ---------------------------------------------------------------------------

    @typed.indexing
    def __getitem__(self, key: Any, /) -> Tensor:
        return indexing.get(self, key)

    def __setitem__(self, key: Any, value: Marked[Into[D], V] | Unmarked, /) -> None:
        indexing.put(self, key, value)

    # --- Showing ----------------------------------------------------------------------------

    def __repr__(self) -> str:
        return display.text(self)

    def __str__(self) -> str:
        return display.values(self)

    def __format__(self, format_spec: str) -> str:
        if not format_spec:
            return str(self)
        if self.size != 1:
            raise ShapeError(
                f"format '{format_spec}' takes a tensor of one element, not shape {self.shape}"
            )
        return format(self.item(), format_spec)

    def _repr_html_(self) -> str:
        return display.html(self)

    def __rich__(self) -> str:
        return display.text(self)


EmberTensor = Tensor


class GradTensor(Tensor):
    """A tensor that needs gradients; a class of its own, so that others never ask."""

    __slots__ = ()

    @property
    def requires_grad(self) -> bool:
        """True: this is what sets the class apart."""
        return True

    def _show_in_views(self) -> None:
        """Let views that were recorded show what was written."""
        families.refresh(self)

    def retain_grad(self) -> None:
        """Keep the gradient of this tensor in `backward`, though an op made it.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> y = x * 3.0
        >>> y.retain_grad()
        >>> (y * y).sum().backward()
        >>> y.grad.tolist()
        [6.0, 12.0]
        """
        imperative.retain(self)

    @property
    def grad(self) -> Tensor | None:
        """What `backward` has added up for this tensor; None before."""
        return imperative.grad_of(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        imperative.set_grad(self, value)

    def backward(
        self,
        gradient: Any = None,
        *,
        retain_graph: bool = False,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradients of this number to the `grad` of every tensor that it depends on.

        >>> from ember_ml.nn import tensor
        >>> x = tensor.array([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        imperative.backward(self, gradient, retain_graph, create_graph, inputs)

    @property
    def is_leaf(self) -> bool:
        """True where no op made this tensor: gradients end here."""
        if self._spec.backend.records:
            return bool(self.native.is_leaf)
        return self._node.rule is None and not self._node.parents

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        # A leaf of its own: gradients of the copy do not flow to the original.
        made = require_grad(self.detach().copy())
        if self.is_leaf and self.grad is not None:
            made.grad = self.grad.detach().copy()
        return roles.same(made, self)


CLASSES.plain = Tensor  # type: ignore[assignment]  # a Cell, which type checkers do not see
CLASSES.grad = GradTensor  # type: ignore[assignment]  # as above
if cell.__file__.endswith(".py"):
    # Half of what an op costs here: object.__new__ is called quickest through a partial.
    cell.__dict__["blank"] = partial(object.__new__, Tensor)
    cell.__dict__["blank_grad"] = partial(object.__new__, GradTensor)
if TYPE_CHECKING:
    T = TypeVar("T", bound=Tensor)

    def new(cls: type[T], /) -> T:
        """An empty tensor of any class, without its __new__, which reads user input."""
        ...
else:
    new = object.__new__ if cell.__file__.endswith(".py") else Cell.__new__
blank: Final[Callable[[], Tensor]] = cell.__dict__["blank"]
blank_grad: Final[Callable[[], Tensor]] = cell.__dict__["blank_grad"]


def like(x: Tensor, native: NativeArray) -> Tensor:
    """The same values as `x` in another array, with the same record where `x` needs gradients."""
    if type(x) is not GradTensor:
        return fill(native, x._spec)
    out = fill_grad(native, x._spec)
    if not x._spec.backend.records:
        out._node = x._node
    return out


def require_grad(x: Tensor) -> Tensor:
    """A tensor of the same values that needs gradients."""
    if isinstance(x, GradTensor):
        return x
    if x._spec.dtype.kind not in ("real floating", "complex floating"):
        raise DTypeError(f"requires_grad takes a floating dtype, not {x.dtype}")
    backend = x._spec.backend
    native = backend.require_grad(x.native)
    if not backend.records:
        return tape.leaf(native, x._spec)
    if not backend.gradients.prepared:
        backend.gradients.prepare()
    return fill_grad(native, x._spec)


# Ops are written over Tensor, and the methods of Tensor over ops. The modules are bound here,
# after the classes, and their functions are looked up when they are called.
import ember_ml.ops as ops  # noqa: E402
from ember_ml import dtypes  # noqa: E402
from ember_ml.autodiff import imperative, tape  # noqa: E402
from ember_ml.ops import (  # noqa: E402
    axes,
    dispatch,
    namespace,
)
from ember_ml.tensor import (  # noqa: E402
    aliases,
    convert,
    display,
    families,
    homes,
    indexing,
    interchange,
    iteration,
    methods,
    pickling,
    roles,
    sharing,
    views,
    writing,
)

cell.__dict__["dispatch"] = dispatch
methods.bind(ops=ops, views=views)
sharing.bind(
    ops=ops,
    axes=axes,
    aliases=aliases,
    homes=homes,
    indexing=indexing,
    iteration=iteration,
    views=views,
    writing=writing,
)
