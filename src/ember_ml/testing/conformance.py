"""The kit as a pytest class: subclass it and name a backend."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ember_ml import dtypes
from ember_ml.backend import selection
from ember_ml.dtypes import DType
from ember_ml.errors import DTypeError, EmberError
from ember_ml.ops.registry import REGISTRY
from ember_ml.testing.case import Case, accepted, check, law
from ember_ml.testing.cases import CASES
from ember_ml.testing.mistake import Mistake
from ember_ml.testing.mistakes import MISTAKES

__all__ = ["Conformance"]

_RUNS = [(case, dtype) for case in CASES for dtype in case.dtypes]
_FIRST = {case.op: case for case in reversed(CASES)}
_REFUSED = [
    (case, dtype)
    for op, case in _FIRST.items()
    for dtype in dtypes.ALL
    if dtype not in accepted(op) and not REGISTRY[op].creates
]


class Conformance:
    """Every case on every dtype of a backend, and every mistake with its one error."""

    backend: ClassVar[str]

    @pytest.mark.parametrize(
        ("case", "dtype"), _RUNS, ids=[f"{case.id}-{dtype}" for case, dtype in _RUNS]
    )
    def test_case(self, case: Case, dtype: DType) -> None:
        """The op gives the reference's values, dtype and shape, or says what is missing."""
        engine = selection.load(self.backend)
        needed = {dtype, case.result(dtype) or dtype, law(case.op)(dtype)}
        if all(engine.supports(d, engine.default_device()) for d in needed):
            check(case, self.backend, dtype)
        else:
            with pytest.raises(DTypeError):
                check(case, self.backend, dtype)

    @pytest.mark.parametrize(
        ("case", "dtype"), _REFUSED, ids=[f"{case.id}-{dtype}" for case, dtype in _REFUSED]
    )
    def test_refused_dtype(self, case: Case, dtype: DType) -> None:
        """A dtype outside of the op's table is an error that names it, never another result."""
        with pytest.raises(DTypeError) as caught:
            check(case, self.backend, dtype)
        assert dtype.name in str(caught.value)

    @pytest.mark.parametrize("mistake", MISTAKES, ids=[m.label for m in MISTAKES])
    def test_mistake(self, mistake: Mistake) -> None:
        """A mistake raises its one error, whose text has the facts."""
        from ember_ml import ops

        with selection.use_backend(self.backend), pytest.raises(mistake.error) as caught:
            mistake.run(ops)
        _assert_facts(caught.value, mistake)


def _assert_facts(error: Any, mistake: Mistake) -> None:
    assert isinstance(error, EmberError)
    assert type(error) is mistake.error, f"{type(error).__name__}, not {mistake.error.__name__}"
    text = str(error)
    for fact in mistake.facts:
        assert fact in text, f"{mistake.label}: {fact!r} is not in {text!r}"
