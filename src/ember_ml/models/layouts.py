"""How Hugging Face lays models out: their configs and the names of their tensors, and ours.

A layout is written once, as rules, and read both ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ember_ml.errors import FormatError
from ember_ml.models.decoder import DecoderConfig
from ember_ml.models.encoder import EncoderConfig
from ember_ml.registry import Config

__all__ = ["LAYOUTS", "Layout", "Rule", "layout_of"]


class Rule(NamedTuple):
    """A tensor of theirs, and ours: several where theirs holds them below each other."""

    theirs: str
    ours: tuple[str, ...]
    # Theirs is (in, out), as the Conv1D of GPT-2.
    transposed: bool = False


@dataclass(frozen=True)
class Layout:
    """One `model_type` of config.json."""

    model_type: str
    architecture: str
    # What may stand before all names; written files have it.
    prefix: str
    # Names that no prefix stands before.
    bare: tuple[str, ...]
    # With what the other names begin.
    firsts: frozenset[str]
    # Tensors that hold nothing to learn, such as masks and numbers of places.
    constants: re.Pattern[str]
    read: Callable[[Mapping[str, Any], frozenset[str]], Config]
    write: Callable[[Any], dict[str, Any]]
    rules: Callable[[Any], Iterator[Rule]]

    def file_name(self, name: str) -> str:
        """A name as it is written."""
        return name if name in self.bare else self.prefix + name


_HF_ACTIVATIONS: Final = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_OWN_ACTIVATIONS: Final = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}


def _activation(data: Mapping[str, Any], key: str) -> str:
    name = data.get(key, "gelu")
    found = _HF_ACTIVATIONS.get(name)
    if found is None:
        raise FormatError(
            f"config.json has {key}={name!r}; known are {', '.join(sorted(_HF_ACTIVATIONS))}"
        )
    return found


def _needed(data: Mapping[str, Any], *keys: str) -> list[Any]:
    missing = [key for key in keys if key not in data]
    if missing:
        raise FormatError(f"config.json of a {data.get('model_type')} has no {', '.join(missing)}")
    return [data[key] for key in keys]


def _both(theirs: str, ours: str) -> Iterator[Rule]:
    for kind in ("weight", "bias"):
        yield Rule(f"{theirs}.{kind}", (f"{ours}.{kind}",))


# --- BERT, RoBERTa ------------------------------------------------------------------------------


def _read_bert(data: Mapping[str, Any], names: frozenset[str]) -> EncoderConfig:
    vocab, hidden, layers, heads, inner, places = _needed(
        data,
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
    )
    kind = data.get("position_embedding_type") or "absolute"
    if kind != "absolute":
        raise FormatError(f"config.json has position_embedding_type={kind!r}; 'absolute' is known")
    roberta = data.get("model_type") == "roberta"
    return EncoderConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        intermediate_size=inner,
        max_length=places,
        type_vocab_size=data.get("type_vocab_size", 2),
        activation=_activation(data, "hidden_act"),
        norm_eps=data.get("layer_norm_eps", 1e-12),
        dropout=data.get("hidden_dropout_prob", 0.1),
        attention_dropout=data.get("attention_probs_dropout_prob", 0.1),
        positions="roberta" if roberta else "absolute",
        pad_token=data.get("pad_token_id", 1 if roberta else 0) or 0,
        pooler="pooler.dense.weight" in names,
    )


def _write_bert(c: EncoderConfig) -> dict[str, Any]:
    return {
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "intermediate_size": c.intermediate_size,
        "max_position_embeddings": c.max_length,
        "type_vocab_size": c.type_vocab_size,
        "hidden_act": _OWN_ACTIVATIONS[c.activation],
        "layer_norm_eps": c.norm_eps,
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "pad_token_id": c.pad_token,
        "position_embedding_type": "absolute",
    }


def _bert_rules(c: EncoderConfig) -> Iterator[Rule]:
    yield Rule("embeddings.word_embeddings.weight", ("token_embedding.weight",))
    yield Rule("embeddings.position_embeddings.weight", ("position_embedding.weight",))
    yield Rule("embeddings.token_type_embeddings.weight", ("type_embedding.weight",))
    yield from _both("embeddings.LayerNorm", "embedding_norm")
    for n in range(c.num_layers):
        theirs, ours = f"encoder.layer.{n}", f"layers.{n}"
        for name, own in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
            yield from _both(f"{theirs}.attention.self.{name}", f"{ours}.attention.{own}")
        yield from _both(f"{theirs}.attention.output.dense", f"{ours}.attention.out_proj")
        yield from _both(f"{theirs}.attention.output.LayerNorm", f"{ours}.attention_norm")
        yield from _both(f"{theirs}.intermediate.dense", f"{ours}.mlp.up")
        yield from _both(f"{theirs}.output.dense", f"{ours}.mlp.down")
        yield from _both(f"{theirs}.output.LayerNorm", f"{ours}.mlp_norm")
    if c.pooler:
        yield from _both("pooler.dense", "pooler")


# --- DistilBERT ---------------------------------------------------------------------------------


def _read_distilbert(data: Mapping[str, Any], names: frozenset[str]) -> EncoderConfig:
    vocab, hidden, layers, heads, inner, places = _needed(
        data, "vocab_size", "dim", "n_layers", "n_heads", "hidden_dim", "max_position_embeddings"
    )
    return EncoderConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        intermediate_size=inner,
        max_length=places,
        type_vocab_size=0,
        activation=_activation(data, "activation"),
        norm_eps=1e-12,
        dropout=data.get("dropout", 0.1),
        attention_dropout=data.get("attention_dropout", 0.1),
        pad_token=data.get("pad_token_id", 0) or 0,
    )


def _write_distilbert(c: EncoderConfig) -> dict[str, Any]:
    return {
        "vocab_size": c.vocab_size,
        "dim": c.hidden_size,
        "n_layers": c.num_layers,
        "n_heads": c.num_heads,
        "hidden_dim": c.intermediate_size,
        "max_position_embeddings": c.max_length,
        "activation": _OWN_ACTIVATIONS[c.activation],
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "pad_token_id": c.pad_token,
    }


def _distilbert_rules(c: EncoderConfig) -> Iterator[Rule]:
    yield Rule("embeddings.word_embeddings.weight", ("token_embedding.weight",))
    yield Rule("embeddings.position_embeddings.weight", ("position_embedding.weight",))
    yield from _both("embeddings.LayerNorm", "embedding_norm")
    for n in range(c.num_layers):
        theirs, ours = f"transformer.layer.{n}", f"layers.{n}"
        for name in "qkv":
            yield from _both(f"{theirs}.attention.{name}_lin", f"{ours}.attention.{name}_proj")
        yield from _both(f"{theirs}.attention.out_lin", f"{ours}.attention.out_proj")
        yield from _both(f"{theirs}.sa_layer_norm", f"{ours}.attention_norm")
        yield from _both(f"{theirs}.ffn.lin1", f"{ours}.mlp.up")
        yield from _both(f"{theirs}.ffn.lin2", f"{ours}.mlp.down")
        yield from _both(f"{theirs}.output_layer_norm", f"{ours}.mlp_norm")


# --- GPT-2 --------------------------------------------------------------------------------------


def _read_gpt2(data: Mapping[str, Any], names: frozenset[str]) -> DecoderConfig:
    vocab, size, layers, heads, places = _needed(
        data, "vocab_size", "n_embd", "n_layer", "n_head", "n_positions"
    )
    for key, usual in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        if data.get(key, usual) is not usual:
            raise FormatError(f"config.json has {key}={data[key]}; {usual} is known")
    return DecoderConfig(
        vocab_size=vocab,
        hidden_size=size,
        num_layers=layers,
        num_heads=heads,
        intermediate_size=data.get("n_inner") or 4 * size,
        max_length=places,
        norm="layer",
        norm_eps=data.get("layer_norm_epsilon", 1e-5),
        positions="learned",
        activation=_activation({"activation_function": "gelu_new", **data}, "activation_function"),
        bias=True,
        dropout=data.get("resid_pdrop", 0.1),
        tied=data.get("tie_word_embeddings", True),
    )


def _write_gpt2(c: DecoderConfig) -> dict[str, Any]:
    return {
        "vocab_size": c.vocab_size,
        "n_embd": c.hidden_size,
        "n_layer": c.num_layers,
        "n_head": c.num_heads,
        "n_inner": c.intermediate_size,
        "n_positions": c.max_length,
        "n_ctx": c.max_length,
        "activation_function": _OWN_ACTIVATIONS[c.activation],
        "layer_norm_epsilon": c.norm_eps,
        "attn_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "resid_pdrop": c.dropout,
        "tie_word_embeddings": c.tied,
        # Theirs would be 50256, which smaller vocabularies do not have.
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _gpt2_rules(c: DecoderConfig) -> Iterator[Rule]:
    yield Rule("wte.weight", ("token_embedding.weight",))
    yield Rule("wpe.weight", ("position_embedding.weight",))
    for n in range(c.num_layers):
        theirs, ours = f"h.{n}", f"layers.{n}"
        yield from _both(f"{theirs}.ln_1", f"{ours}.attention_norm")
        yield from _both(f"{theirs}.ln_2", f"{ours}.mlp_norm")
        for name, own in (
            ("attn.c_attn", ("attention.q_proj", "attention.k_proj", "attention.v_proj")),
            ("attn.c_proj", ("attention.out_proj",)),
            ("mlp.c_fc", ("mlp.up",)),
            ("mlp.c_proj", ("mlp.down",)),
        ):
            for kind in ("weight", "bias"):
                parts = tuple(f"{ours}.{part}.{kind}" for part in own)
                yield Rule(f"{theirs}.{name}.{kind}", parts, kind == "weight")
    yield from _both("ln_f", "norm")
    if not c.tied:
        yield Rule("lm_head.weight", ("head.weight",))


# --- Llama --------------------------------------------------------------------------------------


def _read_llama(data: Mapping[str, Any], names: frozenset[str]) -> DecoderConfig:
    vocab, size, layers, heads, inner, places = _needed(
        data,
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
    )
    # Newer files have both numbers of the rotary positions in one dict.
    rope = {**(data.get("rope_scaling") or {}), **(data.get("rope_parameters") or {})}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise FormatError(f"config.json has rotary positions of type {kind!r}; 'default' is known")
    if data.get("hidden_act", "silu") not in ("silu", "swish"):
        raise FormatError(f"config.json has hidden_act={data['hidden_act']!r}; 'silu' is known")
    biases = {bool(data.get("attention_bias", False)), bool(data.get("mlp_bias", False))}
    if len(biases) > 1:
        raise FormatError("config.json has biases in attention or in the MLP only; both are known")
    groups, each = data.get("num_key_value_heads"), data.get("head_dim")
    return DecoderConfig(
        vocab_size=vocab,
        hidden_size=size,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=None if groups == heads else groups,
        head_dim=None if each == size // heads else each,
        intermediate_size=inner,
        max_length=places,
        norm="rms",
        norm_eps=data.get("rms_norm_eps", 1e-6),
        positions="rotary",
        rope_base=float(rope.get("rope_theta", data.get("rope_theta", 10000.0))),
        activation="swiglu",
        bias=biases.pop(),
        dropout=data.get("attention_dropout", 0.0),
        tied=data.get("tie_word_embeddings", False),
    )


def _write_llama(c: DecoderConfig) -> dict[str, Any]:
    return {
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads or c.num_heads,
        "head_dim": c.head_dim or c.hidden_size // c.num_heads,
        "intermediate_size": c.intermediate_size,
        "max_position_embeddings": c.max_length,
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rope_base,
        "hidden_act": "silu",
        "attention_bias": c.bias,
        "mlp_bias": c.bias,
        "attention_dropout": c.dropout,
        "tie_word_embeddings": c.tied,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _llama_rules(c: DecoderConfig) -> Iterator[Rule]:
    kinds = ("weight", "bias") if c.bias else ("weight",)
    yield Rule("embed_tokens.weight", ("token_embedding.weight",))
    for n in range(c.num_layers):
        theirs, ours = f"layers.{n}", f"layers.{n}"
        yield Rule(f"{theirs}.input_layernorm.weight", (f"{ours}.attention_norm.weight",))
        yield Rule(f"{theirs}.post_attention_layernorm.weight", (f"{ours}.mlp_norm.weight",))
        for name, own in (
            ("self_attn.q_proj", "attention.q_proj"),
            ("self_attn.k_proj", "attention.k_proj"),
            ("self_attn.v_proj", "attention.v_proj"),
            ("self_attn.o_proj", "attention.out_proj"),
            ("mlp.gate_proj", "mlp.gate"),
            ("mlp.up_proj", "mlp.up"),
            ("mlp.down_proj", "mlp.down"),
        ):
            for kind in kinds:
                yield Rule(f"{theirs}.{name}.{kind}", (f"{ours}.{own}.{kind}",))
    yield Rule("norm.weight", ("norm.weight",))
    if not c.tied:
        yield Rule("lm_head.weight", ("head.weight",))


# --- All ----------------------------------------------------------------------------------------

_PLACES: Final = r"(embeddings\.)?position_ids"

LAYOUTS: Final = {
    layout.model_type: layout
    for layout in (
        Layout(
            "bert",
            "BertModel",
            "",
            (),
            frozenset(("embeddings", "encoder", "pooler")),
            re.compile(_PLACES),
            _read_bert,
            _write_bert,
            _bert_rules,
        ),
        Layout(
            "roberta",
            "RobertaModel",
            "",
            (),
            frozenset(("embeddings", "encoder", "pooler")),
            re.compile(_PLACES),
            _read_bert,
            _write_bert,
            _bert_rules,
        ),
        Layout(
            "distilbert",
            "DistilBertModel",
            "",
            (),
            frozenset(("embeddings", "transformer")),
            re.compile(_PLACES),
            _read_distilbert,
            _write_distilbert,
            _distilbert_rules,
        ),
        Layout(
            "gpt2",
            "GPT2LMHeadModel",
            "transformer.",
            ("lm_head.weight",),
            frozenset(("wte", "wpe", "h", "ln_f")),
            re.compile(r"h\.\d+\.attn\.(bias|masked_bias)"),
            _read_gpt2,
            _write_gpt2,
            _gpt2_rules,
        ),
        Layout(
            "llama",
            "LlamaForCausalLM",
            "model.",
            ("lm_head.weight",),
            frozenset(("embed_tokens", "layers", "norm")),
            re.compile(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"),
            _read_llama,
            _write_llama,
            _llama_rules,
        ),
    )
}


def layout_of(config: Config) -> Layout | None:
    """The layout that can hold a model of this config; None where it is none of these."""
    if isinstance(config, EncoderConfig):
        if config.norm_first or config.activation not in _OWN_ACTIVATIONS:
            return None
        if config.type_vocab_size:
            return LAYOUTS["roberta" if config.positions == "roberta" else "bert"]
        plain = config.positions == "absolute" and not config.pooler and config.norm_eps == 1e-12
        return LAYOUTS["distilbert"] if plain else None
    if isinstance(config, DecoderConfig):
        if (config.norm, config.positions, config.activation) == ("rms", "rotary", "swiglu"):
            return LAYOUTS["llama"]
        same_heads = config.num_kv_heads in (None, config.num_heads) and config.head_dim is None
        plain = (config.norm, config.positions, config.bias) == ("layer", "learned", True)
        if plain and same_heads and config.activation in _OWN_ACTIVATIONS:
            return LAYOUTS["gpt2"]
    return None
