"""Every numeric case of the web platform's WebNN tests, at its own tolerance."""

import pytest

from ember_ml.webnn import MLGraphBuilder
from tests.webnn import wpt
from tests.webnn.calls import make_context

pytestmark = pytest.mark.skipif(not wpt.ROOT.exists(), reason=wpt.ABSENT)
NAMES = wpt.names("conformance") if wpt.ROOT.exists() else []


def run(context, case):
    """Through the public interface: write every input, dispatch, read every output."""
    graph, feeds = wpt.build(MLGraphBuilder(context), case)
    taken = graph.input_descriptors
    inputs = {
        name: context.create_tensor(x.shape, x.data_type, False, True) for name, x in taken.items()
    }
    outputs = {
        name: context.create_tensor(x.shape, x.data_type, True)
        for name, x in graph.output_descriptors.items()
    }
    for name, tensor in inputs.items():
        context.write_tensor(tensor, feeds[name])
    context.dispatch(graph, inputs, outputs)
    return {name: context.read_tensor(tensor) for name, tensor in outputs.items()}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("executor", [*wpt.EXECUTORS, "torch", "mlx"])
def test_cases(executor, name):
    context = make_context(executor)
    failed = []
    for case in wpt.load("conformance", name)["cases"]:
        try:
            made = run(context, case)
            for key, expected in wpt.expectation(case).items():
                wpt.check(made[key], expected, case["tolerance"], key)
        except Exception as error:
            failed.append(f"{case['name']}: {type(error).__name__}: {error}")
    assert not failed, f"{len(failed)} failed:\n" + "\n".join(failed[:20])
