"""Tensors of a context: where graphs read their inputs and write their outputs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from ember_ml.webnn.descriptors import MLTensorDescriptor, byte_length
from ember_ml.webnn.errors import InvalidStateError

if TYPE_CHECKING:
    from ember_ml.webnn.context import MLContext
    from ember_ml.webnn.graph import Prepared
    from ember_ml.webnn.timeline import Pending

__all__ = ["MLDeviceTensor", "MLTensor"]

# Of so many prepared dispatches a tensor looks for those that are gone.
MOST_USES: Final = 64


class MLTensor:
    """A tensor on the device of its context; made by `MLContext.create_tensor`.

    One that the host may read or write is an MLTensor and nothing more; one that stays on the
    device, which is the default, is an MLDeviceTensor.
    """

    __slots__ = (
        "__weakref__",
        "_constant",
        "_context",
        "_descriptor",
        "_is_destroyed",
        "_most_uses",
        "_pending",
        "_storage",
        "_uses",
    )

    def __init__(
        self,
        context: MLContext,
        descriptor: MLTensorDescriptor,
        storage: Any,
        *,
        constant: bool = False,
    ) -> None:
        self._context = context
        self._descriptor = descriptor
        # The memory, as the engine of the context holds it; None once it is given back.
        self._storage = storage
        self._constant = constant
        self._is_destroyed = False
        # Reads that are on their way; they fail when the tensor is destroyed.
        self._pending: set[Pending[Any]] = set()
        # The prepared dispatches that it is part of: which table, and under which key.
        self._uses: dict[tuple[int, tuple[object, ...]], weakref.ref[Prepared]] = {}
        self._most_uses = MOST_USES

    @property
    def data_type(self) -> str:
        """The data type, as "float32"."""
        return self._descriptor.data_type

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self._descriptor.shape

    @property
    def readable(self) -> bool:
        """Whether `read_tensor` takes it."""
        return self._descriptor.readable

    @property
    def writable(self) -> bool:
        """Whether `write_tensor` takes it."""
        return self._descriptor.writable

    @property
    def constant(self) -> bool:
        """Whether it was made by `create_constant_tensor`."""
        return self._constant

    @property
    def byte_length(self) -> int:
        """How many bytes its contents take."""
        return byte_length(self.data_type, self.shape)

    def destroy(self) -> None:
        """Give its memory back; what was dispatched before is done still. Twice does no harm."""
        if self._is_destroyed:
            return
        self._is_destroyed = True
        self._forget()
        for pending in list(self._pending):
            pending.settle(
                error=InvalidStateError("read_tensor: the tensor was destroyed before it was read")
            )
        self._pending.clear()
        # Work that is queued holds the memory itself, so that it ends with the last of that.
        self._storage = None

    def _use(self, table: Prepared, key: tuple[object, ...]) -> None:
        """Remember a prepared dispatch; those that went with other tensors are dropped at times."""
        self._uses[(id(table), key)] = weakref.ref(table)
        if len(self._uses) >= self._most_uses:
            kept = {use: one for use, one in self._uses.items() if use[1] in (one() or ())}
            self._uses = kept
            self._most_uses = max(MOST_USES, 2 * len(kept))

    def _forget(self) -> None:
        uses, self._uses = self._uses, {}
        for (_, key), table in uses.items():
            prepared = table()
            if prepared is not None:
                prepared.pop(key, None)

    def __del__(self) -> None:
        self._forget()

    def __repr__(self) -> str:
        state = " destroyed" if self._is_destroyed else ""
        flags = [name for name in ("readable", "writable", "constant") if getattr(self, name)]
        shown = f" {' '.join(flags)}" if flags else ""
        return f"<{type(self).__name__}{state}: {self.data_type}{list(self.shape)}{shown}>"


class MLDeviceTensor(MLTensor):
    """A tensor that the host neither reads nor writes: it only goes from dispatch to dispatch."""

    __slots__ = ()
