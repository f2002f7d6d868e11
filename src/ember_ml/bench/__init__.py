"""Benchmarks: what a call costs beside the raw engine, as records, tables and a page of plots.

>>> from ember_ml import bench
>>> run = bench.run(["imports"], quick=True)  # doctest: +SKIP
"""

from __future__ import annotations

from ember_ml.bench.catalog import BENCHMARKS
from ember_ml.bench.records import Bar, Record, Run, load_run, save_run
from ember_ml.bench.running import run

__all__ = ["BENCHMARKS", "Bar", "Record", "Run", "load_run", "run", "save_run"]
