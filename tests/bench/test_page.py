"""The page, the picture and the documentation, from a run that never changes."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from ember_ml.bench import Record, Run, documents, drawing, scaling, svg
from ember_ml.bench.charts import Axis, Chart, Panel, Row, place, ticks
from ember_ml.bench.page import render
from ember_ml.bench.sections import headlines, sections, verdict_text
from ember_ml.errors import DomainError, FormatError

SVG = "{http://www.w3.org/2000/svg}"
# The only address a page may hold is the name of SVG's namespace.
NAMESPACE = "http://www.w3.org/2000/svg"


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def nothing_from_elsewhere(text: str) -> None:
    rest = text.replace(NAMESPACE, "")
    assert re.findall(r"https?:|//[a-z]|url\(|@import|<script|\son[a-z]+=|javascript:", rest) == []
    root = parsed(text)
    for element in root.iter():
        tag = element.tag.removeprefix(SVG)
        assert tag not in (
            "script",
            "link",
            "img",
            "image",
            "iframe",
            "object",
            "use",
            "foreignObject",
        )
        for name, value in element.attrib.items():
            if name.endswith(("href", "src")):
                assert value.startswith("#"), (tag, name, value)


def test_the_page_is_well_formed_and_loads_nothing(run: Run) -> None:
    text = render(run)
    nothing_from_elsewhere(text)
    assert "prefers-color-scheme: dark" in text
    root = parsed(text)
    keys = [element.get("id") for element in root.iter("section") if element.get("id")]
    assert keys == [one.key for one in sections(run)]
    links = [element.get("href") for element in root.iter("a")]
    assert links == [f"#{key}" for key in keys]


def test_the_page_shows_every_number_and_every_gap(run: Run) -> None:
    text = "".join(parsed(render(run)).itertext())
    for one in run.records:
        assert one.name in text
    assert "A <CPU> & more, 2 cores, Python 3.11.7, load average 0.3 to 0.5" in text
    assert "AssertionError: <they> differ & more" in text
    assert "needs onnxruntime, which is not installed" in text
    assert f"{len(run.missed)} measures are beyond the bar" in text


def test_each_chapter_is_drawn_with_a_mark_for_each_point(run: Run) -> None:
    for one in sections(run):
        assert one.charts, one.key
        for chart in one.charts:
            root = parsed(svg.figure(chart))
            told = [element.text or "" for element in root.iter(f"{SVG}title")]
            points = sum(len(row.points) for panel in chart.panels for row in panel.rows)
            points += sum(len(line) for panel in chart.panels for line in panel.lines.values())
            assert len(told) == points, one.key


def test_what_is_missed_is_marked(run: Run) -> None:
    (chart,) = next(one.charts for one in sections(run) if one.key == "training")
    texts = [element.text or "" for element in parsed(svg.figure(chart)).iter(f"{SVG}text")]
    assert texts.count("1.20 ✗") == 4  # steps with the bar 1.1
    assert texts.count("1.20 ✓") == 1  # the transformer, with 1.3


def test_a_bar_that_is_just_missed_does_not_look_met() -> None:
    from ember_ml.bench import Bar

    for ours, text in ((1.1, "1.10"), (1.0204, "1.0204"), (1.024, "1.024"), (1.02, "1.02")):
        found = Record("b", "g", "n", ours=ours, raw=1.0, bar=Bar("ratio", 1.02))
        assert verdict_text(found) == text


def test_marks_lie_within_their_drawing(run: Run) -> None:
    for one in sections(run):
        for chart in one.charts:
            root = parsed(svg.panel(chart, chart.panels[0], 500.0))
            width, height = map(float, root.attrib["viewBox"].split()[2:])
            for circle in root.iter(f"{SVG}circle"):
                assert 0 < float(circle.attrib["cx"]) < width
                assert 0 < float(circle.attrib["cy"]) < height
            for text in root.iter(f"{SVG}text"):
                assert 0 <= float(text.attrib["x"]) <= width


def test_headlines(run: Run) -> None:
    found = {one.label: one.number for one in headlines(run)}
    assert found["bars met"] == f"{len(run.judged) - len(run.missed)} of {len(run.judged)}"
    assert found["one call, NumPy"] == "1.20\N{MULTIPLICATION SIGN}"
    assert found["import, beyond NumPy"] == "+30.0 ms"


def test_a_comparison_lists_what_changed(run: Run) -> None:
    faster = Record("overhead", "ops", "add", "numpy", ours=1e-6, raw=1e-6)
    text = "".join(parsed(render(Run(run.machine, (faster,)), before=run)).itertext())
    assert "1 ratios differ by more than a tenth" in text
    assert "-17%" in text


def test_a_run_without_numbers_has_a_page_and_no_picture(tmp_path: Path) -> None:
    empty = Run({}, (Record("ops", "stft", "stft", error="it failed"),))
    nothing_from_elsewhere(render(empty))
    paths, reason = drawing.write_all(empty, tmp_path)
    assert [path.name for path in paths] == ["bench.json", "bench.html"]
    assert "no measure of this run has a number" in reason
    with pytest.raises(DomainError, match="no measure"):
        drawing.draw(empty, tmp_path / "x.svg")


def test_the_picture(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths, reason = drawing.write_all(run, tmp_path / "new")
    assert reason == ""
    assert [path.name for path in paths] == ["bench.json", "bench.html", "bench.png"]
    data = paths[2].read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
    assert width > 1000
    assert height > 2000


def test_without_matplotlib_there_is_a_page_and_a_reason(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ember_ml.bench.png.is_available", lambda: False)
    monkeypatch.setattr("ember_ml.bench.drawing.is_available", lambda: False)
    paths, reason = drawing.write_all(run, tmp_path)
    assert [path.name for path in paths] == ["bench.json", "bench.html"]
    assert "pip install 'ember-ml[plot]'" in reason
    with pytest.raises(DomainError, match="matplotlib, which is not installed"):
        drawing.draw(run, tmp_path / "x.png")


def test_a_plot_of_another_kind_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"ends in .html, .svg or .png, not 'x.pdf'"):
        drawing.draw(run, tmp_path / "x.pdf")


# --- The documentation ----------------------------------------------------------------------


def test_the_documentation_is_renewed_between_its_markers(run: Run, tmp_path: Path) -> None:
    page = tmp_path / documents.PAGE
    page.write_text(
        "# Title\n<!-- bench:machine -->\nold\n<!-- /bench:machine -->\nprose\n"
        "<!-- bench:overhead -->\nold\n<!-- /bench:overhead -->\n"
        "<!-- bench:unknown -->\nkept\n<!-- /bench:unknown -->\nend\n",
        encoding="utf-8",
    )
    written = documents.renew(run, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert text.startswith(
        "# Title\n<!-- bench:machine -->\n\nThis run: 2026-11-17 on A &lt;CPU&gt;"
    )
    assert "\nprose\n" in text
    assert text.endswith("<!-- bench:unknown -->\nkept\n<!-- /bench:unknown -->\nend\n")
    assert "![One call: cost, the raw engine = 1](assets/bench-overhead.svg)" in text
    assert "| NumPy | add |" in text
    assert "old" not in text
    for path in written:
        assert path.is_file()
        if path.suffix in (".svg", ".html"):
            nothing_from_elsewhere(path.read_text(encoding="utf-8"))
    again = documents.replaced(text, documents.blocks(run))
    assert again == text


def test_every_marker_of_our_page_has_a_block(run: Run) -> None:
    docs = Path(__file__).parents[2] / "docs"
    texts = [page.read_text(encoding="utf-8") for page in docs.glob("*.md")]
    names = [match[1] for text in texts for match in documents.MARKER.finditer(text)]
    assert sorted(names) == sorted(documents.blocks(run))
    # A table whose rows have other numbers of cells is no table.
    for block in documents.blocks(run).values():
        counts = {line.count("|") for line in block.splitlines() if line.startswith("|")}
        assert len(counts) <= 1, block


def test_documentation_without_markers_is_an_error(run: Run, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"the folder that has benchmarks\.md"):
        documents.renew(run, tmp_path)
    (tmp_path / documents.PAGE).write_text("nothing\n", encoding="utf-8")
    with pytest.raises(FormatError, match="has no marker"):
        documents.renew(run, tmp_path)


def test_scaling_is_drawn_from_the_sums_that_were_measured(run: Run) -> None:
    chart = scaling.chart(run)
    assert chart is not None
    left = chart.panels[0].lines
    assert set(left) == {"numpy", "torch", "jax", "mlx"}
    speeds = [y for _, y in left["torch"]]
    assert speeds[0] == pytest.approx(100.0)
    assert speeds == sorted(speeds, reverse=True)
    nothing_from_elsewhere(svg.figure(chart))
    assert scaling.chart(Run({}, ())) is None


# --- Axes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [(0.9, 1.1), (0.5, 100.0), (1e-7, 3e-2), (1.0, 1e6), (2.0, 2.0)])
@pytest.mark.parametrize("most", [3, 6])
def test_ticks_are_few_and_on_the_axis(span: tuple[float, float], most: int) -> None:
    for log in (True, False):
        axis = Axis.around(span, "", "ratio", log=log, least=0.6)
        found = ticks(axis, most)
        assert 1 <= len(found) <= most + 1
        assert found == sorted(set(found))
        assert all(axis.low <= one <= axis.high * (1 + 1e-9) for one in found)
        for value in span:
            assert 0 <= place(axis, value) <= 1


@pytest.mark.parametrize("most", [3, 4, 6])
def test_ticks_of_a_plain_axis_exist_at_any_length(most: int) -> None:
    for high in (1.0, 1.7, 2.0, 2.9, 3.1, 4.9, 5.1, 7.7, 9.99, 770e6):
        found = ticks(Axis("", "B", 0.0, high, log=False), most)
        assert 1 < len(found) <= most + 1
        assert found[0] == 0
        assert high * 0.4 < found[-1] <= high


def test_a_point_that_is_no_number_is_not_drawn() -> None:
    row = Row("x", {"raw": 1.0, "ember_ml": math.nan})
    axis = Axis.around([1.0], "", "ratio", reference=1.0, least=0.6)
    drawn = svg.figure(Chart("dots", (Panel("", (row,)),), ("raw", "ember_ml"), axis))
    assert len(list(parsed(drawn).iter(f"{SVG}title"))) == 1
    assert "nan" not in drawn
