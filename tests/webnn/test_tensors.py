"""Tensors: what they are, and that what is written is what is read, bit by bit."""

import array
import copy
import gc
import pickle
import warnings
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ember_ml import webnn
from ember_ml.graph.types import numpy_dtype
from ember_ml.webnn import (
    ML,
    InvalidStateError,
    MLGraphBuilder,
    MLTensorDescriptor,
    MLTypeError,
    NotSupportedError,
)
from ember_ml.webnn import graph as graph_module
from ember_ml.webnn.descriptors import DATA_TYPES, byte_length

CONTEXTS = {}


@pytest.fixture(params=["onnxruntime", "numpy", "torch", "jax", "mlx"])
def context(request):
    if request.param not in CONTEXTS:
        CONTEXTS[request.param] = ML().create_context(backend=request.param)
    return CONTEXTS[request.param]


@pytest.fixture
def ort():
    return CONTEXTS.setdefault("onnxruntime", ML().create_context())


# --- What they are ------------------------------------------------------------------------------


def test_device_tensor_is_default(context):
    tensor = context.create_tensor([2, 3], "float32")
    assert isinstance(tensor, webnn.MLDeviceTensor)
    assert not tensor.readable
    assert not tensor.writable
    assert (tensor.data_type, tensor.shape, tensor.byte_length) == ("float32", (2, 3), 24)


def test_host_tensor_explicit(context):
    tensor = context.create_tensor([2, 3], "float32", readable=True, writable=True)
    assert isinstance(tensor, webnn.MLTensor)
    assert not isinstance(tensor, webnn.MLDeviceTensor)
    assert tensor.readable
    assert tensor.writable


def test_host_tensor_convenience(context):
    tensor = context.create_host_tensor([2, 3], "float32")
    assert isinstance(tensor, webnn.MLTensor)
    assert tensor.readable
    assert tensor.writable


def test_old_names_work_and_warn(ort):
    builder = MLGraphBuilder(ort)
    x = builder.input("x", {"data_type": "float32", "shape": [2]})
    graph = builder.build({"y": builder.abs(x)})
    with pytest.warns(DeprecationWarning, match="create_device_tensor"):
        tensor = ort.create_device_tensor(graph, [2, 3], "float32")
    assert isinstance(tensor, webnn.MLDeviceTensor)
    with pytest.warns(DeprecationWarning, match="create_tensor_for_graph") as caught:
        tensor = ort.create_tensor_for_graph(graph, [2, 3], "int8")
    assert caught[0].filename == __file__
    assert (tensor.data_type, tensor.shape) == ("int8", (2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(MLTypeError, match="a graph of this context"):
            ort.create_device_tensor(None, [2], "float32")
        with pytest.raises(NotSupportedError, match="this context is on 'cpu'"):
            ort.create_device_tensor(graph, [2], "float32", "gpu")


@pytest.mark.parametrize(
    "descriptor",
    [
        MLTensorDescriptor("int64", (4,), readable=True),
        {"data_type": "int64", "shape": (4,), "readable": True},
        {"dataType": "int64", "shape": [4], "readable": True},
    ],
)
def test_descriptors(ort, descriptor):
    tensor = ort.create_tensor(descriptor)
    assert (tensor.data_type, tensor.shape, tensor.readable, tensor.writable) == (
        "int64",
        (4,),
        True,
        False,
    )
    made = ort.create_tensor(shape=np.array([4]), data_type="int64", readable=True)
    assert (made.shape, made.readable) == ((4,), True)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (([2, 3],), "data_type"),
        (([2, 3], "float64"), "no data type 'float64'"),
        (([2, 0], "float32"), "size 0"),
        (([-1], "float32"), "from 0"),
        (([1.5], "float32"), "integers"),
        (("22", "float32"), "sequence"),
        ((b"22", "float32"), "sequence"),
        ((np.array(3), "float32"), "sequence"),
        ((np.array([[3]]), "float32"), "sequence"),
        (([True], "float32"), "integers"),
        (([2**40], "float32"), "from 0 to"),
        (({"data_type": "int8", "shape": [1], "readble": True},), "no 'readble'"),
        (({"data_type": "int8", "shape": [1], "readable": "no"},), "readable is True or False"),
        (({"data_type": "int8"},), "data_type and shape"),
        (([1], "int8", 1), "readable is True or False"),
        ((None, "float32"), "data_type and shape"),
        (([1] * 9, "float32"), "8 are the most"),
        (([2**31], "float32"), "bytes"),
        (({"data_type": "int8", "shape": [1]}, "int8"), "alone"),
    ],
)
def test_wrong_descriptors(ort, given, text):
    with pytest.raises(MLTypeError, match=text) as caught:
        ort.create_tensor(*given)
    assert str(caught.value).startswith("create_tensor: ")


def test_two_shapes_are_one_too_many(ort):
    with pytest.raises(MLTypeError, match="one data_type and shape"):
        ort.create_tensor([2], "float32", shape=[3])
    with pytest.raises(MLTypeError, match="one data_type and shape"):
        ort.create_tensor()
    with pytest.raises(NotSupportedError, match="WebGPU"):
        ort.create_tensor([1], "int8", exportable_to_gpu=True)


@pytest.mark.parametrize("data_type", DATA_TYPES)
def test_tensors_begin_with_zeros(context, data_type):
    for _ in range(3):  # memory that was given back is not zero by itself
        tensor = context.create_tensor([3, 5], data_type, readable=True, writable=True)
        made = context.read_tensor(tensor)
        assert made.dtype == numpy_dtype(data_type)
        assert made.shape == (3, 5)
        assert not made.astype(np.float64).any()
        context.write_tensor(tensor, np.full(tensor.byte_length, 0xFF, np.uint8))


# --- Exactly ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        np.array([2**40 + 1, -(2**63), 2**63 - 1, 0]),
        np.array([2**64 - 1, 2**63 + 1, 2**53 + 1], np.uint64),
        np.array([np.nan, -0.0, np.inf, 65504, 6e-8], np.float16),
        np.array([np.nan, -0.0, -np.inf, 1e-45, 3.4e38], np.float32),
        np.array([-(2**31), 2**31 - 1], np.int32),
        np.array([2**32 - 1, 0], np.uint32),
        np.array([-8, 7, -1, 0, 3]).astype(ml_dtypes.int4),
        np.array([15, 0, 8, 7, 1]).astype(ml_dtypes.uint4),
    ],
    ids=lambda x: x.dtype.name,
)
def test_values_are_exact(context, values):
    tensor = context.create_host_tensor(values.shape, values.dtype.name)
    context.write_tensor(tensor, values)
    made = context.read_tensor(tensor)
    assert made.dtype == values.dtype
    assert made.tobytes() == values.tobytes()


@pytest.mark.parametrize("data_type", DATA_TYPES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_what_is_written_is_read(data_type, data):
    context = CONTEXTS.setdefault("onnxruntime", ML().create_context())
    shape = data.draw(npst.array_shapes(min_dims=0, max_dims=4, max_side=4))
    size = byte_length(data_type, shape)
    raw = bytearray(data.draw(st.binary(min_size=size, max_size=size)))
    if data_type.endswith("int4") and np.prod(shape) % 2:
        raw[-1] &= 0x0F  # the half of a byte that belongs to no element
    tensor = context.create_host_tensor(shape, data_type)
    context.write_tensor(tensor, bytes(raw))
    made = context.read_tensor(tensor)
    assert (made.dtype, made.shape) == (numpy_dtype(data_type), shape)
    again = context.create_host_tensor(shape, data_type)
    context.write_tensor(again, made)
    filled = bytearray(size)
    assert context.read_tensor(again, filled) is None
    assert filled == raw


def test_packed_integers_begin_in_the_low_half(context):
    tensor = context.create_host_tensor([3], "int4")
    context.write_tensor(tensor, bytes([0x21, 0x0F]))
    assert context.read_tensor(tensor).tolist() == [1, 2, -1]
    context.write_tensor(tensor, np.array([0x43, 0x05], np.uint8))
    assert context.read_tensor(tensor).tolist() == [3, 4, 5]
    context.write_tensor(tensor, [-8, 7, 0])
    packed = np.zeros(2, np.uint8)
    context.read_tensor(tensor, packed)
    assert packed.tolist() == [0x78, 0x00]
    each = np.zeros(3, ml_dtypes.int4)
    context.read_tensor(tensor, each)
    assert each.tolist() == [-8, 7, 0]


# --- What is written ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        [[1, 2], [3, 4]],
        (1, 2, 3, 4),
        np.array([[1, 2], [3, 4]], np.int32),
        np.array([1, 2, 3, 4], np.int32),
        np.array([[1, 3], [2, 4]], np.int32).T,
        np.array([1, 2, 3, 4], np.uint32),
        np.array([1, 2, 3, 4], np.int32).view(np.uint8),
        np.array([1, 2, 3, 4], np.int32).tobytes(),
        bytearray(np.array([1, 2, 3, 4], np.int32).tobytes()),
        memoryview(np.array([[1, 2], [3, 4]], np.int32)),
        array.array("i", [1, 2, 3, 4]),
    ],
    ids=lambda x: type(x).__name__,
)
def test_kinds_of_data(context, given):
    tensor = context.create_host_tensor([2, 2], "int32")
    context.write_tensor(tensor, given)
    assert context.read_tensor(tensor).tolist() == [[1, 2], [3, 4]]


def test_tensors_of_ember_ml_are_data(ort):
    from ember_ml import ops

    tensor = ort.create_host_tensor([2], "float32")
    ort.write_tensor(tensor, ops.asarray([1.0, 2.0]))
    assert ort.read_tensor(tensor).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("data_type", "given", "text"),
    [
        ("float32", np.zeros((2, 2)), "float64"),
        ("float32", np.zeros((2, 2), np.int32), "int32"),
        ("int32", np.zeros((2, 2), np.float32), "float32"),
        ("uint8", np.zeros((2, 2), np.int8), "int8"),
        ("uint8", np.zeros((2, 2), bool), "bool"),
        ("float16", np.zeros((2, 2), ml_dtypes.bfloat16), "bfloat16"),
        ("float32", np.zeros((4, 1), np.float32), "shape"),
        ("float32", np.zeros(5, np.float32), "shape"),
        ("float32", b"", "0 bytes came"),
        ("float32", b"123", "3 bytes came"),
        ("int8", [1, 2, 3, 300], "no int8 numbers"),
        ("int8", [1, 2, 3, 0.5], "integers"),
        ("int4", [1, 2, 3, 8], "-8 to 7"),
        ("float32", [[1], [2, 3]], "numbers"),
        ("float32", [None] * 4, "takes numbers"),
        ("float32", [True] * 4, "takes numbers"),
        ("float32", [1j] * 4, "takes numbers"),
        ("float32", ["1"] * 4, "takes numbers"),
        ("float32", [10**400] * 4, "no float32 numbers"),
        ("int64", [2**70] * 4, "no int64 numbers"),
        ("int64", [2**63, 1, 2, 3], "no int64 numbers"),
        ("uint64", [2**63, 1, 2, 0.5], "takes integers"),
        ("uint64", [2**63, 1, 2, -1], "no uint64 numbers"),
        ("int4", [], r"shape \(0,\)"),
        ("float32", "text", "give bytes"),
        ("float32", None, "give bytes"),
        ("float32", object(), "give bytes"),
    ],
)
def test_wrong_data(ort, data_type, given, text):
    tensor = ort.create_host_tensor([2, 2], data_type)
    before = ort.read_tensor(tensor)
    with pytest.raises(MLTypeError, match=text) as caught:
        ort.write_tensor(tensor, given)
    assert str(caught.value).startswith("write_tensor: ")
    assert ort.read_tensor(tensor).tobytes() == before.tobytes()


@pytest.mark.parametrize(
    "numbers", [[2**63, 1], [[2**64 - 1, 0]], (2**53 + 1, 2**64 - 1), [np.uint64(2**63), 1]]
)
def test_lists_of_unsigned_integers_of_any_size(context, numbers):
    descriptor = {"data_type": "uint64", "shape": np.shape(numbers)}
    tensor = context.create_tensor({**descriptor, "readable": True, "writable": True})
    context.write_tensor(tensor, numbers)
    assert context.read_tensor(tensor).tolist() == np.array(numbers, np.uint64).tolist()

    builder = MLGraphBuilder(context)
    graph = builder.build({"y": builder.identity(builder.constant(descriptor, numbers))})
    made = context.create_tensor({**descriptor, "readable": True})
    context.dispatch(graph, {}, {"y": made})
    assert context.read_tensor(made).tolist() == np.array(numbers, np.uint64).tolist()


def test_floats_that_are_too_large_become_infinite(ort):
    tensor = ort.create_host_tensor([2], "float32")
    ort.write_tensor(tensor, [1e300, -(2**200)])
    assert ort.read_tensor(tensor).tolist() == [np.inf, -np.inf]


def test_tensors_that_give_no_array(ort):
    torch = pytest.importorskip("torch")
    tensor = ort.create_host_tensor([2], "float32")
    with pytest.raises(MLTypeError, match=r"Tensor.numpy\(\) failed: .*requires grad"):
        ort.write_tensor(tensor, torch.ones(2, requires_grad=True))


def test_data_stay_the_callers_own(context):
    mine = np.array([1, 2], np.int32)
    tensor = context.create_host_tensor([2], "int32")
    context.write_tensor(tensor, mine)
    mine[:] = 7
    made = context.read_tensor(tensor)
    made[:] = 9
    assert context.read_tensor(tensor).tolist() == [1, 2]


# --- What is filled -----------------------------------------------------------------------------


def test_larger_buffers_keep_their_end(context):
    tensor = context.create_host_tensor([2], "int32")
    context.write_tensor(tensor, [1, 2])
    for buffer in (np.full(3, 9, np.int32), np.full(3, 9, np.uint32), array.array("i", [9] * 3)):
        context.read_tensor(tensor, buffer)
        assert list(buffer) == [1, 2, 9]
    buffer = bytearray(b"\xff" * 9)
    context.read_tensor(tensor, memoryview(buffer)[:8])
    assert buffer == bytes([1, 0, 0, 0, 2, 0, 0, 0, 255])


@pytest.mark.parametrize(
    ("buffer", "text"),
    [
        (bytes(8), "writable"),
        (np.zeros(4, np.int32)[::2], "contiguous"),
        (bytearray(7), "7 bytes"),
        (bytearray(), "0 bytes"),
        (np.zeros(1, np.int32), "1 elements"),
        (np.zeros(2, np.float32), "float32"),
        (np.zeros(2, ">i4"), ">i4"),
        (np.zeros((2, 2), np.int32).T, "contiguous"),
        (memoryview(bytes(8)), "writable"),
        ("text", "to be filled"),
        ([0, 0], "to be filled"),
    ],
)
def test_wrong_buffers(ort, buffer, text):
    tensor = ort.create_host_tensor([2], "int32")
    with pytest.raises(MLTypeError, match=text):
        ort.read_tensor(tensor, buffer)


# --- Access and life ----------------------------------------------------------------------------


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
def test_nothing_of_a_context_is_copied(ort, again):
    builder = MLGraphBuilder(ort)
    x = builder.input("x", {"data_type": "float32", "shape": [1]})
    graph = builder.build({"y": builder.abs(x)})
    for one in (ort, ort.create_tensor([1], "float32"), builder, x, graph):
        with pytest.raises(MLTypeError, match=f"^{type(one).__name__} belongs to its context"):
            again(one)


def test_access(ort):
    device = ort.create_tensor([2], "int32")
    with pytest.raises(MLTypeError, match="not readable"):
        ort.read_tensor(device)
    with pytest.raises(MLTypeError, match="not writable"):
        ort.write_tensor(device, [1, 2])
    other = ML().create_context()
    for call in (ort.read_tensor, lambda x: ort.write_tensor(x, [1])):
        with pytest.raises(MLTypeError, match="another MLContext"):
            call(other.create_host_tensor([1], "int32"))
        with pytest.raises(MLTypeError, match="give an MLTensor"):
            call(None)


def test_destroyed(ort):
    tensor = ort.create_host_tensor([2], "int32")
    tensor.destroy()
    tensor.destroy()
    with pytest.raises(InvalidStateError, match="destroyed"):
        ort.read_tensor(tensor)
    with pytest.raises(InvalidStateError, match="destroyed"):
        ort.write_tensor(tensor, [1, 2])
    assert "destroyed" in repr(tensor)


def test_prepared_dispatches_keep_no_tensor_alive(ort):
    builder = MLGraphBuilder(ort)
    graph = builder.build(
        {"y": builder.abs(builder.input("x", {"dataType": "int32", "shape": []}))}
    )
    x, y = ort.create_tensor([], "int32"), ort.create_tensor([], "int32")
    ort.dispatch(graph, {"x": x}, {"y": y})
    assert len(graph._prepared) == 1
    gone = weakref.ref(y)
    del y
    gc.collect()
    assert gone() is None
    assert not graph._prepared
    z = ort.create_tensor([], "int32")
    ort.dispatch(graph, {"x": x}, {"y": z})
    x.destroy()
    assert not graph._prepared


def test_a_tensor_forgets_dispatches_with_others_that_are_gone(ort):
    builder = MLGraphBuilder(ort)
    graph = builder.build(
        {"y": builder.abs(builder.input("x", {"dataType": "int32", "shape": []}))}
    )
    x = ort.create_tensor([], "int32")
    for _ in range(300):
        ort.dispatch(graph, {"x": x}, {"y": ort.create_tensor([], "int32")})
    assert len(x._uses) <= 64
    assert len(graph._prepared) == 0
    kept = [ort.create_tensor([], "int32") for _ in range(100)]
    for y in kept:
        ort.dispatch(graph, {"x": x}, {"y": y})
    assert len(graph._prepared) == 100


def test_the_oldest_of_too_many_prepared_dispatches_goes(ort, monkeypatch):
    monkeypatch.setattr(graph_module, "MOST_PREPARED", 5)
    builder = MLGraphBuilder(ort)
    x = builder.input("x", {"dataType": "int32", "shape": []})
    graph = builder.build({"y": builder.add(x, builder.constant("int32", 1))})
    pool = [ort.create_host_tensor([], "int32") for _ in range(4)]
    pairs = [(a, b) for a in pool for b in pool if a is not b]
    for step, (a, b) in enumerate(2 * pairs):
        ort.write_tensor(a, [step])
        ort.dispatch(graph, {"x": a}, {"y": b})
        assert ort.read_tensor(b) == step + 1
        assert len(graph._prepared) <= 5
    before = ort.statistics.prepared
    ort.dispatch(graph, {"x": pool[3]}, {"y": pool[2]})
    assert ort.statistics.prepared == before
    pool.clear()
    del a, b, pairs
    gc.collect()
    assert not graph._prepared


def test_constant_tensors(ort):
    mine = np.array([1, 2, 3], np.float32)
    tensor = ort.create_constant_tensor({"dataType": "float32", "shape": [3]}, mine)
    mine[:] = 0
    assert tensor.constant
    assert isinstance(tensor, webnn.MLDeviceTensor)
    with pytest.raises(MLTypeError, match="not readable"):
        ort.read_tensor(tensor)
    builder = MLGraphBuilder(ort)
    graph = builder.build({"y": builder.abs(builder.constant(tensor))})
    tensor.destroy()
    y = ort.create_tensor([3], "float32", readable=True)
    ort.dispatch(graph, {}, {"y": y})
    assert ort.read_tensor(y).tolist() == [1, 2, 3]
    with pytest.raises(MLTypeError, match="constant tensor"):
        ort.dispatch(
            graph,
            {},
            {"y": ort.create_constant_tensor({"dataType": "float32", "shape": [3]}, mine)},
        )
    with pytest.raises(MLTypeError, match="create_constant_tensor: 4 bytes"):
        ort.create_constant_tensor({"dataType": "float32", "shape": [3]}, b"1234")
