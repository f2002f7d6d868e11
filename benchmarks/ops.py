"""The wider ops beside the raw calls of each engine.

    python benchmarks/ops.py                     all installed engines, a table
    python benchmarks/ops.py --quick --json out.json --plot out.html

The measures are in ember_ml.bench.suites.ops; `ember bench` runs all benchmarks.
"""

from __future__ import annotations

from ember_ml.bench.script import main

if __name__ == "__main__":
    main("ops")
