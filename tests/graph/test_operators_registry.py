"""The table of operators against ONNX's own: names, versions, attributes; and a case for each."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

onnx = pytest.importorskip("onnx", reason="ONNX's schemas come with the onnx package")

from ember_ml.graph.executors.operators.registry import NEWEST, OPERATORS  # noqa: E402
from tests.graph.node_cases import MODULES, cases_of, reason_not_to_run  # noqa: E402
from tests.graph.test_operators_interpreter import OWN_CASES  # noqa: E402
from tests.graph.test_operators_versions import ALL  # noqa: E402

# ONNX Runtime puts these into models under ONNX's own domain.
_RUNTIME = {("", "SimplifiedLayerNormalization", 1), ("", "LayerNormalization", 1)}

OWN = sorted((name for domain, name in OPERATORS if not domain))


@cache
def _all_schemas() -> dict[str, dict[int, Any]]:
    found: dict[str, dict[int, Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            found.setdefault(schema.name, {})[schema.since_version] = schema
    return found


def _schemas(name: str) -> dict[int, Any]:
    return _all_schemas().get(name, {})


@pytest.mark.parametrize("name", OWN)
def test_versions_are_onnx_s_own(name: str) -> None:
    """Each version named exists, and from the first one named on none is left out."""
    known = {v for one in OPERATORS["", name] for v in one.versions}
    known -= {v for domain, op, v in _RUNTIME if (domain, op) == ("", name)}
    found = set(_schemas(name))
    assert known <= found
    if known:
        assert {v for v in found if min(known) <= v <= NEWEST} == known


@pytest.mark.parametrize("name", OWN)
def test_attributes_are_onnx_s_own(name: str) -> None:
    """An operator takes all attributes of its schema, but those about strings and the like."""
    left = {"Constant": {"sparse_value", "value_string", "value_strings"}}.get(name, set())
    for one in OPERATORS["", name]:
        for version in one.versions:
            schema = _schemas(name).get(version)
            if schema is not None:
                missing = set(schema.attributes) - one._attributes - left
                assert not missing, f"{name} of version {version} lacks {missing}"


def test_every_operator_has_a_case() -> None:
    run = {(case.domain, case.op) for case in ALL} | set(OWN_CASES)
    for module in MODULES:
        for case in cases_of(module):
            if reason_not_to_run(case) is None:
                run |= {(node.domain, node.op_type) for node in case.model.graph.node}
    assert sorted(set(OPERATORS) - run) == []
