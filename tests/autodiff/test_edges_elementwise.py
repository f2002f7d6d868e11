"""Gradients of elementwise ops where engines differ: ties, corners, zeros, infinities, no elements.

Each is taken on every backend, by `grad` and by `backward()`, in float32 and in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ember_ml import autodiff, ops
from ember_ml.backend import selection
from ember_ml.nn import tensor
from ember_ml.tensor.core import Tensor

BACKENDS = ("numpy", "torch", "jax", "mlx")
INF = math.inf
BIG = 1e30


def gradients(
    backend: str, run: Callable[..., Tensor], arrays: Sequence[Any], taped: bool
) -> list[np.ndarray]:
    """The gradients of the sum of a result, by all of its operands."""
    # Sums of infinities warn on NumPy, and are no concern here.
    with selection.use_backend(backend), np.errstate(all="ignore"):
        tensors = [ops.asarray(a, copy=True) for a in arrays]
        if taped:
            tensors = [tensor.array(t, requires_grad=True) for t in tensors]
            ops.sum(run(*tensors)).backward()
            found = [t.grad for t in tensors]
        else:
            found = autodiff.grad(lambda given: ops.sum(run(*given)))(tensors)
        for t, g in zip(tensors, found, strict=True):
            assert g is not None
            assert (g.dtype, g.shape) == (t.dtype, t.shape)
        return [g.numpy() for g in found]


def check(run: Callable[..., Tensor], inputs: Sequence[Any], wanted: Sequence[Any]) -> None:
    for backend in BACKENDS:
        for dtype in ("float32", "float64"):
            arrays = [np.asarray(a, dtype) for a in inputs]
            for taped in (False, True):
                got = gradients(backend, run, arrays, taped)
                for g, w in zip(got, wanted, strict=True):
                    np.testing.assert_allclose(
                        g,
                        np.asarray(w, dtype),
                        rtol=1e-6,
                        atol=1e-7,
                        err_msg=f"{backend}, {dtype}, {'backward' if taped else 'grad'}",
                    )


# --- One operand: places and slopes -----------------------------------------------------------

SIGMOID = 1 / (1 + math.exp(-1.0))
UNARY: dict[str, tuple[Callable[..., Tensor], dict[float, float]]] = {
    "abs": (ops.abs, {0.0: 0, INF: 1, -INF: -1}),
    "sqrt": (ops.sqrt, {0.0: INF, 4.0: 0.25, INF: 0}),
    "square": (ops.square, {0.0: 0, BIG: 2 * BIG}),
    "log": (ops.log, {0.0: INF, INF: 0}),
    "exp": (ops.exp, {-INF: 0, INF: INF, 0.0: 1}),
    "cbrt": (ops.cbrt, {0.0: INF, 8.0: 1 / 12, -8.0: 1 / 12, INF: 0}),
    "sinc": (ops.sinc, {0.0: 0}),
    "sign": (ops.sign, {0.0: 0, 2.0: 0}),
    "floor": (ops.floor, {1.0: 0, 1.5: 0}),
    "round": (ops.round, {0.5: 0, 1.0: 0}),
    "imag": (ops.imag, {0.0: 0, INF: 0}),
    "nan_to_num": (ops.nan_to_num, {math.nan: 0, INF: 0, -INF: 0, 2.0: 1}),
    "tanh": (ops.tanh, {BIG: 0, -INF: 0, 0.0: 1}),
    "relu": (ops.relu, {0.0: 0, 1.0: 1, -1.0: 0, INF: 1, -INF: 0}),
    "relu6": (ops.relu6, {0.0: 0, 6.0: 0, 3.0: 1, INF: 0, -INF: 0}),
    "relu_squared": (ops.relu_squared, {0.0: 0, 3.0: 6, -INF: 0}),
    "leaky_relu": (ops.leaky_relu, {0.0: 0.01, INF: 1, -INF: 0.01}),
    "threshold": (lambda x: ops.threshold(x, 1.0, 5.0), {1.0: 0, 2.0: 1, INF: 1, -INF: 0}),
    "hard_tanh": (ops.hard_tanh, {1.0: 0, -1.0: 0, 0.5: 1, INF: 0}),
    "hard_sigmoid": (ops.hard_sigmoid, {3.0: 0, -3.0: 0, 0.0: 1 / 6, INF: 0}),
    "hard_swish": (ops.hard_swish, {3.0: 1, -3.0: 0, 0.0: 0.5, BIG: 1, -BIG: 0}),
    "hard_shrink": (ops.hard_shrink, {0.5: 0, -0.5: 0, 1.0: 1, INF: 1}),
    "soft_shrink": (ops.soft_shrink, {0.5: 0, -0.5: 0, 1.0: 1, INF: 1}),
    "elu": (lambda x: ops.elu(x, 0.4), {0.0: 0.4, BIG: 1, INF: 1, -INF: 0}),
    "celu": (lambda x: ops.celu(x, 0.4), {0.0: 1, BIG: 1, INF: 1, -INF: 0}),
    "selu": (ops.selu, {0.0: 1.7580993408473766, INF: 1.0507009873554805, -INF: 0}),
    "sigmoid": (ops.sigmoid, {0.0: 0.25, BIG: 0, -BIG: 0, INF: 0, -INF: 0}),
    "log_sigmoid": (ops.log_sigmoid, {0.0: 0.5, BIG: 0, -BIG: 1, INF: 0, -INF: 1}),
    "softplus": (ops.softplus, {0.0: 0.5, 1.0: SIGMOID, BIG: 1, -BIG: 0, INF: 1, -INF: 0}),
    "softsign": (ops.softsign, {0.0: 1, 1.0: 0.25, -BIG: 0}),
    "silu": (ops.silu, {0.0: 0.5, BIG: 1, -BIG: 0, 100.0: 1}),
    "mish": (ops.mish, {0.0: 0.6, BIG: 1, -BIG: 0, 100.0: 1}),
    "gelu": (ops.gelu, {0.0: 0.5, BIG: 1, -BIG: 0, 100.0: 1}),
    "gelu_tanh": (lambda x: ops.gelu(x, "tanh"), {0.0: 0.5, 1e6: 1, -1e6: 0, 100.0: 1}),
    "tanhshrink": (ops.tanhshrink, {0.0: 0, BIG: 1, -BIG: 1}),
    "erf": (ops.erf, {0.0: 2 / math.sqrt(math.pi), BIG: 0, -INF: 0}),
    "erfc": (ops.erfc, {0.0: -2 / math.sqrt(math.pi), BIG: 0, -INF: 0}),
    "erfinv": (ops.erfinv, {0.0: math.sqrt(math.pi) / 2, 1.0: INF, -1.0: INF}),
    "lgamma": (ops.lgamma, {1.0: -0.5772156649015329, 2.0: 0.42278433509846714}),
    "digamma": (ops.digamma, {1.0: math.pi**2 / 6, 3.0: math.pi**2 / 6 - 1.25, INF: 0}),
}


@pytest.mark.parametrize("name", UNARY)
def test_slopes(name: str) -> None:
    run, places = UNARY[name]
    check(run, [list(places)], [list(places.values())])


SETTLED = {"silu": ops.silu, "mish": ops.mish, "gelu": ops.gelu, "hard_swish": ops.hard_swish}


@pytest.mark.parametrize("backend", ["numpy", "jax", "mlx"])
@pytest.mark.parametrize("name", SETTLED)
def test_slope_at_infinity(name: str, backend: str) -> None:
    """torch's kernels of these multiply zero by infinity; mending that would cost all others."""
    for taped in (False, True):
        (g,) = gradients(backend, SETTLED[name], [np.float32([INF, -INF, 1e30])], taped)
        np.testing.assert_array_equal(g, [1, 0, 1])


# --- Two operands: pairs and slopes -------------------------------------------------------------

Pairs = dict[tuple[float, float], tuple[float, float]]
BINARY: dict[str, tuple[Callable[..., Tensor], Pairs]] = {
    "maximum": (ops.maximum, {(1, 1): (0.5, 0.5), (2, 1): (1, 0), (INF, INF): (0.5, 0.5)}),
    "minimum": (ops.minimum, {(1, 1): (0.5, 0.5), (2, 1): (0, 1), (-INF, 0): (1, 0)}),
    "fmax": (ops.fmax, {(1, 1): (1, 0), (1, 2): (0, 1), (math.nan, 2): (0, 1)}),
    "fmin": (ops.fmin, {(1, 1): (1, 0), (1, 2): (1, 0), (1, math.nan): (1, 0)}),
    "logaddexp": (
        ops.logaddexp,
        {
            (1, 1): (0.5, 0.5),
            (BIG, BIG): (0.5, 0.5),
            (1000, -1000): (1, 0),
            (BIG, -BIG): (1, 0),
            (-INF, 0): (0, 1),
            (-INF, -INF): (0.5, 0.5),
            (INF, INF): (0.5, 0.5),
            (1, INF): (0, 1),
        },
    ),
    "hypot": (
        ops.hypot,
        {(0, 0): (0, 0), (3, 4): (0.6, 0.8), (3 * BIG, -4 * BIG): (0.6, -0.8)},
    ),
    "atan2": (ops.atan2, {(0, 0): (0, 0), (1, 1): (0.5, -0.5), (0, -2): (-0.5, 0)}),
    "copysign": (ops.copysign, {(0, 1): (0, 0), (2, -1): (-1, 0), (-2, -0.0): (1, 0)}),
    "heaviside": (ops.heaviside, {(0, 0.5): (0, 1), (1, 0.5): (0, 0)}),
    "remainder": (ops.remainder, {(4, 2): (1, -2), (-4, 2): (1, 2), (0, 3): (1, 0)}),
    "fmod": (ops.fmod, {(4, 2): (1, -2), (-5, 3): (1, 1), (0, 3): (1, 0)}),
    "floor_divide": (ops.floor_divide, {(4, 2): (0, 0), (1, 0): (0, 0), (INF, 1): (0, 0)}),
    "nextafter": (ops.nextafter, {(1, 2): (1, 0), (1, 1): (0, 0)}),
    "divide": (ops.divide, {(1, INF): (0, 0), (0, 2): (0.5, 0), (1, 0): (INF, -INF)}),
    "where": (lambda a, b: ops.where(a > b, a, b), {(1, 1): (0, 1), (INF, 0): (1, 0)}),
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_slopes_of_two(name: str) -> None:
    run, pairs = BINARY[name]
    inputs = list(zip(*pairs, strict=True))
    wanted = list(zip(*pairs.values(), strict=True))
    check(run, inputs, wanted)


def test_pow() -> None:
    """Zero as base and as exponent; negative bases have whole powers, and no slope by those."""
    pairs = {(0, 0): 0, (0, 1): 1, (0, 2): 0, (0, 0.5): INF, (-2, 2): -4, (-2, 3): 12, (-2, 0): 0}
    inputs = list(zip(*pairs, strict=True))
    exponents = np.array(inputs[1])
    check(
        lambda a: a ** ops.asarray(exponents.astype(a.dtype.numpy)).to_backend(a.backend),
        inputs[:1],
        [list(pairs.values())],
    )
    check(lambda a: a**2, [[0.0, -3.0]], [[0, -6]])
    check(lambda a: a**0, [[0.0, -3.0]], [[0, 0]])
    check(lambda a: a**1, [[0.0, -3.0]], [[1, 1]])
    bases = [0.0, 0.0, 2.0, 0.0]
    check(
        lambda b: ops.asarray(np.array(bases, b.dtype.numpy)).to_backend(b.backend) ** b,
        [[0.0, 2.0, 0.0, -1.0]],
        [[0, 0, math.log(2), -INF]],
    )


def test_clip() -> None:
    """The limits are part of the range; what limits has the gradient outside of it."""
    check(lambda x: ops.clip(x, -1, 2), [[-1.0, 2.0, 0.0, -3.0, 9.0, INF]], [[1, 1, 1, 0, 0, 0]])
    check(lambda x: ops.clip(x, max=2), [[2.0, 3.0]], [[1, 0]])
    check(
        ops.clip,
        [[0.0, 1.0, 2.0, 3.0, 4.0], [1.0] * 5, [3.0] * 5],
        [[0, 1, 1, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]],
    )
    check(ops.clip, [[5.0], [3.0], [1.0]], [[0], [0], [1]])  # the upper one wins


def test_infinite_slope_of_a_choice_stays_out() -> None:
    """What was not taken makes no NaN."""
    check(
        lambda x: ops.where(x > 0, ops.log(ops.where(x > 0, x, 1.0)), 0.0),
        [[0.0, 2.0]],
        [[0, 0.5]],
    )


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_infinite_slope_behind_relu_stays_out(backend: str) -> None:
    """MLX multiplies by zeros and ones: to choose takes it ten times as long, on its hottest op."""
    for taped in (False, True):
        (g,) = gradients(backend, lambda x: ops.sqrt(ops.relu(x)), [np.float32([-1, 4])], taped)
        np.testing.assert_array_equal(g, [0, 0.25])


# --- Shapes and dtypes --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "pow", "maximum",
                                  "minimum", "logaddexp", "hypot", "atan2", "remainder", "fmax",
                                  "copysign"])  # fmt: skip
def test_no_elements(name: str) -> None:
    """A row that is broadcast over nothing has a gradient of zeros."""
    run = getattr(ops, name)
    check(run, [np.zeros((0, 3)), np.ones(3)], [np.zeros((0, 3)), np.zeros(3)])


@pytest.mark.parametrize("name", ["exp", "tanh", "relu", "abs", "gelu", "softmax", "erf"])
def test_no_elements_of_one(name: str) -> None:
    check(getattr(ops, name), [np.zeros((0, 3))], [np.zeros((0, 3))])


HALVES: dict[str, Callable[[Tensor], Tensor]] = {
    "arithmetic": lambda x: ops.sum((x * 2 + 1) / (x + 3) - x**2),
    "curves": lambda x: ops.sum(ops.tanh(x) + ops.sigmoid(x) + ops.gelu(x) + ops.exp(x)),
    "choices": lambda x: ops.sum(ops.maximum(x, 1.0) + ops.where(x > 1, x, 0) + ops.clip(x, 0, 1)),
    "special": lambda x: ops.sum(ops.erf(x) + ops.lgamma(x) + ops.digamma(x)),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_stay_halves(name: str, backend: str, dtype: str) -> None:
    values = [0.5, 1.5, 2.0]
    exact = autodiff.grad(HALVES[name])(ops.asarray(values, dtype="float64")).numpy()
    with selection.use_backend(backend):
        x = ops.asarray(values, dtype=dtype)
        g = autodiff.grad(HALVES[name])(x)
        leaf = tensor.array(x, requires_grad=True)
        HALVES[name](leaf).backward()
    for found in (g, leaf.grad):
        assert found is not None
        assert str(found.dtype) == dtype
        # Some steps in eight bits each.
        np.testing.assert_allclose(
            found.astype("float64").numpy(), exact, rtol=0.05 if dtype == "bfloat16" else 0.01
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_complex_meets_real(backend: str) -> None:
    """The gradient of a real operand is real: dL/dx, without what the imaginary part would have."""
    with selection.use_backend(backend):
        z = ops.asarray([1 + 2j, -1j], dtype="complex64")
        x = ops.asarray([2.0, 3.0])
        gz, gx = autodiff.grad(lambda z, x: ops.sum(ops.real(z * x * z)), argnums=(0, 1))(z, x)
    assert (str(gz.dtype), str(gx.dtype)) == ("complex64", "float32")
    np.testing.assert_allclose(gz.numpy(), np.conj(2 * z.numpy() * x.numpy()), rtol=1e-6)
    np.testing.assert_allclose(gx.numpy(), np.real(z.numpy() ** 2), rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_directions_and_sizes_of_complex_zero(backend: str) -> None:
    with selection.use_backend(backend):
        z = ops.asarray([0j, 3 + 4j], dtype="complex64")
        g = autodiff.grad(lambda z: ops.sum(ops.abs(z)))(z)
        turn = autodiff.grad(lambda z: ops.sum(ops.imag(ops.sign(z))))(z)
    np.testing.assert_allclose(g.numpy(), [0, 0.6 + 0.8j], rtol=1e-6)
    np.testing.assert_allclose(turn.numpy(), [0, (-0.8 + 0.6j) * 0.6 / 5], rtol=1e-5)
