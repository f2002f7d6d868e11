"""Gradients of every op against central differences: cases taken from those of the values.

Each case of the conformance kit that runs on float64 (complex128 for ops of complex numbers alone)
is a case here too, on its finite inputs. Where those do not suit (ties, matrices that must stay
symmetric, places at which a function has a corner), chapters give cases of their own below, in
`gradients_*.py`, and these stand in for the derived ones of that op.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from ember_ml import autodiff, dtypes, ops
from ember_ml.backend import selection
from ember_ml.errors import DTypeError
from ember_ml.ops.registry import REGISTRY
from ember_ml.tensor.core import Tensor
from ember_ml.testing.case import Array
from ember_ml.testing.cases import CASES

__all__ = [
    "GradientCase",
    "analytic",
    "check",
    "check_narrow",
    "check_second",
    "derived",
    "has_float_result",
    "numeric",
]

_LARGEST = 48
_STEP = 1e-6


@dataclass(frozen=True)
class GradientCase:
    """An op on inputs at which it is smooth; it is differentiated by all that are floats."""

    op: str
    run: Callable[..., Any]
    inputs: tuple[Array, ...]
    label: str = ""
    # In units of the largest gradient, or of 1 where that is larger.
    tolerance: float = 1e-6
    tolerance32: float = 1e-5
    # False where a gradient is not differentiated again, with the reason in a comment beside it.
    second: bool = True

    @property
    def id(self) -> str:
        """A name for reports."""
        return f"{self.op}{'-' + self.label if self.label else ''}"

    @property
    def places(self) -> tuple[int, ...]:
        """Which inputs are differentiated by."""
        return tuple(i for i, a in enumerate(self.inputs) if a.dtype.kind in "fc")


def has_float_result(op: str) -> bool:
    """True where an op can be given floats and gives some back."""
    record = REGISTRY[op]
    takes = any(d.is_inexact for d in record.accepts)
    return takes and record.result not in ("bool", "index") and not record.creates


def derived(op: str) -> list[GradientCase]:
    """The cases of an op that follow from those of its values: two for each of those."""
    found: list[GradientCase] = []
    for case in CASES:
        if case.op != op:
            continue
        dtype = dtypes.float64 if dtypes.float64 in case.dtypes else dtypes.complex128
        if dtype not in case.dtypes:
            continue
        kept = 0
        for place, inputs in enumerate(case.inputs(dtype)):
            if kept < 2 and _suits(inputs):
                kept += 1
                found.append(GradientCase(op, case.run, inputs, f"{case.label}{place}"))
    return found


def _suits(inputs: tuple[Array, ...]) -> bool:
    floats = [a for a in inputs if a.dtype.kind in "fc"]
    size = sum(a.size for a in floats)
    return bool(floats) and 0 < size <= _LARGEST and all(np.isfinite(a).all() for a in floats)


def _weights(case: GradientCase, place: int, shape: tuple[int, ...]) -> Array:
    generator = np.random.Generator(np.random.Philox(zlib.crc32(f"{case.id}{place}".encode())))
    return generator.uniform(0.5, 1.5, (2, *shape))


def loss(case: GradientCase, tensors: list[Tensor]) -> Tensor:
    """One number that depends on every float that an op gives."""
    xp = tensors[0].__array_namespace__()
    got = case.run(xp, *tensors)
    results = got if isinstance(got, tuple | list) else (got,)
    total: Any = None
    for place, result in enumerate(results):
        if not isinstance(result, Tensor) or not result.dtype.is_inexact:
            continue
        weights = _weights(case, place, result.shape)
        real = dtypes.real_of(result.dtype) if result.dtype.is_complex else result.dtype
        first, second = (
            ops.asarray(w.astype(real.numpy)).to_backend(result.backend) for w in weights
        )
        if result.dtype.is_complex:
            part = ops.sum(ops.real(result) * first) + ops.sum(ops.imag(result) * second)
        else:
            part = ops.sum(result * first)
        total = part if total is None else total + part
    assert isinstance(total, Tensor), f"{case.id}: gives no floats"
    return total


def numeric(case: GradientCase) -> list[Array]:
    """Gradients by central differences, on NumPy in float64."""
    arrays = [np.array(a, copy=True) for a in case.inputs]

    def value() -> float:
        with selection.use_backend("numpy"), np.errstate(all="ignore"):
            return float(loss(case, [ops.asarray(a, copy=True) for a in arrays]).item())

    grads = []
    for place in case.places:
        target = arrays[place]
        grad = np.zeros_like(target)
        for index in np.ndindex(target.shape):
            kept = target[index]
            step = _STEP * max(1.0, float(abs(kept)))
            for direction in (1.0, 1j) if target.dtype.kind == "c" else (1.0,):
                target[index] = kept + step * direction
                above = value()
                target[index] = kept - step * direction
                below = value()
                target[index] = kept
                grad[index] += direction * (above - below) / (2 * step)
        grads.append(grad)
    return grads


def analytic(
    case: GradientCase, backend: str, *, wide: bool = True, taped: bool = False
) -> list[Array]:
    """Gradients by a backend: by `value_and_grad`, or by `backward()` on tensors that need them."""
    arrays = [a if wide else _narrow(a) for a in case.inputs]
    with selection.use_backend(backend), np.errstate(all="ignore"):
        tensors = [ops.asarray(a, copy=True) for a in arrays]
        if taped:
            for place in case.places:
                tensors[place] = Tensor(tensors[place], requires_grad=True)
            loss(case, tensors).backward()
            found = [tensors[place].grad for place in case.places]
        else:
            chosen = [tensors[place] for place in case.places]
            found = autodiff.grad(lambda inner: loss(case, _with(case, tensors, inner)))(chosen)
        for place, g in zip(case.places, found, strict=True):
            assert g is not None, f"{case.id} on {backend}: no gradient"
            assert g.dtype is tensors[place].dtype, f"{case.id} on {backend}: {g.dtype}"
            assert g.shape == tensors[place].shape, f"{case.id} on {backend}: shape {g.shape}"
            assert g.backend == backend
        return [g.numpy() for g in found if g is not None]


def _narrow(array: Array) -> Array:
    kinds = {"f": np.float32, "c": np.complex64}
    return array.astype(kinds.get(array.dtype.kind, array.dtype))


def check(case: GradientCase, backend: str, expected: list[Array], *, taped: bool = False) -> None:
    """Raise AssertionError where a backend's gradients are not the expected ones."""
    try:
        found, tolerance = analytic(case, backend, taped=taped), case.tolerance
    except DTypeError as error:
        if "complex128" not in str(error) or _has_complex128(backend):
            raise
        # MLX has no such numbers: complex64 must do.
        found, tolerance = analytic(case, backend, wide=False, taped=taped), case.tolerance32
    _compare(found, expected, tolerance, case, backend)


def _has_complex128(backend: str) -> bool:
    engine = selection.load(backend)
    return engine.supports(dtypes.complex128, engine.default_device())


def check_narrow(case: GradientCase, backend: str, expected: list[Array]) -> None:
    """The same in float32."""
    _compare(analytic(case, backend, wide=False), expected, case.tolerance32, case, backend)


def check_second(case: GradientCase, backend: str) -> None:
    """Compare second derivatives along a direction with differences of the first ones."""
    directions = [_weights(case, 100 + place, case.inputs[place].shape)[0] for place in case.places]
    ahead, behind = (
        analytic(replace(case, inputs=_moved(case, directions, step)), backend)
        for step in (_STEP, -_STEP)
    )
    wanted = [(a - b) / (2 * _STEP) for a, b in zip(ahead, behind, strict=True)]
    with selection.use_backend(backend), np.errstate(all="ignore"):
        tensors = [ops.asarray(a, copy=True) for a in case.inputs]
        along = [ops.asarray(d) for d in directions]

        def slope(chosen: list[Tensor]) -> Tensor:
            grads = autodiff.grad(lambda inner: loss(case, _with(case, tensors, inner)))(chosen)
            parts = [ops.sum(ops.real(g) * d) for g, d in zip(grads, along, strict=True)]
            total: Tensor = reduce(ops.add, parts)
            return total

        chosen = [tensors[place] for place in case.places]
        found = autodiff.grad(slope, allow_unused=True)(chosen)
        got = [g.numpy() for g in found]
    _compare(got, wanted, case.tolerance * 100, case, f"{backend}, second derivative")


def _moved(case: GradientCase, directions: list[Array], step: float) -> tuple[Array, ...]:
    arrays = list(case.inputs)
    for place, direction in zip(case.places, directions, strict=True):
        arrays[place] = arrays[place] + step * direction
    return tuple(arrays)


def _with(case: GradientCase, tensors: list[Tensor], chosen: list[Tensor]) -> list[Tensor]:
    given = list(tensors)
    for place, tensor in zip(case.places, chosen, strict=True):
        given[place] = tensor
    return given


def _compare(
    got: list[Array], wanted: list[Array], tolerance: float, case: GradientCase, backend: str
) -> None:
    largest = max([1.0, *(float(np.abs(w).max()) for w in wanted if w.size)])
    for place, (g, w) in enumerate(zip(got, wanted, strict=True)):
        np.testing.assert_allclose(
            g,
            w,
            rtol=0,
            atol=tolerance * largest,
            err_msg=f"gradient of ops.{case.id} by input {case.places[place]} on {backend}",
        )
