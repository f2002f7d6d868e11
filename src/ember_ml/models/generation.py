"""Texts that go on: one token after the other, with keys and values kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np

from ember_ml import ops
from ember_ml.autodiff import jit as compiled
from ember_ml.autodiff.tape import no_grad
from ember_ml.backend.selection import use_backend
from ember_ml.errors import DomainError, ShapeError
from ember_ml.nn import members
from ember_ml.ops.fitting import beside
from ember_ml.ops.random.generator import Generator
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

if TYPE_CHECKING:
    from ember_ml import nn
    from ember_ml.models.decoder import Decoder

__all__ = ["Choice", "generate"]

# Caches are this many places longer than a text at most, so that texts of about the same length
# share what was compiled.
_PLACES = 64
# What is read first is padded to a multiple of this, for the same reason.
_READ = 16


@dataclass(frozen=True)
class Choice:
    """How the next token is chosen."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not self.temperature >= 0.0:
            raise DomainError(f"generate got temperature={self.temperature}; it is 0 or more")
        if self.top_k is not None and self.top_k < 1:
            raise DomainError(f"generate got top_k={self.top_k}; it is 1 or more, or None")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise DomainError(f"generate got top_p={self.top_p}; it is above 0 and at most 1")

    @property
    def is_greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature == 0.0 or self.top_k == 1

    def pick(self, scores: Tensor, draws: Tensor | None) -> Tensor:
        """A token for each row of scores `(batch, vocabulary)`, by draws in [0, 1).

        Without draws it is the best one, and there may be other axes before the last.
        """
        if draws is None:
            return ops.argmax(scores, axis=-1)
        if scores.dtype.itemsize < 4:  # a running sum of many small numbers
            scores = scores.astype("float32")
        chances = ops.softmax(scores / self.temperature, axis=-1)
        if self.top_k is None and self.top_p is None:
            return _place(ops.cumulative_sum(chances, axis=-1), draws)
        order = ops.argsort(chances, axis=-1, descending=True)
        ranked = ops.take_along_axis(chances, order, axis=-1)
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            ranked = ranked[:, : self.top_k]
            ranked = ranked / ops.sum(ranked, axis=-1, keepdims=True)
        summed = ops.cumulative_sum(ranked, axis=-1)
        if self.top_p is not None:
            # The best token stays, whatever its probability is.
            kept = ops.where(summed - ranked < self.top_p, ranked, 0.0)
            summed = ops.cumulative_sum(kept, axis=-1)
        rank = ops.expand_dims(_place(summed, draws), axis=-1)
        return ops.take_along_axis(order, rank, axis=-1)[:, 0]


def _place(summed: Tensor, draws: Tensor) -> Tensor:
    """The first place whose running sum is above a draw's share of the whole."""
    total = summed[:, -1:]
    reached = summed <= ops.expand_dims(draws.astype(summed.dtype), axis=-1) * total
    # A draw just below one may round up to the whole.
    return ops.clip(ops.sum(reached, axis=-1, dtype="int64"), None, summed.shape[-1] - 1)


def generate(
    model: Decoder,
    tokens: TensorLike,
    max_new_tokens: int,
    choice: Choice,
    generator: Generator | None,
    eos: int | None,
    mask: TensorLike | None,
    jit: bool | None,
) -> Tensor:
    """See Decoder.generate."""
    table = model.token_embedding.weight
    home = table._spec.backend
    ids = convert.to_tensor(tokens, home)
    alone = ids.ndim == 1
    if alone:
        ids = ops.expand_dims(ids, axis=0)
    if ids.ndim != 2 or not ids.shape[1] or not ids.dtype.is_integer:
        raise ShapeError(
            f"generate got tokens of shape {ids.shape} and {ids.dtype}; it takes integers of "
            f"shape (length,) or (batch, length), with one token or more"
        )
    batch, length = ids.shape
    whole = length + _count(max_new_tokens)
    if model.position_embedding is not None and whole > model.config.max_length:
        raise ShapeError(
            f"generate got {length} tokens and max_new_tokens={max_new_tokens}; "
            f"Decoder(max_length={model.config.max_length}) has no places beyond"
        )
    places = -(-whole // _PLACES) * _PLACES
    if model.position_embedding is not None:
        places = min(places, model.config.max_length)
    padding = None if mask is None else _Padding(mask, ids, places)
    draws = None
    if not choice.is_greedy:
        with use_backend(home.name):
            # One draw, however many tokens come of it.
            drawn = ops.random.uniform((max_new_tokens, batch), generator=generator)
        draws = drawn.numpy()
    # An engine that runs one op at a time at some cost gains by a compiled step.
    quick = home.compiles_shapes if jit is None else jit
    with _in_use(model), no_grad():
        caches = model.make_caches(batch, places)
        step = _compiled(model, choice) if quick else partial(_step, model, choice)
        new = _written(step, caches, ids, max_new_tokens, draws, eos, padding, quick)
        ids = ops.concat([ids, beside(ids, new.astype(ids.dtype.numpy))], axis=1)
    return ids[0] if alone else ids


def _count(max_new_tokens: Any) -> int:
    if not isinstance(max_new_tokens, int) or max_new_tokens < 0:
        raise DomainError(f"generate got max_new_tokens={max_new_tokens!r}; it is 0 or more")
    return max_new_tokens


@contextmanager
def _in_use(model: Decoder) -> Iterator[None]:
    """The model as in use: nothing is dropped."""
    modes = [(one, one.training) for one in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for one, mode in modes:
            one.training = mode


class _Padding:
    """Which tokens are there, for texts that begin with padding."""

    def __init__(self, mask: TensorLike, ids: Tensor, places: int) -> None:
        given = convert.to_tensor(mask, ids._spec.backend).numpy().astype(bool)
        if given.ndim == 1:
            given = given[None]
        if given.shape != ids.shape or not given[:, -1].all():
            raise ShapeError(
                f"generate got a mask of shape {given.shape} for tokens of shape {ids.shape}; it "
                f"is False at padding before a text, and True at its last token"
            )
        batch, length = given.shape
        self._seen = np.concatenate([given, np.ones((batch, places - length), bool)], axis=1)
        self._positions = np.maximum(np.cumsum(self._seen, axis=1) - 1, 0)

    def of(self, home: Tensor, start: int, count: int) -> tuple[Tensor, Tensor]:
        """The mask over all places, and the positions of some tokens."""
        positions = self._positions[:, start : start + count]
        return beside(home, self._seen), beside(home, positions)


def _written(
    step: Callable[..., Tensor],
    caches: list[nn.KVCache],
    ids: Tensor,
    count: int,
    draws: np.ndarray[Any, Any] | None,
    eos: int | None,
    padding: _Padding | None,
    quick: bool,
) -> np.ndarray[Any, Any]:
    """The new tokens: `(batch, count)`, or fewer where all rows have ended."""
    batch, length = ids.shape
    ended = np.zeros(batch, bool)
    read, start, last = ids, 0, None
    if quick and length > 1:
        read = _padded(ids, min(-(-length // _READ) * _READ, caches[0].max_length))
        last = beside(ids, np.asarray([length - 1]))
    rows: list[Any] = []
    for number in range(count):
        draw = None if draws is None else beside(ids, draws[number])
        extra = (None, None) if padding is None else padding.of(ids, start, read.shape[1])
        token = step(caches, read, draw, *extra, last)
        if last is not None:  # the padding was read as well, and no token has seen it
            for cache in caches:
                cache.truncate(length)
            last = None
        start = length + number
        if eos is not None:
            found = np.where(ended[:, None], eos, token.numpy())
            ended |= found[:, 0] == eos
            rows.append(found)
            if ended.all():
                break
            token = beside(ids, found)
        else:
            rows.append(token)
        read = token
    if not rows:
        return np.zeros((batch, 0), np.int64)
    return np.concatenate(
        [row if isinstance(row, np.ndarray) else row.numpy() for row in rows], axis=1
    )


def _padded(ids: Tensor, length: int) -> Tensor:
    return ops.pad(ids, [(0, 0), (0, length - ids.shape[1])])


def _step(
    model: Any,
    choice: Choice,
    caches: list[nn.KVCache],
    tokens: Tensor,
    draw: Tensor | None,
    mask: Tensor | None,
    positions: Tensor | None,
    last: Tensor | None,
) -> Tensor:
    """The token after these, or after that at `last`: `(batch, 1)`, as the next step reads it."""
    hidden = model.hidden(tokens, mask=mask, caches=caches, positions=positions)
    if last is not None:
        hidden = ops.take(hidden, last, axis=1)
    elif tokens.shape[1] > 1:
        hidden = hidden[:, -1:]
    scores = model.scores(hidden)
    if draw is None:
        return choice.pick(scores, None)
    return ops.expand_dims(choice.pick(scores[:, 0], draw), axis=1)


# A compiled step for each model and way to choose; it keeps no model alive.
_COMPILED: WeakKeyDictionary[Any, dict[Choice, Any]] = WeakKeyDictionary()


def _compiled(model: Decoder, choice: Choice) -> Callable[..., Tensor]:
    """The step as a compiled function of the weights, which are told apart once, not each time."""
    known = _COMPILED.setdefault(model, {})
    found = known.get(choice)
    if found is None:
        known[choice] = found = compiled(_functional(ref(model), choice))
    weights = [x.detach() for _, x in members.tensors(model)]

    def step(caches: list[nn.KVCache], *given: Any) -> Tensor:
        token: Tensor = found(weights, caches, *given)
        return token

    return step


def _functional(owner: ReferenceType[Decoder], choice: Choice) -> Callable[..., Tensor]:
    def step(weights: list[Tensor], caches: list[nn.KVCache], *given: Any) -> Tensor:
        model = owner()
        assert model is not None  # it is being called
        own = [id(x) for _, x in members.tensors(model)]
        traced = dict(zip(own, weights, strict=True))
        return _step(members.copied(model, lambda x: traced[id(x)]), choice, caches, *given)

    return step
