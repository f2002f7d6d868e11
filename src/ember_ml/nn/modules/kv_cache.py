"""KVCache: keys and values of what was read so far, for decoding step by step."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np

from ember_ml import ops
from ember_ml.backend import selection
from ember_ml.dtypes import DTypeLike
from ember_ml.errors import DomainError, GradientError, OutOfBoundsError, ShapeError
from ember_ml.ops.fitting import beside
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.typing import TensorLike

__all__ = ["KVCache", "KVMemory"]

Self = TypeVar("Self", bound="KVCache")


class KVMemory(NamedTuple):
    """Keys and values, in heads, of a sequence that stays as it is: see `remember`."""

    keys: Tensor
    values: Tensor


class KVCache:
    """Keys and values of all tokens so far, in arrays of a fixed size.

    Shapes: `keys` and `values` are `(batch, num_kv_heads, max_length, head_dim)`, of which the
    first `length` places along the third axis are filled. A step writes to its own places only;
    nothing is copied, and nothing grows. In a function that `em.jit` compiles, the cache is state
    (`em.jit(step, state=[model, caches])`, or an argument); the length is a tensor there, so one
    trace serves all steps.

    >>> from ember_ml import nn
    >>> cache = nn.KVCache(1, 2, 4, max_length=8)
    >>> for _ in range(3):
    ...     keys, values = cache.update(ops.ones((1, 2, 1, 4)), ops.ones((1, 2, 1, 4)))
    >>> cache.length, len(cache), cache.max_length
    (3, 3, 8)
    """

    def __init__(
        self,
        batch: int,
        num_kv_heads: int,
        head_dim: int,
        max_length: int,
        dtype: DTypeLike = None,
        *,
        backend: str | None = None,
        device: str | None = None,
    ) -> None:
        if max_length < 1:
            raise DomainError(f"KVCache got max_length={max_length}; it holds at least one token")
        shape = (batch, num_kv_heads, max_length, head_dim)
        with selection.use_backend(backend or selection.get_backend()):
            self.keys = ops.zeros(shape, dtype=dtype, device=device)
            self.values = ops.zeros(shape, dtype=dtype, device=device)
        self.max_length = max_length
        # How many places are filled: here where it is known, else in the tensor.
        self._count: int | None = 0
        self._offset: Tensor | None = None
        # For masks; made here, since what appears later would be another trace.
        self._places = beside(self.keys, np.arange(max_length))

    # --- What it tells ----------------------------------------------------------------------

    @property
    def length(self) -> int:
        """How many tokens it holds."""
        if self._count is None:
            assert self._offset is not None  # one of both is there
            self._count = int(self._offset.item())
        return self._count

    def __len__(self) -> int:
        return self.length

    @property
    def offset(self) -> Tensor:
        """How many tokens it holds, as a tensor: traced in a compiled function."""
        if self._count is not None:
            old = self._offset
            if old is None or old.backend != self.keys.backend or old.item() != self._count:
                self._offset = beside(self.keys, np.asarray(self._count))
        assert self._offset is not None  # one of both is there
        return self._offset

    @property
    def start(self) -> int | Tensor:
        """The position of the next token: a number, or a tensor in a function that is traced."""
        if self._count is None and self._is_traced():
            return self.offset
        return self.length

    def _is_traced(self) -> bool:
        offset = self._offset
        return offset is not None and offset._spec.backend.is_traced(offset.native)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the keys: `(batch, num_kv_heads, max_length, head_dim)`."""
        return self.keys.shape

    def __repr__(self) -> str:
        count = "?" if self._count is None and self._is_traced() else self.length
        return (
            f"KVCache(shape={self.shape}, length={count}, dtype={self.keys.dtype.name}, "
            f"backend={self.keys.backend})"
        )

    # --- Use --------------------------------------------------------------------------------

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values `(batch, num_kv_heads, new, head_dim)`; gives all so far.

        In a function that is traced, all places come, and `mask` tells which are filled.
        """
        start, new = self._write(keys, values)
        if isinstance(start, Tensor):
            return self.keys, self.values
        return self._first(start + new)

    def extend(
        self, keys: Tensor, values: Tensor, causal: bool
    ) -> tuple[Tensor, Tensor, Tensor | None, bool]:
        """`update` for attention: keys, values, a mask, and True where the causal one is the rest.

        An engine that compiles for every shape gets all places with a mask, as a traced function.
        """
        start, new = self._write(keys, values)
        if isinstance(start, Tensor) or self.keys._spec.backend.compiles_shapes:
            return self.keys, self.values, self._mask(start, new, causal, self.max_length), False
        seen, given = self._first(start + new)
        if new == 1 or not causal:
            return seen, given, None, False
        if not start:
            return seen, given, None, True
        return seen, given, self._mask(start, new, True, start + new), False

    def _write(self, keys: Tensor, values: Tensor) -> tuple[int | Tensor, int]:
        """Put new keys and values in their places; gives where they begin and their number."""
        if type(keys) is GradTensor or type(values) is GradTensor:
            raise GradientError(
                "KVCache keeps no gradients; call the model within `with em.no_grad():`"
            )
        own = self.keys
        spec = own._spec
        if keys._spec is not spec or values._spec is not spec:
            keys, values = self._fitted(keys), self._fitted(values)
        batch, heads, _, features = own.shape
        given = keys.shape
        new = given[2] if len(given) == 4 else 0
        if given != (batch, heads, new, features) or values.shape != given:
            raise ShapeError(
                f"KVCache of shape {own.shape} got keys of shape {given} and values of shape "
                f"{values.shape}; it takes ({batch}, {heads}, new, {features})"
            )
        start = self.start if self._count is None else self._count
        if isinstance(start, Tensor):
            places = beside(own, np.arange(new)) + start
            own[:, :, places] = keys
            self.values[:, :, places] = values
            self._offset = start + new
            return start, new
        if start + new > self.max_length:
            raise OutOfBoundsError(
                f"KVCache(max_length={self.max_length}) holds {start} tokens and got {new} more; "
                f"make a longer one, or call reset()"
            )
        key = (slice(None), slice(None), slice(start, start + new))
        backend = spec.backend
        if backend.mutable:
            own.native = backend.put_own(own.native, key, keys.native)
            self.values.native = backend.put_own(self.values.native, key, values.native)
        else:
            own[key] = keys
            self.values[key] = values
        self._count = start + new
        return start, new

    def _fitted(self, x: TensorLike) -> Tensor:
        spec = self.keys._spec
        given = convert.to_tensor(x, spec.backend)
        if given.backend != spec.backend.name or given.device != spec.device:
            raise DomainError(
                f"KVCache on backend '{spec.backend.name}' got keys or values of backend "
                f"'{given.backend}'; make it with backend='{given.backend}', or move it by "
                f".to(backend='{given.backend}')"
            )
        return convert.cast(given, spec.dtype)

    def _first(self, count: int) -> tuple[Tensor, Tensor]:
        """The places that are filled."""
        backend = self.keys._spec.backend
        if not backend.mutable:
            return self.keys[:, :, :count], self.values[:, :, :count]
        return (
            fill(self.keys.native[:, :, :count], self.keys._spec),
            fill(self.values.native[:, :, :count], self.values._spec),
        )

    def mask(self, queries: int = 1, *, causal: bool = True) -> Tensor:
        """Which places the last `queries` tokens see: `(queries, max_length)`, bool."""
        return self._mask(self.start - queries, queries, causal, self.max_length)

    def _mask(self, start: int | Tensor, queries: int, causal: bool, length: int) -> Tensor:
        home = self.keys
        places = self._places
        if length < self.max_length:
            places = places[:length]
        if queries == 1 or not causal:
            return ops.expand_dims(places < start + queries, axis=0)
        return places <= beside(home, np.arange(queries)[:, None]) + start

    # --- Changing ---------------------------------------------------------------------------

    def reset(self: Self) -> Self:
        """Hold no tokens; the arrays are used again. Gives itself."""
        self._count = 0
        return self

    def truncate(self: Self, length: int) -> Self:
        """Hold the first `length` tokens only; gives itself."""
        if not 0 <= length <= self.length:
            raise OutOfBoundsError(f"KVCache of {self.length} tokens cannot be cut to {length}")
        self._count = length
        return self

    def reorder(self: Self, rows: TensorLike) -> Self:
        """Let batch row i go on from what row `rows[i]` has read, as beams do; gives itself."""
        self.keys = ops.take(self.keys, rows, axis=0)
        self.values = ops.take(self.values, rows, axis=0)
        return self

    def to(
        self: Self,
        *,
        backend: str | None = None,
        device: str | None = None,
        dtype: DTypeLike = None,
    ) -> Self:
        """Move it to another backend, device or dtype; gives itself."""
        length = self.length
        self.keys = self.keys.to(backend=backend, device=device, dtype=dtype)
        self.values = self.values.to(backend=backend, device=device, dtype=dtype)
        self._count, self._offset = length, None
        self._places = beside(self.keys, np.arange(self.max_length))
        return self

    # --- em.jit -----------------------------------------------------------------------------

    def __jit_state__(self) -> dict[str, Any]:
        offset = self.offset
        # From here on the tensor counts: a compiled function may have moved it on.
        self._count = None
        return {"keys": self.keys, "values": self.values, "_offset": offset}
