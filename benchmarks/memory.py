"""Peak memory of a 64-layer network with each layer a checkpoint, and without.

    python benchmarks/memory.py                     all installed engines, a table
    python benchmarks/memory.py --quick --json out.json --plot out.html

The measures are in ember_ml.bench.suites.memory; `ember bench` runs all benchmarks.
"""

from __future__ import annotations

from ember_ml.bench.script import main

if __name__ == "__main__":
    main("memory")
