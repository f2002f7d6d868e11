"""A run that never changes: one record of each kind that pages must show."""

from __future__ import annotations

import pytest

from ember_ml.bench.records import Bar, Record, Run

MACHINE = {
    "cpu": "A <CPU> & more",
    "cores": 2,
    "python": "3.11.7",
    "ember_ml": "0.1.0",
    "compiled": False,
    "versions": {"numpy": "2.4.6"},
    "load": [0.5, 0.4, 0.3],
    "date": "2026-11-17T00:00:00+00:00",
}


def _seconds(benchmark: str, group: str, name: str, backend: str = "", **given: object) -> Record:
    numbers = {"ours": 1.2e-6, "raw": 1e-6, "ours_wall": 1.3e-6, "raw_wall": 1e-6}
    return Record(benchmark, group, name, backend, **(numbers | given))  # type: ignore[arg-type]


def records() -> list[Record]:
    found = []
    for engine in ("numpy", "torch", "jax", "mlx"):
        peers = {"autoray": 3e-6, "keras.ops": 9e-5} if engine != "mlx" else {"autoray": 2e-6}
        for name in ("add", "mlp"):
            found.append(
                _seconds("overhead", "ops", name, engine, bar=Bar("ratio", 1.7), peers=peers)
            )
        for op in ("add", "matmul", "sum"):
            for size in (4, 1024, 1_000_000):
                slower = 1e-9 * size
                found.append(
                    _seconds(
                        "growth", op, f"{op} of {size:,}", engine,
                        ours=1.2e-6 + slower, raw=1e-6 + slower, size=size,
                    )
                )  # fmt: skip
        found += [
            _seconds("nn", "mlp", "mlp forward", engine, against="by hand"),
            _seconds("autodiff", "mlp", "mlp step", engine, bar=Bar("ratio", 1.1)),
            _seconds("ops", "network", "conv2d", engine, bar=Bar("ratio", 1.1), ours=1e-6),
            _seconds("storage", "native", "x[1:3] & <T>", engine, bar=Bar("extra", 2e-6)),
            _seconds("storage", "write", "write", engine, bar=Bar("most", 5e-7)),
            _seconds("interchange", "moves", "to torch", engine,
                     peers={"64 MB with copy=True": 2e-2}),
            _seconds("memory", "eager", "eager", engine, unit="B", ours=1.5e8, raw=4e8,
                     bar=Bar("ratio", 0.5), peers={"8 segments": 7e7}),
            _seconds("distributed", "steps", "data parallel step", engine, bar=Bar("wall", 1.1)),
            Record("distributed", "sums", "sum of 1 KiB", engine, ours=1e-4, size=1024),
            Record("distributed", "sums", "sum of 1,024 KiB", engine, ours=1e-3, size=1 << 20),
        ]  # fmt: skip
    found += [
        _seconds("nn", "transformer", "transformer step", "torch", bar=Bar("ratio", 1.3)),
        _seconds("storage", "load", "load 512 MB, 64 tensors", "torch", bar=Bar("ratio", 1.5)),
        _seconds("webnn", "dispatch", "dispatch mlp, batch 1", bar=Bar("ratio", 1.3)),
        _seconds("imports", "import", "import ember_ml", ours=0.1, raw=0.07, bar=Bar("extra", 0.05),
                 peers={"torch": 1.3, "keras": 2.6}),
        Record("webnn", "build", "build", left_out="needs onnxruntime, which is not installed"),
        Record("ops", "stft", "stft", "numpy", error="AssertionError: <they> differ & more"),
    ]  # fmt: skip
    return found


@pytest.fixture
def run() -> Run:
    return Run(MACHINE, tuple(records()))
