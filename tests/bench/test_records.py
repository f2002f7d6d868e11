"""Records, bars and the JSON of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ember_ml import compiled
from ember_ml.bench import BENCHMARKS, Bar, Record, Run, load_run, machine, save_run
from ember_ml.bench.catalog import ENGINES, benchmark, chosen
from ember_ml.bench.records import merged, readable
from ember_ml.bench.showing import changes, table, verdict
from ember_ml.errors import FormatError, UnknownKeyError

RECORD = '{"benchmark": "b", "group": "g", "name": "n", %s}'
ONE = f'{{"format": 1, "machine": {{}}, "records": [{RECORD}]}}'


def record(bar: Bar | None, **given: float) -> Record:
    numbers = {"ours": 3e-6, "raw": 2e-6, "ours_wall": 8e-6, "raw_wall": 2e-6} | given
    return Record("b", "g", "n", "numpy", bar=bar, **numbers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bar", "met", "text"),
    [
        (Bar("ratio", 1.5), True, "1.5"),
        (Bar("ratio", 1.49), False, "1.49"),
        (Bar("extra", 2e-6), True, "+2.00 us"),
        (Bar("extra", 5e-7), False, "+500 ns"),
        (Bar("most", 3e-6), True, "at most 3.00 us"),
        (Bar("most", 2.9e-6), False, "at most 2.90 us"),
        (Bar("wall", 4.0), True, "4 of wall time"),
        (Bar("wall", 3.9), False, "3.9 of wall time"),
    ],
)
def test_a_bar_is_met_up_to_its_value(bar: Bar, met: bool, text: str) -> None:
    # 1.5 exactly, in floats, so that the edge is an edge.
    assert 3e-6 / 2e-6 <= 1.5
    found = record(bar)
    assert found.met is met
    assert found.bar is not None
    assert found.bar.text == text
    assert verdict(found).plain == ("met" if met else "missed")


def test_without_a_bar_or_a_number_nothing_is_judged() -> None:
    assert record(None).met is None
    assert Record("b", "g", "n", bar=Bar("ratio", 2.0)).met is None
    assert Record("b", "g", "n", ours=1.0, raw=0.0).ratio is None
    assert verdict(Record("b", "g", "n", error="x")).plain == "failed"
    assert verdict(Record("b", "g", "n", left_out="x")).plain == "left out"


def test_a_bar_of_another_kind_is_refused() -> None:
    with pytest.raises(FormatError, match="no kind is called 'speed'; there are ratio, extra"):
        Bar("speed", 1.0)


def test_a_run_comes_back_from_its_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    save_run(run, path)
    back = load_run(path)
    assert back == run
    assert [one.ratio for one in back.records] == [one.ratio for one in run.records]
    written = json.loads(path.read_text(encoding="utf-8"))
    first = written["records"][0]
    assert first["ratio"] == pytest.approx(1.2)
    assert first["met"] is True
    assert written["machine"]["cpu"] == "A <CPU> & more"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no JSON", "bench.json: "),
        ("[]", "no run of `ember bench`"),
        ('{"format": 99, "machine": {}, "records": []}', "format 99; this version .* reads 1"),
        ('{"format": 1, "machine": {}, "records": [1]}', "a record is an object, not 1"),
        ('{"format": 1, "machine": {}, "records": [{"name": "a"}]}', "needs other fields"),
        (
            ONE % '"ours": "fast"',
            "the record 'n' holds 'fast' for a number",
        ),
        (
            ONE % '"ours": NaN',
            "holds nan for a number",
        ),
        (
            ONE % '"unit": "m"',
            "has the unit 'm'",
        ),
    ],
)
def test_a_file_that_holds_no_run_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=message) as caught:
        load_run(path)
    assert "bench.json" in str(caught.value)


def test_parts_of_a_run_are_one_run(run: Run) -> None:
    old = Record("ops", "a", "x", "numpy", ours=2.0, raw=1.0)
    new = Record("ops", "a", "x", "numpy", ours=3.0, raw=1.0)
    failed = Record("ops", "a", "x", "numpy", error="it failed")
    first = Record("overhead", "a", "y", "numpy", ours=1.0, raw=1.0)
    other = Run({"cpu": "B", "load": [1.0, 2.0, 3.0]}, (old,))
    found = merged([other, Run({"loads": [9.0]}, (new, failed, first), quick=True)], BENCHMARKS)
    # In the order of benchmarks; a number is not lost to a failure.
    assert found.records == (first, new)
    assert found.machine["loads"] == [1.0, 2.0, 3.0, 9.0]
    assert machine.summary(found.machine) == "B, load average 1.0 to 9.0, measured in 2 parts"
    assert found.quick
    assert merged([run]).records == run.records


def test_readable() -> None:
    assert [readable(x) for x in (4.5e-10, 9.99e-7, 1e-6, 1.234e-2, 71.5, 0.0)] == [
        "0.45 ns",
        "999 ns",
        "1.00 us",
        "12.3 ms",
        "71.5 s",
        "0.00 ns",
    ]
    assert [readable(x, "B") for x in (12, 3.2e6, 5e9)] == ["12.0 B", "3.20 MB", "5.00 GB"]


def test_changes_are_those_beyond_noise(run: Run) -> None:
    assert changes(run, run) == []
    slower = Record("overhead", "ops", "add", "numpy", ours=2e-6, raw=1e-6)
    near = Record("overhead", "ops", "mlp", "numpy", ours=1.25e-6, raw=1e-6)
    found = changes(Run({}, (slower, near)), run)
    assert [(one.name, round(old, 2), round(new, 2)) for one, old, new in found] == [
        ("add", 1.2, 2.0)
    ]


def test_the_table_has_a_row_for_every_record(run: Run) -> None:
    found = table(run)
    benchmarks = len({one.benchmark for one in run.records})
    # Records of a benchmark stand together in a real run; here they alternate.
    heads = sum(
        1
        for i, one in enumerate(run.records)
        if not i or run.records[i - 1].benchmark != one.benchmark
    )
    assert heads >= benchmarks
    assert found.row_count == len(run.records) + heads
    assert [column.header for column in table(run, run).columns].count("was") == 1


def test_every_benchmark_is_there_and_named_as_its_module() -> None:
    for name, one in zip(BENCHMARKS, chosen(()), strict=True):
        assert one.name == name
        assert one.about.endswith(".")
        assert set(one.backends) <= set(ENGINES)
        assert set(one.only) <= set(one.groups)
        assert one.groups_of("numpy" if one.backends else "")
    assert {"overhead", "storage", "ops", "autodiff", "nn", "webnn", "distributed"} <= set(
        BENCHMARKS
    )
    assert {"memory", "interchange", "imports", "growth"} <= set(BENCHMARKS)


def test_every_benchmark_has_a_program_in_a_checkout() -> None:
    programs = Path(__file__).parents[2] / "benchmarks"
    found = {path.stem for path in programs.glob("*.py")}
    # What scripts/instructions counts is no ratio of times.
    assert found - {"instructions"} == set(BENCHMARKS)


def test_an_unknown_benchmark_names_those_there_are() -> None:
    with pytest.raises(
        UnknownKeyError, match="no benchmark is called 'speed'; there are: overhead"
    ):
        benchmark("speed")


def test_the_machine_is_described() -> None:
    found = machine.describe()
    assert found["cpu"]
    assert found["cores"] >= 1
    assert found["versions"]["numpy"]
    assert found["compiled"] is compiled.is_compiled()
    assert json.loads(json.dumps(found)) == found
    assert f"Python {found['python']}" in machine.summary(found)
    assert "as for Zen," in machine.summary({**found, "blas": "Zen"})
    assert machine.summary({}) == "an unknown machine"
