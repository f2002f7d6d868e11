"""Graphs whose sizes differ from run to run."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.errors import TraceError
from ember_ml.graph import export
from ember_ml.graph.tracing.sizes import Ratio, Size, never_negative, plain, valued

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def _floats(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# Functions of x with the shape (n, 2), where n varies.
FUNCTIONS: Final[dict[str, Any]] = {
    "flat": lambda x: x.reshape(-1),
    "centred": lambda x: x - x.mean(0),
    "by-size": lambda x: x / x.shape[0],
    "by-ratio": lambda x: x.sum(0) * (1 / x.shape[0]) + x.size,
    "power": lambda x: x * x.shape[0] ** -0.5,
    "zeros": lambda x: ops.concat([x, ops.zeros((x.shape[0], 3))], axis=1),
    "arange": lambda x: ops.arange(x.shape[0]),
    "arange-step": lambda x: ops.arange(1, 2 * x.shape[0] + 3, 2, dtype="float32"),
    "but-last": lambda x: x[:-1],
    "every-second": lambda x: x[::2],
    "twice": lambda x: ops.concat([x, x]),
    "interleaved": lambda x: ops.stack([x, x], axis=1).reshape(2 * x.shape[0], 2),
    "gram": lambda x: ops.tril(x @ x.T),
    "halves": lambda x: ops.concat([x, x])[: x.shape[0] // 2 + 1],
    "tile": lambda x: ops.tile(x, (2, 1)),
    "softmax": lambda x: ops.softmax(x, axis=0),
    "running": lambda x: ops.cumulative_sum(x, axis=0),
    "flip": lambda x: ops.flip(x, axis=0),
    "roll": lambda x: ops.roll(x, 1, axis=0),
    "broadcast": lambda x: ops.broadcast_to(x[:, None], (x.shape[0], 3, 2)),
    "var": lambda x: ops.var(x, axis=0),
    "sort": lambda x: ops.sort(x, axis=0),
    "argmax": lambda x: ops.argmax(x, axis=0),
    "pad": lambda x: ops.pad(x, ((1, 2), (0, 0))),
    "one-hot": lambda x: ops.one_hot((x[:, 0] > 0).astype("int64"), 2),
    "mse": lambda x: ops.losses.mse(x, x * 2.0),
    "cross-entropy": lambda x: ops.losses.cross_entropy(x, (x[:, 0] > 0).astype("int64")),
    "einsum": lambda x: ops.einsum("ab,cb->ac", x, x),
    "outer": lambda x: ops.outer(x[:, 0], x[:, 1]),
    "gather": lambda x: ops.take(x, ops.arange(x.shape[0])[::-1], axis=0),
    "scatter": lambda x: ops.scatter_add(x, (x[:, 0] > 0).astype("int64"), dim_size=2),
    "scan": lambda x: ops.scan(lambda c, row: (c + row, c * row), x[0], x)[1],
    "map": lambda x: ops.map_fn(lambda row: ops.sum(row * row), x),
    "roll-far": lambda x: ops.roll(x, -5, axis=0),
    "long-mean": lambda x: ops.mean(ops.tile(x * x, (1, 600)).reshape(x.shape[0], -1)),
    "conv": lambda x: ops.conv1d(x.T[None], ops.ones((2, 2, 3)), stride=2, padding=1),
    "written-at-ends": lambda x: ops.index_update(x, (slice(-1, None),), 5.0),
    "written": lambda x: ops.index_update(x, (slice(0, 1),), 5.0),
    # Fewer rows than a slice asks for are no mistake.
    "mean-of-first": lambda x: x[:3].sum(0) / x[:3].shape[0],
    "mean-of-last": lambda x: x[-3:].sum(0) / x[-3:].shape[0],
    "but-three": lambda x: ops.concat([x[3:], ops.zeros((x[3:].shape[0] + 1, 2))]),
    "later-half": lambda x: x[x.shape[0] // 2 :] * 2.0,
    "last-by-size": lambda x: x[x.shape[0] - 1],
    "first-by-size": lambda x: x[-x.shape[0]],
    "shifted": lambda x: x[: (x.shape[0] << 1) >> 1],
    # The padding of a transposed convolution is an attribute, which cannot vary.
    "gradient-of-conv": em.grad(
        lambda x: ops.sum(ops.conv1d(x.T[None], ops.ones((2, 2, 3)), stride=2, padding=1) ** 2)
    ),
    "size-alone": lambda x: x.shape[0] * 2,
    "by-float": lambda x: x * (x.shape[0] * 0.5) + (x.shape[0] - 0.5) ** 0.5,
    "eye": lambda x: x @ x.T + ops.eye(x.shape[0], k=1),
    "eye-oblong": lambda x: ops.eye(3, x.shape[0], dtype="int32"),
    "linspace": lambda x: ops.linspace(-1, 2, x.shape[0]),
    "linspace-open": lambda x: ops.linspace(0, 5, x.shape[0], endpoint=False),
    "linspace-whole": lambda x: ops.linspace(0, 9, x.shape[0], dtype="int64"),
    "diag": lambda x: ops.linalg.diag(x[:, 0], -1),
    "diagonal": lambda x: ops.linalg.diagonal(x @ x.T, offset=0),
    "trace": lambda x: ops.linalg.trace(x @ x.T) + ops.einsum("ii->", x @ x.T),
    "corrcoef": lambda x: ops.corrcoef(ops.concat([x, x * x], axis=1), rowvar=False),
    "repeat": lambda x: ops.repeat(x, 3, axis=0),
    "repeat-flat": lambda x: ops.repeat(x, 2),
    "padded-to-ten": lambda x: ops.pad(x, ((0, 10 - x.shape[0]), (1, 0))),
    "padded-by-size": lambda x: ops.pad(x, x.shape[0], constant_values=3.0),
    "padded-apart": lambda x: ops.pad(
        x, ((x.shape[0], 1), (0, 2)), constant_values=((1.0, 2.0), (3.0, 4.0))
    ),
    **{
        f"pad-{mode}": lambda x, mode=mode: ops.pad(x, ((5, 3), (1, 0)), mode)
        for mode in ("edge", "reflect", "symmetric", "wrap")
    },
    "gradient-of-pad": em.grad(
        lambda x: ops.sum(ops.pad(x, ((x.shape[0], 3), (1, 0)), "reflect") ** 2)
    ),
    "gradient-of-repeat": em.grad(lambda x: ops.sum(ops.repeat(x, 3, axis=0) ** 2)),
    "gradient-of-var": em.grad(lambda x: ops.sum(ops.var(x, axis=0) ** 2)),
    "gradient-of-std": em.grad(lambda x: ops.sum(x / ops.std(x + 1.0, axis=(0, 1)))),
    "vmap": lambda x: ops.vmap(lambda row: ops.sum(row * row) - row)(x),
    "vmap-whole-too": lambda x: ops.vmap(
        lambda a, b, c: a * ops.max(b) + c, in_axes=(0, 1, None), out_axes=1
    )(x, x.T, x[0]),
    "asarray": lambda x: x * ops.asarray(x.shape[0]) + ops.asarray(x.shape[0] / 2),
    "asarray-whole": lambda x: ops.asarray(x.shape[0] // 8),
    "asarray-of-shape": lambda x: ops.asarray([[3, x.shape[0]], [x.size, 2]], dtype="float32"),
    "asarray-mixed": lambda x: ops.asarray((0.5, x.shape[0])),
    "root": lambda x: x / ops.sqrt(x.shape[0]),
    "cond": lambda x: ops.cond(ops.asarray(x.shape[0]) > 2, lambda: x[0] * 2.0, lambda: x[0]),
    "fori": lambda x: ops.fori_loop(0, x.shape[0], lambda i, c: c * 0.5 + x[i], x[0]),
    "fori-of-nothing-traced": lambda x: ops.fori_loop(0, x.shape[0], lambda i, c: c + i, 0),
    "fori-of-few": lambda x: ops.fori_loop(x.shape[0] // 4, 3, lambda i, c: c + i, x),
    "kl-batchmean": lambda x: ops.losses.kl_div(x, ops.softmax(x), reduction="batchmean"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_sizes_run(name: str) -> None:
    function = FUNCTIONS[name]
    graph = export(function, _floats(4, 2), dynamic_axes={"x": {0: "n"}})
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    for n in (4, 7, 1, 2):
        x = _floats(n, 2)
        (got,) = graph.run({"x": x}).values()
        wanted = ops.asarray(function(ops.asarray(x))).numpy()
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_shapes_of_values_tell_names() -> None:
    graph = export(
        lambda x: (x * 2.0, x.T, ops.concat([x, x])), _floats(3, 2), dynamic_axes={"x": {0: "n"}}
    )
    assert [v.shape for v in graph.outputs] == [("n", 2), (2, "n"), (None, 2)]


def test_axes_by_position_by_list_and_by_name() -> None:
    def both(x: Any, y: Any) -> Any:
        return x[:, None] + y

    for axes in (
        {"x": {0: "x_0"}, "y": {0: "y_0"}},
        {"x": [0], "y": [-2 + 2]},
        [["x_0"], [0]],
        {0: ["x_0"], 1: {0: "y_0"}},
    ):
        graph = export(both, _floats(3), _floats(4), dynamic_axes=axes)
        assert [v.shape for v in graph.inputs] == [("x_0",), ("y_0",)]
        assert graph.outputs[0].shape == ("x_0", "y_0")
        assert next(iter(graph.run({"x": _floats(5), "y": _floats(6)}).values())).shape == (5, 6)


@pytest.mark.parametrize("size", [0, 1])
def test_an_example_of_no_size_will_do(size: int) -> None:
    graph = export(nn.Linear(3, 2), _floats(size, 3), dynamic_axes={"x": {0: "n"}})
    assert next(iter(graph.run({"x": _floats(6, 3)}).values())).shape == (6, 2)


def test_sizes_of_several_inputs_agree() -> None:
    graph = export(
        lambda x, y: x + y, _floats(3), _floats(3), dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}
    )
    assert graph.outputs[0].shape == ("n",)


def _loops(x: Any) -> Any:
    for _ in range(x.shape[0]):
        x = x * 2.0
    return x


def _goes_rarely(x: Any) -> Any:
    for i in range(x.shape[0] // 8):
        x = x + float(i + 1)
    return x


def _asks(x: Any) -> Any:
    return x if x.shape[0] > 2 else -x


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_loops, r"x = x \* 2\.0"),
        (_goes_rarely, r"'n' 3 and 13.*x = x \+ float\(i \+ 1\)"),
        (lambda x: ops.concat([x] + [x] * (x.shape[0] // 100)), r"'n' 3 and 193"),
        (lambda x: x * [1.0, 2.0, 3.0, 4.0][x.shape[0] // 5], r"a constant of Mul differs \("),
        (_asks, r"comparison \(>\).*x\.shape\[0\] > 2"),
        (lambda x: x * (0.5 * x.shape[0]), r"a constant of Mul differs \("),
        (lambda x: x.reshape(3, 2), r"runs with the sizes \{'n': 3\} alone"),
        # The library itself goes two ways by a size: windows that do not fit, even parts.
        (lambda x: ops.max_pool1d(x.T[None], 2, ceil_mode=True), r"dynamic"),
        (lambda x: ops.adaptive_avg_pool1d(x.T[None], 3), r"dynamic"),
    ],
)
def test_a_size_that_went_into_the_graph_is_an_error(function: Any, text: str) -> None:
    with pytest.raises(TraceError, match=text) as caught:
        export(function, _floats(3, 2), dynamic_axes={"x": {0: "n"}})
    if "alone" not in text:
        assert "test_export_sizes.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("what", "function"),
    [
        ("int()", lambda x: x if int(x.shape[0]) < 1000 else -x),
        ("float()", lambda x: x if float(x.shape[0]) < 1000 else -x),
        ("len()", lambda x: x if len(x) < 1000 else -x),
        ("abs()", lambda x: x * abs(x.shape[0] - 100)),
        ("round()", lambda x: x * round(x.shape[0] / 1000)),
        ("int()", lambda x: x * int(x.shape[0] / 1000)),
        ("a truth value", lambda x: x if x.shape[0] / 2 else -x),
        ("a comparison (<)", lambda x: x if x.shape[0] / 2 < 1000 else -x),
        ("&", lambda x: x * (x.shape[0] & 1024)),
        ("a key of a dict", lambda x: x * {1000: 2.0}.get(x.shape[0], 1.0)),
    ],
)
def test_a_size_that_becomes_a_number_is_an_error_at_once(what: str, function: Any) -> None:
    """No other trace would find what only a thousand rows change."""
    with pytest.raises(TraceError) as caught:
        export(function, _floats(3, 2), dynamic_axes={"x": {0: "n"}})
    assert f"em.export: {what}" in str(caught.value)
    assert "test_export_sizes.py:" in str(caught.value)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x if x.shape[0] // 1000 else -x,
        lambda x: x if x.shape[0] // 1000 > 0 else -x,
        lambda x: x if x.shape[0] % 1000 == 0 else -x,
        lambda x: x if x.shape[0] == 1000.5 else -x,
        lambda x: x if x.shape[0] > x.shape[1] else -x,
        lambda x: x * max(0, x.shape[0] - 1000),
    ],
)
def test_questions_that_only_other_sizes_answer_otherwise(function: Any) -> None:
    with pytest.raises(TraceError, match=r"comparison \(.*test_export_sizes\.py"):
        export(function, _floats(3, 2), dynamic_axes={"x": {0: "n"}})


@pytest.mark.parametrize(
    "function",
    [
        ops.cov,  # one row of observations gives a number, not a matrix
        lambda x: ops.convolve(x[:, 0], ops.ones(4), mode="valid"),  # the shorter one slides
        lambda x: ops.convolve(x[:, 0], ops.ones(4), mode="same"),
    ],
)
def test_results_of_another_shape_for_small_sizes_are_an_error(function: Any) -> None:
    with pytest.raises(TraceError, match="would not hold for all sizes"):
        export(function, _floats(7, 2), dynamic_axes={0: {0: "n"}})


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.max_pool2d(x, (3, 1), 2, "same"),  # of odd heights it pads both sides
        lambda x: ops.adaptive_avg_pool2d(x, (2, 3)),  # windows of one size where it divides
        lambda x: ops.adaptive_max_pool2d(x, (2, 3)),
    ],
)
def test_what_holds_for_even_sizes_or_multiples_alone_is_an_error(function: Any) -> None:
    with pytest.raises(TraceError, match="depends on a size that is to be dynamic"):
        export(function, _floats(2, 4, 8, 9), dynamic_axes={0: {0: "n", 2: "height", 3: "width"}})


def test_comparisons_that_hold_for_all_sizes_are_allowed() -> None:
    def careful(x: Any, y: Any) -> Any:
        assert x.shape[0] == y.shape[0]
        assert x.shape[0] > 0
        assert x.shape[0] >= 1
        assert x.shape[0]
        assert x.shape[0] + 1 > x.shape[0]
        assert x.shape[0] // 2 <= x.shape[0]
        return x + y

    axes = {"x": {0: "n"}, "y": {0: "n"}}
    assert export(careful, _floats(3), _floats(3), dynamic_axes=axes).outputs[0].shape == ("n",)


def test_arithmetic_of_sizes() -> None:
    n, m = Size.named("n", 6), Size.named("m", 4)
    assert n * 2 // 2 == n
    assert type(n - n) is int
    assert (n - n, n * m // m - n) == (0, 0)
    assert n % 1 == 0
    assert type((n * 4) % 4) is int
    assert plain(n // 4) == 1
    assert plain((n + m) * 2) == 20
    assert plain(-n) == -6
    assert plain(n**2) == 36
    assert tuple(map(plain, divmod(n, 4))) == (1, 2)
    for ratio, number in ((n / 4, 1.5), (1 / n, 1 / 6), ((2 - n / m) * 2, 1.0)):
        assert isinstance(ratio, Ratio)
        assert float.__float__(ratio) == number
    assert n is not None
    assert slice(n, None) != slice(None)
    assert n != "n"


def test_bounds_of_sizes() -> None:
    n, m = Size.named("n", 6), Size.named("m", 4)
    for size in (n - 1, n * m - 1, n // 4, n % 4, n - n // 2, n - n % 3, n + m - 2, 0, 3):
        assert never_negative(size)
    for size in (n - 2, -n, n - m, n // 4 - 1, n // 4 - m, -1):
        assert not never_negative(size)
    assert valued((n + 2) // 3 * m - n % 4, {"n": 7, "m": 2}) == 3
    assert valued(5, {}) == 5


def test_what_is_exported_after_another_size_knows_nothing_of_it() -> None:
    """Tables that are kept from one trace must not reach the next."""
    model = em.models.Decoder(vocab_size=9, hidden_size=8, num_layers=1, num_heads=2, max_length=32)
    tokens = np.arange(6).reshape(1, 6)
    export(model, tokens)
    graph = export(model, tokens, dynamic_axes={0: {1: "length"}})
    other = np.arange(8).reshape(1, 8)
    (got,) = graph.run({graph.inputs[0].name: other}).values()
    np.testing.assert_allclose(got, model.eval()(other).numpy(), rtol=1e-5, atol=1e-6)


def test_values_for_small_sizes_are_checked() -> None:
    """The shorter of two signals slides: with one sample, that is the other one."""
    kernel = ops.asarray(_floats(3))

    def slope(x: Any) -> Any:
        return em.grad(lambda x: ops.sum(ops.convolve(x, kernel, mode="valid") ** 2))(x)

    with pytest.raises(TraceError, match=r"'n': 1.*other values"):
        export(slope, _floats(7), dynamic_axes={"x": {0: "n"}})


def test_a_convolution_between_reflections_runs_for_other_images() -> None:
    layer = nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")
    graph = export(layer, _floats(2, 3, 8, 8), dynamic_axes={"x": [0, 2, 3]})
    for shape in ((1, 3, 5, 9), (3, 3, 2, 3)):
        x = _floats(*shape)
        got = graph.run({"x": x})["output"]
        np.testing.assert_allclose(got, layer(ops.asarray(x)).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_images_of_doubles_are_resized_in_doubles(method: str) -> None:
    def resized(x: Any) -> Any:
        return ops.resize(x, scale=1.5, method=method)

    with em.use_backend("numpy"):
        graph = export(resized, _doubles(5), dynamic_axes={0: {2: "height"}})
        for height in (3, 8, 11):
            wanted = resized(ops.asarray(_doubles(height))).numpy()
            found = graph.run({"x": _doubles(height)})["output"]
            np.testing.assert_allclose(found, wanted, 1e-12, 1e-12)


def _doubles(height: int) -> np.ndarray[Any, Any]:
    return np.cos(np.arange(7.0 * height)).reshape(1, 1, height, 7)


@pytest.mark.parametrize(
    ("method", "aligned"),
    [("nearest", False), *((m, a) for m in ("linear", "cubic") for a in (False, True))],
)
def test_images_of_all_sizes_are_resized(method: str, aligned: bool) -> None:
    def resized(x: Any, y: Any) -> Any:
        options = {"method": method, "align_corners": aligned}
        return (
            ops.resize(x, scale=(1.5, 2), **options),
            ops.resize(x, size=(7, 1), **options),
            ops.resize(x, size=y.shape, **options),
        )

    axes = {"x": [0, 2, 3], "y": [0]}
    graph = export(resized, _floats(2, 3, 8, 6), _floats(5, 4), dynamic_axes=axes)
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    for shape in ((2, 3, 8, 6), (1, 3, 5, 9), (1, 3, 1, 1), (3, 3, 31, 64)):
        x, y = _floats(*shape), _floats(len(shape) + 9, 4)
        wanted = resized(ops.asarray(x), ops.asarray(y))
        for got, other in zip(graph.run({"x": x, "y": y}).values(), wanted, strict=True):
            assert got.shape == other.shape
            np.testing.assert_allclose(got, other.numpy(), rtol=1e-5, atol=1e-5)
