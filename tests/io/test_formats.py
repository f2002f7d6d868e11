"""NumPy's and PyTorch's formats, suffixes, and paths that lead nowhere."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ember_ml as em
from ember_ml import dtypes, ops
from ember_ml.backend import selection

VALUES = np.arange(12.0).reshape(3, 4)
NUMPY_DTYPES = [d for d in dtypes.ALL if d is not dtypes.bfloat16]


class TestNpy:
    @pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
    def test_out_and_in(self, backend: str, dtype: em.DType, tmp_path: Path) -> None:
        if not selection.load(backend).supports(dtype, "cpu"):
            return
        array = (VALUES % 2 == 0) if dtype is dtypes.bool else VALUES.astype(dtype.numpy)
        x = ops.asarray(array)
        for tensor, wanted in (
            (x, array),
            (x.T, array.T),
            (x[0, 0], array[0, 0]),
            (x[:0], array[:0]),
        ):
            path = tmp_path / "x.npy"
            em.save(path, tensor)
            by_numpy = np.load(path)
            assert (by_numpy.dtype, by_numpy.shape) == (dtype.numpy, wanted.shape)
            assert by_numpy.tobytes() == wanted.tobytes()
            for mmap in (True, False):
                loaded = em.load(path, mmap=mmap)
                assert (loaded.backend, loaded.dtype, loaded.shape) == (
                    backend,
                    dtype,
                    wanted.shape,
                )
                assert loaded.numpy().tobytes() == wanted.tobytes()

    @pytest.mark.parametrize("descr", [">f8", ">i4", ">c8", ">u2", "|b1", "|i1", "<f2", ">f2"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_byte_orders_and_element_orders(self, descr: str, order: Any, tmp_path: Path) -> None:
        array = np.array(VALUES, dtype=descr, order=order)
        np.save(tmp_path / "x.npy", array)
        for mmap in (True, False):
            x = em.load(tmp_path / "x.npy", mmap=mmap)
            assert (x.dtype, x.shape) == (array.dtype.newbyteorder("=").name, (3, 4))
            assert x.numpy().dtype.isnative
            assert x.tolist() == array.tolist()

    def test_versions_of_the_format(self, tmp_path: Path) -> None:
        for version in ((1, 0), (2, 0), (3, 0)):
            with open(tmp_path / "x.npy", "wb") as file:
                np.lib.format.write_array(file, VALUES, version=version)
            assert em.load(tmp_path / "x.npy").tolist() == VALUES.tolist()

    def test_what_it_cannot_hold(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npy"
        with pytest.raises(em.DTypeError, match=r"\.npy files have no bfloat16"):
            em.save(path, ops.ones(2, dtype="bfloat16"))
        with pytest.raises(em.DomainError, match=r"one tensor.*\.safetensors.*\.npz"):
            em.save(path, {"a": ops.ones(2)})
        with pytest.raises(em.DomainError, match="no metadata"):
            em.save(path, ops.ones(2), metadata={"a": "b"})
        with pytest.raises(em.DomainError, match="no shards"):
            em.save(path, ops.ones(2), max_shard_size=5)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "array",
        [np.array(["a"]), np.array([{}], dtype=object), np.zeros(2, "f4,i4"), np.zeros(2, "M8[s]")],
        ids=["text", "object", "structure", "dates"],
    )
    def test_what_is_not_read(self, array: np.ndarray[Any, Any], tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", array, allow_pickle=True)
        with pytest.raises((em.DTypeError, em.FormatError), match=r"x\.npy"):
            em.load(tmp_path / "x.npy")


class TestNpz:
    def test_out_and_in(self, backend: str, tmp_path: Path) -> None:
        names = ["a", "file", "é/b.c", "x.npy", "__metadata__", "", "..", "a b"]
        tree = {name: ops.asarray(VALUES + i) for i, name in enumerate(names)}
        tree["view"] = tree["a"].T[::2]
        path = tmp_path / "x.npz"
        em.save(path, tree)
        with np.load(path) as by_numpy:
            assert by_numpy.files == list(tree)
            for name, x in tree.items():
                np.testing.assert_array_equal(by_numpy[name], x.numpy(), strict=True)
        loaded = em.load(path)
        assert list(loaded) == list(tree)
        for name, x in tree.items():
            assert (loaded[name].backend, loaded[name].dtype) == (backend, "float64")
            assert loaded[name].tolist() == x.tolist()
        assert list(em.load(path, keys=["file"])) == ["file"]

    @pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
    def test_from_numpy(self, write: Any, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        write(
            path,
            VALUES,
            big=VALUES.astype(">i2"),
            fortran=np.asfortranarray(VALUES),
            zero=np.zeros(10**5),
        )
        loaded = em.load(path)
        assert list(loaded) == ["big", "fortran", "zero", "arr_0"]
        assert loaded["big"].dtype == "int16"
        assert loaded["big"].tolist() == loaded["fortran"].tolist() == VALUES.tolist()
        assert loaded["arr_0"].tolist() == VALUES.tolist()
        assert (loaded["zero"].shape, loaded["zero"].sum().item()) == ((10**5,), 0.0)

    def test_a_dtype_that_is_not_read_matters_where_it_is_asked_for(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", a=np.ones(2), names=np.array(["x"]))
        assert em.load(tmp_path / "x.npz", keys="a")["a"].tolist() == [1.0, 1.0]
        with pytest.raises(em.DTypeError, match=r"'names'.*<U1"):
            em.load(tmp_path / "x.npz")

    def test_what_it_cannot_hold(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        for tree in (ops.ones(2), {"a": {"b": ops.ones(2)}}, {"a": 3}, {1: ops.ones(1)}):
            with pytest.raises(em.DomainError, match="nothing nested"):
                em.save(path, tree)
        with pytest.raises(em.DTypeError, match=r"\.npz files have no bfloat16"):
            em.save(path, {"a": ops.ones(2, dtype="bfloat16")})
        with pytest.raises(em.DomainError, match="cannot name an array"):
            em.save(path, {"a\0b": ops.ones(2)})
        assert list(tmp_path.iterdir()) == []

    def test_bombs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from ember_ml.io import numpy_files

        path = tmp_path / "x.npz"
        np.savez_compressed(path, a=np.zeros(10**6))
        assert path.stat().st_size < 10**4
        assert em.load(path)["a"].shape == (10**6,)
        monkeypatch.setattr(numpy_files, "_FREE_EXPANSION", 1000)
        with pytest.raises(em.FormatError, match="would expand to 8000128 bytes"):
            em.load(path)

    def test_overlapping_entries(self, tmp_path: Path) -> None:
        """One stored array that many entries of the directory point to."""
        path = tmp_path / "x.npz"
        np.savez(path, a=np.zeros(10**5))
        with zipfile.ZipFile(path) as archive:
            info = archive.infolist()[0]
        content = path.read_bytes()
        start = content.rindex(b"PK\x01\x02")
        end = content.rindex(b"PK\x05\x06")
        entry, tail = content[start:end], bytearray(content[end:])
        copies = b"".join(entry.replace(b"a.npy", bytes([98 + i]) + b".npy") for i in range(20))
        tail[8:10] = tail[10:12] = (21).to_bytes(2, "little")
        tail[12:16] = (len(entry) + len(copies)).to_bytes(4, "little")
        path.write_bytes(content[:end] + copies + bytes(tail))
        assert info.file_size > 8 * 10**5
        with pytest.raises(em.FormatError, match="overlaps"):
            em.load(path)


class TestTorch:
    def test_state_dict(self, backend: str, tmp_path: Path) -> None:
        module = torch.nn.Linear(3, 2)
        path = tmp_path / "x.pt"
        torch.save(module.state_dict(), path)
        for mmap in (True, False):
            loaded = em.load(path, backend=backend, mmap=mmap)
            assert list(loaded) == ["weight", "bias"]
            assert {x.backend for x in loaded.values()} == {backend}
            np.testing.assert_array_equal(
                loaded["weight"].numpy(), module.weight.detach().numpy(), strict=True
            )
        assert em.load(path)["bias"].backend == "torch"

    def test_trees_dtypes_and_strides(self, tmp_path: Path) -> None:
        x = torch.arange(6.0).reshape(2, 3)
        tree = {
            "model": OrderedDict(w=x.t(), half=x.bfloat16(), c=torch.tensor([1 + 2j]).conj()),
            "opt": {"state": {0: {"step": torch.tensor(3), "m": x[:, ::2]}}, "lr": 0.1},
            "p": torch.nn.Parameter(torch.ones(2)),
            "list": [(1, None, "text")],
        }
        for suffix in (".pt", ".pth", ".bin"):
            torch.save(tree, tmp_path / f"x{suffix}")
            loaded = em.load(tmp_path / f"x{suffix}", backend="numpy")
            assert loaded["model"]["w"].tolist() == x.t().tolist()
            assert loaded["model"]["half"].dtype is em.bfloat16
            assert loaded["model"]["half"].tolist() == x.tolist()
            assert loaded["model"]["c"].tolist() == [1 - 2j]
            assert loaded["opt"]["state"][0]["step"].item() == 3
            assert loaded["opt"]["state"][0]["m"].tolist() == x[:, ::2].tolist()
            assert (loaded["opt"]["lr"], loaded["list"]) == (0.1, [(1, None, "text")])
            assert loaded["p"].requires_grad
        picked = em.load(tmp_path / "x.pt", keys="opt.state")
        assert list(picked) == ["opt"]
        assert picked["opt"]["state"][0]["step"].item() == 3
        torch.save(x, tmp_path / "one.pt")
        assert em.load(tmp_path / "one.pt").tolist() == x.tolist()

    def test_the_old_format(self, tmp_path: Path) -> None:
        path = tmp_path / "x.pt"
        torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
        assert em.load(path)["w"].tolist() == [1.0, 1.0, 1.0]

    def test_writes_stay_in_this_process(self, tmp_path: Path) -> None:
        path = tmp_path / "x.pt"
        torch.save({"w": torch.ones(1024)}, path)
        before = path.read_bytes()
        x = em.load(path)["w"]
        x[0] = 5.0
        assert x[0].item() == 5.0
        assert path.read_bytes() == before

    def test_code_does_not_run(self, tmp_path: Path) -> None:
        class Evil:
            def __reduce__(self) -> Any:
                return os.mkdir, (str(tmp_path / "ran"),)

        for zipped in (True, False):
            torch.save({"w": Evil()}, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
            with pytest.raises(em.FormatError, match="could run code"):
                em.load(tmp_path / "x.pt")
            assert not (tmp_path / "ran").exists()

    def test_dtypes_that_are_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "x.pt"
        torch.save({"a": torch.ones(2), "odd": torch.zeros(2).to(torch.float8_e5m2)}, path)
        with pytest.raises(em.DTypeError, match=r"'odd'.*float8_e5m2"):
            em.load(path)
        assert em.load(path, keys="a")["a"].tolist() == [1.0, 1.0]
        torch.save({"s": torch.eye(2).to_sparse()}, path)
        with pytest.raises(em.DTypeError, match=r"'s'.*sparse"):
            em.load(path)

    def test_without_torch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        torch.save({"w": torch.ones(3)}, tmp_path / "x.pt")
        monkeypatch.setitem(selection._BUILT_IN, "torch", "torch_that_is_missing")
        monkeypatch.delitem(selection._loaded, "torch", raising=False)
        with pytest.raises(em.BackendUnavailableError, match="pip install torch"):
            em.load(tmp_path / "x.pt")

    def test_it_is_not_written(self, tmp_path: Path) -> None:
        with pytest.raises(em.FormatError, match=r"\.pt is only read"):
            em.save(tmp_path / "x.pt", ops.ones(1))


class TestPaths:
    @pytest.mark.parametrize(
        "name", ["x.safetensors", "x", "x.npy", "x.npz", "x.pt", "x.index.json"]
    )
    def test_missing_files(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError) as caught:
            em.load(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)

    def test_missing_directory(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="nowhere"):
            em.save(tmp_path / "nowhere" / "x.safetensors", ops.ones(1))

    def test_unknown_suffix(self, tmp_path: Path) -> None:
        (tmp_path / "x.ckpt").write_bytes(b"")
        with pytest.raises(em.FormatError, match=r"x\.ckpt'; its formats are \.safetensors"):
            em.load(tmp_path / "x.ckpt")
        with pytest.raises(em.FormatError, match=r"x\.h5'; its formats are"):
            em.save(tmp_path / "x.h5", ops.ones(1))

    def test_no_suffix_is_safetensors(self, tmp_path: Path) -> None:
        em.save(str(tmp_path / "weights"), ops.ones(2))
        assert [p.name for p in tmp_path.iterdir()] == ["weights"]
        assert em.load(tmp_path / "weights").tolist() == [1.0, 1.0]

    def test_arguments_in_the_order_of_torch(self, tmp_path: Path) -> None:
        with pytest.raises(em.DTypeError, match="path first, not Tensor"):
            em.save(ops.ones(2), tmp_path / "x.safetensors")  # type: ignore[arg-type]
        with pytest.raises(em.DTypeError, match="path first"):
            em.load(io.BytesIO())  # type: ignore[arg-type]

    def test_what_is_no_plain_file(self, tmp_path: Path) -> None:
        for suffix in ("", ".safetensors", ".npy", ".npz", ".pt", ".index.json"):
            pipe = tmp_path / f"pipe{suffix}"
            os.mkfifo(pipe)
            with pytest.raises(em.FormatError, match="no plain file"):
                em.load(pipe)
            if suffix not in (".pt", ".index.json"):
                with pytest.raises(em.DomainError, match="plain files"):
                    em.save(pipe, {"a": ops.ones(1)} if suffix != ".npy" else ops.ones(1))
            assert pipe.is_fifo()
        assert all(path.is_fifo() for path in tmp_path.iterdir())

    def test_links_and_permissions_stay(self, tmp_path: Path) -> None:
        target = tmp_path / "real.safetensors"
        em.save(target, ops.zeros(1))
        assert target.stat().st_mode & 0o777 == 0o666 & ~_umask()
        target.chmod(0o600)
        link = tmp_path / "link.safetensors"
        link.symlink_to(target)
        em.save(link, ops.ones(1))
        assert link.is_symlink()
        assert target.stat().st_mode & 0o777 == 0o600
        assert em.load(target).tolist() == [1.0]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_large_tree_is_not_held_twice(tmp_path: Path) -> None:
    """Strided tensors, which have no contiguous memory to write from, grow the process little."""
    program = """
import resource, sys
import numpy as np
import ember_ml as em
em.set_backend("numpy")
em.save(sys.argv[1], {"warm": em.ops.ones((64, 64)).T})
x = em.ops.asarray(np.ones((4096, 8192)))
unit = 1 if sys.platform == "darwin" else 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
em.save(sys.argv[1], {"t": x.T, "r": em.ops.flip(x), "x": x})
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(grown * unit / 2**20, x.nbytes / 2**20)
"""
    out = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "x.safetensors")],
        capture_output=True,
        text=True,
        check=True,
    )
    grown, size = map(float, out.stdout.split())
    assert size == 256
    assert grown < 64


def test_files_of_mlx_without_metadata(tmp_path: Path) -> None:
    """MLX writes null where there are none, which the safetensors library accepts."""
    mx = pytest.importorskip("mlx.core")
    path = tmp_path / "mlx.safetensors"
    mx.save_safetensors(str(path), {"a": mx.array([1.0, 2.0])})
    assert b"null" in path.read_bytes()
    found = em.load(path, backend="numpy")
    assert found["a"].tolist() == [1.0, 2.0]
