"""The compiled core beside the sources it is made of: one behaviour, and one look from outside.

The core is compiled once into a copy of the package; a program then runs on both forms, and tells
what it sees. What it tells must be the same.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ember_ml import compiled, ops
from ember_ml.autodiff.calls import Call, Outcome
from ember_ml.autodiff.nodes import Node, Part, Rule, alias, leaf
from ember_ml.autodiff.runs import Run
from ember_ml.backend.spec import Settled
from ember_ml.cli import status
from ember_ml.structure import Structure, apart, together
from ember_ml.tensor.cell import fill, fill_grad

ROOT = Path(__file__).parents[1]
# Python itself makes the methods of a native class's operators, with a text of its own.
OPERATORS = {
    f"__{prefix}{name}__"
    for prefix in ("", "r", "i")
    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
} | {f"__{name}__" for name in "neg pos abs invert eq ne lt le gt ge divmod rdivmod round".split()}

PROBE = (Path(__file__).parent / "compiled_probe.py").read_text(encoding="utf-8")


def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


needs_compiler = pytest.mark.skipif(not hook().has_compiler(), reason="there is no C compiler here")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package and its core compiled."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(
        ROOT / "src" / "ember_ml",
        folder / "ember_ml",
        ignore=shutil.ignore_patterns("*.so", "*.pyd"),
    )
    made = hook().compile_core(folder)
    assert len(made) == len(compiled.MODULES) + 1  # and one that holds the code of all
    return folder


def run(folder: Path, program: str, *, pure: bool, **variables: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(folder), **variables}
    environment.pop("EMBER_ML_PURE", None)
    if pure:
        environment["EMBER_ML_PURE"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def forms(built: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return run(built, PROBE, pure=False), run(built, PROBE, pure=True)


@needs_compiler
class TestBothForms:
    def test_the_forms_are_two(self, forms: Any) -> None:
        native, pure = forms
        assert (native["compiled"], pure["compiled"]) == (True, False)
        assert native["stale"] == pure["stale"] == []

    @pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "mlx"])
    def test_they_behave_alike(self, forms: Any, backend: str) -> None:
        native, pure = forms
        assert native[backend].keys() == pure[backend].keys()
        for what, found in pure[backend].items():
            assert native[backend][what] == found, what

    @pytest.mark.parametrize("what", ["names", "mro", "repr", "dict", "ops", "others"])
    def test_they_look_alike(self, forms: Any, what: str) -> None:
        native, pure = forms
        assert native[what] == pure[what]

    @pytest.mark.parametrize("what", ["signatures", "docs"])
    def test_methods_are_described_alike(self, forms: Any, what: str) -> None:
        native, pure = forms
        other = {name for name in pure[what] if native[what][name] != pure[what][name]}
        assert other <= OPERATORS, other - OPERATORS

    def test_tracebacks_show_lines_of_the_core(self, forms: Any) -> None:
        frames = [frame for error in forms[0]["numpy"]["errors"] for frame in error["frames"]]
        shown = {line for name, _, line in frames if name == "binary"}
        assert "raise explain(pairs.NAMES[number], error, (x1, x2))" in shown


@needs_compiler
def test_a_source_that_was_changed_is_told(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path / "copy")
    source = tmp_path / "copy" / "ember_ml" / "tensor" / "cell.py"
    later = time.time() + 1000
    os.utime(source, (later, later))
    program = "import json; from ember_ml import compiled; print(json.dumps(compiled.stale()))"
    assert run(tmp_path / "copy", program, pure=False) == ["ember_ml.tensor.cell"]
    assert run(tmp_path / "copy", program, pure=True) == []


@needs_compiler
def test_info_says_which_form_runs(built: Path) -> None:
    program = "import json; from ember_ml.cli import status; print(json.dumps(status.core()))"
    assert run(built, program, pure=False) == "compiled"
    assert run(built, program, pure=True) == "interpreted, by EMBER_ML_PURE"
    plain = "interpreted, as no extension modules were built"
    assert status.core() in (plain, "compiled", "interpreted, by EMBER_ML_PURE")


def test_without_a_compiler_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    module = hook()
    monkeypatch.setenv("CC", "no-such-compiler --flag")
    monkeypatch.setattr(sys, "argv", ["hatch_build.py"])
    monkeypatch.setattr(module, "in_place", list)
    assert not module.has_compiler()
    with pytest.raises(SystemExit, match="no C compiler found"):
        module.main()


def test_the_build_reads_the_list_of_the_package() -> None:
    names = [path.removesuffix(".py").replace("/", ".") for path in hook().core_files()]
    assert tuple(names) == compiled.MODULES
    assert all((ROOT / "src" / path).exists() for path in hook().core_files())


class App:
    """What hatchling hands to a hook for its messages."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, text: str) -> None:
        self.warnings.append(text)


class TestHook:
    """What goes into a wheel, without building one: the step `compiled` of scripts/check does."""

    def initialized(
        self, module: ModuleType, version: str = "standard", target: str = "wheel"
    ) -> tuple[dict[str, Any], list[str]]:
        app = App()
        made = module.CoreBuildHook(str(ROOT), {}, None, None, "", target, app)
        data: dict[str, Any] = {"force_include": {}, "pure_python": True, "infer_tag": False}
        made.initialize(version, data)
        made.finalize(version, data, "")
        return data, app.warnings

    def test_the_core_is_put_beside_the_sources(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = hook()

        def compiled_to(target: Path) -> list[Path]:
            made = target / "ember_ml" / "tensor" / "cell.so"
            made.parent.mkdir(parents=True)
            made.touch()
            return [made]

        monkeypatch.delenv("EMBER_ML_BUILD", raising=False)
        monkeypatch.setattr(module, "has_compiler", lambda: True)
        monkeypatch.setattr(module, "compile_core", compiled_to)
        data, warnings = self.initialized(module)
        assert list(data["force_include"].values()) == ["ember_ml/tensor/cell.so"]
        assert (data["pure_python"], data["infer_tag"], warnings) == (False, True, [])
        assert not any(Path(path).exists() for path in data["force_include"])

    @pytest.mark.parametrize(
        ("wanted", "version", "target"),
        [
            ("pure", "standard", "wheel"),
            ("", "editable", "wheel"),
            ("compiled", "standard", "sdist"),
        ],
    )
    def test_where_nothing_is_compiled(
        self, monkeypatch: pytest.MonkeyPatch, wanted: str, version: str, target: str
    ) -> None:
        module = hook()
        monkeypatch.setenv("EMBER_ML_BUILD", wanted)
        monkeypatch.setattr(module, "compile_core", lambda target: 1 / 0)
        data, warnings = self.initialized(module, version, target)
        assert (data["force_include"], data["pure_python"], warnings) == ({}, True, [])

    def test_no_compiler_is_a_warning_unless_it_was_asked_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = hook()
        monkeypatch.delenv("EMBER_ML_BUILD", raising=False)
        monkeypatch.setattr(module, "has_compiler", lambda: False)
        data, warnings = self.initialized(module)
        assert data["pure_python"]
        assert "no C compiler" in warnings[0]

    @pytest.mark.parametrize("failure", [OSError("no headers"), SystemExit(1)])
    def test_a_core_that_does_not_compile(
        self, monkeypatch: pytest.MonkeyPatch, failure: BaseException
    ) -> None:
        module = hook()

        def fail(target: Path) -> list[Path]:
            raise failure

        monkeypatch.setattr(module, "has_compiler", lambda: True)
        monkeypatch.setattr(module, "compile_core", fail)
        monkeypatch.delenv("EMBER_ML_BUILD", raising=False)
        data, warnings = self.initialized(module)
        assert data["force_include"] == {}
        assert "does not compile" in warnings[0]
        monkeypatch.setenv("EMBER_ML_BUILD", "compiled")
        with pytest.raises(type(failure)):
            self.initialized(module)

    def test_an_unknown_wish(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EMBER_ML_BUILD", "fast")
        with pytest.raises(ValueError, match="'fast'; it takes 'pure' or 'compiled'"):
            self.initialized(hook())


def ran(call: Call) -> None:
    with Run(call):
        pass


def test_objects_of_the_core_free_what_they_were_given() -> None:
    spec = ops.zeros(2)._spec
    held = [object()]
    x = ops.ones(2)
    two = apart((0, 0))[1]
    makers: list[Callable[[], object]] = [
        lambda: Settled(held.pop, spec),
        lambda: Rule("op", (held,), held, True, True, (held,)),
        lambda: Node(None, (held,), (held,), (held,), (held,), held, held),
        lambda: Part(None, (held,), (held,), (held,), (held,), held, held),
        lambda: alias(held, spec),
        lambda: leaf(held, spec),
        lambda: fill(held, spec),
        lambda: fill_grad(held, spec),
        lambda: Structure(list, held, (), (held,)),
        lambda: apart([held, (held,)]),
        lambda: together(two, [held, held]),
        lambda: Call("vjp", held.append, 0, (x, held), {"a": held}),
        lambda: ran(Call("vjp", held.append, 0, (x, held), {})),
        lambda: Outcome().natives([held, x], x._spec.backend),
    ]
    for make in makers:
        make()
        before = sys.getrefcount(held)
        for _ in range(10):
            make()
        assert sys.getrefcount(held) == before, make
