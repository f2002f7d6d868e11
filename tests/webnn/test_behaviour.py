"""Every behaviour trace of the web platform's WebNN tests: tensors, names, order of dispatches."""

import pytest

from tests.webnn import wpt
from tests.webnn.traces import play

pytestmark = pytest.mark.skipif(not wpt.ROOT.exists(), reason=wpt.ABSENT)
NAMES = wpt.names("behaviour") if wpt.ROOT.exists() else []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("executor", wpt.EXECUTORS)
def test_traces(executor, asynchronous, name):
    wrong = play("behaviour", name, executor, asynchronous=asynchronous)
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", ["torch", "jax", "mlx"])
def test_traces_on_other_backends(backend, name):
    wrong = play("behaviour", name, backend)
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])
