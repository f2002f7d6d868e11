"""Initializers: the same bits on every backend, moments as in theory, names and configs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.nn import initializers as init

BACKENDS = ("numpy", "torch", "jax", "mlx")
MATRIX, KERNEL = (40, 60), (8, 4, 3, 5)
CASES: list[tuple[init.Initializer, tuple[int, ...]]] = [
    (init.Zeros(), MATRIX),
    (init.Ones(), MATRIX),
    (init.Constant(0.3), MATRIX),
    (init.Identity(0.5), (3, 5)),
    (init.Dirac(2), KERNEL),
    (init.Uniform(-1.0, 3.0), MATRIX),
    (init.Normal(0.5, 2.0), MATRIX),
    (init.TruncatedNormal(0.1, 0.5, -0.4, 0.3), MATRIX),
    (init.UniformFan(), KERNEL),
    (init.UniformFan(7), (5,)),
    (init.VarianceScaling(2.0, "fan_out", "truncated_normal"), KERNEL),
    (init.GlorotUniform(2.0), KERNEL),
    (init.GlorotNormal(), KERNEL),
    (init.HeUniform("fan_out", "leaky_relu", 0.2), KERNEL),
    (init.HeNormal(), KERNEL),
    (init.LecunUniform(), KERNEL),
    (init.LecunNormal(), KERNEL),
    (init.Orthogonal(2.0), (4, 3, 5)),
    (init.Orthogonal(), (7, 4)),
    (init.Sparse(0.3, 0.5), (10, 6)),
]
EVERY = pytest.mark.parametrize(
    ("initializer", "shape"), CASES, ids=[type(c[0]).__name__ + str(i) for i, c in enumerate(CASES)]
)


def test_every_initializer_is_tested() -> None:
    classes = {getattr(init, name) for name in init.__all__ if name[0].isupper()}
    assert classes - {init.Initializer} == {type(one) for one, _ in CASES}


@EVERY
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_seed_gives_the_same_bits_everywhere(
    initializer: init.Initializer, shape: tuple[int, ...], dtype: str
) -> None:
    found = []
    for backend in BACKENDS:
        with em.use_backend(backend), ops.random.use_seed(11):
            made = initializer(shape, dtype=dtype)
            assert (made.backend, made.dtype, made.shape) == (backend, dtype, shape)
            found.append(made.numpy().tobytes())
    assert found[1:] == found[:1] * 3


@EVERY
def test_a_generator_and_a_config(initializer: init.Initializer, shape: tuple[int, ...]) -> None:
    again = type(initializer).from_config(json.loads(json.dumps(initializer.get_config())))
    assert again == initializer
    assert hash(again) == hash(initializer)
    assert repr(again) == repr(initializer)
    first = initializer(shape, generator=ops.random.Generator(3))
    ops.random.normal(())
    second = again(shape, generator=ops.random.Generator(3))
    np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_layers_begin_alike_on_every_backend() -> None:
    def model() -> Any:
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, weight_init="he_normal"),
            nn.BatchNorm2d(4),
            nn.ConvTranspose2d(4, 3, 2, weight_init="orthogonal"),
            nn.Flatten(),
            nn.Linear(12, 5, weight_init="glorot_uniform", bias_init="zeros"),
            nn.Linear(5, 2),
            nn.Bilinear(2, 3, 4),
            nn.Embedding(5, 3, padding_idx=1),
        )

    found = []
    for backend in BACKENDS:
        with em.use_backend(backend), ops.random.use_seed(12):
            found.append({k: v.numpy() for k, v in model().state_dict().items()})
    for other in found[1:]:
        for name, value in found[0].items():
            np.testing.assert_array_equal(value, other[name], err_msg=name)


# --- Moments and distributions ----------------------------------------------------------------

_BIG = (500, 400)
_FAN_IN, _FAN_OUT = 400, 500
_CUT = scipy.stats.truncnorm(-2, 2)
# The distribution that each must have at the shape above.
THEORY: list[tuple[init.Initializer, Any]] = [
    (init.Uniform(-1.0, 3.0), scipy.stats.uniform(-1, 4)),
    (init.Normal(0.5, 2.0), scipy.stats.norm(0.5, 2)),
    (init.TruncatedNormal(0.1, 0.5, -0.4, 0.3), scipy.stats.truncnorm(-1, 0.4, 0.1, 0.5)),
    (init.UniformFan(), scipy.stats.uniform(-1 / 20, 2 / 20)),
    (init.GlorotUniform(2.0), scipy.stats.uniform(-2 * math.sqrt(6 / 900), 4 * math.sqrt(6 / 900))),
    (init.GlorotNormal(), scipy.stats.norm(0, math.sqrt(2 / 900))),
    (init.HeUniform(), scipy.stats.uniform(-math.sqrt(6 / 400), 2 * math.sqrt(6 / 400))),
    (init.HeNormal("fan_out", "tanh"), scipy.stats.norm(0, 5 / 3 / math.sqrt(500))),
    (init.HeNormal("fan_avg", "linear"), scipy.stats.norm(0, 1 / math.sqrt(450))),
    (init.LecunUniform(), scipy.stats.uniform(-math.sqrt(3 / 400), 2 * math.sqrt(3 / 400))),
    (init.LecunNormal(), scipy.stats.truncnorm(-2, 2, 0, 1 / 20 / _CUT.std())),
    (init.VarianceScaling(3.0, "fan_in", "normal"), scipy.stats.norm(0, math.sqrt(3 / 400))),
    (init.VarianceScaling(3.0, "fan_out", "uniform"),
     scipy.stats.uniform(-3 / math.sqrt(500), 6 / math.sqrt(500))),
    (init.VarianceScaling(3.0, "fan_avg"),
     scipy.stats.truncnorm(-2, 2, 0, math.sqrt(3 / 450) / _CUT.std())),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(THEORY)))
def test_moments_and_distribution(place: int) -> None:
    initializer, law = THEORY[place]
    with ops.random.use_seed(13):
        values = initializer(_BIG).numpy().astype(np.float64).reshape(-1)
    count = values.size
    fourth = float(law.stats("k")) + 3  # the spread of a variance follows from the fourth moment
    assert abs(values.mean() - law.mean()) < 5 * law.std() / math.sqrt(count)
    assert abs(values.var() / law.var() - 1) < 5 * math.sqrt((fourth - 1) / count)
    assert scipy.stats.kstest(values, law.cdf).pvalue > 1e-3
    assert law.support()[0] <= values.min()
    assert values.max() <= law.support()[1]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (init.GlorotUniform(1.5), lambda w: torch.nn.init.xavier_uniform_(w, 1.5)),
        (init.GlorotNormal(1.5), lambda w: torch.nn.init.xavier_normal_(w, 1.5)),
        (init.HeUniform("fan_out", "leaky_relu", 0.3),
         lambda w: torch.nn.init.kaiming_uniform_(w, 0.3, "fan_out")),
        (init.HeNormal(), lambda w: torch.nn.init.kaiming_normal_(w, nonlinearity="relu")),
        (init.HeNormal("fan_in", "selu"),
         lambda w: torch.nn.init.kaiming_normal_(w, nonlinearity="selu")),
    ],
)  # fmt: skip
def test_the_spread_is_that_of_pytorch(
    ours: init.Initializer, theirs: Callable[[Any], Any]
) -> None:
    shape = (64, 32, 5, 5)
    torch.manual_seed(0)
    want = theirs(torch.empty(shape)).numpy()
    with ops.random.use_seed(14):
        got = ours(shape).numpy()
    # Five deviations of the quotient of two deviations of so many numbers.
    assert abs(got.std() / want.std() - 1) < 5 / math.sqrt(got.size)


def test_gains_are_those_of_pytorch() -> None:
    for name in ("linear", "sigmoid", "tanh", "relu", "selu", "leaky_relu"):
        assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    want = torch.nn.init.calculate_gain("leaky_relu", 0.3)
    assert init.calculate_gain("leaky_relu", 0.3) == pytest.approx(want)
    with pytest.raises(DomainError, match="leaky_relu, not 'swish'"):
        init.calculate_gain("swish")


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=2, max_size=4).map(tuple),
    gain=st.floats(0.1, 4.0),
    seed=st.integers(0, 2**32),
)
def test_orthogonal_matrices_are_orthogonal(shape: tuple[int, ...], gain: float, seed: int) -> None:
    made = init.Orthogonal(gain)(shape, dtype="float64", generator=ops.random.Generator(seed))
    matrix = made.numpy().reshape(shape[0], -1)
    product = matrix @ matrix.T if shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, gain**2 * np.eye(len(product)), atol=1e-12 * gain**2)


def test_orthogonal_matrices_are_uniform() -> None:
    """Neither sign is preferred: the trace of a uniform 2 x 2 matrix has mean zero."""
    with ops.random.use_seed(15):
        drawn = [init.Orthogonal()((2, 2), dtype="float64").numpy() for _ in range(2000)]
    traces, signs = (
        np.array([m.trace() for m in drawn]),
        np.array([np.linalg.det(m) for m in drawn]),
    )
    assert abs(traces.mean()) < 5 / math.sqrt(2000)  # its variance is one
    assert abs(signs.mean()) < 5 / math.sqrt(2000)


def test_values_that_are_known() -> None:
    np.testing.assert_array_equal(init.Identity(2.0)((2, 3)).numpy(), 2 * np.eye(2, 3))
    for groups in (1, 2):
        want = torch.nn.init.dirac_(torch.empty(6, 2, 3, 4), groups).numpy()
        np.testing.assert_array_equal(init.Dirac(groups)((6, 2, 3, 4)).numpy(), want)
    x = ops.random.normal((1, 3, 7))
    passes = nn.Conv1d(3, 3, 3, padding=1, weight_init="dirac", bias_init="zeros")
    np.testing.assert_array_equal(passes(x).numpy(), x.numpy())
    sparse = init.Sparse(0.3)((10, 6)).numpy()
    assert (sparse == 0).sum(0).tolist() == [3] * 6
    assert 0.005 < sparse[sparse != 0].std() < 0.02


def test_a_layer_begins_as_in_pytorch() -> None:
    """Limits of what layers draw by default, which biases share with weights."""
    with ops.random.use_seed(16):
        for layer, bound in (
            (nn.Linear(16, 400), 1 / 4),
            (nn.Conv2d(4, 400, 2, groups=2), 1 / math.sqrt(8)),
            (nn.ConvTranspose1d(8, 400, 2), 1 / math.sqrt(800)),
            (nn.Bilinear(9, 5, 400), 1 / 3),
        ):
            for p in layer.parameters():
                assert 0.97 * bound < np.abs(p.numpy()).max() <= np.float32(bound)
        table = nn.Embedding(200, 100).weight.numpy()
    assert abs(table.std() - 1) < 5 / math.sqrt(2 * table.size)
    assert nn.PReLU().weight.tolist() == [0.25]


# --- By name ----------------------------------------------------------------------------------


def test_names() -> None:
    for name, kind in (
        ("zeros", init.Zeros),
        ("glorot_uniform", init.GlorotUniform),
        ("xavier_normal", init.GlorotNormal),
        ("kaiming_uniform", init.HeUniform),
        ("he_normal", init.HeNormal),
        ("truncated_normal", init.TruncatedNormal),
        ("variance_scaling", init.VarianceScaling),
        ("orthogonal", init.Orthogonal),
    ):
        assert type(init.get(name)) is kind
    assert init.get(None) is None
    given_one = init.Normal()
    assert init.get(given_one) is given_one
    assert init.XavierUniform is init.GlorotUniform
    assert init.KaimingNormal is init.HeNormal


def test_a_config_keeps_what_a_layer_began_with() -> None:
    layer = nn.Linear(2, 3, weight_init=init.HeUniform(nonlinearity="tanh"), bias_init="ones")
    text = json.dumps(layer.get_config())
    again = nn.Linear.from_config(json.loads(text))
    assert json.dumps(again.get_config()) == text
    assert again.bias is not None
    assert again.bias.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: init.get("glorot"), DomainError, "glorot_uniform"),
        (lambda: init.get(3), DTypeError, "int"),  # type: ignore[arg-type]  # on purpose
        (lambda: init.HeNormal("fan"), DomainError, "fan_in, fan_out, fan_avg, not 'fan'"),
        (lambda: init.HeNormal(nonlinearity="none"), DomainError, "'none'"),
        (lambda: init.VarianceScaling(-1.0), DomainError, "scale=-1.0"),
        (lambda: init.VarianceScaling(distribution="flat"), DomainError, "'flat'"),
        (lambda: init.TruncatedNormal(std=0.0), DomainError, "std=0.0"),
        (lambda: init.Sparse(1.5), DomainError, "sparsity=1.5"),
        (lambda: init.GlorotUniform()((3,)), ShapeError, "(3,)"),
        (lambda: init.Orthogonal()((3,)), ShapeError, "(3,)"),
        (lambda: init.Identity()((3, 3, 3)), ShapeError, "(3, 3, 3)"),
        (lambda: init.Sparse(0.5)((3,)), ShapeError, "(3,)"),
        (lambda: init.Dirac()((3, 3)), ShapeError, "(3, 3)"),
        (lambda: init.Dirac(2)((3, 3, 3)), ShapeError, "groups"),
    ],
)
def test_mistakes(call: Callable[[], Any], error: type[Exception], word: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert word in str(caught.value)
