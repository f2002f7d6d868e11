"""MLContext: where graphs are dispatched, and who holds tensors."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ember_ml.errors import EmberError
from ember_ml.webnn import buffers
from ember_ml.webnn.descriptors import (
    DescriptorLike,
    MLTensorDescriptor,
    described_tensor,
    operand_descriptor,
)
from ember_ml.webnn.dispatching import Named, Statistics, check_dispatch
from ember_ml.webnn.errors import (
    InvalidStateError,
    MLTypeError,
    NotCopied,
    NotSupportedError,
    OperationError,
    UnknownError,
)
from ember_ml.webnn.graph import MLGraph
from ember_ml.webnn.limits import support_limits
from ember_ml.webnn.tensors import MLDeviceTensor, MLTensor
from ember_ml.webnn.timeline import Lost, Pending, Timeline

if TYPE_CHECKING:
    from ember_ml.webnn.buffers import Array
    from ember_ml.webnn.engines import Engine

__all__ = ["MLContext"]

T = TypeVar("T")
Member = TypeVar("Member", MLTensor, MLGraph)


class MLContext(NotCopied):
    """A place where graphs run; made by `ML.create_context`.

    All of its calls may come from several threads. Each has a form for `await`, by the name with
    `_async`; both keep one order.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._timeline = Timeline()
        self._lost = Lost()
        self._counted = Statistics()
        self._dispatches = self._prepared = 0
        # All that is destroyed with the context.
        self._members: weakref.WeakSet[MLTensor | MLGraph] = weakref.WeakSet()
        # Held while something joins, is bound or is destroyed: what is destroyed stays unbound.
        # A finaliser may destroy something in the thread that holds it.
        self._belonging = threading.RLock()

    # --- What it is -----------------------------------------------------------------------------

    @property
    def backend(self) -> str:
        """Who computes: "onnxruntime", or the name of a backend."""
        return self._engine.name

    @property
    def device(self) -> str:
        """Where it computes: "cpu", "gpu" or "npu"."""
        return self._engine.device

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers of ONNX Runtime, in order of preference; none on backends."""
        return self._engine.providers

    @property
    def accelerated(self) -> bool:
        """Whether it computes on something else than a CPU."""
        return self._engine.accelerated

    @property
    def lost(self) -> Lost:
        """Tells when and why the context is lost: await it, or ask `done()` and `result()`."""
        return self._lost

    @property
    def statistics(self) -> Statistics:
        """How much was dispatched, read and written so far."""
        return replace(self._counted, dispatches=self._dispatches, prepared=self._prepared)

    def op_support_limits(self) -> dict[str, Any]:
        """Which data types and how many axes each op takes and gives here, by operand."""
        return support_limits(self._engine.data_types)

    def destroy(self) -> None:
        """Give everything back: tensors and graphs cannot be used any more."""
        if self._lost.done():
            return
        self._lost._lose("destroy() was called")
        with self._belonging:
            members = list(self._members)
        for member in members:
            member.destroy()

    def __enter__(self) -> MLContext:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.destroy()

    def __repr__(self) -> str:
        state = " lost" if self._lost.done() else ""
        return f"<MLContext{state}: {self.backend} on {self.device}>"

    def _require_alive(self, what: str) -> None:
        """InvalidStateError where the context is lost."""
        if self._lost.done():
            raise InvalidStateError(f"{what}: the context is lost: {self._lost.result().message}")

    # --- Tensors --------------------------------------------------------------------------------

    @overload
    def create_tensor(self, descriptor: DescriptorLike) -> MLTensor: ...
    @overload
    def create_tensor(
        self,
        descriptor: Sequence[int],
        data_type: str,
        readable: bool = False,
        writable: bool = False,
        exportable_to_gpu: bool = False,
    ) -> MLTensor: ...
    @overload
    def create_tensor(
        self,
        *,
        shape: Sequence[int],
        data_type: str,
        readable: bool = False,
        writable: bool = False,
        exportable_to_gpu: bool = False,
    ) -> MLTensor: ...
    def create_tensor(
        self,
        descriptor: Any = None,
        data_type: str | None = None,
        readable: bool = False,
        writable: bool = False,
        exportable_to_gpu: bool = False,
        *,
        shape: Sequence[int] | None = None,
    ) -> MLTensor:
        """A tensor of zeros, of a descriptor or of a shape and a data type.

        It stays on the device, an MLDeviceTensor, unless it is said to be readable or writable.

        >>> from ember_ml.webnn import ML
        >>> context = ML().create_context(backend="numpy")
        >>> context.create_tensor([2, 3], "float32")
        <MLDeviceTensor: float32[2, 3]>
        >>> context.create_tensor({"data_type": "int64", "shape": [4], "readable": True})
        <MLTensor: int64[4] readable>
        """
        return self._timeline.run(
            self._creation(descriptor, data_type, readable, writable, exportable_to_gpu, shape)
        )

    def create_tensor_async(
        self,
        descriptor: Any = None,
        data_type: str | None = None,
        readable: bool = False,
        writable: bool = False,
        exportable_to_gpu: bool = False,
        *,
        shape: Sequence[int] | None = None,
    ) -> Pending[MLTensor]:
        """`create_tensor` for `await`."""
        return self._later(
            "create_tensor",
            lambda: self._creation(
                descriptor, data_type, readable, writable, exportable_to_gpu, shape
            ),
        )

    def _creation(
        self,
        descriptor: Any,
        data_type: str | None,
        readable: bool,
        writable: bool,
        exportable_to_gpu: bool,
        shape: Sequence[int] | None,
    ) -> Callable[[], MLTensor]:
        what = "create_tensor"
        self._require_alive(what)
        made = described_tensor(what, descriptor, data_type, shape, readable, writable)
        if exportable_to_gpu:
            raise NotSupportedError(
                f"{what}: exportable_to_gpu is for WebGPU, which browsers have and Python has not"
            )
        return lambda: self._allocate(made)

    def _allocate(self, descriptor: MLTensorDescriptor) -> MLTensor:
        host = descriptor.readable or descriptor.writable
        storage = _engine_call("create_tensor", lambda: self._engine.allocate(descriptor))
        kind = MLTensor if host else MLDeviceTensor
        return self._join("create_tensor", kind(self, descriptor, storage))

    def _join(self, what: str, member: Member) -> Member:
        with self._belonging:
            self._members.add(member)
            if self._lost.done():
                member.destroy()
        self._require_alive(what)
        return member

    def create_host_tensor(self, shape: Sequence[int], data_type: str) -> MLTensor:
        """A tensor that the host may read and write."""
        return self.create_tensor(shape, data_type, readable=True, writable=True)

    def create_host_tensor_async(self, shape: Sequence[int], data_type: str) -> Pending[MLTensor]:
        """`create_host_tensor` for `await`."""
        return self.create_tensor_async(shape, data_type, readable=True, writable=True)

    def create_constant_tensor(self, descriptor: DescriptorLike, data: Any) -> MLTensor:
        """A tensor whose contents are known, for `MLGraphBuilder.constant`."""
        return self._timeline.run(self._constant_creation(descriptor, data))

    def create_constant_tensor_async(
        self, descriptor: DescriptorLike, data: Any
    ) -> Pending[MLTensor]:
        """`create_constant_tensor` for `await`."""
        return self._later(
            "create_constant_tensor", lambda: self._constant_creation(descriptor, data)
        )

    def _constant_creation(self, descriptor: DescriptorLike, data: Any) -> Callable[[], MLTensor]:
        what = "create_constant_tensor"
        self._require_alive(what)
        made = operand_descriptor(what, descriptor)
        # A copy, taken now: the buffer is the caller's own to change.
        known = buffers.elements(buffers.contents(what, data, made).copy(), made)
        full = MLTensorDescriptor(made.data_type, made.shape)
        return lambda: self._join(what, MLDeviceTensor(self, full, known, constant=True))

    def create_device_tensor(
        self, graph: MLGraph, shape: Sequence[int], data_type: str, device: str | None = None
    ) -> MLTensor:
        """Deprecated: `create_tensor(shape, data_type)` needs no graph."""
        _deprecated("create_device_tensor")
        return self._for_graph("create_device_tensor", graph, shape, data_type, device)

    def create_tensor_for_graph(
        self, graph: MLGraph, shape: Sequence[int], data_type: str
    ) -> MLTensor:
        """Deprecated: `create_tensor(shape, data_type)` needs no graph."""
        _deprecated("create_tensor_for_graph")
        return self._for_graph("create_tensor_for_graph", graph, shape, data_type, None)

    def _for_graph(
        self, what: str, graph: object, shape: Sequence[int], data_type: str, device: str | None
    ) -> MLTensor:
        if not isinstance(graph, MLGraph) or graph._context is not self:
            raise MLTypeError(f"{what}: give a graph of this context, not {graph!r}")
        if device is not None and device != self.device:
            raise NotSupportedError(f"{what}: this context is on '{self.device}', not '{device}'")
        return self.create_tensor(shape, data_type)

    # --- Reading and writing ----------------------------------------------------------------------

    def write_tensor(self, tensor: MLTensor, data: Any) -> None:
        """Copy bytes, an array of the tensor's type, or a list of numbers into a tensor."""
        raw, storage = self._writing(tensor, data)
        self._timeline.run(lambda: self._write(storage, raw))

    def write_tensor_async(self, tensor: MLTensor, data: Any) -> Pending[None]:
        """`write_tensor` for `await`; the data are taken when it is called."""

        def begin() -> Callable[[], None]:
            raw, storage = self._writing(tensor, data)
            taken = raw.copy()
            return lambda: self._write(storage, taken)

        return self._later("write_tensor", begin)

    def _writing(self, tensor: MLTensor, data: Any) -> tuple[Array, Any]:
        what = "write_tensor"
        storage = self._require_mine(what, tensor)
        if not tensor.writable:
            raise MLTypeError(f"{what}: {tensor!r} is not writable; create it with writable=True")
        return buffers.contents(what, data, tensor._descriptor), storage

    def _write(self, storage: Any, raw: Array) -> None:
        _engine_call("write_tensor", lambda: self._engine.write(storage, raw))
        counted = self._counted
        self._counted = replace(
            counted, writes=counted.writes + 1, bytes_written=counted.bytes_written + raw.nbytes
        )

    @overload
    def read_tensor(self, tensor: MLTensor) -> Array: ...
    @overload
    def read_tensor(self, tensor: MLTensor, buffer: Any) -> None: ...
    def read_tensor(self, tensor: MLTensor, buffer: Any = None) -> Array | None:
        """The contents of a tensor as a NumPy array of its type; or fill a buffer with them.

        A buffer is a bytearray, a memoryview or an array; one that is larger keeps its end.
        """
        storage = self._reading(tensor, buffer)
        return self._given(tensor, self._timeline.run(lambda: self._read(storage)), buffer)

    def read_tensor_async(self, tensor: MLTensor, buffer: Any = None) -> Pending[Array | None]:
        """`read_tensor` for `await`; InvalidStateError where the tensor is destroyed before."""

        def begin(pending: Pending[Array | None]) -> None:
            storage = self._reading(tensor, buffer)
            tensor._pending.add(pending)

            def work() -> Array | None:
                raw = self._read(storage)
                if tensor._is_destroyed:
                    return None  # whoever destroyed it has told those who wait
                return self._given(tensor, raw, buffer)

            # Until the event loop has the result, and not until the timeline has it: who destroys
            # the tensor in the meantime can rely on the error.
            pending.when_settled = lambda: tensor._pending.discard(pending)
            pending.follow(self._timeline.submit(work))

        return Pending(begin)

    def _reading(self, tensor: MLTensor, buffer: Any) -> Any:
        what = "read_tensor"
        storage = self._require_mine(what, tensor)
        if not tensor.readable:
            raise MLTypeError(f"{what}: {tensor!r} is not readable; create it with readable=True")
        if buffer is not None:
            buffers.check_room(what, buffer, tensor._descriptor)
        return storage

    def _read(self, storage: Any) -> Array:
        raw = _engine_call("read_tensor", lambda: self._engine.read(storage))
        counted = self._counted
        self._counted = replace(
            counted, reads=counted.reads + 1, bytes_read=counted.bytes_read + raw.nbytes
        )
        return raw

    def _given(self, tensor: MLTensor, raw: Array, buffer: Any) -> Array | None:
        if buffer is None:
            return buffers.elements(raw, tensor._descriptor)
        buffers.fill("read_tensor", buffer, raw, tensor._descriptor)
        return None

    def _require_mine(self, what: str, tensor: MLTensor) -> Any:
        """The memory of a tensor of this context, which is neither lost nor destroyed."""
        if not isinstance(tensor, MLTensor):
            raise MLTypeError(f"{what}: give an MLTensor, not {tensor!r}")
        if tensor._context is not self:
            raise MLTypeError(f"{what}: the tensor belongs to another MLContext")
        self._require_alive(what)
        storage = tensor._storage  # once: another thread may destroy it in the meantime
        if storage is None:
            raise InvalidStateError(f"{what}: the tensor is destroyed")
        return storage

    # --- Running ----------------------------------------------------------------------------------

    def dispatch(self, graph: MLGraph, inputs: Named, outputs: Named) -> None:
        """Run a graph over tensors, by the names of its inputs and outputs.

        What a graph was dispatched with once is kept ready: the same tensors again cost little.
        """
        try:
            run = graph._prepared[_key(inputs, outputs)] if graph._context is self else None
        except (KeyError, AttributeError, TypeError):
            run = None
        if run is None:
            run = self._prepare(graph, inputs, outputs)
        timeline = self._timeline
        with timeline.head:  # as Timeline.run does, without calls: this is the hot path
            if not timeline.queued:
                _engine_call("dispatch", run, OperationError)
                self._dispatches += 1
                return
        timeline.submit(self._running(run)).result()

    def dispatch_async(self, graph: MLGraph, inputs: Named, outputs: Named) -> Pending[None]:
        """`dispatch` for `await`; it is on its way when it is called."""
        return self._later("dispatch", lambda: self._running(self._prepare(graph, inputs, outputs)))

    def _running(self, run: Callable[[], object]) -> Callable[[], None]:
        """What is queued for a dispatch."""

        def work() -> None:
            _engine_call("dispatch", run, OperationError)
            self._dispatches += 1

        return work

    def _prepare(self, graph: MLGraph, inputs: Named, outputs: Named) -> Callable[[], object]:
        """Check everything as the specification says, and bind the tensors to the graph."""
        with self._belonging:
            compiled = check_dispatch(self, graph, inputs, outputs)
            key = _key(inputs, outputs)
            found = graph._prepared.get(key)
            if found is not None:
                return found
            given = {graph._inputs[name].name: tensor._storage for name, tensor in inputs.items()}
            made = {graph._outputs[name].name: tensor._storage for name, tensor in outputs.items()}
            run = _engine_call("dispatch", lambda: compiled.prepare(given, made), OperationError)
            graph._prepared.keep(key, run)
            self._prepared += 1
            for tensor in (*inputs.values(), *outputs.values()):
                tensor._use(graph._prepared, key)
            return run

    def _later(self, what: str, begin: Callable[[], Callable[[], T]]) -> Pending[T]:
        """Check a call now, and queue its work; what is wrong goes to who awaits it."""

        def start(pending: Pending[T]) -> None:
            work = begin()

            def queued() -> T:
                self._require_alive(what)
                return work()

            pending.follow(self._timeline.submit(queued))

        return Pending(start)


def _key(inputs: Named, outputs: Named) -> tuple[object, ...]:
    """What a prepared dispatch is found by: all names, and all tensors."""
    return (*inputs, *map(id, inputs.values()), *outputs, *map(id, outputs.values()))


def _engine_call(what: str, call: Callable[[], T], kind: type[EmberError] = UnknownError) -> T:
    """Errors of an engine under the name that the specification has for them."""
    try:
        return call()
    except (InvalidStateError, NotSupportedError, OperationError, UnknownError):
        raise
    except Exception as error:  # engines raise classes of their own, and so do backends
        raise kind(f"{what}: the engine failed: {error}") from error


def _deprecated(name: str) -> None:
    warnings.warn(
        f"{name} is deprecated: create_tensor(shape, data_type) makes device tensors and needs "
        "no graph",
        DeprecationWarning,
        stacklevel=3,
    )
