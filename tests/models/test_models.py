"""What every model does, once over all of them; and the small models against torch."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import models, ops, registry
from ember_ml.errors import DomainError, ShapeError

torch = pytest.importorskip("torch")

TINY_TEXT = {"vocab_size": 13, "hidden_size": 8, "num_layers": 1, "num_heads": 2, "max_length": 16}


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


TOKENS = np.random.default_rng(0).integers(1, 13, (2, 5))

# path of the registry: options, an input, the shape of the result for a batch of two
CASES: dict[str, list[tuple[dict[str, Any], Any, tuple[int, ...]]]] = {
    "models/mlp": [
        ({"in_features": 4, "hidden": (5, 3), "out_features": 2}, numbers(2, 4), (2, 2)),
        ({"in_features": 4, "norm": "layer", "activation": "gelu"}, numbers(2, 4), (2, 1)),
        ({"in_features": 4, "norm": "batch", "dropout": 0.5}, numbers(2, 4), (2, 1)),
    ],
    "models/cnn": [
        ({"channels": (3, 4), "out_features": 5}, numbers(2, 1, 8, 8), (2, 5)),
        (
            {"channels": (3,), "norm": False, "pooling": "avg", "grid": 2, "in_channels": 2},
            numbers(2, 2, 8, 8),
            (2, 10),
        ),
    ],
    "models/resnet18": [
        (
            {"width": 2, "blocks": (1, 1, 1, 1), "num_classes": 3, "stem": "small"},
            numbers(2, 3, 8, 8),
            (2, 3),
        ),
    ],
    "models/encoder": [
        ({**TINY_TEXT, "intermediate_size": 12}, TOKENS, (2, 5, 8)),
        ({**TINY_TEXT, "intermediate_size": 12, "norm_first": True}, TOKENS, (2, 5, 8)),
    ],
    "models/decoder": [
        ({**TINY_TEXT, "intermediate_size": 12, "num_kv_heads": 1}, TOKENS, (2, 5, 13)),
        (
            {
                **TINY_TEXT,
                "intermediate_size": 12,
                "norm": "layer",
                "positions": "learned",
                "activation": "gelu_tanh",
                "bias": True,
                "tied": False,
                "dropout": 0.1,
            },
            TOKENS,
            (2, 5, 13),
        ),
    ],
    "models/forecaster": [
        ({"features": 2, "hidden_size": 4, "horizon": 3}, numbers(2, 5, 2), (2, 3, 2)),
        (
            {"features": 2, "hidden_size": 4, "cell": "lstm", "targets": 1, "residual": False},
            numbers(2, 5, 2),
            (2, 1, 1),
        ),
    ],
    "models/autoencoder": [
        (
            {"input_shape": (6,), "hidden": (5,), "code_size": 2, "output_activation": "sigmoid"},
            numbers(2, 6),
            (2, 6),
        ),
        (
            {"kind": "conv", "input_shape": (1, 8, 8), "hidden": (2, 3), "code_size": 2},
            numbers(2, 1, 8, 8),
            (2, 1, 8, 8),
        ),
    ],
    "models/rbm": [({"visible": 6, "hidden": 3}, (numbers(2, 6) > 0).astype(np.float32), (2, 3))],
}
ALL = [(path, *case) for path, cases in CASES.items() for case in cases]
IDS = [f"{path.partition('/')[2]}-{n}" for path, cases in CASES.items() for n in range(len(cases))]


def test_every_model_has_a_case() -> None:
    own = registry.default._modules  # others may have registered theirs
    assert set(CASES) == {path for path in own if path.startswith("models/")}


def loss_of(model: Any, x: Any) -> em.Tensor:
    """A number that depends on every parameter."""
    return ops.mean(model.free_energy(x) if isinstance(model, models.RBM) else model(x) ** 2)


def run(function: Any, backend: str, *args: Any) -> Any:
    """A call, compiled on JAX: that takes one program, where each op of its own takes one else."""
    with em.use_backend(backend):
        return (em.jit(function) if backend == "jax" else function)(*args)


@pytest.mark.parametrize(("path", "options", "x", "shape"), ALL, ids=IDS)
def test_the_same_values_on_every_backend(
    path: str, options: dict[str, Any], x: Any, shape: tuple[int, ...]
) -> None:
    """The same seed gives the same weights and results; gradients reach every parameter."""
    found: dict[str, Any] = {}

    def both(model: Any) -> Any:
        return model(x), em.value_and_grad(lambda m: loss_of(m, x))(model)

    def forward(model: Any) -> Any:
        return model(x)

    for backend in ("numpy", "torch", "jax", "mlx"):
        ops.random.set_seed(3)
        model = registry.create(path, backend_context=backend, **options).eval()
        assert {p.backend for p in model.parameters()} == {backend}
        if backend == "jax" and options is not CASES[path][0][0]:
            # A gradient takes seconds to compile there; the first case of each model has it.
            np.testing.assert_allclose(
                run(forward, backend, model).detach().numpy(), found["y"], rtol=2e-4, atol=2e-5
            )
            continue
        y, (loss, grads) = run(both, backend, model)
        y = y.detach()
        assert (y.shape, y.dtype.name, y.backend) == (shape, "float32", backend)
        kept = {name: g.numpy() for name, g in grads.named_parameters()}
        if backend == "numpy":
            found = {"y": y.numpy(), "loss": loss.item(), "grads": kept}
            continue
        np.testing.assert_allclose(y.numpy(), found["y"], rtol=2e-4, atol=2e-5)
        assert loss.item() == pytest.approx(found["loss"], rel=1e-4)
        assert set(kept) == set(found["grads"])
        for name, grad in kept.items():
            np.testing.assert_allclose(
                grad, found["grads"][name], rtol=2e-3, atol=2e-5, err_msg=name
            )


@pytest.mark.parametrize(("path", "options", "x", "shape"), ALL, ids=IDS)
def test_config_and_files(
    path: str, options: dict[str, Any], x: Any, shape: tuple[int, ...], tmp_path: Path
) -> None:
    config = registry.get(path)(**options)
    assert registry.from_dict(json.loads(json.dumps(registry.to_dict(config)))) == config
    with em.use_backend("numpy"):
        model = config.create().eval()
        y = model(x).numpy()
        kind = type(model)
        assert type(kind.from_config(json.loads(json.dumps(model.get_config())))) is kind
        assert kind(**options).config == config
        em.save(tmp_path / "model.safetensors", model)
        for other in (
            em.load(tmp_path / "model.safetensors"),
            copy.deepcopy(model),
            pickle.loads(pickle.dumps(model)),
        ):
            assert type(other) is kind
            assert other.config == config
            np.testing.assert_array_equal(other.eval()(x).numpy(), y)
        model.save_pretrained(tmp_path / "folder")
        again = models.from_pretrained(tmp_path / "folder")
        assert type(again) is kind
        assert (again.load_report.missing, again.load_report.unused) == ((), ())
        np.testing.assert_array_equal(again(x).numpy(), y)
    moved = again.to(backend="torch")
    np.testing.assert_allclose(moved(x).detach().numpy(), y, rtol=2e-4, atol=2e-5)
    assert not moved.training


@pytest.mark.parametrize("path", list(CASES))
def test_compiled(path: str) -> None:
    """JAX runs every case above compiled; MLX would take a C++ compiler for each kernel."""
    options, x, _ = CASES[path][0]
    for backend in ("torch", "mlx") if path == "models/mlp" else ("torch",):
        model = registry.create(path, backend_context=backend, **options).eval()
        with em.use_backend(backend), em.no_grad():
            step = em.jit(lambda x: model(x), state=[model])  # noqa: B023 - called at once
            np.testing.assert_allclose(step(x).numpy(), model(x).numpy(), rtol=2e-4, atol=2e-5)


# On JAX, a dtype and a shape are programs of their own, which take seconds to compile.
HALF = [(path, b) for path in CASES for b in ("numpy", "torch", "mlx")]
HALF += [("models/mlp", "jax"), ("models/decoder", "jax")]


@pytest.mark.parametrize(("path", "backend"), HALF)
def test_half_precision_and_no_rows(path: str, backend: str) -> None:
    options, x, shape = CASES[path][0]
    with em.use_backend(backend), em.no_grad():
        model = registry.create(path, **options).eval()
        given = ops.asarray(x)
        whole = run(model, backend, given).numpy()
        if (path, backend) != ("models/decoder", "jax"):
            assert run(model, backend, given[:0]).shape == (0, *shape[1:])
        model.to(dtype="float16")
        y = run(model, backend, given.astype("float16") if given.dtype.is_floating else given)
    assert y.dtype.name == "float16"
    np.testing.assert_allclose(y.numpy().astype(np.float32), whole, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("path", [path for path in CASES if path != "models/rbm"])
def test_training_lowers_a_loss(path: str) -> None:
    """A few plain steps on one batch, on NumPy's own tape."""
    options, x, shape = CASES[path][0]
    ops.random.set_seed(0)
    with em.use_backend("numpy"):
        model = registry.create(path, **options)
        target = ops.asarray(np.abs(numbers(*shape, seed=1)) * 0.5)

        def loss(m: Any) -> em.Tensor:
            return ops.mean((m(x) - target) ** 2)

        losses = []
        for _ in range(12):
            value, grads = em.value_and_grad(loss)(model)
            losses.append(value.item())
            with em.no_grad():
                for p, g in zip(model.parameters(), grads.parameters(), strict=True):
                    p -= 0.05 * g
    assert losses[-1] < losses[0]


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("models/mlp", {"norm": "rms"}, "norm='rms'"),
    ("models/cnn", {"pooling": "sum"}, "'max' or 'avg'"),
    ("models/cnn", {"kernel_size": 2}, "odd"),
    ("models/cnn", {"channels": ()}, "no channels"),
    ("models/resnet18", {"stem": "big"}, "'imagenet' or 'small'"),
    ("models/resnet18", {"blocks": (1, 1)}, "four stages"),
    ("models/encoder", {"positions": "rotary"}, "'absolute' or 'roberta'"),
    ("models/encoder", {"pooling": "max"}, "'mean', 'cls' or 'pooler'"),
    ("models/encoder", {"pooling": "pooler"}, "has no pooler"),
    ("models/decoder", {"norm": "batch"}, "'rms' or 'layer'"),
    ("models/decoder", {"positions": "none"}, "'rotary' or 'learned'"),
    ("models/decoder", {"activation": "nothing"}, "activation='nothing'"),
    ("models/forecaster", {"cell": "cnn"}, "cell='cnn'"),
    ("models/forecaster", {"targets": 3}, "targets=3"),
    ("models/autoencoder", {"kind": "sparse"}, "'dense' or 'conv'"),
    ("models/autoencoder", {"input_shape": (2, 2)}, r"\(features,\)"),
    ("models/autoencoder", {"kind": "conv", "input_shape": (1, 7, 7)}, "divisible by 2"),
]


@pytest.mark.parametrize(("path", "options", "message"), MISTAKES)
def test_options_that_make_no_model(path: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DomainError, match=message):
        registry.create(path, backend_context="numpy", **options)


INPUTS: list[tuple[str, Any, str]] = [
    ("models/mlp", numbers(2, 3), r"Linear\(in_features=4.*\(2, 3\)"),
    ("models/cnn", numbers(2, 2, 8, 8), r"Conv2d\(.*\(2, 2, 8, 8\)"),
    ("models/resnet18", numbers(2, 1, 8, 8), r"Conv2d\(.*\(2, 1, 8, 8\)"),
    ("models/encoder", TOKENS[0], r"\(5,\) and .*int64; it takes integers of shape \(batch"),
    ("models/encoder", np.ones((1, 17), int), "cut the texts to 16"),
    ("models/decoder", numbers(2, 3), r"float32; it takes integers"),
    ("models/forecaster", numbers(2, 5, 3), r"features=2\) got shape \(2, 5, 3\)"),
    ("models/autoencoder", numbers(2, 5), r"input_shape=\(6,\)\) got shape \(2, 5\)"),
    ("models/rbm", numbers(2, 5), r"visible=6\) got visible units of shape \(2, 5\)"),
]


@pytest.mark.parametrize(("path", "x", "message"), INPUTS)
def test_inputs_that_do_not_fit(path: str, x: Any, message: str) -> None:
    model = registry.create(path, backend_context="numpy", **CASES[path][0][0])
    with pytest.raises(ShapeError, match=message):
        model(ops.asarray(x))


# --- Against plain torch ------------------------------------------------------------------------

# That the other backends agree is shown above, once for all models.
TWO = pytest.mark.parametrize("backend", ["numpy", "torch"])


def loaded(twin: Any, model: Any) -> None:
    """Give a model the weights of its twin, whose names are the same."""
    model.load_state_dict({name: x.detach().numpy() for name, x in twin.state_dict().items()})


@TWO
def test_mlp_is_torch(backend: str) -> None:
    nn = torch.nn
    twin = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 2))
    model = models.MLP(in_features=4, hidden=(5, 3), out_features=2, activation="tanh").to(
        backend=backend
    )
    state = {
        name.replace(str(2 * n), f"layers.{n}", 1): x.detach().numpy()
        for n in range(3)
        for name, x in twin.state_dict().items()
        if name.startswith(f"{2 * n}.")
    }
    model.load_state_dict(state)
    x = numbers(3, 4)
    np.testing.assert_allclose(
        model(x).detach().numpy(), twin(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6
    )


class TorchBlock(torch.nn.Module):  # type: ignore[misc]  # torch may be absent where this is checked
    """The basic block of He et al. (2015), as torchvision names its parts."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        nn = torch.nn
        self.conv1 = nn.Conv2d(a, b, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(b)
        self.conv2 = nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(b)
        if stride != 1 or a != b:
            self.downsample = nn.Sequential(
                nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b)
            )

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class TorchResNet18(torch.nn.Module):  # type: ignore[misc]  # as above
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        nn = torch.nn
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        last = width
        for stage in range(4):
            size = width * 2**stage
            first = TorchBlock(last, size, 1 if stage == 0 else 2)
            setattr(self, f"layer{stage + 1}", nn.Sequential(first, TorchBlock(size, size, 1)))
            last = size
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(last, classes)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


def test_resnet18_is_torchvision(backend: str) -> None:
    """Names, values, gradients and running statistics are those of torchvision's resnet18."""
    torch.manual_seed(0)
    twin = TorchResNet18(4, 3)
    model = models.ResNet(width=4, num_classes=3)
    assert list(model.state_dict()) == list(twin.state_dict())
    loaded(twin, model)
    x = numbers(2, 3, 32, 32)
    given = torch.tensor(x)
    # In use, JAX is compared above: it would compile all of it once more.
    for training in (True,) if backend == "jax" else (True, False):
        twin.train(training)
        model.train(training)
        theirs = twin(given)
        ours = em.jit(lambda x: model(x), state=[model])(x) if backend == "jax" else model(x)
        np.testing.assert_allclose(
            ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-3, atol=1e-4
        )
    for name, value in twin.named_buffers():
        np.testing.assert_allclose(
            dict(model.named_buffers())[name].numpy(), value.numpy(), rtol=1e-4, atol=1e-6
        )
    if backend in ("numpy", "torch"):  # where it takes no seconds to compile
        (theirs**2).sum().backward()
        _, grads = em.value_and_grad(lambda m: ops.sum(m(x) ** 2))(model)
        for name, p in twin.named_parameters():
            ours = dict(grads.named_parameters())[name].numpy()
            scale = float(p.grad.abs().max())
            np.testing.assert_allclose(ours, p.grad.numpy(), rtol=1e-3, atol=1e-4 * scale)


def test_resnet18_has_the_size_of_the_original() -> None:
    with em.use_backend("numpy"):
        model = models.ResNet()
    assert model.num_parameters() == 11_689_512
    assert model.get_parameter("layer4.0.downsample.0.weight").shape == (512, 256, 1, 1)


@TWO
def test_cnn_is_torch(backend: str) -> None:
    nn = torch.nn
    torch.manual_seed(0)
    parts: list[Any] = []
    for a, b in ((1, 3), (3, 4)):
        parts += [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        parts += [nn.MaxPool2d(2)]
    twin = nn.Sequential(*parts, nn.Flatten(), nn.Linear(16, 5))
    model = models.CNN(channels=(3, 4), out_features=5, grid=2).to(backend=backend)
    names = {"0": "convolutions.0", "1": "norms.0", "4": "convolutions.1", "5": "norms.1"}
    names["9"] = "head"
    model.load_state_dict(
        {
            f"{names[name.partition('.')[0]]}.{name.partition('.')[2]}": x.numpy()
            for name, x in twin.state_dict().items()
        }
    )
    x = numbers(2, 1, 8, 8)
    np.testing.assert_allclose(
        model(x).detach().numpy(), twin(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5
    )


@TWO
@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_forecaster_is_torch(backend: str, cell: str) -> None:
    torch.manual_seed(0)
    kind = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM, "rnn": torch.nn.RNN}[cell]
    rnn, head = kind(2, 4, batch_first=True), torch.nn.Linear(4, 6)
    model = models.RNNForecaster(features=2, horizon=3, hidden_size=4, cell=cell)
    model.to(backend=backend)
    state = {f"rnn.{name}": x.detach().numpy() for name, x in rnn.state_dict().items()}
    state |= {f"head.{name}": x.detach().numpy() for name, x in head.state_dict().items()}
    model.load_state_dict(state)
    x = numbers(2, 5, 2)
    given = torch.tensor(x)
    theirs = head(rnn(given)[0][:, -1]).reshape(2, 3, 2) + given[:, -1:]
    np.testing.assert_allclose(
        model(x).detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5
    )


@TWO
def test_forecast_goes_on_from_itself(backend: str) -> None:
    model = models.RNNForecasterConfig(features=1, horizon=2, hidden_size=3).create(backend)
    x = numbers(2, 4, 1)
    whole = model.forecast(x, 5).numpy()
    assert whole.shape == (2, 5, 1)
    with em.no_grad():
        first = model(x).numpy()
        second = model(np.concatenate([x, first], axis=1)[:, -4:]).numpy()
    np.testing.assert_allclose(whole[:, :4], np.concatenate([first, second], axis=1), rtol=1e-5)
    with pytest.raises(DomainError, match="steps=0"):
        model.forecast(x, 0)
    with pytest.raises(DomainError, match="needs all 2 features"):
        models.RNNForecaster(features=2, targets=1).forecast(numbers(1, 3, 2), 1)


@TWO
def test_autoencoder_code(backend: str) -> None:
    model = models.AutoencoderConfig(**CASES["models/autoencoder"][1][0]).create(backend)
    x = numbers(2, 1, 8, 8)
    with em.no_grad():
        code = model.encode(x)
        assert code.shape == (2, 2)
        np.testing.assert_array_equal(model.decode(code).numpy(), model(x).numpy())


@TWO
def test_lazy_mlp(backend: str, tmp_path: Path) -> None:
    with em.use_backend(backend):
        model = models.MLP(hidden=(3,))
        with pytest.raises(DomainError, match="no parameters yet"):
            model.save_pretrained(tmp_path)
        y = model(numbers(2, 5))
        model.save_pretrained(tmp_path)
        again = models.from_pretrained(tmp_path)
        np.testing.assert_array_equal(again(numbers(2, 5)).detach().numpy(), y.detach().numpy())
