"""The ops executor itself: feeds, outputs, bodies, what stays on the host, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml.errors import DTypeError, ShapeError, UnknownKeyError, UnsupportedOpError
from ember_ml.graph.core import Graph, Node, Value
from ember_ml.graph.executors import interpreter
from ember_ml.graph.executors.interpreter import OpsProgram
from ember_ml.tensor import convert

# Operators whose cases are here: their values are random, or they run graphs.
OWN_CASES = (
    ("", "RandomNormal"),
    ("", "RandomNormalLike"),
    ("", "RandomUniform"),
    ("", "RandomUniformLike"),
    ("", "Bernoulli"),
    ("", "Multinomial"),
    ("", "Loop"),
    ("", "Scan"),
    ("", "If"),
)


def _one(op: str, inputs: dict[str, Any], outputs: list[str], **attributes: Any) -> Graph:
    """A graph of one node over inputs of the dtypes and shapes of some arrays."""
    graph = Graph("one")
    given = [graph.input(n, x.dtype.name, x.shape) for n, x in inputs.items()]
    made = graph.add_many(op, given, [(dtype, None) for dtype in outputs], **attributes)
    graph.outputs.extend(made)
    return graph


# --- Feeds and outputs --------------------------------------------------------------------------


def _scaled() -> Graph:
    graph = Graph("scaled")
    x = graph.input("x", "float32", ("batch", 3))
    two = graph.constant(np.float32(2))
    graph.output("y", graph.add("Mul", [x, two], [("float32", x.shape)]))
    return graph


def test_arrays_and_tensors_of_any_backend_are_fed(backend: str) -> None:
    program = OpsProgram(_scaled(), backend)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert program.executor == backend
    for given in (array, em.ops.asarray(array), em.ops.asarray(array).to_backend("numpy")):
        y = program.run({"x": given})["y"]
        assert (y.backend, y.dtype, y.shape) == (backend, em.float32, (2, 3))
        np.testing.assert_array_equal(y.numpy(), array * 2)


def test_graph_run_reaches_it(backend: str) -> None:
    y = _scaled().run({"x": np.ones((1, 3), np.float32)}, backend)["y"]
    assert y.backend == backend
    assert y.tolist() == [[2.0, 2.0, 2.0]]


def test_wrong_feeds(backend: str) -> None:
    program = OpsProgram(_scaled(), backend)
    with pytest.raises(UnknownKeyError, match="needs the input 'x'"):
        program.run({})
    with pytest.raises(UnknownKeyError, match="no input 'z'"):
        program.run({"x": np.ones((1, 3), np.float32), "z": np.ones(1)})
    with pytest.raises(DTypeError, match="is float32, and float64 came"):
        program.run({"x": np.ones((1, 3))})
    with pytest.raises(ShapeError):
        program.run({"x": np.ones((1, 4), np.float32)})


def test_lists_and_numbers_are_fed(backend: str) -> None:
    graph = _scaled()
    for run_on in (backend, "onnxruntime"):
        program = graph.program(run_on)
        assert program.run({"x": [[1, 2, 3]]})["y"].tolist() == [[2.0, 4.0, 6.0]]
        with pytest.raises(ShapeError, match="differ in length"):
            program.run({"x": [[1, 2, 3], [4]]})
        for wrong in (None, "text", [["a", "b", "c"]], object(), [[1j, 2, 3]]):
            with pytest.raises(DTypeError, match="input 'x' cannot be made"):
                program.run({"x": wrong})
        with pytest.raises(ShapeError):
            program.run({"x": 1.0})
        with pytest.raises(DTypeError, match="by name"):
            program.run([[1.0, 2.0, 3.0]])  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="backend is a name"):
        graph.run({"x": [[1, 2, 3]]}, ["numpy"])  # type: ignore[arg-type]


def test_lists_of_whole_numbers() -> None:
    graph = Graph("whole")
    x = graph.input("x", "uint8", (2,))
    graph.output("y", graph.add("Add", [x, x], [("uint8", (2,))]))
    assert graph.run({"x": [1, 2]}, "numpy")["y"].tolist() == [2, 4]
    for wrong in ([1.5, 2.0], [300, 1], [-1, 1]):  # nothing is cut off or wraps around
        with pytest.raises(DTypeError, match="cannot be made of list"):
            graph.run({"x": wrong}, "numpy")


def test_a_graph_that_grows_is_made_ready_anew() -> None:
    graph = _scaled()
    feeds = {"x": np.ones((1, 3), np.float32)}
    for run_on in ("numpy", "onnxruntime"):
        before = graph.run(feeds, run_on)
        name = f"more_{run_on}"
        graph.output(name, graph.add("Neg", [graph.inputs[0]], [("float32", ("batch", 3))]))
        assert sorted(graph.run(feeds, run_on)) == sorted([*before, name])


def test_outputs_do_not_share_memory_with_each_other(backend: str) -> None:
    graph = Graph("views")
    x = graph.input("x", "float32", (2, 2))
    y = graph.add("Relu", [x], [("float32", (2, 2))])
    for name in ("a", "b"):
        graph.output(name, y)
    graph.output("c", graph.add("Transpose", [y], [("float32", (2, 2))], perm=[1, 0]))
    made = OpsProgram(graph, backend).run({"x": np.ones((2, 2), np.float32)})
    for name in ("a", "b", "c"):
        rest = [made[other] for other in made if other != name]
        made[name][0, 0] = 7.0
        assert all(float(other[0, 0]) == 1.0 for other in rest)
        made[name][0, 0] = 1.0
    given = em.ops.ones((2, 2))
    assert given.backend == backend
    graph = Graph("through")
    graph.output("y", graph.input("x", "float32", (2, 2)))
    graph.output("k", graph.constant(np.ones((2, 2), np.float32)))
    program = OpsProgram(graph, backend)
    for _ in range(2):
        made = program.run({"x": given})
        for name in ("y", "k"):
            assert float(made[name][0, 0]) == 1.0
            made[name][0, 0] = 7.0
    assert float(given[0, 0]) == 1.0


def test_outputs_do_not_share_memory_with_inputs_or_constants(backend: str) -> None:
    graph = Graph("same")
    x = graph.input("x", "float32", (2, 2))
    kept = graph.constant(np.ones((2, 2), np.float32))
    graph.output("y", graph.add("Transpose", [x], [("float32", (2, 2))]))
    graph.output("z", graph.add("Identity", [kept], [("float32", (2, 2))]))
    program = OpsProgram(graph, backend)
    array = np.zeros((2, 2), np.float32)
    first = program.run({"x": array})
    first["y"][:] = 5
    first["z"][:] = 5
    assert not array.any()
    assert program.run({"x": array})["z"].tolist() == [[1, 1], [1, 1]]


def test_four_bit_integers_come_out_as_eight(backend: str) -> None:
    import ml_dtypes

    graph = Graph("nibbles")
    x = graph.input("x", "int4", (3,))
    graph.output("y", x)
    y = OpsProgram(graph, backend).run({"x": np.array([-8, 0, 7]).astype(ml_dtypes.int4)})["y"]
    assert y.dtype is em.int8
    assert y.tolist() == [-8, 0, 7]


def test_values_are_freed_after_their_last_use() -> None:
    graph = Graph("chain")
    x = graph.input("x", "float32", (2,))
    a = graph.add("Abs", [x], [("float32", (2,))])
    b = graph.add("Neg", [a], [("float32", (2,))])
    graph.output("y", graph.add("Add", [b, b], [("float32", (2,))]))
    program = OpsProgram(graph, "numpy")
    freed = [len(step.frees) for step in program._block.steps]
    assert freed == [1, 1, 1, 1]


def test_constants_are_folded_once(backend: str) -> None:
    """What follows from constants alone is no step of a run."""
    graph = Graph("folded")
    x = graph.input("x", "float32", (4,))
    two = graph.add("Constant", [], [("float32", (1,))], value_floats=[2.0])
    sizes = graph.add("Constant", [], [("int64", (1,))], value_ints=[4])
    many = graph.add("Expand", [two, sizes], [("float32", (4,))])
    graph.output("y", graph.add("Mul", [x, many], [("float32", (4,))]))
    program = OpsProgram(graph, backend)
    assert [step.node.op for step in program._block.steps] == ["Mul", "Identity"]
    assert program.run({"x": np.ones(4, np.float32)})["y"].tolist() == [2.0] * 4


def test_gradients_flow_through_a_graph(backend: str) -> None:
    program = OpsProgram(_scaled(), backend)

    def loss(x: Any) -> Any:
        y = program.run({"x": x})["y"]
        return em.ops.sum(em.ops.multiply(y, y))

    x = em.ops.asarray(np.array([[1.0, 2.0, 3.0]], np.float32))
    assert em.grad(loss)(x).tolist() == [[8.0, 16.0, 24.0]]


@pytest.mark.parametrize("backend", ["numpy", "jax", "mlx"])
def test_a_run_can_be_compiled(backend: str) -> None:
    """torch.compile takes ten seconds to start, and compiles the same ops as tests/autodiff do."""
    with em.use_backend(backend):
        program = OpsProgram(_reshaping(), backend)
        run = em.jit(lambda x: program.run({"x": x})["y"])
        x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
        y = run(em.ops.asarray(x))
        np.testing.assert_array_equal(y.numpy(), x.reshape(2, 6))


# --- The host -----------------------------------------------------------------------------------


def _reshaping() -> Graph:
    """What exporters write for x.reshape(x.shape[0], -1)."""
    graph = Graph("flat")
    x = graph.input("x", "float32", ("n", 2, 3))
    shape = graph.add("Shape", [x], [("int64", (3,))])
    zero = graph.constant(np.int64(0))
    first = graph.add("Gather", [shape, zero], [("int64", ())], axis=0)
    row = graph.add("Unsqueeze", [first, graph.constant(np.array([0]))], [("int64", (1,))])
    rest = graph.constant(np.array([-1]))
    sizes = graph.add("Concat", [row, rest], [("int64", (2,))], axis=0)
    graph.output("y", graph.add("Reshape", [x, sizes], [("float32", None)]))
    return graph


def test_shapes_stay_on_the_host(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = OpsProgram(_reshaping(), backend)
    moves: list[Any] = []
    kept = convert.to_backend

    def counted(x: Any, *args: Any, **options: Any) -> Any:
        moves.append(x)
        return kept(x, *args, **options)

    monkeypatch.setattr(interpreter.convert, "to_backend", counted)
    y = program.run({"x": np.ones((4, 2, 3), np.float32)})["y"]
    assert (y.shape, y.backend) == ((4, 6), backend)
    assert not moves


def test_what_grows_large_leaves_the_host(backend: str) -> None:
    graph = Graph("mask")
    n = graph.input("n", "int64", (1,))
    ones = graph.add("ConstantOfShape", [n], [("float32", None)], value=np.ones(1, np.float32))
    graph.output("y", graph.add("Add", [ones, ones], [("float32", None)]))
    y = OpsProgram(graph, backend).run({"n": np.array([2000])})["y"]
    assert (y.backend, y.shape) == (backend, (2000,))
    assert y[1999].item() == 2.0


def test_a_host_value_meets_a_tensor(backend: str) -> None:
    graph = Graph("meet")
    x = graph.input("x", "int64", (3,))
    size = graph.add("Size", [x], [("int64", ())])
    graph.output("y", graph.add("Mul", [x, size], [("int64", (3,))]))
    y = OpsProgram(graph, backend).run({"x": np.array([1, 2, 3])})["y"]
    assert (y.backend, y.tolist()) == (backend, [3, 6, 9])


def test_det_of_16_bit_floats(backend: str) -> None:
    """No engine factorises them, and neither does onnx's reference."""
    x = np.array([[2, 1, 0], [1, 3, 1], [0, 1, 4]], np.float16)
    det = next(iter(OpsProgram(_one("Det", {"x": x}, ["float16"]), backend).run({"x": x}).values()))
    assert (det.dtype, det.shape) == (em.float16, ())
    np.testing.assert_allclose(det.item(), np.linalg.det(x.astype(np.float64)), rtol=1e-3)


# --- Branches and loops -------------------------------------------------------------------------


def _body(name: str) -> Graph:
    return Graph(name)


def test_if_takes_a_branch_and_sees_outer_values(backend: str) -> None:
    graph = Graph("choice")
    cond = graph.input("cond", "bool", ())
    x = graph.input("x", "float32", (2,))
    doubled = graph.add("Add", [x, x], [("float32", (2,))])
    yes, no = _body("yes"), _body("no")
    yes.outputs.append(yes.add("Neg", [doubled], [("float32", (2,))]))
    no.outputs.append(doubled)
    made = graph.add("If", [cond], [("float32", (2,))], then_branch=yes, else_branch=no)
    graph.output("y", made)
    program = OpsProgram(graph, backend)
    x1 = np.array([1.0, 2.0], np.float32)
    assert program.run({"cond": np.array(True), "x": x1})["y"].tolist() == [-2.0, -4.0]
    assert program.run({"cond": np.array(False), "x": x1})["y"].tolist() == [2.0, 4.0]


def _loop() -> Graph:
    """Sums x * (i + 1) while the sum stays below a limit; gives it and its course."""
    graph = Graph("loop")
    most = graph.input("most", "int64", ())
    x = graph.input("x", "float32", (2,))
    limit = graph.input("limit", "float32", ())
    start = graph.constant(np.zeros(2, np.float32))
    body = _body("body")
    i = body.input("i", "int64", ())
    body.input("going", "bool", ())
    total = body.input("total", "float32", (2,))
    one = body.constant(np.float32(1), "one")
    count = body.add("Cast", [i], [("float32", ())], to=1)
    factor = body.add("Add", [count, one], [("float32", ())])
    part = body.add("Mul", [x, factor], [("float32", (2,))])
    new = body.add("Add", [total, part], [("float32", (2,))])
    high = body.add("ReduceMax", [new], [("float32", ())], keepdims=0)
    again = body.add("Less", [high, limit], [("bool", ())])
    body.outputs = [again, new, body.add("Identity", [new], [("float32", (2,))])]
    outputs: list[Any] = [("float32", (2,)), ("float32", (None, 2))]
    final, course = graph.add_many("Loop", [most, None, start], outputs, body=body)
    graph.output("final", final)
    graph.output("course", course)
    return graph


def test_loop(backend: str) -> None:
    program = OpsProgram(_loop(), backend)
    feeds = {
        "most": np.array(10),
        "x": np.array([1, 2], np.float32),
        "limit": np.array(5, np.float32),
    }
    got = program.run(feeds)
    assert got["final"].tolist() == [3.0, 6.0]
    assert got["course"].tolist() == [[1.0, 2.0], [3.0, 6.0]]
    again = program.run({**feeds, "most": np.array(1)})
    assert again["course"].tolist() == [[1.0, 2.0]]
    none = program.run({**feeds, "most": np.array(0)})
    assert none["final"].tolist() == [0.0, 0.0]
    assert none["course"].shape == (0, 2)
    assert got["course"].backend == none["course"].backend == backend


def test_loop_is_onnx_runtimes() -> None:
    pytest.importorskip("onnxruntime", reason="compared with ONNX Runtime")
    feeds = {
        "most": np.array(6),
        "x": np.array([0.5, -1], np.float32),
        "limit": np.array(4, np.float32),
    }
    graph = _loop()
    theirs, ours = graph.run(feeds), graph.run(feeds, "numpy")
    for name, want in theirs.items():
        np.testing.assert_allclose(ours[name].numpy(), want, rtol=1e-6)


def test_scan_in_both_directions(backend: str) -> None:
    graph = Graph("scan")
    start = graph.input("start", "float32", (2,))
    xs = graph.input("xs", "float32", (2, 3))
    body = _body("body")
    state = body.input("state", "float32", (2,))
    x = body.input("x", "float32", (2,))
    new = body.add("Add", [state, x], [("float32", (2,))])
    body.outputs = [new, body.add("Mul", [new, new], [("float32", (2,))])]
    outputs: list[Any] = [("float32", (2,)), ("float32", (2, 3))]
    final, squares = graph.add_many(
        "Scan", [start, xs], outputs, body=body, num_scan_inputs=1, scan_input_axes=[1],
        scan_input_directions=[1], scan_output_axes=[1], scan_output_directions=[1],
    )  # fmt: skip
    graph.output("final", final)
    graph.output("squares", squares)
    feeds = {
        "start": np.zeros(2, np.float32),
        "xs": np.array([[1, 2, 3], [4, 5, 6]], np.float32),
    }
    got = OpsProgram(graph, backend).run(feeds)
    assert got["final"].tolist() == [6.0, 15.0]
    assert got["squares"].tolist() == [[36.0, 25.0, 9.0], [225.0, 121.0, 36.0]]


# --- Random numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize("like", [False, True])
def test_random_numbers_have_their_moments(like: bool, backend: str) -> None:
    x = np.zeros((100, 50), np.float32)
    given = {"x": x} if like else {}
    shape = {} if like else {"shape": [100, 50]}
    end = "Like" if like else ""
    normal = _one(f"RandomNormal{end}", given, ["float32"], mean=3.0, scale=2.0, seed=1.0, **shape)
    uniform = _one(f"RandomUniform{end}", given, ["float32"], low=-1.0, high=3.0, seed=1.0, **shape)
    drawn = next(iter(OpsProgram(normal, backend).run(given).values()))
    again = next(iter(OpsProgram(normal, backend).run(given).values()))
    assert (drawn.backend, drawn.dtype, drawn.shape) == (backend, em.float32, (100, 50))
    np.testing.assert_array_equal(drawn.numpy(), again.numpy())
    # The mean of 5,000 is off by more than 5 deviations once in a million.
    assert abs(drawn.numpy().mean() - 3) < 5 * 2 / 5000**0.5
    assert abs(drawn.numpy().std() - 2) < 5 * 2 / 10000**0.5
    flat = next(iter(OpsProgram(uniform, backend).run(given).values())).numpy()
    assert -1 <= flat.min() < -0.98
    assert 2.98 < flat.max() < 3
    assert abs(flat.mean() - 1) < 5 * (4 / 12**0.5) / 5000**0.5


def test_bernoulli_and_dropout_keep_their_shares(backend: str) -> None:
    chance = np.full(4000, 0.3, np.float32)
    graph = _one("Bernoulli", {"p": chance}, ["float64"], dtype=11, seed=2.0)
    drawn = next(iter(OpsProgram(graph, backend).run({"p": chance}).values()))
    assert drawn.dtype is em.float64
    assert set(np.unique(drawn.numpy())) == {0.0, 1.0}
    assert abs(drawn.numpy().mean() - 0.3) < 5 * (0.21 / 4000) ** 0.5
    given = {
        "x": np.ones(4000, np.float32),
        "ratio": np.array(0.25, np.float32),
        "training": np.array(True),
    }
    graph = _one("Dropout", given, ["float32", "bool"], seed=3)
    y, mask = OpsProgram(graph, backend).run(given).values()
    np.testing.assert_allclose(y.numpy(), mask.numpy() / 0.75, rtol=1e-6)
    assert abs(mask.numpy().mean() - 0.75) < 5 * (0.1875 / 4000) ** 0.5


def test_multinomial_draws_by_log_probability(backend: str) -> None:
    logs = np.log(np.array([[1.0, 0.0001, 3.0], [0.0001, 1.0, 0.0001]])).astype(np.float32)
    graph = _one("Multinomial", {"x": logs}, ["int32"], sample_size=2000, seed=5.0)
    drawn = next(iter(OpsProgram(graph, backend).run({"x": logs}).values()))
    assert (drawn.dtype, drawn.shape) == (em.int32, (2, 2000))
    assert abs((drawn.numpy()[0] == 2).mean() - 0.75) < 5 * (0.1875 / 2000) ** 0.5
    assert (drawn.numpy()[1] == 1).mean() > 0.99


# --- Errors -------------------------------------------------------------------------------------


def test_an_unknown_operator_is_named_with_its_node() -> None:
    graph = Graph("strange")
    x = graph.input("x", "float32", (2,))
    made = Value("odd", "float32", (2,))
    graph.nodes.append(Node("Fancy", [x], [made], domain="com.example", label="layer3"))
    graph.opsets["com.example"] = 2
    graph.outputs.append(made)
    with pytest.raises(
        UnsupportedOpError, match=r"'layer3' -> odd.*com\.example\.Fancy \(opset 2\)"
    ):
        OpsProgram(graph, "numpy")


def test_an_operator_in_a_body_is_named_too() -> None:
    graph = Graph("strange")
    cond = graph.input("cond", "bool", ())
    yes, no = _body("yes"), _body("no")
    yes.outputs.append(yes.add("SequenceLength", [cond], [("int64", ())], label="inside"))
    no.outputs.append(no.constant(np.int64(1)))
    graph.output("y", graph.add("If", [cond], [("int64", ())], then_branch=yes, else_branch=no))
    with pytest.raises(UnsupportedOpError, match=r"'inside'.*SequenceLength"):
        OpsProgram(graph, "numpy")


@pytest.mark.parametrize(("opset", "text"), [(99, "opset 99 is newer"), (5, "from opset 6 on")])
def test_opsets_that_are_not_known(opset: int, text: str) -> None:
    graph = Graph("versions", opset=opset)
    x = graph.input("x", "float32", (2,))
    graph.outputs.append(graph.add("Neg", [x], [("float32", (2,))]))
    with pytest.raises(UnsupportedOpError, match=text):
        OpsProgram(graph, "numpy")


def test_strings_are_refused() -> None:
    graph = Graph("text")
    x = graph.input("x", "string", (2,))
    graph.outputs.append(graph.add("Identity", [x], [("string", (2,))]))
    with pytest.raises(DTypeError, match="'x' holds strings"):
        OpsProgram(graph, "numpy")


def test_an_unknown_attribute_is_named() -> None:
    graph = _one("Relu", {"x": np.ones(2, np.float32)}, ["float32"], slope=2.0)
    with pytest.raises(UnsupportedOpError, match=r"node Relu.*'slope'"):
        OpsProgram(graph, "numpy")


def test_an_error_in_a_run_names_the_node(backend: str) -> None:
    graph = Graph("sizes")
    x = graph.input("x", "float32", (None,))
    y = graph.input("y", "float32", (None,))
    graph.outputs.append(graph.add("Add", [x, y], [("float32", None)], label="sum of both"))
    program = OpsProgram(graph, backend)
    with pytest.raises(ShapeError) as caught:
        program.run({"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)})
    assert "node Add 'sum of both'" in str(caught.value)


def test_integer_division_by_zero_and_indices_beyond_raise(backend: str) -> None:
    a = np.array([1, 2], np.int32)
    graph = _one("Div", {"a": a, "b": a}, ["int32"])
    with pytest.raises(ZeroDivisionError):
        OpsProgram(graph, backend).run({"a": a, "b": np.array([1, 0], np.int32)})
    x, at = np.ones((2, 2), np.float32), np.array([0, 2])
    graph = _one("Gather", {"x": x, "at": at}, ["float32"])
    with pytest.raises(IndexError):
        OpsProgram(graph, backend).run({"x": x, "at": at})


def test_older_versions_lack_newer_attributes() -> None:
    graph = Graph("old", opset=13)
    x = graph.input("x", "float32", (1, 2, 3))
    w = graph.constant(np.ones((1, 4, 3), np.float32))
    r = graph.constant(np.ones((1, 4, 4), np.float32))
    graph.outputs.append(graph.add("RNN", [x, w, r], [("float32", None)], layout=1))
    with pytest.raises(UnsupportedOpError, match="'layout'"):
        OpsProgram(graph, "numpy")
