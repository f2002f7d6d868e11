"""Runs a recorded test of the web platform: calls with what they give, or what they raise."""

import re

import numpy as np

from ember_ml.webnn import ML, MLGraphBuilder
from ember_ml.webnn.builder.base import snake
from tests.webnn import wpt

_ARRAYS = {
    "Float32Array": np.float32,
    "Float16Array": np.float16,
    "Int32Array": np.int32,
    "Uint32Array": np.uint32,
    "Int16Array": np.int16,
    "Uint16Array": np.uint16,
    "Int8Array": np.int8,
    "Uint8Array": np.uint8,
    "BigInt64Array": np.int64,
    "BigUint64Array": np.uint64,
}


class Player:
    """The objects of a trace by their names, and how its steps are taken."""

    def __init__(self, backend="onnxruntime", known=None):
        self.known = dict(known or {})
        self.known.setdefault("ml", ML())
        self.backend = backend

    def play(self, steps):
        """Take all steps; gives what went otherwise than expected."""
        wrong = []
        for place, step in enumerate(steps):
            text = self.step(step)
            if text:
                wrong.append(f"step {place} {str(step)[:300]}: {text}")
        return wrong

    def step(self, step):
        if "expect" in step:
            return self.expect(step)
        if "call" not in step:
            return None
        expected = step.get("throws")
        try:
            made = self.call(step)
        except Exception as error:
            if expected is None:
                return f"raised {type(error).__name__}: {error}"
            named = {base.__name__ for base in type(error).__mro__}
            if expected not in named:
                return f"raised {type(error).__name__}: {error}, not {expected}"
            pattern = step.get("messageMustMatch")
            if pattern and not re.search(pattern, str(error)):
                return f"the text {str(error)!r} does not match {pattern!r}"
            return None
        if expected is not None:
            return f"raised nothing, not {expected}"
        if "result" in step:
            self.known[step["result"]] = made
        return None

    def call(self, step):
        given = [self.value(one) for one in step["args"]]
        if step["on"] == "global":
            assert step["call"] == "MLGraphBuilder", step
            return MLGraphBuilder(*given)
        if step["call"] == "createContext":
            return self.known["ml"].create_context(*given, backend=self.backend)
        return getattr(self.known[step["on"]], snake(step["call"]))(*given)

    def expect(self, step):
        made = self.known[step["of"]] if isinstance(step["of"], str) else None
        if step["expect"] == "dataType":
            got = made.data_type
        elif step["expect"] == "shape":
            got = list(made.shape)
        else:
            return f"no such expectation: {step['expect']}"
        return None if got == step["equals"] else f"got {got}"

    def value(self, given):
        if isinstance(given, list):
            return [self.value(one) for one in given]
        if not isinstance(given, dict):
            return given
        if "$ref" in given:
            return self.known[given["$ref"]]
        if "$buffer" in given:
            return buffer(given)
        if "$js" in given:
            return None
        if "$bigint" in given or "$number" in given:
            return wpt.argument(given, {})
        return {key: self.value(one) for key, one in given.items() if not is_undefined(one)}


def is_undefined(given):
    return isinstance(given, dict) and given.get("$js") == "undefined"


def buffer(given):
    kind = given["$buffer"]
    if kind in ("ArrayBuffer", "SharedArrayBuffer"):
        return bytearray(given.get("bytes", given["byteLength"]))
    dtype = np.dtype(_ARRAYS[kind])
    if "data" not in given:
        return np.zeros(given["byteLength"] // dtype.itemsize, dtype)
    return np.array([wpt.element(x, dtype.name) for x in given["data"]], dtype)
