"""WebNN graphs beside ONNX Runtime itself: dispatch, building, and a loop on the device.

    python benchmarks/webnn.py                     all installed engines, a table
    python benchmarks/webnn.py --quick --json out.json --plot out.html

The measures are in ember_ml.bench.suites.webnn; `ember bench` runs all benchmarks.
"""

from __future__ import annotations

from ember_ml.bench.script import main

if __name__ == "__main__":
    main("webnn")
