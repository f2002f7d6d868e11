"""What stands for an array while a function is traced."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml.graph.core import Value

__all__ = ["Array", "Operand"]

Array = np.ndarray[Any, Any]


class Operand:
    """A value of the graph that is being made, with the example's values beside it.

    The example's values (the shadow) tell the exact dtype and shape of every result; nothing that
    is traced may look at them. `known` operands are constants that the traced code itself made:
    what is computed of them alone is computed at once, and can be read.
    """

    __slots__ = ("__weakref__", "known", "name", "parts", "shadow", "shape", "value")

    # Operators between an array of NumPy and an operand are the operand's.
    __array_priority__ = 1000
    __array_ufunc__ = None

    def __init__(
        self,
        shadow: Array,
        shape: tuple[int, ...] | None = None,
        value: Value | None = None,
        *,
        known: bool = False,
        name: str = "",
    ) -> None:
        self.shadow = shadow
        self.shape = tuple(shadow.shape) if shape is None else shape
        # None for a constant that no node has used yet.
        self.value = value
        self.known = known
        # What a constant is called in the graph, such as the path of a parameter.
        self.name = name
        # Real and imaginary part of complex numbers, which graphs have not: see complexes.py.
        self.parts: tuple[Operand, Operand] | None = None

    def __repr__(self) -> str:
        return f"<operand {self.dtype}{list(self.shape)}>"

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of the elements."""
        found: np.dtype[Any] = self.shadow.dtype
        return found

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for side in self.shape:
            count *= side
        return count

    def item(self) -> Any:
        """The value, where it can be read."""
        from ember_ml.graph.tracing.trace import readable

        return readable(self).item()

    # --- Operators: Python numbers take the dtype of the operand ------------------------------

    def __getitem__(self, key: Any) -> Any:
        from ember_ml.graph.tracing import complexes, indexing

        if self.parts is not None:
            return complexes.join(*(part[key] for part in self.parts))
        return indexing.get(self, key if isinstance(key, tuple) else (key,))

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __neg__(self) -> Any:
        return _unary("negative", self)

    def __abs__(self) -> Any:
        return _unary("abs", self)

    def __invert__(self) -> Any:
        return _unary("logical_not" if self.dtype == np.bool_ else "bitwise_invert", self)

    def __add__(self, other: Any) -> Any:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _binary("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _binary("divide", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _binary("floor_divide", self, other)

    def __mod__(self, other: Any) -> Any:
        return _binary("remainder", self, other)

    def __pow__(self, other: Any) -> Any:
        return _binary("pow", self, other)

    def __matmul__(self, other: Any) -> Any:
        return _binary("matmul", self, other)

    def __and__(self, other: Any) -> Any:
        return _bits("and", self, other)

    def __or__(self, other: Any) -> Any:
        return _bits("or", self, other)

    def __xor__(self, other: Any) -> Any:
        return _bits("xor", self, other)

    def __lshift__(self, other: Any) -> Any:
        return _binary("bitwise_left_shift", self, other)

    def __rshift__(self, other: Any) -> Any:
        return _binary("bitwise_right_shift", self, other)

    def __eq__(self, other: object) -> Any:
        return _binary("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return _binary("not_equal", self, other)

    def __lt__(self, other: Any) -> Any:
        return _binary("less", self, other)

    def __le__(self, other: Any) -> Any:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return _binary("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return _binary("greater_equal", self, other)

    __hash__ = object.__hash__

    # --- What portable kernels ask of arrays of every engine ----------------------------------

    def reshape(self, *shape: Any) -> Any:
        """The same elements in another shape."""
        sides = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return _backend().kernels.reshape(self, tuple(sides))

    def astype(self, dtype: Any) -> Any:
        """The same elements in another dtype."""
        from ember_ml import dtypes

        return _backend().cast(self, dtypes.to_dtype(dtype))

    def transpose(self, axes: tuple[int, ...]) -> Any:
        """With the axes in another order."""
        return _backend().kernels.permute_dims(self, axes)


def _backend() -> Any:
    from ember_ml.graph.tracing.backend import graph_backend

    return graph_backend()


def _unary(name: str, x: Operand) -> Any:
    backend = _backend()
    return backend.entry(backend.spec_of(x), name)[0](x)


def _bits(name: str, a: Any, b: Any) -> Any:
    first = a if isinstance(a, Operand) else b
    return _binary(("logical_" if first.dtype == np.bool_ else "bitwise_") + name, a, b)


def _binary(name: str, a: Any, b: Any) -> Any:
    backend = _backend()
    spec = backend.spec_of(a if isinstance(a, Operand) else b)
    if not isinstance(a, Operand):
        a = spec.scalar(a)
    if not isinstance(b, Operand):
        b = spec.scalar(b)
    return backend.entry(spec, name)[0](a, b)
