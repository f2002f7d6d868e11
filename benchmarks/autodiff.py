"""Loss and gradients of a network, beside the engine used raw.

    python benchmarks/autodiff.py                     all installed engines, a table
    python benchmarks/autodiff.py --quick --json out.json --plot out.html

The measures are in ember_ml.bench.suites.autodiff; `ember bench` runs all benchmarks.
"""

from __future__ import annotations

from ember_ml.bench.script import main

if __name__ == "__main__":
    main("autodiff")
