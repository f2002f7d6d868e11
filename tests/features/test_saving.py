"""What was fitted is saved on one backend and loaded on any other, without code of the file."""

from __future__ import annotations

import copy
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import features, ops
from ember_ml.features import (
    ColumnFeatureExtractor,
    FeatureExtractor,
    TemporalStrideFeatures,
    TimeSeriesFeatures,
    WindowFeatures,
)
from ember_ml.io import objects as table
from ember_ml.nn import features as nn

BACKENDS = ("numpy", "torch", "jax", "mlx")
X = np.random.default_rng(0).normal(size=(12, 4)) + 3.0
TABLE = {"a": [1.0, 2.0, None], "c": ["x", "y", "x"], "t": ["2020-01-01", "2021-01-01", None]}

MADE: dict[str, tuple[Callable[[], FeatureExtractor], Any]] = {
    "PCA": (lambda: nn.pca(2, whiten=True).fit(X), X),
    "Standardize": (lambda: nn.standardize_features().fit(X), X),
    "Standardize without": (lambda: nn.standardize_features(with_std=False).fit(X), X),
    "Normalize": (lambda: nn.normalize_features("l1").fit(X), X),
    "MinMaxScale": (lambda: nn.min_max_features(-1, 1).fit(X), X),
    "MaxAbsScale": (lambda: nn.max_abs_features().fit(X), X),
    "RobustScale": (lambda: nn.robust_features().fit(X), X),
    "Pipeline": (lambda: nn.standardize_features().then(nn.pca(2)).fit(X), X),
    "TimeSeriesFeatures": (lambda: TimeSeriesFeatures(epsilon=0.5), X),
    "WindowFeatures": (lambda: WindowFeatures(2, stride=2), X),
    "TemporalStrideFeatures": (lambda: TemporalStrideFeatures(2, strides=(1, 3)), X),
    "ColumnFeatureExtractor": (lambda: ColumnFeatureExtractor().fit(TABLE), TABLE),
}


def test_every_class_of_the_table_is_tried() -> None:
    assert {name.rpartition(".")[2] for name in table._PACKAGED} == {n.split()[0] for n in MADE}


@pytest.mark.parametrize("name", MADE)
def test_from_every_backend_to_every_other(backend: str, name: str, tmp_path: Path) -> None:
    make, x = MADE[name]
    ours = make()
    wanted = ours.transform(x).numpy()
    em.save(tmp_path / "saved.safetensors", ours)
    same = em.load(tmp_path / "saved.safetensors")
    assert type(same) is type(ours)
    assert repr(same) == repr(ours)
    assert same.transform(x).numpy().tobytes() == wanted.tobytes()
    for other in BACKENDS:
        loaded = em.load(tmp_path / "saved.safetensors", backend=other)
        with em.use_backend(other):  # which those without tensors follow
            found = loaded.transform(x)
        assert found.backend == other
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", MADE)
def test_copies_and_pickles(name: str) -> None:
    make, x = MADE[name]
    ours = make()
    wanted = ours.transform(x).tolist()
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert again.transform(x).tolist() == wanted


def test_what_was_learned_comes_back(backend: str, tmp_path: Path) -> None:
    ours = nn.pca().fit(X, n_components=2)
    em.save(tmp_path / "pca.safetensors", ours)
    again = em.load(tmp_path / "pca.safetensors")
    for name in nn.PCA.LEARNED:
        mine, theirs = getattr(ours, name), getattr(again, name)
        if isinstance(mine, em.Tensor):
            assert (mine.backend, mine.dtype) == (theirs.backend, theirs.dtype)
            mine, theirs = mine.tolist(), theirs.tolist()
        assert mine == theirs, name
    scaler = nn.standardize_features().fit(X[:6])
    em.save(tmp_path / "scaler.safetensors", scaler)
    more = em.load(tmp_path / "scaler.safetensors").partial_fit(X[6:])
    assert more.n_samples_seen_ == 12
    np.testing.assert_allclose(more.mean_.numpy(), X.mean(axis=0))


def test_not_fitted_stays_so(tmp_path: Path) -> None:
    em.save(tmp_path / "pca.safetensors", nn.pca(0.5, whiten=True))
    again = em.load(tmp_path / "pca.safetensors")
    assert (again.n_components, again.whiten, again.is_fitted) == (0.5, True, False)
    with pytest.raises(em.NotFittedError):
        again.transform(X)


def test_within_trees_and_shards(tmp_path: Path) -> None:
    tree = {"steps": [nn.pca(2).fit(X), nn.standardize_features().fit(X)], "epoch": 3}
    em.save(tmp_path / "whole.safetensors", tree)
    em.save(tmp_path / "shards", tree, max_shard_size=100)
    assert len(list((tmp_path / "shards").iterdir())) > 2
    for place in ("whole.safetensors", "shards"):
        again = em.load(tmp_path / place)
        assert again["epoch"] == 3
        assert again["steps"][0](X).tolist() == tree["steps"][0](X).tolist()  # type: ignore[index]
    assert "steps.0.components_" in list(em.io.open_file(tmp_path / "whole.safetensors"))


def test_a_part_of_an_object_is_a_dict(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    em.save(path, {"pca": nn.pca(2).fit(X), "table": ColumnFeatureExtractor().fit(TABLE)})
    part = em.load(path, keys="pca.components_")
    assert list(part) == ["pca"]
    assert list(part["pca"]) == ["components_"]
    for name in ("pca", "table"):
        whole = em.load(path, keys=name)
        assert list(whole) == [name]
        assert isinstance(whole[name], FeatureExtractor)
    alone = tmp_path / "alone.safetensors"
    em.save(alone, nn.pca(2).fit(X))
    assert list(em.load(alone, keys=["mean_", "components_"])) == ["mean_", "components_"]


class TestOwnClasses:
    @pytest.fixture(autouse=True)
    def forget(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(table, "_registered", dict(table._registered))

    def test_a_class_of_ones_own(self, tmp_path: Path) -> None:
        class Power(FeatureExtractor):
            OPTIONS = ("exponent",)

            def __init__(self, exponent: float = 2.0) -> None:
                self.exponent = exponent

            def extract(self, data: Any, /) -> Any:
                return ops.pow(ops.asarray(data), self.exponent)

        path = tmp_path / "x.safetensors"
        with pytest.raises(em.DTypeError, match=r"got Power at .*em\.io\.savable"):
            em.save(path, Power())
        em.io.savable("tests.Power")(Power)
        em.save(path, features.Pipeline(Power(3.0), nn.max_abs_features()).fit(X))
        assert em.load(path).steps[0].exponent == 3.0
        del table._registered["tests.Power"]
        with pytest.raises(em.FormatError, match=r"x.safetensors': .*'tests.Power' is of no class"):
            em.load(path)
        assert list(em.io.open_file(path)) == [
            "steps.1.center_",
            "steps.1.scale_",
            "steps.1.max_abs_",
        ]

    def test_names_are_taken_once(self) -> None:
        class One(TimeSeriesFeatures):
            pass

        class Two(TimeSeriesFeatures):
            pass

        em.io.savable("tests.One")(One)
        em.io.savable("tests.One")(One)
        with pytest.raises(em.DomainError, match=r"'tests.One' belongs to .*One"):
            em.io.savable("tests.One")(Two)
        with pytest.raises(em.DomainError, match=r"belongs to ember_ml.nn.features.pca:PCA"):
            em.io.savable("nn.features.PCA")(Two)
        with pytest.raises(em.DTypeError, match="int has no state_dict"):
            em.io.savable("tests.int")(int)  # type: ignore[type-var]


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the text of a file's tree."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    tree = json.loads(header["__metadata__"]["ember_ml"])
    change(tree["tree"])
    header["__metadata__"]["ember_ml"] = json.dumps(tree)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def entry(tree: dict[str, Any], key: str) -> list[Any]:
    found: list[Any] = next(pair for pair in tree["state"]["dict"] if pair[0] == key)
    return found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(object="os.system"), "'os.system' is of no class"),
        (lambda t: t.update(object="nn.features.Standardize"), "state that Standardize does not"),
        (lambda t: t.update(object=1), "an object without a name"),
        (lambda t: t.update(more=1), "an object without a name"),
        (lambda t: entry(t, "n_components_").__setitem__(1, "two"), "n_components_ of type str"),
        (lambda t: entry(t, "n_components_").__setitem__(0, "other"), "too much or too little"),
        (lambda t: entry(t, "config").__setitem__(1, {"dict": [["x", 1]]}), "TypeError"),
        (lambda t: entry(t, "config").__setitem__(1, 5), "does not take"),
        (lambda t: entry(t, "config").__setitem__(0, "no"), "KeyError"),
    ],
)
def test_malformed_files(change: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "pca.safetensors"
    em.save(path, nn.pca(2).fit(X))
    rewritten(path, lambda tree: None)
    assert isinstance(em.load(path), nn.PCA)
    rewritten(path, change)
    with pytest.raises(em.FormatError, match=message):
        em.load(path)


def test_objects_within_objects_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    em.save(path, nn.pca())

    def nest(tree: dict[str, Any]) -> None:
        inner: Any = 1
        for _ in range(100):
            inner = {"object": "features.Pipeline", "state": {"dict": [["steps", [inner]]]}}
        tree.clear()
        tree.update(inner)

    rewritten(path, nest)
    with pytest.raises(em.FormatError, match="nested deeper"):
        em.load(path)


def test_other_formats_refuse_objects(tmp_path: Path) -> None:
    for suffix in ("npy", "npz"):
        with pytest.raises(em.DomainError, match=r"trees go to \.safetensors"):
            em.save(tmp_path / f"x.{suffix}", {"pca": nn.pca(2).fit(X)})
