"""Checkpoints in several files with an index."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

import ember_ml as em
from ember_ml import ops
from ember_ml.io.shards import byte_count

INDEX = "model.safetensors.index.json"


def tree(value: float = 1.0) -> dict[str, Any]:
    """Four tensors of 400 bytes each, and one of 4000."""
    small = {f"l{i}": {"w": ops.full((100,), value + i)} for i in range(4)}
    return {"layers": small, "big": ops.full((1000,), value), "step": 3, "c": [ops.ones(2) > 0]}


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def value_of(loaded: Any) -> float:
    """The value that a whole tree was made with; fails where it is mixed of two."""
    values = {float(v) - i for i in range(4) for v in loaded["layers"][f"l{i}"]["w"].tolist()}
    values |= set(loaded["big"].tolist())
    assert len(values) == 1
    return values.pop()


def test_as_hugging_face_has_it(backend: str, tmp_path: Path) -> None:
    em.save(tmp_path, tree(), max_shard_size=1000, metadata={"author": "me"})
    shards = [f"model-{i:05}-of-00004.safetensors" for i in range(1, 5)]
    assert files(tmp_path) == [*shards, INDEX]
    index = json.loads((tmp_path / INDEX).read_text(encoding="utf-8"))
    assert index["metadata"]["total_size"] == 4 * 400 + 4000 + 2
    assert index["metadata"]["author"] == "me"
    assert index["weight_map"] == {
        "layers.l0.w": shards[0],
        "layers.l1.w": shards[0],
        "layers.l2.w": shards[1],
        "layers.l3.w": shards[1],
        "big": shards[2],
        "c.0": shards[3],
    }
    for name, shard in index["weight_map"].items():
        arrays = safetensors.numpy.load_file(tmp_path / shard)
        assert arrays[name].nbytes <= 4000
    for path in (tmp_path, tmp_path / INDEX, tmp_path / "model.safetensors", f"{tmp_path}/"):
        loaded = em.load(path)
        assert value_of(loaded) == 1.0
        assert (loaded["step"], loaded["c"][0].tolist()) == (3, [True, True])
        assert loaded["big"].backend == backend
    picked = em.load(tmp_path, keys="layers.l2", backend="numpy")
    assert picked["layers"]["l2"]["w"].tolist() == [3.0] * 100
    with em.io.open_file(tmp_path) as file:
        assert (len(file), file.metadata["author"]) == (6, "me")
        assert file.info("big").nbytes == 4000
        assert file["c.0"].tolist() == [True, True]


def test_others_checkpoints_are_read(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"a.w": np.ones(3)}, tmp_path / "model-00001-of-00002.safetensors")
    torch.save({"b.w": torch.zeros(2)}, tmp_path / "pytorch_model-00002-of-00002.bin")
    index = {
        "metadata": {"total_size": 1, "total_parameters": 5},
        "weight_map": {
            "a.w": "model-00001-of-00002.safetensors",
            "b.w": "pytorch_model-00002-of-00002.bin",
        },
    }
    (tmp_path / INDEX).write_text(json.dumps(index), encoding="utf-8")
    loaded = em.load(tmp_path)
    assert (loaded["a.w"].tolist(), loaded["b.w"].tolist()) == ([1.0] * 3, [0.0] * 2)
    assert em.load(tmp_path, keys=["a"])["a.w"].dtype == "float64"


def test_what_fits_is_one_file(tmp_path: Path) -> None:
    em.save(f"{tmp_path}/dir/", tree())
    assert files(tmp_path / "dir") == ["model.safetensors"]
    assert value_of(em.load(tmp_path / "dir")) == 1.0
    em.save(tmp_path / "x.safetensors", tree(), max_shard_size="1GB")
    em.save(tmp_path / "new", tree(), max_shard_size=10)
    assert files(tmp_path) == ["dir", "new", "x.safetensors"]
    assert len(files(tmp_path / "new")) == 7
    em.save(tmp_path / "i.safetensors.index.json", tree())
    assert "i-00001-of-00001.safetensors" in files(tmp_path)
    assert value_of(em.load(tmp_path / "i.safetensors")) == 1.0
    with pytest.raises(em.FormatError, match="names shards after"):
        em.save(tmp_path / "x.index.json", tree())


def test_saving_again_leaves_only_the_new_files(tmp_path: Path) -> None:
    other = tmp_path / "other-00001-of-00001.safetensors"
    safetensors.numpy.save_file({"a": np.ones(1)}, other)
    mine = tmp_path / "model-00009-of-00009.safetensors"
    safetensors.numpy.save_file({"a": np.ones(1)}, mine)  # looks like ours, and is not
    for value, size in (
        (1.0, 1000),
        (2.0, 1000),
        (3.0, 500),
        (4.0, 10**6),
        (5.0, 1000),
        (6.0, None),
    ):
        em.save(tmp_path / "model.safetensors", tree(value), max_shard_size=size)
        assert value_of(em.load(tmp_path)) == value
        assert value_of(em.load(tmp_path / "model.safetensors")) == value
        there = set(files(tmp_path)) - {other.name, mine.name}
        if size in (1000, 500):
            index = json.loads((tmp_path / INDEX).read_text(encoding="utf-8"))
            assert there == {INDEX, *index["weight_map"].values()}
        else:
            assert there == {"model.safetensors"}
    assert other.exists()
    assert mine.exists()


def test_shards_of_a_killed_save_are_removed_by_the_next(tmp_path: Path) -> None:
    em.save(tmp_path, tree(1.0), max_shard_size=1000)
    (tmp_path / INDEX).unlink()  # as a kill before the index leaves it
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        em.load(tmp_path)
    em.save(tmp_path, tree(2.0), max_shard_size=1000)
    assert value_of(em.load(tmp_path)) == 2.0
    revised = [f"model-r2-{i:05}-of-00004.safetensors" for i in range(1, 5)]
    assert files(tmp_path) == [*revised, INDEX]


def test_an_error_in_the_middle_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ember_ml.io import safetensors as written

    em.save(tmp_path, tree(1.0), max_shard_size=1000)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    calls = 0
    real = written.write_array

    def full_disk(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise OSError(28, "No space left on device")
        real(*args)

    monkeypatch.setattr(written, "write_array", full_disk)
    with pytest.raises(OSError, match="No space left"):
        em.save(tmp_path, tree(2.0), max_shard_size=1000)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_is_wrong_with_an_index(tmp_path: Path) -> None:
    em.save(tmp_path, tree(), max_shard_size=1000)
    good = json.loads((tmp_path / INDEX).read_text(encoding="utf-8"))

    def load_with(text: str | bytes) -> None:
        (tmp_path / INDEX).write_bytes(text.encode() if isinstance(text, str) else text)
        em.load(tmp_path)

    def changed(name: str, file: Any) -> str:
        return json.dumps({**good, "weight_map": {**good["weight_map"], name: file}})

    for text, said in (
        ("", "no JSON"),
        ("[]", "no weight_map"),
        ("{}", "no weight_map"),
        ('{"weight_map": []}', "no weight_map"),
        ('{"weight_map": {}, "metadata": 3}', "no weight_map"),
        ('{"weight_map": {"a": "b", "a": "c"}}', "occurs twice"),
        (b"\xff\xfe", "utf-8"),
        ("[" * 10**5, "nested too deeply"),
        (changed("big", 3), "no file beside"),
        (changed("big", "../model.safetensors"), "no file beside"),
        (changed("big", "/etc/passwd"), "no file beside"),
        (changed("big", ""), "no file beside"),
        (changed("big", INDEX), "no file of tensors"),
        (changed("big", "model-00001-of-00004.safetensors"), "does not hold the tensor 'big'"),
        (changed("big", "missing.safetensors"), r"missing\.safetensors', which does not exist"),
        (changed("more", "model-00001-of-00004.safetensors"), "tree and its tensors"),
    ):
        with pytest.raises(em.FormatError, match=said):
            load_with(text)
    load_with(json.dumps(good))


def test_directories_without_one_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no files"):
        em.load(tmp_path)
    em.save(tmp_path / "a.safetensors", ops.ones(1))
    assert em.load(tmp_path).tolist() == [1.0]
    em.save(tmp_path / "b.safetensors", ops.ones(1))
    with pytest.raises(em.FormatError, match=r"a\.safetensors, b\.safetensors; name the one"):
        em.load(tmp_path)
    em.save(tmp_path / "model.safetensors", ops.zeros(1))
    assert em.load(tmp_path).tolist() == [0.0]
    torch.save({"a": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    assert em.load(tmp_path).tolist() == [0.0]
    for name in ("a", "b", "model"):
        (tmp_path / f"{name}.safetensors").unlink()
    assert em.load(tmp_path)["a"].tolist() == [1.0]


def test_sizes() -> None:
    assert [byte_count(s) for s in (5, "7", "1.5KB", " 2 MiB ", "3gb")] == [
        5, 7, 1500, 2 << 20, 3 * 10**9,
    ]  # fmt: skip
    for wrong in (0, -1, "", "GB", "5XB", "-1GB"):
        with pytest.raises(em.DomainError, match="max_shard_size"):
            byte_count(wrong)


@pytest.mark.parametrize("sizes", [(1000, 1000), (None, 1000), (None, None)], ids=str)
@pytest.mark.parametrize("by_name", [True, False])
def test_readers_beside_writers_see_one_checkpoint(
    sizes: tuple[int | None, int | None], by_name: bool, tmp_path: Path
) -> None:
    """Two writers, of shards or of whole files, replace each other's checkpoints all the time."""
    path = tmp_path / "model.safetensors"
    em.save(path, tree(0.0), max_shard_size=sizes[0])
    stop = threading.Event()

    def write(value: int, size: int | None) -> None:
        with em.use_backend("numpy"):
            while not stop.is_set():
                em.save(path, tree(float(value)), max_shard_size=size)
                value += 2

    writers = [threading.Thread(target=write, args=(i + 1, sizes[i])) for i in range(2)]
    for writer in writers:
        writer.start()
    try:
        seen: set[float] = set()
        deadline = time.monotonic() + 20
        while len(seen) < 8 and time.monotonic() < deadline:
            place = path if by_name else tmp_path
            seen.add(value_of(em.load(place, mmap=bool(len(seen) % 2))))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert len(seen) == 8
    assert value_of(em.load(path)) == value_of(em.load(tmp_path)) > 0.0
    assert len(files(tmp_path)) == (5 if path.with_name(INDEX).exists() else 1)
