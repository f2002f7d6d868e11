"""How graphs are run in these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ember_ml.graph.executors.runtime import RuntimeProgram


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Sessions of ONNX Runtime have one thread, unless a test asks for more.

    The graphs are small and there are thousands: to start threads for each takes thirty times as
    long as to run it.
    """
    options = RuntimeProgram._options

    def alone(self: RuntimeProgram) -> Any:
        made = options(self)
        if self._threads is None:
            made.intra_op_num_threads = 1
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RuntimeProgram, "_options", alone)
        yield
