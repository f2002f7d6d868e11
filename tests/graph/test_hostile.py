"""Files that are broken or made to do harm: one clear error, and nothing else."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

onnx: Any = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper, parser  # noqa: E402  # after the skip

from ember_ml.errors import EmberError, FormatError  # noqa: E402
from ember_ml.graph import Graph, onnx_inference  # noqa: E402
from ember_ml.graph.onnx_reading import load_onnx  # noqa: E402

SIMPLE = "g (float[2] x) => (float[2] y) { a = Neg(x) b = Exp(a) y = Abs(b) }"


def parsed(text: str = SIMPLE) -> Any:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')


def rich() -> bytes:
    """A model with something of everything, for mutations."""
    model = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (float[n, 3] x, bool c) => (float[n, 3] y) <float[3] w = {1, 2, 3}> {
            k = Constant <value = int64[2] {1, 3}> ()
            a = local.f <by = 2.0> (x)
            m = MatMul (a, w33)
            b = If (c) <then_branch = t () => (z) { z = Add(m, w) },
                        else_branch = e () => (z) { z = Sub(m, w) }>
            y = Softmax <axis = -1> (b)
        }
        <domain: "local", opset_import: ["": 17]> f <by> (v) => (out) {
            k = Constant <value_float: float = @by> ()
            out = Mul(v, k)
        }
        """
    )
    model.graph.initializer.append(numpy_helper.from_array(np.eye(3, dtype=np.float32), "w33"))
    content: bytes = model.SerializeToString()
    return content


RICH = rich()


def weight(**fields: Any) -> Any:
    """A model with one initializer, of the fields given."""
    model = parsed("g () => (y) { y = Identity(w) }")
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[2])
    tensor.raw_data = b"\0" * 8
    for name, value in fields.items():
        if value is None:
            tensor.ClearField(name)
        elif isinstance(value, list):
            tensor.ClearField(name)
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return model


def external(location: str, offset: str = "0", length: str = "8") -> Any:
    model = weight(raw_data=None, data_location=1)
    for key, text in (("location", location), ("offset", offset), ("length", length)):
        model.graph.initializer[0].external_data.add(key=key, value=text)
    return model


def changed(change: Callable[[Any], Any]) -> Any:
    model = parsed()
    change(model)
    return model


def refused(source: Any, match: str) -> None:
    with pytest.raises(FormatError, match=match):
        load_onnx(source)


class TestFiles:
    def test_what_is_no_model(self, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        for content, match in (
            (b"", "empty"),
            (b"\xff" * 100, "no ONNX at all"),
            (b"hello, this is a text and no model", "ONNX"),
            (b"\x08\x08", "no graph"),
        ):
            path.write_bytes(content)
            refused(path, match)
            refused(path, "model.onnx")  # every message names the file

    def test_truncated_anywhere(self, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        # What follows the graph may be missing without anyone being able to tell.
        graph = onnx.ModelProto.FromString(RICH).graph.SerializeToString()
        for stop in range(0, RICH.index(graph) + len(graph), 7):
            path.write_bytes(RICH[:stop])
            with pytest.raises(FormatError):
                load_onnx(path)

    def test_truncated_within_weights(self, tmp_path: Path) -> None:
        model = parsed("g () => (y) { y = Identity(w) }")
        model.graph.initializer.append(numpy_helper.from_array(np.ones(9000, np.float32), "w"))
        whole = model.SerializeToString()
        path = tmp_path / "model.onnx"
        for stop in (len(whole) - 1, len(whole) - 20000, 60):
            path.write_bytes(whole[:stop])
            refused(path, "cut off")

    def test_a_folder_and_a_pipe(self, tmp_path: Path) -> None:
        with pytest.raises((FormatError, IsADirectoryError)):
            load_onnx(tmp_path)
        os.mkfifo(tmp_path / "pipe.onnx")
        with pytest.raises(FormatError, match="no plain file"):
            load_onnx(tmp_path / "pipe.onnx")


class TestGraphs:
    def test_a_cycle(self) -> None:
        model = parsed("g (float[2] x) => (float[2] y) { a = Add(x, b) b = Neg(a) y = Abs(b) }")
        refused(model, r"cycle.*Add 'a', Neg 'b'")
        refused(parsed("g (float[2] x) => (float[2] y) { y = Add(x, y) }"), "cycle")

    def test_a_cycle_through_a_body(self) -> None:
        refused(
            parsed(
                "g (bool c, float[1] x) => (float[1] y) { a = Neg(y) y = If (c) "
                "<then_branch = t () => (float[1] z) { z = Neg(a) }, "
                "else_branch = e () => (float[1] z) { z = Abs(x) }> }"
            ),
            "cycle",
        )

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            ("g (float[2] x) => (float[2] y) { a = Neg(x) a = Exp(x) y = Abs(a) }", "'a'"),
            ("g (float[2] x) => (float[2] x) { x = Neg(x) }", "'x'"),
            ("g (float[2] x, float[2] x) => (float[2] y) { y = Neg(x) }", "'x'"),
            ("g (float[2] x) => (float[2] y, float[2] y) { y = Neg(x) }", "'y'"),
        ],
    )
    def test_names_that_are_there_twice(self, text: str, match: str) -> None:
        refused(parsed(text), f"two .* called {match}")

    def test_names_that_nothing_makes(self) -> None:
        refused(
            parsed("g (float[2] x) => (float[2] y) { y = Add(x, z) }"), "Add 'y' reads 'z', which"
        )
        refused(parsed("g (float[2] x) => (float[2] q) { y = Neg(x) }"), "'q', which nothing")
        # What a body makes is not seen outside.
        refused(
            parsed(
                "g (bool c, float[1] x) => (float[1] z) { y = If (c) "
                "<then_branch = t () => (float[1] z) { z = Neg(x) }, "
                "else_branch = e () => (float[1] z) { z = Abs(x) }> }"
            ),
            "'z', which nothing",
        )

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (lambda m: setattr(m.graph.node[0], "op_type", ""), "no operator"),
            (lambda m: m.opset_import.add(domain="", version=18), "two versions"),
            (lambda m: m.ClearField("opset_import"), "operators"),
            (lambda m: m.ClearField("graph"), "no graph"),
            (lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 99), "99"),
            (lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 0), "unknown"),
            (lambda m: m.graph.input[0].ClearField("type"), "unknown"),
            (lambda m: setattr(m.graph.input[0], "name", ""), "no name"),
            (
                lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", -7),
                "-7",
            ),
            (lambda m: setattr(m.graph.node[0], "domain", "elsewhere"), "'elsewhere'"),
            (lambda m: m.graph.node[0].attribute.add(name="a"), "not supported"),
            (lambda m: m.graph.node[0].attribute.add(name="a", type=10), "not supported"),
            (lambda m: m.graph.node[0].attribute.add(name="a", ref_attr_name="b"), "function"),
            (lambda m: m.graph.node[0].attribute.add(name=""), "attributes ''"),
        ],
    )
    def test_parts_that_are_wrong(self, change: Callable[[Any], Any], match: str) -> None:
        refused(changed(change), match)

    def test_names_that_are_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        for name in (b"MatMul", b"then_branch", b"local", b"w33"):
            path.write_bytes(RICH.replace(name, b"\xff" * len(name)))
            refused(path, "UTF-8")

    def test_deeply_nested(self) -> None:
        def nested(depth: int) -> Any:
            graph = helper.make_graph([], "g", [], [helper.make_empty_tensor_value_info("c")])
            for _ in range(depth):
                node = helper.make_node("If", ["c"], ["r"], then_branch=graph, else_branch=graph)
                graph = helper.make_graph(
                    [node], "g", [], [helper.make_empty_tensor_value_info("r")]
                )
            graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
            return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])

        assert isinstance(load_onnx(nested(8)), Graph)
        # One branch only: two would double the file at each level.
        inner = b""
        for _ in range(500):
            inner = b"\x32" + _varint(len(inner)) + inner  # AttributeProto.g
            inner = b"\x2a" + _varint(len(inner)) + inner  # NodeProto.attribute
            inner = b"\x0a" + _varint(len(inner)) + inner  # GraphProto.node
        refused(b"\x3a" + _varint(len(inner)) + inner, "nested too deeply")

    def test_functions_that_call_themselves(self) -> None:
        def calling(*calls: tuple[str, str]) -> Any:
            functions = "".join(
                f'<domain: "local", opset_import: ["": 17, "local": 1]> {name} (v) => (out) '
                f"{{ a = local.{other}(v) out = local.{other}(a) }} "
                for name, other in calls
            )
            return parser.parse_model(
                '<ir_version: 8, opset_import: ["": 17, "local": 1]> '
                f"g (float[2] x) => (float[2] y) {{ y = local.{calls[0][0]}(x) }} {functions}"
                '<domain: "local", opset_import: ["": 17]> leaf (v) => (out) { out = Neg(v) }'
            )

        refused(calling(("f", "f")), "f calls itself")
        refused(calling(("f", "h"), ("h", "f")), "f calls itself")
        # Two to the fortieth nodes of a kilobyte.
        chain = [(f"f{i}", f"f{i + 1}") for i in range(40)] + [("f40", "leaf")]
        start = time.monotonic()
        refused(calling(*chain), "too often")
        refused(calling(*[(f"f{i}", f"f{i + 1}") for i in range(90)], ("f90", "leaf")), "too often")
        assert time.monotonic() - start < 10

    def test_an_unknown_operator_is_named_when_it_is_to_run(self) -> None:
        pytest.importorskip("onnxruntime")
        model = parsed("g (float[2] x) => (float[2] y) { [odd_one] y = Nonsense(x) }")
        with pytest.raises(EmberError, match=r"(?s)Nonsense.*odd_one"):
            load_onnx(model).run({"x": [1, 2]})


def _varint(number: int) -> bytes:
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


class TestTensors:
    @pytest.mark.parametrize(
        ("fields", "match"),
        [
            ({"raw_data": b"\0" * 7}, "7 bytes, and 2 elements of float32 take 8"),
            ({"raw_data": b""}, "0 bytes"),
            ({"raw_data": None}, "0 numbers in float_data"),
            ({"raw_data": None, "float_data": [1.0]}, "1 numbers in float_data"),
            ({"dims": [-2]}, "negative"),
            ({"dims": [-1, -2]}, "negative"),
            ({"dims": [2**40, 2**40]}, "take"),
            ({"dims": [2**62, 2]}, "take"),
            ({"dims": [0, 2**62, 2**62], "raw_data": b""}, "shape"),
            ({"dims": [1] * 100, "raw_data": b"\0" * 4}, "100 axes"),
            ({"data_type": 0}, "type 0"),
            ({"data_type": 99}, "type 99"),
            ({"data_type": 17}, "type 17"),
            ({"data_type": 8}, "strings and has raw_data"),
            ({"data_type": 8, "raw_data": None}, "0 strings"),
            ({"data_type": 8, "raw_data": None, "string_data": [b"a", b"\xff"]}, "UTF-8"),
            ({"data_type": 3, "raw_data": None, "int32_data": [1, 300]}, "no int8"),
            ({"data_type": 22, "raw_data": None, "int32_data": [1, 2]}, "2 numbers"),
            ({"name": ""}, "no name|nothing makes"),
        ],
    )
    def test_data_that_does_not_fit(self, fields: dict[str, Any], match: str) -> None:
        refused(weight(**fields), match)

    def test_large_ones_in_a_file(self, tmp_path: Path) -> None:
        """The same checks where weights are mapped and the parser never sees them."""
        path = tmp_path / "model.onnx"
        path.write_bytes(weight(raw_data=b"\0" * 9999).SerializeToString())
        refused(path, "9999 bytes, and 2 elements")

    def test_an_input_that_is_declared_otherwise(self) -> None:
        model = parsed("g (float[3] w) => (y) { y = Identity(w) }")
        model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
        refused(model, "input 'w'")

    @pytest.mark.parametrize(
        ("indices", "dims", "match"),
        [
            ([9], [2, 3], "outside"),
            ([-1], [2, 3], "outside"),
            ([[0, 3]], [2, 3], "outside"),
            ([[0]], [2, 3], "indices of shape"),
            ([0], [2**40, 2**20], "1 GiB"),
            ([0], [-1], "negative"),
        ],
    )
    def test_sparse_ones(self, indices: list[Any], dims: list[int], match: str) -> None:
        model = parsed("g () => (y) { y = Identity(w) }")
        sparse = model.graph.sparse_initializer.add(dims=dims)
        sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "w"))
        sparse.indices.CopyFrom(numpy_helper.from_array(np.array(indices), "i"))
        refused(model, match)

    def test_bytes_that_are_no_bools(self) -> None:
        model = weight(data_type=9, raw_data=b"\x02\x00")
        found = load_onnx(model).nodes[0].inputs[0]
        assert found is not None
        assert found.data is not None
        assert found.data.tobytes() == b"\x01\x00"


class TestExternalData:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """A model's folder with eight bytes beside it, and a secret next to the folder."""
        made = tmp_path / "model"
        made.mkdir()
        (made / "w.bin").write_bytes(np.array([1, 2], np.float32).tobytes())
        (tmp_path / "secret").write_bytes(b"\1" * 8)
        return made

    def load(self, folder: Path, model: Any) -> Graph:
        (folder / "m.onnx").write_bytes(model.SerializeToString())
        return load_onnx(folder / "m.onnx")

    def test_sound_ones(self, folder: Path) -> None:
        (folder / "sub").mkdir()
        (folder / "sub" / "w.bin").write_bytes((folder / "w.bin").read_bytes())
        os.symlink("w.bin", folder / "link.bin")
        for location in ("w.bin", "./w.bin", "sub/w.bin", "link.bin"):
            graph = self.load(folder, external(location))
            assert graph.constants()[0].data is not None
            assert graph.constants()[0].data.tolist() == [1, 2]
            assert not graph.constants()[0].data.flags.writeable

    @pytest.mark.parametrize(
        "location",
        ["../secret", "sub/../../secret", "/etc/passwd", "..", "", "w.bin\0", "a\\..\\..\\secret"],
    )
    def test_paths_out_of_the_folder(self, folder: Path, location: str) -> None:
        with pytest.raises(FormatError, match="only files in the model's folder"):
            self.load(folder, external(location))

    def test_links_out_of_the_folder(self, folder: Path) -> None:
        os.symlink("../secret", folder / "link.bin")
        os.symlink("..", folder / "up")
        for location in ("link.bin", "up/secret"):
            with pytest.raises(FormatError, match="leads out of the model's folder"):
                self.load(folder, external(location))

    @pytest.mark.parametrize(
        ("offset", "length", "match"),
        [
            ("4", "8", "bytes 4 to 12"),
            ("0", "4", "4 bytes, and 2 elements"),
            ("0", "999999999999", "999999999999 bytes"),
            ("-4", "8", "no number of bytes"),
            ("0", "-8", "no number of bytes"),
            ("1_0", "8", "no number of bytes"),
            ("999999999999999999", "8", "which has 8"),
            ("9" * 5000, "8", "no number of bytes"),
            ("", "8", "no number of bytes"),
        ],
    )
    def test_places_out_of_the_file(
        self, folder: Path, offset: str, length: str, match: str
    ) -> None:
        with pytest.raises(FormatError, match=match):
            self.load(folder, external("w.bin", offset, length))

    def test_files_that_are_none(self, folder: Path) -> None:
        (folder / "sub").mkdir()
        os.mkfifo(folder / "pipe")
        for location in ("gone.bin", "sub", "pipe", "w.bin/x", "x" * 5000):
            with pytest.raises(FormatError):
                self.load(folder, external(location))

    def test_a_model_of_bytes_has_no_folder(self) -> None:
        refused(external("w.bin"), "came as bytes")

    def test_strings(self, folder: Path) -> None:
        model = external("w.bin")
        model.graph.initializer[0].data_type = 8
        with pytest.raises(FormatError, match="strings"):
            self.load(folder, model)


class TestAnything:
    """Whatever the bytes: a graph or an EmberError, and soon."""

    def check(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with contextlib.suppress(EmberError):
            assert isinstance(load_onnx(path), Graph)

    @given(content=st.binary(max_size=400))
    @settings(
        max_examples=300, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    def test_random_bytes(self, content: bytes, tmp_path: Path) -> None:
        self.check(tmp_path / "m.onnx", content)

    @given(
        changes=st.lists(
            st.tuples(st.integers(0, len(RICH) - 1), st.sampled_from("sid"), st.binary(max_size=6)),
            min_size=1,
            max_size=6,
        )
    )
    @settings(
        max_examples=600, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    def test_mutations(self, changes: list[tuple[int, str, bytes]], tmp_path: Path) -> None:
        content = bytearray(RICH)
        for at, how, new in changes:
            at = min(at, len(content))
            if how == "s":
                content[at : at + len(new)] = new
            elif how == "i":
                content[at:at] = new
            else:
                del content[at : at + len(new) + 1]
        self.check(tmp_path / "m.onnx", bytes(content))


class TestInference:
    """Files on which onnx's shape inference ended the process, or did not end."""

    @pytest.mark.parametrize(
        "text",
        [
            "g () => (y) { u = odd.Make() y = EyeLike <dtype = 1> (u) }",
            'g (float[2] x) => (y) { y = ai.onnx.ml.DictVectorizer <int64_vocabulary = [1]> ("") }',
            "g (float[9223372036854775807] x) => (y) { y = Abs(x) }",
            "g (float[2] x) => (y) { u = odd.Make() s = SequenceErase(u, x) y = DFT(s, x) }",
            "g (float[2] x) => (y) { y = Sigmoid() }",
            'g (float[2] x) => (y) { y = Conv <pads = ["a"]> (x, x) }',
        ],
    )
    def test_types_stay_unknown(self, text: str) -> None:
        model = parser.parse_model(
            f'<ir_version: 8, opset_import: ["": 17, "odd": 1, "ai.onnx.ml": 3]> {text}'
        )
        start = time.monotonic()
        assert isinstance(load_onnx(model.SerializeToString()), Graph)
        assert time.monotonic() - start < 5

    def test_a_crash_is_somebody_elses(self) -> None:
        graph = load_onnx(
            parser.parse_model(
                '<ir_version: 8, opset_import: ["": 18]> g (float[2, 3, 4] x, int64[3] i) => (y) '
                "{ a = Neg(x) y = GatherND <batch_dims = -9223372036854775808> (a, i) }"
            ).SerializeToString()
        )
        assert graph.nodes[0].outputs[0].name == "a"

    def test_a_hang_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(onnx_inference, "_PATIENCE", 0.3)
        monkeypatch.setattr(onnx_inference, "_APART", "import time; time.sleep(60)")
        start = time.monotonic()
        assert isinstance(load_onnx(RICH), Graph)
        assert time.monotonic() - start < 10

    def test_no_program_is_started_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/usr/bin/painting-program")
        monkeypatch.setattr(onnx_inference.subprocess, "run", None)  # it would be an error
        assert isinstance(load_onnx(RICH), Graph)

    def test_others_are_still_learned(self) -> None:
        graph = load_onnx(
            parser.parse_model(
                '<ir_version: 8, opset_import: ["": 17, "odd": 1]> '
                "g (float[2] x) => (y) { u = odd.Make() e = EyeLike(u) y = Neg(x) }"
            ).SerializeToString()
        )
        assert graph.outputs[0].shape == (2,)
