"""The registry: paths, listing, entry points, configs in files, and processors."""

from __future__ import annotations

import json
import math
import sys
import threading
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import ember_ml as em
from ember_ml import nn, ops, registry
from ember_ml.errors import DomainError, DTypeError, FormatError, UnknownKeyError
from ember_ml.models import MLP, Inhibition, Memory, MLPConfig, Processor, SpecializedProcessor
from ember_ml.registry import Config, Registry, register, toml

SUFFIXES = (".json", ".toml", ".yaml", ".yml")


@pytest.fixture
def mine() -> Registry:
    return Registry("mine")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of the program without what pages of docs put there; as it was afterwards."""
    for path in registry.default._modules:  # an import within the test would be forgotten after it
        registry.get(path)
    own = {p: x for p, x in registry.default._found.items() if x.__module__.startswith("ember_ml.")}
    monkeypatch.setattr(registry.default, "_found", own)
    monkeypatch.setattr(registry.default, "_modules", dict(registry.default._modules))
    return registry.default


class TransformerModel:
    """What the config of the seed makes."""

    def __init__(self, hidden_size: int) -> None:
        self.hidden_size = hidden_size
        self.weight = ops.ones((hidden_size,))


def define_transformer(target: Any) -> type[Any]:
    """A class statement that can run again, as a notebook's cell does."""

    @target("models/transformer")
    class TransformerConfig:
        """Configuration for Transformer model."""

        def __init__(self, hidden_size: int) -> None:
            self.hidden_size = hidden_size

        def create(self, backend_context: Any) -> TransformerModel:
            with registry.on(backend_context):
                return TransformerModel(self.hidden_size)

    return TransformerConfig


class TestPaths:
    def test_the_class_of_the_seed(self, shared: Registry, backend: str) -> None:
        config = define_transformer(register)
        assert registry.get("models/transformer") is config
        made = registry.create("models/transformer", hidden_size=3, backend_context=backend)
        assert (made.hidden_size, made.weight.backend) == (3, backend)
        assert registry.name_of(config(hidden_size=2)) == "models/transformer"

    def test_a_cell_may_run_again(self, mine: Registry) -> None:
        first = define_transformer(mine.register)
        old = first(hidden_size=1)
        second = define_transformer(mine.register)
        assert first is not second
        assert mine.get("models/transformer") is second
        # An object of the class before is still known.
        assert mine.to_dict(old) == {"type": "models/transformer", "config": {"hidden_size": 1}}

    def test_a_taken_path_is_refused(self, mine: Registry) -> None:
        define_transformer(mine.register)
        with pytest.raises(DomainError, match=r"belongs to .*TransformerConfig.*remove"):
            mine.register("models/transformer")(TransformerModel)
        mine.remove("models/transformer")
        mine.register("models/transformer")(TransformerModel)
        with pytest.raises(DomainError, match=r"belongs to ember_ml\.models\.mlp"):
            register("models/mlp")(TransformerModel)
        with pytest.raises(DomainError, match=r"belongs to ember_ml\.models\.resnet"):
            register("models/resnet18")(TransformerModel)  # before it is imported, too

    @pytest.mark.parametrize(
        "path", ["", "/a", "a/", "a//b", "a b", "models/mlp:x", 3, TransformerModel]
    )
    def test_wrong_paths(self, mine: Registry, path: Any) -> None:
        with pytest.raises(DomainError, match="paths are names"):
            mine.register(path)

    def test_only_what_can_be_called(self, mine: Registry) -> None:
        with pytest.raises(DTypeError, match="takes a class or a function, not int"):
            mine.register("a/b")(3)

    def test_unknown_paths_tell_what_is_near(self, mine: Registry, shared: Registry) -> None:
        with pytest.raises(UnknownKeyError, match="nothing is registered"):
            mine.get("a")
        with pytest.raises(KeyError, match="did you mean 'models/encoder'"):
            registry.get("models/encodr")
        with pytest.raises(UnknownKeyError, match="did you mean 'models/mlp'"):
            registry.get("mlp")
        with pytest.raises(UnknownKeyError, match="it has models/autoencoder, models/cnn"):
            registry.default["quite/elsewhere"]
        with pytest.raises(UnknownKeyError, match="no path for int"):
            registry.name_of(3)
        assert 3 not in registry.default

    def test_modules_and_functions(self, mine: Registry, backend: str) -> None:
        mine.register("layers/linear")(nn.Linear)

        @mine.register("starts/ones")
        def ones(count: int) -> em.Tensor:
            """Ones."""
            return ops.ones(count)

        with em.use_backend("numpy"):
            layer = mine.create("layers/linear", 3, 2, backend_context=em.use_backend(backend))
            assert (layer.weight.backend, layer.weight.shape) == (backend, (2, 3))
            assert mine.create("starts/ones", 2, backend_context=backend).backend == backend
            assert mine.create("starts/ones", 2).backend == "numpy"
        assert [entry.kind for entry in mine.listing()] == ["module", "function"]
        again = mine.from_dict(json.loads(json.dumps(mine.to_dict(layer))))
        assert again.get_config() == layer.get_config()

    def test_options_that_do_not_fit(self, mine: Registry) -> None:
        define_transformer(mine.register)
        with pytest.raises(DomainError, match="'hidden_sise'; did you mean 'hidden_size'"):
            mine.create("models/transformer", hidden_sise=3)
        with pytest.raises(DomainError, match=r"missing.*hidden_size.*its options are hidden_size"):
            mine.create("models/transformer")
        with pytest.raises(DomainError, match="MLP has no option 'hiden'"):
            MLP(hiden=(3,))
        with pytest.raises(DTypeError, match="MLP takes a MLPConfig or its options"):
            MLP(3)  # type: ignore[arg-type]
        with pytest.raises(DTypeError, match="context such as"):
            mine.create("models/transformer", hidden_size=1, backend_context=3)

    def test_a_context_that_is_entered_already(self) -> None:
        config = MLPConfig(in_features=2)
        with em.use_backend("torch") as context, em.use_backend("numpy"):
            assert config.create(context).layers[0].weight.backend == "torch"
            assert em.get_backend() == "numpy"

    def test_threads(self, mine: Registry) -> None:
        def add(place: int) -> None:
            for number in range(50):
                kind = type(f"K{place}_{number}", (), {})
                mine.register(f"t/{place}.{number}")(kind)
                mine.names("t/")

        threads = [threading.Thread(target=add, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(mine) == 200


class TestListing:
    def test_names_and_prefix(self, shared: Registry) -> None:
        assert set(registry.names("models/")) >= {"models/mlp", "models/resnet18", "models/rbm"}
        assert registry.names("processors/") == (
            "processors/default",
            "processors/inhibition",
            "processors/memory",
        )
        assert registry.names("nothing") == ()
        assert list(registry.default) == list(registry.names())

    def test_a_table(self, mine: Registry) -> None:
        @mine.register("a/b")
        class Bracketed:
            """Takes [red] and keeps it.

            More.
            """

        @mine.register("a/c")
        @dataclass
        class Bare:
            x: int = 1

        text = str(mine.listing("a/"))
        assert "mine: a/" in text
        assert "│ a/b  │ class │ Bracketed │ Takes [red] and keeps it. │" in text
        assert "Bare(x" not in text
        assert len(mine.listing()) == 2
        assert "2 paths" in repr(mine)

    def test_every_own_path_loads(self, shared: Registry) -> None:
        for entry in registry.listing():
            assert entry.meaning, entry.path
            assert entry.kind in ("config", "module"), entry.path
            assert registry.name_of(entry.item) == entry.path


class TestEntryPoints:
    def points(self, monkeypatch: pytest.MonkeyPatch, **values: str) -> list[str]:
        """Have packages with these entry points; gives the names that were loaded."""
        loaded: list[str] = []

        class Point(EntryPoint):
            def load(self) -> Any:
                loaded.append(self.name)
                return super().load()

        found = [Point(name=n, value=v, group="test.group") for n, v in values.items()]
        found += [Point(name="other", value="json", group="another")]
        monkeypatch.setattr(
            "importlib.metadata.entry_points",
            lambda **selected: EntryPoints(found).select(**selected),
        )
        return loaded

    def package(self, monkeypatch: pytest.MonkeyPatch, **things: Any) -> None:
        module = ModuleType("third_party")
        vars(module).update(things)
        monkeypatch.setitem(sys.modules, "third_party", module)

    def test_loaded_when_a_name_is_not_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.package(monkeypatch, Theirs=TransformerModel, Other=MLPConfig)
        loaded = self.points(
            monkeypatch, **{"models/theirs": "third_party:Theirs", "x/y": "third_party:Other"}
        )
        mine = Registry("mine", group="test.group")
        mine.register("a/b")(Processor)
        assert mine.get("a/b") is Processor
        assert loaded == []
        assert mine.create("models/theirs", hidden_size=2).hidden_size == 2
        assert loaded == ["models/theirs"]
        assert mine.names() == ("a/b", "models/theirs", "x/y")
        assert loaded == ["models/theirs", "x/y"]

    def test_a_module_registers_by_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mine = Registry("mine", group="test.group")

        class Loading(ModuleType):
            def __getattr__(self, name: str) -> Any:
                raise AttributeError(name)

        def load(self: EntryPoint) -> Any:
            mine.register("models/inside")(TransformerModel)
            return Loading("third_party")

        self.points(monkeypatch, package="third_party")
        monkeypatch.setattr(EntryPoint, "load", load)
        assert mine.names() == ("models/inside",)

    def test_a_broken_package_warns_and_no_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.package(monkeypatch, Taken=TransformerModel)
        self.points(monkeypatch, **{"models/gone": "no_such_package:X", "a/b": "third_party:Taken"})
        mine = Registry("mine", group="test.group")
        mine.register("a/b")(Processor)
        with pytest.warns(RuntimeWarning) as caught:
            assert mine.names() == ("a/b",)
        texts = sorted(str(one.message) for one in caught)
        assert len(texts) == 2
        assert "'a/b'" in texts[0]
        assert "belongs to" in texts[0]
        assert "'models/gone' (no_such_package:X) does not load: ModuleNotFoundError" in texts[1]
        assert mine.get("a/b") is Processor  # and the warning came once


@dataclass(frozen=True)
class Nested(Config):
    """A config with one of everything."""

    model: MLPConfig = field(default_factory=MLPConfig)
    pair: tuple[int, float] = (1, 2.5)
    rows: tuple[tuple[int, ...], ...] = ((1, 2), (3,))
    items: list[int] = field(default_factory=lambda: [1])
    text: str = "a"
    rate: float = 1e-12
    maybe: int | None = None
    named: dict[str, int] = field(default_factory=dict)
    dtype: em.DType = em.float32
    on: bool = False
    start: nn.initializers.Initializer | None = None

    def build(self) -> Any:
        return self.model.build()


@pytest.fixture
def _nested() -> Any:
    register("test/nested")(Nested)
    yield
    registry.default.remove("test/nested")


@pytest.mark.usefixtures("_nested")
class TestFiles:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_round_trip(self, tmp_path: Path, suffix: str) -> None:
        config = Nested(
            model=MLPConfig(in_features=3, hidden=(4, 5)),
            pair=(7, 0.5),
            rows=((), (1,)),
            text='quo"te\n\\ \x7f ü',
            rate=math.inf,
            named={"a b": 1, "c": 2},
            dtype=em.bfloat16,
            on=True,
            start=nn.initializers.UniformFan(3),
        )
        path = tmp_path / f"config{suffix}"
        config.save(path)
        assert registry.load(path) == config
        assert Nested.load(path) == config
        assert registry.from_dict(registry.to_dict(config)) == config
        assert Nested.from_dict(config.to_dict()) == config
        assert registry.load(path).create("numpy").config.hidden == (4, 5)
        assert [p.name for p in tmp_path.iterdir()] == [path.name]  # no parts are left

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_defaults(self, tmp_path: Path, suffix: str) -> None:
        registry.save(tmp_path / f"c{suffix}", Nested())
        assert registry.load(tmp_path / f"c{suffix}") == Nested()

    def test_written_by_hand(self, tmp_path: Path) -> None:
        path = tmp_path / "c.yaml"
        path.write_text("type: test/nested\nconfig:\n  rate: 1e-5\n  pair: [1, 2]\n")
        assert registry.load(path) == Nested(rate=1e-5, pair=(1, 2))
        path = tmp_path / "c.toml"
        path.write_text('type = "models/mlp"\n')
        assert registry.load(path) == MLPConfig()

    def test_a_plain_class(self, mine: Registry, tmp_path: Path) -> None:
        config = define_transformer(mine.register)(hidden_size=5)
        mine.save(tmp_path / "c.toml", config)
        assert mine.load(tmp_path / "c.toml").hidden_size == 5

        @mine.register("a/forgetful")
        class Forgetful:
            def __init__(self, size: int) -> None:
                pass

        with pytest.raises(DTypeError, match="keeps no attribute of that name"):
            mine.to_dict(Forgetful(3))

    def test_toml_has_no_null(self, mine: Registry, tmp_path: Path) -> None:
        @mine.register("a/b")
        @dataclass
        class Sized:
            size: int | None = 3

        with pytest.raises(FormatError, match=r"no place for None \(config.size\)"):
            mine.save(tmp_path / "c.toml", Sized(None))
        assert not list(tmp_path.iterdir())
        mine.save(tmp_path / "c.json", Sized(None))
        assert mine.load(tmp_path / "c.json").size is None

    def test_a_failed_write_keeps_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "c.json"
        MLPConfig(in_features=1).save(path)
        with pytest.raises(DTypeError, match="has no place in a file"):
            registry.save(path, Nested(text=object()))  # type: ignore[arg-type]
        with pytest.raises(UnicodeEncodeError):
            registry.save(path, Nested(text="\ud800"))
        assert registry.load(path) == MLPConfig(in_features=1)

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("c.ini", "", "suffix is one of .json, .toml"),
            ("c.json", "{", "is not JSON"),
            ("c.toml", "a = ", "is not TOML"),
            ("c.yaml", "a: [", "is not YAML"),
            ("c.json", "[1]", "holds list"),
            ("c.json", "{}", "a dict with a 'type'"),
            ("c.json", '{"type": "models/mlp", "hidden": [1]}', "options belong in 'config'"),
            ("c.json", '{"type": "models/mlp", "config": 3}', "'config' is a dict"),
        ],
    )
    def test_files_that_are_wrong(self, tmp_path: Path, name: str, text: str, message: str) -> None:
        (tmp_path / name).write_text(text)
        with pytest.raises(FormatError, match=message) as caught:
            registry.load(tmp_path / name)
        assert name in str(caught.value)

    def test_names_that_are_wrong(self, tmp_path: Path) -> None:
        path = tmp_path / "c.json"
        path.write_text('{"type": "models/mpl"}')
        with pytest.raises(UnknownKeyError, match=r"c.json'.*did you mean 'models/mlp'"):
            registry.load(path)
        path.write_text('{"type": "models/mlp", "config": {"hiden": [3]}}')
        with pytest.raises(DomainError, match=r"c.json': .*no option 'hiden'"):
            registry.load(path)
        MLPConfig().save(path)
        with pytest.raises(FormatError, match="holds MLPConfig, not Nested"):
            Nested.load(path)

    def test_yaml_is_optional(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "yaml", None)
        with pytest.raises(FormatError, match=r"pip install 'ember-ml\[yaml\]'"):
            MLPConfig().save(tmp_path / "c.yaml")

    values = st.recursive(
        st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("ab. ü"), inner),
        max_leaves=8,
    )

    @settings(max_examples=150, deadline=None)
    @given(st.dictionaries(st.text("ab. \"'ü"), values, max_size=4))
    def test_toml_that_is_written_is_read(self, data: dict[str, Any]) -> None:
        import tomllib

        assert tomllib.loads(toml.dumps(data)) == data


class TestProcessors:
    @pytest.mark.parametrize(
        ("role", "factor"), [("default", 1.0), ("memory", 0.95), ("inhibition", -0.5)]
    )
    def test_roles_of_the_seed(self, backend: str, role: str, factor: float) -> None:
        processor = SpecializedProcessor(role)
        for dtype in ("float32", "float64" if backend != "mlx" else "float16"):
            x = ops.asarray([1.0, -2.0, 0.25], dtype=dtype)
            y = processor.process(x)
            assert (y.dtype, y.shape, y.backend) == (x.dtype, (3,), backend)
            expected = np.asarray([1.0, -2.0, 0.25], dtype) * np.asarray(factor, dtype)
            np.testing.assert_array_equal(y.numpy(), expected)
            assert processor(x).tolist() == y.tolist()
        assert processor.role == role
        assert processor.process([1, 2]).shape == (2,)
        again = SpecializedProcessor.from_config(json.loads(json.dumps(processor.get_config())))
        assert again.role == role

    def test_options_and_mistakes(self, shared: Registry) -> None:
        assert SpecializedProcessor("memory", decay=0.5).process([2.0]).item() == 1.0
        assert Inhibition(strength=2.0)([1.0]).item() == -2.0
        with pytest.raises(DomainError, match="there are default, inhibition, memory"):
            SpecializedProcessor("memori")
        with pytest.raises(DomainError, match="between 0 and 1"):
            Memory(decay=2.0)
        with pytest.raises(DomainError, match="0 or more"):
            Inhibition(strength=-1.0)

    def test_a_role_of_ones_own(self, shared: Registry, backend: str) -> None:
        @register("processors/double")
        class Double(Processor):
            """Twice the signal."""

            def process(self, x: Any) -> em.Tensor:
                return ops.multiply(x, 2.0)

        assert SpecializedProcessor("double").process([3.0]).item() == 6.0
        assert SpecializedProcessor("double").process(ops.ones(1)).backend == backend
        register("processors/nothing")(dict)
        with pytest.raises(DTypeError, match="has no method process"):
            SpecializedProcessor("nothing")
