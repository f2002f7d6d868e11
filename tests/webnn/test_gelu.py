"""gelu, whose order of evaluation the platform's values decide: what it gives everywhere else."""

from math import sqrt

import numpy as np
import pytest
import scipy.special

from ember_ml.webnn import ML, MLGraphBuilder, MLTypeError
from tests.webnn import wpt
from tests.webnn.calls import compute

executors = pytest.mark.parametrize("executor", [*wpt.EXECUTORS, "torch", "jax", "mlx"])
data_types = pytest.mark.parametrize("data_type", ["float32", "float16"])


@executors
@data_types
def test_error_beside_the_rounding_of_the_result(executor, data_type):
    x = np.linspace(-10, 10, 200_001).astype(data_type)
    wide = x.astype(np.float64)
    exact = wide * scipy.special.ndtr(wide)
    made = compute(executor, "gelu", x)
    assert made.dtype == data_type
    rounding = np.spacing(np.abs(exact).astype(data_type)).astype(np.float64) / 2
    # JAX's own erf of float32 is off by up to 3.2e-7, that of the others by 1.5e-7 at most.
    allowed = 1e-6 if executor == "jax" else 3e-7
    assert (np.abs(made - exact) - rounding).max() <= allowed


@executors
@data_types
def test_far_from_zero_and_at_it(executor, data_type):
    most = np.finfo(data_type).max
    x = np.array([np.inf, -np.inf, np.nan, most, -most, 0.0, -0.0], data_type)
    # At -inf the formula is -inf * 0.
    expected = np.array([np.inf, np.nan, np.nan, most, -0.0, 0.0, -0.0], data_type)
    made = compute(executor, "gelu", x)
    np.testing.assert_array_equal(made, expected, strict=True)
    assert np.signbit(made[-3:]).tolist() == [True, False, True]


@executors
@data_types
@pytest.mark.parametrize("shape", [(), (1,), (2, 1, 3)])
def test_shapes(executor, data_type, shape):
    made = compute(executor, "gelu", np.full(shape, -1.0, data_type))
    expected = np.full(shape, -0.15865525, data_type)
    np.testing.assert_allclose(made, expected, rtol=1e-3, strict=True)


def test_errors_name_the_label():
    builder = MLGraphBuilder(ML().create_context(backend="numpy"))
    x = builder.input("x", {"data_type": "int32", "shape": [2]})
    with pytest.raises(MLTypeError, match=r"^\[head\] gelu: "):
        builder.gelu(x, label="head")
    made = builder.gelu(builder.cast(x, "float16"), label="head")
    nodes = builder.build({"y": made}).graph.nodes
    assert {node.label for node in nodes if node.op in ("Erf", "Sub", "Mul", "Div")} == {"head"}


@data_types
def test_onnx_runtime_does_not_fuse_it(tmp_path, data_type):
    import onnx

    def kept(name, function):
        """The operators that ONNX Runtime makes of a function of a builder and an input."""
        builder = MLGraphBuilder(
            ML().create_context(backend="onnxruntime", threads=1, cache=tmp_path / name)
        )
        x = builder.input("x", {"data_type": data_type, "shape": [2, 3]})
        builder.build({"y": function(builder, x)})
        (path,) = (tmp_path / name).glob("*.onnx")
        return {node.op_type for node in onnx.load(path).graph.node}

    def textbook(builder, x):
        half, one, root = (builder.constant(data_type, n) for n in (0.5, 1, sqrt(2)))
        above = builder.add(builder.erf(builder.div(x, root)), one)
        return builder.mul(builder.mul(x, above), half)

    assert "Gelu" not in kept("ours", lambda builder, x: builder.gelu(x))
    assert "Erf" in kept("ours", lambda builder, x: builder.gelu(x))
    if data_type == "float32":  # the other order is fused, or this test would see nothing
        assert "Gelu" in kept("textbook", textbook)
