"""`ember run`, `ember inspect`, `ember export` and `ember ops`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner, Result

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import ember_ml as em  # after the skip
from ember_ml.cli import graphs, op_table
from ember_ml.cli.app import app
from ember_ml.errors import DomainError, UnknownKeyError
from ember_ml.graph import Graph


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def ember(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def error(*arguments: str | Path) -> str:
    """What a command says that fails for a reason that people can understand."""
    result = ember(*arguments)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.output.count("error:") == 1
    return " ".join(result.output.split())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = 2 x, and whether it is positive; z is added."""
    graph = Graph("double")
    x = graph.input("x", "float32", ("n", 2))
    z = graph.input("z", "float32", ())
    two = graph.constant(np.float32(2))
    y = graph.add("Mul", [x, two], [("float32", ("n", 2))])
    y = graph.add("Add", [y, z], [("float32", ("n", 2))])
    graph.output("y", y)
    zero = graph.constant(np.float32(0))
    graph.output("positive", graph.add("Greater", [y, zero], [("bool", ("n", 2))]))
    path = tmp_path / "double.onnx"
    graph.save(path)
    np.save(tmp_path / "x.npy", np.array([[1, -2], [3, 4]], np.float32))
    np.save(tmp_path / "z.npy", np.float32(0.5))
    return path


class TestRun:
    def test_results_are_shown_and_saved(self, model: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.npz"
        result = ember(
            *("run", model, "--input", f"z={tmp_path / 'z.npy'}"),
            *("--input", tmp_path / "x.npy", "--output", out, "--repeat", "3"),
        )
        assert result.exit_code == 0, result.output
        expected = ["y", "float32", "2 . 2", "-3.5", "3.5", "8.5", "2.5, -3.5, 6.5, 8.5"]
        assert re.search(" +│ +".join(expected), result.output)
        assert re.search(r"positive +│ bool", result.output)
        assert "onnxruntime (CPUExecutionProvider)" in result.output
        assert "3 runs" in result.output
        with np.load(out) as found:
            assert found["y"].tolist() == [[2.5, -3.5], [6.5, 8.5]]
            assert found["positive"].dtype == bool

    def test_inputs_of_one_file(self, model: Path, tmp_path: Path) -> None:
        given = tmp_path / "all.npz"
        np.savez(given, x=np.ones((1, 2), np.float32), z=np.float32(1))
        result = ember("run", model, "-i", given)
        assert result.exit_code == 0, result.output
        assert "3, 3" in result.output

    def test_cast(self, model: Path, tmp_path: Path) -> None:
        np.save(tmp_path / "wide.npy", np.ones((1, 2)))
        given = ("run", model, "-i", tmp_path / "wide.npy", "-i", tmp_path / "z.npy")
        assert "float64 came; cast it first" in error(*given)
        assert ember(*given, "--cast").exit_code == 0

    def test_an_output_of_any_name_is_saved(self, tmp_path: Path) -> None:
        graph = Graph()
        x = graph.input("x", "float32", (2,))
        for name in ("file", "allow_pickle", "a/b"):
            graph.output(name, graph.add("Neg", [x], [("float32", (2,))]))
        graph.save(tmp_path / "m.onnx")
        np.save(tmp_path / "x.npy", np.array([1, 2.5], np.float32))
        out = tmp_path / "y.npz"
        result = ember("run", tmp_path / "m.onnx", "-i", tmp_path / "x.npy", "-o", out)
        assert result.exit_code == 0, result.output
        with np.load(out) as found:
            assert sorted(found.files) == ["a/b", "allow_pickle", "file"]
            assert found["file"].tolist() == [-1, -2.5]

    def test_types_that_npz_lacks(self, tmp_path: Path) -> None:
        graph = Graph()
        x = graph.input("x", "float32", (2,))
        graph.output("y", graph.add("Cast", [x], [("bfloat16", (2,))], to=16))
        graph.save(tmp_path / "m.onnx")
        np.save(tmp_path / "x.npy", np.array([1, 2.5], np.float32))
        out = tmp_path / "y.npy"
        result = ember("run", tmp_path / "m.onnx", "-i", tmp_path / "x.npy", "-o", out)
        assert result.exit_code == 0, result.output
        assert "y is bfloat16, and saved as float32" in result.output
        assert np.load(out).tolist() == [1, 2.5]

    def test_mistakes(self, model: Path, tmp_path: Path) -> None:
        x, z = tmp_path / "x.npy", tmp_path / "z.npy"
        assert "needs the input 'z'" in error("run", model, "-i", x)
        assert "no input for" in error("run", model, "-i", x, "-i", z, "-i", x)
        assert "no input 'w'" in error("run", model, "-i", f"w={x}", "-i", f"x={x}", "-i", z)
        assert "'none.npy' cannot be read" in error("run", model, "-i", "none.npy")
        assert "holds no NumPy array" in error("run", model, "-i", model)
        assert "none.onnx" in error("run", tmp_path / "none.onnx")
        assert "cannot be read as an ONNX" in error("run", x)
        assert ".npz" in error("run", model, "-i", x, "-i", z, "-o", "out.csv")
        assert "save as .npz" in error("run", model, "-i", x, "-i", z, "-o", tmp_path / "y.npy")

    def test_an_unknown_backend(self, model: Path, tmp_path: Path) -> None:
        given = ("-i", tmp_path / "x.npy", "-i", tmp_path / "z.npy")
        assert "abacus" in error("run", model, *given, "--backend", "abacus")

    def test_a_pickle_is_not_opened(self, model: Path, tmp_path: Path) -> None:
        np.save(tmp_path / "evil.npy", np.array([{}], object), allow_pickle=True)
        assert "holds no NumPy array" in error("run", model, "-i", tmp_path / "evil.npy")

    @pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
    def test_archives_that_are_damaged(self, model: Path, tmp_path: Path, write: Any) -> None:
        write(tmp_path / "whole.npz", x=np.arange(300.0))
        whole = (tmp_path / "whole.npz").read_bytes()
        middle = len(whole) // 2
        broken = {
            "short": whole[:middle],
            "bent": whole[:middle] + b"\xff" * 9 + whole[middle + 9 :],
        }
        for name, content in broken.items():
            path = tmp_path / f"{name}.npz"
            path.write_bytes(content)
            assert "holds no NumPy array" in error("run", model, "-i", path)

    @pytest.mark.parametrize("backend", ["numpy", "torch"])
    def test_backends(self, backend: str, model: Path, tmp_path: Path) -> None:
        if backend not in em.available_backends():
            pytest.skip(f"{backend} is not installed")
        given = ("-i", tmp_path / "x.npy", "-i", tmp_path / "z.npy")
        result = ember("run", model, *given, "--backend", backend)
        assert result.exit_code == 0, result.output
        assert f"double on {backend}" in result.output
        assert "2.5, -3.5, 6.5, 8.5" in result.output


class TestInspect:
    def test_a_model(self, model: Path, tmp_path: Path) -> None:
        picture = tmp_path / "graph.svg"
        result = ember("inspect", model, "--nodes", "--draw", picture)
        assert result.exit_code == 0, result.output
        assert "double: 5 nodes" in result.output
        assert re.search(r"Mul +│ Mul_0 +│ x, constant", result.output)
        ElementTree.parse(picture)

    def test_tensors(self, tmp_path: Path) -> None:
        path = tmp_path / "model.safetensors"
        em.save(path, {"layer": {"w": em.ops.ones((2, 3)), "b": em.ops.zeros(3)}})
        result = ember("inspect", path)
        assert result.exit_code == 0, result.output
        assert re.search(r"layer.w +│ float32 +│ 2 . 3 +│ +24 B", result.output)
        assert "9 numbers, 36 B" in result.output
        assert "no graph" in error("inspect", path, "--nodes")

    def test_mistakes(self, tmp_path: Path) -> None:
        assert "none.onnx" in error("inspect", tmp_path / "none.onnx")
        assert "none.safetensors" in error("inspect", tmp_path / "none.safetensors")
        (tmp_path / "bad.onnx").write_bytes(b"\xff\xff")
        assert "cannot be read as an ONNX model" in error("inspect", tmp_path / "bad.onnx")


class TestExamples:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("x:1x3x224x224", ("x", (1, 3, 224, 224), "float32")),
            ("2x3", ("", (2, 3), "float32")),
            ("7", ("", (7,), "float32")),
            ("x:batch,3:int64", ("x", ("batch", 3), "int64")),
            ("batchx3", ("", ("batch", 3), "float32")),
            ("ids:n,m", ("ids", ("n", "m"), "float32")),
            ("t:scalar", ("t", (), "float32")),
        ],
    )
    def test_read(self, text: str, expected: tuple[object, ...]) -> None:
        assert graphs.example(text) == expected

    @pytest.mark.parametrize("text", ["", "x", "x:", "x:y:z", "1xx2", "x:-1", "a:b:1x2", "x:1.5"])
    def test_refused(self, text: str) -> None:
        with pytest.raises(DomainError, match="--shape"):
            graphs.example(text)


class TestExport:
    def test_a_saved_model(self, tmp_path: Path) -> None:
        layer = em.nn.Linear(3, 2)
        em.save(tmp_path / "model.safetensors", layer)
        out = tmp_path / "m.onnx"
        result = ember("export", tmp_path / "model.safetensors", "-o", out, "--shape", "x:batch,3")
        assert result.exit_code == 0, result.output
        graph = em.load_onnx(out)
        assert [(x.name, x.shape) for x in graph.inputs] == [("x", ("batch", 3))]
        x = np.ones((5, 3), np.float32)
        made = next(iter(graph.run({"x": x}).values()))
        np.testing.assert_allclose(made, layer(em.ops.asarray(x)).numpy(), rtol=1e-5, atol=1e-6)

    def test_a_function_in_a_module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "mine_to_export.py").write_text(
            "from ember_ml import nn, ops\n"
            "def f(a, b):\n    return ops.tanh(a) + b\n"
            "class Net(nn.Module):\n    def forward(self, x):\n        return x * 2\n"
            "number = 3\n"
        )
        monkeypatch.chdir(tmp_path)
        try:
            result = ember("export", "mine_to_export:f", "-o", "f.onnx", "-s", "2x3", "-s", "3")
            assert result.exit_code == 0, result.output
            graph = em.load_onnx("f.onnx")
            assert [x.shape for x in graph.inputs] == [(2, 3), (3,)]
            assert ember("export", "mine_to_export:Net", "-o", "n.onnx", "-s", "2x3").exit_code == 0
            for target in ("number", "nothing"):
                assert target in error("export", f"mine_to_export:{target}", "-o", "a.onnx")
            assert "cannot be imported" in error("export", "no_such_module:f", "-o", "a.onnx")
            assert str(tmp_path) not in sys.path
        finally:
            sys.modules.pop("mine_to_export", None)

    def test_mistakes(self, tmp_path: Path) -> None:
        out = tmp_path / "m.onnx"
        assert "no file 'nowhere'" in error("export", "nowhere", "-o", out)
        assert ".onnx" in error("export", "a:b", "-o", tmp_path / "m.pb")
        em.save(tmp_path / "t.safetensors", {"w": em.ops.ones(3)})
        assert "no model" in error("export", tmp_path / "t.safetensors", "-o", out)
        assert "--shape" in error("export", "math:sin", "-o", out, "-s", "?")
        assert "all of the inputs" in error("export", "math:sin", "-o", out, "-s", "x:1", "-s", "2")
        assert "missing a required argument: 'x'" in error("export", "math:sin", "-o", out)


class TestOps:
    def test_names(self) -> None:
        assert "tanh" in op_table.names("tanh")
        assert op_table.names("log_s*") == ["log_sigmoid", "log_softmax"]
        with pytest.raises(UnknownKeyError, match="'nonsense'"):
            op_table.names("nonsense")
        assert len(op_table.names("")) > 400

    def test_a_table(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(op_table, "exports", lambda op: "yes")
        result = ember("ops", "bitwise_*", "--backend", "numpy")
        assert result.exit_code == 0, result.output
        assert re.search(r"bitwise_and +│ +yes +│ +yes", result.output)
        assert "abacus" in error("ops", "tanh", "--backend", "abacus")

    def test_what_can_be_exported(self) -> None:
        assert op_table.exports("tanh") == "yes"
        assert op_table.exports("add") == "yes"
        assert op_table.exports("zeros") == "-"
