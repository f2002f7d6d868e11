"""The WebNN tests of the web platform as data: where they lie, and how a case is read."""

import json
from pathlib import Path

import numpy as np

from ember_ml.graph.types import numpy_dtype
from ember_ml.webnn.builder.base import snake

# Beside the repository, as the developers have it.
ROOT = Path(__file__).parents[3] / "shared" / "wpt-webnn"
ABSENT = f"the web platform's WebNN tests are not there: {ROOT.name} lies beside the repository"

# Who runs every test of ops; the other backends run the platform's numeric cases as well.
EXECUTORS = ["onnxruntime", "numpy"]

_SPECIAL = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf, "-0": -0.0}


def load(folder, name):
    return json.loads((ROOT / folder / f"{name}.json").read_text())


def expectation(case):
    """What a case's outputs are, by name."""
    return {name: array_of(x) for name, x in case["graph"]["expectedOutputs"].items()}


def names(folder):
    return sorted(path.stem for path in (ROOT / folder).glob("*.json"))


def array_of(tensor):
    """The data of an input or of an expected output."""
    dtype, shape = tensor["descriptor"]["dataType"], tuple(tensor["descriptor"]["shape"])
    if "float16Bits" in tensor:
        halves = np.array(tensor["float16Bits"], dtype=np.uint16).reshape(-1).view(np.float16)
        return _spread(halves, shape)
    data = tensor["data"]
    if not isinstance(data, list):
        data = [data]
    values = [element(x, dtype) for x in data]
    with np.errstate(over="ignore"):  # some are meant to become infinite
        made = np.array(values, dtype=numpy_dtype(dtype))
    return _spread(made, shape)


def _spread(values, shape):
    """One value stands for all; without memory of their own, as some tensors are large."""
    return np.broadcast_to(values[0], shape) if values.size == 1 else values.reshape(shape)


def element(value, dtype):
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    return int(value) if "int" in dtype else float(value)


def argument(value, operands):
    """An argument of a case or of a trace in Python's terms."""
    if isinstance(value, dict):
        if "$bigint" in value:
            return int(value["$bigint"])
        if "$number" in value:
            return _SPECIAL[value["$number"]]
        return {key: argument(one, operands) for key, one in value.items()}
    if isinstance(value, list):
        return [argument(one, operands) for one in value]
    if isinstance(value, str):
        return operands.get(value, value)
    return value


def build(builder, case):
    """The graph of a case, and what it is fed with."""
    operands, feeds = {}, {}
    for name, tensor in case["graph"]["inputs"].items():
        if tensor.get("constant"):
            operands[name] = builder.constant(tensor["descriptor"], array_of(tensor))
        else:
            operands[name] = builder.input(name, tensor["descriptor"])
            feeds[name] = array_of(tensor)
    for operator in case["graph"]["operators"]:
        given = [
            argument(value, operands) for one in operator["arguments"] for value in one.values()
        ]
        made = getattr(builder, snake(operator["name"]))(*given)
        outputs = operator["outputs"]
        if isinstance(outputs, list):
            operands.update(zip(outputs, made, strict=True))
        else:
            operands[outputs] = made
    return builder.build({name: operands[name] for name in case["graph"]["expectedOutputs"]}), feeds


def distance(got, expected):
    """How far two arrays of one dtype are apart in units in the last place, at most."""
    width = np.dtype(f"int{8 * got.dtype.itemsize}")

    def ordered(x):
        bits = np.ascontiguousarray(x).view(width).astype(object)
        least = -(2 ** (8 * got.dtype.itemsize - 1))
        return np.where(np.signbit(x), least - bits, bits)

    return np.abs(ordered(got) - ordered(expected))


def check(got, expected, tolerance, name):
    """Assert that a result is what is expected, within the tolerance of its case."""
    assert got.dtype == expected.dtype, (name, got.dtype, expected.dtype)
    assert got.shape == expected.shape, (name, got.shape, expected.shape)
    a, b = got.flat[:1000], expected.flat[:1000]
    if a.dtype.kind != "f":
        off = np.abs(a.astype(object) - b.astype(object))
        worst = max(off.tolist(), default=0)
        assert worst <= tolerance["value"], (name, worst, a, b)
        return
    both_nan = np.isnan(a) & np.isnan(b)
    assert (np.isnan(a) == np.isnan(b)).all(), (name, a, b)
    a, b = a[~both_nan], b[~both_nan]
    if tolerance["metric"] == "ULP":
        worst = max(distance(a, b).tolist(), default=0)
    else:
        same = a == b  # infinities
        wide_a, wide_b = a[~same].astype(np.float64), b[~same].astype(np.float64)
        worst = max(np.abs(wide_a - wide_b).tolist(), default=0)
    assert worst <= tolerance["value"], (name, tolerance, worst, a[:20], b[:20])
