"""Ops along an axis whose size varies, in places in order, in steps, and by the size itself."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.graph import export

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def _total(function: Any) -> Any:
    """The gradient of the sum of squares of what a function gives."""
    return em.grad(lambda x: ops.sum(function(x) ** 2))


def _whole(x: Any, scale: int = 100000) -> Any:
    return (x * scale).astype("int64")


# Functions of x with the shape (n, 2), where n varies.
FUNCTIONS: Final[dict[str, Any]] = {
    "median": lambda x: ops.median(x, axis=0),
    "median-of-all": ops.median,
    "quantile": lambda x: ops.quantile(x, [0.1, 0.5, 0.77], axis=0),
    "quantile-kept": lambda x: ops.quantile(
        x, 0.3, axis=0, keepdims=True, method="median_unbiased"
    ),
    "quantile-nearest": lambda x: ops.quantile(x, 0.3, axis=0, method="nearest"),
    "percentile": lambda x: ops.percentile(x, 30, axis=(0, 1)),
    "gradient-of-median": _total(lambda x: ops.median(x, axis=0)),
    "gradient-of-quantile": _total(lambda x: ops.quantile(x, [0.1, 0.5, 0.77], axis=0)),
    "gradient-of-percentile": _total(lambda x: ops.percentile(x, 33, axis=0)),
    "linspace-to-size": lambda x: ops.linspace(0, x.shape[0], 5),
    "linspace-from-ratio": lambda x: ops.linspace(x.shape[0] / 2, -3, 5, endpoint=False),
    "linspace-by-size": lambda x: ops.linspace(x.shape[0], 1, x.shape[0]),
    "linspace-whole": lambda x: ops.linspace(0, x.shape[0] * 3, 5, dtype="int64"),
    "linspace-of-one": lambda x: ops.linspace(x.shape[0], 2 * x.shape[0], 1),
    "linspace-of-none": lambda x: ops.linspace(x.shape[0], 2 * x.shape[0], 0),
    "repeat-by-size": lambda x: ops.repeat(x, x.shape[0], axis=0),
    "repeat-columns": lambda x: ops.repeat(x, x.shape[0], axis=1),
    "repeat-flat": lambda x: ops.repeat(x, x.shape[0]),
    "repeat-constant": lambda x: ops.repeat(ops.asarray([1.0, 2.0]), x.shape[0]),
    "gradient-of-repeat": _total(lambda x: ops.repeat(x, x.shape[0], axis=1)),
    "one-hot": lambda x: ops.one_hot(ops.argsort(x[:, 0]), x.shape[0]),
    "one-hot-first": lambda x: ops.one_hot(
        ops.arange(x.shape[0]), x.shape[0] + 1, axis=0, dtype="int32"
    ),
    "one-hot-values": lambda x: ops.one_hot([0, 0], x.shape[0], on_value=5.0, off_value=-1.0),
    "cumulative-prod": lambda x: ops.cumulative_prod(x, axis=0),
    "cumulative-prod-flat": lambda x: ops.cumulative_prod(x.reshape(-1), include_initial=True),
    "cumulative-prod-whole": lambda x: ops.cumulative_prod(_whole(x, 1000), axis=0),
    "cumulative-prod-of-rest": lambda x: ops.cumulative_prod(_whole(x, 10)[1:], axis=0),
    "gradient-of-cumulative-prod": _total(lambda x: ops.cumulative_prod(x, axis=0)),
    "gradient-of-cumulative-prod-across": _total(lambda x: ops.cumulative_prod(x.T, axis=1)),
    "gradient-of-prod": _total(lambda x: ops.prod(x, axis=0)),
    "gradient-of-prod-of-zeros": _total(lambda x: ops.prod(ops.relu(x), axis=0)),
    "gradient-of-prod-of-all": _total(ops.prod),
    "gradient-of-vmap": _total(lambda x: ops.vmap(lambda row: ops.sum(row * row) - row)(x)),
    "gradient-of-vmap-whole-too": _total(
        lambda x: ops.vmap(lambda row, w: ops.tanh(row @ w), in_axes=(0, None))(x, x.T @ x)
    ),
    "gradient-of-vmap-around": _total(lambda x: ops.vmap(lambda row: ops.exp(row) * x.mean())(x)),
    "gradient-of-map": _total(lambda x: ops.map_fn(lambda row: ops.sum(row * row) * row, x)),
    "gradient-of-scan": _total(
        lambda x: ops.scan(lambda c, row: (c * row + ops.sin(c), c - row), x[0], x)[1]
    ),
    "gradient-of-scan-back": _total(
        lambda x: ops.scan(lambda c, row: (c * row + ops.sin(c), c), x[0], x, reverse=True)[0]
    ),
    "gradient-of-scan-that-counts": _total(
        lambda x: ops.scan(
            lambda c, row: ((c[0] + 1, c[1] * row), row * c[0]), (ops.asarray(0), x[0]), x
        )[1]
    ),
    "second-gradient-of-map": _total(
        _total(lambda x: ops.map_fn(lambda row: ops.sum(row * row) * row * 0.1, x))
    ),
    "second-gradient-of-map-around": _total(
        _total(lambda x: ops.map_fn(lambda row: ops.sin(row) * x.mean(), x))
    ),
    "gradient-of-nested-vmap": _total(
        lambda x: ops.vmap(lambda a: ops.vmap(lambda b: ops.sum(ops.sin(a * b)))(x))(x)
    ),
    # ONNX Runtime's own product is that of float64.
    "prod-whole": lambda x: ops.prod(_whole(x), axis=0),
    "prod-whole-kept": lambda x: ops.prod(_whole(x), axis=(0, 1), keepdims=True),
    "prod-bytes": lambda x: ops.prod(abs(_whole(x, 20)).astype("uint8"), axis=0),
    "prod-of-rest": lambda x: ops.prod(_whole(x)[1:], axis=0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_the_eager_function_at_all_sizes(name: str) -> None:
    function, random = FUNCTIONS[name], np.random.default_rng(0)
    example = random.standard_normal((4, 2)).astype(np.float32)
    graph = export(function, example, dynamic_axes={"x": {0: "n"}})
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    for n in (1, 2, 5, 8):
        x = random.standard_normal((n, 2)).astype(np.float32)
        wanted = ops.asarray(function(ops.asarray(x))).numpy()
        (got,) = graph.run({"x": x}).values()
        (again,) = graph.run({"x": x}, backend="numpy").values()
        for found in (got, again.numpy()):
            assert found.dtype == wanted.dtype
            assert found.shape == wanted.shape
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(found, wanted)


def test_products_beyond_53_bits_are_exact() -> None:
    graph = export(
        lambda x: (ops.prod(x), ops.cumulative_prod(x)),
        np.array([3, 5, 7]),
        dynamic_axes={"x": {0: "n"}},
    )
    x = np.array([2**31 - 1, 2**30 - 35, 3])
    exact = (2**31 - 1) * (2**30 - 35) * 3
    whole, running = graph.run({"x": x}).values()
    assert whole.tolist() == exact
    assert running.tolist() == [2**31 - 1, (2**31 - 1) * (2**30 - 35), exact]
