"""One case of the conformance kit: inputs, the op, the reference, and how they are compared."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.backend import selection
from ember_ml.dtypes import DType
from ember_ml.ops.registry import REGISTRY
from ember_ml.tensor.core import Tensor

__all__ = ["Array", "Case", "check", "sample"]


Array = np.ndarray[Any, Any]
# Inputs of one run of a case: plain NumPy arrays of the dtype under test.
Inputs = tuple[Array, ...]

_WIDE = {"real floating": np.dtype("float64"), "complex floating": np.dtype("complex128")}


@dataclass(frozen=True)
class Case:
    """An op run on some inputs, with the reference that tells what must come out.

    `run(xp, *tensors)` calls the op; `expect(*arrays)` gets the same values, floats in float64
    and complex numbers in complex128, and gives the exact result. `dtypes` are those it is run
    on; `ulps` is the tolerance in units of the last place of the result's dtype.
    """

    op: str
    run: Callable[..., Any]
    expect: Callable[..., Any]
    inputs: Callable[[DType], list[Inputs]]
    dtypes: tuple[DType, ...]
    result: Callable[[DType], DType | None] = field(default=lambda dtype: dtype)
    ulps: float = 16
    label: str = ""

    @property
    def id(self) -> str:
        """A name for reports."""
        return f"{self.op}{'-' + self.label if self.label else ''}"


def sample(seed: str, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> Array:
    """Reproducible values of a dtype between two bounds."""
    generator = np.random.Generator(np.random.Philox(zlib.crc32(seed.encode())))
    if dtype is dtypes.bool:
        return generator.random(shape) < 0.5
    if dtype.is_integer:
        first = max(int(np.ceil(low)), 0) if not dtype.is_signed else int(np.ceil(low))
        return generator.integers(first, int(high) + 1, shape).astype(dtype.numpy)
    values = generator.uniform(low, high, shape)
    if dtype.is_complex:
        return (values + 1j * generator.uniform(low, high, shape)).astype(dtype.numpy)
    return values.astype(dtype.numpy)


def wide(array: Array) -> Array:
    """The same values in the widest dtype of their kind, for references."""
    return array.astype(_WIDE.get(dtypes.to_dtype(array.dtype).kind, array.dtype))


def check(case: Case, backend: str, dtype: DType) -> None:
    """Run a case on a backend and raise AssertionError where anything differs."""
    from ember_ml import ops

    engine = selection.load(backend)
    expected_dtype = case.result(dtype)
    for inputs in case.inputs(dtype):
        with selection.use_backend(backend):
            tensors = [ops.asarray(array, copy=True) for array in inputs]
            before = [t.numpy().copy() for t in tensors]
        # Tensors decide where an op runs: another backend is current, as after a switch.
        current, xp = ("numpy", tensors[0].__array_namespace__()) if tensors else (backend, ops)
        with selection.use_backend(current), np.errstate(all="ignore"):
            # NumPy warns of overflow in sums and products; their values are what is tested.
            got = case.run(xp, *tensors)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # np.mean of nothing warns besides giving NaN
            wanted = case.expect(*map(wide, inputs))
        results = got if isinstance(got, tuple) else (got,)
        references = wanted if isinstance(wanted, tuple) else (wanted,)
        where = f"ops.{case.id} on {backend}, {dtype}, shapes {[a.shape for a in inputs]}"
        assert len(results) == len(references), f"{where}: {len(results)} results"
        for tensor, reference in zip(results, references, strict=True):
            _compare(tensor, np.asarray(reference), expected_dtype, case.ulps, where)
            assert tensor._spec.backend is engine, f"{where}: result on {tensor.backend}"
        for tensor, kept in zip(tensors, before, strict=True):
            np.testing.assert_array_equal(
                wide(tensor.numpy()), wide(kept), f"{where}: changed its input"
            )


def _compare(got: Tensor, wanted: Array, dtype: DType | None, ulps: float, where: str) -> None:
    assert isinstance(got, Tensor), f"{where}: gave {type(got)}"
    engine = got._spec.backend
    assert engine.dtype_of(got.native) is got.dtype, (
        f"{where}: says {got.dtype}, holds {engine.dtype_of(got.native)}"
    )
    if dtype is not None:
        assert got.dtype is dtype, f"{where}: gave {got.dtype}, not {dtype}"
    assert got.shape == wanted.shape, f"{where}: shape {got.shape}, not {wanted.shape}"
    values = wide(got.numpy())
    if not (got.dtype.is_floating or got.dtype.is_complex):
        np.testing.assert_array_equal(values, wanted.astype(values.dtype), where)
        return
    limits = dtypes.float_limits(got.dtype)
    with np.errstate(all="ignore"):
        # What rounds to infinity in the result's dtype is infinity there.
        rounded = wanted.astype(got.dtype.numpy).astype(values.dtype)
    scale = limits.eps * ulps
    np.testing.assert_allclose(
        values, rounded, rtol=scale, atol=scale * 0.1, equal_nan=True, err_msg=where
    )


def accepted(op: str) -> tuple[DType, ...]:
    """Every dtype that an op takes, cast first or as it is."""
    record = REGISTRY[op]
    if record.lift == "bool":
        return dtypes.ALL
    lifted = [dtypes.bool, *(d for d in dtypes.ALL if d.is_integer)] if record.lift else []
    return tuple(d for d in dtypes.ALL if d in record.accepts or d in lifted)


def law(op: str) -> Callable[[DType], DType]:
    """The result dtype of an op by its declared rule."""
    record = REGISTRY[op]
    return lambda dtype: record.result_dtype(record.run_dtype(dtype))
