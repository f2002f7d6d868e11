"""Inputs that do not fit, arguments that make no layer, and sizes that come with a first input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.errors import (
    AxisError,
    DomainError,
    DTypeError,
    EmberError,
    OutOfBoundsError,
    ShapeError,
    TraceError,
)

# What is made, what comes in, the error, and what its text must say.
WRONG: list[tuple[Callable[[], Any], tuple[Any, ...], type[EmberError], tuple[str, ...]]] = [
    (lambda: nn.Linear(3, 2), ((4, 5),), ShapeError, ("(4, 5)", "its last axis must be 3")),
    (lambda: nn.Linear(3, 2), ((),), ShapeError, ("shape ()", "must be 3")),
    (lambda: nn.Linear(None, 2), ((),), ShapeError, ("shape ()", "axis -1")),
    (lambda: nn.Dense(2, in_features=3), ((4, 5),), ShapeError, ("(4, 5)", "must be 3")),
    (lambda: nn.Bilinear(3, 4, 2), ((5, 3), (6, 4)), ShapeError, ("(5, 3)", "(6, 4)")),
    (lambda: nn.Bilinear(3, 4, 2), ((5, 4), (5, 4)), ShapeError, ("3 and 4",)),
    (lambda: nn.Embedding(5, 2), ([5],), OutOfBoundsError, ("num_embeddings=5",)),
    (lambda: nn.Embedding(5, 2), ((3,),), DTypeError, ("float32",)),
    (lambda: nn.PositionalEmbedding(4, 2), ((1, 5, 2),), ShapeError, ("5 places", "has 4")),
    (lambda: nn.PositionalEmbedding(4, 2), ((1, 3, 3),), ShapeError, ("(..., length, 2)",)),
    (lambda: nn.SinusoidalEmbedding(2), ((2,),), ShapeError, ("(..., length, 2)",)),
    (lambda: nn.Conv2d(3, 4, 3), ((1, 2, 8, 8),), ShapeError, ("3 channels", "2 spatial axes")),
    (lambda: nn.Conv2d(3, 4, 3), ((3, 8),), ShapeError, ("(3, 8)", "2 spatial axes")),
    (lambda: nn.Conv2d(None, 4, 3), ((3, 8),), ShapeError, ("(3, 8)", "2 spatial axes")),
    (lambda: nn.Conv1d(3, 4, 9), ((1, 3, 8),), ShapeError, ("a window of 9",)),
    (lambda: nn.Conv1d(3, 4, 3, padding=1, padding_mode="circular"), ((1, 1, 3, 8),), ShapeError,
     ("3 channels", "1 spatial axis")),
    (lambda: nn.Conv2d(3, 4, 3, data_format="channels_last"), ((1, 3, 8, 8),), ShapeError,
     ("2 spatial axes, 3 channels",)),
    (lambda: nn.ConvTranspose1d(3, 4, 3), ((1, 2, 8),), ShapeError, ("3 channels",)),
    (lambda: nn.MaxPool2d(2), ((8, 8),), ShapeError, ("(8, 8)", "2 spatial axes")),
    (lambda: nn.AvgPool1d(9), ((1, 3, 8),), ShapeError, ("a window of 9",)),
    (lambda: nn.AdaptiveAvgPool2d(2), ((3, 4),), ShapeError, ("(3, 4)",)),
    (lambda: nn.GlobalAvgPool(), ((3, 4),), ShapeError, ("samples, channels",)),
    (lambda: nn.LayerNorm(4), ((2, 3),), ShapeError, ("its last axes must be (4,)",)),
    (lambda: nn.RMSNorm((3, 4)), ((2, 4),), ShapeError, ("its last axes must be (3, 4)",)),
    (lambda: nn.RMSNorm(4, elementwise_affine=False), ((2, 3),), ShapeError, ("must be (4,)",)),
    (lambda: nn.GroupNorm(2, 4), ((2, 3, 5),), ShapeError, ("4 channels",)),
    (lambda: nn.GroupNorm(2, 4, affine=False), ((4,),), ShapeError, ("4 channels",)),
    (lambda: nn.BatchNorm1d(4), ((2, 3),), ShapeError, ("4 channels", "2 or 3 axes")),
    (lambda: nn.BatchNorm2d(4), ((2, 4, 3),), ShapeError, ("4 axes",)),
    (lambda: nn.BatchNorm(4), ((4,),), ShapeError, ("2 axes or more",)),
    (lambda: nn.BatchNorm1d(4), ((1, 4),), ShapeError, ("(1, 4)", "two values or more")),
    (lambda: nn.InstanceNorm2d(4), ((2, 3, 5, 5),), ShapeError, ("4 channels",)),
    (lambda: nn.InstanceNorm1d(4), ((2, 4, 1),), ShapeError, ("two values or more",)),
    (lambda: nn.Dropout2d(), ((2, 3),), ShapeError, ("2 spatial axes",)),
    (lambda: nn.DropPath(0.5), ((),), AxisError, ("DropPath(p=0.5)",)),
    (lambda: nn.PReLU(3), ((2, 4),), ShapeError, ("num_parameters=3", "4")),
    (lambda: nn.GLU(), ((2, 3),), ShapeError, ("even",)),
    (lambda: nn.Softmax(2), ((2, 3),), AxisError, ("Softmax(axis=2)",)),
    (lambda: nn.Unflatten(1, (2, 2)), ((2, 3),), ShapeError, ("shape=(2, 2)",)),
    (lambda: nn.Flatten(3), ((2, 3),), AxisError, ("start_axis=3",)),
    (lambda: nn.Pad(1), ((2, 3),), ShapeError, ("spatial axis",)),
    (lambda: nn.Pad(((1, 1), (1, 1))), ((1, 2, 3),), ShapeError, ("a pair for each of 1",)),
    (lambda: nn.PixelShuffle(2), ((1, 3, 2, 2),), ShapeError, ("3 channels",)),
    (lambda: nn.Resize(2), ((3, 2),), ShapeError, ("(3, 2)",)),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(WRONG)))
def test_an_error_names_the_layer_and_what_came(place: int, backend: str) -> None:
    make, given, error, words = WRONG[place]
    layer = make()
    inputs = [ops.zeros(one) if isinstance(one, tuple) else ops.asarray(one) for one in given]
    with pytest.raises(error) as caught:
        layer(*inputs)
    text = str(caught.value)
    assert text.startswith(f"{type(layer).__name__}(")
    assert str(inputs[0].shape) in text
    for word in words:
        assert word in text


REFUSED: list[tuple[Callable[[], Any], type[EmberError], str]] = [
    (lambda: nn.Conv2d(3, 4, 3, groups=2), DomainError, "groups=2"),
    (lambda: nn.Conv2d(4, 3, 3, groups=2), DomainError, "out_channels=3"),
    (lambda: nn.Conv2d(3, 4, (3, 3, 3)), ShapeError, "Conv2d got 3 numbers for kernel_size"),
    (lambda: nn.Conv2d(3, 4, 0), DomainError, "kernel_size=0"),
    (lambda: nn.Conv2d(3, 4, 3, padding="full"), DomainError, "'full'"),
    (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), DomainError, "'mirror'"),
    (lambda: nn.Conv2d(3, 4, 3, data_format="NHWC"), DomainError, "'NHWC'"),
    (lambda: nn.MaxPool2d(0), DomainError, "MaxPool2d got kernel_size=0"),
    (lambda: nn.BatchNorm(3, momentum=2.0), DomainError, "momentum=2.0"),
    (lambda: nn.BatchNorm(3, data_format="last"), DomainError, "'last'"),
    (lambda: nn.GroupNorm(2, 3), DomainError, "num_groups=2"),
    (lambda: nn.LayerNorm(()), DomainError, "normalized_shape=()"),
    (lambda: nn.Dropout(1.5), DomainError, "p=1.5"),
    (lambda: nn.Dropout("half"), DTypeError, "str"),  # type: ignore[arg-type]  # on purpose
    (lambda: nn.Dropout2d(data_format="NHWC"), DomainError, "'NHWC'"),
    (lambda: nn.Embedding(3, 2, 3), OutOfBoundsError, "padding_idx=3"),
    (lambda: nn.SinusoidalEmbedding(3), DomainError, "embedding_dim=3"),
    (lambda: nn.SinusoidalEmbedding(4, 0), DomainError, "max_period=0"),
    (lambda: nn.Resize(), DomainError, "size or scale"),
    (lambda: nn.Lambda(3), DTypeError, "int"),  # type: ignore[arg-type]  # on purpose
    (lambda: nn.Pad(1, data_format="NHWC"), DomainError, "'NHWC'"),
    (lambda: nn.Linear(3, 2, weight_init="glorot"), DomainError, "glorot_uniform"),
    (lambda: nn.Linear(3, 2, weight_init=3), DTypeError, "int"),  # type: ignore[arg-type]  # on purpose
]


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_arguments_that_make_no_layer(place: int) -> None:
    make, error, word = REFUSED[place]
    with pytest.raises(error) as caught:
        make()
    assert word in str(caught.value)


# --- Sizes that come later --------------------------------------------------------------------

LAZY: dict[str, tuple[Callable[[], Any], Callable[[], Any], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(None, 3), lambda: nn.Linear(4, 3), (2, 4)),
    "Dense": (lambda: nn.Dense(3, "relu"), lambda: nn.Dense(3, "relu", True, 4), (2, 4)),
    "Conv1d": (lambda: nn.Conv1d(None, 4, 3, groups=2),
               lambda: nn.Conv1d(6, 4, 3, groups=2), (2, 6, 5)),
    "Conv2d": (lambda: nn.Conv2d(None, 4, 3, data_format="channels_last"),
               lambda: nn.Conv2d(6, 4, 3, data_format="channels_last"), (2, 5, 5, 6)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(None, 4, 3, groups=2),
                        lambda: nn.ConvTranspose1d(6, 4, 3, groups=2), (6, 5)),
    "LayerNorm": (lambda: nn.LayerNorm(None), lambda: nn.LayerNorm(4), (2, 4)),
    "RMSNorm": (lambda: nn.RMSNorm(None), lambda: nn.RMSNorm(4), (2, 4)),
    "BatchNorm": (lambda: nn.BatchNorm(None), lambda: nn.BatchNorm(4), (3, 4)),
    "BatchNorm-last": (lambda: nn.BatchNorm2d(None, data_format="channels_last"),
                       lambda: nn.BatchNorm2d(4, data_format="channels_last"), (3, 2, 2, 4)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(None, affine=True),
                       lambda: nn.InstanceNorm1d(4, affine=True), (4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAZY)
def test_the_first_input_tells_the_size(name: str, tmp_path: Any) -> None:
    make, known, shape = LAZY[name]
    with ops.random.use_seed(1):
        sized = known()
    layer = make()
    assert layer.is_lazy
    assert not layer.state_dict()
    x = ops.ones(shape) * ops.arange(shape[-1], dtype="float32")
    with ops.random.use_seed(1):
        y = layer(x)
    assert not layer.is_lazy
    np.testing.assert_array_equal(y.numpy(), sized(x).numpy())
    assert layer.state_dict().keys() == sized.state_dict().keys()
    # Files of the layer before its first input, of what it was, and after.
    fresh = make()
    fresh.load_state_dict(sized.state_dict())
    np.testing.assert_array_equal(fresh.eval()(x).numpy(), sized.eval()(x).numpy())
    em.save(tmp_path / "layer.safetensors", layer)
    loaded = em.load(tmp_path / "layer.safetensors")
    np.testing.assert_array_equal(loaded.eval()(x).numpy(), layer.eval()(x).numpy())


def test_a_first_input_tells_backend_and_dtype(backend: str) -> None:
    x = ops.ones((2, 4), dtype="float16")
    with em.use_backend("numpy"):
        layer = nn.Linear(None, 3)
        y = layer(x)
    assert (y.backend, y.dtype) == (backend, ops.float16)
    assert (layer.weight.backend, layer.weight.dtype) == (backend, ops.float16)


def test_a_compiled_function_cannot_make_parameters(backend: str) -> None:
    layer = nn.BatchNorm1d(None)
    step = em.jit(lambda x: layer(x), state=[layer])
    with pytest.raises(TraceError, match="build"):
        step(ops.ones((3, 4)))
    layer.build(ops.ones((3, 4)))
    assert step(ops.ones((3, 4))).shape == (3, 4)


# --- What the table has no column for ----------------------------------------------------------


def test_pools_give_places(backend: str) -> None:
    x = np.random.default_rng(0).permutation(2 * 3 * 16).reshape(2, 3, 4, 4).astype(np.float32)
    values, places = nn.MaxPool2d(2, return_indices=True)(ops.asarray(x))
    twin = torch.nn.MaxPool2d(2, return_indices=True)(torch.tensor(x))
    np.testing.assert_array_equal(values.numpy(), twin[0].numpy())
    np.testing.assert_array_equal(places.numpy(), twin[1].numpy())
    assert places.dtype == "int64"


@pytest.mark.parametrize("size", [9, 10])
def test_an_output_size_is_chosen(size: int) -> None:
    layer = nn.ConvTranspose1d(2, 3, 3, stride=2)
    twin = torch.nn.ConvTranspose1d(2, 3, 3, stride=2)
    twin.load_state_dict({k: torch.tensor(v.numpy()) for k, v in layer.state_dict().items()})
    x = np.random.default_rng(1).random((1, 2, 4), np.float32)
    got = layer(ops.asarray(x), [size])
    want = twin(torch.tensor(x), [size])
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError, match=r"from \[9\] to \[10\]"):
        layer(ops.asarray(x), [11])


def test_rows_of_a_table_as_scores() -> None:
    layer = nn.Embedding(5, 3)
    x = ops.random.normal((2, 3))
    np.testing.assert_array_equal(layer.as_linear(x).numpy(), ops.linear(x, layer.weight).numpy())


def test_the_row_of_padding_stays_zero(backend: str) -> None:
    layer = nn.Embedding(5, 3, padding_idx=-5)
    assert layer.weight[0].tolist() == [0.0, 0.0, 0.0]
    ops.sum(layer([[0, 1, 0]])).backward()
    assert layer.weight.grad.numpy().sum(1).tolist() == [0.0, 3.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("interleaved", [True, False])
def test_waves_at_given_places(interleaved: bool, backend: str) -> None:
    layer = nn.SinusoidalEmbedding(6, 100.0, interleaved=interleaved)
    x = ops.zeros((2, 4, 6))
    by_offset = layer(x, offset=3).numpy()
    by_places = layer(x, ops.asarray([3, 4, 5, 6])).numpy()
    np.testing.assert_allclose(by_offset, by_places, rtol=1e-5, atol=1e-6)
    angles = np.arange(3, 7)[:, None] / 100.0 ** (np.arange(3) / 3)
    waves = by_offset[0][:, 1::2] if interleaved else by_offset[0][:, 3:]
    np.testing.assert_allclose(waves, np.cos(angles), rtol=1e-6, atol=1e-6)
    half = layer(x.astype("float16"), offset=3)
    assert half.dtype == "float16"
    np.testing.assert_array_equal(half.numpy(), by_offset.astype(np.float16))


def test_places_are_given_to_a_table(backend: str) -> None:
    layer = nn.PositionalEmbedding(8, 4)
    x = ops.zeros((1, 3, 4))
    np.testing.assert_array_equal(
        layer(x, offset=2).numpy(), layer(x, ops.asarray([2, 3, 4])).numpy()
    )


def test_running_statistics_begin_again() -> None:
    layer = nn.BatchNorm1d(2)
    layer(ops.asarray([[1.0, 2.0], [3.0, 5.0]]))
    assert int(layer.num_batches_tracked) == 1
    assert [name for name, _ in layer.named_buffers()] == [
        "running_mean", "running_var", "num_batches_tracked"
    ]  # fmt: skip
    layer.reset_running_stats()
    assert layer.running_mean.tolist() == [0.0, 0.0]
    assert layer.running_var.tolist() == [1.0, 1.0]
    assert int(layer.num_batches_tracked) == 0
    assert isinstance(layer.running_mean, nn.Buffer)


def test_statistics_of_several_batches(backend: str) -> None:
    batches = np.random.default_rng(2).normal(size=(3, 5, 4)).astype(np.float32)
    for momentum in (0.3, None):
        layer, twin = nn.BatchNorm1d(4, momentum=momentum), torch.nn.BatchNorm1d(4, 1e-5, momentum)
        for batch in batches:
            layer(ops.asarray(batch))
            twin(torch.tensor(batch))
        for name, value in twin.state_dict().items():
            own = layer.state_dict()[name]
            np.testing.assert_allclose(own.numpy(), value.numpy(), rtol=1e-5, atol=1e-6)
            assert str(own.dtype) == str(value.dtype).removeprefix("torch.")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_epsilon_of_an_rms_norm_is_that_of_pytorch(dtype: str, backend: str) -> None:
    x = np.array([[1e-3, -2e-3, 3e-3, 1e-4]])  # so small that it counts
    twin = torch.nn.RMSNorm(4, elementwise_affine=False)
    want = twin(torch.tensor(x, dtype=getattr(torch, dtype))).double().numpy()
    got = nn.RMSNorm(4, elementwise_affine=False)(ops.asarray(x, dtype=dtype))
    assert got.dtype == dtype
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22, "float64": 2.0**-50}
    np.testing.assert_allclose(got.astype("float64").numpy(), want, rtol=eps[dtype])


def test_forward_of_an_activation_is_its_op() -> None:
    assert nn.ReLU().forward is ops.relu
    assert nn.Tanh().forward is ops.tanh


def test_a_function_of_its_own_has_no_place_in_a_file() -> None:
    with pytest.raises(DTypeError, match="override get_config"):
        nn.Lambda(lambda x: x).get_config()
