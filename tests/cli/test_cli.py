"""The `ember` command, through typer's runner."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import ember_ml as em
from ember_ml.backend import selection
from ember_ml.cli import compare as compare_module
from ember_ml.cli import status
from ember_ml.cli.app import app


@pytest.fixture(autouse=True)
def fresh_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own, since `ember backends set` writes there, and no backend chosen yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    selection._default = None  # put back by the fixture that all tests share


def ember(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def row(output: str, backend: str) -> str:
    rows = [line for line in output.splitlines() if re.match(rf"[│|\s]*{backend}\s\s", line)]
    assert len(rows) == 1, output
    return rows[0]


def only_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no optional engine is installed."""
    monkeypatch.setattr(selection, "_installed", lambda name: name == "numpy")
    monkeypatch.setattr(selection, "_loaded", {})


def test_version() -> None:
    result = ember("--version")
    assert result.exit_code == 0
    assert result.output == f"ember_ml {em.__version__}\n"


def test_no_arguments_shows_the_commands() -> None:
    result = ember()
    for command in ("compare", "demo", "info", "backends"):
        assert command in result.output


class TestDemo:
    def test_a_network_learns_digits(self, tmp_path: Path) -> None:
        picture = tmp_path / "curve.png"
        result = ember("demo", "--backend", "numpy", "--epochs", "5", "--plot", str(picture))
        assert result.exit_code == 0, result.output
        assert "scikit-learn's" in result.output
        found = re.search(r"([\d.]+)% of the test pictures", result.output)
        assert found is not None
        assert float(found[1]) > 90
        assert "█" in result.output
        assert picture.read_bytes()[:4] == b"\x89PNG"

    def test_digits_are_drawn_where_none_are_installed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
        result = ember("demo", "--backend", "numpy", "--epochs", "6")
        assert result.exit_code == 0, result.output
        assert "drawn here" in result.output
        found = re.search(r"([\d.]+)% of the test pictures", result.output)
        assert found is not None
        assert float(found[1]) > 90

    def test_code_shows_the_program(self) -> None:
        result = ember("demo", "--backend", "numpy", "--epochs", "1", "--code")
        assert "nn.Sequential" in result.output

    def test_an_unknown_backend_is_named(self) -> None:
        result = ember("demo", "--backend", "abacus")
        assert result.exit_code == 1
        assert "abacus" in result.output


class TestCompare:
    def test_every_installed_backend_has_a_row_and_agrees(self) -> None:
        result = ember("compare")
        assert result.exit_code == 0, result.output
        for name in em.available_backends():
            assert "1.99" in row(result.output, name) or "2.00" in row(result.output, name)
            assert "failed" not in row(result.output, name)

    def test_missing_backends_come_with_their_command(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only_numpy(monkeypatch)
        result = ember("compare")
        assert result.exit_code == 0, result.output
        assert "torch" not in result.output.partition("More backends")[0]
        for name in ("torch", "jax", "mlx"):
            assert f"pip install 'ember-ml[{name}]'" in result.output

    def test_named_backends_only(self) -> None:
        result = ember("compare", "numpy")
        assert result.exit_code == 0
        row(result.output, "numpy")
        assert "jax " not in result.output.partition("More backends")[0]

    def test_code_shows_the_program(self) -> None:
        assert "ops.linalg.solve" in ember("compare", "numpy", "--code").output

    def test_a_failing_backend_is_reported_and_the_others_run(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(selection, "_loaders", {"broken": lambda: 1 / 0})
        result = ember("compare", "numpy", "broken")
        assert result.exit_code == 1
        assert "failed" in row(result.output, "broken")
        assert "division by zero" in result.output
        assert "failed" not in row(result.output, "numpy")

    def test_a_backend_that_disagrees_fails_the_command(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        outcomes = {
            "numpy": compare_module.Outcome("numpy", "cpu", (2.0, 0.5, 2.0, 0.5, 0.07)),
            "other": compare_module.Outcome("other", "cpu", (2.0, 0.5, 2.0, float("nan"), 0.07)),
        }
        monkeypatch.setattr(compare_module, "run", outcomes.__getitem__)
        assert ember("compare", "numpy").exit_code == 0
        result = ember("compare", "other")
        assert result.exit_code == 1
        assert "Not all backends gave the same result" in result.output

    def test_difference(self) -> None:
        one = compare_module.Outcome("a", values=(1.0, 2.0))
        other = compare_module.Outcome("b", values=(1.0, 2.5))
        assert compare_module.difference(one, other) == 0.5
        assert compare_module.difference(one, compare_module.Outcome("c", error="no")) == float(
            "inf"
        )

    @pytest.mark.parametrize("backend", em.available_backends())
    def test_program_fits_the_line(self, backend: str) -> None:
        with em.use_backend(backend):
            result = compare_module.program()
        assert (result.backend, result.dtype, result.shape) == (backend, em.float32, (5,))
        slope, intercept, walked_slope, walked_intercept, spread = result.tolist()
        assert slope == pytest.approx(2.0, abs=0.02)
        assert intercept == pytest.approx(0.5, abs=0.02)
        assert (walked_slope, walked_intercept) == pytest.approx((slope, intercept), abs=1e-4)
        assert spread == pytest.approx(0.1 / 2**0.5, abs=0.01)


class TestInfo:
    def test_versions_backends_and_devices(self) -> None:
        output = ember("info").output
        assert em.__version__ in output
        assert "Python" in output
        assert "best engine" in output
        for name in em.available_backends():
            assert "cpu" in row(output, name) or "gpu" in row(output, name)

    @pytest.mark.parametrize(
        ("environment", "file", "reason"),
        [
            ("numpy", None, selection.ENVIRONMENT_VARIABLE),
            (None, "numpy", "the file"),
            ("numpy", "torch", selection.ENVIRONMENT_VARIABLE),
        ],
    )
    def test_reason(
        self,
        monkeypatch: pytest.MonkeyPatch,
        environment: str | None,
        file: str | None,
        reason: str,
    ) -> None:
        if environment is not None:
            monkeypatch.setenv(selection.ENVIRONMENT_VARIABLE, environment)
        if file is not None:
            selection.backend_file().parent.mkdir()
            selection.backend_file().write_text(file + "\n")
        name, why = status.current_backend()
        assert name == "numpy"
        assert why in ember("info").output.replace("\n", "")
        assert reason in why

    def test_a_choice_that_cannot_be_honoured_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(selection.ENVIRONMENT_VARIABLE, "nonesuch")
        result = ember("info")
        assert result.exit_code == 1
        assert "nonesuch" in result.output
        assert "Traceback" not in result.output

    def test_only_numpy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        only_numpy(monkeypatch)
        result = ember("info")
        assert result.exit_code == 0, result.output
        assert "not installed" in row(result.output, "torch")

    def test_a_broken_engine_is_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken() -> None:
            raise em.errors.BackendUnavailableError("its library [x] is broken")

        monkeypatch.setattr(selection, "_loaders", {"broken": broken})
        assert "[x] is broken" in row(ember("info").output, "broken")


class TestBackends:
    def test_list_marks_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(selection.ENVIRONMENT_VARIABLE, "numpy")
        result = ember("backends")
        assert result.exit_code == 0
        assert selection.ENVIRONMENT_VARIABLE in row(result.output, "numpy")
        assert selection.ENVIRONMENT_VARIABLE not in row(result.output, "torch")

    def test_set_is_kept_for_later_programs(self) -> None:
        result = ember("backends", "set", "numpy")
        assert result.exit_code == 0, result.output
        assert selection.backend_file().read_text() == "numpy\n"
        assert "the file" in row(ember("backends").output, "numpy")

    def test_unset_forgets(self) -> None:
        ember("backends", "set", "numpy")
        assert ember("backends", "unset").exit_code == 0
        assert not selection.backend_file().exists()
        assert ember("backends", "unset").exit_code == 0

    def test_set_says_when_the_environment_overrides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(selection.ENVIRONMENT_VARIABLE, "jax")
        assert f"{selection.ENVIRONMENT_VARIABLE}=jax" in ember("backends", "set", "numpy").output

    def test_set_unknown(self) -> None:
        result = ember("backends", "set", "nonesuch")
        assert result.exit_code == 1
        assert "nonesuch" in result.output
        assert "pip install" in result.output
        assert not selection.backend_file().exists()

    def test_set_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        only_numpy(monkeypatch)
        result = ember("backends", "set", "torch")
        assert result.exit_code == 1
        assert "pip install 'ember-ml[torch]'" in result.output
        assert not selection.backend_file().exists()


class TestInstallCommands:
    def test_none_for_what_is_installed(self) -> None:
        assert not set(status.install_commands()) & set(em.available_backends())

    def test_pip_of_an_environment_that_is_not_active(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        only_numpy(monkeypatch)
        scripts = tmp_path / ".venv" / "bin"
        scripts.mkdir(parents=True)
        (scripts / "pip").touch()
        monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
        monkeypatch.delenv("VIRTUAL_ENV", raising=False)
        monkeypatch.chdir(tmp_path)
        assert status.install_commands()["jax"] == ".venv/bin/pip install 'ember-ml[jax]'"
        monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / ".venv"))
        assert status.install_commands()["jax"] == "pip install 'ember-ml[jax]'"


def test_tables_fit_a_narrow_terminal() -> None:
    console = Console(width=80)
    outcome = compare_module.Outcome("numpy", "cpu", (2.0, 0.5, 2.0, 0.5, 0.07), 12.1, 0.1001)
    with console.capture() as capture:
        console.print(compare_module.table([outcome], outcome))
    assert "2.0000" in capture.get()
    assert "…" not in capture.get()


def test_the_command_line_loads_late() -> None:
    """`import ember_ml.cli` is what the console script pays before it knows the command."""
    code = (
        "import sys, ember_ml.cli; "
        "print([m for m in ('typer', 'rich', 'torch', 'jax', 'mlx') if m in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"
