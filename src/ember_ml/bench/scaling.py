"""How the speed of a rank falls with their number, by the model of distributed.scaling."""

from __future__ import annotations

from ember_ml.bench.catalog import ENGINES
from ember_ml.bench.charts import Axis, Chart, Panel
from ember_ml.bench.records import Run
from ember_ml.distributed.scaling import Link, StepModel, fitted_link

__all__ = ["chart", "links"]

# Data sheets, not measurements: what such networks promise.
NOMINAL = {
    "25 Gb/s Ethernet": Link(20e-6, 25e9 / 8),
    "100 Gb/s Ethernet": Link(10e-6, 100e9 / 8),
    "400 Gb/s InfiniBand": Link(3e-6, 400e9 / 8),
}
# Gradients go in float32, those of 16 bits too. Ten million and a second of two passes, as on CPUs;
# and 650 million with half a second, as on GPUs.
SMALL = StepModel(0.35, 0.65, [1e6, 25e6, 14e6])
LARGE = StepModel(0.15, 0.35, [1e6, *[25e6] * 104])
RANKS = tuple(2**i for i in range(11))


def links(run: Run) -> dict[str, Link]:
    """The constants of each engine's link, from the sums that were measured on two processes."""
    found = {}
    for engine in ENGINES:
        sums = [one for one in run.of("distributed", "sums") if one.backend == engine]
        points = [(one.size, one.ours) for one in sums if one.size and one.ours]
        if len(points) > 1:
            sizes, seconds = zip(*points, strict=True)
            found[engine] = fitted_link(sizes, seconds, 2)
    return found


def chart(run: Run) -> Chart | None:
    """Measured links at the left, those of data sheets at the right; None without the former."""
    measured = links(run)
    if not measured:
        return None

    def line(step: StepModel, link: Link) -> tuple[tuple[float, float], ...]:
        return tuple((float(n), 100 * step.efficiency(n, link)) for n in RANKS)

    left = {name: line(SMALL, link) for name, link in measured.items()}
    right = {name: line(LARGE, link) for name, link in NOMINAL.items()}
    panels = (
        Panel("10 million weights, links measured here", lines=left),
        Panel("650 million weights, links by data sheets", lines=right),
    )
    return Chart(
        "lines",
        panels,
        (*left, *right),
        Axis("ranks, each with the same batch", "count", 0.9, 1200.0),
        Axis("speed of a rank, % of one alone", "percent", 0.0, 105.0, log=False),
    )
