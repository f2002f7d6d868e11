"""Graphs with quantisation mean what they say, whatever ONNX Runtime makes of them."""

import numpy as np
import pytest

from ember_ml.graph.types import numpy_dtype
from ember_ml.webnn import MLGraphBuilder
from tests.webnn.calls import make_context

ENDS = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255)}


def rounded(x, scale, zero, data_type):
    """What is left of numbers that are quantised and back."""
    low, high = ENDS[data_type]
    steps = np.clip(np.rint(np.asarray(x, np.float32) / np.float32(scale)) + zero, low, high)
    return (steps - zero) * np.asarray(scale, np.float64)


def run(write, *feeds, executor="onnxruntime"):
    """What a graph gives: `write(builder, operands)` gives its outputs by name."""
    context = make_context(executor)
    builder = MLGraphBuilder(context)
    given = {f"x{place}": array for place, array in enumerate(feeds)}
    operands = [
        builder.input(name, {"data_type": x.dtype.name, "shape": x.shape})
        for name, x in given.items()
    ]
    graph = builder.build(write(builder, *operands))
    inputs = {name: context.create_host_tensor(x.shape, x.dtype.name) for name, x in given.items()}
    for name, tensor in inputs.items():
        context.write_tensor(tensor, given[name])
    outputs = {
        name: context.create_host_tensor(x.shape, x.data_type)
        for name, x in graph.output_descriptors.items()
    }
    context.dispatch(graph, inputs, outputs)
    return {name: context.read_tensor(tensor) for name, tensor in outputs.items()}


def there_and_back(builder, x, scale, zero, data_type):
    """x quantised and dequantised, with one step for all or those of an array."""
    shape = np.shape(scale) or (1,) * len(x.shape)
    steps = np.broadcast_to(np.asarray(scale, x.data_type), shape)
    s = builder.constant({"data_type": x.data_type, "shape": shape}, steps)
    z = builder.constant({"data_type": data_type, "shape": shape}, np.full(shape, zero).tolist())
    return builder.dequantize_linear(builder.quantize_linear(x, s, z), s, z)


NUMBERS = np.array([[-3, -2, -1, -0.5], [0.5, 1, 2, 3]], np.float32)


@pytest.mark.parametrize("data_type", ENDS)
@pytest.mark.parametrize("zero", [0, 1, 5])
def test_relu_before_a_quantisation(data_type, zero):
    made = run(
        lambda b, x: {"y": there_and_back(b, b.relu(x), 0.5, zero, data_type)},
        NUMBERS,
    )
    expected = rounded(np.maximum(NUMBERS, 0), 0.5, zero, data_type)
    np.testing.assert_allclose(made["y"], expected, atol=1e-6)


@pytest.mark.parametrize("data_type", ENDS)
def test_dequantised_and_quantised_again(data_type):
    codes = np.arange(6).astype(numpy_dtype(data_type)).reshape(2, 3)

    def write(b, x):
        s = b.constant({"data_type": "float32", "shape": [1, 1]}, [0.5])
        z = b.constant({"data_type": data_type, "shape": [1, 1]}, [1])
        return {"y": b.quantize_linear(b.dequantize_linear(x, s, z), s, z)}

    made = run(write, codes)["y"]
    assert made.dtype == codes.dtype
    assert made.tolist() == codes.tolist()


@pytest.mark.parametrize("data_type", ENDS)
def test_windows_between_quantisations(data_type):
    image = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)

    def write(b, x):
        x = there_and_back(b, x, 0.5, 3, data_type)
        y = b.max_pool2d(x, window_dimensions=[2, 2], strides=[2, 2])
        return {"y": there_and_back(b, y, 0.5, 3, data_type)}

    made = run(write, image)
    greatest = rounded(image, 0.5, 3, data_type).reshape(1, 2, 2, 2, 2, 2).max((3, 5))
    np.testing.assert_allclose(made["y"], greatest, atol=1e-6)


@pytest.mark.parametrize("data_type", ENDS)
def test_an_output_that_is_quantised_elsewhere_is_not_rounded(data_type):
    def write(b, x):
        y = b.exp(x)
        return {"y": y, "z": there_and_back(b, b.transpose(y), 0.5, 4, data_type)}

    made = run(write, NUMBERS)
    np.testing.assert_allclose(made["y"], np.exp(NUMBERS), rtol=1e-6)
    np.testing.assert_allclose(made["z"], rounded(np.exp(NUMBERS).T, 0.5, 4, data_type), atol=1e-5)


def test_two_quantisations_in_a_row():
    def write(b, x):
        once = there_and_back(b, x, 0.039, 135, "uint8")
        return {"y": there_and_back(b, once, 0.071, 132, "uint8")}

    x = np.random.default_rng(0).standard_normal((2, 50)).astype(np.float32)
    once = rounded(x, np.float32(0.039), 135, "uint8")
    expected = rounded(once, np.float32(0.071), 132, "uint8")
    np.testing.assert_allclose(run(write, x)["y"], expected, atol=1e-5)


@pytest.mark.parametrize("op", ["concat", "sigmoid", "softmax", "leaky_relu", "add", "average"])
def test_steps_by_axis_around_any_op(op):
    scales = np.array([[[[0.1]], [[0.2]], [[0.3]]]], np.float32)
    x = np.random.default_rng(0).standard_normal((1, 3, 4, 4)).astype(np.float32)

    def write(b, x):
        x = there_and_back(b, x, scales, 128, "uint8")
        y = {
            "concat": lambda: b.concat([x, x], 0),
            "softmax": lambda: b.softmax(x, 3),
            "add": lambda: b.add(x, x),
            "average": lambda: b.average_pool2d(x, window_dimensions=[2, 2]),
        }.get(op, lambda: getattr(b, op)(x))()
        return {"y": there_and_back(b, y, scales, 128, "uint8")}

    np.testing.assert_allclose(run(write, x)["y"], run(write, x, executor="numpy")["y"], atol=1e-5)


@pytest.mark.parametrize("data_type", ENDS)
@pytest.mark.parametrize("float_type", ["float32", "float16"])
@pytest.mark.parametrize("scales", [(1, 1), (1, 48), (2, 48)], ids=["one", "columns", "blocks"])
def test_quantised_weights_round_nothing_else(data_type, float_type, scales):
    draw = np.random.default_rng(0)
    x = draw.standard_normal((3, 64)).astype(float_type)
    low, high = ENDS[data_type]
    codes = draw.integers(low, high, (64, 48), endpoint=True)
    steps = (draw.random(scales) / 16 + 0.01).astype(float_type)
    zero = (low + high + 1) // 2

    def write(b, x):
        q = b.constant({"data_type": data_type, "shape": codes.shape}, codes.tolist())
        s = b.constant({"data_type": float_type, "shape": scales}, steps)
        z = b.constant({"data_type": data_type, "shape": scales}, np.full(scales, zero).tolist())
        return {"y": b.matmul(x, b.dequantize_linear(q, s, z))}

    wide = np.repeat(steps.astype(np.float64), 64 // scales[0], 0)
    expected = x.astype(np.float64) @ ((codes - zero) * wide)
    made = run(write, x)["y"]
    # Of 64 products, each rounded once: far less than 8 bits of x would leave.
    bound = 64 * np.finfo(float_type).eps * np.abs(expected).max()
    assert made.dtype == float_type
    assert np.abs(made - expected).max() < bound / (1 if float_type == "float32" else 16)
