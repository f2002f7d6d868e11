"""What is saved on one backend comes back on any other, bit for bit, in the tree it was in."""

from __future__ import annotations

import gc
import math
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import dtypes, ops
from ember_ml.backend import selection

BACKENDS = ("numpy", "torch", "jax", "mlx")


def have(backend: str, dtype: em.DType) -> bool:
    return not (backend == "mlx" and dtype is dtypes.complex128)


def random_bits(dtype: em.DType, shape: tuple[int, ...] = (4, 6)) -> np.ndarray[Any, Any]:
    """Every pattern of bits, NaN with payloads and subnormal numbers among them."""
    generator = np.random.default_rng(dtype.bits)
    if dtype is dtypes.bool:
        return generator.integers(0, 2, shape).astype(bool)
    count = math.prod(shape) * dtype.itemsize
    return np.frombuffer(generator.bytes(count), dtype.numpy).reshape(shape).copy()


def same(x: em.Tensor, y: em.Tensor) -> bool:
    return (x.shape, x.dtype) == (y.shape, y.dtype) and x.numpy().tobytes() == y.numpy().tobytes()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype_from_every_backend_to_every_other(
    backend: str, dtype: em.DType, tmp_path: Path
) -> None:
    if not have(backend, dtype):
        return
    x = ops.asarray(random_bits(dtype))
    tree = {
        "whole": x,
        "transposed": x.T,
        "strided": x[::2, 1::2],
        "reversed": ops.flip(x),
        "scalar": x[0, 0],
        "empty": x[:0],
    }
    path = tmp_path / "x.safetensors"
    em.save(path, tree)
    for other in BACKENDS:
        if not have(other, dtype):
            with pytest.raises(em.DTypeError, match=r"'whole'.*'mlx' backend has no complex128"):
                em.load(path, backend=other)
            continue
        for mmap in (True, False):
            loaded = em.load(path, backend=other, mmap=mmap)
            assert list(loaded) == list(tree)
            for name, y in loaded.items():
                assert (y.backend, y.device) == (other, em.get_available_devices(other)[0])
                assert same(tree[name], y), (name, other, mmap)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_the_library_reads_what_is_saved(dtype: em.DType, tmp_path: Path) -> None:
    x = random_bits(dtype)
    em.save(tmp_path / "x.safetensors", {"a": {"b": [x, x.T]}})
    loaded = safetensors.torch.load_file(tmp_path / "x.safetensors")
    assert set(loaded) == {"a.b.0", "a.b.1"}
    for name, wanted in (("a.b.0", x), ("a.b.1", x.T)):
        got = loaded[name]
        if dtype is dtypes.complex128:  # the format has none
            got = torch.view_as_complex(got)
        assert got.dtype == getattr(torch, dtype.name)
        got = got.view(torch.int16).numpy() if dtype is dtypes.bfloat16 else got.numpy()
        assert got.shape == wanted.shape
        assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_what_the_library_saves_is_read(backend: str, dtype: em.DType, tmp_path: Path) -> None:
    if dtype is dtypes.complex128:
        return
    x = random_bits(dtype)
    path = tmp_path / "x.safetensors"
    arrays = {"b.c": x, "a": x[:0], "0": np.array(x[1, 1])}
    safetensors.numpy.save_file(arrays, path, {"author": "me"})
    loaded = em.load(path)  # of no backend: to the current one
    assert set(loaded) == {"b.c", "a", "0"}
    for name, wanted in (("b.c", x), ("a", x[:0]), ("0", x[1, 1])):
        y = loaded[name]
        assert (y.backend, y.dtype, y.shape) == (backend, dtype, wanted.shape)
        assert y.numpy().tobytes() == wanted.tobytes()
    with em.io.open_file(path) as file:
        assert file.metadata == {"author": "me"}


def test_backend_device_and_gradients_come_back(backend: str, tmp_path: Path) -> None:
    x = em.Tensor([1.0, 2.0], requires_grad=True)
    with em.use_backend("numpy"):
        y = ops.asarray([3])
    path = tmp_path / "x.safetensors"
    em.save(path, {"x": x, "y": y, "array": np.ones(2)})
    for current in ("numpy", "torch"):
        with em.use_backend(current):
            loaded = em.load(path)
        assert (loaded["x"].backend, loaded["y"].backend) == (backend, "numpy")
        assert loaded["x"].device == x.device
        assert (loaded["x"].requires_grad, loaded["y"].requires_grad) == (True, False)
        assert loaded["array"].backend == current  # data, like a list
    chosen = em.load(path, backend="torch", device="cpu")
    assert {t.backend for t in chosen.values()} == {"torch"}
    assert chosen["x"].requires_grad
    assert chosen["x"].native.is_leaf
    assert chosen["x"].tolist() == [1.0, 2.0]


class TestTrees:
    def roundtrip(self, tree: Any, tmp_path: Path) -> Any:
        path = tmp_path / "tree.safetensors"
        em.save(path, tree)
        safetensors.numpy.load_file(path)  # the library accepts it
        return em.load(path)

    def test_one_tensor(self, tmp_path: Path) -> None:
        x = self.roundtrip(ops.asarray([1.5, 2.5]), tmp_path)
        assert isinstance(x, em.Tensor)
        assert x.tolist() == [1.5, 2.5]

    def test_nested(self, tmp_path: Path) -> None:
        tree = {
            "params": [{"w": ops.ones((2, 2)), "b": None}, (ops.zeros(1), [])],
            "step": 7,
            "rate": 1e-3,
            "name": "a.b",
            "flags": (True, False, None),
            "numbers": [math.inf, -math.inf, 1 + 2j, -0.0, 10**40, complex(math.inf, 1)],
            "empty": {},
        }
        got = self.roundtrip(tree, tmp_path)
        assert list(got) == list(tree)
        assert {k: v for k, v in got.items() if k != "params"} == {
            k: v for k, v in tree.items() if k != "params"
        }
        assert math.copysign(1, got["numbers"][3]) == -1
        assert type(got["flags"]) is tuple
        assert (type(got["params"]), type(got["params"][1])) == (list, tuple)
        assert got["params"][0]["b"] is None
        assert got["params"][0]["w"].tolist() == [[1.0, 1.0], [1.0, 1.0]]
        assert got["params"][1][1] == []
        assert math.isnan(self.roundtrip([math.nan], tmp_path)[0])

    def test_scalars_alone(self, tmp_path: Path) -> None:
        for tree in (None, 3, "text", 2.5, [], {}, (), {"a": [1, "x"]}):
            got = self.roundtrip(tree, tmp_path)
            assert got == tree
            assert type(got) is type(tree)

    def test_subclasses_come_back_as_what_they_are_kinds_of(self, tmp_path: Path) -> None:
        got = self.roundtrip(OrderedDict(z=ops.ones(1), a=np.float64(2.5)), tmp_path)
        assert (type(got), list(got)) == (dict, ["z", "a"])
        assert (got["a"].dtype, got["a"].shape, got["a"].item()) == ("float64", (), 2.5)

    def test_native_arrays(self, tmp_path: Path) -> None:
        import jax.numpy as jnp
        import mlx.core as mx

        tree = {"t": torch.ones(2), "j": jnp.ones(2, "float32"), "m": mx.ones(2), "n": np.ones(2)}
        got = self.roundtrip(tree, tmp_path)
        assert [x.backend for x in got.values()] == ["torch", "jax", "mlx", "numpy"]
        assert [x.dtype.name for x in got.values()] == ["float32"] * 3 + ["float64"]
        assert all(x.tolist() == [1.0, 1.0] for x in got.values())

    def test_names_never_collide(self, tmp_path: Path) -> None:
        keys = [
            "a.b",
            "",
            ".",
            "a",
            "~2",
            "a.b~2",
            "__metadata__",
            'é\n"\\/',
            "\ud800",
            "🙂",
            "tensor",
        ]
        tree: dict[Any, Any] = {key: ops.asarray([i]) for i, key in enumerate(keys)}
        tree["a"] = {"b": ops.asarray([20]), "": ops.asarray([21])}
        tree["n"] = {1: ops.asarray([30]), "1": ops.asarray([31]), True + 1: ops.asarray([32])}
        tree["m"] = {None: ops.asarray([40]), "None": ops.asarray([41]), 1.5: ops.asarray([42])}
        tree["f"] = {False: ops.asarray([50]), math.inf: ops.asarray([51])}

        def values(node: Any) -> Any:
            if isinstance(node, dict):
                return [(type(k), k, values(v)) for k, v in node.items()]
            return node.tolist()

        got = self.roundtrip(tree, tmp_path)
        assert values(got) == values(tree)
        count = len(keys) - 1 + 2 + 3 + 3 + 2
        assert len(em.io.open_file(tmp_path / "tree.safetensors")) == count

    def test_names_are_readable(self, tmp_path: Path) -> None:
        em.save(
            tmp_path / "x.safetensors", {"layers": [{"w": ops.ones(1)}], "out.bias": ops.ones(1)}
        )
        with safetensors.safe_open(tmp_path / "x.safetensors", "np") as file:
            assert sorted(file.keys()) == ["layers.0.w", "out.bias"]
            assert file.metadata()["format"] == "pt"  # transformers asks for it

    @pytest.mark.parametrize(
        ("leaf", "error", "said"),
        [
            ({1, 2}, em.DTypeError, "set at 'a.0'"),
            (b"bytes", em.DTypeError, "bytes at 'a.0'"),
            (object(), em.DTypeError, "object at 'a.0'"),
            ({(1, 2): 3}, em.DTypeError, r"key \(1, 2\) at 'a.0'"),
            ({math.nan: 3}, em.DTypeError, "key nan"),
            (np.array(["x"]), em.DTypeError, "'a.0'.*<U1"),
            (np.zeros(2, "datetime64[s]"), em.DTypeError, "datetime64"),
            pytest.param(10**5000, em.DomainError, "number", id="long integer"),
        ],
    )
    def test_what_cannot_be_saved(
        self, leaf: Any, error: type[Exception], said: str, tmp_path: Path
    ) -> None:
        with pytest.raises(error, match=said):
            em.save(tmp_path / "x.safetensors", {"a": [leaf], "b": ops.ones(1)})
        assert list(tmp_path.iterdir()) == []

    def test_a_tree_that_holds_itself(self, tmp_path: Path) -> None:
        tree: list[Any] = []
        tree.append(tree)
        with pytest.raises(em.DomainError, match="holds itself"):
            em.save(tmp_path / "x.safetensors", tree)
        deep: Any = ops.ones(1)
        for _ in range(64):
            deep = {"k": deep}
        assert self.roundtrip(deep, tmp_path).keys() == {"k"}

    def test_metadata(self, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        em.save(path, ops.ones(1), metadata={"author": "é", "format": "np"})
        assert em.io.open_file(path).metadata == {"author": "é", "format": "np"}
        for wrong, error in (
            ({"a": 1}, em.DTypeError),
            ({"ember_ml": "x"}, em.DomainError),
            ({"a": "\ud800"}, em.DomainError),
        ):
            with pytest.raises(error, match="metadata"):
                em.save(path, ops.ones(1), metadata=wrong)  # type: ignore[arg-type]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
)
KEYS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
ODD_KEYS = st.sampled_from(["a", "a.b", "b", ".", "", "0", "1", "~2", "a~2", "__metadata__"])
LEAVES = SCALARS | st.integers(0, 255).map(lambda n: np.full((n % 3,), n, dtype="uint8"))
TREES = st.recursive(
    LEAVES,
    lambda node: (
        st.lists(node, max_size=3)
        | st.lists(node, max_size=3).map(tuple)
        | st.dictionaries(ODD_KEYS | KEYS, node, max_size=4)
    ),
    max_leaves=12,
)


def comparable(tree: Any) -> Any:
    """A tree with types beside values, since 1 == True == 1.0, and 0.0 == -0.0."""
    if isinstance(tree, dict):
        return [(comparable(k), comparable(v)) for k, v in tree.items()]
    if isinstance(tree, list | tuple):
        return type(tree), [comparable(v) for v in tree]
    if isinstance(tree, em.Tensor | np.ndarray):
        return "tensor", str(tree.dtype), tree.shape, tree.tolist()
    return type(tree), repr(tree)


@settings(max_examples=100, deadline=None)
@given(tree=TREES)
def test_any_tree(tree: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    em.save(path, tree)
    loaded = em.load(path, backend="numpy")
    assert comparable(loaded) == comparable(tree)
    safetensors.deserialize(path.read_bytes())  # sound for others too


class TestPartial:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "x.safetensors"
        layers = [{"w": ops.asarray([float(i)]), "b": ops.asarray([i])} for i in range(3)]
        em.save(path, {"layers": layers, "layersnot": ops.ones(1), "opt": {"step": 3, "lr": 0.1}})
        return path

    def test_names_and_beginnings_of_names(self, path: Path) -> None:
        got = em.load(path, keys="layers.1.w")
        assert list(got) == ["layers"]
        assert [got["layers"][0], got["layers"][2]] == [None, None]
        assert list(got["layers"][1]) == ["w"]
        assert got["layers"][1]["w"].tolist() == [1.0]
        got = em.load(path, keys=["layers.0", "layersnot", "opt.step"])
        assert list(got) == ["layers", "layersnot", "opt"]
        assert sorted(got["layers"][0]) == ["b", "w"]
        assert got["opt"] == {"step": 3}
        assert em.load(path, keys="layers.")["layers"][2]["b"].tolist() == [2]
        assert em.load(path, keys=[]) == {}

    def test_a_function(self, path: Path) -> None:
        got = em.load(path, keys=lambda name: name.endswith(".b"))
        assert [layer["b"].tolist() for layer in got["layers"]] == [[0], [1], [2]]
        assert list(got) == ["layers"]

    def test_unknown_names_list_what_there_is(self, path: Path) -> None:
        with pytest.raises(
            em.UnknownKeyError, match=r"holds no 'layer'; it has 'layers\.0\.w'"
        ) as caught:
            em.load(path, keys=["layers", "layer"])
        assert isinstance(caught.value, KeyError)
        with pytest.raises(em.UnknownKeyError, match="strings"):
            em.load(path, keys=[1])  # type: ignore[list-item]

    def test_one_by_one(self, path: Path, backend: str) -> None:
        with em.io.open_file(path, backend=backend) as file:
            assert len(file) == 7
            assert "layers.0.w" in file
            assert "nothing" not in file
            assert file.info("layers.2.b") == em.io.TensorInfo("int64", (1,), 8)
            x = file["layers.2.w"]
            with pytest.raises(em.UnknownKeyError, match="holds no 'w'"):
                file["w"]
        assert (x.backend, x.tolist()) == (backend, [2.0])  # valid after closing
        with pytest.raises(em.DomainError, match="closed"):
            file["layers.2.w"]

    def test_only_what_is_asked_for_is_decoded(self, tmp_path: Path) -> None:
        """A dtype that no tensor has is an error where it is asked for, and only there."""
        path = tmp_path / "x.safetensors"
        eighth = torch.zeros(4).to(torch.float8_e4m3fn)
        safetensors.torch.save_file({"odd": eighth, "even": torch.ones(2)}, path)
        assert em.load(path, keys="even")["even"].tolist() == [1.0, 1.0]
        with pytest.raises(em.DTypeError, match=r"'odd' in .* is F8_E4M3"):
            em.load(path)
        assert em.io.open_file(path).info("odd") == em.io.TensorInfo("F8_E4M3", (4,), 4)


class TestMemory:
    """Maps are shared with engines that can, and never written back."""

    def span(self, x: em.Tensor) -> tuple[int, int]:
        start = x.numpy().ctypes.data
        return start, start + x.nbytes

    def mapped(self, x: em.Tensor, path: Path) -> bool:
        start, end = self.span(x)
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            if line.endswith(str(path)):
                first, last = (int(part, 16) for part in line.split()[0].split("-"))
                if first <= start and end <= last:
                    return True
        return False

    @pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="tells where maps are")
    def test_what_is_mapped(self, backend: str, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        em.save(path, {"odd": ops.ones(3), "x": ops.ones((64, 64)), "half": ops.ones(16)})
        loaded = em.load(path)
        # Whole cache lines lie first in the file, so that JAX can take them as they are.
        assert self.mapped(loaded["x"], path) == (backend != "mlx")
        assert self.mapped(loaded["half"], path) == (backend != "mlx")
        assert self.mapped(loaded["odd"], path) == (backend in ("numpy", "torch", "jax"))
        assert not self.mapped(em.load(path, mmap=False)["x"], path)

    @pytest.mark.parametrize("mmap", [True, False])
    def test_writes_stay_in_this_process(self, backend: str, mmap: bool, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        em.save(path, ops.ones((16, 4)))
        before = path.read_bytes()
        x, y = em.load(path, mmap=mmap), em.load(path, mmap=mmap)
        x[0] = 5.0
        x += 1.0
        assert x[0].tolist() == [6.0] * 4
        assert y[0].tolist() == [1.0] * 4
        del x
        assert path.read_bytes() == before

    def test_a_file_can_be_saved_over_what_is_mapped_from_it(
        self, backend: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "x.safetensors"
        em.save(path, {"x": ops.ones((1024,))})
        x = em.load(path)["x"]
        em.save(path, {"x": x * 2.0, "old": x})
        assert x.tolist() == [1.0] * 1024
        again = em.load(path)
        assert (again["x"].tolist(), again["old"].tolist()) == ([2.0] * 1024, [1.0] * 1024)

    def test_unaligned_files_are_read(self, backend: str, tmp_path: Path) -> None:
        header = b'{"x":{"dtype":"F64","shape":[3],"data_offsets":[0,24]}}'
        header += b" " * (3 - len(header) % 8 + 8)  # no multiple of anything
        values = np.array([1.0, 2.0, 3.0])
        path = tmp_path / "x.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
        for mmap in (True, False):
            x = em.load(path, mmap=mmap)["x"]
            assert x.numpy().flags.aligned
            assert x.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="tells which files are open")
def test_nothing_stays_open(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    em.save(path, {"x": ops.ones((16,))})

    def held() -> int:
        gc.collect()
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").count(str(tmp_path))
        return len(os.listdir("/proc/self/fd")) + maps

    em.load(path)["x"].sum()
    before = held()
    for _ in range(50):
        assert em.load(path)["x"].shape == (16,)
        assert em.load(path, mmap=False)["x"].shape == (16,)
        assert len(em.io.open_file(path)) == 1
        em.save(path, em.load(path))
    assert held() <= before + 2


class TestWhereItGoes:
    def test_a_backend_that_is_missing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "x.safetensors"
        with em.use_backend("mlx"):
            em.save(path, {"w": ops.ones(2)})
        monkeypatch.setitem(selection._BUILT_IN, "mlx", "mlx_that_is_missing")
        monkeypatch.delitem(selection._loaded, "mlx")
        with pytest.raises(em.BackendUnavailableError, match=r'load\(\.\.\., backend="numpy"\)'):
            em.load(path)
        assert em.load(path, backend="numpy")["w"].tolist() == [1.0, 1.0]

    def test_a_device_that_is_missing(self, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        em.save(path, {"w": ops.ones(2)})
        content = path.read_bytes()
        path.write_bytes(content.replace(b'\\"device\\":\\"cpu\\"', b'\\"device\\":\\"tpu\\"'))
        with pytest.raises(em.DeviceError, match=r"saved on device 'tpu'.*device=\"cpu\""):
            em.load(path)
        assert em.load(path, device="cpu")["w"].device == "cpu"
        assert em.load(path, backend="torch")["w"].device == "cpu"
        with pytest.raises(em.DeviceError, match="nowhere"):
            em.load(path, device="nowhere")
        with pytest.raises(em.UnknownBackendError, match="tensorflow"):
            em.load(path, backend="tensorflow")

    def test_an_unknown_backend(self, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        em.save(path, {"w": ops.ones(2)})
        path.write_bytes(path.read_bytes().replace(b'\\"numpy\\"', b'\\"mynum\\"'))
        with pytest.raises(em.UnknownBackendError, match=r"'mynum'.*backend=\"numpy\""):
            em.load(path)
        assert em.load(path, backend="jax")["w"].backend == "jax"
