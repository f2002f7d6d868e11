"""A run as files: JSON, a page, a picture."""

from __future__ import annotations

from pathlib import Path

from ember_ml.bench.page import render
from ember_ml.bench.png import draw_png, is_available
from ember_ml.bench.records import Run, save_run
from ember_ml.bench.sections import sections
from ember_ml.bench.svg import figure
from ember_ml.errors import DomainError, FormatError

__all__ = ["draw", "write_all"]


def draw(run: Run, path: Path, before: Run | None = None) -> None:
    """Draw a run as the name of the file says: .html, .png, or .svg with its first chart."""
    if path.suffix == ".html":
        path.write_text(render(run, before), encoding="utf-8")
    elif path.suffix == ".png":
        draw_png(run, path)
    elif path.suffix == ".svg":
        charts = [chart for one in sections(run) for chart in one.charts]
        if not charts:
            raise DomainError(f"{path.name} was not drawn: no measure of this run has a number")
        path.write_text(figure(charts[0]), encoding="utf-8")
    else:
        raise FormatError(f"a plot ends in .html, .svg or .png, not '{path.name}'")


def write_all(run: Run, directory: Path, before: Run | None = None) -> tuple[list[Path], str]:
    """Write bench.json, bench.html and bench.png; the paths, and why there is no picture."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"bench.{end}" for end in ("json", "html", "png")]
    save_run(run, paths[0])
    draw(run, paths[1], before)
    if not is_available():
        return paths[:2], "no PNG: matplotlib is not installed (pip install 'ember-ml[plot]')"
    try:
        draw(run, paths[2])
    except DomainError as error:
        return paths[:2], str(error)
    return paths, ""
