"""ML: where contexts come from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ember_ml.webnn.context import MLContext
from ember_ml.webnn.engines import Wishes, make_engine
from ember_ml.webnn.errors import MLTypeError, NotSupportedError
from ember_ml.webnn.timeline import Pending, Timeline

__all__ = ["ML"]

DEVICE_TYPES: Final = ("cpu", "gpu", "npu")
POWER_PREFERENCES: Final = ("default", "high-performance", "low-power")
# What `options` may say, by either spelling.
_OPTIONS: Final = {
    "deviceType": "device_type",
    "powerPreference": "power_preference",
    "accelerated": "accelerated",
    "device_type": "device_type",
    "power_preference": "power_preference",
}


class ML:
    """The entry: `ML().create_context()`."""

    def __init__(self) -> None:
        self._timeline = Timeline()

    def create_context(
        self,
        options: Mapping[str, Any] | None = None,
        *,
        backend: str | None = None,
        device_type: str | None = None,
        power_preference: str | None = None,
        accelerated: bool | None = None,
        cache: str | os.PathLike[str] | None = None,
        threads: int | None = None,
    ) -> MLContext:
        """A context on ONNX Runtime, or on a backend of ember_ml ("numpy", "torch", "jax", "mlx").

        An accelerator is used where there is one. A device type is a hint, and so is all that
        stands in `options`, as in the specification: where there is no such device, the CPU
        computes, and `device` and `accelerated` of the context say so. By keyword,
        `accelerated=True` demands one, and `accelerated=False` is the CPU. `cache` is a folder in
        which compiled graphs are kept, and `threads` how many ONNX Runtime uses for one op.
        """
        given = _options(options)
        device = device_type if device_type is not None else given.get("device_type")
        power = given.get("power_preference", "default")
        power = power if power_preference is None else power_preference
        if device is not None:
            _among("device_type", device, DEVICE_TYPES)
        _among("power_preference", power, POWER_PREFERENCES)
        hint = accelerated if accelerated is not None else given.get("accelerated", True)
        if not isinstance(hint, bool):
            raise MLTypeError(f"create_context: accelerated is a bool, not {hint!r}")
        if threads is not None and (type(threads) is not int or threads < 1):
            raise MLTypeError(f"create_context: threads is a count from 1 on, not {threads!r}")
        if cache is not None and not isinstance(cache, str | os.PathLike):
            raise MLTypeError(f"create_context: cache is the path of a folder, not {cache!r}")
        folder = None if cache is None else Path(cache)
        engine = make_engine(backend, Wishes(device, power, hint, folder, threads))
        if accelerated and not engine.accelerated:
            raise NotSupportedError(
                "create_context: accelerated=True, and there is no accelerator that "
                f"'{engine.name}' could use; leave it out to compute on the CPU"
            )
        return MLContext(engine)

    def create_context_async(
        self,
        options: Mapping[str, Any] | None = None,
        *,
        backend: str | None = None,
        device_type: str | None = None,
        power_preference: str | None = None,
        accelerated: bool | None = None,
        cache: str | os.PathLike[str] | None = None,
        threads: int | None = None,
    ) -> Pending[MLContext]:
        """`create_context` for `await`."""

        def work() -> MLContext:
            return self.create_context(
                options,
                backend=backend,
                device_type=device_type,
                power_preference=power_preference,
                accelerated=accelerated,
                cache=cache,
                threads=threads,
            )

        return Pending(lambda pending: pending.follow(self._timeline.submit(work)))


def _options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise MLTypeError(f"create_context: options are a dict, not {options!r}")
    unknown = [key for key in options if key not in _OPTIONS]
    if unknown:
        known = "deviceType, powerPreference, accelerated"
        raise MLTypeError(f"create_context: no option {unknown[0]!r}; there are {known}")
    return {_OPTIONS[key]: value for key, value in options.items()}


def _among(name: str, given: Any, known: Sequence[str]) -> None:
    if given not in known:
        raise MLTypeError(f"create_context: {name} is one of {', '.join(known)}, not {given!r}")
