"""Every numeric case of the web platform's WebNN tests, at its own tolerance."""

import pytest

from ember_ml.webnn import ML, MLGraphBuilder
from tests.webnn import wpt

pytestmark = pytest.mark.skipif(not wpt.ROOT.exists(), reason=wpt.ABSENT)
NAMES = wpt.names("conformance") if wpt.ROOT.exists() else []


def run(context, case):
    graph, feeds = wpt.build(MLGraphBuilder(context), case)
    given = {
        graph._inputs[name].name: value for name, value in feeds.items() if name in graph._inputs
    }
    made = graph._program.run(given)
    return {name: made[value.name] for name, value in graph._outputs.items()}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("executor", ["onnxruntime"])
def test_cases(executor, name):
    context = ML().create_context(backend=executor)
    failed = []
    for case in wpt.load("conformance", name)["cases"]:
        try:
            made = run(context, case)
            for key, expected in case["graph"]["expectedOutputs"].items():
                wpt.check(made[key], wpt.array_of(expected), case["tolerance"], key)
        except Exception as error:
            failed.append(f"{case['name']}: {type(error).__name__}: {error}")
    assert not failed, f"{len(failed)} failed:\n" + "\n".join(failed[:20])
