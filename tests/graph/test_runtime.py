"""ONNX Runtime as an executor: providers, threads, cache, shared weights, types at the border."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from ember_ml.errors import (
    DeviceError,
    DomainError,
    DTypeError,
    FormatError,
    ShapeError,
    UnknownKeyError,
    UnsupportedOpError,
)
from ember_ml.graph import Graph, export
from ember_ml.graph import types as element_types
from ember_ml.graph.executors import make_program, runtime
from ember_ml.graph.executors.runtime import RuntimeProgram

Array = np.ndarray[Any, Any]


def doubling(dtype: str = "float32", name: str = "double") -> Graph:
    graph = Graph(name)
    x = graph.input("x", dtype, ("n",))
    two = graph.constant(np.asarray(2, element_types.numpy_dtype(dtype)))
    graph.output("y", graph.add("Mul", [x, two], [(dtype, ("n",))], label="twice"))
    return graph


def casting(of: str, to: str) -> Graph:
    graph = Graph("cast")
    x = graph.input("x", of, ("n",))
    made = graph.add("Cast", [x], [(to, ("n",))], to=element_types.number_of(to))
    graph.output("y", made)
    return graph


class TestProviders:
    def test_the_program_tells_who_runs_it(self) -> None:
        assert RuntimeProgram(doubling()).providers == ["CPUExecutionProvider"]
        assert RuntimeProgram(doubling(), device="cpu").providers == ["CPUExecutionProvider"]
        program = RuntimeProgram(doubling(), ["CPUExecutionProvider"])
        assert program.providers == program.session.get_providers()

    def test_a_device_that_is_not_there_is_an_error(self) -> None:
        there = runtime.runtime().get_available_providers()
        absent = next(name for name, it in runtime.DEVICES.items() if it not in there)
        with pytest.raises(DeviceError, match=runtime.DEVICES[absent]):
            RuntimeProgram(doubling(), device=absent)
        with pytest.raises(DeviceError, match="AbacusExecutionProvider"):
            RuntimeProgram(doubling(), ["AbacusExecutionProvider"])
        with pytest.raises(DeviceError, match="'abacus'"):
            RuntimeProgram(doubling(), device="abacus")
        with pytest.raises(DeviceError, match="no provider"):
            RuntimeProgram(doubling(), [])
        with pytest.raises(DTypeError, match=r"providers=\['CPUExecutionProvider'\], a list"):
            RuntimeProgram(doubling(), "CPUExecutionProvider")
        with pytest.raises(DomainError, match="not both"):
            RuntimeProgram(doubling(), ["CPUExecutionProvider"], device="cpu")

    def test_a_provider_that_was_left_out_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """ONNX Runtime starts on the CPU where CUDA is built in and no card is there."""
        names = [runtime.DEVICES["cuda"], runtime.DEVICES["cpu"]]
        engine = runtime.runtime()
        monkeypatch.setattr(engine, "get_available_providers", lambda: names)
        create = RuntimeProgram._session
        asked: list[list[str]] = []

        def on_cpu(self: RuntimeProgram, model: bytes, options: Any, providers: list[str]) -> Any:
            asked.append(providers)
            return create(self, model, options, ["CPUExecutionProvider"])

        monkeypatch.setattr(RuntimeProgram, "_session", on_cpu)
        with pytest.raises(DeviceError, match="left out CUDAExecutionProvider"):
            RuntimeProgram(doubling(), device="cuda")
        # Nobody asked for it: the CPU is taken, and said.
        program = RuntimeProgram(doubling())
        assert asked[1:] == [names, ["CPUExecutionProvider"]]
        assert program.providers == ["CPUExecutionProvider"]

    def test_threads(self) -> None:
        program = RuntimeProgram(doubling(), threads=1, inter_threads=2)
        assert program.session.get_session_options().intra_op_num_threads == 1
        assert program.session.get_session_options().inter_op_num_threads == 2
        assert program.run({"x": [1, 2]})["y"].tolist() == [2, 4]
        with pytest.raises(DomainError, match="0 threads"):
            RuntimeProgram(doubling(), threads=0)


class TestCache:
    def test_the_second_time_it_comes_from_the_folder(self, tmp_path: Path) -> None:
        folder = tmp_path / "deep" / "cache"
        first = RuntimeProgram(doubling(), cache=folder)
        (path,) = folder.iterdir()
        stamp = path.stat().st_mtime_ns
        second = RuntimeProgram(doubling(), cache=folder)
        assert [x.name for x in folder.iterdir()] == [path.name]
        assert path.stat().st_mtime_ns == stamp
        for program in (first, second):
            assert program.run({"x": [1.5]})["y"].tolist() == [3]
        RuntimeProgram(doubling(name="other"), cache=folder)
        assert len(list(folder.iterdir())) == 2

    @pytest.mark.parametrize("spoil", ["empty", "cut", "other numbers"])
    def test_a_spoilt_file_is_made_anew(self, tmp_path: Path, spoil: str) -> None:
        RuntimeProgram(doubling(), cache=tmp_path)
        (path,) = tmp_path.iterdir()
        good = path.read_bytes()
        two, nine = np.float32(2).tobytes(), np.float32(9).tobytes()
        assert good.count(two) == 1
        spoilt = {"empty": b"", "cut": good[:50], "other numbers": good.replace(two, nine)}
        path.write_bytes(spoilt[spoil])
        assert RuntimeProgram(doubling(), cache=tmp_path).run({"x": [1]})["y"].tolist() == [2]
        assert [x.read_bytes() for x in tmp_path.iterdir()] == [good]

    def test_a_file_is_no_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(DomainError, match="file' is no folder"):
            RuntimeProgram(doubling(), cache=tmp_path / "file")

    def test_nothing_is_left_by_a_graph_that_fails(self, tmp_path: Path) -> None:
        graph = Graph()
        x = graph.input("x", "float32", (1,))
        graph.output("y", graph.add("Nonsense", [x], [("float32", (1,))]))
        with pytest.raises(UnsupportedOpError):
            RuntimeProgram(graph, cache=tmp_path)
        assert list(tmp_path.iterdir()) == []


class TestWeights:
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int4"])
    def test_large_ones_are_shared(self, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runtime, "_SHARED_TOTAL", 100)
        monkeypatch.setattr(runtime, "_SHARED_EACH", 50)
        held = element_types.numpy_dtype(dtype)
        weights = (np.arange(33 * 4) % 7 - 3).reshape(33, 4).astype(held)
        graph = Graph()
        x = graph.input("x", "float32", (2, 33))
        w = graph.constant(weights)
        wide = graph.add("Cast", [w], [("float32", (33, 4))], to=1)
        graph.output("y", graph.add("MatMul", [x, wide], [("float32", (2, 4))]))
        program = RuntimeProgram(graph)
        (value,) = program._weights
        if dtype != "int4":  # those are packed on the way
            assert value.data_ptr() == weights.ctypes.data
        given = np.ones((2, 33), np.float32)
        expected = given @ weights.astype(np.float32)
        np.testing.assert_array_equal(program.run({"x": given})["y"], expected)

    def test_small_ones_are_in_the_model(self) -> None:
        assert RuntimeProgram(doubling())._weights == []


class TestBorder:
    @pytest.mark.parametrize(
        ("dtype", "values"),
        [
            ("int4", [-8, 7, -1, 0, 3]),
            ("uint4", [0, 15, 8, 1, 2]),
            ("bfloat16", [1.5, -2.0, np.inf]),
        ],
    )
    def test_types_that_numpy_lacks(self, dtype: str, values: list[float]) -> None:
        held = element_types.numpy_dtype(dtype)
        wide = casting(dtype, "float32").run({"x": np.array(values, held)})["y"]
        assert wide.dtype == np.float32
        assert wide.tolist() == values
        back = casting("float32", dtype).run({"x": np.array(values, np.float32)})["y"]
        assert back.dtype == held
        assert back.astype(np.float32).tolist() == values
        assert casting("float32", dtype).run({"x": np.ones(0, np.float32)})["y"].shape == (0,)

    def test_bfloat16_computes_or_is_refused(self) -> None:
        x = np.array([1, 2.5], ml_dtypes.bfloat16)
        made = casting("bfloat16", "bfloat16").run({"x": x})["y"]
        assert made.dtype == ml_dtypes.bfloat16
        assert made.tolist() == [1, 2.5]

    def test_strings(self) -> None:
        graph = Graph()
        x = graph.input("x", "string", (2,))
        graph.output("y", x)
        for given in (["a", "öß"], np.array(["a", "öß"]), np.array(["a", "öß"], object)):
            assert graph.run({"x": given})["y"].tolist() == ["a", "öß"]

    def test_exact_integers(self) -> None:
        big = np.array([2**40 + 1, -(2**63)], np.int64)
        graph = Graph()
        graph.output("y", graph.input("x", "int64", (2,)))
        assert graph.run({"x": big})["y"].tolist() == big.tolist()

    def test_lists_take_the_declared_type(self) -> None:
        made = doubling("int64").run({"x": [1, 2]})["y"]
        assert made.dtype == np.int64
        assert made.tolist() == [2, 4]

    @pytest.mark.parametrize("backend", [None, "numpy"])
    def test_lists_are_exact_or_refused(self, backend: str | None) -> None:
        def given(dtype: str, numbers: list[Any]) -> Any:
            graph = Graph()
            graph.output("y", graph.input("x", dtype, (len(numbers),)))
            made = graph.run({"x": numbers}, backend)["y"]
            return np.asarray(made if backend is None else made.numpy()).tolist()

        for dtype, numbers in [
            ("uint64", [2**63, 1]),  # float64 to NumPy, with neither of them
            ("uint64", [2**64 - 1, np.int8(0)]),
            ("int64", [2**63 - 1, -(2**63)]),
            ("int4", [-8, 7]),
            ("uint4", [15, 0]),
        ]:
            assert given(dtype, numbers) == numbers
        assert given("float32", [2**70, -1]) == [2.0**70, -1.0]
        for dtype, wrong, text in [
            ("uint64", [2**64, 1], "input 'x' cannot be made of list"),
            ("uint64", [2**63, -1], "input 'x' cannot be made of list"),
            ("uint64", [2**63, 0.5], "float64 is no uint64"),
            ("int64", [2**63, 1], "input 'x' cannot be made of list"),
            ("int4", [8, 0], "int4 goes from -8 to 7"),
            ("int4", [2**63, -1], "int4 goes from -8 to 7"),
            ("uint4", [-1, 0], "uint4 goes from 0 to 15"),
            ("int4", [1.5, 1], "float64 is no int4"),
            ("float32", [10**400, 1], "input 'x' cannot be made of list"),
            ("bool", [2**70, 1], "int64 is no bool"),
        ]:
            with pytest.raises(DTypeError, match=text):
                given(dtype, wrong)

    def test_an_input_that_is_an_output(self) -> None:
        graph = Graph()
        x = graph.input("x", "float32", (1,))
        graph.outputs.append(x)
        assert graph.run({"x": [1]})["x"].tolist() == [1]


class TestErrors:
    def test_feeds(self) -> None:
        graph = doubling()
        with pytest.raises(UnknownKeyError, match="needs the input 'x'"):
            graph.run({})
        with pytest.raises(UnknownKeyError, match="no input 'z'"):
            graph.run({"x": [1], "z": [1]})
        with pytest.raises(DTypeError, match="float64 came"):
            graph.run({"x": np.ones(2)})
        with pytest.raises(ShapeError):
            graph.run({"x": np.ones((2, 2), np.float32)})

    def test_an_unknown_operator_is_named_with_its_node(self) -> None:
        graph = Graph("strange")
        x = graph.input("x", "float32", (1,))
        graph.output("y", graph.add("Nonsense", [x], [("float32", (1,))], label="here"))
        with pytest.raises(UnsupportedOpError, match=r"(?s)Nonsense.*'here'") as caught:
            graph.run({"x": [1]})
        assert "onnxruntime_src" not in str(caught.value)

    def test_a_missing_kernel_is_named(self) -> None:
        graph = Graph("strange")
        x = graph.input("x", "bfloat16", (1,))
        graph.output("y", graph.add("Erf", [x], [("bfloat16", (1,))], label="here"))
        with pytest.raises(UnsupportedOpError, match=r"(?s)Erf.*'here'"):
            graph.run({"x": np.ones(1, ml_dtypes.bfloat16)})

    def test_shapes_that_do_not_fit(self) -> None:
        graph = Graph("odd")
        x = graph.input("x", "float32", (2, 3))
        graph.output("y", graph.add("MatMul", [x, x], [("float32", (2, 3))], label="product"))
        with pytest.raises(FormatError, match="product"):
            graph.run({"x": np.ones((2, 3), np.float32)})

    def test_a_value_that_a_node_refuses(self) -> None:
        graph = Graph("picky")
        x = graph.input("x", "float32", (2,))
        i = graph.input("i", "int64", (1,))
        graph.output("y", graph.add("Gather", [x, i], [("float32", (1,))], label="pick"))
        with pytest.raises(DomainError, match=r"(?s)picky.*pick.*out of data bounds"):
            graph.run({"x": [1, 2], "i": [7]})

    @pytest.mark.parametrize("opset", [11, 12, 13])
    def test_old_opsets_mean_what_they_meant(self, opset: int) -> None:
        # Before 13 Softmax takes all axes from its own on together.
        graph = Graph("old", opset=opset)
        x = graph.input("x", "float32", (2, 2, 3))
        graph.output("y", graph.add("Softmax", [x], [("float32", (2, 2, 3))], axis=1))
        feeds = {"x": np.arange(12, dtype=np.float32).reshape(2, 2, 3)}
        want = graph.run(feeds)["y"]
        got = graph.run(feeds, "numpy")["y"].numpy()
        np.testing.assert_allclose(got, want, rtol=1e-6)
        np.testing.assert_allclose(want.sum((1, 2)), [1.0 if opset < 13 else 3.0] * 2, rtol=1e-6)

    def test_forms_that_only_onnx_runtime_knows(self) -> None:
        graph = Graph("older", opset=9)
        x = graph.input("x", "float32", (1, 1, 3))
        w = graph.constant(np.ones((1, 1, 1), np.float32))
        graph.output("y", graph.add("Conv", [x, w], [("float32", (1, 1, 3))], label="first"))
        assert graph.run({"x": [[[1, 2, 3]]]})["y"].tolist() == [[[1, 2, 3]]]
        with pytest.raises(UnsupportedOpError, match=r"Conv 'first'.*opset 9"):
            make_program(graph, "numpy")


@pytest.mark.parametrize("executor", [None, "numpy", "torch"])
def test_bytes_in_another_order_are_numbers_all_the_same(executor: str | None) -> None:
    turned = np.array([1, 2.5], ">f4")
    graph = Graph("sum")
    x = graph.input("x", "float32", (2,))
    two = graph.constant(np.array([2, 4], ">f4"))
    graph.output("y", graph.add("Add", [x, two], [("float32", (2,))]))
    assert graph.run({"x": turned}, backend=executor)["y"].tolist() == [3, 6.5]
    exported = export(lambda x: x + turned, turned)
    assert exported.run({"x": turned}, backend=executor)["output"].tolist() == [2, 5]


def test_a_graph_that_ran_is_copied_and_pickled() -> None:
    graph = doubling()
    feeds = {"x": np.array([1, 2], np.float32)}
    graph.run(feeds)
    graph.run(feeds, backend="numpy")
    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert other.run(feeds)["y"].tolist() == [2, 4]
        other.output("z", other.nodes[0].outputs[0])
        assert list(other.run(feeds)) == ["y", "z"]
    assert list(graph.run(feeds)) == ["y"]
