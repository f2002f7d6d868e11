"""Checkpoints that several ranks write together; here, threads are the ranks."""

from __future__ import annotations

import contextvars
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import ember_ml as em
from ember_ml import ops
from ember_ml.errors import AxisError, CommunicationError, DomainError, FormatError, ShapeError
from ember_ml.io import joint, pieces
from ember_ml.io import safetensors as writing
from ember_ml.io.joint import save_jointly
from ember_ml.io.loading import load_parts
from ember_ml.io.parts import Part, Range

INDEX = "model.safetensors.index.json"
SOURCE = str(Path(em.__file__).resolve().parents[1])


class Board:
    """Where the ranks of a job leave their texts for each other."""

    def __init__(self, size: int) -> None:
        self.texts = [""] * size
        self.barrier = threading.Barrier(size, timeout=60)


class Rank:
    def __init__(self, rank: int, board: Board) -> None:
        self.rank, self.size, self.board = rank, len(board.texts), board

    def exchange(self, text: str) -> list[str]:
        try:
            self.board.texts[self.rank] = text
            self.board.barrier.wait()
            found = list(self.board.texts)
            self.board.barrier.wait()
        except threading.BrokenBarrierError:
            raise CommunicationError("another rank is gone") from None
        return found


def on_ranks(size: int, task: Callable[[Rank], Any]) -> list[Any]:
    """What each rank gives, or the error that it raises."""
    board = Board(size)

    def run(rank: int) -> Any:
        try:
            return task(Rank(rank, board))
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        calls = [
            pool.submit(contextvars.copy_context().run, run, rank)  # with the test's backend
            for rank in range(size)
        ]
        return [one.result() for one in calls]


def save(path: Any, tree: Any, size: int) -> list[Any]:
    return on_ranks(size, lambda peer: save_jointly(path, tree, peer))


def same(a: Any, b: Any) -> None:
    x, y = np.asarray(a.numpy()), np.asarray(b.numpy())
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    assert x.tobytes() == y.tobytes()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# --- What all ranks have ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_tree_comes_back(backend: str, tmp_path: Path, size: int) -> None:
    tree = {
        "w": [ops.arange(12, dtype="float32").reshape(3, 4), ops.ones((2,), dtype="bfloat16")],
        "number": ops.asarray(float("nan")),
        "none": ops.zeros((0, 3), dtype="int8"),
        "truth": ops.asarray([True, False]),
        "pair": ops.asarray([1 + 2j], dtype="complex64"),
        "a@0": ops.asarray([float("inf"), -0.0]),
        "step": 7,
        "text": "so",
    }
    assert save(tmp_path / "c", tree, size) == [None] * size
    found = em.load(tmp_path / "c")
    assert (found["step"], found["text"]) == (7, "so")
    for key in ("number", "none", "truth", "pair", "a@0"):
        same(found[key], tree[key])
        assert found[key].backend == backend
    for a, b in zip(found["w"], tree["w"], strict=True):
        same(a, b)
    # As many shards as ranks, an index, and nothing else; other programs read them.
    there = names(tmp_path / "c")
    assert len(there) == size + 1
    assert there[-1] == INDEX
    held = [safetensors.numpy.load_file(tmp_path / "c" / one) for one in there[:-1]]
    assert sorted(name for one in held for name in one) == sorted(em.io.open_file(tmp_path / "c"))


@pytest.mark.parametrize("size", [2, 3, 8])
def test_shares_are_balanced_and_nothing_is_written_twice(tmp_path: Path, size: int) -> None:
    rng = np.random.default_rng(0)
    tree = {str(i): rng.normal(size=(int(n),)) for i, n in enumerate(rng.integers(1, 4000, 60))}
    tree["big"] = rng.normal(size=(501, 1024))  # more than a share: rows of it go to each rank
    tree["wide"] = rng.normal(size=(1, 300000))
    save(tmp_path / "c", tree, size)
    sizes = [path.stat().st_size for path in (tmp_path / "c").glob("*.safetensors")]
    total = sum(x.nbytes for x in tree.values())
    assert sum(sizes) < total + 40_000  # headers
    assert max(sizes) < 1.05 * total / size + 40_000
    found = em.load(tmp_path / "c", backend="numpy")
    assert list(found) == list(tree)
    for name, x in tree.items():
        assert np.array_equal(found[name].numpy(), x)
    with em.io.open_file(tmp_path / "c") as file:
        assert set(file) == set(tree)
        assert file.info("big").shape == (501, 1024)
        assert file.info("big").nbytes == tree["big"].nbytes
        assert pieces.PIECES_KEY not in file.metadata
        assert np.array_equal(file["wide"].numpy(), tree["wide"])
    part = em.load(tmp_path / "c", keys=["big", "3"], backend="numpy")
    assert list(part) == ["3", "big"]


def test_beside_a_file_name(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    em.save(path, {"x": ops.zeros(3)})
    save(path, {"x": ops.ones(3)}, 2)
    assert not path.exists()
    assert em.load(path)["x"].tolist() == [1.0, 1.0, 1.0]
    em.save(path, {"x": ops.full((3,), 2.0)})  # one process again: the shards go
    assert names(tmp_path) == ["run.safetensors"]
    (errors,) = {str(one) for one in save(tmp_path / "run.npz", {"x": 1}, 2)}
    assert "run.npz" in errors


def test_a_save_replaces_the_one_before(tmp_path: Path) -> None:
    for value, size in ((1.0, 3), (2.0, 2), (3.0, 4)):
        save(tmp_path / "c", {"x": ops.full((5,), value), "y": ops.ones(2)}, size)
        assert em.load(tmp_path / "c")["x"].tolist() == [value] * 5
        assert len(names(tmp_path / "c")) == size + 1
    joint.remove(str(tmp_path / "c"))
    assert names(tmp_path) == []


def test_numbers_are_those_of_rank_0(tmp_path: Path) -> None:
    def task(peer: Rank) -> None:
        save_jointly(tmp_path / "c", {"x": ops.ones(2), "seconds": float(peer.rank)}, peer)

    on_ranks(3, task)
    assert em.load(tmp_path / "c")["seconds"] == 0.0


# --- What ranks have between them ------------------------------------------------------------

CUTS = {
    "rows": (0, [0, 3, 3, 7]),  # the second rank has none
    "columns": (1, [0, 1, 3, 4]),
    "elements": (None, [0, 5, 20, 28]),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex128", "bool"])
def test_parts_come_together(tmp_path: Path, cut: str, dtype: str) -> None:
    axis, ends = CUTS[cut]
    whole = ops.arange(28).reshape(7, 4).astype("float64" if dtype == "bool" else dtype)
    whole = whole > 9 if dtype == "bool" else whole
    flat = whole.reshape(-1) if axis is None else whole

    def part(start: int, stop: int) -> Any:
        return flat[:, start:stop] if axis == 1 else flat[start:stop]

    def task(peer: Rank) -> None:
        start, stop = ends[peer.rank], ends[peer.rank + 1]
        tree = {"w": Part(part(start, stop), (7, 4), axis, start), "b": ops.ones(3)}
        save_jointly(tmp_path / "c", tree, peer)

    assert on_ranks(3, task) == [None] * 3
    found = em.load(tmp_path / "c")
    same(found["w"], whole)
    # Other numbers of ranks read other ranges, cut as before or in another way.
    for size in (1, 2, 4):
        for way in (0, 1, None):
            length = 28 if way is None else (7, 4)[way]
            for rank in range(size):
                wanted = Range(way, length * rank // size, length * (rank + 1) // size)
                asked: list[Any] = []

                def choose(
                    name: str, shape: Any, wanted: Range = wanted, asked: Any = asked
                ) -> Any:
                    asked.append((name, shape))
                    return wanted if name == "w" else None

                got = load_parts(str(tmp_path / "c"), choose)
                assert asked == [("w", (7, 4)), ("b", (3,))]
                a, b = wanted[1:]
                expected = whole.reshape(-1)[a:b] if way is None else whole[a:b]
                same(got["w"], whole[:, a:b] if way == 1 else expected)
                assert got["b"].tolist() == [1.0] * 3


def test_parts_of_a_file_that_has_none(tmp_path: Path) -> None:
    em.save(tmp_path / "one.safetensors", {"w": ops.arange(12).reshape(3, 4)})
    path = str(tmp_path / "one.safetensors")
    found = load_parts(path, lambda name, shape: Range(0, 1, 3))
    assert found["w"].tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    # A part that is all is a tensor to one process; another is none.
    em.save(path, {"w": Part(ops.arange(4), (2, 2), None)})
    assert em.load(path)["w"].tolist() == [[0, 1], [2, 3]]
    with pytest.raises(DomainError, match="a part of the tensor at 'w'"):
        em.save(path, {"w": Part(ops.ones((1, 2)), (2, 2))})


@pytest.mark.parametrize("backend_name", ["torch", "jax", "mlx"])
def test_parts_on_engines(tmp_path: Path, backend_name: str) -> None:
    with em.use_backend(backend_name):
        whole = ops.arange(10, dtype="float32").reshape(5, 2)
        ends = [0, 2, 5]

        def task(peer: Rank) -> None:
            start = ends[peer.rank]
            x = whole[start : ends[peer.rank + 1]]
            save_jointly(tmp_path / "c", {"w": Part(x, (5, 2), 0, start)}, peer)

        assert on_ranks(2, task) == [None] * 2
        got = load_parts(str(tmp_path / "c"), lambda name, shape: Range(0, 1, 4))["w"]
        assert got.backend == backend_name
        same(got, whole[1:4])


def test_empty_tensors_in_parts(tmp_path: Path) -> None:
    def task(peer: Rank) -> None:
        tree = {
            "a": Part(ops.zeros((0, 3), dtype="int16"), (0, 3)),
            "b": Part(ops.zeros((1, 0)), (2, 0), 0, peer.rank),
            "n": Part(ops.ones((1 - peer.rank,)), (), None, peer.rank),
        }
        save_jointly(tmp_path / "c", tree, peer)

    assert on_ranks(2, task) == [None] * 2
    found = em.load(tmp_path / "c")
    assert (found["a"].shape, found["a"].dtype.name) == ((0, 3), "int16")
    assert found["b"].shape == (2, 0)
    assert found["n"].shape == ()
    assert found["n"].item() == 1.0


@pytest.mark.parametrize(
    ("starts", "said"),
    [((0, 1), "overlap or leave holes"), ((0, 3), "overlap or leave holes"), ((1, 3), "0 is next")],
)
def test_parts_that_do_not_fit(tmp_path: Path, starts: tuple[int, int], said: str) -> None:
    def task(peer: Rank) -> None:
        x = Part(ops.ones((2,)), (5,), 0, starts[peer.rank])
        save_jointly(tmp_path / "c", {"w": x}, peer)

    one, other = on_ranks(2, task)
    assert type(one) is type(other) is ShapeError
    assert str(one) == str(other)
    assert said in str(one)
    assert "'w'" in str(one)
    assert names(tmp_path) == []


def test_what_is_no_part() -> None:
    with pytest.raises(ShapeError, match="no part of shape"):
        Part(ops.ones((2, 3)), (4, 2))
    with pytest.raises(ShapeError, match="from 3 on"):
        Part(ops.ones((2, 3)), (4, 3), 0, 3)
    with pytest.raises(ShapeError, match="no part"):
        Part(ops.ones((2, 3)), (4, 3), None)
    with pytest.raises(AxisError, match="axis=2"):
        Part(ops.ones((2, 3)), (4, 3), 2)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"w": {"shape": [4]}},
        {"w": {"shape": [4], "axis": 1, "pieces": [["w@0", 0, 2], ["w@1", 2, 4]]}},
        {"w": {"shape": [4], "axis": 0, "pieces": [["w@0", 0, 2]]}},
        {"w": {"shape": [4], "axis": 0, "pieces": [["w@0", 0, 2], ["w@0", 2, 4]]}},
        {"w": {"shape": [4], "axis": 0, "pieces": [["w@0", 0, 2], ["other", 2, 4]]}},
        {"w": {"shape": [4], "axis": 0, "pieces": [["w@0", 0, 3], ["w@1", 3, 4]]}},
        {"w": {"shape": [-4], "axis": 0, "pieces": [["w@0", 0, 2], ["w@1", 2, 4]]}},
        {"w": {"shape": [4], "axis": 0, "pieces": [["w@0", 0.0, 2], ["w@1", 2, 4]]}},
        {"w": {"shape": [4], "axis": 0, "pieces": []}},
    ],
)
def test_an_index_with_wrong_pieces(tmp_path: Path, wrong: Any) -> None:
    def task(peer: Rank) -> None:
        x = Part(ops.ones((2,)), (4,), 0, 2 * peer.rank)
        save_jointly(tmp_path / "c", {"w": x}, peer)

    on_ranks(2, task)
    path = tmp_path / "c" / INDEX
    index = json.loads(path.read_text())
    index["metadata"][pieces.PIECES_KEY] = json.dumps(wrong)
    path.write_text(json.dumps(index))
    with pytest.raises(FormatError, match=re_escaped("index.json")):
        em.load(tmp_path / "c")


def re_escaped(text: str) -> str:
    return text.replace(".", r"\.")


# --- What goes wrong -------------------------------------------------------------------------


def test_a_rank_that_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "c", {"x": ops.ones(4), "y": ops.ones(4)}, 3)
    before = names(tmp_path / "c")
    real = writing.write

    def full(file: Any, tensors: Any, *rest: Any) -> None:
        if "y" in tensors:
            file.write(b"half")
            raise OSError(28, "No space left on device")
        real(file, tensors, *rest)

    monkeypatch.setattr(writing, "write", full)
    for place in ("c", "new"):
        found = save(tmp_path / place, {"x": ops.zeros(4), "y": ops.zeros(4)}, 3)
        assert {type(one) for one in found} == {OSError}
        (text,) = {str(one) for one in found}
        assert "rank 1: [Errno 28] No space left on device" in text
        assert f"{place}' by 3 ranks failed" in text
    assert names(tmp_path) == ["c"]
    assert names(tmp_path / "c") == before
    assert em.load(tmp_path / "c")["x"].tolist() == [1.0] * 4
    monkeypatch.undo()
    save(tmp_path / "c", {"x": ops.zeros(4), "y": ops.zeros(4)}, 3)
    assert em.load(tmp_path / "c")["y"].tolist() == [0.0] * 4


def test_rank_0_cannot_write_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = joint.replacing

    def refusing(path: str, *rest: Any) -> Any:
        if path.endswith(INDEX):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest)

    monkeypatch.setattr(joint, "replacing", refusing)
    found = save(tmp_path / "c", {"x": ops.zeros(4)}, 2)
    assert {type(one) for one in found} == {PermissionError}
    assert "rank 0: [Errno 13]" in str(found[1])
    assert str(found[0]) == str(found[1])
    assert names(tmp_path) == []


def test_a_directory_that_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "_SEEN_WITHIN", 0.2)
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()

    def task(peer: Rank) -> None:
        save_jointly(tmp_path / str(peer.rank) / "c", {"x": ops.ones(2)}, peer)

    one, other = on_ranks(2, task)
    assert type(one) is type(other) is OSError
    assert "a file system that all hosts share" in str(one)
    assert "rank 1: on host" in str(one)
    assert names(tmp_path / "0") == names(tmp_path / "1") == []


def test_ranks_with_different_tensors(tmp_path: Path) -> None:
    def task(peer: Rank) -> None:
        save_jointly(tmp_path / "c", {"x": ops.ones(2 + peer.rank // 2)}, peer)

    found = on_ranks(3, task)
    assert {type(one) for one in found} == {DomainError}
    assert "ranks [2] have tensors of other names, shapes or dtypes" in str(found[0])
    assert names(tmp_path) == []

    def odd(peer: Rank) -> None:
        save_jointly(tmp_path / "c", {"x": object() if peer.rank == 1 else ops.ones(2)}, peer)

    found = on_ranks(2, odd)
    assert len({str(one) for one in found}) == 1
    assert "rank 1: em.save got object at 'x'" in str(found[0])
    assert names(tmp_path) == []


def test_what_fails_on_one_rank_fails_on_all() -> None:
    def task(peer: Rank) -> Any:
        def action() -> int:
            if peer.rank == 1:
                raise FileNotFoundError("no such thing")
            return peer.rank

        return joint.together(peer, "looking", action)

    found = on_ranks(3, task)
    assert {type(one) for one in found} == {FileNotFoundError}
    assert {str(one) for one in found} == {"looking failed: rank 1: no such thing"}
    assert on_ranks(2, lambda peer: joint.together(peer, "this", lambda: peer.rank)) == [0, 1]


def test_a_lost_rank_leaves_shards_alone(tmp_path: Path) -> None:
    """The index may be written when others hear no more: nobody may remove a shard then."""

    class Deaf(Rank):
        count = 0

        def exchange(self, text: str) -> list[str]:
            found = super().exchange(text)
            self.count += 1
            if self.count == 3:  # after the index is written
                raise CommunicationError("rank 0 is gone")
            return found

    def task(peer: Rank) -> None:
        peer = Deaf(peer.rank, peer.board) if peer.rank else peer
        save_jointly(tmp_path / "c", {"x": ops.ones(3), "y": ops.ones(3)}, peer)

    one, other = on_ranks(2, task)
    assert one is None
    assert type(other) is CommunicationError
    assert em.load(tmp_path / "c")["y"].tolist() == [1.0] * 3


# --- Kills -----------------------------------------------------------------------------------

KILLED = """
import sys, threading
import numpy as np
sys.path[:0] = [sys.argv[2], sys.argv[3]]
from tests.io.test_joint import on_ranks
from ember_ml.io.joint import clear, save_jointly
from ember_ml.training import checkpointing

start = int(sys.argv[4])
for step in range(start, start + 100000):
    tree = {str(i): np.full((20000,), float(step)) for i in range(6)}
    tree["big"] = np.full((700, 300), float(step))
    tree["step"] = step
    found = on_ranks(3, lambda peer: save_jointly(f"{sys.argv[1]}/step-{step % 7:08d}", tree, peer))
    assert found == [None] * 3, found
    if step == start:  # there is one to be found, however slow the machine is
        print("ready", flush=True)
    for one in checkpointing.unfinished(sys.argv[1]):
        clear(one)
"""


def test_kills_leave_whole_checkpoints(tmp_path: Path) -> None:
    from ember_ml.training import checkpointing

    rng = random.Random(0)
    tests = str(Path(__file__).resolve().parents[2])
    for round_ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path), SOURCE, tests, str(100 * round_)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        limit = threading.Timer(120, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(0.2 + rng.random() * 0.3)
        finally:
            limit.cancel()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]  # it is a pipe
        whole = checkpointing.listed(tmp_path)
        assert whole
        for path in whole:
            found = em.load(path, backend="numpy")
            values = {
                float(v)
                for x in found.values()
                if not isinstance(x, int)
                for v in np.unique(x.numpy())
            }
            assert values == {float(found["step"])}
        # The next save in the same place, and a look at the others, leave nothing of it.
        save(tmp_path / "step-00000000", {"x": ops.ones(2), "step": 1}, 2)
        for one in checkpointing.unfinished(str(tmp_path)):
            joint.clear(one)
        assert checkpointing.unfinished(str(tmp_path)) == []
        assert len(names(tmp_path / "step-00000000")) == 3
        joint.remove(str(tmp_path / "step-00000000"))
    for path in checkpointing.listed(tmp_path):
        joint.remove(path)
    assert names(tmp_path) == []


def test_a_save_that_goes_on_is_not_cleared(tmp_path: Path) -> None:
    seen: list[bool] = []

    class Watching(Rank):
        def exchange(self, text: str) -> list[str]:
            found = super().exchange(text)
            if self.rank == 1 and (tmp_path / "c").exists():
                before = names(tmp_path / "c")
                joint.clear(str(tmp_path / "c"))
                seen.append(names(tmp_path / "c") == before)
            super().exchange("")
            return found

    def task(peer: Rank) -> None:
        save_jointly(tmp_path / "c", {"x": ops.ones(2)}, Watching(peer.rank, peer.board))

    assert on_ranks(2, task) == [None] * 2
    assert seen == [True] * 3
