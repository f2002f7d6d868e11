"""The backend whose arrays are operands: what runs on `ops` becomes a graph."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.backend import portable, selection
from ember_ml.backend.contract import Backend, Kernel, NativeArray, Spec
from ember_ml.backend.numpy.network import WIDE
from ember_ml.dtypes import DType
from ember_ml.errors import UnsupportedOpError
from ember_ml.graph.tracing import (
    complexes,
    control,
    elementwise,
    elimination,
    indexing,
    linearalg,
    moving,
    network,
    ordering,
    reductions,
    resampling,
    scattering,
)
from ember_ml.graph.tracing.lines import user_line
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.sizes import Ratio, Size, sizes_in
from ember_ml.graph.tracing.trace import cast, constant, current, emit, readable, size_operand
from ember_ml.tensor.core import Tensor, fill

__all__ = ["GraphBackend", "graph_backend", "load"]

_EMITTERS: dict[str, Callable[..., Any]] = {
    **elementwise.EMITTERS,
    **reductions.EMITTERS,
    **moving.EMITTERS,
    **ordering.EMITTERS,
    **scattering.EMITTERS,
    **linearalg.EMITTERS,
    **elimination.EMITTERS,
    **network.EMITTERS,
    **resampling.EMITTERS,
}


class _Nothing:
    """The class of ordinary arrays, of which there are none: every operand is traced."""


class GraphSpec(Spec):
    """A spec for which a size that varies is no constant."""

    __slots__ = ()

    def scalar(self, value: object) -> NativeArray:
        if type(value) is Size:
            return cast(size_operand(value), self.dtype)
        if type(value) is Ratio:
            return cast(ratio_operand(value), self.dtype)
        return super().scalar(value)


class GraphBackend(Backend):
    """Arrays are operands; kernels compute the example's values and add nodes to a graph."""

    name = "graph"
    native_type = _Nothing
    native_types = (Operand,)
    native_dtypes = MappingProxyType({d: d.numpy for d in dtypes.ALL})
    namespaces = MappingProxyType({})
    overrides = MappingProxyType({})
    windows = False
    adopts = True
    control_class = control.GraphControl

    def spec(self, dtype: DType, device: str | None = None) -> Spec:
        key = (dtype, device or "cpu")
        found = self._specs.get(key)
        if found is None:
            found = self._specs.setdefault(key, GraphSpec(self, *key))
        return found

    def kernel(self, name: str, dtype: DType) -> Kernel:
        eager = selection.load("numpy").kernel(name, dtype)
        emitter, written = _EMITTERS.get(name), portable.KERNELS.get(name)
        kernels = self.kernels
        if dtype.is_complex or name.startswith("fft."):
            emitter = complexes.EMITTERS.get(name)
            if name in complexes.MOVES:
                emitter = self._of_parts(name)
        # Several nodes in a row: squares and exponents of 16-bit floats would overflow between.
        widens = name in WIDE and dtype in (dtypes.float16, dtypes.bfloat16)
        if widens and name == "scaled_dot_product_attention":
            emitter = None

        def kernel(*args: Any, **named: Any) -> NativeArray:
            if _all_known(args):
                return _operands(eager(*map(_shadow, args), **named))
            if emitter is not None:
                made = emitter(eager_of(eager), *args, **named)
                if made is not NotImplemented:
                    return made
            if written is None or name in _HOSTED:
                raise UnsupportedOpError(
                    f"em.export: ops.{name} has no form in ONNX{_reason(name)}{user_line()}"
                )
            if widens:
                single = self.entry(self.spec(dtypes.float32), name)[0]
                wide = [_cast_of(x, dtype, dtypes.float32) for x in args]
                return _cast_of(single(*wide, **named), dtypes.float32, dtype)
            return written(kernels, *args, **named)

        return kernel

    def _of_parts(self, name: str) -> Callable[..., Any]:
        def kernel_of(x: Operand) -> Kernel:
            return self.entry(self.spec_of(x), name)[0]

        def run(eager: Any, *args: Any, **named: Any) -> Any:
            return complexes.lifted(kernel_of, *args, **named)

        return run

    # --- Arrays -------------------------------------------------------------------------------

    def from_numpy(
        self, array: np.ndarray[Any, Any], spec: Spec, copy: bool | None = None
    ) -> NativeArray:
        return constant(array.copy() if copy else array)

    def to_numpy(self, native: NativeArray, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = readable(native).view()
        if copy:
            return array.copy()
        array.flags.writeable = False
        return array

    def from_backend(
        self, native: NativeArray, source: Backend, spec: Spec, copy: bool | None = None
    ) -> NativeArray:
        return Operand(source.to_numpy(source.detach(native)))

    def full(self, shape: tuple[int, ...], value: object, spec: Spec) -> NativeArray:
        if not sizes_in(shape):
            if type(value) in (Size, Ratio):
                return moving.expanded(spec.scalar(value), shape)
            return constant(np.full(shape, np.array(value, spec.dtype.numpy)))
        return moving.expanded(spec.scalar(value), shape)

    def counted(self, count: int, spec: Spec) -> NativeArray:
        return cast(indexing.ranged((count,)), spec.dtype)

    def cast(self, native: NativeArray, dtype: DType) -> NativeArray:
        if not native.known and (dtype.is_complex or native.dtype.kind == "c"):
            if native.dtype == dtype.numpy:
                return native
            if not dtype.is_complex:
                return cast(native, dtype)  # which says what is wrong
            real = dtypes.real_of(dtype)
            return complexes.join(*(cast(part, real) for part in complexes.split(native)))
        return cast(native, dtype)

    def copy(self, native: NativeArray) -> NativeArray:
        # Operands do not change; another object tells a copy from the original.
        made = Operand(native.shadow, native.shape, native.value, known=native.known)
        made.parts = native.parts
        return made

    def getitem(self, native: NativeArray, key: tuple[Any, ...]) -> NativeArray:
        if native.parts is not None:
            return native[key]
        return indexing.get(native, key)

    def setitem(self, native: NativeArray, key: tuple[Any, ...], value: NativeArray) -> NativeArray:
        return indexing.put(native, key, value)

    def is_traced(self, native: NativeArray) -> bool:
        return not native.known

    def leaks(self, before: NativeArray, after: NativeArray) -> bool:
        return not isinstance(before, Operand)

    def adopt(self, x: Tensor) -> Tensor:
        """A tensor of another backend as a constant of the graph, the same one each time."""
        trace = current()
        known = trace.adopted.get(id(x))
        if known is None:
            home = x._spec.backend
            operand = Operand(np.array(home.to_numpy(home.detach(x.native))))
            operand.value = trace.constant(operand.shadow, "captured")
            known = trace.adopted[id(x)] = (x, operand)
        return fill(known[1], self.spec(x._spec.dtype))

    def dlpack_device(self, native: NativeArray) -> tuple[int, int]:
        readable(native)
        return 1, 0

    def to_dlpack(self, native: NativeArray, **options: Any) -> Any:
        return readable(native).__dlpack__(
            **{k: v for k, v in options.items() if v is not None and k != "stream"}
        )


# Kernels that read values on other engines: shapes of their results depend on them.
_HOSTED = frozenset(("unique_all", "unique_values", "nonzero"))


def _reason(name: str) -> str:
    if name in _HOSTED:
        return " of known shape: how many values there are depends on the values"
    if name.startswith("fft."):
        return " on ONNX Runtime, which has no complex numbers"
    if name.startswith("linalg."):
        return ", which has no factorisations; elimination is written out for up to 64 known rows"
    return ""


def _all_known(args: Any) -> bool:
    found = False
    for x in args:
        if isinstance(x, Operand):
            found = True
            if not x.known:
                return False
        elif isinstance(x, list | tuple) and any(isinstance(one, Operand) for one in x):
            found = True
            if not all(one.known for one in x if isinstance(one, Operand)):
                return False
        elif type(x) in (Size, Ratio) or (isinstance(x, tuple) and sizes_in(x)):
            return False
    return found


def _shadow(x: Any) -> Any:
    if isinstance(x, Operand):
        return x.shadow
    if isinstance(x, list):
        return [_shadow(one) for one in x]
    if isinstance(x, tuple) and any(isinstance(one, Operand) for one in x):
        return tuple(_shadow(one) for one in x)
    return x


def _cast_of(x: Any, old: DType, new: DType) -> Any:
    """Operands of a dtype in another one; everything else as it is."""
    if isinstance(x, tuple | list) and any(isinstance(one, Operand) for one in x):
        return type(x)(_cast_of(one, old, new) for one in x)
    return cast(x, new) if isinstance(x, Operand) and x.dtype == old.numpy else x


def eager_of(kernel: Kernel) -> Kernel:
    """A kernel of NumPy on the example's values."""

    def run(*args: Any, **named: Any) -> Any:
        return kernel(*map(_shadow, args), **named)

    return run


def _operands(found: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(None if one is None else constant(one) for one in found)
    return constant(found)


def ratio_operand(value: Any) -> Operand:
    """What was computed of sizes as a 0-d float64 operand."""
    if type(value) is Ratio:
        op, a, b = value.expression
        return emit(op, [ratio_operand(a), ratio_operand(b)], np.array(float(value)), shape=())
    if type(value) is Size:
        return cast(size_operand(value), dtypes.float64)
    return constant(np.array(float(value)))


@cache
def graph_backend() -> GraphBackend:
    """The one backend of all traces."""
    return GraphBackend(sys.modules[__name__])


# What backend/selection.py asks for by the name "graph".
load = graph_backend
