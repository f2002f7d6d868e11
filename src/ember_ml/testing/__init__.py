"""A conformance kit: every op on a backend against references, for ours and for third parties.

A backend of your own is tested by one class in your test suite:

    from ember_ml.testing import Conformance

    class TestMine(Conformance):
        backend = "mine"
"""

from ember_ml.testing.case import Case, check
from ember_ml.testing.cases import CASES
from ember_ml.testing.conformance import Conformance

__all__ = ["CASES", "Case", "Conformance", "check"]
