"""Blocks: mixers with norms around them and residuals past them, and stacks of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ember_ml import ops
from ember_ml.errors import DomainError
from ember_ml.nn.layers import channel_mixing, sequence_mixing
from ember_ml.nn.layers.attending import default_heads
from ember_ml.nn.module import Module
from ember_ml.nn.modules.attention import KVCache, KVMemory, MultiHeadAttention
from ember_ml.nn.modules.containers import ModuleList
from ember_ml.nn.modules.linear import Identity
from ember_ml.nn.modules.normalization import LayerNorm, RMSNorm
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "HybridBlock",
    "PreNormResidual",
    "TransformerDecoder",
    "TransformerDecoderBlock",
    "TransformerEncoder",
    "TransformerEncoderBlock",
    "from_torch_state",
]

_MIXERS: Final[dict[str, Any]] = {
    "attention": sequence_mixing.Attention,
    "linear_attention": sequence_mixing.LinearAttention,
    "state_space": sequence_mixing.StateSpaceMixer,
    "long_convolution": sequence_mixing.LongConvolution,
    "rnn": sequence_mixing.RNNMixer,
}
_CHANNELS: Final[dict[str, Any]] = {
    "mlp": channel_mixing.MLP,
    "gated_mlp": channel_mixing.GatedMLP,
    "moe": channel_mixing.MixtureOfExperts,
}


def _norm(kind: str, size: int, eps: float) -> Module:
    if kind == "layer":
        return LayerNorm(size, eps)
    if kind == "rms":
        return RMSNorm(size, eps)
    if kind == "none":
        return Identity()
    raise DomainError(f"a block got norm={kind!r}; it is 'layer', 'rms' or 'none'")


def _mlp(size: int, inner: int | None, activation: str, gated: bool, bias: bool, p: float) -> Any:
    kind: Any = channel_mixing.GatedMLP if gated else channel_mixing.MLP
    return kind(size, inner, activation=activation, bias=bias, dropout=p)


class PreNormResidual(Module):
    """`x + dropout(module(norm(x)))`.

    Shapes are those of the module, which keeps that of x. What else it is called with goes to the
    module.

    >>> from ember_ml import nn
    >>> from ember_ml.nn.layers import blocks
    >>> blocks.PreNormResidual(4, nn.Linear(4, 4), norm="rms")(ops.ones((2, 4))).shape
    (2, 4)
    """

    def __init__(
        self,
        hidden_size: int,
        module: Module,
        *,
        norm: str = "layer",
        eps: float = 1e-5,
        dropout: float = 0.0,
    ) -> None:
        self.norm = _norm(norm, hidden_size, eps)
        self.module = module
        self.dropout = dropout

    def forward(self, x: Any, /, *args: Any, **kwargs: Any) -> Any:
        """See the class."""
        return x + _dropped(self.module(self.norm(x), *args, **kwargs), self)


def _dropped(x: Any, owner: Any) -> Any:
    return ops.dropout(x, owner.dropout) if owner.dropout and owner.training else x


class _Block(Module):
    """What blocks share: steps of `x + f(norm(x))`, or of `norm(x + f(x))`."""

    norm_first: bool
    dropout: float

    def _step(self, x: Any, norm: Module, layer: Any, *args: Any, **options: Any) -> Any:
        if self.norm_first:
            return x + _dropped(layer(norm(x), *args, **options), self)
        return norm(x + _dropped(layer(x, *args, **options), self))


def _tokens(mask: TensorLike | None, x: Any) -> Any:
    """A mask whose two axes are those of batch and keys, in a shape that says so."""
    if mask is None:
        return None
    given = convert.to_tensor(mask, x._spec.backend if isinstance(x, Tensor) else None)
    return ops.expand_dims(given, axis=1) if given.ndim == 2 else given


class TransformerEncoderBlock(_Block):
    """Self attention and an MLP, each with a norm before it (or behind, `norm_first=False`).

    Shapes: x and y `(batch, length, hidden_size)`. A mask of two axes is `(batch, length)`, True
    for tokens that may be seen; one of three or four is that of `nn.MultiHeadAttention`. It
    computes what `torch.nn.TransformerEncoderLayer` does: `from_torch_state` reads its weights.

    >>> from ember_ml.nn.layers import blocks
    >>> block = blocks.TransformerEncoderBlock(8, 2, norm="rms", gated=True, activation="silu")
    >>> block(ops.ones((2, 3, 8)), mask=[[True, True, False], [True, True, True]]).shape
    (2, 3, 8)
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int | None = None,
        intermediate_size: int | None = None,
        *,
        activation: str = "gelu",
        gated: bool = False,
        norm: str = "layer",
        norm_first: bool = True,
        eps: float = 1e-5,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        bias: bool = True,
        causal: bool = False,
        num_kv_heads: int | None = None,
        rotary: bool = False,
        rope_base: float = 10000.0,
        qk_norm: bool = False,
    ) -> None:
        self.norm_first = norm_first
        self.dropout = dropout
        self.norm1 = _norm(norm, hidden_size, eps)
        self.attention = MultiHeadAttention(
            hidden_size,
            default_heads(hidden_size) if num_heads is None else num_heads,
            num_kv_heads=num_kv_heads,
            bias=bias,
            dropout=dropout if attention_dropout is None else attention_dropout,
            causal=causal,
            rotary=rotary,
            rope_base=rope_base,
            qk_norm=qk_norm,
        )
        self.norm2 = _norm(norm, hidden_size, eps)
        self.mlp = _mlp(hidden_size, intermediate_size, activation, gated, bias, dropout)

    def forward(
        self,
        x: TensorLike,
        mask: TensorLike | None = None,
        *,
        is_causal: bool | None = None,
        cache: KVCache | None = None,
        positions: TensorLike | None = None,
    ) -> Tensor:
        """See the class."""
        y = self._step(
            x,
            self.norm1,
            self.attention,
            mask=_tokens(mask, x),
            is_causal=is_causal,
            cache=cache,
            positions=positions,
        )
        return self._step(y, self.norm2, self.mlp)  # type: ignore[no-any-return]  # a Tensor

    def make_cache(self, batch: int, max_length: int) -> KVCache:
        """An empty cache of keys and values, for decoding step by step."""
        return self.attention.make_cache(batch, max_length)


class TransformerDecoderBlock(_Block):
    """Causal self attention, attention to a memory where one is given, and an MLP.

    Shapes: x and y `(batch, length, hidden_size)`, memory `(batch, keys, hidden_size)`, or what
    `remember(memory)` gave. Masks are those of TransformerEncoderBlock; `memory_mask` is that of
    the memory. With `cross_attention=False` there is no memory, as in GPT. It computes what
    `torch.nn.TransformerDecoderLayer` does with a causal mask.

    >>> from ember_ml.nn.layers import blocks
    >>> block = blocks.TransformerDecoderBlock(8, 2)
    >>> block(ops.ones((2, 3, 8)), ops.ones((2, 5, 8))).shape
    (2, 3, 8)
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int | None = None,
        intermediate_size: int | None = None,
        *,
        cross_attention: bool = True,
        activation: str = "gelu",
        gated: bool = False,
        norm: str = "layer",
        norm_first: bool = True,
        eps: float = 1e-5,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        bias: bool = True,
        num_kv_heads: int | None = None,
        rotary: bool = False,
        rope_base: float = 10000.0,
        qk_norm: bool = False,
    ) -> None:
        heads = default_heads(hidden_size) if num_heads is None else num_heads
        chance = dropout if attention_dropout is None else attention_dropout
        self.norm_first = norm_first
        self.dropout = dropout
        self.norm1 = _norm(norm, hidden_size, eps)
        self.attention = MultiHeadAttention(
            hidden_size,
            heads,
            num_kv_heads=num_kv_heads,
            bias=bias,
            dropout=chance,
            causal=True,
            rotary=rotary,
            rope_base=rope_base,
            qk_norm=qk_norm,
        )
        self.norm2 = self.cross_attention = None
        if cross_attention:
            self.norm2 = _norm(norm, hidden_size, eps)
            self.cross_attention = MultiHeadAttention(
                hidden_size, heads, num_kv_heads=num_kv_heads, bias=bias, dropout=chance
            )
        self.norm3 = _norm(norm, hidden_size, eps)
        self.mlp = _mlp(hidden_size, intermediate_size, activation, gated, bias, dropout)

    def forward(
        self,
        x: TensorLike,
        memory: TensorLike | KVMemory | None = None,
        *,
        mask: TensorLike | None = None,
        memory_mask: TensorLike | None = None,
        is_causal: bool | None = None,
        cache: KVCache | None = None,
        positions: TensorLike | None = None,
    ) -> Tensor:
        """See the class."""
        y = self._step(
            x,
            self.norm1,
            self.attention,
            mask=_tokens(mask, x),
            is_causal=is_causal,
            cache=cache,
            positions=positions,
        )
        if memory is not None:
            if self.cross_attention is None or self.norm2 is None:
                raise DomainError("TransformerDecoderBlock(cross_attention=False) got a memory")
            seen = _tokens(memory_mask, y)
            if isinstance(memory, KVMemory):
                y = self._step(y, self.norm2, self.cross_attention, mask=seen, cache=memory)
            else:
                y = self._step(y, self.norm2, self.cross_attention, memory, mask=seen)
        return self._step(y, self.norm3, self.mlp)  # type: ignore[no-any-return]  # a Tensor

    def remember(self, memory: TensorLike) -> KVMemory:
        """Keys and values of a memory, computed once for many steps."""
        if self.cross_attention is None:
            raise DomainError("TransformerDecoderBlock(cross_attention=False) takes no memory")
        return self.cross_attention.remember(memory)

    def make_cache(self, batch: int, max_length: int) -> KVCache:
        """An empty cache of keys and values, for decoding step by step."""
        return self.attention.make_cache(batch, max_length)


class HybridBlock(_Block):
    """A mixer of tokens and a mixer of channels of choice, each with a norm and a residual.

    Shapes: x and y `(batch, length, hidden_size)`. A mixer is a module or a name: "attention",
    "linear_attention", "state_space", "long_convolution", "rnn"; "mlp", "gated_mlp", "moe"; options
    of a named one are given as a dict. What else the block is called with goes to the mixer of
    tokens, such as `state=`, `return_state=` or `cache=`.

    >>> from ember_ml.nn.layers import blocks
    >>> block = blocks.HybridBlock(
    ...     8, "state_space", "gated_mlp", sequence_options={"state_size": 4}
    ... )
    >>> block(ops.ones((2, 3, 8)), mask=[[1, 1, 0], [1, 1, 1]]).shape
    (2, 3, 8)
    """

    def __init__(
        self,
        hidden_size: int,
        sequence_mixer: str | Module = "attention",
        channel_mixer: str | Module = "mlp",
        *,
        norm: str = "layer",
        norm_first: bool = True,
        eps: float = 1e-5,
        dropout: float = 0.0,
        sequence_options: Mapping[str, Any] | None = None,
        channel_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.norm_first = norm_first
        self.dropout = dropout
        self.norm1 = _norm(norm, hidden_size, eps)
        self.sequence_mixer = _chosen(_MIXERS, sequence_mixer, hidden_size, sequence_options)
        self.norm2 = _norm(norm, hidden_size, eps)
        self.channel_mixer = _chosen(_CHANNELS, channel_mixer, hidden_size, channel_options)

    def forward(self, x: TensorLike, mask: TensorLike | None = None, **options: Any) -> Any:
        """See the class. With `return_state`, the result and the state."""
        if not options.get("return_state"):
            y = self._step(x, self.norm1, self.sequence_mixer, mask, **options)
            return self._step(y, self.norm2, self.channel_mixer, mask)
        mixed, state = self.sequence_mixer(self.norm1(x) if self.norm_first else x, mask, **options)
        y = x + _dropped(mixed, self)
        if not self.norm_first:
            y = self.norm1(y)
        return self._step(y, self.norm2, self.channel_mixer, mask), state


def _chosen(
    kinds: dict[str, Any], mixer: str | Module, size: int, options: Mapping[str, Any] | None
) -> Module:
    if isinstance(mixer, Module):
        if options:
            raise DomainError("HybridBlock got options for a mixer that is made already")
        return mixer
    kind = kinds.get(mixer)
    if kind is None:
        raise DomainError(f"HybridBlock got the mixer {mixer!r}; there are {', '.join(kinds)}")
    made: Module = kind(size, **(options or {}))
    return made


class TransformerEncoder(Module):
    """`num_layers` encoder blocks in a row, and a norm behind them where they have theirs before.

    Shapes: x and y `(batch, length, hidden_size)`. Other options are those of the blocks.

    >>> from ember_ml.nn.layers import blocks
    >>> blocks.TransformerEncoder(2, 8, 2, 16)(ops.ones((1, 3, 8))).shape
    (1, 3, 8)
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        num_heads: int | None = None,
        intermediate_size: int | None = None,
        *,
        final_norm: bool | None = None,
        **options: Any,
    ) -> None:
        self.layers = ModuleList(
            TransformerEncoderBlock(hidden_size, num_heads, intermediate_size, **options)
            for _ in range(num_layers)
        )
        self.norm = _final_norm(final_norm, hidden_size, options)

    def forward(
        self,
        x: TensorLike,
        mask: TensorLike | None = None,
        *,
        caches: list[KVCache] | None = None,
        **options: Any,
    ) -> Tensor:
        """See the class."""
        y: Any = x
        for place, layer in enumerate(self.layers):
            y = layer(y, mask, cache=None if caches is None else caches[place], **options)
        return y if self.norm is None else self.norm(y)  # type: ignore[no-any-return]  # a Tensor

    def make_caches(self, batch: int, max_length: int) -> list[KVCache]:
        """An empty cache for each layer, for decoding step by step."""
        return [layer.make_cache(batch, max_length) for layer in self.layers]  # type: ignore[attr-defined]  # a block


class TransformerDecoder(Module):
    """`num_layers` decoder blocks in a row, and a norm behind them where they have theirs before.

    Shapes: x and y `(batch, length, hidden_size)`, memory `(batch, keys, hidden_size)`, or what
    `remember` gave. Other options are those of the blocks.

    >>> from ember_ml.nn.layers import blocks
    >>> decoder = blocks.TransformerDecoder(2, 8, 2, 16, cross_attention=False)
    >>> caches = decoder.make_caches(batch=1, max_length=4)
    >>> with em.no_grad():
    ...     y = decoder(ops.ones((1, 3, 8)), caches=caches)
    >>> y.shape, caches[0].length
    ((1, 3, 8), 3)
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        num_heads: int | None = None,
        intermediate_size: int | None = None,
        *,
        final_norm: bool | None = None,
        **options: Any,
    ) -> None:
        self.layers = ModuleList(
            TransformerDecoderBlock(hidden_size, num_heads, intermediate_size, **options)
            for _ in range(num_layers)
        )
        self.norm = _final_norm(final_norm, hidden_size, options)

    def forward(
        self,
        x: TensorLike,
        memory: TensorLike | list[KVMemory] | None = None,
        *,
        caches: list[KVCache] | None = None,
        **options: Any,
    ) -> Tensor:
        """See the class."""
        y: Any = x
        kept = isinstance(memory, list) and all(isinstance(one, KVMemory) for one in memory)
        for place, layer in enumerate(self.layers):
            seen: Any = memory[place] if kept else memory  # type: ignore[index]  # a list
            y = layer(y, seen, cache=None if caches is None else caches[place], **options)
        return y if self.norm is None else self.norm(y)  # type: ignore[no-any-return]  # a Tensor

    def remember(self, memory: TensorLike) -> list[KVMemory]:
        """Keys and values of a memory for each layer, computed once for many steps."""
        return [layer.remember(memory) for layer in self.layers]  # type: ignore[attr-defined]  # a block

    def make_caches(self, batch: int, max_length: int) -> list[KVCache]:
        """An empty cache for each layer, for decoding step by step."""
        return [layer.make_cache(batch, max_length) for layer in self.layers]  # type: ignore[attr-defined]  # a block


def _final_norm(asked: bool | None, size: int, options: Mapping[str, Any]) -> Module | None:
    """Blocks with norms behind them have one at the end already."""
    if not (options.get("norm_first", True) if asked is None else asked):
        return None
    return _norm(options.get("norm", "layer"), size, options.get("eps", 1e-5))


def from_torch_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Weights of torch's transformer layers and stacks, under the names that ours have.

    >>> from ember_ml.nn.layers import blocks
    >>> list(blocks.from_torch_state({"self_attn.in_proj_bias": ops.zeros(6)}))
    ['attention.q_proj.bias', 'attention.k_proj.bias', 'attention.v_proj.bias']
    """
    names = (
        ("multihead_attn.", "cross_attention."),
        ("self_attn.", "attention."),
        ("linear1.", "mlp.up_proj."),
        ("linear2.", "mlp.down_proj."),
    )
    found: dict[str, Any] = {}
    for name, value in state.items():
        for old, new in names:
            name = name.replace(old, new)
        head, packed, kind = name.rpartition("in_proj_")
        if not packed:
            found[name] = value
            continue
        size = value.shape[0] // 3
        for place, part in enumerate("qkv"):
            found[f"{head}{part}_proj.{kind}"] = value[place * size : (place + 1) * size]
    return found
