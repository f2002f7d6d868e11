"""Every validation trace of the web platform's WebNN tests: what is refused, and by which error."""

import pytest

from tests.webnn import wpt
from tests.webnn.traces import Player

pytestmark = pytest.mark.skipif(not wpt.ROOT.exists(), reason=wpt.ABSENT)
NAMES = wpt.names("validation") if wpt.ROOT.exists() else []


@pytest.mark.parametrize("name", NAMES)
def test_traces(name):
    recorded = wpt.load("validation", name)
    setup = Player()
    wrong = setup.play(recorded["setup"])
    for test in recorded["tests"]:
        found = Player(known=setup.known).play(test["steps"])
        wrong += [f"{test['name']}: {one}" for one in found]
    assert not wrong, f"{len(wrong)} of {len(recorded['tests'])}:\n" + "\n".join(wrong[:20])
