"""Every validation trace of the web platform's WebNN tests: what is refused, and by which error."""

import pytest

from tests.webnn import wpt
from tests.webnn.traces import JAVASCRIPT_ONLY, play

pytestmark = pytest.mark.skipif(not wpt.ROOT.exists(), reason=wpt.ABSENT)
NAMES = wpt.names("validation") if wpt.ROOT.exists() else []


@pytest.mark.parametrize("name", NAMES)
def test_traces(name):
    wrong = play("validation", name)
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])


def test_what_only_javascript_can_express_is_there():
    for (name, title), (places, reason) in JAVASCRIPT_ONLY.items():
        folder = "validation" if name in NAMES else "behaviour"
        tests = {test["name"]: test["steps"] for test in wpt.load(folder, name)["tests"]}
        assert reason
        assert all(place < len(tests[title]) for place in places), (name, title)
