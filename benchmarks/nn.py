"""Networks, a step of training and generation, beside plain programs of the same engine.

    python benchmarks/nn.py                     all installed engines, a table
    python benchmarks/nn.py --quick --json out.json --plot out.html

The measures are in ember_ml.bench.suites.nn; `ember bench` runs all benchmarks.
"""

from __future__ import annotations

from ember_ml.bench.script import main

if __name__ == "__main__":
    main("nn")
