"""Markers at run time: they cost nothing, and what they tell type checkers is true."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import itertools
import pickle
import typing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ember_ml as em
from ember_ml import Tensor, compiled, dtypes, markers, ops
from ember_ml.dtypes import DType
from ember_ml.tensor.cell import Cell
from ember_ml.tensor.core import fill
from ember_ml.typing import Cpu, DTypeMarker, Float32, Rank2, RankMarker

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "ember_ml"
Matrix = Tensor[Float32, Cpu, Rank2]


class TestRunTime:
    def test_an_alias_of_tensor(self) -> None:
        assert typing.get_origin(Matrix) is Tensor
        assert typing.get_args(Matrix) == (Float32, Cpu, Rank2)
        assert Matrix == Tensor[Float32, Cpu, Rank2]
        assert pickle.loads(pickle.dumps(Matrix)) == Matrix
        made = Matrix([[1.0]])
        assert type(made) is Tensor
        assert made.tolist() == [[1.0]]

    def test_in_annotations(self) -> None:
        def f(x: Matrix | None, dtype: em.DType[Float32]) -> Tensor[Float32]: ...

        hints = typing.get_type_hints(f, localns={"Matrix": Matrix})
        assert hints["x"] == Matrix | None
        assert typing.get_origin(hints["return"]) is Tensor
        assert typing.get_origin(hints["dtype"]) is DType

    def test_instances_are_untouched(self, backend: str) -> None:
        x = ops.ones((2, 2))
        assert type(x) is Tensor
        assert isinstance(x, Tensor)
        assert not hasattr(x, "__dict__")
        back = pickle.loads(pickle.dumps(x))
        assert (back.backend, back.dtype, back.tolist()) == (backend, em.float32, x.tolist())

    def test_no_base_class_of_typing(self) -> None:
        assert [c.__name__ for c in Tensor.__mro__] == [
            "Tensor",
            "Cell",
            "Sharing",
            "Methods",
            "Operators",
            "Marked",
            "object",
        ]
        assert [c.__name__ for c in DType.__mro__] == ["DType", "MarkedDType", "object"]

    def test_instances_are_no_larger(self) -> None:
        class Bare:
            __slots__ = ("__weakref__", "_home", "_node", "_role", "_spec", "native")

        x = ops.ones(2)
        table = compiled.is_compiled()  # mypyc keeps a pointer to the methods in each instance
        assert fill(x.native, x._spec).__sizeof__() == Bare().__sizeof__() + 8 * table

    def test_rules_are_the_functions_themselves(self) -> None:
        assert Tensor.__add__ is Cell.__add__
        assert inspect.isfunction(ops.add)
        assert ops.add.__name__ == "add"
        assert "x1 + x2" in (ops.add.__doc__ or "")


# --- The stubs beside the modules -----------------------------------------------------------


def names_of(path: Path) -> set[str]:
    """The public functions, classes and assigned names of a source file."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {name.id for name in node.targets if isinstance(name, ast.Name)}
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize(
    "module", ["markers", "tensor/typed", "ops/typed", "ops/reducing"], ids=lambda name: name
)
def test_stubs_declare_what_exists(module: str) -> None:
    name = "ember_ml." + module.replace("/", ".")
    exported = set(importlib.import_module(name).__all__)
    declared = names_of(SOURCES / f"{module}.pyi")
    assert exported <= declared
    assert exported <= names_of(SOURCES / f"{module}.py")


# --- What the stub of the markers says, against the library ---------------------------------


@pytest.fixture(scope="module")
def stub() -> dict[str, Any]:
    """markers.pyi as a namespace, its annotations left as text."""
    text = (SOURCES / "markers.pyi").read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "stub"}
    exec(compile("from __future__ import annotations\n" + text, "markers.pyi", "exec"), namespace)
    return namespace


def marker_of(dtype: DType) -> str:
    stem = dtype.name.rstrip("0123456789")
    return {"uint": "UInt", "bfloat": "BFloat"}.get(stem, stem.capitalize()) + dtype.name[
        len(stem) :
    ]


def argument(stub: dict[str, Any], marker: str, method: str) -> set[str]:
    """The names of the markers that a method of a marker takes."""
    annotations = inspect.get_annotations(getattr(stub[marker], method))
    annotations.pop("return")
    (text,) = annotations.values()
    found = eval(text, stub)
    return {one.__name__ for one in typing.get_args(found) or (found,)}


def result(stub: dict[str, Any], marker: str, method: str) -> str:
    """The name of the marker that a method of a marker gives."""
    given = inspect.get_annotations(getattr(stub[marker], method))["return"]
    return marker if given == "Self" else str(given)


def test_every_dtype_has_a_marker() -> None:
    names = {marker_of(dtype) for dtype in dtypes.ALL}
    assert names == {c.__name__ for c in DTypeMarker.__subclasses__()}
    assert names <= set(markers.__all__)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_promotion(stub: dict[str, Any], dtype: DType) -> None:
    promoted = {
        marker_of(other)
        for other in dtypes.ALL
        if dtypes.can_promote(dtype, other) and dtypes.promote(dtype, other) is other
    }
    assert argument(stub, marker_of(dtype), "into") == promoted


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_dtypes_of_results(stub: dict[str, Any], dtype: DType) -> None:
    x = ops.ones((2,), dtype=dtype)
    marker = marker_of(dtype)
    assert result(stub, marker, "beside_int") == marker_of((x * 1).dtype)
    assert result(stub, marker, "beside_float") == marker_of((x * 1.0).dtype)
    assert result(stub, marker, "beside_float") == marker_of((x / x).dtype)
    assert result(stub, marker, "beside_float") == marker_of(ops.exp(x).dtype)
    assert result(stub, marker, "total") == marker_of(ops.sum(x).dtype)
    if dtype is not dtypes.bool:
        assert result(stub, marker, "parts") == marker_of(ops.abs(x).dtype)
    if result(stub, marker, "beside_complex") == "Never":
        with pytest.raises(em.DTypeError):
            x * 1j
    else:
        assert result(stub, marker, "beside_complex") == marker_of((x * 1j).dtype)


def test_ranks(stub: dict[str, Any]) -> None:
    ranks = [c.__name__ for c in RankMarker.__subclasses__()]
    assert ranks == [f"Rank{n}" for n in range(9)]
    for n, rank in enumerate(ranks):
        assert argument(stub, rank, "fits") == set(ranks[n:])
        assert result(stub, rank, "up") == (ranks[n + 1] if n < 8 else "AnyRank")
        assert hasattr(stub[rank], "down") == (n > 0)
        assert hasattr(stub[rank], "stacks") == (n > 1)
        if n > 0:
            assert result(stub, rank, "down") == ranks[n - 1]
        if n > 1:
            assert argument(stub, rank, "stacks") == set(ranks[n:])


# --- The programs that type checkers accept, run --------------------------------------------


@pytest.fixture
def accepted() -> ModuleType:
    """typing_tests/accepted.py with an `assert_type` that compares values."""
    path = ROOT / "typing_tests" / "accepted.py"
    spec = importlib.util.spec_from_file_location("accepted", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.assert_type = check  # type: ignore[attr-defined]
    return module


def check(value: Any, form: Any) -> Any:
    """Compare a value with `Tensor[...]`: its dtype and its rank, where they are given."""
    if typing.get_origin(form) is not Tensor:
        return value
    assert type(value) is Tensor
    for marker in typing.get_args(form):
        if isinstance(marker, type) and issubclass(marker, DTypeMarker):
            assert marker_of(value.dtype) == marker.__name__
        elif isinstance(marker, type) and issubclass(marker, RankMarker):
            assert f"Rank{value.ndim}" == marker.__name__
    return value


def example(form: Any) -> Any:
    """A tensor of a form, all sides 3, or whatever else a program takes."""
    if form is str:
        return "cpu"
    if form == tuple[int, ...]:
        return (0, 1)
    dtype, rank = dtypes.float32, 2
    for marker in typing.get_args(form):
        if isinstance(marker, type) and issubclass(marker, DTypeMarker):
            dtype = next(d for d in dtypes.ALL if marker_of(d) == marker.__name__)
        elif isinstance(marker, type) and issubclass(marker, RankMarker):
            rank = int(marker.__name__[-1])
    return ops.ones((3,) * rank, dtype=dtype)


def programs() -> list[str]:
    tree = ast.parse((ROOT / "typing_tests" / "accepted.py").read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(names) > 15
    return [name for name in names if name not in ("moving", "on_gpu")]  # these need a GPU


@pytest.mark.parametrize("name", programs())
def test_what_is_inferred_is_so(name: str, accepted: ModuleType) -> None:
    function = getattr(accepted, name)
    hints = typing.get_type_hints(function)
    returned = hints.pop("return")
    out = function(**{argument: example(form) for argument, form in hints.items()})
    if typing.get_origin(returned) is Tensor:
        check(out, returned)


def test_the_check_itself_finds_what_is_wrong(accepted: ModuleType) -> None:
    m = ops.ones((3, 3))
    for form in (Tensor[em.typing.Float64, Cpu, Rank2], Tensor[Float32, Cpu, em.typing.Rank1]):
        with pytest.raises(AssertionError):
            accepted.assert_type(m, form)


# --- select and narrow ----------------------------------------------------------------------


def test_select_and_narrow(backend: str) -> None:
    x = ops.reshape(ops.arange(24), (2, 3, 4))
    want = x.numpy()
    for axis, index in itertools.product((0, 1, -1), (0, 1, -1)):
        assert x.select(axis, index).tolist() == want.take(index, axis).tolist()
    assert x.narrow(1, 1, 2).tolist() == want[:, 1:3].tolist()
    assert x.narrow(-1, 0, 0).shape == (2, 3, 0)
    with pytest.raises(em.AxisError):
        x.select(3, 0)
    with pytest.raises(em.OutOfBoundsError):
        x.select(0, 2)
    with pytest.raises(em.OutOfBoundsError):
        x.narrow(0, 1, 2)
