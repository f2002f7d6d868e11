"""Encoder and decoder: masks, pooling, and texts that go on, the same on every backend."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import models, ops
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.models.generation import Choice
from ember_ml.ops.random import Generator

BACKENDS = ("numpy", "torch", "jax", "mlx")
SMALL = {
    "vocab_size": 23,
    "hidden_size": 8,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 12,
    "max_length": 32,
}
STYLES = {
    "llama": {"num_kv_heads": 1, "tied": False},
    "gpt": {
        "norm": "layer",
        "positions": "learned",
        "activation": "gelu_tanh",
        "bias": True,
        "tied": False,
        "dropout": 0.1,
    },
}
PROMPTS = np.asarray([[3, 1, 4], [1, 5, 9]])


def decoder(style: str, backend: str) -> models.Decoder:
    """A model with scores far enough apart that rounding changes no choice."""
    ops.random.set_seed(11)
    model: models.Decoder = models.DecoderConfig(**SMALL, **STYLES[style]).create(backend)  # type: ignore[arg-type]
    with em.no_grad():
        model.token_embedding.weight *= 50.0
    return model


class TestEncoder:
    def model(self, **options: Any) -> models.Encoder:
        ops.random.set_seed(0)
        return models.Encoder(**SMALL, **options).eval()

    def test_padding_changes_nothing(self, backend: str) -> None:
        model = self.model()
        with em.no_grad():
            masks = ([[1, 1, 1, 0, 0]], [[True, True, True, False, False]])
            found = [model([[3, 1, 4, n, n]], mask=m).numpy() for n, m in enumerate(masks)]
            np.testing.assert_allclose(found[0][:, :3], found[1][:, :3], rtol=1e-5, atol=1e-6)
            if backend == "numpy":
                short = model([[3, 1, 4]]).numpy()
                np.testing.assert_allclose(found[0][:, :3], short, rtol=1e-4, atol=1e-5)

    def test_pooling(self) -> None:
        with em.use_backend("numpy"), em.no_grad():
            model = self.model(pooler=True)
            tokens, mask = [[3, 1, 4], [1, 5, 9]], np.asarray([[1, 1, 0], [1, 1, 1]])
            hidden = model(tokens, mask)
            mean = model.encode(tokens, mask, normalize=False).numpy()
            np.testing.assert_allclose(mean[0], hidden.numpy()[0, :2].mean(0), rtol=1e-5)
            np.testing.assert_allclose(mean[1], hidden.numpy()[1].mean(0), rtol=1e-5)
            unit = model.encode(tokens, mask).numpy()
            np.testing.assert_allclose(np.sum(unit * unit, axis=1), [1.0, 1.0], rtol=1e-6)
            np.testing.assert_allclose(unit, mean / np.linalg.norm(mean, axis=1)[:, None], 1e-5)
            np.testing.assert_array_equal(
                model.pool(hidden, mask, "cls").numpy(), hidden.numpy()[:, 0]
            )
            np.testing.assert_allclose(
                model.pool(hidden).numpy(), hidden.numpy().mean(1), rtol=1e-5, atol=1e-7
            )
            # A text of no tokens gives zeros, and no NaN.
            assert model.pool(hidden, np.zeros((2, 3), int)).abs().max().item() == 0.0

    def test_types(self) -> None:
        with em.use_backend("numpy"), em.no_grad():
            model = self.model()
            same = model([[3, 1]]).numpy()
            np.testing.assert_array_equal(model([[3, 1]], token_types=[[0, 0]]).numpy(), same)
            assert np.abs(model([[3, 1]], token_types=[[0, 1]]).numpy() - same).max() > 1e-3
            with pytest.raises(DomainError, match="it has none"):
                self.model(type_vocab_size=0)([[3, 1]], token_types=[[0, 0]])

    def test_mistakes(self) -> None:
        with em.use_backend("numpy"):
            model = self.model()
            with pytest.raises(ShapeError, match=r"mask of shape \(1, 3\)"):
                model([[1, 2]], mask=[[1, 1, 1]])
            with pytest.raises(DTypeError, match="takes bool, or integers"):
                model([[1, 2]], mask=[[1.0, 0.0]])
            with pytest.raises(DomainError, match="has no pooler"):
                model.encode([[1, 2]], pooling="pooler")

    def test_dropout_is_of_training_alone(self) -> None:
        with em.use_backend("numpy"), em.no_grad():
            model = self.model()
            quiet = [model([[3, 1, 4]]).numpy() for _ in range(2)]
            np.testing.assert_array_equal(*quiet)
            model.train()
            loud = [model([[3, 1, 4]]).numpy() for _ in range(2)]
            assert np.abs(loud[0] - loud[1]).max() > 1e-3


class TestGreedy:
    @pytest.mark.parametrize("style", list(STYLES))
    def test_the_best_token_each_time(self, style: str) -> None:
        """Tokens with a cache are those of the whole text read anew, on every backend."""
        found = []
        for backend in BACKENDS:
            model = decoder(style, backend)
            tokens = model.generate(PROMPTS, 6)
            assert (tokens.shape, tokens.dtype.name, tokens.backend) == ((2, 9), "int64", backend)
            assert model.training  # as it was
            found.append(tokens.numpy())
        model = decoder(style, "numpy").eval()
        expected = PROMPTS
        for _ in range(6):
            with em.no_grad():
                scores = model(expected).numpy()[:, -1]
            expected = np.concatenate([expected, scores.argmax(-1)[:, None]], axis=1)
        for tokens in found:
            np.testing.assert_array_equal(tokens, expected)
        assert len(np.unique(expected[:, 3:])) > 2  # it is no model that says one thing

    @pytest.mark.parametrize("backend", ["numpy", "torch", "mlx"])
    def test_compiled_and_not(self, backend: str) -> None:
        model = decoder("llama", backend)
        plain = model.generate(PROMPTS, 4, jit=False).numpy()
        np.testing.assert_array_equal(model.generate(PROMPTS, 4, jit=True).numpy(), plain)

    def test_weights_that_change_are_seen(self) -> None:
        """A compiled step does not keep the weights that it was compiled with."""
        model = decoder("llama", "torch")
        model.generate(PROMPTS, 4, jit=True)
        with em.no_grad():
            model.token_embedding.weight[...] = model.token_embedding.weight[::-1].copy()
        np.testing.assert_array_equal(
            model.generate(PROMPTS, 4, jit=True).numpy(), model.generate(PROMPTS, 4).numpy()
        )

    def test_models_are_not_kept(self) -> None:
        model = decoder("llama", "torch")
        model.generate(PROMPTS, 2, jit=True)
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None

    @pytest.mark.parametrize("backend", ["numpy", "torch"])
    def test_one_text(self, backend: str) -> None:
        model = decoder("gpt", "numpy").to(backend=backend)
        alone = model.generate([3, 1, 4], 3, jit=False)
        assert alone.shape == (6,)
        assert alone.tolist() == model.generate([[3, 1, 4]], 3, jit=False).tolist()[0]
        assert model.generate([3, 1, 4], 0).tolist() == [3, 1, 4]

    def test_the_end(self) -> None:
        model = decoder("llama", "numpy")
        whole = model.generate(PROMPTS, 6).numpy()
        eos = int(whole[0, 4])
        found = model.generate(PROMPTS, 6, eos=eos).numpy()
        width = found.shape[1]
        for row, free in zip(found, whole, strict=True):
            new = list(free[3:])
            end = new.index(eos) + 1 if eos in new else len(new)
            np.testing.assert_array_equal(row[3 : 3 + end], free[3 : 3 + end][: width - 3])
            assert set(row[3 + end :]) <= {eos}
        alone = model.generate(PROMPTS[:1], 6, eos=eos)
        first = list(whole[0, 3:]).index(eos)
        assert alone.shape == (1, 3 + first + 1)  # it stops where all have ended
        assert alone[0, -1].item() == eos

    @pytest.mark.parametrize("style", list(STYLES))
    @pytest.mark.parametrize("jit", [False, True])
    def test_padding_before_shorter_texts(self, style: str, jit: bool) -> None:
        model = decoder(style, "torch")
        alone = model.generate([4, 7], 5).tolist()
        padded = model.generate(
            [[3, 1, 4], [0, 4, 7]], 5, mask=[[1, 1, 1], [0, 1, 1]], jit=jit
        ).tolist()
        assert padded[1][1:] == alone
        assert padded[0] == model.generate([3, 1, 4], 5).tolist()

    def test_long_texts(self) -> None:
        """Rotary positions go on; learned ones end."""
        model = decoder("llama", "numpy")
        assert model.generate([1], 80).shape == (81,)
        with pytest.raises(ShapeError, match=r"max_length=32\) has no places beyond"):
            decoder("gpt", "numpy").generate([1], 32)
        assert decoder("gpt", "numpy").generate([1], 31).shape == (32,)
        with pytest.raises(ShapeError, match="places beyond were not learned"):
            decoder("gpt", "numpy")(np.ones((1, 33), int))


class TestChance:
    def test_the_same_seed_gives_the_same_tokens(self) -> None:
        ways: list[dict[str, Any]] = [
            {"temperature": 1.0},
            {"temperature": 0.8, "top_k": 5},
            {"temperature": 1.5, "top_p": 0.7},
            {"temperature": 1.5, "top_k": 9, "top_p": 0.9},
        ]
        found: list[list[Any]] = []
        for backend in BACKENDS:
            model = decoder("llama", backend)
            found.append(
                [
                    model.generate(PROMPTS, 4, generator=Generator(n), jit=False, **way).tolist()
                    for n, way in enumerate(ways)
                ]
            )
        assert found[0] == found[1] == found[2] == found[3]
        assert len({str(tokens) for tokens in found[0]}) == len(ways)
        numpy = decoder("llama", "numpy")
        ops.random.set_seed(5)
        first = numpy.generate(PROMPTS, 6, temperature=2.0).tolist()
        assert numpy.generate(PROMPTS, 6, temperature=2.0).tolist() != first
        ops.random.set_seed(5)
        assert numpy.generate(PROMPTS, 6, temperature=2.0).tolist() == first

    def test_a_call_is_one_draw(self) -> None:
        """How many tokens came before the end changes nothing of what is drawn later."""
        model = decoder("llama", "numpy")
        for eos in (None, 3):
            generator = Generator(0)
            model.generate(PROMPTS, 6, temperature=1.0, generator=generator, eos=eos)
            assert generator.counter == 1

    def test_shares_are_the_probabilities(self, backend: str) -> None:
        scores = np.log(np.asarray([0.5, 0.1, 0.3, 0.1], np.float32))
        count = 2000
        rows = ops.broadcast_to(ops.asarray(scores), (count, 4))
        draws = ops.asarray(((np.arange(count) + 0.5) / count).astype(np.float32))

        def shares(**way: Any) -> list[float]:
            tokens = Choice(**way).pick(rows, draws).numpy()
            assert tokens.dtype == np.int64
            return [round(float(np.mean(tokens == n)), 2) for n in range(4)]

        assert shares(temperature=1.0) == [0.5, 0.1, 0.3, 0.1]
        assert shares(temperature=0.5) == pytest.approx([0.69, 0.03, 0.25, 0.03], abs=0.01)
        assert shares(temperature=1.0, top_k=2) == pytest.approx([0.62, 0, 0.38, 0], abs=0.01)
        # Equal tokens are told apart by their numbers.
        assert shares(temperature=1.0, top_k=3) == pytest.approx([0.56, 0.11, 0.33, 0], abs=0.01)
        assert shares(temperature=1.0, top_k=40) == [0.5, 0.1, 0.3, 0.1]
        assert shares(temperature=1.0, top_p=0.6) == pytest.approx([0.62, 0, 0.38, 0], abs=0.01)
        assert shares(temperature=1.0, top_p=0.45) == [1.0, 0.0, 0.0, 0.0]
        assert shares(temperature=1.0, top_p=1e-6) == [1.0, 0.0, 0.0, 0.0]
        assert shares(temperature=1.0, top_p=1.0) == [0.5, 0.1, 0.3, 0.1]

    def test_draws_at_the_ends(self, backend: str) -> None:
        """A draw of the largest float below one is a token that there is."""
        scores = ops.asarray(np.asarray([[0.0, 0.0, -200.0]] * 2, np.float32))
        draws = ops.asarray(np.asarray([0.0, np.nextafter(1.0, 0.0, dtype=np.float32)], np.float32))
        assert Choice(temperature=1.0).pick(scores, draws).tolist()[0] == 0
        assert Choice(temperature=1.0).pick(scores, draws).tolist()[1] in (1, 2)
        half = Choice(temperature=1.0, top_k=2).pick(scores.astype("float16"), draws)
        assert half.tolist() == [0, 1]

    def test_mistakes(self) -> None:
        model = decoder("llama", "numpy")
        for options, message in (
            ({"temperature": -1.0}, "temperature=-1.0"),
            ({"temperature": float("nan")}, "temperature=nan"),
            ({"top_k": 0}, "top_k=0"),
            ({"top_p": 0.0}, "top_p=0.0"),
            ({"top_p": 1.5}, "top_p=1.5"),
            ({"max_new_tokens": -1}, "max_new_tokens=-1"),
        ):
            with pytest.raises(DomainError, match=message):
                model.generate(PROMPTS, **options)  # type: ignore[arg-type]
        for tokens in (np.zeros((1, 0), int), np.zeros((1, 1, 1), int), [[0.5]], 3):
            with pytest.raises(ShapeError, match="it takes integers of shape"):
                model.generate(tokens, 2)  # type: ignore[arg-type]
        with pytest.raises(ShapeError, match="True at its last token"):
            model.generate(PROMPTS, 2, mask=[[1, 1, 0], [1, 1, 1]])


def test_causal(backend: str) -> None:
    """A later token changes no earlier score."""
    model = decoder("llama", backend).eval()
    with em.no_grad():
        a = model([[3, 1, 4, 1]]).numpy()
        b = model([[3, 1, 4, 9]]).numpy()
    np.testing.assert_allclose(a[:, :3], b[:, :3], rtol=1e-5, atol=1e-6)
    assert np.abs(a[:, 3] - b[:, 3]).max() > 1e-3
