"""Every op with something strange in each of its places: one error, that names the op and label."""

import numpy as np
import pytest

from ember_ml.webnn import ML, MLGraphBuilder, MLTypeError
from ember_ml.webnn.builder.base import snake
from tests.webnn import wpt

pytestmark = pytest.mark.skipif(not wpt.ROOT.exists(), reason=wpt.ABSENT)
NAMES = wpt.names("conformance") if wpt.ROOT.exists() else []

STRANGE = [
    *(None, "", b"ab", True, 1j, {}, {1}, object(), range(2)),
    *(-1, 0, 1, 2**31, 2**32, 10**400, 1.5, float("nan"), float("inf")),
    *(np.float32(1), np.int64(1), np.int64(-1), np.complex64(1)),
    *(np.array(3), np.array([1, 2]), np.array([1.5])),
    *([], [[]], [1], [1, 2, 3, 4], [-1, 2], [None], ["a"], [1.5, 2], [2**40], [10**400, 1]),
]


def calls(builder, name):
    """The calls of a file, one of each kind: an op, its arguments, and its options."""
    seen = set()
    for case in wpt.load("conformance", name)["cases"]:
        (operator, *others) = case["graph"]["operators"]
        if others:
            continue
        inputs = case["graph"]["inputs"].items()
        operands = {key: builder.input(key, x["descriptor"]) for key, x in inputs}
        given = [
            wpt.argument(value, operands) for one in operator["arguments"] for value in one.values()
        ]
        options = given.pop() if given and isinstance(given[-1], dict) else {}
        kind = (operator["name"], len(given), *sorted(options))
        if kind not in seen:
            seen.add(kind)
            yield snake(operator["name"]), given, options


@pytest.mark.parametrize("name", NAMES)
def test_strange_arguments(name):
    builder = MLGraphBuilder(ML().create_context(backend="numpy"))
    wrong = []

    def attempt(op, given, options):
        try:
            getattr(builder, op)(*given, options | {"label": "L"})
        except MLTypeError as error:
            if not str(error).startswith(f"[L] {op}: "):
                wrong.append((op, str(error)))
        except Exception as error:
            wrong.append((op, repr(error)))

    for op, given, options in calls(builder, name):
        for strange in STRANGE:
            for place in range(len(given)):
                attempt(op, [*given[:place], strange, *given[place + 1 :]], options)
            for key in options.keys() - {"label"}:
                attempt(op, given, options | {key: strange})
    assert not wrong


@pytest.mark.parametrize("label", [None, 5, b"L"])
def test_labels_are_texts(label):
    builder = MLGraphBuilder(ML().create_context(backend="numpy"))
    x = builder.input("x", {"data_type": "float32", "shape": [2]})
    with pytest.raises(MLTypeError, match="abs: label is a text, not "):
        builder.abs(x, label=label)
    with pytest.raises(MLTypeError, match="abs: label is a text, not "):
        builder.abs(x, {"label": label})


def test_labels_of_half_a_character_compile():
    context = ML().create_context()
    builder = MLGraphBuilder(context)
    x = builder.input("\ud800", {"data_type": "float32", "shape": [2]})
    graph = builder.build({"\udfff": builder.abs(x, label="a\ud800b")})
    assert graph.graph.nodes[0].label == "a\ufffdb"
