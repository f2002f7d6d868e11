"""Every Python block of the README and of docs/ runs, in order, each page in one namespace.

A block is plain statements with asserts, or a transcript with `>>>`. One that needs hardware
which may be absent begins with the comment `# no-run: <what it needs>` and is only compiled; one
that begins with `# needs: <module or attribute>` runs where that can be imported. Files that a
page writes go to a folder of its own.

Tutorials say in their first lines on which engines they run: `engines: numpy torch`. In them, a
block with a title is a file, and goes on where an earlier one of that title ended; and what stands
behind `$ ` in a console block is run by the shell, in the same folder. It must succeed, and print
what the page shows. A text block is what the block before it printed.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ember_ml as em
from ember_ml.backend import selection
from ember_ml.errors import BackendUnavailableError

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<kind>python|console|text)(?P<options>[^\n]*)\n"
    r"(?P<code>.*?)^(?P=indent)```\s*$",
    re.MULTILINE | re.DOTALL,
)
TITLE = re.compile(r'title="([\w./-]+)"')
ENGINES = {"numpy", "torch", "jax", "mlx"}
NO_RUN = re.compile(r"# no-run: \S")
NEEDS = re.compile(r"# needs: ([\w.]+)")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    code: str
    kind: str = "python"
    title: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def snippets(page: Path) -> Iterator[Snippet]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        title = TITLE.search(match["options"])
        if title is not None:  # a part of a file keeps its indentation
            code = re.sub(f"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
            yield Snippet(page, line, code, match["kind"], title[1])
        else:
            yield Snippet(page, line, textwrap.dedent(match["code"]), match["kind"])


def engines(page: Path) -> list[str]:
    """The engines on which a page runs, from its first lines; one that names none runs on NumPy."""
    header = re.match(r"---\n(.*?)^---\n", page.read_text(encoding="utf-8"), re.DOTALL | re.M)
    named = re.search(r"^engines: (.+)$", header[1], re.MULTILINE) if header else None
    return named[1].split() if named else ["numpy"]


def execute(snippet: Snippet, namespace: dict[str, Any]) -> None:
    if snippet.kind == "console":
        if "tutorials" in snippet.page.parts:
            run_console(snippet.code)
        return
    if snippet.title and "tutorials" in snippet.page.parts:
        Path(snippet.title).parent.mkdir(parents=True, exist_ok=True)
        with Path(snippet.title).open("a", encoding="utf-8") as file:
            file.write(snippet.code)
        return
    if snippet.code.lstrip().startswith(">>>"):
        name, page = snippet.place, str(snippet.page)
        transcript = doctest.DocTestParser().get_doctest(
            snippet.code, namespace, name, page, snippet.line - 1
        )
        runner = doctest.DebugRunner(optionflags=FLAGS)
        runner.run(transcript, clear_globs=False)
        namespace.update(transcript.globs)
        return
    # Blank lines before the code give tracebacks the line numbers of the page.
    source = "\n" * (snippet.line - 1) + snippet.code
    code = compile(source, str(snippet.page), "exec")
    if runs(snippet.code):
        exec(code, namespace)


def runs(code: str) -> bool:
    needed = NEEDS.match(code)
    return not NO_RUN.match(code) if needed is None else exists(needed[1])


def exists(name: str) -> bool:
    # A package is looked for and not imported: the snippet may have to set something before.
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        return False
    try:
        return "." not in name or pkgutil.resolve_name(name) is not None
    except (ImportError, AttributeError):
        return False


def compare(snippet: Snippet, printed: str) -> None:
    """The output that a tutorial shows is the one that came."""
    matches = doctest.OutputChecker().check_output(snippet.code, printed, FLAGS)
    if "tutorials" in snippet.page.parts:
        assert matches, f"{snippet.place} shows\n{snippet.code}\nbut this was printed\n{printed}"


def run_console(code: str) -> None:
    """Run the commands of a transcript, and compare what they print with what it shows."""
    scripts = Path(sys.executable).parent  # where `ember` and `python` are those of this run
    environment = os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"EMBER_ML_BACKEND": em.get_backend(), "COLUMNS": "100"}
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = f"{command}\n{more}"
        done = subprocess.run(
            ["bash", "-c", command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}\nexit status {done.returncode}"
        matches = doctest.OutputChecker().check_output(shown, done.stdout, FLAGS)
        if shown.strip() and not matches:
            raise AssertionError(f"$ {command}\n{done.stdout}\nis not\n{shown}")


def run_page(page: Path, engine: str = "numpy") -> None:
    module = sys.modules["page"] = ModuleType("page")
    try:
        with em.use_backend(engine):
            em.ops.random.set_seed(0)  # this thread's: what a page draws is the same in every run
            printed = ""
            for snippet in snippets(page):
                try:
                    if snippet.kind == "text":
                        compare(snippet, printed)
                        continue
                    with contextlib.redirect_stdout(io.StringIO()) as output:
                        try:
                            execute(snippet, vars(module))
                        finally:
                            printed = output.getvalue()
                except BackendUnavailableError as error:
                    if ENGINES.issubset(em.available_backends()):
                        raise
                    pytest.skip(f"{snippet.place} needs an engine that is missing here: {error}")
                except BaseException as error:
                    error.add_note(f"in the snippet at {snippet.place}")
                    if printed:
                        error.add_note(f"which printed\n{printed}")
                    raise
    finally:
        del sys.modules["page"]


RUNS = [(page, engine) for page in PAGES for engine in engines(page)]


@pytest.mark.parametrize(
    ("page", "engine"),
    RUNS,
    ids=[
        f"{page.relative_to(ROOT)}{f'-{engine}' if page in TUTORIALS else ''}"
        for page, engine in RUNS
    ],
)
def test_snippets_of_page(
    page: Path, engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if engine not in em.available_backends():
        pytest.skip(f"{engine} is not installed")
    monkeypatch.chdir(tmp_path)
    # Backends that a page registers end with it too.
    monkeypatch.setattr(selection, "_loaders", dict(selection._loaders))
    monkeypatch.setattr(selection, "_loaded", dict(selection._loaded))
    # A thread of its own, so that what a page sets (backend, device) ends with the page.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(run_page, page, engine).result()


def test_tutorials_run_on_engines() -> None:
    assert len(TUTORIALS) >= 6
    for page in TUTORIALS:
        assert set(engines(page)) <= ENGINES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_fence_is_seen(page: Path) -> None:
    """A fence that is indented oddly or left open must not drop out of the tests unseen."""
    opened = re.findall(r"^\s*```+\s*\{?\s*\.?py", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(opened) == sum(1 for snippet in snippets(page) if snippet.kind == "python")


def test_pages_have_snippets() -> None:
    assert any(snippets(ROOT / "README.md"))
    assert sum(1 for page in PAGES for _ in snippets(page)) > 20


class TestRunner:
    """The runner itself: it must fail where a page is wrong."""

    def page(self, tmp_path: Path, text: str) -> Path:
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        return page

    @pytest.fixture(autouse=True)
    def root(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(globals(), "ROOT", tmp_path)

    def test_failing_assert_fails(self, tmp_path: Path) -> None:
        page = self.page(
            tmp_path, "text\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n"
        )
        with pytest.raises(AssertionError) as caught:
            run_page(page)
        assert caught.value.__notes__ == ["in the snippet at page.md:8"]

    def test_wrong_transcript_fails(self, tmp_path: Path) -> None:
        with pytest.raises(doctest.DocTestFailure):
            run_page(self.page(tmp_path, "```python\n>>> 1 + 1\n3\n```\n"))

    def test_transcript_and_statements_share_names(self, tmp_path: Path) -> None:
        run_page(
            self.page(tmp_path, "```python\n>>> x = 2\n```\n\n```python\nassert x == 2\n```\n")
        )

    def test_no_run_is_compiled_only(self, tmp_path: Path) -> None:
        run_page(self.page(tmp_path, "```python\n# no-run: needs a GPU\n1 / 0\n```\n"))
        with pytest.raises(SyntaxError):
            run_page(self.page(tmp_path, "```python\n# no-run: needs a GPU\n1 /\n```\n"))

    def test_needs_runs_where_it_is_met(self, tmp_path: Path) -> None:
        text = "```python\n# needs: {}\n1 / 0\n```\n"
        for absent in ("no_such_module", "ember_ml.no_such_name"):
            run_page(self.page(tmp_path, text.format(absent)))
        for present in ("json", "ember_ml.Tensor"):
            with pytest.raises(ZeroDivisionError):
                run_page(self.page(tmp_path, text.format(present)))

    def test_no_run_without_a_reason_runs(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError):
            run_page(self.page(tmp_path, "```python\n# no-run:\n1 / 0\n```\n"))

    def test_text_is_what_was_printed(self, tmp_path: Path) -> None:
        (tmp_path / "tutorials").mkdir()
        page = tmp_path / "tutorials" / "page.md"
        text = "```python\nprint(1)\n```\n\n```text\n{}\n```\n"
        page.write_text(text.format(1), encoding="utf-8")
        run_page(page)
        page.write_text(text.format(2), encoding="utf-8")
        with pytest.raises(AssertionError, match="was printed"):
            run_page(page)

    def test_console_must_succeed_and_show_what_it_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        run_console("$ echo one; echo two\none\n...\n$ true\n")
        run_console("$ echo one \\\n  two\none two\n")
        with pytest.raises(AssertionError, match="exit status 3"):
            run_console("$ exit 3\n")
        with pytest.raises(AssertionError, match="is not"):
            run_console("$ echo one\ntwo\n")

    def test_titles_are_files_that_go_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "tutorials").mkdir()
        page = tmp_path / "tutorials" / "page.md"
        page.write_text(
            '```python title="a.py"\nfor x in (1, 2):\n```\n\n'
            '```python title="a.py"\n    print(x)\n```\n\n'
            "```console\n$ python a.py\n1\n2\n```\n",
            encoding="utf-8",
        )
        run_page(page)
        page.write_text("```console\n$ python a.py\n1\n3\n```\n", encoding="utf-8")
        with pytest.raises(AssertionError, match="is not"):
            run_page(page)
