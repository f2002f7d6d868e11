"""What storage costs: views, clones and writes by size, files against safetensors.

    python benchmarks/storage.py                     all installed engines, a table
    python benchmarks/storage.py --quick --json out.json --plot out.html

The measures are in ember_ml.bench.suites.storage; `ember bench` runs all benchmarks.
"""

from __future__ import annotations

from ember_ml.bench.script import main

if __name__ == "__main__":
    main("storage")
