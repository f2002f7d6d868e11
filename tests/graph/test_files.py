"""Graphs to ONNX files and back, and the files that others write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")
ort: Any = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper, parser  # noqa: E402  # after the skip

import ember_ml as em  # noqa: E402
from ember_ml.errors import DomainError, DTypeError, FormatError  # noqa: E402
from ember_ml.graph import Graph, Node, Value, onnx_writing  # noqa: E402
from ember_ml.graph import types as element_types  # noqa: E402
from ember_ml.graph.onnx_reading import load_onnx  # noqa: E402

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(0)


def parsed(text: str, opset: int = 17, more: str = "") -> Any:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}{more}]> {text}')


def run(model: Any, feeds: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    found: list[Any] = ort.InferenceSession(model.SerializeToString(), options).run(None, feeds)
    return found


def check_same(graph: Graph, other: Graph) -> None:
    """Node by node the same: operators, wiring, attributes, types and constants."""
    names: dict[int, str] = {}

    def same_value(x: Value | None, y: Value | None) -> None:
        if x is None or y is None:
            assert x is y
            return
        assert names.setdefault(id(x), y.name) == y.name
        assert (x.dtype, x.shape) == (y.dtype, y.shape), (x, y)
        assert (x.data is None) == (y.data is None)
        if x.data is not None and y.data is not None:
            assert x.data.dtype == y.data.dtype
            assert x.data.tobytes() == y.data.tobytes() or x.data.tolist() == y.data.tolist()

    def same(one: Graph, two: Graph) -> None:
        assert len(one.nodes) == len(two.nodes)
        for x, y in zip(one.inputs + one.outputs, two.inputs + two.outputs, strict=True):
            same_value(x, y)
        for a, b in zip(one.nodes, two.nodes, strict=True):
            assert (a.op, a.domain, a.source) == (b.op, b.domain, b.source)
            for x, y in zip(a.inputs + a.outputs, b.inputs + b.outputs, strict=True):
                same_value(x, y)
            assert a.attributes.keys() == b.attributes.keys()
            for key, value in a.attributes.items():
                if isinstance(value, Graph):
                    same(value, b.attributes[key])
                else:
                    np.testing.assert_equal(b.attributes[key], value)

    assert graph.opsets == other.opsets
    assert graph.metadata == {k: v for k, v in other.metadata.items() if k in graph.metadata}
    assert [x.name for x in graph.inputs] == [x.name for x in other.inputs]
    assert [x.name for x in graph.outputs] == [x.name for x in other.outputs]
    same(graph, other)


def branching() -> Graph:
    """Every kind of thing in one graph: bodies, constants in them, attributes, left-out inputs."""
    graph = Graph("branching")
    graph.metadata["author"] = "me"
    x = graph.input("x", "float32", ("batch", 3))
    flag = graph.input("flag", "bool", ())
    bodies = []
    for scale in (2.0, 3.0):
        body = Graph("branch")
        factor = Value("factor", "float32", (), np.asarray(scale, np.float32))
        made = Value("made", "float32", ("batch", 3))
        body.nodes.append(Node("Mul", [x, factor], [made], label="same name"))
        body.outputs.append(made)
        bodies.append(body)
    y = graph.add(
        "If",
        [flag],
        [("float32", ("batch", 3))],
        label="same name",
        then_branch=bodies[0],
        else_branch=bodies[1],
    )
    high = graph.constant(np.float32(4))
    y = graph.add("Clip", [y, None, high], [("float32", ("batch", 3))], source="model.py:7")
    graph.output("y", graph.add("LeakyRelu", [y], [("float32", ("batch", 3))], alpha=1))
    return graph


class TestRoundTrip:
    def test_every_kind_of_thing(self, tmp_path: Path) -> None:
        graph = branching()
        path = tmp_path / "model.onnx"
        graph.save(path)
        onnx.checker.check_model(str(path), full_check=True)
        other = load_onnx(path)
        check_same(graph, other)
        other.save(path)
        check_same(other, load_onnx(path))
        x = np.array([[1, 2, -3]], np.float32)
        for flag, expected in ((True, [[2, 4, -6]]), (False, [[3, 4, -9]])):
            for one in (graph, other):
                made = one.run({"x": x, "flag": np.asarray(flag)})["y"]
                np.testing.assert_array_equal(made, np.asarray(expected, np.float32))

    @pytest.mark.parametrize("dtype", [x for x in element_types.NAMES.values() if x != "string"])
    @pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
    def test_constants_of_every_type(
        self, dtype: str, shape: tuple[int, ...], tmp_path: Path
    ) -> None:
        low = 0 if dtype.startswith("u") else -3
        array = RNG.integers(low, 4, shape).astype(element_types.numpy_dtype(dtype))
        graph = Graph()
        graph.output("y", graph.constant(array))
        graph.save(tmp_path / "model.onnx")
        (node,) = load_onnx(tmp_path / "model.onnx").nodes
        assert node.inputs[0] is not None
        assert node.inputs[0].data is not None
        assert node.inputs[0].data.dtype == array.dtype
        np.testing.assert_array_equal(node.inputs[0].data, array)

    def test_strings_and_odd_memory(self, tmp_path: Path) -> None:
        graph = Graph()
        graph.output("s", graph.constant(np.array([["a", "öß"]], object)))
        flipped = np.arange(6, dtype=np.float32).reshape(2, 3).T[::-1]
        graph.output("f", graph.constant(flipped))
        for external in (False, True):
            graph.save(tmp_path / "model.onnx", external_data=external)
            made = load_onnx(tmp_path / "model.onnx").run({})
            assert made["s"].tolist() == [["a", "öß"]]
            np.testing.assert_array_equal(made["f"], flipped)

    def test_attributes(self) -> None:
        given = {
            "i": 2**40,
            "f": 0.5,
            "s": "text",
            "b": b"\xff\x00",
            "ints": [1, -2],
            "floats": [0.5, 1.0],
            "strings": ["a", "b"],
            "t": np.arange(3),
            "ts": [np.arange(2), np.ones(1, np.float32)],
        }
        graph = Graph()
        graph.opsets["mine"] = 1
        x = graph.input("x", "float32", (1,))
        graph.output("y", graph.add("Odd", [x], [("float32", (1,))], domain="mine", **given))
        found = load_onnx(graph.to_onnx()).nodes[0].attributes
        assert found.keys() == given.keys()
        for key, value in given.items():
            np.testing.assert_equal(found[key], value)
            assert type(found[key]) is type(value)

    def test_empty_lists_and_mistakes(self) -> None:
        graph = Graph()
        x = graph.input("x", "float32", ())
        graph.output("y", graph.add("Transpose", [x], [("float32", ())], perm=[]))
        assert load_onnx(graph.to_onnx()).nodes[0].attributes == {"perm": []}
        graph.nodes[0].attributes["perm"] = object()
        with pytest.raises(DomainError, match=r"Transpose.*'perm'"):
            graph.to_onnx()

    def test_what_a_model_says_of_itself(self, tmp_path: Path) -> None:
        model = parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }")
        model.producer_name, model.producer_version = "pytorch", "2.9"
        model.doc_string, model.domain, model.model_version = "Words.", "org.example", 7
        model.metadata_props.add(key="labels", value="a,b")
        graph = load_onnx(model)
        assert graph.metadata == {
            "onnx.producer_name": "pytorch",
            "onnx.producer_version": "2.9",
            "onnx.doc_string": "Words.",
            "onnx.domain": "org.example",
            "onnx.model_version": "7",
            "labels": "a,b",
        }
        graph.save(tmp_path / "model.onnx")
        written = onnx.load(tmp_path / "model.onnx")
        assert (written.producer_name, written.model_version) == ("pytorch", 7)
        assert load_onnx(tmp_path / "model.onnx").metadata == graph.metadata

    def test_a_new_name_after_loading_is_new(self) -> None:
        graph = load_onnx(parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }"))
        with pytest.raises(DomainError, match="'x' already"):
            graph.input("x", "float32", (1,))
        assert graph.fresh("y") != "y"


class TestSaving:
    def test_external_data(self, tmp_path: Path) -> None:
        graph = Graph()
        large = RNG.random((300, 4)).astype(np.float32)
        half = RNG.random(5000).astype(ml_dtypes.bfloat16)
        nibbles = (np.arange(3001) % 16).astype(ml_dtypes.uint4)
        for name, array in (("a", large), ("b", half), ("c", np.arange(3))):
            graph.output(name, graph.constant(array, name=f"{name}_data"))
        four = graph.constant(nibbles, name="d_data")
        graph.output("d", graph.add("Cast", [four], [("float32", (3001,))], to=1))
        path = tmp_path / "model.onnx"
        graph.save(path, external_data=True)
        assert sorted(x.name for x in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
        tensors = {x.name: x for x in onnx.load(path, load_external_data=False).graph.initializer}
        for name in ("a_data", "b_data", "d_data"):
            entries = {x.key: x.value for x in tensors[name].external_data}
            assert entries["location"] == "model.onnx.data"
            assert int(entries["offset"]) % 4096 == 0
        assert tensors["c_data"].raw_data
        onnx.checker.check_model(str(path))
        np.testing.assert_array_equal(
            numpy_helper.to_array(onnx.load(path).graph.initializer[0]), large
        )
        check_same(graph, load_onnx(path))

    def test_large_weights_go_beside_by_themselves(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        graph = Graph()
        graph.output("y", graph.constant(np.zeros(1000, np.float32)))
        graph.save(tmp_path / "a.onnx")
        assert not (tmp_path / "a.onnx.data").exists()
        monkeypatch.setattr(onnx_writing, "_AUTOMATIC", 3000)
        graph.save(tmp_path / "a.onnx")
        assert (tmp_path / "a.onnx.data").stat().st_size == 4000
        monkeypatch.setattr(onnx_writing, "_MOST", 3000)
        with pytest.raises(DomainError, match="external_data=True"):
            graph.save(tmp_path / "b.onnx", external_data=False)
        assert not (tmp_path / "b.onnx").exists()

    def test_a_model_keeps_its_data_until_the_new_one_is_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "model.onnx"

        def weights(value: float) -> Graph:
            graph = Graph()
            graph.output("y", graph.constant(np.full(1000, value, np.float32)))
            return graph

        weights(1).save(path, external_data=True)
        before = load_onnx(path)
        replace = os.replace

        def failing(source: str, target: str) -> None:
            if str(target).endswith(".onnx"):
                raise OSError("no room left")
            replace(source, target)

        monkeypatch.setattr(os, "replace", failing)
        with pytest.raises(OSError, match="no room"):
            weights(2).save(path, external_data=True)
        monkeypatch.undo()
        assert load_onnx(path).run({})["y"].tolist() == [1] * 1000
        weights(3).save(path, external_data=True)
        assert load_onnx(path).run({})["y"].tolist() == [3] * 1000
        assert before.run({})["y"].tolist() == [1] * 1000  # its map lives
        assert len(list(tmp_path.iterdir())) == 2

    def test_nothing_half_written(self, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        graph = branching()
        graph.save(path)
        before = path.read_bytes()
        graph.nodes[0].attributes["odd"] = object()
        with pytest.raises(DomainError):
            graph.save(path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]

    def test_no_data_without_its_model(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        graph = Graph("w")
        graph.output("y", graph.constant(np.ones(1000, np.float32)))
        path = tmp_path / "model.onnx"
        replace = os.replace

        def failing(part: Any, target: Any) -> None:
            if str(target).endswith(".onnx"):
                raise OSError("no room")
            replace(part, target)

        monkeypatch.setattr(os, "replace", failing)
        with pytest.raises(OSError, match="no room"):
            graph.save(path, external_data=True)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(FileNotFoundError, match="missing"):
            graph.save(tmp_path / "missing" / "model.onnx")

    def test_inputs_left_out_at_the_end_are_not_written(self) -> None:
        # ONNX Runtime has crashed on them.
        graph = Graph("norm")
        x = graph.input("x", "float32", (2, 3))
        scale = graph.constant(np.ones(3, np.float32), "scale")
        made = graph.add("LayerNormalization", [x, scale, None], [("float32", (2, 3))])
        graph.output("y", made)
        assert list(graph.to_onnx().graph.node[0].input) == ["x", "scale"]
        assert graph.run({"x": np.zeros((2, 3), np.float32)})["y"].tolist() == [[0.0] * 3] * 2

    def test_the_ending_is_demanded(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match=r"\.onnx"):
            branching().save(tmp_path / "model.pb")

    @pytest.mark.parametrize("external", [False, True])
    def test_a_folder_that_is_not_there(self, tmp_path: Path, external: bool) -> None:
        path = tmp_path / "none" / "model.onnx"
        with pytest.raises(FileNotFoundError, match="no such directory to save in"):
            branching().save(path, external_data=external)

    def test_what_is_no_path(self) -> None:
        with pytest.raises(DTypeError, match=r"Graph\.save takes the path of a file, not int"):
            branching().save(3)  # type: ignore[arg-type]  # that is what is tested
        with pytest.raises(DTypeError, match=r"Graph\.draw takes the path of a file, not Graph"):
            branching().draw(branching())  # type: ignore[arg-type]  # the same


class TestReading:
    @pytest.mark.parametrize("opset", range(13, 24))
    def test_every_opset(self, opset: int) -> None:
        model = parsed(
            "g (float[n, 3] x) => (float[n] y) { "
            "axes = Constant <value_ints = [1]> () "
            "s = Softmax <axis = 1> (x) "
            "r = ReduceSum <keepdims = 0> (s, axes) "
            "y = Add(r, r) }",
            opset,
        )
        graph = load_onnx(model)
        assert graph.opsets == {"": opset}
        assert [x.op for x in graph.nodes] == ["Softmax", "ReduceSum", "Add"]
        assert graph.nodes[0].outputs[0].shape == ("n", 3)
        x = RNG.random((4, 3)).astype(np.float32)
        np.testing.assert_array_equal(graph.run({"x": x})["y"], run(model, {"x": x})[0])
        check_same(graph, load_onnx(graph.to_onnx()))

    def test_opsets_that_are_not_read(self) -> None:
        for opset in (6, 24):
            with pytest.raises(FormatError, match=f"opset {opset}; 7 to 23"):
                load_onnx(parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }", opset))
        old = load_onnx(parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }", 9))
        assert old.run({"x": [1, 2]})["y"].tolist() == [-1, -2]

    def test_sources(self, tmp_path: Path) -> None:
        model = parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }")
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        for source in (path, str(path), model, model.SerializeToString()):
            assert em.load_onnx(source).run({"x": [1, 2]})["y"].tolist() == [-1, -2]
        with pytest.raises(FileNotFoundError):
            load_onnx(tmp_path / "none.onnx")
        with pytest.raises(DTypeError, match=r"takes a path, the bytes of a file .* not Graph"):
            load_onnx(load_onnx(model))

    def test_types_that_follow(self) -> None:
        model = parsed(
            "g (float[batch, 3, 8, 8] x) => (z) { "
            "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) "
            "shape = Shape(y) z = Cast <to = 1> (shape) }"
        )
        graph = load_onnx(model)
        (pool, shape, cast) = graph.nodes
        assert (pool.outputs[0].dtype, pool.outputs[0].shape) == ("float32", ("batch", 3, 4, 4))
        assert (shape.outputs[0].dtype, shape.outputs[0].shape) == ("int64", (4,))
        assert (cast.outputs[0].dtype, cast.outputs[0].shape) == ("float32", (4,))

    def test_sizes_that_have_no_name(self) -> None:
        graph = load_onnx(
            helper.make_model(
                helper.make_graph(
                    [helper.make_node("Neg", ["x"], ["y"])],
                    "g",
                    [helper.make_tensor_value_info("x", FLOAT, ["?", "?", -1, None, "n", 3])],
                    [helper.make_tensor_value_info("y", FLOAT, None)],
                ),
                opset_imports=[helper.make_opsetid("", 17)],
            )
        )
        assert graph.inputs[0].shape == (None, None, None, None, "n", 3)

    def test_inputs_with_a_default_are_constants(self) -> None:
        model = parsed("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
        model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
        graph = load_onnx(model)
        assert [x.name for x in graph.inputs] == ["x"]
        assert graph.run({"x": [1, 2]})["y"].tolist() == [2, 3]

    def test_constant_nodes_of_every_kind(self) -> None:
        model = parsed(
            "g () => (a, b, c, d, e, f) { "
            "a = Constant <value_int = 3> () b = Constant <value_floats = [1.0, 2.0]> () "
            'c = Constant <value_string = "s"> () d = Constant <value = int32[2] {4, 5}> () '
            "e = Constant <value_float = 0.5> () "
            'f = Constant <value_strings = ["s", "t"]> () }'
        )
        made = load_onnx(model).run({})
        assert {k: v.tolist() for k, v in made.items()} == {
            "a": 3,
            "b": [1, 2],
            "c": "s",
            "d": [4, 5],
            "e": 0.5,
            "f": ["s", "t"],
        }
        assert made["d"].dtype == np.int32

    @pytest.mark.parametrize("dtype", [x for x in element_types.NAMES.values() if x != "string"])
    def test_elements_in_fields_of_their_kind(self, dtype: str) -> None:
        """Not in raw_data: as older exporters write them, here by onnx itself."""
        low = 0 if dtype.startswith("u") else -3
        held = element_types.numpy_dtype(dtype)
        array = RNG.integers(low, 4, (3, 3)).astype(held)
        values = array.astype(np.complex128 if dtype.startswith("complex") else np.float64).reshape(
            -1
        )
        tensor = helper.make_tensor("w", element_types.number_of(dtype), (3, 3), values)
        assert not tensor.HasField("raw_data")
        model = parsed("g () => (y) { y = Identity(w) }", 21)
        model.graph.initializer.append(tensor)
        found = load_onnx(model).nodes[0].inputs[0]
        assert found is not None
        assert found.data is not None
        assert found.data.dtype == held
        np.testing.assert_array_equal(found.data, array)

    @pytest.mark.parametrize("linear", [True, False])
    def test_sparse_initializers_become_dense(self, linear: bool) -> None:
        indices = np.array([1, 5]) if linear else np.array([[0, 1], [1, 2]])
        sparse = helper.make_sparse_tensor(
            numpy_helper.from_array(np.array([7, 8], np.float32), "w"),
            numpy_helper.from_array(indices, "i"),
            [2, 3],
        )
        model = parsed("g () => (y) { y = Identity(w) }")
        model.graph.sparse_initializer.append(sparse)
        assert load_onnx(model).run({})["y"].tolist() == [[0, 7, 0], [0, 0, 8]]

    def test_nodes_in_any_order(self) -> None:
        model = parsed("g (float[2] x) => (float[2] y) { a = Neg(x) b = Exp(a) y = Abs(b) }")
        nodes = [model.graph.node[i] for i in (2, 0, 1)]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        assert [x.op for x in load_onnx(model).nodes] == ["Neg", "Exp", "Abs"]

    def test_weights_are_mapped(self, tmp_path: Path) -> None:
        """Neither the parser nor the graph copies what lies at an even address."""
        aligned = []
        for pad in range(4):
            model = parsed("g () => (y) { y = Identity(w) }")
            model.graph.name = "g" * (pad + 1)
            array = np.arange(5000, dtype=np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, "w"))
            path = tmp_path / f"{pad}.onnx"
            path.write_bytes(model.SerializeToString())
            found = load_onnx(path).nodes[0].inputs[0]
            assert found is not None
            assert found.data is not None
            np.testing.assert_array_equal(found.data, array)
            assert found.data.flags.aligned
            assert not found.data.flags.writeable
            aligned.append(path.read_bytes().find(array.tobytes()) % 4 == 0)
            if aligned[-1]:
                base = found.data
                while isinstance(base, np.ndarray) and base.base is not None:
                    base = base.base
                assert type(base).__name__ in ("mmap", "memoryview")
        assert any(aligned)

    def test_external_data_of_other_programs(self, tmp_path: Path) -> None:
        array = RNG.random((40, 40)).astype(np.float32)
        model = parsed("g () => (y) { y = Identity(w) }")
        model.graph.initializer.append(numpy_helper.from_array(array, "w"))
        onnx.save_model(
            model,
            tmp_path / "m.onnx",
            save_as_external_data=True,
            location="weights.bin",
            size_threshold=0,
        )
        np.testing.assert_array_equal(load_onnx(tmp_path / "m.onnx").run({})["y"], array)

    def test_outputs_that_no_node_makes(self) -> None:
        model = parsed("g (float[2] x) => (float[2] x, float[2] w) { }")
        model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
        graph = load_onnx(model)
        made = graph.run({"x": [1, 2]})
        assert made["x"].tolist() == [1, 2]
        assert made["w"].tolist() == [1, 1]

    def test_an_operator_of_another_domain(self) -> None:
        model = parsed(
            "g (float[1, 4] x) => (float[1, 4] y) { y = com.microsoft.FastGelu(x) }",
            more=', "com.microsoft": 1',
        )
        graph = load_onnx(model)
        assert graph.nodes[0].domain == "com.microsoft"
        x = np.array([[1, -1, 0, 2]], np.float32)
        np.testing.assert_array_equal(graph.run({"x": x})["y"], run(model, {"x": x})[0])
