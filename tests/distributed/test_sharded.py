"""Sharded data parallel training: the same as in one process, with a part of the memory."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.distributed.strategy import (
    ShardedDataParallelStrategy,
    sharded_keeping,
    sharded_modules,
)
from ember_ml.distributed.strategy.sharded_layout import Layout, gathered
from ember_ml.errors import DomainError, DTypeError, GradientError, NaNLossError, ShapeError
from tests.distributed import jobs

# 20 steps: two epochs of ten, the last batch of each with 3 rows for up to 3 ranks.
ROWS, SIZE = 9 * 16 + 3, 16


def data(rows: int = ROWS) -> tuple[Any, Any]:
    generator = np.random.default_rng(7)
    x = generator.normal(size=(rows, 6)).astype(np.float32)
    y = (x[:, :1] * 2.0 - x[:, 1:2] + 0.5).astype(np.float32)
    return x, y


class Reader(nn.Module):
    """Reads the weight of another module, which nobody calls."""

    def __init__(self, inner: nn.Module) -> None:
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return x @ ops.matrix_transpose(self.inner.weight)


class Odd(nn.Module):
    """Parameters in lists, without an axis, frozen, tied, read by others, and of odd sizes."""

    def __init__(self) -> None:
        self.first = nn.Linear(6, 5, bias=False)
        self.again = nn.Linear(6, 5, bias=False)
        self.again.weight = self.first.weight
        self.scale = nn.Parameter(1.25)
        self.offsets = [nn.Parameter(ops.ones(3)), nn.Parameter(ops.zeros((1, 5)))]
        self.fixed = nn.Linear(5, 5).freeze()
        self.reader = Reader(nn.Linear(5, 7, bias=False))
        # No bias whose gradient is zero but for rounding, which Adam would enlarge.
        self.attention = nn.MultiHeadAttention(8, 2, bias=False)
        self.recurrent = nn.GRU(2, 3, batch_first=True)
        self.body = nn.Sequential(
            nn.Linear(7, 8, bias=False), nn.BatchNorm(8), nn.Tanh(), nn.Residual(nn.Linear(8, 8))
        )
        self.last = nn.Linear(8 + 6, 1)

    def forward(self, x: Any) -> Any:
        h = self.first(x) + 0.5 * self.again(x[:, ::-1])
        h = h * self.scale + self.offsets[1] + ops.mean(self.offsets[0])
        h = self.reader(ops.tanh(h + self.fixed(h)))
        # The weights of a module after it has been called.
        back = ops.tanh(h[:, :5] @ self.first.weight)
        found = self.recurrent(ops.reshape(x, (-1, 3, 2)))
        steps = found[0] if isinstance(found, tuple) else found
        h = self.body(h) + ops.sum(steps, axis=(1, 2))[:, None] * 0.1
        tokens = ops.reshape(ops.concat([h, h * 0.5], axis=-1), (-1, 2, 8))
        mixed = self.attention(tokens, tokens, tokens)
        mixed = mixed[0] if isinstance(mixed, tuple) else mixed
        return self.last(ops.concat([ops.mean(mixed, axis=1), back], axis=-1))


def small() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 30, bias=False),
        nn.BatchNorm(30),
        nn.Tanh(),
        nn.Linear(30, 30),
        nn.Linear(30, 1),
    )


def model_of(kind: str, seed: int) -> nn.Module:
    ops.random.set_seed(seed)
    return Odd() if kind == "odd" else small()


def penalized(model: Any, batch: Any) -> Any:
    """A step that reads parameters itself."""
    x, y = batch
    loss = ops.mean((model(x) - y) ** 2)
    weights = ops.sum(model.last.weight**2)
    for p in model.reader.parameters():
        weights = weights + ops.sum(p * p)
    return loss + 0.01 * weights, {"weights": weights}


def trained(strategy: Any, seed: int, case: dict[str, Any]) -> dict[str, Any]:
    options = dict(case)
    model = model_of(options.pop("model", "odd"), seed)
    own_step, folder = options.pop("own_step", False), options.pop("folder", None)
    dtype, resume = options.pop("dtype", "float32"), options.pop("resume", None)
    epochs = options.pop("epochs", 2)
    if "precision" in options:
        # With a larger factor, gradients of a whole batch overflow where those of parts do not.
        scaler = training.LossScaler(64.0)
        options["precision"] = training.MixedPrecision(options["precision"], scaler)
    model.to(dtype=dtype)
    x, y = (ops.asarray(one, dtype=dtype) for one in data())
    optimizer = getattr(training, options.pop("optimizer", "AdamW"))(model, lr=0.01)
    loss = {"step": penalized} if own_step else {"loss": "mse", "metrics": ["mae"]}
    callbacks = [] if folder is None else [training.Checkpoint(folder)]
    trainer = training.Trainer(
        model, optimizer, strategy=strategy, callbacks=callbacks, **loss, **options
    )
    history = trainer.fit(
        training.DataLoader((x, y), SIZE, shuffle=True, seed=3 if strategy is None else seed),
        epochs=epochs,
        validation=(x[:21], y[:21]),
        resume=resume,
        verbose=0,
    )
    state = optimizer.state_dict()["state"]
    predicted = None if own_step else plain(trainer.predict(x[:7], batch_size=3))
    return {
        "weights": {key: plain(one) for key, one in model.state_dict().items()},
        "state": {f"{key}.{k}": plain(v) for key, one in state.items() for k, v in one.items()},
        "dtypes": sorted({one.dtype.name for one in model.parameters()}),
        "history": {
            key: list(history[key])
            for key in ("loss", "val_loss", "weights", "mae")
            if key in list(history)
        },
        "predicted": predicted,
        "steps": optimizer.steps,
    }


def plain(x: Any) -> Any:
    return x.detach().astype("float32").numpy()


class Looking(training.Callback):
    """Counts the bytes that a rank keeps between steps, and uses the model on the way."""

    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy
        self.found: dict[str, Any] = {}

    def on_step_end(self, trainer: Any, logs: Any) -> None:
        if trainer.step != 2:
            return
        model, slots = trainer.model, [one for group in trainer.optimizer._slots for one in group]
        kept = [x for slot in slots for x in (slot.state or {}).values()]
        self.found["weights"] = sum(x.nbytes for x in model.parameters())
        self.found["memory"] = sum(x.nbytes for x in kept)
        self.found["shapes"] = {name: list(x.shape) for name, x in model.state_dict().items()}
        model.eval()
        x = ops.asarray(data()[0][:4])
        self.found["called"] = [list(model(x).shape), list(model[0](x).shape)]
        model.train()
        before = {name: plain(x) for name, x in model.state_dict().items()}
        model.load_state_dict(before)
        after = model.state_dict()
        assert all(np.array_equal(plain(after[name]), before[name]) for name in before)
        with pytest.raises(ShapeError, match="load_state_dict: nothing was loaded"):
            model.load_state_dict({**before, "3.weight": np.ones((2, 2), np.float32)})
        trainer.optimizer.load_state_dict(trainer.optimizer.state_dict())
        assert isinstance(model, nn.Sequential)
        if model[0].weight.backend == "jax":
            import jax

            array = self.strategy.global_arrays(model)["3.weight"]
            assert array.shape == (900,)
            assert array.sharding.spec == jax.sharding.PartitionSpec("ranks")
            assert [one.data.shape for one in array.addressable_shards] == [(450,)]
        else:
            with pytest.raises(DomainError, match="takes a model on JAX"):
                self.strategy.global_arrays(model)


def looked_at(strategy: Any) -> dict[str, Any]:
    model, looking = model_of("small", 3), Looking(strategy)
    optimizer = training.Adam(model, lr=0.01)
    trainer = training.Trainer(model, optimizer, "mse", strategy=strategy, callbacks=[looking])
    trainer.fit(training.DataLoader(data(48), SIZE), verbose=0)
    assert type(model) is nn.Sequential
    assert type(optimizer) is training.Adam
    return {**looking.found, "whole": sum(x.nbytes for x in model.parameters())}


def refused(strategy: Any, rank: int) -> None:
    """A value of one rank that is not finite stops all of them, with whole weights."""
    x, y = data(32)
    x[17] = np.nan
    model = model_of("small", 3)
    before = {name: plain(one) for name, one in model.state_dict().items()}
    trainer = training.Trainer(model, training.SGD(model, 0.0), "mse", strategy=strategy)
    with pytest.raises(NaNLossError, match="step 2"):
        trainer.fit(training.DataLoader((x, y), SIZE), verbose=0)
    for name in ("0.weight", "3.bias"):
        np.testing.assert_array_equal(plain(model.state_dict()[name]), before[name])
    # As in one process.
    lazy = Lazy()
    trainer = training.Trainer(lazy, training.SGD(lazy, 0.1), "mse", strategy=strategy)
    with pytest.raises(GradientError, match=r"does not depend on .*idle\.weight"):
        trainer.fit(training.DataLoader(data(32), SIZE), verbose=0)


class Lazy(nn.Module):
    """A model with a layer that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(6, 1), nn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        return self.used(x)


def twice(strategy: Any) -> dict[str, Any]:
    """Two runs and an evaluation between them, of a model that may stay divided."""
    model = model_of("small", 3)
    trainer = training.Trainer(model, training.Adam(model, lr=0.01), "mse", strategy=strategy)
    trainer.fit(training.DataLoader(data(48), SIZE), verbose=0)
    kept = sum(x.nbytes for x in model.parameters())
    loss = trainer.evaluate(data(21))["loss"]
    trainer.fit(training.DataLoader(data(48), SIZE), verbose=0)
    weights = {name: plain(x) for name, x in model.state_dict().items()}
    return {"kept": kept, "loss": loss, "weights": weights}


# On the compiled engines, each case is compiled anew: one is to be enough.
CASES: dict[str, list[dict[str, Any]]] = {
    "full": [
        {},
        {"accumulate": 3, "clip_norm": 0.5},
        {"own_step": True, "optimizer": "RMSprop"},
        {"model": "small", "dtype": "bfloat16", "optimizer": "SGD", "epochs": 1},
        {"model": "small", "precision": "float16", "optimizer": "SGD", "epochs": 1},
    ],
    "one": [{}],
    "compiled": [{"model": "small", "clip_norm": 0.5}],
}
TOLERANCES = {"bfloat16": 2e-2, "float16": 2e-3}


def train_job(kind: str, folder: str) -> dict[str, Any]:
    """Every case in one job; ranks begin with other weights and other orders of the data."""
    strategy = ShardedDataParallelStrategy()
    rank = em.distributed.initialize().rank
    found: dict[str, Any] = {"cases": [trained(strategy, 3 + rank, one) for one in CASES[kind]]}
    if kind == "one":
        found["twice"] = twice(ShardedDataParallelStrategy(keep_sharded=True))
    else:
        found["seen"] = looked_at(strategy)
    if kind == "full":
        refused(strategy, rank)
        trained(strategy, 3 + rank, {"epochs": 1, "folder": folder})
        found["resumed"] = trained(strategy, 3 + rank, {"resume": folder})
    return found


@pytest.mark.parametrize(
    ("backend", "ranks", "kind"),
    [
        ("numpy", 2, "full"),
        ("numpy", 3, "one"),
        ("torch", 2, "full"),
        ("torch", 3, "one"),
        ("jax", 2, "compiled"),
        ("mlx", 2, "compiled"),
    ],
)
def test_training_gives_what_one_process_gives(
    backend: str, ranks: int, kind: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "saved")
    # One process first: MLX keeps the kernels that it compiles, and ranks would all compile them.
    with em.use_backend(backend):
        expected = [trained(None, 3, case) for case in CASES[kind]]
    found = [one.value for one in jobs.run(train_job, ranks, backend, [kind, folder], limit=400)]
    for one in found:
        for case, wanted, got in zip(CASES[kind], expected, one["cases"], strict=True):
            require_same(case, wanted, got)
    for case in zip(*[one["cases"] for one in found], strict=True):
        for name, value in case[0]["weights"].items():
            for other in case[1:]:
                np.testing.assert_array_equal(other["weights"][name], value, err_msg=name)
    if kind == "one":
        with em.use_backend(backend):
            wanted = twice(None)
        for one in [rank["twice"] for rank in found]:
            assert one["kept"] <= wanted["kept"] / ranks * 1.06
            assert one["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
            for name, value in wanted["weights"].items():
                np.testing.assert_allclose(one["weights"][name], value, rtol=0, atol=1e-5)
    else:
        require_share([one["seen"] for one in found], ranks)
    if kind == "full":
        for one in found:
            require_same({}, expected[0], one["resumed"])
        # What ranks have saved, one process takes up.
        with em.use_backend(backend):
            require_same({}, expected[0], trained(None, 3, {"resume": folder + "/step-00000010"}))


def require_same(case: dict[str, Any], wanted: dict[str, Any], got: dict[str, Any]) -> None:
    half = case.get("dtype") or case.get("precision") or ""
    atol = TOLERANCES.get(half, 1e-5)
    for part in ("weights", "state"):
        assert set(got[part]) == set(wanted[part])
        for name, value in wanted[part].items():
            assert got[part][name].shape == value.shape
            np.testing.assert_allclose(got[part][name], value, rtol=0, atol=atol, err_msg=name)
    for name, values in wanted["history"].items():
        np.testing.assert_allclose(got["history"][name], values, rtol=10 * atol, err_msg=name)
    assert (wanted["predicted"] is None) == (got["predicted"] is None)
    if wanted["predicted"] is not None:
        np.testing.assert_allclose(got["predicted"], wanted["predicted"], rtol=0, atol=2 * atol)
    assert (got["steps"], got["dtypes"]) == (wanted["steps"], wanted["dtypes"])


def require_share(seen: list[dict[str, Any]], ranks: int) -> None:
    """Each rank keeps its share; parts that are filled up, and rows, leave little beside it."""
    whole = seen[0]["whole"]
    for one in seen:
        assert one["weights"] <= whole / ranks * 1.05
        assert one["memory"] <= 2 * whole / ranks * 1.05 + 64
        assert one["shapes"] == {
            "0.weight": [30, 6],
            "1.weight": [30],
            "1.bias": [30],
            "1.running_mean": [30],
            "1.running_var": [30],
            "1.num_batches_tracked": [],
            "3.weight": [30, 30],
            "3.bias": [30],
            "4.weight": [1, 30],
            "4.bias": [1],
        }
        assert one["called"] == [[4, 1], [4, 30]]
    assert sum(one["weights"] for one in seen) >= whole


@pytest.mark.parametrize("name", ["Muon", "LAMB", "Adafactor"])
def test_optimizers_of_whole_matrices_are_refused(name: str) -> None:
    model = nn.Sequential(nn.Linear(4, 3, bias=False))
    optimizer = getattr(training, name)(model, lr=0.1)
    strategy = ShardedDataParallelStrategy()
    trainer = training.Trainer(model, optimizer, "mse", strategy=strategy)
    with pytest.raises(DTypeError, match=f"got {name}, whose update needs whole tensors"):
        trainer.fit((ops.ones((2, 4)), ops.ones((2, 3))), verbose=0)


def test_one_process_keeps_all_of_it() -> None:
    model = nn.Linear(6, 1)
    strategy = ShardedDataParallelStrategy()
    trainer = training.Trainer(model, training.Adam(model), "mse", strategy=strategy)
    history = trainer.fit(data(16), verbose=0)
    assert np.isfinite(history["loss"]).all()
    assert type(model) is nn.Linear


def test_whole_weights_are_let_go_when_a_layer_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """On NumPy, neither the model nor the record holds them; the walk back gathers them again."""
    made: list[Any] = []

    def recording(*args: Any) -> Any:
        found = gathered(*args)
        made.extend(weakref.ref(_root(one.native)) for one in found if one.size > 1000)
        return found

    monkeypatch.setattr(sharded_modules, "gathered", recording)
    monkeypatch.setattr(sharded_keeping, "gathered", recording)
    alive: list[int] = []
    with em.use_backend("numpy"):
        alone = em.distributed.Communicator(em.distributed.World(), "numpy")
        model = nn.Sequential(*[nn.Linear(40, 40) for _ in range(4)])
        x = ops.random.normal((3, 40))
        model[1].register_forward_hook(
            lambda *_: alive.append(sum(one() is not None for one in made))
        )
        wanted, grads = em.value_and_grad(lambda m: ops.sum(m(x) ** 2))(model)
        expected = [g.numpy() for g in grads.parameters()]
        alive.clear()
        sharded_modules.shard(model, alone)
        with sharded_modules.scope() as gathering:

            def loss_of(m: Any) -> Any:
                with gathering.call(None), sharded_keeping.regathering(gathering, alone):
                    loss = ops.sum(m(x) ** 2)
                    alive.append(sum(one() is not None for one in made))
                    return loss

            value, parts = em.value_and_grad(loss_of)(model)
    # The second layer while it runs, and none when all have run.
    assert alive == [1, 0]
    assert len(made) == 2 * 4  # forth and back
    assert value.item() == pytest.approx(wanted.item(), rel=1e-6)
    for g, one in zip(parts.parameters(), expected, strict=True):
        np.testing.assert_allclose(g.numpy().reshape(one.shape), one, rtol=1e-5)


def _root(array: Any) -> Any:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (7, 3), (2, 0), (1, 4)])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("by_rows", [False, True])
def test_parts_are_all_of_a_tensor(shape: tuple[int, ...], ranks: int, by_rows: bool) -> None:
    layout = Layout(shape, ranks, by_rows)
    count = int(np.prod(shape))
    x = ops.reshape(ops.arange(count, dtype="float32") + 1.0, shape)
    parts = [layout.part(x, rank) for rank in range(ranks)]
    assert [part.shape for part in parts] == [layout.part_shape(rank) for rank in range(ranks)]
    rows = ops.stack([layout.row(part) for part in parts])
    assert rows.shape == (ranks, layout.length)
    whole = layout.whole(rows)
    assert whole.shape == shape
    np.testing.assert_array_equal(whole.numpy(), x.numpy())
    np.testing.assert_array_equal(layout.rows(x).numpy(), rows.numpy())
    spans = [layout.span(rank) for rank in range(ranks)]
    flat = x.numpy().reshape(-1)
    for part, (first, last) in zip(parts, spans, strict=True):
        np.testing.assert_array_equal(part.numpy().reshape(-1)[: last - first], flat[first:last])
        assert not part.numpy().reshape(-1)[last - first :].any()
    assert [span[0] for span in spans[1:]] == [span[1] for span in spans[:-1]]
    assert (spans[0][0], spans[-1][1]) == (0, count)
