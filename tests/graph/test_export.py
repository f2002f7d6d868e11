"""What is exported, under which names, and what is left of it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.backend import selection
from ember_ml.errors import (
    DomainError,
    EmberError,
    ShapeError,
    TraceError,
    UnknownBackendError,
    UnknownKeyError,
)
from ember_ml.graph import Graph, export

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

Array = np.ndarray[Any, Any]


def _floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _run(graph: Graph, *arrays: Array) -> list[Array]:
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    feeds = {x.name: array for x, array in zip(graph.inputs, arrays, strict=True)}
    return list(graph.run(feeds).values())


def _close(got: Any, wanted: Any) -> None:
    array = wanted.numpy() if hasattr(wanted, "numpy") else np.asarray(wanted)
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-6)


# --- Names --------------------------------------------------------------------------------------


def test_inputs_are_named_after_arguments_and_outputs_after_results(backend: str) -> None:
    def head(x: Any, params: Any, scale: float, pair: Any) -> Any:
        y = x @ params["w"] * scale + pair[1]
        return {"y": y, "sums": (ops.sum(y), pair[0])}

    x, w, a, b = _floats(4, 3), _floats(3, 2), _floats(2, seed=1), _floats(2, seed=2)
    graph = export(head, ops.asarray(x), {"w": ops.asarray(w)}, 0.5, (a, b))
    assert [v.name for v in graph.inputs] == ["x", "params.w", "pair.0", "pair.1"]
    assert {v.name for v in graph.outputs} == {"y", "sums.0", "sums.1"}
    assert graph.name == "head"
    out = graph.run({"x": x, "params.w": w, "pair.0": a, "pair.1": b})
    _close(out["y"], x @ w * np.float32(0.5) + b)
    _close(out["sums.1"], a)


def test_a_result_that_is_called_like_an_input_is_new() -> None:
    graph = export(lambda w: {"w": w * 2.0, "Mul": w + 1.0}, _floats(2))
    assert [v.name for v in graph.outputs] == ["Mul", "new.w"]
    out = graph.run({"w": _floats(2)})
    _close(out["new.w"], _floats(2) * 2)
    _close(out["Mul"], _floats(2) + 1)


def test_names_can_be_given() -> None:
    graph = export(
        lambda x, y: (x + y, x * y),
        _floats(2),
        _floats(2),
        input_names=["left", "right"],
        output_names=["sum", "product"],
        name="both",
    )
    assert [v.name for v in graph.inputs] == ["left", "right"]
    assert [v.name for v in graph.outputs] == ["sum", "product"]
    assert graph.name == "both"
    with pytest.raises(DomainError, match="1 input_names for 2 inputs: x, y"):
        export(lambda x, y: x + y, _floats(2), _floats(2), input_names=["one"])
    with pytest.raises(DomainError, match="2 output_names for 1 results: output"):
        export(lambda x: x, _floats(2), output_names=["a", "b"])


class _Pair(NamedTuple):
    left: Any
    right: Any


def test_fields_of_a_named_tuple_are_names() -> None:
    graph = export(lambda p: _Pair(p.right * 2.0, p.left), _Pair(_floats(2), _floats(3)))
    assert [v.name for v in graph.inputs] == ["p.left", "p.right"]
    assert [v.name for v in graph.outputs] == ["left", "right"]
    _close(graph.run({"p.left": _floats(2), "p.right": _floats(3)})["left"], _floats(3) * 2)


def test_examples_by_keyword() -> None:
    def scaled(x: Any, *, by: Any, plus: float = 0.0) -> Any:
        return x * by["w"] + plus

    graph = export(
        scaled,
        _floats(2, 3),
        kwargs={"by": {"w": _floats(2, 3, seed=1)}, "plus": 2.0},
        dynamic_axes={"x": {0: "n"}, "by.w": {0: "n"}},
    )
    assert [(v.name, v.shape) for v in graph.inputs] == [("x", ("n", 3)), ("by.w", ("n", 3))]
    x, w = _floats(4, 3), _floats(4, 3, seed=1)
    _close(graph.run({"x": x, "by.w": w})["output"], x * w + 2)


def test_a_mask_by_keyword_of_a_model() -> None:
    model = em.models.Decoder(vocab_size=9, hidden_size=8, num_layers=1, num_heads=2, max_length=16)
    tokens, mask = np.arange(5).reshape(1, 5), np.ones((1, 5), bool)
    axes = {"tokens": {1: "length"}, "mask": {1: "length"}}
    graph = export(model.eval(), tokens, kwargs={"mask": mask}, dynamic_axes=axes)
    other, seen = np.arange(7).reshape(1, 7), np.arange(7)[None] > 1
    got = graph.run({"tokens": other, "mask": seen})["output"]
    np.testing.assert_allclose(got, model(other, mask=seen).numpy(), rtol=1e-5, atol=1e-5)


def test_parameters_are_constants_with_their_paths(backend: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = _floats(5, 3)
    graph = export(model, ops.asarray(x))
    assert [c.name for c in graph.constants()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [node.op for node in graph.nodes] == ["Gemm", "Relu", "Gemm", "Identity"]
    _close(_run(graph, x)[0], model(ops.asarray(x)))


def test_what_a_function_closes_over_is_a_constant_once(backend: str) -> None:
    model, table = nn.Linear(3, 3), ops.asarray(_floats(3))
    deep = {"list": [ops.asarray(_floats(3, seed=4))]}

    def twice(x: Any) -> Any:
        return model(model(x) + table) * table + deep["list"][0]

    x = _floats(2, 3)
    graph = export(twice, ops.asarray(x))
    names = sorted(c.name for c in graph.constants())
    assert names == ["deep.list.0", "model.bias", "model.weight", "table"]
    _close(_run(graph, x)[0], twice(ops.asarray(x)))


def test_a_tensor_of_another_backend_that_nobody_found_is_adopted() -> None:
    class Hidden:
        __slots__ = ("x",)

    hidden = Hidden()
    with em.use_backend("torch"):
        hidden.x = ops.asarray(_floats(3))
    graph = export(lambda x: x + hidden.x + hidden.x, ops.asarray(_floats(2, 3)))
    assert [c.name for c in graph.constants()] == ["captured"]
    _close(_run(graph, _floats(2, 3))[0], _floats(2, 3) + 2 * _floats(3))


def test_nodes_tell_the_line_they_came_from() -> None:
    graph = export(lambda x: ops.tanh(x), _floats(2))
    assert graph.nodes[0].source.startswith(f"{Path(__file__).name}:")


def test_jitted_functions_are_inlined(backend: str) -> None:
    double = em.jit(lambda x: x * 2.0)
    graph = export(lambda x: double(x) + 1.0, ops.asarray(_floats(3)))
    assert [node.op for node in graph.nodes] == ["Mul", "Add", "Identity"]


def test_constants_are_computed_at_once() -> None:
    def masked(x: Any) -> Any:
        table = ops.tril(ops.ones((3, 3))) * 2.0
        assert float(table[0, 0]) == 2.0  # what the function makes itself can be read
        return x * table

    graph = export(masked, _floats(3, 3))
    assert [node.op for node in graph.nodes] == ["Mul", "Identity"]


def test_a_graph_is_saved_and_read_by_onnxruntime(tmp_path: Path) -> None:
    import onnxruntime

    x = _floats(2, 3)
    graph = export(nn.Linear(3, 2), ops.asarray(x), dynamic_axes={"x": {0: "batch"}})
    graph.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert session.get_inputs()[0].shape == ["batch", 3]
    _close(session.run(None, {"x": x})[0], _run(graph, x)[0])


# --- Nothing is left ----------------------------------------------------------------------------


def _picture(model: nn.Module) -> list[Any]:
    return [
        (name, x.backend, x.numpy().copy(), type(x), x.requires_grad, x.grad is None)
        for name, x in model.named_parameters()
    ] + [(name, x.backend, x.numpy().copy()) for name, x in model.named_buffers()]


def _same(a: list[Any], b: list[Any]) -> None:
    for one, other in zip(a, b, strict=True):
        for x, y in zip(one, other, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_is_left_as_it_was(backend: str, fails: bool) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(0.5), nn.Flatten())
    model[0].bias.grad = ops.ones_like(model[0].bias.detach())
    before, modes = _picture(model), [m.training for m in model.modules()]
    x = ops.asarray(_floats(2, 1, 5, 5))

    def step(x: Any) -> Any:
        y = model(x)
        if fails:
            float(y.sum())
        return y

    if fails:
        with pytest.raises(TraceError):
            export(step, x)
    else:
        export(model, x)
        with em.use_backend("numpy"):
            graph = export(nn.BatchNorm2d(2), _floats(2, 2, 3, 3), train=True)
        assert "BatchNormalization" not in [node.op for node in graph.nodes]
    _same(before, _picture(model))
    assert [m.training for m in model.modules()] == modes
    assert em.get_backend() == backend
    assert model(x).backend == backend


@pytest.mark.parametrize("given", [False, True])
def test_a_cache_is_left_as_it_was(given: bool) -> None:
    model = em.models.Decoder(vocab_size=9, hidden_size=8, num_layers=1, num_heads=2, max_length=16)
    caches, token = model.eval().make_caches(1, 16), np.array([[3]])
    with em.no_grad():
        model(np.arange(4).reshape(1, 4), caches=caches)
        before = caches[0].keys.numpy().copy()
        if given:
            export(model, token, kwargs={"caches": caches})
        else:
            graph = export(lambda t: model(t, caches=caches), token)
        assert caches[0].length == 4
        np.testing.assert_array_equal(caches[0].keys.numpy(), before)
        wanted = model(token, caches=caches).numpy()
    if not given:
        np.testing.assert_allclose(graph.run({"t": token})["output"], wanted, rtol=1e-5, atol=1e-5)


def test_an_optimizer_that_is_closed_over_is_left_as_it_was() -> None:
    model = nn.Linear(3, 2)
    opt = em.training.Adam(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = ops.sum(model(x) ** 2)
        loss.backward()
        opt.step()
        return loss

    x, fields = ops.ones((4, 3)), set(vars(opt))
    export(step, x)
    assert set(vars(opt)) == fields
    assert opt.steps == 0
    assert float(step(x)) > float(step(x))


def test_nothing_of_a_trace_stays_alive() -> None:
    model, shadows = nn.Linear(3, 2), []

    def watched(x: Any) -> Any:
        shadows.append(weakref.ref(x.native))
        return model(x) * 2.0

    graph = export(watched, _floats(2, 3), dynamic_axes={"x": {0: "n"}})
    gc.collect()
    assert len(shadows) >= 3
    assert [ref() for ref in shadows] == [None] * len(shadows)
    assert graph.nodes


def test_modules_are_exported_in_eval_mode() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).train()
    graph = export(model, _floats(2, 3))
    assert [node.op for node in graph.nodes] == ["Gemm", "Identity"]
    with pytest.raises(TraceError, match="random numbers"):
        export(model, _floats(2, 3), train=True)


def test_the_graph_backend_is_not_listed() -> None:
    export(lambda x: x + 1.0, _floats(2))
    assert "graph" not in em.backend.available_backends()
    assert em.get_backend() == "numpy"


# --- What cannot be traced ----------------------------------------------------------------------


def _branches(x: Any) -> Any:
    if x.sum() > 0:  # the line that is named
        return x
    return -x


@pytest.mark.parametrize(
    "read",
    [
        lambda x: float(x.sum()),
        lambda x: x.sum().item(),
        lambda x: x.numpy(),
        lambda x: x.tolist(),
        lambda x: list(x.sum().reshape(1).tolist()),
        lambda x: x[x > 0],
        lambda x: ops.nonzero(x),
    ],
)
def test_reading_a_value_is_an_error(read: Any) -> None:
    with pytest.raises(EmberError, match=r"test_export\.py:\d+"):
        export(read, _floats(3))


def test_a_branch_by_a_value_names_the_line() -> None:
    line = _branches.__code__.co_firstlineno + 1
    with pytest.raises(TraceError) as caught:
        export(_branches, _floats(3))
    assert f"{__file__}:{line}: `if x.sum() > 0:" in str(caught.value)
    assert "ops.where or ops.cond" in str(caught.value)


def test_an_op_without_a_form_names_itself_and_the_line() -> None:
    with pytest.raises(EmberError, match=r"ops\.linalg\.svd has no form in ONNX.*test_export\.py"):
        export(lambda x: ops.linalg.svd(x)[1], _floats(3, 3))


def test_errors_of_the_library_name_the_line_as_well() -> None:
    def cut(x: Any) -> Any:
        return x[: x[0].astype("int64")]  # a bound that is a tensor

    line = cut.__code__.co_firstlineno + 1
    with pytest.raises(EmberError) as caught:
        export(cut, _floats(3))
    assert f"{__file__}:{line}: `return x[: x[0]" in str(caught.value)


def test_draws_need_a_key() -> None:
    with pytest.raises(TraceError, match="random numbers"):
        export(lambda x: x + ops.random.normal((3,)), _floats(3))
    generator = ops.random.Generator(0)
    with pytest.raises(TraceError, match="random numbers"):
        export(lambda x: x + ops.random.normal((3,), generator=generator), _floats(3))

    def noisy(x: Any, key: Any) -> Any:
        return x + ops.random.normal((3,), generator=key)

    key = ops.random.key(7)
    graph = export(noisy, _floats(3), key)
    _close(_run(graph, _floats(3), key.numpy())[0], noisy(ops.asarray(_floats(3)), key))
    other = ops.random.key(8)
    _close(_run(graph, _floats(3), other.numpy())[0], noisy(ops.asarray(_floats(3)), other))


def test_mistakes_of_the_caller() -> None:
    with pytest.raises(TraceError, match="takes a function or a model, not int"):
        export(3)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TraceError, match="gives no tensors"):
        export(lambda x: None, _floats(2))
    with pytest.raises(ShapeError, match="do not broadcast"):
        export(lambda x: x + ops.ones(3), _floats(2))
    with pytest.raises(UnknownKeyError, match="names the input 'y'; there are x"):
        export(lambda x: x, _floats(2), dynamic_axes={"y": {0: "n"}})
    with pytest.raises(ShapeError, match="axis 1 of 'x'"):
        export(lambda x: x, _floats(2), dynamic_axes={"x": {1: "n"}})
    with pytest.raises(ShapeError, match="'n' is 2 in one example and 3"):
        export(lambda x, y: (x, y), _floats(2), _floats(3), dynamic_axes=[{0: "n"}, {0: "n"}])
    with pytest.raises(EmberError, match="complex"):
        export(lambda x: x * 1j, _floats(2))
    with pytest.raises(EmberError, match="the input 'x' is complex64"):
        export(lambda x: ops.abs(x), _floats(2).astype(np.complex64))


def test_a_tensor_that_was_kept_from_inside_says_so() -> None:
    kept: list[Any] = []
    export(lambda x: kept.append(x) or x + 1.0, _floats(2))
    with pytest.raises(TraceError, match="kept from inside"):
        kept[0] + 1.0


# --- Writing ------------------------------------------------------------------------------------


def test_writes_are_functional() -> None:
    def written(x: Any) -> Any:
        y = ops.zeros((3, 2))
        y[0] = x[1]
        y[1] = y[0] + 1.0
        y[2, 1] = 5.0
        y[x > 2.0] = 7.0
        y[ops.asarray([0, 2]), 0] = x[:2, 1]
        y[:, ::-1] = y.copy()
        y += 1.0
        return y

    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    graph = export(written, x)
    for values in (x, -x):
        _close(_run(graph, values)[0], written(ops.asarray(values)))


def test_a_write_under_a_view_is_refused() -> None:
    def written(x: Any) -> Any:
        y = x * 1.0
        view = y[0]
        y[1] = 0.0
        return y + view

    with pytest.raises(EmberError, match="views"):
        export(written, _floats(2, 2))


def test_keys_of_every_kind() -> None:
    def picked(x: Any, i: Any) -> Any:
        return (
            x[i], x[i, 0], x[:, None, ::-1], x[..., 1], x[-1], x[1:, [1, 0]], x[i[:, None], i],
            x[:, i], x[i, :, 1], x[1, i], x[None, ..., i], x[::2, 1:],
            x[ops.asarray([True, False, True])],
        )  # fmt: skip

    x, i = _floats(3, 4, 3), np.array([2, -1, 0])
    graph = export(picked, x, i)
    for got, wanted in zip(_run(graph, x, i), picked(ops.asarray(x), ops.asarray(i)), strict=True):
        _close(got, wanted)


def test_export_does_not_depend_on_which_backends_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    export(ops.tanh, _floats(2))
    monkeypatch.setattr(selection, "_loaded", {"numpy": selection.load("numpy")})
    (got,) = _run(export(ops.tanh, _floats(2)), _floats(2))
    _close(got, np.tanh(_floats(2)))
    assert "graph" not in em.available_backends()
    with pytest.raises(UnknownBackendError, match="built in"):
        em.register_backend("graph", lambda: selection.load("numpy"))


@pytest.mark.parametrize("names", [["q", "q"], ["", "b"], [1, 2], "ab"])
def test_names_are_different_texts(names: Any) -> None:
    for word in ("input_names", "output_names"):
        with pytest.raises(DomainError, match=word):
            export(lambda a, b: (a, b), ops.ones(2), ops.ones(2), **{word: names})


@pytest.mark.parametrize("axes", [3, "batch", {"a": "n"}, {"a": {"zero": "n"}}, {"a": {0: None}},
                                  {"a": {0: ""}}, {"a": {True: "n"}}, {"a": {0: 3}}])  # fmt: skip
def test_dynamic_axes_of_another_form(axes: Any) -> None:
    with pytest.raises(DomainError, match="dynamic_axes"):
        export(lambda a: a * 2.0, ops.ones((2, 2)), dynamic_axes=axes)
