"""Every Python block of the README and of docs/ runs, in order, each page in one namespace.

A block is plain statements with asserts, or a transcript with `>>>`. One that needs hardware
which may be absent begins with the comment `# no-run: <what it needs>` and is only compiled; one
that begins with `# needs: <module or attribute>` runs where that can be imported. Files that a
page writes go to a folder of its own.
"""

from __future__ import annotations

import doctest
import importlib.util
import pkgutil
import re
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

FENCE = re.compile(
    r"^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```\s*$", re.MULTILINE | re.DOTALL
)
ENGINES = {"numpy", "torch", "jax", "mlx"}
NO_RUN = re.compile(r"# no-run: \S")
NEEDS = re.compile(r"# needs: ([\w.]+)")


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    code: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def snippets(page: Path) -> Iterator[Snippet]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        yield Snippet(page, line, textwrap.dedent(match["code"]))


def execute(snippet: Snippet, namespace: dict[str, Any]) -> None:
    if snippet.code.lstrip().startswith(">>>"):
        name, page = snippet.place, str(snippet.page)
        transcript = doctest.DocTestParser().get_doctest(
            snippet.code, namespace, name, page, snippet.line - 1
        )
        runner = doctest.DebugRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
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


def run_page(page: Path) -> None:
    module = sys.modules["page"] = ModuleType("page")
    try:
        with em.use_backend("numpy"):
            em.ops.random.set_seed(0)  # this thread's: what a page draws is the same in every run
            for snippet in snippets(page):
                try:
                    execute(snippet, vars(module))
                except BackendUnavailableError as error:
                    if ENGINES.issubset(em.available_backends()):
                        raise
                    pytest.skip(f"{snippet.place} needs an engine that is missing here: {error}")
                except BaseException as error:
                    error.add_note(f"in the snippet at {snippet.place}")
                    raise
    finally:
        del sys.modules["page"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_of_page(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    # Backends that a page registers end with it too.
    monkeypatch.setattr(selection, "_loaders", dict(selection._loaders))
    monkeypatch.setattr(selection, "_loaded", dict(selection._loaded))
    # A thread of its own, so that what a page sets (backend, device) ends with the page.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(run_page, page).result()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_fence_is_seen(page: Path) -> None:
    """A fence that is indented oddly or left open must not drop out of the tests unseen."""
    opened = re.findall(r"^\s*```+\s*\{?\s*\.?py", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(opened) == len(list(snippets(page)))


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
