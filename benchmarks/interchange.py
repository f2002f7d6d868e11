"""What a move between engines costs, small and large, shared and copied.

    python benchmarks/interchange.py                     all installed engines, a table
    python benchmarks/interchange.py --quick --json out.json --plot out.html

The measures are in ember_ml.bench.suites.interchange; `ember bench` runs all benchmarks.
"""

from __future__ import annotations

from ember_ml.bench.script import main

if __name__ == "__main__":
    main("interchange")
