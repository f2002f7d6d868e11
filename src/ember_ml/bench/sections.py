"""What a run has to say, chapter by chapter: each a few charts and the records behind them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ember_ml.bench.catalog import ENGINES
from ember_ml.bench.charts import OURS, TIMES, Axis, Chart, Panel, Row, series_of
from ember_ml.bench.records import Record, Run, readable

__all__ = ["NAMES", "Headline", "Section", "headlines", "sections", "verdict_text"]

NAMES = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX", "mlx": "MLX", "": "ONNX Runtime"}
RATIO = "cost, the raw engine = 1"


@dataclass(frozen=True)
class Section:
    """A chapter."""

    key: str
    title: str
    about: str
    records: tuple[Record, ...]
    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Headline:
    """A number that says much, and what it is."""

    number: str
    label: str
    good: bool | None = None


# --- Rows and charts ------------------------------------------------------------------------


def verdict_text(record: Record) -> str:
    """What the bar of a record is compared with, or its ratio."""
    if record.bar is not None and record.bar.kind == "extra" and record.barred is not None:
        sign = "+" if record.barred >= 0 else "-"
        return sign + _time(abs(record.barred))
    if record.bar is not None and record.bar.kind == "most" and record.ours is not None:
        return _time(record.ours)
    ratio = record.wall_ratio if record.bar and record.bar.kind == "wall" else record.ratio
    return "" if ratio is None else _ratio_text(ratio, record)


def _ratio_text(ratio: float, record: Record) -> str:
    """Two digits, or as many as tell it from the bar that it missed."""
    if record.met is False and record.bar is not None:
        texts = [f"{ratio:.{digits}f}" for digits in (2, 3, 4, 5)]
        return next((one for one in texts if float(one) > record.bar.value), texts[-1])
    return f"{ratio:.2f}"


def _time(value: float, unit: str = "s") -> str:
    return readable(value, unit).replace("us", "µs")


def _ratio_row(record: Record, label: str, *, wall: bool = False) -> Row:
    """Ours and peers as multiples of raw."""
    raw = record.raw or math.nan
    ours = record.wall_ratio if wall else record.ratio
    points = {name: value / raw for name, value in record.peers.items()}
    points[OURS] = ours or math.nan
    bar = None
    if record.bar is not None and record.raw:
        bar = {
            "extra": 1 + record.bar.value / record.raw,
            "most": record.bar.value / record.raw,
        }.get(record.bar.kind, record.bar.value)
    return Row(label, points, bar, _ratio_text(ours, record) if ours else "", record.met)


def _time_row(record: Record, label: str, raw: str, ours: str) -> Row:
    """Both sides as times."""
    points = {raw: record.raw or math.nan, ours: record.ours or math.nan, **record.peers}
    bar = None
    if record.bar is not None and record.raw is not None:
        value = record.bar.value
        bar = {"extra": record.raw + value, "most": value}.get(record.bar.kind, record.raw * value)
    text = verdict_text(record) if record.bar is not None else _time(record.ours or 0.0)
    return Row(label, points, bar, text, record.met)


def _dots(
    panels: Sequence[Panel], title: str, unit: str, reference: float | None, stem: str = ""
) -> Chart:
    rows = [row for panel in panels for row in panel.rows]
    values = [value for row in rows for value in row.points.values()]
    values += [row.bar for row in rows if row.bar is not None]
    found = [one for one in values if math.isfinite(one)]
    axis = Axis.around(found, title, unit, reference=reference, least=0.6)
    return Chart("dots", tuple(panels), series_of(rows), axis, stem=stem)


def _by_engine(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    given = list(records)
    for name in (*ENGINES, ""):
        some = [one for one in given if one.backend == name]
        if some:
            found[name] = some
    return found


def _ratios_by_engine(records: Sequence[Record]) -> tuple[Chart, ...]:
    panels = [
        Panel(NAMES[engine], tuple(_ratio_row(one, one.name) for one in some))
        for engine, some in _by_engine(records).items()
    ]
    return (_dots(panels, RATIO, "ratio", 1.0),) if panels else ()


def _ratios(rows: Sequence[Row], title: str = RATIO, panel: str = "") -> tuple[Chart, ...]:
    return (_dots([Panel(panel, tuple(rows))], title, "ratio", 1.0),) if rows else ()


def _named(records: Iterable[Record], *, wall: bool = False) -> list[Row]:
    """Rows whose label says the engine."""
    return [_ratio_row(one, f"{NAMES[one.backend]}, {one.name}", wall=wall) for one in records]


# --- The chapters ---------------------------------------------------------------------------


def _overhead(run: Run) -> Section:
    records = run.of("overhead")
    about = (
        "One call of an op on tiny arrays, where what we add shows most: add and sum of 4 values, "
        "matmul of 4x4, and the MLP 64-128-10 on 32 rows, written with ops. "
        "Left is cheaper; 1 is the engine called directly."
    )
    return Section("overhead", "One call", about, tuple(records), _ratios_by_engine(records))


def _growth(run: Run) -> Section:
    records = run.of("growth")
    panels = []
    for group in ("add", "matmul", "sum"):
        lines = {
            engine: tuple((float(one.size or 1), one.ratio or math.nan) for one in some)
            for engine, some in _by_engine(one for one in records if one.group == group).items()
        }
        if lines:
            panels.append(Panel(group, lines=lines))
    about = (
        "What we add to a call is a constant: visible where arrays are small, gone where they are "
        "large. A line that stayed above 1 at the right would mean that we copy."
    )
    return Section("growth", "Growth with size", about, tuple(records), _lines(panels))


def _lines(panels: list[Panel]) -> tuple[Chart, ...]:
    points = [point for panel in panels for line in panel.lines.values() for point in line]
    if not points:
        return ()
    x = Axis.around((x for x, _ in points), "elements", "count")
    y = Axis.around((y for _, y in points), RATIO, "ratio", reference=1.0, least=0.6)
    present = {name for panel in panels for name in panel.lines}
    series = tuple(name for name in ENGINES if name in present)
    return (Chart("lines", tuple(panels), series, x, y),)


def _layers(run: Run) -> Section:
    records = run.of("nn", "mlp")
    about = (
        "The forward pass of the MLP 64-128-10 on 32 rows as layers: nn.Sequential beside the "
        "engine's functions called by hand, and beside other libraries' layers."
    )
    rows = [_ratio_row(one, NAMES[one.backend]) for one in records]
    return Section("layers", "Layers", about, tuple(records), _ratios(rows))


def _training(run: Run) -> Section:
    steps = run.of("autodiff")
    records = [*steps, *run.of("nn", "transformer", "generation")]
    drawn = [one for one in records if not one.against.startswith("HIPS")]
    about = (
        "Loss and gradients of an MLP (784-512-512-10) and of a tiny one, a step of AdamW on a "
        "transformer of four layers, and 64 generated tokens, each beside what users of the engine "
        "write by hand, jitted on JAX."
    )
    drawn.sort(key=lambda one: ENGINES.index(one.backend))
    return Section("training", "A step of training", about, tuple(records), _ratios(_named(drawn)))


def _ops(run: Run) -> Section:
    records = run.of("ops")
    about = (
        "Larger ops at the sizes of networks and signals, against the quickest raw way that users "
        "of the engine would write."
    )
    return Section("ops", "Larger ops", about, tuple(records), _ratios_by_engine(records))


def _storage(run: Run) -> Section:
    records = [*run.of("storage", "native", "views", "write", "iter", "parallel")]
    panels = []
    for engine, some in _by_engine(one for one in records if one.group == "native").items():
        rows = [
            _time_row(one, one.name, "the engine's own", OURS)
            for one in some
            if one.name != "clone"  # beside nothing
        ]
        panels.append(Panel(NAMES[engine], tuple(rows)))
    about = (
        "A view of a 64 MB tensor beside the engine's own view. The number is what ours takes "
        "more; the bar is 2 µs. That no view depends on the size of what it looks at is in the "
        "numbers below."
    )
    charts: tuple[Chart, ...] = ()
    if panels:
        charts = (_dots(panels, "time of a view", "s", None, stem="the engine's own"),)
    return Section("storage", "Views and writes", about, tuple(records), charts)


def _files(run: Run) -> Section:
    records = run.of("storage", "load", "save")
    about = "Files beside the safetensors library; ours is on disk before it replaces the old one."
    rows = [_ratio_row(one, one.name) for one in records]
    charts = _ratios(rows, "cost, safetensors.torch = 1")
    return Section("files", "Files", about, tuple(records), charts)


def _graphs(run: Run) -> Section:
    records = run.of("webnn")
    about = (
        "WebNN graphs beside ONNX Runtime's own run_with_iobinding on the same session, bound "
        "beforehand; building a graph beside the session alone."
    )
    charts = _ratios([_ratio_row(one, one.name) for one in records], "cost, ONNX Runtime = 1")
    return Section("graphs", "Graph dispatch", about, tuple(records), charts)


def _imports(run: Run) -> Section:
    records = run.of("imports")
    charts: tuple[Chart, ...] = ()
    for one in records[:1]:
        times = {"numpy": one.raw or 0.0, OURS: one.ours or 0.0, **one.peers}
        rows = tuple(
            Row(name, {OURS if name == OURS else "others": value}, text=_time(value))
            for name, value in sorted(times.items(), key=lambda item: item[1])
        )
        axis = Axis.around(times.values(), "CPU time of a fresh process", "s", log=False)
        charts = (Chart("bars", (Panel("", rows),), (OURS, "others"), axis),)
    about = (
        "From a started interpreter to a loaded library, bytecode written before. ember_ml loads "
        "NumPy and no other engine until it is used."
    )
    return Section("imports", "Import", about, tuple(records), charts)


def _memory(run: Run) -> Section:
    records = run.of("memory")
    names = ("every value kept", "each layer a checkpoint", "8 segments")
    panels = []
    for engine, some in _by_engine(records).items():
        rows = []
        for one in some:
            points = {names[0]: one.raw or 0.0, names[1]: one.ours or 0.0, **one.peers}
            text = "" if one.ratio is None else f"{one.ratio:.2f}"
            rows.append(Row(one.name, points, text=text, met=one.met))
        panels.append(Panel(NAMES[engine], tuple(rows)))
    values = [v for panel in panels for row in panel.rows for v in row.points.values()]
    axis = Axis.around(values, "peak of memory", "B", log=False)
    charts = (Chart("bars", tuple(panels), names, axis),) if panels else ()
    about = (
        "Gradients of 64 layers with 2.1 MB between two: the peak with each layer a checkpoint "
        "beside that with every value kept. The bar is half."
    )
    return Section("memory", "Memory", about, tuple(records), charts)


def _moves(run: Run) -> Section:
    records = run.of("interchange")
    panels = [
        Panel(
            f"from {NAMES[engine]}",
            tuple(_time_row(one, one.name, "16 B", "64 MB") for one in some),
        )
        for engine, some in _by_engine(records).items()
    ]
    about = (
        "x.to_backend(...) of 16 B and of 64 MB. Where memory is shared, both take the same; where "
        "an engine must copy, the dots are apart."
    )
    charts = (_dots(panels, "time of a move", "s", None, stem="16 B"),) if panels else ()
    return Section("moves", "Moves between engines", about, tuple(records), charts)


def _several(run: Run) -> Section:
    records = run.of("distributed")
    steps = run.of("distributed", "steps")
    rows = [_ratio_row(one, NAMES[one.backend], wall=True) for one in steps]
    about = (
        "A data parallel step on two processes of this machine, in wall time. PyTorch and JAX "
        "stand beside their own; NumPy and MLX have none, and stand beside one process with the "
        "whole batch, which two cores can halve at best."
    )
    charts = _ratios(rows, "wall time, what it is held against = 1")
    return Section("several", "Several processes", about, tuple(records), charts)


CHAPTERS = (
    _overhead,
    _growth,
    _layers,
    _training,
    _ops,
    _storage,
    _files,
    _graphs,
    _imports,
    _several,
    _moves,
    _memory,
)


def sections(run: Run) -> list[Section]:
    """The chapters that a run has numbers for."""
    return [found for make in CHAPTERS if (found := make(run)).records]


def headlines(run: Run) -> list[Headline]:
    """The numbers to read first."""
    found = []
    if run.judged:
        met = len(run.judged) - len(run.missed)
        found.append(Headline(f"{met} of {len(run.judged)}", "bars met", not run.missed))
    for engine, some in _by_engine(run.of("overhead")).items():
        ratios = [one.ratio for one in some if one.ratio and one.name != "mlp"]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            found.append(Headline(f"{mean:.2f}{TIMES}", f"one call, {NAMES[engine]}"))
    for one in run.of("nn", "transformer"):
        if one.backend == "torch" and one.ratio:
            found.append(Headline(f"{one.ratio:.2f}{TIMES}", "training step, PyTorch"))
    for one in run.of("imports"):
        if one.barred is not None:
            found.append(Headline(f"+{_time(one.barred)}", "import, beyond NumPy", one.met))
    return found
