"""Options go by keyword, or in a mapping with either spelling; labels stand in errors."""

import inspect
import json

import numpy as np
import pytest

from ember_ml.webnn import ML, MLGraphBuilder, MLOperand, MLTypeError
from ember_ml.webnn.builder.base import snake
from tests.webnn import wpt

IMAGE, CHANNELS = (1, 4, 6, 6), (4,)
# For each op the shapes of its operands, and all of its options but the label.
CALLS = {
    "conv2d": (
        [IMAGE, (4, 2, 3, 3)],
        {
            "padding": [1, 1, 1, 1],
            "strides": [2, 2],
            "dilations": [1, 2],
            "groups": 2,
            "inputLayout": "nchw",
            "filterLayout": "oihw",
            "bias": CHANNELS,
        },
    ),
    "convTranspose2d": (
        [IMAGE, (4, 2, 3, 3)],
        {
            "padding": [1, 1, 1, 1],
            "strides": [2, 2],
            "dilations": [1, 2],
            "outputPadding": [1, 0],
            "outputSizes": [12, 14],
            "groups": 2,
            "inputLayout": "nchw",
            "filterLayout": "iohw",
            "bias": CHANNELS,
        },
    ),
    **dict.fromkeys(
        ("averagePool2d", "l2Pool2d", "maxPool2d"),
        (
            [IMAGE],
            {
                "windowDimensions": [2, 2],
                "padding": [0, 0, 1, 1],
                "strides": [3, 2],
                "dilations": [1, 1],
                "layout": "nhwc",
                "outputShapeRounding": "floor",
                "outputSizes": [1, 4],
            },
        ),
    ),
    "batchNormalization": (
        [IMAGE, (6,), (6,)],
        {"scale": (6,), "bias": (6,), "axis": 2, "epsilon": 0.1},
    ),
    "instanceNormalization": (
        [IMAGE],
        {"scale": (6,), "bias": (6,), "epsilon": 0.1, "layout": "nhwc"},
    ),
    "layerNormalization": (
        [IMAGE],
        {"scale": (6,), "bias": (6,), "axes": [2], "epsilon": 0.1},
    ),
    "gemm": (
        [(3, 2), (4, 3)],
        {"c": (4,), "alpha": 2, "beta": 0.5, "aTranspose": True, "bTranspose": True},
    ),
    "resample2d": (
        [IMAGE],
        {"mode": "linear", "scales": [2, 2], "sizes": [3, 5], "axes": [1, 2]},
    ),
    "pad": ([IMAGE, [1] * 4, [0] * 4], {"mode": "constant", "value": 3}),
    "reverse": ([IMAGE], {"axes": [1]}),
    "slice": ([IMAGE, [0] * 4, [1, 2, 3, 4]], {"strides": [1, 1, 2, 3]}),
    "split": ([IMAGE, [1, 2, 1]], {"axis": 1}),
    "transpose": ([IMAGE], {"permutation": [0, 2, 3, 1]}),
    "gru": (
        [(2, 1, 3), (1, 6, 3), (1, 6, 2), 2, 2],
        {
            "bias": (1, 6),
            "recurrentBias": (1, 6),
            "initialHiddenState": (1, 1, 2),
            "resetAfter": False,
            "returnSequence": True,
            "direction": "backward",
            "layout": "rzn",
            "activations": ["relu", "tanh"],
        },
    ),
    "lstmCell": (
        [(1, 3), (8, 3), (8, 2), (1, 2), (1, 2), 2],
        {
            "bias": (8,),
            "recurrentBias": (8,),
            "peepholeWeight": (6,),
            "layout": "ifgo",
            "activations": ["relu", "tanh", "tanh"],
        },
    ),
}


def operands(builder, given):
    def one(x):
        if not isinstance(x, tuple):
            return x
        data = np.random.default_rng(x).uniform(0.5, 1, x).astype(np.float32)
        return builder.constant({"dataType": "float32", "shape": x}, data)

    if isinstance(given, dict):
        return {key: one(x) for key, x in given.items()}
    return [one(x) for x in given]


def nodes_of(op, call):
    """What a call adds to the graph, and what it gives."""
    builder = MLGraphBuilder(ML().create_context())
    made = call(builder)
    made = [made] if isinstance(made, MLOperand) else made
    nodes = [
        (node.op, str(node.attributes) if node.op != "Scan" else "", node.label)
        for node in builder._graph.nodes
    ]
    constants = [x.data.tolist() for x in builder._graph.constants()]
    return nodes, constants, [(x.data_type, x.shape) for x in made]


@pytest.mark.parametrize("op", CALLS)
def test_three_ways_to_give_options(op):
    given, options = CALLS[op]
    options = {**options, "label": "here"}
    snaked = {snake(key): value for key, value in options.items()}
    method = snake(op)

    def by_mapping(names):
        return nodes_of(
            op,
            lambda b: getattr(b, method)(*operands(b, given), operands(b, names)),
        )

    camel = by_mapping(options)
    assert camel == by_mapping(snaked)
    keyword = nodes_of(op, lambda b: getattr(b, method)(*operands(b, given), **operands(b, snaked)))
    assert camel == keyword


@pytest.mark.parametrize("op", CALLS)
def test_options_that_are_none(op):
    given, _ = CALLS[op]
    builder = MLGraphBuilder(ML().create_context())
    call = getattr(builder, snake(op))
    with pytest.raises(MLTypeError, match=r"^\[mine\] .*no option 'colour'; there are .*label"):
        call(*operands(builder, given), {"colour": 1, "label": "mine"})
    with pytest.raises(MLTypeError, match="options are a dict"):
        call(*operands(builder, given), 7)
    with pytest.raises(MLTypeError, match=r"^\[mine\] "):
        call("no operand", *operands(builder, given)[1:], label="mine")


@pytest.mark.skipif(not wpt.ROOT.exists(), reason=wpt.ABSENT)
def test_signatures_are_those_of_the_specification():
    """Arguments and options by name, in order, and the options' defaults."""
    for op, said in json.loads((wpt.ROOT / "spec-ops.json").read_text())["ops"].items():
        found = inspect.signature(getattr(MLGraphBuilder, snake(op))).parameters.values()
        positional = [x.name for x in found if x.kind is x.POSITIONAL_OR_KEYWORD][1:]
        assert positional == [*(snake(x["name"]) for x in said["arguments"]), "options"], op
        named = {x.name: x.default for x in found if x.kind is x.KEYWORD_ONLY}
        expected = {
            snake(x["name"]): json.loads(x["default"]) if "default" in x else None
            for x in said["options"]
        }
        assert named == expected, op
