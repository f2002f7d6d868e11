"""Runs a recorded test of the web platform: calls with what they give, or what they raise."""

import asyncio
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
_PROMISES = ("createContext", "createTensor", "createConstantTensor", "readTensor", "build")

_INTEGERS = "Python has one type of integers: 123 and 123n are the same"
_DETACHED = "JavaScript takes memory away from a buffer; Python's are never without theirs"
# What only JavaScript can express: (file, test) with the places of the steps, and why.
JAVASCRIPT_ONLY = {
    (
        "byob_readtensor",
        "Detaching an ArrayBuffer while readTensor() is in progress should reject",
    ): ((0, 1), _DETACHED),
    (
        "byob_readtensor",
        "Subsequent readTensor() after reading into a detached buffer gets correct data",
    ): ((4,), _DETACHED),
    (
        "constant",
        "[constant] Throw if using BigInt value for float32 data type",
    ): ((1,), _INTEGERS),
    (
        "clamp",
        "[clamp] Throw if BigInt is used for data types other than int64 and uint64",
    ): (
        (2, 4, 6, 8, 10, 12, 13),
        _INTEGERS + "; and the recorder knew no 4-bit inputs, which the numeric cases have",
    ),
    (
        "constant-changed-buffer",
        "Constant data cannot use a detached buffer, which is empty",
    ): ((1,), _DETACHED + "; nothing was recorded"),
}


def play(folder, name, backend="onnxruntime", *, asynchronous=False):
    """Play all tests of a file; gives what went otherwise than expected."""
    recorded = wpt.load(folder, name)
    return asyncio.run(_play(recorded, name, backend, asynchronous))


async def _play(recorded, name, backend, asynchronous):
    setup = Player(backend, asynchronous=asynchronous)
    wrong = await setup.play(recorded["setup"])
    for test in recorded["tests"]:
        places, _ = JAVASCRIPT_ONLY.get((name, test["name"]), ((), ""))
        steps = [step for place, step in enumerate(test["steps"]) if place not in places]
        player = Player(backend, known=setup.known, asynchronous=asynchronous)
        wrong += [f"{test['name']}: {one}" for one in await player.play(steps)]
    return wrong


class Player:
    """The objects of a trace by their names, and how its steps are taken.

    Promises are awaited at once, by synchronous calls or by `await`. Only a read that has to fail
    because of what comes after it is on its way while the next steps are taken.
    """

    def __init__(self, backend="onnxruntime", known=None, *, asynchronous=False):
        self.known = dict(known or {})
        self.known.setdefault("ml", ML())
        self.backend = backend
        self.asynchronous = asynchronous
        self.waiting = []
        # How much of a buffer was looked at already: its parts are expected one after another.
        self.seen = {}

    async def play(self, steps):
        """Take all steps; gives what went otherwise than expected."""
        wrong = []
        for place, step in enumerate(steps):
            text = await self.step(step, is_pending(step, steps[place + 1 :]))
            if text:
                wrong.append(f"step {place} {str(step)[:300]}: {text}")
        for step, pending in self.waiting:
            try:
                await pending
                wrong.append(f"{str(step)[:300]}: raised nothing")
            except Exception as error:
                text = mismatch(step, error)
                if text:
                    wrong.append(f"{str(step)[:300]}: {text}")
        return wrong

    async def step(self, step, pending=False):
        if "expect" in step:
            return self.expect(step)
        if "call" not in step:
            return None
        if pending:
            given = [self.value(one) for one in step["args"]]
            self.waiting.append((step, self.known[step["on"]].read_tensor_async(*given)))
            return None
        try:
            made = await self.call(step)
        except Exception as error:
            return mismatch(step, error)
        if "throws" in step:
            return f"raised nothing, not {step['throws']}"
        if isinstance(step.get("result"), list):
            self.known.update(zip(step["result"], made, strict=True))
        elif "result" in step:
            self.known[step["result"]] = made
        return None

    async def call(self, step):
        given = [self.value(one) for one in step["args"]]
        if step["on"] == "global":
            assert step["call"] == "MLGraphBuilder", step
            return MLGraphBuilder(*given)
        options = {"backend": self.backend} if step["call"] == "createContext" else {}
        method = snake(step["call"])
        on = self.known[step["on"]]
        if self.asynchronous and step["call"] in (*_PROMISES, "dispatch", "writeTensor"):
            made = await getattr(on, f"{method}_async")(*given, **options)
        else:
            made = getattr(on, method)(*given, **options)
        return given[1] if step.get("into") else made

    def expect(self, step):
        if step["expect"] == "inArray":
            op, operand, _ = step["description"].split(".")
            limits = self.known["context1"].op_support_limits()[snake(op)][operand]["data_types"]
            return None if step["actual"] in limits else f"{limits} lacks {step['actual']}"
        if step["expect"] == "firstElements":
            got = [float(np.asarray(self.known[one]).reshape(-1)[0]) for one in step["of"]]
            return None if got == step["equals"] else f"got {got}"
        made = self.known[step["of"]]
        if step["expect"] == "dataType":
            got = made.data_type
        elif step["expect"] == "shape":
            got = list(made.shape)
        elif step["expect"] == "data":
            return self.data(step, made)
        else:
            return f"no such expectation: {step['expect']}"
        return None if got == step["equals"] else f"got {got}"

    def data(self, step, made):
        dtype = np.dtype(_ARRAYS[step["as"]])
        equals = [wpt.element(x, dtype.name) for x in step["equals"]]
        flat = np.frombuffer(np.ascontiguousarray(made).tobytes(), dtype)
        begin = self.seen.get(step["of"], 0)
        end = self.seen[step["of"]] = begin + len(equals)
        if isinstance(made, np.ndarray) and flat.size == len(equals):
            begin, end = 0, flat.size
        got = flat[begin:end].tolist()
        return None if got == equals else f"got {got[:20]}"

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
        if any(isinstance(size, float) for size in given.get("shape", ())):
            # JavaScript's conversion to an integer cuts what Python refuses.
            given = given | {"shape": [int(size) for size in given["shape"]]}
        return {key: self.value(one) for key, one in given.items() if not is_undefined(one)}


def is_pending(step, later):
    """Whether a read fails only because of what is destroyed after it."""
    if step.get("call") != "readTensor" or step.get("throws") != "InvalidStateError":
        return False
    doomed = (step["on"], step["args"][0]["$ref"])
    return any(one.get("call") == "destroy" and one["on"] in doomed for one in later)


def mismatch(step, error):
    """What is wrong with an error, if anything."""
    expected = step.get("throws")
    if expected is None:
        return f"raised {type(error).__name__}: {error}"
    if expected not in {base.__name__ for base in type(error).__mro__}:
        return f"raised {type(error).__name__}: {error}, not {expected}"
    pattern = step.get("messageMustMatch")
    if pattern and not re.search(pattern, str(error)):
        return f"the text {str(error)!r} does not match {pattern!r}"
    return None


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
