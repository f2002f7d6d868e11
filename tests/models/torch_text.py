"""BERT, GPT-2 and Llama as plain torch programs over a dict of tensors, from their papers.

They know nothing of ember_ml: tests compare with them where transformers is not installed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

__all__ = ["bert", "embeddings", "gpt2", "llama"]

State = Mapping[str, torch.Tensor]


def _linear(w: State, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def _heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def _attend(q: Any, k: Any, v: Any, seen: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    return (weights @ v).transpose(-3, -2).flatten(-2)


def bert(w: State, config: Mapping[str, Any], ids: Any, mask: Any, types: Any) -> torch.Tensor:
    """The last hidden states (Devlin et al., 2018)."""
    eps, heads = config["layer_norm_eps"], config["num_attention_heads"]

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][torch.arange(ids.shape[1])]
    x = x + w["embeddings.token_type_embeddings.weight"][types]
    x = norm("embeddings.LayerNorm", x)
    for n in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{n}"
        q, k, v = (
            _heads(_linear(w, f"{at}.attention.self.{name}", x), heads)
            for name in ("query", "key", "value")
        )
        y = _attend(q, k, v, mask.bool()[:, None, None, :])
        x = norm(
            f"{at}.attention.output.LayerNorm", x + _linear(w, f"{at}.attention.output.dense", y)
        )
        y = F.gelu(_linear(w, f"{at}.intermediate.dense", x))
        x = norm(f"{at}.output.LayerNorm", x + _linear(w, f"{at}.output.dense", y))
    return x


def embeddings(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Means over the tokens, of length one (Reimers and Gurevych, 2019)."""
    weights = mask[..., None].to(hidden.dtype)
    return F.normalize((hidden * weights).sum(1) / weights.sum(1))


def gpt2(w: State, config: Mapping[str, Any], ids: Any) -> torch.Tensor:
    """Scores of the next tokens (Radford et al., 2019); weights are (in, out)."""
    eps, heads, length = config["layer_norm_epsilon"], config["n_head"], ids.shape[1]
    seen = torch.ones(length, length).tril().bool()

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)

    def affine(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][ids] + w["wpe.weight"][torch.arange(length)]
    for n in range(config["n_layer"]):
        q, k, v = affine(f"h.{n}.attn.c_attn", norm(f"h.{n}.ln_1", x)).chunk(3, -1)
        y = _attend(_heads(q, heads), _heads(k, heads), _heads(v, heads), seen)
        x = x + affine(f"h.{n}.attn.c_proj", y)
        y = F.gelu(affine(f"h.{n}.mlp.c_fc", norm(f"h.{n}.ln_2", x)), approximate="tanh")
        x = x + affine(f"h.{n}.mlp.c_proj", y)
    return norm("ln_f", x) @ w["wte.weight"].T


def llama(w: State, config: Mapping[str, Any], ids: Any) -> torch.Tensor:
    """Scores of the next tokens (Touvron et al., 2023)."""
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    length, size = ids.shape[1], config["hidden_size"] // config["num_attention_heads"]
    seen = torch.ones(length, length).tril().bool()
    rates = config["rope_theta"] ** (-torch.arange(0, size, 2) / size)
    angles = torch.arange(length)[:, None] * rates

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        square = x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]
        return x * square.rsqrt() * w[f"{name}.weight"]

    def turned(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    x = w["model.embed_tokens.weight"][ids]
    for n in range(config["num_hidden_layers"]):
        at = f"model.layers.{n}"
        y = norm(f"{at}.input_layernorm", x)
        q = turned(_heads(_linear(w, f"{at}.self_attn.q_proj", y), heads))
        k = turned(_heads(_linear(w, f"{at}.self_attn.k_proj", y), groups))
        v = _heads(_linear(w, f"{at}.self_attn.v_proj", y), groups)
        k, v = (part.repeat_interleave(heads // groups, 1) for part in (k, v))
        x = x + _linear(w, f"{at}.self_attn.o_proj", _attend(q, k, v, seen))
        y = norm(f"{at}.post_attention_layernorm", x)
        gate = F.silu(_linear(w, f"{at}.mlp.gate_proj", y))
        x = x + _linear(w, f"{at}.mlp.down_proj", gate * _linear(w, f"{at}.mlp.up_proj", y))
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return norm("model.norm", x) @ head.T
