"""A kill, an error or a full disk leaves the old file or the new one, never a part of one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.io import atomic

# A process that forks savers and kills them: it has no threads that a fork could harm.
HARNESS = """
import os, random, signal, sys, time
import numpy as np
import ember_ml as em

em.set_backend("numpy")
directory, kind, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
path = os.path.join(directory, "model.safetensors")
before_kind, _, after_kind = kind.partition(" to ")
in_shards = {"max_shard_size": 700_000}
first = in_shards if before_kind == "shards" else {}
options = in_shards if (after_kind or before_kind) == "shards" else {}


def tree(value):
    # Sizes differ, so that a mixture of two could not even be read.
    return {f"t{i}": np.full(100_000 + value, value, dtype="int16") for i in range(6)}


def check(place=directory):
    loaded = em.load(place)
    assert list(loaded) == [f"t{i}" for i in range(6)], list(loaded)
    values = {int(v) for x in loaded.values() for v in np.unique(x.numpy())}
    assert len(values) == 1, values
    value = values.pop()
    assert all(x.shape == (100_000 + value,) for x in loaded.values())
    return value


def forked(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(7)
    return child
"""

RANDOM = (
    HARNESS
    + """
random.seed(int(sys.argv[4]))
started = time.monotonic()
for _ in range(3):
    em.save(path, tree(0), **options)
patience = time.monotonic() - started
seen = set()
for round in range(1, rounds + 1):

    def work():
        value = 10 * round
        while True:
            em.save(path, tree(value % 10_000), **options)
            value += 1

    child = forked(work)
    time.sleep(random.random() * patience)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
    seen.add(check())
print(len(seen))
"""
)

EVERY_STEP = (
    HARNESS
    + """
killed, outcomes = 0, []
for step in range(10_000):
    old, new = 2 * step + 1, 2 * step + 2
    em.save(path, tree(old), **first)

    def work():
        count = 0

        def on_event(event, arguments):
            # Every call that opens, renames, removes, locks or lists, counted from the save on.
            nonlocal count
            if event in ("open", "os.rename", "os.remove", "fcntl.flock", "os.listdir", "os.chmod"):
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1

        sys.addaudithook(on_event)
        em.save(path, tree(new), **options)
        os._exit(0)

    assert check() == check(path) == old
    _, status = os.waitpid(forked(work), 0)
    assert check() in (old, new) and check(path) in (old, new), step
    if not os.WIFSIGNALED(status):
        assert os.WEXITSTATUS(status) == 0, status
        assert check() == check(path) == new
        break
    killed += 1
    outcomes.append(check() == new)
print(killed, sum(outcomes))
"""
)


def run(program: str, *arguments: object) -> list[int]:
    out = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.returncode == 0, out.stderr
    return [int(number) for number in out.stdout.split()]


@pytest.mark.parametrize("kind", ["file", "shards"])
def test_kills_at_random_moments(kind: str, tmp_path: Path) -> None:
    (versions,) = run(RANDOM, tmp_path, kind, 40, 1)
    assert versions > 5  # kills came before, within and after saves
    kept = set(tmp_path.iterdir())
    em.save(tmp_path, {"a": ops.ones(1)})
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"], kept


@pytest.mark.parametrize("kind", ["file", "shards", "file to shards", "shards to file"])
def test_kills_at_every_step(kind: str, tmp_path: Path) -> None:
    killed, done = run(EVERY_STEP, tmp_path, kind, 0)
    assert killed > (15 if kind.endswith("shards") else 5)
    # After the last rename there is the new one, and still something left to be killed in.
    assert 0 < done < killed


def test_an_error_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    em.save(path, ops.ones(4))
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(atomic.os, name, lambda *args: full_disk(0))
            with pytest.raises(OSError, match="No space left"):
                em.save(path, ops.zeros(9))
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk(tmp_path: Path) -> None:
    """The limit of a process on the size of files, which the system enforces as a full disk."""
    program = """
import resource, sys
import numpy as np
import ember_ml as em
em.set_backend("numpy")
path = sys.argv[1]
em.save(path, {"a": np.ones(10)})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for count in (12_400, 12_600, 1_000_000):  # within the last buffer, and far beyond
    try:
        em.save(path, {"a": np.zeros(count)})
    except OSError as error:
        print(error.errno, end=" ")
print(em.load(path)["a"].shape[0])
"""
    numbers = run(program, tmp_path / "x.safetensors")
    assert numbers == [errno.EFBIG, errno.EFBIG, 12_400]
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_a_tensor_that_cannot_be_read_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    em.save(path, {"a": ops.ones(4)})
    before = path.read_bytes()
    seen: list[Any] = []

    import jax

    def traced(x: Any) -> Any:
        seen.append(x)
        with pytest.raises(Exception, match=r"[Tt]rac"):
            em.save(path, {"a": ops.ones(4), "traced": x})
        return x

    with em.use_backend("jax"):
        jax.jit(traced)(ops.ones(3).native)
    assert seen
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_parts_of_living_saves_are_left_alone(tmp_path: Path) -> None:
    """A second save of the same path neither removes nor meets the part of the first."""
    path = tmp_path / "x.safetensors"
    dead = tmp_path / ".x.safetensors.ember-0123abcd.tmp"
    dead.write_bytes(b"half of a file")
    others = [tmp_path / ".x.safetensors.note.tmp", tmp_path / ".x.safetensors.0123abcd.tmp"]
    for other in others:
        other.write_bytes(b"not ours")
    with atomic.replacing(str(path)) as file:
        assert not dead.exists()
        file.write(b"first")
        living = [p for p in tmp_path.iterdir() if p.name.endswith(".tmp") and p not in others]
        assert len(living) == 1
        em.save(path, ops.ones(1))
        assert living[0].exists()
        assert em.load(path).tolist() == [1.0]
    assert path.read_bytes() == b"first"
    assert set(tmp_path.iterdir()) == {path, *others}


def test_many_threads_save_one_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"

    def work(value: int) -> None:
        with em.use_backend("numpy"):
            for _ in range(5):
                em.save(path, {"a": ops.full((1000,), value), "b": ops.full((10,), value)})

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loaded = em.load(path)
    assert len({*loaded["a"].tolist(), *loaded["b"].tolist()}) == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("letter", ["n", "é"])
def test_long_names(letter: str, tmp_path: Path) -> None:
    length = (255 - len(".safetensors")) // len(letter.encode())
    path = tmp_path / (letter * length + ".safetensors")
    em.save(path, ops.ones(2))
    em.save(path, ops.zeros(2))
    assert em.load(path).tolist() == [0.0, 0.0]
    assert os.listdir(tmp_path) == [path.name]
