"""A data parallel step on two processes beside the engine's own, and sums of ranks.

    python benchmarks/distributed.py                     all installed engines, a table
    python benchmarks/distributed.py --quick --json out.json --plot out.html

The measures are in ember_ml.bench.suites.distributed; `ember bench` runs all benchmarks.
"""

from __future__ import annotations

from ember_ml.bench.script import main

if __name__ == "__main__":
    main("distributed")
