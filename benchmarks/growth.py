"""How the cost of add, matmul and sum grows with the size, ours over raw.

    python benchmarks/growth.py                     all installed engines, a table
    python benchmarks/growth.py --quick --json out.json --plot out.html

The measures are in ember_ml.bench.suites.growth; `ember bench` runs all benchmarks.
"""

from __future__ import annotations

from ember_ml.bench.script import main

if __name__ == "__main__":
    main("growth")
