"""What `import ember_ml` costs, beside other libraries.

    python benchmarks/imports.py                     all installed engines, a table
    python benchmarks/imports.py --quick --json out.json --plot out.html

The measures are in ember_ml.bench.suites.imports; `ember bench` runs all benchmarks.
"""

from __future__ import annotations

from ember_ml.bench.script import main

if __name__ == "__main__":
    main("imports")
