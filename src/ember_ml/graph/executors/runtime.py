"""ONNX Runtime as an executor: whose hardware runs it, where its weights are, what it takes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ember_ml.errors import (
    BackendUnavailableError,
    DeviceError,
    DomainError,
    DTypeError,
    EmberError,
    FormatError,
    ShapeError,
    UnsupportedOpError,
)
from ember_ml.graph import types
from ember_ml.graph.executors.program import Program, fed
from ember_ml.graph.executors.runtime_faults import misleading
from ember_ml.graph.executors.runtime_values import from_ortvalue, needs_ortvalue, to_ortvalue
from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph

__all__ = ["DEVICES", "RuntimeProgram", "runtime"]

# Providers by the name of a device; without a device, the first of these that is there and can
# start is taken. TensorRT compiles for minutes, so CUDA goes before it.
DEVICES: Final = {
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
_CPU: Final = DEVICES["cpu"]
# Core ML's neural engine computes in float16 unasked, and CUDA with the 10 bits of TensorFloat-32.
_OPTIONS: Final = {
    DEVICES["cuda"]: {"use_tf32": "0"},
    DEVICES["coreml"]: {"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndGPU"},
}
# These compile parts of a graph to what no ONNX file holds.
_COMPILED: Final = {DEVICES["coreml"], DEVICES["tensorrt"]}

# From here on weights are handed over where they lie, instead of within the model: a second copy
# of a small model costs nothing, and one message is quicker to make.
_SHARED_TOTAL: Final = 16 << 20
_SHARED_EACH: Final = 1 << 20
_MOST: Final = 1_900_000_000  # of a protobuf message, with room for what is not weights


def runtime() -> Any:
    """The onnxruntime package, or an error that tells how to get it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise BackendUnavailableError(
            "this runs on ONNX Runtime, which is not installed; install it with: "
            "pip install 'ember-ml[onnx]', or run the graph on a backend: backend='numpy'"
        ) from error
    return onnxruntime


class RuntimeProgram(Program):
    """A session of ONNX Runtime over a graph.

    `device` is "cuda", "tensorrt", "coreml", "directml" or "cpu"; `providers` says it in ONNX
    Runtime's own words. What was asked for and cannot be had is a DeviceError. Without either, the
    first device that is there is taken; `providers` of the program tells which it became.

    `cache` is a folder that keeps the optimised model; `threads` bounds those that one node uses,
    and `inter_threads` how many nodes run at once.
    """

    executor = "onnxruntime"

    def __init__(
        self,
        graph: Graph,
        providers: Sequence[str] | None = None,
        *,
        device: str | None = None,
        cache: str | Path | None = None,
        threads: int | None = None,
        inter_threads: int | None = None,
    ) -> None:
        self._graph = graph
        self._outputs = [x.name for x in graph.outputs]
        self._threads = threads
        self._inter_threads = inter_threads
        # What the session reads from and does not own.
        self._weights: list[Any] = []
        self.session = self._start(_choices(providers, device), cache)
        # Who runs it, in the order in which they are asked for each node.
        self.providers: list[str] = list(self.session.get_providers())
        types_used = {x.dtype for x in (*graph.inputs, *graph.outputs)}
        self._through_values = any(needs_ortvalue(dtype) for dtype in types_used)

    # --- Starting ---------------------------------------------------------------------------------

    def _start(self, choices: list[list[str]], cache: str | Path | None) -> Any:
        """A session with the first of the choices that ONNX Runtime really takes."""
        failed = ""
        for providers in choices:
            try:
                if cache is None:
                    session = self._create(providers)
                else:
                    session = self._from_cache(providers, Path(cache))
            except EmberError as error:
                if len(choices) == 1 or providers == choices[-1]:
                    raise
                failed = str(error)
                continue
            got = list(session.get_providers())
            missing = [name for name in providers if name not in got]
            if not missing:
                return session
            failed = f"ONNX Runtime left out {', '.join(missing)} and would run on {', '.join(got)}"
        raise DeviceError(f"graph '{self._graph.name}': {failed}")

    def _create(self, providers: list[str]) -> Any:
        from ember_ml.graph.onnx_writing import Writer, onnx_module

        options = self._options()
        total = sum(x.data.nbytes for x in self._graph.constants() if x.data is not None)
        shared: dict[str, Any] = {}

        def share(proto: Any, array: np.ndarray[Any, Any]) -> None:
            shared[proto.name] = to_ortvalue(
                array, types.type_name(proto.data_type), tuple(proto.dims), packed=True
            )
            proto.data_location = 1  # TensorProto.EXTERNAL, to be found among those of the options
            for key, text in (("location", "memory"), ("length", str(array.nbytes))):
                proto.external_data.add(key=key, value=text)

        large = total > _SHARED_TOTAL
        writer = Writer(onnx_module(), place=share if large else None, large=_SHARED_EACH)
        model = writer.model(self._graph).SerializeToString()
        if shared:
            options.add_external_initializers(list(shared), list(shared.values()))
            self._weights = list(shared.values())
        return self._session(model, options, providers)

    def _from_cache(self, providers: list[str], folder: Path) -> Any:
        """A session over the optimised model in a folder; made, where it is not there yet."""
        compiled = _COMPILED.intersection(providers)
        if compiled:
            raise DomainError(f"cache= holds ONNX models, which {compiled.pop()} does not make")
        total = sum(x.data.nbytes for x in self._graph.constants() if x.data is not None)
        if total > _MOST:
            raise DomainError(
                f"graph '{self._graph.name}' has {total:,} bytes of weights; "
                "cache= holds models of up to 2 GB"
            )
        ort = runtime()
        model = self._graph.to_onnx().SerializeToString(deterministic=True)
        key = hashlib.sha256(f"{ort.__version__} {providers}\n".encode())
        key.update(model)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DomainError(f"cache='{folder}' is no folder to write to: {error}") from error
        stem = key.hexdigest()[:40]
        kept = _kept(folder, stem)
        if kept is not None:
            try:
                return self._session(kept, self._options(), providers)
            except EmberError:  # what else became of it: it is made anew
                kept = None
        part = folder / f".{stem}.{os.urandom(4).hex()}.tmp"
        options = self._options()
        options.optimized_model_filepath = str(part)
        # What goes beyond this fits one kind of processor, and a folder may be read by several.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        try:
            session = self._session(model, options, providers)
            if any(name not in session.get_providers() for name in providers):
                return session  # it is refused, and not kept
            kept = part.read_bytes()
            os.replace(part, folder / f"{stem}-{_digest(kept)}.onnx")
        finally:
            part.unlink(missing_ok=True)
        return self._session(kept, self._options(), providers)

    def _options(self) -> Any:
        options = runtime().SessionOptions()
        options.log_severity_level = 4  # errors are raised; the log would say them twice
        # Else int8 becomes uint8 on x86, and models of opset 21 break on the way: nodes that ONNX
        # Runtime puts in keep an output_dtype of int8.
        options.add_session_config_entry("session.qdqisint8allowed", "1")
        # Else what is multiplied with quantised weights is rounded to 8 bits, unasked.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        for name, count in (
            ("intra_op_num_threads", self._threads),
            ("inter_op_num_threads", self._inter_threads),
        ):
            if count is None:
                continue
            if count < 1:
                raise DomainError(f"RuntimeProgram got {count} threads; one is the fewest")
            setattr(options, name, count)
        if self._inter_threads is not None and self._inter_threads > 1:
            options.execution_mode = runtime().ExecutionMode.ORT_PARALLEL
        return options

    def _session(self, model: bytes | str, options: Any, providers: list[str]) -> Any:
        given = [(name, _OPTIONS[name]) if name in _OPTIONS else name for name in providers]
        try:
            return runtime().InferenceSession(
                model,
                options,
                providers=given,
                enable_fallback=0,  # it would print, and start on the CPU instead
                disabled_optimizers=misleading(self._graph, providers),
            )
        except Exception as error:  # ORT's own classes have no common base but this
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> EmberError:
        text = _plain(error)
        unknown = re.search(
            r"No Op registered for (\w+)|Could not find an implementation for (\w+)|"
            r"[\w.]+:(\w+)\(-1\) is not a registered function/op",
            text,
        )
        if unknown is None:
            return FormatError(f"ONNX Runtime does not take the graph '{self._graph.name}': {text}")
        op = unknown[1] or unknown[2] or unknown[3]
        labels = [node.label or node.outputs[0].name for node in self._graph.nodes if node.op == op]
        at = f" (node '{labels[0]}')" if labels and f"'{labels[0]}'" not in text else ""
        return UnsupportedOpError(
            f"graph '{self._graph.name}': ONNX Runtime has no {op} for this{at}: {text}"
        )

    # --- Running ----------------------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        given = {
            name: value.numpy() if isinstance(value, Tensor) else value
            for name, value in fed(self._graph, feeds).items()
        }
        try:
            if self._through_values:
                return self._run_values(given)
            return dict(zip(self._outputs, self.session.run(None, given), strict=True))
        except Exception as error:  # as above
            raise self._failure(error) from error

    def _run_values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """With types that ONNX Runtime knows and its NumPy arrays do not."""
        dtypes = {x.name: x.dtype for x in self._graph.inputs}
        binding = self.session.io_binding()
        kept = []
        for name, array in given.items():
            if dtypes[name] == "string":  # no OrtValue is made of those
                binding.bind_cpu_input(name, array)
                continue
            kept.append(to_ortvalue(array, dtypes[name], array.shape))
            binding.bind_ortvalue_input(name, kept[-1])
        for name in self._outputs:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        made = binding.get_outputs()
        return {
            value.name: from_ortvalue(one, value.dtype)
            for value, one in zip(self._graph.outputs, made, strict=True)
        }

    def _failure(self, error: Exception) -> EmberError:
        if isinstance(error, EmberError):
            return error
        text = _plain(error)
        # What a node refuses is said with its name; the rest is about what came.
        kind = ShapeError if "nvalid dimensions" in text or "nvalid rank" in text else DomainError
        return kind(f"ONNX Runtime could not run the graph '{self._graph.name}': {text}")


def _kept(folder: Path, stem: str) -> bytes | None:
    """The model that a folder keeps under a name; what was spoilt since is thrown away.

    The name ends with a digest: ONNX Runtime would run a model with other numbers in its weights.
    """
    for path in sorted(folder.glob(f"{stem}-*.onnx")):
        try:
            model = path.read_bytes()
        except FileNotFoundError:  # another process threw it away
            continue
        if path.stem == f"{stem}-{_digest(model)}":
            return model
        path.unlink(missing_ok=True)
    return None


def _digest(model: bytes) -> str:
    return hashlib.sha256(model).hexdigest()[:16]


def _choices(providers: Sequence[str] | None, device: str | None) -> list[list[str]]:
    """Lists of providers to try, the best first; only one where the user chose."""
    there = runtime().get_available_providers()
    if providers is not None and device is not None:
        raise DomainError("RuntimeProgram takes device= or providers=, not both")
    if device is not None:
        if device not in DEVICES:
            raise DeviceError(f"ONNX Runtime has no device '{device}'; it has {', '.join(DEVICES)}")
        providers = list(dict.fromkeys([DEVICES[device], _CPU]))
    if providers is None:
        found = [[name, _CPU] for name in DEVICES.values() if name in there and name != _CPU]
        return [*found, [_CPU]]
    if isinstance(providers, str):  # a list of letters, else
        raise DTypeError(f"RuntimeProgram takes providers=['{providers}'], a list, not a str")
    missing = [name for name in providers if name not in there]
    if missing or not providers:
        raise DeviceError(
            f"this ONNX Runtime has no {', '.join(missing) or 'provider to run on'}; "
            f"it has {', '.join(there)}"
        )
    return [list(providers)]


def _plain(error: Exception) -> str:
    """What ONNX Runtime says, without its own tags and source files."""
    text = str(error)
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"/\S+\.(?:cc|h):\d+ [^\n]*?\) (?:const )?", "", text)
    return text.strip() or type(error).__name__
