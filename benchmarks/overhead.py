"""What an op costs beyond the raw call, with other libraries beside.

    python benchmarks/overhead.py                     all installed engines, a table
    python benchmarks/overhead.py --quick --json out.json --plot out.html

The measures are in ember_ml.bench.suites.overhead; `ember bench` runs all benchmarks.
"""

from __future__ import annotations

from ember_ml.bench.script import main

if __name__ == "__main__":
    main("overhead")
